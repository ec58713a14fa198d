"""Tiers of memory for content that may be larger than a device: a fixed share there, the rest in host memory.

Where a partition is held is decided once, when it is about to be bound, and never by use: a loop goes over all
partitions in order, so that whatever replaced those used longest ago would replace each before it is used again.
"""

from __future__ import annotations

import threading

from gpu_worker.device.base import Device

#: The name of this placement in a plan, beside "host" and "device".
TIERS = "tiers"

#: The bytes of one of the buffers that a device keeps free to stream through, at most, and how many there are: for the
#: partitions of two waves, and for what the kernels of one of them write.
STREAM_BYTES = 64 << 20
_STREAM_BUFFERS = 3

#: Held while a partition is placed, until its memory is allocated.
placing = threading.Lock()


def stream_bytes(device: Device) -> int:
    """Return the bytes of a wave on a device: an eighth of the device at most."""
    return min(STREAM_BYTES, device.memory().total // 8)


def fits_on(device: Device, nbytes: int, missing: int) -> bool:
    """Return whether a device has room for a partition of ``nbytes`` bytes, of which ``missing`` are not there yet,
    beside the buffers that plans stream through; for those three quarters are kept free at most.
    """
    memory = device.memory()
    free = min(_STREAM_BUFFERS * max(stream_bytes(device), nbytes), memory.total * 3 // 4)
    return memory.used + missing + free <= memory.total
