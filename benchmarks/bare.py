"""The fused kernel in a bare loop on a device, without Spark, worker or plan; and how fast memory is copied there."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from benchmarks.points import FEATURES, KERNELS, SUM_BLOCK, Fused, Points
from gpu_worker.device.base import Buffer, Device, Source


def bytes_of(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


class BareLoop:
    """Points on a device, and their gradient by as many launches as there are blocks.

    Parameters
    ----------
    device : Device
        Where they are.
    points : Points
        The rows.
    fused : Fused
        The launch.
    together : bool
        Whether all partitions lie in one block.
    """

    def __init__(self, device: Device, points: Points, fused: Fused, *, together: bool):
        self._device = device
        self._fused = fused
        source = Source(KERNELS.read_text(), KERNELS.name, fused.options)
        self._gradient, self._sum = (device.compile(source, name) for name in ("gradient_partials", "sum_partials"))
        self._streams = [device.stream() for _ in range(1 if together else points.partitions)]
        self._rows = [points.rows] if together else [points.rows_of(index) for index in range(points.partitions)]
        self._blocks = [self._allocate(rows * (FEATURES + 1)) for rows in self._rows]
        self._partials = [self._allocate(fused.grid(rows) * FEATURES) for rows in self._rows]
        self._sums = self._allocate(len(self._rows) * FEATURES)
        self._w = self._allocate(FEATURES)
        self._fill(points, together)

    @property
    def block(self) -> Buffer:
        """The first block: all points, if they are together."""
        return self._blocks[0]

    def gradient(self, w: np.ndarray) -> np.ndarray:
        """Do one iteration, as seen from the host: weights in, gradient out."""
        device, first = self._device, self._streams[0]
        device.copy_in(self._w, bytes_of(w), stream=first)
        if len(self._streams) > 1:
            device.synchronize(stream=first)
        sums = np.empty((len(self._rows), FEATURES), np.float32)
        for index, stream in enumerate(self._streams):
            grid = self._fused.grid(self._rows[index])
            device.launch(self._gradient, (grid,), (self._fused.threads,),
                          [self._blocks[index], self._partials[index], self._w, np.int32(self._rows[index])],
                          shared=self._fused.shared, stream=stream)
            device.launch(self._sum, (1,), SUM_BLOCK, [self._partials[index], self._part(self._sums, index * FEATURES),
                                                       np.int32(grid)], stream=stream)
        for stream in self._streams:
            device.synchronize(stream=stream)
        # Once for all: a copy to memory that is not pinned waits for what is before it on its stream.
        device.copy_out(sums.reshape(-1).view(np.uint8), self._sums, stream=first)
        device.synchronize(stream=first)
        return sums.sum(axis=0, dtype=np.float64).astype(np.float32)

    def close(self) -> None:
        for buffer in [*self._blocks, *self._partials, self._sums, self._w]:
            buffer.close()

    def _allocate(self, floats: int) -> Buffer:
        return self._device.allocate(floats * 4, stream=self._streams[0])

    def _fill(self, points: Points, together: bool) -> None:
        """Bring the points to the device; a block is dropped once it is there."""
        lock = threading.Lock()
        before = np.cumsum([0, *[points.rows_of(index) for index in range(points.partitions)]])

        def fill(index: int) -> None:
            block = bytes_of(points.block(index))
            with lock:
                if together:
                    self._put(self._blocks[0], block, int(before[index]) * (FEATURES + 1))
                else:
                    self._put(self._blocks[index], block, 0)

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(fill, range(points.partitions)))

    def _part(self, of: Buffer, first: int) -> Buffer:
        """Return a buffer's floats from ``first`` on; not to be closed."""
        return Buffer(self._device, of.address + first * 4, of.nbytes - first * 4)

    def _put(self, target: Buffer, data: np.ndarray, first: int) -> None:
        self._device.copy_in(self._part(target, first), data, stream=self._streams[0])
        self._device.synchronize(stream=self._streams[0])


class BareCopy:
    """Copies within a device: the bytes that it reads and writes are the floor of what a pass over memory takes."""

    def __init__(self, device: Device, nbytes: int, lanes: int):
        self._device = device
        self._stream = device.stream()
        self._pairs = [(self._new(nbytes // lanes), self._new(nbytes // lanes)) for _ in range(lanes)]
        self._pool = ThreadPoolExecutor(lanes) if lanes > 1 else None
        self.moved = 2 * sum(source.nbytes for source, _ in self._pairs)
        self.run()

    def run(self) -> None:
        """Copy once, all lanes beside each other, and wait."""
        if self._pool:
            list(self._pool.map(self._copy, self._pairs))
        else:
            self._copy(self._pairs[0])
        self._device.synchronize(stream=self._stream)

    def close(self) -> None:
        if self._pool:
            self._pool.shutdown()
        for buffer in [buffer for pair in self._pairs for buffer in pair]:
            buffer.close()

    def _new(self, nbytes: int) -> Buffer:
        buffer = self._device.allocate(nbytes, stream=self._stream)
        self._device.copy_in(buffer, np.zeros(nbytes, np.uint8), stream=self._stream)
        self._device.synchronize(stream=self._stream)
        return buffer

    def _copy(self, pair: Sequence[Buffer]) -> None:
        self._device.copy_across(pair[1], pair[0], stream=self._stream)


class CopyIn:
    """Copies from the host's memory to a device: pinned once, or pinned for each copy, or not at all."""

    def __init__(self, device: Device, nbytes: int):
        self._device = device
        self._stream = device.stream()
        self._source = np.ones(nbytes, np.uint8)
        self._pinned = np.ones(nbytes, np.uint8)
        self._target = device.allocate(self._source.nbytes, stream=self._stream)
        device.pin(self._pinned)

    def pinned(self) -> None:
        self._copy(self._pinned)

    def pageable(self) -> None:
        self._copy(self._source)

    def pinned_each_time(self) -> None:
        self._device.pin(self._source)
        self._copy(self._source)
        self._device.unpin(self._source)

    def close(self) -> None:
        self._device.unpin(self._pinned)
        self._target.close()

    def _copy(self, source: np.ndarray) -> None:
        self._device.copy_in(self._target, source, stream=self._stream)
        self._device.synchronize(stream=self._stream)
