"""Metrics of sums over predictions, without a worker."""

from __future__ import annotations

import math

from vispark.ml.metrics import Residuals


def test_r2_of_labels_without_variance_is_mllibs():
    # The sum of squares of one row, and of equal labels, is 0.
    for weight, squares in ((1.0, 1.0), (4.0, 4.0)):
        off, exact = (Residuals(weight, squares, 0.0, errors, errors, 0.0, errors) for errors in (.5, 0.0))
        for through_origin in (False, True):
            assert off.r2(through_origin=through_origin) == -math.inf
            assert math.isnan(exact.r2(through_origin=through_origin))
    assert Residuals(4.0, 4.0, 9.0, 1.0, 2.0, 2.0, 1.0).r2(through_origin=False) == 0.5
