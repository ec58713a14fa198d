"""Lists from around a function, of drawn lengths and of items of drawn types: Python's answers, or an error."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.golden.harness import translated
from vispark.translate import TranslationError

pytestmark = pytest.mark.slow

ROWS = np.random.default_rng(5).normal(size=(4, 3))
Item = namedtuple("Item", "place weight")
NUMBERS = {int: st.integers(-3, 3), float: st.floats(-4, 4, width=32).map(lambda x: x + 0.0),
           bool: st.booleans()}


@st.composite
def lists(draw: st.DrawFn) -> list:
    """Return lists of tuples, of named tuples or of lists, whose positions have types of their own."""
    kinds = draw(st.lists(st.sampled_from([int, float, bool]), min_size=2, max_size=2))
    items = draw(st.lists(st.tuples(*(NUMBERS[kind] for kind in kinds)), max_size=4))
    build = draw(st.sampled_from([tuple, list, lambda item: Item(*item)]))
    return [build(item) for item in items]


def _functions(items: list) -> dict[str, Callable]:
    """Return functions of a row that read a list, by what they do with it."""
    def parts(p):
        first = [each[0] * p[0] for each in items]
        return len(first), first

    def summed(p):
        s = 0.0
        for a, b in items:
            s += a * p[0] + b
        return s

    def helped(p):
        count, first = parts(p)
        return count + sum(first)

    def chosen(p):
        return items[int(p[0] > 0) - 1][1] * p[1]

    def from_the_end(p):
        return items[-1][0] + p[2]

    def by_field(p):
        return sum(each.weight * p[0] for each in items)

    def nested(p):
        return sum(p[i % 3] * w for i, (_, w) in enumerate(items)) + len(items)

    def shifted(p):
        a, b = p[0], p[1]
        for item in items:
            a, b = [b, a + item[1]]
        return a, b

    def either(p):
        picked = [each[0] for each in items] if p[0] > 0 else [each[1] for each in items]
        return sum(picked) + p[2]

    return {each.__name__: each for each in (summed, helped, chosen, from_the_end, by_field, nested, shifted, either)}


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(lists())
@pytest.mark.parametrize("name", sorted(_functions([])))
def test_a_captured_list_is_pythons_or_an_error(name: str, items: list):
    function = _functions(items)[name]
    try:
        results = translated(function, ROWS)
    except TranslationError:
        return
    for result, row in zip(results, ROWS, strict=True):
        assert np.allclose(np.asarray(result, float), np.asarray(function(row), float), rtol=1e-12, atol=1e-12)
