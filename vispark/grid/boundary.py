"""What lies outside of a grid: the argument ``boundary=`` read, and its functions evaluated.

Functions travel wherever a grid's keys travel, named by a digest. A process knows those of every grid that was made or
unpickled in it.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Mapping, Sequence
from numbers import Number
from typing import Any

import numpy as np
from pyspark import cloudpickle

from gpu_worker.protocol.errors import PlanError
from vispark.captured import capture
from vispark.grid.description import FUNCTION, MIRRORED, NUMBER, PERIODIC, Description, Edge, FieldEdges

_RULES = (PERIODIC, MIRRORED)
_FORMS = ('"periodic", "mirrored", a number, or a function of the position; one for all, or a tuple with one for each '
          "axis, which may be a pair for the sides below and above; or a dict of these by field")

#: Every function known here, by digest.
_known: dict[str, Callable[..., Any]] = {}


def read_boundary(boundary: Any, ndim: int) -> tuple[FieldEdges, ...]:
    """The edges that ``boundary=`` means.

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
    found: list[Edge] = []
    for axis, each in enumerate(boundary):
        sides = tuple(each) if isinstance(each, tuple | list) else (each, each)
        if len(sides) != 2:
            raise PlanError(f"boundary= of axis {axis} is {each!r}; the sides of an axis are two, below and above")
        below, above = map(_edge, sides)
        if (below.rule == PERIODIC) != (above.rule == PERIODIC):
            raise PlanError(f"boundary= of axis {axis} is periodic on one side alone, {each!r}; an axis that continues "
                            "at its other end does so on both sides")
        found += [below, above]
    return tuple(found)


def _edge(given: Any) -> Edge:
    if isinstance(given, str) and given in _RULES:
        return Edge(given)
    if isinstance(given, Number | np.generic):
        number = np.asarray(given)
        if number.dtype.kind not in "biufc":
            raise PlanError(f"boundary= has {given!r}, which no field can hold")
        return Edge.of_number(number)
    if callable(given):
        return Edge(FUNCTION, function=_keep(given))
    raise PlanError(f"unknown boundary {given!r}; it is {_FORMS}")


# -- functions --------------------------------------------------------------------------------------------------------

def _keep(function: Callable[..., Any]) -> str:
    """The digest under which a function, as it is now, is known from here on."""
    fixed = capture(function).function
    digest = hashlib.sha256(cloudpickle.dumps(fixed)).hexdigest()[:32]
    _known[digest] = fixed
    return digest


def functions_of(description: Description) -> dict[str, Callable[..., Any]]:
    """The functions that a description refers to, by digest."""
    edges = [edge for each in description.edges for edge in each.edges if edge.rule == FUNCTION]
    return {edge.function: _function(edge.function) for edge in edges}


def learn(functions: Mapping[str, Callable[..., Any]]) -> None:
    """Know functions that came with a grid's keys."""
    _known.update(functions)


def _function(digest: str) -> Callable[..., Any]:
    if digest not in _known:
        raise PlanError("the function of the position that is this grid's boundary is not known to this driver: make "
                        "the Grid here, or collect one of its keys")
    return _known[digest]


@functools.lru_cache(maxsize=32)
def boundary_values(description: Description, field: str, side: int, dtype: str) -> np.ndarray:
    """The values of the ghost cells at one side of the grid that a function gives.

    Parameters
    ----------
    description : Description
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
    shape = tuple(len(cells) for cells in coordinates)
    name = f"the boundary {'above' if above else 'below'} axis {axis}"
    return evaluate(_function(edges[side].function), np.ix_(*coordinates), shape, dtype, name)


def _led(cells: np.ndarray, extent: int, below: str, above: str) -> np.ndarray:
    """Where the rules of an axis lead cells outside of it."""
    found = cells.copy()
    for outside, rule, mirror in ((cells < 0, below, -1 - cells), (cells >= extent, above, 2 * extent - 1 - cells)):
        if rule == PERIODIC:
            found[outside] = cells[outside] % extent
        elif rule == MIRRORED:
            found[outside] = mirror[outside]
    return found


def evaluate(function: Callable[..., Any], coordinates: Sequence[np.ndarray], shape: tuple[int, ...],
             dtype: str | None, name: str) -> np.ndarray:
    """What a function of the position gives for cells.

    Parameters
    ----------
    function : callable
        Of one integer array for each axis, which broadcast against each other.
    coordinates : sequence of ndarray
        Those arrays.
    shape : tuple of int
        Of the result.
    dtype : str or None
        Of the result; None for what the function gives.
    name : str
        What an error calls it.

    Raises
    ------
    PlanError
        If the result has another shape, is no numbers, or is not of a kind that ``dtype`` holds.
    """
    try:
        given = np.asarray(function(*coordinates))
    except (TypeError, ValueError, ArithmeticError, LookupError) as error:
        raise PlanError(f"the function that gives {name} failed: {type(error).__name__}: {error}; it is called with "
                        f"one integer array for each of the {len(shape)} axes, which broadcast against each "
                        "other") from error
    return fitted(given, shape, dtype, name)


def fitted(given: np.ndarray, shape: tuple[int, ...], dtype: str | None, name: str) -> np.ndarray:
    """Values broadcast to a shape, contiguous and of a dtype.

    Raises
    ------
    PlanError
        If they cannot be.
    """
    if given.dtype.kind not in "biufc":
        raise PlanError(f"{name} is of dtype {given.dtype}; cells hold numbers")
    if dtype is not None and not np.can_cast(given.dtype, dtype, "same_kind"):
        raise PlanError(f"{name} is of dtype {given.dtype}, which the field's {np.dtype(dtype)} does not hold")
    try:
        return np.asarray(np.broadcast_to(given, shape), dtype, order="C")
    except ValueError as error:
        raise PlanError(f"{name} has shape {given.shape}, and its cells {shape}") from error


def number_for(edge: Edge, dtype: str, name: str) -> bytes:
    """A fixed value outside as little-endian bytes of a field's dtype.

    Raises
    ------
    PlanError
        If the dtype cannot hold it.
    """
    number, kind = edge.number, np.dtype(dtype)
    if kind.kind in "biu":
        integral = np.isrealobj(number) and float(number).is_integer()
        low, high = (0, 1) if kind.kind == "b" else (int(np.iinfo(kind).min), int(np.iinfo(kind).max))
        if not integral or not low <= int(number) <= high:
            raise PlanError(f"the boundary of {name} is {number}, which its {kind} cannot hold")
        return np.array(int(number), kind).tobytes()
    if kind.kind == "f" and np.iscomplexobj(number):
        raise PlanError(f"the boundary of {name} is {number}, which its {kind} cannot hold")
    with np.errstate(over="ignore"):
        found = np.asarray(number).astype(kind)
    if np.isfinite(number) and not np.isfinite(found):
        raise PlanError(f"the boundary of {name} is {number}, which its {kind} cannot hold")
    return found.tobytes()


__all__ = ["NUMBER", "boundary_values", "evaluate", "fitted", "functions_of", "learn", "number_for", "read_boundary"]
