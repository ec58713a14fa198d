"""Files that this machine has at a path."""

from __future__ import annotations

import contextlib
import os
import shutil
import uuid
from collections.abc import Iterable, Sequence
from typing import Any

from vispark.data.storage.location import FileState, Store


class LocalFiles(Store):
    """Store of this machine's files, shared ones among them."""

    def state(self, name: str) -> FileState:
        """Return a file's size, and where and when it was written."""
        status = os.stat(name)
        if os.path.isdir(name):
            raise IsADirectoryError(f"{name} is a directory")
        return FileState(status.st_size, f"{status.st_ino} {status.st_mtime_ns}")

    def read(self, name: str, ranges: Sequence[tuple[int, int]]) -> list[Any]:
        """Return ranges of a file."""
        with open(name, "rb", buffering=0) as file:
            return [_read(file.fileno(), start, stop - start) for start, stop in ranges]

    def content(self, name: str) -> Any:
        """Return all bytes of a file."""
        with open(name, "rb", buffering=0) as file:
            return file.read()

    def write(self, name: str, pieces: Iterable[Any], nbytes: int) -> None:
        """Write beside, and rename."""
        os.makedirs(os.path.dirname(name) or ".", exist_ok=True)
        partial = partial_name(name)
        with contextlib.ExitStack() as undo:
            undo.callback(_unlink, partial)
            with open(partial, "xb", buffering=0) as file:
                for piece in pieces:
                    _write(file.fileno(), memoryview(piece))
            os.replace(partial, name)
            undo.pop_all()

    def names(self, name: str) -> dict[str, bool]:
        """Return the names in a directory."""
        if not os.path.isdir(name):
            return {}
        with os.scandir(name) as entries:
            return {entry.name: entry.is_file() for entry in entries}

    def is_there(self, name: str) -> bool:
        """Return whether a path exists."""
        return os.path.exists(name)

    def make(self, name: str) -> None:
        """Make a directory, and those above it."""
        os.makedirs(name, exist_ok=True)

    def remove(self, name: str) -> None:
        """Remove a directory."""
        shutil.rmtree(name, ignore_errors=not os.path.exists(name))

    def rename(self, name: str, new: str) -> None:
        """Rename a directory."""
        os.rename(name, new)


def partial_name(name: str) -> str:
    """Return a hidden name beside another, of its own, so that a repeated task and its twin do not share a file."""
    directory, _, last = name.rpartition("/")
    hidden = f".{last}.{uuid.uuid4().hex[:12]}.partial"
    return f"{directory}/{hidden}" if "/" in name else hidden


def _read(descriptor: int, start: int, nbytes: int) -> bytearray:
    """Return bytes from ``start`` on, fewer where the file ends."""
    data, have = bytearray(nbytes), 0
    with memoryview(data) as target:
        while have < nbytes and (count := os.preadv(descriptor, [target[have:]], start + have)):
            have += count
    return data if have == nbytes else data[:have]


def _unlink(name: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name)


def _write(descriptor: int, piece: memoryview) -> None:
    while piece:
        piece = piece[os.write(descriptor, piece):]
