"""The actions of a VRDD that fold its records: in the workers where the function can be lowered, else by Spark."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import numpy as np
from pyspark import RDD
from pyspark.rdd import portable_hash

from gpu_worker.protocol.messages import Fold, FoldByKey
from vispark.fold.lowering import Folds, finish, finish_number, lower_fold, lower_sum
from vispark.lower import Content
from vispark.records.layout import BY_NAME
from vispark.reduced import ReducedRDD
from vispark.rewrite import Goal
from vispark.session import Answer

log = logging.getLogger(__name__)

_Fold = TypeVar("_Fold", Fold, FoldByKey)


class FoldActions(RDD[Any]):
    """What a VRDD folds. On cached data the folds run in the workers, and a record of each worker comes back."""

    def reduce(self, f: Callable[[Any, Any], Any]) -> Any:
        """Fold all records into one.

        On cached data the fold runs in the workers where ``f`` is an associative operator (``operator.add``,
        ``np.maximum`` and the like) or a Python function that joins its two values so, tuples part by part; else it is
        a Spark job over ``recv``.

        Examples
        --------
        >>> sc.parallelize([3.0, 1.0, 2.0]).cache("GPU").reduce(lambda a, b: a if a < b else b)
        1.0
        """
        def spark() -> Any:
            return self._spark("reduce", f)

        found = self.folded(lambda contents: lower_fold(f, contents), "reduce")
        return spark() if found is None else finish(*found, spark)

    def sum(self) -> Any:
        """The sum of all records."""
        found = self.folded(lambda contents: lower_sum(contents, mean=False), "sum")
        # Python's sum starts with 0, which makes ints of bools.
        return self._spark("sum") if found is None else 0 + finish(*found, lambda: self._spark("sum"))

    def min(self, key: Callable[[Any], Any] | None = None) -> Any:
        """The least record, or that of the least ``key``."""
        return self.reduce(min) if key is None else self._spark("min", key)

    def max(self, key: Callable[[Any], Any] | None = None) -> Any:
        """The greatest record, or that of the greatest ``key``."""
        return self.reduce(max) if key is None else self._spark("max", key)

    def mean(self) -> Any:
        """The mean of all records."""
        found = self.folded(lambda contents: lower_sum(contents, mean=True), "mean")
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
                    numKeys: int | None = None) -> ReducedRDD:
        """Fold the values of each key.

        Parameters
        ----------
        func : callable
            Of two values, associative and commutative.
        numPartitions, partitionFunc
            As for any RDD.
        numKeys : int
            Promises that the keys are ints in [0, numKeys), computed by a ``vmap``. On cached data the fold then runs
            in the workers if ``func`` can be lowered, as for :meth:`reduce`.

        Returns
        -------
        ReducedRDD
            ``collect``, ``collectAsMap``, ``keys``, ``values``, ``count``, ``take`` and ``first`` of it need no Spark
            job where the fold ran in the workers; its ``explain`` says whether it does.

        Raises
        ------
        PlanError
            If ``numKeys`` is not positive; at the action, if a key is not below it.

        Examples
        --------
        >>> points = sc.parallelize([1.0, 2.0, 3.0, 4.0]).cache("GPU")
        >>> pairs = points.vmap(lambda x: (1 if x > 2.5 else 0, x))
        >>> pairs.reduceByKey(lambda a, b: a + b, numKeys=2).collect()
        [(0, 3.0), (1, 7.0)]
        """
        return ReducedRDD(self, func, numPartitions, partitionFunc, numKeys)

    def folded(self, lower: Callable[[list[Content]], _Fold | str], action: str) -> tuple[_Fold, Folds] | None:
        """Run a fold in the workers; what they gave. None where it cannot run there, for reasons that are logged."""
        fold = self.lowered(lower)
        if isinstance(fold, str):
            log.info("%s() of %r is a Spark job: %s", action, self, fold)
            return None
        found = self._evaluate(range(self.getNumPartitions()), Goal(fold=fold)).folds
        return fold, [found[first] for first in sorted(found)]

    def lowered(self, lower: Callable[[list[Content]], _Fold | str]) -> _Fold | str:
        """The fold for what is cached, or why there is none."""
        if not self._is_held():
            return "nothing is cached"
        contents = [content for content in self._results() if content.count]
        return lower(contents) if contents else "there are no records"

    # -- what a VRDD knows of itself ----------------------------------------------------------------------------------

    @abstractmethod
    def _is_held(self) -> bool: ...

    @abstractmethod
    def _results(self) -> list[Content]: ...

    @abstractmethod
    def _evaluate(self, partitions: Iterable[int], goal: Goal) -> Answer: ...

    @abstractmethod
    def _spark(self, action: str, *arguments: Any, **named: Any) -> Any: ...
