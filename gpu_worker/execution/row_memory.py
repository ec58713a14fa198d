"""Memory for rows of new partitions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gpu_worker.device.base import CountedPart, Device, Stream
from gpu_worker.device.memory.partition import HeldArray
from gpu_worker.execution.scratch import Scratch
from gpu_worker.protocol.messages import Field

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
    held = [HeldArray(replace(described, shape=(rows, *described.shape[1:]))) for rows in counts]
    places = np.cumsum([0, *[-(-each.nbytes // _ALIGNED) * _ALIGNED for each in held]]).tolist()
    if held:
        whole = scratch.allocate(places[-1], device, stream)
        for array, place in zip(held, places[:-1], strict=True):
            array.buffer = CountedPart(whole, place, array.nbytes)
        whole.close()
    return held
