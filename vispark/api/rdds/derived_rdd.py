"""RDDs that Spark makes of a VRDD's records by shuffles, unions and the like, and those of vispark's readers.

They are PySpark's own but for one thing: an error of one of their actions fits one screen, as a VRDD's does.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from types import FunctionType
from typing import Any, TypeVar

from pyspark import RDD

from vispark._utils.boundary import brief
from vispark._utils.callers import call_site, user_call
from vispark.runtime.driver.session import Session
from vispark.runtime.driver.spark_errors import SPARK_JOB_FAILED, PipelinedRDD, reraise

__all__ = ["OF_RDDS", "adopted", "derives", "of_brief_errors"]

_Function = TypeVar("_Function", bound=Callable[..., Any])
_Class = TypeVar("_Class", bound=type)

#: Transformations of PySpark's that ask the JVM for an RDD; all others are made of these and of mapPartitionsWithIndex.
OF_RDDS = ("cartesian", "coalesce", "partitionBy", "pipe", "repartition", "sortByKey", "union", "zip")


def adopted(result: Any) -> Any:
    """Make a plain RDD one whose errors are brief, and return it; return anything else as it is."""
    changed = _CLASSES.get(type(result))
    if changed is not None:
        result.__class__ = changed
    return result


def of_brief_errors(reader: _Function) -> _Function:
    """Return a function that reads as ``reader`` does, and shortens errors of its RDD and of RDDs derived from it."""
    @functools.wraps(reader)
    def called(*arguments: Any, **named: Any) -> Any:
        return adopted(reader(*arguments, **named))
    return brief(called)  # type: ignore[return-value]


def derives(cls: _Class) -> _Class:
    """Adopt the RDDs that the transformations of PySpark make, and make the errors of PySpark's actions brief."""
    for name in OF_RDDS:
        setattr(cls, name, _adopting(getattr(cls, name)))
    return _answers_briefly(cls)


def _adopting(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def called(*arguments: Any, **named: Any) -> Any:
        return adopted(method(*arguments, **named))
    return called


def _answering(cls: type, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def called(self: Any, *arguments: Any, **named: Any) -> Any:
        # As it is now: a SparkSession puts another toDF in place.
        present = getattr(super(cls, self), name)
        try:
            with call_site(self.ctx, user_call(), Session.link(self.ctx)):
                result = present(*arguments, **named)
        except SPARK_JOB_FAILED as error:
            reraise(error)
        return _Answers(result) if isinstance(result, Iterator) else adopted(result)
    return brief(called)


class _Answers(Iterator[Any]):
    """Iterator over an action's answers, whose errors are brief."""

    def __init__(self, results: Iterator[Any]):
        self._found = results

    @brief
    def __next__(self) -> Any:
        try:
            return next(self._found)
        except SPARK_JOB_FAILED as error:
            reraise(error)


def _answers_briefly(cls: _Class) -> _Class:
    """Shorten the tracebacks of a class's actions: those that PySpark's RDD defines, and those inherited from classes
    of ours.
    """
    for base in cls.__mro__:
        for name, method in vars(base).items() if issubclass(base, RDD) else ():
            if isinstance(method, FunctionType) and not name.startswith("_") and name not in vars(cls) \
                    and getattr(cls, name) is method:
                is_sparks = base.__module__.startswith("pyspark.")
                setattr(cls, name, _answering(cls, name, method) if is_sparks else brief(method))
    return cls


@_answers_briefly
class DerivedRDD(RDD[Any]):
    """RDD that Spark computes from a VRDD's records, or that a reader gives."""

    def mapPartitionsWithIndex(self, f: Callable[[int, Iterable[Any]], Iterable[Any]],
                               preservesPartitioning: bool = False) -> PipelinedRDD:
        """Apply a function to each partition's records, in Spark."""
        return DerivedPipelinedRDD(self, f, preservesPartitioning)


@_answers_briefly
class DerivedPipelinedRDD(PipelinedRDD):
    """RDD of the results of a Python function of such records."""

    def mapPartitionsWithIndex(self, f: Callable[[int, Iterable[Any]], Iterable[Any]],
                               preservesPartitioning: bool = False) -> PipelinedRDD:
        """Apply a function to each partition's records, in Spark."""
        return DerivedPipelinedRDD(self, f, preservesPartitioning)


_CLASSES: dict[type, type] = {RDD: DerivedRDD, PipelinedRDD: DerivedPipelinedRDD}
