"""Probe of actions on a device: each is run, as its port would have it, on records that are drawn from few.

Rates of additions do not tell what a function of a row takes on every device; that function, run, does.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np
from pyspark import SparkContext

from vispark.data.records.rows import Rows
from vispark.migrate.predict.calibration import least_seconds
from vispark.migrate.predict.physics import ProbedRate
from vispark.migrate.rules.typed_verdicts import bytes_of, schema_of

#: Bytes of the records that are drawn at most.
LARGEST = 1 << 27
#: Seconds that the action takes at most on the next number of records: by the last one, all of whose seconds may be
#: those of the records.
NEXT = 0.25
#: The most records that Spark's tasks make one by one, where they are no rows of one array.
MOST_SINGLE = 50_000
#: What an action on many records takes at least of one on few, for the difference to tell something.
TELLING = 3.0
#: Runs of which the least counts.
TIMES = 5


def probe(sc: SparkContext, records: Sequence[Any], action: Callable[[Any], Any],
          clock: Callable[[], float] = time.perf_counter, most: int | None = None,
          limit: float = math.inf) -> ProbedRate | None:
    """Return the seconds of an action on a context's device: of its plan, and of a record unless the plan's hide them.

    They do where even the most records that are drawn take about as long as few. Where the few records alone take
    :data:`NEXT` seconds, these are all taken for the records'. None where ``limit`` ended the probe before it told.

    Parameters
    ----------
    sc : SparkContext
        Its ``spark.vispark.device`` says which.
    records : sequence
        Some of what is cached. As many of them are drawn, again and again, as take a few times a plan's seconds.
    action : callable
        Runs on the cached records, to its end.
    clock : callable
        Gives seconds: the wall's, or those of processors.
    most : int, optional
        Records that there are. An action on as many as that is what is asked about, however little it takes.
    limit : float
        Seconds behind the first measurement, which may start a worker, after which no larger one begins.

    Raises
    ------
    VisparkError
        If the records cannot be held, or a function does not translate.

    Examples
    --------
    >>> found = probe(sc, [np.ones(8)] * 16, lambda held: held.vmap(lambda p: np.exp(p).sum()).sum())
    >>> found is None or found.record is None or 0 < found.record < 1e-4
    True
    >>> probe(sc, [1.0, 2.0], lambda held: held.vmap(lambda x: x + 1).sum(), most=2).record
    0.0
    """
    few, largest = len(records), _most(records)
    plan = seconds = _seconds(sc, records, few, action, clock)
    if most is not None and most <= few:
        return ProbedRate(plan, 0.0)
    began, count, largest = time.perf_counter(), few, largest if most is None else min(largest, most)
    while time.perf_counter() - began <= limit and (following := _following(count, seconds, largest)) > count:
        count, seconds = following, _seconds(sc, records, following, action, clock)
        if seconds > TELLING * plan or count == most:
            record = max(0.0, seconds - plan) / (count - few)
            return ProbedRate(max(0.0, plan - record * few), record)
    if count >= largest:
        return ProbedRate(plan, None)
    return ProbedRate(0.0, plan / few) if _following(few, plan, largest) <= few else None


def _following(count: int, seconds: float, largest: int) -> int:
    """Return the next number of records, behind one that took some seconds; that or less where there is none."""
    return int(min(largest, count * NEXT / seconds))


def _most(records: Sequence[Any]) -> int:
    """Return the number of records that are drawn at most."""
    fitting = int(LARGEST / (bytes_of(records) or 1.0))
    return fitting if _is_array(records) else min(fitting, MOST_SINGLE)


def _seconds(sc: SparkContext, records: Sequence[Any], count: int, action: Callable[[Any], Any],
             clock: Callable[[], float]) -> float:
    rdd: Any = sc.parallelize([count], 1).mapPartitions(partial(_drawn, _gathered(records)))
    held = rdd.cache("GPU")
    held.count()
    seconds, _ = least_seconds(lambda: action(held), TIMES, clock)
    held.uncache()
    return seconds


def _is_array(records: Sequence[Any]) -> bool:
    """Return whether records are numbers, or rows of one length, so that they are drawn as one array."""
    layout = schema_of(records).layout
    return layout.kind == "elements" and not layout.keyed and [part.form for part in layout.parts if not part.name] in (
        ["number"], ["array"]) and np.asarray(records).ndim <= 2


def _gathered(records: Sequence[Any]) -> Any:
    return np.asarray(records) if _is_array(records) else list(records)


def _drawn(records: Any, counts: Iterable[int]) -> Iterable[Any]:
    # In another order each time, as a processor foresees branches that repeat.
    for count in counts:
        if isinstance(records, np.ndarray):
            return Rows([records[np.random.default_rng(0).integers(0, len(records), count)]])
        return random.Random(0).choices(records, k=count)
    return []
