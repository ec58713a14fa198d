"""Chunked upload of a partition to a device: one piece is copied there while the next is packed.

The pieces lie in two places of one small memory, in turn, which both sides keep mapped: new memory of a partition's
size would cost a fault for each page, on both sides, which takes longer than the copies. A mark of each place, which is
set when a piece goes out, is cleared behind its copy, in many cases by the device itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from gpu_worker.client.connection import Client, failpoint
from gpu_worker.protocol.messages import Chunk, Run
from gpu_worker.protocol.payload import MARK_BYTES, Payload

#: Bytes of a piece: so many that messages cost little beside its copy, so few that its memory stays in a cache.
PIECE_BYTES = 8 << 20

#: How many pieces there is room for: while one is copied, the next is packed.
PLACES = 2

#: Bytes of a partition's blocks from which it goes in pieces.
PIECES_FROM = 2 * PIECE_BYTES

#: The memory for the pieces, with the marks behind them, begins at multiples of this.
_STEP = 1 << 16

#: Arrays that do not lie one row behind the other are put so in parts of this many bytes.
_PART_BYTES = 1 << 19


class Pieces:
    """File-like writer that uploads its content, from first to last, to the worker.

    Parameters
    ----------
    client : Client
        A connection to the worker, which has nothing else to do until :meth:`finish`.
    request : Run
        The request that follows.
    memory : Payload
        Shared memory.
    start : int
        Where in it there is room for the pieces; see :func:`chunk_space`.
    """

    def __init__(self, client: Client, request: Run, memory: Payload, start: int):
        self._client = client
        self._memory = memory
        self._start = start
        marks = start + PLACES * PIECE_BYTES
        self._marks = memory.view(marks, PLACES * MARK_BYTES).view(np.int64)
        self._marks[:] = 0
        self._piece = Chunk(0, request.epoch, request.key, request.plan, 0, PIECE_BYTES, start, marks,
                            next(iter(request.vrdds), 0))
        #: The number of the place of the piece that is being packed.
        self._turn = 0

    def put(self, offset: int, array: np.ndarray) -> None:
        """Copy an array's bytes to ``offset``, behind all before, in C order."""
        for data in _flat(array):
            while data.nbytes:
                self._reach(offset)
                within = offset - self._piece.offset
                part = data[:PIECE_BYTES - within]
                self._wait()
                self._memory.put(self._piece.place + within, part)
                data, offset = data[part.nbytes:], offset + part.nbytes
        self._reach(offset)

    def finish(self, size: int) -> None:
        """Send the rest of ``size`` bytes; the request that follows waits for all pieces."""
        self._reach(size)
        if size > self._piece.offset:
            self._send(size - self._piece.offset)

    def _reach(self, offset: int) -> None:
        """Send pieces until the one that is being packed has the byte at ``offset``."""
        while offset >= self._piece.offset + PIECE_BYTES:
            self._send(PIECE_BYTES)

    def _send(self, nbytes: int) -> None:
        """Send the piece that was packed, and go on to the next place."""
        self._wait()
        piece = self._piece
        self._marks[self._turn] = 1
        self._client.send(replace(piece, number=self._client.next_number(), nbytes=nbytes),
                          [] if piece.offset else [self._memory.descriptor])
        failpoint("piece-sent")
        self._turn = (self._turn + 1) % PLACES
        if not self._turn:
            self._memory.used = True
        self._piece = replace(piece, plan=b"", offset=piece.offset + nbytes,
                              place=self._start + self._turn * PIECE_BYTES,
                              mark=self._start + PLACES * PIECE_BYTES + self._turn * MARK_BYTES)

    def _wait(self) -> None:
        """Wait until the place of the piece that is being packed is free."""
        if self._marks[self._turn]:
            self._client.wait_until(lambda: not self._marks[self._turn])


def chunk_space(size: int) -> tuple[int, int]:
    """Return the offset of the upload pieces in a memory, behind ``size`` bytes of other content, and the memory's
    total size.
    """
    start = -(-size // _STEP) * _STEP
    return start, start + PLACES * (PIECE_BYTES + MARK_BYTES)


def _flat(array: np.ndarray) -> Iterator[np.ndarray]:
    """Yield an array's bytes, in C order."""
    if array.flags.c_contiguous or not array.size:
        yield np.asarray(array).reshape(-1).view(np.uint8)
        return
    rows = max(1, _PART_BYTES * len(array) // array.nbytes)
    for first in range(0, len(array), rows):
        yield np.ascontiguousarray(array[first:first + rows]).reshape(-1).view(np.uint8)
