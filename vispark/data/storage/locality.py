"""Tasks that run where HDFS has what they read: the driver asks the NameNode by Spark's own Hadoop client."""

from __future__ import annotations

import logging
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JError
from pyspark import RDD, SparkContext
from pyspark.errors.exceptions.captured import CapturedException

from vispark._utils.placed_rdd import placed

#: The schemes of file systems whose blocks lie on nodes that may run tasks too.
SCHEMES = ("hdfs", "viewfs", "webhdfs", "swebhdfs")

#: What Hadoop's client does, as otherwise it would ask a NameNode that is down for a minute; places are worth less.
_QUICK = {"ipc.client.connect.max.retries": 1, "ipc.client.connect.timeout": 5000,
          "dfs.client.failover.max.attempts": 2}

#: A block as ``BlockLocation.toString`` has it: its first byte, its bytes, and hosts.
_BLOCK = re.compile(r"(\d+),(\d+)(?:\(corrupt\))?((?:,[^,]+)*)")

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class FileRange:
    """Range of the bytes of a file, from ``start`` to ``stop``; one behind the file's end stands for the end."""

    path: str
    start: int = 0
    stop: int = 1 << 62


@dataclass(frozen=True)
class FileBlock:
    """Block of a file: its bytes, and the hosts that have it."""

    start: int
    stop: int
    hosts: tuple[str, ...]


def near_blocks(sc: SparkContext, shares: Sequence[Any], ranges: Sequence[Sequence[FileRange]]) -> RDD[Any]:
    """Return an RDD with a partition for each share, which Spark runs where most bytes of its ranges are, if it can.

    Parameters
    ----------
    sc : SparkContext
        Whose RDD it is.
    shares : sequence
        The one record of each partition.
    ranges : sequence of sequence of FileRange
        What the partition's task reads. Files of this machine and of object stores are at no place, and where Hadoop
        does not know a file, or its NameNode does not answer, its tasks run anywhere.
    """
    paths = {each.path for share in ranges for each in share}
    if not any(is_placed(path) for path in paths):
        return placed(sc, shares, [[] for _ in shares])
    blocks = blocks_of(sc, sorted(path for path in paths if is_placed(path)))
    return placed(sc, shares, [hosts_with_most(share, blocks) for share in ranges])


def is_placed(path: str) -> bool:
    """Return whether a path is of a file system whose blocks lie on known nodes."""
    return path.partition("://")[0] in SCHEMES and "://" in path


def hosts_with_most(ranges: Sequence[FileRange], blocks: Mapping[str, Sequence[FileBlock]]) -> list[str]:
    """Return the hosts that have the most bytes of ranges, several where they have as many.

    Examples
    --------
    >>> blocks = {"f": [FileBlock(0, 100, ("a", "b")), FileBlock(100, 150, ("b", "c"))]}
    >>> hosts_with_most([FileRange("f", 0, 90)], blocks), hosts_with_most([FileRange("f")], blocks)
    (['a', 'b'], ['b'])
    """
    held: Counter[str] = Counter()
    for file in ranges:
        for block in blocks.get(file.path, ()):
            nbytes = min(file.stop, block.stop) - max(file.start, block.start)
            if nbytes > 0:
                held.update(dict.fromkeys(block.hosts, nbytes))
    most = max(held.values(), default=0)
    return sorted(host for host, nbytes in held.items() if nbytes == most)


def blocks_of(sc: SparkContext, paths: Sequence[str]) -> dict[str, list[FileBlock]]:
    """Return the blocks of files by path, as far as Hadoop knows them."""
    blocks: dict[str, list[FileBlock]] = {}
    roots: dict[str, list[str]] = defaultdict(list)
    for path in paths:
        scheme, _, rest = path.partition("://")
        roots[f"{scheme}://{rest.partition('/')[0]}/"].append(path)
    for root, inside in roots.items():
        try:
            blocks.update(_blocks_in(sc, root, inside))
        except (Py4JError, CapturedException) as error:
            _log.info("tasks that read %s run anywhere: %s", root, str(error).partition("\n")[0])
    return blocks


def _blocks_in(sc: SparkContext, root: str, paths: Sequence[str]) -> dict[str, list[FileBlock]]:
    """Return the blocks of files of one system."""
    jvm: Any = sc._jvm
    settings = jvm.org.apache.hadoop.conf.Configuration(sc._jsc.hadoopConfiguration())
    for name, value in _QUICK.items():
        settings.setInt(name, value)
    # One of its own, as Hadoop gives all others the one that was made first, with its settings.
    system = jvm.org.apache.hadoop.fs.FileSystem.newInstance(jvm.java.net.URI.create(root), settings)
    try:
        blocks: dict[str, list[FileBlock]] = {}
        directories: dict[str, list[str]] = defaultdict(list)
        for path in paths:
            directories[path.rpartition("/")[0]].append(path)
        at = jvm.org.apache.hadoop.fs.Path
        for directory, inside in directories.items():
            blocks.update(_listed(system, at(f"{directory}/"), set(inside)) if len(inside) > 1 else
                          [(inside[0], _asked(system, at(inside[0])))])
        return blocks
    finally:
        system.close()


def _asked(system: Any, place: Any) -> list[FileBlock]:
    """Return the blocks of a file."""
    status = system.getFileStatus(place)
    return _parsed(system.getFileBlockLocations(status, 0, status.getLen()))


def _listed(system: Any, place: Any, wanted: set[str]) -> Iterator[tuple[str, list[FileBlock]]]:
    """Yield the blocks of files in a directory, for which the NameNode is asked once for many."""
    directory = next(iter(wanted)).rpartition("/")[0]
    files = system.listLocatedStatus(place)
    while files.hasNext():
        status = files.next()
        path = f"{directory}/{status.getPath().getName()}"
        if path in wanted:
            yield path, _parsed(status.getBlockLocations())


def _parsed(locations: Any) -> list[FileBlock]:
    # As text, since each call into the JVM takes its time, and large files have thousands of blocks.
    matches = map(_BLOCK.fullmatch, map(str, locations))
    return [FileBlock(int(block[1]), int(block[1]) + int(block[2]), _names(block[3])) for block in matches if block]


def _names(hosts: str) -> tuple[str, ...]:
    return tuple(host for host in hosts.split(",") if host not in ("", "localhost"))
