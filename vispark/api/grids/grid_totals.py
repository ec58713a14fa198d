"""Reductions of a whole grid (sum, extremes, norm, inner product), and grids of coarser or finer cells."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from pyspark import RDD

from vispark.api.grids.gather import gather
from vispark.api.operations.grid_ops import mapped
from vispark.api.rdds.fallback import report_fallback
from vispark.api.vrdd import VRDD, send
from vispark.data.grid.spec import FUNCTION, GridSpec
from vispark.errors import PlanError
from vispark.plan.map_call import MapSpec
from vispark.translate.ir import nodes

#: The type that cells are added up in, by their kind.
_WIDE = {"b": "int64", "i": "int64", "u": "uint64", "f": "float64", "c": "complex128"}


def total(blocks: RDD[Any], field: str | None, action: str) -> Any:
    """Return the sum of a grid's cells, or of their squares' sizes (``norm``): see :meth:`vispark.Grid.sum`."""
    held = _on_device(blocks, action)
    kinds = _fields(held, field, action)
    totals = {name: _sum(held, name, kind, squared=action == "norm") for name, kind in kinds.items()}
    return _one_field(totals, field)


def norm(blocks: RDD[Any], field: str | None, order: float) -> Any:
    """Return the norm of a grid's cells: see :meth:`vispark.Grid.norm`."""
    if order == 2:
        norms = total(blocks, field, "norm")
        return {name: math.sqrt(each) for name, each in norms.items()} if isinstance(norms, dict) else math.sqrt(norms)
    if order not in (1, math.inf):
        raise PlanError(f"ord={order!r}; a grid has the norms 1, 2 and numpy.inf")
    held = _on_device(blocks, "norm")
    norms = {}
    for name in _fields(held, field, "norm"):
        sizes = _mapped(held, (name,), nodes.Call(nodes.Library("abs"), (nodes.Local(name or "cell"),)))
        if order == 1:
            kind = np.dtype(next(iter(_fields(sizes, None, "norm").values())))
            norms[name] = float(_sum(sizes, "", kind, squared=False))
        else:
            norms[name] = float(_folded(sizes, max, np.max))
    return _one_field(norms, field)


def extreme(blocks: RDD[Any], field: str | None, action: str) -> Any:
    """Return the least or the greatest cell: see :meth:`vispark.Grid.min`."""
    held = _on_device(blocks, action)
    join, over = (min, np.min) if action == "min" else (max, np.max)
    extremes = {}
    for name, kind in _fields(held, field, action).items():
        if kind.kind == "c":
            raise PlanError(f"complex cells have no {action}; norm(blocks, ord=np.inf) is of their sizes")
        extremes[name] = _folded(_mapped(held, (name,), nodes.Local(name or "cell")), join, over)
    return _one_field(extremes, field)


def dot(one: RDD[Any], other: Any, field: str | None) -> Any:
    """Return the inner product of two fields, or of two grids: see :meth:`vispark.Grid.dot`."""
    if isinstance(other, str):
        if field is None:
            raise PlanError(f'dot(blocks, {other!r}) is of two fields of one grid: dot(blocks, "first", {other!r})')
        held = _on_device(one, "dot")
        kinds = [*_fields(held, field, "dot").values(), *_fields(held, other, "dot").values()]
        wide = _WIDE[np.result_type(*kinds).kind]
        first: nodes.Expression = nodes.Call(nodes.Library(f"numpy.{wide}"), (nodes.Local(field),))
        if wide == "complex128":
            first = nodes.Call(nodes.Library("numpy.conjugate"), (first,))
        product = nodes.Binary("*", first, nodes.Local(other))
        names = (field,) if field == other else (field, other)
        return _folded(_mapped(held, names, product), operator.add, np.sum).item()
    if isinstance(one, VRDD) or isinstance(other, VRDD):
        report_fallback(one.ctx, "Grid.dot", "two grids", "on the device it is of two fields of one grid, "
                        'Grid.dot(blocks, "p", "q")', "gathers the cells of both in the driver")
    arrays = [gather(each) for each in (one, other)]
    for number, array in enumerate(arrays):
        if isinstance(array, dict):
            if field is None or field not in array:
                raise PlanError(f"the grids have the fields {', '.join(array)}: dot(a, b, field=...) takes one of them")
            arrays[number] = array[field]
    if arrays[0].shape != arrays[1].shape:
        raise PlanError(f"the grids have {arrays[0].shape} and {arrays[1].shape} cells; an inner product is of as many")
    wide = _WIDE[np.result_type(*arrays).kind]
    return np.vdot(arrays[0].astype(wide), arrays[1].astype(wide)).item()


def resized(blocks: RDD[Any], factor: int | tuple[int, ...], grid: Any, finer: bool) -> RDD[Any]:
    """Return the grid with cells that are larger, or smaller: see :meth:`vispark.Grid.coarsen`."""
    from_grid = _grid_of(blocks)
    shape, word = from_grid.shape, "refine" if finer else "coarsen"
    factors = (factor,) * len(shape) if isinstance(factor, int) else tuple(factor)
    if len(factors) != len(shape) or any(not isinstance(each, int) or each < 1 for each in factors):
        raise PlanError(f"{word} takes a whole number of cells, 1 or more, for all axes or for each of {len(shape)}; "
                        f"not {factor!r}")
    if not finer and any(extent % each for extent, each in zip(shape, factors, strict=True)):
        raise PlanError(f"coarsen by {factors} does not divide the grid's {shape} cells")
    new_shape = tuple(extent * each if finer else extent // each for extent, each in zip(shape, factors, strict=True))
    if grid is None:
        grid = _resized_grid(from_grid, new_shape, word)
    elif grid.shape != new_shape:
        raise PlanError(f"grid= has {grid.shape} cells, and {word} by {factors} gives {new_shape}")
    change = _repeated if finer else _averaged
    cells = gather(blocks)
    changed = {name: change(array, factors) for name, array in cells.items()} if isinstance(cells, dict) else \
        change(cells, factors)
    grids: RDD[Any] = grid.scatter(blocks.ctx, changed, blocks.getNumPartitions())
    return grids


def _repeated(cells: np.ndarray, factors: tuple[int, ...]) -> np.ndarray:
    for axis, factor in enumerate(factors):
        cells = np.repeat(cells, factor, axis)
    return cells


def _averaged(cells: np.ndarray, factors: tuple[int, ...]) -> np.ndarray:
    """Return the means of ``factors`` cells along each axis, in the cells' type if it is inexact."""
    split = [each for extent, factor in zip(cells.shape, factors, strict=True) for each in (extent // factor, factor)]
    means = cells.reshape(split).mean(tuple(range(1, 2 * cells.ndim, 2)), dtype=_WIDE_MEAN.get(cells.dtype.kind))
    averages: np.ndarray = means.astype(cells.dtype) if cells.dtype.kind in "fc" else means
    return averages


_WIDE_MEAN = {"f": np.float64, "c": np.complex128}


def _resized_grid(grid: Any, shape: tuple[int, ...], word: str) -> Any:
    """Return a grid of another shape, cut and bounded alike."""
    description: GridSpec = grid.description
    if any(edge.rule == FUNCTION for each in description.edges for edge in each.edges):
        raise PlanError(f"{word} does not know what a boundary that is a function of the position is for other cells: "
                        "give grid=Grid(shape, ..., boundary=...)")
    checked = type(grid)(shape, description.splits, description.halo)       # raises where these do not fit
    return type(grid)._of(replace(description, shape=checked.shape), grid.fields)


def _grid_of(blocks: RDD[Any]) -> Any:
    key = blocks.keys().first()
    if not hasattr(key, "grid"):
        raise PlanError(f"the key {key!r} is no key of a Grid's block; this takes what Grid.scatter gave, or what was "
                        "made of it under the same keys")
    return key.grid


def _on_device(blocks: RDD[Any], action: str) -> VRDD:
    """Return the blocks that workers hold, if they are a grid's."""
    held = blocks if isinstance(blocks, VRDD) else send(blocks).htod().cache()
    if not any(content.layout.grid is not None for content in held._results()):
        raise PlanError(f"{action} is of the blocks of a Grid, under their keys: start from "
                        'Grid(shape, splits).scatter(sc, array).cache("GPU")')
    return held


def _fields(held: VRDD, field: str | None, action: str) -> dict[str, np.dtype]:
    """Return the dtypes of the requested fields, by name; a field without a name has the empty one."""
    layout = next(content.layout for content in held._results() if content.count)
    dtypes = {part.name: part.dtype for part in layout.parts}
    if field is None:
        return dtypes
    if field not in dtypes or not field:
        raise PlanError(f"{action} of the field {field!r}: the grid has " +
                        (", ".join(dtypes) if layout.named else "one field without a name"))
    return {field: dtypes[field]}


def _one_field(results: dict[str, Any], field: str | None) -> Any:
    """Return the number of the one field, or all by name."""
    return next(iter(results.values())) if field is not None or list(results) == [""] else results


def _sum(held: VRDD, name: str, kind: np.dtype, *, squared: bool) -> Any:
    """Return the sum of a field's cells, or of the squares of their sizes, in the widest type of their kind."""
    cell: nodes.Expression = nodes.Local(name or "cell")
    if squared:
        cell = nodes.Call(nodes.Library("abs"), (cell,))
        cell = nodes.Call(nodes.Library("numpy.float64"), (cell,))
        return _folded(_mapped(held, (name,), nodes.Binary("*", cell, cell)), operator.add, np.sum).item()
    wide = nodes.Call(nodes.Library(f"numpy.{_WIDE[kind.kind]}"), (cell,))
    return _folded(_mapped(held, (name,), wide), operator.add, np.sum).item()


def _mapped(held: VRDD, names: tuple[str, ...], value: nodes.Expression) -> VRDD:
    """Return the blocks with an expression of fields in place of the cells."""
    parameters = tuple([nodes.Parameter(name or "cell") for name in names])
    definition = nodes.Definition("cells", parameters, (nodes.Return(value),))
    return mapped(held, MapSpec(nodes.Function(definition), (), "vmap cells"))


def _folded(held: VRDD, join: Callable[..., Any], over: Callable[..., Any]) -> Any:
    """Return the cells of all blocks as one number: each block in the worker, then these in the driver."""
    for _ in next(content.layout.grid for content in held._results() if content.layout.grid is not None).shape:
        held = held.vreduce(join)
    return over(np.array([number for _, number in held.collect()]))[()]
