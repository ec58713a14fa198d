"""Ctrl-C, as a real signal: the action that waits ends, what is cached stays, and the next action is right."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from pyspark import SparkContext

from gpu_worker.client.connection import administer
from gpu_worker.protocol.messages import Status
from tests.system.topology import DEVICE_NAME, Topology
from tests.system.worker_tools import eventually
from vispark import Grid, stencil
from vispark.runtime.driver.interrupts import interruptibly
from vispark.runtime.driver.session import Session


@stencil
def mean(u):
    return (u[-1] + u[1]) / 2


def endless(x, turns):
    total = x
    for _ in range(turns):
        total = total * 0.9999 + np.sin(total)
    return total


def sleeping(x):
    time.sleep(60)
    return x


@contextlib.contextmanager
def pressed(when: Callable[[], bool]) -> Iterator[None]:
    """Press Ctrl-C as soon as ``when`` says so; it ends what the main thread does."""
    def press() -> None:
        assert eventually(when, 30)
        os.kill(os.getpid(), signal.SIGINT)

    pressing = threading.Thread(target=press)
    with pytest.raises(KeyboardInterrupt) as interrupt:
        pressing.start()
        yield
    pressing.join()
    # A notebook that shows it reads the sources of few frames.
    assert len([each for each in traceback.extract_tb(interrupt.tb) if "/vispark/" in each.filename]) <= 1


def waits(sc: SparkContext) -> bool:
    """Return whether the driver waits for a worker's answer, or for a job."""
    return bool(Session.of(sc).workers.awaited._awaited) or has_job(sc)


def rests(local: Topology) -> bool:
    """Return whether no device of a session has work."""
    def busy() -> list[float]:
        return [memory.busy for each in administer(Status(), runtime_dir=str(local.nodes[0].runtime_dir)).sessions
                if each.report for memory in each.report.memory]

    before = busy()
    time.sleep(0.1)
    return busy() == before


def has_job(sc: SparkContext) -> bool:
    return bool(sc.statusTracker().getActiveJobsIds())


@pytest.fixture(params=["unix-python", "tcp-pyspark", "relay-python"])
def sc(local: Topology, request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture) -> Iterator[SparkContext]:
    """Start a context by each transport; SIGINT is handled as PySpark does, or as Python and notebooks' kernels do."""
    transport, handler = request.param.split("-")
    before = signal.getsignal(signal.SIGINT)
    with local.context({"spark.vispark.transport": transport, "spark.vispark.device": "host"}) as context:
        if handler == "python":
            signal.signal(signal.SIGINT, signal.default_int_handler)
        yield context
    signal.signal(signal.SIGINT, before)
    # py4j drops a connection in whose use it was interrupted, open, and logs the exception, whose frames hold it.
    with warnings.catch_warnings(action="ignore", category=ResourceWarning):
        caplog.get_records("call").clear()
        gc.collect()


def test_what_waits_ends_and_what_is_cached_stays(sc: SparkContext, local: Topology):
    x = sc.parallelize([float(number) for number in range(8)], 2).cache("GPU")
    cells = np.arange(float(1 << 12))
    blocks = Grid(1 << 12, splits=2, boundary="periodic").scatter(sc, cells).cache("GPU")
    assert x.sum() == 28.0 and Grid.sum(blocks) == cells.sum()
    # A Spark job that loads.
    with pressed(lambda: has_job(sc)):
        sc.parallelize(range(4), 2).map(sleeping).cache("GPU").count()
    assert eventually(lambda: not has_job(sc))
    assert sc.parallelize(range(4), 2).cache("GPU").sum() == 6 and x.sum() == 28.0
    # A job that starts only behind the interrupt.
    begun, interrupted = threading.Event(), threading.Event()

    def late() -> None:
        begun.set()
        assert interrupted.wait(30)
        time.sleep(0.2)
        sc.parallelize(range(2), 2).map(sleeping).count()

    with pressed(begun.is_set):
        try:
            interruptibly(sc, late)
        finally:
            interrupted.set()
    assert eventually(lambda: has_job(sc)) and eventually(lambda: not has_job(sc))
    # A loop of many parts.
    with pressed(lambda: waits(sc)):
        Grid.sum(blocks.iterate(mean, steps=10**9, until=1e-300))
    assert np.array_equal(Grid.gather(blocks), cells) and Grid.sum(blocks.iterate(mean, steps=3)) == cells.sum()
    # A loop of the program's own.
    y, sums = x, []
    with pressed(lambda: len(sums) > 2):
        while True:
            y = y.vmap(lambda v: v + 1.0).cache()
            sums.append(y.sum())
    assert sums[:3] == [36.0, 44.0, 52.0] and y.vmap(lambda v: v - v).sum() == 0.0 and x.sum() == 28.0
    # A plan that would not end, a fold of one partition: on the host it is left in its middle; a GPU's process ends
    # as soon as others have waited behind it.
    one = sc.parallelize([1.0], 1).cache("GPU")
    assert one.sum() == 1.0
    with pressed(lambda: waits(sc)):
        one.vmap(endless, 10**10).sum()
    assert eventually(lambda: not has_job(sc))
    assert one.sum() == 1.0
    if DEVICE_NAME == "host:0":
        assert eventually(lambda: rests(local))
    assert x.vmap(lambda v: 2 * v).collect() == [2.0 * number for number in range(8)]
