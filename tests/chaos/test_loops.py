"""Long loops under which processes and daemons are killed end with the bits of an undisturbed run."""

from __future__ import annotations

import math
import os
import random
import re
import time
from collections.abc import Iterator
from functools import partial

import numpy as np
import pytest

from tests import leaks
from tests.chaos.arena import eventually
from tests.chaos.loops import OPTIONS, WEIGHT, Track, heat, opened
from tests.system.topology import Topology
from vispark import Grid
from vispark.plan.ops import Lineage

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(300)]

#: Steps of a loop of about a second, to begin with.
STEPS = {"iterate": 20_000, "listing": 200}
#: Steps of a loop that is killed under many times, which goes on for as long as its kills take, and how many times.
KILLED = {"iterate": 60_000, "listing": 1800}
MOST = 19
#: How many kills at random moments, over all of a run; benchmarks.loop_kills has the campaigns.
KILLS = int(os.environ.get("VISPARK_LOOP_KILLS", "12"))


@pytest.fixture(scope="module")
def track(local: Topology) -> Iterator[Track]:
    with opened(local, OPTIONS | {"spark.vispark.attempts": 100}) as track:
        yield track


@pytest.fixture(autouse=True)
def no_leaks(track: Track) -> Iterator[None]:
    """Fail a test that leaves something behind, the driver's connections aside: behind a kill they are new ones."""
    before = leaks.ProcessSnapshot.take()
    yield

    def is_clean() -> bool:
        track.disconnect()
        return not before.leaked(patience=0.5)

    assert eventually(is_clean), "left behind:\n" + "\n".join(before.leaked(patience=0))


@pytest.mark.parametrize("loop", STEPS)
def test_a_loop_goes_on_from_its_newest_snapshot(track: Track, loop: str, caplog: pytest.LogCaptureFixture):
    """Expect a kill behind some snapshots to cost the steps behind the newest of them."""
    ended, steps = track.killed(loop, STEPS[loop], "process")
    np.testing.assert_array_equal(ended.field, track.run(loop, steps).field)
    assert ended.restored == 1 and ended.replayed < steps
    messages = [message for record in caplog.records if "computed anew" in (message := record.getMessage())]
    of = r"VRDD \d+ vmap heat: \d+ operations behind vmap heat" if loop == "listing" else \
        r"VRDD \d+ iterate heat \(\d+ steps\): \d+ operations behind iterate heat \(\d+ steps\)"
    assert messages or loop == "iterate"        # of which the newest snapshot may be of the last part that there was
    assert all(re.fullmatch(f"what was lost is computed anew for {of}", message) for message in messages), messages


@pytest.mark.parametrize(("loop", "share"), [("iterate", 0.05), ("listing", 0.95)])
def test_kills_at_random_moments_leave_the_same_bits(track: Track, loop: str, share: float):
    seed = int(os.environ.get("VISPARK_SEED", time.time_ns() % 10**6))
    print(f"VISPARK_SEED={seed} VISPARK_LOOP_KILLS={KILLS}")
    steps, choice, kills, restored = KILLED[loop], random.Random(seed), 0, 0
    expected = track.run("iterate", steps).field
    while kills < share * KILLS:
        ended = track.run(loop, steps, choice, min(MOST, math.ceil(share * KILLS) - kills), longest=0.2, again=0.8,
                          kinds=("process",) * 5 + ("daemon",))
        kills, restored = kills + len(ended.kills), restored + ended.restored
        np.testing.assert_array_equal(ended.field, expected, f"{kills} kills: {ended.kills}")
        print(loop, ended.kills, f"{ended.seconds:.1f} s, {ended.replayed} steps again", flush=True)
    assert restored or kills < 10           # few kills may all come before the first snapshot


def test_recovery_looks_at_the_steps_behind_a_snapshot_and_at_all_where_it_is_gone(
        track: Track, monkeypatch: pytest.MonkeyPatch):
    session, seen, nodes = track.session(), [], Lineage.nodes
    monkeypatch.setattr(Lineage, "nodes", lambda lineage: (seen.append(0) or node for node in nodes(lineage)))
    grids, steps, wanted = track.blocks(), 0, session.snapshots.taken + 3
    grids.count()
    while session.snapshots.taken < wanted:
        grids.halo_extract().halo_shuffle()
        grids, steps = grids.halo_append().vmap(heat, WEIGHT).cache(), steps + 1
    expected, restored = Grid.gather(grids), session.snapshots.restored
    for lose, count in ((track.kill_process, 1), (partial(track.kill_node, 0), 0)):
        lose()
        seen.clear()
        np.testing.assert_array_equal(Grid.gather(grids), expected)
        assert (session.snapshots.restored - restored, len(seen) < 2 * steps) == (count, count == 1)
        restored = session.snapshots.restored


def test_a_loop_tells_of_its_newest_snapshot(track: Track):
    steps, text = STEPS["iterate"] // 2, ""
    while "newest snapshot: taken" not in text:
        steps *= 2
        end = track.blocks().iterate(heat, WEIGHT, steps=steps)
        Grid.gather(end)
        text = end.explanation()
    assert f"iterate heat ({steps} steps)" in text
