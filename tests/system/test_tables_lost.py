"""DataFrames and Parquet files under losses between definition and action: the same answer as before."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession

from tests import leaks
from tests.system.topology import Topology
from tests.system.vrdd_tools import connect_threads
from vispark import VRDD, from_dataframe, read_parquet
from vispark.runtime.driver.session import Session

pytest.importorskip("pyarrow")
pytestmark = [pytest.mark.chaos, pytest.mark.timeout(400)]

ROWS = 20_000
TOTAL = float(sum(range(ROWS)))


@pytest.fixture(scope="module")
def sc(standalone: Topology) -> Iterator[SparkContext]:
    with standalone.context({"spark.vispark.device": "host", "spark.task.maxFailures": 20,
                             "spark.deploy.maxExecutorRetries": -1}) as context:
        # What a session keeps open to its end is there before the first test.
        warm = context.parallelize([1.0, 2.0], 2).cache("GPU")
        assert warm.sum() == 3.0
        for worker in Session.of(context).workers.known():
            connect_threads(worker)
        warm.unpersist()
        yield context


def end_device_processes(topology: Topology) -> None:
    for node in topology.nodes:
        leaks.kill([process for process in leaks.processes_of(node.runtime_dir)
                    if "device_process" in process.command])


def end_workers(topology: Topology) -> None:
    for node in topology.nodes:
        leaks.kill(leaks.processes_of(node.runtime_dir))


def end_an_executor(topology: Topology) -> None:
    backends = leaks.processes(lambda process, _: "CoarseGrainedExecutorBackend" in process.command
                               and topology.nodes[0].host in process.command)
    assert backends
    os.kill(backends[0].pid, signal.SIGKILL)


def delete_shuffle_files(topology: Topology) -> None:
    """Delete what Spark keeps of shuffles: tasks that read it fail in the middle of their input."""
    files = [file for node in topology.nodes for file in node.runtime_dir.parent.glob("local-*/**/shuffle_*.data")]
    assert files
    for file in files:
        file.unlink(missing_ok=True)


LOSSES = [end_device_processes, end_workers, end_an_executor, delete_shuffle_files]


def points(sc: SparkContext) -> DataFrame:
    return SparkSession(sc).range(ROWS).selectExpr("id", "float(id) as x", "array(id, 2 * id) as a").repartition(4)


@pytest.mark.parametrize("lose", LOSSES)
def test_a_loss_before_the_action(sc: SparkContext, standalone: Topology, tmp_path: Path,
                                  lose: Callable[[Topology], None]):
    cached = from_dataframe(points(sc), ["id", "x"]).cache("GPU")
    loaded = from_dataframe(points(sc), ["id", "x"]).cache("GPU")
    assert total(loaded) == TOTAL
    out = loaded.vmap(lambda id, x: {"y": 2.0 * id}).toDF("y double")
    written = str(tmp_path / "written")
    loaded.write_parquet(written)
    read = read_parquet(sc, written, ["id", "x"]).cache("GPU")
    lose(standalone)
    assert total(cached) == TOTAL
    assert out.selectExpr("sum(y)").collect() == [(2 * TOTAL,)]
    assert total(read) == TOTAL
    lose(standalone)
    loaded.write_parquet(written, overwrite=True)
    assert SparkSession(sc).read.parquet(written).selectExpr("sum(id)", "count(*)").collect() == [(TOTAL, ROWS)]
    assert os.listdir(tmp_path) == ["written"]
    for rdd in (cached, loaded, read):
        rdd.unpersist()


def total(rows: VRDD) -> float:
    return float(rows.vmap(lambda id: id).sum())
