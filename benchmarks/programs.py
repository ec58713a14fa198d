"""A whole program, the ways to run it, and what the time of each goes to."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from pyspark import SparkContext

import vispark
from benchmarks.recorder import Lap, LapRecorder
from vispark.runtime.profiling.profiler import TaskSeconds

OURS, PROFILED = "vispark", "vispark, under vispark.profile()"


@dataclass(frozen=True)
class ProgramRun:
    """A program that has run: its seconds, what it gave, and the seconds by kind of work where they were taken down."""

    seconds: float
    result: np.ndarray
    parts: dict[str, float] | None = None


#: Runs a program of so many iterations.
OneProgram = Callable[[int], ProgramRun]


@dataclass(frozen=True)
class Program:
    """A program at one size.

    Attributes
    ----------
    name : str
        What it computes.
    parameters : dict
        Its sizes.
    ways : dict of str to callable
        In the order in which they take turns.
    tolerance : float
        How far results of two ways may be apart, as a share of the largest number in them.
    skipped : dict of str to str
        Ways that cannot run here, and why.
    """

    name: str
    parameters: dict[str, Any]
    ways: dict[str, OneProgram]
    tolerance: float
    skipped: dict[str, str] = field(default_factory=dict)


def both(program: Callable[[int], np.ndarray]) -> dict[str, OneProgram]:
    """Return ours as it is, and under a profile, which waits for each step."""
    def plain(iterations: int) -> ProgramRun:
        start = time.perf_counter()
        result = program(iterations)
        return ProgramRun(time.perf_counter() - start, result)

    def profiled(iterations: int) -> ProgramRun:
        with vispark.profile() as profile:
            result = program(iterations)
        return ProgramRun(profile.total, result, profile.seconds)

    return {OURS: plain, PROFILED: profiled}


def by_spark(sc: SparkContext, program: Callable[[int, LapRecorder], np.ndarray]) -> OneProgram:
    """Return the way of a program of Spark jobs whose tasks tell what they do; the rest is what Spark notes of them."""
    def run(iterations: int) -> ProgramRun:
        recorder = LapRecorder.by(sc)
        with vispark.profile() as profile:
            result = program(iterations, recorder)
            recorder.tell(profile)
        return ProgramRun(profile.total, result, profile.seconds)
    return run


def alone(program: Callable[[int, Lap], np.ndarray]) -> OneProgram:
    """Return the way of a program of one process, which tells what it does."""
    def run(iterations: int) -> ProgramRun:
        spent, start = TaskSeconds(), time.perf_counter()
        result = program(iterations, spent.lap)
        seconds = time.perf_counter() - start
        return ProgramRun(seconds, result, {**spent.seconds, "driver": max(0.0, seconds - sum(spent.seconds.values()))})
    return run


def by_kind(parts: Iterable[dict[str, float]]) -> dict[str, list[float]]:
    """Return the seconds of each kind of work, a number for each sample."""
    samples = list(parts)
    kinds = dict.fromkeys(kind for each in samples for kind in each)
    return {kind: [each.get(kind, 0.0) for each in samples] for kind in kinds}
