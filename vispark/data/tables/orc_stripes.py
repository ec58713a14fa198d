"""Stripes of ORC files: their rows, bytes and statistics, which Arrow reads and does not tell.

The footer at a file's end, and the statistics before it, are messages of Protocol Buffers; `ORC's specification
<https://orc.apache.org/specification/ORCv1/>`_ has its fields.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from vispark.data.tables.arrow import pa

#: Number of the footer's field of stripes, and of a stripe's fields.
_STRIPES = 3
_OFFSET, _INDEX, _DATA, _FOOTER, _ROWS = 1, 2, 3, 4, 5

#: Numbers of the footer's field of types, of which the first is the file's, and of a type's field of those in it.
_TYPES, _INSIDE = 4, 2

#: Numbers of the fields of the postscript, of what is before the footer, and in that of a stripe's columns: the
#: compression, and the length of what is before the footer; stripes; their columns; statistics of integers and floats,
#: and whether there are nulls; the least number, the greatest, the sum.
_COMPRESSION, _METADATA_LENGTH = 2, 5
_OF_STRIPES = _OF_COLUMNS = 1
_INTEGERS, _FLOATS, _HAS_NULLS = 2, 3, 10
_LEAST, _GREATEST, _SUM = 1, 2, 3

#: Bytes before each chunk of a compressed footer: its length, and whether it is as it was.
_HEAD = 3


@dataclass(frozen=True)
class ColumnRange:
    """Range of a column's numbers, which has no NaN; whether it has nulls beside them."""

    least: float
    greatest: float
    has_nulls: bool


@dataclass(frozen=True)
class Stripe:
    """Stripe of a file: its rows, where it lies, and the ranges of the file's columns, None where one is not known."""

    rows: int
    start: int
    stop: int
    ranges: tuple[ColumnRange | None, ...] = ()


def stripes(source: Any, file: Any) -> list[Stripe] | None:
    """Return the stripes of a file, in order; None if its footer is compressed in a way that is not known here.

    Parameters
    ----------
    source : pyarrow.NativeFile
        The file.
    file : pyarrow.orc.ORCFile
        The same, opened.
    """
    end = file.file_length - 1 - file.file_postscript_length
    source.seek(end)
    postscript = dict(_fields(source.read(file.file_postscript_length)))
    before, compression = postscript.get(_METADATA_LENGTH, 0), postscript.get(_COMPRESSION, 0)
    source.seek(end - file.file_footer_length - before)
    metadata = _decompressed(source.read(before), compression)
    footer = _decompressed(source.read(file.file_footer_length), compression)
    if footer is None or metadata is None:
        return None
    listed: list[Stripe] = []
    ranges = _ranges(footer, metadata)
    for number, value in _fields(footer):
        if number == _STRIPES and isinstance(value, bytes):
            fields = dict(_fields(value))
            start = fields.get(_OFFSET, 0)
            listed.append(Stripe(fields.get(_ROWS, 0), start,
                                 start + sum(fields.get(each, 0) for each in (_INDEX, _DATA, _FOOTER)),
                                 ranges[len(listed)] if len(listed) < len(ranges) else ()))
    return listed if len(listed) == file.nstripes and sum(each.rows for each in listed) == file.nrows else None


def _ranges(footer: bytes, metadata: bytes) -> list[tuple[ColumnRange | None, ...]]:
    """Return the ranges of each stripe's columns, in the order of the file's columns."""
    root = next((value for number, value in _fields(footer) if number == _TYPES), b"")
    numbers = [each for number, value in _fields(root) if number == _INSIDE
               for each in (_varints(value) if isinstance(value, bytes) else [value])]
    by_stripe = []
    for number, stripe in _fields(metadata):
        if number == _OF_STRIPES:
            columns = [value for number, value in _fields(stripe) if number == _OF_COLUMNS]
            by_stripe.append(tuple(_range(columns[each]) if each < len(columns) else None for each in numbers))
    return by_stripe


def _range(statistics: bytes) -> ColumnRange | None:
    """Return the range of a column; None if it has no numbers, or NaN, of which a sum alone tells."""
    fields = dict(_fields(statistics))
    if _INTEGERS in fields:
        bounds = {number: (value >> 1) ^ -(value & 1) for number, value in _fields(fields[_INTEGERS])}
    elif _FLOATS in fields:
        bounds = {number: struct.unpack("<d", value)[0] for number, value in _fields(fields[_FLOATS])}
        if math.isnan(bounds.get(_SUM, math.nan)):
            return None
    else:
        return None
    if _LEAST not in bounds or _GREATEST not in bounds:
        return None
    return ColumnRange(bounds[_LEAST], bounds[_GREATEST], bool(fields.get(_HAS_NULLS, True)))


def _decompressed(data: bytes, compression: int) -> bytes | None:
    """Return the bytes of a footer; None where nothing here decompresses it, as of LZO."""
    if not compression:
        return data
    if compression not in _INFLATED:
        return None
    chunks = []
    while data:
        head = int.from_bytes(data[:_HEAD], "little")
        chunk, data = data[_HEAD:_HEAD + (head >> 1)], data[_HEAD + (head >> 1):]
        chunks.append(chunk if head & 1 else _INFLATED[compression](chunk))
    return b"".join(chunks)


def _of_zlib(chunk: bytes) -> bytes:
    return zlib.decompress(chunk, -zlib.MAX_WBITS)


def _of_snappy(chunk: bytes) -> bytes:
    length, _ = _varint(chunk, 0)
    content: bytes = pa.decompress(chunk, length, "snappy", asbytes=True)
    return content


def _of_zstd(chunk: bytes) -> bytes:
    content: bytes = pa.CompressedInputStream(pa.BufferReader(chunk), "zstd").read()
    return content


def _of_lz4(chunk: bytes) -> bytes:
    """Return the content of a block of LZ4, which says nowhere how long that is: the lengths of its parts do."""
    length = place = 0
    while place < len(chunk):
        token, place = chunk[place], place + 1
        literals, place = _lz4_length(chunk, token >> 4, place)
        length, place = length + literals, place + literals
        if place < len(chunk):      # the last part has literals alone; the others copy 4 bytes or more from before
            copied, place = _lz4_length(chunk, token & 15, place + 2)
            length += copied + 4
    content: bytes = pa.decompress(chunk, length, "lz4_raw", asbytes=True)
    return content


def _lz4_length(chunk: bytes, length: int, place: int) -> tuple[int, int]:
    """Return a length of LZ4 that begins with four bits, of which 15 say that bytes are to be added, and the place
    behind it.
    """
    added = 255 if length == 15 else 0
    while added == 255:
        added, place = chunk[place], place + 1
        length += added
    return length, place


#: What decompresses a chunk, by the number of the compression: zlib, Snappy, LZ4, Zstandard. Arrow reads LZO, 3, too,
#: but does not name it.
_INFLATED: dict[int, Callable[[bytes], bytes]] = {1: _of_zlib, 2: _of_snappy, 4: _of_lz4, 5: _of_zstd}


def _fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """Yield the fields of a message by number: integers, and bytes of what is longer."""
    place = 0
    while place < len(message):
        tag, place = _varint(message, place)
        number, kind = tag >> 3, tag & 7
        if not number:
            return
        if kind == 0:
            value, place = _varint(message, place)
            yield number, value
        elif kind == 2:
            length, place = _varint(message, place)
            yield number, message[place:place + length]
            place += length
        else:
            size = 8 if kind == 1 else 4
            yield number, message[place:place + size]
            place += size


def _varints(message: bytes) -> Iterator[int]:
    place = 0
    while place < len(message):
        value, place = _varint(message, place)
        yield value


def _varint(message: bytes, place: int) -> tuple[int, int]:
    """Return the integer at a place, seven bits a byte, and the place behind it."""
    value = shift = 0
    while True:
        byte = message[place]
        value |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            return value, place
