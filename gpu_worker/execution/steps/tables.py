"""Step that keeps what a fold gives, as a table that later plans take as an argument."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gpu_worker.device.base import Device, Stream
from gpu_worker.device.memory.partition import Block, HeldArray, Partition
from gpu_worker.exchange.base import JoinedWorld
from gpu_worker.execution.folds import key_totals, partial_folds
from gpu_worker.execution.folds.node_tables import joined_by_all
from gpu_worker.execution.folds.partial_folds import FoldResult, PartitionFold
from gpu_worker.execution.keys.radix_sort import RowKernels
from gpu_worker.execution.memory.held_tables import KEYS, TABLE, VALUES
from gpu_worker.execution.passes.run_context import RunContext
from gpu_worker.execution.passes.step_handlers import KeepingHandler, handles
from gpu_worker.execution.plan_checks import dtype_of, require
from gpu_worker.protocol.errors import KeysRefused, PlanError
from gpu_worker.protocol.messages import Field, KeepStep, Plan
from gpu_worker.protocol.payload import field_bytes
from gpu_worker.protocol.plans import KeepTableStep
from gpu_worker.system.failpoints import failpoint

#: A Python int that is folded is exact while sizes stay below this.
_SAFE = 2.0 ** 62


@handles(KeepTableStep)
class KeepTableHandler(KeepingHandler[KeepTableStep]):
    """Handler of a step that keeps the result of a fold."""

    def verify(self, plan: Plan) -> None:
        require(dtype_of(self.step.dtype).kind in "biu", "the keys of a table are integers")

    def run(self, context: RunContext, values: list[Partition]) -> list[Partition]:
        return values

    def keep_fold(self, context: RunContext) -> bool:
        """Set the table aside, to be bound.

        Of one device's fold the rows stay on it; what several gave by key is joined on one of them, and what waves of
        partitions gave, or folds without keys, on the host. Of several nodes each one gets the whole table.

        Raises
        ------
        KeysRefused
            If the fold may not be what Python's is: an integer that overflows, or floats that are compared and NaN.
        """
        partials = context.results.partials
        device = context.streams.place(context.vrdd(self.step.slot), TABLE, context.plan.devices)
        table = Partition(TABLE, 0, None, self.step.empty, [], device)
        if context.world is not None:
            block = self._of_nodes(context, context.world, device)
        elif partial_folds.needs_no_join(partials) and partials[0].folder.device is device and not partials[0].is_out:
            block = self._table_fields(context, _checked(context, partials))
        elif partials and all(each.counts is not None and not each.is_out and all(part.carried for part in each.parts)
                              for each in partials):
            _checked(context, partials)
            stream = context.streams.main(device)
            partials.append(key_totals.joined_devices(partials, device, stream, context.scratch))
            block = self._table_fields(context, partials[-1])
        else:
            block = self._joined(context, device)
        if block:
            table.count, table.layout, table.blocks = block[0].field.shape[0], self.step.layout, [block]
        context.results.pending.append((KeepStep(self.step.slot, self.step.name, "device"), table))
        return True

    def _table_fields(self, context: RunContext, partial: PartitionFold) -> Block:
        """Return the table's fields, of a fold that lies complete on its device, and was checked."""
        counts, folder = partial.counts, partial.folder
        keys = np.zeros(1, np.int64) if counts is None else counts[:, 0].nonzero()[0]
        kernels = RowKernels(folder.device, folder.stream, context.scratch)
        places = None if counts is None or len(keys) == len(counts) else kernels.written(keys.astype(np.uint32))
        block = [_uploaded(context, folder.device, folder.stream, KEYS, keys.astype(self.step.dtype))]
        (_, buffer), = folder.results
        for part in partial.parts:
            described = _by_key(part.field, partial)
            target = HeldArray(described, buffer=buffer.part(part.offset, field_bytes(described)))
            rows = HeldArray(replace(described, shape=(len(keys), *described.shape[1:])))
            rows.buffer = context.scratch.allocate(rows.nbytes, folder.device, folder.stream)
            if places is None:
                folder.device.copy_across(rows.buffer, target.on_device, stream=folder.stream)
            else:
                kernels.take_places(target, rows.buffer, len(keys), places)
            block.append(rows)
        context.streams.synchronize()
        kernels.close()
        return tuple(block)

    def _joined(self, context: RunContext, device: Device) -> Block:
        """Return the table's fields, of partial results that are joined on the host; none where nothing was folded."""
        return self._block(context, device, _result(context))

    def _of_nodes(self, context: RunContext, world: JoinedWorld, device: Device) -> Block:
        """Return the table's fields, of what this node and the others folded."""
        result, refused = None, ""
        try:
            result = _result(context)
        except PlanError as error:
            refused = error.message
        operators = [part.how.operator for part in context.results.partials[0].parts] if result is not None else ()
        failpoint("table-folded")
        return self._block(context, device, joined_by_all(world, result, operators, refused))

    def _block(self, context: RunContext, device: Device, result: FoldResult | None) -> Block:
        """Return the fields of a joined result on a device; none where nothing was folded."""
        if result is None:
            return ()
        for field in result.fields:
            _check(field.magnitude, field.ordered)
        stream = context.streams.main(device)
        block = [_uploaded(context, device, stream, name, array) for name, array in self._rows(result).items()]
        device.synchronize(stream=stream)
        return tuple(block)

    def _rows(self, result: FoldResult) -> dict[str, np.ndarray]:
        """Return the table's fields."""
        dtype = np.dtype(self.step.dtype)
        values = {each.field.name: each.values.reshape(each.field.shape) for each in result.fields}
        if result.counts is None:
            named = {f"{VALUES}.{name}" if name else VALUES: np.ascontiguousarray(array[np.newaxis])
                     for name, array in values.items()}
            return {KEYS: np.zeros(1, dtype)} | named
        keys = result.counts.nonzero()[0]
        if len(keys) < len(result.counts):
            values = {name: array[keys] for name, array in values.items()}
        return {KEYS: keys.astype(dtype)} | {name: np.ascontiguousarray(array) for name, array in values.items()}


def _result(context: RunContext) -> FoldResult | None:
    """Bring the partial results to the host, and return them joined; None where nothing was folded."""
    for partial in context.results.partials:
        if not partial.is_out:
            partial.copy_out()
    context.streams.synchronize()
    return partial_folds.join(context.results.partials)


def _checked(context: RunContext, partials: Sequence[PartitionFold]) -> PartitionFold:
    """Bring to the host how many records each key has, and what says whether the folds are exact, and check it; return
    the first of the folds, whose values stay on their devices.

    Raises
    ------
    KeysRefused
        If a fold may not be what Python's is.
    """
    for partial in partials:
        partial.is_out = True
        for array in (*partial_folds.looked_at(partial), *([] if partial.counts is None else [partial.counts])):
            partial.folder.device.copy_out(array.reshape(-1).view(np.uint8), partial.on_device(array),
                                           stream=partial.folder.stream)
    context.streams.synchronize()
    for partial in partials:
        partial_folds.check_keys(partial)
    for parts in zip(*[partial.parts for partial in partials], strict=True):
        _check(*partial_folds.guarded(parts))
    return partials[0]


def _by_key(described: Field, partial: PartitionFold) -> Field:
    """Return a folded field with the keys along its first axis: as it is, or with the one key of a plain fold."""
    if partial.counts is not None:
        return described
    return replace(described, name=".".join(filter(None, (VALUES, described.name))), shape=(1, *described.shape))


def _uploaded(context: RunContext, device: Device, stream: Stream, name: str, array: np.ndarray) -> HeldArray:
    """Return an array on a device, once the stream is synchronized."""
    held = HeldArray(Field(name, array.dtype.str, array.shape))
    held.buffer = context.scratch.allocate(held.nbytes, device, stream)
    device.copy_in(held.buffer, array.reshape(-1).view(np.uint8), stream=stream)
    return held


def _check(magnitude: float, ordered: bool) -> None:
    if not ordered:
        raise KeysRefused("values that are compared are NaN")
    if magnitude >= _SAFE:
        raise KeysRefused("an integer may overflow, which Python's do not")
