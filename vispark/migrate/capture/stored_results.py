"""Results of a run in a file, written and read by blocks: nobody holds a copy of a result beside the program's own.

A frame is the lengths of its head and of its body, the head as msgpack has it, and the body. Blocks of records and
large arrays are frames of their own, before that of their result, so that a result is there whole or not at all.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import msgpack
import numpy as np

from vispark.migrate.capture.clocks import pass_clock
from vispark.migrate.capture.packed_values import array_blocks, decoded, encoded, value_of

#: Bytes of a block of records.
BLOCK_BYTES = 1 << 20
#: Entries from which on a dict is kept as its pairs.
MANY = 1 << 12
_LENGTHS = struct.Struct("<IQ")
#: Kinds of frames that are parts of a result.
_PARTS = ("block", "array")
_UNPACKED: dict[str, Any] = {"raw": False, "strict_map_key": False}


@dataclass(frozen=True)
class StoredResult:
    """Result in a file.

    Parameters
    ----------
    path : Path
        The file.
    form : str
        "value", or "list" or "dict" for records that come a block at a time; those of a dict are pairs.
    parts : tuple of (int, int)
        Offset and length of each block, or of the value.
    """

    path: Path
    form: str
    parts: tuple[tuple[int, int], ...]

    @property
    def size(self) -> int:
        """Bytes of its blocks, without the arrays beside them."""
        return sum(length for _, length in self.parts)

    def value(self) -> Any:
        """Return the result; large arrays stay in the file, as :class:`.packed_values.StoredArray`."""
        if self.form == "value":
            return decoded(next(self._blocks()), self.path)
        return dict(self.records()) if self.form == "dict" else list(self.records())

    def records(self) -> Iterator[Any]:
        """Yield the records of a list, or the pairs of a dict."""
        for block in self._blocks():
            unpacker = msgpack.Unpacker(**_UNPACKED, max_buffer_size=len(block))
            unpacker.feed(block)
            for form in unpacker:
                yield value_of(form, self.path)

    def _blocks(self) -> Iterator[bytes]:
        with self.path.open("rb") as file:
            for offset, length in self.parts:
                file.seek(offset)
                yield file.read(length)


class ResultFile:
    """File of results in the order in which they came, each written at once."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._clock = pass_clock()
        self._start = self._clock()

    def write(self, kind: str, where: list[Any], value: Any) -> None:
        """Write a result: its kind, the statement that took it, the seconds since the start, and the value."""
        head = [kind, where, self._clock() - self._start]
        if isinstance(value, list) or (isinstance(value, dict) and len(value) >= MANY):
            blocks, rest = self._records(value)
            self._frame([*head, "list" if isinstance(value, list) else "dict", blocks], rest)
        else:
            self._frame([*head, "value", []], encoded(value, self._array))
        self._file.flush()

    def _records(self, value: list[Any] | dict[Any, Any]) -> tuple[list[tuple[int, int]], bytes]:
        """Write the full blocks of records, and return their places and the last one, which is none of these."""
        blocks: list[tuple[int, int]] = []
        block = bytearray()
        for record in value.items() if isinstance(value, dict) else value:
            block += encoded(record, self._array)
            if len(block) >= BLOCK_BYTES:
                blocks.append((self._frame(["block"], block), len(block)))
                block = bytearray()
        return blocks, bytes(block)

    def _array(self, array: np.ndarray) -> int:
        offset = self._head(["array"], array.nbytes)
        for block in array_blocks(array):
            self._file.write(np.ascontiguousarray(block).tobytes())
        return offset

    def _frame(self, head: list[Any], body: bytes | bytearray) -> int:
        offset = self._head(head, len(body))
        self._file.write(body)
        return offset

    def _head(self, head: list[Any], length: int) -> int:
        """Write the head of a frame, and return the offset of its body."""
        data = msgpack.packb(head, use_bin_type=True)
        self._file.write(_LENGTHS.pack(len(data), length))
        self._file.write(data)
        return self._file.tell()


@dataclass(frozen=True)
class ResultFrame:
    """Frame of a file of results: its kind, statement, seconds since the start, and the result."""

    kind: str
    where: list[Any]
    seconds: float
    result: StoredResult


def read_results(path: Path) -> Iterator[ResultFrame]:
    """Yield the results of a file, whose values are not read; the last one is left out where it is cut."""
    size = path.stat().st_size
    with path.open("rb") as file:
        while len(lengths := file.read(_LENGTHS.size)) == _LENGTHS.size:
            of_head, of_body = _LENGTHS.unpack(lengths)
            head, offset = file.read(of_head), file.tell()
            if offset + of_body > size:
                return
            kind, *rest = msgpack.unpackb(head, **_UNPACKED)
            if kind not in _PARTS:
                where, seconds, form, blocks = rest
                parts = [(first, length) for first, length in blocks]
                yield ResultFrame(kind, where, seconds, StoredResult(path, form, (*parts, (offset, of_body))))
            file.seek(offset + of_body)


@contextmanager
def opened_results(path: Path) -> Iterator[ResultFile]:
    """Open a file of results that only its user reads."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as output:
        yield ResultFile(output)
