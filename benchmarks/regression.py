"""An iteration of logistic regression on cached data, seen from the driver, every way that one would try."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from math import exp

import numpy as np
from pyspark import SparkContext

from benchmarks import peers, tasks
from benchmarks.bare import BareCopy, BareLoop
from benchmarks.measure import Case, in_kernels, interleave
from benchmarks.points import FEATURES, KERNELS, LISTING, SUM_BLOCK, Fused, Points, gradient
from benchmarks.results import Group
from benchmarks.session import IN_JVM
from benchmarks.worker_caches import CachedWay, cached_ways
from gpu_worker.device import open_devices
from gpu_worker.device.base import Device
from vispark import IN, OUT, VRDD, Kernels

FLOOR = "copy within the device"
SPARK_C = "Spark-C: cached blocks, NumPy"
LOOP = "bare loop, fused kernel"
ONE_LAUNCH = LOOP + ", one launch"
OURS = "vispark: vmap, vreduce, reduce"
BY_EXEC = "vispark: exec of a fused kernel"

#: How far a gradient may be from the one in float64, as a share of its largest element.
TOLERANCE = 1e-4

Gradient = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Settings:
    """Settings of what is measured where.

    Attributes
    ----------
    kind : str
        The device: "cuda" or "host".
    units : int
        Its multiprocessors, or cores.
    samples : int
        Rounds.
    peers : bool
        Whether ways in one process are measured, of libraries and by hand.
    jobs : bool
        Whether the ways with a Spark job an iteration are.
    """

    kind: str
    units: int
    samples: int
    peers: bool = True
    jobs: bool = True


class Descending:
    """Gradient descent by one way: each run is an iteration, and no two have the same weights."""

    def __init__(self, gradient: Gradient, points: Points):
        self._gradient = gradient
        self._rate = np.float32(1 / points.rows)
        self._w = np.zeros(FEATURES, np.float32)

    def run(self) -> None:
        self._w -= self._rate * self._gradient(self._w)


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
        kept: dict[str, CachedWay] = {}
        if settings.jobs:
            ways |= stack.enter_context(_spark(sc, points, fused, settings.kind))
            kept = _kept(sc, points, fused, settings.kind, group)
            ways |= kept
        device, = open_devices(settings.kind)[:1]
        stack.callback(device.close)
        for name, together in ((LOOP, False), (ONE_LAUNCH, True)) if settings.peers else ():
            loop = stack.enter_context(closing(BareLoop(device, points, fused, together=together)))
            ways[name] = loop.gradient
        if settings.peers:
            ways |= _libraries(points, loop, settings.kind)
        _check(sc, points, ways, group)
        for way in kept.values():
            way.warm_up(np.zeros(FEATURES, np.float32))
        copy = stack.enter_context(closing(_copy(device, points, settings)))
        cases = [Case(name, Descending(way, points).run, points.nbytes, _against(name)) for name, way in ways.items()]
        cases.append(Case(f"{OURS}: its kernels", in_kernels(Descending(ways[OURS], points).run), points.nbytes,
                          (FLOOR,), times_itself=True))
        group.series = interleave([*cases, Case(FLOOR, copy.run, copy.moved)], settings.samples, done=done)
    group.series = [kept[series.name].noted(series) if series.name in kept else series for series in group.series]
    return group


def _libraries(points: Points, loop: BareLoop, kind: str) -> dict[str, Gradient]:
    """Return the ways that one would use without Spark, on the same array of all points."""
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


def row_gradient(p, w):
    """Return the gradient of one row; a label, then features."""
    y, x = p[0], p[1:]
    return (1 / (1 + exp(-y * np.dot(w, x))) - 1) * y * x


def translated(held: VRDD) -> Gradient:
    """Return the gradient from a plain Python function of a row."""
    return lambda w: held.vmap(row_gradient, w, of="row").vreduce(operator.add).values().reduce(operator.add)


def listing(held: VRDD) -> Gradient:
    """Return the gradient over blocks in the workers, with a gradient for each row in between."""
    lr = Kernels.from_file(LISTING, options=[f"-DD={FEATURES}"])

    def gradient(w: np.ndarray) -> np.ndarray:
        m = held.exec(lr.gradient, IN, OUT, w, IN.shape[0], out=lambda b: ((b.shape[0], FEATURES), "f4"),
                      grid=lambda b: -(-b.shape[0] // 128), block=128)
        g = m.exec(lr.local_reduce, IN, OUT, IN.shape[0], out=((FEATURES,), "f4"), grid=FEATURES, block=256)
        return g.values().reduce(operator.add)
    return gradient


def one_pass(held: VRDD, fused: Fused) -> Gradient:
    """Return the gradient over blocks in the workers, with the kernel that reads them once."""
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
    """Yield the ways with blocks in the worker, iterated upon by the driver without a Spark job."""
    held = points.rdd(sc).send().htod().cache()
    held.count()
    yield {OURS: translated(held), BY_EXEC: one_pass(held, fused), "vispark: exec of the listing's two": listing(held)}
    held.unpersist()


@contextmanager
def _spark(sc: SparkContext, points: Points, fused: Fused, kind: str) -> Iterator[dict[str, Gradient]]:
    """Yield the ways with blocks in Spark's cache, as bytes in the JVM: each task gets its block through a socket."""
    blocks = points.rdd(sc).values().persist(IN_JVM)
    blocks.count()
    yield {
        SPARK_C: lambda w: blocks.map(lambda block: gradient(block, w)).reduce(operator.add),
        "Spark-G: cached blocks, a kernel a task": lambda w: blocks.map(
            lambda block: tasks.gradient_by_kernel(block, w, kind, fused)).reduce(operator.add),
    }
    blocks.unpersist()


def _kept(sc: SparkContext, points: Points, fused: Fused, kind: str, group: Group) -> dict[str, CachedWay]:
    """Return the ways with blocks in the Python workers."""
    return cached_ways(sc, points.partitions, points.nbytes, {
        "Spark-C+: blocks kept by Python workers": lambda index, w: tasks.gradient_of_kept(points, index, w),
        "Spark-G+: the same on the device": lambda index, w: tasks.gradient_by_kept_kernel(points, index, w, kind,
                                                                                            fused),
    }, kind, group)


def _check(sc: SparkContext, points: Points, ways: dict[str, Gradient], group: Group) -> None:
    """Raise AssertionError for a way whose gradient is not the one that NumPy finds in float64."""
    w = np.linspace(1, -1, FEATURES, dtype=np.float32)
    exact = points.rdd(sc).values().map(lambda block: gradient(block, w.astype(np.float64))).reduce(operator.add)
    for name, way in ways.items():
        off = float(np.abs(way(w) - exact).max() / np.abs(exact).max())
        group.checks[name] = {"relative_error": off, "allowed": TOLERANCE}
        if not off <= TOLERANCE:
            raise AssertionError(f"{name} is off by {off:.2g} of the gradient's largest element")


def _copy(device: Device, points: Points, settings: Settings) -> BareCopy:
    """Return a copy that no cache holds, of at most a gigabyte."""
    lanes = 1 if settings.kind == "cuda" else settings.units
    return BareCopy(device, max(64 << 20, min(points.nbytes, 1 << 30)), lanes)
