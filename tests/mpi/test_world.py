"""Grids over several workers of this machine, whose ranks are one real MPI world."""

from __future__ import annotations

import itertools
import os
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gpu_worker.device.memory.grid.boxes import Lattice
from gpu_worker.device.memory.grid.ghosts import GIVEN, MIRRORED, PERIODIC
from gpu_worker.exchange.base import KEPT
from gpu_worker.protocol.errors import NodeSilent, NotFinite, OptionError, PartitionMissing, WorldLost
from gpu_worker.protocol.grids import ExchangeStep, Phase, StencilStep
from gpu_worker.protocol.messages import KeepStep, Release, Step
from gpu_worker.protocol.plans import CheckFiniteStep
from tests.mpi.nodes import NodesApp, NodeWorker, nodes
from tests.system.worker_tools import eventually
from tests.unit.grids import AXES, CutGrid
from tests.unit.test_patches_steps import halo, stepped

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(240)]


def case_of(count: int, shape=(12, 9, 10), splits=(2, 3, 2), widths=(2, 1, 3), **changes) -> CutGrid:
    """Return a grid whose blocks are dealt to some nodes in turn, so that every node has all the others beside it."""
    blocks = int(np.prod(splits))
    rules = ((PERIODIC,) * 2, (MIRRORED, GIVEN), (GIVEN, MIRRORED))
    case = CutGrid(Lattice(shape, splits), widths, rules, tuple((-10 - axis, -20 - axis) for axis in AXES), False,
                   tuple(number % count for number in range(blocks)))
    return replace(case, **changes)


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[NodeWorker]]:
    with nodes(tmp_path_factory.mktemp("n"), 2) as members:
        yield members


def field(case: CutGrid, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).random(case.lattice.shape)


def test_steps_and_loops_over_two_nodes(two: list[NodeWorker]):
    case = case_of(2)
    full = field(case)
    with NodesApp("app", two, case) as app:
        app.put(1, full)
        app.run((1, 2), ExchangeStep("exchange", (halo(case, False),)), StencilStep("around", 0),
                KeepStep(1, "u", "device"))
        np.testing.assert_allclose(app.fetch(2), stepped(full, case, 1), rtol=1e-12)
        once = app.sent()
        assert all(once)                                                # the cells went through MPI
        app.run((2, 3), app.loop(9), KeepStep(1, "u", "device"))
        np.testing.assert_allclose(app.fetch(3), stepped(full, case, 10), rtol=1e-11)
        assert app.sent() == [10 * sent for sent in once]


def test_a_schedulers_job_around_the_daemons_is_not_asked_for_hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Set the variables with which mpirun calls srun and ends with status 1."""
    for name, value in {"JOBID": "7", "JOB_ID": "7", "NODELIST": "other", "NNODES": "1", "TASKS_PER_NODE": "1"}.items():
        monkeypatch.setenv(f"SLURM_{name}", value)
    monkeypatch.setenv("PRTE_MCA_plm", "slurm")
    with nodes(tmp_path, 2) as inside:
        case = case_of(2)
        with NodesApp("inside", inside, case) as app:
            app.put(1, field(case))
            app.run((1, 2), app.loop(1), KeepStep(1, "u", "device"))


def test_programs_of_a_world_have_folders_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Look where mpirun and prted, which name their files by their process's number, have them: one that finds those of
    a killed one with its number ends, and a world whose prted ends so does not begin.
    """
    folder = Path(tempfile.mkdtemp(prefix="v-"))
    monkeypatch.setenv("TMPDIR", str(folder))
    with nodes(tmp_path, 2) as inside:
        case = case_of(2)
        with NodesApp("folders", inside, case) as app:
            app.put(1, field(case))
            app.run((1, 2), app.loop(1), KeepStep(1, "u", "device"))
            own = [path for path in folder.iterdir() if path.name.startswith("vispark-world-")]
            assert sorted(path.name.partition(".")[0] for each in own for path in each.iterdir()) == [
                "ompi", "prted", "prted"]
            assert not list(folder.glob("prted*")) and not list(folder.glob("ompi*"))
    assert eventually(lambda: not list(folder.iterdir()))
    folder.rmdir()


def test_mpi_itself_over_ucx_as_where_there_is_rdma(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Set variables without the last two of which Open MPI opens its UCX for InfiniBand and the like alone, and the
    world does not begin.
    """
    for name, value in {"OMPI_MCA_pml": "ucx", "OMPI_MCA_pml_ucx_tls": "any", "OMPI_MCA_pml_ucx_devices": "any",
                        "UCX_TLS": "tcp,self"}.items():
        monkeypatch.setenv(name, value)
    with nodes(tmp_path, 2) as members:
        case = case_of(2)
        with NodesApp("rdma", members, case) as app:
            app.put(1, field(case))
            app.run((1, 2), app.loop(4), KeepStep(1, "u", "device"))
            np.testing.assert_allclose(app.fetch(2), stepped(field(case), case, 4), rtol=1e-11)
            assert all(app.sent())


def test_a_loop_with_more_exchanges_than_are_kept(two: list[NodeWorker]):
    case = case_of(2)
    full = halo(case, False)
    # Each phase exchanges some cells twice, and so moves a number of bytes of its own.
    some = [replace(full, below=widths, above=widths) for widths in itertools.product(range(3), range(2), range(1, 4))]
    phases = tuple(Phase(f"phase {number}", (each, full), 0) for number, each in enumerate(some))
    assert len(phases) > KEPT
    with NodesApp("many", two, case, weight=0.001) as app:
        app.put(1, field(case))
        app.run((1, 2), app.loop(3, phases=phases), KeepStep(1, "u", "device"))
        app.run((1, 3), app.loop(3 * len(phases)), KeepStep(1, "u", "device"))
        np.testing.assert_array_equal(app.fetch(2), app.fetch(3))


@pytest.mark.parametrize(("widths", "rule"), [((0, 0, 1), PERIODIC), ((1, 1, 1), GIVEN), ((3, 2, 2), MIRRORED)])
def test_widths_and_boundaries(two: list[NodeWorker], widths: tuple[int, ...], rule: str):
    case = case_of(2, widths=widths, rules=((rule, rule),) * 3, splits=(3, 2, 2), shape=(13, 7, 8))
    with NodesApp(f"widths-{rule}-{sum(widths)}", two, case) as app:
        app.put(1, field(case))
        app.run((1, 2), app.loop(3), KeepStep(1, "u", "device"))
        np.testing.assert_allclose(app.fetch(2), stepped(field(case), case, 3), rtol=1e-11, atol=1e-9)


def test_a_loop_ends_on_all_nodes_at_once(two: list[NodeWorker]):
    case = case_of(2, widths=(0, 0, 1))
    full = field(case, 2)
    changes = [np.abs(stepped(full, case, step) - stepped(full, case, step - 1)).max() for step in range(1, 9)]
    with NodesApp("until", two, case) as app:
        app.put(1, full)
        replies = app.run((1, 2), app.loop(20, until=changes[5] * 1.0001, every=2), KeepStep(1, "u", "device"))
        assert [reply.iterated[0].steps for reply, _ in replies] == [6, 6]
        assert [reply.iterated[0].change for reply, _ in replies] == pytest.approx([changes[5]] * 2)


def test_a_world_goes_on_after_what_all_its_nodes_raise(two: list[NodeWorker]):
    case = case_of(2)
    full = field(case)
    with NodesApp("alike", two, case) as app:
        app.put(1, np.where(np.arange(full.size).reshape(full.shape) == 7, np.inf, full))
        app.put(2, full)
        with pytest.raises(ExceptionGroup) as failed:
            app.run((1, 3), app.loop(4, check=1), KeepStep(1, "u", "device"))
        assert [type(error) for error in failed.value.exceptions] == [NotFinite] * 2
        ranks = app.ranks()
        with pytest.raises(ExceptionGroup) as failed:       # which was sent before that was known
            app.run((3, 4), app.loop(4, check=1), KeepStep(1, "u", "device"), turn=1, alike=PartitionMissing)
        assert [type(error) for error in failed.value.exceptions] == [PartitionMissing] * 2
        with pytest.raises(ExceptionGroup) as failed:       # one node's blocks alone have it
            app.run((1, 3), CheckFiniteStep("check"), app.loop(4), KeepStep(1, "u", "device"), turn=2)
        assert len({str(error) for error in failed.value.exceptions}) == 1
        assert [type(error) for error in failed.value.exceptions] == [NotFinite] * 2
        app.run((2, 3), CheckFiniteStep("check"), app.loop(2), KeepStep(1, "u", "device"), turn=3)
        assert app.ranks() == ranks
        np.testing.assert_allclose(app.fetch(3), stepped(full, case, 2), rtol=1e-11)


def test_two_applications_at_once_neither_wait_for_nor_mix_with_each_other(two: list[NodeWorker]):
    case = case_of(2)

    def run(name: str, order: int) -> None:
        # One knows the nodes in the other order, so that its plans reach them the other way round.
        with NodesApp(name, two[::order], case) as app:
            full = field(case, order + 5)
            app.put(1, full)
            for vrdd in range(1, 15):
                app.run((vrdd, vrdd + 1), app.loop(3), KeepStep(1, "u", "device"))
            np.testing.assert_allclose(app.fetch(15), stepped(full, case, 42), rtol=1e-9)

    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(run, "left", 1), pool.submit(run, "right", -1)]:
            done.result(120)


def called(app: NodesApp, first: int, *steps: Step, late: int = 0) -> tuple[np.ndarray, list[int]]:
    """Return the field after twelve calls, each behind the one before, and the number of them that each node did again
    as it was noted.

    From the seventh on one node is let know ``late`` calls later of what nobody needs, so that it needs more memory.
    """
    app.put(first, field(app.case))
    before = [report.repeated for report in app.reports()]
    for number in range(12):
        done, vrdds = (*steps, KeepStep(1, "u", "device")), (first + number, first + number + 1)
        app.run(vrdds, *done) if len(app.clients) > 1 else app.alone(0, vrdds, *done)
        for rank, client in enumerate(app.clients):
            gone = number - late * (number > 5 and rank == 1)
            client.request(Release(client.next_number(), tuple(range(first + max(gone - late, 0), first + gone + 1))))
    result = app.fetch(first + 12)
    return result, [report.repeated - count for report, count in zip(app.reports(), before, strict=True)]


def test_calls_that_come_again_are_done_again_as_on_one_node(two: list[NodeWorker]):
    with NodesApp("alone", two[:1], case_of(1)) as alone, NodesApp("both", two, case_of(2)) as both:
        for first, count, steps in ((0, 3, (both.loop(3),)),
                                    (100, 1,
                                     (ExchangeStep("exchange", (halo(both.case, False),)), StencilStep("around", 0)))):
            field_alone, (repeated,) = called(alone, first, *steps)
            assert repeated >= 5
            np.testing.assert_allclose(field_alone, stepped(field(both.case), both.case, 12 * count), rtol=1e-9)
            result, counts = called(both, first, *steps)
            assert counts == [repeated] * 2
            np.testing.assert_array_equal(result, field_alone)
            result, counts = called(both, first + 50, *steps, late=3)
            assert counts[0] > counts[1]            # one does again what the other does anew
            np.testing.assert_array_equal(result, field_alone)


def test_calls_are_noted_anew_in_another_world(two: list[NodeWorker]):
    case = case_of(2)
    full = field(case)
    with NodesApp("renewed", two, case) as app:
        app.put(1, full)
        for vrdd in range(1, 17):
            if vrdd == 9:
                before = [report.repeated for report in app.reports()]
                os.kill(app.ranks()[0], signal.SIGKILL)
                with pytest.raises(ExceptionGroup) as failed:       # in the middle of what it does again
                    app.run((vrdd, vrdd + 1), app.loop(3), KeepStep(1, "u", "device"), turn=vrdd - 1)
                assert {type(error) for error in failed.value.exceptions} == {WorldLost}
                app.key = b"another world..."
            app.run((vrdd, vrdd + 1), app.loop(3), KeepStep(1, "u", "device"), turn=(vrdd - 1) % 8)
            for client in app.clients:
                client.request(Release(client.next_number(), (vrdd,)))
        assert all(report.repeated > repeated > 0 for report, repeated in zip(app.reports(), before, strict=True))
        np.testing.assert_allclose(app.fetch(17), stepped(full, case, 48), rtol=1e-9)


@pytest.mark.parametrize("whom", ["process", "rank"])
def test_the_survivor_notices_at_once_and_goes_on(two: list[NodeWorker], whom: str):
    case = case_of(2)
    full = field(case)
    with NodesApp(f"kill-{whom}", two, case) as app:
        app.put(1, full)
        app.run((1, 2), app.loop(5), KeepStep(1, "u", "device"))
        survivor = app.clients[0]
        victim = app.clients[1].pid if whom == "process" else app.ranks()[0]
        killer = threading.Timer(0.3, os.kill, (victim, signal.SIGKILL))
        killer.start()
        with pytest.raises(ExceptionGroup) as failed:
            app.run((2, 3), app.loop(10**8), KeepStep(1, "u", "device"), seconds=30.0)
        killer.join()
        noticed = time.monotonic()
        assert any(isinstance(error, WorldLost) for error in failed.value.exceptions)
        if whom == "process":
            app.again(1)
            app.put(2, stepped(full, case, 5), [1])
        app.run((2, 3), app.loop(5), KeepStep(1, "u", "device"), key=b"another world...")
        assert time.monotonic() - noticed < 20
        np.testing.assert_allclose(app.fetch(3), stepped(full, case, 10), rtol=1e-11)
        assert app.clients[0] is survivor and survivor.pid


def test_a_rank_that_stops_is_given_up_at_the_deadline(two: list[NodeWorker]):
    case = case_of(2)
    with NodesApp("stopped", two, case) as app:
        app.put(1, field(case))
        app.run((1, 2), app.loop(5), KeepStep(1, "u", "device"))
        stopped = app.ranks()
        os.kill(stopped[0], signal.SIGSTOP)
        started = time.monotonic()
        with pytest.raises(ExceptionGroup) as failed:
            app.run((2, 3), app.loop(50), KeepStep(1, "u", "device"), seconds=4.0)
        assert 2 < time.monotonic() - started < 20
        assert all(isinstance(error, WorldLost) for error in failed.value.exceptions)
        app.run((2, 3), app.loop(5), KeepStep(1, "u", "device"), key=b"another world...")


@pytest.mark.parametrize(("hosts", "reason"), [
    ("", "gpu-worker start --hosts"), ("127.0.0.1:1", "the daemon at 127.0.0.1:1 does not answer")])
def test_a_node_that_nobody_knows_or_that_does_not_answer(tmp_path: Path, hosts: str, reason: str):
    key = tmp_path / "key"
    key.write_text("of the cluster of this test")
    key.chmod(0o600)
    with nodes(tmp_path, 2, [("--hosts", hosts, "--key", str(key)) if hosts else (), ()]) as others:
        case = case_of(2)
        with NodesApp("others", others, case) as app:
            app.put(1, field(case))
            with pytest.raises(ExceptionGroup) as failed:
                app.run((1, 2), app.loop(1), KeepStep(1, "u", "device"), seconds=10.0)
            kinds = {type(error) for error in failed.value.exceptions}
            assert kinds == {WorldLost, NodeSilent if hosts else OptionError}      # nothing is repeated after the last
            assert any(reason in str(error) for error in failed.value.exceptions)
