"""Zarr files: what is in a group, the blocks of its arrays, and groups that tasks write together.

Metadata is small and read by the driver through our stores; tasks get it with their blocks, and read and write chunks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpu_worker.protocol.errors import PlanError
from vispark.data.grid import attributes
from vispark.data.grid.arrays import ArrayFacts, FileFacts
from vispark.data.grid.chunks import pieces_of, within
from vispark.data.grid.key import BlockKey
from vispark.data.grid.npy import NpyFile
from vispark.data.grid.stored import StoredField
from vispark.data.grid.zarr_library import (
    METADATA,
    BytesCodec,
    Chunks,
    Endian,
    MemoryStore,
    NDBuffer,
    buffer_prototype,
    zarr,
)
from vispark.data.storage.locality import FileRange, is_placed
from vispark.data.storage.location import Location
from vispark.data.storage.opening import Locations, is_url, located

#: The bytes that take as long as a request. Cells in many ranges of a chunk are read with the rest of it.
_REQUEST_BYTES = 64 << 10


def facts(place: Location) -> FileFacts:
    """Return the arrays of a Zarr file, a group or one array, and the attributes that describe its grid.

    Raises
    ------
    PlanError
        If it is none, or not readable.
    """
    documents = _documents(place)
    node = _opened(documents, place)
    arrays = {"": node} if isinstance(node, zarr.Array) else dict(node.arrays())
    return FileFacts(place.path, {
        name: ArrayFacts(array.shape, np.dtype(array.dtype), array.chunks, _packing(array.attrs),
                         ZarrField(place.path, name, documents), is_cuttable=_is_plain(array))
        for name, array in arrays.items()},
        node.attrs.asdict().get(attributes.NAME))


def _packing(named: Mapping[str, Any]) -> str:
    return next((name for name in ("scale_factor", "add_offset") if name in named), "")


def _documents(place: Location) -> dict[str, bytes]:
    """Return the metadata of a group and its arrays, by key."""
    entries = place.names()
    documents = {name: bytes((place / name).content()) for name in METADATA[:-1] if name in entries}
    if not {"zarr.json", ".zgroup", ".zarray"} & documents.keys():
        if not entries:
            raise PlanError(f"there is no file {place.path}")
        raise PlanError(f"{place.path} is no Zarr file: it has neither zarr.json nor .zgroup nor .zarray")
    for child, is_file in entries.items():
        if not is_file and ("zarr.json" in documents or ".zgroup" in documents):
            names = (place / child).names()
            documents |= {f"{child}/{name}": bytes((place / child / name).content()) for name in METADATA[:-1]
                          if name in names}
    return documents


def _opened(documents: Mapping[str, bytes], place: Location) -> Any:
    store = MemoryStore({key: buffer_prototype.buffer.from_bytes(value) for key, value in documents.items()})
    try:
        return zarr.open(store, mode="r")
    except (ValueError, KeyError, TypeError) as error:
        raise PlanError(f"{place.path} is a Zarr file that cannot be read: {type(error).__name__}: {error}") from error


def _is_plain(array: Any) -> bool:
    """Return whether a chunk is its cells as they are in memory, one after the other."""
    described = array.metadata
    if array.metadata.zarr_format == 2:
        return not described.filters and described.compressor is None and described.order == "C"
    first, *others = described.codecs
    return not others and isinstance(first, BytesCodec) and first.endian in (None, Endian.little)


@dataclass(frozen=True)
class ZarrField(StoredField):
    """Field in an array of a Zarr file.

    Parameters
    ----------
    path : str
        Of the file.
    name : str
        Of the array in its group; empty where the file is an array.
    documents : dict
        The file's metadata, as the driver saw it.
    """

    path: str
    name: str
    documents: dict[str, bytes]

    def block(self, key: BlockKey, locations: Locations) -> np.ndarray:
        """Return a block's cells, for which the chunks are read that have some."""
        place = locations(self.path)
        array = self._array(place)
        block = np.empty(key.shape, array.dtype)
        try:
            if _is_plain(array):
                self._read_pieces(place, array, key, block)
            else:
                array.get_basic_selection(key.slices, out=NDBuffer.from_numpy_array(block))
        except (ValueError, RuntimeError) as error:
            raise PlanError(f"a chunk of {self.path} in block {key.position} cannot be read, since it ends early or is "
                            f"of another shape: {error}") from error
        root = next(iter(self.documents))
        if bytes((place / root).content()) != self.documents[root]:
            raise PlanError(f"{self.path} has been replaced since it was first looked at; scatter it again")
        return block

    def _array(self, place: Location) -> Any:
        return zarr.open_array(Chunks(place, self.documents, read_only=True), path=self.name, mode="r")

    def _read_pieces(self, place: Location, array: Any, key: BlockKey, block: np.ndarray) -> None:
        """Read a block's cells of each chunk, and no others of it where that takes few requests."""
        corner = [one.start for one in key.slices]
        directory = place / self.name if self.name else place
        for chunk, cells in pieces_of(key.slices, array.chunks):
            piece = _read_piece(directory / array.metadata.encode_chunk_key(chunk), array,
                                within(cells, [at * edge for at, edge in zip(chunk, array.chunks, strict=True)]))
            block[within(cells, corner)] = array.fill_value if piece is None else piece

    def ranges(self, key: BlockKey) -> list[FileRange]:
        """Return the files of the chunks that a block has cells of, where the store may say on which hosts they are."""
        if not is_placed(self.path):
            return []
        array = self._array(located(self.path))
        directory = f"{self.path}/{self.name}" if self.name else self.path
        return [FileRange(f"{directory}/{array.metadata.encode_chunk_key(chunk)}")
                for chunk, _ in pieces_of(key.slices, array.shards or array.chunks)]


def _read_piece(place: Location, array: Any, cells: tuple[slice, ...]) -> np.ndarray | None:
    """Return some cells of a chunk that is not encoded; None where it is not there, as all have the fill value."""
    try:
        file = NpyFile(place.path, array.chunks, np.dtype(array.dtype), False, 0, place.state())
    except PlanError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return None
        raise
    nbytes = math.prod(array.chunks) * file.dtype.itemsize
    if file.state.size != nbytes:
        raise PlanError(f"{place.path} is no whole chunk: it has {file.state.size} bytes, and one of shape "
                        f"{array.chunks} and dtype {file.dtype} takes {nbytes}")
    count, _ = file.requests(cells)
    if count > 1 and count * _REQUEST_BYTES > nbytes and is_url(place.path):
        return np.frombuffer(place.content(), file.dtype).reshape(array.chunks)[cells]
    return file.part(place, cells)


# -- writing ----------------------------------------------------------------------------------------------------------

def new_documents(arrays: Mapping[str, tuple[tuple[int, ...], np.dtype, tuple[int, ...]]], attrs: Mapping[str, Any],
                  compress: bool) -> dict[str, bytes]:
    """Return the metadata of a new group of Zarr 3, that of the group last.

    Parameters
    ----------
    arrays : mapping of str to (tuple of int, dtype, tuple of int)
        Shape, dtype and chunks of each array.
    attrs : mapping
        The group's attributes.
    compress : bool
        Whether chunks are compressed, by zstd.
    """
    values: dict[str, Any] = {}
    group = zarr.create_group(MemoryStore(values), attributes=dict(attrs))
    for name, (shape, dtype, chunks) in arrays.items():
        group.create_array(name, shape=shape, dtype=dtype.newbyteorder("="), chunks=chunks,
                           compressors="auto" if compress else None, dimension_names=attributes.AXES[-len(shape):])
    documents = {key: value.to_bytes() for key, value in values.items()}
    return {**{key: documents[key] for key in documents if key != "zarr.json"}, "zarr.json": documents["zarr.json"]}


def write_blocks(path: str, documents: Mapping[str, bytes], records: Iterable[tuple[BlockKey, Any]]) -> list[int]:
    """Write blocks as chunks of a group whose metadata is not there yet, and return their numbers; in a task."""
    numbers = []
    with written_group(path, documents) as write:
        for key, block in records:
            write(key.slices, block)
            numbers.append(key.number)
    return numbers


@contextmanager
def written_group(path: str, documents: Mapping[str, bytes]) -> Iterator[Callable[[tuple[slice, ...], Any], None]]:
    """Return a function that writes cells of all fields, which must be whole chunks."""
    store = Chunks(Locations()(path), documents, read_only=False)

    def write(cells: tuple[slice, ...], block: Any) -> None:
        for name, array in (block if isinstance(block, dict) else {attributes.CELLS: block}).items():
            zarr.open_array(store, path=name, mode="r+")[cells] = np.asarray(array)

    # A chunk of nothing but zeros is written too, so that none is left of an attempt that was lost.
    with zarr.config.set({"array.write_empty_chunks": True}):
        yield write
