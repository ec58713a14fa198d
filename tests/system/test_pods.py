"""A daemon in its own mount and PID namespace, as in another pod of the node, serves clients outside, and the other way
round. What they share is the runtime directory.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator

import pytest

from gpu_worker.client.connection import connect
from tests.system.worker_tools import SECONDS, Runtime, ask, eventually, hello, runtime

__all__ = ["runtime"]

# Processes of the namespace end with the first of it, and that with this one.
_APART = ["unshare", *([] if os.geteuid() == 0 else ["--user", "--map-root-user"]), "--mount", "--pid", "--fork",
          "--kill-child", "--mount-proc"]


@pytest.fixture(scope="module", autouse=True)
def permitted() -> None:
    if not shutil.which("unshare") or subprocess.run([*_APART, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no unshare, or no right to use it")


@contextlib.contextmanager
def _apart(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen([*_APART, sys.executable, *arguments], stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.terminate()
            process.wait(SECONDS)


def test_a_daemon_in_another_pod_serves_executors_here(runtime: Runtime):
    with _apart("-m", "gpu_worker", "start", "--foreground", "--log-level", "debug"):
        assert eventually((runtime.path / "daemon.sock").is_socket, SECONDS)
        with runtime.lease(), runtime.client() as client:
            assert ask(client)
            assert client.pid < 100, "a number of the daemon's namespace"
            with runtime.client() as another:
                assert another.epoch == client.epoch
        assert "runs already" in runtime.run("start").stdout
        assert len(runtime.status().sessions) == 1
        assert runtime.run("stop").returncode == 0


_EXECUTOR = """
from tests.system.worker_tools import ask, hello
from gpu_worker.client.connection import connect
with connect(hello(), timeout=30) as client:
    print("answered", bool(ask(client)), client.worker, flush=True)
"""


def test_an_executor_in_another_pod_uses_the_daemon_here(runtime: Runtime):
    runtime.start()
    with runtime.lease(), connect(hello(), timeout=SECONDS) as client:
        with _apart("-c", _EXECUTOR) as executor:
            output, _ = executor.communicate(timeout=SECONDS)
        assert executor.returncode == 0
        assert output.split() == ["answered", "True", client.worker]
        assert ask(client), "the process goes on when the pod has ended"
