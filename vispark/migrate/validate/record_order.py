"""Records of any number in the order of a key: sorted on disk where they are many, so that few are held at once."""

from __future__ import annotations

import heapq
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from typing import Any, BinaryIO

import msgpack

from vispark.migrate.capture.packed_values import encoded, value_of
from vispark.migrate.capture.stored_results import StoredResult

#: Records, and their bytes, that are sorted in memory.
RUN, RUN_BYTES = 1 << 15, 1 << 22
#: Bytes of a run that are read at once.
_READ = 1 << 14

#: Key of a record, its number, and the record.
KeyedRecord = tuple[Any, int, Any]


def records_of(result: list[Any] | StoredResult) -> Iterable[Any]:
    """Return the records of a list, or those of a stored one, of which a block at a time is held."""
    return result.records() if isinstance(result, StoredResult) else result


def in_order(result: list[Any] | StoredResult, key: Callable[[Any], Any]) -> Iterator[KeyedRecord]:
    """Yield records in the order of a key, equal ones in their own.

    Parameters
    ----------
    result : list or StoredResult
        The records.
    key : callable
        Gives of a record what can be compared and what msgpack has: bytes, floats, lists.

    Examples
    --------
    >>> list(in_order(["b", "a"], str))
    [('a', 1, 'a'), ('b', 0, 'b')]
    """
    keyed = ((key(record), number, record) for number, record in enumerate(records_of(result)))
    if not isinstance(result, StoredResult) or result.size <= RUN_BYTES:
        yield from sorted(keyed, key=_place)
        return
    with tempfile.TemporaryFile(prefix="vispark-sort-") as file:
        runs = [_read(file.fileno(), low, high, result) for low, high in _runs(keyed, file)]
        yield from heapq.merge(*runs, key=_place)


def _place(record: KeyedRecord) -> tuple[Any, int]:
    return record[0], record[1]


def _runs(keyed: Iterator[KeyedRecord], file: BinaryIO) -> list[tuple[int, int]]:
    """Write records to a file in sorted runs, and return where each begins and ends."""
    places, run, size = [], [], 0
    for key, number, record in keyed:
        data = encoded(record)
        run.append((key, number, data))
        size += len(data)
        if len(run) >= RUN or size >= RUN_BYTES:
            places.append(_written(run, file))
            run, size = [], 0
    return [*places, _written(run, file)]


def _written(run: list[tuple[Any, int, bytes]], file: BinaryIO) -> tuple[int, int]:
    begin = file.tell()
    for placed in sorted(run, key=_place):
        file.write(msgpack.packb(placed, use_bin_type=True))
    file.flush()
    return begin, file.tell()


def _read(descriptor: int, begin: int, end: int, result: StoredResult) -> Iterator[KeyedRecord]:
    unpacker = msgpack.Unpacker(raw=False, strict_map_key=False, max_buffer_size=0)
    while begin < end:
        data = os.pread(descriptor, min(_READ, end - begin), begin)
        begin += len(data)
        unpacker.feed(data)
        for key, number, record in unpacker:
            form = msgpack.unpackb(record, raw=False, strict_map_key=False)
            yield key, number, value_of(form, result.path)
