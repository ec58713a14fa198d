"""Folds of runs of rows that have equal keys, on one device; rows of one key lie behind each other.

Rows of one key that no device has room for lie in host memory, and come to it part by part: what is folded of a part
goes on with the next one, so that the bits are those of a fold of all.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gpu_worker.device.base import Buffer, Device, Stream
from gpu_worker.device.memory.partition import Block, HeldArray, Partition
from gpu_worker.execution.folds.element_folds import ElementFold, accumulator_size, element_fold
from gpu_worker.execution.keys.keyed_rows import RowOrder
from gpu_worker.execution.keys.radix_sort import RowKernels
from gpu_worker.execution.keys.row_keys import key_arrays
from gpu_worker.execution.memory.row_chunks import row_bytes
from gpu_worker.execution.memory.scratch import Scratch
from gpu_worker.protocol.errors import KeysRefused, PlanError
from gpu_worker.protocol.keys import STARTS
from gpu_worker.protocol.messages import Field
from gpu_worker.protocol.plans import FoldRunsStep

#: A Python int that is folded is exact while sizes stay below this.
_SAFE = 2.0 ** 62
#: The threads of a warp.
_LANES = 32
#: The most bytes of a part of one key's rows, and the share of a device's free memory that it may take.
_PART_BYTES, _PARTS = 64 << 20, 4


def folded_runs(step: FoldRunsStep, value: Partition, stream: Stream, scratch: Scratch) -> tuple[Block, int]:
    """Return one row for each run of rows with equal keys, and their number.

    Raises
    ------
    KeysRefused
        If a fold may not be what Python's is: an integer that overflows, or floats that are compared and NaN.
    PlanError
        If there is no kernel for a field.
    """
    block, = value.blocks
    named = {array.field.name: array for array in block}
    keys = [named[name] for name in step.keys or named if name in named]
    if not keys or len(keys) < len(step.keys):
        raise PlanError(f"there are no fields {step.keys} to fold by")
    work = _runs(keys, value, stream, scratch)
    arrays: list[HeldArray] = []
    for array in block:
        name = array.field.name
        how = next((each for each in step.fields if each.field == name), None)
        if array in keys:
            arrays.append(work.firsts(array))
        elif how is not None:
            operation = element_fold(how, array.field)
            arrays.append(work.folded(array, operation))
            work.guard(array, operation, how.guard)
    if step.counts:
        arrays.append(work.lengths(step.counts))
    work.check()
    work.close()
    return tuple(arrays), work.runs


def rows_of_runs(key: str, value: Partition, stream: Stream, scratch: Scratch) -> tuple[Block, int]:
    """Return the keys of runs of rows with equal keys, and of every other field the items of all runs behind where
    those of each lie; and the number of runs.

    Raises
    ------
    PlanError
        If there is no such field, or another one has more than a number for each row.
    """
    block, = value.blocks
    keys = key_arrays(value, key)
    if any(len(array.field.shape) != 1 for array in block):
        raise PlanError(f"rows by the field {key!r} are made of fields with one number for each record")
    work = _runs(keys, value, stream, scratch)
    arrays = [work.firsts(array) for array in keys]
    for array in block:
        if array not in keys:
            arrays += [work.starts(f"{array.field.name}{STARTS}"), array.share()]
    work.close()
    return tuple(arrays), work.runs


def _runs(keys: Sequence[HeldArray], value: Partition, stream: Stream, scratch: Scratch) -> _RunFolds:
    return (_OneRun if value.is_of_one_key else _Runs)(keys, value, stream, scratch)


class _RunFolds(ABC):
    """Folds of the runs of equal rows in some arrays of a partition, of which there are ``runs``."""

    runs: int

    def __init__(self, value: Partition):
        self._device = value.device
        self._before = 0 if value.piece is None else value.piece.first
        self._guards: list[tuple[str, np.ndarray]] = []

    @property
    @abstractmethod
    def work(self) -> RowKernels:
        """The launches."""

    @abstractmethod
    def firsts(self, array: HeldArray) -> HeldArray:
        """Return the first row of each run."""

    @abstractmethod
    def folded(self, array: HeldArray, operation: ElementFold, described: Field | None = None) -> HeldArray:
        """Return the folded rows of each run."""

    @abstractmethod
    def lengths(self, name: str) -> HeldArray:
        """Return the number of rows of each run."""

    @abstractmethod
    def starts(self, name: str) -> HeldArray:
        """Return the first row and the number of rows of each run; of a piece of a partition the row's place in that.
        """

    def guard(self, array: HeldArray, operation: ElementFold, guard: str) -> None:
        """Enqueue the check that a fold is what Python's is; for :meth:`check`."""
        if not guard:
            return
        of = "IsNan" if guard == "nan" else "SizeOrOne" if operation.functor == "Multiply" else "Size"
        functor = "Multiply" if of == "SizeOrOne" else "Add"
        folded = self.folded(array, replace(operation, functor=functor, of=of, carried="double"),
                             replace(array.field, dtype="<f8"))
        values = np.zeros(folded.nbytes // 8)
        assert folded.buffer is not None
        self.work.copy_out(values, folded.buffer)
        self._guards.append((guard, values))
        self.work.scratch.recycle(folded.buffer, self.work.stream)

    def check(self) -> None:
        """Raise KeysRefused where a fold may not be Python's; waits for the stream if there is anything to check."""
        if not self._guards:
            return
        self.work.device.synchronize(stream=self.work.stream)
        for guard, values in self._guards:
            if guard == "nan" and values.any():
                raise KeysRefused("values that are compared are NaN")
            if guard == "overflow" and values.max(initial=0.0) >= _SAFE:
                raise KeysRefused("an integer may overflow, which Python's do not")

    def close(self) -> None:
        """Give back what the folds worked in."""
        self.work.close()

    def _new_array(self, described: Field) -> tuple[HeldArray, Buffer]:
        array = HeldArray(replace(described, shape=(self.runs, *described.shape[1:])))
        array.buffer = target = self.work.scratch.allocate(array.nbytes, self.work.device, self.work.stream)
        return array, target


class _Runs(_RunFolds):
    """Runs of equal rows in some arrays of a partition."""

    def __init__(self, keys: Sequence[HeldArray], value: Partition, stream: Stream, scratch: Scratch):
        super().__init__(value)
        rows = keys[0].field.shape[0]
        self._work = work = RowOrder(keys[0], value.device, stream, scratch)
        heads = work.take(rows)
        for number, array in enumerate(keys):
            columns = math.prod(array.field.shape[1:])
            kind = np.dtype(array.field.dtype)
            work.launch(f"mark_heads<{_compared(kind)}>", rows, [
                array.buffer, heads, np.int64(rows), np.int64(columns * (2 if kind.kind == "c" else 1)),
                np.int32(number > 0)])
        # A stable partition by whether a row is a head lists them in their order.
        work.words = heads
        work.sort(2)
        starts = work.starts(2)
        value.device.synchronize(stream=stream)
        others, self.runs = int(starts[1]), rows - int(starts[1])
        self._heads = work.take(4 * (self.runs + 1))
        work.launch("list_heads", self.runs + 1, [work.order, self._heads, np.int64(others), np.int64(self.runs),
                                                  np.int64(rows)])

    @property
    def work(self) -> RowOrder:
        return self._work

    def firsts(self, array: HeldArray) -> HeldArray:
        firsts, target = self._new_array(array.field)
        self._work.take_rows(array, target, self.runs, self._heads)
        return firsts

    def folded(self, array: HeldArray, operation: ElementFold, described: Field | None = None) -> HeldArray:
        described = described or array.field
        folded, target = self._new_array(described)
        columns = math.prod(array.field.shape[1:]) * operation.parts
        result = _result(operation, is_as_read=described is array.field)
        threads = self.runs * columns * lanes_of(self._device)
        self._work.launch(f"fold_runs<{operation.functor}, {operation.of}, {operation.element}, {operation.carried}, "
                          f"{result}>", threads, [array.buffer, target, self._heads, np.int64(self.runs),
                                                  np.int64(columns)])
        return folded

    def lengths(self, name: str) -> HeldArray:
        lengths, target = self._new_array(Field(name, "<i8", (0,)))
        self._work.launch("run_lengths", self.runs, [self._heads, target, np.int64(self.runs)])
        return lengths

    def starts(self, name: str) -> HeldArray:
        starts, target = self._new_array(Field(name, "<i8", (0, 2)))
        self._work.launch("run_extents", self.runs, [self._heads, target, np.int64(self.runs),
                                                     np.int64(self._before)])
        return starts


class _OneRun(_RunFolds):
    """Folds of the only run of a piece whose rows have one key, which lie in host memory."""

    runs = 1

    def __init__(self, keys: Sequence[HeldArray], value: Partition, stream: Stream, scratch: Scratch):
        super().__init__(value)
        self._work = RowKernels(value.device, stream, scratch)
        self._rows = keys[0].field.shape[0]

    @property
    def work(self) -> RowKernels:
        return self._work

    def firsts(self, array: HeldArray) -> HeldArray:
        return array.rows(0, 1)

    def folded(self, array: HeldArray, operation: ElementFold, described: Field | None = None) -> HeldArray:
        described = described or array.field
        result, target = self._new_array(described)
        columns = math.prod(array.field.shape[1:]) * operation.parts
        lanes = lanes_of(self._device)
        folded = self.work.take(lanes * columns * accumulator_size(operation.carried))
        memory = self._device.memory()
        most = min(_PART_BYTES, (memory.total - memory.used) // _PARTS)
        rows = max(most // max(row_bytes(array), 1) // _LANES, 1) * _LANES
        for first in range(0, self._rows, rows):
            part = array.rows(first, min(first + rows, self._rows))
            assert part.host is not None
            data = self.work.take(part.nbytes)
            self._device.copy_in(data, part.host, stream=self.work.stream)
            self.work.launch(f"fold_part<{operation.functor}, {operation.of}, {operation.element}, "
                             f"{operation.carried}>", lanes * columns, [
                data, folded, np.int64(part.field.shape[0]), np.int64(columns), np.int32(lanes), np.int32(not first)])
            self.work.give(data)
        self.work.launch(f"join_lanes<{operation.functor}, {operation.carried}, "
                         f"{_result(operation, is_as_read=described is array.field)}>", columns, [
            folded, target, np.int64(self._rows), np.int64(columns), np.int32(lanes)])
        self.work.give(folded)
        self._device.synchronize(stream=self.work.stream)       # before the memory that parts came from goes
        return result

    def lengths(self, name: str) -> HeldArray:
        return HeldArray(Field(name, "<i8", (1,)), host=np.array([self._rows], "<i8").view(np.uint8))

    def starts(self, name: str) -> HeldArray:
        return HeldArray(Field(name, "<i8", (1, 2)), host=np.array([self._before, self._rows], "<i8").view(np.uint8))


def lanes_of(device: Device) -> int:
    """Return the number of threads that take the rows of a run in turn: a warp's, or one of a CPU."""
    return _LANES if device.asynchronous else 1


def _result(operation: ElementFold, *, is_as_read: bool) -> str:
    """Return the type of what is written of a fold: that of its elements, or that of its accumulators."""
    return operation.element if is_as_read else {"Twofold": "double"}.get(operation.carried, operation.carried)


def _compared(dtype: np.dtype) -> str:
    """Return the type as which numbers are compared."""
    size = dtype.itemsize // (2 if dtype.kind == "c" else 1)
    if dtype.kind in "fc":
        return {4: "float", 8: "double"}.get(size, "unsigned short")
    return {1: "unsigned char", 2: "unsigned short", 4: "unsigned int", 8: "unsigned long long"}[size]
