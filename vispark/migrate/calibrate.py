"""Calibration of a device: rates that are measured by plans of vispark, on a machine that does nothing else."""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from pyspark import SparkContext

from vispark.migrate.errors import PredictionError
from vispark.records.rows import Rows

#: Processes that want a core, for each core, from which on nothing is measured.
BUSY = 0.5
#: Multiplications and additions of each element in the kernel that measures rates.
OPERATIONS = 512


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


def least_seconds(run: Callable[[], Any], times: int) -> tuple[float, float]:
    """Return the least seconds and the median of some runs, the first of which is left out: it compiles and loads."""
    run()
    seconds = []
    for _ in range(times):
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    return min(seconds), statistics.median(seconds)


def measure(sc: SparkContext, elements: int, times: int = 7) -> dict[str, float]:
    """Return the rates of a context's device: seconds of plans and jobs, bytes and operations a second.

    Parameters
    ----------
    sc : SparkContext
        Its ``spark.vispark.device`` says which.
    elements : int
        Numbers that are held; their bytes are to be far above the device's caches.
    times : int
        Runs of each measurement.

    Returns
    -------
    dict
        ``plan`` and ``job`` in s, ``load`` and ``memory`` in bytes/s, ``float64`` and ``float32`` in operations/s.
    """
    rates: dict[str, float] = {}
    rates["job"], _ = least_seconds(lambda: sc.parallelize([1], 1).count(), times)
    start = time.perf_counter()
    held = _held(sc, elements, "float64")
    rates["load"] = 8 * elements / (time.perf_counter() - start)
    rates["plan"], rates["plan_median"] = least_seconds(partial(_pass, _held(sc, 1000, "float64"), _itself), times)
    rates["memory"] = 8 * elements / _above(rates["plan"], held, _itself, times)
    for dtype in ("float64", "float32"):
        data = held if dtype == "float64" else _held(sc, elements, dtype)
        rates[dtype] = 2 * OPERATIONS * elements / _above(rates["plan"], data, _busy, times)
        data.uncache()
    return rates


def _above(plan: float, held: Any, function: Callable[[Any], Any], times: int) -> float:
    return seconds_above(plan, least_seconds(partial(_pass, held, function), times)[0])


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


def _pass(held: Any, function: Callable[[Any], Any]) -> Any:
    return held.vmap(function).reduce(_add)


def _held(sc: SparkContext, elements: int, dtype: str) -> Any:
    rows: Any = sc.parallelize([elements], 1).mapPartitions(partial(_rows, dtype))
    held = rows.cache("GPU")
    held.count()
    return held


def _rows(dtype: str, counts: Iterable[int]) -> Iterable[Any]:
    return Rows(np.full(count, 0.5, dtype) for count in counts)


def _itself(x: Any) -> Any:
    return x + x


def _add(a: Any, b: Any) -> Any:
    return a + b


def _busy(x: Any) -> Any:
    total = x
    for _ in range(OPERATIONS):
        total = total * x + x
    return total


def written(path: Path, device: str, name: str, rates: dict[str, float], load: float) -> dict[str, Any]:
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
    """
    document = {"device": device, "name": name, "date": time.strftime("%Y-%m-%d"), "load": load, "rates": rates}
    path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    return document
