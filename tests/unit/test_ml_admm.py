"""Consensus among the minima of parts."""

from __future__ import annotations

import numpy as np
import pytest

from vispark.ml.optim.admm import consensus
from vispark.ml.optim.quasi_newton import minimize


def logistic(seed: int):
    """Return the losses of four parts of unlike rows."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(4, 30, 5)) + rng.normal(size=(4, 1, 5))
    signs = np.where(rng.random((4, 30)) < 1 / (1 + np.exp(-x @ rng.normal(size=5))), 1, -1)

    def losses(points: np.ndarray):
        margins = signs * np.einsum("prd,pd->pr", x, points)
        shares = -signs / (1 + np.exp(margins)) / 120
        return np.logaddexp(0, -margins).sum(axis=1) / 120, np.einsum("pr,prd->pd", shares, x)
    return losses


@pytest.mark.parametrize("l1", [0.0, .02])
@pytest.mark.parametrize("rho", [.001, .02, 1.0])
def test_parts_agree_on_the_minimum_of_the_whole(l1: float, rho: float):
    losses = logistic(3)

    def whole(point: np.ndarray):
        values, gradients = losses(np.tile(point, (4, 1)))
        return values.sum() + .005 * point @ point, gradients.sum(axis=0) + .01 * point

    expected = minimize(whole, np.zeros(5), l1=np.full(5, l1) if l1 else None, tolerance=1e-12).x
    agreed = consensus(losses, 4, 5, l1=l1, l2=.01, rho=rho, iterations=300, tolerance=1e-8)
    gap = (whole(agreed.x)[0] + l1 * np.abs(agreed.x).sum()) - (whole(expected)[0] + l1 * np.abs(expected).sum())
    assert abs(gap) < 1e-8
    np.testing.assert_allclose(agreed.x, expected, atol=1e-4)
    assert agreed.residuals.max() < 1e-4


def test_a_part_without_rows_agrees_with_the_others():
    def losses(points: np.ndarray):
        offsets = points - np.array([[2.0], [0.0]])
        weights = np.array([[1.0], [0.0]])
        return (weights * offsets ** 2).sum(axis=1), 2 * weights * offsets

    assert consensus(losses, 2, 1, tolerance=1e-8).x == pytest.approx([2.0], abs=1e-6)


def test_parts_whose_first_steps_are_too_long_agree_on_no_point_before():
    # Sums over many rows have slopes at which five halvings of a step are too few.
    rng = np.random.default_rng(1)
    x = rng.normal(size=(4, 1000, 8)) + 3 * rng.integers(0, 3, (4, 1000, 1))
    margins = x @ rng.normal(size=8)
    signs = np.where(margins > np.median(margins), 1, -1)

    def losses(points: np.ndarray):
        scores = signs * np.einsum("prd,pd->pr", x, points)
        return np.logaddexp(0, -scores).sum(axis=1), np.einsum("pr,prd->pd", -signs / (1 + np.exp(scores)), x)

    def whole(point: np.ndarray):
        values, gradients = losses(np.tile(point, (4, 1)))
        return values.sum() + .5 * point @ point, gradients.sum(axis=0) + point

    expected = minimize(whole, np.zeros(8), iterations=1000, tolerance=1e-14).x
    agreed = consensus(losses, 4, 8, l2=1.0, iterations=300, tolerance=1e-7)
    np.testing.assert_allclose(agreed.x, expected, rtol=1e-3)
