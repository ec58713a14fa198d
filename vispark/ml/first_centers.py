"""First centres of K-means: rows that are drawn, and centres of these."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np

from vispark import random
from vispark.api.vrdd import VRDD
from vispark.ml.neighbors import nearest_vectors

#: The most of Lloyd's steps among drawn rows, as MLlib has it.
_STEPS = 30
#: Where the draws among them begin, beyond those of rows.
_LOCAL = 1 << 32


@dataclass(frozen=True)
class RowDraws:
    """Draws of different rows, by weight or by weighted squared distance to those before.

    A draw is one pass that gives each row an exponential number divided by what it is drawn by, and takes those with
    the least (Efraimidis and Spirakis, "Weighted random sampling with a reservoir", 2006), and one that fetches them.

    Parameters
    ----------
    points : VRDD
        Records of fields ``x``, ``w`` and ``i``: a row, its weight and its number.
    by_cosine : bool
        Whether distances are one less the cosine; rows are of length one then.
    seed : int
        0 and above.
    """

    points: VRDD
    by_cosine: bool
    seed: int

    def random(self, k: int) -> np.ndarray:
        """Return ``k`` rows by weight; fewer where no more are different."""
        rows = np.zeros((0, self._size()))
        for call in count():
            more = self._more(rows, k, k, call, by_distance=False)
            rows = np.concatenate([rows, more[:k - len(rows)]])
            if not len(more) or len(rows) == k:
                break
        return rows

    def parallel(self, k: int, rounds: int) -> np.ndarray:
        """Return ``k`` centres by k-means|| (Bahmani, Moseley, Vattani, Kumar and Vassilvitskii, 2012).

        One row is drawn by weight, then ``2 * k`` in each round by their squared distance to those before. Each has the
        weight of the rows that it is the nearest of; they are clustered in the driver, by k-means++ and Lloyd's steps.
        There are fewer centres where no more rows are different.
        """
        rows = self._more(np.zeros((0, self._size())), 1, 1, 0, by_distance=False)
        capacity = 1 + 2 * k * rounds
        for call in count(1):
            if call > rounds and len(rows) >= k:
                break
            capacity = max(capacity, len(rows) + 2 * k)
            more = self._more(rows, 2 * k, capacity, call, by_distance=True)
            if not len(more):
                break
            rows = np.concatenate([rows, more])
        if len(rows) <= k:
            return rows
        shares = self.points.vmap(_share, _padded(rows, capacity), np.arange(capacity), len(rows), self.by_cosine)
        weights = np.zeros(len(rows))
        for index, weight in shares.reduceByKey(_add, numKeys=capacity).collect():
            weights[index] = weight
        return _clustered(rows, weights, k, self.seed, by_cosine=self.by_cosine)

    def _size(self) -> int:
        return len(self.points.first()["x"])

    def _more(self, rows: np.ndarray, most: int, capacity: int, call: int, *, by_distance: bool) -> np.ndarray:
        """Return ``most`` other rows at most, in the order in which they are drawn."""
        arguments = (_padded(rows, capacity), np.arange(capacity), by_distance, self.by_cosine, self.seed, call,
                     len(rows))
        _, drawn = nearest_vectors(self.points, _race, arguments, most, _with_numbers)
        if not len(drawn):
            return rows[:0]
        if self.by_cosine:
            drawn /= np.linalg.norm(drawn, axis=1, keepdims=True)
        _, first = np.unique(drawn, axis=0, return_index=True)
        others: np.ndarray = drawn[np.sort(first)]
        return others


def _padded(rows: np.ndarray, capacity: int) -> np.ndarray:
    """Return the rows in an array of always as many, so that kernels are compiled once."""
    padded = np.zeros((capacity, rows.shape[1]))
    padded[:len(rows)] = rows
    return padded


def _clustered(rows: np.ndarray, weights: np.ndarray, k: int, seed: int, *, by_cosine: bool) -> np.ndarray:
    """Return ``k`` centres of weighted rows, by k-means++ (Arthur and Vassilvitskii, 2007) and Lloyd's steps.

    Of some rows that are drawn for a place, that one is taken which leaves the least cost.
    """
    trials = 2 + int(np.log(k))
    chosen: list[int] = []
    nearest = np.ones(len(rows))
    for call in range(k):
        share = weights * nearest
        drawn = -np.log1p(-random.uniform(seed, np.arange(len(rows)), _LOCAL + call))
        race = np.where(share > 0, drawn / np.where(share > 0, share, 1), np.inf)
        before = nearest if call else np.inf
        left = {int(index): np.minimum(before, ((rows - rows[index]) ** 2).sum(axis=1))
                for index in np.argsort(race)[:trials if call else 1]}
        chosen.append(min(left, key=lambda index: float(np.dot(weights, left[index]))))
        nearest = left[chosen[-1]]
    centers, labels = rows[chosen], np.full(len(rows), -1)
    for _ in range(_STEPS):
        before, labels = labels, np.argmin((centers ** 2).sum(axis=1) - 2 * rows @ centers.T, axis=1)
        if (labels == before).all():
            break
        sums, total = np.zeros_like(centers), np.zeros(k)
        np.add.at(sums, labels, weights[:, None] * rows)
        np.add.at(total, labels, weights)
        means = sums / np.where(total > 0, total, 1)[:, None]
        if by_cosine:
            means /= np.where(total > 0, np.linalg.norm(means, axis=1), 1)[:, None]
        centers = np.where(total[:, None] > 0, means, centers)
    return centers


def distances_to(x: Any, centers: Any, by_cosine: Any) -> Any:
    """Return the squared distances of a row to the centres, or one less the cosine to each."""
    if by_cosine:
        return 1 - centers @ x / np.sqrt(np.dot(x, x))
    return ((centers - x) ** 2).sum(axis=1)


def _race(x: Any, w: Any, i: Any, centers: Any, places: Any, by_distance: Any, by_cosine: Any, seed: Any, call: Any,
          count: Any) -> Any:
    """Return the number by which a row is drawn, infinite where it is not to be, and the row's own."""
    nearest = np.where(places < count, distances_to(x, centers, by_cosine), np.inf).min() if count > 0 else 1.0
    share = w * nearest if by_distance else (w if nearest > 0 else 0.0)
    return np.array([-np.log(1 - random.uniform(seed, i, call)) / share if share > 0 else np.inf, np.float64(i)])


def _with_numbers(x: Any, w: Any, i: Any, numbers: Any) -> Any:
    """Return a matrix that has the row at the places of its number, and zeros elsewhere."""
    return np.outer(np.where(numbers == i, 1.0, 0.0), x),


def _share(x: Any, w: Any, i: Any, centers: Any, places: Any, count: Any, by_cosine: Any) -> Any:
    """Return the nearest of the centres that there are, and the row's weight."""
    return np.argmin(np.where(places < count, distances_to(x, centers, by_cosine), np.inf)), w


def _add(a: Any, b: Any) -> Any:
    return a + b
