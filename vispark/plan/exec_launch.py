"""Launches of recorded calls of ``exec``: :func:`resolve` runs the user's functions for one block signature, and gives
the protocol's ``Launch``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from numbers import Integral
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
    ValueArgument,
)
from gpu_worker.protocol.payload import field_bytes
from vispark._utils.bounded import cached
from vispark._utils.closures import UserFunction
from vispark.data.records.layout import STARTS
from vispark.plan.argument_checks import checks
from vispark.plan.arguments import ExecArgument, as_parameter, check_elements, extent_value
from vispark.plan.cuda_source import ArrayValue, DeclaredParameter
from vispark.plan.exec_call import ExecSpec
from vispark.plan.exec_options import (
    Extents,
    Init,
    PlainNumber,
    check_out_fields,
    checked_extents,
    checked_out,
    checked_shared,
    whole_extent,
)
from vispark.plan.slots import ArgumentRef, SlotTable
from vispark.plan.symbols import OUT, BlockView, ExtentExpression, InSymbol, OutSymbol


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


def _argument(passed: ExecArgument, settled: Any, slots: SlotTable, origin: ArgumentRef) -> Argument:
    """Return an argument of the launch: constants of the block go into the plan, values of the call into each pass."""
    if isinstance(settled, ArrayValue):
        return ArrayArgument(slots.slot(settled))
    if settled is not None:
        argument: Argument = settled
        return argument
    return ArrayArgument(slots.slot(origin)) if isinstance(passed, ArrayValue) else ValueArgument(slots.slot(origin))


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
    shared = _value("shared=", spec.shared, view, checked_shared)
    return _Geometry(grid, block, shared, tuple(_settled_arguments(spec, view, outputs)), outputs,
                     _initial(spec.init, outputs), Signature(tuple(fields.values())), merge)


#: What functions of a block raise by mistake.
_USERS_ERRORS = (ArithmeticError, AssertionError, AttributeError, LookupError, NameError, TypeError, ValueError,
                 RuntimeError)


def _called(what: str, function: UserFunction, view: BlockView) -> Any:
    try:
        return function.function(view)
    except _USERS_ERRORS as error:
        reason = f"{type(error).__name__}: {error}"
        raise LaunchError(f"the function given as {what} raised {reason}, for the block {view}") from error


def _value(what: str, argument: Any, view: BlockView, check: Callable[[object], Any]) -> Any:
    """Return a value, an extent or a user's function, evaluated for a block and checked."""
    if not isinstance(argument, UserFunction):
        return check(_evaluated(argument, view))
    value = _called(what, argument, view)
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


def _sizes(name: str, size: Extents | UserFunction, view: BlockView, empty: bool = False) -> tuple[int, ...]:
    """Return a grid or block. A grid without blocks is valid for an ``empty`` result, and becomes ()."""
    def check(value: object) -> Any:
        extents = value if isinstance(value, tuple | list) else (value,)
        if empty and any(isinstance(extent, Integral) and extent == 0 for extent in extents):
            return ()
        return checked_extents(name, value)

    sizes: tuple[int, ...] = _value(f"{name}=", size, view, check)
    return sizes


def _outputs(spec: ExecSpec, view: BlockView) -> Iterator[Field]:
    if not spec.written:
        read = {each.field: each for each in spec.arguments if isinstance(each, InSymbol) and not each.part}
        for symbol in read.values():
            symbol.select(view)
        yield from (field for field in view.signature.fields if field.name in read)
        return
    out = spec.out
    if isinstance(out, UserFunction):
        out = _value("out=", out, view, checked_out)
        if out is not None:
            check_out_fields(spec.written, out)
    if out is None:
        yield from _outputs_like_input(spec.written, view)
        return
    for name, array in out:
        shape: Any = tuple(whole_extent(_evaluated(extent, view), "the shape of out=", 0) for extent in array.shape)
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
    initial = [numbers.get(output.name, every) for output in outputs] if init else []
    return tuple(b"" if number is None else _filler(number, output)
                 for number, output in zip(initial, outputs, strict=False))


def _filler(number: PlainNumber, output: Field) -> bytes:
    """Return a number in an output's dtype; rounded if the dtype is floating point."""
    dtype = np.dtype(output.dtype)
    reason: Exception | None = None
    try:
        if np.iscomplexobj(number) and dtype.kind != "c":
            raise TypeError("a complex number")
        with np.errstate(all="ignore"):
            value = np.asarray(number).astype(dtype)
            fits = np.isfinite(value) or not np.isfinite(number) if dtype.kind in "fc" else value == number
    except (OverflowError, TypeError, ValueError) as error:
        fits, reason = False, error
    if not fits:
        raise LaunchError(f"init= is {number!r}, which {OUT[output.name] if output.name else OUT} of {dtype.name} does"
                          " not hold") from reason
    return value.tobytes()


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
    for number, (argument, parameter) in enumerate(zip(spec.arguments, parameters, strict=True), 1):
        what = f"argument {number} of {spec.kernel.name}"
        if isinstance(argument, InSymbol):
            array = argument.select(view)
            if parameter is not None:
                check_elements(parameter, array.dtype.str, f"{argument} (the block is {view})")
            yield _input(argument, view)
        elif isinstance(argument, OutSymbol):
            if parameter is not None:
                check_elements(parameter, dtypes[argument.field], str(argument))
            yield Out(argument.field)
        elif isinstance(argument, ExtentExpression):
            yield extent_value(argument, argument.evaluate(view), parameter, what)
        elif isinstance(argument, UserFunction):
            yield _function_argument(argument, view, parameter, what)
        else:
            yield None


def _input(symbol: InSymbol, view: BlockView) -> In | ArrayValue:
    """Return an array of the block; of rows that are of one length, and lie as a table, where each would lie."""
    name = symbol.field + symbol.part
    if symbol.part == STARTS and all(field.name != name for field in view.signature.fields):
        records, length = InSymbol(symbol.field).select(view).shape
        rows = np.column_stack([np.arange(records, dtype=np.int64) * length, np.full(records, length, np.int64)])
        return ArrayValue.of(rows, str(symbol))
    return In(name)


def _function_argument(function: UserFunction, view: BlockView, parameter: DeclaredParameter | None,
                       what: str) -> ScalarArgument | ArrayValue:
    def check(value: object) -> Any:
        return as_parameter(value, parameter, what)

    settled: ScalarArgument | ArrayValue = _value(what, function, view, check)
    return settled
