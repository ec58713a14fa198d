"""Compiled kernels on disk, by content: compiled once per machine, for all processes and sessions.

An entry is named by a SHA-256 over everything that shaped it, given as parts: source text, options, names, compiler,
target and headers. It is the compiler's output followed by a checksum, so that one cut short by a full disk or a crash
is seen and compiled again. Entries are written beside their place and renamed into it, so several processes may fill
the cache at once; the last one to finish wins, with the same content.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterable
from pathlib import Path

from gpu_worker.protocol.errors import DeviceUnavailable, OutOfMemory
from gpu_worker.protocol.system import is_refusal, refused, system_call
from gpu_worker.system.paths import kernel_cache

CHECKSUM_BYTES = hashlib.sha256().digest_size
#: Of an entry's name.
NAME_LENGTH = 2 * CHECKSUM_BYTES
#: What all entries may take on disk.
MOST_BYTES = 1 << 30


class KernelCache:
    """Compiled kernels under one directory of the user's own.

    Parameters
    ----------
    directory : str or Path
        Where the entries are; made with mode 0700 if it is not there. Empty means the user's cache directory, and a
        temporary one if that cannot be written.
    most : int
        The bytes from which on the entries that were not used for longest are deleted.

    Raises
    ------
    DeviceUnavailable
        If the directory cannot be made, or others than this user could put code into it.

    Examples
    --------
    >>> cache = KernelCache(tempfile.mkdtemp())
    >>> cache.put(b"machine code", "source text", "-DN=4")
    >>> cache.get("source text", "-DN=4")
    b'machine code'
    """

    def __init__(self, directory: str | Path = "", *, most: int = MOST_BYTES):
        self.directory = _private(Path(directory)) if directory else _default()
        self._most = most
        self._sound: set[Path] = set()
        # A process that writes little looks after the bound, too.
        self._written = most // 16

    def get(self, *parts: str | bytes) -> bytes | None:
        """Return the entry of the given key parts, or None if there is none or it is damaged or others may write it."""
        data = _read_own(self._path(parts))
        if data is None:
            return None
        with contextlib.suppress(OSError):
            os.utime(self._path(parts))     # it goes later than those not used
        payload, checksum = data[:-CHECKSUM_BYTES], data[-CHECKSUM_BYTES:]
        return payload if hashlib.sha256(payload).digest() == checksum else None

    def file(self, *parts: str | bytes) -> Path | None:
        """Return the path of the entry of the given key parts, for a program that reads the file; None if there is none
        or it is damaged.

        The checksum follows it there. It is compared once only, since such files are large.
        """
        path = self._path(parts)
        if path not in self._sound or not _is_own(path):
            if self.get(*parts) is None:
                return None
            self._sound.add(path)
        return path

    def put(self, payload: bytes, *parts: str | bytes) -> None:
        """Store the entry of the given key parts. A full disk is no error: the entry is made again the next time."""
        try:
            handle, temporary = tempfile.mkstemp(prefix=".new-", dir=self.directory)
        except OSError:
            return
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(payload + hashlib.sha256(payload).digest())
            os.replace(temporary, self._path(parts))
        except OSError:
            with contextlib.suppress(OSError):
                Path(temporary).unlink(missing_ok=True)
        self._written += len(payload)
        if self._written > self._most // 16:
            self._written = 0
            with contextlib.suppress(OSError):      # another time, then
                self.trim()

    def trim(self) -> None:
        """Delete the least recently used entries beyond the bound; other processes may do so concurrently."""
        entries = []
        with os.scandir(self.directory) as listing:
            for entry in listing:
                with contextlib.suppress(OSError):
                    status = entry.stat(follow_symlinks=False)
                    if len(entry.name) == NAME_LENGTH and stat.S_ISREG(status.st_mode):
                        entries.append((status.st_mtime, status.st_size, entry.path))
        excess = sum(size for _, size, _ in entries) - self._most
        for _, size, path in sorted(entries):
            if excess <= 0:
                return
            Path(path).unlink(missing_ok=True)
            excess -= size

    def _path(self, parts: Iterable[str | bytes]) -> Path:
        digest = hashlib.sha256()
        for part in parts:
            data = part.encode() if isinstance(part, str) else part
            digest.update(len(data).to_bytes(8, "little") + data)
        return self.directory / digest.hexdigest()


def _read_own(path: Path) -> bytes | None:
    """Return the content of a file; None if it is missing, a link, or may have been written by another user.

    A checksum shows damage, and not who wrote it. The directory lets nobody else in, but may have been open once.
    """
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            return file.read() if _is_ours(os.fstat(file.fileno())) else None
    except OSError:
        return None


def _is_own(path: Path) -> bool:
    """Return whether there is a file at ``path`` that only this user can have written."""
    try:
        return _is_ours(path.lstat())
    except OSError:
        return False


def _is_ours(status: os.stat_result) -> bool:
    return stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o022


def _default() -> Path:
    try:
        return _private(kernel_cache())
    except (DeviceUnavailable, OutOfMemory):
        with system_call("a directory for compiled kernels", DeviceUnavailable):
            directory = tempfile.mkdtemp(prefix="vispark-kernels-")
        atexit.register(shutil.rmtree, directory, ignore_errors=True)
        return Path(directory)


def _private(directory: Path) -> Path:
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = directory.stat()
    except OSError as error:
        if is_refusal(error):
            raise refused(error, f"the kernel cache {directory}") from error
        raise DeviceUnavailable(f"the kernel cache {directory} cannot be made: {error.strerror}; "
                                "name another directory that you may write") from error
    if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o022:
        raise DeviceUnavailable(f"the kernel cache {directory} could be written by others, who could put code into it; "
                                "it must be yours, with mode 0700")
    if not os.access(directory, os.W_OK | os.X_OK):
        raise DeviceUnavailable(f"the kernel cache {directory} cannot be written; name another directory")
    return directory
