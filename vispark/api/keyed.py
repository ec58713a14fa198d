"""Operations of a VRDD by the keys of its records: exchanges among workers' devices, where they can do them.

What comes out is a VRDD whose lineage begins with it. Workers make its partitions of those before; where they cannot,
and where what they held was lost together with what it was made of, Spark's own shuffle stands for them.
"""

from __future__ import annotations

import logging
import weakref
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from pyspark import RDD
from pyspark.rdd import Partitioner, portable_hash

from gpu_worker.protocol.errors import KeysRefused
from gpu_worker.protocol.messages import Step
from gpu_worker.protocol.plans import FoldRunsStep, PartitionByKeyStep, SortByKeyStep
from vispark.api.fallback import tell
from vispark.api.reduced_rdd import DriverRDD
from vispark.fold.lowering import fold_fields, unlike
from vispark.fold.spec import fold_of
from vispark.lower.stages import RequestedOutput
from vispark.plan import ops
from vispark.plan.operations.shuffled import Shuffled
from vispark.records.layout import RecordLayout
from vispark.records.pairs import EMPTY, not_numbers, not_pairs, with_counts
from vispark.runtime.driver.residency import Residency
from vispark.runtime.driver.session import Session

log = logging.getLogger(__name__)

#: What Spark does instead, of an RDD of the same records.
SparkWay = Callable[[RDD[Any]], RDD[Any]]


class SparkShuffle(DriverRDD):
    """RDD that Spark's own shuffle gives, made when Spark is asked for it."""

    def __init__(self, source: Any, way: SparkWay, partitions: int):
        super().__init__(source.ctx)
        self.partitioner = None     # a function of the records may change their keys
        #: The records before, at first their lineage alone.
        self.source = source
        self._way, self._count = way, partitions

    def _records(self) -> None:
        return None

    def _to_spark(self) -> RDD[Any]:
        return self._way(self.source)

    def getNumPartitions(self) -> int:
        """Return the number of partitions, without asking Spark."""
        return self._count


class KeyedExchange:
    """Exchange of records by their keys, which makes the content of one residency.

    It keeps what it starts from until it is done once. Later, after a loss, it starts from the same, if anybody else
    has kept it, or else from the RDD that was sent.
    """

    def __init__(self, source: Any, shuffle: SparkShuffle, requested: RequestedOutput, target: Residency):
        self._source, self._shuffle, self._requested = source, shuffle, requested
        self._target = weakref.ref(target)
        self._name = source._shown()
        self._anchor, self._behind = _anchor_of(source)

    def __call__(self) -> None:
        target = self._target()
        assert target is not None
        source = self._source or self._again()
        keeps = not source._is_held()
        if keeps:
            source.cache()
        try:
            source._contents()
            session = Session.of(source.ctx)
            session.exchanged(source._loader, source._recent(), self._requested, range(source.getNumPartitions()),
                              source._chain, target)
            self._source = None
        except KeysRefused as error:
            target.exchange, self._shuffle.source = None, source
            log.info("%s is Spark's shuffle: %s", self._requested.name, error.message)
            tell(source.ctx, self._requested.name.partition(" ")[0], f"VRDD {self._name}", error.message,
                 "is Spark's shuffle, over the records in Python")
        finally:
            if keeps:
                source.uncache()

    def _again(self) -> Any:
        """Return a VRDD of the records before the exchange, from the nearest that is still kept."""
        found = self._anchor()
        if found is None or found._residency is None:
            return self._shuffle.source
        for op in self._behind:
            found = found._then(op)
        return found


def _anchor_of(source: Any) -> tuple[weakref.ref[Any], Sequence[ops.RecordedOperation]]:
    """Return the nearest VRDD with a kept result, and the operations behind it."""
    behind: list[ops.RecordedOperation] = []
    each = source
    while each._residency is None and each._before is not None:
        behind.append(each._op)
        each = each._before
    return weakref.ref(each), behind[::-1]


def pairs_of(source: Any, action: str, not_those: Callable[[RecordLayout], str],
             reason: str = "") -> RecordLayout | None:
    """Return the layout of a VRDD's records if workers can exchange them by their keys; else None, with the reason
    noted for ``explain`` and, unless keys are objects or nothing is cached, told.
    """
    if not source._is_held():
        source._folds[action] = "nothing is cached"
        return None
    contents = [each for each in source._results() if each.count]
    layout = contents[0].layout if contents else EMPTY
    reason = reason or ("there are no records" if not contents else unlike(contents) or not_those(layout))
    if not reason:
        source._folds.pop(action, None)
        return layout
    log.info("%s() of VRDD %s is a Spark job: %s", action, source._shown(), reason)
    source._folds[action] = reason
    if contents and not layout.keyed:
        tell(source.ctx, action, f"VRDD {source._shown()}", reason)
    return None


def exchanged(source: Any, action: str, steps: Sequence[Step], layout: RecordLayout, partitions: int, way: SparkWay,
              partitioner: Partitioner | None = None) -> Any:
    """Return the VRDD of what workers make of another by ``steps``.

    Parameters
    ----------
    source : VRDD
        What they start from; some of it is cached.
    action : str
        The user's call.
    layout : RecordLayout
        What records come out.
    partitions : int
        How many partitions they make.
    way : callable
        Makes the same of an RDD by Spark.
    """
    name = f"{action} {partitions}"
    lineage = source._alone()
    shuffle = SparkShuffle(lineage, way, partitions)
    label = f"{action} into {partitions} partitions, in the workers, of {source._shown()}"
    made = source._beginning(shuffle, Shuffled(label, layout), partitions)._then(ops.ToDevice())
    made.partitioner = partitioner
    made._residency = target = Session.of(source.ctx).residency(name)
    made.is_cached = True
    requested = RequestedOutput(fetch=False, keyed=tuple(steps), name=name)
    target.exchange = KeyedExchange(source, shuffle, requested, target)
    return made


def partition_step(action: str, key: str, partitions: int, layout: RecordLayout,
                   how: str = "hash") -> PartitionByKeyStep:
    """Return the step that partitions rows by their keys."""
    return PartitionByKeyStep(action, key, partitions, how, layout.encode(), EMPTY.encode())


def reduced(source: Any, function: Callable[[Any, Any], Any], partitions: int, place: Any) -> Any:
    """Return the VRDD of ``reduceByKey`` without ``numKeys``, or None where Spark is to fold, with the reason told."""
    action, spec = "reduceByKey", fold_of(function)
    reason = spec if isinstance(spec, str) else "" if place is portable_hash else "partitionFunc= is given"
    fields: Any = ()

    def not_those(layout: RecordLayout) -> str:
        nonlocal fields
        found = not_pairs(layout)
        if not found and not isinstance(spec, str):
            fields = fold_fields(spec, layout, layout.parts[1:], "1")
        return found or (fields if isinstance(fields, str) else "")

    layout = pairs_of(source, action, not_those, reason)
    if layout is None:
        return None
    steps = (partition_step(action, "0", partitions, layout), SortByKeyStep(action, "0", False),
             FoldRunsStep(action, ("0",), tuple(fields), "", layout.encode()))
    return exchanged(source, action, steps, layout, partitions,
                     lambda rdd: RDD.reduceByKey(rdd, function, partitions, hash), Partitioner(partitions, place))


def counted(source: Any) -> dict[Any, int] | None:
    """Return the number of records of each key, or None where Spark is to count."""
    action = "countByKey"
    layout = pairs_of(source, action, not_pairs)
    if layout is None:
        return None
    after, partitions = with_counts(layout), source.getNumPartitions()
    steps = SortByKeyStep(action, "0", False), FoldRunsStep(action, ("0",), (), "1", after.encode())
    made = exchanged(source, action, steps, after, partitions,
                     lambda rdd: rdd.map(_one).reduceByKey(_added).coalesce(partitions))
    found: dict[Any, int] = defaultdict(int)
    for key, count in made.collect():
        found[key] += count
    return found


def _one(pair: Any) -> Any:
    return pair[0], 1


def _added(a: int, b: int) -> int:
    return a + b


def distinct(source: Any, partitions: int) -> Any:
    """Return the VRDD of ``distinct``, or None where Spark is to do it."""
    action = "distinct"
    layout = pairs_of(source, action, not_numbers)
    if layout is None:
        return None
    steps = (partition_step(action, "", partitions, layout), SortByKeyStep(action, "", False),
             FoldRunsStep(action, ("",), (), "", layout.encode()))
    return exchanged(source, action, steps, layout, partitions, lambda rdd: RDD.distinct(rdd, partitions))


def ordered_by_key(source: Any, action: str, ascending: bool, partitions: int) -> Any:
    """Return the VRDD of ``sortByKey``, or None where Spark is to sort."""
    layout = pairs_of(source, action, not_pairs)
    if layout is None:
        return None
    how = "ascending" if ascending else "descending"
    steps = partition_step(action, "0", partitions, layout, how), SortByKeyStep(action, "0", not ascending)
    return exchanged(source, action, steps, layout, partitions, lambda rdd: RDD.sortByKey(rdd, ascending, partitions))
