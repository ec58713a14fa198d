"""Errors of Spark jobs: their causes, and the vispark errors inside them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkContext
from pyspark.errors.exceptions.captured import CapturedException
from pyspark.rdd import PipelinedRDD

from vispark import errors
from vispark.plan.operation import functions_of
from vispark.plan.ops import LogicalPlan
from vispark.runtime.task_errors import task_error, words_of_python
from vispark.translate.frontend import index_faults
from vispark.translate.ir.errors import TranslationError

__all__ = ["CALL_FAILED", "SPARK_JOB_FAILED", "PipelinedRDD", "attempts_of", "reraise", "reraised", "tasks_done",
           "worker_crashed"]

#: What PySpark raises when a job fails: once a program has used SQL, the second instead of the first.
SPARK_JOB_FAILED = Py4JJavaError, CapturedException

#: What a call into the driver's JVM raises that it cannot answer, or that it has no such method for.
CALL_FAILED = Py4JError, CapturedException

_CRASHED = ("Python worker exited unexpectedly", "Python worker failed to connect back", "ExecutorLostFailure",
            "ExecutorLost", "Slave lost", "Worker lost")
_OURS = re.compile(r"^(?:gpu_worker\.protocol|vispark\.translate\.ir)\.errors\.(\w+): "
                   r"(.*?)(?=\n\n|\n SQLSTATE: |\n\tat |\Z)",
                   re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Attempts:
    """Counts of a stage's tasks, and of the attempts at them that run and that have ended."""

    tasks: int
    active: int
    ended: int

    @property
    def started(self) -> int:
        """The number of attempts so far."""
        return self.active + self.ended


def attempts_of(context: SparkContext, stage: int) -> Attempts | None:
    """Return the attempts at a stage's tasks; None if Spark, which remembers recent stages only, has forgotten the
    stage.
    """
    try:
        attempt = context._jsc.sc().statusStore().lastStageAttempt(stage)
    except Py4JJavaError:
        return None
    ended = attempt.numCompleteTasks() + attempt.numFailedTasks() + attempt.numKilledTasks()
    return Attempts(attempt.numTasks(), attempt.numActiveTasks(), ended)


def tasks_done(context: SparkContext, rdd: PipelinedRDD) -> int:
    """Return the number of tasks that are done, as far as Spark says, of the stages that run over an RDD's input."""
    done, number = 0, rdd._prev_jrdd.id()
    try:
        stages = context._jsc.sc().statusStore().activeStages()
        for stage in map(stages.apply, range(stages.size())):
            done += stage.numCompleteTasks() if stage.rddIds().contains(number) else 0
    except CALL_FAILED:         # which tells of a job that is over
        return 0
    return done


def worker_crashed(error: Exception) -> bool:
    """Return whether a job failed because a Python worker or an executor ended, and not because of an error in a task.
    """
    text = str(error)
    # One that ends before it has said who it is leaves no other words.
    unborn = "java.io.EOFException" in text and "PythonWorkerFactory.create" in text
    # Spark says the same where it could not read the input that it feeds.
    unread = ".writeNextInputToStream(" in text
    return (unborn or any(words in text for words in _CRASHED)) and not unread and not _OURS.search(text)


def reraise(error: Exception, chain: LogicalPlan | None = None) -> None:
    """Raise the vispark error that made a job fail, if Spark's error contains one, a :class:`TaskError` for an error of
    the user's function, or else Spark's error.

    Its lines are those of the functions of ``chain``, where the job was for one that is known.
    """
    named = _OURS.findall(words_of_python(str(error)))
    if named:
        kind, text = named[-1]      # before it stand the errors that led to it
        message, _, detail = text.partition("\n")
        type_ = TranslationError if kind == TranslationError.__name__ else getattr(errors, kind, errors.VisparkError)
        ours = type_(message, detail=detail)
        index_faults.add_user_lines(ours, None if chain is None else functions_of(chain))
        ours.full_trace = str(error)
        raise ours from None
    raise task_error(str(error)) or error from None


@contextmanager
def reraised() -> Iterator[None]:
    """Raise errors of Spark jobs that run during the block, or a function that it decorates, as :func:`reraise` does.
    """
    try:
        yield
    except SPARK_JOB_FAILED as error:
        if isinstance(error, errors.VisparkError):
            raise
        reraise(error)
