"""A partition that comes in pieces, ahead of the plan that starts from it.

While a client packs a piece, the one before is copied to the device, and the memory that both share is of two pieces'
size. What has come has no name and belongs to the connection that it came by: it goes with that, or when something else
comes in its place.
"""

from __future__ import annotations

import time

from gpu_worker.device.base import Buffer, Device
from gpu_worker.failpoints import failpoint
from gpu_worker.grid.patches import device_for
from gpu_worker.plans import Prepared
from gpu_worker.protocol.errors import PlanError, ProtocolError, VisparkError
from gpu_worker.protocol.messages import Input, Piece, Plan, Put, Signature
from gpu_worker.protocol.payload import Data, aligned, field_bytes, field_offsets
from gpu_worker.streams import StreamPool, Streams


class Intake:
    """The blocks of the partition that a plan will start from, on their device, as far as they have come.

    Parameters
    ----------
    key : bytes
        The plan's digest.
    prepared : Prepared
        The plan.
    pool : StreamPool
        Devices and streams.

    Attributes
    ----------
    seconds : float
        What the copies took.

    Raises
    ------
    PlanError
        If the plan does not start from the records of one partition.
    OutOfMemory
        If the device has no room for the blocks.
    """

    def __init__(self, key: bytes, prepared: Prepared, pool: StreamPool):
        plan = prepared.plan
        if not plan.steps or not isinstance(plan.steps[0], Put) or len(plan.inputs) != 1:
            raise PlanError("a plan whose records come in pieces starts with Put, and has one partition")
        self.key = key
        self.prepared = prepared
        self.seconds = 0.0
        self._streams = Streams(pool, lanes=1)
        self._device = device_of(plan, plan.inputs[0], self._streams)
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
        stream = self._streams.main(self._device)
        for signature in signatures:
            for described, start in field_offsets(signature, self._whole):
                self._buffers.append(self._device.allocate(field_bytes(described), stream=stream))
                self._starts.append(start)
                self._whole = aligned(start + self._buffers[-1].nbytes)

    @property
    def is_complete(self) -> bool:
        """Whether all pieces have come."""
        return self._came == self._whole

    def take(self, piece: Piece, payload: Data) -> None:
        """Copy a piece to the device; the memory that it lies in may be written to again then.

        Raises
        ------
        ProtocolError
            If it is not the next one, or there are no such bytes.
        """
        stop = piece.offset + piece.nbytes
        if piece.offset != self._came or not self._came < stop <= self._whole:
            raise ProtocolError(f"a piece has bytes {piece.offset} to {stop} of a partition of {self._whole}, of which "
                                f"{self._came} have come")
        started, stream = time.monotonic(), self._streams.main(self._device)
        given = payload.view(piece.place, piece.nbytes)
        while self._filled < len(self._buffers):
            buffer, start = self._buffers[self._filled], self._starts[self._filled]
            first, last = max(start, piece.offset), min(start + buffer.nbytes, stop)
            if first < last:
                self._device.copy_in(buffer.part(first - start, last - first),
                                     given[first - piece.offset:last - piece.offset], stream=stream)
            if start + buffer.nbytes > stop:
                break
            self._filled += 1
        # Who looks whether it is copied takes a processor from a task that packs.
        self._device.synchronize_asleep(stream=stream)
        self._came = stop
        self.seconds += time.monotonic() - started
        failpoint("piece-copied")

    def release(self) -> list[Buffer]:
        """The buffers of the blocks' fields, in order, now the caller's."""
        buffers, self._buffers = self._buffers, []
        return buffers

    def close(self) -> None:
        """Give back what nobody took."""
        self._streams.settle()
        for buffer in self.release():
            buffer.close()
        self._streams.close()


def device_of(plan: Plan, part: Input, streams: Streams) -> Device:
    """The device of a partition that a plan brings."""
    if plan.grid is None:
        return streams.place(part.partition, plan.devices)
    return device_for(plan.grid, part.positions, streams.among(plan.devices))
