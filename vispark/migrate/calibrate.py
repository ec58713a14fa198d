"""Calibration of a device: rates that are measured by plans of vispark, on a machine that does nothing else."""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from pyspark import SparkContext

from vispark.migrate.errors import PredictionError
from vispark.migrate.predict import EXP, PRODUCT
from vispark.migrate.written_files import write_file
from vispark.records.rows import Rows

#: Processes that want a core, for each core, from which on nothing is measured.
BUSY = 0.5
#: Multiplications and additions, and exponentials, of each element in the kernels that measure rates.
OPERATIONS, EXPONENTIALS = 128, 32
#: Width of the rows and of the matrix in products, and of the rows that come back to the driver.
WIDTH, RESULT_WIDTH = 128, 1024
#: Parts of the elements that are held, the least first: a slow device tells its rates by few.
PARTS = (64, 8, 1)
#: Seconds from which on a measurement is not repeated, once it ran twice.
BUDGET = 1.0


def refuse_busy(load: float, cores: int) -> None:
    """Raise an error on a machine whose load would be measured in place of the device.

    Parameters
    ----------
    load : float
        Processes that ran or wanted to in the last minute, on average.
    cores : int
        Cores that this process may use.

    Raises
    ------
    PredictionError
        If more than half of the cores were busy.

    Examples
    --------
    >>> refuse_busy(0.4, 2)
    >>> refuse_busy(7.5, 2)
    Traceback (most recent call last):
    ...
    vispark.migrate.errors.PredictionError: the machine is busy: 7.5 processes on 2 cores in the last ...
    """
    if load > BUSY * cores:
        raise PredictionError(f"the machine is busy: {load:.1f} processes on {cores} cores in the last minute; "
                              f"calibrate when there are at most {BUSY * cores:g}")


def machine_load() -> tuple[float, int]:
    """Return the load of the last minute, and the number of cores that this process may use."""
    return os.getloadavg()[0], len(os.sched_getaffinity(0))


def least_seconds(run: Callable[[], Any], times: int,
                  clock: Callable[[], float] = time.perf_counter) -> tuple[float, float]:
    """Return the least seconds and the median of some runs, the first of which is left out: it compiles and loads.

    Long ones are repeated less often.
    """
    run()
    seconds: list[float] = []
    while len(seconds) < times and (not seconds or sum(seconds) < BUDGET):
        start = clock()
        run()
        seconds.append(clock() - start)
    return min(seconds), statistics.median(seconds)


def measure(sc: SparkContext, elements: int, times: int = 7,
            clock: Callable[[], float] = time.perf_counter) -> dict[str, float]:
    """Return the rates of a context's device: seconds of plans and jobs, bytes and operations a second.

    Parameters
    ----------
    sc : SparkContext
        Its ``spark.vispark.device`` says which.
    elements : int
        Numbers that are held at most; a 64th of their bytes is to be above the device's caches.
    times : int
        Runs of each measurement; fewer of long ones.
    clock : callable
        Gives seconds: the wall's, or those of processors.

    Returns
    -------
    dict
        ``plan``, ``job`` and ``compile`` in s; ``load`` (to the device), ``memory`` (its own) and ``link`` (from it to
        the driver) in bytes/s; ``float64`` and ``float32``, their ``exp`` and ``product`` in operations/s.

    Raises
    ------
    PredictionError
        If a pass over that many numbers tells nothing beside an empty plan.
    """
    measuring = _Measuring(sc, elements, times, clock)
    rates = measuring.latencies()
    rates["memory"] = 8 * measuring.rate("float64", 0, _itself)
    rates["load"] = 8 * measuring.loaded
    rates["link"] = measuring.link()
    for dtype in ("float64", "float32"):
        rates[dtype] = 2 * OPERATIONS * measuring.rate(dtype, 0, _busy)
        rates[dtype + EXP] = EXPONENTIALS * measuring.rate(dtype, 0, _exponentials)
        matrix = np.full((WIDTH, WIDTH), 1 / WIDTH, dtype)
        rates[dtype + PRODUCT] = 2 * WIDTH * measuring.rate(dtype, WIDTH, _product, matrix)
    return rates


@dataclass
class _Measuring:
    """Measurements on a context; passes are those beyond an empty plan, whose seconds are taken first."""

    sc: SparkContext
    elements: int
    times: int
    clock: Callable[[], float]
    plan: float = 0.0
    loaded: float = 0.0

    def latencies(self) -> dict[str, float]:
        """Return the seconds of a Spark job, of a plan, and of a plan's first run."""
        job, _ = self.least(lambda: self.sc.parallelize([1], 1).count())
        few = _held(self.sc, 1000, "float64")
        start = self.clock()
        _pass(few, _itself)
        first = self.clock() - start
        self.plan, median = self.least(partial(_pass, few, _itself))
        return {"job": job, "plan": self.plan, "plan_median": median, "compile": max(0.0, first - self.plan)}

    def least(self, run: Callable[[], Any]) -> tuple[float, float]:
        """Return the least seconds of a run, and the median."""
        return least_seconds(run, self.times, self.clock)

    def rate(self, dtype: str, width: int, function: Callable[..., Any], *arguments: Any) -> float:
        """Return the elements a second of a function: of as few as tell something, as slow devices take long."""
        for part in PARTS:
            elements, start = max(self.elements // part, 1), self.clock()
            held = _held(self.sc, elements, dtype, width)
            self.loaded = elements / (self.clock() - start)
            seconds, _ = self.least(partial(_pass, held, function, *arguments))
            held.uncache()
            if seconds > 2 * self.plan:
                break
        return elements / seconds_above(self.plan, seconds)

    def link(self) -> float:
        """Return bytes a second of rows that are collected."""
        elements = max(min(self.elements // 16, 1 << 20), RESULT_WIDTH)
        rows = _held(self.sc, elements, "float64", RESULT_WIDTH)
        seconds, _ = self.least(lambda: rows.vmap(_itself).collect())
        rows.uncache()
        return 8 * elements / seconds_above(self.plan, seconds)


def seconds_above(plan: float, whole: float) -> float:
    """Return the seconds of a pass beyond those of an empty plan.

    Raises
    ------
    PredictionError
        If that is less than the plan itself: too few elements were held to tell.

    Examples
    --------
    >>> seconds_above(0.25, 1.0)
    0.75
    """
    if whole - plan < plan:
        raise PredictionError(f"a pass of {whole * 1e3:.2g} ms tells nothing beside an empty plan of {plan * 1e3:.2g} "
                              "ms; give more --elements")
    return whole - plan


def _pass(held: Any, function: Callable[..., Any], *arguments: Any) -> Any:
    return held.vmap(function, *arguments).reduce(_add)


def _held(sc: SparkContext, elements: int, dtype: str, width: int = 0) -> Any:
    """Return numbers that a worker holds; rows of them, where they have a width."""
    rows: Any = sc.parallelize([elements], 1).mapPartitions(partial(_rows, dtype, width))
    held = rows.cache("GPU")
    held.count()
    return held


def _rows(dtype: str, width: int, counts: Iterable[int]) -> Iterable[Any]:
    return Rows(np.full((count // width, width) if width else count, 0.5, dtype) for count in counts)


def _itself(x: Any) -> Any:
    return x + x


def _add(a: Any, b: Any) -> Any:
    return a + b


def _busy(x: Any) -> Any:
    total = x
    for _ in range(OPERATIONS):
        total = total * x + x
    return total


def _exponentials(x: Any) -> Any:
    total = x
    for _ in range(EXPONENTIALS):
        total = np.exp(-total)
    return total


def _product(p: Any, matrix: Any) -> Any:
    return p @ matrix


def written(path: Path, device: str, name: str, rates: dict[str, float], load: float, runs: str = "") -> dict[str, Any]:
    """Write a calibration that :func:`~vispark.migrate.predict.calibrated_device` reads, and return it.

    Parameters
    ----------
    path : Path
        A JSON file; it is replaced.
    device, name : str
        The device's name in ``devices.toml``, or another, and the name that is printed.
    rates : dict
        By :func:`measure`.
    load : float
        The machine's when it was measured.
    runs : str
        ``spark.vispark.device`` with which it was measured; probes of that one are of this device.
    """
    document = {"device": device, "name": name, "runs": runs, "date": time.strftime("%Y-%m-%d"), "load": load,
                "rates": rates}
    write_file(path, json.dumps(document, indent=2) + "\n")
    return document
