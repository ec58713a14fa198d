"""What a connection keeps for its next request: the last payload's memory, mapped and pinned, and blocks whose plan
is still to come.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from gpu_worker.device.base import Device
from gpu_worker.intake import Intake
from gpu_worker.protocol.errors import ProtocolError
from gpu_worker.protocol.messages import Piece, Run
from gpu_worker.protocol.payload import RECYCLED_BYTES, Payload, identity
from gpu_worker.streams import PIN_FROM

#: How long a connection may be silent before its memory is let go of, in seconds.
KEPT_SECONDS = 2.0


class Payloads:
    """The payloads that come by one connection.

    A client that fills the same memory again and again spares both sides its pages' faults and their pinning, which
    take longer than the copies themselves.

    Parameters
    ----------
    device : Device
        The one that memory is pinned with.
    """

    def __init__(self, device: Device):
        self._device = device
        self._current: Payload | None = None
        self._kept: Payload | None = None
        self._intake: Intake | None = None

    def receive(self, descriptor: int) -> Payload:
        """The memory of a descriptor, mapped, and pinned where it is large; :meth:`done` must follow.

        Raises
        ------
        ProtocolError, OutOfMemory
            As :meth:`Payload.receive`.
        """
        if self._kept is not None and identity(descriptor) == self._kept.identity:
            os.close(descriptor)
            self._current = self._kept
            self._pin(self._current)        # which pays now that it comes again, whatever its size
        else:
            self._current = Payload.receive(descriptor)
            if self._current.size >= PIN_FROM:
                self._pin(self._current)
        return self._current

    def _pin(self, payload: Payload) -> None:
        if not payload.pinned:
            self._device.pin(payload.array)
            payload.pinned = True

    def done(self, *, again: bool) -> None:
        """End the use of the last payload; ``again`` says that the client may bring it once more."""
        payload, self._current = self._current, None
        # Of blocks that come in pieces there are more to come.
        if again and (payload.size <= RECYCLED_BYTES or self._intake is not None):
            payload, self._kept = self._kept if self._kept is not payload else None, payload
        elif payload is self._kept:
            self._kept = None
        self._drop(payload)

    @property
    def any(self) -> bool:
        """Whether memory is kept."""
        return self._kept is not None

    @property
    def in_pieces(self) -> bool:
        """Whether a partition comes in pieces whose plan is still to come."""
        return self._intake is not None

    @property
    def in_pieces_aside(self) -> bool:
        """Whether one does whose copies go on by themselves."""
        return self._intake is not None and self._intake.device.asynchronous

    def begin(self, descriptor: int, begun: Callable[[Payload], Intake]) -> None:
        """Have the pieces of a partition come, which lie in this memory.

        Raises
        ------
        ProtocolError, OutOfMemory
            As :meth:`Payload.receive`.
        """
        self.drop()
        memory = self.receive(descriptor)
        try:
            self._intake = begun(memory)
        finally:
            self.done(again=True)

    def take(self, piece: Piece) -> None:
        """Add a piece to the blocks that come so.

        Raises
        ------
        ProtocolError
            If it is not the next one.
        """
        if self._intake is None or self._intake.key != piece.key:
            raise ProtocolError(f"a piece came from byte {piece.offset} on without those before it")
        self._intake.take(piece)

    def blocks(self, request: Run) -> Intake | None:
        """The blocks that a plan starts from, where they came in pieces, all copied; others go.

        Raises
        ------
        ProtocolError
            If not all of them came.
        """
        if not request.pieces:
            self.drop()
        elif self._intake is None or self._intake.key != request.key or not self._intake.is_complete:
            raise ProtocolError("a plan came without all pieces of the partition that it starts from")
        else:
            self._intake.wait()
        return self._intake

    def drop(self) -> None:
        """Let go of blocks that came in pieces, but for what a plan took of them."""
        intake, self._intake = self._intake, None
        if intake is not None:
            intake.close()

    def close(self) -> None:
        """Let go of everything."""
        self.drop()
        self.rest()

    def rest(self) -> None:
        """Let go of the memory that is kept, unless pieces lie in it. Whoever uses a part of it still has that.

        Raises
        ------
        KernelFault
            If pieces can be copied no more, which nobody else may wait for.
        """
        if self._intake is not None:
            self._intake.wait()
            return
        payload, self._kept = self._kept, None
        self._drop(payload)

    def _drop(self, payload: Payload | None) -> None:
        if payload is not None:
            if payload.pinned:
                self._device.unpin(payload.array)
                payload.pinned = False
            payload.close()
