"""Steps of a grid whose blocks are NumPy arrays of a PySpark program, as its users would write them.

A step is a Spark job. By a join, only strips are shuffled: the blocks stay in their partitions, and each new block
crosses between the JVM and Python three times, to be cached, to give its strips, and to be stepped.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from pyspark import RDD, SparkContext

from benchmarks import owned, tasks
from benchmarks.halos import Given, Halos, Position, exchanged, ranks
from benchmarks.session import IN_JVM
from benchmarks.solvers import Slices, Way
from vispark import Grid

SPARK_C = "Spark-C: halos by a join, NumPy"
SPARK_C_MPI = "Spark-C-MPI: halos by MPI, NumPy"
SPARK_C_KEPT = "Spark-C+: blocks kept by Python workers, halos by MPI, NumPy"
SPARK_G = "Spark-G: halos by a join, CuPy on a block"
SPARK_G_KEPT = "Spark-G+: blocks kept on the GPU by Python workers, halos by MPI, CuPy"

Step = Callable[[Any, Given], Any]


@dataclass(frozen=True)
class Stepping:
    """What tasks do with a grid's blocks.

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
    halos: Halos
    initial: Callable[[Slices], np.ndarray]
    cells: Callable[[Any], Any]
    host: Step
    gpu: Step
    named: dict[str, Any] = field(default_factory=dict)

    def start(self) -> Callable[[Position], np.ndarray]:
        """Makes a block."""
        starts, initial = {key.position: key.slices for key in self.grid.blocks()}, self.initial
        return lambda position: initial(starts[position])


#: A way that is made when its turn comes, and gives everything back afterwards.
Made = Callable[[], AbstractContextManager[Way]]


def ways(sc: SparkContext, stepping: Stepping, kind: str, skipped: dict[str, str]) -> Iterator[tuple[str, Made]]:
    """The ways in the order in which they are measured; those that cannot run are put down as skipped."""
    on_gpu = kind == "cuda" and tasks.cupy is not None
    yield SPARK_C, partial(joined, sc, stepping, stepping.host)
    if on_gpu:
        yield SPARK_G, partial(joined, sc, stepping, partial(tasks.by_cupy, stepping.gpu))
    if not tasks.has_mpi():
        skipped |= dict.fromkeys((SPARK_C_MPI, SPARK_C_KEPT, SPARK_G_KEPT)[:2 + on_gpu],
                                 "there is no mpirun or no mpi4py")
        return
    yield SPARK_C_MPI, partial(_by_mpi, sc, stepping)
    yield SPARK_C_KEPT, partial(_kept, sc, stepping, np.asarray, stepping.host)
    if on_gpu:
        yield SPARK_G_KEPT, partial(_kept, sc, stepping, tasks.to_gpu, stepping.gpu)


@dataclass
class _Held:
    """The blocks of a step, and what else is made of them."""

    blocks: RDD
    given: RDD | None = None

    def corner(self, cells: Callable[[Any], Any], where: Slices) -> np.ndarray:
        first = self.blocks.filter(lambda pair: not any(pair[0]))
        found, = first.map(lambda pair: np.ascontiguousarray(cells(pair[1])[where])).collect()
        return found


def _blocks(sc: SparkContext, stepping: Stepping, parts: int) -> RDD:
    """The blocks at the start, dealt to so many partitions."""
    halos, start = stepping.halos, stepping.start()
    positions = sc.parallelize([(position, None) for position in np.ndindex(*halos.splits)], parts)
    return positions.partitionBy(parts, partial(halos.owner, ranks=parts)).map(
        lambda pair: (pair[0], start(pair[0])), preservesPartitioning=True).persist(IN_JVM)


@contextmanager
def joined(sc: SparkContext, stepping: Stepping, step: Step) -> Iterator[Way]:
    """A partition a block; strips come to the blocks' partitions."""
    halos = stepping.halos
    held = _Held(_blocks(sc, stepping, int(np.prod(halos.splits))))

    def give() -> None:
        # Spark knows a partitioner by its function: with the same one a union's partitions are those of its parts.
        held.given = held.blocks.flatMap(lambda pair: halos.given(*pair)).partitionBy(
            held.blocks.getNumPartitions(), held.blocks.partitioner.partitionFunc)
        # Counted in the JVM: RDD.count() would bring all of it to Python.
        held.given._jrdd.count()

    def more(_: int) -> None:
        before = held.blocks
        held.blocks = before.union(held.given).mapPartitions(
            partial(_stepped, step=step), preservesPartitioning=True).persist(IN_JVM)
        give()
        before.unpersist()

    try:
        give()
        yield Way(more, lambda where: held.corner(stepping.cells, where), **stepping.named)
    finally:
        held.blocks.unpersist()


def _stepped(found: Iterator[tuple[Position, Any]], step: Step) -> Iterator[tuple[Position, Any]]:
    blocks, given = {}, defaultdict(dict)
    for position, what in found:
        if isinstance(what, tuple):
            offset, strip = what
            given[position][offset] = strip
        else:
            blocks[position] = what
    for position, block in blocks.items():
        yield position, step(block, given[position])


@contextmanager
def _by_mpi(sc: SparkContext, stepping: Stepping) -> Iterator[Way]:
    """As many partitions as can run at once, a rank beside each."""
    halos, step, parts = stepping.halos, stepping.host, _at_once(sc, stepping.halos)
    held = _Held(_blocks(sc, stepping, parts))
    with ranks(parts, halos) as directory:
        def more(_: int) -> None:
            before = held.blocks
            held.blocks = before.barrier().mapPartitionsWithIndex(
                lambda rank, mine: _by_rank(directory, rank, halos, mine, step)).persist(IN_JVM)
            held.blocks._jrdd.count()
            before.unpersist()

        try:
            held.blocks._jrdd.count()
            yield Way(more, lambda where: held.corner(stepping.cells, where), **stepping.named)
        finally:
            held.blocks.unpersist()


def _by_rank(directory: str, rank: int, halos: Halos, mine: Iterator[tuple[Position, Any]], step: Step
             ) -> Iterator[tuple[Position, Any]]:
    blocks = dict(mine)
    given = exchanged(directory, rank, halos, blocks.items())
    for position, block in blocks.items():
        yield position, step(block, given.get(position, {}))


@contextmanager
def _kept(sc: SparkContext, stepping: Stepping, put: Callable[[np.ndarray], Any], step: Step) -> Iterator[Way]:
    """A Python worker a rank, which keeps its blocks; nothing passes through the JVM."""
    halos, parts, start = stepping.halos, _at_once(sc, stepping.halos), stepping.start()
    with ranks(parts, halos) as directory:
        # Other variables are other Python workers: no more than take part, as Spark calls idle ones in any order.
        sc.environment["BENCHMARKS_KEPT"] = directory

        def everywhere(task: Callable[[], Any]) -> list[Any]:
            return sc.parallelize(range(parts), parts).barrier().mapPartitions(
                lambda mine: [(list(mine), task())]).collect()

        def corner(where: Slices) -> np.ndarray:
            first, cells = (0,) * len(halos.splits), stepping.cells
            found, = (each for _, found in everywhere(lambda: [
                tasks.on_host(cells(block)[where]) for block in owned.block(directory, first)]) for each in found)
            return found

        try:
            everywhere(lambda: owned.begin(directory, halos, parts, lambda position: put(start(position))))
            yield Way(lambda _: everywhere(lambda: owned.step(directory, halos, step)), corner, **stepping.named)
        finally:
            del sc.environment["BENCHMARKS_KEPT"]


def _at_once(sc: SparkContext, halos: Halos) -> int:
    return min(sc.defaultParallelism, int(np.prod(halos.splits)))
