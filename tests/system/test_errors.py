"""An error that nobody catches fits one screen, with the user's line first."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from operator import add
from pathlib import Path

import pyspark
import pytest
from py4j.protocol import Py4JJavaError
from pyspark import RDD, SparkContext
from pyspark.errors.exceptions.captured import PythonException

from vispark import (
    VRDD,
    Grid,
    Kernels,
    TaskError,
    VisparkError,
    from_dataframe,
    read_csv,
    read_orc,
    read_parquet,
    read_text,
    stencil,
)

pytestmark = pytest.mark.timeout(180)

SPARK_3 = pyspark.__version__.startswith("3.")
#: What a terminal shows at once.
SCREEN = 40

SCRIPT = """\
import sys
from pathlib import Path
import numpy as np
import vispark
from pyspark import SparkContext
sc = SparkContext("local[2]", "errors")
numbers, bad = sc.parallelize([1.0, 2.0], 2), sc.parallelize([1.0, None], 2)
def function(x):
    return x @ x
def wrong(x):
    return x / 0
"""
#: The end of a script that runs others, and shows each one's error as Python does where nobody catches it.
EACH = """\
for path in sys.argv[1:]:
    try:
        exec(compile(Path(path).read_text(), path, "exec"))
    except Exception as error:
        error = error.with_traceback(error.__traceback__.tb_next)
        sys.excepthook(type(error), error, error.__traceback__)
    print("== next", file=sys.stderr)
"""
LINES = {
    'bad.cache("GPU").vmap(lambda x: x + 1).collect()': "record 0 is None; leave out",
    'bad.cache("GPU").map(lambda x: x + 1).count()': "record 0 is None; leave out",
    "bad.vmap(lambda x: x + 1).count()": "record 0 is None; leave out",
    'numbers.cache("GPU").vmap(function).collect()': "return x @ x",
    "numbers.vmap(function).collect()": "return x @ x",
    'numbers.cache("GPU").vmap(lambda x, p: p[int(x) + 7], [1.0, 2.0]).sum()': "out of range",
    'numbers.cache("GPU").map(wrong).collect()': "return x / 0",
    'numbers.cache("GPU").map(wrong).count()': "raised ZeroDivisionError: float division by zero",
    'sc.parallelize([[1.0, 2.0], [1.0, 2.0, 3.0]], 2).map(np.array).cache("GPU").vmap(lambda p: 2 * p).sum()':
        "these have the shapes (2,), (3,)",
    'numbers.map(wrong).cache("GPU").vmap(lambda x: x + 1).count()': "return x / 0",
}


def _ran(script: Path, *arguments: Path) -> str:
    ran = subprocess.run([sys.executable, str(script), *map(str, arguments)], stdout=subprocess.PIPE,
                         stderr=subprocess.STDOUT, text=True, timeout=150,
                         env=os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"})
    assert ran.returncode == (0 if arguments else 1), ran.stdout
    return ran.stdout


@pytest.fixture(scope="module")
def screens(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the text of each line's error; one program runs all lines."""
    folder = tmp_path_factory.mktemp("errors")
    paths = [folder / f"line{number}.py" for number in range(len(LINES))]
    for path, line in zip(paths, LINES, strict=True):
        path.write_text(line + "\n")
    script = folder / "script.py"
    script.write_text(SCRIPT + EACH)
    return dict(zip(LINES, _ran(script, *paths).split("== next\n"), strict=False))


def _check(screen: str, line: str) -> None:
    assert len(screen.splitlines()) <= SCREEN, screen
    trace = screen[screen.index("Traceback (most recent call last)"):]
    assert trace.splitlines()[2].strip() == line
    assert LINES[line] in trace
    assert "Py4J" not in trace and "\tat " not in trace and trace.count("Traceback") == 1


@pytest.mark.parametrize("line", LINES)
def test_an_error_fits_one_screen(screens: dict[str, str], line: str):
    _check(screens[line], line)


def test_an_error_that_ends_the_program_fits_one_screen(tmp_path: Path):
    line = 'numbers.map(wrong).cache("GPU").vmap(lambda x: x + 1).count()'
    (tmp_path / "script.py").write_text(f"{SCRIPT}{line}\n")
    _check(_ran(tmp_path / "script.py"), line)


@pytest.fixture(scope="module")
def held(sc: SparkContext) -> VRDD:
    cached = sc.parallelize([1.0, 2.0], 2).cache("GPU")
    assert cached.count() == 2
    return cached


SHUFFLES: dict[str, Callable[[RDD], object]] = {
    "before a shuffle": lambda rdd: rdd.map(lambda x: (1, x / 0)).reduceByKey(add).collect(),
    "behind a shuffle": lambda rdd: rdd.map(lambda x: (1, x)).groupByKey().map(lambda pair: pair[0] / 0).count(),
    "in a join": lambda rdd: rdd.map(lambda x: (x, x / 0)).join(rdd.map(lambda x: (x, x))).take(1),
    "behind a union": lambda rdd: rdd.union(rdd).map(lambda x: x / 0).foreach(print),
    "behind a coalesce": lambda rdd: rdd.coalesce(1).map(lambda x: x / 0).sum(),
    "in an order": lambda rdd: rdd.sortBy(lambda x: len(str(x)) / 0).collect(),
    "behind a zip": lambda rdd: rdd.zip(rdd).map(lambda pair: pair[0] / 0).max(),
    "counted": lambda rdd: rdd.repartition(3).map(lambda x: x / 0).countByValue(),
}


ACTIONS: dict[str, Callable[[RDD], object]] = {
    "taken": lambda rdd: rdd.take(1),
    "iterated": lambda rdd: list(rdd.toLocalIterator()),
    "saved as text": lambda rdd: rdd.saveAsTextFile(tempfile.mkdtemp() + "/saved"),
    "saved as pickles": lambda rdd: rdd.saveAsPickleFile(tempfile.mkdtemp() + "/saved"),
    "for each partition": lambda rdd: rdd.foreachPartition(list),
    "added up in a tree": lambda rdd: rdd.treeAggregate(0, add, add),
}


@pytest.mark.parametrize("name", ACTIONS)
def test_an_error_of_an_action_of_sparks_names_the_users_line(held: VRDD, name: str):
    with pytest.raises(TaskError) as raised:
        ACTIONS[name](held.map(lambda x: x / 0))
    text = "".join(traceback.format_exception(raised.value))
    assert len(text.splitlines()) <= SCREEN and "raised ZeroDivisionError" in text and "/ 0" in text


@pytest.mark.parametrize("name", SHUFFLES)
def test_an_error_behind_a_shuffle_names_the_users_line(held: VRDD, name: str):
    with pytest.raises(TaskError) as raised:
        SHUFFLES[name](held)
    text = "".join(traceback.format_exception(raised.value))
    assert len(text.splitlines()) <= SCREEN and "raised ZeroDivisionError" in text and "/ 0" in text
    assert isinstance(raised.value, Py4JJavaError) and isinstance(raised.value, PythonException)
    assert "Traceback" in raised.value.full_trace


def test_what_spark_makes_of_a_vrdd_is_pysparks_own_but_for_errors(held: VRDD):
    pairs = held.map(lambda x: (int(x), x))
    for derived in (pairs.groupByKey(), pairs.partitionBy(2), held.union(held), pairs.join(pairs), held.zip(held)):
        assert isinstance(derived, RDD) and type(derived).__module__ == "vispark.api.rdds.derived_rdd"
    assert sorted(pairs.join(pairs).mapValues(sum).collect()) == [(1, 2.0), (2, 4.0)]
    assert pairs.groupByKey().mapValues(sum).cache("GPU").count() == 2


def test_a_tasks_error_answers_as_a_python_exception_of_pysparks():
    error = TaskError("a function that Spark ran raised ValueError: no")
    assert isinstance(error, PythonException) and str(error) == error.message
    assert error.getErrorClass() is None if SPARK_3 else error.getCondition() is None


RAISED = VisparkError, ValueError, TypeError, IndexError, AttributeError, RuntimeError
_FOO = "object has no attribute 'foo'"
#: In 15 lines at most, of which none is a frame of ours but the boundary's.
CALLS: dict[str, tuple[Callable[[SparkContext, VRDD, Path], object], str]] = {
    "a file that is not there": (lambda sc, held, path: read_parquet(sc, path / "none.parquet"), "there is no Parquet"),
    "no Parquet": (lambda sc, held, path: read_parquet(sc, path / "a.csv"), "cannot be read as Parquet"),
    "no ORC": (lambda sc, held, path: read_orc(sc, path / "a.csv"), "cannot be read as ORC"),
    "a column of text": (lambda sc, held, path: read_csv(sc, path / "a.csv"), "'s' is string"),
    "no such column": (lambda sc, held, path: read_csv(sc, path / "a.csv", columns=["z"]), "has no column 'z'"),
    "text": (lambda sc, held, path: read_text(sc, path / "a.csv", delimiter=",").cache("GPU").count(), "line 1"),
    "no DataFrame": (lambda sc, held, path: from_dataframe(held), "DataFrame"),
    "a grid of no cells": (lambda sc, held, path: Grid((0, 8), splits=1), "shape= has 0"),
    "splits that are no whole numbers": (lambda sc, held, path: Grid((8, 8), splits=(2.5, 2)), "no whole number"),
    "no such kernel": (lambda sc, held, path: Kernels('extern "C" __global__ void f(float *x) {}').g, "it has f"),
    "a source without kernels": (lambda sc, held, path: Kernels("int x;"), "there is no __global__ function"),
    "an RDD in a function": (lambda sc, held, path: held.vmap(lambda x: x + held.count()).collect(),
                             "is Spark's, which a function that workers run cannot use"),
    "no function": (lambda sc, held, path: stencil(3), "and not 3"),
    "a function of the user's in the driver": (lambda sc, held, path: held.reduce(lambda x, y: [x, y][2]),
                                               "list index out of range"),
    "an attribute that numbers have not, reduce": (lambda sc, held, path: held.reduce(lambda x, y: x.foo + y), _FOO),
    "an attribute that numbers have not, max": (lambda sc, held, path: held.max(key=lambda x: x.foo), _FOO),
    "an attribute that numbers have not, treeReduce": (lambda sc, held, path: held.treeReduce(lambda x, y: y.foo),
                                                       _FOO),
    "an attribute that numbers have not, reduceByKeyLocally": (
        lambda sc, held, path: held.vmap(lambda x: (1, x)).reduceByKeyLocally(lambda x, y: x.foo), _FOO),
    "an error of the user's own": (lambda sc, held, path: held.reduce(lambda x, y: _refuse(x)), "no such record"),
    "what Spark refuses": (lambda sc, held, path: held.histogram(0), "buckets must be >= 1"),
    "a stopped context, scattered": (lambda sc, held, path: Grid((4, 4)).scatter(_stopped(), 1.0), "was stopped"),
    "a stopped context, read": (lambda sc, held, path: read_csv(_stopped(), path / "b.csv"), "was stopped"),
}


def _refuse(record: float) -> float:
    raise RuntimeError(f"no such record: {record}")


def _stopped() -> SparkContext:
    """Make a context as it is once stopped."""
    context = object.__new__(SparkContext)
    context._jsc = None
    context.master = "local[2]"
    return context


@pytest.mark.parametrize("name", CALLS)
def test_an_error_of_a_call_shows_the_users_line_and_no_frames_of_ours(sc: SparkContext, held: VRDD, tmp_path: Path,
                                                                       name: str):
    (tmp_path / "a.csv").write_text("x,s\n1,a\n")
    (tmp_path / "b.csv").write_text("x\n1\n")
    call, expected = CALLS[name]
    with pytest.raises(RAISED, match=expected) as raised:
        call(sc, held, tmp_path)
    text = "".join(traceback.format_exception(raised.value)).splitlines()
    assert len(text) <= 15 and expected in "\n".join(text)
    frames = [line for line in text if line.startswith("  File ")]
    assert all(__file__ in frame or "/vispark/_utils/boundary.py" in frame or "stencil.py" in frame for frame in frames)
