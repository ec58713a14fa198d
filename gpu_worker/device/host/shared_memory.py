"""Memory of the ``host`` device that other processes map: memfds, sealed so that nobody but their maker writes them."""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
from contextlib import ExitStack

import numpy as np

from gpu_worker.device.base import Buffer, Device
from gpu_worker.protocol.errors import DeviceUnavailable, ProtocolError
from gpu_worker.protocol.payload import FUTURE_WRITE, sealed_size
from gpu_worker.protocol.system import new_memfd, system_call

_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | FUTURE_WRITE | fcntl.F_SEAL_SEAL

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mprotect.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int


class MappedMemfd(Buffer):
    """Mapped memfd as a buffer; ``reserved`` bytes of it count as the device's."""

    def __init__(self, device: Device, memory: mmap.mmap, nbytes: int, reserved: int):
        super().__init__(device, np.frombuffer(memory, np.uint8).ctypes.data, nbytes)
        self.memory: mmap.mmap | None = memory
        self.reserved = reserved


def created(device: Device, nbytes: int) -> tuple[MappedMemfd, int]:
    """Return new memory of ``nbytes`` bytes, which only the returned buffer can write, and its descriptor."""
    with ExitStack() as undo:
        descriptor = new_memfd("vispark publication")
        undo.callback(os.close, descriptor)
        with system_call(f"shared memory of {nbytes:,} bytes"):
            os.ftruncate(descriptor, nbytes)
            os.posix_fallocate(descriptor, 0, nbytes)
            memory = mmap.mmap(descriptor, nbytes)
            fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
        undo.pop_all()
    return MappedMemfd(device, memory, nbytes, nbytes), descriptor


def mapped(device: Device, descriptor: int, nbytes: int) -> MappedMemfd:
    """Return a buffer that reads the memory of a descriptor.

    Raises
    ------
    DeviceUnavailable
        If it is none that :func:`created` made, of ``nbytes`` bytes at least.
    """
    try:
        is_whole = sealed_size(descriptor) >= nbytes and fcntl.fcntl(descriptor, fcntl.F_GET_SEALS) & FUTURE_WRITE
    except ProtocolError as error:
        raise DeviceUnavailable(f"{device.name} cannot map it: {error.message}") from error
    if not is_whole:
        raise DeviceUnavailable(f"{device.name} does not map memory that others can write, or that is too short")
    with system_call(f"a mapping of {nbytes:,} bytes"):
        memory = mmap.mmap(descriptor, nbytes, prot=mmap.PROT_READ)
    return MappedMemfd(device, memory, nbytes, 0)


def protect(buffer: MappedMemfd) -> None:
    """Make a buffer's memory read-only for this process."""
    with system_call("the protection of shared memory"):
        if _libc.mprotect(buffer.address, buffer.nbytes, mmap.PROT_READ):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))


def unmap(buffer: MappedMemfd) -> None:
    """Unmap a buffer's memory, which no array refers to."""
    memory, buffer.memory = buffer.memory, None
    if memory is not None:
        memory.close()
