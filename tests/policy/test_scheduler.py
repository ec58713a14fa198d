"""Tests of the order of tests: a run ends, and loses no test, where its processes die."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_FILE = """
import os
import pytest

@pytest.mark.parametrize("number", range({tests}))
def test_one(number):
    if number == {deadly}:
        os.kill(os.getpid(), 9)
"""


@pytest.mark.parametrize("deadly", [{10: 10}, {0: 0, 3: 29, 8: 0, 11: 29}], ids=["late", "several"])
def test_a_run_whose_processes_die_ends_and_runs_all_other_tests(tmp_path: Path, deadly: dict[int, int]):
    sizes = [1 if file % 4 == 1 else 30 for file in range(12)]
    for file, tests in enumerate(sizes):
        (tmp_path / f"test_{file:02}.py").write_text(_FILE.format(tests=tests, deadly=deadly.get(file)))
    (tmp_path / "conftest.py").write_text("from tests.conftest import pytest_xdist_make_scheduler")
    output = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--numprocesses", "3", "--dist", "loadfile",
         "--no-loadscope-reorder", "-q", str(tmp_path), "--rootdir", str(tmp_path)],
        cwd=tmp_path, env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)}, capture_output=True, text=True,
        timeout=110, check=False).stdout
    assert f"{len(deadly)} failed, {sum(sizes) - len(deadly)} passed" in output, output
