"""Options of a call of ``exec``, ``out=``, ``init=``, ``grid=``, ``block=`` and ``shared=``: their forms, and checks.

What depends on the block, an extent or a user's function, is checked when it is known, by the same functions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np

from gpu_worker.protocol.errors import LaunchError
from vispark._utils.closures import UserFunction, capture
from vispark.plan.cuda_source import device_dtype
from vispark.plan.symbols import OUT, ExtentExpression

_MOST_THREADS = 1024

#: The largest extents that CUDA launches, by what is given and axis.
_LIMITS = {"grid": (2**31 - 1, 65535, 65535), "block": (1024, 1024, 64)}


@dataclass(frozen=True)
class OutArray:
    """An output array; its extents may depend on the input's."""

    shape: tuple[int | ExtentExpression, ...]
    dtype: str


OutFields = tuple[tuple[str, OutArray], ...]
Extents = tuple[int | ExtentExpression, ...]
PlainNumber = bool | int | float | complex | np.generic
Init = tuple[tuple[str | None, str, PlainNumber], ...]

_OUT_FORMS = "(shape, dtype), a dict of name to (shape, dtype), or a function of the block that gives either"


def checked_out(out: object) -> OutFields | None:
    """Return ``out=`` as it is recorded: the fields that are written, or None for the input's."""
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
    return OutArray(tuple(whole_extent(extent, f"the shape of {what}", 0) for extent in extents),
                    device_dtype(dtype, what))


def whole_extent(value: object, what: str, least: int) -> int | ExtentExpression:
    """Return an extent that is a whole number and at least ``least``, or that depends on the block."""
    if isinstance(value, ExtentExpression):
        return value
    if isinstance(value, bool) or not isinstance(value, Integral):
        hint = "; // rounds down, -(-a // b) up" if isinstance(value, float) else ""
        raise LaunchError(f"{what} has {value!r}; an extent is a whole number{hint}")
    if value < least:
        raise LaunchError(f"{what} has {value}; {'an extent is at least 1' if least else 'none may be negative'}")
    return int(value)


def checked_extents(name: str, value: object) -> Extents | UserFunction:
    """Return ``grid=`` or ``block=`` as it is recorded, within what CUDA launches."""
    if callable(value):
        return capture(value)
    extents = tuple(value) if isinstance(value, tuple | list) else (value,)
    if not 1 <= len(extents) <= 3:
        raise LaunchError(f"{name}={value!r} has {len(extents)} extents; 1 to 3 are possible")
    checked = tuple(whole_extent(extent, f"{name}=", 1) for extent in extents)
    for axis, (extent, most) in enumerate(zip(checked, _LIMITS[name], strict=False)):
        if isinstance(extent, int) and extent > most:
            raise LaunchError(f"{name}={value!r} has {extent} at axis {axis}, where {most} is the most")
    threads = math.prod(extent for extent in checked if isinstance(extent, int))
    if name == "block" and threads > _MOST_THREADS:
        raise LaunchError(f"block={value!r} has {threads} threads; {_MOST_THREADS} are the most")
    return checked


def checked_shared(value: object) -> int | ExtentExpression | UserFunction:
    """Return ``shared=`` as it is recorded."""
    if callable(value):
        return capture(value)
    checked = whole_extent(value, "shared=", 0)
    if isinstance(checked, int) and checked >= 2**31:
        raise LaunchError(f"shared={checked} is more than a launch can ask for")
    return checked


def checked_init(init: object) -> Init:
    """Return ``init=`` as it is recorded."""
    by_field: Mapping[Any, Any] = init if isinstance(init, Mapping) else {} if init is None else {None: init}
    for name, value in by_field.items():
        if not isinstance(value, bool | int | float | complex | np.generic) or isinstance(value, np.flexible):
            raise LaunchError(f"init={f' for {name!r}' if name else ''} is {value!r}; it is to be a number, or a dict"
                              " of name to number")
    return tuple((name, repr(value), value) for name, value in by_field.items())


def check_out_fields(written: tuple[str, ...], out: OutFields) -> None:
    """Check that ``out=`` describes the arrays that the kernel is given to write to, and no others."""
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
