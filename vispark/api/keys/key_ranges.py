"""Ranges of keys that workers drew, kept so that Spark makes the same partitions where it stands for the workers."""

from __future__ import annotations

import bisect
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from operator import itemgetter
from typing import Any

import numpy as np
from pyspark import RDD

from gpu_worker.protocol.plans import KeyBounds
from vispark.runtime.driver.residency import Residency

#: A pair whose value has the numbers of its partition and place before it.
_Numbered = tuple[Any, tuple[int, int, Any]]


class KeyRanges:
    """Ranges of keys of one sort, once the workers have drawn them.

    Parameters
    ----------
    ascending : bool
        Whether the first partition has the least keys.
    partitions : int
        How many there are.

    Attributes
    ----------
    bounds : list
        The greatest key of each partition but the last, ascending; None until they are known.
    """

    def __init__(self, ascending: bool, partitions: int):
        self.bounds: list[Any] | None = None
        self._draw: Callable[[], object] = lambda: None
        self._ascending, self._partitions = ascending, partitions

    def of(self, target: Residency) -> None:
        """Have the workers draw ranges for a sort, as far as they are not drawn when Spark asks for them."""
        self._draw = partial(_exchange, weakref.ref(target))

    def keep(self, bounds: Sequence[KeyBounds]) -> None:
        """Keep the bounds that workers drew, an array for each item of a key."""
        items = [np.frombuffer(each.data, each.dtype).tolist() for each in bounds]
        self.bounds = list(zip(*items, strict=True)) if len(items) > 1 else items[0] if items else []

    def sorted(self, rdd: RDD[Any]) -> RDD[Any]:
        """Return an RDD of pairs as Spark sorts it: by these ranges, and where keys are equal in the order of ``rdd``;
        by Spark's own ranges where workers draw none.
        """
        if self.bounds is None:
            self._draw()
        if self.bounds is None:
            return RDD.sortByKey(rdd, self._ascending, self._partitions)
        place = partial(_place, self.bounds, self._ascending, self._partitions)
        numbered = RDD.mapPartitionsWithIndex(rdd, _numbered)
        return numbered.partitionBy(self._partitions, place).mapPartitions(partial(_in_order, self._ascending), True)


def _exchange(target: weakref.ref[Residency]) -> None:
    residency = target()
    if residency is not None and residency.exchange is not None:
        residency.exchange()


def _place(bounds: Sequence[Any], ascending: bool, partitions: int, key: Any) -> int:
    """Return the partition of a key: how many bounds are below it, counted from the last one where they descend."""
    below = bisect.bisect_left(bounds, key)
    return below if ascending else partitions - 1 - below


def _numbered(partition: int, pairs: Iterable[tuple[Any, Any]]) -> Iterator[_Numbered]:
    for place, (key, value) in enumerate(pairs):
        yield key, (partition, place, value)


def _in_order(ascending: bool, pairs: Iterable[_Numbered]) -> Iterator[tuple[Any, Any]]:
    ordered = sorted(pairs, key=lambda pair: pair[1][:2])
    ordered.sort(key=itemgetter(0), reverse=not ascending)
    return ((key, value) for key, (_, _, value) in ordered)
