"""Symbols of a run for values that are no polynomials: lengths of axes, places along them, loops' ranges."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from vispark.translate.nearest.polynomials import Poly


@dataclass(frozen=True)
class AxisLength:
    """The length of an axis."""

    axis: str


@dataclass(frozen=True)
class GivenNumber:
    """A Python int that is given beside the element, which counts only where it is the length of an axis."""

    value: int


@dataclass(frozen=True)
class LoopIndex:
    """A loop's variable: a place along an axis."""

    axis: str
    name: str


@dataclass(frozen=True)
class Least:
    """The least distance that a loop over the centres found."""


@dataclass(frozen=True, eq=False)
class EmptyArray:
    """An array of one number for each centre that is still to be filled."""


@dataclass(frozen=True)
class LoopRange:
    """Range of a loop: ``values`` at each place along an axis, from ``start`` on."""

    axis: str
    values: Callable[[LoopIndex], object]
    start: int = 0


@dataclass(frozen=True, eq=False)
class Unknown:
    """A value that nothing is known of; equal to nothing else."""


@dataclass(frozen=True)
class Written(Poly):
    """A number as it was written, which says its type where it is returned."""

    written: int | float = field(default=0, compare=False)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Poly) and (self.axes, self.terms) == (other.axes, other.terms)

    __hash__ = None     # type: ignore[assignment]
