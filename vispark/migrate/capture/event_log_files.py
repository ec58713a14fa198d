"""Lines of event logs: one file or a folder of rolled ones, plain or compressed, whole or cut anywhere."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from vispark.data.storage import objects
from vispark.data.storage.systems import opened
from vispark.errors import PlanError
from vispark.migrate.errors import EventLogError
from vispark.migrate.extra_packages import required

#: Bytes that are read at once, and the most of one event.
_BLOCK, _LONGEST = 1 << 20, 1 << 27

#: Suffixes that say nothing of the content.
_STATES = (".inprogress", ".compact")
#: Codecs whose framing is the JVM's own.
_OF_THE_JVM = (".lz4", ".lzf", ".snappy")
_ROLLED = re.compile(r"events_(\d+)_")
#: What file systems behind URLs raise.
_FAILURES: tuple[type[Exception], ...] = (OSError, ValueError, RuntimeError, *objects.ERRORS)
_ZSTD, _GZIP = b"\x28\xb5\x2f\xfd", b"\x1f\x8b"


@dataclass
class LogLines:
    """Lines of an event log, read once from the first to the last.

    Parameters
    ----------
    path : str
        A file, a folder ``eventlog_v2_...``, or either as a URL that fsspec knows.

    Attributes
    ----------
    problems : list of str
        What could not be read, after the lines were.
    """

    path: str
    problems: list[str] = field(default_factory=list)

    def __iter__(self) -> Iterator[bytes]:
        for name, file in _files(self.path):
            with file:
                yield from self._of_file(name, file)

    def _of_file(self, name: str, file: IO[bytes]) -> Iterator[bytes]:
        stream, errors = _decompressed(name, file)
        rest = b""
        while True:
            try:
                block = stream.read(_BLOCK)
            except errors as error:
                self.problems.append(f"{name} is cut or damaged: {error}")
                break
            if not block:
                break
            *lines, rest = (rest + block).split(b"\n")
            yield from lines
            if len(rest) > _LONGEST:
                raise EventLogError(f"{name} is no event log of Spark's: {_LONGEST} bytes without a new line")
        if rest:
            yield rest


def _files(path: str) -> Iterator[tuple[str, IO[bytes]]]:
    """Yield the files of a log in their order, opened."""
    if "://" in path and not path.startswith("file://"):
        yield from _of_url(path)
        return
    local = Path(path.removeprefix("file://"))
    try:
        names = [each.name for each in local.iterdir()] if local.is_dir() else []
        for file in [local / name for name in rolled(names, path)] if local.is_dir() else [local]:
            yield str(file), file.open("rb")
    except OSError as error:
        raise EventLogError(f"{path} cannot be read: {error.strerror or error}") from error


def _of_url(path: str) -> Iterator[tuple[str, IO[bytes]]]:
    try:
        system, inner = opened(path)
        # One that is not there is asked about before it is opened: obstore's files, half made, fail at their end.
        if system.info(inner)["type"] == "directory":
            names = [each.rpartition("/")[2] for each in system.ls(inner, detail=False)]
            paths = [f"{inner.rstrip('/')}/{name}" for name in rolled(names, path)]
        else:
            paths = [inner]
        for file in paths:
            yield file, system.open(file, "rb")
    except PlanError as error:
        raise EventLogError(f"{path} cannot be read: {error.message}") from error
    except _FAILURES as error:
        raise EventLogError(f"{path} cannot be read: {error}") from error


def rolled(names: list[str], path: str) -> list[str]:
    """Return the files of a rolled log's folder in their order; of compacted ones the last stands for those before.

    Raises
    ------
    EventLogError
        If the folder has no such files.

    Examples
    --------
    >>> rolled(["events_10_a.zstd", "events_9_a.zstd", "appstatus_a", "events_8_a.zstd.compact", "events_2_a.zstd"], "")
    ['events_8_a.zstd.compact', 'events_9_a.zstd', 'events_10_a.zstd']
    """
    numbered = sorted((int(match[1]), not name.endswith(".compact"), name) for name in names
                      if (match := _ROLLED.match(name)))
    compacted = [number for number, is_plain, _ in numbered if not is_plain]
    first = max(compacted, default=0)
    kept = [name for number, is_plain, name in numbered if number > first or (number == first and not is_plain)
            or not compacted]
    if not kept:
        raise EventLogError(f"{path} is a folder without events_... files: a log is one file, or a folder "
                            "eventlog_v2_... that Spark has written")
    return kept


class _Gunzip:
    """Content of a gz file, of one that is cut as far as it goes, which GzipFile does not give."""

    def __init__(self, file: IO[bytes]):
        self._file, self._member, self._is_cut = file, zlib.decompressobj(wbits=31), False

    def read(self, size: int) -> bytes:
        """Return some of what comes next, at most about ``size`` bytes; empty at the end.

        Raises
        ------
        EOFError
            If the file ends before its content does.
        """
        while not self._is_cut:
            data = self._member.unconsumed_tail or self._member.unused_data or self._file.read(1 << 16)
            if self._member.eof:
                if not data:
                    return b""
                self._member = zlib.decompressobj(wbits=31)
            plain = self._member.decompress(data, size)
            if not data and not plain:
                self._is_cut = True
                raise EOFError("it ends before its content does")
            if plain:
                return plain
        return b""


def _decompressed(name: str, file: IO[bytes]) -> tuple[Any, tuple[type[BaseException], ...]]:
    """Return the content of a file, and the errors that reading it may raise where it is cut."""
    plain = name
    for suffix in _STATES:
        plain = plain.removesuffix(suffix)
    for suffix in _OF_THE_JVM:
        if plain.endswith(suffix):
            raise EventLogError(f"{name} is compressed by {suffix[1:]}, in a form that only the JVM reads: run with "
                                "spark.eventLog.compression.codec=zstd, or spark.eventLog.compress=false")
    begin = file.read(4)
    file.seek(0)
    if begin.startswith(_ZSTD):
        zstandard = required("zstandard", "migrate", "reading an event log that zstd compressed")
        stream = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True)
        return stream, (zstandard.ZstdError, OSError)
    if begin.startswith(_GZIP):
        return _Gunzip(file), (EOFError, OSError, zlib.error)
    return file, (OSError,)
