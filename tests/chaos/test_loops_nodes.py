"""Long loops go on from snapshots that are not where the driver can ask for them: on another node, behind a task."""

from __future__ import annotations

import numpy as np
import pytest

from gpu_worker.client import connect
from tests.chaos.loops import OPTIONS, WEIGHT, heat, opened
from tests.system.topology import Topology
from vispark import Grid
from vispark.session import Session

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(300)]


def test_a_worker_that_is_relayed_to_gives_a_snapshot_back(local: Topology):
    with opened(local, OPTIONS | {"spark.vispark.transport": "relay"}) as track:
        session, parts, blocks = Session.of(track.sc), 0, track.blocks()
        while session.snapshots.taken < 2:
            blocks = blocks.iterate(heat, WEIGHT, steps=4).cache()
            blocks.count()
            parts += 1
        track.kill_process()
        found = Grid.gather(blocks)
        assert session.snapshots.restored == 1 and session.replayed < 4 * parts
        np.testing.assert_array_equal(found, Grid.gather(track.blocks().iterate(heat, WEIGHT, steps=4 * parts)))


@pytest.mark.mpi
def test_a_loop_goes_on_from_the_copies_of_a_node_that_is_lost(standalone: Topology):
    """A node's process and daemon are gone at once, and with them its part of the snapshot; another node has that."""
    with opened(standalone) as track:
        ended, steps = track.killed("iterate", 200, "node")
        assert ended.restored >= 1 and ended.replayed < steps
        session = Session.of(track.sc)
        for worker in session.workers.known():      # Another machine's worker would come by TCP.
            connect(session.credentials.hello("driver"), reach=worker.door()).close()
        np.testing.assert_array_equal(ended.field, track.run("iterate", steps).field)
