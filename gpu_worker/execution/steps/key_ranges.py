"""Ranges of keys into which the rows of a partition go that is larger than its device: each is sorted by itself."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np

from gpu_worker.device.memory.partition import Partition, PieceOfPartition
from gpu_worker.execution.keys.radix_sort import SORTING_BYTES
from gpu_worker.execution.keys.row_keys import RowKeys
from gpu_worker.execution.memory.row_chunks import row_bytes
from gpu_worker.execution.passes.run_context import RunContext
from gpu_worker.execution.steps.partitioning import PartitionByKeyHandler
from gpu_worker.execution.steps.wave_exchange import WaveExchange
from gpu_worker.protocol.errors import OutOfMemory
from gpu_worker.protocol.plans import PartitionByKeyStep, SortByKeyStep


class RangesOfKeys(PartitionByKeyHandler):
    """Handler that puts the rows of one partition into ranges of their keys, for a sort of each. A key that has more
    records than a range is to have is a range of its own.

    Parameters
    ----------
    label : str
        The user's call.
    sort : SortByKeyStep
        The sort.
    value : Partition
        The partition.
    parts : int
        How many ranges there are.
    """

    def __init__(self, label: str, sort: SortByKeyStep, value: Partition, parts: int):
        how = "descending" if sort.descending else "ascending"
        super().__init__(PartitionByKeyStep(label, sort.key, parts, how, value.layout, value.layout))
        self._whole = value

    @staticmethod
    def report_bounds(context: RunContext, keys: Sequence[RowKeys], bounds: np.ndarray | None) -> None:
        """Say nothing, as nobody else meets these ranges."""

    def in_passes(self, context: RunContext, values: Sequence[Partition]) -> WaveExchange:
        return _RangeExchange(self, context, values)

    def edges(self, words: np.ndarray) -> np.ndarray:
        bounds = super().edges(words)
        parted = bounds.copy()
        for place in range(len(bounds) - 1):
            is_first = place == 0 or (bounds[place] != bounds[place - 1]).any()
            if is_first and (bounds[place] == bounds[place + 1]).all() and bounds[place].any():
                parted[place] = _word_before(bounds[place])
        return parted

    def of_one_key(self, bounds: np.ndarray) -> set[int]:
        """Return the ranges between ``bounds`` that have one key at most."""
        places = {place for place in range(len(bounds)) if (
            (bounds[place - 1] == _word_before(bounds[place])).all() if place and bounds[place].any()
            else not place and not bounds[place].any())}
        return {self.step.parts - 1 - place for place in places} if self.step.how == "descending" else places

    def check_sizes(self, rows: np.ndarray, of_one_key: Collection[int]) -> None:
        """Check that the device can sort each of the ranges, which have some numbers of rows, but for those of one key.

        Raises
        ------
        OutOfMemory
            If it cannot; no row has been moved.
        """
        most = max([count for place, count in enumerate(rows.tolist()) if place not in of_one_key], default=0)
        memory = self._whole.device.memory()
        nbytes = most * (SORTING_BYTES + 2 * sum(map(row_bytes, self._whole.blocks[0])))
        if nbytes > memory.total - memory.used:
            raise OutOfMemory(f"{most:,} records of a range of keys take {nbytes:,} bytes while they are sorted, of "
                              f"{memory.total - memory.used:,} that {self._whole.device.name} has left: "
                              "spark.vispark.memory of a larger device, or more partitions, find room for them")

    def empty(self, context: RunContext, part: int) -> Partition:
        return context.use(replace(self._whole, count=0, blocks=[], index=part))


class _RangeExchange(WaveExchange):
    """Exchange that checks its ranges before it takes memory for them, and makes pieces of the partition of them."""

    def __init__(self, ranges: RangesOfKeys, context: RunContext, values: Sequence[Partition]):
        super().__init__(ranges, context, values)
        self._ranges, self._whole = ranges, values[0]

    def _reserve(self) -> None:
        assert self._bounds is not None
        self._ranges.check_sizes(self._rows, self._ranges.of_one_key(self._bounds))
        super()._reserve()

    def made(self) -> list[Partition]:
        """Return pieces of the partition that have the rows of the ranges; those without rows are left out."""
        assert self._bounds is not None
        of_one_key = self._ranges.of_one_key(self._bounds)
        behind, parts = 0, []
        for place, part in enumerate(super().made()):
            first, behind = behind, behind + part.count
            if part.count:
                part.index = self._whole.index
                part.piece = PieceOfPartition(first, behind, True, self._whole.count, is_counted=True,
                                              of_one_key=place in of_one_key)
                parts.append(part)
        return parts


def _word_before(words: np.ndarray) -> np.ndarray:
    """Return the words that are next below those of a key, which are not all 0.

    Examples
    --------
    >>> _word_before(np.array([3, 0, 0], np.uint64)).tolist()
    [2, 18446744073709551615, 18446744073709551615]
    """
    before, place = words.copy(), int(words.nonzero()[0][-1])
    before[place] -= np.uint64(1)
    before[place + 1:] = np.iinfo(np.uint64).max
    return before
