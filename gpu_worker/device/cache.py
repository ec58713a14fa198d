"""Compiled kernels on disk, by content: compiled once per machine, for all processes and sessions.

An entry is named by a SHA-256 over everything that shaped it, given as parts: source text, options, names, compiler,
target and headers. It is the compiler's output followed by a checksum, so that one cut short by a full disk or a crash
is seen and compiled again. Entries are written beside their place and renamed into it, so several processes may fill
the cache at once; the last one to finish wins, with the same content.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterable
from pathlib import Path

import platformdirs

from gpu_worker.protocol.errors import DeviceUnavailable

CHECKSUM_BYTES = hashlib.sha256().digest_size


class KernelCache:
    """Compiled kernels under one directory of the user's own.

    Parameters
    ----------
    directory : str or Path
        Where the entries are; made with mode 0700 if it is not there. Empty means the user's cache directory, and a
        temporary one if that cannot be written.

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

    def __init__(self, directory: str | Path = ""):
        self.directory = _private(Path(directory)) if directory else _default()

    def get(self, *parts: str | bytes) -> bytes | None:
        """What was made of these parts, or None where it is not here or damaged."""
        try:
            data = self._path(parts).read_bytes()
        except OSError:
            return None
        payload, checksum = data[:-CHECKSUM_BYTES], data[-CHECKSUM_BYTES:]
        return payload if hashlib.sha256(payload).digest() == checksum else None

    def put(self, payload: bytes, *parts: str | bytes) -> None:
        """Keep what was made of these parts. A disk without room for it is no error: it is made again the next time."""
        try:
            handle, temporary = tempfile.mkstemp(prefix=".new-", dir=self.directory)
        except OSError:
            return
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(payload + hashlib.sha256(payload).digest())
            os.replace(temporary, self._path(parts))
        except OSError:
            Path(temporary).unlink(missing_ok=True)

    def _path(self, parts: Iterable[str | bytes]) -> Path:
        digest = hashlib.sha256()
        for part in parts:
            data = part.encode() if isinstance(part, str) else part
            digest.update(len(data).to_bytes(8, "little") + data)
        return self.directory / digest.hexdigest()


def _default() -> Path:
    try:
        return _private(Path(platformdirs.user_cache_dir("vispark")) / "kernels")
    except DeviceUnavailable:
        directory = tempfile.mkdtemp(prefix="vispark-kernels-")
        atexit.register(shutil.rmtree, directory, ignore_errors=True)
        return Path(directory)


def _private(directory: Path) -> Path:
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = directory.stat()
    except OSError as error:
        raise DeviceUnavailable(f"the kernel cache {directory} cannot be made: {error.strerror}; "
                                "name another directory that you may write") from error
    if found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o022:
        raise DeviceUnavailable(f"the kernel cache {directory} could be written by others, who could put code into it; "
                                "it must be yours, with mode 0700")
    if not os.access(directory, os.W_OK | os.X_OK):
        raise DeviceUnavailable(f"the kernel cache {directory} cannot be written; name another directory")
    return directory
