"""Recognition of the nearest centre in its spellings, and functions that are left as they are."""

import math
import operator
from math import inf

import numpy as np
import pytest
from numpy import dot
from numpy.linalg import norm

from vispark.translate.frontend.reader import trace
from vispark.translate.nearest.recognise import Nearest, Row, recognise

CENTRES = np.arange(12, dtype=np.float32).reshape(3, 4)
MANY = 1e30


def closest_point(p, centers):
    best, closest = 0, inf
    for i in range(len(centers)):
        distance = np.sum((p - centers[i]) ** 2)
        if distance < closest:
            closest = distance
            best = i
    return best


def by_items(p, centres):
    best, where = (np.inf, 0)
    for k in range(len(centres)):
        d = 0.0
        for j in range(len(p)):
            t = p[j] - centres[k, j]
            d += t * t
        if d < best:
            best, where = (d, k)
    return where


def by_items_and_shapes(p, c):
    where = 0
    least = math.inf
    for k in range(c.shape[0]):
        total = 0
        for j in range(0, c.shape[1]):
            total = total + (c[k][j] - p[j]) ** 2
        if least > total:
            where, least = k, total
    return where


def by_enumerate(p, c):
    best, where = np.inf, 0
    for k, centre in enumerate(c):
        d = norm(p - centre)
        if d < best:
            best, where = d, k
    return where


def by_generator(p, c):
    best, where = np.inf, 0
    for k, centre in enumerate(c):
        d = sum((a - b) ** 2 for a, b in zip(p, centre))  # noqa: B905 - as people write it
        if d < best:
            best, where = d, k
    return where


def by_dot(p, c):
    best, where = inf, 0
    for k in range(len(c)):
        difference = p - c[k, :]
        d = math.sqrt(dot(difference, difference))
        if d < best:
            best = d
            where = k
    return where


def squared(a, b):
    difference = a - b
    return np.sum(difference * difference)


def by_helper(p, c):
    best, where = inf, 0
    for k in range(len(c)):
        d = squared(c[k], p)
        if d < best:
            best, where = d, k
    return where


def with_steps(p, c):
    squares = np.sum(c * c, axis=1)
    products = np.dot(c, p)
    distances = squares - 2 * products + np.dot(p, p)
    return np.argmin(distances)


LOOPS = [closest_point, by_items, by_items_and_shapes, by_enumerate, by_generator, by_dot, by_helper]
ARRAYS = [
    with_steps,
    lambda p, c: np.argmin(np.sum((c - p) ** 2, axis=1)),
    lambda p, c: np.argmin(np.sum((p - c) ** 2, axis=-1)),
    lambda p, c: np.argmin(np.sum((c - p[None, :]) ** 2, 1)),
    lambda p, c: np.sum(np.square(c - p), axis=1).argmin(),
    lambda p, c: ((c - p) ** 2).sum(axis=1).argmin(),
    lambda p, c: np.argmin(np.sum(np.square(np.subtract(c, p)), axis=1)),
    lambda p, c: np.argmin(np.sum((c - p) * (c - p), axis=1)),
    lambda p, c: np.argmin(((c - p) ** 2).mean(axis=1)),
    lambda p, c: np.argmin(np.sqrt(np.sum((c - p) ** 2, axis=1))),
    lambda p, c: np.argmin(np.linalg.norm(c - p, axis=1)),
    lambda p, c: np.argmin(norm(p - c, axis=1)),
    lambda p, c: np.argmin(norm(c - p, axis=1) ** 2),
    lambda p, c: np.argmin(np.sum(c * c, axis=1) - 2 * c @ p),
    lambda p, c: np.argmin(np.sum(c * c, axis=1) - 2 * (c @ p)),
    lambda p, c: np.argmin((c ** 2).sum(axis=1) - 2 * c.dot(p) + p @ p),
    lambda p, c: np.argmin(np.sum(c ** 2, axis=1) + dot(p, p) - 2.0 * dot(p, c.T)),
    lambda p, c: np.argmin(0.5 * np.sum(c * c, axis=1) - c @ p),
    lambda p, c: np.argmax(c @ p - np.sum(c * c, axis=1) / 2),
    lambda p, c: np.argmax(-np.sum((c - p) ** 2, axis=1)),
    lambda p, c: np.argmin(np.sum((c.T - p[:, None]) ** 2, axis=0)),
    lambda p, c: np.argmin(np.sum(operator.pow(c - p, 2), axis=1)),
]


def _named(functions):
    return [pytest.param(each, id=f"{number}-{each.__name__.strip('<>')}") for number, each in enumerate(functions)]


@pytest.mark.parametrize("function", _named(LOOPS))
def test_a_search_by_loops_is_recognised(function):
    search = recognise(trace(function, (CENTRES,)))
    assert search.result == Nearest("never", True)
    assert search.centres == ("argument", 0)


@pytest.mark.parametrize("function", _named(ARRAYS))
def test_argmin_over_distances_is_recognised(function):
    search = recognise(trace(function, (CENTRES,)))
    assert search.result == Nearest("first", False)


@pytest.mark.parametrize("function", _named(LOOPS + ARRAYS))
def test_what_is_recognised_is_the_nearest_centre(function):
    points = np.random.default_rng(0).normal(size=(50, 4)) * 5 + 5
    assert [function(p, CENTRES) for p in points] == \
        [min(range(3), key=lambda k, p=p: ((p - CENTRES[k]) ** 2).sum()) for p in points]


def test_what_is_returned_beside_it_is_kept():
    search = recognise(trace(lambda p, c: (closest_point(p, c), (p, 1)), (CENTRES,)))
    assert search.result == (Nearest("never", True), (Row(), 1))
    assert isinstance(search.result[1][1], int)
    search = recognise(trace(lambda p, c: (int(np.argmin(norm(c - p, axis=1))), (p, 1.0)), (CENTRES,)))
    assert search.result == (Nearest("first", True), (Row(), 1.0))
    assert isinstance(search.result[1][1], float)


def test_centres_may_be_captured_or_a_later_argument():
    other = CENTRES + 1
    assert recognise(trace(lambda p: np.argmin(norm(CENTRES - p, axis=1)))).centres == ("capture", 0)
    assert recognise(trace(lambda p: (by_helper(p, other), p))).centres[0] == "capture"
    assert recognise(trace(lambda p, k, c: np.argmin(norm(c - p, axis=1)), (2.0, CENTRES))).centres == ("argument", 1)


def last_of_several(p, c):
    best, where = inf, 0
    for k in range(len(c)):
        d = squared(c[k], p)
        if d <= best:
            best, where = d, k
    return where


def from_a_finite_bound(p, c):
    best, where = MANY, 0
    for k in range(len(c)):
        d = squared(c[k], p)
        if d < best:
            best, where = d, k
    return where


def from_one(p, c):
    best, where = inf, 1
    for k in range(len(c)):
        d = squared(c[k], p)
        if d < best:
            best, where = d, k
    return where


def a_float_place(p, c):
    best, where = inf, 0.0
    for k in range(len(c)):
        d = squared(c[k], p)
        if d < best:
            best, where = d, k
    return where


def forgetful(p, c):
    best, where = inf, 0
    for k in range(len(c)):
        d = squared(c[k], p)
        if d < best:
            where = k
    return where


def sum_not_started_again(p, c):
    best, where = inf, 0
    d = 0.0
    for k in range(len(c)):
        for j in range(len(p)):
            d += (p[j] - c[k, j]) ** 2
        if d < best:
            best, where = d, k
    return where


def sum_without_the_first(p, c):
    best, where = inf, 0
    for k in range(len(c)):
        d = 0.0
        for j in range(1, len(p)):
            d += (p[j] - c[k, j]) ** 2
        if d < best:
            best, where = d, k
    return where


def shared_place(p, c):
    best, where = inf, 0
    for k in range(len(c)):
        d = 0.0
        for j in range(len(p)):
            d += (p[j] - c[k, k]) ** 2
        if d < best:
            best, where = d, k
    return where


def weighted_later(p, c):
    best, where = inf, 0
    for k in range(len(c)):
        d = squared(c[k], p)
        d = d * k
        if d < best:
            best, where = d, k
    return where


def farthest(p, c):
    best, where = inf, 0
    for k in range(len(c)):
        d = -squared(c[k], p)
        if d < best:
            best, where = d, k
    return where


@pytest.mark.parametrize("function", _named([
    farthest, last_of_several, from_a_finite_bound, from_one, a_float_place, forgetful, sum_not_started_again,
    sum_without_the_first, shared_place, weighted_later,
    lambda p, c: np.argmax(np.sum((c - p) ** 2, axis=1)),
    lambda p, c: np.argmin(np.sum(c - p, axis=1)),
    lambda p, c: np.argmin(np.sum((c + p) ** 2, axis=1)),
    lambda p, c: np.argmin(np.sum((c - 2 * p) ** 2, axis=1)),
    lambda p, c: np.argmin(np.sum((c - p) ** 3, axis=1)),
    lambda p, c: np.argmin(np.sum((c - p) ** 2, axis=0)),
    lambda p, c: np.argmin(np.sum(np.abs(c - p), axis=1)),
    lambda p, c: np.argmin(np.sum(c * c, axis=1) - c @ p),
    lambda p, c: np.argmin(np.sum(c * c, axis=1) + 2 * c @ p),
    lambda p, c: np.argmin(np.sqrt(np.sum(c * c, axis=1) - 2 * c @ p)),
    lambda p, c: np.argmin(np.mean(c * c, axis=1) - 2 * c @ p),
    lambda p, c: np.argmin(np.sum((c[1:] - p) ** 2, axis=1)),
    lambda p, c: np.argmin(np.sum((c - p) ** 2, axis=1)) + 1,
    lambda p, c: np.argmin(np.sum((c - p * p) ** 2, axis=1)),
    lambda p, c: (np.argmin(norm(c - p, axis=1)), 2 * p),
    lambda p, c: (np.argmin(norm(c - p, axis=1)), np.argmin(norm(c - p, axis=1))),
    lambda p, c: {"place": np.argmin(norm(c - p, axis=1))},
    lambda p, c: p,
    lambda p, c: c @ p,
]))
def test_anything_else_is_left_as_it_is(function):
    assert recognise(trace(function, (CENTRES,))) is None
