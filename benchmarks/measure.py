"""Samples: cases measured in turn, so that what disturbs the machine disturbs all of them alike."""

from __future__ import annotations

import math
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark import RDD

import vispark

#: Seconds that a sample takes at least, where its case may be repeated in it.
SAMPLE_SECONDS = 0.1


@dataclass(frozen=True)
class Case:
    """Something to measure.

    Attributes
    ----------
    name : str
        What results call it.
    run : callable
        Does it once. What it returns is dropped, unless ``times_itself``.
    nbytes : int
        The bytes it moves, from which a rate follows; 0 where a rate says nothing.
    against : tuple of str
        The cases that its ratio is wanted to.
    repeat : bool
        Whether a sample may be the mean of several runs, as many as fill :data:`SAMPLE_SECONDS`.
    times_itself : bool
        Whether ``run`` returns its seconds, for what has to prepare each run.
    """

    name: str
    run: Callable[[], object]
    nbytes: int = 0
    against: tuple[str, ...] = ()
    repeat: bool = True
    times_itself: bool = False


@dataclass(frozen=True)
class Series:
    """The samples of one case, in seconds a run.

    Examples
    --------
    >>> series = Series("copy", (2.0, 1.0, 4.0), nbytes=8)
    >>> series.median, series.least, series.rate
    (2.0, 1.0, 4.0)
    """

    name: str
    samples: tuple[float, ...]
    repeats: int = 1
    nbytes: int = 0
    against: tuple[str, ...] = ()
    notes: dict[str, object] = field(default_factory=dict)

    @property
    def median(self) -> float:
        return statistics.median(self.samples)

    @property
    def least(self) -> float:
        return min(self.samples)

    @property
    def spread(self) -> float:
        """The interquartile range; 0 for a single sample."""
        return self.quantile(0.75) - self.quantile(0.25)

    @property
    def rate(self) -> float:
        """Bytes a second, at the median."""
        return self.nbytes / self.median

    def quantile(self, share: float) -> float:
        """Return the sample below which a share of the others lies, interpolated."""
        ordered = sorted(self.samples)
        place = share * (len(ordered) - 1)
        below = math.floor(place)
        above = min(below + 1, len(ordered) - 1)
        return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def interleave(cases: Sequence[Case], samples: int, *, warm_up: int = 2,
               done: Callable[[str], None] = lambda name: None) -> list[Series]:
    """Measure cases in turn, one sample of each a round.

    Parameters
    ----------
    cases : sequence of Case
        Cases of different names.
    samples : int
        Rounds that count.
    warm_up : int
        Runs of each case before, which do not count and of which the last one says how many fill a sample.
    done : callable
        Told the name of the case after each sample, for a line of progress.
    """
    last = deque(in_rounds(cases, samples, warm_up=warm_up, done=done), maxlen=1)
    return last[0] if last else []


def in_rounds(cases: Sequence[Case], samples: int, *, warm_up: int = 2, done: Callable[[str], None] = lambda name: None,
              seconds: float = math.inf) -> Iterator[list[Series]]:
    """Do as :func:`interleave`, and yield after each round the series that there are by then; after ``seconds`` none
    begins any more.
    """
    repeats = {case.name: _repeats(case, warm_up) for case in cases}
    end = time.monotonic() + seconds
    taken: dict[str, list[float]] = {case.name: [] for case in cases}
    for number in range(samples):
        if number and time.monotonic() > end:
            return
        for case in cases:
            taken[case.name].append(_sample(case, repeats[case.name]))
            done(case.name)
        yield [Series(case.name, tuple(taken[case.name]), repeats[case.name], case.nbytes, case.against)
               for case in cases]


def in_kernels(run: Callable[[], object]) -> Callable[[], float]:
    """Return a function that does the same under a profile, and gives the seconds that its kernels took, each waited
    for.
    """
    def profiled() -> float:
        with vispark.profile() as profile:
            run()
        return profile.seconds["kernel"]
    return profiled


def _repeats(case: Case, warm_up: int) -> int:
    seconds = SAMPLE_SECONDS
    for _ in range(warm_up):
        seconds = _sample(case, 1)
    return max(1, math.ceil(SAMPLE_SECONDS / max(seconds, 1e-6))) if case.repeat else 1


def load_seconds(records: RDD[Any]) -> float:
    """Return the seconds of a load into the workers, which hold none of it then; for cases that time themselves."""
    held = records.cache("GPU")
    start = time.perf_counter()
    held.count()
    seconds = time.perf_counter() - start
    held.unpersist()
    return seconds


def _sample(case: Case, repeats: int) -> float:
    if case.times_itself:
        return sum(float(case.run()) for _ in range(repeats)) / repeats
    start = time.perf_counter()
    for _ in range(repeats):
        case.run()
    return (time.perf_counter() - start) / repeats
