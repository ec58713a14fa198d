"""A JVM that ended says why."""

from __future__ import annotations

import subprocess

import pytest

from tests.jvm import end_of


@pytest.mark.parametrize(("command", "words"), [
    ("exit 0", "its standard input was closed"), ("exit 52", "UNCAUGHT_EXCEPTION"), ("kill -9 $$", "signal SIGKILL"),
    ("exit 137", "signal SIGKILL"), ("exit 3", "status 3: a status without")])
def test_the_status_of_a_process_has_a_meaning(command: str, words: str):
    with subprocess.Popen(["sh", "-c", command]) as process:
        process.wait()
    assert words in end_of(process) and "MiB of memory free" in end_of(process)


def test_of_a_process_that_runs_nothing_is_said():
    with subprocess.Popen(["sleep", "60"]) as process:
        assert end_of(process) == ""
        process.kill()
