"""Snapshots that tell of what a test leaves behind: descriptors, mappings, threads, processes, shared memory.

::

    before = leaks.Snapshot.take()
    ...
    assert not before.leaked()
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark import SparkContext

from gpu_worker.protocol.payload import KEPT_MEMORIES

#: The ports of servers to which a library keeps some connections, as it sees fit; who starts such servers adds them.
POOLED: set[int] = set()

#: The connections to each worker that a session keeps: that of whoever calls, and that of the thread that releases,
#: where a plan was on its way on the first.
KEPT_CONNECTIONS = 2

#: Seconds that threads and processes have to end after a test, on a machine that is busy with others.
PATIENCE = 15.0


@dataclass(frozen=True)
class Process:
    """A process, as ``/proc`` shows it."""

    pid: int
    parent: int
    command: str

    def __str__(self) -> str:
        return f"process {self.pid}: {self.command[:200]}"


@dataclass(frozen=True)
class ProcessSnapshot:
    """Everything that this process holds at one moment."""

    descriptors: Counter[str]
    mappings: Counter[str]
    threads: frozenset[threading.Thread]
    children: frozenset[int]
    shared_memory: frozenset[str]

    @classmethod
    def take(cls) -> ProcessSnapshot:
        """Look at this process now."""
        return cls(_descriptors(), _mappings(), frozenset(threading.enumerate()),
                   frozenset(process.pid for process in children()), frozenset(os.listdir("/dev/shm")))

    def leaked(self, patience: float = PATIENCE) -> list[str]:
        """Return a line for each thing that is there and was not, after ``patience`` seconds at most."""
        deadline = time.monotonic() + patience
        while True:
            gc.collect()
            leaks = self._more()
            if not leaks or time.monotonic() > deadline:
                return leaks
            time.sleep(0.05)

    def _more(self) -> list[str]:
        now = ProcessSnapshot.take()
        return [
            *(f"descriptor: {name} (+{count})" for name, count in (now.descriptors - self.descriptors).items()),
            *(f"mapping: {name} (+{count})" for name, count in (now.mappings - self.mappings).items()),
            *(f"thread: {thread.name}" for thread in now.threads - self.threads),
            *(f"child {process}" for process in (children() if now.children - self.children else [])
              if process.pid not in self.children),
            *(f"/dev/shm/{name}" for name in _of_no_other_run(now.shared_memory - self.shared_memory)),
        ]


def processes(wanted: Callable[[Process, str], bool]) -> list[Process]:
    """Return the living processes but this one for which ``wanted(process, environment)`` holds.

    ``environment`` is what the process was started with, each variable ended by a zero character.
    """
    ours = str(os.getpid())
    # What pathlib would take for all processes of the machine is seconds of all tests.
    return _those([pid for pid in os.listdir("/proc") if pid.isdigit() and pid != ours], wanted)


def children() -> list[Process]:
    """Return the children of this process."""
    pids: set[str] = set()
    # Twice, as a list leaves one out where another child ends meanwhile.
    for thread in 2 * os.listdir("/proc/self/task"):
        try:
            pids.update(_read(f"/proc/self/task/{thread}/children").split())
        except (FileNotFoundError, ProcessLookupError):  # The thread ended meanwhile, or the kernel has no such lists.
            if thread == str(os.getpid()):
                return [process for process in processes(lambda *_: True) if process.parent == os.getpid()]
    return _those(pids, lambda *_: True)


def _those(pids: Iterable[str], wanted: Callable[[Process, str], bool]) -> list[Process]:
    matching = []
    for pid in pids:
        try:
            state, above = _read(f"/proc/{pid}/stat").rpartition(")")[2].split(maxsplit=2)[:2]
            command = _read(f"/proc/{pid}/cmdline").replace("\0", " ").strip()
            environment = _read(f"/proc/{pid}/environ")
        except OSError:  # It ended meanwhile, or is another user's.
            continue
        process = Process(int(pid), int(above), command)
        if state != "Z" and wanted(process, environment + "\0"):
            matching.append(process)
    return matching


def is_alive(pid: int) -> bool:
    """Return whether a process is there and has not ended."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def processes_with(variable: str, value: str) -> list[Process]:
    """Return the processes that were started with an environment variable at a value."""
    wanted = f"\0{variable}={value}\0"
    return processes(lambda _, environment: wanted in "\0" + environment)


def processes_of(runtime_dir: str | os.PathLike) -> list[Process]:
    """Return the daemons and device processes of a runtime directory; Spark's own processes are not among them."""
    path = os.fspath(runtime_dir)
    variable = f"\0VISPARK_RUNTIME_DIR={path}\0"

    def wanted(process: Process, environment: str) -> bool:
        spark = "org.apache.spark" in process.command or "daemon pyspark.worker" in process.command
        return not spark and (path in process.command.split() or variable in "\0" + environment)

    return processes(wanted)


def wait_until_gone(find: Callable[[], list[Process]], patience: float = PATIENCE) -> list[Process]:
    """Return the processes that ``find()`` still gives after ``patience`` seconds at most."""
    deadline = time.monotonic() + patience
    while (left := find()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left


def kill(victims: list[Process]) -> None:
    """End processes at once."""
    for process in victims:
        try:
            os.kill(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def _descriptors() -> Counter[str]:
    """Count the open descriptors by what they lead to; the connections that PySpark and others pool are left out, and
    the memory that connections keep.
    """
    names: Counter[str] = Counter()
    pooled, spare = _pooled() | _kept(), _spare()
    for name in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{name}")
            number = os.stat(f"/proc/self/fd/{name}").st_ino if target.startswith("/memfd:") else 0
        except FileNotFoundError:  # The descriptor of the listing itself.
            continue
        if target not in pooled and number not in spare:
            names[target.partition(":")[0] if target.startswith(("socket:", "pipe:")) else target] += 1
    return names


def _pooled() -> set[str]:
    """Return the sockets to py4j's gateway, of the server that accumulators are sent to, and to servers of POOLED."""
    ports = set(POOLED)
    if SparkContext._gateway is not None:
        ports.add(SparkContext._gateway.gateway_parameters.port)
    if SparkContext._active_spark_context is not None:
        ports.add(SparkContext._active_spark_context._accumulatorServer.server_address[1])
    sockets = set()
    for name in os.listdir("/proc/self/fd") if ports else ():
        with contextlib.suppress(OSError):      # It was closed meanwhile.
            target = os.readlink(f"/proc/self/fd/{name}")
            if target.startswith("socket:") and ports & _ports(int(name)):
                sockets.add(target)
    return sockets


def _ports(descriptor: int) -> set[int]:
    """Return the ports at both ends of a socket of TCP; the kernel's table of all would take 10 ms."""
    with socket.socket(fileno=os.dup(descriptor)) as end:
        if end.family not in (socket.AF_INET, socket.AF_INET6):
            return set()
        ports = {end.getsockname()[1]}
        with contextlib.suppress(OSError):      # It listens, or is connected no longer.
            ports.add(end.getpeername()[1])
        return ports


def _workers() -> list[Any]:
    """Return the workers that the active context's session knows."""
    module, context = sys.modules.get("vispark.runtime.driver.session"), SparkContext._active_spark_context
    session: Any = module.Session._sessions.get(context) if module and context else None
    return session.workers.known() if session else []


def _kept() -> set[str]:
    """Return the sockets of connections to workers that the session keeps for what comes next."""
    sockets = set()
    for worker in _workers():
        for descriptor in worker.connections.idle[:KEPT_CONNECTIONS]:
            with contextlib.suppress(OSError):      # It was closed meanwhile.
                sockets.add(os.readlink(f"/proc/self/fd/{descriptor}"))
    return sockets


def _spare() -> set[int]:
    """Return the numbers (inodes) of the memfds that the session's connections keep for later requests, as many as they
    may.
    """
    return {payload.identity[1] for worker in _workers()
            for payload in worker.connections.spare[:KEPT_MEMORIES * KEPT_CONNECTIONS]}


def _of_no_other_run(names: frozenset[str]) -> frozenset[str]:
    """Return the names of /dev/shm's files that no living process of another test run, or of another program, has
    mapped.

    They are known by their numbers, since the C library makes a semaphore under another name than it gets.
    """
    if not names:
        return names
    numbers = {}
    for name in names:
        with contextlib.suppress(FileNotFoundError):
            numbers[os.stat(f"/dev/shm/{name}").st_ino] = name
    mark = f"\0VISPARK_TEST_RUN={os.environ['VISPARK_TEST_RUN']}\0"
    for process in processes(lambda _, environment: mark not in "\0" + environment):
        with contextlib.suppress(OSError):  # It ended meanwhile.
            for row in _read(f"/proc/{process.pid}/maps").splitlines():
                if "/dev/shm/" in row:
                    numbers.pop(int(row.split()[4]), None)
    return frozenset(numbers.values())


def _read(path: str) -> str:
    with open(path, "rb") as file:
        return file.read().decode(errors="replace")


def _mappings() -> Counter[str]:
    """Count the memfds that are mapped, without the memory that connections keep."""
    spare = _spare()
    rows = [row.split(maxsplit=5) for row in _read("/proc/self/maps").splitlines() if "/memfd:" in row]
    return Counter(row[5] for row in rows
                   if len(row) == 6 and row[5].startswith("/memfd:") and int(row[4]) not in spare)
