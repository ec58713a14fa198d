"""Gathering of a grid's blocks from an RDD to arrays and files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import numpy as np
from pyspark import RDD

from gpu_worker.protocol.errors import PlanError
from vispark._utils.callers import call_site, user_call
from vispark.api.grids import grid_files
from vispark.api.operations.grid_ops import described as grid_of
from vispark.api.operations.grid_ops import window as cut
from vispark.api.operations.grid_ops import windowed
from vispark.api.rdds.recorded_rdd import RecordedRDD
from vispark.data.grid import files, npy
from vispark.data.grid.key import BlockKey
from vispark.data.grid.selection import CellSelection
from vispark.data.grid.spec import GridSpec
from vispark.runtime.driver.session import Session
from vispark.runtime.driver.spark_errors import reraised


@contextmanager
def _for_the_user(blocks: RDD[Any]) -> Iterator[None]:
    """Have the jobs of a block be those of the user's call in Spark's pages, and raise their errors as vispark's."""
    with reraised(), call_site(blocks.context, user_call(), Session.link(blocks.context)):
        yield


def gather(blocks: RDD[Any], cells: Any = ...) -> Any:
    """See :meth:`vispark.Grid.gather`."""
    with _for_the_user(blocks):
        return _gathered(blocks, cells)


def _gathered(blocks: RDD[Any], cells: Any) -> Any:
    if cells is ...:
        records, window = blocks.collect(), None
    else:
        description = grid_of(blocks) if isinstance(blocks, RecordedRDD) else None
        window = CellSelection.of(cells, (description or _description(blocks)).shape)
        held = windowed(blocks, window) if isinstance(blocks, RecordedRDD) else None
        if held is not None:
            return _assembled(held, window, is_whole=False)
        records = _windowed(blocks, window).collect()
    return _assembled(records, window)


def _description(blocks: RDD[Any]) -> GridSpec:
    """Return the grid of some blocks, from the first of their keys."""
    key = blocks.keys().first()
    _check_key(key)
    description: GridSpec = key.grid.description
    return description


def described(blocks: RDD[Any]) -> tuple[GridSpec, Any]:
    """Return the grid of some blocks, and a block without cells, whose dtypes and fields are those of all."""
    with _for_the_user(blocks):
        description = _description(blocks)
        none = CellSelection.of(tuple(slice(0, 0) for _ in description.shape), description.shape)
        return description, _windowed(blocks, none).values().first()


def _windowed(blocks: RDD[Any], window: CellSelection) -> RDD[Any]:
    if isinstance(blocks, RecordedRDD):
        return cut(blocks, window.starts, window.stops, window.steps)
    return blocks.map(lambda record: (record[0], _part(record[1], window.within(record[0])[0])))


def _part(block: Any, inside: tuple[slice, ...]) -> Any:
    return {name: array[inside] for name, array in block.items()} if isinstance(block, dict) else block[inside]


def _check_key(key: Any) -> None:
    if not isinstance(key, BlockKey):
        raise PlanError(f"the key {key!r} is no key of a Grid's block; gather what Grid.scatter gave, or what was made "
                        "of it under the same keys")


def _assembled(records: list[Any], window: CellSelection | None, *, is_whole: bool = True) -> Any:
    """Return the array of the records' blocks; if it ``is_whole``, all of the grid's blocks must be among them."""
    if not records:
        raise PlanError("there are no blocks to gather")
    for record in records:
        if type(record) is not tuple or len(record) != 2:
            raise PlanError("gather needs pairs of a block's key and its values, as Grid(...).scatter makes them; "
                            "where values() took the keys away, gather before it")
        _check_key(record[0])
    grid = records[0][0].grid
    odd = next((key for key, _ in records if key.grid.description != grid.description), None)
    if odd is not None:
        raise PlanError(f"there are blocks of two grids, {grid} and {odd.grid}; gather one")
    if is_whole:
        grid.description.check_whole([key.number for key, _ in records])
    cells = window or CellSelection.of(..., grid.shape)
    if not isinstance(records[0][1], dict):
        return _array(records, cells)
    return {name: _array([(key, block[name]) for key, block in records], cells) for name in records[0][1]}


def _array(records: list[tuple[BlockKey, np.ndarray]], cells: CellSelection) -> Any:
    whole = np.empty(cells.shape, np.result_type(*(block for _, block in records)))
    for key, block in records:
        target = tuple(slice(part.start, part.stop) for part in cells.within(key)[1])
        shape = whole[target].shape
        if np.shape(block) != shape:
            raise PlanError(f"the values of block {key.position} have shape {np.shape(block)}, and its cells {shape}")
        whole[target] = block
    return whole[tuple(0 if axis in cells.dropped else slice(None) for axis in range(whole.ndim))][()]


# -- files ------------------------------------------------------------------------------------------------------------

def save(blocks: RDD[Any], path: Any, *, per_block: bool = False, compress: bool = False) -> None:
    """See :meth:`vispark.Grid.save`."""
    path = os.fspath(path)
    files.check_written(path)       # before a job runs for the blocks
    is_zarr = path.rstrip("/").endswith(".zarr")
    if (per_block and is_zarr) or (compress and not is_zarr):
        raise PlanError(f"{path} is {'a' if is_zarr else 'no'} Zarr file: blocks are always its chunks, and such files "
                        "alone can be compressed")
    if per_block:
        npy.check_named_as_directory(path)
    with _for_the_user(blocks):
        _save(blocks, path, per_block, compress, is_zarr)


def _save(blocks: RDD[Any], path: str, per_block: bool, compress: bool, is_zarr: bool) -> None:
    description, first = described(blocks)
    if per_block:
        grid_files.save_blocks(blocks, path, description, [*first] if isinstance(first, dict) else [""])
        return
    if is_zarr:
        fields = {name: block.dtype for name, block in (first if isinstance(first, dict) else {"": first}).items()}
        grid_files.save_zarr(blocks, path, description, fields, compress=compress)
        return
    if not isinstance(first, dict):
        if not path.endswith(".npy"):
            raise PlanError(f"{path} does not end in .npy, by which scatter knows a file from a directory; give "
                            f"{path}.npy, or per_block=True for a directory of blocks")
        _save_field(blocks, description, path, None, first.dtype)
        return
    npy.check_named_as_directory(path)
    for name, block in first.items():
        _save_field(blocks, description, f"{path}/{name}.npy", name, block.dtype)


def _save_field(blocks: RDD[Any], description: GridSpec, path: str, name: str | None, dtype: np.dtype) -> None:
    """Write a field to one file, holding one layer of blocks at a time in the driver."""
    def slabs() -> Iterator[np.ndarray]:
        cuts = description.cuts(0)
        for low, high in pairwise(cuts):
            slab = gather(blocks, slice(low, high))
            yield slab if name is None else slab[name]

    npy.write_slabs(path, description.shape, dtype, slabs())
