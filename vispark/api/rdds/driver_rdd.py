"""RDD whose records the driver may have; an ordinary RDD stands for it where Spark is asked for them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any

from pyspark import RDD, StorageLevel
from pyspark.serializers import Serializer

from vispark._utils.boundary import brief_errors


@brief_errors
class DriverRDD(RDD[Any]):
    """RDD whose records the driver may have; as a :class:`ReducedRDD`'s."""

    def __init__(self, context: Any):
        self.ctx = context
        self.is_cached = False
        self.is_checkpointed = False
        self.has_resource_profile = False
        self._bypass_serializer = False
        self._given: RDD[Any] | None = None
        self._lock = threading.RLock()

    def _records(self) -> list[Any] | None:
        """Return the records, in the driver; None if Spark is to compute them."""
        raise NotImplementedError

    def _to_spark(self) -> RDD[Any]:
        """Return the equivalent ordinary RDD."""
        raise NotImplementedError

    def collect(self) -> list[Any]:
        """Return a list of all records."""
        records = self._records()
        return self._substitute().collect() if records is None else records

    def _substitute(self) -> RDD[Any]:
        """Return the RDD that answers where the driver has no records."""
        return self._ordinary()

    def take(self, num: int) -> list[Any]:
        """Return the first ``num`` records."""
        records = self._records()
        return self._substitute().take(num) if records is None else records[:max(num, 0)]

    def first(self) -> Any:
        """Return the first record.

        Raises
        ------
        ValueError
            If there is none.
        """
        records = self.take(1)
        if not records:
            raise ValueError("RDD is empty")
        return records[0]

    def count(self) -> int:
        """Return the number of records."""
        records = self._records()
        return self._substitute().count() if records is None else len(records)

    def isEmpty(self) -> bool:
        """Return whether there are no records."""
        return not self.take(1)

    def mapPartitionsWithIndex(self, f: Callable[[int, Iterable[Any]], Iterable[Any]],
                               preservesPartitioning: bool = False) -> RDD[Any]:
        """Apply a Python function to each partition's records, in Spark."""
        return self._ordinary().mapPartitionsWithIndex(f, preservesPartitioning)

    def getNumPartitions(self) -> int:
        """Return the number of partitions."""
        return self._ordinary().getNumPartitions()

    def id(self) -> int:
        """Return the number of the equivalent ordinary RDD."""
        return self._ordinary().id()

    def getStorageLevel(self) -> StorageLevel:
        """Return the storage level of the equivalent ordinary RDD."""
        return self._ordinary().getStorageLevel()

    def __repr__(self) -> str:
        return type(self).__name__

    @property
    def _jrdd(self) -> Any:
        return self._ordinary()._jrdd

    @property
    def _jrdd_deserializer(self) -> Serializer:  # type: ignore[override]
        return self._ordinary()._jrdd_deserializer

    def _ordinary(self) -> RDD[Any]:
        with self._lock:
            if self._given is None:
                self._given = self._to_spark()
            return self._given
