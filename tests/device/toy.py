"""A device of docs/development/add_a_device.md: blocks in this process's memory, and kernels written in Python."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

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
from gpu_worker.device.launch_limits import SHARED_BYTES, check_fits
from gpu_worker.protocol.device_kinds import DeviceKind
from gpu_worker.protocol.errors import CompileError, DeviceUnavailable, OutOfMemory

TOTAL = 1 << 30

#: The entry in the table of kinds.
TOY = DeviceKind("toy", "tests.device.toy:open_toy", "kernels in Python; for a page of the docs", is_countable=True)


class ToyBuffer(Buffer):
    """A range of memory that an array owns, aligned as devices align theirs."""

    def __init__(self, device: Device, nbytes: int):
        self.owner = np.empty(nbytes + 256, "u1")
        start = -self.owner.ctypes.data % 256
        self.bytes = self.owner[start:start + nbytes]
        super().__init__(device, self.bytes.ctypes.data if nbytes else 0, nbytes)


class ToyDevice(Device):
    """Device whose kernels are Python functions of a block's number and the arguments, buffers as arrays of bytes."""

    kind = "toy"

    def __init__(self, name: str, *, memory: int = 0, shared_limit: int = 0):
        super().__init__(name, shared_limit=shared_limit or SHARED_BYTES)
        self._total, self._used, self._is_closed = memory or TOTAL, 0, False

    def stream(self) -> Stream:
        return Stream()

    def allocate(self, nbytes: int, *, stream: Stream, is_for_messages: bool = False) -> Buffer:
        if self._is_closed:
            raise DeviceUnavailable(f"{self.name} is closed")
        with self.lock:
            if self._used + nbytes > self._total:
                raise OutOfMemory(f"{self.name}: {nbytes:,} bytes do not fit: {self._used:,} of {self._total:,} in use")
            self._used += nbytes
        return ToyBuffer(self, nbytes)

    def free(self, buffer: Buffer) -> None:
        with self.lock:
            self._used -= buffer.nbytes

    def copy_in(self, target: Buffer, source: np.ndarray, *, stream: Stream) -> None:
        check_fits(source.nbytes, target.nbytes)
        _content(target)[:source.nbytes] = source
        stream.note(self.copy_in, target, source)

    def copy_out(self, target: np.ndarray, source: Buffer, *, stream: Stream) -> None:
        check_fits(target.nbytes, source.nbytes)
        target[...] = _content(source)[:target.nbytes]
        stream.note(self.copy_out, target, source)

    def copy_across(self, target: Buffer, source: Buffer, *, stream: Stream) -> None:
        check_fits(source.nbytes, target.nbytes)
        _content(target)[:source.nbytes] = _content(source)
        stream.note(self.copy_across, target, source)

    def compiled(self, source: Source, name: str) -> CompiledKernel:
        names: dict[str, object] = {}
        try:
            exec(compile(source.text, source.file, "exec"), names)
        except SyntaxError as error:
            raise CompileError(f"{source.file}, line {error.lineno}: {error.msg}") from error
        kernel = CompiledKernel(self, source, name)
        kernel.function = names[name]
        return kernel

    def check(self, call: PackedLaunch) -> None:
        pass

    def packed(self, kernel: CompiledKernel, arguments: Sequence[LaunchValue]) -> bytes:
        return b"".join(each.value.tobytes() for each in arguments if isinstance(each, Late))

    def start(self, call: PackedLaunch, *, stream: Stream) -> None:
        values = [_content(each) if isinstance(each, Buffer) else each.value if isinstance(each, Late) else each
                  for each in call.arguments]
        for block in product(*map(range, call.grid)):
            call.kernel.function(block, *values)

    def synchronize(self, *, stream: Stream) -> None:
        pass

    def memory(self) -> Memory:
        return Memory(self._used, self._total)

    def close(self) -> None:
        self._is_closed = True


def _content(buffer: Buffer) -> np.ndarray:
    return buffer.bytes


def open_toy(*, memory: int, addresses: Sequence[str], cache_dir: str, shared_limit: int,
             count: int) -> list[ToyDevice]:
    """Open as many toy devices as are asked for, or one."""
    return [ToyDevice(f"toy:{number}", memory=memory, shared_limit=shared_limit) for number in range(count or 1)]
