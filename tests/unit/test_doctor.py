"""``gpu-worker doctor`` says what a machine has, what is missing, and what mends it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpu_worker.system import doctor

pytestmark = pytest.mark.slow


def _doctor(tmp_path: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"VISPARK_RUNTIME_DIR": str(tmp_path / "run"), "XDG_CACHE_HOME": str(tmp_path)}
    return subprocess.run([sys.executable, "-m", "gpu_worker", "doctor", *arguments], env=environment | variables,
                          capture_output=True, text=True, check=False)


def test_a_machine_that_runs_the_tests_is_well(tmp_path: Path):
    ended = _doctor(tmp_path)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    lines = ended.stdout.splitlines()
    assert lines[-1] == "vispark runs here"
    assert len(lines) <= 30, "more than a screen"
    assert not (tmp_path / "run" / "daemon.sock").exists(), "a daemon was started"


def test_what_is_missing_is_named_with_what_mends_it(tmp_path: Path):
    ended = _doctor(tmp_path, "--json", CXX="no-such-compiler", JAVA_HOME=str(tmp_path / "no-java"))
    assert ended.returncode == 1
    missing = {one["name"]: one for one in json.loads(ended.stdout) if one["state"] == "missing"}
    assert set(missing) == {"Java", "CPU device"}
    assert "openjdk-17" in missing["Java"]["mend"]
    assert "no-such-compiler" in missing["CPU device"]["found"] and "CXX" in missing["CPU device"]["mend"]


def test_a_runtime_directory_that_others_may_enter_is_found(tmp_path: Path):
    open_to_all = tmp_path / "run"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    findings = {one.name: one for one in doctor.examine(str(open_to_all))}
    assert findings["runtime directory"].is_bad and "VISPARK_RUNTIME_DIR" in findings["runtime directory"].mend


def test_a_java_that_is_too_old_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text('#!/bin/sh\necho \'openjdk version "11.0.2" 2019-01-15\' >&2\n')
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    findings = {one.name: one for one in doctor.examine(str(tmp_path / "run"))}
    assert findings["Java"].is_bad and "version 11" in findings["Java"].found
