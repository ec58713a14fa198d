"""Publishing and attaching through Spark: records of all kinds, names, bad input, and losses; in one application."""

from __future__ import annotations

import os
import signal
from types import SimpleNamespace

import numpy as np
import pytest
from pyspark.sql import SparkSession

import vispark
from gpu_worker.client.connection import administer, locate
from gpu_worker.protocol.messages import Status
from gpu_worker.system.launcher import start_from_client
from tests.system.vrdd_tools import connect_threads, exact, host_context
from tests.system.worker_tools import eventually
from vispark.runtime.driver.session import Session


@pytest.fixture(scope="module")
def sc(local):
    with pytest.MonkeyPatch.context() as patch:
        # The driver looks for publications on its own node too: there is no daemon beside the tasks' one.
        patch.setenv("VISPARK_RUNTIME_DIR", str(local.nodes[0].runtime_dir))
        with host_context(local, lease=2) as context:
            yield context


def _edge(y, x):
    return 1.0 * y + x


@vispark.stencil
def _heat(u):
    return u[0, 0] + 0.1 * (u[1, 0] + u[-1, 0] + u[0, 1] + u[0, -1] - 4 * u[0, 0])


def rows(sc, records, partitions=3):
    return sc.parallelize(records, partitions).cache("GPU")


@pytest.mark.parametrize("records", [
    [1.5, 2.5, -0.0], [1, 2, 3, 4, 5], [True, False], [1 + 2j, 3j],
    [np.float32(i) for i in range(10)], [np.arange(4.0) + i for i in range(7)],
    [np.full((2, 3), i) for i in range(5)], [{"a": 1.0, "b": np.arange(3)}] * 4, [(1, 2.0), (3, 4.0)],
    [("a", 1.0), ("b", 2.0)], [((1, "x"), np.arange(2))] * 3, [(np.int64(i), float(i)) for i in range(6)], [1.0],
], ids=repr)
def test_records_come_back_as_they_were(sc, records):
    rows(sc, records).publish("kinds", replace=True)
    attached = vispark.attach(sc, "kinds")
    assert exact(attached.collect()) == exact(records)
    assert exact(attached.recv().collect()) == exact(records)
    assert attached.count() == len(records) and exact(attached.first()) == exact(records[0])


def test_it_outlives_the_vrdd_and_what_is_made_of_it_is_ones_own(sc):
    numbers = rows(sc, list(map(float, range(100)))).publish("life", replace=True)
    attached = vispark.attach(sc, "life")
    numbers.unpersist()
    doubled = attached.vmap(lambda x: 2 * x).cache()
    assert doubled.sum() == 9900 and attached.sum() == 4950
    doubled.publish("doubled", replace=True)
    assert vispark.attach(sc, "doubled").sum() == 9900
    attached.unpersist()
    with pytest.raises(vispark.VisparkError, match="attach it again"):
        attached.collect()
    assert doubled.collect() == [2.0 * x for x in range(100)]
    assert vispark.attach(sc, "life").sum() == 4950


def test_a_plan_is_explained_and_shown(sc):
    rows(sc, [1.0, 2.0]).publish("shown", replace=True)
    attached = vispark.attach(sc, "shown")
    assert "attach 'shown'  [cached as VRDD" in attached.vmap(lambda x: x + 1).explanation()
    assert repr(attached).startswith("VRDD[shown]: 2 records")


@pytest.mark.parametrize("level", ["GPU", "GPU_AND_HOST"])
def test_both_places_are_read(sc, level):
    sc.parallelize([np.arange(3.0)] * 10, 2).persist(level).publish("placed", replace=True)
    assert vispark.attach(sc, "placed").vmap(lambda x: x.sum()).sum() == 30
    held = sc.parallelize([1.0, 2.0], 2).send().cache().publish("on host", replace=True)
    assert vispark.attach(sc, "on host").vmap(lambda x: 3 * x).sum() == 9 and held.sum() == 3


def test_a_lost_process_is_attached_again(sc):
    rows(sc, list(map(float, range(10)))).publish("lost", replace=True)
    attached = vispark.attach(sc, "lost")
    squares = attached.vmap(lambda x: x * x).cache()
    assert squares.sum() == 285
    worker, = Session.of(sc).workers.known()
    for _ in range(2):
        with worker.connections._borrowed() as lane:
            os.kill(lane.client.pid, signal.SIGKILL)
        assert squares.sum() == 285 and attached.map(lambda x: x + 1).sum() == 55
    connect_threads(worker)


def test_names_that_are_there_or_not(sc):
    numbers = rows(sc, [1.0, 2.0]).publish("names", replace=True)
    with pytest.raises(vispark.PublicationExists, match=r"'names' already, of the application .*replace=True"):
        numbers.publish("names")
    with pytest.raises(vispark.PublicationLost, match="no publication 'nothing'"):
        vispark.attach(sc, "nothing")
    computed = []
    for _ in range(2):
        vrdd = vispark.attach(sc, "made once", otherwise=lambda: computed.append(1) or rows(sc, [5.0]))
        assert vrdd.collect() == [5.0]
    assert computed == [1]
    assert {"names", "made once"} <= {each.name for each in vispark.publications(sc)}


def test_a_secret_is_asked_for(sc):
    rows(sc, [1.0, 2.0]).publish("secret", replace=True, secret="of ours")
    for secret in (None, "of theirs"):
        with pytest.raises(vispark.WorkerError, match="'secret' is attached with its secret only"):
            vispark.attach(sc, "secret", secret=secret)
    assert vispark.attach(sc, "secret", secret="of ours").sum() == 3


@pytest.mark.parametrize(("publish", "words"), [
    (lambda sc: rows(sc, [1.0]).publish(""), "1 to 128 printable characters"),
    (lambda sc: rows(sc, [1.0]).publish("a\tb"), "1 to 128 printable characters"),
    (lambda sc: rows(sc, [1.0]).publish("bad", lease="soon"), "a lease is a number of seconds .*not 'soon'"),
    (lambda sc: rows(sc, [1.0]).publish("bad", lease=-1), "not -1"),
    (lambda sc: rows(sc, [({1}, 1.0), ({2}, 2.0)]).publish("bad"), r"its keys are pickled, .*publish .values\(\)"),
    (lambda sc: vispark.Grid((4, 4), halo=1, boundary=_edge).scatter(sc, np.zeros((4, 4))).cache("GPU").publish("bad"),
     r"a function for its boundary.*or .values\(\)"),
])
def test_what_cannot_be_published_says_why(sc, publish, words):
    with pytest.raises(vispark.PlanError, match=words):
        publish(sc)
    assert "bad" not in {each.name for each in vispark.publications(sc)}


@pytest.mark.parametrize("boundary", ["periodic", 2.0])
def test_blocks_of_a_grid_are_read_before_and_behind_steps(sc, boundary):
    grid = vispark.Grid((8, 6), (2, 2), 1, boundary)
    cells = np.arange(48.0).reshape(8, 6)
    blocks = grid.scatter(sc, cells).cache("GPU")
    later = blocks.iterate(_heat, steps=3).cache()
    expected = grid.gather(later)
    blocks.publish("grid", replace=True)
    later.publish("grid behind steps", replace=True)
    theirs, behind = vispark.attach(sc, "grid"), vispark.attach(sc, "grid behind steps")
    assert sorted(theirs.keys().collect()) == sorted(blocks.keys().collect())
    np.testing.assert_array_equal(grid.gather(theirs), cells)
    np.testing.assert_array_equal(grid.gather(theirs.iterate(_heat, steps=3)), expected)
    np.testing.assert_array_equal(grid.gather(behind.iterate(_heat, steps=2)),
                                  grid.gather(later.iterate(_heat, steps=2)))
    np.testing.assert_array_equal(grid.gather(behind), expected)
    assert vispark.Grid.sum(behind) == vispark.Grid.sum(later)


def test_the_fields_of_a_grid_are_read(sc):
    grid = vispark.Grid((6, 4), (3, 1), 1, fields={"u": "float32", "v": "int16"})
    cells = {"u": np.arange(24, dtype="f4").reshape(6, 4), "v": np.arange(24, dtype="i2").reshape(6, 4)}
    grid.scatter(sc, cells).cache("GPU").publish("fields", replace=True)
    theirs = grid.gather(vispark.attach(sc, "fields"))
    assert {name: (found.dtype, found.tolist()) for name, found in theirs.items()} == \
        {name: (each.dtype, each.tolist()) for name, each in cells.items()}


def test_a_publication_is_a_dataframe(sc, monkeypatch):
    # As after a context that was stopped without its session.
    ended = SimpleNamespace(sparkContext=None, _sc=SimpleNamespace(_jsc=None))
    monkeypatch.setattr(SparkSession, "_instantiatedSession", ended)
    rows(sc, [{"k": i, "x": float(i)} for i in range(10)]).publish("table", replace=True)
    frame = vispark.attach(sc, "table").toDF()
    assert frame.where("k > 6").agg({"x": "sum"}).collect()[0][0] == 24.0


def test_a_daemon_that_is_killed_costs_a_reader_nothing(sc, local):
    owner = rows(sc, list(map(float, range(10)))).publish("without a daemon", replace=True)
    attached = vispark.attach(sc, "without a daemon")
    runtime = str(local.nodes[0].runtime_dir)
    os.kill(administer(Status(), runtime_dir=runtime).pid, signal.SIGKILL)
    owner.unpersist()
    assert attached.sum() == 45 and attached.map(lambda x: x + 1).sum() == 55      # the second by tasks
    assert "without a daemon" not in {each.name for each in vispark.publications(sc)}
    # The daemon that comes with the next process has it of who holds it.
    start_from_client(locate(runtime), "info")
    assert eventually(lambda: "without a daemon" in {each.name for each in vispark.publications(sc)})
    assert vispark.attach(sc, "without a daemon").sum() == 45
