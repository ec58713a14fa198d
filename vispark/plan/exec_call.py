"""Calls of ``exec`` as they are recorded: what can be checked without a block is, and what may change is copied.

:mod:`vispark.plan.exec_launch` resolves them for each block signature.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from pathlib import Path

from gpu_worker.protocol.errors import LaunchError
from gpu_worker.protocol.messages import ScalarArgument
from vispark._utils.closures import UserFunction, capture
from vispark.plan.arguments import ExecArgument, record_arguments
from vispark.plan.cuda_source import ArrayValue, Kernel, Kernels
from vispark.plan.exec_options import (
    Extents,
    Init,
    OutFields,
    check_out_fields,
    checked_extents,
    checked_init,
    checked_out,
    checked_shared,
)
from vispark.plan.symbols import OUT, ExtentExpression, InSymbol, OutSymbol

_PACKAGE = str(Path(__file__).parents[1])


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
    arguments: tuple[ExecArgument, ...]
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
        argument = self.arguments[number]
        if isinstance(argument, ScalarArgument):
            return ArrayValue(argument.dtype, (), argument.value)
        assert isinstance(argument, ArrayValue)
        return argument

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
        arguments = record_arguments(kernel, args)
        spec = ExecSpec(kernel, arguments, capture(out) if callable(out) else checked_out(out),
                        checked_extents("grid", grid), checked_extents("block", block), checked_shared(shared), label,
                        checked_init(init), _caller())
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


def _check_written(spec: ExecSpec) -> None:
    """Check that the kernel has an array to write to, and that ``out=`` and ``init=`` refer to such arrays."""
    written = spec.written
    if spec.init and not written:
        raise LaunchError("without OUT among its arguments a kernel works in place on a copy of its input, and init="
                          " has nothing to fill: pass OUT where the kernel takes the result's address")
    for name, _, _ in spec.init:
        if name is not None and name not in written:
            symbols = ", ".join(str(OUT[each]) if each else "OUT" for each in written)
            raise LaunchError(f"init= has {name!r}; the kernel is given {symbols}")
    if len(written) > 1 and "" in written:
        raise LaunchError("OUT and OUT[...] are both among the arguments: the result is one array, or has named fields")
    if written:
        if spec.out is not None and not isinstance(spec.out, UserFunction):
            check_out_fields(written, spec.out)
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
