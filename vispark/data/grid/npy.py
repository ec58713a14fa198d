"""Grids in ``.npy`` files: one for the whole grid, or one for each block."""

from __future__ import annotations

import io
import itertools
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpu_worker.protocol.errors import PlanError
from vispark.data.storage.location import FileState, Location
from vispark.data.storage.opening import Locations, is_url, located

#: The name of a block's file, and its place.
_BLOCK = re.compile(r"block-(\d+(?:-\d+)*)\.npy")

#: What is read first of a file, in bytes: NumPy's own headers have 128 of up to 3 axes.
_HEADER = 128
#: By how much what is read of a URL may exceed what is wanted, so that rows close to each other come by one request.
_SLACK = 1.05
#: The most bytes of a cell, and of a header: a block's own file has no more, or it is of another block.
_CELL, _HEADERS = 16, 1 << 16
#: The most ranges that are asked for at once.
_AT_ONCE = 1024


def block_path(directory: Any, position: tuple[int, ...]) -> str:
    """Return the file of a block in a directory."""
    return f"{os.fspath(directory)}/{_block_name(position)}"


def field_path(directory: Any, field: str) -> str:
    """Return the directory of a field's blocks."""
    return f"{os.fspath(directory)}/{field}"


def _block_name(position: tuple[int, ...]) -> str:
    return f"block-{'-'.join(map(str, position))}.npy"


def check_named_as_directory(path: str) -> None:
    """Raise PlanError where a path names a directory as scatter knows files."""
    name = path.rstrip("/")
    if name.lower().endswith(".npy"):
        raise PlanError(f"{path} would be a directory, with a file for each field or block, and scatter takes names "
                        f"that end in .npy for files; save the grid as {name[:-len('.npy')]}")


def saved_field(directory: Any, field: str) -> str:
    """Return the path of a field in a directory that a grid was saved in: a file, or a directory of its blocks.

    Raises
    ------
    PlanError
        If both are there.
    """
    blocks = field_path(directory, field)
    whole = f"{blocks}.npy"
    place = located(directory)
    if not (place / f"{field}.npy").is_there():
        return blocks
    if (place / field).is_there():
        raise PlanError(f"field {field!r} is there twice, as {whole} and as blocks in {blocks}; give scatter the one "
                        f"that counts, as {{{field!r}: path}}")
    return whole


def saved_fields(directory: Any) -> list[str]:
    """Return the fields in a directory that a grid was saved in; none where it has files of blocks."""
    place = located(directory)
    entries = place.names()
    if _has_blocks(entries):
        return []
    return sorted({name.removesuffix(".npy") for name, is_file in entries.items() if not name.startswith(".")
                   and (name.endswith(".npy") if is_file else _has_blocks((place / name).names()))})


def _has_blocks(entries: Mapping[str, bool]) -> bool:
    return any(map(_BLOCK.fullmatch, entries))


def check_free(place: Location) -> None:
    """Check that a directory of blocks may be written: nothing is there but such a one, which can be replaced.

    Raises
    ------
    PlanError
        If something else is there, or it is in an object store.
    """
    entries = place.names()
    other = next((name for name, is_file in entries.items() if not is_file or not _BLOCK.fullmatch(name)), None)
    if entries and not place.store.renames:
        raise PlanError(f"{place.path} is there, and an object store cannot replace a directory at once, while others "
                        "may read it: save the grid under another name, or delete that one before")
    if other is not None:
        raise PlanError(f"{place.path} is there, and has more than the blocks of a grid, such as {other}, which would "
                        "be lost; save the grid under another name")


def check_blocks(directory: str, splits: tuple[int, ...], wanted: Iterable[tuple[int, ...]]) -> None:
    """Check that a directory has the blocks of a grid with these splits.

    Parameters
    ----------
    directory : str
        Where they should be.
    splits : tuple of int
        The grid's.
    wanted : iterable of tuple of int
        The places of the blocks.

    Raises
    ------
    PlanError
        If they were saved with other splits, or one is missing.
    """
    names = located(directory).names()
    positions = {tuple(map(int, match[1].split("-"))) for name in names if (match := _BLOCK.fullmatch(name))}
    saved = tuple(max(places) + 1 for places in zip(*positions, strict=False))
    if positions and saved != splits and len(positions) == math.prod(saved):
        raise PlanError(f"the blocks in {directory} were saved with splits={saved}, and this grid has splits={splits}: "
                        "make it with those, or save the whole grid as one .npy file, which any splits can read")
    if not names:
        raise PlanError(f"there is no directory {directory}, or it is empty; a grid is scattered from one .npy file of "
                        "its shape, or from a directory with a file for each field or block, as Grid.save writes them")
    missing = next((position for position in wanted if position not in positions), None)
    if missing is not None:
        raise PlanError(f"there is no file {block_path(directory, missing)}; a grid is scattered from one .npy file of "
                        "its shape, or from a directory with a file for each field or block, as Grid.save writes them")


def check_block_shapes(directory: str, shape: tuple[int, ...], splits: tuple[int, ...]) -> None:
    """Check that a directory's blocks are those of a grid of this shape, by two of them.

    Longer blocks come first along an axis. The last of these and the first of the others, or the outermost two where
    all have one length, are as long as the grid's only where the axis is.

    Raises
    ------
    PlanError
        If they were saved from a grid of another shape.
    """
    cuts = [(*divmod(extent, parts), parts) for extent, parts in zip(shape, splits, strict=True)]
    places = ([(max(longer - 1, 0), size + (longer > 0)) for size, longer, _ in cuts],
              [(longer or parts - 1, size) for size, longer, parts in cuts])
    for place in places:
        path = block_path(directory, tuple(position for position, _ in place))
        _check_block_shape(NpyFile.at(located(path)), tuple(length for _, length in place))


# -- reading ----------------------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class NpyFile:
    """Header of a ``.npy`` file, and the state that the file had.

    Parameters
    ----------
    path : str
        Of the file.
    shape, dtype, fortran : tuple of int, dtype, bool
        Of the array; ``fortran`` where its first axis is contiguous.
    offset : int
        Bytes before the first cell.
    state : FileState
        Size and version of the file.
    """

    path: str
    shape: tuple[int, ...]
    dtype: np.dtype
    fortran: bool
    offset: int
    state: FileState

    @classmethod
    def at(cls, place: Location) -> NpyFile:
        """Return the header of a file.

        Raises
        ------
        PlanError
            If there is no such file, it cannot be read, it holds no array of numbers, or ends before the array does.
        """
        state = place.state()
        return cls._described(place, state, place.read([(0, min(_HEADER, state.size))])[0])

    @classmethod
    def _described(cls, place: Location, state: FileState, head: Any) -> NpyFile:
        """Return the header of a file whose first bytes are known."""
        try:
            shape, fortran, dtype, offset = _header(place, state, bytes(head))
        except ValueError as error:
            raise PlanError(f"{place.path} cannot be read as .npy: {error}") from error
        if dtype.hasobject:
            raise PlanError(f"{place.path} cannot be read as .npy: its cells are Python objects; cells hold numbers")
        least = offset + math.prod(shape) * dtype.itemsize
        if state.size < least:
            raise PlanError(f"{place.path} ends early: it has {state.size} bytes, and an array of shape {shape} and "
                            f"dtype {dtype} takes {least}")
        return cls(place.path, shape, dtype, fortran, offset, state)

    @classmethod
    def whole(cls, place: Location, most: int) -> tuple[NpyFile, np.ndarray | None]:
        """Return the header of a file, and the array if the file has at most so many bytes: it comes by one request.

        Raises
        ------
        PlanError
            As for :meth:`at`, or if the file changes meanwhile.
        """
        state = place.state()
        if state.size > most:
            return cls.at(place), None
        content = place.read([(0, state.size)])[0]
        file = cls._described(place, state, memoryview(content)[:_HEADER])
        place.check(state)
        cells = np.frombuffer(content, file.dtype, math.prod(file.shape), file.offset)
        return file, np.ascontiguousarray(cells.reshape(file.shape, order="F" if file.fortran else "C"))

    def span(self, slices: tuple[slice, ...]) -> tuple[int, int]:
        """Return the first byte of some cells, and the one behind the last.

        Examples
        --------
        >>> file = NpyFile("u.npy", (4, 6), np.dtype("f8"), False, 128, FileState(320, ""))
        >>> file.span((slice(1, 2), slice(0, 6)))
        (176, 224)
        """
        backwards = -1 if self.fortran else 1
        shape, ranges = self.shape[::backwards], slices[::backwards]
        first, last = (int(np.ravel_multi_index(corner, shape)) for corner in (
            [one.start for one in ranges], [one.stop - 1 for one in ranges]))
        return self.offset + first * self.dtype.itemsize, self.offset + (last + 1) * self.dtype.itemsize

    def requests(self, slices: tuple[slice, ...]) -> tuple[int, int]:
        """Return by how many requests, and of how many bytes each, some cells are read of a URL.

        Examples
        --------
        >>> file = NpyFile("u.npy", (4, 6), np.dtype("f8"), False, 128, FileState(320, ""))
        >>> file.requests((slice(0, 4), slice(0, 6))), file.requests((slice(0, 4), slice(0, 3)))
        ((1, 192), (4, 24))
        """
        extents, _, level, span = self._layout(slices)
        return math.prod(extents[:level]), span

    def _layout(self, slices: tuple[slice, ...]) -> tuple[tuple[int, ...], list[int], int, int]:
        """Return extents and strides of some cells in the order of the file, the first axis that one range goes along,
        and the range's bytes.
        """
        backwards = -1 if self.fortran else 1
        shape, ranges = self.shape[::backwards], slices[::backwards]
        extents = tuple(one.stop - one.start for one in ranges)
        strides = [math.prod(shape[axis + 1:]) * self.dtype.itemsize for axis in range(len(shape))]
        return extents, strides, *_longest(extents, strides, self.dtype.itemsize)

    def part(self, place: Location, slices: tuple[slice, ...]) -> np.ndarray:
        """Return some of the cells, for which no more is read than a little beyond them.

        Raises
        ------
        PlanError
            If they cannot be read, or the file is no longer as it was.
        """
        if is_url(self.path):
            array = self._ranges(place, slices)
        else:
            place.check(self.state)     # before it is mapped: what a file no longer has cannot be
            with place.naming("read"):
                array = np.array(np.memmap(place.name, self.dtype, "r", self.offset, self.shape, "F" if self.fortran
                                           else "C")[slices], order="C") if math.prod(self.shape) else self._empty()
        place.check(self.state)
        return array

    def _empty(self) -> np.ndarray:
        return np.empty(self.shape, self.dtype)

    def _ranges(self, place: Location, slices: tuple[slice, ...]) -> np.ndarray:
        """Read cells by ranges, each the longest along the last axes that has little in it that is not wanted."""
        extents, strides, level, span = self._layout(slices)
        firsts = [one.start for one in slices[::-1 if self.fortran else 1]]
        start = self.offset + sum(first * stride for first, stride in zip(firsts, strides, strict=True))
        array = np.empty(extents, self.dtype)
        places = np.ndindex(*extents[:level])
        while batch := list(itertools.islice(places, _AT_ONCE)):
            starts = [start + sum(at * stride for at, stride in zip(each, strides, strict=False)) for each in batch]
            for index, piece in zip(batch, place.read([(first, first + span) for first in starts]), strict=True):
                array[index] = np.ndarray(extents[level:], self.dtype, memoryview(piece), strides=strides[level:])
        return np.ascontiguousarray(array.T) if self.fortran else array


def _longest(extents: tuple[int, ...], strides: list[int], itemsize: int) -> tuple[int, int]:
    """Return the first axis that one range goes along, and the range's bytes."""
    for level in range(len(extents)):
        span = itemsize + sum((extent - 1) * stride for extent, stride in zip(extents[level:], strides[level:],
                                                                             strict=True))
        if span <= _SLACK * itemsize * math.prod(extents[level:]):
            return level, span
    return len(extents), itemsize


def _header(place: Location, state: FileState, head: bytes) -> tuple[tuple[int, ...], bool, np.dtype, int]:
    """Return shape, order, dtype and bytes of a header that begins so; ValueError if it is none."""
    version = np.lib.format.read_magic(io.BytesIO(head))
    width = 2 if version == (1, 0) else 4
    offset = 8 + width + int.from_bytes(head[8:8 + width], "little")
    if offset > state.size:
        raise ValueError(f"it ends within its header, at {state.size} bytes")
    if offset > len(head):
        head += bytes(place.read([(len(head), offset)])[0])
    file = io.BytesIO(head[:offset])
    np.lib.format.read_magic(file)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"it is of version {version}, which arrays of numbers have not")
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = read(file)
    return shape, fortran, dtype, offset


def read_block(path: str, shape: tuple[int, ...], locations: Locations) -> np.ndarray:
    """Return the array of a block's own file.

    Raises
    ------
    PlanError
        If it cannot be read, or has another shape.
    """
    place = locations(path)
    file, array = (NpyFile.whole(place, _HEADERS + _CELL * math.prod(shape)) if is_url(path) else
                   (NpyFile.at(place), None))
    _check_block_shape(file, shape)
    return file.part(place, tuple(slice(0, extent) for extent in shape)) if array is None else array


def _check_block_shape(file: NpyFile, shape: tuple[int, ...]) -> None:
    if file.shape != shape:
        raise PlanError(f"{file.path} has shape {file.shape}, and its block {shape}. It was saved from a grid of "
                        "another shape or with other splits")


def read_part(file: NpyFile | str, shape: tuple[int, ...], slices: tuple[slice, ...],
              locations: Locations) -> np.ndarray:
    """Return a block from the file of a whole grid.

    Parameters
    ----------
    file : NpyFile or str
        The file as the driver saw it, or where it did not see it, its path.
    shape : tuple of int
        The grid's.
    slices : tuple of slice
        Where in the grid the block is.
    locations : Locations
        Opens the file.

    Raises
    ------
    PlanError
        If it cannot be read, or has another shape.
    """
    place = locations(file.path if isinstance(file, NpyFile) else file)
    if not isinstance(file, NpyFile):
        file = NpyFile.at(place)
        check_shape(file, shape)
    return file.part(place, slices)


def check_shape(file: NpyFile, shape: tuple[int, ...]) -> None:
    """Raise PlanError where a file is of a grid of another shape."""
    if file.shape != shape:
        raise PlanError(f"{file.path} has shape {file.shape}, and the grid {shape}. It was saved from a grid of "
                        "another shape")


# -- writing ----------------------------------------------------------------------------------------------------------

def write_blocks(directories: Mapping[str, str], records: Iterable[tuple[Any, Any]]) -> Iterator[int]:
    """Write the blocks of a partition, each to a file of its own in the directory of its field; yield their numbers."""
    locations = Locations()
    for key, block in records:
        for name, array in (block if isinstance(block, dict) else {"": block}).items():
            write_block(block_path(directories[name], key.position), array, locations)
        yield key.number


def write_block(path: str, block: np.ndarray, locations: Locations | None = None) -> None:
    """Write one array as a file; an existing one is replaced as a whole."""
    array = np.ascontiguousarray(block)
    write_slabs(path, array.shape, array.dtype, [array], locations)


def write_slabs(path: str, shape: tuple[int, ...], dtype: np.dtype, slabs: Iterable[np.ndarray],
                locations: Locations | None = None) -> None:
    """Write an array whose parts along the first axis come one after the other, as a whole: a fault leaves nothing."""
    file = io.BytesIO()
    np.lib.format.write_array_header_2_0(
        file, {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape})
    header = file.getvalue()
    # As bytes, since not every store takes arrays of several axes.
    rest = (np.ascontiguousarray(slab, dtype).reshape(-1).view(np.uint8).data for slab in slabs)
    # What is in memory anyway may be written again.
    pieces = [header, *rest] if isinstance(slabs, Sequence) else itertools.chain([header], rest)
    (locations or Locations())(path).write(pieces, len(header) + math.prod(shape) * dtype.itemsize)
