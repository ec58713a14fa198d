"""Daemons, device processes and drivers die at any moment; what is left is found, said or cleared away."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from gpu_worker.client import connection as worker_client
from gpu_worker.protocol.errors import VisparkError, WorkerLost
from gpu_worker.system import daemon_watch, stopped_processes
from tests import leaks
from tests.leaks import is_alive
from tests.system.worker_tools import SECONDS, Runtime, ask, eventually, runtime

__all__ = ["runtime"]


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    assert eventually(lambda: not is_alive(pid))


# -- the daemon dies --------------------------------------------------------------------------------------------------

def test_clients_go_on_without_a_daemon_and_a_new_one_adopts(runtime: Runtime):
    with runtime.client() as client:
        kill(runtime.daemons()[0])
        ask(client)
        with runtime.client() as second:
            assert (second.pid, second.epoch, second.worker) == (client.pid, client.epoch, client.worker)
            ask(second)
        ask(client)
        assert eventually(lambda: len(runtime.daemons()) == 1)
        session, = runtime.status().sessions
        assert (session.pid, session.application, session.clients) == (client.pid, "an application", 1)


def test_an_adopted_session_keeps_secret_lease_and_exit_status(runtime: Runtime):
    with runtime.client() as client:
        kill(runtime.daemons()[0])
        with pytest.raises(VisparkError, match="another secret"), runtime.client(secret=b"t" * 32):
            pass
        kill(client.pid)
        assert eventually(lambda: not worker_client.exit_status("app", client.epoch).alive)
        with runtime.client() as second:
            assert second.epoch == client.epoch + 1


def test_daemon_and_process_die_together(runtime: Runtime):
    with runtime.client() as client:
        kill(runtime.daemons()[0])
        kill(client.pid)
        with pytest.raises(WorkerLost):
            ask(client)
        with runtime.client() as second:
            assert second.epoch > client.epoch
            ask(second)


def test_a_lease_brings_the_daemon_back(runtime: Runtime):
    with runtime.lease(), runtime.client(client_pid=0) as client:
        daemon = runtime.daemon()
        (runtime.path / "daemon.sock").unlink()
        kill(daemon)
        assert eventually(lambda: (runtime.path / "daemon.sock").exists() and runtime.daemons() != [daemon])
        assert eventually(lambda: [session.lease for session in runtime.status().sessions] == ["driver"])
        ask(client)


def test_a_process_without_daemon_client_and_its_process_ends_itself(runtime: Runtime):
    lease = runtime.lease(lease=1.0)        # for as long as the process takes to start
    with runtime.client(client_pid=0, lease=1.0) as client:
        lease.close()
        kill(runtime.daemons()[0])
        time.sleep(1.5)
        assert is_alive(client.pid)
    assert eventually(lambda: not is_alive(client.pid))
    runtime.start()
    assert runtime.status().sessions == ()


def test_a_client_process_keeps_a_process_without_a_daemon(runtime: Runtime):
    with subprocess.Popen(["sleep", "60"]) as process:
        with runtime.client(client_pid=process.pid, lease=0.5) as client:
            kill(runtime.daemons()[0])
        time.sleep(1.0)
        assert is_alive(client.pid)
        process.kill()
    assert eventually(lambda: not is_alive(client.pid))
    runtime.start()


# -- the device process dies ------------------------------------------------------------------------------------------

def test_the_next_process_has_the_next_epoch_and_the_first_one_is_explained(runtime: Runtime):
    with runtime.client() as client:
        assert worker_client.exit_status("app", client.epoch).alive
        os.kill(client.pid, signal.SIGKILL)
        with pytest.raises(WorkerLost, match=rf"process {client.pid} of .* was killed by signal 9, SIGKILL; see .*log"):
            ask(client)
        death = worker_client.exit_status("app", client.epoch)
        assert (death.alive, death.signal, death.failure) == (False, signal.SIGKILL, None)
        with runtime.client() as second:
            assert second.epoch == client.epoch + 1 and second.pid != client.pid


def test_many_deaths_in_a_row(runtime: Runtime):
    epochs = []
    for _ in range(4):
        with runtime.client() as client:
            ask(client)
            epochs.append(client.epoch)
            os.kill(client.pid, signal.SIGKILL)
    assert epochs == list(range(epochs[0], epochs[0] + 4))


def test_a_stopped_process_does_not_block_other_sessions(runtime: Runtime):
    with runtime.client("stuck") as stuck, runtime.client("well") as well:
        os.kill(stuck.pid, signal.SIGSTOP)
        reports = {session.session: session.report for session in runtime.status().sessions}
        assert reports["stuck"] is None and reports["well"] is not None
        ask(well)
        os.kill(stuck.pid, signal.SIGCONT)
        ask(stuck)
        assert all(session.report for session in runtime.status().sessions)


# -- fail-points ------------------------------------------------------------------------------------------------------

DAEMON_POINTS = ["accepted", "authenticated", "before-hand-over", "handed-over"]
PROCESS_POINTS = ["welcomed", "request-received", "before-reply", "replied"]


@pytest.mark.chaos
@pytest.mark.parametrize("point", DAEMON_POINTS + PROCESS_POINTS)
def test_a_kill_at_any_point_costs_a_connection_at_most(runtime: Runtime, point: str):
    with runtime.client():
        pass
    armed = runtime.fail_at(point)
    assert eventually(lambda: answers(runtime) and not armed.exists(), SECONDS)
    # Whoever disarms the point ends a moment later, and what came to it meanwhile is lost.
    assert answers(runtime) or answers(runtime)
    assert eventually(lambda: len(runtime.daemons()) == 1)


def answers(runtime: Runtime) -> bool:
    """Return whether a new client gets an answer."""
    with contextlib.suppress(WorkerLost), runtime.client() as client:
        ask(client)
        return True
    return False


@pytest.mark.parametrize("point", [*DAEMON_POINTS[:-1], *PROCESS_POINTS[:-1]])
def test_an_error_at_any_point_is_one_client_s_alone(runtime: Runtime, point: str):
    with runtime.client() as other:
        ask(other)
        armed = runtime.fail_at(point, "error")
        with contextlib.suppress(VisparkError), runtime.client() as client:
            ask(client)
            ask(client)
        assert not armed.exists()
        ask(other)
        with runtime.client() as client:
            ask(client)
            assert client.pid == other.pid


def test_a_lease_that_fails_while_it_is_taken_does_not_count(runtime: Runtime):
    with runtime.client(lease=1.0) as client:
        runtime.fail_at("authenticated", "error")
        with pytest.raises(VisparkError, match="fail-point"):
            runtime.lease(lease=1.0)
        assert eventually(lambda: not is_alive(client.pid))


# -- leases -----------------------------------------------------------------------------------------------------------

def test_all_comes_back_after_the_driver_is_gone(runtime: Runtime):
    runtime.start()
    daemon = runtime.daemon()
    before = descriptors(daemon), threads(daemon)
    for _ in range(2):
        with runtime.lease(lease=0.5), runtime.client(lease=0.5) as client:
            ask(client)
            time.sleep(1.0)
            ask(client)
        assert eventually(lambda pid=client.pid: not is_alive(pid))
        assert eventually(lambda: not list((runtime.path / "sessions").iterdir()))
        assert runtime.status().sessions == ()
    assert eventually(lambda: (descriptors(daemon), threads(daemon)) == before), (descriptors(daemon), before)


def test_a_driver_that_is_killed_loses_its_session(runtime: Runtime):
    runtime.start()
    script = ("import os, sys, time\nfrom tests.system.worker_tools import *\n"
              "lease = open_lease(hello(role='lease', lease=0.5))\n"
              "client = connect(hello(lease=0.5))\nprint(client.pid, flush=True)\ntime.sleep(60)")
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as driver:
        pid = int(driver.stdout.readline())
        time.sleep(1.0)
        assert is_alive(pid)
        driver.kill()
    assert eventually(lambda: not is_alive(pid))
    assert eventually(lambda: not list((runtime.path / "sessions").iterdir()))


def test_a_session_lives_while_an_executor_does(runtime: Runtime):
    with subprocess.Popen(["sleep", "60"]) as process:
        with runtime.client(client_pid=process.pid, lease=0.5) as client:
            pass
        time.sleep(1.5)
        assert is_alive(client.pid)
        process.kill()
    assert eventually(lambda: not is_alive(client.pid))
    runtime_sessions = runtime.path / "sessions"
    assert eventually(lambda: not list(runtime_sessions.iterdir()))


def test_a_session_may_come_back_while_its_predecessor_is_cleared_away(runtime: Runtime):
    with runtime.client(client_pid=0, lease=1.5) as first:
        os.kill(first.pid, signal.SIGSTOP)
        assert eventually(lambda: not runtime.status().sessions)
        with runtime.client(client_pid=0, lease=30.0) as second:
            assert second.epoch > first.epoch
            ask(second)
            time.sleep(0.5)
            assert (runtime.path / "sessions" / "app.sock").exists()
            with runtime.client(client_pid=0) as third:
                assert third.pid == second.pid


def test_a_lease_that_is_closed_leaves_no_thread(runtime: Runtime):
    before = leaks.ProcessSnapshot.take()
    for _ in range(3):
        runtime.lease().close()
    assert not before.leaked()
    assert not [thread for thread in threading.enumerate() if thread.name == "vispark-lease"]


def test_a_daemon_that_is_stopped_is_ended_and_another_one_adopts_what_it_had(runtime: Runtime):
    with runtime.client() as held:
        first, = runtime.daemons()
        os.kill(first, signal.SIGSTOP)
        with runtime.client("other") as other, runtime.client() as again:
            ask(other)
            assert again.pid == held.pid
        ask(held)
    assert eventually(lambda: first not in runtime.daemons())


def test_a_client_ends_a_daemon_that_is_stopped_and_leaves_a_busy_one_alone(runtime: Runtime, monkeypatch):
    monkeypatch.setattr(stopped_processes, "STOPPED_SECONDS", 0.5)
    monkeypatch.setattr(daemon_watch, "LOOK_SECONDS", 0.1)
    runtime.start()
    first, = runtime.daemons()
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(str(runtime.path / "daemon.sock"))
        watch = daemon_watch.DaemonWatch(sock, runtime.path / "daemon.lock")
        assert watch.pid == first and not watch.look()
        os.kill(first, signal.SIGSTOP)
        assert eventually(lambda: stopped_processes.is_stopped(first))
        no_daemon = daemon_watch.DaemonWatch(sock, runtime.path / "none")
        assert not watch.look() and not no_daemon.look()
        time.sleep(0.6)
        assert not no_daemon.look() and stopped_processes.is_stopped(first)
    with runtime.client() as client:
        ask(client)
    assert first not in runtime.daemons()


def descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def threads(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/task").iterdir()))
