"""Grids over several workers of this machine, whose device processes send each other cells over UCX."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from gpu_worker.commands.status import status
from gpu_worker.protocol.errors import OptionError, PartitionMissing, WorldLost
from gpu_worker.protocol.grids import Phase
from gpu_worker.protocol.messages import KeepStep, Ran
from tests.mpi.nodes import DEVICE, NodesApp, NodeWorker, Survivor, nodes, opened
from tests.mpi.test_exchange import CASES, check_cases
from tests.mpi.test_world import called, case_of, field
from tests.unit.grids import CutGrid
from tests.unit.test_patches_steps import assert_stepped, halo, stepped

pytest.importorskip("libucx")
pytestmark = [pytest.mark.mpi, pytest.mark.timeout(240)]

#: What UCX_TLS is, by what the messages go over.
TRANSPORTS = {"tcp": "tcp,self", "shared memory": "sm,self"} if DEVICE == "host" else {
    "tcp": "tcp,self,cuda_copy", "CUDA IPC": "sm,self,cuda_copy,cuda_ipc"}

#: Of the stencil, so small that a long loop does not grow.
WEIGHT = 0.0005


@pytest.fixture(scope="module")
def failpoints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("failpoints")


@pytest.fixture(scope="module", params=TRANSPORTS)
def two(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory,
        failpoints: Path) -> Iterator[list[NodeWorker]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("UCX_TLS", TRANSPORTS[request.param])
        patch.setenv("VISPARK_FAILPOINTS", str(failpoints))
        with nodes(tmp_path_factory.mktemp("n"), 2, [(), ()]) as members:     # whose daemons do not know each other
            yield members


def application(session: str, members: list[NodeWorker], case: CutGrid, weight: float = 0.01) -> NodesApp:
    return NodesApp(session, members, case, weight, "ucx")


def test_an_exchange_restores_the_coordinates(two: list[NodeWorker]):
    check_cases(two, "ucx", CASES)


def test_a_report_says_what_messages_go_over(two: list[NodeWorker], request: pytest.FixtureRequest):
    expected = {"tcp": "tcp/", "shared memory": "/memory", "CUDA IPC": "cuda_ipc/"}[request.node.callspec.params["two"]]
    with application("way", two, case_of(2)) as app:
        assert [report.exchange for report in app.reports()] == ["", ""]
        app.put(1, field(app.case))
        app.run((1, 2), app.loop(2), KeepStep(1, "u", "device"))
        for report in app.reports():
            way, _, transports = report.exchange.partition(" over ")
            assert way == "ucx" and expected in transports, report.exchange
        shown = CliRunner().invoke(status, ["--runtime-dir", str(two[0].path)]).output
        assert "  cells to other nodes: " in shown and f" bytes by {app.reports()[0].exchange}\n" in shown


def test_a_loop_has_the_bits_of_one_block(two: list[NodeWorker]):
    """Compare bits as a test of the exchange does over MPI."""
    fields = []
    for count, splits in ((1, (1, 1, 1)), (2, (4, 2, 3))):
        case = case_of(count, (12, 9, 14), splits)
        with application(f"bits-{count}", two[:count], case) as app:
            app.put(1, field(case))
            app.run((1, 2), app.loop(12), KeepStep(1, "u", "device"))
            fields.append(app.fetch(2))
            assert all(app.sent()) == (count > 1)
            if count == 2:
                many = [Phase("around", (halo(case, False),), 0)] * 2       # two fused steps in each pass
                app.run((1, 3), app.loop(6, phases=tuple(many)), KeepStep(1, "u", "device"))
                fields.append(app.fetch(3))
    np.testing.assert_array_equal(fields[0], fields[1])
    np.testing.assert_array_equal(fields[0], fields[2])


def test_calls_that_come_again_are_done_again(two: list[NodeWorker]):
    with application("both", two, case_of(2)) as both:
        result, counts = called(both, 0, both.loop(3))
        assert min(counts) >= 5
        np.testing.assert_allclose(result, stepped(field(both.case), both.case, 36), rtol=1e-9)


def test_a_loop_ends_on_all_nodes_at_once(two: list[NodeWorker]):
    case = case_of(2, widths=(0, 0, 1))
    full = field(case, 2)
    changes = [np.abs(stepped(full, case, step) - stepped(full, case, step - 1)).max() for step in range(1, 9)]
    with application("until", two, case) as app:
        app.put(1, full)
        replies = app.run((1, 2), app.loop(20, until=changes[5] * 1.0001, every=2), KeepStep(1, "u", "device"))
        assert [reply.iterated[0].steps for reply, _ in replies] == [6, 6]


def test_large_faces(two: list[NodeWorker]):
    """Exchange faces that UCX sends by rendezvous: 2 MiB each."""
    case = case_of(2, (4, 512, 512), (2, 1, 1), (1, 0, 0))
    full = field(case)
    with application("large", two, case) as app:
        app.put(1, full)
        app.run((1, 2), app.loop(4), KeepStep(1, "u", "device"))
        # A GPU fuses products and sums, of which some nearly cancel out.
        assert_stepped(app.fetch(2), full, case, 4)
        assert min(app.sent()) >= 4 * 512 * 512 * 8


class Supervised(NodesApp):
    """An application that tells others of a loss only where a process is stopped, which its daemon then ends."""

    def _abandon(self, key: bytes, lost: int) -> None:
        for client in self.clients:
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                if Path(f"/proc/{client.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T":
                    super()._abandon(key, lost)
                    return


class Interrupted(Survivor):
    """A survivor of a failure that is armed when the first snapshot is complete, and again if no other rank saw it."""

    def __init__(self, app: NodesApp, full: np.ndarray, armed: Path, action: str):
        super().__init__(app, full)
        self._armed, self._action = armed, action
        self._further = [action] * 2
        self._armed_at = 0.0
        self.errors: list[BaseException] = []
        #: From the moment at which the failure was armed to the error of those that are left.
        self.seconds = 0.0

    def _learn(self, answers: Sequence[Ran]) -> None:
        super()._learn(answers)
        if self.complete and self._action:
            self._armed.write_text(self._action)
            self._action, self._armed_at = "", time.monotonic()
        elif self._action:
            time.sleep(0.05)        # the loop waits for its first snapshot

    def _recover(self, error: BaseException) -> tuple[int, int]:
        errors = error.exceptions if isinstance(error, ExceptionGroup) else [error]
        self.errors += errors
        self.seconds = time.monotonic() - self._armed_at
        # A rank whose messages have all gone when it is lost may leave the other one nothing to wait for.
        if self._further and not any(isinstance(each, WorldLost) for each in errors):
            self._action = self._further.pop()
        return super()._recover(error)


@pytest.mark.parametrize(("action", "reason"), [("kill", "is lost, and with it the world"),
                                                ("stop", "no sign of life for")])
def test_a_process_lost_in_an_exchange_is_noticed_and_the_loop_goes_on(
        two: list[NodeWorker], failpoints: Path, action: str, reason: str):
    """Long before the plan's deadline, from the newest snapshot, to the same bits."""
    case = case_of(2)
    full = field(case)
    with application(f"calm-{action}", two, case, WEIGHT) as app:
        app.put(1, full)
        app.run((1, 2), app.loop(400), KeepStep(1, "u", "device"))
        expected = app.fetch(2)
    with Supervised(f"lost-{action}", two, case, WEIGHT, "ucx") as app:
        survivor = Interrupted(app, full, failpoints / "halo-sending", action)
        np.testing.assert_array_equal(survivor.run(400, 10), expected)
        assert not (failpoints / "halo-sending").exists()
        assert any(isinstance(error, WorldLost) and reason in str(error) for error in survivor.errors), survivor.errors
        print(f"{action}: an error after {survivor.seconds:.2f} s")
        # What is stopped is ended by its daemon, after 10 s more, before this application hears of it.
        assert survivor.seconds < (5 if action == "kill" else 30)


def test_a_process_that_leaves_is_noticed_by_one_that_waits(two: list[NodeWorker]):
    case = case_of(2)
    with application("leaves", two, case) as app:
        app.put(1, field(case), ranks=[0])
        with pytest.raises(ExceptionGroup) as failed:
            app.run((1, 2), app.loop(2), KeepStep(1, "u", "device"), seconds=600.0)
        assert {type(error) for error in failed.value.exceptions} == {WorldLost, PartitionMissing}


def test_an_exchange_that_nobody_knows(two: list[NodeWorker]):
    with application("unknown", two, case_of(2)) as app, \
            pytest.raises(OptionError, match="no exchange is called 'nccl'; the known ones are mpi, ucx"):
        opened(app.clients[0], b"k" * 16, "nccl")


def test_a_world_that_was_not_opened_or_whose_ends_are_others(two: list[NodeWorker]):
    case = case_of(2)
    with application("closed", two, case) as app:
        app.put(1, field(case))
        for key in (bytes([number]) * 16 for number in range(6)):       # more than are kept open
            opened(app.clients[0], key, "ucx")
        app._addresses[app.key] = (b"no address", b"of anybody")
        with pytest.raises(ExceptionGroup, match="a node failed") as failed:
            app.run((1, 2), app.loop(1), KeepStep(1, "u", "device"))
        # The second may hear of the first's loss before it looks for the world.
        assert all(isinstance(error, WorldLost) for error in failed.value.exceptions)
        assert any("has no end of world" in str(error) for error in failed.value.exceptions), failed.value.exceptions
        app.key = b"another world..."
        app.run((1, 2), app.loop(1), KeepStep(1, "u", "device"))
