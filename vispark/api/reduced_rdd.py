"""RDD that ``reduceByKey`` of a VRDD returns: few records, which the driver has as soon as they are asked for.

What answers from these records needs no Spark job. For everything else that an RDD does they are given to Spark, in
the partitions where a shuffle would have put them. Where the fold cannot run in the workers, Spark's own
``reduceByKey`` over ``recv`` stands for it.
"""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any

import numpy as np
from pyspark import RDD, StorageLevel
from pyspark.rdd import Partitioner, portable_hash
from pyspark.serializers import Serializer

from vispark._utils.displays import Explanation
from vispark.api.boundary import brief_errors
from vispark.errors import PlanError
from vispark.fold import fold_of
from vispark.fold.lowering import ByKey, InDouble, by_key, finish_by_key, records, widened
from vispark.records import RecordLayout
from vispark.translate.frontend.capture import Referable
from vispark.translate.ir.errors import Refusal
from vispark.translate.ir.nodes import Constant


@brief_errors
class DriverRDD(RDD[Any]):
    """RDD whose records the driver may have; see :class:`ReducedRDD`."""

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
        found = self._records()
        return self._stands().collect() if found is None else found

    def _stands(self) -> RDD[Any]:
        """Return the RDD that answers where the driver has no records."""
        return self._ordinary()

    def take(self, num: int) -> list[Any]:
        """Return the first ``num`` records."""
        found = self._records()
        return self._stands().take(num) if found is None else found[:max(num, 0)]

    def first(self) -> Any:
        """Return the first record.

        Raises
        ------
        ValueError
            If there is none.
        """
        found = self.take(1)
        if not found:
            raise ValueError("RDD is empty")
        return found[0]

    def count(self) -> int:
        """Return the number of records."""
        found = self._records()
        return self._stands().count() if found is None else len(found)

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


class Foldable(RDD[Any]):
    """Interface of an RDD whose records workers can fold by key."""

    @abstractmethod
    def folded(self, request: Any, action: str) -> tuple[Any, ...] | None:
        """Return the fold of the records, by the workers; None if Spark is to fold them."""

    @abstractmethod
    def _reduced(self, function: Callable[[Any, Any], Any], partitions: int,
                 place: Callable[[Any], int]) -> RDD[Any] | None:
        """Return the RDD that workers fold by keys of which nothing is known before; None if Spark is to fold them."""

    @abstractmethod
    def _table(self, request: Any, function: Callable[[Any, Any], Any], keys: int | None,
               double: bool) -> Any:
        """Return the table of a fold, which stays in the workers."""

    @abstractmethod
    def _reason_of(self, action: str) -> str:
        """Return the reason why an action is a Spark job."""

    @abstractmethod
    def _explained(self, by_key: ByKey | str, schema: Any, sources: bool) -> Explanation:
        """Return the text of ``explain``, with the ``reduceByKey`` behind this VRDD or why it is a Spark job."""


@brief_errors
class ReducedRDD(DriverRDD, Referable):
    """RDD of the pairs that ``reduceByKey`` of a VRDD returns.

    The fold runs at the first action, or where something other than an action asks Spark for the records, and once.
    With ``numKeys=`` it is an argument of functions by reference, of which ``t[k]`` is the value of key ``k``; its
    values then never come to the driver. See :class:`KeyedTable`.
    """

    def __init__(self, source: Foldable, function: Callable[[Any, Any], Any], numPartitions: int | None,
                 partitionFunc: Callable[[Any], int], numKeys: int | None, double: bool = False):
        if numKeys is not None and (not isinstance(numKeys, int | np.integer) or numKeys < 1):
            raise PlanError(f"numKeys= is the number of keys, a positive int, and not {numKeys!r}")
        super().__init__(source.ctx)
        self._source = source
        self._places = numPartitions, partitionFunc, numKeys is not None
        self._function = function
        self._keys = 0 if numKeys is None else int(numKeys)
        self._double = double
        spec = fold_of(function)
        self._request: ByKey | str = spec if isinstance(spec, str) else \
            by_key(spec, int(numKeys), double) if numKeys is not None else "numKeys= was not given"
        self._pairs: tuple[RecordLayout, dict[str, np.ndarray]] | None = None
        self._evaluated = False

    @cached_property
    def partitioner(self) -> Partitioner:  # type: ignore[override]
        """The partitioner of Spark's shuffle; created when it is first asked for, as that takes a call of the JVM."""
        partitions, place, _ = self._places
        return Partitioner(self._source._defaultReducePartitions() if partitions is None else partitions, place)

    def collectAsMap(self) -> dict[Any, Any]:
        """Return the pairs as a dict."""
        return dict(self.collect())

    @cached_property
    def table(self) -> Any:
        """The table of the values by key, a :class:`KeyedTable`, which stays in the workers.

        Raises
        ------
        PlanError
            If ``numKeys=`` was not given.
        """
        if not self._places[2]:
            raise PlanError("a table has a row for each key below numKeys, which was not given: reduceByKey(f, "
                            "numKeys=n)")
        return self._source._table(self._request, self._function, self._keys, self._double)

    def vmap(self, f: Callable[..., Any], *arguments: Any) -> Any:
        """Apply a plain Python function to each value, on the device, as :meth:`KeyedTable.vmap` does."""
        return self.table.vmap(f, *arguments)

    def toNumpy(self) -> np.ndarray:
        """Return the values by key as one array; see :meth:`KeyedTable.toNumpy`."""
        found: np.ndarray = self.table.toNumpy()
        return found

    def constant(self, what: str) -> Constant:
        """Return the values by reference; see :class:`Referable`."""
        try:
            found: Constant = self.table.constant(what)
        except PlanError as error:
            raise Refusal(f"{what}: {error.message}") from error
        return found

    def keys(self) -> RDD[Any]:
        """Return the keys."""
        return _Items(self, 0)

    def values(self) -> RDD[Any]:
        """Return the values."""
        return _Items(self, 1)

    def getNumPartitions(self) -> int:
        """Return the number of partitions that was requested."""
        return self.partitioner.numPartitions

    def explain(self, *, schema: Any = None, sources: bool = False) -> None:
        """Print the plan as ``VRDD.explain`` does, with the fold, where the fold runs, and why."""
        print(self.explanation(schema=schema, sources=sources))

    def explanation(self, *, schema: Any = None, sources: bool = False) -> Explanation:
        """Return the text that :meth:`explain` prints."""
        if self._in_workers is not None:
            made: Any = self._in_workers
            return Explanation(made.explanation(schema=schema, sources=sources))
        return self._source._explained(self._request, schema, sources)

    @cached_property
    def _in_workers(self) -> RDD[Any] | None:
        """The VRDD that workers make where the number of keys was not given; None where Spark is to fold."""
        if self._places[2] or self._double:
            return None
        made = self._source._reduced(self._function, self.partitioner.numPartitions, self.partitioner.partitionFunc)
        if made is None:
            self._request = self._source._reason_of("reduceByKey")
        return made

    @cached_property
    def _held(self) -> RDD[Any] | None:
        """The same once workers have made it; None where they found that Spark is to fold."""
        made: Any = self._in_workers
        return made if made is not None and made._is_exchanged() else None

    def _stands(self) -> RDD[Any]:
        return self._ordinary() if self._held is None else self._held

    def _records(self) -> list[Any] | None:
        if not self._places[2]:
            return None
        with self._lock:
            if not self._evaluated:
                self._pairs = self._folded()
                self._evaluated = True
        return None if self._pairs is None else list(records(*self._pairs))

    def _folded(self) -> tuple[RecordLayout, dict[str, np.ndarray]] | None:
        if "table" in self.__dict__:
            return self.table.pairs()
        found = self._source.folded(self._request, "reduceByKey")
        return None if found is None else finish_by_key(*found)

    def _to_spark(self) -> RDD[Any]:
        partitions, place = self.partitioner.numPartitions, self.partitioner.partitionFunc
        if self._held is not None:
            made: Any = self._held
            return made.recv()
        found = self._records()
        if found is None and self._double:
            return RDD.reduceByKey(self._source, InDouble(self._function), partitions, place).mapValues(widened)
        if found is None:
            return RDD.reduceByKey(self._source, self._function, partitions, place)
        if place is portable_hash:
            place = hash        # of numbers it is the same, and works where PYTHONHASHSEED is not set
        parts: list[list[Any]] = [[] for _ in range(partitions)]
        for record in found:
            parts[place(record[0]) % partitions].append(record)
        given = self.ctx.parallelize(parts, partitions).mapPartitions(_only, preservesPartitioning=True)
        given.partitioner = self.partitioner
        return given


class _Items(DriverRDD):
    """RDD of the keys or the values of a :class:`ReducedRDD`."""

    def __init__(self, pairs: ReducedRDD, item: int):
        super().__init__(pairs.ctx)
        self.partitioner = None
        self._of = pairs
        self._item = item

    def _stands(self) -> RDD[Any]:
        made = self._of._held
        return self._ordinary() if made is None else made.keys() if self._item == 0 else made.values()

    def _records(self) -> list[Any] | None:
        found = self._of._records()
        return None if found is None else [record[self._item] for record in found]

    def _to_spark(self) -> RDD[Any]:
        given = self._of._ordinary()
        return given.keys() if self._item == 0 else given.values()


def _only(parts: Iterable[list[Any]]) -> Iterable[Any]:
    """Return the records of a partition that is one list."""
    part, = parts
    return part

