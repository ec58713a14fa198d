"""Representations of a VRDD at a prompt, in a notebook and in the log."""

from __future__ import annotations

import logging

import numpy as np
import pytest
from pyspark import SparkContext

from tests.system.vrdd_tools import warm_up
from vispark.runtime.driver.spark_jobs import SparkJobs


@pytest.fixture(scope="module", autouse=True)
def started(sc: SparkContext) -> None:
    """Open a session with its threads and connections, which live as long as the context."""
    warm_up(sc)
    numbers = sc.parallelize([1.0]).cache("GPU")
    assert numbers.count() == numbers.dtoh().cache().count() == 1


def test_a_vrdd_says_what_it_holds_and_where_without_a_job(sc: SparkContext, monkeypatch: pytest.MonkeyPatch):
    points = sc.parallelize([np.ones(3, "f4")] * 10, 2).cache("GPU").setName("<points>")
    assert repr(points) == ("VRDD[<points>]: records not known before the first action; 2 partitions; "
                            "to be cached on the device, by the first action")
    points.count()
    shown = points._repr_html_()
    assert shown.startswith("<table>") and "&lt;points&gt;" in shown
    assert all(f">{words}</td>" in shown for words in repr(points).partition("]: ")[2].split("; "))
    monkeypatch.setattr(SparkJobs, "run", lambda *_: pytest.fail("a Spark job"))
    assert repr(points) == "VRDD[<points>]: 10 records of float32[3]; 2 partitions; cached on the device, 120 bytes"
    sums = points.vmap(lambda p: p.sum())
    assert repr(sums).startswith("VRDD[vmap lambda]: 10 records of float32; 2 partitions; lazy: ")
    assert "<points>, which is kept on the device" in repr(sums)
    assert "10 records of float32[3]; 2 partitions; cached in host memory" in repr(points.dtoh().cache())
    for vrdd in (points, sums, points.dtoh().cache()):
        data = vrdd._repr_mimebundle_()
        assert data == {"text/plain": repr(vrdd), "text/html": vrdd._repr_html_()}
    assert repr(points.vmap(lambda p: p @ 3)).startswith("VRDD[vmap lambda]: records not known")     # told by an action


def test_an_explanation_is_shown_by_its_sections_and_runs_no_job(sc: SparkContext, monkeypatch: pytest.MonkeyPatch):
    numbers = sc.parallelize([1.0, 2.0], 2).cache("GPU")
    pairs = numbers.vmap(lambda x: (1, x)).reduceByKey(max, numKeys=3)
    monkeypatch.setattr(SparkJobs, "run", lambda *_: pytest.fail("a Spark job"))
    for explanation in (numbers.explanation(), pairs.explanation()):
        data = explanation._repr_mimebundle_()
        assert data["text/plain"] == explanation and "<summary>Rewritten plan</summary>" in data["text/html"]


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
