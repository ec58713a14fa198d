"""Memory of the host device: from the C library, kept for reuse so that loops do not fault their pages in again."""

from __future__ import annotations

import ctypes
import os
import threading
from collections import defaultdict
from pathlib import Path

from gpu_worker.device.base import Memory
from gpu_worker.protocol.errors import OutOfMemory

ALIGNMENT = 256

#: From this size on, memory is aligned to huge pages and the kernel is asked for them.
HUGE_PAGE = 2 << 20

_MADV_HUGEPAGE = 14
_CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")

_libc = ctypes.CDLL(None, use_errno=True)
_libc.posix_memalign.argtypes = ctypes.POINTER(ctypes.c_void_p), ctypes.c_size_t, ctypes.c_size_t
_libc.free.argtypes = ctypes.c_void_p,
_libc.free.restype = None
_libc.madvise.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int


def size_class(nbytes: int) -> int:
    """Return the size that memory for ``nbytes`` bytes really has: at most an eighth, or 255 bytes, more.

    >>> size_class(1), size_class(5000), size_class(1 << 20)
    (256, 5120, 1048576)
    """
    step = max(ALIGNMENT, 1 << max(0, (nbytes - 1).bit_length() - 4))
    return -(-nbytes // step) * step


def host_memory() -> int:
    """Return bytes of memory that this machine, or this process's container, has."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in map(Path, _CGROUP_LIMITS):
        if path.is_file() and (text := path.read_text().strip()).isdecimal():
            total = min(total, int(text))
    return total


class HostMemory:
    """Bounded pool of host memory, with the memory that lies ready for reuse.

    Parameters
    ----------
    name : str
        The device's name, for errors.
    limit : int
        The most bytes in use at once; 0 for as many as the machine has.
    gap : int
        Bytes before and behind each range that belong to none; a multiple of the alignment.
    """

    def __init__(self, name: str, limit: int, gap: int = 0):
        self._name = name
        self._gap = gap
        self._total = limit or host_memory()
        self._most_kept = self._total // 4
        self._lock = threading.Lock()
        self._used = 0
        self._kept = 0
        self._free: defaultdict[int, list[int]] = defaultdict(list)

    def figures(self) -> Memory:
        return Memory(self._used, self._total)

    def take(self, nbytes: int) -> int:
        """Return the address of ``nbytes`` bytes, at least one.

        Raises
        ------
        OutOfMemory
            If they do not fit the limit, or the C library has none.
        """
        size = size_class(nbytes)
        with self._lock:
            if self._used + nbytes > self._total:
                raise self._exhausted(nbytes)
            if self._free[size]:
                self._kept -= size
                self._used += nbytes
                return self._free[size].pop()
            if self._used + self._kept + size > self._total:
                self._release()
            address = _new(size, self._gap)
            if not address:
                self._release()
                address = _new(size, self._gap)
            if not address:
                raise self._exhausted(nbytes)
            self._used += nbytes
            return address

    def give(self, address: int, nbytes: int) -> None:
        """Take back what :meth:`take` gave."""
        size = size_class(nbytes)
        with self._lock:
            self._used -= nbytes
            if self._kept + size > self._most_kept:
                _libc.free(address - self._gap)
            else:
                self._kept += size
                self._free[size].append(address)

    def reserve(self, nbytes: int) -> None:
        """Count memory that lies elsewhere as used. Raises OutOfMemory if it does not fit the limit."""
        with self._lock:
            if self._used + nbytes > self._total:
                raise self._exhausted(nbytes)
            self._used += nbytes

    def unreserve(self, nbytes: int) -> None:
        """End the use that :meth:`reserve` began."""
        with self._lock:
            self._used -= nbytes

    def release(self) -> None:
        """Free the memory that lies ready for reuse."""
        with self._lock:
            self._release()

    def _release(self) -> None:
        for addresses in self._free.values():
            for address in addresses:
                _libc.free(address - self._gap)
        self._free.clear()
        self._kept = 0

    def _exhausted(self, nbytes: int) -> OutOfMemory:
        return OutOfMemory(f"{self._name}: {nbytes:,} bytes do not fit, {self._used:,} of {self._total:,} are in use")


def _new(size: int, gap: int) -> int:
    """Return the address of new memory, with a gap on both sides; 0 if there is no memory."""
    place = ctypes.c_void_p()
    if _libc.posix_memalign(place, HUGE_PAGE if size >= HUGE_PAGE else ALIGNMENT, size + 2 * gap):
        return 0
    if size >= HUGE_PAGE and not gap:
        _libc.madvise(place, size, _MADV_HUGEPAGE)  # a hint; where it is refused, pages are small
    return place.value + gap if place.value else 0
