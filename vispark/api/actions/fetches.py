"""Actions of a VRDD that workers answer from what they hold, and those that are Spark's."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
from pyspark import RDD

from vispark.api.rdds.recorded_rdd import RecordedRDD
from vispark.errors import PlanError
from vispark.plan.lower.stages import FETCH, RequestedOutput
from vispark.runtime.driver.session import Session

_NO_ARRAY = "toNumpy() is of records that are numbers, or arrays of one shape: make such by vmap, or collect() these"


def collect(vrdd: RecordedRDD) -> list[Any]:
    """Return a list of all records, in order.

    Returns
    -------
    list
        Of Python's numbers where Python's were sent or computed, of NumPy's scalars and arrays in their dtypes
        otherwise; of tuples, dicts and pairs with these inside.

    Examples
    --------
    >>> sc.parallelize([1.0, 2.0, 4.0], 2).cache("GPU").collect()
    [1.0, 2.0, 4.0]
    """
    if not vrdd._is_held():
        return vrdd._inner().collect()
    answer = vrdd._evaluate(range(vrdd.getNumPartitions()), FETCH)
    return [record for index in sorted(answer.records) for record in answer.records[index]]


def toNumpy(vrdd: RecordedRDD) -> np.ndarray:
    """Return all records, numbers or arrays of one shape, as one array with the records along its first axis.

    It comes through shared memory, without a Python object for each record.

    Returns
    -------
    ndarray of shape (records, ...)
        Behind the records the shape of one; of their dtype, of Python's numbers float64, int64 or bool. Of no records
        of shape (0,) and dtype float64.

    Raises
    ------
    PlanError
        If the records are others: pairs, tuples, dicts, or arrays of several shapes.

    Examples
    --------
    >>> sc.parallelize([1.0, 2.0, 4.0], 2).cache("GPU").vmap(lambda x: np.array([x, -x])).toNumpy()
    array([[ 1., -1.],
           [ 2., -2.],
           [ 4., -4.]])
    """
    if not vrdd._is_held():
        return _one_array(vrdd._inner().collect())
    answer = Session.of(vrdd.ctx).evaluate(vrdd._loader, vrdd._recent(), range(vrdd.getNumPartitions()), FETCH,
                                           vrdd._chain, is_columnar=True)
    vrdd._let_go_of_inputs()
    fetched = [answer.records[index] for index in sorted(answer.records)]
    layouts = [each.schema.layout for each in fetched if each.schema.count]
    if any(each.only for each in layouts):      # keys that were sent, which are objects
        return _one_array(collect(vrdd))
    if any(len(each.parts) != 1 or each.parts[0].name or each.keyed or each.parts[0].form not in ("number", "array")
           for each in layouts):
        raise PlanError(_NO_ARRAY)
    try:
        return np.concatenate([array if each.schema.layout.kind == "elements" else array[None]
                               for each in fetched if each.schema.count for block in each.blocks
                               for array in block.values()] or [np.zeros(0)])
    except ValueError as error:
        raise PlanError(_NO_ARRAY) from error


def _one_array(records: list[Any]) -> np.ndarray:
    try:
        array = np.array(records)
    except ValueError as error:
        raise PlanError(_NO_ARRAY) from error
    if array.dtype.kind not in "biufc" or any(isinstance(each, tuple | list) for each in records[:1]):
        raise PlanError(_NO_ARRAY)
    return array


def take(vrdd: RecordedRDD, num: int) -> list[Any]:
    """Return the first ``num`` records; no more than these leave the worker, unless they are pairs.

    Parameters
    ----------
    num : int
        The most records.

    Returns
    -------
    list
        At most ``num`` records, as :meth:`collect` gives them; empty where ``num`` is 0 or less.

    Examples
    --------
    >>> sc.parallelize([1.0, 2.0, 4.0], 2).cache("GPU").take(2)
    [1.0, 2.0]
    """
    if not vrdd._is_held():
        records: list[Any] = vrdd._spark("take", num)
        return records
    results: list[Any] = []
    partitions = iter(range(vrdd.getNumPartitions()))
    at_once = 1
    while len(results) < num and (batch := list(itertools.islice(partitions, at_once))):
        answer = vrdd._evaluate(batch, RequestedOutput(limit=num - len(results)))
        results.extend(record for index in batch for record in answer.records[index])
        at_once *= 4
    return results[:num]


def first(vrdd: RecordedRDD) -> Any:
    """Return the first record.

    Returns
    -------
    number, array, tuple or dict
        A record as :meth:`collect` gives it.

    Raises
    ------
    ValueError
        If there is none.

    Examples
    --------
    >>> sc.parallelize([1.0, 2.0, 4.0], 2).cache("GPU").first()
    1.0
    """
    records = take(vrdd, 1)
    if not records:
        raise ValueError("RDD is empty")
    return records[0]


def isEmpty(vrdd: RecordedRDD) -> bool:
    """Return whether there are no records.

    Returns
    -------
    bool
        True of an RDD without partitions, too.

    Examples
    --------
    >>> sc.parallelize([1.0, 2.0, 4.0], 2).cache("GPU").isEmpty()
    False
    """
    return vrdd.getNumPartitions() == 0 or not take(vrdd, 1)


def count(vrdd: RecordedRDD) -> int:
    """Return the number of records.

    Returns
    -------
    int
        Of pairs one each; of blocks how many blocks, not rows.

    Examples
    --------
    >>> sc.parallelize([1.0, 2.0, 4.0], 2).cache("GPU").count()
    3
    """
    if not vrdd._is_held():
        return int(vrdd._spark("count"))
    return sum(content.count for content in vrdd._results())


def by_spark(name: str) -> Callable[..., Any]:
    """Return PySpark's action of that name, which is repeated where a Python worker crashes under it."""
    @functools.wraps(getattr(RDD, name))
    def action(vrdd: RecordedRDD, *arguments: Any, **named: Any) -> Any:
        return vrdd._spark(name, *arguments, **named)
    return action
