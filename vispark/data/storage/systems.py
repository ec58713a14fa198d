"""Files in what else has URLs, HDFS among them, by fsspec."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from gpu_worker.protocol.errors import PlanError
from gpu_worker.protocol.extras import install
from vispark.data.storage import objects
from vispark.data.storage.local import partial_name
from vispark.data.storage.location import FileState, Store

try:
    import fsspec
except ImportError:
    fsspec = None

#: What tells one content of a file from another, by the names that file systems have for it.
_VERSIONS = ("etag", "ETag", "generation", "mtime", "modification_time", "LastModified", "last_modified", "modified",
             "created")
#: The schemes of HDFS.
_HDFS = ("hdfs", "viewfs")
#: What hdfs-native does where only one NameNode can answer: it gives up after about 5 s, not after 3 minutes.
_ONE_NAMENODE = {"dfs.client.failover.max.attempts": "3", "dfs.client.failover.sleep.max.millis": "2000"}
#: What hdfs-native says where a NameNode goes while it is asked. It asks the others from then on, but asks nobody again
#: for what may have been done.
_LOST = "RPC listener disconnected"
#: What a NameNode refuses or cannot do, as hdfs-native says it: the class of Java's exception, its message, its trace.
_REFUSED = re.compile(r'RPCError\("(?P<kind>[\w.$]+)", "(?P<said>.*?)(?:\\[rn]|"\)$)', re.DOTALL)
_FORBIDDEN = "AccessControlException"
#: What it says where no replica of a block can be read; behind it is what it knows of the DataNodes.
_UNREACHED = "All DataNodes failed"
#: HDFS's default, in bytes. Files are written as one block each: a second one may not be allocated in time.
_BLOCK, _UNIT = 128 << 20, 512


def opened(url: str) -> tuple[Any, str]:
    """Return fsspec's file system of a URL, and the path in it.

    Raises
    ------
    PlanError
        If fsspec or what it needs for the scheme is not installed, nobody knows the scheme, or the system is not there.
    """
    scheme = url.partition("://")[0]
    hint = install("hdfs") if scheme in _HDFS else install("files")
    if fsspec is None:
        raise PlanError(f"{url} is a URL, which needs fsspec: {hint}")
    if scheme in _HDFS:
        # Without it fsspec takes pyarrow's client, which starts a JVM in each process.
        if importlib.util.find_spec("hdfs_native") is None:
            raise PlanError(f"{url} is in HDFS, which needs hdfs-native: {hint}")
        return _hdfs(url)
    try:
        if scheme in objects.SCHEMES:
            objects.register(scheme, url)
        system, name = fsspec.core.url_to_fs(url)
    except ImportError as error:
        raise PlanError(f"{url} needs more than fsspec: {error}; install that") from error
    except (ValueError, OSError, RuntimeError) as error:
        if scheme in fsspec.available_protocols():
            raise PlanError(f"{url} cannot be opened: {error}") from error
        raise PlanError(f"{url} has the scheme {scheme!r}, which is not known; known are file, s3, gs, az, hdfs and "
                        f"those of fsspec: {', '.join(sorted(fsspec.available_protocols()))}") from error
    return system, name


def _hdfs(url: str) -> tuple[Any, str]:
    """Return the HDFS of a URL, and the path in it."""
    scheme, _, rest = url.partition("://")
    try:
        system = _client(os.getpid(), f"{scheme}://{rest.partition('/')[0]}/")
    except (ValueError, OSError, RuntimeError) as error:
        raise PlanError(f"{url} cannot be opened: {error}; without a port it names a service of hdfs-site.xml, which "
                        "is looked for by HADOOP_CONF_DIR and HADOOP_HOME") from error
    return system, system._strip_protocol(url)


@functools.cache
def _client(process: int, root: str) -> Any:
    """Return the client of an HDFS in this process, with its connections.

    The client is not one of fsspec's cached ones: a forked process would close the clients that it inherits, and wait
    for ever for their threads, which it does not have.
    """
    # A port says that there is one NameNode, and none that would come up in its place within minutes.
    options = _ONE_NAMENODE if re.search(r":\d+/$", root) else {}
    system = fsspec.core.url_to_fs(root, skip_instance_cache=True, **options)[0]
    system.client.inner = _OfFiles(system.client.inner)
    return system


class _OfFiles:
    """Object of hdfs-native whose errors are those of other files, and so are those of the files that it opens."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)

        @functools.wraps(method)
        def called(*arguments: Any, **named: Any) -> Any:
            with _errors_of_files():
                answer = method(*arguments, **named)
            if hasattr(answer, "__next__"):
                return _following(answer)
            return _OfFiles(answer) if hasattr(answer, "read_range") or hasattr(answer, "hsync") else answer
        return called


def _following(answers: Iterator[Any]) -> Iterator[Any]:
    with _errors_of_files():
        yield from answers


@contextlib.contextmanager
def _errors_of_files() -> Iterator[None]:
    """Raise what a NameNode refuses, and what no DataNode answers, as an OSError, without traces of Java.

    Examples
    --------
    >>> with _errors_of_files():
    ...     raise RuntimeError('RPCError("x.SafeModeException", "Name node is in safe mode.\\\\n\\\\tat x.Y")')
    Traceback (most recent call last):
    OSError: Name node is in safe mode. (SafeModeException)
    """
    try:
        yield
    except RuntimeError as error:
        if refused := _REFUSED.search(str(error)):
            message, kind = refused["said"].replace('\\"', '"'), refused["kind"].rpartition(".")[2]
            raise (PermissionError(message) if kind == _FORBIDDEN else OSError(f"{message} ({kind})")) from error
        if _UNREACHED in str(error):
            raise OSError("no DataNode that has its bytes answers") from error
        raise


class FileSystem(Store):
    """Store of the files of an fsspec file system."""

    errors = (ValueError, RuntimeError)

    def __init__(self, url: str) -> None:
        self.system = opened(url)[0]

    def state(self, name: str) -> FileState:
        """Return a file's size, and its version as the system has it."""
        entry = self.system.info(name)
        if entry["type"] == "directory":
            raise IsADirectoryError(f"{name} is a directory")
        return FileState(entry["size"], " ".join(str(entry[key]) for key in _VERSIONS if key in entry))

    def read(self, name: str, ranges: Sequence[tuple[int, int]]) -> list[Any]:
        """Return ranges of a file, which is opened once."""
        if self._is_hdfs:
            file = self.system.client.read(name)
            return [_streamed(file, start, stop) for start, stop in ranges]
        return list(self.system.cat_ranges([name] * len(ranges), [start for start, _ in ranges],
                                           [stop for _, stop in ranges], on_error="raise"))

    def content(self, name: str) -> Any:
        """Return all bytes of a file."""
        if self._is_hdfs:
            file = self.system.client.read(name)
            return _streamed(file, 0, len(file))
        return self.system.cat_file(name)

    def write(self, name: str, pieces: Iterable[Any], nbytes: int) -> None:
        """Write beside, and rename; once more where HDFS fails over meanwhile, and the pieces are still there."""
        try:
            self._write(name, pieces, nbytes)
        except (OSError, RuntimeError) as error:
            if not self._is_hdfs or _LOST not in str(error):
                raise
            if not isinstance(pieces, Sequence):
                raise OSError("the NameNode went while it was written, of which nothing is left: write it again "
                              f"({error})") from error
            self._write(name, pieces, nbytes)

    def _write(self, name: str, pieces: Iterable[Any], nbytes: int) -> None:
        with contextlib.suppress(FileExistsError):
            self.make(self.system._parent(name))
        partial = partial_name(name)
        with contextlib.ExitStack() as undo:
            undo.callback(self._remove_file, partial)
            with self.system.open(partial, "wb", **block_for(self.system, nbytes)) as file:
                for piece in pieces:
                    file.write(piece)
            self.system.mv(partial, name, **({"overwrite": True} if self._is_hdfs else {}))
            undo.pop_all()

    def _remove_file(self, name: str) -> None:
        with contextlib.suppress(OSError, *self.errors):
            self.system.rm(name)

    def names(self, name: str) -> dict[str, bool]:
        """Return the names in a directory."""
        try:
            entries = self.system.ls(name, detail=True)
        except (FileNotFoundError, NotADirectoryError):
            return {}
        inside = name.strip("/")
        return {entry["name"].rstrip("/").rpartition("/")[2]: entry["type"] == "file" for entry in entries
                if entry["name"].strip("/") != inside}

    def make(self, name: str) -> None:
        """Make a directory, and those above it."""
        self.system.makedirs(name, exist_ok=True)

    def remove(self, name: str) -> None:
        """Remove a directory."""
        with contextlib.suppress(FileNotFoundError):
            self.system.rm(name, recursive=True)

    def rename(self, name: str, new: str) -> None:
        """Rename a directory."""
        if self._is_hdfs:
            self.system.mv(name, new)
        else:
            self.system.mv(name, new, recursive=True)

    @property
    def _is_hdfs(self) -> bool:
        return self.system.protocol in _HDFS


def block_for(system: Any, nbytes: int) -> dict[str, int]:
    """Return the option of a file's opening by which a block of HDFS holds the whole file; none for other systems."""
    return {"block_size": max(_BLOCK, -(-nbytes // _UNIT) * _UNIT)} if system.protocol in _HDFS else {}


def _streamed(file: Any, start: int, stop: int) -> memoryview:
    """Return the bytes of a range of HDFS, fewer where the file ends.

    They are copied packet by packet, of 64 KiB, into memory that is touched once; hdfs-native's own ``read_range`` puts
    them together twice, which took twice the processor time.
    """
    data, have = np.empty(max(0, min(stop, len(file)) - start), np.uint8).data, 0
    for packet in file.read_range_stream(start, len(data)):
        data[have:have + len(packet)] = packet
        have += len(packet)
    return data[:have]
