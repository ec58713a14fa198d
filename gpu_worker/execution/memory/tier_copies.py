"""Copies of partitions from devices to the tiers below them, and back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from gpu_worker.device.base import Buffer, Stream
from gpu_worker.device.memory.partition import HeldArray, Partition
from gpu_worker.device.memory.tiers import Tiers
from gpu_worker.protocol.errors import VisparkError
from gpu_worker.protocol.messages import Field
from gpu_worker.protocol.payload import aligned, field_bytes
from gpu_worker.system.failpoints import failpoint

#: Stores content in memory.
Fill = Callable[[np.ndarray], None]


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


def joined(pieces: Sequence[Partition], keep: Callable[[int, Fill], np.ndarray]) -> Partition:
    """Return the partition that pieces in host memory are of, in memory that ``keep`` gives; the pieces are closed.

    Raises
    ------
    OutOfMemory, SpillError
        If there is no room.
    """
    first = pieces[0]
    of_rows = first.piece is not None and first.piece.of_rows
    described = next((piece for piece in pieces if piece.blocks), first)
    count = sum(piece.count for piece in pieces) if first.piece is not None and first.piece.is_counted else first.count
    blocks = [block for piece in pieces for block in piece.blocks]
    groups = list(zip(*blocks, strict=True)) if of_rows else [(array,) for block in blocks for array in block]
    fields = [_concatenated_field(group) if of_rows else group[0].field for group in groups]
    offsets = np.cumsum([0, *[aligned(field_bytes(field)) for field in fields]]).tolist()

    def fill(memory: np.ndarray) -> None:
        for group, start in zip(groups, offsets, strict=False):
            for array in group:
                assert array.host is not None
                memory[start:start + array.nbytes] = array.host
                start += array.nbytes

    memory = keep(offsets[-1], fill)
    arrays = iter([HeldArray(field, host=memory[start:start + field_bytes(field)])
                   for field, start in zip(fields, offsets, strict=False)])
    whole = replace(first, blocks=[tuple([next(arrays) for _ in block]) for block in blocks[:1 if of_rows else None]],
                    keys=None if first.keys is None else first.keys.copy(), piece=None, count=count,
                    layout=described.layout, positions=first.positions if of_rows else
                    [position for piece in pieces for position in piece.positions])
    for piece in pieces:
        piece.close()
    return whole


def _concatenated_field(arrays: Sequence[HeldArray]) -> Field:
    """Return the field of the rows of several arrays."""
    field = arrays[0].field
    return replace(field, shape=(sum(array.field.shape[0] for array in arrays), *field.shape[1:]))


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
    remaining = iter(buffers)
    return _holding(value, [tuple([HeldArray(array.field, buffer=next(remaining)) for array in block])
                            for block in value.blocks], value.tier)


def _holding(value: Partition, blocks: list[tuple[HeldArray, ...]], tier: str) -> Partition:
    """Return a partition to be held, with other blocks than a value's."""
    return Partition(value.index, value.count, None if value.keys is None else value.keys.copy(), value.layout, blocks,
                     value.device, positions=value.positions, tier=tier)
