"""A worker starts once, by hand or by itself, says what it does, and leaves nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gpu_worker.client.connection import connect
from gpu_worker.protocol.errors import DeviceUnavailable, WorkerUnavailable
from tests.leaks import is_alive
from tests.system.worker_tools import SECONDS, Runtime, ask, eventually, hello, runtime

__all__ = ["runtime"]

ROOT = Path(__file__).resolve().parents[2]


def test_two_starts_leave_one_daemon(runtime: Runtime):
    first = runtime.run("start")
    daemons = runtime.daemons()
    second = runtime.run("start")
    assert (first.returncode, second.returncode) == (0, 0)
    assert "runs already" in second.stdout
    assert len(daemons) == 1 and runtime.daemons() == daemons


def test_starts_at_once_leave_one_daemon(runtime: Runtime):
    with ThreadPoolExecutor(5) as pool:
        results = list(pool.map(lambda _: runtime.run("start"), range(5)))
    assert [result.returncode for result in results] == [0] * 5
    assert len(runtime.daemons()) == 1


def test_clients_at_once_start_one_daemon_and_one_process(runtime: Runtime):
    def use(_):
        with runtime.client() as client:
            ask(client)
            return client.pid, client.epoch, client.worker

    with ThreadPoolExecutor(8) as pool:
        seen = set(pool.map(use, range(8)))
    assert len(seen) == 1
    assert len(runtime.daemons()) == 1


def test_sessions_have_processes_of_their_own(runtime: Runtime):
    with runtime.client("one") as one, runtime.client("two") as two:
        assert one.worker == two.worker and one.pid != two.pid
        os.kill(one.pid, signal.SIGKILL)
        ask(two)


def test_stop_ends_sessions_and_leaves_nothing(runtime: Runtime):
    with runtime.client() as client:
        result = runtime.run("stop")
        assert result.returncode == 0, result.stderr
        assert not is_alive(client.pid) and not runtime.daemons()
        assert {path.name for path in runtime.path.iterdir()} == {"daemon.log", "process.log"}


def test_the_worker_keeps_its_name(runtime: Runtime):
    names = set()
    for _ in range(2):
        with runtime.client() as client:
            names.add(client.worker)
        runtime.run("stop")
    assert len(names) == 1


def test_status_and_stop_without_a_daemon(runtime: Runtime):
    for command in ("status", "stop"):
        result = runtime.run(command)
        assert result.returncode == 3
        assert "no GPU worker runs" in result.stderr and "Traceback" not in result.stderr


def test_status_shows_sessions(runtime: Runtime):
    with runtime.client("one"), runtime.client("one"), runtime.client("two") as client:
        table = runtime.run("status").stdout
        shown = json.loads(runtime.run("status", "--json").stdout)
    assert "session one (an application)" in table and "2 clients" in table and "null:0" in table
    assert [session["session"] for session in shown["sessions"]] == ["one", "two"]
    assert [session["clients"] for session in shown["sessions"]] == [2, 1]
    assert shown["sessions"][1]["pid"] == client.pid
    assert shown["sessions"][0]["report"]["memory"][0]["device"] == "null:0"


def test_logs_are_printed(runtime: Runtime):
    assert runtime.run("logs").returncode == 1
    with runtime.client():
        printed = runtime.run("logs").stdout
    assert "listens on" in printed and "session app has process" in printed


def test_an_idle_daemon_ends_by_itself(runtime: Runtime):
    assert runtime.run("start", "--idle", "2").returncode == 0
    with runtime.client(lease=0.2, client_pid=0):
        time.sleep(0.1)
        assert runtime.daemons()
    assert eventually(lambda: not runtime.daemons())


def test_a_foreground_daemon_ends_on_sigterm(runtime: Runtime):
    with subprocess.Popen([sys.executable, "-m", "gpu_worker", "start", "--foreground"],
                          stderr=subprocess.DEVNULL) as daemon:
        assert eventually(lambda: (runtime.path / "daemon.sock").exists())
        with runtime.client() as client:
            daemon.terminate()
            assert daemon.wait(SECONDS) == 0
            assert not is_alive(client.pid)


def test_the_script_runs_from_a_checkout(runtime: Runtime):
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment["VISPARK_VENV"] = sys.prefix
    start = subprocess.run([ROOT / "bin" / "gpu-worker", "start"], env=environment, cwd="/", capture_output=True,
                           text=True, timeout=SECONDS)
    assert start.returncode == 0, start.stderr
    with runtime.client() as client:
        ask(client)


def test_the_daemon_loads_neither_numpy_nor_cuda(runtime: Runtime):
    with runtime.client():
        daemon = runtime.daemon()
        mapped = Path(f"/proc/{daemon}/maps").read_text()
    assert "numpy" not in mapped and "libcuda" not in mapped and "libmpi" not in mapped


def test_the_secret_is_not_in_arguments_or_logs(runtime: Runtime):
    secret = b"canary-" + os.urandom(12).hex().encode()
    with runtime.client(secret=secret) as client:
        seen = [Path(f"/proc/{pid}/{name}").read_bytes() for pid in (client.pid, *runtime.daemons())
                for name in ("cmdline", "environ")]
    assert not any(secret in text for text in seen)
    assert secret.decode() not in runtime.logs()


def test_a_client_may_ask_for_no_start(runtime: Runtime):
    with pytest.raises(WorkerUnavailable, match="gpu-worker start"):
        connect(hello(), start=False, timeout=5)
    assert not runtime.path.exists()


def test_a_device_that_cannot_be_had_is_told_to_every_client(runtime: Runtime):
    for _ in range(2):
        with pytest.raises(DeviceUnavailable):
            connect(hello(device="abacus"), timeout=SECONDS)
    with runtime.client("other") as client:
        ask(client)


def test_a_daemon_that_cannot_start_says_why(runtime: Runtime):
    runtime.path.mkdir(mode=0o700)
    (runtime.path / "daemon.sock").mkdir()
    with pytest.raises(WorkerUnavailable, match="no GPU worker could be started"):
        connect(hello(), timeout=5)
    (runtime.path / "daemon.sock").rmdir()
