"""Boundary treatment of a field's ghost cells, checked for a grid."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpu_worker.device.memory.grid.boxes import Triple
from gpu_worker.device.memory.grid.ghosts import GIVEN, MIRRORED, PERIODIC, Rules
from gpu_worker.device.memory.grid.patches import Cells, Domain, lifted
from gpu_worker.execution.grid.context import GridContext
from gpu_worker.protocol.errors import PlanError
from gpu_worker.protocol.grids import Halo, Side


@dataclass(frozen=True)
class Continued:
    """Boundary treatment of one field: which ghost cells to fill, and how the field continues at each side.

    Attributes
    ----------
    field : str
    below, above : (int, int, int)
        The ghost cells to fill.
    rules : tuple
        How the grid continues at its sides.
    sides : tuple of Side
        Below and above each axis that the grid has.
    key : tuple
        Equal where what is given for the sides is.
    """

    field: str
    below: Triple
    above: Triple
    rules: Rules
    sides: tuple[Side, ...]
    key: tuple[Any, ...]

    @classmethod
    def of(cls, halo: Halo, domain: Domain, cells: Cells, context: GridContext) -> Continued:
        """Return a field's halo, checked.

        Raises
        ------
        PlanError
            If it is wider than the grid's, or a side has a rule that there is not or values of another size.
        """
        below, above = lifted(halo.below, 0), lifted(halo.above, 0)
        if any(width > most for widths in (below, above) for width, most in zip(widths, domain.ghosts, strict=True)):
            raise PlanError(f"{halo.below} ghost cells below and {halo.above} above of {halo.field!r} are more than "
                            f"the grid's halo has, {domain.ghosts}")
        if len(halo.sides) != 2 * len(halo.below):
            raise PlanError(f"{len(halo.below)} axes have two sides each, and {len(halo.sides)} are described")
        missing = 3 - len(halo.below)
        rules = ((GIVEN, GIVEN),) * missing + tuple(
            (low.rule, high.rule) for low, high in zip(halo.sides[::2], halo.sides[1::2], strict=True))
        for low, high in rules:
            if {low, high} - {PERIODIC, MIRRORED, GIVEN} or (low == PERIODIC) != (high == PERIODIC):
                raise PlanError(f"an axis cannot continue as {low} below and {high} above")
        key = rules, tuple(_content(side, cells.dtype, context) for side in halo.sides)
        return cls(halo.field, below, above, rules, halo.sides, key)

    def side(self, axis: int, side: int) -> Side:
        """Return the boundary values of one side (0 below, 1 above) of an axis."""
        return self.sides[2 * (axis - 3) + side + len(self.sides)]


def _content(side: Side, dtype: np.dtype, context: GridContext) -> bytes:
    if side.rule != GIVEN:
        return b""
    if side.values >= 0:
        return hashlib.blake2b(context.arguments.fixed(side.values), digest_size=16).digest()
    if len(side.value) != dtype.itemsize:
        raise PlanError(f"the value outside of a field of {dtype} has {len(side.value)} bytes")
    return side.value
