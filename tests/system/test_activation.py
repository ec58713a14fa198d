"""A service manager hands the daemon its socket and hears of its states, by systemd's own protocol."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpu_worker.daemon.activation import notify, passed_listener
from gpu_worker.protocol.errors import WorkerUnavailable
from gpu_worker.system.peer import peer_process
from tests.system.worker_tools import SECONDS, Runtime, ask, runtime

__all__ = ["runtime"]

# The process gets the socket as descriptor 3, and says so with its own number, as a service manager does it.
_PASS = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.set_inheritable(3, True)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS="1", LISTEN_FDNAMES="daemon")
os.execv(sys.executable, [sys.executable, "-m", "gpu_worker", "start", "--foreground", "--log-level", "debug"])
"""


@contextlib.contextmanager
def _listening(path: Path) -> Iterator[socket.socket]:
    path.parent.mkdir(mode=0o700, exist_ok=True)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        path.chmod(0o600)
        listener.listen()
        try:
            yield listener
        finally:
            path.unlink()


@contextlib.contextmanager
def _activated(listener: socket.socket, states: socket.socket) -> Iterator[subprocess.Popen[str]]:
    environment = os.environ | {"NOTIFY_SOCKET": states.getsockname()}
    with subprocess.Popen([sys.executable, "-c", _PASS, str(listener.fileno())], pass_fds=[listener.fileno()],
                          env=environment, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            process.communicate(timeout=SECONDS)


@pytest.fixture
def states(tmp_path: Path) -> Iterator[socket.socket]:
    """Listen to what a daemon tells the service manager."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(str(tmp_path / "notify"))
        sock.settimeout(SECONDS)
        yield sock


def test_a_daemon_serves_the_socket_that_it_is_passed_and_leaves_it(runtime: Runtime, states: socket.socket):
    with _listening(runtime.path / "daemon.sock") as listener:
        for _ in range(2):      # the socket outlives a daemon, and the next one takes it
            with _activated(listener, states) as process:
                assert states.recv(4096).decode().splitlines()[0] == "READY=1"
                with runtime.client() as client:
                    ask(client)
                with runtime.socket() as sock:      # whose peer is the daemon, not whoever listened for it
                    assert peer_process(sock) == process.pid
                assert "runs already" in runtime.run("start").stdout
                assert len(runtime.daemons()) == 1
                process.send_signal(signal.SIGTERM)
                assert states.recv(4096) == b"STOPPING=1"
                assert process.wait(SECONDS) == 0, process.stderr.read()
            assert (runtime.path / "daemon.sock").is_socket()


def test_no_other_daemon_takes_the_path_of_a_service_manager(runtime: Runtime):
    with _listening(runtime.path / "daemon.sock") as listener:
        listener.settimeout(SECONDS)
        started = runtime.run("start")
        assert started.returncode == 0 and "runs already" in started.stdout, started.stderr
        listener.accept()[0].close()        # that is what makes a manager start its daemon
        assert not runtime.daemons() and not (runtime.path / "daemon.lock").exists()


def test_a_socket_at_another_path_is_refused_with_the_right_one(runtime: Runtime, states: socket.socket):
    with (_listening(runtime.path / "other.sock") as listener, _activated(listener, states) as process):
        assert process.wait(SECONDS) == 1
        stderr = process.stderr.read()
    assert f"ListenStream={runtime.path / 'daemon.sock'}" in stderr and "other.sock" in stderr


@pytest.mark.skipif(not shutil.which("systemd-socket-activate"), reason="needs systemd")
def test_systemd_starts_a_daemon_at_the_first_connection(runtime: Runtime):
    path = runtime.path / "daemon.sock"
    path.parent.mkdir(mode=0o700)
    variables = [f"--setenv={name}" for name in os.environ if name.startswith(("VISPARK_", "PYTHON"))]
    command = ["systemd-socket-activate", f"--listen={path}", *variables, sys.executable, "-m", "gpu_worker", "start",
               "--foreground"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert "Listening on" in process.stderr.readline()
            assert runtime.status().pid == process.pid
            assert runtime.run("stop").returncode == 0
            assert process.wait(SECONDS) == 0
        finally:
            process.kill()
    path.unlink()


def test_several_sockets_and_other_processes_are_told_apart():
    for_another = {"LISTEN_PID": str(os.getppid()), "LISTEN_FDS": "1"}
    assert passed_listener(Path("/run/x"), for_another) is None
    assert for_another == {}
    with pytest.raises(WorkerUnavailable, match="passes 2 sockets"):
        passed_listener(Path("/run/x"), {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "2"})


def test_states_go_to_abstract_sockets_and_a_deaf_manager_is_no_error(tmp_path: Path):
    assert not notify("READY=1", {"NOTIFY_SOCKET": str(tmp_path / "nobody")})
    assert not notify("READY=1", {"NOTIFY_SOCKET": "vsock:2:1"})
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind("")
        assert notify("READY=1", {"NOTIFY_SOCKET": "@" + sock.getsockname()[1:].decode()})
        assert sock.recv(100) == b"READY=1"
