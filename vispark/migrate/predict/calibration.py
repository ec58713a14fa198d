"""Calibration of a device: rates that are measured by plans of vispark, on a machine that does nothing else."""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from pyspark import SparkContext

from gpu_worker.protocol.errors import OutOfMemory
from vispark.data.records.rows import Rows
from vispark.migrate.errors import PredictionError
from vispark.migrate.predict.physics import EXP, PRODUCT
from vispark.migrate.written_files import write_file

#: Processes that want a core, for each core, from which on nothing is measured.
BUSY = 0.5
#: Multiplications and additions, and exponentials, of each element in the kernels that measure rates.
OPERATIONS, EXPONENTIALS = 128, 32
#: Width of the rows and of the matrix in products, and of the rows that come back to the driver.
WIDTH, RESULT_WIDTH = 128, 1024
#: Keys of an empty plan by key, and numbers that come back to the driver one by one.
KEYS, COLLECTED = 4, 1 << 18
#: Numbers that are held first, and how many times as many next: a slow device tells its rates by few.
FEWEST, GROWTH = 1 << 22, 16
#: Numbers that are held at most: 8 GiB of float64.
MOST = 1 << 30
#: Part of the memory that is free on this machine that they take at most.
FREE_PART = 4
#: Empty plans that a pass lasts at least before its numbers are as many as are held.
TELLING = 4.0
#: Numbers of an array that a Spark task hands over again and again.
PIECE = 1 << 23
#: Seconds from which on a measurement is not repeated, once it ran twice.
BUDGET = 1.0
#: Seconds and runs, whichever is less, that short measurements take: the first passes over new data are recorded and
#: compiled, and what else runs on the machine holds up several in a row.
STEADY, MOST_RUNS = 0.1, 64


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


def most_elements() -> int:
    """Return the most numbers of 8 bytes that are held: 2**30, and no more than a quarter of the free memory.

    They go through this machine's memory, whose size is known before a device's is.
    """
    free = 1024 * next(int(line.split()[1]) for line in Path("/proc/meminfo").read_text().splitlines()
                       if line.startswith("MemAvailable:"))
    return min(MOST, max(FEWEST, free // FREE_PART // 8))


def least_seconds(run: Callable[[], Any], times: int,
                  clock: Callable[[], float] = time.perf_counter) -> tuple[float, float]:
    """Return the least seconds and the median of some runs, the first of which is left out: it compiles and loads.

    Long ones are repeated less often, short ones until they are steady.

    Parameters
    ----------
    run : callable
        What is measured.
    times : int
        Runs, of those that take neither :data:`BUDGET` nor less than :data:`STEADY` in all.
    clock : callable
        Gives seconds.
    """
    run()
    seconds: list[float] = []
    while (len(seconds) < times and (not seconds or sum(seconds) < BUDGET)) or (
            len(seconds) < MOST_RUNS and sum(seconds) < STEADY):
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
        Numbers that are held at most. Each rate takes as few of them as tell it.
    times : int
        Runs of each measurement; fewer of long ones.
    clock : callable
        Gives seconds: the wall's, or those of processors.

    Returns
    -------
    dict
        ``plan``, ``plan_by_key``, ``job`` and ``compile`` in s; ``load`` (to the device), ``memory`` (its own) and
        ``link`` (from it to the driver) in bytes/s; ``objects``, numbers that the driver makes of them, in 1/s;
        ``float64`` and ``float32``, their ``exp`` and ``product`` in operations/s.

    Raises
    ------
    PredictionError
        If a pass over as many numbers as the device holds tells nothing beside an empty plan.
    """
    measuring = _Measuring(sc, elements, times, clock)
    rates = measuring.latencies()
    rates["link"], rates["objects"] = measuring.link(), measuring.objects()
    for dtype in ("float64", "float32"):
        with measuring.numbers(dtype) as rate:
            if dtype == "float64":
                rates["memory"] = 8 * rate(_itself)
                rates["load"] = 8 * measuring.loaded
            rates[dtype] = 2 * OPERATIONS * rate(_busy)
            rates[dtype + EXP] = EXPONENTIALS * rate(_exponentials)
        with measuring.numbers(dtype, WIDTH) as rate:
            rates[dtype + PRODUCT] = 2 * WIDTH * rate(_product, np.full((WIDTH, WIDTH), 1 / WIDTH, dtype))
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
        keyed, _ = self.least(partial(_pass_by_key, few))
        return {"job": job, "plan": self.plan, "plan_median": median, "plan_by_key": keyed,
                "compile": max(0.0, first - self.plan)}

    def least(self, run: Callable[[], Any]) -> tuple[float, float]:
        """Return the least seconds of a run, and the median."""
        return least_seconds(run, self.times, self.clock)

    @contextmanager
    def numbers(self, dtype: str, width: int = 0) -> Iterator[Callable[..., float]]:
        """Yield a function that measures how many elements a second another function takes; the numbers that it loads
        stay on the device until the block ends.
        """
        held: dict[int, Any] = {}
        try:
            yield partial(self._rate, held, dtype, width)
        finally:
            for vrdd in filter(None, held.values()):
                vrdd.uncache()

    def _rate(self, held: dict[int, Any], dtype: str, width: int, function: Callable[..., Any],
              *arguments: Any) -> float:
        """Return the elements a second of a function: of as few as tell something, as slow devices take long."""
        elements = seconds = 0.0
        for size in sizes(self.elements):
            if size not in held:
                held[size] = self._loaded(size, dtype, width)
            if held[size] is None:
                break
            elements, (seconds, _) = size, self.least(partial(_pass, held[size], function, *arguments))
            if seconds > TELLING * self.plan:
                break
        return elements / seconds_above(self.plan, seconds)

    def _loaded(self, elements: int, dtype: str, width: int) -> Any:
        """Return numbers that the device holds; None where it has no room for as many."""
        start = self.clock()
        try:
            held = _held(self.sc, elements, dtype, width)
        except OutOfMemory:
            return None
        self.loaded = elements / (self.clock() - start)
        return held

    def link(self) -> float:
        """Return bytes a second of rows that are collected."""
        elements = max(min(self.elements // 16, 1 << 20), RESULT_WIDTH)
        rows = _held(self.sc, elements, "float64", RESULT_WIDTH)
        seconds, _ = self.least(lambda: rows.vmap(_itself).collect())
        rows.uncache()
        return 8 * elements / seconds_above(self.plan, seconds)

    def objects(self) -> float:
        """Return the numbers a second that are collected one by one, each as an object of the driver's."""
        numbers = _held(self.sc, COLLECTED, "float64")
        seconds, _ = self.least(lambda: numbers.vmap(_itself).collect())
        numbers.uncache()
        return COLLECTED / seconds_above(self.plan, seconds)


def sizes(most: int) -> list[int]:
    """Return the numbers of elements with which a rate is measured one after another, until they tell it.

    Examples
    --------
    >>> sizes(1 << 30)
    [4194304, 67108864, 1073741824]
    >>> sizes(100_000_000), sizes(1000)
    ([4194304, 67108864, 100000000], [1000])
    """
    counts = [FEWEST]
    while counts[-1] < most:
        counts.append(counts[-1] * GROWTH)
    return [*counts[:-1], most]


def seconds_above(plan: float, whole: float) -> float:
    """Return the seconds of a pass beyond those of an empty plan.

    Raises
    ------
    PredictionError
        If that is less than the plan itself, even with as many elements as are held.

    Examples
    --------
    >>> seconds_above(0.25, 1.0)
    0.75
    """
    if whole - plan < plan:
        raise PredictionError(f"a pass of {whole * 1e3:.2g} ms, with as many numbers as there is room for, tells "
                              f"nothing beside an empty plan of {plan * 1e3:.2g} ms; give more --elements where memory "
                              "is free")
    return whole - plan


def _pass(held: Any, function: Callable[..., Any], *arguments: Any) -> Any:
    return held.vmap(function, *arguments).reduce(_add)


def _pass_by_key(held: Any) -> Any:
    return held.vmap(_with_key).reduceByKey(_add, numKeys=KEYS).collect()


def _held(sc: SparkContext, elements: int, dtype: str, width: int = 0) -> Any:
    """Return numbers that a worker holds; rows of them, where they have a width."""
    rows: Any = sc.parallelize([elements], 1).mapPartitions(partial(_rows, dtype, width))
    held = rows.cache("GPU")
    held.count()
    return held


def _rows(dtype: str, width: int, counts: Iterable[int]) -> Iterable[Any]:
    return Rows(each for count in counts for each in _pieces(dtype, width, count // (width or 1)))


def _pieces(dtype: str, width: int, count: int) -> Iterator[np.ndarray]:
    """Yield rows of a width, or numbers, as parts of one array that is filled once."""
    most = min(count, PIECE // (width or 1))
    piece = np.full((most, width) if width else most, 0.5, dtype)
    for start in range(0, count, most):
        yield piece[:count - start]


def _itself(x: Any) -> Any:
    return x + x


def _with_key(x: Any) -> Any:
    return int(x) % KEYS, x


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
    """Write a calibration that :func:`~vispark.migrate.predict.physics.calibrated_device` reads, and return it.

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
