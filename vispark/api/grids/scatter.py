"""Scattering of arrays, functions and files to an RDD of a grid's blocks."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Number
from typing import Any, Protocol

import numpy as np
from pyspark import RDD, SparkContext

from gpu_worker.protocol.errors import NotFinite, PlanError
from vispark._utils.ahead import ahead
from vispark._utils.closures import UserFunction, capture
from vispark._utils.contexts import check_running
from vispark.data.grid.files import opened
from vispark.data.grid.key import BlockKey, GridLike
from vispark.data.grid.stored import FilesOf, StoredField
from vispark.data.grid.values import called, evaluate, first_cell, fitted, held
from vispark.data.storage.locality import near_blocks
from vispark.data.storage.opening import Locations, is_url

#: The most bytes of blocks that a task reads ahead of a URL, and of a cell of most dtypes.
_AHEAD, _CELL = 256 << 20, 8


class Scattered(GridLike, Protocol):
    """Interface of a grid for its scattering."""

    @property
    def splits(self) -> tuple[int, ...]:
        """The blocks along each axis."""

    @property
    def fields(self) -> tuple[tuple[str, str], ...]:
        """The names of fields, each with its dtype."""

    def block(self, *position: int) -> BlockKey:
        """Return the key of a block."""


def scatter(grid: Scattered, sc: SparkContext, what: Any, partitions: int | None, check: bool) -> RDD[Any]:
    """See :meth:`vispark.Grid.scatter`."""
    check_running(sc)
    files = FilesOf(grid.shape, grid.splits, [name for name, _ in grid.fields], str(sc.master).startswith("local"))
    sources = _sources(grid, what, files, check)
    count = min(grid.description.blocks, sc.defaultParallelism) if partitions is None else partitions
    if not 1 <= count <= grid.description.blocks:
        raise PlanError(f"partitions={count}; a grid of {grid.description.blocks} blocks has 1 to that many")
    joins_rows = any(isinstance(source.given, StoredField) and source.given.joins_rows for source in sources)
    shares = [[(key, [source.piece(key) for source in sources]) for key in map(grid.block, *zip(*box, strict=True))]
              for box in boxes(grid.shape, grid.splits, count, joins_rows)]
    for share in shares if joins_rows else ():
        run = next(_rows(share))
        for piece in run[0][1]:
            if piece.stored:
                piece.stored.check_run([key for key, _ in run])
    named = tuple(source.name for source in sources)
    ranges = [[place for key, pieces in share for piece in pieces if piece.stored for place in piece.stored.ranges(key)]
              for share in shares]
    return near_blocks(sc, shares, ranges).flatMap(_Blocks(named))


@dataclass(frozen=True)
class _Blocks:
    """Function that makes the records of a partition."""

    names: tuple[str, ...]

    def __call__(self, share: list[_Block]) -> Iterator[tuple[BlockKey, Any]]:
        locations = Locations()

        def records(row: list[_Block]) -> list[tuple[BlockKey, Any]]:
            keys = [key for key, _ in row]
            fields = [pieces[0].blocks(keys, pieces, locations)
                      for pieces in zip(*(pieces for _, pieces in row), strict=True)]
            return [(key, arrays[0] if self.names == ("",) else dict(zip(self.names, arrays, strict=True)))
                    for key, arrays in zip(keys, zip(*fields, strict=True), strict=True)]

        stored = [piece.stored for _, pieces in share for piece in pieces if piece.stored]
        rows = list(_rows(share)) if any(field.joins_rows for field in stored) else [[block] for block in share]
        is_far = any(is_url(field.path) for field in stored)
        blocks = ahead(records, rows, _most_bytes, _AHEAD) if is_far and len(rows) > 1 else map(records, rows)
        return itertools.chain.from_iterable(blocks)


#: A block's key, and the sources of its fields.
_Block = tuple[BlockKey, list["_Piece"]]


def _rows(share: list[_Block]) -> Iterator[list[_Block]]:
    """Yield the blocks of a partition in runs of neighbours along the last axis, none longer than a task reads ahead.
    """
    run: list[_Block] = []
    for block in share:
        if run and (block[0].position[:-1] != run[0][0].position[:-1] or _most_bytes([*run, block]) > _AHEAD):
            yield run
            run = []
        run.append(block)
    yield run


def _most_bytes(blocks: list[_Block]) -> int:
    return sum(_CELL * math.prod(key.shape) * len(pieces) for key, pieces in blocks)


# -- what a field is made of ------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class _Piece:
    """Source of one block of a field: its array, a function of the position, or a file."""

    name: str
    dtype: str | None
    array: np.ndarray | None = None
    function: UserFunction | None = None
    stored: StoredField | None = None
    checked: bool = False

    def blocks(self, keys: Sequence[BlockKey], pieces: Sequence[_Piece], locations: Locations) -> list[np.ndarray]:
        """Return the arrays of neighbours, whose sources are ``pieces``; errors are those of :meth:`block`."""
        if self.stored is None:
            return [piece.block(key) for key, piece in zip(keys, pieces, strict=True)]
        arrays = self.stored.blocks(keys, locations)
        return [self._finished(key, array) for key, array in zip(keys, arrays, strict=True)]

    def block(self, key: BlockKey) -> np.ndarray:
        """Return the array, contiguous, of a block that lies in no file.

        Raises
        ------
        PlanError
            If the function does not give one of the block's shape and the field's dtype.
        NotFinite
            If it gives a cell that is NaN or infinite, and is to be checked.
        """
        if self.array is not None:
            return fitted(self.array, key.shape, self.dtype, called(self.name), _coordinates(key))
        assert self.function is not None
        return self._checked(key, evaluate(self.function.function, _coordinates(key), key.shape, self.dtype,
                                           f"{called(self.name)} in block {key.position}"))

    def _finished(self, key: BlockKey, block: np.ndarray) -> np.ndarray:
        """Return the block of a file in the field's dtype."""
        assert self.stored is not None
        # Files have bytes in either order.
        return self._checked(key, fitted(block.astype(block.dtype.newbyteorder("="), copy=False), key.shape, self.dtype,
                                         f"{called(self.name)} in {self.stored.path}", _coordinates(key)))

    def _checked(self, key: BlockKey, array: np.ndarray) -> np.ndarray:
        if self.checked:
            _check_finite(array, key, self.name)
        return array


@dataclass(frozen=True)
class _Source:
    """Source of a field: what the user gave, and the dtype."""

    name: str
    dtype: str | None
    given: Any
    checked: bool

    def piece(self, key: BlockKey) -> _Piece:
        """Return the source of one block of the field.

        Raises
        ------
        NotFinite
            If an array has a cell that is NaN or infinite, and is to be checked.
        """
        if isinstance(self.given, np.ndarray):
            # A copy, so that not the whole array is pickled for a view of it.
            part = np.array(self.given[key.slices] if self.given.ndim else self.given)
            if self.checked:
                _check_finite(part, key, self.name)
            return _Piece(self.name, self.dtype, part)
        if isinstance(self.given, UserFunction):
            return _Piece(self.name, self.dtype, function=self.given, checked=self.checked)
        return _Piece(self.name, self.dtype, stored=self.given, checked=self.checked)


def _check_finite(values: np.ndarray, key: BlockKey, field: str) -> None:
    """Raise NotFinite where a cell of a block is NaN or infinite; one value stands for all cells."""
    if values.dtype.kind in "fc":
        cell = first_cell(~np.isfinite(np.broadcast_to(values, key.shape)), _coordinates(key))
        if cell is not None:
            raise NotFinite(f"cell {cell} of {field or 'the grid'}, in block {key.position}, is NaN or infinite where "
                            "it is scattered")


def _coordinates(key: BlockKey) -> tuple[np.ndarray, ...]:
    return np.ix_(*(np.arange(part.start, part.stop) for part in key.slices))


def _sources(grid: Scattered, what: Any, files: FilesOf, check: bool) -> list[_Source]:
    dtypes = dict(grid.fields)
    if isinstance(what, str | os.PathLike):
        what = opened(what, files)
    if not isinstance(what, Mapping):
        if dtypes:
            raise PlanError(f"the grid has the fields {', '.join(dtypes)}; scatter a dict with a value for each")
        return [_Source("", None, _given(grid, "", what, None, files), check)]
    if not what:
        raise PlanError("scatter was given a dict without fields")
    for name in what:
        if not isinstance(name, str) or not name:
            raise PlanError(f"scatter was given a dict with the key {name!r}; fields must have names of type str")
    if dtypes and set(dtypes) != set(what):
        raise PlanError(f"the grid has the fields {', '.join(dtypes)}, and what is scattered has {', '.join(what)}")
    return [_Source(name, dtypes.get(name), _given(grid, name, what[name], dtypes.get(name), files), check)
            for name in dtypes or what]


def _given(grid: Scattered, name: str, value: Any, dtype: str | None, files: FilesOf) -> Any:
    """Return a field's values, as far as they can be checked here."""
    what = f"field {name!r}" if name else "the array"
    if isinstance(value, str | os.PathLike):
        return opened(value, files, name)
    if isinstance(value, StoredField):
        return value
    if isinstance(value, Number | np.generic):
        number = np.asarray(value)
        if number.dtype.kind not in "biufc":
            raise PlanError(f"{what} is {value!r}; cells hold numbers of at most 64 bits")
        return number if dtype is None else held(number[()], dtype, what)
    if isinstance(value, np.ndarray):
        if value.shape != grid.shape:
            raise PlanError(f"{what} has shape {value.shape}, the grid {grid.shape}")
        if value.dtype.kind not in "biufc":
            raise PlanError(f"{what} is of dtype {value.dtype}; cells hold numbers")
        if dtype is not None and value.dtype != np.dtype(dtype):
            raise PlanError(f"{what} is of dtype {value.dtype}, and fields= says {np.dtype(dtype)}: convert it with "
                            ".astype")
        return value
    if callable(value):
        return capture(value)
    raise PlanError(f"{what} is a {type(value).__name__}; scatter takes arrays, functions of the coordinates, numbers, "
                    "paths, or a dict of them by field")


# -- which blocks go together -----------------------------------------------------------------------------------------

def boxes(shape: tuple[int, ...], splits: tuple[int, ...], parts: int,
          joins_rows: bool = False) -> list[list[tuple[int, ...]]]:
    """Return the blocks in as many boxes of neighbours, of nearly equal size: each is halved across its longest side,
    and where rows are better not cut, across the last axis only if there is no other.

    Examples
    --------
    >>> boxes((8, 4), (4, 2), 2)
    [[(0, 0), (0, 1), (1, 0), (1, 1)], [(2, 0), (2, 1), (3, 0), (3, 1)]]
    """
    finished: list[list[tuple[int, ...]]] = []
    waiting = [((0,) * len(shape), splits, parts)]
    while waiting:
        low, high, share = waiting.pop()
        extents = [end - start for start, end in zip(low, high, strict=True)]
        if share == 1:
            finished.append([tuple(int(at) + start for at, start in zip(each, low, strict=True))
                             for each in np.ndindex(*extents)])
            continue
        axis = max((axis for axis in range(len(shape)) if extents[axis] > 1),
                   key=lambda axis: (not joins_rows or axis < len(shape) - 1,
                                     extents[axis] * shape[axis] / splits[axis]))
        first = extents[axis] // 2
        # Neither side gets more parts than it has blocks.
        lower = min(max(1, round(share * first / extents[axis])), share - 1)
        cut = low[axis] + first
        below, above = list(high), list(low)
        below[axis] = above[axis] = cut
        waiting += [(tuple(above), high, share - lower), (low, tuple(below), lower)]
    return finished
