"""Stencils: functions of a cell and its neighbours, whose offsets are literal.

``u[0, -1]`` is the neighbour one to the left of the cell. The halo's width on either side of each axis is read off the
offsets.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any

from vispark.translate import form
from vispark.translate.form import Definition
from vispark.translate.text import complain

Halo = tuple[tuple[int, int], ...]


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


def halo_of(definition: Definition) -> Definition:
    """The definition with the halo's width, as (below, above) for each axis, read off its offsets."""
    offsets = list(_offsets(definition, definition.body))
    if not offsets:
        raise complain("a stencil reads its cell by offsets, as in u[0, 0]; this one reads none",
                       form.At(definition.text.first, 0), definition.text, definition.name)
    dimensions = {len(offset) for offset, _ in offsets}
    if len(dimensions) > 1:
        raise complain("the offsets of a stencil all have one for each axis of the grid; these differ in number",
                       offsets[-1][1], definition.text, definition.name)
    below = [max(0, *(-offset[axis] for offset, _ in offsets)) for axis in range(dimensions.pop())]
    above = [max(0, *(offset[axis] for offset, _ in offsets)) for axis in range(len(below))]
    return dataclasses.replace(definition, halo=tuple(zip(below, above, strict=True)))


def grids_of(definition: Definition) -> tuple[str, ...]:
    """The parameters that a stencil reads by offsets."""
    found = (node.value.name for node in nodes_of(definition.body) if isinstance(node, form.Index)
             and isinstance(node.value, form.Local))
    named = [parameter.name for parameter in definition.parameters]
    return tuple(dict.fromkeys(name for name in found if name in named))


def _offsets(definition: Definition, body: object) -> Iterator[tuple[tuple[int, ...], form.At]]:
    named = {parameter.name for parameter in definition.parameters}
    for node in nodes_of(body):
        if isinstance(node, form.Index) and isinstance(node.value, form.Local) and node.value.name in named:
            if not all(isinstance(index, form.Literal) and type(index.value) is int for index in node.indices):
                raise complain("a stencil's offsets are whole numbers written out, as in u[0, -1]; for an array that "
                               "is not the grid, use a plain function", node.at, definition.text, definition.name)
            yield tuple(index.value for index in node.indices if isinstance(index, form.Literal)), node.at


def nodes_of(node: object) -> Iterator[Any]:
    """A node and all under it."""
    if isinstance(node, tuple):
        for item in node:
            yield from nodes_of(item)
    elif isinstance(node, form.Node):
        yield node
        for part in dataclasses.fields(node):
            if part.name != "at":
                yield from nodes_of(getattr(node, part.name))
