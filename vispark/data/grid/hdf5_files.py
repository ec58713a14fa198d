"""HDF5 and NetCDF4 files, to read: datasets of the first group, by h5py in the tasks."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpu_worker.protocol.errors import PlanError
from gpu_worker.protocol.extras import install
from vispark.data.grid.arrays import ArrayFacts, FileFacts
from vispark.data.grid.key import BlockKey
from vispark.data.grid.stored import StoredField
from vispark.data.storage.location import FileState, Location
from vispark.data.storage.opening import Locations, is_url

try:
    import h5py
except ImportError as error:
    raise PlanError(f"HDF5 and NetCDF4 files need h5py: {install('hdf5')}") from error


def facts(place: Location) -> FileFacts:
    """Return the datasets in the first group of a file.

    Raises
    ------
    PlanError
        If it is none, or not readable.
    """
    state = place.state()
    with _opened(place, state) as file:
        arrays = {name: item for name, item in file.items() if isinstance(item, h5py.Dataset)}
        return FileFacts(place.path, {
            name: ArrayFacts(item.shape, item.dtype, item.chunks, _packing(item),
                             Hdf5Field(place.path, name, state)) for name, item in arrays.items() if item.shape})


def _packing(item: Any) -> str:
    return next((name for name in ("scale_factor", "add_offset") if name in item.attrs), "")


@contextmanager
def _opened(place: Location, state: FileState) -> Iterator[Any]:
    """Open a file: one of this machine by its path, others by ranges."""
    with place.naming("read"), (RangeFile(place, state) if is_url(place.path) else open(place.name, "rb")) as source, \
            h5py.File(source, "r") as file:
        yield file


class RangeFile(io.RawIOBase):
    """File that is read by ranges of a location, for libraries that read files."""

    def __init__(self, place: Location, state: FileState) -> None:
        self._place, self._size, self._at = place, state.size, 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to a place."""
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer as far as there are bytes."""
        target = memoryview(buffer).cast("B")
        stop = min(self._at + len(target), self._size)
        if stop <= self._at:
            return 0
        target[:stop - self._at] = self._place.read([(self._at, stop)])[0]
        count, self._at = stop - self._at, stop
        return count


@dataclass(frozen=True)
class Hdf5Field(StoredField):
    """Field in a dataset of an HDF5 file, which had a state when the driver saw it."""

    path: str
    name: str
    state: FileState

    def block(self, key: BlockKey, locations: Locations) -> np.ndarray:
        """Return a block's cells, for which the chunks are read that have some."""
        place = locations(self.path)
        place.check(self.state)
        with _opened(place, self.state) as file:
            dataset = file[self.name]
            block = np.empty(key.shape, dataset.dtype)
            dataset.read_direct(block, key.slices)
        place.check(self.state)
        return block
