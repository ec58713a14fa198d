"""An iteration of logistic regression on cached data, seen from the driver, every way that one would try."""

from __future__ import annotations

import functools
import operator
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from math import exp

import numpy as np
from pyspark import RDD, SparkContext, StorageLevel

from benchmarks import machine, peers, tasks
from benchmarks.bare import Copy, Loop
from benchmarks.measure import Case, Series, interleave
from benchmarks.points import FEATURES, KERNELS, LISTING, SUM_BLOCK, Fused, Points, gradient
from benchmarks.results import Group
from gpu_worker.device import open_devices
from gpu_worker.device.base import Device
from gpu_worker.device.cuda_on_host.memory import host_memory
from vispark import IN, OUT, VRDD, Kernels

FLOOR = "copy within the device"
SPARK_C = "Spark-C: cached blocks, NumPy"
LOOP = "bare loop, fused kernel"
ONE_LAUNCH = LOOP + ", one launch"
OURS = "vispark: vmap, vreduce, reduce"
BY_EXEC = "vispark: exec of a fused kernel"

#: How far a gradient may be from the one in float64, as a share of its largest element.
TOLERANCE = 1e-4

#: Most seconds, and iterations, until every Python worker of Spark has met every partition.
_WARM_UP = 25.0, 80

#: What the Python workers together may keep: the JVM, the other ways and the tasks' temporaries need the rest.
_HOST_SHARE, _GPU_SHARE = 0.4, 0.7

Gradient = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Settings:
    """What is measured where.

    Attributes
    ----------
    kind : str
        The device: "cuda" or "host".
    units : int
        Its multiprocessors, or cores.
    samples : int
        Rounds.
    """

    kind: str
    units: int
    samples: int


class Descent:
    """Gradient descent by one way: each run is an iteration, and no two have the same weights."""

    def __init__(self, gradient: Gradient, points: Points):
        self._gradient = gradient
        self._rate = np.float32(1 / points.rows)
        self._w = np.zeros(FEATURES, np.float32)

    def run(self) -> None:
        self._w -= self._rate * self._gradient(self._w)


@dataclass
class Kept:
    """A way that keeps blocks in Spark's Python workers, and how often these had to make one."""

    job: Callable[[np.ndarray], tuple[np.ndarray, int]]
    misses: int = 0

    def gradient(self, w: np.ndarray) -> np.ndarray:
        found, misses = self.job(w)
        self.misses += misses
        return found

    def warm_up(self) -> int:
        """Iterate until none is missing, or it takes too long; how many were."""
        seconds, iterations = _WARM_UP
        end, before = time.monotonic() + seconds, -1
        for _ in range(iterations):
            if self.misses == before or time.monotonic() > end:
                break
            before = self.misses
            # As a task of one partition may come to any worker, a few iterations without a miss are asked for.
            for _ in range(3):
                self.gradient(np.zeros(FEATURES, np.float32))
        return self.misses


def run(sc: SparkContext, points: Points, settings: Settings, done: Callable[[str], None]) -> Group:
    """Measure all ways on the same points."""
    fused = Fused.on(settings.kind, settings.units)
    group = Group(f"regression, {points.rows:,} rows", {
        "rows": points.rows, "features": FEATURES, "dtype": "float32", "partitions": points.partitions,
        "bytes": points.nbytes, "samples": settings.samples, "device": settings.kind,
        "fused_threads": fused.threads,
        "fused_blocks": fused.blocks, "task_gpu": tasks.gpu_library(settings.kind)})
    with ExitStack() as stack:
        ways = stack.enter_context(_ours(sc, points, fused))
        ways |= stack.enter_context(_spark(sc, points, fused, settings.kind))
        kept = _kept(sc, points, fused, settings.kind, group)
        ways |= {name: way.gradient for name, way in kept.items()}
        device, = open_devices(settings.kind)[:1]
        stack.callback(device.close)
        for name, together in ((LOOP, False), (ONE_LAUNCH, True)):
            loop = stack.enter_context(closing(Loop(device, points, fused, together=together)))
            ways[name] = loop.gradient
        ways |= _libraries(points, loop, settings.kind)
        _check(sc, points, ways, group)
        warm = {name: way.warm_up() for name, way in kept.items()}
        copy = stack.enter_context(closing(_copy(device, points, settings)))
        cases = [Case(name, Descent(way, points).run, points.nbytes, _against(name)) for name, way in ways.items()]
        group.series = interleave([*cases, Case(FLOOR, copy.run, copy.moved)], settings.samples, done=done)
    group.series = [_noted(series, kept, warm) for series in group.series]
    return group


def _libraries(points: Points, loop: Loop, kind: str) -> dict[str, Gradient]:
    """What one would use without Spark, on the same array of all points."""
    if kind != "cuda":
        block = np.concatenate([points.block(index) for index in range(points.partitions)])
        numba = {"Numba": peers.numba_gradient(block)} if peers.numba is not None else {}
        return {"NumPy": functools.partial(gradient, block)} | numba
    if peers.cupy is None:
        return {}
    data = peers.on_device(loop.block.address, (points.rows, FEATURES + 1))
    return {"CuPy": peers.cupy_gradient(data)} | ({"JAX": peers.jax_gradient(data)} if peers.jax is not None else {})


def _against(name: str) -> tuple[str, ...]:
    others = (FLOOR, SPARK_C, ONE_LAUNCH, "CuPy", "JAX", "NumPy", "Numba") if name in (OURS, BY_EXEC) else \
        (FLOOR, SPARK_C)
    return tuple(other for other in others if other != name)


def _noted(series: Series, kept: dict[str, Kept], warm: dict[str, int]) -> Series:
    if series.name not in kept:
        return series
    return replace(series, notes={"blocks_made_before": warm[series.name],
                                  "blocks_made_meanwhile": kept[series.name].misses - warm[series.name]})


def row_gradient(p, w):
    """The gradient of one row; a label, then features."""
    y, x = p[0], p[1:]
    return (1 / (1 + exp(-y * np.dot(w, x))) - 1) * y * x


def translated(held: VRDD) -> Gradient:
    """The gradient from a plain Python function of a row."""
    return lambda w: held.vmap(row_gradient, w).vreduce(operator.add).values().reduce(operator.add)


def listing(held: VRDD) -> Gradient:
    """The gradient over blocks in the workers, with a gradient for each row in between."""
    lr = Kernels.from_file(LISTING, options=[f"-DD={FEATURES}"])

    def gradient(w: np.ndarray) -> np.ndarray:
        m = held.exec(lr.gradient, IN, OUT, w, IN.shape[0], out=lambda b: ((b.shape[0], FEATURES), "f4"),
                      grid=lambda b: -(-b.shape[0] // 128), block=128)
        g = m.exec(lr.local_reduce, IN, OUT, IN.shape[0], out=((FEATURES,), "f4"), grid=FEATURES, block=256)
        return g.values().reduce(operator.add)
    return gradient


def one_pass(held: VRDD, fused: Fused) -> Gradient:
    """The gradient over blocks in the workers, with the kernel that reads them once."""
    own = Kernels.from_file(KERNELS, options=list(fused.options))

    def gradient(w: np.ndarray) -> np.ndarray:
        partials = held.exec(own.gradient_partials, IN, OUT, w, IN.shape[0],
                             out=lambda b: ((fused.grid(b.shape[0]), FEATURES), "f4"),
                             grid=lambda b: fused.grid(b.shape[0]), block=fused.threads, shared=fused.shared)
        g = partials.exec(own.sum_partials, IN, OUT, IN.shape[0], out=((FEATURES,), "f4"), grid=1, block=SUM_BLOCK)
        return g.values().reduce(operator.add)
    return gradient


@contextmanager
def _ours(sc: SparkContext, points: Points, fused: Fused) -> Iterator[dict[str, Gradient]]:
    """Blocks in the worker, iterated upon by the driver without a Spark job."""
    held = points.rdd(sc).send().htod().cache()
    held.count()
    yield {OURS: translated(held), BY_EXEC: one_pass(held, fused), "vispark: exec of the listing's two": listing(held)}
    held.unpersist()


@contextmanager
def _spark(sc: SparkContext, points: Points, fused: Fused, kind: str) -> Iterator[dict[str, Gradient]]:
    """Blocks in Spark's cache, as bytes in the JVM: each task gets its block through a socket."""
    blocks = points.rdd(sc).values().persist(StorageLevel.MEMORY_ONLY)
    blocks.count()
    yield {
        SPARK_C: lambda w: blocks.map(lambda block: gradient(block, w)).reduce(operator.add),
        "Spark-G: cached blocks, a kernel a task": lambda w: blocks.map(
            lambda block: tasks.gradient_by_kernel(block, w, kind, fused)).reduce(operator.add),
    }
    blocks.unpersist()


def _kept(sc: SparkContext, points: Points, fused: Fused, kind: str, group: Group) -> dict[str, Kept]:
    """Blocks in the Python workers. Any of these may get any partition, so each comes to have all of them."""
    numbers = sc.parallelize(range(points.partitions), points.partitions)
    ways = {
        "Spark-C+: blocks kept by Python workers": (
            host_memory() * _HOST_SHARE, lambda index, w: tasks.gradient_of_kept(points, index, w)),
        "Spark-G+: the same on the device": (
            machine.gpus()[0].memory * _GPU_SHARE if kind == "cuda" else host_memory() * _HOST_SHARE,
            lambda index, w: tasks.gradient_by_kept_kernel(points, index, w, kind, fused)),
    }
    needed, found = points.nbytes * sc.defaultParallelism, {}
    for name, (room, task) in ways.items():
        if needed > room:
            group.skipped[name] = (f"{sc.defaultParallelism} workers that keep all of it need {needed / 1e9:.0f} GB, "
                                   f"and may take {room / 1e9:.0f}")
        else:
            found[name] = Kept(_job(numbers, task))
    return found


def _job(numbers: RDD, task: Callable[[int, np.ndarray], tuple[np.ndarray, int]]) -> Callable:
    def job(w: np.ndarray) -> tuple[np.ndarray, int]:
        return numbers.map(lambda index: task(index, w)).reduce(lambda a, b: (a[0] + b[0], a[1] + b[1]))
    return job


def _check(sc: SparkContext, points: Points, ways: dict[str, Gradient], group: Group) -> None:
    """Raise AssertionError for a way whose gradient is not the one that NumPy finds in float64."""
    w = np.linspace(1, -1, FEATURES, dtype=np.float32)
    exact = points.rdd(sc).values().map(lambda block: gradient(block, w.astype(np.float64))).reduce(operator.add)
    for name, way in ways.items():
        off = float(np.abs(way(w) - exact).max() / np.abs(exact).max())
        group.checks[name] = {"relative_error": off, "allowed": TOLERANCE}
        if not off <= TOLERANCE:
            raise AssertionError(f"{name} is off by {off:.2g} of the gradient's largest element")


def _copy(device: Device, points: Points, settings: Settings) -> Copy:
    """A copy that no cache holds, of at most a gigabyte."""
    lanes = 1 if settings.kind == "cuda" else settings.units
    return Copy(device, max(64 << 20, min(points.nbytes, 1 << 30)), lanes)
