"""Boundary conditions of a grid: the argument ``boundary=`` read, and its functions evaluated.

Functions travel wherever a grid's keys travel, named by a digest. A process knows those of every grid that was made or
unpickled in it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from numbers import Number
from typing import Any

import numpy as np
from pyspark import cloudpickle

from gpu_worker.protocol.errors import PlanError
from vispark._utils.bounded import cached
from vispark._utils.closures import capture
from vispark.data.grid.spec import FUNCTION, MIRRORED, NUMBER, PERIODIC, Edge, FieldEdges, GridSpec
from vispark.data.grid.values import called, evaluate, first_cell, held

_RULES = (PERIODIC, MIRRORED)
_FORMS = ('"periodic", "mirrored", a number, or a function of the position; one for all, or a tuple with one for each '
          "axis, which may be a pair for the sides below and above; or a dict of these by field")

#: Every function known here, by digest.
_known: dict[str, Callable[..., Any]] = {}


def read_boundary(boundary: Any, ndim: int) -> tuple[FieldEdges, ...]:
    """Return the edges that ``boundary=`` means.

    Raises
    ------
    PlanError
        If it is none of what a boundary may be, or periodic on one side of an axis alone.
    """
    if isinstance(boundary, Mapping):
        for name in boundary:
            if not isinstance(name, str):
                raise PlanError(f"boundary= is a dict with the key {name!r}; its keys are names of fields")
        return tuple(FieldEdges(name, _edges(each, ndim)) for name, each in boundary.items())
    return (FieldEdges("", _edges(boundary, ndim)),)


def _edges(boundary: Any, ndim: int) -> tuple[Edge, ...]:
    if not isinstance(boundary, tuple | list):
        return (_edge(boundary),) * (2 * ndim)
    if len(boundary) != ndim:
        raise PlanError(f"boundary={boundary!r} has {len(boundary)} items for a grid of {ndim} axes; a tuple has one "
                        "for each axis, which may be a pair for its two sides")
    edges: list[Edge] = []
    for axis, rule in enumerate(boundary):
        sides = tuple(rule) if isinstance(rule, tuple | list) else (rule, rule)
        if len(sides) != 2:
            raise PlanError(f"boundary= of axis {axis} is {rule!r}; the sides of an axis are two, below and above")
        below, above = map(_edge, sides)
        if (below.rule == PERIODIC) != (above.rule == PERIODIC):
            raise PlanError(f"boundary= of axis {axis} is periodic on one side alone, {rule!r}; an axis that continues "
                            "at its other end does so on both sides")
        edges += [below, above]
    return tuple(edges)


def _edge(rule: Any) -> Edge:
    if isinstance(rule, str) and rule in _RULES:
        return Edge(rule)
    if isinstance(rule, Number | np.generic):
        number = np.asarray(rule)
        if number.dtype.kind not in "biufc":
            raise PlanError(f"boundary= has {rule!r}, which no field can hold")
        return Edge.of_number(number)
    if callable(rule):
        return Edge(FUNCTION, function=_keep(rule))
    raise PlanError(f"unknown boundary {rule!r}; it is {_FORMS}")


def boundary_words(description: GridSpec) -> str:
    """Return the argument ``boundary=`` of a grid, as one would write it; a function as its name."""
    by_field = {each.field: _words(each.edges) for each in description.edges}
    if set(by_field) == {""}:
        return by_field[""]
    return "{" + ", ".join(f"{field!r}: {words}" for field, words in by_field.items()) + "}"


def _words(edges: Sequence[Edge]) -> str:
    """Return the rules at the sides, no longer than they have to be."""
    sides = [_word(edge) for edge in edges]
    axes = [sides[at] if sides[at] == sides[at + 1] else f"({sides[at]}, {sides[at + 1]})"
            for at in range(0, len(sides), 2)]
    if len(set(sides)) == 1:
        return sides[0]
    return "(" + ", ".join(axes) + ("," if len(axes) == 1 else "") + ")"


def _word(edge: Edge) -> str:
    if edge.rule == NUMBER:
        return str(edge.number.item())
    if edge.rule == FUNCTION:
        return function_name(edge.function)
    return repr(edge.rule)


# -- functions --------------------------------------------------------------------------------------------------------

def _keep(function: Callable[..., Any]) -> str:
    """Register a function as it is now, and return its digest."""
    fixed = capture(function).function
    digest = hashlib.sha256(cloudpickle.dumps(fixed)).hexdigest()[:32]
    _known[digest] = fixed
    return digest


def functions_of(description: GridSpec) -> dict[str, Callable[..., Any]]:
    """Return the functions that a description refers to, by digest."""
    edges = [edge for each in description.edges for edge in each.edges if edge.rule == FUNCTION]
    return {edge.function: _function(edge.function) for edge in edges}


def function_name(digest: str) -> str:
    """Return the name of a function, as its author called it."""
    return str(getattr(_known.get(digest), "__name__", "function"))


def learn(functions: Mapping[str, Callable[..., Any]]) -> None:
    """Know functions that came with a grid's keys."""
    _known.update(functions)


def _function(digest: str) -> Callable[..., Any]:
    if digest not in _known:
        raise PlanError("the function of the position that is this grid's boundary is not known to this driver: make "
                        "the Grid here, or collect one of its keys")
    return _known[digest]


@cached(entries=32)
def boundary_values(description: GridSpec, field: str, side: int, dtype: str) -> np.ndarray:
    """Return the values of a boundary function for the ghost cells at one side of the grid.

    Parameters
    ----------
    description : GridSpec
        The grid.
    field : str
        Of which the boundary is.
    side : int
        Twice the axis, and one more for the side above.
    dtype : str
        The field's.

    Returns
    -------
    ndarray
        Along the side's axis the halo's width, in ascending order; along others the grid's cells and the halo on both
        sides. Where those continue by a rule, the function is asked for the cell that the rule leads to.

    Raises
    ------
    PlanError
        If the function fails, or gives what the field cannot hold.
    """
    return _evaluated(description, field, side, dtype)


def _evaluated(description: GridSpec, field: str, side: int, dtype: str | None) -> np.ndarray:
    edges, coordinates = description.edges_of(field), _coordinates(description, field, side)
    shape = tuple(map(len, coordinates))
    return evaluate(_function(edges[side].function), np.ix_(*coordinates), shape, dtype, _side(field, side))


def _side(field: str, side: int) -> str:
    """Return the name of the boundary at a side, for errors."""
    return f"the boundary {'above' if side % 2 else 'below'} axis {side // 2}{f' of field {field!r}' if field else ''}"


def _coordinates(description: GridSpec, field: str, side: int) -> list[np.ndarray]:
    """Return the positions along each axis that a function is asked for at a side."""
    axis, above = divmod(side, 2)
    edges = description.edges_of(field)
    coordinates = []
    for other, (extent, width) in enumerate(zip(description.shape, description.halo, strict=True)):
        cells = np.arange(-width, extent + width)
        if other == axis:
            cells = cells[extent + width:] if above else cells[:width]
        else:
            cells = _led(cells, extent, edges[2 * other].rule, edges[2 * other + 1].rule)
        coordinates.append(cells)
    return coordinates


def _led(cells: np.ndarray, extent: int, below: str, above: str) -> np.ndarray:
    """Map cells outside of an axis to cells inside by the rules of its sides, where these are periodic or mirrored."""
    led = cells.copy()
    for outside, rule, mirror in ((cells < 0, below, -1 - cells), (cells >= extent, above, 2 * extent - 1 - cells)):
        if rule == PERIODIC:
            led[outside] = cells[outside] % extent
        elif rule == MIRRORED:
            led[outside] = mirror[outside]
    return led


# -- what a grid is refused for ---------------------------------------------------------------------------------------

def check_boundary(description: GridSpec, fields: Sequence[tuple[str, str]], nan_outside: bool) -> None:
    """Check that the values given outside are numbers, and of the fields' dtypes if these are known.

    Parameters
    ----------
    description : GridSpec
        The grid.
    fields : sequence of (str, str)
        The names and dtypes of its fields; none where they are not known.
    nan_outside : bool
        Whether values may be NaN.

    Raises
    ------
    PlanError
        If a value is NaN or one that the field's dtype cannot hold, or a function fails.
    """
    unknown: list[tuple[str, str | None]] = [(each.field, None) for each in description.edges]
    for field, dtype in fields or unknown:
        for side, edge in enumerate(description.edges_of(field)):
            if edge.rule == NUMBER:
                if dtype is not None:
                    number_for(edge, dtype, field)
                if np.isnan(edge.number) and not nan_outside:
                    raise PlanError(f"{_side(field, side)} is NaN, {_MEANT}")
            elif edge.rule == FUNCTION and description.halo[side // 2]:
                _check_function(description, field, side, dtype, nan_outside)


_MEANT = "and so would be what is computed of it; where that is meant, say nan_outside=True"


def _check_function(description: GridSpec, field: str, side: int, dtype: str | None, nan_outside: bool) -> None:
    # With a dtype these are the values that exchanges take later on, which are kept.
    values = _evaluated(description, field, side, None) if dtype is None else boundary_values(
        description, field, side, dtype)
    if nan_outside or values.dtype.kind not in "fc":
        return
    coordinates = _coordinates(description, field, side)
    cell = first_cell(np.isnan(values), coordinates)
    if cell is not None:
        block = description.block_beside(cell)
        raise PlanError(f"{_side(field, side)} is NaN at cell {cell}, beside block {block}, {_MEANT}")


def number_for(edge: Edge, dtype: str, field: str) -> bytes:
    """Return a fixed value outside as little-endian bytes of a field's dtype.

    Raises
    ------
    PlanError
        If the dtype cannot hold it.
    """
    return held(edge.number, dtype, f"the boundary of {called(field)}").tobytes()
