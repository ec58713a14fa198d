"""Operations of a VRDD by the keys of its records: exchanges among workers' devices, where they can do them.

What comes out is a VRDD whose lineage begins with it. Workers make its partitions of those before; where they cannot,
and where what they held was lost together with what it was made of, Spark's own shuffle stands for them.
"""

from __future__ import annotations

import itertools
import logging
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import itemgetter
from typing import Any

import numpy as np
from pyspark import RDD
from pyspark.rdd import Partitioner, portable_hash
from pyspark.resultiterable import ResultIterable

from gpu_worker.protocol.errors import KeysRefused, OutOfMemory
from gpu_worker.protocol.messages import Step
from gpu_worker.protocol.plans import (
    FoldRunsStep,
    GroupRowsStep,
    JoinByKeyStep,
    OpenKeysStep,
    PartitionByKeyStep,
    SelectRowsStep,
    SortByKeyStep,
)
from vispark.api.keys.key_ranges import KeyRanges
from vispark.api.operations.device_ops import vmap
from vispark.api.operations.python_meaning import why_not_python
from vispark.api.rdds.driver_rdd import DriverRDD
from vispark.api.rdds.fallback import report_fallback
from vispark.api.rdds.recorded_rdd import RecordedRDD
from vispark.data.records.layout import RecordLayout
from vispark.data.records.pairs import (
    EMPTY,
    key_parts,
    not_numbers,
    not_pairs,
    opened,
    value_parts,
    with_counts,
)
from vispark.plan import ops
from vispark.plan.fold.lowering import fold_fields, why_not_joined
from vispark.plan.fold.spec import fold_of
from vispark.plan.lower.stages import RequestedOutput
from vispark.plan.operations.shuffled import Shuffled
from vispark.runtime.driver.residency import Residency
from vispark.runtime.driver.session import Session
from vispark.translate import TranslationError

log = logging.getLogger(__name__)

#: What becomes of records that a transformation gives to Spark.
IN_PYTHON = "brings the records back to Python, where an action on the result is a Spark job"

#: The partitions in which keys are counted where those that there are do not fit their devices.
_MORE_PARTITIONS = 64

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

    def __init__(self, source: RecordedRDD, shuffle: SparkShuffle, requested: RequestedOutput, target: Residency,
                 others: Sequence[Any] = (), ranges: KeyRanges | None = None):
        self._source: RecordedRDD | None = source
        self._shuffle, self._requested, self._others = shuffle, requested, others
        self._target = weakref.ref(target)
        self._name = source._shown()
        self._kept_source = kept_source(source)
        self._ranges = ranges

    def __call__(self) -> None:
        target = self._target()
        assert target is not None
        if self._source is None and self._requested.others:
            target.exchange = None      # what it was made of is gone, and Spark makes it from its lineage
            return
        source = self._source or self._rebuilt_source()
        keeps = not source._is_held()
        if keeps:
            source.cache()
        try:
            source._contents()
            if self._others and _is_of_spark(source):
                raise KeysRefused("one side of it is Spark's shuffle already")
            session = Session.of(source.ctx)
            bounds = session.exchanged(source._loader, source._recent(), self._requested,
                                       range(source.getNumPartitions()), source._chain, target, self._residencies)
            if self._ranges is not None:
                self._ranges.keep(bounds)
            self._source, self._others = None, ()
        except KeysRefused as error:
            target.exchange, self._shuffle.source = None, source
            self._refused(source, error)
        finally:
            if keeps:
                source.uncache()

    def _refused(self, source: RecordedRDD, error: KeysRefused) -> None:
        """Log and report the reason for which Spark makes an exchange."""
        log.info("%s is Spark's shuffle: %s", self._requested.name, error.message)
        report_fallback(source.ctx, self._requested.name.partition(" ")[0], f"VRDD {self._name}", error.message,
                        "is Spark's shuffle, over the records in Python")

    def _residencies(self) -> list[Residency]:
        """Compute what is read besides, and return it."""
        for source in self._others:
            source._contents()
            if _is_of_spark(source):
                raise KeysRefused("one side of it is Spark's shuffle already")
        return [each._residency for each in self._others]

    def _rebuilt_source(self) -> Any:
        """Return a VRDD of the records before the exchange, from the nearest that is still kept."""
        return rebuilt_from(self._kept_source, self._shuffle.source)


def _is_of_spark(source: RecordedRDD) -> bool:
    """Return whether what is kept is no exchange of the workers', or no longer."""
    return source._residency is None or source._residency.exchange is None


#: The nearest VRDD with a kept result, which others may let go of, and the operations behind it.
KeptSource = tuple[weakref.ref[Any], Sequence[ops.RecordedOperation]]


def rebuilt_from(kept: KeptSource, otherwise: Any) -> Any:
    """Return the VRDD that a kept source is of, from what is still kept; ``otherwise`` where nothing is."""
    nearest, behind = kept
    vrdd = nearest()
    if vrdd is None or vrdd._residency is None:
        return otherwise
    for op in behind:
        vrdd = vrdd._then(op)
    return vrdd


def kept_source(source: RecordedRDD) -> KeptSource:
    """Return the nearest VRDD with a kept result, and the operations behind it."""
    behind: list[ops.RecordedOperation] = []
    vrdd = source
    while vrdd._residency is None and vrdd._before is not None:
        behind.append(vrdd._op)
        vrdd = vrdd._before
    return weakref.ref(vrdd), behind[::-1]


@dataclass(frozen=True)
class Keyed:
    """Layout of records with their keys in an array, and the steps of a worker that bring them there."""

    layout: RecordLayout
    steps: tuple[Step, ...] = ()


def pairs_of(source: RecordedRDD, action: str, not_those: Callable[[RecordLayout], str],
             reason: str = "", how: str = "brings the records back to Python, and is a Spark job") -> Keyed | None:
    """Return the layout of a VRDD's records if workers can exchange them by their keys; else None, with the reason
    noted for ``explain`` and, unless keys are objects or nothing is cached, told.
    """
    if not source._is_held():
        source._folds[action] = "nothing is cached"
        return None
    contents = [each for each in source._results() if each.count]
    before = contents[0].layout if contents else EMPTY
    layout = before if not_those is not_numbers else opened(before)
    reason = reason or ("there are no records" if not contents else why_not_joined(contents) or not_those(layout))
    if not reason:
        source._folds.pop(action, None)
        return Keyed(layout, () if layout is before else (
            OpenKeysStep(action, layout.parts[0].dtype.str, layout.encode()),))
    log.info("%s() of VRDD %s is a Spark job: %s", action, source._shown(), reason)
    source._folds[action] = reason
    if contents and not layout.keyed:
        report_fallback(source.ctx, action, f"VRDD {source._shown()}", reason, how)
    return None


def exchanged(source: RecordedRDD, action: str, steps: Sequence[Step], layout: RecordLayout, partitions: int,
              way: SparkWay, partitioner: Partitioner | None = None, others: Sequence[Any] = (),
              ranges: KeyRanges | None = None) -> Any:
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
    others : sequence of VRDD
        What the steps read besides.
    ranges : KeyRanges or None
        Where the bounds of ranges of keys are kept, for ``way``.
    """
    name = f"{action} {partitions}"
    lineage = source._alone()
    shuffle = SparkShuffle(lineage, way, partitions)
    label = f"{action} into {partitions} partitions, in the workers, of {source._shown()}"
    vrdd = source._beginning(shuffle, Shuffled(label, layout), partitions)._then(ops.ToDevice())
    vrdd.partitioner = partitioner
    vrdd._residency = target = Session.of(source.ctx).residency(name)
    vrdd.is_cached = True
    requested = RequestedOutput(fetch=False, keyed=tuple(steps), name=name, others=len(others))
    target.exchange = KeyedExchange(source, shuffle, requested, target, others, ranges)
    if ranges is not None:
        ranges.of(target)
    return vrdd


def partition_step(action: str, key: str, partitions: int, layout: RecordLayout,
                   how: str = "hash") -> PartitionByKeyStep:
    """Return the step that partitions rows by their keys."""
    return PartitionByKeyStep(action, key, partitions, how, layout.encode(), EMPTY.encode())


def reduced(source: RecordedRDD, function: Callable[[Any, Any], Any], partitions: int, place: Any) -> Any:
    """Return the VRDD of ``reduceByKey`` without ``numKeys``, or None where Spark is to fold, with the reason told."""
    action, spec = "reduceByKey", fold_of(function)
    reason = spec if isinstance(spec, str) else "" if place is portable_hash else "partitionFunc= is given"
    fields: Any = ()

    def not_those(layout: RecordLayout) -> str:
        nonlocal fields
        why = not_pairs(layout)
        if not why and not isinstance(spec, str):
            fields = fold_fields(spec, layout, value_parts(layout), "1")
        return why or (fields if isinstance(fields, str) else "")

    pairs = pairs_of(source, action, not_those, reason)
    if pairs is None:
        return None
    layout = pairs.layout
    steps = (*pairs.steps, partition_step(action, "0", partitions, layout), SortByKeyStep(action, "0", False),
             FoldRunsStep(action, key_names(layout), tuple(fields), "", layout.encode()))
    hashed = hash_of(layout)
    return exchanged(source, action, steps, layout, partitions,
                     lambda rdd: RDD.reduceByKey(rdd, function, partitions, hashed), Partitioner(partitions, place))


def key_names(layout: RecordLayout) -> tuple[str, ...]:
    """Return the fields of the keys of pairs."""
    return tuple([part.name for part in key_parts(layout)])


def hash_of(layout: RecordLayout) -> Callable[[Any], int]:
    """Return the function of a key that Spark partitions pairs by; for numbers without what it does for others."""
    return hash if key_parts(layout)[0].name == "0" else portable_hash


def counted(source: RecordedRDD, action: str = "countByKey") -> dict[Any, int] | None:
    """Return the number of records of each key, or None where Spark is to count."""
    keyed = pairs_of(source, action, not_pairs)
    if keyed is None:
        return None
    after, partitions = with_counts(keyed.layout), source.getNumPartitions()
    counting = (SortByKeyStep(action, "0", False),
                FoldRunsStep(action, key_names(keyed.layout), (), "1", after.encode()))

    def pairs(steps: tuple[Step, ...], parts: int) -> list[Any]:
        vrdd = exchanged(source, action, steps, after, parts,
                         lambda rdd: rdd.map(_one).reduceByKey(_added).coalesce(parts))
        return list(vrdd.collect())

    try:
        counts = pairs((*keyed.steps, *counting), partitions)
    except OutOfMemory as error:
        # A partition that is larger than a device is sorted as a whole, and exchanged in pieces.
        log.info("countByKey() of VRDD %s exchanges its keys: %s", source._shown(), error)
        parts = max(partitions, _MORE_PARTITIONS)
        counts = pairs((*keyed.steps, partition_step(action, "0", parts, keyed.layout), *counting), parts)
    totals: dict[Any, int] = defaultdict(int)
    for key, count in counts:
        totals[key] += count
    return totals


def _one(pair: Any) -> Any:
    return pair[0], 1


def _added(a: int, b: int) -> int:
    return a + b


def item_alone(source: RecordedRDD) -> RecordedRDD:
    """Return the keys or the values of kept pairs as records of their own; another VRDD as it is."""
    if not source._is_held() or not any(each.layout.wanted for each in source._results()):
        return source
    return vmap(source, _itself, of="record")


def _itself(record):        # type: ignore[no-untyped-def]
    return record


def distinct(source: RecordedRDD, partitions: int) -> Any:
    """Return the VRDD of ``distinct``, or None where Spark is to do it."""
    action, source = "distinct", item_alone(source)
    pairs = pairs_of(source, action, not_numbers)
    if pairs is None:
        return None
    layout = pairs.layout
    steps = (partition_step(action, "", partitions, layout), SortByKeyStep(action, "", False),
             FoldRunsStep(action, tuple([part.name for part in layout.parts]), (), "", layout.encode()))
    return exchanged(source, action, steps, layout, partitions, lambda rdd: RDD.distinct(rdd, partitions))


def ordered_by_key(source: RecordedRDD, action: str, ascending: bool, partitions: int) -> Any:
    """Return the VRDD of ``sortByKey``, or None where Spark is to sort."""
    pairs = pairs_of(source, action, not_pairs)
    if pairs is None:
        return None
    layout = pairs.layout
    how = "ascending" if ascending else "descending"
    steps = (*pairs.steps, partition_step(action, "0", partitions, layout, how),
             SortByKeyStep(action, "0", not ascending))
    ranges = KeyRanges(ascending, partitions)
    return exchanged(source, action, steps, layout, partitions, ranges.sorted, ranges=ranges)


def ordered_by(source: RecordedRDD, key: Callable[[Any], Any], ascending: bool, partitions: int) -> Any:
    """Return the VRDD of ``sortBy``, or None where Spark is to sort, with the reason told."""
    if not source._is_held():
        return None
    with_key = _with_key(key)

    def without_key(pair):      # type: ignore[no-untyped-def]
        return pair[1]

    reason = _why_not_whole(source)
    try:
        reason = reason or why_not_python(source, with_key)
        if not reason:
            ordered = ordered_by_key(vmap(source, with_key, of="record"), "sortBy", ascending, partitions)
            return None if ordered is None else vmap(ordered, without_key)
    except TranslationError as error:
        reason = str(error)
    source._folds["sortBy"] = reason
    report_fallback(source.ctx, "sortBy", f"VRDD {source._shown()}", reason)
    return None


def filtered(source: RecordedRDD, function: Callable[[Any], Any]) -> Any:
    """Return the VRDD of ``filter``, or None where Spark is to do it, with the reason told."""
    if not source._is_held():
        source._folds["filter"] = "nothing is cached"
        return None

    def with_mark(record):      # type: ignore[no-untyped-def]
        return bool(function(record)), record

    def without_mark(pair):     # type: ignore[no-untyped-def]
        return pair[1]

    reason = _why_not_whole(source)
    try:
        reason = reason or why_not_python(source, with_mark)
        if not reason:
            marked = vmap(source, with_mark, of="record")
            pairs = pairs_of(marked, "filter", not_pairs)
            if pairs is None:
                return None
            step = SelectRowsStep("filter", "0", pairs.layout.encode(), EMPTY.encode())
            return exchanged(
                marked, "filter", (step,), pairs.layout, source.getNumPartitions(),
                lambda rdd: RDD.filter(rdd, itemgetter(0))).vmap(without_mark)
    except TranslationError as error:
        reason = str(error)
    source._folds["filter"] = reason
    report_fallback(source.ctx, "filter", f"VRDD {source._shown()}", reason, IN_PYTHON)
    return None


def least(source: RecordedRDD, action: str, num: int, key: Callable[[Any], Any] | None, *, descending: bool) -> Any:
    """Return the first records in the order of their keys, of equal ones the first in the RDD, or None where Spark is
    to find them: workers sort each partition, and as many of it leave them.
    """
    source = item_alone(source)
    if num < 1 or not source._is_held() or any(not_whole(each.layout) for each in source._results() if each.count):
        return None

    def with_itself(record):    # type: ignore[no-untyped-def]
        return record, record

    keyed_by = with_itself if key is None else _with_key(key)
    try:
        if reason := why_not_python(source, keyed_by):
            source._folds[action] = reason
            return None
        keyed = vmap(source, keyed_by, of="record")
        contents = [each for each in keyed._results() if each.count]
        if not contents or why_not_joined(contents) or not_pairs(contents[0].layout):
            return None
        layout = _with_types_of(next(each.layout for each in source._results() if each.count), contents[0].layout)
        step = SortByKeyStep(action, "0", descending, layout.encode(), num)
        vrdd = exchanged(keyed, action, (step,), layout,
                         source.getNumPartitions(), lambda rdd: rdd.mapPartitions(_in_order, True))
        if not vrdd._is_exchanged():
            return None
        records = vrdd._evaluate(range(vrdd.getNumPartitions()), RequestedOutput(limit=num)).records
    except (KeysRefused, OutOfMemory, TranslationError) as error:
        log.info("%s() of VRDD %s is a Spark job: %s", action, source._shown(), error)
        source._folds[action] = str(error)
        return None
    ordered = sorted([pair for index in sorted(records) for pair in records[index]], key=itemgetter(0),
                     reverse=descending)
    return [record for _, record in ordered[:num]]


def _with_key(key: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return the function that gives a record's key beside it."""
    def with_key(record):       # type: ignore[no-untyped-def]
        return key(record), record
    return with_key


def _with_types_of(before: RecordLayout, keyed: RecordLayout) -> RecordLayout:
    """Return the layout of records beside their keys with the types that the records had: Python's numbers beside
    NumPy's stay Python's.
    """
    parts = {f"1.{part.name}" if part.name else "1": part for part in before.parts}
    return replace(keyed, parts=tuple([
        replace(part, types=parts[part.name].types) if part.name in parts and parts[part.name].dtype == part.dtype
        and parts[part.name].form == part.form else part for part in keyed.parts]))


def _why_not_whole(source: RecordedRDD) -> str:
    """Return the reason why a function of elements is not one of records for what a VRDD has; "" if it is."""
    layouts = [each.layout for each in source._results() if each.count]
    return next(filter(None, [not_whole(replace(layout.item(layout.wanted), only="") if layout.wanted
                                        else layout) for layout in layouts]), "")


def not_whole(layout: RecordLayout) -> str:
    """Return the reason why a function of elements is not one of records; "" if it is."""
    if layout.keyed or layout.only:
        return "the records are pairs that were sent, whose keys stay on the host"
    if layout.kind != "elements":
        return "the records are blocks, which are taken one by one"
    if layout.ragged:
        return "the records are rows of several lengths, which stay where they are"
    if layout.named or layout.sent or any(part.form == "tuple" for part in layout.parts):
        return "the records are dicts or tuples that were sent, and a vmap gives them back as others"
    return ""


# -- groups and joins -------------------------------------------------------------------------------------------------

def sorted_pairs(source: RecordedRDD, action: str, partitions: int) -> Any:
    """Return the VRDD of pairs in the partitions of their keys, sorted by key; None where Spark is to shuffle."""
    pairs = pairs_of(source, action, not_pairs)
    if pairs is None:
        return None
    layout = pairs.layout
    steps = *pairs.steps, partition_step(action, "0", partitions, layout), SortByKeyStep(action, "0", False)
    hashed = hash_of(layout)
    return exchanged(source, action, steps, layout, partitions, lambda rdd: RDD.partitionBy(rdd, partitions, hashed)
                     .mapPartitions(_in_order, True), Partitioner(partitions, portable_hash))


def rows_by_key(source: RecordedRDD, partitions: int) -> Any:
    """Return the VRDD of keys and the rows of their values' numbers; None where Spark is to make them."""
    action = "rowsByKey"

    def not_those(layout: RecordLayout) -> str:
        numbers = all(part.form == "number" for part in value_parts(layout))
        return not_pairs(layout) or ("" if numbers else "the values are not numbers, or tuples of numbers")

    pairs = pairs_of(source, action, not_those)
    if pairs is None:
        return None
    before = pairs.layout
    parts = tuple([replace(part, form="ragged", types=(part.dtype.str,)) for part in value_parts(before)])
    layout = replace(before, parts=(*key_parts(before), *parts))
    steps = (*pairs.steps, partition_step(action, "0", partitions, before), SortByKeyStep(action, "0", False),
             GroupRowsStep(action, "0", layout.encode()))
    dtypes, hashed = [part.types[0] for part in parts], hash_of(before)
    return exchanged(source, action, steps, layout, partitions,
                     lambda rdd: grouped_rows(RDD.groupByKey(rdd, partitions, hashed), dtypes),
                     Partitioner(partitions, portable_hash))


def grouped_rows(groups: RDD[Any], dtypes: Sequence[str] = ()) -> RDD[Any]:
    """Return Spark's groups as keys and rows, in the order of the keys in each partition."""
    return groups.mapPartitions(partial(_rows_of_groups, tuple(dtypes)), preservesPartitioning=True)


def _rows_of_groups(dtypes: Sequence[str], groups: Iterable[Any]) -> Iterator[Any]:
    for key, values in sorted(groups, key=itemgetter(0)):
        rows = list(values)
        if isinstance(rows[0], tuple):
            columns = zip(*rows, strict=True)
            yield key, tuple([np.array(column, dtype) for column, dtype in itertools.zip_longest(columns, dtypes)])
        else:
            yield key, np.array(rows, dtypes[0] if dtypes else None)


def _in_order(pairs: Iterable[Any]) -> list[Any]:
    return sorted(pairs, key=itemgetter(0))


def groups(pairs: Iterable[Any]) -> Iterator[tuple[Any, ResultIterable[Any]]]:
    """Yield the keys of sorted pairs, each with its values."""
    for key, group in itertools.groupby(pairs, itemgetter(0)):
        yield key, ResultIterable([value for _, value in group])


class CogroupedRDD(DriverRDD):
    """RDD of the keys of two VRDDs of sorted pairs, each with its values in both."""

    def __init__(self, sides: Sequence[Any], partitions: int):
        super().__init__(sides[0].ctx)
        self.partitioner = Partitioner(partitions, portable_hash)
        self._sides, self._count = sides, partitions

    def _records(self) -> list[Any]:
        groups: dict[Any, tuple[list[Any], list[Any]]] = {}
        for place, side in enumerate(self._sides):
            for key, value in side.collect():
                groups.setdefault(key, ([], []))[place].append(value)
        return [(key, tuple(map(ResultIterable, values))) for key, values in groups.items()]

    def _to_spark(self) -> RDD[Any]:
        first, second = [side.recv() for side in self._sides]
        grouped: RDD[Any] = first.cogroup(second, self._count)
        return grouped


def both_sides(left: RecordedRDD, right: RDD[Any], action: str, partitions: int) -> tuple[Any, Any] | None:
    """Return two VRDDs of pairs in the partitions of their keys, sorted by key; None where Spark is to shuffle."""
    if not isinstance(right, RecordedRDD) or not right._is_held():
        left._folds[action] = "the other RDD is not cached on the device"
        return None
    first, second = [pairs_of(each, action, not_pairs) for each in (left, right)]
    if first is None or second is None:
        return None
    keys = [[str(part.dtype) for part in key_parts(each.layout)] for each in (first, second)]
    if keys[0] != keys[1] or key_names(first.layout) != key_names(second.layout):
        left._folds[action] = f"the keys are {', '.join(keys[0])} and {', '.join(keys[1])}"
        return None
    return sorted_pairs(left, action, partitions), sorted_pairs(right, action, partitions)


def joined(left: RecordedRDD, right: RDD[Any], partitions: int) -> Any:
    """Return the VRDD of ``join``, or None where Spark is to join."""
    action = "join"
    sides = both_sides(left, right, action, partitions)
    if sides is None:
        return None
    layouts = [side._first._op.layout for side in sides]
    names = [[(part.name, f"1.{place}{part.name[1:]}") for part in value_parts(layout)]
             for place, layout in enumerate(layouts)]
    parts = tuple([replace(part, name=called) for layout, renamed in zip(layouts, names, strict=True)
                   for part, (_, called) in zip(value_parts(layout), renamed, strict=True)])
    keys = key_names(layouts[0])
    layout = replace(layouts[0], parts=(*key_parts(layouts[0]), *parts))
    fields = [tuple([before for before, _ in each]) for each in names]
    called = [after for each in names for _, after in each]
    step = JoinByKeyStep(action, 1, "0", (*keys, *fields[0]), fields[1], (*keys, *called), layout.encode(),
                         EMPTY.encode())
    other = sides[1]._alone()
    return exchanged(sides[0], action, (step,), layout, partitions, lambda rdd: RDD.join(rdd, other, partitions),
                     Partitioner(partitions, portable_hash), sides[1:])
