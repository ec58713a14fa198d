"""Operations by key that a VRDD has in place of Spark's shuffles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from pyspark import RDD
from pyspark.rdd import Partitioner, portable_hash

from vispark.api.keys import keyed, keyed_tables
from vispark.api.operations import joins
from vispark.api.rdds.explain import IN_ORDER
from vispark.api.rdds.fallback import is_asked_for_by_user
from vispark.api.rdds.recorded_rdd import RecordedRDD
from vispark.data.records.pairs import not_pairs
from vispark.plan.fold import fold_of
from vispark.plan.fold.lowering import check_double, reduce_by

#: Records that are looked at in the driver sooner than a worker compiles a function of them.
_LOOKED_AT = 1 << 12


def partitionBy(vrdd: RecordedRDD, numPartitions: int | None,
                partitionFunc: Callable[[Any], int] = portable_hash) -> RDD[Any]:
    """Put pairs with equal keys into one partition.

    Parameters
    ----------
    numPartitions : int or None
        The number of partitions; None: as Spark chooses it.
    partitionFunc : callable
        With another one than Spark's own it is Spark's shuffle.

    Returns
    -------
    RDD
        A VRDD where the keys are numbers that a ``vmap`` computed on cached data: integers, float32 or float64. Its
        partitions have the records that Spark's would have, in the order of those before. Else Spark's RDD.

    Raises
    ------
    OutOfMemory
        At the action, before a record is moved, if neither the devices nor host memory have room for the new
        partitions beside those before; it names the largest.

    Examples
    --------
    >>> numbers = sc.parallelize(range(6), 2).cache("GPU")
    >>> numbers.vmap(lambda n: (n % 3, n * n)).partitionBy(3).glom().collect()
    [[(0, 0), (0, 9)], [(1, 1), (1, 16)], [(2, 4), (2, 25)]]
    """
    count = vrdd._defaultReducePartitions() if numPartitions is None else numPartitions
    if vrdd.partitioner == Partitioner(count, partitionFunc):
        return vrdd
    reason = "" if partitionFunc is portable_hash else "partitionFunc= is given"
    pairs = keyed.pairs_of(vrdd, "partitionBy", not_pairs, reason)
    if pairs is None:
        return RDD.partitionBy(vrdd, numPartitions, partitionFunc)
    step = keyed.partition_step("partitionBy", "0", count, pairs.layout)
    hashed = keyed.hash_of(pairs.layout)
    partitioned: RDD[Any] = keyed.exchanged(vrdd, "partitionBy", (*pairs.steps, step), pairs.layout, count,
                                            lambda rdd: RDD.partitionBy(rdd, count, hashed),
                                            Partitioner(count, partitionFunc))
    return partitioned


def sortByKey(vrdd: RecordedRDD, ascending: bool | None = True, numPartitions: int | None = None,
              keyfunc: Callable[[Any], Any] | None = None) -> RDD[Any]:
    """Sort pairs by their keys: within partitions, and from one to the next.

    Parameters
    ----------
    ascending : bool
        Whether the least key comes first. Pairs with equal keys stay in their order.
    numPartitions : int, optional
        The number of partitions; left out, as Spark chooses it.
    keyfunc : callable, optional
        Of a key; with one it is Spark's shuffle.

    Returns
    -------
    RDD
        A VRDD, under the same conditions as for :meth:`partitionBy`; else Spark's RDD.

    Raises
    ------
    OutOfMemory
        As of :meth:`partitionBy`.

    Examples
    --------
    >>> numbers = sc.parallelize([3, 1, 2], 2).cache("GPU")
    >>> numbers.vmap(lambda n: (n, n * n)).sortByKey().collect()
    [(1, 1), (2, 4), (3, 9)]
    """
    count = vrdd._defaultReducePartitions() if numPartitions is None else numPartitions
    if keyfunc is not None:
        return RDD.sortByKey(vrdd, bool(ascending), count, keyfunc)
    ordered = keyed.ordered_by_key(vrdd, "sortByKey", bool(ascending), count)
    return RDD.sortByKey(vrdd, bool(ascending), count) if ordered is None else ordered


def sortBy(vrdd: RecordedRDD, keyfunc: Callable[[Any], Any], ascending: bool = True,
           numPartitions: int | None = None) -> RDD[Any]:
    """Sort records by what a function gives for them, within partitions and from one to the next.

    Parameters
    ----------
    keyfunc : callable
        Of a record; it is translated, as that of a ``vmap``.
    ascending, numPartitions
        As for :meth:`sortByKey`.

    Returns
    -------
    RDD
        A VRDD of cached records that are numbers or arrays, where the function can be translated and gives a
        number; else Spark's RDD.

    Raises
    ------
    OutOfMemory
        As of :meth:`partitionBy`.

    Examples
    --------
    >>> sc.parallelize([3.0, -1.0, 2.0], 2).cache("GPU").sortBy(lambda x: x * x).collect()
    [-1.0, 2.0, 3.0]
    """
    count = vrdd._defaultReducePartitions() if numPartitions is None else numPartitions
    ordered = keyed.ordered_by(vrdd, keyfunc, ascending, count)
    return RDD.sortBy(vrdd, keyfunc, ascending, count) if ordered is None else ordered


def groupByKey(vrdd: RecordedRDD, numPartitions: int | None = None,
               partitionFunc: Callable[[Any], int] = portable_hash) -> RDD[Any]:
    """Group the values of each key.

    The exchange and the sorting are the workers', where they are for :meth:`partitionBy`; lists are Python's, so
    that what comes out is an RDD whose tasks make them. A fold by :meth:`reduceByKey` makes none.

    Parameters
    ----------
    numPartitions : int, optional
        Of the result; by default as many as Spark would make.
    partitionFunc : callable, optional
        Of a key, a number that says which partition it goes to.

    Returns
    -------
    RDD
        Spark's, of (key, iterable of values).

    Raises
    ------
    OutOfMemory
        As of :meth:`partitionBy`.

    Examples
    --------
    >>> pairs = sc.parallelize(range(5), 2).cache("GPU").vmap(lambda n: (n % 2, n))
    >>> sorted(pairs.groupByKey().mapValues(list).collect())
    [(0, [0, 2, 4]), (1, [1, 3])]
    """
    count = vrdd._defaultReducePartitions() if numPartitions is None else numPartitions
    pairs = None if partitionFunc is not portable_hash else keyed.sorted_pairs(vrdd, "groupByKey", count)
    if pairs is None:
        return RDD.groupByKey(vrdd, numPartitions, partitionFunc)
    grouped: RDD[Any] = pairs.mapPartitions(keyed.groups, preservesPartitioning=True)
    return grouped


def rowsByKey(vrdd: RecordedRDD, numPartitions: int | None = None) -> RDD[Any]:
    """Make one record of the values of each key: its numbers as rows, whose lengths differ.

    Records are put into the partitions of their keys and sorted by these once; a key's values stay in the order of
    the records. What comes out is sorted by key in each partition, and a function of its records loops over all
    values of a key.

    Parameters
    ----------
    numPartitions : int, optional
        The number of partitions; left out, as Spark chooses it.

    Returns
    -------
    RDD
        Of (key, row) where the values are numbers, and of (key, (row, row, ...)) where they are tuples of numbers.
        A VRDD under the conditions of :meth:`partitionBy`; else Spark's RDD.

    Raises
    ------
    OutOfMemory
        As of :meth:`partitionBy`.

    See Also
    --------
    VRDD.groupByKey

    Examples
    --------
    >>> import numpy as np
    >>> ratings = sc.parallelize([(0, 2, 4.0), (1, 0, 3.0), (0, 1, 5.0)], 2).map(np.array).cache("GPU")
    >>> users = ratings.vmap(lambda r: (int(r[0]), (int(r[1]), r[2]))).rowsByKey(1)
    >>> users.vmap(lambda u: u[1][1].mean()).collect()
    [np.float64(4.5), np.float64(3.0)]
    """
    count = vrdd._defaultReducePartitions() if numPartitions is None else numPartitions
    by_key = keyed.rows_by_key(vrdd, count)
    if by_key is None:
        return keyed.grouped_rows(RDD.groupByKey(vrdd, count))
    rows: RDD[Any] = by_key
    return rows


def join(vrdd: RecordedRDD, other: RDD[Any], numPartitions: int | None = None) -> RDD[Any]:
    """Return (key, (value, other value)) for each two pairs with one key.

    Parameters
    ----------
    other : RDD of pairs
        Cached on the device too, if the workers are to do it.
    numPartitions : int, optional
        Of the result; by default as many as Spark would make.

    Returns
    -------
    RDD
        A VRDD where both sides are cached and have keys of one dtype that a ``vmap`` computed, sorted by the keys
        in each partition; else Spark's RDD.

    Raises
    ------
    OutOfMemory
        At the action, if neither the device nor host memory has room for the pairs of a partition; none of them has
        been made then.

    Examples
    --------
    >>> numbers = sc.parallelize(range(4), 2).cache("GPU")
    >>> squares, halves = numbers.vmap(lambda n: (n, n * n)), numbers.vmap(lambda n: (n, n / 2))
    >>> sorted(squares.join(halves).collect())
    [(0, (0, 0.0)), (1, (1, 0.5)), (2, (4, 1.0)), (3, (9, 1.5))]
    """
    joined = keyed.joined(vrdd, other, _partitions_with(vrdd, other, numPartitions))
    return RDD.join(vrdd, other, numPartitions) if joined is None else joined


def cogroup(vrdd: RecordedRDD, other: RDD[Any], numPartitions: int | None = None) -> RDD[Any]:
    """Return each key of both sides with its values in the one and in the other.

    The exchange and the sorting are the workers' under the conditions of :meth:`join`; lists are Python's.

    Parameters
    ----------
    other : RDD of pairs
        Cached on the device too, if the workers are to do it.
    numPartitions : int, optional
        Of the result; by default as many as Spark would make.

    Returns
    -------
    RDD
        Spark's, of (key, (iterable of values, iterable of the other's values)); a key of one side alone has an empty
        one for the other.

    Raises
    ------
    OutOfMemory
        As of :meth:`partitionBy`, of either side.

    Examples
    --------
    >>> numbers = sc.parallelize(range(3), 2).cache("GPU")
    >>> one, other = numbers.vmap(lambda n: (n, n * n)), numbers.vmap(lambda n: (n // 2, n))
    >>> [(key, *map(list, values)) for key, values in sorted(one.cogroup(other).collect())]
    [(0, [0], [0, 1]), (1, [1], [2]), (2, [4], [])]
    """
    count = _partitions_with(vrdd, other, numPartitions)
    sides = keyed.both_sides(vrdd, other, "cogroup", count)
    return RDD.cogroup(vrdd, other, numPartitions) if sides is None else keyed.CogroupedRDD(sides, count)


def _partitions_with(vrdd: RecordedRDD, other: RDD[Any], numPartitions: int | None) -> int:
    """Return the number of partitions of a join that was given, or that Spark would choose."""
    if numPartitions is not None:
        return numPartitions
    if vrdd.ctx._conf.contains("spark.default.parallelism"):
        return vrdd.ctx.defaultParallelism
    return vrdd.getNumPartitions() + other.getNumPartitions()


def filter_(vrdd: RecordedRDD, f: Callable[[Any], Any]) -> RDD[Any]:
    """Return the records for which a function holds.

    Parameters
    ----------
    f : callable
        Of a record; it is translated, as that of a ``vmap``.

    Returns
    -------
    RDD
        A VRDD of cached records that are numbers, arrays or tuples that a ``vmap`` made, where the function can
        be translated: the workers keep the chosen records of each partition, in their order. Else Spark's RDD.

    Raises
    ------
    OutOfMemory
        At the action, if neither the device nor host memory has room for the chosen records beside those before.

    Examples
    --------
    >>> chosen = sc.parallelize([3.0, -1.0, 2.0], 2).cache("GPU").filter(lambda x: x > 0)
    >>> chosen.collect(), chosen.vmap(lambda x: x * x).sum()
    ([3.0, 2.0], 13.0)
    """
    filtered = keyed.filtered(vrdd, f) if is_asked_for_by_user() else None
    return RDD.filter(vrdd, f) if filtered is None else filtered


def takeOrdered(vrdd: RecordedRDD, num: int, key: Callable[[Any], Any] | None = None) -> list[Any]:
    """Return the ``num`` records with the least keys, in ascending order.

    Of many cached records that are numbers, arrays or tuples of them, workers sort each partition, and no more than
    ``num`` of it leave them; few records are looked at in the driver. Else it is a Spark job.

    Parameters
    ----------
    num : int
        How many records.
    key : callable, optional
        Of a record; it is translated, as that of a ``vmap``. Left out: the record itself, which is a number.

    Returns
    -------
    list
        At most ``num`` records, as :meth:`collect` gives them.

    Raises
    ------
    ValueError
        If ``num`` is negative.

    Examples
    --------
    >>> sc.parallelize([3.0, -1.0, 2.0], 2).cache("GPU").takeOrdered(2, key=lambda x: x * x)
    [-1.0, 2.0]
    """
    return _extreme(vrdd, "takeOrdered", num, key)


def top(vrdd: RecordedRDD, num: int, key: Callable[[Any], Any] | None = None) -> list[Any]:
    """Return the ``num`` records with the greatest keys, in descending order, as :meth:`takeOrdered` does.

    Parameters
    ----------
    num : int
        The most records.
    key : callable, optional
        Of a record, a number to compare by.

    Returns
    -------
    list
        At most ``num`` records, as :meth:`collect` gives them.

    Examples
    --------
    >>> sc.parallelize([3.0, -1.0, 2.0], 2).cache("GPU").top(2)
    [3.0, 2.0]
    """
    return _extreme(vrdd, "top", num, key)


def _extreme(vrdd: RecordedRDD, action: str, num: int, key: Callable[[Any], Any] | None) -> list[Any]:
    ordered = _in_order(vrdd, action, num, key)
    records: list[Any] = vrdd._spark(action, num, key) if ordered is None else ordered
    return records


def first_by(vrdd: RecordedRDD, action: str, key: Callable[[Any], Any]) -> Any:
    """Return the first record with the least or the greatest key: neighbours are joined by it, in one pass over the
    records; where they cannot be, workers sort.
    """
    if vrdd._is_held() and sum(each.count for each in vrdd._results()) > _LOOKED_AT:
        first = joins.joined(vrdd, action, _first_of_two(key, greatest=action == "max"))
        # A NaN among keys is PySpark's to judge, by its order of comparisons.
        if not isinstance(first, str) and not _is_nan(key(*first)):
            return first[0]
    records = _in_order(vrdd, action, 1, key)
    return records[0] if records else vrdd._spark(action, key)


def _first_of_two(key: Callable[[Any], Any], *, greatest: bool) -> Callable[[Any, Any], Any]:
    """Return the function of two records that gives the one with the lesser or the greater key, of like ones the first,
    and one whose key is NaN before all.
    """
    def of_greatest(a, b):      # type: ignore[no-untyped-def]
        first, second = key(a), key(b)
        return b if second > first or (second != second and first == first) else a

    def of_least(a, b):     # type: ignore[no-untyped-def]
        first, second = key(a), key(b)
        return b if second < first or (second != second and first == first) else a

    return of_greatest if greatest else of_least


def _is_nan(value: Any) -> bool:
    return bool(np.any(value != value))


def _in_order(vrdd: RecordedRDD, action: str, num: int, key: Callable[[Any], Any] | None) -> list[Any] | None:
    """Return the first of many records in their order, if workers put them so; else None, with the reason noted."""
    vrdd._folds.pop(action, None)
    if not vrdd._is_held() or vrdd._is_few():
        return None
    records: list[Any] | None = keyed.least(vrdd, action, num, key, descending=action in ("top", "max"))
    if records is not None:
        vrdd._folds[action] = IN_ORDER
    return records


def distinct(vrdd: RecordedRDD, numPartitions: int | None = None) -> RDD[Any]:
    """Return each record once.

    Parameters
    ----------
    numPartitions : int, optional
        Of the result; by default as many as Spark would make.

    Returns
    -------
    RDD
        A VRDD of cached records that are numbers, with partitions as Spark's would be and each in ascending order;
        else Spark's RDD.

    Raises
    ------
    OutOfMemory
        As of :meth:`partitionBy`.

    Examples
    --------
    >>> sorted(sc.parallelize([2, 1, 2, 1, 3]).cache("GPU").distinct().collect())
    [1, 2, 3]
    """
    count = vrdd._defaultReducePartitions() if numPartitions is None else numPartitions
    records = keyed.distinct(vrdd, count)
    return RDD.distinct(vrdd, numPartitions) if records is None else records


def countByKey(vrdd: RecordedRDD) -> dict[Any, int]:
    """Return the number of pairs of each key.

    On cached data, with keys that a ``vmap`` computed, workers sort and count, and send a number for each key of a
    partition; else it is a Spark job.

    Returns
    -------
    dict of key to int
        A ``defaultdict``, as PySpark's: keys that do not occur have 0.

    Examples
    --------
    >>> sorted(sc.parallelize(range(5)).cache("GPU").vmap(lambda n: (n % 2, n)).countByKey().items())
    [(0, 3), (1, 2)]
    """
    counted = keyed.counted(vrdd)
    counts: dict[Any, int] = vrdd._spark("countByKey") if counted is None else counted
    return counts


def reduced(vrdd: RecordedRDD, f: Callable[[Any, Any], Any], dtype: Any = None) -> keyed_tables.KeyedTable:
    """Fold all records into one that stays in the workers, as an argument of functions.

    Parameters
    ----------
    f, dtype
        As for :meth:`VRDD.reduce`.

    Returns
    -------
    KeyedTable
        With the one key 0. It is computed where it is first used.

    Raises
    ------
    PlanError
        If ``dtype`` is another one than float64.

    See Also
    --------
    VRDD.reduce, VRDD.reduceByKey

    Examples
    --------
    >>> numbers = sc.parallelize([1.0, 2.0, 5.0]).cache("GPU")
    >>> total = numbers.reduced(lambda a, b: a + b)
    >>> numbers.vmap(lambda x, t: x / t[0], total).collect()
    [0.125, 0.25, 0.625]
    """
    double = check_double("reduced", dtype)
    spec = fold_of(f)
    request = spec if isinstance(spec, str) else reduce_by(spec, double)
    table: keyed_tables.KeyedTable = vrdd._table(request, f, None, double)
    return table
