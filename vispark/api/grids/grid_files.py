"""Grids out of files that describe them, and into Zarr files and directories of blocks."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from pyspark import RDD

from gpu_worker.protocol.errors import PlanError
from vispark._utils.lazy import LazyModule
from vispark.data.grid import attributes, files, npy
from vispark.data.grid.arrays import FileFacts, grid_arrays
from vispark.data.grid.chunks import are_blocks, block_chunks, check_blocks_are_chunks, most_splits
from vispark.data.grid.spec import GridSpec
from vispark.data.storage.location import Location
from vispark.data.storage.opening import located

if TYPE_CHECKING:
    from vispark.data.grid import chunk_pieces, zarr_files
else:
    chunk_pieces = LazyModule("vispark.data.grid.chunk_pieces")
    zarr_files = LazyModule("vispark.data.grid.zarr_files")


def arguments(path: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of the Grid that a file describes.

    Parameters
    ----------
    path : str or path
        The file.
    values : mapping
        Arguments that the user gave, which count instead.

    Raises
    ------
    PlanError
        If there is no such file, or it does not describe a grid.
    """
    file = files.facts(path)
    described = _of_attributes(file) if file.attributes else _of_arrays(file)
    described |= {name: value for name, value in values.items() if value is not None}
    if "boundary" not in described:
        raise PlanError(f"the grid in {file.path} was saved with a function as its boundary, and files have no code: "
                        "give boundary=")
    return described


def _of_attributes(file: FileFacts) -> dict[str, Any]:
    assert file.attributes is not None
    described = attributes.arguments_of(file.attributes, file.path)
    for name in file.names.values():
        shape = file.arrays[name].shape if name in file.arrays else None
        if shape != described["shape"]:
            raise PlanError(f"{file.path} was saved from a grid of shape {described['shape']}, and its array {name!r} "
                            + ("is missing" if shape is None else f"has shape {shape}"))
    return {**described, "nan_outside": True}


def _of_arrays(file: FileFacts) -> dict[str, Any]:
    """Return shape and fields of a grid that others saved, and the most splits that its chunks have."""
    arrays = grid_arrays(file)
    shape = next(iter(arrays.values())).shape
    chunks = [array.chunks for array in arrays.values() if array.chunks is not None]
    splits = tuple(most_splits(extent, [each[axis] for each in chunks]) if chunks else 1
                   for axis, extent in enumerate(shape))
    fields = {name: array.dtype for name, array in arrays.items()}
    return {"shape": shape, "splits": splits, "fields": None if set(fields) == {""} else fields, "boundary": 0.0}


# -- Zarr -------------------------------------------------------------------------------------------------------------

def save_zarr(blocks: RDD[Any], path: str, description: GridSpec, fields: Mapping[str, np.dtype], *,
              compress: bool) -> None:
    """Write a grid as a Zarr group, each block as one chunk by Spark's tasks.

    Blocks of several lengths lie across chunks, which have one: their pieces go to the chunks' tasks by a shuffle.

    The group appears when all of its chunks are there, and takes the place of an older one then. In an object store,
    where nothing can be renamed, its metadata is written last, and an older group is not replaced.

    Parameters
    ----------
    blocks : RDD
        Of (BlockKey, array or dict of arrays).
    path : str
        Of the group.
    description : GridSpec
        The grid.
    fields : mapping of str to dtype
        Its fields; "" where the only one has no name.
    compress : bool
        Whether chunks are compressed.

    Raises
    ------
    PlanError
        If chunks are compressed and blocks of several lengths, which could not be read alone then, something else than
        a Zarr file is there, or a block is missing.
    """
    target = located(path)
    _check_free(target)
    chunks = block_chunks(description)
    if compress:
        check_blocks_are_chunks(description, chunks, path)
    documents = zarr_files.new_documents(
        {name or attributes.CELLS: (description.shape, dtype, chunks) for name, dtype in fields.items()},
        {attributes.NAME: attributes.attributes_of(description, fields)}, compress)
    if target.store.renames:
        _write_beside([target], lambda places: _write(blocks, places[0], description, chunks, documents))
        return
    with ExitStack() as undo:
        for name in fields:
            undo.callback((target / (name or attributes.CELLS)).remove)
        _write(blocks, target, description, chunks, documents)
        undo.pop_all()


def _check_free(target: Location) -> None:
    _check_no_file(target)
    entries = target.names()
    is_zarr = bool({"zarr.json", ".zgroup", ".zarray"} & entries.keys())
    if entries and not is_zarr and (target.store.renames or any(entries.values())):
        raise PlanError(f"{target.path} is there, and is no Zarr file; save the grid under another name")
    if is_zarr and not target.store.renames:
        raise PlanError(f"{target.path} is there, and an object store cannot replace a group at once, while others may "
                        "read it: save the grid under another name, or delete that one before")


def _write(blocks: RDD[Any], place: Location, description: GridSpec, chunks: tuple[int, ...],
           documents: Mapping[str, bytes]) -> None:
    """Write the chunks by tasks, and the metadata when all are there."""
    if are_blocks(description, chunks):
        numbers = blocks.mapPartitions(partial(zarr_files.write_blocks, place.path, documents)).collect()
        description.check_whole(numbers)
    else:
        _write_across(blocks, place, description, chunks, documents)
    for key, document in documents.items():
        (place / key).write([document], len(document))


def _write_across(blocks: RDD[Any], place: Location, description: GridSpec, chunks: tuple[int, ...],
                  documents: Mapping[str, bytes]) -> None:
    """Write chunks that have cells of several blocks, by way of files of their pieces, which go then."""
    beside = place.beside(f"{uuid.uuid4().hex[:12]}.pieces")
    with ExitStack() as undo:
        undo.callback(beside.remove)
        placed = blocks.mapPartitions(partial(chunk_pieces.write_pieces, beside.path, chunks=chunks)).collect()
        description.check_whole([*{piece.number for _, piece in placed}])
        gathered: dict[tuple[int, ...], list[Any]] = {}
        for chunk, piece in placed:
            gathered.setdefault(chunk, []).append(piece)
        join = partial(chunk_pieces.join_pieces, beside.path, place.path, documents, description.shape, chunks)
        blocks.context.parallelize(gathered.items(), blocks.getNumPartitions()).mapPartitions(join).collect()


def _write_beside(targets: Sequence[Location], write: Callable[[list[Location]], None]) -> None:
    """Write directories under hidden names, and rename them to the targets', which they replace, when all are there."""
    mark = uuid.uuid4().hex[:12]
    partials, replaced = [target.beside(f"{mark}.partial") for target in targets], []
    with ExitStack() as undo:
        for place in partials:
            undo.callback(place.remove)
        write(partials)
        for place, target in zip(partials, targets, strict=True):
            if target.is_there():
                before = target.beside(f"{mark}.before")
                target.rename(before)
                undo.callback(before.rename, target)
                replaced.append(before)
            place.rename(target)
            undo.callback(target.rename, place)
        undo.pop_all()
    for before in replaced:
        before.remove()


# -- directories of blocks --------------------------------------------------------------------------------------------

def save_blocks(blocks: RDD[Any], path: str, description: GridSpec, fields: Sequence[str]) -> None:
    """Write a grid as a directory with a file for each block, or such a one for each field, by Spark's tasks.

    A directory appears when all of its blocks are there, and takes the place of an older one then, as no grid is to be
    put together from two. In an object store, where nothing can be renamed, an older one is not replaced.

    Parameters
    ----------
    blocks, path, description
        As of :func:`save_zarr`.
    fields : sequence of str
        Its fields; "" where the only one has no name.

    Raises
    ------
    PlanError
        If a block is missing, or something else is there.
    """
    targets = [located(npy.field_path(path, name) if name else path) for name in fields]
    for target in targets:
        _check_no_file(target)
        npy.check_free(target)

    def write(places: Sequence[Location]) -> None:
        directories = {name: place.path for name, place in zip(fields, places, strict=True)}
        description.check_whole(blocks.mapPartitions(partial(npy.write_blocks, directories)).collect())

    if targets[0].store.renames:
        _write_beside(targets, write)
        return
    with ExitStack() as undo:
        for target in targets:
            undo.callback(target.remove)
        write(targets)
        undo.pop_all()


def _check_no_file(target: Location) -> None:
    if target.is_file():
        raise PlanError(f"{target.path} is there, and is a file; save the grid under another name")
