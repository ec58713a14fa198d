"""Startup of a world's ranks."""

from __future__ import annotations

import socket
import subprocess
import time
from pathlib import Path

import pytest

from gpu_worker.exchange.mpi import world
from gpu_worker.exchange.mpi.nodes import program, why_unfit
from gpu_worker.protocol.errors import OptionError, WorldLost
from gpu_worker.protocol.grids import World as Wanted


def _says(path: Path, words: str) -> str:
    path.write_text(f"#!/bin/sh\necho '{words}'\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.mpi
def test_the_environments_mpirun_is_fit():
    assert why_unfit(program("mpirun")) == ""


@pytest.mark.parametrize("words", ["mpirun (Open MPI) 4.1.6", "Intel(R) MPI Library for Linux* OS, Version 2021.9",
                                   "HYDRA build details:"])
def test_another_mpirun_is_named_with_what_would_be_right(tmp_path, words):
    path = _says(tmp_path / "mpirun", words)
    assert why_unfit(path).startswith(f"a grid that spans nodes needs Open MPI 5, and {path} is {words!r}: pip install")


def test_a_later_release_is_fit_and_what_says_nothing_is_not(tmp_path):
    assert why_unfit(_says(tmp_path / "later", "mpirun (Open MPI) 11.0.1")) == ""
    assert "is ''" in why_unfit(_says(tmp_path / "silent", ""))
    assert why_unfit(str(tmp_path / "nowhere")) == ""       # not lasting: the next try may find it


@pytest.mark.parametrize("words, error, text", [
    ("mpirun (Open MPI) 4.1.6", OptionError, r"no MPI world of a, b can come to be: .* is 'mpirun \(Open MPI\) 4.1.6'"),
    ("mpirun (Open MPI) 5.0.7", WorldLost, "mpirun ended with status 1"),
])
def test_a_world_that_mpirun_does_not_start_says_whether_another_one_would(tmp_path, monkeypatch, words, error, text):
    monkeypatch.setattr(world, "program", lambda _: _says(tmp_path / "mpirun", words))
    ended = subprocess.Popen(["/bin/false"])
    ended.wait()
    wanted = Wanted(key=bytes(16), rank=0, workers=("a", "b"))
    with socket.socket(socket.AF_UNIX) as listener, pytest.raises(error, match=text):
        listener.bind(str(tmp_path / "world"))
        listener.listen()
        world._accepted(listener, wanted, ended, time.monotonic() + 20, lambda: False)
