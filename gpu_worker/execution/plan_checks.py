"""Checks of parts of a plan, which its verification and the handlers of its steps share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from gpu_worker.protocol.errors import PlanError
from gpu_worker.protocol.grids import GridShape, Halo
from gpu_worker.protocol.messages import ArgumentValue, FieldFold, Plan

#: The most keys that one fold can be meant to have.
_MOST_KEYS = 1 << 31
#: Kinds of numbers that kernels know.
_KINDS = "biufc"

_OVER = ("rows", "blocks")
_RULES = ("periodic", "mirrored", "given")


def require(holds: bool, what: str) -> None:
    """Raise PlanError with a sentence unless a condition holds."""
    if not holds:
        raise PlanError(what)


@lru_cache(maxsize=256)
def dtype_of(text: str, *, is_argument: bool = False) -> np.dtype:
    """Return the dtype that a message names: of numbers, or for an argument of anything that is bytes alone.

    Raises
    ------
    PlanError
        If it is none that devices know.
    """
    try:
        dtype = np.dtype(text)
    except (TypeError, ValueError, SyntaxError) as error:
        raise PlanError(f"{text[:40]!r} is no dtype") from error
    is_fit = not dtype.hasobject if is_argument else dtype.kind in _KINDS
    require(is_fit and dtype.itemsize > 0, f"arrays on devices are of numbers, not of {text[:40]!r}")
    return dtype


def value_bytes(value: ArgumentValue) -> int:
    """Return the bytes of a value, checked against the data that came with it.

    Raises
    ------
    PlanError
        If its dtype is none, or it has not the bytes of its shape.
    """
    size = dtype_of(value.dtype, is_argument=True).itemsize
    require(min(value.shape, default=0) >= 0 and value.offset >= -(value.vrdd > 0),
            "a value has a shape or an offset below 0")
    nbytes = math.prod(value.shape) * size
    require(len(value.data) in (0, nbytes), f"a value of shape {value.shape[:8]} and {value.dtype[:40]} has "
                                            f"{len(value.data)} bytes, not {nbytes}")
    return nbytes


def check_over(over: str, *, done: str) -> None:
    """Raise PlanError unless what is fetched or folded is "rows" or "blocks"."""
    require(over in _OVER, f"what is {done} is rows or blocks, not {over[:40]!r}")


def check_folds(fields: Sequence[FieldFold]) -> None:
    """Raise PlanError where a fold of a field has a guard or a dtype that is none."""
    for fold in fields:
        require(fold.guard in ("", "overflow", "nan"), f"no fold is guarded for {fold.guard[:40]!r}")
        if fold.result:
            dtype_of(fold.result)


def check_groups(groups: int) -> None:
    """Raise PlanError unless keys can be folded below a number."""
    require(1 <= groups <= _MOST_KEYS, f"keys are folded below 1 to {_MOST_KEYS:,}, not {groups:,}")


def check_stencil(plan: Plan, number: int) -> None:
    """Raise PlanError unless a plan has a stencil of a number."""
    require(0 <= number < len(plan.stencils),
            f"a step launches stencil {number}, and the plan has {len(plan.stencils)}")


def check_halos(grid: GridShape, halos: Sequence[Halo]) -> None:
    """Raise PlanError where the widths and sides of halos are not those of a grid."""
    axes, ghosts = len(grid.shape), grid.ghosts or grid.halo
    for halo in halos:
        require(len(halo.below) == len(halo.above) == axes and len(halo.sides) == 2 * axes,
                f"a halo has widths for {axes} axes and {2 * axes} sides")
        require(all(0 <= each <= most for widths in (halo.below, halo.above)
                    for each, most in zip(widths, ghosts, strict=True)),
                f"a halo is as wide as the grid's ghost cells, {ghosts}, at most")
        for place, side in enumerate(halo.sides):
            require(side.rule in _RULES, f"a side is {', '.join(_RULES)}, not {side.rule[:40]!r}")
            other = halo.sides[place ^ 1]
            require((side.rule == "periodic") == (other.rule == "periodic"),
                    "an axis is periodic at both its sides, or at none")
