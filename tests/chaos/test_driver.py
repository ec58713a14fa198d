"""A driver is killed: all that it held is back by the end of the lease, and nothing of it is left."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from gpu_worker.client.connection import administer
from gpu_worker.protocol.messages import Status, StatusReport
from gpu_worker.system.failpoints import VARIABLE
from tests import leaks
from tests.chaos.arena import eventually
from tests.leaks import is_alive
from tests.system.worker_tools import Runtime, runtime

__all__ = ["runtime"]

pytestmark = pytest.mark.chaos

LEASE = 1.0
#: What ending a process takes on a busy machine.
GRACE = 5.0


def status(runtime: Runtime) -> StatusReport:
    return administer(Status(), runtime_dir=str(runtime.path))


def started_with(runtime: Runtime) -> list[leaks.Process]:
    """Return the driver's processes: itself, its JVM, Spark's Python workers; not the GPU worker's."""
    processes = leaks.processes_with(VARIABLE, os.environ[VARIABLE])
    workers = {process.pid for process in leaks.processes_of(runtime.path) if "gpu_worker" in process.command}
    return [process for process in processes if process.pid not in workers]


def test_everything_is_back_within_the_lease(runtime: Runtime):
    runtime.start()
    with subprocess.Popen([sys.executable, "-m", "tests.chaos.driver", str(LEASE)], stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, text=True) as driver:
        try:
            assert driver.stdout.readline() == "ready\n"
            session, = status(runtime).sessions
            assert len(session.report.vrdds) == 2 and session.report.memory[0].used >= 64000
            assert session.lease == "driver" and is_alive(session.pid)
        finally:
            driver.kill()
        killed = time.monotonic()
    assert eventually(lambda: not is_alive(session.pid), LEASE + GRACE)
    assert time.monotonic() - killed >= LEASE / 2
    assert eventually(lambda: not status(runtime).sessions)
    assert eventually(lambda: not list((runtime.path / "sessions").iterdir()))
    assert len(runtime.daemons()) == 1
    # The JVM ends with its driver, and Spark's Python workers with the JVM.
    left = leaks.wait_until_gone(lambda: started_with(runtime), 20.0)
    leaks.kill(left)
    assert not left, [str(process) for process in left]
