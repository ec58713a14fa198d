"""A function is read once: of its code's other closures only what they captured is taken anew."""

from __future__ import annotations

import functools
import math
import operator
import types
from collections.abc import Callable

import numpy as np
import pytest

from vispark.translate import TranslationError, stencil, trace
from vispark.translate.frontend import reader
from vispark.translate.ir.nodes import Called, Captured, Function

scale = 2.0
joined: Callable = operator.add
table = np.float32([1, 2, 3])
pair = (1.0, 2.0)
settings = types.SimpleNamespace(rate=0.5)


def helped(x):
    return x * scale


options = {"rate": 0.5}


def of_options(x):
    return x * options["rate"]


def helper_of_others(x):
    return x + scale


helper = helped


def outer(x):
    return helper(x) + joined(x, scale) + table[0] + pair[1] * settings.rate + math.pi


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Record the functions that are read from their source."""
    functions: list[object] = []
    find = reader.find

    def counted(function):
        functions.append(function)
        return find(function)

    monkeypatch.setattr(reader, "_recipes", reader.Recipes())
    monkeypatch.setattr(reader, "find", counted)
    return functions


def values(function: Function) -> dict[str, object]:
    return {capture.name: capture.value.array.tolist() for capture in function.captures}


def test_code_is_read_once_and_values_at_each_call(reads: list, monkeypatch: pytest.MonkeyPatch):
    first = trace(outer)
    assert reads == [outer, helped]
    assert values(first) == {"scale": 2.0, "table": [1, 2, 3], "pair[1]": 2.0, "settings.rate": 0.5, "pair[0]": 1.0}
    monkeypatch.setattr(settings, "rate", 0.25)
    table[1] = 7
    monkeypatch.setitem(globals(), "scale", 3.0)
    again = trace(outer)
    assert reads == [outer, helped]
    assert again.definition is first.definition
    assert values(again) == {"scale": 3.0, "table": [1, 7, 3], "pair[1]": 2.0, "settings.rate": 0.25, "pair[0]": 1.0}
    assert values(first)["scale"] == 2.0


def test_an_item_of_a_dict_is_what_it_is_at_each_call(reads: list, monkeypatch: pytest.MonkeyPatch):
    assert values(trace(of_options)) == {"options['rate']": 0.5}
    monkeypatch.setitem(options, "rate", 2.5)
    assert values(trace(of_options)) == {"options['rate']": 2.5}
    assert reads == [of_options]
    monkeypatch.delitem(options, "rate")
    with pytest.raises(TranslationError, match="options has no item 'rate'; it has"):
        trace(of_options)


def test_a_variable_that_two_functions_read_is_captured_once(reads: list):
    assert [capture.name for capture in trace(outer).captures].count("scale") == 1


@pytest.mark.parametrize(("name", "value"), [
    ("helper", helper_of_others), ("joined", operator.sub), ("joined", helped), ("scale", True), ("scale", helped),
    ("pair", (1.0, helped)), ("pair", (1.0, 2.0, 3.0)), ("settings", types.SimpleNamespace(rate=(1, 2)))])
def test_what_changes_the_definition_is_read_anew(reads: list, monkeypatch: pytest.MonkeyPatch, name: str,
                                                  value: object):
    before = trace(outer)
    monkeypatch.setitem(globals(), name, value)
    try:
        expected = reader.Function(*_read_afresh(outer))
    except TranslationError as error:
        with pytest.raises(TranslationError, match=str(error).splitlines()[0].split("(")[0]):
            trace(outer)
        return
    assert trace(outer) == expected
    assert trace(outer).definition != before.definition
    monkeypatch.undo()
    assert trace(outer).definition == before.definition


def _read_afresh(function: Callable) -> tuple:
    pool = reader._Pool()
    return pool.read(function, 0), tuple(pool.captures)


def test_closures_of_one_code(reads: list):
    def closure(step, inner):
        return lambda x: inner(x) * step

    first, second = trace(closure(1.0, math.exp)), trace(closure(2.0, math.exp))
    assert first.definition is second.definition and values(second) == {"step": 2.0}
    assert trace(closure(2.0, math.log)).definition != first.definition
    # A library function, another one, and a function of the user's: three ways to read one code.
    assert isinstance(trace(closure(2.0, helped)).definition.body[0].value.left.function, Called)
    read = len(reads)
    for inner in (math.exp, math.log, helped):
        trace(closure(3.0, inner))
    assert len(reads) == read


def test_equal_functions_must_stay_equal(reads: list):
    def twice(f, g):
        return lambda x: f(x) + g(x)

    def adding(step):
        return lambda x: x + step

    one = adding(1.0)
    same = trace(twice(one, one))
    other = trace(twice(one, adding(2.0)))
    assert values(same) == {"step": 1.0} and [capture.value.number for capture in other.captures] == [1.0, 2.0]
    assert [capture.value.number for capture in trace(twice(adding(3.0), adding(4.0))).captures] == [3.0, 4.0]


def test_defaults_partials_and_stencils(reads: list):
    def defaulted(rate):
        def function(x, k=rate, *, low=rate):
            return x * k + low
        return function

    def scaled(x, k):
        return x * k

    for rate in (0.5, 0.25):
        assert [capture.value.number for capture in trace(defaulted(rate)).captures] == [rate, rate]
        assert values(trace(functools.partial(scaled, k=rate))) == {"k": rate}
        assert values(trace(functools.partial(scaled, rate))) == {"x": rate}
        assert trace(stencil(lambda u: u[1] + scale)).definition.halo == ((0, 1),)
    assert len([function for function in reads if function is scaled]) == 2     # by position and by name


def test_a_number_too_large_later(reads: list, monkeypatch: pytest.MonkeyPatch):
    trace(helped)
    monkeypatch.setitem(globals(), "scale", 2**70)
    with pytest.raises(TranslationError, match="does not fit 64 bits"):
        trace(helped)


def test_captures_are_numbered_as_the_code_reads_them(reads: list):
    function = trace(lambda x: x * scale + pair[0])
    assert isinstance(function.definition.body[0].value.left.right, Captured)
    assert [capture.name for capture in function.captures] == ["scale", "pair[0]", "pair[1]"]
