"""Memory pool of a device: taken from and given back to in the order of streams, of which some are being captured."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gpu_worker.device.cuda.driver import bindings, check


class MemoryPool:
    """Pool of a device, which keeps what was freed; frees on a stream under capture wait for the capture's end.

    CUDA refuses to free memory on a stream that is being captured, unless the graph has allocated it.

    Parameters
    ----------
    ordinal : int
        The device's number in this process; its context must be current.
    """

    def __init__(self, ordinal: int):
        self._handle = check(bindings.cuDeviceGetDefaultMemPool(bindings.CUdevice(ordinal)))
        check(bindings.cuMemPoolSetAttribute(
            self._handle, bindings.CUmemPool_attribute.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD,
            bindings.cuuint64_t(2**64 - 1)))
        self._captured: dict[int, list[int]] = {}
        # A collection of garbage meanwhile may free other buffers in this thread.
        self._lock = threading.RLock()

    def let(self, access: Any) -> None:
        """Grant another device access to the pool's memory: ``access`` is a CUmemAccessDesc."""
        check(bindings.cuMemPoolSetAccess(self._handle, [access], 1))

    def trim(self) -> None:
        """Give back to the device what the pool keeps and nobody uses."""
        check(bindings.cuMemPoolTrimTo(self._handle, 0))

    def free(self, address: int, stream: Any) -> None:
        """Free what was allocated on the stream with this handle, at once or after its capture."""
        with self._lock:
            later = self._captured.get(int(stream))
            if later is None:
                check(bindings.cuMemFreeAsync(bindings.CUdeviceptr(address), stream))
            else:
                later.append(address)

    @contextmanager
    def capture(self, stream: Any) -> Iterator[None]:
        """Return a context for the capture of the stream with this handle."""
        later: list[int] = []
        with self._lock:
            self._captured[int(stream)] = later
        try:
            yield
        finally:
            with self._lock:
                del self._captured[int(stream)]
                for address in later:
                    self.free(address, stream)
