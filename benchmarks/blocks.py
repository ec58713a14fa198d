"""Steps of a grid whose blocks are NumPy arrays of a PySpark program, as its users would write them.

A step is a Spark job. By a join, only strips are shuffled: the blocks stay in their partitions, and each new block
crosses between the JVM and Python three times, to be cached, to give its strips, and to be stepped.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from pyspark import RDD, SparkContext

from benchmarks import rank_blocks, tasks
from benchmarks.halos import BlockPlace, Given, HaloStrips, exchanged, ranks
from benchmarks.recorder import NOT_RECORDED, Lap, LapRecorder
from benchmarks.session import IN_JVM
from benchmarks.solvers import Slices, Way
from vispark import Grid

SPARK_C = "Spark-C: halos by a join, NumPy"
SPARK_C_MPI = "Spark-C-MPI: halos by MPI, NumPy"
SPARK_C_KEPT = "Spark-C+: blocks kept by Python workers, halos by MPI, NumPy"
SPARK_G = "Spark-G: halos by a join, CuPy on a block"
SPARK_G_KEPT = "Spark-G+: blocks kept on the GPU by Python workers, halos by MPI, CuPy"

#: A block after a step, from the block and what it is given; a lap is told of each kind of work.
BlockStep = Callable[[Any, Given, Lap], Any]


@dataclass(frozen=True)
class Stepping:
    """Steps that tasks do with a grid's blocks.

    Attributes
    ----------
    grid : Grid
        Which blocks there are.
    halos : Halos
        What they need of their neighbours.
    initial : callable
        A block from its cells of the whole grid.
    cells : callable
        Of a block, the array whose cells are compared.
    host, gpu : callable
        A block after a step, from the block and what it is given, in NumPy and in CuPy.
    named : dict
        More of :class:`Way`.
    """

    grid: Grid
    halos: HaloStrips
    initial: Callable[[Slices], np.ndarray]
    cells: Callable[[Any], Any]
    host: Callable[[Any, Given], Any]
    gpu: Callable[[Any, Given], Any]
    named: dict[str, Any] = field(default_factory=dict)

    def start(self) -> Callable[[BlockPlace], np.ndarray]:
        """Return the maker of blocks."""
        starts, initial = {key.position: key.slices for key in self.grid.blocks()}, self.initial
        return lambda position: initial(starts[position])


#: A way that is made when its turn comes, and gives everything back afterwards.
MakesWay = Callable[[], AbstractContextManager[Way]]


def ways(sc: SparkContext, stepping: Stepping, kind: str, skipped: dict[str, str]) -> Iterator[tuple[str, MakesWay]]:
    """Yield the ways in the order in which they are measured; those that cannot run are put down as skipped."""
    for name, way in joins(sc, stepping, kind).items():
        yield name, way
    for name, way in by_ranks(sc, stepping, kind, skipped).items():
        yield name, partial(_with_ranks, sc, stepping.halos, way)


def joins(sc: SparkContext, stepping: Stepping, kind: str) -> dict[str, Callable[..., AbstractContextManager[Way]]]:
    """Return the ways that bring halos by a join; they may be given a ``recorder``."""
    ways = {SPARK_C: partial(joined, sc, stepping, partial(tasks.by_numpy, stepping.host))}
    if kind == "cuda" and tasks.cupy is not None:
        ways[SPARK_G] = partial(joined, sc, stepping, partial(tasks.by_cupy, stepping.gpu))
    return ways


def by_ranks(sc: SparkContext, stepping: Stepping, kind: str, skipped: dict[str, str]
             ) -> dict[str, Callable[..., AbstractContextManager[Way]]]:
    """Return the ways that bring halos by MPI: they take the ranks' directory, and may be given a ``recorder``."""
    on_gpu = kind == "cuda" and tasks.cupy is not None
    if not tasks.has_mpi():
        skipped |= dict.fromkeys((SPARK_C_MPI, SPARK_C_KEPT, SPARK_G_KEPT)[:2 + on_gpu],
                                 "there is no mpirun or no mpi4py")
        return {}
    ways = {SPARK_C_MPI: partial(_by_mpi, sc, stepping),
            SPARK_C_KEPT: partial(_kept, sc, stepping, np.asarray, partial(tasks.by_numpy, stepping.host))}
    if on_gpu:
        ways[SPARK_G_KEPT] = partial(_kept, sc, stepping, tasks.to_gpu, partial(tasks.by_kept_cupy, stepping.gpu))
    return ways


@contextmanager
def _with_ranks(sc: SparkContext, halos: HaloStrips, way: Callable[[str], AbstractContextManager[Way]]
                ) -> Iterator[Way]:
    with ranks(at_once(sc, halos), halos) as directory, way(directory) as stepper:
        yield stepper


@dataclass
class _Held:
    """The blocks of a step, and what else is made of them."""

    blocks: RDD
    given: RDD | None = None

    def corner(self, cells: Callable[[Any], Any], where: Slices) -> np.ndarray:
        first = self.blocks.filter(lambda pair: not any(pair[0]))
        block, = first.map(lambda pair: np.ascontiguousarray(cells(pair[1])[where])).collect()
        return block

    def way(self, advance: Callable[[int], None], stepping: Stepping) -> Way:
        cells = stepping.cells
        return Way(advance, lambda where: self.corner(cells, where),
                   lambda: self.blocks.mapValues(lambda block: np.ascontiguousarray(cells(block))).collect(),
                   **stepping.named)


def _blocks(sc: SparkContext, stepping: Stepping, parts: int, recorder: LapRecorder) -> RDD:
    """Return the blocks at the start, dealt to so many partitions."""
    halos = stepping.halos
    positions = sc.parallelize([(position, None) for position in np.ndindex(*halos.splits)], parts)
    return positions.partitionBy(parts, partial(halos.owner, ranks=parts)).mapPartitions(
        partial(_started, start=stepping.start(), recorder=recorder), preservesPartitioning=True).persist(IN_JVM)


def _started(positions: Iterator[tuple[BlockPlace, None]], start: Callable[[BlockPlace], np.ndarray],
             recorder: LapRecorder) -> Iterator[tuple[BlockPlace, np.ndarray]]:
    with recorder.recording() as lap:
        for position, _ in positions:
            block = start(position)
            lap("parse")
            yield position, block
            lap("transport")


@contextmanager
def joined(sc: SparkContext, stepping: Stepping, step: BlockStep, recorder: LapRecorder = NOT_RECORDED
           ) -> Iterator[Way]:
    """Yield a way with a partition a block; strips come to the blocks' partitions."""
    halos = stepping.halos
    held = _Held(_blocks(sc, stepping, int(np.prod(halos.splits)), recorder))

    def give() -> None:
        # Spark knows a partitioner by its function: with the same one a union's partitions are those of its parts.
        held.given = held.blocks.mapPartitions(partial(_giving, halos=halos, recorder=recorder)).partitionBy(
            held.blocks.getNumPartitions(), held.blocks.partitioner.partitionFunc)
        # Counted in the JVM: RDD.count() would bring all of it to Python.
        held.given._jrdd.count()

    def more(_: int) -> None:
        before = held.blocks
        held.blocks = before.union(held.given).mapPartitions(
            partial(_stepped, step=step, recorder=recorder), preservesPartitioning=True).persist(IN_JVM)
        give()
        before.unpersist()

    try:
        give()
        yield held.way(more, stepping)
    finally:
        held.blocks.unpersist()


def _giving(blocks: Iterator[tuple[BlockPlace, Any]], halos: HaloStrips, recorder: LapRecorder) -> Iterator[tuple]:
    with recorder.recording() as lap:
        for position, block in blocks:
            # In the same task another Python worker makes the block meanwhile, and tells of that.
            lap("")
            yield from halos.given(position, block)
            lap("exchange")


def _stepped(records: Iterator[tuple[BlockPlace, Any]], step: BlockStep,
             recorder: LapRecorder) -> Iterator[tuple[BlockPlace, Any]]:
    with recorder.recording() as lap:
        blocks, strips = {}, defaultdict(dict)
        for position, what in records:
            if isinstance(what, tuple):
                offset, strip = what
                strips[position][offset] = strip
            else:
                blocks[position] = what
        lap("transport")
        for position, block in blocks.items():
            yield position, step(block, strips[position], lap)
            lap("transport")


@contextmanager
def _by_mpi(sc: SparkContext, stepping: Stepping, directory: str,
            recorder: LapRecorder = NOT_RECORDED) -> Iterator[Way]:
    """Yield a way with as many partitions as can run at once, a rank beside each."""
    halos, step, parts = stepping.halos, partial(tasks.by_numpy, stepping.host), at_once(sc, stepping.halos)
    held = _Held(_blocks(sc, stepping, parts, recorder))

    def more(_: int) -> None:
        before = held.blocks
        held.blocks = before.barrier().mapPartitionsWithIndex(
            lambda rank, mine: _by_rank(directory, rank, halos, mine, step, recorder)).persist(IN_JVM)
        held.blocks._jrdd.count()
        before.unpersist()

    try:
        held.blocks._jrdd.count()
        yield held.way(more, stepping)
    finally:
        held.blocks.unpersist()


def _by_rank(directory: str, rank: int, halos: HaloStrips, pairs: Iterator[tuple[BlockPlace, Any]], step: BlockStep,
             recorder: LapRecorder
             ) -> Iterator[tuple[BlockPlace, Any]]:
    with recorder.recording() as lap:
        blocks = dict(pairs)
        lap("transport")
        strips = exchanged(directory, rank, halos, blocks.items())
        lap("exchange")
        for position, block in blocks.items():
            yield position, step(block, strips.get(position, {}), lap)
            lap("transport")


@contextmanager
def _kept(sc: SparkContext, stepping: Stepping, put: Callable[[np.ndarray], Any], step: BlockStep, directory: str,
          recorder: LapRecorder = NOT_RECORDED) -> Iterator[Way]:
    """Yield a way with a Python worker a rank, which keeps its blocks; nothing passes through the JVM."""
    halos, parts, start = stepping.halos, at_once(sc, stepping.halos), stepping.start()

    def made(rank: int) -> dict[BlockPlace, Any]:
        with recorder.recording() as lap:
            blocks = {position: start(position) for position in halos.owned(rank, parts)}
            lap("parse")
            blocks = {position: put(block) for position, block in blocks.items()}
            lap("host-to-device")
        return blocks

    with owned_by_workers(sc, parts) as everywhere:
        cells = stepping.cells

        def corner(where: Slices) -> np.ndarray:
            first = (0,) * len(halos.splits)
            part, = (each for found in everywhere(lambda: [
                tasks.on_host(cells(block)[where]) for position, block in rank_blocks.held(directory).items()
                if position == first]) for each in found)
            return part

        def blocks() -> list[tuple[BlockPlace, np.ndarray]]:
            return [each for found in everywhere(lambda: [
                (position, tasks.on_host(cells(block))) for position, block in rank_blocks.held(directory).items()])
                for each in found]

        run = uuid.uuid4().hex
        everywhere(lambda: rank_blocks.begin(directory, run, parts, made))
        yield Way(lambda _: everywhere(lambda: rank_blocks.step(directory, halos, step, recorder)), corner, blocks,
                  **stepping.named)


@contextmanager
def owned_by_workers(sc: SparkContext, parts: int) -> Iterator[Callable[[Callable[[], Any]], list[Any]]]:
    """Yield a function that calls a task in each of as many Python workers, which are called by such jobs only."""
    # Other variables are other Python workers: no more than take part, as Spark calls idle ones in any order.
    sc.environment["BENCHMARKS_KEPT"] = str(parts)
    try:
        yield lambda task: [found for _, found in sc.parallelize(range(parts), parts).barrier().mapPartitions(
            lambda mine: [(list(mine), task())]).collect()]
    finally:
        del sc.environment["BENCHMARKS_KEPT"]


def at_once(sc: SparkContext, halos: HaloStrips) -> int:
    """Return the number of partitions that all blocks go to, where all are to run at once."""
    return min(sc.defaultParallelism, int(np.prod(halos.splits)))
