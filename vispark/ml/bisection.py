"""Tree of clusters that is grown by bisecting its leaves, level by level, with 2-means on the devices.

References
----------
Steinbach, Karypis and Kumar, A comparison of document clustering techniques, KDD Workshop on Text Mining, 2000.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from vispark.api.vrdd import VRDD
from vispark.ml.base import Unsuited
from vispark.ml.java_random import JavaRandom

_EPSILON = 2.0 ** -52
#: The number of levels that MLlib grows, which numbers clusters as a heap by 64-bit integers.
_LEVELS = 63
ROOT = 1


@dataclass(frozen=True)
class TreeCluster:
    """Cluster of rows: their number, their weight, the centre, and the sum of the weighted squared distances to it."""

    size: int
    weight: float
    center: np.ndarray
    cost: float


@dataclass(frozen=True)
class Growth:
    """Limits to a tree: how many leaves, the least size of what is bisected, and how many steps a bisection takes."""

    leaves: int
    least_size: float
    iterations: int
    seed: int


class ClusterTree:
    """Tree of the clusters of weighted rows; the children of number i are 2 * i and 2 * i + 1.

    Parameters
    ----------
    points : VRDD
        Records of fields x and w.
    mean : array of float64, shape (d,)
        The mean of the rows, from which distances are measured, so that large numbers are not subtracted.
    by_cosine : bool
        Whether rows and centres are scaled to a length of 1.
    """

    def __init__(self, points: VRDD, mean: np.ndarray, *, by_cosine: bool):
        self._points = points
        self._by_cosine = by_cosine
        self._shift = np.zeros(len(mean)) if by_cosine else mean
        self.clusters: dict[int, TreeCluster] = {}
        self.clusters = self._summaries({ROOT: mean}, {ROOT})

    def grow(self, growth: Growth) -> None:
        """Bisect the divisible clusters of each level, the larger ones first, until there are enough leaves.

        Raises
        ------
        Unsuited
            If all rows of a cluster have the weight 0.
        """
        root = self.clusters[ROOT]
        least = math.ceil(growth.least_size * (1 if growth.least_size >= 1 else root.size))
        random, active, needed = JavaRandom(growth.seed), dict(self.clusters), growth.leaves - 1
        for _ in range(_LEVELS):
            divisible = [index for index, cluster in sorted(active.items())
                         if cluster.size >= least and cluster.cost > _EPSILON * cluster.size]
            divisible = sorted(sorted(divisible, key=lambda index: -active[index].size)[:max(needed, 0)])
            if not divisible:
                break
            active = self._bisected({index: active[index] for index in divisible}, random, growth.iterations)
            self.clusters.update(active)
            needed -= len(divisible)

    def _bisected(self, parents: Mapping[int, TreeCluster], random: JavaRandom,
                  iterations: int) -> dict[int, TreeCluster]:
        """Return the children of some clusters, after steps of 2-means from both sides of each centre."""
        centers: dict[int, np.ndarray] = {}
        for index, parent in parents.items():
            noise = np.array([random.uniform() for _ in parent.center])
            offset = 1e-4 * float(np.linalg.norm(parent.center)) * noise
            centers[2 * index], centers[2 * index + 1] = (self._center(parent.center + sign * offset)
                                                          for sign in (-1, 1))
        children: dict[int, TreeCluster] = {}
        for _ in range(iterations):
            children = self._summaries(centers, set(centers))
            centers = {index: child.center for index, child in children.items()}
        return children

    def _summaries(self, centers: Mapping[int, np.ndarray], summed: set[int]) -> dict[int, TreeCluster]:
        """Return the clusters of the rows that end at some leaves of the tree with some new centres."""
        tables = self._tables({index: cluster.center for index, cluster in self.clusters.items()} | dict(centers),
                              sorted(summed))
        shares = self._points.vmap(_descended, *tables, self._shift, self._by_cosine) \
            .reduceByKey(_add, numKeys=len(summed) + 1).collect()
        numbers = sorted(summed)
        return {numbers[int(key) - 1]: self._cluster(*share) for key, share in shares if key and share[3]}

    def _tables(self, centers: Mapping[int, np.ndarray], summed: list[int]) -> tuple[np.ndarray, ...]:
        """Return the centres, the places of each one's children, 0 where there are none, and the key of its rows."""
        numbers = sorted(centers)
        places = {index: place for place, index in enumerate(numbers)}
        left = [places.get(2 * index, places.get(2 * index + 1, 0)) for index in numbers]
        right = [places.get(2 * index + 1, places.get(2 * index, 0)) for index in numbers]
        keys = [summed.index(index) + 1 if index in summed else 0 for index in numbers]
        return np.array([centers[index] for index in numbers]), np.array(left), np.array(right), np.array(keys)

    def _cluster(self, total: np.ndarray, squares: float, weight: float, size: float) -> TreeCluster:
        if not weight:
            raise Unsuited("all weights of a cluster are 0")
        center = np.asarray(total) / weight
        cost = weight - np.linalg.norm(total) if self._by_cosine else squares - weight * center @ center
        return TreeCluster(int(size), float(weight), self._center(center + self._shift), max(float(cost), 0.0))

    def _center(self, center: np.ndarray) -> np.ndarray:
        return center / np.linalg.norm(center) if self._by_cosine else center


def _descended(x: Any, w: Any, centers: Any, left: Any, right: Any, keys: Any, shift: Any, by_cosine: Any) -> Any:
    """Return the key of the leaf that a row ends at, and the row's sums."""
    u = x / np.sqrt(np.dot(x, x)) if by_cosine else x - shift
    node = 0
    while left[node] > 0:
        a, b = left[node], right[node]
        if by_cosine:
            nearer = np.dot(centers[b], u) > np.dot(centers[a], u)
        else:
            nearer = ((centers[b] - x) ** 2).sum() < ((centers[a] - x) ** 2).sum()
        node = b if nearer else a
    return keys[node], (w * u, w * np.dot(u, u), w, 1.0)


def _add(a: Any, b: Any) -> Any:
    return a[0] + b[0], a[1] + b[1], a[2] + b[2], a[3] + b[3]
