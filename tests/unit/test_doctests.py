"""The examples in docstrings run, those that need no Spark; tests/system/test_doctests.py has the others."""

from __future__ import annotations

import doctest
import sys
import tempfile
from pathlib import Path

import pytest

from tests import doctests

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("test", doctests.of_docstrings(spark=False), ids=lambda test: test.name)
def test_docstring(test: doctest.DocTest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    # What examples leave on disk, such as compiled kernels, is nobody's but the test's.
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    doctests.run(test)


def test_examples_are_found():
    names = {test.name for test in doctests.of_docstrings(spark=False)}
    assert {"gpu_worker.device.null.NullDevice", "vispark.plan.cuda_source.Kernels"} <= names
    names = {test.name for test in doctests.of_docstrings(spark=True)}
    assert {"vispark", "vispark.api.operations.device_ops.exec_"} <= names


def test_no_import_begins_mpi_in_the_process_of_the_tests():
    assert "mpi4py.MPI" not in sys.modules


def test_an_example_that_gives_something_else_is_an_error():
    test = doctest.DocTestParser().get_doctest(">>> 1 + 1\n3\n", {}, "wrong", "wrong.md", 0)
    with pytest.raises(AssertionError, match="Expected"):
        doctests.run(test)
