"""Progress of a load and of a loop in a log."""

from __future__ import annotations

import time

import numpy as np
import pytest
from pyspark import SparkContext

import vispark
from tests.system.vrdd_tools import warm_up
from vispark import Grid, stencil
from vispark.runtime.driver import progress


@stencil
def mean(u):
    return (u[-1] + u[1]) / 2


def slept(seconds):
    time.sleep(seconds)
    return seconds


@pytest.fixture(scope="module", autouse=True)
def settled(sc: SparkContext) -> None:
    """Open what a session keeps open, before the test."""
    warm_up(sc)


def test_a_load_and_a_loop_are_shown_in_whole_lines(sc: SparkContext, capsys, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(progress, "_LOG_SECONDS", 0.0)
    # The first partition is there long before the second.
    waits = sc.parallelize([0.0, 2.0], 2).map(slept).cache("GPU").setName("waits")
    blocks = Grid(64, splits=2, boundary="periodic").scatter(sc, np.arange(64.0)).cache("GPU")
    with vispark.progress():
        assert waits.sum() == 2.0
        loaded = capsys.readouterr().err
        assert Grid.sum(blocks.iterate(mean, steps=100)) == 2016.0
    assert ": 1 of 2 partitions, " in loaded and "waits" in loaded
    lines = capsys.readouterr().err
    assert "iterate mean: 100 of 100 steps, " in lines and "\r" not in loaded + lines
    assert waits.count() == 2 and capsys.readouterr().err == ""
