"""Step that joins partitions of two VRDDs whose rows are sorted by their keys."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from gpu_worker.device.base import Buffer
from gpu_worker.device.memory.partition import HeldArray, Partition
from gpu_worker.execution.plan_checks import require
from gpu_worker.execution.radix_sort import MOST_ROWS, TILE, key_type
from gpu_worker.execution.row_chunks import row_bytes
from gpu_worker.execution.row_keys import RowKeys, table_of
from gpu_worker.execution.run_context import RunContext
from gpu_worker.execution.step_handlers import Cuts, StepHandler, every_row, handles
from gpu_worker.protocol.errors import KeysRefused, OutOfMemory, PlanError
from gpu_worker.protocol.messages import Field, Launch
from gpu_worker.protocol.plans import JoinByKeyStep, Plan


@handles(JoinByKeyStep)
class JoinByKeyHandler(StepHandler[JoinByKeyStep]):
    """Handler of a step that joins partitions by their keys."""

    on_device = True

    @property
    def vrdds(self) -> tuple[int, ...]:
        return (self.step.slot,)

    @property
    def leaves_host_memory(self) -> bool:
        return True         # the host looks at how many pairs there are

    def verify(self, plan: Plan) -> None:
        require(len(self.step.names) == len(self.step.left) + len(self.step.right),
                f"a join leaves {len(self.step.left) + len(self.step.right)} fields, and names {len(self.step.names)}")

    def cuts(self, fields: Sequence[Field], launch: Launch | None, works: Callable[[], np.ndarray]) -> Cuts:
        return every_row(fields)

    def run(self, context: RunContext, values: list[Partition]) -> list[Partition]:
        values = context.each(self, values, context.to_device)
        return context.each(self, values, partial(self._joined, context))

    def _joined(self, context: RunContext, left: Partition) -> Partition:
        right = context.use(context.names.lookup(context.vrdd(self.step.slot), left.index))
        piece = None if left.piece is None else replace(left.piece, is_counted=True)
        result = Partition(left.index, 0, None, self.step.empty, [], left.device, piece=piece)
        if piece is not None:
            right = context.use(self._met(left, right))
        if left.rows and right.rows and left.blocks and right.blocks:
            right = context.to_device(right)
            with context.progress.launching(self.label, (left.index,), left.device):
                self._match(context, left, right, result)
            context.progress.mark(self.label, (left.index,), left.device, context.streams.main(left.device))
        return context.after(left, result, own=False)

    def _met(self, left: Partition, right: Partition) -> Partition:
        """Return the rows of the right side whose keys, or their first items, are in the range of those of a piece of
        the left one, where both are in host memory; else all of them.
        """
        names = self.step.key, f"{self.step.key}.0"
        keys = [next((array for array in side.arrays if array.field.name in names), None) for side in (left, right)]
        left_keys, right_keys = [None if array is None or array.host is None else array.host.view(array.field.dtype)
                                 for array in keys]
        if left_keys is None or right_keys is None or not len(left_keys):
            return right.share()
        return right.cut(int(np.searchsorted(right_keys, left_keys[0], "left")),
                         int(np.searchsorted(right_keys, left_keys[-1], "right")))

    def _match(self, context: RunContext, left: Partition, right: Partition, result: Partition) -> None:
        work, other = RowKeys(context, left, self.step.key), RowKeys(context, right, self.step.key)
        dtypes = [[array.field.dtype for array in each.arrays] for each in (work, other)]
        if dtypes[0] != dtypes[1]:
            raise PlanError(f"keys of {', '.join(dtypes[0])} and of {', '.join(dtypes[1])} are not joined")
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
            work.launch(f"match_counts<{key_type(np.dtype(dtypes[0][0]))}>", rows, [
                work.arrays[0].buffer, np.int64(rows), other.arrays[0].buffer, np.int64(other.rows), begins, counts])
        work.launch("sum_tiles", tiles * 256, [counts, np.int64(rows), np.int64(TILE), sums])
        work.launch("scan_sums", 1, [sums, np.int64(tiles)])
        totals = np.zeros(tiles + 1, np.uint64)
        work.copy_out(totals, sums)
        work.device.synchronize(stream=work.stream)
        pairs = int(totals[-1])
        self._check_memory(work, left, right, pairs)
        if pairs:
            places = work.take(4 * pairs), work.take(4 * pairs)
            work.launch("write_matches", tiles * 256, [begins, counts, np.int64(rows), np.int64(TILE), sums, *places])
            first = len(self.step.left)
            block = [*self._taken(work, left, self.step.left, self.step.names[:first], places[0], pairs),
                     *self._taken(work, right, self.step.right, self.step.names[first:], places[1], pairs)]
            result.blocks, result.count, result.layout = [tuple(block)], pairs, self.step.layout
        work.close()

    def _check_memory(self, work: RowKeys, left: Partition, right: Partition, pairs: int) -> None:
        """Raise OutOfMemory, with the number of pairs, where the device has no memory for them; none has been made."""
        nbytes = pairs * (8 + sum(row_bytes(array) for part in (left, right) for array in part.blocks[0]))
        memory = work.device.memory()
        if pairs > MOST_ROWS or (memory.total and memory.used + nbytes > memory.total):
            raise OutOfMemory(
                f"{self.label} of partition {left.index}: {left.rows:,} and {right.rows:,} records have {pairs:,} "
                f"pairs of one key, about {nbytes:,} bytes, and {work.device.name} has "
                f"{max(memory.total - memory.used, 0):,} free: spark.vispark.memory of a larger device, or keys with "
                "fewer records each, find room")

    def _taken(self, work: RowKeys, value: Partition, names: Sequence[str], called: Sequence[str], places: Buffer,
               pairs: int) -> list[HeldArray]:
        """Return fields of the rows at some places, under other names."""
        fields, arrays = {array.field.name: array for array in value.blocks[0]}, []
        for name, after in zip(names, called, strict=True):
            if name not in fields:
                raise PlanError(f"there is no field {name!r} to join")
            array = fields[name]
            held = HeldArray(replace(array.field, name=after, shape=(pairs, *array.field.shape[1:])))
            held.buffer = target = work.scratch.allocate(held.nbytes, work.device, work.stream)
            work.take_places(array, target, pairs, places)
            arrays.append(held)
        return arrays
