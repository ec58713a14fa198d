"""Records in shared memory: a memfd that one side fills and the other maps.

A payload holds partitions one after another, each as the blob of its keys followed by its blocks' fields in the order
of their signatures, all aligned to :data:`ALIGNMENT` bytes. It is sealed against shrinking before it is passed on, so
that no peer can pull the pages from under a reader.
"""

from __future__ import annotations

import contextlib
import fcntl
import math
import mmap
import os
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Protocol

import numpy as np

from gpu_worker.protocol.errors import OutOfMemory, ProtocolError
from gpu_worker.protocol.messages import Field, Signature
from gpu_worker.protocol.system import new_memfd, refused, system_call

ALIGNMENT = 256
#: Results of at most this many bytes travel in the reply itself.
INLINE_BYTES = 64 << 10
#: A fold of more bytes is copied straight to the memory of further requests for it: for a reply it would be copied,
#: packed and looked at.
PLACED_FROM = 8 << 10
#: A payload of at most this many bytes is used again for the next request, by both sides.
RECYCLED_BYTES = 512 << 20
#: How many numbered memories a worker keeps for a connection: while somebody has the answer that lies in one, the next
#: request fills another.
KEPT_MEMORIES = 2
#: For how many seconds after it sent a request a client takes it that they are still kept.
MAPPED_SECONDS = 1.0
#: Bytes that tell whether a piece of a partition is copied; see :class:`~gpu_worker.protocol.messages.Chunk`.
MARK_BYTES = 8
#: Bytes from which an array is written rather than stored.
WRITE_FROM = 1 << 16
#: MADV_POPULATE_WRITE, of Linux 5.14 on.
_POPULATE_WRITE = 23
#: F_SEAL_FUTURE_WRITE, of Linux 5.1 on: mappings that there are may go on writing, and none is added.
FUTURE_WRITE = 0x10
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


def aligned(offset: int) -> int:
    """Return the next offset at which a field may start."""
    return -(-offset // ALIGNMENT) * ALIGNMENT


def field_bytes(field: Field) -> int:
    """Return the bytes of a field's elements."""
    return math.prod(field.shape) * np.dtype(field.dtype).itemsize


def block_bytes(signature: Signature) -> int:
    """Return the bytes of a block in a payload, from its first field's start to behind its last field's padding."""
    return sum(aligned(field_bytes(field)) for field in signature.fields)


def field_offsets(signature: Signature, start: int) -> Iterator[tuple[Field, int]]:
    """Yield each field with its offset, for a block that starts at ``start`` (a multiple of :data:`ALIGNMENT`)."""
    for field in signature.fields:
        yield field, start
        start += aligned(field_bytes(field))


class Target(Protocol):
    """Destination of arrays that are written one after the other."""

    def put(self, offset: int, array: np.ndarray) -> None:
        """Copy an array's bytes to ``offset``, in C order."""


class Data:
    """Bytes laid out as a payload's, wherever they are.

    Parameters
    ----------
    array : ndarray of uint8
        The bytes.
    """

    def __init__(self, array: np.ndarray):
        self.array = array
        self.size = array.nbytes

    def view(self, offset: int, length: int) -> np.ndarray:
        """Return ``length`` bytes from ``offset``, as a view.

        Raises
        ------
        ProtocolError
            If they do not lie within the payload.
        """
        if offset < 0 or length < 0 or offset + length > self.size:
            raise ProtocolError(f"bytes {offset} to {offset + length} are not in a payload of {self.size}")
        return self.array[offset:offset + length]

    def put(self, offset: int, array: np.ndarray) -> None:
        """Copy an array's bytes to ``offset``, in C order."""
        self.view(offset, array.nbytes).view(array.dtype).reshape(array.shape)[...] = array

    def field(self, field: Field, offset: int) -> np.ndarray:
        """Return a field at ``offset``, as a view of its dtype and shape. Raises as :meth:`view` does."""
        dtype, shape = np.dtype(field.dtype), field.shape
        nbytes = math.prod(shape) * dtype.itemsize
        if offset < 0 or offset + nbytes > self.size:
            self.view(offset, nbytes)       # which says so
        return np.ndarray(shape, dtype, self.array, offset)


class Payload(Data):
    """A mapped memfd.

    Parameters
    ----------
    descriptor : int
        The memfd, owned once this returns; the caller's still where it raises.
    size : int
        Its size in bytes; at least 1.
    """

    def __init__(self, descriptor: int, size: int, access: int = mmap.ACCESS_WRITE):
        # Nobody's until it is mapped: whoever closed it after a failure would do so twice, by then somebody else's.
        self.descriptor = -1
        self.memory = mmap.mmap(descriptor, size, access=access)
        #: Whether its pages are there, so that storing to it costs no faults.
        self.used = False
        #: Whether a worker's device has it pinned.
        self.pinned = False
        #: By what worker and client call it, where it may come again; 0 where it has no such number.
        self.number = 0
        super().__init__(np.frombuffer(self.memory, np.uint8))
        self.descriptor = descriptor

    @classmethod
    def create(cls, size: int) -> Payload:
        """Return a new payload of ``size`` zero bytes, sealed.

        Raises
        ------
        OutOfMemory, OutOfResources
            If the machine has no room for it, or no descriptor.
        """
        size = max(size, 1)
        with contextlib.ExitStack() as stack:
            descriptor = new_memfd("vispark")
            stack.callback(os.close, descriptor)
            with system_call(f"shared memory of {size:,} bytes"):
                os.ftruncate(descriptor, size)
                fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
            payload = cls._mapped(descriptor, size)
            stack.pop_all()
        return payload

    @classmethod
    def create_published(cls, size: int) -> Payload:
        """Return a new payload that is written by :meth:`view` here, and read only for all who get its descriptor.
        Raises as :meth:`create`.
        """
        size = max(size, 1)
        with contextlib.ExitStack() as stack:
            descriptor = new_memfd("vispark publication")
            stack.callback(os.close, descriptor)
            with system_call(f"shared memory of {size:,} bytes"):
                os.ftruncate(descriptor, size)
                os.posix_fallocate(descriptor, 0, size)
            payload = cls._mapped(descriptor, size)
            stack.pop_all()
        with system_call("a seal of shared memory"):
            fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS | FUTURE_WRITE)
        return payload

    @classmethod
    def _mapped(cls, descriptor: int, size: int, access: int = mmap.ACCESS_WRITE) -> Payload:
        try:
            return cls(descriptor, size, access)
        except OSError as error:
            raise refused(error, f"a mapping of {size:,} bytes of shared memory") from error
        except (ValueError, OverflowError) as error:
            raise OutOfMemory(f"{size:,} bytes of shared memory cannot be mapped: {error}") from error

    @classmethod
    def receive(cls, descriptor: int, access: int = mmap.ACCESS_WRITE) -> Payload:
        """Map a memfd that a peer passed; ``descriptor`` is closed if it is refused.

        ``access`` may be ``mmap.ACCESS_COPY`` for memory that may be written without the peer seeing it.

        Raises
        ------
        ProtocolError
            If it is no memfd, or is not sealed against shrinking.
        OutOfMemory
            If it cannot be mapped.
        """
        with contextlib.ExitStack() as stack:
            stack.callback(os.close, descriptor)
            payload = cls._mapped(descriptor, sealed_size(descriptor), access)
            stack.pop_all()
        return payload

    def share(self) -> Payload:
        """Return another mapping of the same memory, with a descriptor of its own. Raises as :meth:`receive`."""
        with system_call("a descriptor of shared memory"):
            descriptor = os.dup(self.descriptor)
        return self.receive(descriptor)

    def put(self, offset: int, array: np.ndarray) -> None:
        """Copy an array's bytes to ``offset``, in C order.

        Large ones go through a system call: storing to new shared memory would cost a fault for each page.
        """
        if self.used:
            super().put(offset, array)
            return
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        if data.nbytes < WRITE_FROM:
            self.view(offset, data.nbytes)[:] = data
            return
        self.view(offset, data.nbytes)
        while data.nbytes:
            try:
                written = os.pwrite(self.descriptor, data.data, offset)
            except OSError as error:
                raise refused(error, f"{data.nbytes:,} bytes of shared memory of {self.size:,}") from error
            data, offset = data[written:], offset + written

    def populate(self) -> None:
        """Have all pages now, for what will be stored to again and again: faults one by one take a third longer.

        Raises
        ------
        OutOfMemory
            If the machine has no room for them.
        """
        with system_call(f"shared memory of {self.size:,} bytes"):
            os.posix_fallocate(self.descriptor, 0, self.size)
        with contextlib.suppress(OSError):      # an older kernel makes the faults
            self.memory.madvise(_POPULATE_WRITE)
            self.used = True

    @cached_property
    def identity(self) -> tuple[int, int, int]:
        """What a descriptor of the same memory has in common with this one."""
        return identity(self.descriptor)

    def release(self) -> int:
        """Return the descriptor, now the caller's to close."""
        descriptor, self.descriptor = self.descriptor, -1
        return descriptor

    def close(self) -> None:
        """Close the descriptor; the memory goes when its last view does."""
        if self.descriptor >= 0:
            os.close(self.release())

    def __del__(self) -> None:
        self.close()

    def __enter__(self) -> Payload:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def sealed_size(descriptor: int) -> int:
    """Return the bytes of a peer's memfd. Raises as :meth:`Payload.receive`."""
    try:
        seals = fcntl.fcntl(descriptor, fcntl.F_GET_SEALS)
    except OSError as error:
        raise ProtocolError("a descriptor is no memfd") from error
    size = os.fstat(descriptor).st_size
    if not seals & fcntl.F_SEAL_SHRINK or not size:
        raise ProtocolError("a memfd is empty or not sealed against shrinking")
    return size


def identity(descriptor: int) -> tuple[int, int, int]:
    """Return a key that is equal for descriptors of one memfd: device, inode and size."""
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino, status.st_size


def results(data: bytes, descriptors: Sequence[int]) -> Data:
    """Return the data of a plan's reply, from the reply itself or a memfd; writable, without effect on the worker."""
    if descriptors:
        return Payload.receive(descriptors[0], mmap.ACCESS_COPY)
    return Data(np.frombuffer(bytearray(data), np.uint8))
