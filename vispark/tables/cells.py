"""Cells of a DataFrame on their way through the JVM: each is an Arrow stream of rows, or names where rows are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from pyspark.sql.types import StructType

from vispark.records.partition_schema import FetchedPartition
from vispark.tables import handed, output
from vispark.tables.arrow import pa
from vispark.tables.output import columns_of

#: Bytes of a cell. Spark makes Arrow batches of 10,000 of them, of at most 2 GiB.
_CELL = 1 << 16

#: Bytes of a batch that a DataFrame's operator is given.
_BATCH = 1 << 20


def schemas(partitions: Iterable[FetchedPartition]) -> Iterator[Any]:
    """Yield the Arrow schema of each partition that has records."""
    for content in partitions:
        for batch in output.batches([each.rows(0, 1) for each in columns_of(content)], _CELL):
            yield batch.schema


@dataclass(frozen=True)
class CellTask:
    """Task that makes cells of a partition, for a DataFrame of a schema.

    Attributes
    ----------
    schema : StructType
        The DataFrame's.
    target : pyarrow.Schema
        That of the batches.
    hands : bool
        Whether the cell names the batches, for the task's next process to take.
    """

    schema: StructType
    target: Any
    hands: bool = False

    def __call__(self, partitions: Iterable[FetchedPartition]) -> Iterator[tuple[bytes]]:
        for content in partitions:
            columns = columns_of(content)
            if not columns:
                continue
            found = output.batches(output.fitted(columns, self.schema), _BATCH if self.hands else _CELL)
            batches = (output.cast(batch, self.target) for batch in found)
            if self.hands:
                yield (handed.hand(batches, self.target),)
            else:
                yield from map(self._cell, batches)

    def _cell(self, batch: Any) -> tuple[bytes]:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self.target) as stream:
            stream.write_batch(batch)
        return (sink.getvalue().to_pybytes(),)


def unpacked(given: Iterable[Any]) -> Iterator[Any]:
    """Yield the batches in cells, joined, and those that cells name."""
    for batch in given:
        waiting: list[Any] = []
        for cell in batch.column(0):
            content = cell.as_buffer()
            if handed.is_handed(memoryview(content)):
                yield from handed.take(memoryview(content))
                continue
            waiting += pa.ipc.open_stream(content)
            if sum(each.nbytes for each in waiting) >= _BATCH:
                yield from _joined(waiting)
                waiting = []
        yield from _joined(waiting)


def _joined(found: list[Any]) -> list[Any]:
    return pa.Table.from_batches(found).combine_chunks().to_batches() if found else []
