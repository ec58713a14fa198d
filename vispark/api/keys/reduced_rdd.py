"""RDD that ``reduceByKey`` of a VRDD returns: few records, which the driver has as soon as they are asked for.

What answers from these records needs no Spark job. For everything else that an RDD does they are given to Spark, in
the partitions where a shuffle would have put them. Where the fold cannot run in the workers, Spark's own
``reduceByKey`` over ``recv`` stands for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any

import numpy as np
from pyspark import RDD
from pyspark.rdd import Partitioner, portable_hash

from vispark._utils.boundary import brief_errors
from vispark._utils.displays import Explanation
from vispark.api.keys import keyed
from vispark.api.keys.keyed_joins import reduced_by
from vispark.api.operations.worker_folds import folded
from vispark.api.rdds.driver_rdd import DriverRDD
from vispark.api.rdds.plan_texts import explained
from vispark.api.rdds.recorded_rdd import RecordedRDD
from vispark.data.records import RecordLayout
from vispark.errors import PlanError
from vispark.plan.fold import fold_of
from vispark.plan.fold.lowering import ByKey, DoublePrecisionFold, by_key, finish_by_key, records, widened
from vispark.translate.frontend.capture import Referable
from vispark.translate.ir.errors import Refusal
from vispark.translate.ir.nodes import Constant


@brief_errors
class ReducedRDD(DriverRDD, Referable):
    """RDD of the pairs that ``reduceByKey`` of a VRDD returns.

    The fold runs at the first action, or where something other than an action asks Spark for the records, and once.
    With ``numKeys=`` it is an argument of functions by reference, of which ``t[k]`` is the value of key ``k``; its
    values then never come to the driver. See :class:`KeyedTable`.
    """

    def __init__(self, source: RecordedRDD, function: Callable[[Any, Any], Any], numPartitions: int | None,
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
        #: Whether values are joined by a function that is no operator, and why it is none.
        self._is_joined, self._why = isinstance(spec, str), str(spec)
        self._request: ByKey | str = spec if isinstance(spec, str) else \
            by_key(spec, int(numKeys), double) if numKeys is not None else "numKeys= was not given"
        self._pairs: tuple[RecordLayout, dict[str, np.ndarray]] | None = None
        self._evaluated = False
        #: The rows of each key, where workers make these first.
        self._rows: Any = None

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
        table: np.ndarray = self.table.toNumpy()
        return table

    def constant(self, what: str) -> Constant:
        """Return the values by reference; see :class:`Referable`."""
        try:
            constant: Constant = self.table.constant(what)
        except PlanError as error:
            raise Refusal(f"{what}: {error.message}") from error
        return constant

    def keys(self) -> RDD[Any]:
        """Return the keys."""
        return _Items(self, 0)

    def values(self) -> RDD[Any]:
        """Return the values."""
        return _Items(self, 1)

    def getNumPartitions(self) -> int:
        """Return the number of partitions that was requested."""
        return int(self.partitioner.numPartitions)

    def explain(self, *, schema: Any = None, sources: bool = False) -> None:
        """Print the plan as ``VRDD.explain`` does, with the fold, where the fold runs, and why."""
        print(self.explanation(schema=schema, sources=sources))

    def explanation(self, *, schema: Any = None, sources: bool = False) -> Explanation:
        """Return the text that :meth:`explain` prints."""
        if self._in_workers is not None:
            reduced: Any = self._in_workers
            return Explanation(reduced.explanation(schema=schema, sources=sources))
        return explained(self._source, self._request, schema, sources)

    @cached_property
    def _is_table(self) -> bool:
        """Whether values are folded into a table of all keys, and not sorted by key."""
        request = self._request
        if self._is_joined or not isinstance(request, ByKey):
            return False
        if not request.has_many_keys or self._double or "table" in self.__dict__ or not self._source._is_held():
            return True
        contents = [each for each in self._source._results() if each.count]
        return not contents or not request.why_no_table(contents)

    @cached_property
    def _in_workers(self) -> RDD[Any] | None:
        """The VRDD that workers make by a sort; None where there is a table of all keys, or where Spark is to fold."""
        if self._double or self._is_table:
            return None
        partitioner = self.partitioner
        reduced: RDD[Any] | None
        if self._is_joined and partitioner.partitionFunc is portable_hash:
            joined = reduced_by(self._source, self._function, self._why, partitioner.numPartitions)
            self._rows, reduced = joined or (None, None)
        else:
            reduced = keyed.reduced(self._source, self._function, partitioner.numPartitions, partitioner.partitionFunc)
        if reduced is None:
            self._request = str(self._source._folds.get("reduceByKey", ""))
        return reduced

    @cached_property
    def _held(self) -> RDD[Any] | None:
        """The same once workers have made it; None where they found that Spark is to fold."""
        reduced: Any = self._in_workers
        exchanged = reduced if self._rows is None else self._rows
        return reduced if reduced is not None and exchanged._is_exchanged() else None

    def _substitute(self) -> RDD[Any]:
        return self._ordinary() if self._held is None else self._held

    def _records(self) -> list[Any] | None:
        if "table" not in self.__dict__ and not self._is_table:
            return None
        with self._lock:
            if not self._evaluated:
                self._pairs = self._folded()
                self._evaluated = True
        return None if self._pairs is None else list(records(*self._pairs))

    def _folded(self) -> tuple[RecordLayout, dict[str, np.ndarray]] | None:
        if "table" in self.__dict__:
            pairs: tuple[RecordLayout, dict[str, np.ndarray]] | None = self.table.pairs()
            return pairs
        fold = folded(self._source, self._request, "reduceByKey")
        return None if fold is None else finish_by_key(*fold)

    def _to_spark(self) -> RDD[Any]:
        partitions, place = self.partitioner.numPartitions, self.partitioner.partitionFunc
        if self._held is not None:
            reduced: Any = self._held
            received: RDD[Any] = reduced.recv()
            return received
        records = self._records()
        if records is None and self._double:
            folded = RDD.reduceByKey(self._source, DoublePrecisionFold(self._function), partitions, place)
            return folded.mapValues(widened)
        if records is None:
            return RDD.reduceByKey(self._source, self._function, partitions, place)
        if place is portable_hash:
            place = hash        # of numbers it is the same, and works where PYTHONHASHSEED is not set
        parts: list[list[Any]] = [[] for _ in range(partitions)]
        for record in records:
            parts[place(record[0]) % partitions].append(record)
        pairs = self.ctx.parallelize(parts, partitions).mapPartitions(_only, preservesPartitioning=True)
        pairs.partitioner = self.partitioner
        return pairs


class _Items(DriverRDD):
    """RDD of the keys or the values of a :class:`ReducedRDD`."""

    def __init__(self, pairs: ReducedRDD, item: int):
        super().__init__(pairs.ctx)
        self.partitioner = None
        self._of = pairs
        self._item = item

    def _substitute(self) -> RDD[Any]:
        pairs = self._of._held
        return self._ordinary() if pairs is None else pairs.keys() if self._item == 0 else pairs.values()

    def _records(self) -> list[Any] | None:
        pairs = self._of._records()
        return None if pairs is None else [record[self._item] for record in pairs]

    def _to_spark(self) -> RDD[Any]:
        pairs = self._of._ordinary()
        return pairs.keys() if self._item == 0 else pairs.values()


def _only(parts: Iterable[list[Any]]) -> Iterable[Any]:
    """Return the records of a partition that is one list."""
    part, = parts
    return part

