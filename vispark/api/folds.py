"""The actions of a VRDD that fold its records: in the workers where the function can be lowered, else by Spark."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, TypeVar

import numpy as np
from pyspark.rdd import portable_hash

from gpu_worker.protocol.messages import FoldByKeyStep, FoldStep
from vispark.api.boundary import brief_errors
from vispark.api.fallback import tell
from vispark.api.joins import is_neutral, joined
from vispark.api.reduced_rdd import Foldable, ReducedRDD
from vispark.errors import PlanError
from vispark.fold import FoldSpec, fold_of
from vispark.fold.aggregation import Aggregation, aggregation_of, parts_of, total
from vispark.fold.lowering import (
    FoldRequest,
    Folds,
    InDouble,
    Reduce,
    Sum,
    Total,
    check_double,
    finish,
    finish_number,
    reduce_by,
    type_of,
    widened,
)
from vispark.lower.stages import RequestedOutput, to_fold
from vispark.plan.map_call import MapSpec
from vispark.records.layout import BY_NAME
from vispark.records.partition_schema import PartitionSchema
from vispark.runtime.driver.result import PartialResult
from vispark.translate import TranslationError

log = logging.getLogger(__name__)

_Fold = TypeVar("_Fold", FoldStep, FoldByKeyStep)

#: Stands for a fold whose result is not what Python would give.
_UNTRUSTED = object()


@brief_errors
class FoldActions(Foldable):
    """Fold actions of a VRDD. On cached data the folds run in the workers, and each worker returns one record."""

    def reduce(self, f: Callable[[Any, Any], Any], dtype: Any = None) -> Any:
        """Fold all records into one.

        On cached data the fold runs in the workers: by an associative operator (``operator.add``, ``np.maximum`` and
        the like), by a Python function that joins its two values so, tuples part by part, and by any other function
        that the translator takes, which gives a record like those that it takes: neighbours are joined by it until one
        record of each partition is left. Else it is a Spark job over ``recv``.

        Parameters
        ----------
        f : callable
            Joins two records, of any number that were joined before; associative. Where it is no operator, it is first
            called on the first seven records, to see whether it is associative; if not, Spark folds.
        dtype : dtype, optional
            ``np.float64`` gives sums of float32 as they are added up, as line searches need them; without it they are
            float32, as PySpark's are.

        Raises
        ------
        PlanError
            If ``dtype`` is another one.

        Examples
        --------
        >>> sc.parallelize([3.0, 1.0, 2.0]).cache("GPU").reduce(lambda a, b: a if a < b else b)
        1.0
        >>> sc.parallelize([3.0, -4.0, 2.0]).cache("GPU").reduce(lambda a, b: a if abs(a) > abs(b) else b)
        -4.0
        >>> import numpy as np
        >>> rows = sc.parallelize([np.float32([1, 2]), np.float32([2**-30, 1])]).cache("GPU")
        >>> rows.reduce(lambda a, b: a + b, dtype=np.float64).tolist()
        [1.0000000009313226, 3.0]
        """
        double = check_double("reduce", dtype)

        def spark() -> Any:
            return widened(self._spark("reduce", InDouble(f))) if double else self._spark("reduce", f)

        spec = fold_of(f)
        if isinstance(spec, str) and not double:
            joined = self._joined("reduce", f, spec)
            return spark() if joined is None else joined[0]
        request: Reduce | str = spec if isinstance(spec, str) else reduce_by(spec, double)
        found = self.folded(request, "reduce")
        return spark() if found is None else finish(*found, spark)

    def _joined(self, action: str, f: Callable[[Any, Any], Any], reason: str) -> tuple[Any] | None:
        """Return the fold by a function that is no operator, in the workers; None, with the reason recorded, if Spark
        is to fold.
        """
        found = joined(self, action, f)
        if not isinstance(found, str):
            return found
        self.folded(f"{reason}; and it is not run as a function: {found}" if self._is_held() else reason, action)
        return None

    def treeReduce(self, f: Callable[[Any, Any], Any], depth: int = 2) -> Any:
        """Fold all records into one as :meth:`reduce` does; if Spark does the fold, in ``depth`` steps."""
        return self.reduce(f) if depth > 0 else self._spark("treeReduce", f, depth)

    def fold(self, zeroValue: Any, op: Callable[[Any, Any], Any]) -> Any:
        """Fold all records into one, each partition from ``zeroValue`` on; in the workers where :meth:`reduce` is."""
        spec = fold_of(op)
        if isinstance(spec, str) and is_neutral(self, zeroValue, op):
            joined = self._joined("fold", op, spec)
            if joined is not None:
                return op(zeroValue, joined[0])
        return self._total("fold", zeroValue, op, self, spec, lambda: self._spark("fold", zeroValue, op))

    def aggregate(self, zeroValue: Any, seqOp: Callable[[Any, Any], Any], combOp: Callable[[Any, Any], Any]) -> Any:
        """Fold each record into a total, each partition's from ``zeroValue`` on, and combine the partitions' totals.

        On cached elements this is a ``vmap`` and a fold in the workers, where ``seqOp`` joins each part of its total
        with something that it computes of the record alone, ``combOp`` joins by the same operators, and Python's
        numbers would not overflow or raise on the way. Else it is a Spark job over ``recv``.

        Examples
        --------
        >>> numbers = sc.parallelize([1.0, 2.0, 4.0]).cache("GPU")
        >>> numbers.aggregate((0.0, 0), lambda t, x: (t[0] + x, t[1] + 1), lambda a, b: (a[0] + b[0], a[1] + b[1]))
        (7.0, 3)
        """
        return self._aggregate("aggregate", zeroValue, seqOp, combOp)

    def treeAggregate(self, zeroValue: Any, seqOp: Callable[[Any, Any], Any], combOp: Callable[[Any, Any], Any],
                      depth: int = 2) -> Any:
        """Aggregate as :meth:`aggregate` does, but join the parts in the driver without ``zeroValue``; in Spark in
        ``depth`` steps.
        """
        if depth < 1:
            return self._spark("treeAggregate", zeroValue, seqOp, combOp, depth)
        return self._aggregate("treeAggregate", zeroValue, seqOp, combOp, depth)

    def _aggregate(self, action: str, zero: Any, step: Callable[[Any, Any], Any], combine: Callable[[Any, Any], Any],
                   *depth: int) -> Any:
        def spark() -> Any:
            return self._spark(action, zero, step, combine, *depth)

        found = aggregation_of(step, combine)
        if isinstance(found, str):
            return self._total(action, zero, combine, self, found, spark)
        reason = self._risk(found)
        mapped = self if reason else self._recorded(MapSpec(found.mapped, (), f"{action} {found.mapped.name}", "row"))
        try:
            return self._total(action, zero, combine, mapped, reason or found.fold, spark)
        except TranslationError as error:
            self._folds[action] = str(error)
            return spark()

    def _risk(self, found: Aggregation) -> str:
        """Return the reason not to compute a function of records in the workers, if Python's numbers may overflow or
        raise in it; else "".
        """
        if not self._is_held():
            return ""
        layouts = [content.layout for content in self._results()]
        if any(layout.kind != "elements" for layout in layouts):
            return "it takes records whole, and a vmap of blocks takes their rows"
        types = {name for layout in layouts for part in layout.parts for name in part.types}
        if found.calculates and not types.isdisjoint(("int", "bool")):
            return "Python's ints have no bounds, and what is computed of them may overflow"
        if found.divides and not types.isdisjoint(BY_NAME):
            return "what is computed of Python's numbers may raise"
        return ""

    def _total(self, action: str, zero: Any, combine: Callable[[Any, Any], Any], mapped: FoldActions,
               spec: FoldSpec | str, spark: Callable[[], Any]) -> Any:
        request: Total | str = spec if isinstance(spec, str) else "what it starts from has not the parts of a record"
        if not isinstance(spec, str):
            spec = spec.of_parts(map(str, range(len(zero)))) if isinstance(zero, tuple) and zero else spec
            with suppress(LookupError, TypeError):
                parts = parts_of(zero, [leaf.place for leaf in spec.leaves])
                request = Total(spec, tuple((place, type_of(part)) for place, part in parts.items()))
        found = mapped.folded(request, action)
        self._folds.update(mapped._folds)
        folded = _UNTRUSTED if found is None else finish(*found, lambda: _UNTRUSTED)
        times = self.getNumPartitions() - (action == "treeAggregate")
        return spark() if folded is _UNTRUSTED else total(zero, times, folded, combine)

    def sum(self, dtype: Any = None) -> Any:
        """Return the sum of all records.

        Parameters
        ----------
        dtype : dtype, optional
            ``np.float64`` gives the sum of float32 as it is added up, as line searches and residuals need it; without
            it the sum is float32, as PySpark's is.

        Raises
        ------
        PlanError
            If ``dtype`` is another one.

        Examples
        --------
        >>> import numpy as np
        >>> numbers = sc.parallelize([np.float32(1), np.float32(2**-30)]).cache("GPU")
        >>> numbers.sum(), numbers.sum(np.float64)
        (np.float32(1.0), np.float64(1.0000000009313226))
        """
        found = self.folded(Sum(double=check_double("sum", dtype)), "sum")
        # Python's sum starts with 0, which makes ints of bools.
        total = self._spark("sum") if found is None else 0 + finish(*found, lambda: self._spark("sum"))
        single = isinstance(total, np.generic | np.ndarray) and total.dtype == np.float32
        return total.astype(np.float64)[()] if single and dtype is not None else total

    def min(self, key: Callable[[Any], Any] | None = None) -> Any:
        """Return the least record, or the first with the least ``key``; workers find it as ``takeOrdered`` does.

        Examples
        --------
        >>> sc.parallelize([3.0, -1.0, 1.0], 2).cache("GPU").min(key=lambda x: x * x)
        -1.0
        """
        return self.reduce(min) if key is None else self._first_by("min", key)

    def max(self, key: Callable[[Any], Any] | None = None) -> Any:
        """Return the greatest record, or the first with the greatest ``key``; workers find it as ``top`` does."""
        return self.reduce(max) if key is None else self._first_by("max", key)

    def mean(self) -> Any:
        """Return the mean of all records."""
        found = self.folded(Sum(mean=True), "mean")
        if found is None:
            return self._spark("mean")
        count, total = finish_number(*found)
        mean = total / count
        if not np.isfinite(mean).all():     # Spark's running mean may be NaN where the mean is infinite
            return self._spark("mean")
        part, = found[1][0][2].layout.parts
        if part.form == "array" or part.types[0] not in BY_NAME:
            return mean.astype(np.float32)[()] if part.dtype == np.float32 else mean[()]
        return mean.item()

    def reduceByKey(self, func: Callable[[Any, Any], Any], numPartitions: int | None = None,
                    partitionFunc: Callable[[Any], int] = portable_hash, *,
                    numKeys: int | None = None, dtype: Any = None) -> ReducedRDD:
        """Fold the values of each key.

        Parameters
        ----------
        func : callable
            Of two values, associative and commutative.
        numPartitions, partitionFunc
            As for any RDD.
        numKeys : int
            Promises that the keys are ints in [0, numKeys), computed by a ``vmap``. On cached data the fold then runs
            in the workers if ``func`` can be lowered, as for :meth:`reduce`, in tables with a cell for each key; it is
            a Spark job where these would have more than 2 GiB, or more than 32768 keys and 8 for each record.
        dtype : dtype, optional
            ``np.float64`` gives sums of float32 as they are added up, as for :meth:`reduce`.

        Returns
        -------
        ReducedRDD
            ``collect``, ``collectAsMap``, ``keys``, ``values``, ``count``, ``take`` and ``first`` of it need no Spark
            job where the fold ran in the workers; its ``explain`` says whether it does.

        Raises
        ------
        PlanError
            If ``numKeys`` is not positive, or ``dtype`` another one; at the action, if a key is not below ``numKeys``.

        Examples
        --------
        >>> points = sc.parallelize([1.0, 2.0, 3.0, 4.0]).cache("GPU")
        >>> pairs = points.vmap(lambda x: (1 if x > 2.5 else 0, x))
        >>> pairs.reduceByKey(lambda a, b: a + b, numKeys=2).collect()
        [(0, 3.0), (1, 7.0)]
        """
        return ReducedRDD(self, func, numPartitions, partitionFunc, numKeys, check_double("reduceByKey", dtype))

    def _refuse_blocks(self, action: str) -> None:
        """Refuse sums and extremes of (key, block) pairs, and of a grid's blocks that do not lie over each other."""
        if action not in ("sum", "mean") or not self._is_held():
            return
        results = [content for content in self._results() if content.count]
        if any(content.layout.grid is not None for content in results):
            raise PlanError(f"{action}() is of records, which are pairs of a block's key and its cells here. Of all "
                            "cells: Grid.sum(blocks), Grid.min, Grid.max, Grid.norm, Grid.dot")
        shapes = {signature.fields[0].shape for content in results for signature in content.signatures
                  if signature.fields}
        if len(shapes) > 1 and all(each.layout.kind == "blocks" for each in results):
            raise PlanError(f"{action}() adds the arrays of records over each other, and these have the shapes "
                            f"{', '.join(map(str, sorted(shapes)))}. Of all cells of a Grid: Grid.sum(blocks)")

    def folded(self, request: FoldRequest[_Fold] | str, action: str) -> tuple[_Fold, Folds] | None:
        """Run a fold in the workers and return its result; None, with the reason recorded, if the workers cannot run
        it.
        """
        fold: Any = request
        if not isinstance(request, str):
            answer = self._evaluate(range(self.getNumPartitions()), to_fold(fold)) if self._is_held() else None
            fold = answer.fold if answer else "nothing is cached"
        if isinstance(fold, str):
            self._refuse_blocks(action)
            log.info("%s() of VRDD %s is a Spark job: %s", action, self._shown(), fold)
            self._folds[action] = fold
            if action == "reduceByKey" and self._is_held():
                tell(self.ctx, action, f"VRDD {self._shown()}", fold)
            return None
        self._folds[action] = fold
        if not isinstance(request, str):
            self._requests[action] = request
        assert answer is not None
        return fold, [answer.folds[first] for first in sorted(answer.folds)]

    # -- what a VRDD knows of itself ----------------------------------------------------------------------------------

    #: The fold that each action ran last, or why it was a Spark job.
    _folds: dict[str, FoldStep | FoldByKeyStep | str]
    #: What was asked for by those that ran in the workers.
    _requests: dict[str, FoldRequest[Any]]

    @abstractmethod
    def _first_by(self, action: str, key: Callable[[Any], Any]) -> Any: ...

    @abstractmethod
    def _recorded(self, spec: MapSpec) -> FoldActions: ...

    @abstractmethod
    def _is_held(self) -> bool: ...

    @abstractmethod
    def _shown(self) -> str: ...

    @abstractmethod
    def _results(self) -> list[PartitionSchema]: ...

    @abstractmethod
    def _evaluate(self, partitions: Iterable[int], requested: RequestedOutput) -> PartialResult: ...

    @abstractmethod
    def _spark(self, action: str, *arguments: Any, **named: Any) -> Any: ...
