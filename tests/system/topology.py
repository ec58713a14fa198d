"""Real Spark topologies on this machine, as context managers.

``local(n)`` runs tasks in the driver's JVM, ``standalone(n)`` in ``n`` executors of a real master and real workers,
each worker at a loopback address of its own (127.0.0.2, 127.0.0.3, ...) and with a runtime directory of its own, so
that Spark and vispark see ``n`` nodes. Speculative twins of a task happen in ``standalone`` alone, because Spark never
runs two attempts of a task on one host.

One context lives at a time. All of them in one process share one JVM, which :func:`shutdown` ends.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pyspark import SparkConf, SparkContext, TaskContext
from pyspark.find_spark_home import _find_spark_home

from gpu_worker.system.paths import DISCOVERY_SCRIPT
from tests import leaks
from tests.system import archive, pyspark_daemon
from tests.system.worker_tools import stop_worker

DRIVER = "127.0.0.1"

#: Seconds for a master, a worker or an executor to come up; a loaded machine needs several.
START = 60.0

_MARK = "VISPARK_TEST_TOPOLOGY"

#: How plans go from the driver to the workers in all tests that do not say: "unix", "tcp" or "relay".
TRANSPORT = "VISPARK_TEST_TRANSPORT"

#: The device on which tests run that ask for ``host``: on a machine with a GPU, "cuda" runs them there.
DEVICE = "VISPARK_TEST_DEVICE"

#: What a context's tests on GPUs see of them, unless they or Spark say: the first.
_FIRST_GPU = "spark.executorEnv.CUDA_VISIBLE_DEVICES", os.environ.get("CUDA_VISIBLE_DEVICES", "0").partition(",")[0]

#: The first of these devices, as errors and reports name it.
DEVICE_NAME = f"{os.environ.get(DEVICE, 'host')}:0"

_DRIVER_LOG = """\
rootLogger.level = info
rootLogger.appenderRef.file.ref = file
appender.file.type = File
appender.file.name = file
appender.file.fileName = {path}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{HH:mm:ss.SSS}} %p %c{{1}}: %m%n%ex
"""


class TopologyError(RuntimeError):
    """A part of a topology did not start; the message ends with its log."""


@dataclass(frozen=True)
class LocalNode:
    """Stand-in for a machine: an address, and the runtime directory of its GPU worker."""

    host: str
    runtime_dir: Path


@dataclass(frozen=True)
class Topology:
    """A running topology, on which one context at a time may be had.

    Attributes
    ----------
    master : str
        What a SparkContext takes as its master.
    nodes : tuple of Node
        The nodes that tasks run on.
    executors : int
        How many executors a context waits for.
    logs : Path
        Where the logs of everything but the driver's JVM lie.
    """

    master: str
    nodes: tuple[LocalNode, ...]
    executors: int
    logs: Path
    conf: dict[str, str] = field(default_factory=dict)

    @contextlib.contextmanager
    def context(self, conf: Mapping[str, object] | None = None) -> Iterator[SparkContext]:
        """Start a context here with Spark options of one's own, all executors registered; stop it at the end."""
        settings = SparkConf(loadDefaults=False).setMaster(self.master).setAppName("vispark tests")
        wanted = _common_conf() | self.conf | dict(conf or {})
        if wanted.get("spark.vispark.device") == "host":
            wanted["spark.vispark.device"] = os.environ.get(DEVICE, "host")
        if wanted.get("spark.vispark.device") == "cuda" and not any(".resource.gpu." in name for name in wanted):
            wanted.setdefault(*_FIRST_GPU)
        for name, value in wanted.items():
            settings.set(name, str(value).lower() if isinstance(value, bool) else str(value))
        sc = SparkContext(conf=settings)
        try:
            self._wait_for_executors(sc)
            yield sc
        finally:
            sc.stop()

    def _wait_for_executors(self, sc: SparkContext) -> None:
        def registered() -> bool:
            # The driver's block manager is among them.
            return sc._jsc.sc().getExecutorMemoryStatus().size() > self.executors

        _wait(registered, f"{self.executors} executors of {self.master}", self.logs)


@contextlib.contextmanager
def local(cores: int = 2, imports: str = "") -> Iterator[Topology]:
    """Run tasks in threads of the driver's JVM, and their Python workers beside it, which are forked with ``imports``.
    """
    with _workplace() as (place, mark):
        node = _node(place, DRIVER)
        stock, _ = _stock()
        start_jvm()
        conf = _executor_environment(node, mark) | {"spark.python.daemon.module": "tests.system.pyspark_daemon",
                                                    f"spark.executorEnv.{pyspark_daemon.STOCK}": stock,
                                                    "spark.executorEnv.VISPARK_TEST_IMPORTS": imports}
        yield Topology(f"local[{cores}]", (node,), 0, place, conf)


def gpu_worker(node: LocalNode, *arguments: str) -> None:
    """Run a command of a node's worker."""
    subprocess.run([sys.executable, "-m", "gpu_worker", *arguments], check=True, timeout=60, capture_output=True,
                   env=os.environ | {"VISPARK_RUNTIME_DIR": str(node.runtime_dir)})


@contextlib.contextmanager
def clustered(running: Topology) -> Iterator[Topology]:
    """Make the daemons of a topology know each other."""
    for node in running.nodes if len(running.nodes) > 1 else ():
        others = ",".join(str(other.runtime_dir) for other in running.nodes if other is not node)
        gpu_worker(node, "start", "--hosts", others)
    try:
        yield running
    finally:
        for node in running.nodes:
            stop_worker(node.runtime_dir)


@contextlib.contextmanager
def standalone(workers: int = 2, cores: int = 1, gpus: int = 0) -> Iterator[Topology]:
    """Run tasks in ``workers`` executors of one core each, each on a node of its own, under a real master.

    With more ``cores``, each worker has so many, and memory for as many executors; contexts say what they take of them.
    Workers with ``gpus`` find the addresses 0, 1, ... by the discovery script; no GPU need be there.
    """
    with _workplace() as (place, mark), contextlib.ExitStack() as running:
        port = _free_port()
        nodes = tuple(_node(place, f"127.0.0.{2 + number}") for number in range(workers))
        master = ["org.apache.spark.deploy.master.Master", "--host", DRIVER, "--port", str(port), "--webui-port", "0"]
        leader = running.enter_context(_daemon(master, place / "master.log", _marked(mark, DRIVER)))
        start_jvm()
        _wait(lambda: _listens(port), "the Spark master", place, leader)
        workers_up = [(node, running.enter_context(_worker(node, port, place, mark, cores, gpus))) for node in nodes]
        for node, process in workers_up:
            log = place / f"worker-{node.host}.log"
            _wait(lambda log=log: "Successfully registered with master" in log.read_text(),
                  f"the Spark worker on {node.host}", place, process)
        try:
            yield Topology(f"spark://{DRIVER}:{port}", nodes, workers, place, {"spark.cores.max": str(workers)})
        finally:
            for _, process in workers_up:       # all at once, as each takes its time
                process.terminate()


def start_jvm() -> None:
    """Start the driver's JVM, if it does not run yet, as a context would."""
    settings = SparkConf(loadDefaults=False)
    for name, value in _common_conf().items():
        settings.set(name, value)
    SparkContext._ensure_initialized(conf=settings)


@functools.cache
def _stock() -> tuple[str, subprocess.Popen]:
    """Start the process from which servers of Python workers are forked, once; return its address, and the process."""
    address = f"vispark-stock-{uuid.uuid4()}"
    environment = {name: value for name, value in (os.environ | pyspark_daemon.AT_IMPORT).items() if value is not None}
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"\0{address}")
        listener.listen()
        command = [sys.executable, "-m", "tests.system.stock_daemon", "pyspark.worker", str(listener.fileno())]
        return address, subprocess.Popen(command, stdin=subprocess.PIPE, env=environment,
                                         pass_fds=(listener.fileno(),))


def shutdown() -> None:
    """End the JVM that the contexts of this process share, if there is one, and the stock of Python workers."""
    if _stock.cache_info().currsize:
        _, stock = _stock()
        stock.stdin.close()
        stock.wait(START)
        _stock.cache_clear()
    gateway = SparkContext._gateway
    if gateway is None:
        return
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(START)
    SparkContext._gateway = SparkContext._jvm = None
    for name in ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"):
        os.environ.pop(name, None)
    shutil.rmtree(_home(), ignore_errors=True)
    _home.cache_clear()


# -- twins ------------------------------------------------------------------------------------------------------------

#: Makes Spark run a twin of a task as soon as another task of its stage has ended and it has run for 0.1 s, and for no
#: less than the others' median. By default it would be twice that for tasks that read no records of Spark's, which on
#: a busy machine is longer than a test waits.
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.efficiency.enabled": "false",
    "spark.speculation.interval": "50ms",
    "spark.speculation.multiplier": "1.01",
    "spark.speculation.quantile": "0.1",
    "spark.speculation.minTaskRuntime": "100ms",
}


@dataclass(frozen=True)
class Attempt:
    """One run of a task: which, the how many-th, and on which node."""

    partition: int
    number: int
    host: str


@dataclass(frozen=True)
class Twins:
    """Maker of a twin of one partition's task, with a record of every attempt in a directory.

    Pass :meth:`hold` to ``mapPartitionsWithIndex`` on a ``standalone`` topology with :data:`SPECULATION`, on an RDD
    of at least two partitions::

        twins = Twins(tmp_path, 0)
        rdd.mapPartitionsWithIndex(twins.hold).cache("GPU").count()
        twins.check()

    Parameters
    ----------
    directory : Path
        An empty directory.
    partition : int
        The partition whose attempts wait until two of them have started, so that neither ends, and with it the other
        is killed, before that. It is one only, since an attempt that waits keeps a node's only core.
    patience : float
        Seconds that they wait at most.
    """

    directory: Path
    partition: int
    patience: float = 100.0

    def hold(self, partition: int, records: Iterable) -> Iterable:
        """Record this attempt; one of the chosen partition then waits for its twin. Returns ``records``."""
        number = TaskContext.get().attemptNumber()
        (self.directory / f"{partition}-{number}-{os.environ['SPARK_LOCAL_IP']}").touch()
        if partition == self.partition:
            deadline = time.monotonic() + self.patience
            while len(list(self.directory.glob(f"{partition}-*"))) < 2 and time.monotonic() < deadline:
                time.sleep(0.02)
        return records

    def attempts(self) -> list[Attempt]:
        """Return the attempts so far, in order of partition and number."""
        parts = [path.name.split("-") for path in self.directory.iterdir()]
        return sorted((Attempt(int(partition), int(number), host) for partition, number, host in parts),
                      key=dataclasses.astuple)

    def check(self) -> None:
        """Fail unless the chosen partition really ran on two nodes."""
        attempts = self.attempts()
        hosts = {attempt.host for attempt in attempts if attempt.partition == self.partition}
        assert len(hosts) > 1, f"partition {self.partition} had no twin: {attempts}"


# -- parts ------------------------------------------------------------------------------------------------------------

def driver_log_tail(lines: int = 40) -> str:
    """Return the last lines that the driver's JVM logged."""
    log = _home() / "driver.log"
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:]) if log.exists() else ""


def log_tails(directory: Path, lines: int = 40) -> str:
    """Return the last lines of every log below a directory."""
    logs = [path for path in sorted(directory.rglob("*")) if path.name == "stderr" or path.suffix == ".log"]
    texts = [(path, path.read_text(errors="replace").splitlines()[-lines:]) for path in logs]
    return "\n".join(f"== {path.relative_to(directory)}\n" + "\n".join(text) for path, text in texts if text)


@functools.cache
def _home() -> Path:
    """Make the directory of the driver's JVM, of which a process has one."""
    return Path(tempfile.mkdtemp(prefix="vt-driver-"))


def jvm_options() -> str:
    """Return the options that make JVMs quick to start rather than quick to run."""
    return f"{archive.QUICK} {archive.options()}".rstrip()


def _common_conf() -> dict[str, str]:
    """Little memory, a quick start, loopback addresses only."""
    settings = _home() / "log4j2.properties"
    settings.write_text(_DRIVER_LOG.format(path=_home() / "driver.log"))
    return {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": DRIVER,
        "spark.driver.bindAddress": DRIVER,
        "spark.driver.memory": "512m",
        "spark.driver.extraJavaOptions": f"{jvm_options()} -Dlog4j2.configurationFile={settings.as_uri()}",
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": jvm_options(),
        "spark.local.dir": str(_home() / "local"),
        "spark.vispark.fallback": "silent",
        "spark.vispark.transport": os.environ.get(TRANSPORT, "auto"),
    }


def _marked(mark: str, host: str) -> dict[str, str]:
    return {_MARK: mark, "SPARK_LOCAL_IP": host}


def _executor_environment(node: LocalNode, mark: str) -> dict[str, str]:
    variables = _marked(mark, node.host) | {"VISPARK_RUNTIME_DIR": str(node.runtime_dir)}
    return {f"spark.executorEnv.{name}": value for name, value in variables.items()}


@contextlib.contextmanager
def _workplace() -> Iterator[tuple[Path, str]]:
    """Make a short directory, and a mark that everything started in it carries; neither outlives the block."""
    place, mark = Path(tempfile.mkdtemp(prefix="vt-")), uuid.uuid4().hex
    try:
        yield place, mark
    finally:
        leaks.kill(leaks.wait_until_gone(lambda: leaks.processes_with(_MARK, mark)))
        shutil.rmtree(place, ignore_errors=True)


def _node(place: Path, host: str) -> LocalNode:
    directory = place / host.rpartition(".")[2]
    directory.mkdir(mode=0o700)
    return LocalNode(host, directory)


def _worker(node: LocalNode, port: int, place: Path, mark: str, cores: int,
            gpus: int) -> contextlib.AbstractContextManager[subprocess.Popen]:
    command = ["org.apache.spark.deploy.worker.Worker", "--host", node.host, "--cores", str(cores),
               "--memory", f"{cores}g", "--webui-port", "0", "--work-dir", str(place / f"work-{node.host}"),
               f"spark://{DRIVER}:{port}"]
    variables = {"SPARK_LOCAL_DIRS": str(place / f"local-{node.host}"), "VISPARK_RUNTIME_DIR": str(node.runtime_dir)}
    if gpus:
        variables["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, range(gpus)))
        variables["SPARK_WORKER_OPTS"] = (f"-Dspark.worker.resource.gpu.amount={gpus} "
                                          f"-Dspark.worker.resource.gpu.discoveryScript={DISCOVERY_SCRIPT}")
    return _daemon(command, place / f"worker-{node.host}.log", _marked(mark, node.host) | variables)


@contextlib.contextmanager
def _daemon(command: list[str], log: Path, environment: dict[str, str]) -> Iterator[subprocess.Popen]:
    """Run a master or a worker; it is ended politely, so that it ends its executors."""
    home = _find_spark_home()
    variables = {"SPARK_HOME": home, "PYSPARK_PYTHON": sys.executable, "SPARK_DAEMON_MEMORY": "256m",
                 "SPARK_DAEMON_JAVA_OPTS": f"{jvm_options()} -Dspark.master.rest.enabled=false",
                 "SPARK_PUBLIC_DNS": environment["SPARK_LOCAL_IP"]}
    # When this process is killed, nobody else would end them.
    outlived = ["setpriv", "--pdeathsig", "TERM"]
    with log.open("wb") as output, subprocess.Popen(
            [*outlived, f"{home}/bin/spark-class", *command], stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            env=os.environ | variables | environment, cwd=log.parent, start_new_session=True) as process:
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()


def _wait(condition: Callable[[], bool], what: str, logs: Path, process: subprocess.Popen | None = None) -> None:
    """Wait until ``condition()`` holds; ``process`` must live meanwhile."""
    deadline = time.monotonic() + START
    while not condition():
        if time.monotonic() > deadline or (process is not None and process.poll() is not None):
            raise TopologyError(f"{what} did not start\n{log_tails(logs)}")
        time.sleep(0.05)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((DRIVER, port)) == 0


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((DRIVER, 0))
        return probe.getsockname()[1]
