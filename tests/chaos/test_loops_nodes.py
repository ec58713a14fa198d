"""Long loops go on from snapshots that are not where the driver can ask for them: on another node, behind a task."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from gpu_worker.client.connection import connect
from tests.chaos.loops import OPTIONS, WEIGHT, Track, heat, opened
from tests.system.topology import Topology
from vispark import VRDD, Grid
from vispark.runtime.driver.session import Session

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(300)]


def part_of_a_loop(blocks: VRDD) -> VRDD:
    """Four steps in one call, which an action asks for."""
    blocks = blocks.iterate(heat, WEIGHT, steps=4).cache()
    blocks.count()
    return blocks


def steps_of_the_listing(blocks: VRDD) -> VRDD:
    """Four steps, which no action asks for."""
    for _ in range(4):
        blocks.halo_extract().halo_shuffle()
        blocks = blocks.halo_append().vmap(heat, WEIGHT).cache()
    return blocks


def until_saved(track: Track, part: Callable[[VRDD], VRDD]) -> tuple[VRDD, int]:
    """Return a loop of which two more snapshots are complete, in parts of four steps; and how many these are."""
    snapshots, parts, blocks = Session.of(track.sc).snapshots, 0, track.blocks()
    blocks.count()
    wanted = snapshots.taken + 2
    while snapshots.taken < wanted:
        blocks = part(blocks)
        parts += 1
    return blocks, parts


def test_a_worker_that_is_relayed_to_gives_a_snapshot_back(local: Topology):
    with opened(local, OPTIONS | {"spark.vispark.transport": "relay"}) as track:
        session = Session.of(track.sc)
        for part in (part_of_a_loop, steps_of_the_listing):
            restored, replayed = session.snapshots.restored, session.recomputed.steps
            blocks, parts = until_saved(track, part)
            track.kill_process()
            actual = Grid.gather(blocks)
            assert session.snapshots.restored == restored + 1 and session.recomputed.steps - replayed < 4 * parts
            np.testing.assert_array_equal(actual, Grid.gather(track.blocks().iterate(heat, WEIGHT, steps=4 * parts)))


@pytest.mark.mpi
def test_a_loop_goes_on_from_the_copies_of_a_node_that_is_lost(standalone: Topology, tmp_path: Path,
                                                               monkeypatch: pytest.MonkeyPatch):
    """Kill a node's process and daemon at once, and with them its part of the snapshot; another node has that. A loop
    begins anew where that cannot take it.
    """
    failpoint = tmp_path / "copy-restoring"
    monkeypatch.setenv("VISPARK_FAILPOINTS", str(tmp_path))
    with opened(standalone) as track:
        session = Session.of(track.sc)
        if session.relays:
            pytest.skip("workers that are relayed to hold no copies of each other's snapshots")
        ended, steps = track.killed("iterate", 200, "node")
        assert ended.restored >= 1 and ended.replayed < steps
        # Another machine's worker would come by TCP; where the driver has no other way, the lost node waits for a task.
        for worker in [worker for worker in session.workers.known() if not worker.gone]:
            connect(session.credentials.hello("driver"), reach=worker.door()).close()
        np.testing.assert_array_equal(ended.field, track.run("iterate", steps).field)
        blocks, parts = until_saved(track, part_of_a_loop)
        failpoint.write_text("error")           # as if there was no room for the lost part beside the holder's own
        restored = session.snapshots.restored
        track.kill_node(1)
        actual = Grid.gather(blocks)
        assert not failpoint.exists() and session.snapshots.restored == restored
        np.testing.assert_array_equal(actual, Grid.gather(track.blocks().iterate(heat, WEIGHT, steps=4 * parts)))


@pytest.mark.mpi
def test_a_loop_goes_on_when_one_of_its_ranks_is_killed(standalone: Topology):
    with opened(standalone) as track:
        if Session.of(track.sc).relays:
            pytest.skip("workers that are relayed to have no world of their own")
        steps, ended = 2000, None
        while ended is None or not ended.kills:
            steps *= 2
            ended = track.run("iterate", steps, random.Random(1), 1, longest=0.5, kinds=("rank",))
        assert ended.kills == ("rank",)
        np.testing.assert_array_equal(ended.field, track.run("iterate", steps).field)
