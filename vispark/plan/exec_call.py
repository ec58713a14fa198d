"""Calls of ``exec``: recorded when they are made, resolved for each block signature.

:func:`record_exec` checks all that can be checked without a block and copies what may change afterwards.
:func:`resolve` runs the user's functions for one block signature and gives the protocol's ``Launch``.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np

from gpu_worker.protocol.errors import LaunchError
from gpu_worker.protocol.messages import (
    Argument,
    ArrayArgument,
    Field,
    In,
    Launch,
    Out,
    ScalarArgument,
    Signature,
    Value,
)
from gpu_worker.protocol.payload import field_bytes
from vispark._utils.bounded import cached
from vispark._utils.closures import UserFunction, capture
from vispark.plan.argument_checks import checks
from vispark.plan.arguments import Given, as_parameter, check_elements, extent_value, taken
from vispark.plan.cuda_source import ArrayValue, DeclaredParameter, Kernel, Kernels, device_dtype
from vispark.plan.slots import ArgumentRef, SlotTable
from vispark.plan.symbols import IN, OUT, BlockView, ExtentExpression, InSymbol, OutSymbol
from vispark.records.layout import STARTS

__all__ = ["IN", "OUT", "BlockView", "ExecSpec", "record_exec", "resolve"]

_PACKAGE = str(Path(__file__).parents[1])
_MOST_THREADS = 1024

#: The largest extents that CUDA launches, by what is given and axis.
_LIMITS = {"grid": (2**31 - 1, 65535, 65535), "block": (1024, 1024, 64)}


# -- what is recorded -------------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class OutArray:
    """An output array; its extents may depend on the input's."""

    shape: tuple[int | ExtentExpression, ...]
    dtype: str


OutFields = tuple[tuple[str, OutArray], ...]
Extents = tuple[int | ExtentExpression, ...]
Number = bool | int | float | complex | np.generic
Init = tuple[tuple[str | None, str, Number], ...]


@dataclass(frozen=True)
class ExecSpec:
    """One recorded call of ``exec``; hashable, equal by content.

    Attributes
    ----------
    kernel : Kernel
        What is launched.
    arguments : tuple
        In the kernel's order: symbols, extents, scalars and arrays by value, functions of the block.
    out : tuple of (str, OutArray), UserFunction or None
        The fields written (the name is empty for an only array), or a function of the block that gives ``out``.
    grid, block : tuple of int or extents, or UserFunction
        Launch geometry.
    shared : int, extent or UserFunction
        Dynamic shared memory in bytes.
    label : str
        What errors and plans call it, such as "exec gradient".
    init : tuple of (str or None, str, number)
        What the output's elements are before the launch, by field, or of all fields where that is None; with how it is
        written, in which 0.0 and -0.0 differ.
    where : str
        File and line of the call; no part of its content.
    """

    kernel: Kernel
    arguments: tuple[Given, ...]
    out: OutFields | UserFunction | None
    grid: Extents | UserFunction
    block: Extents | UserFunction
    shared: int | ExtentExpression | UserFunction
    label: str
    init: Init = ()
    where: str = field(default="", compare=False)

    def without_values(self) -> ExecSpec:
        """Return a copy of the call without the arguments' values, on which no launch depends: hashable, equal by
        content.
        """
        return replace(self, arguments=tuple(
            replace(given, data=b"") if isinstance(given, ArrayValue) else
            ScalarArgument(given.dtype, b"") if isinstance(given, ScalarArgument) else given
                                             for given in self.arguments))

    def shape_key(self) -> Hashable:
        """Return the cache key of the call in plans: all but the arguments' values."""
        arguments = tuple([(given.dtype, given.shape) if isinstance(given, ArrayValue) else
                           given.dtype if isinstance(given, ScalarArgument) else given for given in self.arguments])
        return self.kernel, arguments, self.out, self.grid, self.block, self.shared, self.label, self.init

    def value(self, number: int) -> ArrayValue:
        """Return the argument of a number, an array or a scalar."""
        given = self.arguments[number]
        if isinstance(given, ScalarArgument):
            return ArrayValue(given.dtype, (), given.value)
        assert isinstance(given, ArrayValue)
        return given

    @property
    def written(self) -> tuple[str, ...]:
        """The fields that the kernel writes to; none if it works in place."""
        return tuple(dict.fromkeys(given.field for given in self.arguments if isinstance(given, OutSymbol)))


def record_exec(kernel: object, args: tuple[object, ...], *, out: object = None, init: object = None, grid: object,
                block: object, shared: object = 0) -> ExecSpec:
    """Check a call of ``exec`` and copy its arguments.

    Parameters
    ----------
    kernel : Kernel
        What to launch.
    args : tuple
        The kernel's arguments: ``IN``, ``OUT``, their fields and extents, Python and NumPy scalars, NumPy arrays, or
        functions of the block that give scalars or arrays. A Python int is a C ``int``, a Python float a C ``float``.
    out : None, (shape, dtype), dict of them, or function of the block
        The output; None for the input's shape and dtype.
    init : number, dict of them, or None
        What the output's elements are before the launch; None leaves them undefined.
    grid, block : int, tuple of up to 3, or function of the block
        Launch geometry; extents such as ``-(-IN.shape[0] // 128)`` may stand for integers.
    shared : int or function of the block
        Dynamic shared memory in bytes.

    Raises
    ------
    LaunchError
        If the arguments are not the kernel's, or ``out``, ``init``, ``grid``, ``block`` or ``shared`` is malformed.

    Examples
    --------
    >>> doubling = Kernels("__global__ void twice(const float* x, float* y, int n) { y[threadIdx.x] = 2 * x[0]; }")
    >>> record_exec(doubling.twice, (IN, OUT, IN.shape[0]), grid=-(-IN.shape[0] // 128), block=128).label
    'exec twice'
    """
    if isinstance(kernel, Kernels):
        raise LaunchError(f"exec takes one kernel of {kernel!r}: name it, as in kernels.gradient")
    if not isinstance(kernel, Kernel):
        raise LaunchError(f"exec takes a kernel of Kernels(...), not {kernel!r}; for a Python function there is vmap")
    label = f"exec {kernel.name}"
    try:
        arguments = taken(kernel, args)
        spec = ExecSpec(kernel, arguments, capture(out) if callable(out) else _out(out), _extents("grid", grid),
                        _extents("block", block), _shared(shared), label, _init(init), _caller())
        _check_written(spec)
    except LaunchError as error:
        raise error.at(operation=label) from error.__cause__
    return spec


def _caller() -> str:
    """Return file and line of the innermost frame outside this package."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


# -- out=, grid=, block=, shared= -------------------------------------------------------------------------------------

_OUT_FORMS = "(shape, dtype), a dict of name to (shape, dtype), or a function of the block that gives either"


def _out(out: object) -> OutFields | None:
    if out is None:
        return None
    if not isinstance(out, Mapping):
        return (("", _out_array(out, "out=")),)
    if not out:
        raise LaunchError(f"out= is an empty dict; it is to be {_OUT_FORMS}")
    for name in out:
        if not isinstance(name, str) or not name:
            raise LaunchError(f"out= names a field {name!r}; a name is a string that is not empty")
    return tuple((name, _out_array(value, f"out= for {name!r}")) for name, value in out.items())


def _out_array(value: object, what: str) -> OutArray:
    if not isinstance(value, tuple) or len(value) != 2:
        raise LaunchError(f"{what} is {value!r}; it is to be {_OUT_FORMS}")
    shape, dtype = value
    extents = tuple(shape) if isinstance(shape, tuple | list) else (shape,)
    return OutArray(tuple(_whole(extent, f"the shape of {what}", 0) for extent in extents), device_dtype(dtype, what))


def _whole(value: object, what: str, least: int) -> int | ExtentExpression:
    if isinstance(value, ExtentExpression):
        return value
    if isinstance(value, bool) or not isinstance(value, Integral):
        hint = "; // rounds down, -(-a // b) up" if isinstance(value, float) else ""
        raise LaunchError(f"{what} has {value!r}; an extent is a whole number{hint}")
    if value < least:
        raise LaunchError(f"{what} has {value}; {'an extent is at least 1' if least else 'none may be negative'}")
    return int(value)


def _extents(name: str, value: object) -> Extents | UserFunction:
    if callable(value):
        return capture(value)
    extents = tuple(value) if isinstance(value, tuple | list) else (value,)
    if not 1 <= len(extents) <= 3:
        raise LaunchError(f"{name}={value!r} has {len(extents)} extents; 1 to 3 are possible")
    checked = tuple(_whole(extent, f"{name}=", 1) for extent in extents)
    for axis, (extent, most) in enumerate(zip(checked, _LIMITS[name], strict=False)):
        if isinstance(extent, int) and extent > most:
            raise LaunchError(f"{name}={value!r} has {extent} at axis {axis}, where {most} is the most")
    threads = math.prod(extent for extent in checked if isinstance(extent, int))
    if name == "block" and threads > _MOST_THREADS:
        raise LaunchError(f"block={value!r} has {threads} threads; {_MOST_THREADS} are the most")
    return checked


def _shared(value: object) -> int | ExtentExpression | UserFunction:
    if callable(value):
        return capture(value)
    checked = _whole(value, "shared=", 0)
    if isinstance(checked, int) and checked >= 2**31:
        raise LaunchError(f"shared={checked} is more than a launch can ask for")
    return checked


def _init(init: object) -> Init:
    by_field: Mapping[Any, Any] = init if isinstance(init, Mapping) else {} if init is None else {None: init}
    for name, value in by_field.items():
        if not isinstance(value, bool | int | float | complex | np.generic) or isinstance(value, np.flexible):
            raise LaunchError(f"init={f' for {name!r}' if name else ''} is {value!r}; it is to be a number, or a dict"
                              " of name to number")
    return tuple((name, repr(value), value) for name, value in by_field.items())


def _check_written(spec: ExecSpec) -> None:
    """Check that the kernel has an array to write to, and that ``out=`` and ``init=`` refer to such arrays."""
    written = spec.written
    if spec.init and not written:
        raise LaunchError("without OUT among its arguments a kernel works in place on a copy of its input, and init="
                          " has nothing to fill: pass OUT where the kernel takes the result's address")
    for name, _, _ in spec.init:
        if name is not None and name not in written:
            shown = ", ".join(str(OUT[each]) if each else "OUT" for each in written)
            raise LaunchError(f"init= has {name!r}; the kernel is given {shown}")
    if len(written) > 1 and "" in written:
        raise LaunchError("OUT and OUT[...] are both among the arguments: the result is one array, or has named fields")
    if written:
        if spec.out is not None and not isinstance(spec.out, UserFunction):
            _check_out_fields(written, spec.out)
        return
    if spec.out is not None:
        raise LaunchError("without OUT among its arguments a kernel works in place on a copy of its input, and out= has"
                          " nothing to say: pass OUT where the kernel takes the result's address")
    places = [position for position, given in enumerate(spec.arguments)
              if isinstance(given, InSymbol) and not given.part]
    if not places:
        raise LaunchError("neither IN nor OUT is among the arguments, so the kernel has no block to work on")
    parameters = spec.kernel.parameters
    if parameters is not None and all(parameters[place].constant for place in places):
        raise LaunchError("the kernel would write nothing: OUT is not among its arguments, and IN is given to const"
                          " parameters only")


def _check_out_fields(written: tuple[str, ...], out: OutFields) -> None:
    names = tuple(name for name, _ in out)
    if written == ("",) and names != ("",):
        raise LaunchError(f"out= has the fields {', '.join(map(repr, names))}, but the kernel is given OUT alone:"
                          f" write OUT[{names[0]!r}]")
    if names == ("",) and written != ("",):
        raise LaunchError(f"the kernel is given {', '.join(str(OUT[name]) for name in written)}, so out= is a dict of"
                          " those names to (shape, dtype)")
    missing = [name for name in written if name not in names]
    if missing:
        raise LaunchError(f"the kernel is given {OUT[missing[0]]}, but out= has no {missing[0]!r}")
    idle = [name for name in names if name not in written]
    if idle:
        raise LaunchError(f"out= has {idle[0]!r}, but {OUT[idle[0]]} is not among the kernel's arguments, so nothing"
                          " would write it")


# -- for one kind of block --------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class _Geometry:
    """Launch geometry and outputs of a call for one signature; ``arguments`` has None for values, which vary by pass.
    """

    grid: tuple[int, ...]
    block: tuple[int, ...]
    shared: int
    arguments: tuple[In | Out | ScalarArgument | ArrayValue | None, ...]
    outputs: tuple[Field, ...]
    initial: tuple[bytes, ...]
    result: Signature
    merge: bool


def resolve(spec: ExecSpec, signature: Signature, slots: SlotTable, position: int = 0) -> tuple[Launch, Signature,
                                                                                               bool]:
    """Resolve a call of ``exec`` for blocks of one signature: return its launch, the result's signature, and whether
    fields are merged.

    Parameters
    ----------
    spec : ExecSpec
        The call.
    signature : Signature
        What the input blocks look like.
    slots : SlotTable
        Where arguments by value get their slots.
    position : int
        Where in a chain the call stands.

    Returns
    -------
    launch : Launch
        The protocol's description; ``grid`` is empty if the output has no elements and there is nothing to launch.
    result : Signature
        What the result looks like.
    merge : bool
        Whether the input's other fields stay beside those written.

    Raises
    ------
    LaunchError
        If the block does not fit the kernel, or one of the user's functions fails or gives something else.
    """
    try:
        geometry = _geometry(spec.without_values(), signature)
    except LaunchError as error:
        detail = f"{error.detail}\n" * bool(error.detail) + f"  called at {spec.where}"
        raise LaunchError(error.message, error.place, detail).at(operation=spec.label) from error.__cause__
    arguments = tuple(_argument(given, settled, slots, ArgumentRef(position, "argument", number))
                      for number, (given, settled) in enumerate(zip(spec.arguments, geometry.arguments, strict=True)))
    launch = Launch(geometry.grid, geometry.block, geometry.shared, arguments, geometry.outputs,
                    initial=geometry.initial)
    return launch, geometry.result, geometry.merge


def compiler_checks(spec: ExecSpec, signature: Signature) -> str:
    """Return the C++ checks to append to a kernel's source for blocks of a signature that :func:`resolve` accepted."""
    geometry = _geometry(spec.without_values(), signature)
    return checks(spec.kernel, spec.arguments, geometry.arguments, signature, geometry.outputs)


def _argument(given: Given, settled: Any, slots: SlotTable, origin: ArgumentRef) -> Argument:
    """Return an argument of the launch: constants of the block go into the plan, values of the call into each pass."""
    if isinstance(settled, ArrayValue):
        return ArrayArgument(slots.slot(settled))
    if settled is not None:
        argument: Argument = settled
        return argument
    return ArrayArgument(slots.slot(origin)) if isinstance(given, ArrayValue) else Value(slots.slot(origin))


@cached(entries=1024)
def _geometry(spec: ExecSpec, signature: Signature) -> _Geometry:
    view = BlockView(signature)
    outputs = tuple(_outputs(spec, view))
    _check_rows(spec, view, outputs)
    merge = (bool(view.fields) and all(output.name for output in outputs)) or \
        (spec.out is None and any(view.beside(field.name) for field in signature.fields))
    fields = {field.name: field for field in signature.fields} if merge else {}
    fields |= {output.name: output for output in outputs}
    block = _sizes("block", spec.block, view)
    empty = not any(map(field_bytes, outputs))
    grid = _sizes("grid", spec.grid, view, empty)
    shared = _value("shared=", spec.shared, view, _shared)
    return _Geometry(grid, block, shared, tuple(_settled_arguments(spec, view, outputs)), outputs,
                     _initial(spec.init, outputs), Signature(tuple(fields.values())), merge)


#: What functions of a block raise by mistake.
_USERS_ERRORS = (ArithmeticError, AssertionError, AttributeError, LookupError, NameError, TypeError, ValueError,
                 RuntimeError)


def _called(what: str, function: UserFunction, view: BlockView) -> Any:
    try:
        return function.function(view)
    except _USERS_ERRORS as error:
        said = f"{type(error).__name__}: {error}"
        raise LaunchError(f"the function given as {what} raised {said}, for the block {view}") from error


def _value(what: str, given: Any, view: BlockView, check: Callable[[object], Any]) -> Any:
    """Return a value, an extent or a user's function, evaluated for a block and checked."""
    if not isinstance(given, UserFunction):
        return check(_evaluated(given, view))
    value = _called(what, given, view)
    if callable(value):
        raise LaunchError(f"the function given as {what} returned another function, for the block {view}")
    try:
        return check(_evaluated(value, view))
    except LaunchError as error:
        raise LaunchError(f"{error.message} (returned by the function given as {what}, for the block {view})",
                          error.place, error.detail) from error


def _evaluated(value: Any, view: BlockView) -> Any:
    if isinstance(value, ExtentExpression):
        return value.evaluate(view)
    return tuple(_evaluated(part, view) for part in value) if isinstance(value, tuple) else value


def _sizes(name: str, given: Extents | UserFunction, view: BlockView, empty: bool = False) -> tuple[int, ...]:
    """Return a grid or block. A grid without blocks is valid for an ``empty`` result, and becomes ()."""
    def check(value: object) -> Any:
        extents = value if isinstance(value, tuple | list) else (value,)
        if empty and any(isinstance(extent, Integral) and extent == 0 for extent in extents):
            return ()
        return _extents(name, value)

    sizes: tuple[int, ...] = _value(f"{name}=", given, view, check)
    return sizes


def _outputs(spec: ExecSpec, view: BlockView) -> Iterator[Field]:
    if not spec.written:
        read = {given.field: given for given in spec.arguments if isinstance(given, InSymbol) and not given.part}
        for given in read.values():
            given.select(view)
        yield from (field for field in view.signature.fields if field.name in read)
        return
    out = spec.out
    if isinstance(out, UserFunction):
        out = _value("out=", out, view, _out)
        if out is not None:
            _check_out_fields(spec.written, out)
    if out is None:
        yield from _outputs_like_input(spec.written, view)
        return
    for name, array in out:
        shape: Any = tuple(_whole(_evaluated(extent, view), "the shape of out=", 0) for extent in array.shape)
        yield Field(name, array.dtype, shape)


def _check_rows(spec: ExecSpec, view: BlockView, outputs: Sequence[Field]) -> None:
    """Check that rows of several lengths are written as they are, or not at all where others are kept."""
    if spec.out is None or not view.fields:
        return
    for output in outputs:
        if any(field.name == output.name + STARTS for field in view.signature.fields):
            raise LaunchError(f"out= writes {OUT[output.name]}, and {output.name!r} of the block is rows of several "
                              "lengths, which stay: give the result another name")


def _initial(init: Init, outputs: Sequence[Field]) -> tuple[bytes, ...]:
    """Return the bytes of the number that fills each output; empty for one that is not filled."""
    numbers = {name: number for name, _, number in init}
    every = numbers.get(None)
    wanted = [numbers.get(output.name, every) for output in outputs] if init else []
    return tuple(b"" if number is None else _filler(number, output)
                 for number, output in zip(wanted, outputs, strict=False))


def _filler(number: Number, output: Field) -> bytes:
    """Return a number in an output's dtype; rounded if the dtype is floating point."""
    dtype = np.dtype(output.dtype)
    reason: Exception | None = None
    try:
        if np.iscomplexobj(number) and dtype.kind != "c":
            raise TypeError("a complex number")
        with np.errstate(all="ignore"):
            made = np.asarray(number).astype(dtype)
            fits = np.isfinite(made) or not np.isfinite(number) if dtype.kind in "fc" else made == number
    except (OverflowError, TypeError, ValueError) as error:
        fits, reason = False, error
    if not fits:
        raise LaunchError(f"init= is {number!r}, which {OUT[output.name] if output.name else OUT} of {dtype.name} does"
                          " not hold") from reason
    return made.tobytes()


def _outputs_like_input(written: tuple[str, ...], view: BlockView) -> Iterator[Field]:
    fields = {field.name: field for field in view.signature.fields}
    for name in written:
        if name not in fields:
            has = f"the fields {', '.join(map(repr, view.fields))}" if view.fields else "no named fields"
            raise LaunchError(f"the input has no counterpart of {OUT[name] if name else OUT}, it has {has}: say with"
                              " out= what the kernel writes")
        yield fields[name]


def _settled_arguments(spec: ExecSpec, view: BlockView,
                       outputs: tuple[Field, ...]) -> Iterator[In | Out | ScalarArgument | ArrayValue | None]:
    parameters = spec.kernel.parameters or (None,) * len(spec.arguments)
    dtypes = {output.name: output.dtype for output in outputs}
    for number, (given, parameter) in enumerate(zip(spec.arguments, parameters, strict=True), 1):
        what = f"argument {number} of {spec.kernel.name}"
        if isinstance(given, InSymbol):
            array = given.select(view)
            if parameter is not None:
                check_elements(parameter, array.dtype.str, f"{given} (the block is {view})")
            yield _input(given, view)
        elif isinstance(given, OutSymbol):
            if parameter is not None:
                check_elements(parameter, dtypes[given.field], str(given))
            yield Out(given.field)
        elif isinstance(given, ExtentExpression):
            yield extent_value(given, given.evaluate(view), parameter, what)
        elif isinstance(given, UserFunction):
            yield _function_argument(given, view, parameter, what)
        else:
            yield None


def _input(given: InSymbol, view: BlockView) -> In | ArrayValue:
    """Return an array of the block; of rows that are of one length, and lie as a table, where each would lie."""
    name = given.field + given.part
    if given.part == STARTS and all(field.name != name for field in view.signature.fields):
        records, length = InSymbol(given.field).select(view).shape
        rows = np.column_stack([np.arange(records, dtype=np.int64) * length, np.full(records, length, np.int64)])
        return ArrayValue.of(rows, str(given))
    return In(name)


def _function_argument(given: UserFunction, view: BlockView, parameter: DeclaredParameter | None,
                       what: str) -> ScalarArgument | ArrayValue:
    def check(value: object) -> Any:
        return as_parameter(value, parameter, what)

    settled: ScalarArgument | ArrayValue = _value(what, given, view, check)
    return settled
