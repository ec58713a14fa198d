"""Stencils: functions of a cell and its neighbours, whose offsets are literal.

``u[0, -1]`` is the neighbour one to the left of the cell. The halo's width on either side of each axis is read off the
offsets, also of those in functions that the stencil gives a field to.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any

from vispark.translate import form
from vispark.translate.form import Definition
from vispark.translate.text import at_definition, complain

Halo = tuple[tuple[int, int], ...]

#: What is wrong with an offset that is computed.
COMPUTED = ("a stencil's offsets are whole numbers written out, as in u[0, -1]; for an array that is not the grid, use "
            "a plain function")


class Stencil:
    """A function marked by :func:`stencil`; called, it is the plain function."""

    def __init__(self, function: Callable[..., Any]):
        self.function = function
        functools.update_wrapper(self, function)

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        return self.function(*args, **keywords)

    def __repr__(self) -> str:
        return f"stencil {self.function.__qualname__}"


def stencil(function: Callable[..., Any]) -> Stencil:
    """Mark a function whose indices are offsets relative to the cell; for ``vmap`` and ``iterate`` on a grid.

    Examples
    --------
    >>> @stencil
    ... def smooth(u):
    ...     return (u[-1] + 2 * u[0] + u[1]) / 4
    >>> smooth
    stencil smooth
    """
    return Stencil(function)


def coordinate(axis: int) -> int:
    """Give the index of the cell in the whole grid along an axis; inside functions of a grid's cells only.

    Parameters
    ----------
    axis : int
        The axis, counted as in the grid's shape; a number written out.

    Raises
    ------
    RuntimeError
        Outside a translated function, where there is no cell.

    Examples
    --------
    >>> @stencil
    ... def heated(u):
    ...     return 1.0 if coordinate(0) == 0 else u[0]
    """
    raise RuntimeError(f"coordinate({axis}) has a value only in a function that runs on a grid's cells")


def extent(axis: int) -> int:
    """Give the whole grid's number of cells along an axis; inside functions of a grid's cells only.

    Parameters
    ----------
    axis : int
        The axis, counted as in the grid's shape; a number written out.

    Raises
    ------
    RuntimeError
        Outside a translated function, where there is no grid.

    Examples
    --------
    >>> @stencil
    ... def closed(u):
    ...     return u[0] if coordinate(0) == extent(0) - 1 else u[1]
    """
    raise RuntimeError(f"extent({axis}) has a value only in a function that runs on a grid's cells")


def halo_of(definition: Definition) -> Definition:
    """The definition with the halo's width, as (below, above) for each axis, read off its offsets."""
    offsets = _all_offsets(definition)
    if not offsets:
        raise at_definition(definition, "a stencil reads its cell by offsets, as in u[0, 0]; this one reads none")
    dimensions = {len(offset) for _, offset, _ in offsets}
    if len(dimensions) > 1:
        raise complain("the offsets of a stencil all have one for each axis of the grid; these differ in number",
                       offsets[-1][2], definition.text, definition.name)
    below = [max(0, *(-offset[axis] for _, offset, _ in offsets)) for axis in range(dimensions.pop())]
    above = [max(0, *(offset[axis] for _, offset, _ in offsets)) for axis in range(len(below))]
    return dataclasses.replace(definition, halo=tuple(zip(below, above, strict=True)))


def _all_offsets(definition: Definition) -> list[tuple[str, tuple[int, ...], form.At]]:
    """The reads of a stencil: the parameter, the offset and the place.

    A function that the stencil calls may take arrays beside fields, and index those as it likes.
    """
    grids = {parameter.name: parameter.name for parameter in definition.parameters}
    own = list(_offsets(definition, grids, inside=False))
    inner = [read for function, passed in _calls(definition, grids) for read in _offsets(function, passed, inside=True)]
    dimensions = {len(offset) for _, offset, _ in own}
    return own + [read for read in inner if not dimensions or len(read[1]) in dimensions]


def _offsets(definition: Definition, grids: dict[str, str],
             inside: bool) -> Iterator[tuple[str, tuple[int, ...], form.At]]:
    """The reads in a function, whose parameters that may be fields the stencil calls ``grids``."""
    for node in form.nodes_of(definition.body):
        if isinstance(node, form.Index) and isinstance(node.value, form.Local) and node.value.name in grids:
            offset = tuple(index.value for index in node.indices
                           if isinstance(index, form.Literal) and type(index.value) is int)
            if len(offset) == len(node.indices):
                yield grids[node.value.name], offset, node.at
            elif not inside:
                raise complain(COMPUTED, node.at, definition.text, definition.name)
    if inside:
        for function, passed in _calls(definition, grids):
            yield from _offsets(function, passed, inside=True)


def _calls(definition: Definition, grids: dict[str, str]) -> Iterator[tuple[Definition, dict[str, str]]]:
    """The functions that are given what may be fields, with their names for them."""
    for node in form.nodes_of(definition.body):
        if isinstance(node, form.Call) and isinstance(node.function, form.Called):
            inner = node.function.definition
            given = dict(zip([one.name for one in inner.parameters], node.arguments, strict=False))
            passed = {name: grids[value.name] for name, value in (given | dict(node.keywords)).items()
                      if isinstance(value, form.Local) and value.name in grids}
            if passed:
                yield inner, passed
