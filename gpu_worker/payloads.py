"""What a connection keeps of its requests' payloads: the last one's memory, mapped and pinned, for the next."""

from __future__ import annotations

import os

from gpu_worker.device.base import Device
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

    def receive(self, descriptor: int) -> Payload:
        """The memory of a descriptor, mapped, and pinned where it is large; :meth:`done` must follow.

        Raises
        ------
        ProtocolError, OutOfMemory
            As :meth:`Payload.receive`.
        """
        if self._kept is not None and identity(descriptor) == self._kept.identity():
            os.close(descriptor)
            self._current = self._kept
        else:
            self._current = Payload.receive(descriptor)
            if self._current.size >= PIN_FROM:
                self._device.pin(self._current.array)
        return self._current

    def done(self, *, again: bool) -> None:
        """End the use of the last payload; ``again`` says that the client may bring it once more."""
        payload, self._current = self._current, None
        if again and payload.size <= RECYCLED_BYTES:
            payload, self._kept = self._kept if self._kept is not payload else None, payload
        elif payload is self._kept:
            self._kept = None
        self._drop(payload)

    @property
    def any(self) -> bool:
        """Whether memory is kept."""
        return self._kept is not None

    def close(self) -> None:
        """Let go of what is kept. Whoever uses a part of the memory still has it."""
        payload, self._kept = self._kept, None
        self._drop(payload)

    def _drop(self, payload: Payload | None) -> None:
        if payload is not None:
            if payload.size >= PIN_FROM:
                self._device.unpin(payload.array)
            payload.close()
