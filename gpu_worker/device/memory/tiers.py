"""Tiers of memory for content that may be larger than a device: a fixed share there, the rest in host memory and files.

Where a partition is held is decided once, when it is about to be bound, and never by use: a loop goes over all
partitions in order, so that whatever replaced those used longest ago would replace each before it is used again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np

from gpu_worker.device.base import Device
from gpu_worker.device.memory.host_tier import HostTier
from gpu_worker.device.memory.spill_files import SpillFiles
from gpu_worker.protocol.errors import OutOfMemory
from gpu_worker.protocol.messages import DISK_TIERS, STREAM_BYTES, TIERS

#: How many buffers a device keeps free to stream through: for the partitions of two waves, and for what the kernels of
#: one of them write.
_STREAM_BUFFERS = 3

#: The placements of a plan that use tiers, beside "host" and "device".
PLACES = (TIERS, DISK_TIERS)


class Tiers:
    """Tiers of one session's memory on a node.

    Parameters
    ----------
    stream : int
        The bytes of one of the buffers that a device keeps free to stream through, at most.
    host : int
        The bytes that content may take in host memory for want of room on devices; 0 for half of the machine's.
    spill_dir : str
        The directory of the files for what finds no room there; "" for the system's temporary one.
    pin, unpin : callable
        Make copies to and from host memory as fast as the devices can, and undo it.

    Attributes
    ----------
    is_used : bool
        Whether anything was ever kept below devices.
    placing : Lock
        Held while a partition is placed, until its memory is allocated.
    host : HostTier
        The host memory.
    files : SpillFiles
        The files.

    Examples
    --------
    >>> tiers = Tiers(host=4096)
    >>> tiers.keep(4096, lambda memory: memory.fill(7), place="tiers").sum()
    np.uint64(28672)
    """

    def __init__(self, stream: int = STREAM_BYTES, host: int = 0, spill_dir: str = "",
                 pin: Callable[[np.ndarray], None] = lambda memory: None,
                 unpin: Callable[[np.ndarray], None] = lambda memory: None):
        self._stream = stream
        self.placing = threading.Lock()
        self.is_used = False
        self.host = HostTier(host, pin, unpin)
        self.files = SpillFiles(spill_dir)

    def stream_bytes(self, device: Device) -> int:
        """Return the bytes of a wave on a device: an eighth of the device at most."""
        return min(self._stream, device.memory().total // 8)

    def fits_on(self, device: Device, nbytes: int, missing: int) -> bool:
        """Return whether a device has room for a partition of ``nbytes`` bytes, of which ``missing`` are not there yet,
        beside the buffers that plans stream through; for those three quarters are kept free at most.
        """
        memory = device.memory()
        free = min(_STREAM_BUFFERS * max(self.stream_bytes(device), nbytes), memory.total * 3 // 4)
        return memory.used + missing + free <= memory.total

    def keep(self, nbytes: int, fill: Callable[[np.ndarray], None], *, place: str) -> np.ndarray:
        """Return ``nbytes`` bytes (uint8) that ``fill`` stored, in host memory, or in a file where that has no room and
        ``place`` allows files. They are given back with their last view.

        Raises
        ------
        OutOfMemory
            If neither has room.
        SpillError
            If the directory cannot be written.
        """
        self.is_used = True
        try:
            memory = self.host.take(nbytes)
        except OutOfMemory:
            if place != DISK_TIERS:
                raise
            memory = self.host.take(nbytes, passing=True)
            fill(memory)
            return self.files.write(memory)
        fill(memory)
        return memory

    def reserve(self, nbytes: int, *, place: str) -> np.ndarray:
        """Return ``nbytes`` bytes (uint8) to be written bit by bit, where :meth:`keep` keeps what is there at once.

        Raises
        ------
        OutOfMemory, SpillError
            As :meth:`keep` does.
        """
        self.is_used = True
        try:
            return self.host.take(nbytes)
        except OutOfMemory:
            if place != DISK_TIERS:
                raise
            return self.files.reserve(nbytes)
