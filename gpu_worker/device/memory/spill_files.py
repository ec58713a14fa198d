"""Files for content that neither devices nor host memory have room for: one for each partition, without a name.

A file is unlinked from the start, so that whatever ends the process leaves nothing behind, and that nobody can cut it
under its mapping. Its directory may go; what is held stays.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np

from gpu_worker.protocol.errors import SpillError, VisparkError
from gpu_worker.protocol.system import system_call


class SpillFiles:
    """Files of one session in a directory.

    Parameters
    ----------
    directory : str
        Where they are; "" for the system's temporary directory.

    Examples
    --------
    >>> SpillFiles("").write(np.arange(4, dtype=np.uint8)).tolist()
    [0, 1, 2, 3]
    >>> SpillFiles("/no/such").write(np.arange(4, dtype=np.uint8))      # doctest: +ELLIPSIS
    Traceback (most recent call last):
    gpu_worker.protocol.errors.SpillError: a file of 4 bytes in /no/such, for what finds no room in memory: ...
    """

    def __init__(self, directory: str):
        self.directory = directory

    def write(self, content: np.ndarray) -> np.ndarray:
        """Return a copy of bytes (uint8) that lies in a file of its own, which goes with the copy's last view.

        Raises
        ------
        OutOfMemory
            If the file system has no room.
        SpillError
            If the directory is not there, or cannot be written.
        """
        return self._made(content.nbytes, content)

    def reserve(self, nbytes: int) -> np.ndarray:
        """Return ``nbytes`` bytes (uint8) that :func:`store` stores in, and that lie in a file as :meth:`write` has
        it; they are on the disk after :func:`sync`.

        Raises
        ------
        OutOfMemory, SpillError
            As :meth:`write` does.
        """
        return self._made(nbytes, None)

    def _made(self, nbytes: int, content: np.ndarray | None) -> np.ndarray:
        if not nbytes:
            return np.empty(0, np.uint8)
        directory = self.directory or tempfile.gettempdir()
        with _disk(nbytes, directory), tempfile.TemporaryFile(dir=directory, buffering=0) as file:
            os.posix_fallocate(file.fileno(), 0, nbytes)
            if content is not None:
                _write(file.fileno(), content, 0)
                # Until it is on the disk its pages are as dear as memory's, and a disk that fails is not told of.
                os.fdatasync(file.fileno())
            writable = None if content is not None else os.dup(file.fileno())
            try:
                return np.asarray(SpilledContent(file.fileno(), nbytes, directory, writable))
            except (OSError, ValueError):
                if writable is not None:
                    os.close(writable)
                raise


class SpilledContent:
    """Bytes in a file of a directory, mapped to be read; numpy's views of it keep it.

    They are not stored through the mapping: where a file system copies on write, as some do whatever was allocated, a
    store that finds no room ends the process (SIGBUS), and a write is an error.

    Parameters
    ----------
    descriptor : int
        Of the file; stays the caller's.
    nbytes : int
        Its size.
    directory : str
        Where it is, for errors.
    writable : int, optional
        Another one, for what is to be stored; closed by :meth:`sync`.
    """

    _writable: int | None = None

    def __init__(self, descriptor: int, nbytes: int, directory: str, writable: int | None = None):
        self._directory = directory
        self._memory = mmap.mmap(descriptor, nbytes, access=mmap.ACCESS_READ)
        with suppress(OSError):
            self._memory.madvise(mmap.MADV_SEQUENTIAL)
        self._array: np.ndarray = np.frombuffer(self._memory, np.uint8)
        self._writable = writable

    def __del__(self) -> None:
        self._close()

    def _close(self) -> None:
        writable, self._writable = self._writable, None
        if writable is not None:
            os.close(writable)

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return self._array.__array_interface__

    def announce(self) -> None:
        """Tell the system that the content will be read soon, so that reads of the disk go beside other work."""
        with suppress(OSError):
            self._memory.madvise(mmap.MADV_WILLNEED)

    def store(self, target: np.ndarray, source: np.ndarray) -> None:
        """Store bytes as a view's of the content. Raises as :func:`store`."""
        assert self._writable is not None
        with _disk(self._array.nbytes, self._directory):
            _write(self._writable, source, target.ctypes.data - self._array.ctypes.data)

    def sync(self) -> None:
        """Wait until what was stored is on the disk; nothing more is stored. Raises as :func:`sync`."""
        if self._writable is not None:
            with _disk(self._array.nbytes, self._directory):
                os.fdatasync(self._writable)
            self._close()


def spilled(memory: np.ndarray | None) -> SpilledContent | None:
    """Return the content of a file that memory is a view of; None for other memory."""
    base: object = memory
    while isinstance(base, np.ndarray):
        base = base.base
    return base if isinstance(base, SpilledContent) else None


def store(target: np.ndarray, source: np.ndarray) -> None:
    """Store bytes in memory that was taken for them, or in the file that it is of.

    Parameters
    ----------
    target, source : ndarray
        Contiguous, of equally many bytes (uint8); ``target`` of :meth:`SpillFiles.reserve`, or host memory.

    Raises
    ------
    OutOfMemory
        If the file system has no room.
    SpillError
        If the disk cannot be written.
    """
    content = spilled(target)
    if content is None:
        target[:] = source
    elif source.nbytes:
        content.store(target, source)


def sync(memories: Iterable[np.ndarray | None]) -> None:
    """Wait until what was stored in :meth:`SpillFiles.reserve`'s memory is on the disk; other memory stays as it is.

    Parameters
    ----------
    memories : iterable of ndarray or None
        Views of it (uint8), in any number.

    Raises
    ------
    OutOfMemory
        If the file system has no room.
    SpillError
        If the disk cannot be written.

    Examples
    --------
    >>> memory = SpillFiles("").reserve(4)
    >>> store(memory, np.arange(4, dtype=np.uint8))
    >>> sync([memory[:2], memory[2:]])
    """
    for content in {spilled(memory) for memory in memories}:
        if content is not None:
            content.sync()


@contextmanager
def _disk(nbytes: int, directory: str) -> Iterator[None]:
    """Raise an OSError that comes from within as one of ours, with advice."""
    try:
        with system_call(f"a file of {nbytes:,} bytes in {directory}, for what finds no room in memory", SpillError):
            yield
    except VisparkError as error:
        raise type(error)(f"{error.message}: set spark.vispark.spillDir to a directory that has it") from error


def _write(descriptor: int, content: np.ndarray, offset: int) -> None:
    left = content
    while left.nbytes:
        written = os.pwrite(descriptor, left.data, offset)
        left, offset = left[written:], offset + written
