"""Step that joins partitions of two VRDDs whose rows are sorted by their keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from gpu_worker.device.base import Buffer, Device
from gpu_worker.device.memory.partition import Block, HeldArray, Partition
from gpu_worker.device.memory.spill_files import store, sync
from gpu_worker.execution.keys.join_parts import SortedMatches, host_of, write_pairs_of_row
from gpu_worker.execution.keys.radix_sort import MOST_ROWS, TILE, key_type
from gpu_worker.execution.keys.row_keys import RowKeys, keys_of, table_of
from gpu_worker.execution.memory.row_chunks import row_bytes
from gpu_worker.execution.passes.run_context import RunContext
from gpu_worker.execution.passes.step_handlers import StepHandler, handles
from gpu_worker.execution.plan_checks import require
from gpu_worker.protocol.errors import KeysRefused, OutOfMemory, PlanError
from gpu_worker.protocol.payload import aligned, field_bytes
from gpu_worker.protocol.plans import JoinByKeyStep, Plan
from gpu_worker.system.failpoints import failpoint

#: One part in so many of a device's free memory is what the two sides of a join may take, or a part of it.
_SHARES = 2


@handles(JoinByKeyStep)
class JoinByKeyHandler(StepHandler[JoinByKeyStep]):
    """Handler of a step that joins partitions by their keys. In waves it brings them to their devices itself, in parts
    where these have no room for both sides and their pairs.
    """

    @property
    def vrdds(self) -> tuple[int, ...]:
        return (self.step.slot,)

    @property
    def leaves_host_memory(self) -> bool:
        return True         # the host looks at how many pairs there are

    def verify(self, plan: Plan) -> None:
        require(len(self.step.names) == len(self.step.left) + len(self.step.right),
                f"a join leaves {len(self.step.left) + len(self.step.right)} fields, and names {len(self.step.names)}")

    def run(self, context: RunContext, values: list[Partition]) -> list[Partition]:
        if not context.is_in_waves:
            values = context.each(self, values, context.to_device)
        return context.each(self, values, partial(self._joined, context))

    def _joined(self, context: RunContext, left: Partition) -> Partition:
        right = context.use(context.names.lookup(context.vrdd(self.step.slot), left.index))
        result = Partition(left.index, 0, None, self.step.empty, [], left.device)
        if left.rows and right.rows and left.blocks and right.blocks:
            with context.progress.launching(self.label, (left.index,), left.device):
                matched = None
                if context.is_in_waves and not _fit(left, right):
                    self._free(context)
                if not context.is_in_waves or _fit(left, right):
                    left, right = context.to_device(left), context.to_device(right)
                    matched = self._matched(context, left, right)
                if matched is None:
                    left, right = [self._in_host_memory(context, side) for side in (left, right)]
                    self._free(context)
                    matched = self._matched_in_parts(context, left, right)
                    result.tier = context.place_below
                block, result.count = matched
                if result.count:
                    result.blocks, result.layout = [block], self.step.layout
            context.progress.mark(self.label, (left.index,), left.device, context.streams.main(left.device))
            if right.device is left.device:
                context.after(right, result, own=False)
        return context.after(left, result, own=False)

    # -- on a device --------------------------------------------------------------------------------------------------

    def _matched(self, context: RunContext, left: Partition, right: Partition) -> tuple[Block, int] | None:
        """Return the fields of the pairs of two partitions on devices, and how many these are; in waves None where
        there is no room for them.
        """
        work, other = [RowKeys(context.streams, context.scratch, value, self.step.key) for value in (left, right)]
        dtypes = _dtypes(work.arrays, other.arrays)
        if not left.device.reaches(right.device):
            raise KeysRefused(f"{left.device.name} does not reach the memory of {right.device.name}")
        if right.device is not left.device:
            left.device.wait(other.stream, stream=work.stream, of=right.device)
        rows, tiles = work.rows, -(-work.rows // TILE)
        begins, counts, sums = work.take(4 * rows), work.take(4 * rows), work.take(8 * (tiles + 1))
        if len(work.arrays) > 1:
            work.launch("match_tuples", rows, [work.items(), work.written(table_of(other.arrays)),
                                               np.int32(len(work.arrays)), np.int64(rows), np.int64(other.rows), begins,
                                               counts])
        else:
            work.launch(f"match_counts<{key_type(np.dtype(dtypes[0]))}>", rows, [
                work.arrays[0].buffer, np.int64(rows), other.arrays[0].buffer, np.int64(other.rows), begins, counts])
        work.launch("sum_tiles", tiles * 256, [counts, np.int64(rows), np.int64(TILE), sums])
        work.launch("scan_sums", 1, [sums, np.int64(tiles)])
        totals = np.zeros(tiles + 1, np.uint64)
        work.copy_out(totals, sums)
        work.device.synchronize(stream=work.stream)
        pairs = int(totals[-1])
        if context.is_in_waves and not self._has_memory_for_pairs(work.device, left, right, pairs):
            work.close()
            return None
        self._check_memory(work, left, right, pairs)
        block: Block = ()
        if pairs:
            places = work.take(4 * pairs), work.take(4 * pairs)
            work.launch("write_matches", tiles * 256, [begins, counts, np.int64(rows), np.int64(TILE), sums, *places])
            first = len(self.step.left)
            block = (*self._taken(work, left, self.step.left, self.step.names[:first], places[0], pairs),
                     *self._taken(work, right, self.step.right, self.step.names[first:], places[1], pairs))
        work.close()
        return block, pairs

    @staticmethod
    def _has_memory_for_pairs(device: Device, left: Partition, right: Partition, pairs: int) -> bool:
        """Return whether a device has room for the pairs of two partitions that are there."""
        memory = device.memory()
        return pairs <= MOST_ROWS and (not memory.total or memory.used + _pair_bytes(left, right) * pairs
                                       <= memory.total)

    def _check_memory(self, work: RowKeys, left: Partition, right: Partition, pairs: int) -> None:
        """Raise OutOfMemory, with the number of pairs, where the device has no memory for them; none has been made."""
        memory = work.device.memory()
        if not self._has_memory_for_pairs(work.device, left, right, pairs):
            raise OutOfMemory(
                f"{self.label} of partition {left.index}: {left.rows:,} and {right.rows:,} records have {pairs:,} "
                f"pairs of one key, about {pairs * _pair_bytes(left, right):,} bytes, and {work.device.name} has "
                f"{max(memory.total - memory.used, 0):,} free: spark.vispark.memory of a larger device, or keys with "
                "fewer records each, find room")

    def _taken(self, work: RowKeys, value: Partition, names: Sequence[str], called: Sequence[str], places: Buffer,
               pairs: int) -> list[HeldArray]:
        """Return fields of the rows at some places, under other names."""
        arrays = []
        for array, after in zip(_fields(value, names), called, strict=True):
            held = HeldArray(replace(array.field, name=after, shape=(pairs, *array.field.shape[1:])))
            held.buffer = target = work.scratch.allocate(held.nbytes, work.device, work.stream)
            work.take_places(array, target, pairs, places)
            arrays.append(held)
        return arrays

    # -- in parts -----------------------------------------------------------------------------------------------------

    @staticmethod
    def _free(context: RunContext) -> None:
        """Free what nobody uses any more on devices, once their work is done."""
        context.streams.synchronize()
        context.scratch.close()

    @staticmethod
    def _in_host_memory(context: RunContext, value: Partition) -> Partition:
        """Return a partition below its device alone, once the device's own stream is waited for."""
        return context.after(value, context.copied_out(value), own=False)

    def _matched_in_parts(self, context: RunContext, left: Partition, right: Partition) -> tuple[Block, int]:
        """Return the fields of the pairs of two partitions in host memory, and how many these are: part by part, each
        made by the device, or on the host where one row of the left side has more pairs than the device has room for.

        Raises
        ------
        OutOfMemory
            If nothing has room for the pairs; none has been made.
        """
        keys = [keys_of(side, self.step.key) for side in (left, right)]
        _dtypes(*keys)
        matches = SortedMatches(*[[host_of(array).view(array.field.dtype) for array in side] for side in keys])
        if not matches.pairs:
            return (), 0
        block = self._memory_below(context, left, right, matches.pairs)
        memory = left.device.memory()
        matching = 2 * 4 + 1
        for part in matches.parts((memory.total - memory.used) // _SHARES, _row_bytes(left) + matching,
                                  _row_bytes(right), _pair_bytes(left, right)):
            targets = [host_of(array)[part.first * row_bytes(array):(part.first + part.pairs) * row_bytes(array)]
                       for array in block]
            if part.is_of_one_row:
                write_pairs_of_row(part, _fields(left, self.step.left), _fields(right, self.step.right), targets)
            else:
                self._write_part(context, left.cut(*part.left), replace(right, device=left.device).cut(*part.right),
                                 targets)
            failpoint("join-part")
        sync(array.host for array in block)
        return block, matches.pairs

    def _memory_below(self, context: RunContext, left: Partition, right: Partition, pairs: int) -> Block:
        """Return the fields of all pairs, with memory for them below devices."""
        fields = [replace(array.field, name=name, shape=(pairs, *array.field.shape[1:])) for array, name in zip(
            [*_fields(left, self.step.left), *_fields(right, self.step.right)], self.step.names, strict=True)]
        ends = np.cumsum([aligned(field_bytes(field)) for field in fields]).tolist()
        try:
            if pairs > MOST_ROWS:
                raise OutOfMemory(f"{MOST_ROWS:,} are the most that are numbered in one partition")
            memory = context.names.tiers.reserve(ends[-1], place=context.place_below)
        except OutOfMemory as error:
            raise OutOfMemory(
                f"{self.label} of partition {left.index}: {left.rows:,} and {right.rows:,} records have {pairs:,} "
                f"pairs of one key, {ends[-1]:,} bytes: {error.message}; persist(\"GPU_HOST_AND_DISK\") has files for "
                "pairs of sides that, exchanged by keys, do not fit the device either, and Spark joins what recv() of "
                "both sides gives, and holds no pairs") from error
        return tuple([HeldArray(field, host=memory[end - aligned(field_bytes(field)):][:field_bytes(field)])
                      for field, end in zip(fields, ends, strict=True)])

    def _write_part(self, context: RunContext, left: Partition, right: Partition,
                    targets: Sequence[np.ndarray]) -> None:
        """Have a device make the pairs of parts of two partitions, and store them in memory."""
        left, right = [context.to_device(context.use(side)) for side in (left, right)]
        matched = self._matched(context, left, right)
        if matched is None:
            raise OutOfMemory(f"{self.label} of partition {left.index} finds no room for a part of its pairs")
        device, stream = left.device, context.streams.main(left.device)
        for array, target in zip(matched[0], targets, strict=True):
            part = np.empty(array.nbytes, np.uint8)
            device.copy_out(part, array.on_device, stream=stream)
            device.synchronize(stream=stream)
            store(target, part)
            array.close()
        for side in (left, right):
            del context.values.used[id(side)]
            side.close()
        self._free(context)


def _fit(left: Partition, right: Partition) -> bool:
    """Return whether the left side's device has room for what is missing there of both sides, and to match them."""
    memory = left.device.memory()
    missing = sum(array.nbytes for side in (left, right) for array in side.arrays if array.buffer is None)
    return not memory.total or _SHARES * (missing + 2 * 4 * left.rows) <= memory.total - memory.used


def _fields(value: Partition, names: Sequence[str]) -> list[HeldArray]:
    """Return fields of a partition by their names. Raises PlanError if there is none."""
    fields = {array.field.name: array for array in value.blocks[0]}
    for name in names:
        if name not in fields:
            raise PlanError(f"there is no field {name!r} to join")
    return [fields[name] for name in names]


def _dtypes(left: Sequence[HeldArray], right: Sequence[HeldArray]) -> list[str]:
    """Return the dtypes of the keys of both sides. Raises PlanError if they differ."""
    dtypes = [[array.field.dtype for array in arrays] for arrays in (left, right)]
    if dtypes[0] != dtypes[1]:
        raise PlanError(f"keys of {', '.join(dtypes[0])} and of {', '.join(dtypes[1])} are not joined")
    return dtypes[0]


def _row_bytes(value: Partition) -> int:
    return sum(map(row_bytes, value.blocks[0]))


def _pair_bytes(left: Partition, right: Partition) -> int:
    """Return the bytes that a pair takes on a device: its fields, and the numbers of its rows."""
    return 2 * 4 + _row_bytes(left) + _row_bytes(right)
