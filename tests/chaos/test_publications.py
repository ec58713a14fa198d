"""Two applications on a real cluster of two nodes: one is killed, one faults, daemons too; the published data stays."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

import pytest

import vispark
from gpu_worker.client.connection import administer
from gpu_worker.protocol.messages import ListPublications, Status
from tests.chaos.arena import eventually
from tests.system import topology
from tests.system.other_application import OtherApplication, other_application
from vispark import IN, OUT, Kernels
from vispark.runtime.driver.session import Session

pytestmark = pytest.mark.chaos

#: Of the sessions, and of the publications, in seconds.
LEASE, KEPT = 1.0, 2.0
SETTINGS = {"spark.vispark.device": os.environ.get("VISPARK_TEST_DEVICE", "host"), "spark.vispark.lease": LEASE}
TOTAL = float(sum(range(4000)))

#: Rows of four partitions, of which each node gets two, as a task takes a while.
ROWS = ("it.setdefault('rows', sc.parallelize(range(4), 4).mapPartitionsWithIndex("
        "lambda i, rows: (__import__('time').sleep(0.5), [(f'{i}', float(1000 * i + j)) for j in range(1000)])[1])"
        ".cache('GPU'))")

FAULT = """
extern "C" __global__ void stray(const double* x, double* y, int n)
{
    const_cast<double*>(x)[0] = 1.0;
}
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[topology.Topology]:
    """Yield two nodes, on which each of two applications has an executor."""
    with topology.standalone(2, cores=2) as running:
        yield running
        topology.shutdown()


@pytest.fixture
def no_leaks() -> None:
    """Leave contexts to each test, which starts and ends those of this module's own."""


def listed(cluster: topology.Topology, name: str) -> list[int]:
    """Return the number of publications of a name that each node has."""
    return [sum(each.name == name for each in
                administer(ListPublications(), runtime_dir=str(node.runtime_dir)).publications)
            for node in cluster.nodes]


def read(attached: vispark.VRDD) -> None:
    """Read it by plans, by Spark's tasks, and with its keys."""
    assert attached.values().vmap(lambda x: x + 1).sum() == TOTAL + 4000
    assert attached.count() == 4000
    assert attached.first() == ("0", 0.0)
    assert attached.map(lambda pair: pair[1]).sum() == TOTAL
    assert sorted(attached.recv().reduceByKey(max, 2).collect()) == [(f"{i}", 1000.0 * i + 999) for i in range(4)]


@pytest.mark.parametrize("transport", ["auto", "relay"])
def test_a_reader_outlives_the_owner_and_its_own_faults(cluster: topology.Topology, transport: str):
    with other_application(cluster, SETTINGS) as owner, \
            cluster.context(SETTINGS | {"spark.vispark.transport": transport}) as sc:
        assert owner.ask(f"{ROWS}.publish('rows', lease={KEPT}).count()") == 4000
        assert listed(cluster, "rows") == [1, 1]
        attached = vispark.attach(sc, "rows")
        assert len({home for home, _ in attached._residency.places.values()}) == 2
        read(attached)
        check_names(owner, sc)
        check_fault(attached, sc, transport)
        assert owner.ask("it['rows'].values().sum()") == TOTAL
        owner.process.kill()
        time.sleep(LEASE + KEPT + 1)
        read(attached)
        assert vispark.attach(sc, "rows").values().sum() == TOTAL
        attached.unpersist()
        before = time.monotonic()
        assert eventually(lambda: listed(cluster, "rows") == [0, 0], 30.0)
        assert time.monotonic() - before < KEPT + 15 or transport == "relay"     # relayed workers are told later
        with pytest.raises(vispark.PublicationLost, match="'rows'"):
            vispark.attach(sc, "rows")


def check_names(owner: OtherApplication, sc) -> None:
    """Check that names are of one publication, and that readers do not change it."""
    with pytest.raises(RuntimeError, match="PublicationExists: there is a publication 'rows' already"):
        owner.ask("sc.parallelize(range(4), 4).cache('GPU').publish('rows')")
    with pytest.raises(vispark.PublicationLost, match="no publication 'other'"):
        vispark.attach(sc, "other")


def check_fault(attached: vispark.VRDD, sc, transport: str) -> None:
    """Check that a kernel that writes to what it may only read ends the reader's processes, which come back."""
    before = {worker.home: worker.epoch for worker in Session.of(sc).workers.known()}
    kernels = Kernels(FAULT)
    with pytest.raises(vispark.KernelFault):
        attached.exec(kernels.stray, IN, OUT, IN.shape[0], grid=1, block=1).collect()
    assert attached.values().sum() == TOTAL
    assert {worker.home: worker.epoch for worker in Session.of(sc).workers.known()} != before or transport == "relay"


def kill_daemon(cluster: topology.Topology) -> None:
    """Kill the daemon of the second node."""
    os.kill(administer(Status(), runtime_dir=str(cluster.nodes[1].runtime_dir)).pid, signal.SIGKILL)


@pytest.mark.timeout(300)
def test_a_daemon_that_is_killed_while_one_publication_is_read_and_another_is_not(cluster: topology.Topology):
    """Expect readers to go on, before the owner is gone and after it, and others to attach what they read once a daemon
    is there again; of what nobody had attached in the lease, the killed daemon's node has lost its part.
    """
    with cluster.context(SETTINGS) as sc:
        with other_application(cluster, SETTINGS) as owner:
            assert owner.ask(f"{ROWS}.publish('rows', lease=60).count()") == 4000
            assert owner.ask("it['rows'].publish('later', lease=120).count()") == 4000
            attached = vispark.attach(sc, "rows")
            assert len({home for home, _ in attached._residency.places.values()}) == 2
            for lost in (False, True):
                if lost:
                    owner.process.kill()
                    time.sleep(LEASE + 1)
                kill_daemon(cluster)
                read(attached)
                assert eventually(lambda: listed(cluster, "rows") == [1, 1], 30.0)
                assert vispark.attach(sc, "rows").values().sum() == TOTAL
            attached.unpersist()
        assert listed(cluster, "later") == [1, 0]
        with other_application(cluster, SETTINGS) as owner:
            check_half(cluster, owner, sc)


def check_half(cluster: topology.Topology, owner: OtherApplication, sc) -> None:
    """Check that a part that is lost is said to who attaches what is left on the other node, and to who publishes under
    the name, which takes it anew.
    """
    assert owner.ask(f"{ROWS}.count()") == 4000
    for _ in range(2):
        with pytest.raises(vispark.PublicationLost, match=r"'later' the partitions \[.*\] are not there.* "
                                                          r"ended in the lease.*replace=True"):
            vispark.attach(sc, "later")
        with pytest.raises(RuntimeError, match="PublicationExists: there is a publication 'later' already"):
            owner.ask("it['rows'].publish('later')")
    whole = vispark.attach(sc, "later", otherwise=lambda: eval(ROWS, {"it": {}, "sc": sc}))
    assert whole.values().sum() == TOTAL and owner.ask("vispark.attach(sc, 'later').values().sum()") == TOTAL
    assert owner.ask("it['rows'].publish('later', lease=1, replace=True).count()") == 4000
    attached = vispark.attach(sc, "later")
    read(attached)
    attached.unpersist()
    # One that lies on one node alone takes the name on the other one, too.
    assert owner.ask("sc.parallelize([1.0], 1).cache('GPU').publish('later', lease=1, replace=True).count()") == 1
    # What was replaced goes with the last session that has attached it.
    assert eventually(lambda: sorted(listed(cluster, "later")) == [0, 1], 30.0)
    assert vispark.attach(sc, "later").collect() == [1.0]
