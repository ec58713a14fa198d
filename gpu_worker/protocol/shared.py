"""Shared memory that is lent between a client and a worker, and values that are captured into it.

An argument that is as large as a payload is fixed when the call is made, in memory that the worker has mapped, so that
it need not be copied once more when it is sent. The memory is used again once nobody has the argument, nor the results
that came behind it, and no request with either is on its way.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from gpu_worker.protocol.payload import Payload

#: Values of at most this many bytes, all together, travel in a message itself.
INLINE_BYTES = 1 << 16


class BufferLease:
    """Lease of shared memory, whose content is the holder's.

    Parameters
    ----------
    payload : Payload
        The memory.
    give : callable
        Takes the memory back when nobody has the lease any more; finalizers may call it, in any thread.
    """

    __slots__ = ("_give", "_is_invalid", "_lock", "payload")

    def __init__(self, payload: Payload, give: Callable[[Payload], None]):
        self.payload = payload
        self._give = give
        self._lock = threading.Lock()
        self._is_invalid = False

    def take(self) -> bool:
        """Reserve the memory for a request; return False if another has it, as results are written to it; :meth:`end`
        must follow.
        """
        return not self._is_invalid and self._lock.acquire(blocking=False)

    def end(self) -> None:
        """Return the memory to its pool: the request is answered, and no reader of its payload is left."""
        self._lock.release()

    def invalidate(self) -> None:
        """Exclude the memory from reuse, because its users are unknown or it is too small; the lease does not return
        it.
        """
        self._is_invalid = True

    def __del__(self) -> None:
        if self._is_invalid:
            self.payload.close()
        else:
            self._give(self.payload)


class Shared:
    """Bytes at the start of a memory, equal to others by content; pickled, they are ``bytes``."""

    __slots__ = ("_nbytes", "lease")

    def __init__(self, lease: BufferLease, nbytes: int):
        self.lease = lease
        self._nbytes = nbytes

    def __len__(self) -> int:
        return self._nbytes

    def __bytes__(self) -> bytes:
        return self.lease.payload.memory[:self._nbytes]

    def __eq__(self, other: object) -> bool:
        return bytes(self) == bytes(other) if isinstance(other, Shared | bytes) else NotImplemented

    def __hash__(self) -> int:
        return hash(bytes(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return bytes, (bytes(self),)


class BufferPool(Protocol):
    """Pool of shared memory that a worker has mapped."""

    def lend(self, size: int) -> BufferLease | None:
        """Return a lease of unused memory of at least ``size`` bytes; None if there is none."""


class _CurrentPool(threading.local):
    """The pool that a thread used last."""

    last: BufferPool | None = None


_pools = _CurrentPool()


def set_current_pool(pool: BufferPool | None) -> None:
    """Let the calling thread capture values into this pool's memory, as it is likely to send them there."""
    _pools.last = pool


# A process that is forked has the same memory.
os.register_at_fork(after_in_child=lambda: set_current_pool(None))


def captured(array: np.ndarray | np.generic) -> bytes | Shared:
    """Return a copy of an array's bytes, in C order: in memory of the pool that the thread prefers, if they are too
    many for a message.
    """
    nbytes = array.nbytes
    if nbytes > INLINE_BYTES and _pools.last is not None:
        lease = _pools.last.lend(nbytes)
        if lease is not None:
            lease.payload.memory[:nbytes] = np.ascontiguousarray(array).data
            return Shared(lease, nbytes)
    return array.tobytes()
