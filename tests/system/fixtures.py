"""Fixtures over :mod:`tests.system.topology`, for every folder of tests that runs Spark; a conftest.py imports them.

A module uses either ``sc`` or the topologies, since one context lives at a time. Contexts and topologies are shared
by the tests of a module. When its topology ends, a module must have left no GPU worker that cannot be stopped.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from gpu_worker.system.failpoints import VARIABLE
from tests import leaks
from tests.system import archive, topology
from tests.system.worker_tools import end_workers

try:
    from pyarrow import csv
except ImportError:
    csv = None
else:
    # From its first use of CSV on, Arrow keeps a pipe for signals.
    csv.read_csv(io.BytesIO(b"x\n1\n"))

_running: list[topology.Topology] = []


def pytest_collection_finish() -> None:
    """Let all JVMs start quickly: a program with a Spark of its own takes half of the processor time.

    What they need for it is made once, in up to minutes on a busy machine, which no test's time limit counts here.
    """
    archive.quicken()


@pytest.fixture(autouse=True)
def no_leaks() -> Iterator[None]:
    """Fail a test that leaves descriptors, mapped memfds, threads, child processes or shared memory behind."""
    before = leaks.ProcessSnapshot.take()
    yield
    leaked = before.leaked()
    assert not leaked, "left behind:\n" + "\n".join(leaked)


@pytest.fixture(scope="module")
def local(request: pytest.FixtureRequest) -> Iterator[topology.Topology]:
    """Start two task slots in the driver's JVM; IN_TASKS of a module names what its tasks import beside what all do."""
    with _use(topology.local(2, getattr(request.module, "IN_TASKS", ""))) as running:
        yield running


@pytest.fixture(scope="module")
def one_core() -> Iterator[topology.Topology]:
    """Start one task slot in the driver's JVM."""
    with _use(topology.local(1)) as running:
        yield running


@pytest.fixture(scope="module")
def standalone() -> Iterator[topology.Topology]:
    """Start two nodes with an executor each."""
    with _use(topology.standalone(2)) as running:
        yield running


@pytest.fixture(scope="module")
def gpu_cluster() -> Iterator[topology.Topology]:
    """Start two nodes of 8 cores and 8 GPUs, as Spark takes them; contexts say what executors have of them."""
    with _use(topology.standalone(2, cores=8, gpus=8)) as running:
        yield running


@pytest.fixture(scope="module")
def failpoints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of the fail-points of a ``cluster``'s workers."""
    return tmp_path_factory.mktemp("points")


@pytest.fixture(scope="module")
def cluster(standalone: topology.Topology, failpoints: Path) -> Iterator[topology.Topology]:
    """Start two nodes whose daemons know each other."""
    with pytest.MonkeyPatch.context() as patch, contextlib.ExitStack() as stack:
        patch.setenv(VARIABLE, str(failpoints))
        running = stack.enter_context(topology.clustered(standalone))
        patch.undo()
        yield running


@pytest.fixture(scope="module")
def sc(local: topology.Topology) -> Iterator[SparkContext]:
    """Start a context on ``local[2]``, shared by the tests of a module."""
    with local.context() as context:
        yield context


@pytest.fixture(scope="module")
def spark(sc: SparkContext) -> SparkSession:
    """Return a session of Spark SQL in a module's context."""
    return SparkSession(sc)


@contextlib.contextmanager
def _use(starting: contextlib.AbstractContextManager[topology.Topology]) -> Iterator[topology.Topology]:
    with starting as running:
        before = leaks.ProcessSnapshot.take()
        _running.append(running)
        try:
            yield running
        finally:
            _running.remove(running)
            left = [str(process) for node in running.nodes for process in end_workers(node.runtime_dir)]
        left += before.leaked()
        assert not left, "left behind by the module:\n" + "\n".join(left)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item):
    """Show the logs of the topology under a failed test."""
    report = yield
    if report.failed:
        for running in _running:
            report.sections.append((f"logs of {running.master}", topology.log_tails(running.logs)))
            report.sections.append(("log of the driver", topology.driver_log_tail()))
    return report


def pytest_sessionfinish() -> None:
    """End the JVM, so that nothing outlives the tests."""
    topology.shutdown()
