"""Programs that go on for long do not grow: a small part of ``python -m benchmarks.soak``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark import SparkContext

from benchmarks import soak
from tests.system.topology import Topology
from tests.system.vrdd_tools import host_context

_ITERATIONS = 240


@pytest.fixture(scope="module")
def sc(local: Topology) -> Iterator[SparkContext]:
    with host_context(local) as context:
        yield context


def test_slopes_are_of_the_later_part():
    points = [(at, {"rss": 5000.0 if at < 30 else 100.0 + 2 * at}) for at in range(90)]
    assert soak.slopes(points)["rss"] == pytest.approx(20_000)


@pytest.mark.parametrize("leg", ["churn", "arguments"])
def test_nothing_grows(sc: SparkContext, local: Topology, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                       leg: str) -> None:
    monkeypatch.setenv("VISPARK_RUNTIME_DIR", str(local.nodes[0].runtime_dir))
    first, *_, last = [figures for _, figures in soak.soaked(sc, leg, _ITERATIONS, tmp_path)][20:]
    for who in ("driver", "device", "daemon"):
        for what, most in (("descriptors", 4), ("threads", 4), ("maps", 40), ("rss", 16 << 20)):
            assert last[f"{who} {what}"] - first[f"{who} {what}"] <= most, f"{what} of the {who}"
