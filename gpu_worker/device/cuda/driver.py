"""Bindings of CUDA's driver by cuda-bindings: functions that PyCUDA lacks, and errors with their codes."""

from __future__ import annotations

import logging
import threading
from typing import Any

import numpy as np

from gpu_worker.device.cuda.nvrtc import Cubin

try:
    from cuda.bindings import driver as bindings
    MISSING = ""
except ImportError as _error:
    bindings = None
    MISSING = str(_error)

log = logging.getLogger(__name__)


class DriverError(Exception):
    """A call through cuda-bindings that did not succeed; ``code`` is the name of CUDA's error."""

    def __init__(self, code: str, words: str):
        super().__init__(code, words)
        self.code = code

    def __str__(self) -> str:
        return f"{self.args[0]} ({self.args[1]})"


def check(outcome: tuple[Any, ...]) -> Any:
    """Return the values of a cuda-bindings call; raise DriverError unless its status is success."""
    status = outcome[0]
    # CUDA_SUCCESS is 0: after each launch, the name's look-up would take longer than this.
    if status:
        words = bindings.cuGetErrorString(status)[1]
        raise DriverError(status.name, words.decode() if words else "no words")
    return outcome[1] if len(outcome) > 1 else None


def parameter_layout(cubin: Cubin) -> list[tuple[int, int]]:
    """Return the offset and size in bytes of each of a kernel's parameters.

    PyCUDA does not give its function handles away, so the driver is asked through a library of the same code.
    """
    library = check(bindings.cuLibraryLoadData(cubin.code, [], [], 0, [], [], 0))
    try:
        kernel = check(bindings.cuLibraryGetKernel(library, cubin.symbol.encode()))
        layout: list[tuple[int, int]] = []
        while True:
            status, offset, size = bindings.cuKernelGetParamInfo(kernel, len(layout))
            if status != bindings.CUresult.CUDA_SUCCESS:
                return layout
            layout.append((offset, size))
    finally:
        bindings.cuLibraryUnload(library)


class Pinned:
    """Host memory registered with the driver, for all devices of the process at once, with its number of users."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._users: dict[int, int] = {}

    def add(self, memory: np.ndarray) -> None:
        address = memory.ctypes.data
        with self._lock:
            if address in self._users:
                self._users[address] += 1
                return
            flags = bindings.CU_MEMHOSTREGISTER_PORTABLE
            if not memory.flags.writeable:
                flags |= bindings.CU_MEMHOSTREGISTER_READ_ONLY
            status, = bindings.cuMemHostRegister(address, memory.nbytes, flags)
            if status == bindings.CUresult.CUDA_SUCCESS:
                self._users[address] = 1
            elif status != bindings.CUresult.CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED:
                # Copies are right without it, only slower.
                log.info("%d bytes of host memory were not pinned: %s", memory.nbytes, status.name)

    def remove(self, memory: np.ndarray) -> None:
        address = memory.ctypes.data
        with self._lock:
            users = self._users.pop(address, 0)
            if users > 1:
                self._users[address] = users - 1
            elif users == 1:
                check(bindings.cuMemHostUnregister(address))


#: Of this process.
PINNED = Pinned()
