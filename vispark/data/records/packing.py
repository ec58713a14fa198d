"""Packing of records into the bytes of a payload."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import Any

import numpy as np

from gpu_worker.protocol.errors import RecordError
from gpu_worker.protocol.messages import Field, Signature
from gpu_worker.protocol.payload import Payload, Target, aligned, block_bytes, field_offsets
from vispark.data.grid.key import BlockKey
from vispark.data.grid.spec import GridSpec
from vispark.data.records.columns import Column, SparseColumn, columns
from vispark.data.records.keys import numbers_of, pack_keys
from vispark.data.records.layout import RAGGED, RecordLayout, RecordPart
from vispark.data.records.ragged import FlatRowsColumn, flat_columns, sparse_columns
from vispark.data.records.rows import Rows
from vispark.data.records.validation import Subject, is_pair, mixed


class Packed:
    """A partition ready to be written.

    Attributes
    ----------
    layout : RecordLayout
        How the records are rebuilt.
    count : int
        The number of records.
    keys : bytes
        The sealed blob of the keys; empty where records are no pairs.
    signatures : list of Signature
        One for each block, in order.
    nbytes : int
        The bytes it takes in a payload, padding included.
    key_bytes, block_bytes : int
        Those of them that the keys take, and the blocks behind them.
    positions : tuple of int
        Which of the grid's blocks these are, by number; empty where there is no grid.
    """

    def __init__(self, layout: RecordLayout, count: int, keys: bytes, columns: list[Column],
                 positions: tuple[int, ...] = ()):
        self.layout = layout
        self.positions = positions
        self.count = count
        self.keys = keys
        self._columns = columns
        self.signatures = self._stacked() if layout.kind == "elements" else self._separate()
        self.key_bytes, self.block_bytes = aligned(len(keys)), sum(map(block_bytes, self.signatures))
        self.nbytes = self.key_bytes + self.block_bytes

    def write(self, payload: Payload, offset: int) -> None:
        """Write keys and blocks into ``payload`` at ``offset``, a multiple of the payload's alignment."""
        self.write_keys(payload, offset)
        self.write_blocks(payload, offset + self.key_bytes)

    def write_keys(self, payload: Payload, offset: int) -> None:
        """Write the keys into ``payload`` at ``offset``."""
        payload.view(offset, len(self.keys))[:] = np.frombuffer(self.keys, np.uint8)

    def write_blocks(self, payload: Target, offset: int) -> None:
        """Write the blocks, from first to last, from ``offset`` on, a multiple of the payload's alignment."""
        for index, signature in enumerate(self.signatures):
            for column, (_, start) in zip(self._columns, field_offsets(signature, offset), strict=True):
                if self.layout.kind == "elements":
                    column.stack(payload, start)
                else:
                    column.write(index, payload, start)
            offset += block_bytes(signature)

    def _stacked(self) -> list[Signature]:
        if not self.count:
            return []
        return [self._signature(tuple(column.stacked_shape() for column in self._columns))]

    def _separate(self) -> list[Signature]:
        known: dict[tuple[tuple[int, ...], ...], Signature] = {}
        signatures = []
        for shapes in zip(*[[item.shape for item in column.items] for column in self._columns], strict=True):
            if shapes not in known:
                known[shapes] = self._signature(shapes)
            signatures.append(known[shapes])
        return signatures

    def _signature(self, shapes: tuple[tuple[int, ...], ...]) -> Signature:
        return Signature(tuple(Field(column.part.name, column.part.dtype.str, shape)
                               for column, shape in zip(self._columns, shapes, strict=True)))


def pack(records: Iterable[Any], *, seal: Callable[[bytes], bytes]) -> Packed:
    """Read a partition's records, once, and lay them out as arrays.

    Parameters
    ----------
    records : iterable
        Numbers, arrays, tuples of numbers and rows, dicts of numbers and arrays, or (key, value) pairs with such
        values; all alike. Of :class:`Rows` the arrays are taken as they are.
    seal : callable
        Puts a tag before the keys' blob, as :meth:`Keyring.seal` does.

    Raises
    ------
    RecordError
        If a record cannot be held or is not like those before it; the message names it by its index.

    Examples
    --------
    >>> packed = pack([1.5, 2.5, 3.5], seal=bytes)
    >>> packed.signatures
    [Signature(fields=(Field(name='', dtype='<f8', shape=(3,)),))]
    """
    if isinstance(records, Rows):
        rows = records.columns()
        parts, arrays = stacked(rows)
        return Packed(RecordLayout("elements", False, parts), rows[0].count if rows else 0, b"", arrays)
    records = list(records)
    if not records:
        return Packed(RecordLayout("elements", False, ()), 0, b"", [])
    keyed = is_pair(records[0])
    names = _keys(records) if keyed else []
    keys = pack_keys(names, seal=seal) if keyed else b""
    held: Any = columns(list(map(itemgetter(1), records)) if keyed else records, keyed)
    parts = tuple(column.part for column in held)
    grid = _grid(names, held)
    if grid is not None:
        return Packed(RecordLayout("grid", keyed, parts, grid=grid), len(records), keys, held,
                      tuple(key.number for key in names))
    tupled = type(records[0][1] if keyed else records[0]) is tuple and len(held) > 1
    kind = "blocks" if any(column.ndim > 1 for column in held) else "elements"
    if kind == "elements":
        parts, held = stacked(held)
    elif any(isinstance(column, SparseColumn) for column in held):
        raise RecordError("sparse vectors stand beside arrays of two dimensions or more, and blocks hold none")
    numbers = numbers_of(names) if keyed else None
    layout = RecordLayout(kind, keyed, parts, tupled, key=numbers[0] if numbers else "", sent=tupled)
    return Packed(layout, len(records), keys, held)


def stacked(several: Sequence[Column | SparseColumn | FlatRowsColumn]) -> tuple[tuple[RecordPart, ...], list[Any]]:
    """Return the parts of records that are written field by field, and the columns of the block that they become."""
    both = [column.stacked() for column in several]
    return tuple(part for part, _ in both), [column for _, columns in both for column in columns]


def pack_as(layout: RecordLayout, records: Iterable[Any]) -> Packed:
    """Lay out a partition's records, which came out of workers before, as arrays of a layout that is known.

    Parameters
    ----------
    layout : RecordLayout
        Of elements without keys of their own.
    records : iterable
        Records that :func:`unpack` made by this layout.

    Examples
    --------
    >>> layout = RecordLayout("elements", False, (RecordPart("0", "number", ("int",)),
    ...                                           RecordPart("1", "number", ("float",))), tupled=True)
    >>> [field.dtype for field in pack_as(layout, [(1, 0.5), (2, 1.5)]).signatures[0].fields]
    ['<i8', '<f8']
    """
    listed = list(records)
    if not listed:
        return Packed(RecordLayout("elements", False, ()), 0, b"", [])
    by_part = [_columns_of(layout, part, listed) for part in layout.parts]
    return Packed(layout, len(listed), b"", [column for columns in by_part for column in columns])


def _columns_of(layout: RecordLayout, part: RecordPart, records: list[Any]) -> Sequence[Any]:
    """Return the columns of one part of records."""
    items = records
    if layout.tupled:
        for place in map(int, part.name.split(".")):
            items = list(map(itemgetter(place), items))
    elif part.name:
        items = list(map(itemgetter(part.name), items))
    subject = Subject(False, part.name)
    if part.form in RAGGED:
        return flat_columns(part, items, subject) if part.form == "ragged" else sparse_columns(part, items)
    if part.form == "number":
        return Column(part, subject, 0, np.fromiter(items, part.dtype, len(items))),
    return Column(part, subject, 1, np.array(items, part.dtype) if part.form == "tuple" else items),


def _grid(keys: list[Any], columns: list[Column]) -> GridSpec | None:
    """Return the grid of which the records are blocks, by their keys; None if they are other records.

    Raises
    ------
    RecordError
        If a block has not the shape that its grid says, or the blocks are of several grids.
    """
    if set(map(type, keys)) != {BlockKey}:
        return None
    description: GridSpec = keys[0].grid.description
    if any(column.part.form != "array" or column.ndim != description.ndim for column in columns):
        return None
    for index, key in enumerate(keys):
        if key.grid.description != description:
            raise RecordError(f"record {index} is of {key.grid}, and record 0 of {keys[0].grid}; the blocks of one RDD "
                              "are those of one Grid")
        for column in columns:
            if column.items[index].shape != key.shape:
                raise RecordError(f"{column.subject.of(index)} has shape {column.items[index].shape}, and block "
                                  f"{key.position} has {key.shape} cells; a block keeps the shape that its Grid gives "
                                  "it, or is put under another key")
    return description


def _keys(records: list[Any]) -> list[Any]:
    """Return the keys of records that must all be pairs, as the first one is."""
    if set(map(type, records)) != {tuple} or set(map(len, records)) != {2}:
        index = next(index for index, record in enumerate(records) if not is_pair(record))
        raise mixed(Subject(False), index, records[index], records[0])
    return list(map(itemgetter(0), records))
