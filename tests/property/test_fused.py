"""Chains of ``vmap`` and folds give what ``map`` and Spark's folds give, whatever of them becomes one kernel."""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pyspark import RDD, SparkContext

from tests.system.topology import Topology
from tests.system.vrdd_tools import exact, host_context, in_partitions
from vispark import VRDD

EXAMPLES = int(os.environ.get("VISPARK_EXAMPLES", "15"))


@pytest.fixture(scope="module")
def sc(local: Topology) -> Iterator[SparkContext]:
    with host_context(local) as context:
        yield context


def twice(x):
    return 2 * x


def plus(x, k):
    return x + k


def square(x):
    return x * x


def paired(x):
    return 1 if x > 0 else 0, x


#: What is done to an element, with its arguments beside it. All stay whole numbers, whose sums are exact.
MAPS: dict[str, tuple[Callable, tuple]] = {
    "twice": (twice, ()), "plus 1": (plus, (1.0,)), "plus -2": (plus, (-2.0,)), "square": (square, ())}
KEEPING: dict[str, Callable[[VRDD], VRDD]] = {
    "cache": lambda vrdd: vrdd.cache(), "htod": lambda vrdd: vrdd.htod(), "dtoh": lambda vrdd: vrdd.dtoh(),
    "uncache": lambda vrdd: vrdd.uncache()}


FOLDS = ("reduce", "sum", "aggregate")


@dataclass(frozen=True)
class FusedCase:
    """Records by partition, the operations on them, and what is asked in the end."""

    kind: str
    keyed: bool
    partitions: list[list]
    steps: list[str]
    last: str
    action: str


@st.composite
def cases(draw) -> FusedCase:
    kind = draw(st.sampled_from(["numbers", "rows", "blocks"]))
    keyed = draw(st.booleans())
    number = st.integers(-2, 2).map(float)
    value = {"numbers": number, "rows": st.lists(number, min_size=3, max_size=3).map(np.array),
             "blocks": st.integers(0, 4).flatmap(lambda n: st.lists(
                 st.lists(number, min_size=2, max_size=2), min_size=n, max_size=n)).map(
                     lambda rows: np.array(rows).reshape(-1, 2))}[kind]
    record = st.tuples(st.integers(0, 3), value) if keyed else value
    partitions = draw(st.lists(st.lists(record, max_size=4), min_size=1, max_size=3))
    steps = draw(st.lists(st.sampled_from([*MAPS, *KEEPING]), max_size=5))
    action = draw(st.sampled_from(["collect", "take", "count", *FOLDS]))
    # Blocks of different shapes have no sum.
    lasts = {"numbers": ["", "pair"], "rows": ["", "vreduce"],
             "blocks": ["vreduce"] if action in FOLDS else ["", "vreduce"]}[kind]
    return FusedCase(kind, keyed, partitions, steps, draw(st.sampled_from(lasts)), action)


def mapped(rdd: RDD, case: FusedCase, function: Callable, *arguments: Any) -> RDD:
    """Apply ``vmap`` as it is on an RDD of plain records."""
    def one(value):
        if case.kind != "blocks":
            return function(value, *arguments)
        return np.array([function(row, *arguments) for row in value]).reshape(value.shape)

    return rdd.mapValues(one) if case.keyed else rdd.map(one)


def folded_inside(value):
    return np.add.reduce(value, axis=0)


def run(rdd: RDD, case: FusedCase) -> object:
    gpu = isinstance(rdd, VRDD)
    for step in case.steps:
        if step in MAPS:
            function, arguments = MAPS[step]
            rdd = rdd.vmap(function, *arguments, of="row") if gpu else mapped(rdd, case, function, *arguments)
        elif gpu:
            rdd = KEEPING[step](rdd)
    keyed = case.keyed
    if case.last == "pair":
        rdd = rdd.vmap(paired, of="row") if gpu else (rdd.values() if keyed else rdd).map(paired)
        if case.action in FOLDS:
            return sorted(rdd.reduceByKey(operator.add, 2, numKeys=2).collect() if gpu else
                          rdd.reduceByKey(operator.add, 2).collect())
        rdd = rdd.keys() if case.action == "count" else rdd.values()
        return exact(rdd.collect())
    if case.last == "vreduce":
        rdd = rdd.vreduce(operator.add) if gpu else (rdd.mapValues if keyed else rdd.map)(folded_inside)
    if case.action in FOLDS and keyed:
        rdd = rdd.values()
    return asked(rdd, case)


def asked(rdd: RDD, case: FusedCase) -> object:
    match case.action:
        case "collect":
            return exact(rdd.collect())
        case "take":
            return exact(rdd.take(2))
        case "count":
            return rdd.count()
        case "sum":
            return number_of(rdd.sum())
        case "reduce":
            return number_of(rdd.reduce(operator.add))
    total, count = rdd.aggregate((0.0, 0), lambda t, x: (t[0] + x, t[1] + 1),
                                 lambda a, b: (a[0] + b[0], a[1] + b[1]))
    return number_of(total), count


def number_of(value: object) -> object:
    """Return a sum, whose zeros may have either sign."""
    return type(value).__name__, np.asarray(value).shape, (np.asarray(value) + 0.0).tolist()


def outcome(action: Callable[[], object]) -> object:
    """Return the result of a program, or that there was nothing to reduce."""
    try:
        return action()
    except ValueError as error:
        if "empty" not in str(error):
            raise
        return "empty"


@pytest.mark.slow
@pytest.mark.timeout(120 + 20 * EXAMPLES)
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(cases())
@example(FusedCase("blocks", True, [[(0, np.ones((3, 2)))], [], [(1, np.ones((1, 2)))]], ["plus 1", "twice"], "vreduce",
                   "reduce"))
@example(FusedCase("blocks", False, [[np.ones((0, 2))], [np.ones((2, 2))]], ["square"], "vreduce", "sum"))
@example(FusedCase("blocks", False, [[np.ones((0, 2))], [np.ones((3, 2))]], [], "vreduce", "aggregate"))
@example(FusedCase("numbers", True, [[(0, 1.0), (1, -2.0)], [(2, 2.0)]], ["twice", "cache", "square"], "pair",
                   "reduce"))
@example(FusedCase("numbers", False, [[1.0, -2.0], []], ["twice"], "pair", "count"))
@example(FusedCase("numbers", True, [[(0, 1.0)], [(2, -1.0), (0, 2.0)]], [], "pair", "count"))
@example(FusedCase("rows", False, [[np.ones(3), np.zeros(3)], [np.ones(3)]], ["twice", "dtoh", "plus 1"], "",
                   "aggregate"))
def test_equal_results(sc: SparkContext, case: FusedCase):
    plain = in_partitions(sc, case.partitions)
    expected = outcome(lambda: run(plain, case))
    assert outcome(lambda: run(plain.cache("GPU"), case)) == expected
