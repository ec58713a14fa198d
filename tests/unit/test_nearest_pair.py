"""Nearest centres by a pair of thread blocks, thread by thread on a CPU, in random order and with some copies late."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import gpu_worker.device

pytestmark = pytest.mark.slow

CLUSTER = Path(__file__).parents[1] / "cluster"
DEVICE = Path(gpu_worker.device.__file__).parent


def test_sums_and_counts_do_not_depend_on_the_order_of_threads_and_copies(tmp_path: Path):
    program = tmp_path / "nearest_pair"
    folders = [f"-I{each}" for each in (CLUSTER, DEVICE / "host", DEVICE / "host" / "include", DEVICE / "include")]
    subprocess.run(["g++", "-O2", "-std=c++17", *folders, CLUSTER / "nearest_pair.cpp", "-o", program], check=True,
                   timeout=60)
    ended = subprocess.run([program, "1"], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout) == (0, "right\n")
