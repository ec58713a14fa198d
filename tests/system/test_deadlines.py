"""No plan runs without an end, and none for long without a word."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator

import numpy as np
import pytest
from pyspark import SparkContext

from tests.system.topology import Topology
from tests.system.vrdd_tools import host_context
from vispark import IN, OUT, DeadlineExceeded, Kernels
from vispark.runtime.driver import awaited_plans

_DEADLINE = 3


@pytest.fixture(scope="module")
def sc(local: Topology) -> Iterator[SparkContext]:
    with host_context(local, deadline=_DEADLINE, attempts=1) as context:
        yield context


def _spins(p: float) -> float:
    total = 0.0
    for at in range(2_000_000_000):
        total = total * 0.999 + np.sin(p * at)
    return total


def test_a_function_that_does_not_end_is_ended_and_named(sc: SparkContext, caplog: pytest.LogCaptureFixture,
                                                         monkeypatch: pytest.MonkeyPatch) -> None:
    held = sc.parallelize([1.0, 2.0], 2).cache("GPU")
    held.count()
    monkeypatch.setattr(awaited_plans, "FIRST_SECONDS", 0.5)
    began = time.monotonic()
    with caplog.at_level(logging.WARNING, "vispark"), pytest.raises(DeadlineExceeded) as caught:
        held.vmap(_spins).sum()
    assert time.monotonic() - began < 4 * _DEADLINE
    text = str(caught.value)
    assert "vmap _spins" in text
    assert "called at" in text
    assert "held.vmap(_spins).sum()" in text
    assert f"line {_spins.__code__.co_firstlineno}, in _spins" in text
    messages = [record.getMessage() for record in caplog.records if "still runs" in record.getMessage()]
    assert messages
    assert "vmap _spins" in messages[0]
    assert "held.vmap(_spins).sum()" in messages[0]
    assert f"after {_DEADLINE} s" in messages[0]
    assert held.sum() == 3.0


def test_a_kernel_of_ones_own_that_does_not_end_is_ended_and_named(sc: SparkContext) -> None:
    spin = Kernels("""extern "C" __global__ void spin(const double *x, double *y) {
        while (*(const volatile double *)x == x[0]) { }
        y[0] = x[0];
    }""").spin
    held = sc.parallelize([1.0], 1).cache("GPU")
    held.count()
    with pytest.raises(DeadlineExceeded, match=r"(?s)exec spin.*called at .*held\.exec\(spin"):
        held.exec(spin, IN, OUT, out=((1,), "f8"), grid=1, block=1).collect()
    assert held.collect() == [1.0]


def test_what_is_quick_is_not_told_of(sc: SparkContext, caplog: pytest.LogCaptureFixture) -> None:
    held = sc.parallelize([1.0, 2.0], 2).cache("GPU")
    with caplog.at_level(logging.WARNING, "vispark"):
        assert held.vmap(lambda p: p + 1).sum() == 5.0
    assert "still runs" not in caplog.text
