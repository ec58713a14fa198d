"""Cells of a DataFrame that each hold some rows as an Arrow stream, on their way through the JVM."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from pyspark.sql.types import StructType

from vispark.records.partition_schema import FetchedPartition
from vispark.tables import output
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
    """Task that makes cells of a partition, for a DataFrame of a schema; ``target`` is that of the Arrow batches."""

    schema: StructType
    target: Any

    def __call__(self, partitions: Iterable[FetchedPartition]) -> Iterator[tuple[bytes]]:
        for content in partitions:
            columns = columns_of(content)
            for batch in output.batches(output.fitted(columns, self.schema) if columns else [], _CELL):
                sink = pa.BufferOutputStream()
                with pa.ipc.new_stream(sink, self.target) as stream:
                    stream.write_batch(output.cast(batch, self.target))
                yield (sink.getvalue().to_pybytes(),)


def unpacked(given: Iterable[Any]) -> Iterator[Any]:
    """Yield the batches in cells, joined."""
    for batch in given:
        waiting: list[Any] = []
        for cell in batch.column(0):
            waiting += pa.ipc.open_stream(cell.as_buffer())
            if sum(each.nbytes for each in waiting) >= _BATCH:
                yield from _joined(waiting)
                waiting = []
        yield from _joined(waiting)


def _joined(found: list[Any]) -> list[Any]:
    return pa.Table.from_batches(found).combine_chunks().to_batches() if found else []
