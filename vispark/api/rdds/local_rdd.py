"""RDD of records in the driver: PySpark's own actions on these, without a Spark job.

What workers cannot answer costs a Spark job and a way through Python workers for each record. Of no more than a million
records the same Python code is done sooner in the driver, with the same result, as it is PySpark's own and takes the
same partitions in the same order.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np
from pyspark import RDD, SparkContext

from vispark.translate import TranslationError, trace

#: The most records, and bytes, that an action brings to the driver.
MOST_RECORDS, MOST_BYTES = 1_000_000, 256 << 20

#: The actions of PySpark that need no more than ``mapPartitions`` and ``collect``.
ACTIONS = frozenset((
    "aggregate", "countByKey", "countByValue", "fold", "histogram", "max", "mean", "min", "reduce", "sampleStdev",
    "sampleVariance", "stats", "stdev", "sum", "takeOrdered", "top", "variance"))


class LocalRDD(RDD[Any]):
    """An RDD whose partitions are lists in the driver."""

    def __init__(self, context: SparkContext, partitions: Sequence[Iterable[Any]]):
        self.ctx = context
        self.is_cached = self.is_checkpointed = self.has_resource_profile = False
        self.partitioner = None
        self._partitions = partitions

    def mapPartitionsWithIndex(self, f: Callable[[int, Iterable[Any]], Iterable[Any]],
                               preservesPartitioning: bool = False) -> LocalRDD:
        """Apply a Python function to each partition's records immediately."""
        return LocalRDD(self.ctx, [list(f(number, iter(each))) for number, each in enumerate(self._partitions)])

    def collect(self) -> list[Any]:
        """Return a list of all records."""
        return [record for each in self._partitions for record in each]

    def getNumPartitions(self) -> int:
        """Return the number of partitions."""
        return len(self._partitions)

    def __repr__(self) -> str:
        return f"LocalRDD of {len(self._partitions)} partitions"


def is_harmless(value: object) -> bool:
    """Return whether an argument of an action is a value, or a function without side effects, which may run in the
    driver.

    Examples
    --------
    >>> is_harmless(3), is_harmless(min), is_harmless(print)
    (True, True, False)
    """
    if not callable(value) or isinstance(value, type):
        return True
    if isinstance(value, np.ufunc) or value in (min, max, abs, len) or type(value).__module__ == "operator" \
            or getattr(value, "__module__", "") == "_operator":
        return True
    if not isinstance(value, types.FunctionType | partial):
        return False
    try:
        trace(value)
    except TranslationError:
        return False
    return True
