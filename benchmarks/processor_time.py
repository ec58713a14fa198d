"""Processor time of loops, which other programs on the machine change little: ``python -m benchmarks.processor_time``.

For each loop it prints the milliseconds of the driver and of the daemon with its device process, an iteration, on two
partitions and the ``host`` device. With PYTHONPATH set to the tree of an older commit it measures that one; runs of the
two in turn are pairs.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
import numpy as np
from pyspark import SparkConf, SparkContext

import vispark  # noqa: F401 - adds to RDDs
from vispark import Grid, stencil

_TICKS = os.sysconf("SC_CLK_TCK")
_COLUMNS = 41


@stencil
def heat(u, k):
    """Return a step of the heat equation."""
    return u[0, 0] + k * (u[1, 0] + u[-1, 0] + u[0, 1] + u[0, -1] - 4 * u[0, 0])


def gradient(p, w):
    """Return a row's part of a gradient."""
    return p * (1.0 / (1.0 + np.exp(-(p @ w))) - 0.5)


def worker_seconds() -> float:
    """Return the processor time of this user's workers in VISPARK_RUNTIME_DIR so far, in seconds."""
    directory, total = os.environ["VISPARK_RUNTIME_DIR"].encode(), 0.0
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if b"gpu_worker" in (process / "cmdline").read_bytes() and directory in (process / "environ").read_bytes():
                fields = (process / "stat").read_text().rpartition(")")[2].split()
                total += (int(fields[11]) + int(fields[12])) / _TICKS
    return total


def measured(iterations: int, action: Callable[[], object], times: int = 1) -> tuple[float, float]:
    """Return the milliseconds of driver and workers an iteration, of which ``action`` does some at once, some times."""
    workers, driver = worker_seconds(), time.process_time()
    for _ in range(times):
        action()
    done = iterations * times
    return 1000 * (time.process_time() - driver) / done, 1000 * (worker_seconds() - workers) / done


def regression(context: SparkContext, rows: int, iterations: int) -> tuple[float, float]:
    """Return the times of a gradient of logistic regression, from the driver."""
    data = np.float32(np.random.default_rng(1).normal(size=(rows, _COLUMNS)))
    points, w = context.parallelize(list(data), 2).cache("GPU"), np.zeros(_COLUMNS, np.float32)

    def once() -> None:
        nonlocal w
        w = w - np.float32(1e-4) * points.vmap(gradient, w).reduce(lambda a, b: a + b)

    measured(1, once, 30)
    times = measured(1, once, iterations)
    points.uncache()
    return times


def grid(context: SparkContext, steps: int) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return the times of a step of the heat equation in one call of ``iterate``, and from the driver."""
    cells = np.float32(np.random.default_rng(1).normal(size=(512, 512)))
    blocks = Grid(cells.shape, splits=(2, 1), halo=1, boundary="periodic").scatter(context, cells).cache("GPU")
    k = np.float32(0.1)

    def together(count: int) -> None:
        level = blocks.iterate(heat, k, steps=count).cache()
        level.count()
        level.uncache()

    level: Any = blocks.vmap(lambda u: u + np.float32(0)).cache()
    level.count()

    def once() -> None:
        nonlocal level
        level.halo_extract().halo_shuffle()
        before, level = level, level.vmap(heat, k).cache()
        level.count()
        before.uncache()

    together(20)
    whole = measured(steps, lambda: together(steps))
    measured(1, once, 20)
    return whole, measured(1, once, steps // 2)


@click.command(help=__doc__)
def main() -> None:
    conf = SparkConf().setMaster("local[1]").set("spark.ui.enabled", "false").set("spark.vispark.device", "host")
    context = SparkContext(conf=conf)
    context.setLogLevel("ERROR")
    times = {"logistic regression, 1,000 rows": regression(context, 1000, 600),
             "logistic regression, 100,000 rows": regression(context, 100_000, 100)}
    times["heat, 512 x 512, in one call"], times["heat, 512 x 512, step by step"] = grid(context, 3000)
    context.stop()
    for name, (driver, workers) in times.items():
        print(f"{name:36} driver {driver:.3f} ms, workers {workers:.3f} ms, together {driver + workers:.3f} ms")


if __name__ == "__main__":
    main()
