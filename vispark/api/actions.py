"""Actions of a VRDD that workers answer from what they hold, and those that are Spark's."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

from pyspark import RDD

from vispark.api.recorded_rdd import RecordedRDD
from vispark.plan.lower.stages import FETCH, RequestedOutput


def collect(vrdd: RecordedRDD) -> list[Any]:
    """Return a list of all records, in order.

    Examples
    --------
    >>> sc.parallelize([1.0, 2.0, 4.0], 2).cache("GPU").collect()
    [1.0, 2.0, 4.0]
    """
    if not vrdd._is_held():
        return vrdd._inner().collect()
    answer = vrdd._evaluate(range(vrdd.getNumPartitions()), FETCH)
    return [record for index in sorted(answer.records) for record in answer.records[index]]


def take(vrdd: RecordedRDD, num: int) -> list[Any]:
    """Return the first ``num`` records; no more than these leave the worker, unless they are pairs.

    Examples
    --------
    >>> sc.parallelize([1.0, 2.0, 4.0], 2).cache("GPU").take(2)
    [1.0, 2.0]
    """
    if not vrdd._is_held():
        records: list[Any] = vrdd._spark("take", num)
        return records
    found: list[Any] = []
    partitions = iter(range(vrdd.getNumPartitions()))
    at_once = 1
    while len(found) < num and (batch := list(itertools.islice(partitions, at_once))):
        answer = vrdd._evaluate(batch, RequestedOutput(limit=num - len(found)))
        found.extend(record for index in batch for record in answer.records[index])
        at_once *= 4
    return found[:num]


def first(vrdd: RecordedRDD) -> Any:
    """Return the first record.

    Raises
    ------
    ValueError
        If there is none.

    Examples
    --------
    >>> sc.parallelize([1.0, 2.0, 4.0], 2).cache("GPU").first()
    1.0
    """
    found = take(vrdd, 1)
    if not found:
        raise ValueError("RDD is empty")
    return found[0]


def isEmpty(vrdd: RecordedRDD) -> bool:
    """Return whether there are no records.

    Examples
    --------
    >>> sc.parallelize([1.0, 2.0, 4.0], 2).cache("GPU").isEmpty()
    False
    """
    return vrdd.getNumPartitions() == 0 or not take(vrdd, 1)


def count(vrdd: RecordedRDD) -> int:
    """Return the number of records.

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
