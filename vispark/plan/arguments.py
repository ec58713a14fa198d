"""Arguments of ``exec``, converted to the kernel's parameters."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np

from gpu_worker.protocol.errors import LaunchError
from gpu_worker.protocol.messages import ScalarArgument
from vispark._utils.closures import UserFunction, capture
from vispark.plan.cuda_source import ArrayValue, DeclaredParameter, Kernel
from vispark.plan.cuda_types import CudaStructure
from vispark.plan.symbols import ExtentExpression, InSymbol, OutSymbol, ShapeSymbol

_ALIGNED = "(np.dtype(..., align=True) lays fields out as C does)"

#: The most characters of a structure's layout in an error.
_MOST_SHOWN = 160

#: What stands for a Python number where the source does not show the parameter's type.
_INT, _FLOAT, _BOOL = "<i4", "<f4", "|b1"

ExecArgument = InSymbol | OutSymbol | ExtentExpression | ScalarArgument | ArrayValue | UserFunction


def record_arguments(kernel: Kernel, args: tuple[object, ...]) -> tuple[ExecArgument, ...]:
    """Record the arguments of ``exec``: mutable ones are copied, and all are checked as far as the parameters are
    known.

    Raises
    ------
    LaunchError
        If the number of arguments is not the kernel's, or one is nothing that its parameter takes.
    """
    parameters = kernel.parameters
    whats = [f"argument {number} of {kernel.name}" for number in range(1, len(args) + 1)]
    if parameters is None:
        return tuple(_given(value, None, what) for value, what in zip(args, whats, strict=True))
    declared = f"  declared: {kernel.declaration}"
    if len(args) != len(parameters):
        recorded = [_given(value, None, what) for value, what in zip(args, whats, strict=True)]
        raise LaunchError(f"{kernel.name} takes {len(parameters)} arguments and is given {len(args)}",
                          detail=f"{declared}\n  given:    ({', '.join(map(_described, recorded))})")
    try:
        return tuple(_given(value, parameter, what)
                     for value, parameter, what in zip(args, parameters, whats, strict=True))
    except LaunchError as error:
        raise LaunchError(error.message, error.place, declared) from error.__cause__


def _given(value: object, parameter: DeclaredParameter | None, what: str) -> ExecArgument:
    """Return one argument in recorded form; mutable values are copied."""
    if isinstance(value, ShapeSymbol):
        raise LaunchError(f"{what} is {value}: an argument is one extent, as in {value}[0]")
    if isinstance(value, InSymbol | OutSymbol):
        if parameter is not None:
            _check_address(parameter, value)
        return value
    if isinstance(value, ExtentExpression):
        if parameter is not None:
            _as_number(0, parameter, what, str(value))
        return value
    if callable(value) and not isinstance(value, np.generic):
        return capture(value)
    return as_parameter(value, parameter, what)


def as_parameter(value: object, parameter: DeclaredParameter | None, what: str) -> ScalarArgument | ArrayValue:
    """Return a scalar or an array converted to its parameter's type; ``what`` names it in errors.

    Raises
    ------
    LaunchError
        If no kernel takes such a value, or this parameter does not.
    """
    if isinstance(value, bool | int | float) and not isinstance(value, np.generic):
        return _as_number(value, parameter, what)
    if isinstance(value, bytes | np.void):
        return _as_structure(value, parameter, what)
    if isinstance(value, np.ma.MaskedArray):
        raise LaunchError(f"{what} is a masked array, whose mask no kernel sees: pass its data and its mask")
    if isinstance(value, np.ndarray) and value.dtype.kind == "V":
        return _as_structures(value, parameter, what)
    if isinstance(value, np.ndarray):
        array = ArrayValue.of(value, what)
        if parameter is not None:
            _check_address(parameter, array)
            check_elements(parameter, array.dtype, str(array))
        return array
    if isinstance(value, np.generic):
        array = ArrayValue.of(value, what)
        return _fitted(ScalarArgument(array.dtype, bytes(array.data)), parameter)
    hint = {complex: ": write np.complex64(...)", list: ": write np.array(...) with a dtype",
            tuple: ": write np.array(...) with a dtype"}.get(type(value), "")
    raise LaunchError(f"{what} is of type {type(value).__name__}, which no kernel takes{hint}")


def extent_value(extent: ExtentExpression, value: int, parameter: DeclaredParameter | None,
                 what: str) -> ScalarArgument:
    """Return the value of an extent in its parameter's type."""
    return _as_number(value, parameter, f"{what}, {extent},", str(extent))


def _as_number(value: bool | float, parameter: DeclaredParameter | None, what: str, shown: str = "") -> ScalarArgument:
    """Return a Python number in its parameter's type, or as a C ``bool``, ``int`` or ``float`` if that is unknown.

    ``shown`` is what it came from, if not from a number.
    """
    dtype = np.dtype(_BOOL if isinstance(value, bool) else _INT if isinstance(value, int) else _FLOAT)
    shown = shown or f"the Python {type(value).__name__} {value}"
    dtypes = parameter.dtypes if parameter is not None else None
    target = None if dtypes is None else dtype if dtype.str in dtypes else np.dtype(dtypes[0])
    if parameter is not None and (parameter.pointer or parameter.structure):
        raise _no_number(parameter, shown)
    if parameter is not None and target is not None:
        if {"b": "b", "i": "iuf", "f": "f"}[dtype.kind].find(target.kind) < 0:
            raise LaunchError(f"the parameter `{parameter.text}` is given {shown}: write {_constructor(target)}")
        dtype = target
    named = f"`{parameter.text}`" if parameter is not None and target is not None else f"a C {_C_NAMES[dtype.str]}"
    if dtype.kind in "iu":
        bounds = np.iinfo(dtype)
        if not bounds.min <= value <= bounds.max:
            hint = "" if target is not None else ": write np.int64(...) for a `long long`"
            raise LaunchError(f"{what} is {value}, which {named} does not hold ({bounds.min} to {bounds.max}){hint}")
    elif dtype.kind == "f" and (isinstance(value, int) or math.isfinite(value)):
        if abs(value) > float(np.finfo(dtype).max):
            hint = "" if target is not None else ": write np.float64(...) for a double"
            raise LaunchError(f"{what} is {value}, more than {named} holds{hint}")
        if isinstance(value, int) and int(dtype.type(value)) != value:
            raise LaunchError(f"{what} is {value}, which {named} does not hold exactly: write {_constructor(dtype)}")
    return ScalarArgument(dtype.str, dtype.type(value).tobytes())


_C_NAMES = {_INT: "int", _FLOAT: "float", _BOOL: "bool"}


def _constructor(dtype: np.dtype) -> str:
    return "bool(x)" if dtype.kind == "b" else f"np.{dtype.name}(x)"


def _no_number(parameter: DeclaredParameter, shown: str) -> LaunchError:
    if parameter.pointer:
        return LaunchError(f"the parameter `{parameter.text}` is a pointer, but is given {shown}: pass IN, OUT or a"
                           " NumPy array")
    return LaunchError(f"the parameter `{parameter.text}` is a structure ({parameter.structure}), but is given"
                       f" {shown}: pass a structured scalar, such as np.void(...) or an element of a structured array")


def _as_structure(value: bytes | np.void, parameter: DeclaredParameter | None, what: str) -> ScalarArgument:
    """Return a structure by value: its bytes, checked against the layout if the source shows it."""
    data = value if isinstance(value, bytes) else value.tobytes()
    if isinstance(value, np.void) and value.dtype.hasobject:
        raise LaunchError(f"{what} has dtype {value.dtype}, with Python objects, which no kernel reads")
    if not data:
        raise LaunchError(f"{what} is a structure of 0 bytes")
    if parameter is not None:
        described = f"a structure of {len(data)} bytes"
        if parameter.pointer:
            raise _no_number(parameter, described)
        if parameter.dtypes:
            raise LaunchError(f"the parameter `{parameter.text}` is a number, but is given {described}")
        declared = parameter.structure
        own = None if isinstance(value, bytes) or value.dtype.fields is None else CudaStructure.of_dtype(value.dtype)
        if declared is not None and (len(data) != declared.nbytes
                                     or (own is not None and own.numbers != declared.numbers)):
            raise LaunchError(f"the parameter `{parameter.text}` is {_short(declared)}; it is given "
                              f"{_short(own) if own else f'{len(data)} bytes'} {_ALIGNED}")
    return ScalarArgument(f"|V{len(data)}", data)


def _as_structures(value: np.ndarray, parameter: DeclaredParameter | None, what: str) -> ArrayValue:
    """Return the address of an array of structures, checked against the layout where the source shows that."""
    array = ArrayValue.of_structures(value, what)
    if parameter is None:
        return array
    _check_address(parameter, array)
    if parameter.target is None and parameter.dtypes is not None:
        raise LaunchError(f"the parameter `{parameter.text}` takes {np.dtype(parameter.dtypes[0]).name}, but {what} is"
                          " an array of structures")
    own = None if value.dtype.fields is None else CudaStructure.of_dtype(value.dtype.newbyteorder("="))
    if parameter.target is not None and (value.dtype.itemsize != parameter.target.nbytes
                                         or (own is not None and own.numbers != parameter.target.numbers)):
        raise LaunchError(f"the parameter `{parameter.text}` points to structures of {_short(parameter.target)}; it is "
                          f"given an array of {_short(own) if own else f'{value.dtype.itemsize} bytes'} {_ALIGNED}")
    return array


def _short(structure: CudaStructure) -> str:
    text = str(structure)
    return text if len(text) <= _MOST_SHOWN else text[:_MOST_SHOWN].rpartition(",")[0] + ", ..."


def _fitted(argument: ScalarArgument, parameter: DeclaredParameter | None) -> ScalarArgument:
    """Return a NumPy scalar with its parameter's dtype."""
    if parameter is None:
        return argument
    if parameter.pointer:
        raise _no_number(parameter, _described(argument))
    nbytes = np.dtype(argument.dtype).itemsize
    if parameter.structure is not None and not (argument.dtype in (parameter.structure.elements or ())
                                                and nbytes == parameter.structure.nbytes):
        raise _no_number(parameter, _described(argument))
    if parameter.dtypes is not None and argument.dtype not in parameter.dtypes:
        raise LaunchError(f"the parameter `{parameter.text}` is given {_described(argument)}: write"
                          f" {_constructor(np.dtype(parameter.dtypes[0]))}")
    return argument


def _check_address(parameter: DeclaredParameter, argument: InSymbol | OutSymbol | ArrayValue) -> None:
    if parameter.pointer is False:
        raise LaunchError(f"the parameter `{parameter.text}` is no pointer, but is given {argument}, an address")
    if isinstance(argument, OutSymbol) and parameter.constant:
        raise LaunchError(f"the parameter `{parameter.text}` is const, but is given {argument}, which the kernel is to"
                          " write")


def check_elements(parameter: DeclaredParameter, dtype: str, described: str) -> None:
    """Raise LaunchError if elements of a dtype are not of the type that a pointer parameter points to."""
    if parameter.dtypes is not None and dtype not in parameter.dtypes:
        wanted = np.dtype(parameter.dtypes[0]).name
        raise LaunchError(f"the parameter `{parameter.text}` takes {wanted}, but {described} is"
                          f" {np.dtype(dtype).name}")


def _described(argument: ExecArgument) -> str:
    if isinstance(argument, ScalarArgument):
        dtype: Any = np.dtype(argument.dtype)
        return (f"a structure of {dtype.itemsize} bytes" if dtype.kind == "V" else
                f"the {dtype.name} {np.frombuffer(argument.value, dtype)[0]}")
    return f"the function {argument}" if isinstance(argument, UserFunction) else re.sub(r"\s+", " ", str(argument))
