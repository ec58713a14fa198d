"""What Spark's own failures say, and vispark's errors inside of them."""

from __future__ import annotations

import re

from py4j.protocol import Py4JJavaError
from pyspark.errors.exceptions.captured import CapturedException
from pyspark.rdd import PipelinedRDD

from vispark import errors

__all__ = ["SPARK_JOB_FAILED", "PipelinedRDD", "reraise", "worker_crashed"]

#: What PySpark raises when a job fails: once a program has used SQL, the second instead of the first.
SPARK_JOB_FAILED = Py4JJavaError, CapturedException

_CRASHED = ("Python worker exited unexpectedly", "Python worker failed to connect back", "ExecutorLostFailure",
            "ExecutorLost", "Slave lost", "Worker lost")
_OURS = re.compile(r"^gpu_worker\.protocol\.errors\.(\w+): (.*?)(?=\n\n|\n SQLSTATE: |\n\tat |\Z)",
                   re.MULTILINE | re.DOTALL)


def worker_crashed(error: Exception) -> bool:
    """Whether a job failed because a Python worker or an executor ended under it, not because of what it ran."""
    text = str(error)
    # One that ends before it has said who it is leaves no other words.
    unborn = "java.io.EOFException" in text and "PythonWorkerFactory.create" in text
    return (unborn or any(words in text for words in _CRASHED)) and not _OURS.search(text)


def reraise(error: Exception) -> None:
    """Raise the vispark error that made a job fail, from Spark's; or Spark's own, where there is none."""
    python, _, _ = str(error).partition("\n\tat ")
    found = _OURS.findall(python)
    if found:
        kind, text = found[-1]      # before it stand the errors that led to it
        message, _, detail = text.partition("\n")
        raise getattr(errors, kind, errors.VisparkError)(message, detail=detail) from error
    raise error
