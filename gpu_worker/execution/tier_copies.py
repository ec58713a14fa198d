"""Copies of partitions from devices to the tiers below them, and back."""

from __future__ import annotations

import numpy as np

from gpu_worker.device.base import Buffer, Stream
from gpu_worker.memory.partition import HeldArray, Partition
from gpu_worker.memory.tiers import Tiers
from gpu_worker.protocol.errors import VisparkError
from gpu_worker.protocol.payload import aligned
from gpu_worker.system.failpoints import failpoint


def copied_below(tiers: Tiers, value: Partition, place: str, stream: Stream) -> Partition:
    """Return a copy of a partition in host memory, or in a file where that has no room and ``place`` allows it; once
    the stream's work is done.

    Raises
    ------
    OutOfMemory, SpillError
        If neither has room.
    """
    arrays = value.arrays
    offsets = np.cumsum([0, *[aligned(array.nbytes) for array in arrays]])

    def fill(memory: np.ndarray) -> None:
        for array, offset in zip(arrays, offsets[:-1].tolist(), strict=True):
            target = memory[offset:offset + array.nbytes]
            if array.host is not None:
                target[:] = array.host
            else:
                assert array.buffer is not None
                value.device.copy_out(target, array.buffer, stream=stream)
        value.device.synchronize(stream=stream)
        failpoint("tier-copied")

    memory = tiers.keep(int(offsets[-1]), fill, place=place)
    copies = iter([HeldArray(array.field, host=memory[offset:offset + array.nbytes])
                   for array, offset in zip(arrays, offsets[:-1].tolist(), strict=True)])
    return _holding(value, [tuple([next(copies) for _ in block]) for block in value.blocks], place)


def copied_to_device(value: Partition, stream: Stream) -> Partition:
    """Return a copy of a partition on its device alone, once the stream's work is done.

    Raises
    ------
    OutOfMemory
        If the device has no room.
    """
    device = value.device
    buffers: list[Buffer] = []
    try:
        for array in value.arrays:
            assert array.host is not None
            buffers.append(device.allocate(array.nbytes, stream=stream))
            device.copy_in(buffers[-1], array.host, stream=stream)
        device.synchronize(stream=stream)
    except VisparkError:
        for buffer in buffers:
            buffer.close()
        raise
    left = iter(buffers)
    return _holding(value, [tuple([HeldArray(array.field, buffer=next(left)) for array in block])
                            for block in value.blocks], value.tier)


def _holding(value: Partition, blocks: list[tuple[HeldArray, ...]], tier: str) -> Partition:
    """Return a partition to be held, with other blocks than a value's."""
    return Partition(value.index, value.count, None if value.keys is None else value.keys.copy(), value.layout, blocks,
                     value.device, positions=value.positions, tier=tier)
