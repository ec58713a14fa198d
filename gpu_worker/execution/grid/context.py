"""Context of a plan's grid steps: streams, memory, kernels, and tables of copies on the devices."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

import numpy as np

from gpu_worker.device.base import Act, Buffer, CompiledKernel, Device, Source, Stream, TapeEntry
from gpu_worker.device.memory.grid.layout import Copy, tables
from gpu_worker.device.memory.grid.routes import Route
from gpu_worker.execution.memory.scratch import Arguments, Scratch
from gpu_worker.execution.scheduling.streams import Streams

KERNELS = Source((Path(__file__).parent / "boxes.cu").read_text(), file="boxes.cu")

THREADS = 256

#: One thing to do, again and again: a launch, or a stream that waits for another.
Operation = Callable[[], None]


class GridContext:
    """Context of a plan's grid steps: streams, scratch memory, and kernels.

    Parameters
    ----------
    streams : Streams
    scratch : Scratch
        Where memory comes from.
    arguments : Arguments
        The values of the request.
    """

    def __init__(self, streams: Streams, scratch: Scratch, arguments: Arguments):
        self._streams = streams
        self.scratch = scratch
        self.arguments = arguments
        self._patterns: dict[tuple[Device, bytes], Buffer] = {}
        #: The works of routes, which are the same wherever fields lie.
        self._works: dict[tuple[Route, Stream], Buffer] = {}
        self._taken: list[tuple[Buffer, Stream]] = []

    def stream(self, device: Device) -> Stream:
        """Return a device's own stream, on which it computes."""
        return self._streams.main(device)

    def copy_stream(self, device: Device) -> Stream:
        """Return a second stream of a device, for copies that overlap its computation; not ordered with the first."""
        return self._streams.copy_stream(device)

    def rim_stream(self, device: Device, number: int) -> Stream:
        """Return one of a device's streams for work that waits for copies from other devices, beside the device's own
        stream.
        """
        return self._streams.rim_stream(device, number)

    def allocate(self, nbytes: int, device: Device) -> Buffer:
        return self.scratch.allocate(nbytes, device, self.stream(device))

    def recycle(self, buffer: Buffer) -> None:
        self.scratch.recycle(buffer, self.stream(buffer.device))

    def kernel(self, device: Device, name: str) -> CompiledKernel:
        return device.compile(KERNELS, name)

    def copying(self, device: Device, copies: Sequence[Copy], stream: Stream) -> list[Operation]:
        """Return the launch that makes copies, if there are any; their tables are uploaded at once."""
        if not copies:
            return []
        entries, works = tables(copies)
        return self._boxes(device, entries, works, self.upload(works.view(np.uint8), device, stream), stream)

    def routing(self, device: Device, route: Route, addresses: np.ndarray, stream: Stream) -> list[Operation]:
        """Return the launch that makes a route's copies between buffers at some addresses."""
        key = route, stream
        if key not in self._works:
            self._works[key] = self.upload(route.works.view(np.uint8), device, stream)
        return self._boxes(device, route.entries_at(addresses), route.works, self._works[key], stream)

    def _boxes(self, device: Device, entries: np.ndarray, works: np.ndarray, held: Buffer,
               stream: Stream) -> list[Operation]:
        buffers = [self.upload(entries.view(np.uint8), device, stream), held]
        return [partial(device.launch, self.kernel(device, "copy_boxes"), (len(works),), (THREADS,), buffers,
                        stream=stream)]

    def copy(self, device: Device, copies: Sequence[Copy]) -> None:
        """Make copies on a device's own stream."""
        for operation in self.copying(device, copies, self.stream(device)):
            operation()

    def act(self, do: Callable[[], object], device: Device) -> Operation:
        """Return the operation that calls ``do`` in this process, in its order among the enqueued work."""
        def operation() -> None:
            do()
            self._streams.note([(self.copy_stream(device), Act(do))])

        return operation

    def noting(self) -> AbstractContextManager[list[TapeEntry]]:
        """Record operations enqueued within the context apart from the plan's own, for :meth:`enqueue_again`."""
        return self._streams.noting()

    def enqueue_again(self, entries: Sequence[TapeEntry]) -> None:
        """Enqueue recorded entries again."""
        self._streams.enqueue_again(entries)

    def note(self, entries: Iterable[TapeEntry]) -> None:
        """Add entries that were enqueued again to the plan's recording, if there is one."""
        self._streams.note(entries)

    def pattern(self, device: Device, value: bytes) -> Buffer:
        """Return device memory with a value repeated over 16 bytes."""
        if (device, value) not in self._patterns:
            repeated = np.frombuffer(value * (16 // len(value)), np.uint8)
            self._patterns[device, value] = self.upload(repeated, device, self.stream(device))
        return self._patterns[device, value]

    def upload(self, array: np.ndarray, device: Device, stream: Stream) -> Buffer:
        """Return a buffer with an array's bytes, until :meth:`close`."""
        if stream is self.stream(device):
            buffer = self.scratch.upload(array, device, stream)
        else:
            # Memory that served the device's own stream may still be in use there.
            buffer = self.scratch.adopt(device.allocate(array.nbytes, stream=stream))
            self.scratch.write(buffer, array, device, stream)
        self._taken.append((buffer, stream))
        return buffer

    def held(self, nbytes: int, device: Device) -> Buffer:
        """Return memory that stays allocated until the end of the step, for streams beside."""
        stream = self.copy_stream(device)
        buffer = self.scratch.adopt(device.allocate(nbytes, stream=stream))
        self._taken.append((buffer, stream))
        return buffer

    def close(self) -> None:
        """Release the tables' memory to later work."""
        for buffer, stream in self._taken:
            self.scratch.forget(buffer, stream)
        self._taken.clear()
        self._patterns.clear()
        self._works.clear()
