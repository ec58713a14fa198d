"""Minima within bounds."""

from __future__ import annotations

import numpy as np
import pytest

from vispark.ml.optim.bounded import minimize_within


@pytest.mark.parametrize("seed", range(8))
def test_a_minimum_has_no_way_down_within_the_bounds(seed: int):
    rng = np.random.default_rng(seed)
    half = rng.normal(size=(12, 8)) * rng.uniform(.1, 4, 8)
    matrix, side = half.T @ half + 1e-3 * np.eye(8), rng.normal(size=8) * 5
    lower, upper = np.where(rng.random(8) < .6, -.1, -np.inf), np.where(rng.random(8) < .6, .2, np.inf)
    found = minimize_within(lambda x: (x @ matrix @ x / 2 - side @ x, matrix @ x - side), rng.normal(size=8), lower,
                            upper, iterations=500, tolerance=1e-12)
    assert (found.x >= lower).all() and (found.x <= upper).all()
    gradient = matrix @ found.x - side
    is_free = (found.x > lower) & (found.x < upper)
    assert np.abs(gradient[is_free]).max(initial=0) < 1e-6
    assert (gradient[found.x == lower] > -1e-6).all() and (gradient[found.x == upper] < 1e-6).all()
    assert (np.diff(found.history) <= 0).all()


def test_no_step_leaves_the_start_within_the_bounds():
    found = minimize_within(lambda x: (x @ x, 2 * x), np.array([5.0]), np.array([1.0]), np.array([3.0]), iterations=0)
    assert found.x == [3.0] and not found.is_failed
