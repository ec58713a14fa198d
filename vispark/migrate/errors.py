"""Errors of the command ``vispark``: each is one message, and the exit status that says the same."""

from __future__ import annotations

import re

from gpu_worker.commands.deployment.output import NO, UNKNOWN, USAGE, YES
from vispark.errors import VisparkError

__all__ = ["NO", "UNKNOWN", "USAGE", "YES", "CaptureError", "EventLogError", "HistoryError", "JobMissing",
           "MasterError", "MissingPackage", "OutputError", "PredictionError", "SourceError",
           "ValidationError", "error_line"]

#: Line that names an error, as a traceback ends.
_ERROR = re.compile(r"[\w.]*(Error|Exception|Interrupt|Exit|Warning)\b.*")


class SourceError(VisparkError):
    """A program's source that cannot be read, or that is none of Python's."""


class EventLogError(VisparkError):
    """A file that is no event log of Spark's, or one in a form that cannot be read."""


class CaptureError(VisparkError):
    """A folder that is no recording of ``vispark record``, or one of another version or of another script."""


class MissingPackage(VisparkError):
    """A package that a command needs and that is not installed; the message has the command that installs it."""


class MasterError(VisparkError):
    """A program that names a master of its own where another one was asked for."""


class OutputError(VisparkError):
    """A file that a command was to write and could not."""


class ValidationError(VisparkError):
    """A program that failed while its results were to be compared."""


class HistoryError(VisparkError):
    """A store of jobs that cannot be read or written, or that a newer vispark wrote."""


class JobMissing(HistoryError):
    """A job, or runs of one, that the store does not have."""


class PredictionError(VisparkError):
    """A file of devices, of prices or of a calibration that cannot be used, or a machine too busy to be measured."""


def error_line(output: str) -> str:
    """Return the last line of a program's output that names an error, or the last line where none does.

    Lines of Spark's bar of progress are none.

    Examples
    --------
    >>> error_line("Traceback\\n  File job.py\\nKeyError: 3\\n    w = p[3]\\n        ^^^^")
    'KeyError: 3'
    """
    lines = [line for line in output.splitlines() if line.strip(" ^~") and not line.startswith("[Stage ")]
    named = [line for line in lines if _ERROR.match(line)]
    # Of what the JVM logs of a task, Python's own error is the part that says something.
    own = [line for line in named if not line.startswith(("org.apache.", "java.", "py4j."))]
    return (own or named or lines or ["no output"])[-1]
