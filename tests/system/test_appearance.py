"""What a prompt, a notebook and the log say of a VRDD."""

from __future__ import annotations

import logging

import numpy as np
import pytest
from pyspark import SparkContext

from vispark import Grid


@pytest.fixture(scope="module", autouse=True)
def started(sc: SparkContext) -> None:
    """A session with its threads and connections, which live as long as the context."""
    sc.parallelize([1.0]).cache("GPU").count()


def test_a_vrdd_says_what_it_holds_and_where_without_a_job(sc: SparkContext):
    points = sc.parallelize([np.ones(3, "f4")] * 10, 2).cache("GPU").setName("points")
    before = sc.statusTracker().getJobIdsForGroup(None)
    assert repr(points) == ("VRDD[points]: records not known before the first action; 2 partitions; "
                            "to be cached on the device, by the first action")
    assert sc.statusTracker().getJobIdsForGroup(None) == before
    points.count()
    assert repr(points) == "VRDD[points]: 10 records of float32[3]; 2 partitions; cached on the device, 120 bytes"
    sums, jobs = points.vmap(lambda p: p.sum()), sc.statusTracker().getJobIdsForGroup(None)
    assert repr(sums).startswith("VRDD[vmap lambda]: 10 records of float32; 2 partitions; lazy: ")
    assert "points, which is kept on the device" in repr(sums)
    assert "10 records of float32[3]; 2 partitions; cached in host memory" in repr(points.dtoh().cache())
    assert sc.statusTracker().getJobIdsForGroup(None) == jobs
    assert repr(points.vmap(lambda p: p @ 3)).startswith("VRDD[vmap lambda]: records not known")     # told by an action
    assert "4 records of (key, float64[2, 2])" in repr(_counted(Grid((4, 4), (2, 2)).scatter(sc, np.ones((4, 4)))))


def _counted(blocks):
    held = blocks.cache("GPU")
    assert held.count() == 4
    return held


def test_a_notebook_shows_the_same_words(sc: SparkContext):
    points = sc.parallelize([1.0, 2.0], 2).cache("GPU").setName("<b>")
    points.count()
    shown = points._repr_html_()
    assert shown.startswith("<table>") and "&lt;b&gt;" in shown
    assert all(f"<td>{words}</td>" in shown for words in repr(points).partition("]: ")[2].split("; "))


def test_explain_prints_once(sc: SparkContext, capsys: pytest.CaptureFixture[str]):
    numbers = sc.parallelize([1.0, 2.0], 2).cache("GPU")
    assert numbers.explain() is None and capsys.readouterr().out == numbers.explanation() + "\n"
    pairs = numbers.vmap(lambda x: (1, x)).reduceByKey(max, numKeys=3)
    assert pairs.explain() is None and capsys.readouterr().out == pairs.explanation() + "\n"


def test_partitions_that_come_later_are_not_called_lost(sc: SparkContext, caplog: pytest.LogCaptureFixture):
    numbers = sc.parallelize([1.0, 2.0, 3.0], 3).cache("GPU")
    with caplog.at_level(logging.WARNING):
        assert numbers.take(1) == [1.0] and numbers.count() == 3
    assert not caplog.records
