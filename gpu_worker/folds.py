"""Folds all records of a worker's partitions into one, with the operators that have a kernel in ``fold.cu``.

Each partition is folded on its device; the partial results, one record each, are joined on the host in the order of
the partitions. The order of every step depends on sizes alone, so a fold gives the same bits each time. Sums of
float32 and float64 are carried in float64, integers in their own type.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from gpu_worker.device.base import Buffer, Device, Source, Stream
from gpu_worker.protocol.errors import PlanError
from gpu_worker.protocol.messages import Fold
from gpu_worker.store import Array, Partition

SOURCE = Source((Path(__file__).parent / "fold.cu").read_text(), file="fold.cu")

#: Operator to its functor in fold.cu and its meaning on the host.
OPERATORS: dict[str, tuple[str, Callable]] = {
    "add": ("Add", np.add), "multiply": ("Multiply", np.multiply), "minimum": ("Minimum", np.minimum),
    "maximum": ("Maximum", np.maximum), "and": ("And", np.bitwise_and), "or": ("Or", np.bitwise_or),
    "xor": ("Xor", np.bitwise_xor),
}

#: NumPy dtype (kind and size) to the C++ type of an element and of its accumulator.
_TYPES = {
    "f4": ("float", "double"), "f8": ("double", "double"), "b1": ("unsigned char", "unsigned char"),
    "i1": ("signed char", "signed char"), "i2": ("short", "short"), "i4": ("int", "int"),
    "i8": ("long long", "long long"), "u1": ("unsigned char", "unsigned char"),
    "u2": ("unsigned short", "unsigned short"), "u4": ("unsigned int", "unsigned int"),
    "u8": ("unsigned long long", "unsigned long long"),
}
_NUMPY = {"float": "f4", "double": "f8", "signed char": "i1", "short": "i2", "int": "i4", "long long": "i8",
          "unsigned char": "u1", "unsigned short": "u2", "unsigned int": "u4", "unsigned long long": "u8"}

_MAX_CHUNKS = 256
_MIN_CHUNK = 4096


@dataclass
class Partial:
    """The fold of one partition, on its device until it is copied out and the stream is synchronized.

    ``values`` is in the accumulator's type; ``guards`` holds the guarding fold's elements, where there is one.
    """

    count: int
    shape: tuple[int, ...]
    dtype: np.dtype
    values: np.ndarray
    guards: np.ndarray | None
    folder: _Folder

    def copy_out(self) -> None:
        """Start copying to the host: after the kernels of all partitions, as a copy may wait for those before it."""
        for target, source in self.folder.results:
            self.folder.device.copy_out(target.view(np.uint8), source, stream=self.folder.stream)

    def close(self) -> None:
        while self.folder.buffers:
            self.folder.buffers.pop().close()


@dataclass(frozen=True)
class Folded:
    """A fold's result over all partitions of a worker."""

    count: int
    values: np.ndarray
    magnitude: float
    ordered: bool


def enqueue(step: Fold, value: Partition, stream: Stream, allocate: Callable[[int], Buffer]) -> Partial | None:
    """Fold one partition on its device, in memory from ``allocate``; nothing where it has no records.

    Raises
    ------
    PlanError
        If the records have several fields, a type without a kernel, or blocks of different shapes.
    """
    blocks = [block for block in value.blocks if block]
    if not value.count or not blocks:
        return None
    if any(len(block) != 1 for block in blocks):
        raise PlanError("records with several fields cannot be folded")
    arrays = [block[0] for block in blocks]
    described = arrays[0].field
    if any(array.field != described for array in arrays):
        raise PlanError("blocks of different shapes or dtypes cannot be folded on the device")
    shape = described.shape[1:] if step.over == "rows" else described.shape
    folder = _Folder(value.device, stream, _functor(step.operator), np.dtype(described.dtype),
                     step.over, allocate)
    guard = {"overflow": "SizeOrOne" if step.operator == "multiply" else "Size", "nan": "IsNan", "": ""}[step.guard]
    partial = Partial(value.count, shape, np.dtype(described.dtype), folder.fold(arrays, "Value"), None, folder)
    if guard:
        folder.functor = "Multiply" if guard == "SizeOrOne" else "Add"
        partial.guards = folder.fold(arrays, guard)
    return partial


def join(step: Fold, partials: Sequence[Partial]) -> Folded | None:
    """Join the partitions' partial results, in order; None where no partition had a record.

    Raises
    ------
    PlanError
        If the partitions' records differ in shape or dtype.
    """
    if not partials:
        return None
    first = partials[0]
    if any((partial.shape, partial.dtype) != (first.shape, first.dtype) for partial in partials):
        raise PlanError("partitions whose records differ in shape or dtype cannot be folded on the device")
    operator = OPERATORS[step.operator][1]
    values = first.values
    with np.errstate(all="ignore"):
        for partial in partials[1:]:
            values = operator(values, partial.values)
    guards = [partial.guards for partial in partials if partial.guards is not None]
    magnitude = 0.0
    if step.guard == "overflow":
        fold_guards = np.multiply if step.operator == "multiply" else np.add
        magnitude = float(np.max(fold_guards.reduce(np.stack(guards))))
    ordered = step.guard != "nan" or not any(guard.any() for guard in guards)
    shaped = values.astype(first.dtype) if first.dtype.kind != "c" else values.view(np.complex128).astype(first.dtype)
    return Folded(sum(partial.count for partial in partials), shaped.reshape(first.shape), magnitude, ordered)


def _functor(operator: str) -> str:
    if operator not in OPERATORS:
        raise PlanError(f"no fold {operator!r}; there are {', '.join(OPERATORS)}")
    return OPERATORS[operator][0]


@dataclass
class _Folder:
    """The launches of one partition's fold."""

    device: Device
    stream: Stream
    functor: str
    dtype: np.dtype
    over: str
    allocate: Callable[[int], Buffer]
    buffers: list[Buffer] = field(default_factory=list)
    results: list[tuple[np.ndarray, Buffer]] = field(default_factory=list)

    def fold(self, arrays: Sequence[Array], of: str) -> np.ndarray:
        element, carried = self._types(of)
        if self.over == "rows":
            return self._rows(arrays[0], of, element, carried)
        return self._blocks(arrays, of, element, carried)

    def _types(self, of: str) -> tuple[str, str]:
        key = f"f{self.dtype.itemsize // 2}" if self.dtype.kind == "c" else f"{self.dtype.kind}{self.dtype.itemsize}"
        if key not in _TYPES or (self.dtype.kind == "c" and self.functor != "Add"):
            raise PlanError(f"no fold {self.functor.lower()} for {self.dtype} on the device")
        element, carried = _TYPES[key]
        return element, carried if of == "Value" else "double"

    def _rows(self, array: Array, of: str, element: str, carried: str) -> np.ndarray:
        rows = array.field.shape[0]
        columns = math.prod(array.field.shape[1:]) * (2 if self.dtype.kind == "c" else 1)
        chunk = max(_MIN_CHUNK, -(-rows // _MAX_CHUNKS))
        chunks = -(-rows // chunk)
        parts = self._allocate(chunks * columns, carried)
        self._launch_rows(array.buffer, parts, element, carried, of, (rows, columns, chunk))
        if chunks > 1:
            joined = self._allocate(columns, carried)
            self._launch_rows(parts, joined, carried, carried, "Value", (chunks, columns, chunks))
            parts = joined
        return self._out(parts, columns, carried)

    def _launch_rows(self, source: Buffer, target: Buffer, element: str, carried: str, of: str,
                     extents: tuple[int, int, int]) -> None:
        rows, columns, chunk = extents
        across = min(32, 1 << max(columns - 1, 0).bit_length())
        kernel = self.device.compile(SOURCE, f"fold_rows<{self.functor}, {of}, {element}, {carried}, {across}>")
        self.device.launch(kernel, (max(1, -(-columns // across)), -(-rows // chunk)), (across, 256 // across),
                           [source, target, np.int64(rows), np.int64(columns), np.int64(chunk)], stream=self.stream)

    def _blocks(self, arrays: Sequence[Array], of: str, element: str, carried: str) -> np.ndarray:
        size = math.prod(arrays[0].field.shape) * (2 if self.dtype.kind == "c" else 1)
        target = self._allocate(size, carried)
        kernel = self.device.compile(SOURCE, f"fold_into<{self.functor}, {of}, {element}, {carried}>")
        grid = (max(1, min(1024, -(-size // 256))),)
        for index, array in enumerate(arrays):
            self.device.launch(kernel, grid, (256,), [array.buffer, target, np.int64(size), np.int32(index == 0)],
                               stream=self.stream)
        return self._out(target, size, carried)

    def _allocate(self, elements: int, carried: str) -> Buffer:
        buffer = self.allocate(elements * np.dtype(_NUMPY[carried]).itemsize)
        self.buffers.append(buffer)
        return buffer

    def _out(self, source: Buffer, elements: int, carried: str) -> np.ndarray:
        values = np.empty(elements, _NUMPY[carried])
        self.results.append((values, source))
        return values
