"""Points of logistic regression, made where they are needed, and the gradient in NumPy."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from pyspark import RDD, SparkContext

#: Features of a point; a row has its label, -1 or 1, before them.
FEATURES = 40

#: Rows that NumPy works on at once: they stay in a core's cache between the two times it reads them.
_CACHED_ROWS = 4096

KERNELS = Path(__file__).parent / "kernels" / "gradient.cu"
LISTING = Path(__file__).resolve().parents[1] / "examples" / "logistic_regression.cu"

#: Rows of a tile of the kernel in :data:`KERNELS`.
TILE_ROWS = 128


@dataclass(frozen=True)
class Points:
    """So many rows in so many partitions, one block each.

    >>> Points(10, 4).rows_of(3), Points(10, 4).block(0).shape
    (2, (3, 41))
    """

    rows: int
    partitions: int

    @property
    def nbytes(self) -> int:
        return self.rows * (FEATURES + 1) * 4

    def rows_of(self, partition: int) -> int:
        """Return the number of rows of a partition; the first ones have one more where they do not come out even."""
        return self.rows // self.partitions + (partition < self.rows % self.partitions)

    def block(self, partition: int) -> np.ndarray:
        """Return a partition's rows, float32 of shape (rows, 41); the same each time."""
        rng = np.random.default_rng(partition)
        block = rng.random((self.rows_of(partition), FEATURES + 1), np.float32)
        block -= np.float32(0.5)
        direction = np.linspace(-1, 1, FEATURES, dtype=np.float32)
        block[:, 0] = np.where(block[:, 1:] @ direction + block[:, 0] > 0, 1, -1)
        return block

    def rdd(self, sc: SparkContext) -> RDD:
        """Return (partition, block) pairs, one in each partition, made in the executors."""
        return sc.parallelize(range(self.partitions), self.partitions).map(self.pair)

    def pair(self, partition: int) -> tuple[int, np.ndarray]:
        return partition, self.block(partition)


def gradient(block: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Return the gradient over a block, of the dtype of ``w``; (40,)."""
    total = np.zeros(FEATURES, w.dtype)
    for first in range(0, len(block), _CACHED_ROWS):
        part = block[first:first + _CACHED_ROWS].astype(w.dtype, copy=False)
        y, x = part[:, 0], part[:, 1:]
        total += ((1 / (1 + np.exp(-y * (x @ w))) - 1) * y) @ x
    return total


@dataclass(frozen=True)
class Fused:
    """Options of compiling and launching the one-pass kernel on a kind of device.

    Attributes
    ----------
    threads : int
        Of a block: one a row of a tile on a GPU; few on a CPU, where they take turns at each barrier.
    blocks : int
        The most of a launch: two for each multiprocessor or core.
    """

    threads: int
    blocks: int

    @classmethod
    def on(cls, kind: str, units: int) -> Fused:
        return cls(TILE_ROWS if kind == "cuda" else 4, 2 * units)

    @property
    def options(self) -> tuple[str, ...]:
        return f"-DD={FEATURES}", f"-DTHREADS={self.threads}"

    @property
    def shared(self) -> int:
        """Dynamic shared memory in bytes: two tiles."""
        return 2 * TILE_ROWS * (FEATURES + 1) * 4

    def grid(self, rows: int) -> int:
        return max(1, min(self.blocks, -(-rows // TILE_ROWS)))


#: Threads of the block that sums the partials, by axis.
SUM_BLOCK = FEATURES, 16
