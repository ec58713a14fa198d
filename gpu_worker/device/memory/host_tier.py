"""Host memory for content that devices have no room for: within a budget, in large pages, and pinned for copies."""

from __future__ import annotations

import logging
import mmap
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np

from gpu_worker.device.host.memory import host_memory
from gpu_worker.protocol.errors import OutOfMemory, VisparkError
from gpu_worker.protocol.system import system_call

log = logging.getLogger(__name__)

#: Smaller memory is copied faster than it is pinned.
PIN_FROM = 4 << 20


class HostTier:
    """Budget of host memory of one session.

    Parameters
    ----------
    limit : int
        The most bytes that are taken at once; 0 for half of what the machine, or the process's container, has.
    pin, unpin : callable
        Make copies to and from memory as fast as the devices can, and undo it.

    Attributes
    ----------
    used : int
        The bytes that are taken.

    Examples
    --------
    >>> tier = HostTier(4096)
    >>> memory = tier.take(3000)
    >>> tier.used
    3000
    >>> del memory
    >>> tier.used
    0
    """

    def __init__(self, limit: int = 0, pin: Callable[[np.ndarray], None] = lambda memory: None,
                 unpin: Callable[[np.ndarray], None] = lambda memory: None):
        self.limit = limit or host_memory() // 2
        self.used = 0
        self.pin, self._unpin = pin, unpin
        # The collector may end memory while a thread is here.
        self._lock = threading.RLock()

    def take(self, nbytes: int, *, passing: bool = False) -> np.ndarray:
        """Return ``nbytes`` bytes of zeros (uint8), which are given back with their last view.

        ``passing`` memory, on the way to a file, is neither counted nor pinned.

        Raises
        ------
        OutOfMemory
            If the budget, or the machine, has no room for them.
        """
        if not nbytes:
            return np.empty(0, np.uint8)
        if passing:
            return np.asarray(_TierMemory(nbytes))
        with self._lock:
            if self.used + nbytes > self.limit:
                raise OutOfMemory(
                    f"host memory for what devices have no room for: {nbytes:,} bytes do not fit, {self.used:,} of "
                    f"{self.limit:,} are in use: set spark.vispark.hostMemory to more, where the node has it, or keep "
                    "it with persist(\"GPU_HOST_AND_DISK\")")
            self.used += nbytes
        try:
            memory = _TierMemory(nbytes)
        except VisparkError:
            self._give(nbytes)
            raise
        memory.owner = self
        array = np.asarray(memory)
        if nbytes >= PIN_FROM:
            self.pin(array)
        return array

    def give_back(self, memory: np.ndarray) -> None:
        """Take back memory that nobody uses any more."""
        if memory.nbytes >= PIN_FROM:
            try:
                self._unpin(memory)
            except VisparkError as error:       # of a device that failed: the process is about to end
                log.info("host memory was not unpinned: %s", error.message)
        self._give(memory.nbytes)

    def _give(self, nbytes: int) -> None:
        with self._lock:
            self.used -= nbytes


class _TierMemory:
    """Anonymous memory that its owner is told of when its last view is gone."""

    owner: HostTier | None = None

    def __init__(self, nbytes: int):
        with system_call(f"host memory of {nbytes:,} bytes", OutOfMemory):
            self._memory = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        with suppress(OSError):     # a kernel without large pages
            self._memory.madvise(mmap.MADV_HUGEPAGE)
        self._array: np.ndarray = np.frombuffer(self._memory, np.uint8)

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return self._array.__array_interface__

    def __del__(self) -> None:
        if self.owner is not None:
            self.owner.give_back(self._array)
