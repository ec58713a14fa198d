"""Chunks in which kernels move rows of arrays."""

from __future__ import annotations

import math

import numpy as np

from gpu_worker.device.memory.partition import HeldArray

#: By their bytes, what rows are moved in.
_CHUNKS = ((16, "uint4"), (8, "unsigned long long"), (4, "unsigned int"), (2, "unsigned short"), (1, "unsigned char"))


def chunk_of(nbytes: int) -> tuple[int, str]:
    """Return the bytes and the type of the largest chunks that rows of ``nbytes`` bytes consist of."""
    return next((size, name) for size, name in _CHUNKS if nbytes % size == 0)


def row_bytes(array: HeldArray) -> int:
    """Return the bytes of one row of an array."""
    return math.prod(array.field.shape[1:]) * np.dtype(array.field.dtype).itemsize
