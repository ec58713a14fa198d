"""A node's daemon is killed while what two nodes have published is read, and in its lease."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

import pytest

import vispark
from gpu_worker.client.connection import administer
from gpu_worker.protocol.messages import Status
from tests.chaos.arena import eventually
from tests.chaos.test_publications import LEASE, ROWS, SETTINGS, TOTAL, listed, read
from tests.system import topology
from tests.system.other_application import other_application

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[topology.Topology]:
    """Two nodes, on which each of two applications has an executor."""
    with topology.standalone(2, cores=2) as running:
        yield running
        topology.shutdown()


@pytest.fixture
def no_leaks() -> None:
    """Contexts of this module's own start and end in each test."""


def kill_daemon(cluster: topology.Topology) -> None:
    """Kill the daemon of the second node."""
    os.kill(administer(Status(), runtime_dir=str(cluster.nodes[1].runtime_dir)).pid, signal.SIGKILL)


def test_a_daemon_that_is_killed_while_both_nodes_are_read(cluster: topology.Topology):
    """Readers go on, before the owner is gone and after it; others attach it once a daemon is there again."""
    with other_application(cluster, SETTINGS) as owner, cluster.context(SETTINGS) as sc:
        assert owner.ask(f"{ROWS}.publish('rows', lease=60).count()") == 4000
        attached = vispark.attach(sc, "rows")
        assert len({home for home, _ in attached._residency.places.values()}) == 2
        for lost in (False, True):
            if lost:
                owner.process.kill()
                time.sleep(LEASE + 1)
            kill_daemon(cluster)
            read(attached)
            assert eventually(lambda: listed(cluster) == [1, 1], 30.0)
            assert vispark.attach(sc, "rows").values().sum() == TOTAL
        attached.unpersist()


def test_a_daemon_that_is_killed_in_the_lease_takes_its_nodes_part_along(cluster: topology.Topology):
    """That is said to who attaches what is left on the other node, and to who publishes under the name."""
    with other_application(cluster, SETTINGS) as owner:
        assert owner.ask(f"{ROWS}.publish('later', lease=120).count()") == 4000
        owner.process.kill()
        time.sleep(LEASE + 2)
    kill_daemon(cluster)
    with other_application(cluster, SETTINGS) as owner, cluster.context(SETTINGS) as sc:
        assert owner.ask(f"{ROWS}.count()") == 4000
        for _ in range(2):
            with pytest.raises(vispark.PublicationLost, match=r"'later' the partitions \[.*\] are not there.* "
                                                              r"ended in the lease.*replace=True"):
                vispark.attach(sc, "later")
            with pytest.raises(RuntimeError, match="PublicationExists: there is a publication 'later' already"):
                owner.ask("it['rows'].publish('later')")
        assert owner.ask("it['rows'].publish('later', lease=1, replace=True).count()") == 4000
        attached = vispark.attach(sc, "later")
        read(attached)
        attached.unpersist()
