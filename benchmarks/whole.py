"""Whole programs, from text or a function to the result, and what their time goes to.

One group is one program with a number of iterations. The ways' samples are the seconds of the whole program; ``parts``
in a way's notes has, for each sample, the seconds of each kind of work, as ``vispark.profile()`` gives them. Of ours
there are two cases: as it is, and under a profile, which waits for each step.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from operator import add, itemgetter
from pathlib import Path
from typing import Any

import numpy as np
from pyspark import RDD, SparkContext

import vispark
from benchmarks import flow, heat, kmeans, peers, tasks, text
from benchmarks.cloud import Cloud
from benchmarks.flow import Plane
from benchmarks.heat import Cube
from benchmarks.measure import Case, interleave
from benchmarks.points import FEATURES, Fused, gradient
from benchmarks.regression import row_gradient
from benchmarks.results import Group
from benchmarks.session import IN_JVM

OURS, PROFILED = "vispark", "vispark, under vispark.profile()"
SPARK_C, SPARK_G = "Spark-C", "Spark-G"

Parts = dict[str, float]


@dataclass
class Whole:
    """A way to do a program: ``run`` gives the seconds by kind of work, where it takes them down."""

    run: Callable[[], Parts | None]
    parts: list[Parts] = field(default_factory=list)

    def __call__(self) -> None:
        found = self.run()
        if found:
            self.parts.append(found)


@dataclass(frozen=True)
class Programs:
    """How large they are.

    Attributes
    ----------
    nbytes : int
        Of the text of logistic regression's points.
    cloud : (int, int, int)
        Rows, features and centres of K-means.
    cube : Cube
        Of the heat equation.
    plane : Plane
        Of the Navier-Stokes equations.
    iterations : tuple of int
        Of each program, a group for each; of heat so many times ``cube.steps``, and the same of the plane.
    """

    nbytes: int
    cloud: tuple[int, int, int]
    cube: Cube
    plane: Plane
    iterations: tuple[int, ...]


def run(sc: SparkContext, programs: Programs, fused: Fused, kind: str, directory: Path, samples: int,
        done: Callable[[str], None]) -> Iterator[Group]:
    """Measure each program for each number of iterations."""
    for name, parameters, ways in _programs(sc, programs, fused, kind, directory):
        for iterations in programs.iterations:
            group = Group(f"whole program: {name}, iterations: {iterations}", {
                "program": name, **parameters, "iterations": iterations, "whole": samples, "device": kind})
            found = {way: Whole(lambda make=make, n=iterations: make(n)) for way, make in ways.items()}
            against = tuple(way for way in found if way.startswith("Spark"))
            cases = [Case(way, whole, 0, against if way == OURS else (), repeat=False) for way, whole in found.items()]
            series = interleave(cases, samples, warm_up=1, done=done)
            group.series = [replace(each, notes={"parts": _by_kind(found[each.name].parts[-samples:])})
                            if found[each.name].parts else each for each in series]
            yield group


def _by_kind(parts: list[Parts]) -> dict[str, list[float]]:
    kinds = dict.fromkeys(kind for each in parts for kind in each)
    return {kind: [each.get(kind, 0.0) for each in parts] for kind in kinds}


def _programs(sc: SparkContext, programs: Programs, fused: Fused, kind: str,
              directory: Path) -> Iterator[tuple[str, dict[str, Any], dict[str, Callable[[int], Parts | None]]]]:
    path = directory / "points.txt"
    nbytes = text.write(path, programs.nbytes)
    yield "logistic regression", {"text_bytes": nbytes}, {
        **_both(lambda n: _regression(sc, path, n)),
        SPARK_C: lambda n: _by_jobs(sc, _text_blocks(sc, path), n, np.zeros(FEATURES, np.float32),
                                    lambda block, w: _timed(lambda: gradient(block, w)), _descended),
        SPARK_G: lambda n: _by_jobs(sc, _text_blocks(sc, path), n, np.zeros(FEATURES, np.float32),
                                    lambda block, w: tasks.timed_gradient(block, w, kind, fused), _descended)}
    path.unlink()
    cloud = Cloud(*programs.cloud, sc.defaultParallelism)
    first = cloud.first_centers(cloud.centers)
    jobs = {SPARK_C: lambda n: _by_jobs(sc, _made(sc, cloud), n, first, lambda block, centers: _timed(
        lambda: _flat(peers.numpy_kmeans(block)(centers))), _moved)}
    if kind == "cuda" and peers.cupy is not None:
        jobs[SPARK_G] = lambda n: _by_jobs(sc, _made(sc, cloud), n, first, tasks.timed_kmeans, _moved)
    yield "K-means", {"rows": cloud.rows, "features": cloud.features, "centers": cloud.centers}, {
        **_both(lambda n: _kmeans(sc, cloud, first, n)), **jobs}
    cube = programs.cube
    yield "heat", {"shape": list(cube.shape), "splits": list(cube.splits), "steps_an_iteration": cube.steps}, \
        _both(lambda n: _heat(sc, cube, n))
    plane = programs.plane
    yield "Navier-Stokes", {"shape": list(plane.shape), "splits": list(plane.splits),
                            "steps_an_iteration": plane.steps}, _both(lambda n: _flow(sc, plane, n))


def _both(program: Callable[[int], object]) -> dict[str, Callable[[int], Parts | None]]:
    def plain(iterations: int) -> None:
        program(iterations)

    def profiled(iterations: int) -> Parts:
        with vispark.profile() as found:
            program(iterations)
        return dict(found.seconds)

    return {OURS: plain, PROFILED: profiled}


# -- ours -------------------------------------------------------------------------------------------------------------

def _regression(sc: SparkContext, path: Path, iterations: int) -> None:
    points = vispark.read_text(sc, path, minPartitions=sc.defaultParallelism).cache("GPU")
    w = np.zeros(FEATURES, np.float32)
    for _ in range(iterations):
        w = _descended(w, points.vmap(row_gradient, w).reduce(add))
    points.unpersist()


def _kmeans(sc: SparkContext, cloud: Cloud, centers: np.ndarray, iterations: int) -> None:
    points = sc.parallelize(range(cloud.partitions), cloud.partitions).mapPartitions(
        lambda found: vispark.Rows(cloud.block(index) for index in found)).cache("GPU")
    for _ in range(iterations):
        pairs = points.vmap(kmeans.assign, centers)
        stats = pairs.reduceByKey(lambda a, b: (a[0] + b[0], a[1] + b[1]), numKeys=len(centers))
        centers = centers.copy()
        for key, (total, count) in stats.collect():
            centers[key] = total / count
    points.unpersist()


def _heat(sc: SparkContext, cube: Cube, iterations: int) -> None:
    grid = vispark.Grid(cube.shape, splits=cube.splits, halo=1, boundary=0.0)
    cells = grid.scatter(sc, heat.initial).cache("GPU")
    cells = cells.iterate(heat.heat, heat.NUMBER, steps=iterations * cube.steps, progress=False)
    vispark.Grid.gather(cells)


def _flow(sc: SparkContext, plane: Plane, iterations: int) -> None:
    fields = flow.at_start(sc, plane).iterate(flow.PHASES, steps=iterations * plane.steps, progress=False)
    vispark.Grid.gather(fields)


# -- Spark jobs -------------------------------------------------------------------------------------------------------

def _by_jobs(sc: SparkContext, made: RDD[tuple[np.ndarray, Parts]], iterations: int, state: np.ndarray,
             task: Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, Parts]],
             after: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> Parts:
    """Blocks in Spark's cache, and a job an iteration; what each job's time went to, added up."""
    spent: Parts = {}
    with _held(made, sc, spent) as blocks:
        for _ in range(iterations):
            start = time.perf_counter()
            found, parts = blocks.mapPartitions(lambda mine, state=state: _tasks(mine, state, task)).reduce(_joined)
            _add(spent, _job_parts(time.perf_counter() - start, parts, sc.defaultParallelism))
            state = after(state, found)
    return spent


@contextmanager
def _held(made: RDD[tuple[np.ndarray, Parts]], sc: SparkContext, spent: Parts) -> Iterator[RDD[Any]]:
    made.persist(IN_JVM)
    start = time.perf_counter()
    parts = made.map(itemgetter(1)).collect()
    _add(spent, _job_parts(time.perf_counter() - start, parts, sc.defaultParallelism))
    yield made
    made.unpersist()


def _job_parts(seconds: float, tasks: list[Parts], slots: int) -> Parts:
    """What a Spark job's wall time was spent on, of what its tasks say; they ran in so many ``slots`` at once."""
    found: Parts = {}
    for task in tasks:
        _add(found, task)
    work = sum(found.values())
    longest = max([sum(task.values()) for task in tasks], default=0.0)
    busy = min(seconds, max(longest, work / max(slots, 1)))
    return {**{kind: each * busy / work for kind, each in found.items() if work}, "scheduling": seconds - busy}


def _tasks(mine: Iterator[tuple[np.ndarray, Parts]], state: np.ndarray, task: Callable) -> Iterator[tuple]:
    start = time.perf_counter()
    for block, _ in mine:
        arrived = time.perf_counter() - start
        found, parts = task(block, state)
        yield found, [{"transport": arrived, **parts}]
        start = time.perf_counter()


def _joined(a: tuple[np.ndarray, list[Parts]], b: tuple[np.ndarray, list[Parts]]) -> tuple[np.ndarray, list[Parts]]:
    return a[0] + b[0], a[1] + b[1]


def _add(spent: Parts, more: Parts) -> None:
    for kind, seconds in more.items():
        spent[kind] = spent.get(kind, 0.0) + seconds


def _timed(compute: Callable[[], np.ndarray]) -> tuple[np.ndarray, Parts]:
    start = time.perf_counter()
    found = compute()
    return found, {"kernel": time.perf_counter() - start}


def _text_blocks(sc: SparkContext, path: Path) -> RDD[tuple[np.ndarray, Parts]]:
    return sc.textFile(str(path), sc.defaultParallelism).mapPartitions(
        lambda lines: _parsed(lambda: np.array([text.parse(line) for line in lines])))


def _made(sc: SparkContext, cloud: Cloud) -> RDD[tuple[np.ndarray, Parts]]:
    return sc.parallelize(range(cloud.partitions), cloud.partitions).mapPartitions(
        lambda found: _parsed(lambda: np.concatenate([cloud.block(index) for index in found])))


def _parsed(make: Callable[[], np.ndarray]) -> Iterable[tuple[np.ndarray, Parts]]:
    start = time.perf_counter()
    block = make()
    return [(block, {"parse": time.perf_counter() - start})]


def _descended(w: np.ndarray, gradient: np.ndarray) -> np.ndarray:
    return w - np.float32(1e-6) * gradient


def _flat(found: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """Sums and counts in one array, so that they add as one."""
    return np.column_stack([found[0], found[1].astype(np.float32)])


def _moved(centers: np.ndarray, found: np.ndarray) -> np.ndarray:
    sums, counts = found[:, :-1], found[:, -1:]
    return np.where(counts > 0, sums / np.maximum(counts, 1), centers)
