"""A real HDFS on this machine, as a context manager: a NameNode, and DataNodes at loopback addresses of their own.

Its jars are those of Hadoop 2.7.4, which ``.ci/hadoop`` puts into the user's cache; :data:`JARS` says where. The
DataNodes have the names that :mod:`tests.system.topology` gives its nodes, so that tasks may run where blocks are.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark import SparkContext

from tests import leaks
from tests.system import archive

#: Where ``.ci/hadoop`` puts the jars.
JARS = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "vispark", "hadoop-2.7.4")

#: Bytes of a block of HDFS; the least that a NameNode takes by itself is 1 MiB.
BLOCK = 1 << 20

#: Seconds for all servers to come up, on a busy machine.
START = 90.0

_HOST = "127.0.0.1"
_NAMENODE = "org.apache.hadoop.hdfs.server.namenode.NameNode"
_DATANODE = "org.apache.hadoop.hdfs.server.datanode.DataNode"

_COMMON = {
    "dfs.replication": 1,
    # Whoever starts the NameNode may all; others by HADOOP_USER_NAME.
    "dfs.permissions.enabled": "true",
    # WebHDFS needs Jersey 1, which is not among the jars.
    "dfs.webhdfs.enabled": "false",
    "dfs.namenode.http-address": f"{_HOST}:0",
    "dfs.namenode.safemode.threshold-pct": 0,
    "dfs.namenode.safemode.extension": 0,
    "dfs.namenode.datanode.registration.ip-hostname-check": "false",
    # A DataNode that was killed is missed soon.
    "dfs.namenode.heartbeat.recheck-interval": 1000,
    "dfs.heartbeat.interval": 1,
    "dfs.datanode.ipc.address": f"{_HOST}:0",
    "dfs.datanode.http.address": f"{_HOST}:0",
}

_LOG = """\
log4j.rootLogger=INFO,file
log4j.logger.org.apache.hadoop.hdfs.server.datanode.DataNode.clienttrace=DEBUG
log4j.appender.file=org.apache.log4j.FileAppender
log4j.appender.file.File=${log}
log4j.appender.file.layout=org.apache.log4j.PatternLayout
log4j.appender.file.layout.ConversionPattern=%d %p %c: %m%n
"""

_REGISTERED = "registerDatanode: from"
_READ = re.compile(r"clienttrace: src: .*, bytes: (\d+), op: HDFS_READ")


class Hdfs:
    """A running HDFS.

    Attributes
    ----------
    port : int
        The NameNode's, at 127.0.0.1.
    url : str
        Of the root, without a slash at the end.
    place : Path
        Where configuration, data and logs are.
    """

    def __init__(self, place: Path, hosts: tuple[str, ...], block: int):
        self.place = place
        self.port = _free_port()
        self.url = f"hdfs://{_HOST}:{self.port}"
        self.hosts = hosts
        self.block = block
        self._ports = {host: _free_port() for host in hosts}
        self._processes: dict[str, subprocess.Popen] = {}
        for name in ("hdfs", "datanode", "static"):
            web = place / "web" / "webapps" / name / "WEB-INF"
            web.mkdir(parents=True)
            (web / "web.xml").write_text("<web-app/>")

    def start(self) -> None:
        """Start all servers and wait for them."""
        leaks.POOLED.update({self.port, *self._ports.values()})
        for host in self.hosts:         # they ask for the NameNode until it is there
            self._start(host, _DATANODE)
        self._launch("format", _NAMENODE, "-format", "-force", "-nonInteractive").wait(START)
        self._start("namenode", _NAMENODE)
        self._wait_for("namenode", _REGISTERED, len(self.hosts))

    def kill(self, name: str) -> None:
        """Kill a DataNode, by its host, or "namenode"."""
        process = self._processes.pop(name)
        process.kill()
        process.wait()

    def stop(self) -> None:
        """Kill what runs."""
        for name in list(self._processes):
            self.kill(name)

    def put(self, sc: SparkContext, path: str, content: bytes, replication: int = 1) -> None:
        """Write a file, by Spark's own Hadoop client."""
        place, system = self._at(sc, path)
        with contextlib.closing(system.create(place, True, 4096, replication, self.block)) as file:
            file.write(bytearray(content))

    def blocks(self, sc: SparkContext, path: str) -> list[tuple[int, tuple[str, ...]]]:
        """Return the first byte of each block of a file, and the hosts that have it."""
        place, system = self._at(sc, path)
        blocks = system.getFileBlockLocations(system.getFileStatus(place), 0, 1 << 40)
        return [(block.getOffset(), tuple(block.getHosts())) for block in blocks]

    def _at(self, sc: SparkContext, path: str) -> tuple[Any, Any]:
        place = sc._jvm.org.apache.hadoop.fs.Path(f"{self.url}{path}")
        return place, place.getFileSystem(sc._jsc.hadoopConfiguration())

    def bytes_read(self) -> int:
        """Count the bytes that DataNodes sent to clients so far."""
        return sum(int(found) for host in self.hosts for found in _READ.findall(self._log(host)))

    def _log(self, name: str) -> str:
        log = self.place / f"{name}.log"
        return log.read_text(errors="replace") if log.exists() else ""

    def _start(self, name: str, server: str) -> None:
        self._processes[name] = self._launch(name, server)

    def _launch(self, name: str, server: str, *arguments: str) -> subprocess.Popen:
        configuration = self.place / name
        configuration.mkdir(exist_ok=True)
        data = self.place / "names" if server == _NAMENODE else self.place / f"data-{name}"
        own = {"dfs.namenode.name.dir": data.as_uri(), "dfs.datanode.data.dir": data.as_uri()}
        if server == _DATANODE:
            own |= {"dfs.datanode.hostname": name, "dfs.datanode.address": f"{_HOST}:{self._ports[name]}"}
        _write(configuration / "core-site.xml", {"fs.defaultFS": self.url, "hadoop.tmp.dir": str(self.place / "tmp")})
        _write(configuration / "hdfs-site.xml", _COMMON | {"dfs.blocksize": self.block} | own)
        (configuration / "log4j.properties").write_text(_LOG)
        path = os.pathsep.join(map(str, [configuration, self.place / "web", JARS / "*"]))
        # When this process is killed, nobody else would end them.
        command = ["setpriv", "--pdeathsig", "KILL", "java", "-Xmx96m", *archive.QUICK.split(),
                   f"-Dlog={self.place / name}.log", "-cp", path, server, *arguments]
        with (self.place / f"{name}.out").open("ab") as output:
            return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=self.place,
                                    start_new_session=True)

    def _wait_for(self, name: str, text: str, times: int) -> None:
        deadline = time.monotonic() + START
        while self._log(name).count(text) < times:
            ended = [each for each, process in self._processes.items() if process.poll() is not None]
            if ended or time.monotonic() > deadline:
                logged = "\n".join(self._log(each)[-3000:] for each in [*ended, name])
                raise RuntimeError(f"HDFS did not start: {ended or name}\n{logged}")
            time.sleep(0.05)


@contextlib.contextmanager
def running(*hosts: str, block: int = BLOCK) -> Iterator[Hdfs]:
    """Run an HDFS with a DataNode for each host, whose blocks have ``block`` bytes; it ends with the ``with`` block."""
    place = Path(tempfile.mkdtemp(prefix="vt-hdfs-"))
    hdfs = Hdfs(place, hosts, block)
    try:
        hdfs.start()
        yield hdfs
    finally:
        hdfs.stop()
        shutil.rmtree(place, ignore_errors=True)


def _write(path: Path, settings: dict[str, object]) -> None:
    properties = (f"<property><name>{name}</name><value>{value}</value></property>" for name, value in settings.items())
    path.write_text("\n".join(["<configuration>", *properties, "</configuration>"]))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        return probe.getsockname()[1]
