"""Shares of the GPUs that Spark assigns, by vispark and by the addresses of Spark's tasks: ``python -m
benchmarks.scheduled``.

An executor with four devices of the CPU, ``host:4``, which have the addresses 0 to 3 as GPUs do. For each amount of a
GPU that a task asks for, a line has the partitions of a load that went to each address, and those of which Spark gave
the task that address first, where a program without vispark would put them: the same tasks in one run. What counts is
the most loaded GPU, as a pass over all partitions takes as long as that one.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator

import click
import numpy as np
from pyspark import SparkConf, SparkContext, TaskContext

import vispark  # noqa: F401 - adds cache("GPU")
from benchmarks.session import environment
from gpu_worker.client.connection import administer
from gpu_worker.protocol.messages import Status

GPUS, BLOCK = 4, 1 << 16
AMOUNTS = ("1", "0.5", "0.25")


def numbered(index: int, _: Iterable[int]) -> Iterator[np.ndarray]:
    """Yield a block that has the first address of the task that makes it."""
    context = TaskContext.get()
    assert context is not None
    yield np.full(BLOCK // 8, float(context.resources()["gpu"].addresses[0]))


def shares(amount: str, partitions: int) -> tuple[list[int], list[int]]:
    """Return the partitions of each address: those that vispark put there, and those whose tasks had it first."""
    script = subprocess.check_output([sys.executable, "-m", "gpu_worker", "gpus", "--script"], text=True).strip()
    settings = {"spark.worker.resource.gpu.amount": str(GPUS), "spark.worker.resource.gpu.discoveryScript": script,
                "spark.executor.resource.gpu.amount": str(GPUS), "spark.task.resource.gpu.amount": amount,
                "spark.vispark.device": f"host:{GPUS}", "spark.ui.enabled": "false", "spark.log.level": "ERROR",
                "spark.vispark.lease": "2", "spark.ui.showConsoleProgress": "false"}
    conf = SparkConf().setMaster(f"local-cluster[1,{GPUS},1024]").setAppName("scheduled").setAll(list(settings.items()))
    with SparkContext(conf=conf) as sc:
        held = sc.parallelize(range(partitions), partitions).mapPartitionsWithIndex(numbered).cache("GPU")
        tasks = Counter(int(block[0]) for block in held.collect())
        report = next(session.report for session in administer(Status()).sessions if session.report)
        blocks = {int(memory.device.partition(":")[2]): memory.used // BLOCK for memory in report.memory}
        held.unpersist()
    return [blocks.get(gpu, 0) for gpu in range(GPUS)], [tasks[gpu] for gpu in range(GPUS)]


@click.command(help=__doc__)
@click.option("--partitions", default=16, show_default=True, type=click.IntRange(min=1))
def main(partitions: int) -> None:
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, range(GPUS)))
    with environment():
        for amount in AMOUNTS:
            ours, sparks = shares(amount, partitions)
            print(f"{amount:>4} of a GPU a task, {partitions} partitions on {GPUS} GPUs: vispark {ours}, Spark's tasks "
                  f"{sparks}; the most loaded has {max(ours)} and {max(sparks)}")


if __name__ == "__main__":
    main()
