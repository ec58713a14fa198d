"""Errors of users' functions in Spark's tasks, out of Spark's words; which attempt hands them back."""

from __future__ import annotations

import pickle
from types import SimpleNamespace

import pytest
from py4j.protocol import Py4JJavaError

from vispark.errors import DeviceUnavailable, TaskError, WorkerLost
from vispark.runtime.executor import tasks
from vispark.runtime.executor.tasks import ErrorReturning, RefusedTask, checked
from vispark.runtime.task_errors import attempts_of_a_task, task_error

SPARK = """An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.
: org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/x/pyspark.zip/pyspark/worker.py", line 4327, in invoke_udf
    run_process()
  File "/here/mine.py", line 2, in function
    return int(x)
           ^^^^^^
ValueError: not a number
of two lines
{end}
\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:1097)
"""


@pytest.mark.parametrize("end", ["", " SQLSTATE: 38000"])
def test_the_users_frames_and_the_errors_words_are_found(end: str):
    error = task_error(SPARK.format(end=end))
    assert str(error) == """a function that Spark ran raised ValueError: not a number
of two lines
  File "/here/mine.py", line 2, in function
    return int(x)
           ^^^^^^"""
    assert isinstance(error, Py4JJavaError) and "\tat " in error.full_trace
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_words_may_have_lines_like_those_of_frames():
    """Keep all words, as words that are cut to their last lines would say nothing."""
    own = "ours.Refused: x[7] is none of 3\n  File \"/here/mine.py\", line 9, in f\n    x[7]\n    ^^^^"
    assert str(task_error(SPARK.format(end="").replace("ValueError: not a number\nof two lines", own))) == \
        f"""a function that Spark ran raised {own}
  File "/here/mine.py", line 2, in function
    return int(x)
           ^^^^^^"""


def test_what_has_no_trace_is_no_tasks_error():
    assert task_error("Job aborted: the disk is full\n\tat org.apache.spark.Job") is None


def test_a_python_that_spark_cannot_run_is_told():
    error = task_error('Job aborted: Lost task 0.0 (TID 0): java.io.IOException: Cannot run program "/x/python": '
                       "error=13, Permission denied\n\tat java.base/java.lang.ProcessBuilder.start(X.java:1)\n")
    first, second = str(error).splitlines()
    assert first == "Spark cannot run /x/python for its Python workers: error=13, Permission denied"
    assert second.endswith("set it to a Python that is on every node, and that this user may run")


def test_a_module_that_workers_lack_is_told_with_the_python_that_they_run():
    text = SPARK.format(end="").replace("ValueError: not a number", "ModuleNotFoundError: No module named 'x'")
    error = task_error(text)
    assert str(error).splitlines()[-1].startswith("  Spark's Python workers run PYSPARK_PYTHON")


@pytest.mark.parametrize(("master", "attempts"), [("local", 1), ("local[*]", 1), ("local[2, 3]", 3), ("local[*,5]", 5),
                                                  ("local-cluster[2,1,512]", 7), ("spark://a:7077", 7)])
def test_how_often_a_task_is_tried(master: str, attempts: int):
    conf = SimpleNamespace(get=lambda name, default: {"spark.task.maxFailures": "7"}.get(name, default))
    assert attempts_of_a_task(SimpleNamespace(master=master, getConf=lambda: conf)) == attempts


_ERRORS = ValueError("not a number"), WorkerLost("gone"), DeviceUnavailable("there is no usable NVIDIA GPU here")


def _fails(partition: int, records: list):
    yield from records
    raise _ERRORS[partition]


def test_errors_of_users_are_handed_back_in_the_last_attempt(monkeypatch):
    attempt = [0]
    monkeypatch.setattr(tasks, "TaskContext",
                        SimpleNamespace(get=lambda: SimpleNamespace(attemptNumber=lambda: attempt[0])))
    back = ErrorReturning(_fails, 2)
    with pytest.raises(ValueError, match="not a number"):
        list(back(0, [1]))
    attempt[0] = 1
    *_, refused = back(0, [1])
    assert isinstance(refused, RefusedTask)
    with pytest.raises(TaskError, match="ValueError: not a number"):
        checked([1, refused])
    with pytest.raises(WorkerLost):
        list(back(1, [1]))
    *_, refused = back(2, [1])      # another node may have had one; Spark would log each task's trace
    with pytest.raises(DeviceUnavailable, match="no usable NVIDIA GPU"):
        checked([1, refused])
