"""Unpacking of a block's arrays to records."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np

from gpu_worker.protocol.errors import ProtocolError
from vispark.data.records.keys import unpack_keys
from vispark.data.records.layout import BY_NAME, RAGGED, RecordLayout, RecordPart, held_as
from vispark.data.records.ragged import rows_of

#: Elements that become Python objects at a time, so that a large partition never lies twice in memory as objects.
_CHUNK = 4096


def unpack(layout: RecordLayout, count: int, keys: bytes, blocks: Sequence[Mapping[str, np.ndarray]], *,
           open: Callable[[bytes], bytes]) -> Iterator[Any]:
    """Return the records of a partition.

    Parameters
    ----------
    layout : RecordLayout
        How they are rebuilt.
    count : int
        Their number.
    keys : bytes
        The sealed blob of their keys.
    blocks : sequence of mapping of str to ndarray
        Each block's arrays by field name. Those that are writable and C-contiguous are handed out as they are, or as
        views of their rows; others are copied.
    open : callable
        Checks and takes off the tag before the keys' blob, as :meth:`Keyring.open` does.

    Raises
    ------
    Unauthorized
        If ``open`` refuses the keys.
    ProtocolError
        If the blocks are not what the layout says.
    """
    if not count:
        return iter(())
    expected = 1 if layout.kind == "elements" else count
    if len(blocks) != expected:
        raise ProtocolError(f"a partition of {count} records ({layout.kind}) has {len(blocks)} blocks, not {expected}")
    values = _elements(layout, count, blocks[0]) if layout.kind == "elements" else _blocks(layout, blocks)
    return zip(unpack_keys(keys, count, open=open), values, strict=True) if layout.keyed else values


def _elements(layout: RecordLayout, count: int, block: Mapping[str, np.ndarray]) -> Iterator[Any]:
    columns = []
    for part in layout.parts:
        if part.form in RAGGED:
            columns.append(rows_of(part, block))
            continue
        array = _array(part, block)
        if not array.ndim or len(array) != count:
            raise ProtocolError(f"{_name(part)} has shape {array.shape}, not {count} records")
        columns.append(_records(part, array))
    if layout.tupled:
        return _nested(_nesting(tuple([part.name for part in layout.parts])), columns)
    if not layout.named:
        return columns[0]
    names = [part.name for part in layout.parts]
    return (dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True))


def _blocks(layout: RecordLayout, blocks: Sequence[Mapping[str, np.ndarray]]) -> Iterator[Any]:
    for block in blocks:
        record = {part.name: _record(part, _array(part, block)) for part in layout.parts}
        if layout.tupled:
            yield next(_nested(_nesting(tuple(record)), [iter([each]) for each in record.values()]))
        else:
            yield record if layout.named else record[""]


#: Which column stands somewhere in a tuple, or which of them make the tuple that does.
_Nesting = int | tuple["_Nesting", ...]


@functools.lru_cache(maxsize=256)
def _nesting(names: tuple[str, ...]) -> _Nesting:
    """Return the nesting of columns by their names: ``1.0`` is the first part of the second column."""
    return _grouped([(number, name.split(".")) for number, name in enumerate(names)])


def _grouped(places: Sequence[tuple[int, Sequence[str]]]) -> _Nesting:
    if len(places) == 1 and not places[0][1]:
        return places[0][0]
    firsts = dict.fromkeys(place[0] for _, place in places)
    return tuple(_grouped([(number, place[1:]) for number, place in places if place[0] == first]) for first in firsts)


def _nested(nesting: _Nesting, columns: Sequence[Iterator[Any]]) -> Iterator[Any]:
    """Return tuples out of their columns."""
    if isinstance(nesting, int):
        return columns[nesting]
    return zip(*[_nested(part, columns) for part in nesting], strict=True)


def _array(part: RecordPart, block: Mapping[str, np.ndarray]) -> np.ndarray:
    if part.name not in block:
        raise ProtocolError(f"{_name(part)} is not in a block with {sorted(block)}")
    array = block[part.name]
    if array.dtype != part.dtype:
        raise ProtocolError(f"{_name(part)} is of {array.dtype}, not {part.dtype}")
    return array


def _name(part: RecordPart) -> str:
    return f"field {part.name!r}" if part.name else "the array of the records"


def _record(part: RecordPart, array: np.ndarray) -> object:
    """Return a record, or its field, from its own array."""
    if part.form == "array":
        return _owned(array, part.types[0])
    return array.item() if part.types[0] in BY_NAME else array[()]


def _records(part: RecordPart, array: np.ndarray) -> Iterator[Any]:
    """Return records, or a field of them, from an array that has them along its first axis."""
    if part.form == "tuple":
        return chain.from_iterable(_rows(part.types, chunk) for chunk in _chunks(array))
    if part.form == "number":
        if len(array) <= _CHUNK:
            return _numbers(part.types[0], array)
        return chain.from_iterable(_numbers(part.types[0], chunk) for chunk in _chunks(array))
    array = _owned(array, part.types[0])
    return iter(array) if array.ndim > 1 else (array[index, ...] for index in range(len(array)))


def _rows(types: tuple[str, ...], chunk: np.ndarray) -> Iterator[tuple[Any, ...]]:
    if len(types) > 1:
        positions = zip(types, chunk.T, strict=True)
        return zip(*[_numbers(name, position) for name, position in positions], strict=True)
    return map(tuple, chunk.tolist() if types[0] in BY_NAME else chunk)


def _numbers(name: str, array: np.ndarray) -> Iterator[Any]:
    """Return the numbers of a 1-D array, as the type of that name."""
    dtype = held_as(name)
    if array.dtype.kind == "c" and dtype.kind != "c":
        array = array.real
    array = array.astype(dtype, copy=False)
    return iter(array.tolist() if name in BY_NAME else array)


def _chunks(array: np.ndarray) -> Iterator[np.ndarray]:
    return (array[start:start + _CHUNK] for start in range(0, len(array), _CHUNK))


def _owned(array: np.ndarray, dtype: str) -> np.ndarray:
    """Return the array, or a copy if it is read-only, not contiguous or of another dtype."""
    if array.dtype == np.dtype(dtype) and array.flags.writeable and array.flags.c_contiguous:
        return array
    return np.array(array, dtype, order="C")
