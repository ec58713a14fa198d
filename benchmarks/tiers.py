"""Passes over data larger than a device's budget: ``python -m benchmarks.tiers [DEVICE]``.

Iterations of logistic regression on points that are kept by ``persist("GPU_AND_HOST")``, seen from the driver, with the
device's memory (``spark.vispark.memory``) set so that the points are 1.25, 2 and 4 times as much; beside them the
greater one of the time of a pass over points that all fit, and of the streamed bytes at the rate of copies from pinned
memory. The weights must have the bits of those that the pass over points that fit gives.

Behind it are seconds of processors of all processes, which other programs on the machine hardly change, and what they
are of those of a pass over points that all fit and of the copies: on ``host``, where processors copy, both add up.
"""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Iterable
from functools import partial

import click
import numpy as np
from pyspark import SparkContext

from benchmarks.estimators import processor_seconds
from benchmarks.session import context, environment
from gpu_worker.client.connection import administer
from gpu_worker.device import open_devices
from gpu_worker.device.memory.host_tier import HostTier
from gpu_worker.protocol.messages import Reported, Status
from gpu_worker.system.paths import VARIABLE
from vispark import Rows
from vispark.options import Options

FEATURES = 64
RATIOS = (1.25, 2.0, 4.0)


def block(index: int, rows: int) -> np.ndarray:
    """Return the points of a partition: float32 of shape (rows, FEATURES), the label before the others."""
    points = np.random.default_rng(index).standard_normal((rows, FEATURES), "f4")
    points[:, 0] = np.sign(points[:, 1] + points[:, 2])
    return points


def blocks(rows: int, numbers: Iterable[int]) -> Rows:
    """Return the records of a partition."""
    return Rows(block(number, rows) for number in numbers)


def link(device: str, nbytes: int = 256 << 20) -> tuple[float, float]:
    """Return the bytes per second of copies to a device from pinned memory, the best of a few, and the bytes per second
    of processors.
    """
    opened, *others = open_devices(device, memory=0, cache_dir="")
    stream = opened.stream()
    memory = HostTier(2 * nbytes, opened.pin, opened.unpin).take(nbytes)
    memory.fill(1)
    buffer, taken, processors = opened.allocate(nbytes, stream=stream), [], time.process_time()
    for _ in range(8):
        opened.synchronize(stream=stream)
        started = time.perf_counter()
        opened.copy_in(buffer, memory, stream=stream)
        opened.synchronize(stream=stream)
        taken.append(time.perf_counter() - started)
    processors = time.process_time() - processors
    buffer.close()
    del memory
    for other in (opened, *others):
        other.close()
    return nbytes / min(taken), 8 * nbytes / processors


def report() -> Reported:
    """Return the report of what the session holds."""
    return next(session.report for session in administer(Status()).sessions if session.report)


def passes(sc: SparkContext, rows: int, partitions: int,
           count: int) -> tuple[list[float], float, bytes, Reported]:
    """Return the seconds of each pass, those of processors of one, the bits of the last weights, and what the session
    held.
    """
    points = sc.parallelize(range(partitions), partitions).mapPartitions(partial(blocks, rows)).persist("GPU_AND_HOST")
    weights, taken = np.zeros(FEATURES - 1, "f4"), []
    points.count()
    processors = 0.0
    for number in range(count):
        processors = processor_seconds(os.environ[VARIABLE]) if number == 2 else processors
        started = time.perf_counter()
        gradient = points.vmap(lambda p, w: p[1:] * (p[0] / (1 + np.exp(p[0] * (p[1:] * w).sum()))), weights).sum()
        taken.append(time.perf_counter() - started)
        weights = weights + gradient.astype("f4") / np.float32(rows * partitions)
    processors = (processor_seconds(os.environ[VARIABLE]) - processors) / (count - 2)
    held = report()
    points.uncache()
    return taken[2:], processors, weights.tobytes(), held


@click.command()
@click.argument("device", default="host")
@click.option("--bytes", "size", default="256m", show_default=True, help="Bytes of the points.")
@click.option("--partitions", default=32, show_default=True, type=click.IntRange(min=1))
@click.option("--passes", "count", default=12, show_default=True, type=click.IntRange(min=3))
@click.option("--cores", default=4, show_default=True, type=click.IntRange(min=1))
@click.option("--stream", default="", help="spark.vispark.stream; left out, its default.")
@click.option("--ratio", "ratios", multiple=True, default=RATIOS, show_default=True, type=float)
def main(device: str, size: str, partitions: int, count: int, cores: int, stream: str,
         ratios: tuple[float, ...]) -> None:
    """Print a line for each ratio of the points to the device's budget."""
    nbytes = Options.read([("spark.vispark.memory", size)]).memory
    rows = nbytes // partitions // (4 * FEATURES)
    with environment():
        rate, of_processors = link(device)
        print(f"{device}: {nbytes:,} bytes in {partitions} partitions; copies from pinned memory {rate / 1e9:.1f} GB/s")
        resident, alone, expected = 0.0, 0.0, b""
        for ratio in (0.0, *ratios):
            options = {"spark.vispark.memory": str(int(nbytes / ratio) if ratio else 0)}
            options |= {"spark.vispark.stream": stream} if stream else {}
            with context(device, cores, options) as sc:
                taken, spent, weights, held = passes(sc, rows, partitions, count)
            seconds, streamed = statistics.median(taken), held.host_bytes
            resident, alone, expected = resident or seconds, alone or spent, expected or weights
            floor, both = max(streamed / rate, resident), alone + streamed / of_processors
            print(f"{ratio or 'all'!s:>5}: {held.memory[0].used:>13,} bytes on the device, {streamed:>13,} streamed; "
                  f"a pass {1e3 * seconds:8.2f} ms, {seconds / floor:5.2f} of its floor of {1e3 * floor:8.2f} ms; "
                  f"processors {1e3 * spent:8.2f} ms, {spent / both if both else math.nan:5.2f} of both; "
                  f"the same bits: {'yes' if weights == expected else 'NO'}")


if __name__ == "__main__":
    main()
