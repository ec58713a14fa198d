"""The actions of a VRDD that fold its records: in the workers where the function can be lowered, else by Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import numpy as np
from pyspark.rdd import portable_hash

from vispark.api.keys.keyed_operations import first_by
from vispark.api.keys.reduced_rdd import ReducedRDD
from vispark.api.operations.joins import is_neutral, joined
from vispark.api.operations.python_meaning import why_no_python_number
from vispark.api.operations.worker_folds import folded
from vispark.api.rdds.recorded_rdd import RecordedRDD
from vispark.data.records.layout import BY_NAME
from vispark.plan import ops
from vispark.plan.fold import FoldSpec, fold_of
from vispark.plan.fold.aggregation import Aggregation, aggregation_of, parts_of, total
from vispark.plan.fold.lowering import (
    DoublePrecisionFold,
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
from vispark.plan.map_call import MapSpec
from vispark.translate import TranslationError

#: Stands for a fold whose result is not what Python would give.
_UNTRUSTED = object()


def reduce(vrdd: RecordedRDD, f: Callable[[Any, Any], Any], dtype: Any = None) -> Any:
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

    Returns
    -------
    number, array, tuple or dict
        A record in the shape and dtype of those before: Python's numbers of Python's, dtypes of NumPy's. Float64 of
        float32 where ``dtype`` says so.

    Raises
    ------
    PlanError
        If ``dtype`` is another one.
    ValueError
        If there are no records.

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
    record, spec = _reduced(vrdd, f, check_double("reduce", dtype))
    return _in_order(vrdd, f) if _has_zero(spec, record) else record


def reduce_in_any_order(vrdd: RecordedRDD, f: Callable[[Any, Any], Any]) -> Any:
    """Fold all records into one as :meth:`reduce` does; of 0.0 and -0.0, which are equal, either may be left."""
    return _reduced(vrdd, f, False)[0]


def _reduced(vrdd: RecordedRDD, f: Callable[[Any, Any], Any], double: bool) -> tuple[Any, FoldSpec | str]:
    """Return the fold of all records, and the operator by which workers folded them in any order; ``""`` in its place
    if they were folded in the records' order.
    """
    def spark() -> Any:
        return widened(vrdd._spark("reduce", DoublePrecisionFold(f))) if double else vrdd._spark("reduce", f)

    spec = fold_of(f)
    if isinstance(spec, str) and not double:
        joined = _joined(vrdd, "reduce", f, spec)
        return spark() if joined is None else joined[0], ""
    request: Reduce | str = spec if isinstance(spec, str) else reduce_by(spec, double)
    fold = folded(vrdd, request, "reduce")
    return (spark(), "") if fold is None else (finish(*fold, spark), spec)


def _has_zero(spec: FoldSpec | str, record: Any) -> bool:
    """Return whether a fold gives a zero by comparing: 0.0 and -0.0 are equal, and their order says which is left."""
    if isinstance(spec, str):
        return False
    parts = tuple(_parts(record))
    # A record by name has one leaf for several fields.
    chosen = [leaf.kind == "choice" for leaf in spec.leaves]
    are_chosen = chosen if len(chosen) == len(parts) else [any(chosen)] * len(parts)
    return any(is_chosen and isinstance(part, float | np.floating) and part == 0
               for is_chosen, part in zip(are_chosen, parts, strict=True))


def _parts(record: Any) -> Iterator[Any]:
    if isinstance(record, tuple):
        for part in record:
            yield from _parts(part)
    else:
        yield record


def _in_order(vrdd: RecordedRDD, f: Callable[[Any, Any], Any]) -> Any:
    """Return the fold of records that are joined in their order: few in the driver, many in the workers."""
    def both(a, b):     # type: ignore[no-untyped-def]
        return f(a, b)

    result = "" if vrdd._is_few() else joined(vrdd, "reduce", both)
    return vrdd._spark("reduce", f) if isinstance(result, str) else result[0]


def _joined(vrdd: RecordedRDD, action: str, f: Callable[[Any, Any], Any], reason: str) -> tuple[Any] | None:
    """Return the fold by a function that is no operator, in the workers; None, with the reason recorded, if Spark
    is to fold.
    """
    result = joined(vrdd, action, f)
    if not isinstance(result, str):
        return result
    folded(vrdd, f"{reason}; and it is not run as a function: {result}" if vrdd._is_held() else reason, action)
    return None


def treeReduce(vrdd: RecordedRDD, f: Callable[[Any, Any], Any], depth: int = 2) -> Any:
    """Fold all records into one as :meth:`reduce` does; if Spark does the fold, in ``depth`` steps.

    Parameters
    ----------
    f : callable
        Of two records, as for :meth:`reduce`.
    depth : int, optional
        Of the tree where Spark folds; at least 1.

    Returns
    -------
    number, array, tuple or dict
        As of :meth:`reduce`.

    Raises
    ------
    ValueError
        If there are no records, or ``depth`` is below 1.

    Examples
    --------
    >>> sc.parallelize([1.0, 2.0, 4.0], 2).cache("GPU").treeReduce(lambda a, b: a + b)
    7.0
    """
    return reduce(vrdd, f) if depth > 0 else vrdd._spark("treeReduce", f, depth)


def fold(vrdd: RecordedRDD, zeroValue: Any, op: Callable[[Any, Any], Any]) -> Any:
    """Fold all records into one, each partition from ``zeroValue`` on; in the workers where :meth:`reduce` is.

    Parameters
    ----------
    zeroValue : number, array, or tuple or dict of these
        What each partition, and then the driver, starts from.
    op : callable
        Of two records; associative and commutative.

    Returns
    -------
    number, array, tuple or dict
        What ``op`` makes of ``zeroValue`` and the records, in Python's types and NumPy's dtypes.

    Examples
    --------
    >>> sc.parallelize([1.0, 2.0, 4.0], 2).cache("GPU").fold(0.0, lambda a, b: a + b)
    7.0
    """
    spec = fold_of(op)
    if isinstance(spec, str) and is_neutral(vrdd, zeroValue, op):
        joined = _joined(vrdd, "fold", op, spec)
        if joined is not None:
            return op(zeroValue, joined[0])
    return _total(vrdd, "fold", zeroValue, op, vrdd, spec, lambda: vrdd._spark("fold", zeroValue, op))


def aggregate(vrdd: RecordedRDD, zeroValue: Any, seqOp: Callable[[Any, Any], Any],
              combOp: Callable[[Any, Any], Any]) -> Any:
    """Fold each record into a total, each partition's from ``zeroValue`` on, and combine the partitions' totals.

    On cached elements this is a ``vmap`` and a fold in the workers, where ``seqOp`` joins each part of its total
    with something that it computes of the record alone, ``combOp`` joins by the same operators, and Python's
    numbers would not overflow or raise on the way. Else it is a Spark job over ``recv``.

    Parameters
    ----------
    zeroValue : number, array, or tuple or dict of these
        What each partition, and then the driver, starts from.
    seqOp : callable
        Of a total and a record.
    combOp : callable
        Of two totals.

    Returns
    -------
    number, array, tuple or dict
        A total, with the parts of ``zeroValue``, in Python's types and NumPy's dtypes.

    Examples
    --------
    >>> numbers = sc.parallelize([1.0, 2.0, 4.0]).cache("GPU")
    >>> numbers.aggregate((0.0, 0), lambda t, x: (t[0] + x, t[1] + 1), lambda a, b: (a[0] + b[0], a[1] + b[1]))
    (7.0, 3)
    """
    return _aggregate(vrdd, "aggregate", zeroValue, seqOp, combOp)


def treeAggregate(vrdd: RecordedRDD, zeroValue: Any, seqOp: Callable[[Any, Any], Any],
                  combOp: Callable[[Any, Any], Any], depth: int = 2) -> Any:
    """Aggregate as :meth:`aggregate` does, but join the parts in the driver without ``zeroValue``; in Spark in
    ``depth`` steps.

    Parameters
    ----------
    zeroValue : number, array, or tuple or dict of these
        What each partition, and then the driver, starts from.
    seqOp : callable
        Of a total and a record.
    combOp : callable
        Of two totals.
    depth : int, optional
        Of the tree where Spark folds; at least 1.

    Returns
    -------
    number, array, tuple or dict
        As of :meth:`aggregate`.

    Raises
    ------
    ValueError
        If ``depth`` is below 1.

    Examples
    --------
    >>> numbers = sc.parallelize([1.0, 2.0, 4.0], 2).cache("GPU")
    >>> numbers.treeAggregate((0.0, 0), lambda t, x: (t[0] + x, t[1] + 1), lambda a, b: (a[0] + b[0], a[1] + b[1]))
    (7.0, 3)
    """
    if depth < 1:
        return vrdd._spark("treeAggregate", zeroValue, seqOp, combOp, depth)
    return _aggregate(vrdd, "treeAggregate", zeroValue, seqOp, combOp, depth)


def _aggregate(vrdd: RecordedRDD, action: str, zero: Any, step: Callable[[Any, Any], Any],
               combine: Callable[[Any, Any], Any], *depth: int) -> Any:
    def spark() -> Any:
        return vrdd._spark(action, zero, step, combine, *depth)

    aggregation = aggregation_of(step, combine)
    if isinstance(aggregation, str):
        return _total(vrdd, action, zero, combine, vrdd, aggregation, spark)
    reason = _risk(vrdd, aggregation)
    mapped = vrdd if reason else vrdd._then(
        ops.Map(MapSpec(aggregation.mapped, (), f"{action} {aggregation.mapped.name}", "row")))
    try:
        return _total(vrdd, action, zero, combine, mapped, reason or aggregation.fold, spark)
    except TranslationError as error:
        vrdd._folds[action] = str(error)
        return spark()


def _risk(vrdd: RecordedRDD, aggregation: Aggregation) -> str:
    """Return the reason not to compute a function of records in the workers; "" if there is none."""
    if not vrdd._is_held():
        return ""
    if any(content.layout.kind != "elements" for content in vrdd._results()):
        return "it takes records whole, and a vmap of blocks takes their rows"
    return why_no_python_number(vrdd, aggregation.mapped)


def _total(vrdd: RecordedRDD, action: str, zero: Any, combine: Callable[[Any, Any], Any], mapped: RecordedRDD,
           spec: FoldSpec | str, spark: Callable[[], Any]) -> Any:
    request: Total | str = spec if isinstance(spec, str) else "what it starts from has not the parts of a record"
    if not isinstance(spec, str):
        spec = spec.of_parts(map(str, range(len(zero)))) if isinstance(zero, tuple) and zero else spec
        with suppress(LookupError, TypeError):
            parts = parts_of(zero, [leaf.place for leaf in spec.leaves])
            request = Total(spec, tuple((place, type_of(part)) for place, part in parts.items()))
    fold = folded(mapped, request, action)
    vrdd._folds.update(mapped._folds)
    whole = _UNTRUSTED if fold is None else finish(*fold, lambda: _UNTRUSTED)
    times = vrdd.getNumPartitions() - (action == "treeAggregate")
    return spark() if whole is _UNTRUSTED else total(zero, times, whole, combine)


def sum_(vrdd: RecordedRDD, dtype: Any = None) -> Any:
    """Return the sum of all records.

    Parameters
    ----------
    dtype : dtype, optional
        ``np.float64`` gives the sum of float32 as it is added up, as line searches and residuals need it; without
        it the sum is float32, as PySpark's is.

    Returns
    -------
    number or array
        Of numbers Python's int or float, or a NumPy scalar of their dtype; of bools an int. Of arrays their sum element
        by element, of their shape and dtype. Of no records 0.

    Raises
    ------
    PlanError
        If ``dtype`` is another one, or the records are blocks of several shapes, or those of a :class:`Grid`.

    Examples
    --------
    >>> import numpy as np
    >>> numbers = sc.parallelize([np.float32(1), np.float32(2**-30)]).cache("GPU")
    >>> numbers.sum(), numbers.sum(np.float64)
    (np.float32(1.0), np.float64(1.0000000009313226))
    """
    fold = folded(vrdd, Sum(double=check_double("sum", dtype)), "sum")
    # Python's sum starts with 0, which makes ints of bools.
    total = vrdd._spark("sum") if fold is None else 0 + finish(*fold, lambda: vrdd._spark("sum"))
    single = isinstance(total, np.generic | np.ndarray) and total.dtype == np.float32
    return total.astype(np.float64)[()] if single and dtype is not None else total


def min_(vrdd: RecordedRDD, key: Callable[[Any], Any] | None = None) -> Any:
    """Return the least record, or the first with the least ``key``; workers join neighbours by it, in one pass.

    Parameters
    ----------
    key : callable, optional
        Of a record, a number to compare by; without it records themselves are compared.

    Returns
    -------
    number, array, tuple or dict
        A record, as :meth:`first` gives it.

    Raises
    ------
    ValueError
        If there are no records.

    Examples
    --------
    >>> sc.parallelize([3.0, -1.0, 1.0], 2).cache("GPU").min(key=lambda x: x * x)
    -1.0
    """
    return reduce(vrdd, min) if key is None else first_by(vrdd, "min", key)


def max_(vrdd: RecordedRDD, key: Callable[[Any], Any] | None = None) -> Any:
    """Return the greatest record, or the first with the greatest ``key``; workers find it as for ``min``.

    Parameters
    ----------
    key : callable, optional
        Of a record, a number to compare by; without it records themselves are compared.

    Returns
    -------
    number, array, tuple or dict
        A record, as :meth:`first` gives it.

    Raises
    ------
    ValueError
        If there are no records.

    Examples
    --------
    >>> numbers = sc.parallelize([1.0, 2.0, 4.0], 2).cache("GPU")
    >>> numbers.max(), numbers.max(key=lambda x: -x)
    (4.0, 1.0)
    """
    return reduce(vrdd, max) if key is None else first_by(vrdd, "max", key)


def mean(vrdd: RecordedRDD) -> Any:
    """Return the mean of all records.

    Returns
    -------
    float, NumPy scalar or ndarray
        A float of Python's numbers. Of NumPy's float64, but their own dtype where that is a float or complex; of arrays
        element by element, of their shape. Of no records 0.0.

    Raises
    ------
    PlanError
        If the records are blocks of several shapes, or those of a :class:`Grid`.

    Examples
    --------
    >>> sc.parallelize([1.0, 2.0, 6.0], 2).cache("GPU").mean()
    3.0
    """
    fold = folded(vrdd, Sum(mean=True), "mean")
    if fold is None:
        return vrdd._spark("mean")
    count, total = finish_number(*fold)
    mean = total / count
    if not np.isfinite(mean).all():     # Spark's running mean may be NaN where the mean is infinite
        return vrdd._spark("mean")
    part, = fold[1][0][2].layout.parts
    if part.form == "array" or part.types[0] not in BY_NAME:
        return mean.astype(np.float32)[()] if part.dtype == np.float32 else mean[()]
    return mean.item()


def reduceByKey(vrdd: RecordedRDD, func: Callable[[Any, Any], Any], numPartitions: int | None = None,
                partitionFunc: Callable[[Any], int] = portable_hash, *,
                numKeys: int | None = None, dtype: Any = None) -> ReducedRDD:
    """Fold the values of each key.

    Parameters
    ----------
    func : callable
        Of two values, associative and commutative.
    numPartitions, partitionFunc
        As for any RDD.
    numKeys : int, optional
        Promises that the keys are ints in [0, numKeys), computed by a ``vmap``. On cached data the fold then runs
        in the workers if ``func`` can be lowered, as for :meth:`reduce`, in tables with a cell for each key. Where
        these would have 2**31 numbers or more, or more than 32768 keys and 8 for each record, and by a function that
        is no operator, values are sorted by key there, as if it were not given.
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
    return ReducedRDD(vrdd, func, numPartitions, partitionFunc, numKeys, check_double("reduceByKey", dtype))
