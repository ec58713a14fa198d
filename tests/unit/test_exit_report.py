"""A rank that dies of an exception says so: to its node's log, and to the device process, whose plan fails of it."""

from __future__ import annotations

import socket
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gpu_worker.exchange.mpi.exit_report import ExitReport
from gpu_worker.exchange.mpi.messages import Joined, Order
from gpu_worker.exchange.mpi.world import MpiWorld
from gpu_worker.protocol.errors import WorldLost
from gpu_worker.protocol.wire import Connection


def test_an_exception_reaches_the_log_and_the_error(tmp_path: Path):
    ours, theirs = socket.socketpair(socket.AF_UNIX)

    def fail() -> None:
        with theirs, ExitReport(Connection(theirs), "rank 1", tmp_path / "process.log") as connection:
            connection.receive(Order)
            raise IndexError("no stage of this number")

    with ThreadPoolExecutor(1) as pool:
        failed = pool.submit(fail)
        world = MpiWorld(Joined(b"k" * 16, 1, 2), Connection(ours), None)
        place = r"rank 1 .*IndexError: no stage of this number \(test_exit_report.py, line \d+, in fail\)"
        world.begin(time.monotonic() + 60)
        with pytest.raises(WorldLost, match=place) as lost:
            world.gather(b"")
        assert "Traceback" in lost.value.detail
        world.close()
        assert isinstance(failed.exception(), IndexError)
    text = (tmp_path / "process.log").read_text()
    assert "rank 1 ends: IndexError: no stage of this number (test_exit_report.py" in text
    assert "Traceback" in text and text.count("raise IndexError") == 1
