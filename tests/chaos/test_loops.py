"""Long loops under which processes and daemons are killed end with the bits of an undisturbed run."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator

import numpy as np
import pytest

from tests.chaos.loops import WEIGHT, Track, heat, opened
from tests.system.topology import Topology
from vispark import Grid

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(300)]

#: Steps of a loop of a few seconds.
STEPS = {"iterate": 60_000, "listing": 700}


@pytest.fixture(scope="module")
def track(local: Topology) -> Iterator[Track]:
    with opened(local) as track:
        yield track


@pytest.fixture(autouse=True)
def disconnected(track: Track, no_leaks: None) -> Iterator[None]:
    """Close the driver's connections behind a test, which are new ones, so that what it leaves can be compared."""
    yield
    track.disconnect()


@pytest.mark.parametrize("loop", STEPS)
def test_a_loop_goes_on_from_its_newest_snapshot(track: Track, loop: str):
    """A kill behind some snapshots costs the steps behind the newest of them."""
    expected = track.run(loop, STEPS[loop])
    ended = track.run(loop, STEPS[loop], random.Random(0), 1, longest=0, kinds=("process",))
    np.testing.assert_array_equal(ended.field, expected.field)
    assert ended.kills == ("process",) and ended.restored == 1 and ended.replayed < STEPS[loop]


def test_kills_at_random_moments_leave_the_same_bits(track: Track):
    seed = int(os.environ.get("VISPARK_SEED", time.time_ns() % 10**6))
    print(f"VISPARK_SEED={seed}")
    end = track.blocks().iterate(heat, WEIGHT, steps=STEPS["iterate"])
    expected, text = Grid.gather(end), end.explain()
    assert "newest snapshot: taken" in text and f"iterate heat ({STEPS['iterate']} steps)" in text
    ended = track.run("iterate", STEPS["iterate"], random.Random(seed), 2, longest=1.0)
    print(ended.kills)
    np.testing.assert_array_equal(ended.field, expected)
