"""Stencils: functions of a cell and its neighbours, whose offsets are literal.

``u[0, -1]`` is the neighbour one to the left of the cell. The halo's width on either side of each axis is read off the
offsets, also of those in functions that the stencil gives a field to.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any, NamedTuple

from vispark.translate.ir import nodes
from vispark.translate.ir.nodes import Definition
from vispark.translate.ir.source_text import at_definition, complain

HaloWidths = tuple[tuple[int, int], ...]

#: What is wrong with an offset that is computed.
COMPUTED = ("a stencil's offsets are whole numbers written out, as in u[0, -1], or those of a loop over such numbers "
            "without break and continue: for d in (-1, 1); an array that is indexed otherwise is captured, or an "
            "argument behind the grid's fields")


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

    Parameters
    ----------
    function : callable
        Of fields, which it indexes by offsets, ``u[0, -1]``, and of other arguments.

    Returns
    -------
    Stencil
        Called, it is the function itself.

    Raises
    ------
    TypeError
        If it is no function.

    Examples
    --------
    >>> @stencil
    ... def smooth(u):
    ...     return (u[-1] + 2 * u[0] + u[1]) / 4
    >>> smooth
    stencil smooth
    """
    if not callable(function):
        raise TypeError(f"@stencil marks a function of a cell, def f(u): ..., and not {function!r}")
    return Stencil(function)


def coordinate(axis: int) -> int:
    """Give the index of the cell in the whole grid along an axis; inside functions of a grid's cells only.

    Parameters
    ----------
    axis : int
        The axis, counted as in the grid's shape; a number written out.

    Returns
    -------
    int
        From 0 to ``extent(axis) - 1``, int64 on the device.

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

    Returns
    -------
    int
        In cells, without halos; int64 on the device.

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
    """Return the definition with the halo's width, as (below, above) for each axis, read off its offsets.

    Which parameters are fields is known with a grid alone. Those that are read at offsets, of one number each, may be:
    the halo is wide enough for all of them, also where some turn out to be arrays beside the fields.
    """
    reads: dict[str, list[Read]] = {}
    for read in _reads(definition, {parameter.name: parameter.name for parameter in definition.parameters}):
        reads.setdefault(read.parameter, []).append(read)
    offsets = [each.offset for found in reads.values() if _why_no_field(found) is None for each in found
               if each.offset is not None]
    if not offsets:
        for field_reads in reads.values():
            why, at = _why_no_field(field_reads) or (COMPUTED, field_reads[0].at)
            raise complain(why, at, definition.text, definition.name)
        raise at_definition(definition, "a stencil reads its cell by offsets, as in u[0, 0]; this one reads none")
    along = list(zip_longest(*offsets, fillvalue=0))
    return dataclasses.replace(definition, halo=tuple((max(0, -min(axis)), max(0, max(axis))) for axis in along))


class Read(NamedTuple):
    """A read of what may be a field: the parameter, the offset, None where it is computed, and the place."""

    parameter: str
    offset: tuple[int, ...] | None
    at: nodes.At


def _why_no_field(reads: list[Read]) -> tuple[str, nodes.At] | None:
    """Return the reason why a parameter with such reads is no field, and the place; None if it may be a field."""
    for read in reads:
        if read.offset is None:
            return COMPUTED, read.at
    if len({len(read.offset) for read in reads if read.offset is not None}) > 1:
        return ("the offsets of a stencil all have one for each axis of the grid; these differ in number", reads[-1].at)
    return None


def _reads(definition: Definition, grids: dict[str, str], around: Mapping[str, Definition] | None = None,
           within: tuple[Definition, ...] = ()) -> Iterator[Read]:
    """Yield the reads of grids in a function, in functions inside it and in those that it calls; names of parameters
    that may be fields are replaced by the stencil's names for them.

    Parameters
    ----------
    around : Mapping of str to Definition
        The functions inside of the enclosing ones, by the variables that they are assigned to.
    within : tuple of Definition
        The functions whose reads are being found; a function that calls itself is refused elsewhere.
    """
    if any(definition is one for one in within):
        return
    body = list(nodes.nodes_of(definition.body))
    named = {**(around or {}), **{target.name: node.value.definition for node in body
                                  if isinstance(node, nodes.Assign) and isinstance(node.value, nodes.Called)
                                  for target in node.targets if isinstance(target, nodes.Local)}}
    for node in body:
        if isinstance(node, nodes.Index) and isinstance(node.value, nodes.Local) and node.value.name in grids:
            offset = tuple(index.value for index in node.indices
                           if isinstance(index, nodes.Literal) and type(index.value) is int)
            yield Read(grids[node.value.name], offset if len(offset) == len(node.indices) else None, node.at)
        elif isinstance(node, nodes.Called):
            seen = {name: grids[name] for name in node.definition.free if name in grids}
            if seen:
                yield from _reads(node.definition, seen, named, (*within, definition))
    for function, passed in _calls(body, grids, named):
        yield from _reads(function, passed, named, (*within, definition))


def _calls(body: Sequence[nodes.Node], grids: dict[str, str],
           named: Mapping[str, Definition]) -> Iterator[tuple[Definition, dict[str, str]]]:
    """Yield the functions that are given what may be fields, with their names for them."""
    for node in body:
        if not isinstance(node, nodes.Call):
            continue
        function = node.function
        inner = function.definition if isinstance(function, nodes.Called) else \
            named.get(function.name) if isinstance(function, nodes.Local) else None
        if inner is not None:
            bound = dict(zip([one.name for one in inner.parameters], node.arguments, strict=False))
            passed = {name: grids[value.name] for name, value in (bound | dict(node.keywords)).items()
                      if isinstance(value, nodes.Local) and value.name in grids}
            if passed:
                yield inner, passed
