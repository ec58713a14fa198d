"""Device that does nothing: for tests of the layers above devices, in microseconds and without a compiler."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from gpu_worker.device.base import (
    Buffer,
    CompiledKernel,
    Device,
    Late,
    LaunchValue,
    Memory,
    PackedLaunch,
    Source,
    Stream,
)
from gpu_worker.device.launch_limits import SHARED_BYTES, numbered
from gpu_worker.protocol.errors import OutOfMemory
from gpu_worker.protocol.payload import MARK_BYTES

CALLS_KEPT = 10_000
ALIGNMENT = 256
TOTAL = 1 << 40
MULTIPROCESSORS = 4


class NullDevice(Device):
    """Device that accepts all work, moves no bytes but marks, which are zeros, and records the requests.

    Attributes
    ----------
    calls : deque of tuple
        The last calls, oldest first: the method's name, then what it was given.

    Examples
    --------
    >>> device = NullDevice("null:0")
    >>> buffer = device.allocate(16, stream=device.stream())
    >>> buffer.close()
    >>> [name for name, *_ in device.calls]
    ['stream', 'allocate', 'free']
    """

    kind: ClassVar[str] = "null"
    asynchronous: ClassVar[bool] = True

    def __init__(self, name: str = "null:0", *, memory: int = 0, shared_limit: int = 0):
        super().__init__(name, MULTIPROCESSORS, shared_limit or SHARED_BYTES)
        self.calls: deque[tuple[Any, ...]] = deque(maxlen=CALLS_KEPT)
        self._total = memory or TOTAL
        self._used = 0
        self._next = ALIGNMENT

    def stream(self) -> Stream:
        self.calls.append(("stream",))
        return Stream()

    def allocate(self, nbytes: int, *, stream: Stream, is_for_messages: bool = False) -> Buffer:
        self.calls.append(("allocate", nbytes))
        with self.lock:
            if self._used + nbytes > self._total:
                raise OutOfMemory(f"{nbytes} bytes asked for on {self.name}, {self._used} of {self._total} in use")
            address, self._used = self._next, self._used + nbytes
            self._next += -(-max(nbytes, 1) // ALIGNMENT) * ALIGNMENT
        return Buffer(self, address, nbytes)

    def free(self, buffer: Buffer) -> None:
        self.calls.append(("free", buffer.address))
        with self.lock:
            self._used -= buffer.nbytes

    def copy_in(self, target: Buffer, source: np.ndarray, *, stream: Stream) -> None:
        self.calls.append(("copy_in", target.address, source.nbytes))
        stream.note(self.copy_in, target, source)

    def copy_out(self, target: np.ndarray, source: Buffer, *, stream: Stream) -> None:
        self.calls.append(("copy_out", source.address, target.nbytes))
        if target.nbytes <= MARK_BYTES:
            target[...] = 0             # somebody waits for that
        stream.note(self.copy_out, target, source)

    def copy_across(self, target: Buffer, source: Buffer, *, stream: Stream) -> None:
        self.calls.append(("copy_across", target.address, source.address))
        stream.note(self.copy_across, target, source)

    def compiled(self, source: Source, name: str) -> CompiledKernel:
        self.calls.append(("compile", name))
        return CompiledKernel(self, source, name)

    def check(self, call: PackedLaunch) -> None:
        pass

    def packed(self, kernel: CompiledKernel, arguments: Sequence[LaunchValue]) -> bytes:
        return b"".join(each.value.tobytes() for each in arguments if isinstance(each, Late))

    def start(self, call: PackedLaunch, *, stream: Stream) -> None:
        self.calls.append(("launch", call.kernel.name, call.grid, call.block, tuple(call.arguments), call.shared))

    def order(self, other: Stream, *, stream: Stream, of: Device) -> None:
        self.calls.append(("wait",))

    def synchronize(self, *, stream: Stream) -> None:
        self.calls.append(("synchronize",))

    def memory(self) -> Memory:
        return Memory(self._used, self._total)

    def close(self) -> None:
        self.calls.append(("close",))


def open_null(*, memory: int, addresses: Sequence[str], cache_dir: str, shared_limit: int = 0, bounds: bool = False,
              count: int = 0) -> list[NullDevice]:
    """Open those of ``count`` null devices that have the addresses; if it is 0, one for each of the addresses, or one.

    Nothing is compiled or accessed, so that the cache's directory and checks of bounds mean nothing.
    """
    return [NullDevice(f"null:{address}", memory=memory, shared_limit=shared_limit)
            for address in (numbered("null", count, addresses) if count else addresses or ["0"])]
