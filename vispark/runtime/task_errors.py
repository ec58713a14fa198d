"""Errors of users' own functions in Spark's tasks: their words and frames, out of what Spark makes of them."""

from __future__ import annotations

import re

from pyspark import SparkContext

from vispark.errors import TaskError

_TRACE = "Traceback (most recent call last):\n"
_FRAME = re.compile(r'^  File "(?P<path>[^"]*)", line \d+.*\n(?:    .*\n)*', re.MULTILINE)
#: Where the words of an error begin behind its frames; there may be lines in them that look like a frame's.
_WORDS = re.compile(r"^\S", re.MULTILINE)
_MOST_FRAMES = 8
#: What is behind an error of a module that workers lack, or of a Python that Spark cannot run.
_OTHER_PYTHON = ("  Spark's Python workers run PYSPARK_PYTHON, or python3 of the PATH where that is not set: set it to "
                 "a Python that {}")
#: What Spark says of a Python that it cannot run.
_UNSTARTED = re.compile(r'Cannot run program "(?P<program>[^"]*)".*?: (?P<reason>error=.*)')
#: Modules whose frames say nothing to who wrote the function.
_FOREIGN = re.compile(r"/(pyspark|py4j|vispark|gpu_worker)/|pyspark\.zip/")
#: Where Spark's words begin behind a trace of Python's.
_SPARK = re.compile(r"^( SQLSTATE: |\tat |Driver stacktrace:)", re.MULTILINE)


def task_error(text: str) -> TaskError | None:
    """Return the error for what a task raised, from a text with its trace, or for a task whose Python could not be run;
    None for other texts.

    Parameters
    ----------
    text : str
        Python's own, or what Spark says of it. Of several traces the last is taken, which is that of the last error.

    Examples
    --------
    >>> error = task_error('''Traceback (most recent call last):
    ...   File "/x/pyspark/worker.py", line 1, in main
    ...     process()
    ...   File "mine.py", line 3, in f
    ...     return x / 0
    ... ZeroDivisionError: float division by zero
    ... ''')
    >>> print(error)
    a function that Spark ran raised ZeroDivisionError: float division by zero
      File "mine.py", line 3, in f
        return x / 0
    """
    _, marker, trace = words_of_python(text).rpartition(_TRACE)
    unstarted = None if marker else _UNSTARTED.search(text)
    if unstarted is not None:
        error = TaskError(f"Spark cannot run {unstarted['program']} for its Python workers: {unstarted['reason']}",
                          detail=_OTHER_PYTHON.format("is on every node, and that this user may run"))
        error.full_trace = text
        return error
    if not marker:
        return None
    words = _WORDS.search(trace)
    end = words.start() if words else len(trace)
    frames = list(_FRAME.finditer(trace, 0, end))
    lines = [frame.group() for frame in frames if not _FOREIGN.search(frame["path"])][-_MOST_FRAMES:]
    lines = lines or [frame.group() for frame in frames[-1:]]
    if trace.startswith("ModuleNotFoundError", end):
        lines.append(_OTHER_PYTHON.format("has the module, as the driver's own"))
    error = TaskError(f"a function that Spark ran raised {trace[end:].strip()}", detail="".join(lines).rstrip())
    error.full_trace = text
    return error


def words_of_python(text: str) -> str:
    """Return the words of a task's Python in Spark's: from its first trace to Spark's own words behind it."""
    first = max(text.find(_TRACE), 0)
    return _SPARK.split(text[first:], maxsplit=1)[0]


def attempts_of_a_task(context: SparkContext) -> int:
    """Return the number of attempts that Spark makes at a task before it gives a job up."""
    local = re.fullmatch(r"local(\[\s*[^,\]]*(,\s*(?P<attempts>\d+)\s*)?\])?", context.master or "")
    if local:
        return int(local["attempts"] or 1)
    return int(context.getConf().get("spark.task.maxFailures", "4"))
