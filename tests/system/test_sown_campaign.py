"""A slice of ``python -m benchmarks.sown_errors``: ports by ``vispark port`` that run on Spark, wrong or right."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.sown_errors import FOLDER, SownProgram

pytestmark = pytest.mark.timeout(400)


def test_each_program_is_ported_and_each_error_changes_its_port():
    programs = [SownProgram.read(path) for path in sorted(FOLDER.glob("[a-z]*.py"))]
    kinds = {kind for each in programs for kind in each.errors()}
    assert len(programs) == 6 and len(kinds) > 25
    for program in programs:
        assert 'cache("GPU")' in program.ported and 'cache("GPU")' not in program.text


def test_sown_errors_are_found_and_correct_runs_raise_no_alarm(tmp_path: Path):
    record = tmp_path / "sown.jsonl"
    words = ("--errors", "16", "--correct", "12", "--seed", "1", "--out", str(record))
    ended = subprocess.run([sys.executable, "-m", "benchmarks.sown_errors", *words], capture_output=True, text=True,
                           timeout=360, env=os.environ | {"PYTHONWARNINGS": "ignore"})
    assert ended.returncode == 0, ended.stdout + ended.stderr[-2000:]
    lines = [json.loads(line) for line in record.read_text().splitlines()][1:]
    assert [bool(each["sown"]) for each in lines] == [True] * 16 + [False] * 12
    assert {each["verdict"] for each in lines[:16]} <= {"differs", "failed"}
    assert all(each["statement"] and each["pass"] for each in lines[:16] if each["verdict"] == "differs")
