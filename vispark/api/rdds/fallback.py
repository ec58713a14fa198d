"""Fallback of actions that workers cannot answer: a Spark job over the records, which is reported to the user."""

from __future__ import annotations

import functools
import sys
import warnings
from pathlib import Path
from types import FrameType

import pyspark
from pyspark import SparkContext

from vispark.errors import FallbackWarning, PlanError
from vispark.runtime.driver.session import Session

_OURS, _SPARK = str(Path(__file__).parents[2]), str(Path(pyspark.__file__).parent)
#: Between a property that is computed once and its reader.
_BETWEEN = functools.__file__

#: The lines and actions that were warned of, in this process.
_warned: set[tuple[str, int, str]] = set()


def report_fallback(context: SparkContext, action: str, name: object, reason: str,
                    how: str = "brings the records back to Python, and is a Spark job") -> None:
    """Apply ``spark.vispark.fallback``: warn, once for a line of the user's code; raise an error; or do nothing.

    Raises
    ------
    PlanError
        If the option is ``error``.
    """
    chosen = Session.of(context).options.fallback
    if chosen == "silent":
        return
    short = reason.partition("\n")[0]
    text = f"{action}() of {name} {how}: {short}"
    if chosen == "error":
        raise PlanError(f"{text} (spark.vispark.fallback=error)")
    file, line = _caller()
    if (file, line, action) not in _warned:
        _warned.add((file, line, action))
        text += ". Where that is meant: spark.vispark.fallback=silent"
        warnings.warn_explicit(text, FallbackWarning, file, line)


def is_asked_for_by_user() -> bool:
    """Return whether the innermost frame outside of vispark is none of PySpark's."""
    return not _outside(_OURS).f_code.co_filename.startswith(_SPARK)


def _caller() -> tuple[str, int]:
    """Return file and line of the innermost frame outside of vispark and PySpark."""
    frame = _outside(_OURS, _SPARK)
    return frame.f_code.co_filename, frame.f_lineno


def _outside(*directories: str) -> FrameType:
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith((*directories, _BETWEEN)):
        frame = frame.f_back
    return frame
