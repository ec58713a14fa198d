"""A session whose driver is on another machine than its worker: TCP by itself, and through Spark where that fails."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from pyspark import SparkContext

from gpu_worker.client import tcp
from gpu_worker.protocol.errors import WorkerLost, WorkerUnavailable
from gpu_worker.protocol.messages import Reach
from tests.leaks import is_alive
from tests.system.topology import Topology
from tests.system.vrdd_tools import connect_threads, cost, status
from tests.system.worker_tools import eventually
from vispark import VRDD
from vispark.runtime import identity
from vispark.runtime.driver import session
from vispark.runtime.driver.session import Session
from vispark.runtime.driver.worker import Worker

HOST = "127.0.0.1"


@pytest.fixture(scope="module")
def sc(local: Topology) -> Iterator[SparkContext]:
    """Start a context whose driver believes that it is on a machine of its own."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (identity, session):
            patch.setattr(module, "machine", lambda: "the driver's")
        with local.context({"spark.vispark.device": "host", "spark.vispark.transport": "auto"}) as sc:
            yield sc


@pytest.fixture(scope="module")
def numbers(sc: SparkContext) -> VRDD:
    cached = sc.parallelize([1.0, 2.0, 3.0], 2).cache("GPU")
    assert cached.collect() == cached.map(float).collect() == [1.0, 2.0, 3.0]
    worker, = Session.of(sc).workers.known()
    connect_threads(worker)
    return cached


@pytest.fixture
def worker(sc: SparkContext, numbers: VRDD) -> Worker:
    running, = Session.of(sc).workers.known()
    return running


def test_a_session_that_spans_nodes_goes_over_tcp(sc: SparkContext, numbers: VRDD, worker: Worker):
    answers = []
    spent = cost(sc, lambda: answers.append(numbers.vmap(lambda x: x + 1).collect()))
    assert answers == [[2.0, 3.0, 4.0]] and spent.jobs == 0
    assert worker.transport == "tcp" and "1 over TCP" in numbers.explanation()


def twice(x):
    """Take half a second."""
    total = 0.0
    for _ in range(300_000_000):
        total = total * 0.5 + x
    return total


@contextlib.contextmanager
def refused(reach: Reach) -> Iterator[Reach]:
    with socket.create_server((HOST, 0)) as listener:
        port = listener.getsockname()[1]
    yield replace(reach, port=port)


@contextlib.contextmanager
def silent(reach: Reach) -> Iterator[Reach]:
    """Open a port that no packet comes back from, as behind a firewall: nobody takes those that wait there already."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind((HOST, 0))
        listener.listen(0)
        for _ in range(3):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listener.getsockname())
        yield replace(reach, port=listener.getsockname()[1])


@contextlib.contextmanager
def forged(reach: Reach) -> Iterator[Reach]:
    yield replace(reach, certificate=b"another")


@pytest.mark.parametrize(("way", "why"), [(refused, "nobody answers over TCP"), (silent, "nobody answers over TCP"),
                                          (forged, "another certificate")])
def test_plans_go_through_spark_where_tcp_does_not_work(
        numbers: VRDD, worker: Worker, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch,
        way: Callable[[Reach], contextlib.AbstractContextManager[Reach]], why: str):
    monkeypatch.setattr(tcp, "CONNECT_SECONDS", 0.2)
    reach, begun = worker.reach, numbers.vmap(twice).cache()      # which is still on its way over TCP
    with way(reach) as wrong:
        worker.set_reach(wrong)
        worker.set_reach(wrong)       # which is not tried again
    messages = [record.getMessage() for record in caplog.records if record.name == "vispark.runtime.driver.worker"]
    assert len(messages) == 1 and "through Spark tasks" in messages[0] and why in messages[0]
    assert worker.transport == "relay" and numbers.collect() == [1.0, 2.0, 3.0] and begun.collect() == [2.0, 4.0, 6.0]
    text = numbers.explanation()
    assert "1 through Spark" in text and f"not over TCP: {worker.refused}" in text and why in text
    worker.set_reach(reach)
    assert worker.transport == "tcp" and numbers.collect() == [1.0, 2.0, 3.0]
    worker.connections._idle.pop().close()


def test_a_worker_without_a_port_is_relayed_to_and_that_is_said(worker: Worker):
    other = Worker(worker._credentials, worker.home, lambda *_: None, worker.connections._awaited, worker._relay._run)
    other.set_reach(None)
    assert other.transport == "relay" and "opened no port" in other.refused


def test_a_daemon_that_is_restarted_is_not_noticed(sc: SparkContext, numbers: VRDD, worker: Worker):
    before = status(sc).pid
    os.kill(before, signal.SIGKILL)
    assert eventually(lambda: not is_alive(before))
    assert cost_free(sc, numbers)
    assert eventually(lambda: daemon(sc) not in (None, before), 60.0)       # the lease's holder starts it
    worker.connections._connected(worker.reach).close()
    assert worker.transport == "tcp" and cost_free(sc, numbers)


def daemon(sc: SparkContext) -> int | None:
    """Return the daemon's process id, if one answers."""
    with contextlib.suppress(WorkerUnavailable, WorkerLost):
        return status(sc).pid


def cost_free(sc: SparkContext, numbers: VRDD) -> bool:
    """Return whether an action takes no Spark job and gives what it should."""
    jobs = sc._jsc.sc().dagScheduler().numTotalJobs()
    return numbers.collect() == [1.0, 2.0, 3.0] and sc._jsc.sc().dagScheduler().numTotalJobs() == jobs
