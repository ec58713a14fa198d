"""Grids the slow way, in NumPy: what lies outside, and stencils as shifted arrays."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from vispark.translate import Stencil

#: Of each axis, how it continues below and above: "periodic", "mirrored", a number or a function of the position.
SideRules = Sequence[tuple[Any, Any]]


def padded(cells: np.ndarray, halo: Sequence[int], rules: SideRules) -> np.ndarray:
    """Return the whole grid with its halo, continued along one axis after the other."""
    positions = [np.broadcast_to(each, cells.shape) for each in np.ix_(*map(np.arange, cells.shape))]
    shape = cells.shape
    for axis, (below, above) in enumerate(rules):
        width = halo[axis]
        outside = [(width, width) if at == axis else (0, 0) for at in range(cells.ndim)]
        numbers = np.arange(-width, shape[axis] + width)
        along = [-1 if at == axis else 1 for at in range(cells.ndim)]
        positions = [np.pad(each, outside, "edge") for each in positions]
        positions[axis] = np.broadcast_to(numbers.reshape(along), positions[axis].shape)
        extended = np.pad(cells, outside)
        for rule, cut in ((below, slice(0, width)), (above, slice(shape[axis] + width, None))):
            part = tuple(cut if at == axis else slice(None) for at in range(cells.ndim))
            if rule == "periodic":
                extended[part] = np.pad(cells, outside, "wrap")[part]
            elif rule == "mirrored":
                extended[part] = np.pad(cells, outside, "symmetric")[part]
            else:
                extended[part] = rule(*[each[part] for each in positions]) if callable(rule) else rule
        led = [_led(number, shape[axis], below, above) for number in numbers]
        positions[axis] = np.broadcast_to(np.reshape(led, along), positions[axis].shape)
        cells = extended
    return cells


def _led(number: int, extent: int, below: Any, above: Any) -> int:
    """Return the cell that a rule leads one outside to along an axis; a value that is given leads nowhere."""
    rule = below if number < 0 else above
    if 0 <= number < extent or rule not in ("periodic", "mirrored"):
        return number
    return number % extent if rule == "periodic" else -1 - number if number < 0 else 2 * extent - 1 - number


class Shifted:
    """A field as a stencil sees it: indexed by an offset, it gives all cells at that offset."""

    def __init__(self, cells: np.ndarray, halo: Sequence[int], rules: SideRules):
        self.whole, self.halo, self.shape = padded(cells, halo, rules), tuple(halo), cells.shape

    def __getitem__(self, offset: int | tuple[int, ...]) -> np.ndarray:
        offsets = offset if isinstance(offset, tuple) else (offset,)
        return self.whole[tuple(slice(width + by, width + by + extent)
                                for width, by, extent in zip(self.halo, offsets, self.shape, strict=True))]


def applied(function: Stencil, fields: np.ndarray | Mapping[str, np.ndarray], *arguments: Any, halo: Sequence[int],
            rules: SideRules | Mapping[str, SideRules]) -> Any:
    """Apply a stencil without branches to a grid: return an array, or all fields."""
    if isinstance(fields, np.ndarray):
        assert not isinstance(rules, Mapping)
        return function.function(Shifted(fields, halo, rules), *arguments)
    code = function.function.__code__
    names = [name for name in code.co_varnames[:code.co_argcount] if name in fields]
    shifts = {name: Shifted(fields[name], halo, rules[name] if isinstance(rules, Mapping) else rules) for name in names}
    rest = [name for name in code.co_varnames[:code.co_argcount] if name not in fields]
    return {**fields, **function.function(**shifts, **dict(zip(rest, arguments, strict=True)))}


def offsets(halo: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yield the cells at the end of the halo in each direction: faces, edges, corners, and the cell itself."""
    return itertools.product(*[sorted({-width, 0, width}) for width in halo])


def numbered(shape: Sequence[int], dtype: Any, start: int = 1) -> np.ndarray:
    """Return a field that tells each cell by its coordinates."""
    return (np.arange(np.prod(shape)).reshape(shape) + start).astype(dtype)


CellFunction = Callable[..., Any]
