"""A device that works as late as it may: what is enqueued is done when somebody waits for it, and not before.

Whoever uses memory too early, or gives it back or writes to it too early, gets other values than on a device that works
at once.
"""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from gpu_worker.device.base import Buffer, Device, PackedLaunch, Stream
from gpu_worker.device.cache import KernelCache
from gpu_worker.device.host.device import HostDevice
from gpu_worker.protocol.errors import KernelFault
from tests.unit.plans import Bench, bench


class LateStream(Stream):
    """A stream's work that is not done yet."""

    def __init__(self) -> None:
        super().__init__()
        self.todo: deque[Callable[[], None]] = deque()
        self.enqueued = self.done = self.looked = 0
        self._passed = 0

    @property
    def passed(self) -> int:
        return self._passed

    def put(self, action: Callable[[], None]) -> None:
        self.todo.append(action)
        self.enqueued += 1

    def upto(self, count: int) -> None:
        """Do the first so many pieces of work."""
        while self.done < count:
            self.done += 1
            self.todo.popleft()()

    def pass_mark(self, number: int) -> None:
        self._passed = number


class LateDevice(HostDevice):
    """The host as such a device. A kernel called ``fails`` is a fault that shows where it is waited for."""

    def stream(self) -> LateStream:
        return LateStream()

    def copy_in(self, target: Buffer, source: np.ndarray, *, stream: LateStream) -> None:
        stream.note(self.copy_in, target, source)
        stream.put(partial(self._untaped, super().copy_in, target, source))

    def copy_out(self, target: np.ndarray, source: Buffer, *, stream: LateStream) -> None:
        stream.note(self.copy_out, target, source)
        stream.put(partial(self._untaped, super().copy_out, target, source))

    def copy_across(self, target: Buffer, source: Buffer, *, stream: LateStream) -> None:
        stream.note(self.copy_across, target, source)
        stream.put(partial(self._untaped, super().copy_across, target, source))

    @staticmethod
    def _untaped(copy: Callable[..., None], target, source) -> None:
        copy(target, source, stream=Stream())

    def start(self, call: PackedLaunch, *, stream: LateStream) -> None:
        if call.kernel.name == "fails":
            stream.put(self._fail)
        else:
            late = PackedLaunch(call.kernel, call.grid, call.block, call.shared, call.arguments, call.packed)
            stream.put(partial(super().start, late, stream=Stream()))

    def _fail(self) -> None:
        raise KernelFault("a kernel failed")

    def mark(self, *, stream: LateStream) -> int:
        stream.marks += 1
        stream.put(partial(stream.pass_mark, stream.marks))
        return stream.marks

    def order(self, other: LateStream, *, stream: LateStream, of: Device) -> None:
        stream.put(partial(other.upto, other.enqueued))

    def synchronize(self, *, stream: LateStream) -> None:
        stream.upto(stream.enqueued)
        super().synchronize(stream=stream)

    def query(self, *, stream: LateStream) -> None:
        if stream.looked == stream.enqueued and stream.todo:        # looked at again and again, by whoever waits
            stream.upto(stream.done + 1)
        stream.looked = stream.enqueued

    def free(self, buffer: Buffer) -> None:
        if buffer.nbytes:
            ctypes.memset(buffer.address, 0xFF, buffer.nbytes)      # NaN, for whoever still reads it
        super().free(buffer)


@contextmanager
def late_bench(path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """Run a worker whose only device is late."""
    monkeypatch.setattr("gpu_worker.server.handlers.open_devices",
                        lambda *_, **__: [LateDevice("host:0", cache=KernelCache())])
    with bench(path, "host") as worker:
        yield worker
