"""Step lengths of OWL-QN where an objective has kinks."""

from __future__ import annotations

import numpy as np
import pytest

from vispark.ml.optim.line_search import LineSearchFailed, backtracking
from vispark.ml.optim.quasi_newton import minimize


def test_a_kink_ends_the_search_with_its_last_length():
    # At the minimum of |x - 1| no slope is less than the first one's.
    tried = []

    def along(length: float):
        tried.append(length)
        return abs(length - 1), -1.0 if length < 1 else 1.0

    assert backtracking(along, 0.3, shrink=0.5, claimed=1.0) == tried[-1]
    assert len(tried) == 21


def test_lengths_that_vanish_fail():
    with pytest.raises(LineSearchFailed, match="no step"):
        backtracking(lambda length: (length, -1.0), 1e-9, shrink=0.1, claimed=1.0)


def test_support_vectors_of_two_rows_end_where_breeze_ends():
    # The example is of pyspark's LinearSVC; its two rows lie on a kink together.
    rows, signs = np.array([[0.0, -2**-0.5, -2**-0.5], [0.0, 2**-0.5, 2**-0.5]]), np.array([1.0, -1.0])

    def objective(v: np.ndarray):
        rest = 1 - signs * (rows @ v[:3] + v[3])
        slope = np.where(rest > 0, -signs, 0)
        l2 = np.array([0.01, 0.01, 0.01, 0])
        return np.maximum(rest, 0).sum() / 2 + l2 @ v**2 / 2, np.append(slope @ rows, slope.sum()) / 2 + l2 * v

    minimum = minimize(objective, np.zeros(4), l1=np.zeros(4), iterations=5)
    np.testing.assert_allclose(minimum.x[1:3] / [0.5**0.5, 2**0.5], [-1.0319, -0.5159], atol=1e-4)


def test_a_gradient_that_did_not_change_over_a_step_begins_anew():
    """Between kinks the hinge loss is a plane, on which steps say nothing of a curvature."""
    minimum = minimize(lambda v: (abs(v - 9).sum(), np.sign(v - 9)), np.zeros(2), l1=np.zeros(2), iterations=30)
    np.testing.assert_allclose(minimum.x, [9, 9], atol=0.5)
