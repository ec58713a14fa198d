"""Stripes of ORC files: their rows and their bytes, which Arrow reads and does not tell.

The footer at a file's end is a message of Protocol Buffers; `ORC's specification
<https://orc.apache.org/specification/ORCv1/>`_ has its fields.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from vispark.data.tables.arrow import pa

#: Number of the footer's field of stripes, and of a stripe's fields.
_STRIPES = 3
_OFFSET, _INDEX, _DATA, _FOOTER, _ROWS = 1, 2, 3, 4, 5

#: Bytes before each chunk of a compressed footer: its length, and whether it is as it was.
_HEAD = 3


@dataclass(frozen=True)
class Stripe:
    """Stripe of a file: its rows, and where it lies."""

    rows: int
    start: int
    stop: int


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
    source.seek(end - file.file_footer_length)
    footer = _decompressed(source.read(file.file_footer_length), file.compression)
    if footer is None:
        return None
    found = []
    for number, value in _fields(footer):
        if number == _STRIPES and isinstance(value, bytes):
            fields = dict(_fields(value))
            start = fields.get(_OFFSET, 0)
            found.append(Stripe(fields.get(_ROWS, 0), start,
                                start + sum(fields.get(each, 0) for each in (_INDEX, _DATA, _FOOTER))))
    return found if len(found) == file.nstripes and sum(each.rows for each in found) == file.nrows else None


def _decompressed(data: bytes, compression: str) -> bytes | None:
    """Return the bytes of a footer; None where nothing here decompresses it."""
    if compression == "UNCOMPRESSED":
        return data
    if compression not in _INFLATED:
        return None
    found = []
    while data:
        head = int.from_bytes(data[:_HEAD], "little")
        chunk, data = data[_HEAD:_HEAD + (head >> 1)], data[_HEAD + (head >> 1):]
        found.append(chunk if head & 1 else _INFLATED[compression](chunk))
    return b"".join(found)


def _of_zlib(chunk: bytes) -> bytes:
    return zlib.decompress(chunk, -zlib.MAX_WBITS)


def _of_snappy(chunk: bytes) -> bytes:
    length, _ = _varint(chunk, 0)
    content: bytes = pa.decompress(chunk, length, "snappy", asbytes=True)
    return content


def _of_zstd(chunk: bytes) -> bytes:
    content: bytes = pa.CompressedInputStream(pa.BufferReader(chunk), "zstd").read()
    return content


#: What decompresses a chunk. A chunk of LZ4 says nowhere how long it is.
_INFLATED: dict[str, Callable[[bytes], bytes]] = {"ZLIB": _of_zlib, "SNAPPY": _of_snappy, "ZSTD": _of_zstd}


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
            place += 8 if kind == 1 else 4


def _varint(message: bytes, place: int) -> tuple[int, int]:
    """Return the integer at a place, seven bits a byte, and the place behind it."""
    value = shift = 0
    while True:
        byte = message[place]
        value |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            return value, place
