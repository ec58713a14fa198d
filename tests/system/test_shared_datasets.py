"""Publishing and attaching through Spark: records of all kinds, names, bad input, and losses; in one application."""

from __future__ import annotations

import os
import signal

import numpy as np
import pytest

import vispark
from tests.system.vrdd_tools import connect_threads, exact, host_context
from vispark.runtime.driver.session import Session


@pytest.fixture(scope="module")
def sc(local):
    with pytest.MonkeyPatch.context() as patch:
        # The driver looks for publications on its own node too: there is no daemon beside the tasks' one.
        patch.setenv("VISPARK_RUNTIME_DIR", str(local.nodes[0].runtime_dir))
        with host_context(local, lease=2) as context:
            yield context


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
    made = []
    for _ in range(2):
        found = vispark.attach(sc, "made once", otherwise=lambda: made.append(1) or rows(sc, [5.0]))
        assert found.collect() == [5.0]
    assert made == [1]
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
    (lambda sc: vispark.Grid((4, 4)).scatter(sc, np.zeros((4, 4))).cache("GPU").publish("bad"), "blocks of a grid"),
])
def test_what_cannot_be_published_says_why(sc, publish, words):
    with pytest.raises(vispark.PlanError, match=words):
        publish(sc)
    assert "bad" not in {each.name for each in vispark.publications(sc)}
