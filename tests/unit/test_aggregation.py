"""Aggregations read off the two functions of ``aggregate``: what is computed of a record, and how it is joined."""

from __future__ import annotations

import operator
from collections.abc import Callable

import numpy as np
import pytest

from vispark.plan.fold.aggregation import Aggregation, aggregation_of, parts_of, total
from vispark.plan.fold.reading import Leaf
from vispark.translate import ElementField, ElementSpec, specialise
from vispark.translate.ir import nodes

RATE = 0.5


def counted(acc, x):
    """Add by way of locals, some of them of the record alone."""
    sums, count = acc
    twice = x * 2
    if x > 0:
        twice = x
    sums += twice
    return sums, count + 1


def extremes(acc, x):
    return min(acc[0], x), (x if x > acc[1] else acc[1])


def both(a, b):
    return a[0] + b[0], a[1] + b[1]


def both_extremes(a, b):
    return min(a[0], b[0]), a[1] if a[1] > b[1] else b[1]


LOWERED: dict[str, tuple[Callable, Callable, tuple[Leaf, ...]]] = {
    "sum": (lambda total, x: total + x, operator.add, (Leaf("", "add"),)),
    "turned": (lambda total, x: x * RATE + total, lambda a, b: a + b, (Leaf("", "add"),)),
    "mean": (lambda t, x: (t[0] + x, t[1] + 1), both, (Leaf("0", "add"), Leaf("1", "add"))),
    "locals": (counted, both, (Leaf("0", "add"), Leaf("1", "add"))),
    "extremes": (extremes, both_extremes, (Leaf("0", "minimum", "choice"), Leaf("1", "maximum", "choice"))),
    "nested": (lambda t, x: ((t[0][0] + x, t[0][1] * 2), t[1] + 1),
               lambda a, b: ((a[0][0] + b[0][0], a[0][1] * b[0][1]), a[1] + b[1]),
               (Leaf("0.0", "add"), Leaf("0.1", "multiply"), Leaf("1", "add"))),
    "min": (lambda t, x: min(x, t), min, (Leaf("", "minimum", "choice"),)),
}


@pytest.mark.parametrize(("step", "combine", "leaves"), LOWERED.values(), ids=LOWERED)
def test_what_is_lowered(step: Callable, combine: Callable, leaves: tuple[Leaf, ...]):
    aggregation = aggregation_of(step, combine)
    assert isinstance(aggregation, Aggregation) and aggregation.fold.leaves == leaves
    # What is computed of a record can be a kernel.
    kernel = specialise(aggregation.mapped, ElementSpec((ElementField("", "float32"),)))
    assert [output.name for output in kernel.outputs] == [leaf.place for leaf in leaves]


def test_a_local_that_changes_afterwards_does_not_change_what_was_joined():
    def step(t, x):
        y = x
        t = (t[0] + y, t[1])
        y = 3 * x
        return t[0], t[1] + y

    aggregation = aggregation_of(step, both)
    assert isinstance(aggregation, Aggregation)
    assert [statement.targets[0].name for statement in aggregation.mapped.definition.body
            if isinstance(statement, nodes.Assign)] == ["y", "part_0", "y", "part_1"]


@pytest.mark.parametrize(("step", "combine", "reason"), [
    (lambda t, x: t - x, operator.add, "joins its values by -"),
    (lambda t, x: t * 0.5 + x, operator.add, "does not join each part"),
    (lambda t, x: (t[0] + t[1], t[1] + x), both, "does not join each part"),
    (lambda t, x: (t[1] + x, t[0] + x), both, "does not join each part"),
    (lambda t, x: (t[0] + x, t[1]), both, "does not join each part"),
    (lambda t, x: t + x, operator.mul, "different operators"),
    (lambda t, x: t + x, lambda a, b: a - b, "joins its values by -"),
    (lambda t, x: np.add(t, x), operator.add, "different operators"),
    (lambda t, x, more: t + x, operator.add, "takes 3 parameters"),
    (lambda t, x: t + x if x > 0 else t, operator.add, "does not join each part"),
    (print, operator.add, "print"), (lambda t, x: t + x, print, "print"),
])
def test_what_is_not_lowered(step: Callable, combine: Callable, reason: str):
    answer = aggregation_of(step, combine)
    assert isinstance(answer, str) and reason in answer


def test_totals():
    assert parts_of(((1, 2.0), 3), ["0.0", "0.1", "1"]) == {"0.0": 1, "0.1": 2.0, "1": 3}
    assert parts_of(4, [""]) == {"": 4}
    assert total((1, 0), 3, (10, 5), both) == (14, 5)
    zero = np.zeros(2)
    assert total(zero, 2, np.ones(2), operator.iadd).tolist() == [1.0, 1.0]
    assert zero.tolist() == [0.0, 0.0]
