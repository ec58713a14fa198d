"""Random numbers: the authors' vectors, distributions, and independence of how records are split."""

import math
import warnings

import numpy as np
import pytest

from vispark import random

COUNT = 20_000


@pytest.mark.parametrize(("key", "low", "high", "words"), [
    (0, 0, 0, "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    (2**64 - 1, 2**64 - 1, 2**64 - 1, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    (0x299F31D0A4093822, 0x85A308D3243F6A88, 0x0370734413198A2E, "d16cfe09 94fdcceb 5001e420 24126ea1")])
def test_the_words_are_those_of_the_authors(key, low, high, words):
    """Compare with the known answers for philox4x32 of 10 rounds, of the Random123 library."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert [int(word) for word in random.philox(key, low, high)] == [int(word, 16) for word in words.split()]


def _uniformity(numbers):
    """Return chi squared of 100 equal bins, less what is expected of it, in standard deviations."""
    counts, _ = np.histogram(numbers, 100, (0, 1))
    return (((counts - COUNT / 100) ** 2).sum() / (COUNT / 100) - 99) / math.sqrt(2 * 99)


@pytest.mark.parametrize("numbers", [
    lambda: [random.uniform(1, i) for i in range(COUNT)],
    lambda: [random.uniform(i, 1) for i in range(COUNT)],
    lambda: [random.uniform(1, 5, i) for i in range(COUNT)],
    lambda: [random.integers(1000, 1, i) / 1000 for i in range(COUNT)]], ids=["index", "seed", "call", "integers"])
def test_numbers_are_uniform_and_not_correlated(numbers):
    drawn = np.array(numbers())
    assert drawn.min() >= 0 and drawn.max() < 1 and abs(_uniformity(drawn)) < 5
    assert abs(np.corrcoef(drawn[:-1], drawn[1:])[0, 1]) < 5 / math.sqrt(COUNT)


def test_normal_numbers_have_the_moments():
    drawn = np.array([random.normal(3, i) for i in range(COUNT)])
    for power, moment in ((1, 0), (2, 1), (3, 0), (4, 3)):
        assert abs((drawn**power).mean() - moment) < 5 * (drawn**power).std() / math.sqrt(COUNT)


def test_whole_numbers_take_every_value():
    assert {int(random.integers(6, 1, i)) for i in range(200)} == set(range(6))
    assert all(random.integers(1, 1, i) == 0 for i in range(10))
    assert isinstance(random.integers(2**32, 1, 0), np.int64) and isinstance(random.uniform(1, 0), np.float64)
