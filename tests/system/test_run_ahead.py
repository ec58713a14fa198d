"""Cached steps begin without an action: they run ahead, bounded, and an action tells what is wrong with them."""

from __future__ import annotations

import contextlib
import gc
import operator
import signal
import sys
import threading
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from pyspark import SparkContext

from gpu_worker.client.connection import Client
from gpu_worker.protocol.messages import Run
from tests.system.topology import Topology
from tests.system.vrdd_tools import cost, host_context, report, used, warm_up
from tests.system.worker_tools import eventually
from vispark import IN, CompileError, Grid, KernelFault, Kernels, RecordError, stencil
from vispark.api.operations import device_ops, grid_ops
from vispark.api.rdds import eager, lineage_walk, recorded_rdd
from vispark.plan import ops
from vispark.plan.ops import Lineage, RecordedOperation
from vispark.runtime.driver import recovery, release_queue
from vispark.runtime.driver.pipeline import AHEAD
from vispark.runtime.driver.session import BATCH, Session


@pytest.fixture(scope="module")
def sc(local: Topology) -> Iterator[SparkContext]:
    with host_context(local) as context:
        yield context


def halved(x, k):
    return x / 2 + k


@stencil
def average(u):
    return (u[-1] + u[1]) / 2


def waiting(sc: SparkContext) -> int:
    """Return the number of plans that are on their way."""
    worker, = Session.of(sc).workers.known()
    # Releases are on their way as well, and not counted by whoever runs ahead.
    return sum(pending.invocation is not None for lane in list(worker.connections._busy.values())
               for pending in list(lane._waiting))


def settled(sc: SparkContext) -> None:
    """Wait until what was released has gone."""
    gc.collect()
    assert eventually(lambda: Session.of(sc).loads.collector.idle)


def operations_of(lineage: Lineage | None) -> list[RecordedOperation]:
    """Return the operations that a lineage holds, each as often as it does."""
    return [*lineage.ops, *operations_of(lineage.before)] if lineage else []


def test_a_loop_without_actions_runs_ahead_and_takes_no_jobs(sc: SparkContext):
    x = sc.parallelize([float(i) for i in range(10)], 3).cache("GPU")
    assert x.count() == 10
    if Session.of(sc).relays:
        pytest.skip("a relayed plan is a Spark job: none is on its way without one")
    plans = Session.of(sc).plans
    results = [x]

    def loop() -> None:
        for k in range(200):
            results[0] = results[0].vmap(halved, float(k)).cache()
            assert waiting(sc) <= AHEAD

    spent = cost(sc, loop)
    assert (spent.jobs, spent.plans) == (0, 200)
    assert waiting(sc) > 1
    expected = [float(i) for i in range(10)]
    for k in range(200):
        expected = [halved(each, float(k)) for each in expected]
    planned = plans.made
    assert cost(sc, lambda: results.append(results[0].collect())).jobs == 0
    assert results[1] == expected
    assert waiting(sc) == 0
    again = results[0].vmap(halved, -1.0).cache()
    assert again.collect() == [halved(each, -1.0) for each in expected]
    assert plans.made <= planned + 1


def test_a_long_loop_keeps_a_bounded_plan_and_two_buffers(sc: SparkContext, monkeypatch: pytest.MonkeyPatch):
    data = [np.zeros((64, 1024)) for _ in range(2)]
    x = sc.parallelize(data, 2).cache("GPU")
    assert x.count() == 2
    settled(sc)
    before, held = used(sc), x.vmap(halved, 1.0)
    for _ in range(500):
        x = x.vmap(halved, 1.0).cache()
    assert held is not None and len(x._waiting()) <= BATCH
    np.testing.assert_allclose(x.collect()[0], 2.0)
    assert len(operations_of(x._lineage)) <= 3 * BATCH and x._before is None
    with monkeypatch.context() as patch:
        seen, nodes = [0], Lineage.nodes
        patch.setattr(Lineage, "nodes", lambda lineage: (seen.append(0) or node for node in nodes(lineage)))
        x._end = None
        assert len(x.vmap(halved, 1.0)._recent()) == 2 and len(seen) < 10       # and not all 501
    del held
    settled(sc)
    assert len(report(sc).vrdds) == 1
    # Tables of launches are small; the second buffer goes when the loop has rested.
    assert used(sc) < 2.1 * before and eventually(lambda: used(sc) == before)


def stepped(grid):
    grid.halo_extract().halo_shuffle()
    return grid.halo_append().vmap(average).cache()


@pytest.mark.parametrize("what", ["a grid", "rows", "rows that are let go of"])
def test_a_loop_that_starts_from_what_is_not_loaded_costs_one_job_and_a_bounded_plan(sc: SparkContext, what: str):
    # Without an action before it what it starts from is loaded once that many steps wait, and they go on from there.
    # Those that are let go of wait with those behind them.
    if "let go" in what and Session.of(sc).relays:
        pytest.skip("a relayed plan waits for others, and then what it needs was let go of")
    steps, field = 3 * BATCH, np.arange(16.0)
    rows = sc.parallelize(field.tolist(), 2)
    x = Grid(16, splits=2, boundary="periodic").scatter(sc, field).cache("GPU") if what == "a grid" \
        else rows.cache("GPU")
    links = [0]

    def loop() -> None:
        nonlocal x
        for _ in range(steps):
            before, x = x, stepped(x) if what == "a grid" else x.vmap(halved, 1.0).cache()
            if "let go" in what:
                before.uncache()
            links.append(sum(1 for _ in eager.to_be_kept(x)))

    expected = [field]
    for _ in range(steps):
        last = expected[-1]
        expected.append((np.roll(last, 1) + np.roll(last, -1)) / 2 if what == "a grid" else last / 2 + 1)
    assert cost(sc, loop).jobs == 1 and max(links) <= BATCH
    spent = cost(sc, lambda: expected.append(Grid.gather(x) if what == "a grid" else np.array(x.collect())))
    assert spent.jobs == 0
    np.testing.assert_allclose(expected[-1], expected[-2])


def test_what_cannot_be_loaded_ahead_is_tried_once_and_told_by_the_action(sc: SparkContext):
    x = sc.parallelize([1.0, "a"], 1).cache("GPU")

    def loop() -> None:
        nonlocal x
        for _ in range(2 * BATCH):
            x = x.vmap(halved, 1.0).cache()

    assert cost(sc, loop).jobs == 1
    with pytest.raises(RecordError):
        x.collect()


def lines_run(action: Callable[[], object]) -> int:
    """Count the lines that an action runs in this thread of the modules that look at a loop's steps."""
    modules = (eager, lineage_walk, ops, recovery, recorded_rdd, device_ops, grid_ops)
    count, files = 0, {module.__file__ for module in modules}

    def local(frame, event: str, _):
        nonlocal count
        count += event == "line"
        return local

    before = sys.gettrace()
    sys.settrace(lambda frame, *_: local if frame.f_code.co_filename in files else None)
    try:
        action()
    finally:
        sys.settrace(before)
    return count


def test_an_action_does_not_look_at_the_steps_before_the_last_one(sc: SparkContext):
    """Nor does a step; of those alike there is one link of the lineage, here each is a link of its own."""
    x, counts = sc.parallelize([float(i) for i in range(6)], 2).cache("GPU"), {}
    assert x.count() == 6
    for number in range(1, 1001):
        after = x.vmap(halved, float(number))
        step = lines_run(after.cache)
        x = after
        if number % 100 == 0:
            actions = (x.count, lambda x=x: x.take(1), lambda x=x: x.reduce(operator.add), x.tokens)
            counts[number] = step, *map(lines_run, actions)
    # The first hundred begins at another place of a batch of the relayed way.
    assert counts[200] == counts[1000] and 0 < max(counts[1000]) < 1000


def test_what_is_wrong_is_told_by_the_action_that_needs_it(sc: SparkContext):
    broken = Kernels('extern "C" __global__ void broken(double* x) { x[0] = nowhere; }')
    x = sc.parallelize([1.0, 2.0], 2).cache("GPU")
    assert x.collect() == [1.0, 2.0]
    bad = x.exec(broken.broken, IN, grid=1, block=32).cache()
    worse = bad.vmap(halved, 1.0).cache()
    assert x.vmap(halved, 0.0).collect() == [0.5, 1.0]
    for _ in range(2):
        with pytest.raises(CompileError, match="nowhere"):
            worse.collect()
    with pytest.raises(CompileError, match="nowhere"):
        bad.count()
    assert x.collect() == [1.0, 2.0]


def test_a_fault_is_told_by_the_action_and_nothing_is_run_again(sc: SparkContext):
    def at(rows, index):
        return rows + rows[index]

    x = sc.parallelize([1.0, 2.0], 2).cache("GPU")
    rows = sc.parallelize([np.zeros((3, 4)) for _ in range(2)], 2).cache("GPU")
    assert x.count() == rows.count() == 2
    if Session.of(sc).relays:
        pytest.skip("a relayed plan runs under the action")
    for steps in (4, 3 * AHEAD):
        bad = rows.vmap(at, 0, of="row").cache()
        assert bad.count() == 2
        for number in range(steps):
            bad = bad.vmap(at, 1000 if number == 1 else 0, of="row").cache()
        jobs = sc._jsc.sc().dagScheduler().numTotalJobs()
        with pytest.raises(KernelFault, match="index 1000 is out of range"):
            bad.collect()
        assert sc._jsc.sc().dagScheduler().numTotalJobs() == jobs
        assert x.collect() == [1.0, 2.0]
    warm_up(sc)     # all connections led to processes that are gone


def test_what_cannot_be_lowered_is_told_by_the_action(sc: SparkContext):
    x = sc.parallelize([1.0, 2.0], 2).cache("GPU")
    assert x.count() == 2
    wrong = x.vreduce(lambda a, b: a + b).cache()
    with pytest.raises(Exception, match="folds inside each record"):
        wrong.collect()


def test_another_thread_may_go_on_from_what_is_on_its_way(sc: SparkContext):
    x = sc.parallelize([float(i) for i in range(6)], 2).cache("GPU")
    assert x.count() == 6
    records = []
    for k in range(5):
        y = x.vmap(halved, float(k)).cache()
        thread = threading.Thread(target=lambda y=y: records.append(y.vmap(halved, 1.0).collect()))
        thread.start()
        thread.join()
    assert records == [[halved(halved(float(i), float(k)), 1.0) for i in range(6)] for k in range(5)]


def test_spark_takes_what_is_on_its_way(sc: SparkContext):
    x = sc.parallelize([float(i) for i in range(6)], 2).cache("GPU")
    assert x.count() == 6
    y = x.vmap(halved, 1.0).cache()
    assert y.map(abs).collect() == [halved(float(i), 1.0) for i in range(6)]
    z = x.vmap(halved, 2.0).cache()
    assert sorted(z.union(y).collect()) == sorted(y.collect() + z.collect())


def test_what_is_dropped_on_its_way_goes(sc: SparkContext):
    x = sc.parallelize([float(i) for i in range(6)], 2).cache("GPU")
    assert x.count() == 6
    settled(sc)
    before = used(sc)
    for k in range(40):
        x.vmap(halved, float(k)).cache()
    assert x.count() == 6 and x.first() == 0.0
    settled(sc)
    assert used(sc) == before


@contextlib.contextmanager
def interrupted(monkeypatch: pytest.MonkeyPatch, method: str, when: Callable[[object], bool]) -> Iterator[None]:
    """Press Ctrl-C when a connection to a worker is about to do, for the first time, what ``when`` waits for."""
    action, pressed = getattr(Client, method), []

    def acting(client: Client, message: object, *rest: object) -> object:
        if not pressed and when(message):
            pressed.append(message)
            signal.raise_signal(signal.SIGINT)
        return action(client, message, *rest)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Client, method, acting)
        yield


def test_a_program_goes_on_after_it_was_interrupted(sc: SparkContext, monkeypatch: pytest.MonkeyPatch,
                                                    caplog: pytest.LogCaptureFixture):
    x = sc.parallelize([float(i) for i in range(6)], 2).cache("GPU")
    assert x.count() == 6
    if Session.of(sc).relays:
        pytest.skip("Spark's jobs are interrupted as any")
    settled(sc)
    y = x.vmap(halved, 1.0).cache()
    with interrupted(monkeypatch, "receive", lambda _: True):
        y.collect()
    records = []
    # What the worker has done by then is found there, and no loss is told of.
    assert eventually(lambda: len(report(sc).vrdds) == 2)
    spent = cost(sc, lambda y=y: records.append(y.collect()))
    assert records == [[halved(float(i), 1.0) for i in range(6)]] and (spent.jobs, spent.plans) == (0, 1)
    assert not caplog.records
    for method, when in (("send", lambda message: isinstance(message, Run)), ("receive", lambda _: True)):
        with interrupted(monkeypatch, method, when):
            for k in range(3 * AHEAD):
                y = y.vmap(halved, float(k)).cache()
        assert x.sum() == 15.0 and y.count() == 6
    del y
    settled(sc)
    assert len(report(sc).vrdds) == 1
    warm_up(sc)


def test_what_was_let_go_of_goes_although_its_message_was_interrupted(sc: SparkContext,
                                                                      monkeypatch: pytest.MonkeyPatch):
    x = sc.parallelize([float(i) for i in range(6)], 2).cache("GPU")
    assert x.count() == 6
    if Session.of(sc).relays:
        pytest.skip("Spark's jobs are interrupted as any")
    y = x.vmap(halved, 1.0).cache()
    assert y.collect()
    settled(sc)
    assert len(report(sc).vrdds) == 2
    monkeypatch.setattr(release_queue, "_PATIENCE", 0.3)     # a plan takes it along before the collector does
    del y
    with interrupted(monkeypatch, "send", lambda message: isinstance(message, Run) and bool(message.released)):
        x.collect()
    settled(sc)
    assert len(report(sc).vrdds) == 1
    warm_up(sc)
