"""Draws with replacement are those of PySpark's sampler, however their sums of logarithms are rounded."""

from __future__ import annotations

import numpy as np
import pytest
from pyspark.rddsampler import RDDSampler

from gpu_worker.execution.steps import sampling


@pytest.mark.parametrize("mean", [0.0, 0.01, 1.0, 19.9, 20.0, 300.0])
def test_rows_are_drawn_as_often_as_pyspark_draws_them(mean: float):
    rows = 500 if mean < 100 else 40
    for partition in (0, 5):
        expected = list(RDDSampler(True, mean, 7).func(partition, range(rows)))
        drawn = sampling.drawn_with_replacement(sampling.generator(7, partition), rows, mean)
        assert drawn.tolist() == expected and drawn.dtype == np.uint32


@pytest.mark.parametrize("mean", [0.3, 25.0])
def test_ends_within_the_margin_are_computed_as_pyspark_computes_them(mean: float, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sampling, "_MARGIN", 0.02)
    expected = list(RDDSampler(True, mean, 3).func(1, range(400)))
    assert sampling.drawn_with_replacement(sampling.generator(3, 1), 400, mean).tolist() == expected
    assert sampling.drawn_with_replacement(sampling.generator(3, 1), 0, mean).tolist() == []
