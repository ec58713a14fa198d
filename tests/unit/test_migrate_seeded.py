"""Functions of tasks that draw random numbers are found, and draw the same in each run."""

from __future__ import annotations

import random
from random import gauss

import numpy as np
import pytest
from numpy.random import rand

from vispark.migrate.record.seeded_tasks import SeededFunction, drawing


def helper(x):
    return x + gauss(0, 1)


@pytest.mark.parametrize(("function", "is_found"), [
    (lambda r: np.random.ranf(size=3), True), (lambda r: random.random(), True), (lambda r: rand(3), True),
    (lambda r: helper(r), True), (lambda r: [random.choice(r) for _ in r], True), (lambda r: r + 1, False),
    (lambda r: np.exp(r), False), (len, False), (print, False)])
def test_functions_that_draw_are_found(function, is_found):
    def of_partition(_, records):
        return map(function, records)

    assert (drawing(of_partition) is not None) == is_found


def test_a_partition_draws_the_same_each_time():
    seeded = SeededFunction(lambda index, records: [np.random.rand() + random.random() for _ in records], 2**32 - 1)
    before = random.getstate(), np.random.get_state()
    try:
        assert seeded(3, iter(range(4))) == seeded(3, iter(range(4))) != seeded(4, iter(range(4)))
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])
