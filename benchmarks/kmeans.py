"""An iteration of K-means on cached points, seen from the driver, every way that one would try.

An iteration takes centres and gives the sum and the number of the points that are nearest to each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
from pyspark import SparkContext

from benchmarks import peers, tasks
from benchmarks.bare import BareCopy, bytes_of
from benchmarks.cloud import Cloud
from benchmarks.measure import Case, in_kernels, interleave
from benchmarks.peers import PeerStep
from benchmarks.regression import FLOOR, SPARK_C, Settings
from benchmarks.results import Group
from benchmarks.session import IN_JVM
from benchmarks.worker_caches import CachedWay, cached_ways
from gpu_worker.device import open_devices
from gpu_worker.device.base import Buffer, Device, Source

OURS = "vispark: vmap, reduceByKey"
BY_HAND = "CUDA by hand, float32"
KERNELS = Path(__file__).parent / "kernels" / "kmeans.cu"

#: How far a new centre may be from the one in float64, as a share of the points' range.
TOLERANCE = 1e-3

#: Samples of ways with a Spark job an iteration.
_JOBS = 2

_ROWS, _COLUMNS, _SHARES = 128, 64, 128


def closest_point(p, centers):
    """Return the number of the nearest centre, as the stock PySpark example has it."""
    best, closest = 0, inf
    for i in range(len(centers)):
        distance = np.sum((p - centers[i]) ** 2)
        if distance < closest:
            closest = distance
            best = i
    return best


def assign(p, centers):
    return closest_point(p, centers), (p, 1)


def run(sc: SparkContext, cloud: Cloud, centers: Sequence[int], settings: Settings,
        done: Callable[[str], None]) -> Iterator[Group]:
    """Measure all ways on the same points, for so many centres after the other."""
    with ExitStack() as stack:
        device = open_devices(settings.kind)[0]
        stack.callback(device.close)
        own = stack.enter_context(ours(sc, cloud))
        single = stack.enter_context(_single(device, cloud, settings.kind)) if settings.peers else {}
        jobs = stack.enter_context(_spark(sc, cloud, settings.kind)) if settings.jobs else {}
        copy = BareCopy(device, max(64 << 20, min(cloud.nbytes, 1 << 30)),
                        1 if settings.kind == "cuda" else settings.units)
        stack.callback(copy.close)
        for number in centers:
            group = Group(f"K-means, {cloud.rows:,} x {cloud.features}, K = {number}", {
                "rows": cloud.rows, "features": cloud.features, "centers": number, "around": cloud.centers,
                "dtype": "float32", "partitions": cloud.partitions, "bytes": cloud.nbytes,
                "samples": settings.samples, "samples_of_jobs": _JOBS, "device": settings.kind})
            ways = own | {name: make(number) for name, make in single.items()}
            first = cloud.first_centers(number)
            exact = _exact(sc, cloud, first)
            keeping = _kept(sc, cloud, settings.kind, group) if settings.jobs else {}
            by_jobs = jobs | keeping
            for name, way in (ways | by_jobs).items():
                group.checks[name] = _off(name, way, first, exact)
            for way in keeping.values():
                way.warm_up(first)
            quick, slow = ([Case(name, Iteration(way, first).run, cloud.nbytes, _against(name, ways),
                                 repeat=each is ways) for name, way in each.items()] for each in (ways, by_jobs))
            quick.append(Case(f"{OURS}: its kernels", in_kernels(Iteration(own[OURS], first).run), cloud.nbytes,
                              (FLOOR,), times_itself=True))
            group.series = interleave([*quick, Case(FLOOR, copy.run, copy.moved)], settings.samples, done=done)
            group.series += interleave(slow, _JOBS, warm_up=0, done=done)
            group.series = [keeping[each.name].noted(each) if each.name in keeping else each for each in group.series]
            ways.clear()
            yield group


def _against(name: str, ways: dict[str, PeerStep]) -> tuple[str, ...]:
    others = (FLOOR, SPARK_C)
    return others if name != OURS else (*others, *(other for other in ways if not other.startswith("Spark")
                                                   and other != OURS))


class Iteration:
    """K-means by one way: each run is an iteration on from the last one's centres."""

    def __init__(self, step: PeerStep, centers: np.ndarray):
        self._step = step
        self.centers = centers.copy()

    def run(self) -> None:
        sums, counts = self._step(self.centers)
        many = counts.astype(np.float32)[:, None]
        if counts.all():        # a mask takes longer than the quotients
            np.divide(sums, many, out=self.centers)
        else:
            np.divide(sums, many, out=self.centers, where=many > 0)


@contextmanager
def ours(sc: SparkContext, cloud: Cloud) -> Iterator[dict[str, PeerStep]]:
    """Yield the stock example's functions, translated."""
    held = cloud.rdd(sc).cache("GPU")
    held.count()

    def step(centers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        pairs = held.vmap(assign, centers)
        stats = pairs.reduceByKey(lambda a, b: (a[0] + b[0], a[1] + b[1]), numKeys=len(centers))
        sums, counts = np.zeros_like(centers), np.zeros(len(centers), np.int64)
        for key, (total, count) in stats.collect():
            sums[key], counts[key] = total, count
        return sums, counts

    yield {OURS: step}
    held.unpersist()


@contextmanager
def _spark(sc: SparkContext, cloud: Cloud, kind: str) -> Iterator[dict[str, PeerStep]]:
    """Yield the ways with blocks in Spark's cache: each task gets its block through a socket, each time."""
    blocks = cloud.blocks(sc).persist(IN_JVM)
    blocks.count()

    def job(task: Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]) -> PeerStep:
        return lambda centers: blocks.map(lambda block: task(block, centers)).reduce(_joined)

    ways = {SPARK_C: job(lambda block, centers: peers.numpy_kmeans(block)(centers))}
    if kind == "cuda" and peers.cupy is not None:
        ways["Spark-G: cached blocks, CuPy a task"] = job(tasks.kmeans_by_cupy)
    yield ways
    blocks.unpersist()


def _kept(sc: SparkContext, cloud: Cloud, kind: str, group: Group) -> dict[str, CachedWay]:
    """Return the ways with blocks in the Python workers."""
    ways = {"Spark-C+: blocks kept by Python workers": lambda index, centers: tasks.kmeans_of_kept(
        cloud, index, centers)}
    if kind == "cuda" and peers.cupy is not None:
        ways["Spark-G+: the same on the GPU, CuPy"] = lambda index, centers: tasks.kmeans_by_kept(cloud, index, centers)
    return cached_ways(sc, cloud.partitions, cloud.nbytes, ways, kind, group)


def _joined(a: tuple[np.ndarray, np.ndarray], b: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    return a[0] + b[0], a[1] + b[1]


@contextmanager
def _single(device: Device, cloud: Cloud, kind: str) -> Iterator[dict[str, Callable[[int], PeerStep]]]:
    """Yield ways in one process, without Spark, on one array of all points; each for a number of centres."""
    if kind != "cuda":
        points = np.concatenate([cloud.block(index) for index in range(cloud.partitions)])
        ways: dict[str, Callable[[int], PeerStep]] = {"NumPy": lambda _: peers.numpy_kmeans(points)}
        if peers.numba is not None:
            ways["Numba"] = lambda _: peers.numba_kmeans(points)
        yield ways
        return
    buffer = filled(device, cloud)
    ways = {BY_HAND: lambda number: ByHand(device, buffer, cloud, number).step}
    if peers.cupy is not None:
        data = peers.on_device(buffer.address, (cloud.rows, cloud.features))
        ways["CuPy"] = lambda _: peers.cupy_kmeans(data)
        if peers.jax is not None:
            ways["JAX"] = lambda _: peers.jax_kmeans(data, "highest")
            ways["JAX, TF32"] = lambda _: peers.jax_kmeans(data, "default")
    yield ways
    buffer.close()


def filled(device: Device, cloud: Cloud) -> Buffer:
    """Return all points in one buffer of a device."""
    stream = device.stream()
    whole = device.allocate(cloud.nbytes, stream=stream)
    ends = np.cumsum([0, *[cloud.rows_of(index) for index in range(cloud.partitions)]]) * cloud.features * 4
    device.synchronize(stream=stream)

    def fill(index: int) -> None:
        own, block = device.stream(), bytes_of(cloud.block(index))
        part = Buffer(device, whole.address + int(ends[index]), block.nbytes)
        device.copy_in(part, block, stream=own)
        device.synchronize(stream=own)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(fill, range(cloud.partitions)))
    return whole


class ByHand:
    """The kernels of :data:`KERNELS`."""

    def __init__(self, device: Device, points: Buffer, cloud: Cloud, centers: int):
        self._device, self._points, self._cloud = device, points, cloud
        source = Source(KERNELS.read_text(), KERNELS.name, (f"-DK={centers}", f"-DD={cloud.features}"))
        self._nearest, self._accumulate = (device.compile(source, name) for name in ("nearest", "accumulate"))
        self._stream = device.stream()
        size = centers * cloud.features * 4
        self._centers, self._sums = self._new(size), self._new(size)
        self._squares, self._counts = self._new(centers * 4), self._new(centers * 4)
        self._labels = self._new(cloud.rows * 4)

    def step(self, centers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        device, stream, cloud, n = self._device, self._stream, self._cloud, np.int32(self._cloud.rows)
        sums, counts = np.zeros_like(centers), np.zeros(len(centers), np.int32)
        for target, data in ((self._centers, centers), (self._squares, (centers * centers).sum(axis=1)),
                             (self._sums, sums), (self._counts, counts)):
            device.copy_in(target, bytes_of(data), stream=stream)
        device.launch(self._nearest, (-(-cloud.rows // _ROWS),), (256,),
                      [self._points, self._centers, self._squares, self._labels, n], stream=stream)
        device.launch(self._accumulate, (-(-cloud.features // _COLUMNS), _SHARES), (256,),
                      [self._points, self._labels, self._sums, self._counts, n],
                      shared=len(centers) * _COLUMNS * 4, stream=stream)
        device.copy_out(sums.reshape(-1).view(np.uint8), self._sums, stream=stream)
        device.copy_out(counts.view(np.uint8), self._counts, stream=stream)
        device.synchronize(stream=stream)
        return sums, counts.astype(np.int64)

    def _new(self, nbytes: int) -> Buffer:
        return self._device.allocate(nbytes, stream=self._stream)


def _exact(sc: SparkContext, cloud: Cloud, first: np.ndarray) -> np.ndarray:
    """Return the centres after one iteration, in float64."""
    centers = first.astype(np.float64)
    sums, counts = cloud.blocks(sc).map(
        lambda block: peers.numpy_kmeans(block.astype(np.float64))(centers)).reduce(_joined)
    return np.where(counts[:, None] > 0, sums / np.maximum(counts, 1)[:, None], centers)


def _off(name: str, way: PeerStep, first: np.ndarray, exact: np.ndarray) -> dict[str, Any]:
    """Raise AssertionError for a way whose new centres are not those in float64."""
    iteration = Iteration(way, first)
    iteration.run()
    off = float(np.abs(iteration.centers - exact).max())
    if not off <= TOLERANCE:
        raise AssertionError(f"{name} is off by {off:.2g}")
    return {"off": off, "allowed": TOLERANCE}


