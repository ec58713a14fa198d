"""Plans of an MPI world come to the processes that are in it, and wait for each other there; what is one machine."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from gpu_worker.exchange.mpi import world as mpi_world
from gpu_worker.execution.grid.state import Grids
from gpu_worker.protocol.errors import WorldLost
from gpu_worker.protocol.grids import World
from gpu_worker.protocol.messages import Abandon, Done
from gpu_worker.system.paths import machine
from tests.leaks import is_alive
from tests.system.worker_tools import eventually
from vispark.errors import PartitionMissing
from vispark.options import Options
from vispark.plan.lower.executable import BoundArguments, Executable, Invocation
from vispark.runtime.driver.channel import CarriedReply, TokenPlace
from vispark.runtime.driver.relay import RelayedChannel
from vispark.runtime.driver.worker import as_answered
from vispark.runtime.executor.relay_tasks import Ask, Relay
from vispark.runtime.identity import Credentials, WorkerAddress

PREPARED = Executable(b"k" * 16, b"plan", (), (), (), {}, (), -1)


def world(turn: int, key: bytes = b"k" * 16) -> World:
    """Return a plan's place in a world of two."""
    return World(key, 1, ("here:/a", "there:/b"), turn)


def waits(grids: Grids, turn: int) -> Callable[[], bool]:
    """Wait for a turn in a thread; whether it has come, which is asked once."""
    come = threading.Event()

    def wait() -> None:
        grids.await_turn(world(turn), time.monotonic() + 60, 60)
        come.set()

    thread = threading.Thread(target=wait)
    thread.start()

    def ended() -> bool:
        thread.join()
        return come.is_set()

    return ended


def test_a_process_does_not_wait_for_its_turn_in_a_world_that_it_is_not_in():
    with pytest.raises(WorldLost, match=r"in no MPI world 6b6b.*plan 2 of it came.*none of those before it"):
        Grids().await_turn(world(2), time.monotonic() + 600, 0)


def test_once_a_world_has_begun_its_plans_wait_for_each_other():
    grids = Grids()
    last = waits(grids, 2)
    grids.await_turn(world(0), time.monotonic() + 600, 0)
    with pytest.raises(WorldLost, match="plan 0 of a world did not come, and plan 1 waited"):
        grids.await_turn(world(1), time.monotonic(), 0)
    grids.turn_done(world(0))
    grids.await_turn(world(1), time.monotonic() + 600, 0)
    grids.turn_done(world(1))
    assert last()


def test_a_plan_of_a_world_is_for_the_process_that_is_in_it():
    """Refuse it in another one, whoever brings it there."""
    for place, epoch in ((world(0), 4), (None, 5)):
        invocation = Invocation(PREPARED, (7, 8), BoundArguments(()), world=place, epoch=4)
        request, _ = invocation.request(1, 5, 600.0, known=True)
        assert request.epoch == epoch


@pytest.mark.parametrize("answer", [None, (5, WorldLost("another process is there"), b"")])
def test_a_relayed_plan_that_fails_is_heard_of_and_ends_its_world(answer: CarriedReply):
    """Hear of it before the other workers' answers, which wait for this one in the world: it leaves it by a task of its
    own.
    """
    heard, abandoned, other = [], threading.Event(), threading.Event()

    def relay(task: Relay | Ask, _: TokenPlace) -> CarriedReply:
        if isinstance(task, Relay):
            return answer
        assert task.request(3) == Abandon(3, b"k" * 16)
        abandoned.set()
        return 5, Done(3), b""

    def waiting(task: Relay | Ask, _: TokenPlace) -> CarriedReply:
        assert abandoned.wait(60)
        other.set()
        return 5, WorldLost("the world ended"), b""

    credentials, place = Credentials("s", b"s" * 32, "", Options.read([])), WorkerAddress("/a", "here")
    ways = [RelayedChannel(credentials, place, lambda *_: None, heard.append, run) for run in (waiting, relay)]
    invocation = Invocation(PREPARED, (7, 8), BoundArguments(()), world=world(1), epoch=4)
    sent = [way.send(invocation, TokenPlace(SimpleNamespace(tokens=None), 0), ()) for way in ways]
    numbers = as_answered(sent)
    assert next(numbers) == 1
    with pytest.raises((PartitionMissing, WorldLost)):
        ways[1].receive(sent[1])
    assert next(numbers) == 0 and abandoned.wait(60) and other.wait(60)
    with pytest.raises(WorldLost):
        ways[0].receive(sent[0])
    assert heard[0].invocation is invocation and isinstance(heard[0].error, (PartitionMissing, WorldLost))


def test_a_container_is_a_machine_of_its_own():
    """Tell containers apart, as the same path leads to other files there."""
    code = "from gpu_worker.system.paths import machine; print(machine())"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == \
        machine() + "\n"
    apart = ["unshare", "--user", "--map-root-user", "--mount"]
    if not shutil.which("unshare") or subprocess.run([*apart, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no mount namespaces here")
    other = subprocess.run([*apart, sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert other.partition(".")[0] == machine().partition(".")[0]
    assert WorkerAddress(str(Path.cwd()), machine()).here and not WorkerAddress(str(Path.cwd()), other.strip()).here


def test_a_supervisor_that_is_stopped_is_ended_with_what_it_supervises(monkeypatch: pytest.MonkeyPatch):
    """Else the thread that ends a world waited for it without end, and mpirun stayed."""
    monkeypatch.setattr(mpi_world, "_END_SECONDS", 0.2)
    with subprocess.Popen([sys.executable, "-P", "-m", "gpu_worker.exchange.mpi.supervise", "sleep", "100"],
                          stdin=subprocess.PIPE, start_new_session=True) as launcher:
        children = Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children")
        assert eventually(children.read_text)
        child = int(children.read_text())
        launcher.send_signal(signal.SIGSTOP)
        mpi_world._end(launcher)
        assert launcher.returncode == -signal.SIGKILL and eventually(lambda: not is_alive(child))
