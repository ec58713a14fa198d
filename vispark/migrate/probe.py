"""Probe of actions on a device: each is run, as its port would have it, on records that are drawn from few.

Rates of additions do not tell what a function of a row takes on every device; that function, run, does.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np
from pyspark import SparkContext

from vispark.migrate.calibrate import least_seconds
from vispark.migrate.predict import ProbedRate
from vispark.migrate.typed import bytes_of, schema_of
from vispark.records.rows import Rows

#: Bytes of the records that are drawn, the least first: as few as tell the action from its plan.
SIZES = (1 << 18, 1 << 21, 1 << 24, 1 << 27)
#: The most records that Spark's tasks make one by one, where they are no rows of one array.
MOST_SINGLE = 50_000
#: What an action on many records takes at least of one on few, for the difference to tell something.
TELLING = 3.0
#: Runs of which the least counts.
TIMES = 5


def probe(sc: SparkContext, records: Sequence[Any], action: Callable[[Any], Any],
          clock: Callable[[], float] = time.perf_counter) -> ProbedRate | None:
    """Return the seconds of an action on a context's device; None where a plan's own seconds hide them.

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

    Raises
    ------
    VisparkError
        If the records cannot be held, or a function does not translate.

    Examples
    --------
    >>> found = probe(sc, [np.ones(8)] * 16, lambda held: held.vmap(lambda p: np.exp(p).sum()).sum())
    >>> found is None or 0 < found.record < 1e-4
    True
    """
    plan, few = _seconds(sc, records, len(records), action, clock), len(records)
    size = bytes_of(records) or 1.0
    for nbytes in SIZES:
        count = int(nbytes / size)
        if count > few and (_is_array(records) or count <= MOST_SINGLE):
            seconds = _seconds(sc, records, count, action, clock)
            if seconds > TELLING * plan:
                record = (seconds - plan) / (count - few)
                return ProbedRate(plan - record * few, record)
    return None


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
