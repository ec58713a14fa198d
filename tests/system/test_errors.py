"""An error that nobody catches fits one screen, with the user's line first."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(180)

#: What a terminal shows at once.
SCREEN = 40

SCRIPT = """\
import vispark
from pyspark import SparkContext
sc = SparkContext("local[2]", "errors")
numbers, bad = sc.parallelize([1.0, 2.0], 2), sc.parallelize([1.0, None], 2)
def function(x):
    return x @ x
def wrong(x):
    return x / 0
{line}
"""


@pytest.mark.parametrize(("line", "words"), [
    ('bad.cache("GPU").vmap(lambda x: x + 1).collect()', "record 0 is None; leave out"),
    ('bad.cache("GPU").map(lambda x: x + 1).count()', "record 0 is None; leave out"),
    ("bad.vmap(lambda x: x + 1).count()", "record 0 is None; leave out"),
    ('numbers.cache("GPU").vmap(function).collect()', "return x @ x"),
    ("numbers.vmap(function).collect()", "return x @ x"),
    ('numbers.cache("GPU").vmap(lambda x, p: p[int(x) + 7], [1.0, 2.0]).sum()', "out of range"),
    ('numbers.cache("GPU").map(wrong).collect()', "return x / 0"),
    ('numbers.cache("GPU").map(wrong).count()', "raised ZeroDivisionError: float division by zero"),
    ('numbers.map(wrong).cache("GPU").vmap(lambda x: x + 1).count()', "return x / 0"),
])
def test_an_error_fits_one_screen(tmp_path: Path, line: str, words: str):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(line=line))
    ran = subprocess.run([sys.executable, str(script)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                         env=os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
                         timeout=150)
    shown = ran.stdout.splitlines()
    assert ran.returncode and len(shown) <= SCREEN, ran.stdout
    trace = ran.stdout[ran.stdout.index("Traceback (most recent call last)"):]
    assert trace.splitlines()[2].strip() == line
    assert words in trace
    assert "Py4J" not in trace and "\tat " not in trace and trace.count("Traceback") == 1
