"""Long loops under which processes and daemons are killed end with the bits of an undisturbed run."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator

import numpy as np
import pytest

from tests import leaks
from tests.chaos.arena import eventually
from tests.chaos.loops import WEIGHT, Track, heat, opened
from tests.system.topology import Topology
from vispark import Grid

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(300)]

#: Steps of a loop of about a second, to begin with.
STEPS = {"iterate": 20_000, "listing": 200}


@pytest.fixture(scope="module")
def track(local: Topology) -> Iterator[Track]:
    with opened(local) as track:
        yield track


@pytest.fixture(autouse=True)
def no_leaks(track: Track) -> Iterator[None]:
    """Fail a test that leaves something behind, the driver's connections aside: behind a kill they are new ones."""
    before = leaks.Snapshot.take()
    yield

    def is_clean() -> bool:
        track.disconnect()
        return not before.leaked(patience=0.5)

    assert eventually(is_clean), "left behind:\n" + "\n".join(before.leaked(patience=0))


@pytest.mark.parametrize("loop", STEPS)
def test_a_loop_goes_on_from_its_newest_snapshot(track: Track, loop: str):
    """A kill behind some snapshots costs the steps behind the newest of them."""
    ended, steps = track.killed(loop, STEPS[loop], "process")
    np.testing.assert_array_equal(ended.field, track.run(loop, steps).field)
    assert ended.restored == 1 and ended.replayed < steps


def test_kills_at_random_moments_leave_the_same_bits(track: Track):
    seed = int(os.environ.get("VISPARK_SEED", time.time_ns() % 10**6))
    print(f"VISPARK_SEED={seed}")
    steps, text = STEPS["iterate"] // 2, ""
    while "newest snapshot: taken" not in text:
        steps *= 2
        end = track.blocks().iterate(heat, WEIGHT, steps=steps)
        expected, text = Grid.gather(end), end.explain()
    assert f"iterate heat ({steps} steps)" in text
    ended = track.run("iterate", steps, random.Random(seed), 2, longest=1.0)
    print(ended.kills)
    np.testing.assert_array_equal(ended.field, expected)
