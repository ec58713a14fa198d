"""Chunked input: a partition that arrives in pieces, ahead of the plan that starts from it.

While a client packs a piece, the one before is copied to the device, and the memory that both share is of two pieces'
size. A piece is only handed to the device: behind it, the device itself tells the client that it is copied, by a mark
in that memory, since many threads that wait, wake and answer would take longer than the copies, one at a time as they
hold the interpreter's lock. What has come has no name and belongs to the connection that it came by: it goes with that,
or when something else comes in its place.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from gpu_worker.device.base import Buffer
from gpu_worker.execution.plans.plan_cache import DecodedPlan
from gpu_worker.execution.scheduling.placement import device_of
from gpu_worker.execution.scheduling.streams import StreamPool, Streams
from gpu_worker.protocol.errors import PlanError, ProtocolError, VisparkError
from gpu_worker.protocol.messages import Chunk, Signature
from gpu_worker.protocol.payload import MARK_BYTES, Data, aligned, field_bytes, field_offsets
from gpu_worker.system.failpoints import failpoint


class ChunkedInput:
    """Blocks of a partition, on their device, that arrive in pieces ahead of their plan.

    Parameters
    ----------
    key : bytes
        The plan's digest.
    prepared : DecodedPlan
        The plan.
    pool : StreamPool
        Devices and streams.
    memory : Data
        Where the pieces lie, until :meth:`wait` or :meth:`close`.
    vrdd : int
        The first VRDD that the plan keeps, or 0.
    leave : callable
        Called once: when it is closed, or could not be made.

    Attributes
    ----------
    device : Device
        Where the blocks will be.
    seconds : float
        What it took to hand the pieces to the device, and to wait for those that were not copied when the plan came.

    Raises
    ------
    PlanError
        If the plan does not start from the records of one partition.
    OutOfMemory
        If the device has no room for the blocks.
    """

    def __init__(self, key: bytes, prepared: DecodedPlan, pool: StreamPool, memory: Data, vrdd: int = 0,
                 leave: Callable[[], None] = lambda: None):
        plan = prepared.plan
        self._leave = leave
        if not any(step.brings_records for step in prepared.steps[:1]) or len(plan.inputs) != 1:
            self._leave()
            raise PlanError("a plan whose records come in pieces starts with Put, and has one partition")
        self.key = key
        self.prepared = prepared
        self.seconds = 0.0
        self._memory = memory
        self._streams = Streams(pool, side_streams=1)
        self.device = device_of(plan, plan.inputs[0], self._streams, vrdd)
        #: Zeros, to clear marks with; none until there is memory for them.
        self._zeros: list[Buffer] = []
        self._buffers: list[Buffer] = []
        #: Where each buffer's bytes begin among those of the blocks.
        self._starts: list[int] = []
        self._whole = 0
        #: How many bytes have come, and how many buffers they filled.
        self._came, self._filled = 0, 0
        try:
            self._allocate([plan.variants[variant].signature for variant in plan.inputs[0].blocks])
        except VisparkError:
            self.close()
            raise

    def _allocate(self, signatures: list[Signature]) -> None:
        stream = self._streams.main(self.device)
        self._zeros.append(self.device.allocate(MARK_BYTES, stream=stream))
        self.device.copy_in(self._zeros[0], np.zeros(MARK_BYTES, np.uint8), stream=stream)
        for signature in signatures:
            for described, start in field_offsets(signature, self._whole):
                self._buffers.append(self.device.allocate(field_bytes(described), stream=stream))
                self._starts.append(start)
                self._whole = aligned(start + self._buffers[-1].nbytes)

    @property
    def is_complete(self) -> bool:
        """Whether all pieces have arrived."""
        return self._came == self._whole

    def take(self, piece: Chunk) -> None:
        """Enqueue the copy of a piece to the device, and the clearing of its mark.

        Raises
        ------
        ProtocolError
            If it is not the next one, or there are no such bytes.
        """
        stop = piece.offset + piece.nbytes
        if piece.offset != self._came or not self._came < stop <= self._whole:
            raise ProtocolError(f"a piece has bytes {piece.offset} to {stop} of a partition of {self._whole}, of which "
                                f"{self._came} have come")
        started, stream = time.monotonic(), self._streams.main(self.device)
        data, mark = self._memory.view(piece.place, piece.nbytes), self._memory.view(piece.mark, MARK_BYTES)
        while self._filled < len(self._buffers):
            buffer, start = self._buffers[self._filled], self._starts[self._filled]
            first, last = max(start, piece.offset), min(start + buffer.nbytes, stop)
            if first < last:
                self.device.copy_in(buffer.part(first - start, last - first),
                                     data[first - piece.offset:last - piece.offset], stream=stream)
            if start + buffer.nbytes > stop:
                break
            self._filled += 1
        self.device.copy_out(mark, self._zeros[0], stream=stream)
        self._came = stop
        self.seconds += time.monotonic() - started
        failpoint("piece-taken")

    def wait(self) -> None:
        """Wait until the pieces that have arrived are copied.

        Raises
        ------
        KernelFault
            If a kernel of this process has failed.
        """
        started = time.monotonic()
        # Who looks whether it is copied takes a processor from a task that packs.
        self.device.synchronize_asleep(stream=self._streams.main(self.device))
        self.seconds += time.monotonic() - started

    def release(self) -> list[Buffer]:
        """Return the buffers of the blocks' fields, in order; the caller owns them."""
        buffers, self._buffers = self._buffers, []
        return buffers

    def close(self) -> None:
        """Close the buffers that no plan took."""
        self._streams.drain()
        for buffer in (*self._zeros, *self.release()):
            buffer.close()
        self._streams.close()
        leave, self._leave = self._leave, lambda: None
        leave()
