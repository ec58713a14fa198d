"""Partial results of an action: records and folds received from workers so far."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from gpu_worker.protocol.messages import FoldByKeyStep, Folded, FoldStep, Ran
from gpu_worker.protocol.payload import Data
from gpu_worker.protocol.plans import KeyBounds
from vispark.data.records import Keyring
from vispark.data.records.partition_schema import PartitionSchema
from vispark.plan.lower.executable import Executable


@dataclass
class PartialResult:
    """Partial result of an action: lists of records, or folds, by partition or by the first of a worker's partitions.

    ``fold`` is the fold that ran, or why none could. Of one that ``is_columnar`` records are a
    :class:`FetchedPartition`, with the arrays as they came. ``bounds`` are those of ranges of keys that workers drew.
    """

    is_columnar: bool = False
    records: dict[int, Any] = field(default_factory=dict)
    folds: dict[int, tuple[Folded, Data, PartitionSchema]] = field(default_factory=dict)
    done: set[int] = field(default_factory=set)
    fold: FoldStep | FoldByKeyStep | str | None = None
    bounds: tuple[KeyBounds, ...] = ()

    def add(self, prepared: Executable, reply: Ran, data: Data, keyring: Keyring) -> None:
        """Add the records or the fold of one worker."""
        contents = prepared.results
        self.done.update(contents)
        self.bounds = reply.bounds or self.bounds
        if reply.folded is not None:
            # Partitions without records do not say what a record looks like.
            first = next((partition for partition, content in contents.items() if content.count), min(contents))
            self.folds[first] = reply.folded, data, contents[first]
        for output in reply.outputs:
            self.records[output.partition] = prepared.columns(output, data, keyring) if self.is_columnar else \
                list(prepared.records(output, data, keyring))
