"""Whole programs, from text or a function to the result, and what their time goes to.

One group is one program with a number of iterations. The ways' samples are the seconds of the whole program; ``parts``
in a way's notes has, for each sample, the seconds of each kind of work, as ``vispark.profile()`` gives them. Of ours
there are two cases: as it is, and under a profile, which waits for each step.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from pyspark import SparkContext

from benchmarks import programs_grids, programs_rows
from benchmarks.flow import Plane
from benchmarks.heat import Cube
from benchmarks.measure import Series
from benchmarks.points import Fused
from benchmarks.programs import OURS, PROFILED, Program, ProgramRun, by_kind
from benchmarks.programs_rows import Here
from benchmarks.results import Group
from gpu_worker.device import open_devices

#: Seconds that the samples of a way may take together in a group, of which there is always one, and the seconds that a
#: program may be expected to take: what takes longer is left out.
_SAMPLES_SECONDS, _LONGEST = 2.0, 5.0


PROGRAMS = ("regression", "kmeans", "heat", "flow")

#: Spark ends Python workers that had nothing to do for a minute.
_IDLE = 45.0


@dataclass(frozen=True)
class Programs:
    """Sizes of whole programs.

    Attributes
    ----------
    points : int
        Bytes of the text of logistic regression's points.
    cloud : (int, int, int)
        Bytes of the text of K-means' points, its features and its centres.
    cube : Cube
        Of the heat equation.
    plane : Plane
        Of the Navier-Stokes equations.
    iterations : tuple of int
        Of each program, a group for each; of heat so many times ``cube.steps``, and the same of the plane.
    names : tuple of str
        Which of :data:`PROGRAMS` are run.
    """

    points: int
    cloud: tuple[int, int, int]
    cube: Cube
    plane: Plane
    iterations: tuple[int, ...]
    names: tuple[str, ...] = PROGRAMS


def run(sc: SparkContext, programs: Programs, fused: Fused, kind: str, directory: Path, samples: int,
        done: Callable[[str], None]) -> Iterator[Group]:
    """Measure each program for each number of iterations."""
    groups: list[Group] = []
    with ExitStack() as stack:
        devices = open_devices(kind)
        for device in devices:
            stack.callback(device.close)
        parsers = stack.enter_context(ProcessPoolExecutor(sc.defaultParallelism, multiprocessing.get_context("spawn")))
        for opening in _programs(Here(sc, kind, devices[0], fused, parsers), programs, directory):
            with opening as program:
                for group in measured(program, programs.iterations, samples, done):
                    group.parameters["device"] = kind
                    groups.append(group)
                    yield group
    # Not before: what else was measured is worth having.
    check(groups)


def _programs(here: Here, programs: Programs, directory: Path) -> Iterator[AbstractContextManager[Program]]:
    openings: dict[str, Callable[[], AbstractContextManager[Program]]] = {
        "regression": lambda: programs_rows.regression(here, directory, programs.points),
        "kmeans": lambda: programs_rows.clusters(here, directory, *programs.cloud),
        "heat": lambda: programs_grids.heated(here, programs.cube),
        "flow": lambda: programs_grids.flowing(here, programs.plane)}
    return (openings[name]() for name in programs.names)


def measured(program: Program, iterations: Iterable[int], samples: int, done: Callable[[str], None]) -> Iterator[Group]:
    """Yield a group for each number of iterations; ways run in turn, and once before where they have not for a while.
    """
    ended: dict[str, float] = {}
    medians: dict[str, dict[int, float]] = {name: {} for name in program.ways}
    for count in iterations:
        group = Group(f"whole program: {program.name}, iterations: {count}", {
            "program": program.name, **program.parameters, "iterations": count, "whole": samples,
            "samples_of_jobs": 1}, skipped=dict(program.skipped))
        ways = dict(program.ways)
        for name, before in medians.items():
            seconds = _expected(before, count)
            if seconds > _LONGEST and name != OURS:     # with which all others are compared
                del ways[name]
                group.skipped[name] = f"it would take about {seconds:.0f} s"
        runs: dict[str, list[ProgramRun]] = {name: [] for name in ways}
        for turn in range(samples):
            for name, way in ways.items():
                if sum(ran.seconds for ran in runs[name]) >= _SAMPLES_SECONDS:
                    continue
                is_cold = time.monotonic() - ended.get(name, float("-inf")) > _IDLE
                if is_cold or (name == OURS and turn == 0):     # ours may make other kernels of more steps
                    done(f"{name}, to be warm")
                    way(count if name == OURS else min(medians[name], default=count))
                runs[name].append(way(count))
                done(name)
                ended[name] = time.monotonic()
        group.series = [_series(name, found, samples, tuple(runs)) for name, found in runs.items()]
        for series in group.series:
            medians[series.name][count] = series.median
        group.checks = _checks({name: found[-1].result for name, found in runs.items()}, program.tolerance)
        yield group


def _expected(medians: dict[int, float], count: int) -> float:
    """Return the seconds of so many iterations, from what the two before took; or at least, where there is but one; 0
    without.
    """
    if len(medians) < 2:
        return max(medians.values(), default=0.0)
    (few, short), (more, long) = list(medians.items())[-2:]
    return long + (long - short) / (more - few) * (count - more)


def _series(name: str, runs: list[ProgramRun], samples: int, ways: tuple[str, ...]) -> Series:
    parts = [ran.parts for ran in runs if ran.parts is not None]
    notes: dict[str, object] = {"parts": by_kind(parts)} if parts else {}
    if len(runs) < samples:
        notes["fewer_samples"] = f"as many as {_SAMPLES_SECONDS:.0f} s allow"
    against = tuple(way for way in ways if way not in (OURS, PROFILED)) if name == OURS else ()
    return Series(name, tuple(ran.seconds for ran in runs), against=against, notes=notes)


def _checks(results: dict[str, np.ndarray], tolerance: float) -> dict[str, dict[str, float]]:
    """Return the difference of each way's result from ours, as a share of its largest number."""
    ours = results[OURS]
    largest = float(np.abs(ours).max()) or 1.0
    return {name: {"off": float(np.abs(result - ours).max()) / largest, "allowed": tolerance}
            for name, result in results.items() if name != OURS}


def check(groups: Iterable[Group]) -> None:
    """Raise AssertionError if results of two ways are further apart than they may be."""
    off = [f"{group.name}: {name} is off by {each['off']:.2g}" for group in groups
           for name, each in group.checks.items() if not each["off"] <= each["allowed"]]
    if off:
        raise AssertionError("; ".join(off))
