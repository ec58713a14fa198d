"""Memory for rows of new partitions."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from gpu_worker.device.base import CountedPart, Device, Stream
from gpu_worker.device.memory.partition import HeldArray
from gpu_worker.execution.memory.scratch import Scratch
from gpu_worker.protocol.messages import Field
from gpu_worker.protocol.payload import field_bytes

#: The bytes to which the memory of new partitions is aligned.
_ALIGNED = 256


def arrays_of_rows(described: Field, counts: Sequence[int], device: Device, stream: Stream,
                   scratch: Scratch) -> list[HeldArray]:
    """Return an array like a field with memory for each number of rows, all in one buffer.

    Raises
    ------
    OutOfMemory
        If the device has no room.
    """
    if not counts:
        return []
    name, dtype, of_row = described.name, described.dtype, described.shape[1:]
    row = field_bytes(Field(name, dtype, (1, *of_row)))
    places = [0, *accumulate([-(-rows * row // _ALIGNED) * _ALIGNED for rows in counts])]
    whole = scratch.allocate(places[-1], device, stream)
    held = [HeldArray(Field(name, dtype, (rows, *of_row)), buffer=CountedPart(whole, place, rows * row))
            for rows, place in zip(counts, places, strict=False)]
    whole.close()
    return held
