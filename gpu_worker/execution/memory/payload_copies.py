"""Copies between a request's payload and devices, which each replay of a plan makes anew.

Large values come in a payload and large results go back in it, and the next pass may bring another one. What is noted
of a plan has its addresses for good, so these copies are no part of it: they are enqueued before it and behind it,
straight from the payload and straight to it. A copy takes longer to enqueue than a few kilobytes to store where the
recorded copies take them from: so values of at most :data:`~gpu_worker.protocol.payload.INLINE_BYTES` go that way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from gpu_worker.device.base import Buffer, Stream
from gpu_worker.protocol.payload import Payload


class RequestValues(Protocol):
    """Interface of a request's slot values: the bytes of each slot."""

    def data(self, slot: int) -> np.ndarray: ...


@dataclass(frozen=True)
class Result:
    """Result of a plan in a device buffer; the slices ``looked_at`` of it are also copied to ``host`` and read there.
    """

    stream: Stream
    buffer: Buffer
    host: np.ndarray
    looked_at: tuple[slice, ...]


class PayloadCopies:
    """Payload copies of one recorded plan; each pass is complete before its payload is reused."""

    def __init__(self) -> None:
        self.values: list[tuple[int, Buffer, Stream]] = []
        self.result: Result | None = None

    def upload(self, slot: int, buffer: Buffer, data: np.ndarray, stream: Stream) -> None:
        """Copy a value to its buffer, now and before each further pass."""
        self.values.append((slot, buffer, stream))
        with stream.unnoted():
            buffer.device.copy_in(buffer, data, stream=stream)

    def take(self, buffer: Buffer, host: np.ndarray, looked_at: Sequence[np.ndarray], stream: Stream) -> None:
        """Copy a result out, now to ``host`` and after each further pass to its payload.

        ``looked_at`` are the parts of ``host`` that are read before it is answered with.
        """
        start = _address(host)
        parts = tuple([slice(_address(part) - start, _address(part) - start + part.nbytes) for part in looked_at])
        self.result = Result(stream, buffer, host, parts)
        with stream.unnoted():
            buffer.device.copy_out(host, buffer, stream=stream)

    def begin(self, values: RequestValues) -> None:
        """Start a pass: enqueue the copies of its values."""
        for slot, buffer, stream in self.values:
            buffer.device.copy_in(buffer, values.data(slot), stream=stream)

    def end(self, payload: Payload | None, offset: int) -> np.ndarray | None:
        """Enqueue the copy of the result to ``offset`` of the payload, or to ``host`` if there is no room; return the
        destination.

        None where there is no result to be copied.
        """
        result = self.result
        if result is None:
            return None
        place = result.host
        if payload is not None and 0 <= offset <= payload.size - place.nbytes:
            place = payload.view(offset, place.nbytes)
        result.buffer.device.copy_out(place, result.buffer, stream=result.stream)
        return place

    def placed(self, place: np.ndarray | None) -> int:
        """Return the number of result bytes that lie in the payload, once the copy is made; the slices that the host
        reads are copied to ``host``.
        """
        result = self.result
        if result is None or place is None or place is result.host:
            return 0
        for part in result.looked_at:
            result.host[part] = place[part]
        return place.nbytes


def _address(array: np.ndarray) -> int:
    return int(array.ctypes.data)
