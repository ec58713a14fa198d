"""Tools that tests of VRDDs share: contexts, equality with types, and jobs, plans and bytes of an action."""

from __future__ import annotations

import contextlib
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from pyspark import RDD, SparkContext
from pyspark.resultiterable import ResultIterable
from pyspark.sql import SparkSession

from gpu_worker.client.connection import administer
from gpu_worker.protocol.messages import Reported, Status, StatusReport
from tests.system.topology import Topology
from tests.system.worker_tools import eventually
from vispark.runtime.driver.session import Session
from vispark.runtime.driver.worker import Worker


@contextlib.contextmanager
def host_context(topology: Topology, **options: object) -> Iterator[SparkContext]:
    """Start a context whose blocks live on the CPU, with options of vispark's own; its session is up and settled."""
    settings = {f"spark.vispark.{name}": value for name, value in ({"device": "host"} | options).items()}
    with topology.context(settings) as sc:
        warm_up(sc)
        yield sc


def sql_session(sc: SparkContext) -> SparkSession:
    """Return a session of Spark SQL whose Arrow batches are small, so that partitions have several."""
    session = SparkSession(sc)
    session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "100")
    return session


def warm_up(sc: SparkContext) -> None:
    """Start what a session keeps open to its end: threads, connections, Python workers."""
    numbers = sc.parallelize([1.0, 2.0], 2).cache("GPU")
    assert numbers.collect() == [1.0, 2.0]
    assert numbers.map(abs).collect() == [1.0, 2.0]
    assert numbers.unpersist().collect() == [1.0, 2.0]
    worker, = Session.of(sc).workers.known()
    connect_threads(worker)


def connect_threads(worker: Worker) -> None:
    """Open as many connections as threads ever need at once; they stay open."""
    with contextlib.ExitStack() as borrowed:
        for _ in range(12):
            borrowed.enter_context(worker.connections._borrowed())


# -- equality ---------------------------------------------------------------------------------------------------------

def exact(value: object) -> object:
    """Return a value as something that is equal only where types, dtypes, shapes and bits are.

    NaNs are one, and the order of a dict means nothing.
    """
    match value:
        case np.ndarray():
            return "array", value.dtype.str, value.shape, _bits(value)
        case np.generic():
            return "scalar", value.dtype.str, _bits(value)
        case float():
            return "float", struct.pack("<d", float("nan") if value != value else value)
        case complex():
            return "complex", exact(value.real), exact(value.imag)
        case dict():
            return "dict", tuple((repr(exact(key)), exact(value[key])) for key in sorted(value, key=repr))
        case list() | tuple():
            return type(value).__name__, tuple(map(exact, value))
        case ResultIterable():
            return "group", multiset(value)
    return type(value).__name__, value


def multiset(values: Iterable) -> frozenset:
    """Return values as something that is equal where they are the same, in whatever order."""
    return frozenset(Counter(map(exact, values)).items())


def _bits(value: np.ndarray | np.generic) -> bytes:
    array = np.array(value)
    if array.dtype.kind in "fc":
        parts = array.reshape(-1).view(array.real.dtype) if array.dtype.kind == "c" else array.reshape(-1)
        parts[np.isnan(parts)] = np.nan
    return array.tobytes()


# -- counting ---------------------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class Cost:
    """Cost of an action: Spark jobs that were for something else than to carry a plan to a worker, plans from the
    driver, bytes of results that came to it, requests in all.
    """

    jobs: int
    plans: int
    fetched_bytes: int
    requests: int


@contextlib.contextmanager
def counting(sc: SparkContext) -> Iterator[list[Cost]]:
    """Append the cost of what runs in the block to the list."""
    assert eventually(lambda: Session.of(sc).loads.collector.idle)
    before, costs = _spent(sc), []
    yield costs
    now = _spent(sc)
    costs.append(Cost(*[getattr(now, name) - getattr(before, name) for name in Cost.__dataclass_fields__]))


def cost(sc: SparkContext, action: Callable[[], object]) -> Cost:
    """Return the cost of an action."""
    with counting(sc) as costs:
        action()
    return costs[0]


def _spent(sc: SparkContext) -> Cost:
    session = Session.of(sc)
    workers, carried = session.workers.known(), session.relay.count + session.loads.collector.jobs
    return Cost(sc._jsc.sc().dagScheduler().numTotalJobs() - carried, sum(worker.plans for worker in workers),
                sum(worker.fetched_bytes for worker in workers), report(sc).requests)


def report(sc: SparkContext) -> Reported:
    """Return the report of a session's only worker, where what was released has arrived."""
    # On the relayed way it goes there by tasks of its own.
    eventually(lambda: Session.of(sc).loads.collector.idle)
    reported, = [each.report for each in status(sc).sessions if each.session == Session.of(sc).credentials.session]
    return reported


def status(sc: SparkContext) -> StatusReport:
    """Ask the daemon of a session's only worker for its status; it is not there for a moment where it has ended."""
    home, = [worker.home for worker in Session.of(sc).workers.known()]
    return administer(Status(), runtime_dir=home.runtime_dir)


def used(sc: SparkContext) -> int:
    """Count the bytes that a session has on all devices and in host memory of its only worker."""
    reported = report(sc)
    return sum(device.used for device in reported.memory) + reported.host_bytes


# -- data -------------------------------------------------------------------------------------------------------------

def in_partitions(sc: SparkContext, partitions: list[list]) -> RDD:
    """Return an RDD with these records in each of its partitions."""
    return sc.parallelize(partitions, len(partitions)).flatMap(lambda records: records)


class EagerPool:
    """Stand-in for a pool of threads, which pyspark's searches leave behind, that runs its tasks at once."""

    def __init__(self, processes: int):
        self.processes = processes

    def imap_unordered(self, function: Callable, tasks: Iterable) -> Iterator:
        return map(function, tasks)
