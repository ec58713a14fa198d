"""A GPU worker of a test's own: its runtime directory, its command line, and clients of the device "null"."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpu_worker.client.connection import Client, Lease, administer, connect, open_lease
from gpu_worker.protocol.errors import VisparkError
from gpu_worker.protocol.messages import VERSION, Hello, Report, Reported, SessionOptions, Status, StatusReport
from gpu_worker.system.admin import stop
from tests import leaks

SECRET = b"s" * 32
SECONDS = 30.0


def hello(session: str = "app", **changes) -> Hello:
    """Return a greeting; ``device``, ``lease`` and any of the greeting's own fields may be given."""
    options = SessionOptions(changes.pop("device", "null"), 0, changes.pop("lease", 30.0), "", "debug")
    fields = {"version": VERSION, "role": "executor", "session": session, "secret": SECRET,
              "application": "an application", "client_pid": os.getpid(), "options": options}
    return Hello(**fields | changes)


def ask(client: Client) -> Reported:
    """Make one round trip."""
    reply, _ = client.request(Report(client.next_number()))
    return reply


def eventually(holds: Callable[[], bool], seconds: float = SECONDS) -> bool:
    """Return whether ``holds()`` becomes true within ``seconds``."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if holds():
            return True
        time.sleep(0.02)
    return holds()


def stop_worker(directory: Path) -> None:
    """Stop the worker of a runtime directory, as ``gpu-worker stop`` does, which takes an interpreter of its own."""
    with contextlib.suppress(VisparkError):
        stop(runtime_dir=str(directory), timeout=SECONDS)


def end_workers(directory: Path) -> list[leaks.Process]:
    """Stop the worker of a runtime directory; gives, and kills, what is there after that.

    One that a client began to start, while another's came first, may listen after that has ended.
    """
    def left() -> list[leaks.Process]:
        if leaks.processes_of(directory):
            stop_worker(directory)
        return leaks.processes_of(directory)

    survivors = leaks.wait_until_gone(left)
    leaks.kill(survivors)
    return survivors


class Runtime:
    """A runtime directory, whose worker is not started yet."""

    def __init__(self, path: Path, failpoints: Path):
        self.path = path
        self._failpoints = failpoints

    def run(self, *arguments: str, timeout: float = SECONDS) -> subprocess.CompletedProcess:
        """Run ``gpu-worker`` with these arguments."""
        return subprocess.run([sys.executable, "-m", "gpu_worker", *arguments], timeout=timeout, capture_output=True,
                              text=True)

    def start(self) -> None:
        result = self.run("start", "--log-level", "debug")
        assert result.returncode == 0, result.stderr

    @contextlib.contextmanager
    def client(self, session: str = "app", **changes) -> Iterator[Client]:
        """Open a client, closed at the end; it starts what is not there."""
        with connect(hello(session, **changes), timeout=SECONDS) as client:
            yield client

    def lease(self, session: str = "app", **changes) -> Lease:
        return open_lease(hello(session, role="lease", client_pid=0, **changes), timeout=SECONDS)

    def status(self) -> StatusReport:
        return administer(Status())

    def daemons(self) -> list[int]:
        """Return the daemon's process id; several are a defect."""
        return [process.pid for process in leaks.processes_of(self.path)
                if re.search("gpu[_-]worker start", process.command)]

    def stop(self) -> bool:
        """End the daemon; whether there is none."""
        if self.daemons():
            stop_worker(self.path)
        return not self.daemons()

    def daemon(self) -> int:
        """Return the daemon's process id, once there is one alone; what it forks has its name for a moment."""
        pids: list[int] = []

        def is_alone() -> bool:
            pids[:] = self.daemons()
            return len(pids) == 1

        assert eventually(is_alone), pids
        return pids[0]

    def socket(self) -> socket.socket:
        """Open a connection to the daemon that has not greeted."""
        sock = socket.socket(socket.AF_UNIX)
        sock.settimeout(SECONDS)
        sock.connect(os.fspath(self.path / "daemon.sock"))
        return sock

    def fail_at(self, point: str, action: str = "kill") -> Path:
        """Make the worker fail at a point, once; the file given is gone when it did."""
        path = self._failpoints / point
        path.write_text(action)
        return path

    def logs(self) -> str:
        return "\n".join(f"==> {path.name}\n{path.read_text()}" for path in sorted(self.path.glob("*.log")))


@pytest.fixture
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runtime]:
    """Make a worker's runtime directory, left without processes and files but logs."""
    with new_runtime(tmp_path_factory.mktemp("w")) as runtime:
        yield runtime


@contextlib.contextmanager
def new_runtime(base: Path) -> Iterator[Runtime]:
    """Make a runtime directory as the fixture :func:`runtime` does, below a directory."""
    (base / "failpoints").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VISPARK_RUNTIME_DIR", str(base / "rt"))
        patch.setenv("VISPARK_FAILPOINTS", str(base / "failpoints"))
        runtime = Runtime(base / "rt", base / "failpoints")
        yield runtime
        left = end_workers(runtime.path)
    print(runtime.logs())
    assert not left, f"left behind: {[str(process) for process in left]}"
    files = {path.name for path in runtime.path.glob("*")} - {"daemon.log", "process.log"}
    assert not files, f"left behind: {files}"
