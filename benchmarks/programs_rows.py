"""Logistic regression and K-means from text to weights and centres, every way that one would try."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import cache, partial
from operator import add
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from pyspark import RDD, SparkContext

import vispark
from benchmarks import kmeans, peers, rank_blocks, tasks, text
from benchmarks.bare import BareLoop, bytes_of
from benchmarks.blocks import owned_by_workers
from benchmarks.cloud import Cloud
from benchmarks.points import FEATURES, Fused, gradient
from benchmarks.programs import OneProgram, Program, alone, both, by_spark
from benchmarks.recorder import Lap, LapRecorder
from benchmarks.regression import row_gradient
from benchmarks.session import IN_JVM
from gpu_worker.device.base import Buffer, Device
from vispark.data.records.text.splits import TextSplit, splits

SPARK_C, SPARK_G, SPARK_G_KEPT = "Spark-C", "Spark-G", "Spark-G+: blocks kept on the GPU by Python workers"
BARE = "bare CUDA loop"

#: Rows of K-means that are made; the file repeats them.
_ROWS = 1000

NO_GPU = "there is no GPU, or no CuPy"

#: A partition's share of an iteration, from its rows and what changes.
RowShare = Callable[[Any, np.ndarray, Lap], np.ndarray]


@dataclass(frozen=True)
class Here:
    """Place where programs run: the context, a device of this process's, and processes that parse beside each other."""

    sc: SparkContext
    kind: str
    device: Device
    fused: Fused
    parsers: Executor

    def read(self, pieces: Sequence[TextSplit]) -> np.ndarray:
        """Return the rows of a file, as the ways without Spark read them."""
        return np.concatenate(list(self.parsers.map(text.numbers, pieces)))


@dataclass(frozen=True)
class RowLoop:
    """Loop that the ways share: its start, and the change by the sum of all partitions' shares."""

    path: Path
    start: np.ndarray
    after: Callable[[np.ndarray, np.ndarray], np.ndarray]

    def loop(self, iterations: int, step: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        state = self.start
        for _ in range(iterations):
            state = self.after(state, step(state))
        return state


@contextmanager
def regression(here: Here, directory: Path, nbytes: int) -> Iterator[Program]:
    """Logistic regression of a file of points."""
    path = directory / "points.txt"
    nbytes = text.write(path, nbytes)
    what = RowLoop(path, np.zeros(FEATURES, np.float32), lambda w, found: w - np.float32(1e-6) * found)
    kind, fused = here.kind, here.fused
    with ExitStack() as stack:
        ways = both(lambda n: _regression(here.sc, what, n)) | _by_spark(here, what, {
            SPARK_C: _numpy_gradient, SPARK_G: partial(tasks.timed_gradient, kind=kind, fused=fused)})
        ways[SPARK_G_KEPT] = _kept(here, what, stack, partial(tasks.put_points, kind=kind, fused=fused),
                                   partial(tasks.gradient_of_put, kind=kind, fused=fused))
        ways[BARE] = alone(_in_process(here, what, partial(_bare_gradient, here)))
        ways |= {name: alone(_in_process(here, what, make)) for name, make in _libraries(here, {
            "CuPy": peers.cupy_gradient, "JAX": peers.jax_gradient, "NumPy": lambda rows: partial(gradient, rows),
            "Numba": peers.numba_gradient}).items()}
        yield Program("logistic regression", {"text_bytes": nbytes}, ways, 1e-3)
    path.unlink()


@contextmanager
def clusters(here: Here, directory: Path, nbytes: int, features: int, centers: int) -> Iterator[Program]:
    """Yield the program of K-means of a file of points."""
    path, cloud = directory / "cloud.txt", Cloud(_ROWS, features, centers, 1)
    nbytes = text.write(path, nbytes, cloud.block(0))
    what, skipped = RowLoop(path, cloud.first_centers(centers), _moved), {}
    on_gpu = here.kind == "cuda" and peers.cupy is not None
    with ExitStack() as stack:
        ways = both(lambda n: _kmeans(here.sc, what, n)) | _by_spark(here, what, {
            SPARK_C: _numpy_kmeans} | ({SPARK_G: tasks.timed_kmeans} if on_gpu else {}))
        if on_gpu:
            ways[SPARK_G_KEPT] = _kept(here, what, stack, tasks.to_gpu,
                                       lambda rows, state: tasks.flat(peers.cupy_kmeans(rows)(state)))
            ways[BARE] = alone(_in_process(here, what, _bare_kmeans(here, stack, features, centers)))
        else:
            skipped = dict.fromkeys((SPARK_G, SPARK_G_KEPT, BARE), NO_GPU)
        ways |= {name: alone(_in_process(here, what, make)) for name, make in _libraries(here, {
            "CuPy": _flat(peers.cupy_kmeans), "JAX": _flat(partial(peers.jax_kmeans, precision="highest")),
            "NumPy": _flat(peers.numpy_kmeans), "Numba": _flat(peers.numba_kmeans)}).items()}
        yield Program("K-means", {"text_bytes": nbytes, "features": features, "centers": centers}, ways, 1e-3, skipped)
    path.unlink()


# -- ours -------------------------------------------------------------------------------------------------------------

def _regression(sc: SparkContext, what: RowLoop, iterations: int) -> np.ndarray:
    points = vispark.read_text(sc, what.path, minPartitions=sc.defaultParallelism).cache("GPU")
    w = what.loop(iterations, lambda w: points.vmap(row_gradient, w).reduce(add))
    points.unpersist()
    return w


def _kmeans(sc: SparkContext, what: RowLoop, iterations: int) -> np.ndarray:
    points = vispark.read_text(sc, what.path, minPartitions=sc.defaultParallelism).cache("GPU")
    centers = what.start
    for _ in range(iterations):
        pairs = points.vmap(kmeans.assign, centers)
        stats = pairs.reduceByKey(lambda a, b: (a[0] + b[0], a[1] + b[1]), numKeys=len(centers))
        centers = centers.copy()
        for key, (total, count) in stats.collect():
            centers[key] = total / count
    points.unpersist()
    return centers


# -- Spark jobs -------------------------------------------------------------------------------------------------------

def _by_spark(here: Here, what: RowLoop, shares: dict[str, RowShare]) -> dict[str, OneProgram]:
    """Return the ways with blocks in Spark's cache, and a job an iteration."""
    return {name: by_spark(here.sc, partial(_jobs, here.sc, what, share)) for name, share in shares.items()}


def _jobs(sc: SparkContext, what: RowLoop, share: RowShare, iterations: int, recorder: LapRecorder) -> np.ndarray:
    blocks: RDD[np.ndarray] = sc.textFile(str(what.path), sc.defaultParallelism).mapPartitions(
        partial(_parsed, recorder=recorder)).persist(IN_JVM)
    # In the JVM: with the first iteration a Python worker would wait for another one that parses.
    blocks._jrdd.count()
    result = what.loop(iterations, lambda state: blocks.mapPartitions(
        partial(_shares, share=share, state=state, recorder=recorder)).reduce(add))
    blocks.unpersist()
    return result


def _parsed(lines: Iterator[str], recorder: LapRecorder) -> Iterator[np.ndarray]:
    with recorder.recording() as lap:
        block = np.array([text.parse(line) for line in lines])
        lap("parse")
        yield block
        lap("transport")


def _shares(blocks: Iterator[np.ndarray], share: RowShare, state: np.ndarray,
            recorder: LapRecorder) -> Iterator[np.ndarray]:
    with recorder.recording() as lap:
        for block in blocks:
            lap("transport")
            yield share(block, state, lap)


def _numpy_gradient(block: np.ndarray, w: np.ndarray, lap: Lap) -> np.ndarray:
    total = gradient(block, w)
    lap("kernel")
    return total


def _numpy_kmeans(block: np.ndarray, centers: np.ndarray, lap: Lap) -> np.ndarray:
    total = tasks.flat(peers.numpy_kmeans(block)(centers))
    lap("kernel")
    return total


def _moved(centers: np.ndarray, totals: np.ndarray) -> np.ndarray:
    sums, counts = totals[:, :-1], totals[:, -1:]
    return np.where(counts > 0, sums / np.maximum(counts, 1), centers)


def _kept(here: Here, what: RowLoop, stack: ExitStack, put: Callable[[np.ndarray], Any],
          step: Callable[[Any, np.ndarray], np.ndarray]) -> OneProgram:
    """Return the way with a Python worker a core, which parses its part of the file and keeps it on the GPU; a barrier
    job an iteration.
    """
    sc, directory = here.sc, stack.enter_context(TemporaryDirectory(prefix="vk-"))
    parts = sc.defaultParallelism

    def program(iterations: int, recorder: LapRecorder) -> np.ndarray:
        pieces = splits(str(what.path), parts)

        def made(rank: int) -> dict[int, Any]:
            with recorder.recording() as lap:
                rows = [text.numbers(split) for split in pieces[rank::parts]]
                lap("parse")
                blocks = dict(enumerate(map(put, rows)))
                lap("host-to-device")
            return blocks

        def shares(state: np.ndarray) -> list[np.ndarray]:
            with recorder.recording() as lap:
                sums = [step(block, state) for block in rank_blocks.held(directory).values()]
                lap("kernel")
            return sums

        with owned_by_workers(sc, parts) as everywhere:
            run = uuid.uuid4().hex
            everywhere(lambda: rank_blocks.begin(directory, run, parts, made))
            return what.loop(iterations, lambda state: sum(
                each for found in everywhere(lambda: shares(state)) for each in found))

    return by_spark(sc, program)


# -- one process ------------------------------------------------------------------------------------------------------

def _in_process(here: Here, what: RowLoop, make: Callable[[np.ndarray], Any]) -> Callable[[int, Lap], np.ndarray]:
    """Return a program that one writes without Spark; ``make`` brings the rows where they are computed on, and gives an
    iteration.
    """
    def run(iterations: int, lap: Lap) -> np.ndarray:
        rows = here.read(splits(str(what.path), here.sc.defaultParallelism))
        lap("parse")
        with ExitStack() as stack:
            step = make(rows)
            if hasattr(step, "close"):
                stack.enter_context(closing(step))
            lap("host-to-device")
            result = what.loop(iterations, step)
            lap("kernel")
        return result
    return run


def _libraries(here: Here, ways: dict[str, Callable[[np.ndarray], Any]]) -> dict[str, Callable[[np.ndarray], Any]]:
    """Select the ways whose library is here: on a GPU CuPy and JAX, else NumPy and Numba."""
    if here.kind == "cuda":
        there = {"CuPy": peers.cupy, "JAX": peers.cupy and peers.jax}
        return {name: _on_gpu(ways[name]) for name, library in there.items() if library is not None}
    return {name: ways[name] for name, library in {"NumPy": np, "Numba": peers.numba}.items() if library is not None}


def _on_gpu(make: Callable[[Any], Any]) -> Callable[[np.ndarray], Any]:
    def there(rows: np.ndarray) -> Any:
        step = make(tasks.to_gpu(rows))
        peers.cupy.cuda.Stream.null.synchronize()
        return step
    return there


def _flat(make: Callable[[Any], peers.PeerStep]) -> Callable[[Any], Callable[[np.ndarray], np.ndarray]]:
    def made(rows: Any) -> Callable[[np.ndarray], np.ndarray]:
        step = make(rows)
        return lambda centers: tasks.flat(step(centers))
    return made


@dataclass(frozen=True)
class _RowsHere:
    """Rows that are here, as :class:`benchmarks.bare.BareLoop` takes points."""

    held: np.ndarray
    partitions: int = 1

    @property
    def rows(self) -> int:
        return len(self.held)

    def rows_of(self, partition: int) -> int:
        return len(self.held)

    def block(self, partition: int) -> np.ndarray:
        return self.held


class _Bare:
    """The fused kernel in a bare loop."""

    def __init__(self, loop: BareLoop):
        self._loop = loop
        self.close = loop.close

    def __call__(self, w: np.ndarray) -> np.ndarray:
        return self._loop.gradient(w)


def _bare_gradient(here: Here, rows: np.ndarray) -> _Bare:
    return _Bare(BareLoop(here.device, _RowsHere(rows), here.fused, together=True))


def _bare_kmeans(here: Here, stack: ExitStack, features: int, centers: int) -> Callable[[np.ndarray], Any]:
    """Return K-means by hand; memory for the points is taken once, as that of its centres is."""
    device = here.device

    @cache
    def by_hand(rows: int) -> tuple[Buffer, kmeans.ByHand]:
        held = device.allocate(rows * features * 4, stream=device.stream())
        stack.callback(held.close)
        return held, kmeans.ByHand(device, held, Cloud(rows, features, centers, 1), centers)

    def make(rows: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
        held, hand = by_hand(len(rows))
        stream = device.stream()
        device.copy_in(held, bytes_of(rows), stream=stream)
        device.synchronize(stream=stream)
        return lambda state: tasks.flat(hand.step(state.astype(np.float32)))
    return make
