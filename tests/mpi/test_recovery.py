"""Long loops that lose processes on the way: back to the newest complete snapshot, and the same bits at the end."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from gpu_worker.client.connection import administer, connect, exchange_descriptors, finish
from gpu_worker.protocol.errors import PartitionMissing, Unauthorized, VisparkError, WorldLost
from gpu_worker.protocol.messages import CopyTo, GetSnapshot, KeepStep, Release, Restore, Status
from gpu_worker.protocol.wire import close_all
from tests.chaos.arena import eventually
from tests.mpi.nodes import NodesApp, NodeWorker, Survivor, nodes
from tests.mpi.test_world import case_of, field
from tests.system.worker_tools import SECRET, hello
from tests.unit.test_patches_steps import stepped

pytestmark = [pytest.mark.mpi, pytest.mark.chaos, pytest.mark.timeout(3600)]

#: How many kills at random moments, over all of a run; 500 were done once.
KILLS = int(os.environ.get("VISPARK_KILLS", "6"))


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[NodeWorker]]:
    with nodes(tmp_path_factory.mktemp("n"), 1) as members:
        yield members


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[NodeWorker]]:
    with nodes(tmp_path_factory.mktemp("n"), 2) as members:
        yield members


@dataclass(frozen=True)
class Failing:
    """Nodes whose processes fail where they are told to."""

    nodes: list[NodeWorker]
    directory: Path

    def arm(self, point: str, action: str = "kill") -> Path:
        """Make the process that passes a point next fail there, once; the file is gone when it did."""
        path = self.directory / point
        path.write_text(action)
        return path


@pytest.fixture(scope="module")
def failing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Failing]:
    base = tmp_path_factory.mktemp("n")
    directory = base / "failpoints"
    directory.mkdir()
    with contextlib.ExitStack() as stack:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("VISPARK_FAILPOINTS", str(directory))
            members = stack.enter_context(nodes(base, 2))
        yield Failing(members, directory)


@pytest.fixture(scope="module")
def expected(failing: Failing) -> np.ndarray:
    """Return the field after the loop under which processes are killed at fail-points."""
    return undisturbed(failing.nodes, field(case_of(2)), 60)


#: Of the stencil, so small that a long loop does not grow.
WEIGHT = 0.0005


def undisturbed(members: list[NodeWorker], full: np.ndarray, steps: int) -> np.ndarray:
    """Return the field after the loop where nothing happens."""
    with NodesApp(f"undisturbed-{steps}", members, case_of(len(members)), WEIGHT) as app:
        app.put(1, full)
        app.run((1, 2), app.loop(steps), KeepStep(1, "u", "device"), seconds=120.0)
        return app.fetch(2)


def ask(app: NodesApp, request: type, *arguments):
    client = app.clients[0]
    return client.request(request(client.next_number(), *arguments))[0]


def test_a_snapshot_outlives_the_process_that_took_it(one: list[NodeWorker]):
    case = case_of(1)
    full = field(case)
    with NodesApp("outlives", one, case) as app:
        app.put(1, full)
        app.run((1, 2), app.loop(3), KeepStep(1, "u", "device"))
        for vrdd in (1, 2):                                             # blocks that lie alone, and windows of a patch
            saved = app.save(vrdd, vrdd + 20, (21,))
            assert saved.nbytes >= full.nbytes and saved.seconds > 0
        before = app.fetch(2)
        app.kill(0)
        app.again(0)
        for vrdd, expected in ((1, full), (2, before)):
            described = ask(app, Restore, vrdd + 20, vrdd + 10, "u")
            assert [held.positions for held in described.held] == [tuple(range(12))]
            np.testing.assert_array_equal(app.fetch(vrdd + 10), expected)
        app.run((12, 13), app.loop(2), KeepStep(1, "u", "device"))
        np.testing.assert_allclose(app.fetch(13), stepped(full, case, 5), rtol=1e-12)


def test_the_snapshots_needed_are_held_until_they_are_released(one: list[NodeWorker]):
    case = case_of(1)
    with NodesApp("needed", one, case) as app:
        app.put(1, field(case))
        for number in range(11, 15):
            app.save(1, number, (12, number - 1))
        app.kill(0)
        app.again(0)
        for number, held in ((11, False), (12, True), (13, True), (14, True)):
            if held:
                ask(app, Restore, number, number + 100, "u")
            else:
                with pytest.raises(PartitionMissing, match=f"no snapshot {number}"):
                    ask(app, Restore, number, number + 100, "u")
        ask(app, Release, (12, 114))
        app.save(113, 15, (13, 14))                                     # behind the release
        with pytest.raises(PartitionMissing, match="no snapshot 12"):
            ask(app, Restore, 12, 200, "u")


def test_a_snapshot_outlives_its_daemon_as_long_as_its_process_lives(one: list[NodeWorker]):
    case = case_of(1)
    full = field(case)
    with NodesApp("daemon", one, case) as app:
        app.put(1, full)
        app.save(1, 11)
        os.kill(administer(Status(), runtime_dir=str(one[0].path)).pid, signal.SIGKILL)
        one[0].start()
        ask(app, Restore, 11, 2, "u")
        np.testing.assert_array_equal(app.fetch(2), full)


@pytest.mark.parametrize("ends_before", [False, True])
def test_a_snapshot_outlives_its_daemon_and_its_process_after_that(one: list[NodeWorker], ends_before: bool):
    """Expect the next daemon to get what is complete from the process: what that took, or took over from the one before
    it.
    """
    case = case_of(1)
    full = field(case)
    with NodesApp(f"both-{ends_before}", one, case) as app:
        app.put(1, full)
        app.save(1, 11)
        if ends_before:
            app.kill(0)
            app.again(0)
            ask(app, Restore, 11, 2, "u")
        os.kill(administer(Status(), runtime_dir=str(one[0].path)).pid, signal.SIGKILL)
        one[0].start()
        assert eventually(lambda: held(one[0], app, 11)), "the daemon has no snapshot"
        app.kill(0)
        app.again(0)
        ask(app, Restore, 11, 3, "u")
        np.testing.assert_array_equal(app.fetch(3), full)


@pytest.mark.parametrize("way", ["socket", "tcp"])
def test_a_snapshot_outlives_its_node_on_another_one(two: list[NodeWorker], way: str):
    case = case_of(2)
    full = field(case)
    with NodesApp(f"copied-{way}", two, case) as app, contextlib.ExitStack() as stack:
        app.put(1, full)
        reach = None
        if way == "tcp":
            greeting = hello(app.session, device="host", role="driver", reach="127.0.0.1")
            reach = stack.enter_context(connect(greeting, runtime_dir=str(two[1].path))).reach
        for number in (11, 12):
            assert app.save(1, number, (number - 1,), CopyTo("first", "" if reach else str(two[1].path), reach)).copied
        os.kill(administer(Status(), runtime_dir=str(two[0].path)).pid, signal.SIGKILL)
        app.kill(0)
        client = app.clients[1]

        def restore(number: int, owner: str) -> None:
            client.request(Restore(client.next_number(), number, 2, "u", owner))

        with pytest.raises(PartitionMissing, match="no snapshot 12 here"):
            restore(12, "")
        restore(12, "first")
        app.put(2, full, ranks=[1])
        np.testing.assert_array_equal(app.fetch(2, at=1), full)
        client.request(Release(client.next_number(), (12,)))
        assert eventually(lambda: not held(two[1], app, 12, "first")), "a copy is not let go of"
        assert held(two[1], app, 11, "first")
    two[0].start("--hosts", str(two[1].path))


def test_a_copy_outlives_the_daemon_that_holds_it(two: list[NodeWorker]):
    case = case_of(2)
    with NodesApp("holder", two, case) as app:
        app.put(1, field(case))
        for number in (11, 12):
            assert app.save(1, number, (number - 1,), CopyTo("first", str(two[1].path), None)).copied
        os.kill(administer(Status(), runtime_dir=str(two[1].path)).pid, signal.SIGKILL)
        two[1].start("--hosts", str(two[0].path))
        assert eventually(lambda: all(held(two[1], app, number, "first") for number in (11, 12))), "a copy is lost"
        client = app.clients[1]
        client.request(Release(client.next_number(), (12,)))
        assert eventually(lambda: not held(two[1], app, 12, "first")), "a copy is not let go of"


def test_a_copy_that_its_holder_cannot_take_is_none_and_the_next_is_one(failing: Failing):
    case = case_of(2)
    full, members = field(case), failing.nodes
    with NodesApp("roomless", members, case) as app:
        app.put(1, full)
        copy = CopyTo("first", str(members[1].path), None)
        failing.arm("copy-received", "error")
        assert not app.save(1, 11, (), copy).copied
        assert "no other node has snapshot 11: the fail-point copy-received" in members[0].logs()
        assert not held(members[1], app, 11, "first")
        ask(app, Restore, 11, 2, "u")                                   # its own part is there
        app.put(2, full, ranks=[1])
        np.testing.assert_array_equal(app.fetch(2), full)
        assert app.save(1, 12, (11,), copy).copied and held(members[1], app, 12, "first")


def held(node: NodeWorker, app: NodesApp, snapshot: int, owner: str = "") -> bool:
    """Return whether a node's daemon has a snapshot, its own part or the owner's."""
    with pytest.MonkeyPatch.context() as patch, contextlib.suppress(PartitionMissing):
        patch.setenv("VISPARK_RUNTIME_DIR", str(node.path))
        close_all(exchange_descriptors(GetSnapshot(app.session, SECRET, snapshot, owner))[1])
        return True
    return False


def test_whoever_waits_for_a_world_that_is_abandoned_is_told_at_once(two: list[NodeWorker]):
    case = case_of(2)
    with NodesApp("abandoned", two, case) as app:
        app.put(1, field(case), ranks=[1])                              # so that the first one refuses, and starts none
        with pytest.raises(ExceptionGroup) as raised:
            app.run((1, 2), app.loop(1), KeepStep(1, "u", "device"), seconds=600.0)
        messages = {type(error): str(error) for error in raised.value.exceptions}
        assert set(messages) == {PartitionMissing, WorldLost}
        assert "lost" in messages[WorldLost] and "deadline" not in messages[WorldLost]


def test_snapshots_are_for_those_who_have_the_secret(one: list[NodeWorker], monkeypatch: pytest.MonkeyPatch):
    case = case_of(1)
    monkeypatch.setenv("VISPARK_RUNTIME_DIR", str(one[0].path))
    with NodesApp("secret", one, case) as app:
        app.put(1, field(case))
        app.save(1, 1)
        for session, secret in (("secret", b"x" * 32), ("another", b"s" * 32)):
            with pytest.raises(Unauthorized):
                exchange_descriptors(GetSnapshot(session, secret, 1))


def test_a_snapshot_beside_a_loop_changes_nothing(one: list[NodeWorker]):
    case = case_of(1)
    full = field(case)
    with NodesApp("beside", one, case, WEIGHT) as app:
        survivor = Survivor(app, full)
        result = survivor.run(200, 10)
        assert survivor.complete is not None and not survivor.recoveries
        np.testing.assert_array_equal(result, undisturbed(one, full, 200))


def test_kills_at_random_moments_leave_the_same_bits(two: list[NodeWorker]):
    """Device processes and ranks die at any time; the final field is that of an undisturbed run."""
    seed = int(os.environ.get("VISPARK_SEED", time.time_ns() % 10**6))
    print(f"VISPARK_SEED={seed} VISPARK_KILLS={KILLS}")
    case, choice, kills = case_of(2), random.Random(seed), 0
    full = field(case)
    expected, run = undisturbed(two, full, 300), 0
    while kills < KILLS:
        run += 1
        stop = threading.Event()
        with NodesApp(f"kills-{run}", two, case, WEIGHT) as app:
            survivor = Survivor(app, full)

            def killer(app: NodesApp = app, stop: threading.Event = stop) -> None:
                nonlocal kills
                while kills < KILLS and not stop.wait(choice.uniform(0.2, 5.0)):
                    victims = app.ranks() if choice.random() < 0.4 else [client.pid for client in app.clients]
                    for pid in choice.sample(victims, min(1, len(victims))):
                        try:
                            os.kill(pid, signal.SIGKILL)
                            kills += 1
                        except ProcessLookupError:
                            continue

            thread = threading.Thread(target=killer)
            thread.start()
            try:
                result = survivor.run(300, 20)
            finally:
                stop.set()
                thread.join()
        np.testing.assert_array_equal(result, expected)
        print(f"run {run}: {kills} kills so far, {survivor.recoveries} recoveries", flush=True)


@pytest.mark.parametrize("point", ["snapshot-copying", "snapshot-taken", "snapshot-left", "snapshot-copied",
                                   "halo-packed", "halo-moved", "world-starting"])
def test_a_kill_at_each_point_leaves_the_same_bits(failing: Failing, expected: np.ndarray, point: str):
    case, session = case_of(2), f"points-{point}"
    with NodesApp(session, failing.nodes, case, WEIGHT) as app:
        survivor = Survivor(app, field(case))
        armed = failing.arm(point)
        np.testing.assert_array_equal(survivor.run(60, 10), expected)
        assert not armed.exists()
    for node in failing.nodes:
        finish(hello(session, device="host"), runtime_dir=str(node.path))


def test_a_snapshot_that_is_gone_is_said_to_be(one: list[NodeWorker]):
    with NodesApp("gone", one, case_of(1)) as app, pytest.raises(VisparkError, match="no snapshot 5"):
        ask(app, Restore, 5, 6, "u")
