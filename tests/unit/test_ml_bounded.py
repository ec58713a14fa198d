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
    minimum = minimize_within(lambda x: (x @ matrix @ x / 2 - side @ x, matrix @ x - side), rng.normal(size=8), lower,
                              upper, iterations=500, tolerance=1e-12)
    assert (minimum.x >= lower).all() and (minimum.x <= upper).all()
    gradient = matrix @ minimum.x - side
    is_free = (minimum.x > lower) & (minimum.x < upper)
    assert np.abs(gradient[is_free]).max(initial=0) < 1e-6
    assert (gradient[minimum.x == lower] > -1e-6).all() and (gradient[minimum.x == upper] < 1e-6).all()
    assert (np.diff(minimum.history) <= 0).all()


def test_no_step_leaves_the_start_within_the_bounds():
    minimum = minimize_within(lambda x: (x @ x, 2 * x), np.array([5.0]), np.array([1.0]), np.array([3.0]), iterations=0)
    assert minimum.x == [3.0] and not minimum.is_failed


def test_coordinates_of_very_different_curvature_take_few_steps():
    rng, factors = np.random.default_rng(1), np.logspace(-3, 3, 9)
    rows = rng.normal(size=(40, 9))
    matrix = factors[:, None] * (rows.T @ rows / 40) * factors
    middle, lower = np.where(np.arange(9) % 3, .5, -1) / factors, -.3 / factors

    def objective(x: np.ndarray) -> tuple[float, np.ndarray]:
        return (x - middle) @ matrix @ (x - middle) / 2, matrix @ (x - middle)

    minimum = minimize_within(objective, np.zeros(9), lower, np.full(9, np.inf), curvature=factors ** 2,
                              tolerance=1e-12)
    assert len(minimum.history) < 50 and (minimum.x >= lower).all()
    gradient = objective(minimum.x)[1] / factors
    np.testing.assert_allclose(gradient[minimum.x > lower], 0, atol=1e-6)
    assert (minimum.x == lower).any() and (gradient[minimum.x == lower] > 0).all()
    assert len(minimize_within(objective, np.zeros(9), lower, np.full(9, np.inf), tolerance=1e-12).history) == 101
