"""Per-connection cache of payload memory, mapped and pinned, and of uploaded blocks whose plan is still to come."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Hashable

from gpu_worker.device.base import Device
from gpu_worker.execution.plans.chunked_input import ChunkedInput
from gpu_worker.execution.scheduling.streams import PIN_FROM, StreamPool
from gpu_worker.protocol.errors import ProtocolError
from gpu_worker.protocol.messages import Chunk, Run
from gpu_worker.protocol.payload import KEPT_MEMORIES, RECYCLED_BYTES, Payload, identity

#: How long a connection may be silent before its memory is let go of, in seconds.
KEPT_SECONDS = 2.0


class Payloads:
    """Cache of the payloads of one connection.

    A client that fills the same memory again and again spares both sides its pages' faults and their pinning, which
    take longer than the copies themselves.

    Parameters
    ----------
    device : Device or StreamPool
        What memory is pinned with.
    """

    def __init__(self, device: Device | StreamPool):
        self._device = device
        self._current: tuple[Hashable, Payload] | None = None
        #: By number, or by what descriptors of it have in common; the one that was used last is the last.
        self._kept: OrderedDict[Hashable, Payload] = OrderedDict()
        self._chunked: ChunkedInput | None = None

    def receive(self, descriptor: int, number: int = 0) -> Payload:
        """Return the memory of a descriptor, mapped, and pinned if it is large; :meth:`done` must follow.

        It may come again under its ``number``, unless that is 0.

        Raises
        ------
        ProtocolError, OutOfMemory
            As :meth:`Payload.receive`.
        """
        memory = identity(descriptor)
        name = number or memory
        if name in self._kept:
            if self._kept[name].identity == memory:
                os.close(descriptor)
                return self._again(name)
            self._drop(self._kept.pop(name))
        payload = Payload.receive(descriptor)
        self._current = name, payload
        if payload.size >= PIN_FROM:
            self._pin(payload)
        return payload

    def find(self, number: int) -> Payload | None:
        """Return the cached memory of a number, if it is still mapped; :meth:`done` must follow then."""
        return self._again(number) if number in self._kept else None

    def _again(self, name: Hashable) -> Payload:
        payload = self._kept[name]
        self._current = name, payload
        self._pin(payload)      # which pays now that it comes again, whatever its size
        return payload

    def _pin(self, payload: Payload) -> None:
        if not payload.pinned:
            self._device.pin(payload.array)
            payload.pinned = True

    def done(self, *, again: bool) -> None:
        """End the use of the last payload; ``again`` says that the client may send it once more."""
        assert self._current is not None
        (name, payload), self._current = self._current, None
        # Of blocks that come in pieces there are more to come.
        if again and (payload.size <= RECYCLED_BYTES or self._chunked is not None):
            self._kept[name] = payload
            self._kept.move_to_end(name)
            most = KEPT_MEMORIES if isinstance(name, int) else 1
            while len(self._kept) > most or (len(self._kept) > 1 and self._kept_bytes > RECYCLED_BYTES):
                self._drop(self._kept.popitem(last=False)[1])
        else:
            self._kept.pop(name, None)
            self._drop(payload)

    @property
    def _kept_bytes(self) -> int:
        return sum([payload.size for payload in self._kept.values()])

    @property
    def any(self) -> bool:
        """Whether memory is cached."""
        return bool(self._kept)

    @property
    def in_pieces(self) -> bool:
        """Whether a partition is being uploaded in pieces, ahead of its plan."""
        return self._chunked is not None

    @property
    def in_pieces_aside(self) -> bool:
        """Whether a partition is being uploaded whose copies go on without this thread."""
        return self._chunked is not None and self._chunked.device.asynchronous

    def begin(self, descriptor: int, begun: Callable[[Payload], ChunkedInput]) -> None:
        """Begin the upload of a partition in pieces, which lie in this memory.

        Raises
        ------
        ProtocolError, OutOfMemory
            As :meth:`Payload.receive`.
        """
        self.drop()
        memory = self.receive(descriptor)
        try:
            self._chunked = begun(memory)
        finally:
            self.done(again=True)

    def take(self, piece: Chunk) -> None:
        """Add a piece to the partition that is being uploaded.

        Raises
        ------
        ProtocolError
            If it is not the next one.
        """
        if self._chunked is None or self._chunked.key != piece.key:
            raise ProtocolError(f"a piece came from byte {piece.offset} on without those before it")
        self._chunked.take(piece)

    def blocks(self, request: Run) -> ChunkedInput | None:
        """Return the uploaded blocks that a plan starts from, all copied; close those of other partitions.

        Raises
        ------
        ProtocolError
            If not all of them came.
        """
        if not request.pieces:
            self.drop()
        elif self._chunked is None or self._chunked.key != request.key or not self._chunked.is_complete:
            raise ProtocolError("a plan came without all pieces of the partition that it starts from")
        else:
            self._chunked.wait()
        return self._chunked

    def drop(self) -> None:
        """Close uploaded blocks, except those that a plan took."""
        chunked, self._chunked = self._chunked, None
        if chunked is not None:
            chunked.close()

    def close(self) -> None:
        """Close all memory."""
        self.drop()
        self.rest()

    def rest(self) -> None:
        """Close the cached memory, unless an upload is in progress in it; views of it stay valid.

        Raises
        ------
        KernelFault
            If pieces can be copied no more, which nobody else may wait for.
        """
        if self._chunked is not None:
            self._chunked.wait()
            return
        while self._kept:
            self._drop(self._kept.popitem()[1])

    def _drop(self, payload: Payload) -> None:
        if payload.pinned:
            self._device.unpin(payload.array)
            payload.pinned = False
        payload.close()
