"""Files of a grid's fields: which format a path is of, and how a task reads a block of it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gpu_worker.protocol.errors import PlanError
from vispark._utils.lazy import LazyModule
from vispark.data.grid import npy
from vispark.data.grid.arrays import ArrayFacts, FileFacts, fields_of, one_array
from vispark.data.grid.key import BlockKey
from vispark.data.grid.stored import FilesOf, StoredField
from vispark.data.storage.locality import FileRange
from vispark.data.storage.location import Location
from vispark.data.storage.opening import Locations, is_url, located

if TYPE_CHECKING:
    from vispark.data.grid import hdf5_files, zarr_files
else:
    hdf5_files = LazyModule("vispark.data.grid.hdf5_files")
    zarr_files = LazyModule("vispark.data.grid.zarr_files")

#: A format's function: what arrays a file has.
Facts = Callable[[Location], FileFacts]

_NPY, _ZARR = ".npy", ".zarr"

#: How files of several arrays are looked into, by how their names end. Their libraries are imported with the first one.
FORMATS: dict[str, Facts] = {_ZARR: lambda place: zarr_files.facts(place)}
FORMATS |= dict.fromkeys((".h5", ".hdf5", ".nc", ".nc4"), lambda place: hdf5_files.facts(place))

#: The most requests by which a file is read at a time: some minutes of an object store.
_MOST_REQUESTS = 100_000
#: A file of several arrays, and one of them.
_INSIDE = re.compile(rf"(.+(?:{'|'.join(map(re.escape, FORMATS))}))/([^/]+)/?$", re.IGNORECASE)


def opened(path: Any, files: FilesOf, name: str = "") -> StoredField | dict[str, StoredField]:
    """Return the field of a path, or its fields by name.

    Parameters
    ----------
    path : str or path
        A file or a directory; of a file with several arrays one by its name, as in ``u.zarr/pressure``.
    files : FilesOf
        The grid.
    name : str
        The one field that is wanted; empty for what the path has.

    Raises
    ------
    PlanError
        If there is no such file, or it does not fit the grid.
    """
    path = os.fspath(path)
    ending = _ending(path)
    if ending in FORMATS:
        return fields_of(FORMATS[ending](located(path)), files, name)
    if inside := _INSIDE.match(path):
        return fields_of(FORMATS[_ending(inside[1])](located(inside[1])), files, inside[2], is_array=True)
    return _whole(path, files) if ending == _NPY else _directory(path, files, name)


def facts(path: Any) -> FileFacts:
    """Return the arrays of a file, and the attributes that describe a grid.

    Raises
    ------
    PlanError
        If there is no such file, or it is of no format that says what shape its arrays have.
    """
    path = os.fspath(path)
    ending = _ending(path)
    if ending in FORMATS:
        return FORMATS[ending](located(path))
    if inside := _INSIDE.match(path):
        return one_array(FORMATS[_ending(inside[1])](located(inside[1])), inside[2])
    if ending != _NPY:
        raise PlanError(f"{path} does not end in {_NPY}, {', '.join(FORMATS)}, whose files say what shape their arrays "
                        "have; give Grid the shape, and scatter the path")
    file = npy.NpyFile.at(located(path))
    return FileFacts(path, {"": ArrayFacts(file.shape, file.dtype, None, "", _WholeNpy(path, file))})


def check_written(path: str) -> None:
    """Raise PlanError where no grid can be written to a path: nobody knows its URL, its format is only read, or there
    can be no such file.
    """
    place = located(path)
    ending = _ending(path)
    if ending in FORMATS and ending != _ZARR:
        raise PlanError(f"{path}: files that end in {ending} are read, and not written; save a grid as {_ZARR} or "
                        f"{_NPY}, or with per_block=True as a directory")
    place.check_writable()
    if ending == _NPY and place.store.renames and place.is_there() and not place.is_file():
        raise PlanError(f"{path} is there, and is a directory; save the grid under another name")


def _ending(path: str) -> str:
    return os.path.splitext(path.rstrip("/"))[1].lower()


def _directory(path: str, files: FilesOf, name: str) -> StoredField | dict[str, StoredField]:
    """Return the fields of a directory with a ``.npy`` file, or a directory of blocks, for each; or of blocks alone."""
    names = [] if name else list(files.fields)
    if not name and not names and files.sees(path):
        names = npy.saved_fields(path)
    if not names:
        return _blocks(path, files)
    stored = {each: npy.saved_field(path, each) for each in names}
    return {each: _whole(where, files) if where.endswith(_NPY) else _blocks(where, files)
            for each, where in stored.items()}


# -- .npy -------------------------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class _WholeNpy(StoredField):
    """Field in one ``.npy`` file; ``file`` is None if the driver has not read its header."""

    path: str
    file: npy.NpyFile | None

    def block(self, key: BlockKey, locations: Locations) -> np.ndarray:
        """Return a block's cells, by ranges of the file."""
        return npy.read_part(self.file or self.path, key.grid.shape, key.slices, locations)

    @property
    def joins_rows(self) -> bool:
        """Whether the file is far: a request for each row of a block takes longer than its bytes."""
        return is_url(self.path)

    def blocks(self, keys: Sequence[BlockKey], locations: Locations) -> list[np.ndarray]:
        """Return the cells of neighbours, whose rows are read as one."""
        along = keys[0].slices[-1]
        whole = npy.read_part(self.file or self.path, keys[0].grid.shape, _joined(keys), locations)
        return [whole[..., key.slices[-1].start - along.start:key.slices[-1].stop - along.start] for key in keys]

    def ranges(self, key: BlockKey) -> list[FileRange]:
        """Return the range from the first cell of a block to its last."""
        return [] if self.file is None else [FileRange(self.path, *self.file.span(key.slices))]


    def check_run(self, keys: Sequence[BlockKey]) -> None:
        """Raise PlanError where a file that the driver has seen would be read by too many requests."""
        if self.file is None:
            return
        count, nbytes = self.file.requests(_joined(keys))
        if count > _MOST_REQUESTS:
            raise PlanError(f"{self.path} would be read by {count:,} requests of {nbytes:,} bytes for a task's first "
                            "cells alone, as the grid's splits and partitions cut its rows: cut other axes, or take "
                            "fewer partitions, so that a task has whole rows; or save the grid as Zarr, of which a "
                            "block is one chunk")


def _joined(keys: Sequence[BlockKey]) -> tuple[slice, ...]:
    """Return the slices of neighbours along the last axis, as one."""
    *others, along = keys[0].slices
    return *others, slice(along.start, keys[-1].slices[-1].stop)


@dataclass(frozen=True)
class _BlocksNpy(StoredField):
    """Field in a directory with a ``.npy`` file for each block."""

    path: str

    def block(self, key: BlockKey, locations: Locations) -> np.ndarray:
        """Return a block's cells, from its own file."""
        return npy.read_block(npy.block_path(self.path, key.position), key.shape, locations)

    def ranges(self, key: BlockKey) -> list[FileRange]:
        """Return the block's own file."""
        return [FileRange(npy.block_path(self.path, key.position))]


def _whole(path: str, files: FilesOf) -> StoredField:
    if not files.sees(path):
        return _WholeNpy(path, None)
    file = npy.NpyFile.at(located(path))
    npy.check_shape(file, files.shape)
    return _WholeNpy(path, file)


def _blocks(path: str, files: FilesOf) -> StoredField:
    if files.sees(path):
        try:
            npy.check_blocks(path, files.splits, np.ndindex(*files.splits))
            npy.check_block_shapes(path, files.shape, files.splits)
        except PlanError as error:
            if not located(path).is_file():
                raise
            raise PlanError(f"{path} is a file, and does not end in {_NPY} or {', '.join(FORMATS)}, by which its "
                            "format would be known; other paths are directories, as Grid.save writes them") from error
    return _BlocksNpy(path)
