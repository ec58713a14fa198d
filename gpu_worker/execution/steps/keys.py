"""Steps that partition and sort rows by their keys, and fold runs of equal ones."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import Protocol

import numpy as np

from gpu_worker.device.base import Buffer, CountedPart, Device
from gpu_worker.execution.keyed_folds import folded_runs, rows_of_runs
from gpu_worker.execution.keyed_rows import MOST_ROWS, RowOrder, key_type, ordered, row_bytes
from gpu_worker.execution.plan_checks import check_folds, dtype_of, require
from gpu_worker.execution.row_exchange import MOST_PARTS as MOST_AT_ONCE
from gpu_worker.execution.row_exchange import OrderedExchange, RowExchange
from gpu_worker.execution.run_context import RunContext
from gpu_worker.execution.step_handlers import KeepingHandler, StepHandler, handles
from gpu_worker.execution.steps.node_keys import NodeKeys, check_reach
from gpu_worker.memory.partition import HeldArray, Partition
from gpu_worker.protocol.errors import KeysRefused, OutOfMemory, PlanError
from gpu_worker.protocol.keys import NUMBERS, of_value
from gpu_worker.protocol.messages import Field, KeepStep, Launch, Plan
from gpu_worker.protocol.plans import (
    FoldRunsStep,
    GroupRowsStep,
    KeepKeyedStep,
    OpenKeysStep,
    PartitionByKeyStep,
    SortByKeyStep,
)
from gpu_worker.protocol.publications import TAG_BYTES
from gpu_worker.system.failpoints import failpoint

_HOW = ("hash", "ascending", "descending")
#: The most partitions that rows are dealt to at once.
MOST_PARTS = 1 << 20
#: Keys that are looked at for the bounds of ranges: for each partition that is to come, and in all.
_SAMPLES, _MOST_SAMPLES = 64, 1 << 16
#: The bytes to which the memory of new partitions is aligned.
_ALIGNED = 256


class KeysLookedAt(Protocol):
    """Interface of what counted the keys that are NaN."""

    wrong: np.ndarray


def order_of(context: RunContext, value: Partition, key: str) -> RowOrder:
    """Return an order of a partition's rows, by a field, that is not computed yet.

    Raises
    ------
    PlanError
        If the partition has not one block with such keys, one a row.
    """
    block = value.blocks[0] if len(value.blocks) == 1 else ()
    keys = next((array for array in block if array.field.name == key), None)
    if keys is None or len(keys.field.shape) != 1 or keys.buffer is None:
        raise PlanError(f"there is no field {key!r} with one key for each record")
    key_type(np.dtype(keys.field.dtype))
    return RowOrder(keys, value.device, context.streams.main(value.device), context.scratch)


def refuse_nan(orders: Sequence[KeysLookedAt], label: str) -> None:
    """Raise KeysRefused if a key is NaN; the streams are synchronized."""
    wrong = sum(int(each.wrong[0]) for each in orders)
    if wrong:
        raise KeysRefused(f"{wrong:,} of the keys are NaN, which equals nothing and has no place in an order: {label} "
                          "of such keys is Spark's")


class _KeyedStep(StepHandler[PartitionByKeyStep | SortByKeyStep | FoldRunsStep | GroupRowsStep]):
    """Handler of a step whose results depend on keys, so that their sizes are not known before."""

    on_device = True

    @property
    def leaves_host_memory(self) -> bool:
        return True         # the host looks at what a replay would not bring

    @property
    def needs_all(self) -> bool:
        return True


@handles(OpenKeysStep)
class OpenKeysHandler(StepHandler[OpenKeysStep]):
    """Handler of a step that makes a field of the keys of pairs that were sent."""

    @property
    def leaves_host_memory(self) -> bool:
        return True

    def verify(self, plan: Plan) -> None:
        dtype_of(self.step.dtype)

    def fields_after(self, fields: Sequence[Field], launch: Launch | None) -> Sequence[Field]:
        shape = () if self.step.by_block else fields[0].shape[:1]
        return (Field("0", self.step.dtype, shape),
                *[replace(each, name=of_value(each.name)) for each in fields])

    def run(self, context: RunContext, values: list[Partition]) -> list[Partition]:
        return context.each(self, values, partial(self._opened, context))

    def _opened(self, context: RunContext, value: Partition) -> Partition:
        if not value.count or not value.blocks:
            return value
        blob = b"" if value.keys is None else value.keys[TAG_BYTES:TAG_BYTES + 64].tobytes()
        name, semicolon, _ = blob.partition(b";")
        dtype = np.dtype(self.step.dtype)
        data = np.empty(0, np.uint8) if value.keys is None else value.keys[TAG_BYTES + len(name) + 1:]
        if not name.startswith(NUMBERS) or not semicolon or data.nbytes != value.count * dtype.itemsize:
            raise PlanError(f"the keys of partition {value.index} are not {value.count} numbers of {dtype}")
        if self.step.by_block and len(value.blocks) != value.count:
            raise PlanError(f"partition {value.index} has {len(value.blocks)} blocks for {value.count} records")
        of_each = dtype.itemsize if self.step.by_block else data.nbytes
        shape = () if self.step.by_block else (value.count,)
        blocks = [(HeldArray(Field("0", dtype.str, shape), host=data[at * of_each:(at + 1) * of_each]),
                   *[HeldArray(replace(array.field, name=of_value(array.field.name)), array.host,
                               array.buffer.share() if array.buffer else None) for array in block])
                  for at, block in enumerate(value.blocks)]
        made = Partition(value.index, value.count, None, self.step.layout, blocks, value.device, value.variants)
        return context.after(value, made, own=True)


@handles(SortByKeyStep)
class SortByKeyHandler(_KeyedStep):
    """Handler of a step that sorts the rows of each partition."""

    step: SortByKeyStep

    def run(self, context: RunContext, values: list[Partition]) -> list[Partition]:
        values = context.each(self, values, context.to_device)
        return context.each(self, values, partial(self._sorted, context))

    def _sorted(self, context: RunContext, value: Partition) -> Partition:
        if not value.count or not value.blocks:
            return value
        order = order_of(context, value, self.step.key)
        with context.progress.launching(self.label, (value.index,), value.device):
            order.by_order(descending=self.step.descending)
            order.sort()        # which waits for the stream
            refuse_nan([order], self.label)
            count = value.count if self.step.limit < 0 else min(value.count, self.step.limit)
            if order.order is None and count == value.count and not self.step.layout:
                order.close()
                return value
            places = None if order.order is not None else _in_place(order, count)
            block = [self._first(context, order, array, count, places) for array in value.blocks[0]]
        order.close()
        context.progress.mark(self.label, (value.index,), value.device, order.stream)
        made = Partition(value.index, count, value.keys, self.step.layout or value.layout, [tuple(block)], value.device)
        return context.after(value, made, own=False)

    def _first(self, context: RunContext, order: RowOrder, array: HeldArray, count: int,
               places: Buffer | None) -> HeldArray:
        """Return the first rows of an array in an order."""
        made = HeldArray(replace(array.field, shape=(count, *array.field.shape[1:])))
        made.buffer = context.scratch.allocate(made.nbytes, order.device, order.stream)
        order.take_rows(array, made.buffer, count, places)
        return made


@handles(FoldRunsStep)
class FoldRunsHandler(_KeyedStep):
    """Handler of a step that makes one row of each run of rows with equal keys."""

    step: FoldRunsStep

    def verify(self, plan: Plan) -> None:
        check_folds(self.step.fields)

    def run(self, context: RunContext, values: list[Partition]) -> list[Partition]:
        values = context.each(self, values, context.to_device)
        return context.each(self, values, partial(self._folded, context))

    def _folded(self, context: RunContext, value: Partition) -> Partition:
        if not value.count or not value.blocks:
            return value
        with context.progress.launching(self.label, (value.index,), value.device):
            block, runs = folded_runs(self.step, value, context.streams.main(value.device), context.scratch)
        made = Partition(value.index, runs, None, self.step.layout, [block], value.device)
        context.progress.mark(self.label, (value.index,), value.device, context.streams.main(value.device))
        return context.after(value, made, own=False)


@handles(GroupRowsStep)
class GroupRowsHandler(_KeyedStep):
    """Handler of a step that makes one record of each run of rows with equal keys."""

    step: GroupRowsStep

    def run(self, context: RunContext, values: list[Partition]) -> list[Partition]:
        values = context.each(self, values, context.to_device)
        return context.each(self, values, partial(self._grouped, context))

    def _grouped(self, context: RunContext, value: Partition) -> Partition:
        if not value.count or not value.blocks:
            return value
        stream = context.streams.main(value.device)
        with context.progress.launching(self.label, (value.index,), value.device):
            block, runs = rows_of_runs(self.step.key, value, stream, context.scratch)
        context.progress.mark(self.label, (value.index,), value.device, stream)
        made = Partition(value.index, runs, None, self.step.layout, [block], value.device)
        return context.after(value, made, own=False)


@handles(PartitionByKeyStep)
class PartitionByKeyHandler(_KeyedStep):
    """Handler of a step that makes new partitions of the rows of all."""

    step: PartitionByKeyStep

    def verify(self, plan: Plan) -> None:
        require(self.step.how in _HOW, f"rows are partitioned by {', '.join(_HOW)}, not by {self.step.how[:40]!r}")
        require(1 <= self.step.parts <= MOST_PARTS,
                f"rows are dealt to 1 to {MOST_PARTS:,} partitions, not to {self.step.parts:,}")

    def run(self, context: RunContext, values: list[Partition]) -> list[Partition]:
        values = [value for value in context.each(self, values, context.to_device) if value.count and value.blocks]
        if context.world is not None:
            return self._among_nodes(context, values)
        return context.together(self, values, partial(self._dealt, context)) if values else \
            [self._empty(context, part) for part in range(self.step.parts)]

    def _dealt(self, context: RunContext, values: Sequence[Partition]) -> list[Partition]:
        fields = _alike(values)
        orders = [order_of(context, value, self.step.key) for value in values]
        exchanges = self._exchanges(context, values, orders)
        with context.progress.launching(self.label, [value.index for value in values], values[0].device):
            bounds = self._bounds(context, orders)
            for exchange, _ in exchanges:
                exchange.count(bounds, descending=self.step.how == "descending")
        _wait(context, values)
        refuse_nan([exchange for exchange, _ in exchanges], self.label)
        counts = np.array([exchange.rows for exchange, _ in exchanges]).astype(np.int64)
        failpoint("shuffle-counted")
        made = self._allocated(context, fields, counts.sum(axis=0))
        for (exchange, moved), before in zip(exchanges, np.cumsum(counts, axis=0) - counts, strict=True):
            self._move(context, exchange, moved, made, before)
        _wait(context, made)
        failpoint("shuffle-moved")
        self._close(context, values, [*[exchange for exchange, _ in exchanges], *orders])
        return made

    def _close(self, context: RunContext, values: Sequence[Partition],
               exchanges: Sequence[RowExchange | OrderedExchange | RowOrder]) -> None:
        """Give back what an exchange worked in, and the partitions that it began with."""
        for each in exchanges:
            each.close()
        for value in values:
            del context.values.used[id(value)]
            value.close(partial(_recycle, context, value.device))

    def _among_nodes(self, context: RunContext, values: Sequence[Partition]) -> list[Partition]:
        """Return this node's new partitions, of the rows of all nodes of the plan's world."""
        nodes = NodeKeys(context, values, self.step.parts, self.label)
        orders: list[RowOrder] = []

        def samples() -> Sequence[np.ndarray]:
            orders.extend(order_of(context, value, self.step.key) for value in values)
            return self._samples(orders)

        bounds = None if self.step.how == "hash" else self._edges(nodes.bounds(samples))

        def count() -> Sequence[RowExchange | OrderedExchange]:
            check_reach([*values, *[self._empty(context, part) for part in range(min(self.step.parts, 64))]])
            _alike(values) if values else ()
            orders[:] = orders or [order_of(context, value, self.step.key) for value in values]
            found = [self._exchanges(context, [value], [order])[0][0]
                     for value, order in zip(values, orders, strict=True)]
            for value, exchange in zip(values, found, strict=True):
                with context.progress.launching(self.label, (value.index,), value.device):
                    exchange.count(bounds, descending=self.step.how == "descending")
            _wait(context, values)
            refuse_nan(found, self.label)
            return found

        plan, exchanges = nodes.agreed(count)
        failpoint("shuffle-counted")
        made = nodes.moved(plan, exchanges, partial(self._allocated, context))
        failpoint("shuffle-moved")
        self._close(context, values, [*exchanges, *orders])
        return made

    def _exchanges(self, context: RunContext, values: Sequence[Partition],
                   orders: Sequence[RowOrder]) -> list[tuple[RowExchange | OrderedExchange, Sequence[Partition]]]:
        """Return exchanges of all rows, each with the partitions that it takes: neighbours on one device."""
        if self.step.parts > MOST_AT_ONCE:
            return [(OrderedExchange(value.blocks[0], order, self.step.parts), [value])
                    for value, order in zip(values, orders, strict=True)]
        return [(RowExchange([value.blocks[0] for value in group], self.step.key, self.step.parts, device,
                             context.streams.main(device), context.scratch), group)
                for device, group in [(device, list(group)) for device, group in
                                      itertools.groupby(values, attrgetter("device"))]]

    # -- ranges -------------------------------------------------------------------------------------------------------

    def _bounds(self, context: RunContext, orders: Sequence[RowOrder]) -> np.ndarray | None:
        """Return the bounds of the ranges, of a sample of keys; None where rows go by hash."""
        if self.step.how == "hash":
            return None
        return self._edges(np.sort(np.concatenate([ordered(each) for each in self._samples(orders)])))

    def _samples(self, orders: Sequence[RowOrder]) -> list[np.ndarray]:
        """Return keys of each order that are numbers, at equal distances; waits for them."""
        most = max(1, min(_SAMPLES * self.step.parts, _MOST_SAMPLES) // max(len(orders), 1))
        samples = [_sample(order, most) for order in orders]
        for order in orders:
            order.device.synchronize(stream=order.stream)
        return [each[~np.isnan(each)] if each.dtype.kind == "f" else each for each in samples]

    def _edges(self, words: np.ndarray) -> np.ndarray:
        """Return the bounds of the ranges, of sorted words of a sample of keys."""
        parts = self.step.parts
        if not len(words):
            return np.zeros(parts - 1, np.uint64)
        return words[[len(words) * (part + 1) // parts for part in range(parts - 1)]]

    # -- the new partitions -------------------------------------------------------------------------------------------

    def _empty(self, context: RunContext, part: int) -> Partition:
        device = context.streams.place(context.request.vrdds[-1], part, context.plan.devices)
        return context.use(Partition(part, 0, None, self.step.empty, [], device))

    def _allocated(self, context: RunContext, fields: Sequence[HeldArray], rows: np.ndarray,
                   parts: Sequence[int] | None = None) -> list[Partition]:
        """Return the new partitions, or ``parts`` of them, with memory for their rows: of each field one buffer for all
        of a device's.

        Raises
        ------
        OutOfMemory
            If they do not fit; before any row has been moved.
        """
        made = [self._empty(context, part) for part in (range(self.step.parts) if parts is None else parts)]
        self._check_rows(made, rows, sum(map(row_bytes, fields)))
        blocks: dict[int, list[HeldArray]] = {partition.index: [] for partition in made}
        for device in dict.fromkeys([partition.device for partition in made]):
            there = [partition for partition in made if partition.device is device and rows[partition.index]]
            for array in fields:
                self._allocate(context, array, there, rows, blocks)
        for partition in made:
            if rows[partition.index]:
                partition.blocks, partition.count = [tuple(blocks[partition.index])], int(rows[partition.index])
                partition.layout = self.step.layout
        return made

    def _allocate(self, context: RunContext, array: HeldArray, made: Sequence[Partition], rows: np.ndarray,
                  blocks: Mapping[int, list[HeldArray]]) -> None:
        """Add a field with memory for its rows to the blocks of partitions of one device."""
        name, dtype, row = array.field.name, array.field.dtype, array.field.shape[1:]
        held = [HeldArray(Field(name, dtype, (int(rows[each.index]), *row))) for each in made]
        places = np.cumsum([0, *[-(-each.nbytes // _ALIGNED) * _ALIGNED for each in held]]).tolist()
        if not made:
            return
        device = made[0].device
        whole = context.scratch.allocate(places[-1], device, context.streams.main(device))
        for partition, each, place in zip(made, held, places[:-1], strict=True):
            each.buffer = CountedPart(whole, place, each.nbytes)
            blocks[partition.index].append(each)
        whole.close()

    def _check_rows(self, made: Sequence[Partition], rows: np.ndarray, nbytes: int) -> None:
        """Raise OutOfMemory, with the numbers of the largest partition, where a device has no room for all of its, or
        it has more rows than are numbered.
        """
        largest = int(rows.argmax())
        if rows[largest] > MOST_ROWS:
            raise OutOfMemory(f"{self.label}: partition {largest} would have {int(rows[largest]):,} of "
                              f"{int(rows.sum()):,} records, and {MOST_ROWS:,} are the most that are numbered in one")
        wanted: dict[Device, int] = {}
        for partition in made:
            wanted[partition.device] = wanted.get(partition.device, 0) + int(rows[partition.index]) * nbytes
        for device, wants in wanted.items():
            memory = device.memory()
            if memory.total and memory.used + wants > memory.total:
                raise OutOfMemory(
                    f"{self.label} into {self.step.parts} partitions takes {wants:,} bytes on {device.name}, of which "
                    f"{max(memory.total - memory.used, 0):,} are free; the largest is partition {largest} with "
                    f"{int(rows[largest]):,} of {int(rows.sum()):,} records ({int(rows[largest]) * nbytes:,} bytes)")

    def _move(self, context: RunContext, exchange: RowExchange | OrderedExchange, moved: Sequence[Partition],
              made: Sequence[Partition], before: np.ndarray) -> None:
        """Enqueue the moves of partitions' rows to the new ones, in each behind as many rows as ``before`` says."""
        device = moved[0].device
        stream = context.streams.main(device)
        for other in dict.fromkeys([each.device for each in made]):
            if other is not device:
                if not device.reaches(other):
                    raise KeysRefused(f"{device.name} does not reach the memory of {other.name}")
                device.wait(context.streams.main(other), stream=stream, of=other)
        addresses = np.array([[_address(each, place) for each in made] for place in range(len(exchange.fields))],
                             np.uint64)
        behind = np.array([before * row_bytes(array) for array in exchange.fields]).astype(np.uint64)
        with context.progress.launching(self.label, [each.index for each in moved], device):
            exchange.move(addresses + behind)
        context.progress.mark(self.label, [each.index for each in moved], device, stream)


@handles(KeepKeyedStep)
class KeepKeyedHandler(KeepingHandler[KeepKeyedStep]):
    """Handler of a step that makes new partitions resident."""

    def run(self, context: RunContext, values: list[Partition]) -> list[Partition]:
        keep = KeepStep(self.step.slot, self.step.name, "device")
        for value in values:
            context.results.pending.append((keep, value.kept_at("device", value.layout, value.count)))
        return values


def _alike(values: Sequence[Partition]) -> Sequence[HeldArray]:
    """Return the fields of the partitions' rows, but for their number. Raises PlanError where they differ."""
    kinds = {tuple((array.field.name, array.field.dtype, array.field.shape[1:]) for array in value.blocks[0])
             for value in values if len(value.blocks) == 1}
    if len(kinds) != 1 or any(len(value.blocks) != 1 for value in values):
        raise PlanError("partitions whose records differ in shape or dtype cannot be put together by their keys")
    return values[0].blocks[0]


def _in_place(order: RowOrder, count: int) -> Buffer:
    """Return the numbers of the first rows, which are in their order already."""
    numbers = np.arange(count, dtype=np.uint32)
    places = order.take(numbers.nbytes)
    order.scratch.write(places, numbers, order.device, order.stream)
    return places


def _sample(order: RowOrder, most: int) -> np.ndarray:
    """Return keys at equal distances, once the stream is synchronized."""
    chosen = np.linspace(0, order.rows - 1, min(most, order.rows)).astype(np.uint32)
    places, found = order.take(chosen.nbytes), np.zeros(len(chosen), order.keys.field.dtype)
    order.scratch.write(places, chosen, order.device, order.stream)
    taken = order.take(found.nbytes)
    order.take_rows(order.keys, taken, len(chosen), places)
    order.copy_out(found, taken)
    return found


def _wait(context: RunContext, values: Sequence[Partition]) -> None:
    """Wait for the work on the devices of some partitions."""
    for device in dict.fromkeys([value.device for value in values]):
        device.synchronize(stream=context.streams.main(device))


def _address(partition: Partition, place: int) -> int:
    """Return the address of a field of a new partition; 0 where it has no rows."""
    buffer = partition.blocks[0][place].buffer if partition.blocks else None
    return 0 if buffer is None else buffer.address


def _recycle(context: RunContext, device: Device, buffer: Buffer) -> None:
    context.scratch.recycle(buffer, context.streams.main(device))
