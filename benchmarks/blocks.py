"""Grids as blocks in Spark's cache: a step is a Spark job, which brings the blocks' faces to their neighbours."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from pyspark import RDD, SparkContext, StorageLevel

from benchmarks import halos
from benchmarks.solvers import Slices, Way
from vispark import Grid


def stepwise(sc: SparkContext, grid: Grid, parts: int, start: Callable[[Slices], Any], step: Callable[[RDD], RDD],
             cells: Callable[[Any], np.ndarray], **named) -> Way:
    """A way whose blocks are records of an RDD.

    Parameters
    ----------
    grid : Grid
        Which blocks there are.
    parts : int
        The RDD's partitions.
    start : callable
        A block's record from its cells of the whole grid.
    step : callable
        The blocks after a step.
    cells : callable
        Of a record, the array whose cells are compared.
    named
        More of :class:`Way`.
    """
    starts, splits = _starts(grid), grid.splits
    positions = sc.parallelize([(position, None) for position in np.ndindex(*splits)]).partitionBy(
        parts, partial(halos.owner, splits=splits, ranks=parts))
    held = [positions.map(lambda pair: (pair[0], start(starts[pair[0]])), preservesPartitioning=True)
            .persist(StorageLevel.MEMORY_ONLY)]
    held[0].count()

    def more(_: int) -> None:
        after = step(held[0]).persist(StorageLevel.MEMORY_ONLY)
        after.count()
        held[0].unpersist()
        held[0] = after

    def corner(where: Slices) -> np.ndarray:
        first = (0,) * len(splits)
        found, = held[0].filter(lambda pair: pair[0] == first).map(lambda pair: cells(pair[1])[where]).collect()
        return found

    return Way(more, corner, **named)


def joined(blocks: RDD, splits: tuple[int, ...], cells: Callable[[Any], np.ndarray],
           stepped: Callable[[Any, Any], Any]) -> RDD:
    """Blocks after a step, which ``stepped`` does with a record and its halos; only halos are shuffled."""
    parts = blocks.getNumPartitions()
    given = blocks.flatMap(lambda pair: halos.faces(pair[0], cells(pair[1]), splits)).groupByKey(
        parts, partial(halos.owner, splits=splits, ranks=parts))
    return blocks.leftOuterJoin(given, parts).mapValues(lambda pair: stepped(pair[0], pair[1] or ()))


def _starts(grid: Grid) -> dict[halos.Position, Slices]:
    """Each block's cells of the whole grid."""
    return {key.position: key.slices for key in grid.blocks()}
