"""A kill at every fail-point, with every kind of plan in flight: the answer stays, and only what was lost is loaded.

``VISPARK_CHAOS_KILLS`` says how many kills there are at each point; benchmarks/kills.py makes a longer campaign.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest

from tests.chaos.arena import KILLS, POINTS, Arena, Loader, expected_of, plans_through, strike
from vispark.runtime.executor.chunked_upload import PIECES_FROM

pytestmark = pytest.mark.chaos


@pytest.fixture(scope="module")
def expected(arena: Arena) -> dict[str, object]:
    """Return each plan's answer without a kill."""
    answers = expected_of(arena)
    arena.check_empty()
    return answers


@pytest.mark.parametrize("point", POINTS)
def test_a_kill_costs_time_only(arena: Arena, expected: dict[str, object], point: str):
    plans = plans_through(point)
    shift = POINTS.index(point)
    for number in range(KILLS):
        name = plans[(shift + number) % len(plans)]
        outcome = strike(arena, point, name, expected[name], shift + number)
        assert outcome.right, f"{name} gave another answer after a kill at {point}"
        assert outcome.frugal, f"{name} after a kill at {point}: {outcome}"
    arena.check_empty()


def large(partition: int) -> list[tuple[str, np.ndarray]]:
    """Return the records of a partition that goes in pieces, of which two have bytes of two records."""
    rows = PIECES_FROM // 3 // 24 + 1
    return [(f"{partition}/{index}", np.full((rows, 3), index + partition / 2)) for index in range(3)]


class Large(Loader):
    """Loader of partitions that go in pieces."""

    def __call__(self, partition: int, records: Iterable) -> Iterable:
        super().__call__(partition, records)
        return large(partition)


@pytest.mark.parametrize("point", ["piece-sent", "piece-taken"])
def test_a_kill_between_pieces_leaves_nothing_of_them(arena: Arena, point: str):
    loader = Large(arena.loader().directory)
    points = arena.sc.parallelize(range(2), 2).mapPartitionsWithIndex(loader).send().htod().cache()
    armed = arena.arm(point)
    records = points.collect()
    assert not armed.exists()
    expected = [record for partition in range(2) for record in large(partition)]
    assert [key for key, _ in records] == [key for key, _ in expected]
    assert all(np.array_equal(mine, other) for (_, mine), (_, other) in zip(records, expected, strict=True))
    # Tasks ask a new worker by themselves; a task that is killed is repeated, and one may go with it.
    assert loader.counts().total() <= (4 if point == "piece-sent" else 2)
    del points, records
    arena.check_empty()


def test_every_plan_and_every_point_meet():
    assert {name for point in POINTS for name in plans_through(point)} == {
        "materialise", "collect", "keep", "reduce", "recv"}
    assert all(len(plans_through(point)) >= 2 for point in POINTS)
