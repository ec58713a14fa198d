"""A Spark context with a GPU worker of its own, for one run."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from pyspark import SparkConf, SparkContext, StorageLevel

from gpu_worker.client.connection import administer
from gpu_worker.device.host.memory import host_memory
from gpu_worker.protocol.errors import WorkerError
from gpu_worker.protocol.messages import Status, Stop
from gpu_worker.system.paths import VARIABLE

#: One task is one core's work: its NumPy must not start threads beside those of the other tasks. OMP_NUM_THREADS is
#: Spark's to set for its tasks; here it would take the host device's threads from the bare loop too.
_ONE_THREAD = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")

#: The bytes that Python workers sent, as they are. PySpark's MEMORY_ONLY serialises them again, and compresses them.
IN_JVM = StorageLevel(False, True, False, True)


@contextlib.contextmanager
def environment() -> Iterator[None]:
    """Set variables that every process of a run inherits, for a worker that lives no longer than the run.

    One GPU is used, the first, unless ``CUDA_VISIBLE_DEVICES`` says otherwise: a bare loop uses no more.

    It must be entered before the first SparkContext of this process.
    """
    root = str(Path(__file__).resolve().parents[1])
    with tempfile.TemporaryDirectory(prefix="vb-", ignore_cleanup_errors=True) as directory:
        os.environ.update({
            "PYTHONPATH": os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")])),
            "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", VARIABLE: directory,
            "CUDA_VISIBLE_DEVICES": os.environ.get("CUDA_VISIBLE_DEVICES", "0"),
            **dict.fromkeys(_ONE_THREAD, "1"),
        })
        try:
            yield
        finally:
            with contextlib.suppress(WorkerError):
                administer(Stop(), timeout=10)


@contextlib.contextmanager
def context(device: str, cores: int, options: Mapping[str, str] | None = None) -> Iterator[SparkContext]:
    """Yield a local context with as many task slots as cores, and a third of the machine's memory for its JVM.

    ``options`` are further ones of Spark's configuration.
    """
    gigabytes = max(2, min(48, host_memory() // 3 >> 30))
    settings = {
        "spark.driver.memory": f"{gigabytes}g", "spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1",
        "spark.local.dir": os.environ[VARIABLE], "spark.log.level": "ERROR", "spark.vispark.device": device,
        "spark.vispark.lease": "2", "spark.ui.showConsoleProgress": "false",
    } | dict(options or {})
    conf = SparkConf().setMaster(f"local[{cores}]").setAppName("vispark benchmarks").setAll(list(settings.items()))
    with SparkContext(conf=conf) as sc:
        yield sc


def device_of(sc: SparkContext) -> str:
    """Return the kind of device that a context's blocks live on: "cuda" or "host"."""
    probe = sc.parallelize([1.0], 1).cache("GPU")
    probe.count()
    report = next(session.report for session in administer(Status()).sessions if session.report)
    return report.memory[0].device.partition(":")[0]
