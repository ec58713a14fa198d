"""Points of K-means: clouds around centres, made where they are needed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from pyspark import RDD, SparkContext

#: Rows that are made at once.
_CHUNK = 8192


@dataclass(frozen=True)
class Cloud:
    """So many points of so many features around as many centres, in so many partitions.

    >>> cloud = Cloud(10, 3, 2, 4)
    >>> cloud.rows_of(3), cloud.block(0).shape, cloud.first_centers(5).shape
    (2, (3, 3), (5, 3))
    """

    rows: int
    features: int
    centers: int
    partitions: int

    @property
    def nbytes(self) -> int:
        return self.rows * self.features * 4

    def rows_of(self, partition: int) -> int:
        """Return the number of rows of a partition; the first ones have one more where they do not come out even."""
        return self.rows // self.partitions + (partition < self.rows % self.partitions)

    def true_centers(self) -> np.ndarray:
        """Return the centres that the points lie around; float32 of shape (centers, features), in [0, 1)."""
        return np.random.default_rng(12345).random((self.centers, self.features), np.float32)

    def first_centers(self, number: int) -> np.ndarray:
        """So many centres to begin with: near those that the points lie around, and not the same."""
        off = np.random.default_rng(54321).random((number, self.features), np.float32) - np.float32(0.5)
        return self.true_centers()[np.arange(number) % self.centers] + off / 4

    def block(self, partition: int) -> np.ndarray:
        """Return a partition's points, float32 of shape (rows, features); the same each time."""
        rng, around = np.random.default_rng(partition), self.true_centers()
        block = np.empty((self.rows_of(partition), self.features), np.float32)
        for first in range(0, len(block), _CHUNK):
            part = block[first:first + _CHUNK]
            rng.random(dtype=np.float32, out=part)
            part -= np.float32(0.5)
            part += around[rng.integers(self.centers, size=len(part))]
        return block

    def rdd(self, sc: SparkContext) -> RDD:
        """Return the points, one a record, made in the executors."""
        return sc.parallelize(range(self.partitions), self.partitions).flatMap(self._rows)

    def blocks(self, sc: SparkContext) -> RDD:
        """Return a block a partition, made in the executors."""
        return sc.parallelize(range(self.partitions), self.partitions).map(self.block)

    def _rows(self, partition: int) -> Iterator[np.ndarray]:
        return iter(self.block(partition))
