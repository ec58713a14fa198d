"""A kill at every fail-point, with every kind of plan in flight: the answer stays, and only what was lost is loaded.

``VISPARK_CHAOS_KILLS`` says how many kills there are at each point; benchmarks/kills.py makes a longer campaign.
"""

from __future__ import annotations

import pytest

from tests.chaos.arena import KILLS, POINTS, Arena, expected_of, plans_through, strike

pytestmark = pytest.mark.chaos


@pytest.fixture(scope="module")
def expected(arena: Arena) -> dict[str, object]:
    """Each plan's answer without a kill."""
    found = expected_of(arena)
    arena.check_empty()
    return found


@pytest.mark.parametrize("point", POINTS)
def test_a_kill_costs_time_only(arena: Arena, expected: dict[str, object], point: str):
    plans = plans_through(point)
    shift = POINTS.index(point)
    for number in range(KILLS):
        name = plans[(shift + number) % len(plans)]
        came = strike(arena, point, name, expected[name], shift + number)
        assert came.right, f"{name} gave another answer after a kill at {point}"
        assert came.frugal, f"{name} after a kill at {point}: {came}"
    arena.check_empty()


def test_every_plan_and_every_point_meet():
    assert {name for point in POINTS for name in plans_through(point)} == {
        "materialise", "collect", "keep", "reduce", "recv"}
    assert all(len(plans_through(point)) >= 2 for point in POINTS)
