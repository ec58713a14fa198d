"""GPUs as Spark's resources in local mode, where the driver's JVM is the only executor."""

from __future__ import annotations

import time

import pytest

import vispark
from gpu_worker.system.paths import DISCOVERY_SCRIPT
from tests.system.vrdd_tools import report
from vispark.errors import OptionError
from vispark.runtime.driver.session import Session

AMOUNTS = {"spark.executor.resource.gpu.amount": 1, "spark.task.resource.gpu.amount": 1}
NULL = {"spark.vispark.device": "null:4"}


def test_amounts_that_let_no_task_start_are_an_error_with_the_mend(local):
    with local.context(AMOUNTS | NULL) as sc:
        rdd = sc.parallelize([1.0, 2.0], 2)
        began = time.monotonic()
        with pytest.raises(OptionError, match=r"executor.resource.gpu.amount=1 and spark.task.resource.gpu.amount=1 "
                                              r"let no task start with the master local.*local-cluster"):
            rdd.cache("GPU")
        with pytest.raises(OptionError, match="local-cluster"):
            vispark.gpu_profile(sc)
        assert time.monotonic() - began < 10        # some milliseconds, on a machine that is not busy


def test_amounts_of_executors_alone_do_no_harm(local):
    with local.context({"spark.executor.resource.gpu.amount": 1} | NULL) as sc:
        assert sc.parallelize([1.0, 2.0], 2).cache("GPU").count() == 2
        assert not Session.of(sc).credentials.gpus.is_scheduled


def test_the_drivers_gpus_are_the_sessions(local, monkeypatch):
    # Whoever runs the tests may see some GPUs of the machine alone.
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,3")
    script = local.logs / "gpus.sh"
    script.write_text(f"#!/bin/sh\nCUDA_VISIBLE_DEVICES=1,3 exec sh {DISCOVERY_SCRIPT}\n")
    script.chmod(0o755)
    with local.context({"spark.driver.resource.gpu.amount": 2,
                        "spark.driver.resource.gpu.discoveryScript": str(script),
                        "spark.executorEnv.CUDA_VISIBLE_DEVICES": "1,3"} | NULL) as sc:
        assert sc.parallelize([1.0, 2.0], 2).cache("GPU").count() == 2
        assert Session.of(sc).credentials.gpus.by_executor == {"driver": ("1", "3")}
        assert [memory.device for memory in report(sc).memory] == ["null:1", "null:3"]


def test_there_is_no_profile_in_local_mode(local, caplog):
    with local.context(NULL) as sc:
        assert vispark.gpu_profile(sc) is None
        assert "no profile for GPUs: in local mode" in caplog.text


@pytest.mark.parametrize("amounts, message", [
    (("two",), "gpus is a number of GPUs, such as 0.25 or 1, not 'two'"),
    ((True,), "gpus is a number"),
    ((0.5, "all"), "cpus is a whole number of cores, not 'all'"),
    ((0.5, 1.5), "cpus is a whole number of cores, not 1.5"),
])
def test_amounts_that_are_no_numbers_are_an_error_in_local_mode_too(local, amounts, message):
    with local.context(NULL) as sc, pytest.raises(TypeError, match=message):
        vispark.gpu_profile(sc, *amounts)


def test_a_profile_is_of_a_context(local):
    with local.context(NULL) as sc, pytest.raises(TypeError, match="takes a SparkContext first, not RDD"):
        vispark.gpu_profile(sc.parallelize([1.0]))
