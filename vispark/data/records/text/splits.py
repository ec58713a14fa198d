"""Splits of text files: the files that a path means, cut by bytes, as Hadoop cuts text files.

A line belongs to the split that its first byte is in. So a split that does not begin a file begins after the first line
end at or behind the byte before it, and reads on to the end of its last line. LF, CR and CRLF end lines.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO

from gpu_worker.protocol.errors import PlanError
from vispark.data.storage import objects, systems
from vispark.data.storage.locality import FileRange

#: A split's most bytes: a block of Spark's local file system.
BLOCK = 32 << 20

#: What may be left over behind a file's last full split, in splits, before it becomes one of its own.
_SLOP = 1.1

#: Files that cannot be entered in the middle, by how their names end; as Hadoop's codecs have them.
COMPRESSED = (".gz", ".bz2", ".xz")


@dataclass(frozen=True)
class TextSplit:
    """The lines of a file whose first byte is in ``start`` to ``end``; of a compressed file all."""

    path: str
    start: int
    end: int

    @property
    def compressed(self) -> bool:
        return self.path.endswith(COMPRESSED)

    @property
    def range(self) -> FileRange:
        """The bytes that are read, but for the end of the last line."""
        return FileRange(self.path) if self.compressed else FileRange(self.path, self.start, self.end)


def splits(path: str, parts: int) -> list[TextSplit]:
    """Return the splits of all files that a path means.

    Parameters
    ----------
    path : str
        A file, a directory, a pattern with ``*``, ``?`` and ``[...]``, or several of these with commas between; local,
        or URLs.
    parts : int
        The least number of splits, where there are bytes enough and nothing is compressed.

    Raises
    ------
    PlanError
        If there is no such file.
    """
    files = files_of(path, "text")
    whole = sum(size for _, size in files)
    size = max(1, min(BLOCK, whole // max(parts, 1)))
    return [split for file, nbytes in files for split in _cut(file, nbytes, size)]


def _cut(path: str, nbytes: int, size: int) -> Iterator[TextSplit]:
    start = 0
    if not path.endswith(COMPRESSED):
        while nbytes - start > _SLOP * size:
            yield TextSplit(path, start, start + size)
            start += size
    if nbytes > start:
        yield TextSplit(path, start, nbytes)


def opened(path: str) -> BinaryIO:
    """Return a file's bytes as they are stored.

    Raises
    ------
    PlanError
        If it cannot be opened.
    """
    try:
        # The reader asks for large pieces, so that another buffer would only be another copy.
        return fsspec_of(path).open(path, "rb") if "://" in path else open(path, "rb", buffering=0)
    except NO_ANSWER as error:
        raise PlanError(f"{path} cannot be read: {str(error).partition(chr(10))[0]}; text files must be within reach "
                        "of every node") from error


def fsspec_of(path: str) -> Any:
    """Return the file system of a URL."""
    return systems.opened(path)[0]


#: What a file system raises that does not answer, or refuses.
NO_ANSWER: tuple[type[Exception], ...] = (OSError, *objects.ERRORS)


@contextmanager
def looking_up(path: str) -> Iterator[None]:
    """Raise PlanError where a file system does not answer what files there are."""
    try:
        yield
    except NO_ANSWER as error:
        # Behind the first paragraph is what the store's library knows of its own.
        raise PlanError(f"{path} cannot be looked up: {str(error).partition(chr(10))[0]}") from error


def files_of(path: str, kind: str) -> list[tuple[str, int]]:
    """Return the files of a path, or of several with commas between, with their sizes in bytes; each one's sorted.

    Files whose names begin with ``_`` or ``.`` are there only if named.

    Raises
    ------
    PlanError
        If there is none; ``kind`` says of which kind they should be.
    """
    return [file for one in path.split(",") for file in _files(one.strip(), kind)]


def _files(path: str, kind: str) -> list[tuple[str, int]]:
    if not path:
        raise PlanError(f"the path is empty; it names a {kind} file, or several with commas between")
    with looking_up(path):
        files = _remote(path) if "://" in path else _local(path)
    if not files:
        raise PlanError(f"there is no {kind} file {path}; a path without a scheme is one of this machine's, which "
                        "every node must have, and others are URLs")
    return sorted(files)


def _local(path: str) -> list[tuple[str, int]]:
    paths = sorted(glob.glob(path)) if glob.has_magic(path) else [path]
    names = [name for one in paths for name in (_inside(one) if os.path.isdir(one) else [one])]
    return [(os.path.abspath(name), os.path.getsize(name)) for name in names if os.path.isfile(name)]


def _inside(directory: str) -> list[str]:
    return [os.path.join(directory, name) for name in os.listdir(directory) if not name.startswith(("_", "."))]


def _remote(url: str) -> list[tuple[str, int]]:
    system = fsspec_of(url)
    inside = system._strip_protocol(url)
    paths = system.glob(inside) if glob.has_magic(inside) else [inside]
    entries = [entry for path in paths for entry in _entries(system, path)]
    return [(system.unstrip_protocol(entry["name"]), entry["size"]) for entry in entries if entry["type"] == "file"
            and (entry["name"] in paths or not entry["name"].rpartition("/")[2].startswith(("_", ".")))]


def _entries(system: Any, path: str) -> list[dict[str, Any]]:
    """Return a file of a file system, or what is in a directory, with sizes and types; none where there is neither."""
    if system.isfile(path):
        return [system.info(path) | {"name": path}]      # obstore leaves the bucket out
    return list(system.ls(path, detail=True)) if system.exists(path) else []
