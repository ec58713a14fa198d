"""Of each shape of records, ``vmap`` means what ``map`` does, or a warning has both spellings; by types alone."""

# What a linter would change is what is tried here.
# ruff: noqa: RUF015, RUF034
from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from gpu_worker.protocol.errors import RecordError
from vispark import MeaningWarning, PlanError, TranslationError
from vispark.data.records.packing import pack
from vispark.plan import map_call

R = np.array([1.0, 2.0])


def swapped(v):
    one, other = v
    return other, one


def three(v):
    one, other, last = v
    return one, other + last, last


FUNCTIONS = {
    "v": lambda v: v, "v[0]": lambda v: v[0], "v[1]": lambda v: v[1], "v[-1]": lambda v: v[-1],
    "v[1:]": lambda v: v[1:], "v[::-1]": lambda v: v[::-1], "(v, v)": lambda v: (v, v), "(v, 1)": lambda v: (v, 1),
    "(v, v, v)": lambda v: (v, v, v), "{a: v}": lambda v: {"a": v}, "v[0], v[1]": lambda v: (v[0], v[1]),
    "v[0], v[1:]": lambda v: (v[0], v[1:]),
    "v[0], v": lambda v: (v[0], v), "v[0] + v[1]": lambda v: v[0] + v[1], "v[0] / 2": lambda v: v[0] / 2,
    "v[0] // 2": lambda v: v[0] // 2, "v[0] ** 2": lambda v: v[0] ** 2, "v[0] | 1": lambda v: v[0] | 1,
    "{a: v[0]}": lambda v: {"a": v[0], "b": v[1]}, "v + v": lambda v: v + v, "2 * v": lambda v: 2 * v,
    "v * 2": lambda v: v * 2, "v + 1": lambda v: v + 1, "v / 2": lambda v: v / 2, "v // 2": lambda v: v // 2,
    "v ** 2": lambda v: v ** 2, "-v": lambda v: -v, "abs": lambda v: abs(v), "len": lambda v: len(v),
    "sum": lambda v: sum(v), "max": lambda v: max(v), "tuple": lambda v: tuple(v), "v == v": lambda v: v == v,
    "not v": lambda v: not v, "v is None": lambda v: v is None, "v if v": lambda v: v if v else v,
    "1 if v": lambda v: 1 if v else 0, "float": lambda v: float(v), "np.sqrt": lambda v: np.sqrt(v),
    "np.sum": lambda v: np.sum(v), "v.sum()": lambda v: v.sum(), "v @ R": lambda v: v @ R,
    "first": lambda v: [item for item in v if item is not None][0], "swapped": swapped, "three": three}

RECORDS: dict[str, list[Any]] = {
    "int": [3, 5], "float": [1.5, 2.5], "bool": [True, False], "complex": [1 + 2j, 2 - 1j],
    "float32": [np.float32(1.5)], "array": [np.array([4.0, 5.0])], "matrix": [np.ones((2, 3))],
    "tuple of one": [(3,)], "tuple of ints": [(1, 2, 3)], "tuple of floats": [(1.5, 2.5, 3.5)],
    "tuple of bools": [(True, False, True)], "mixed tuple": [(1, 2.5, 3.0)], "tuple with a bool": [(4, True, 2)],
    "tuple of float32": [tuple(np.float32([1, 2, 3]))], "tuple of NumPy's": [(np.float32(1), np.int8(2), 3)],
    "pair": [(3, 4)], "pair of int and float": [(3, 4.5)], "pair with text": [("a", 4.5)],
    "pair with None": [(None, 3)],
    "pair with a tuple as key": [((1, 2), 3.0)], "pair with an array": [(3, np.array([4.0, 5.0]))],
    "text and array": [("a", np.array([4.0, 5.0]))], "pair with a tuple": [(3, (4, 5, 6))],
    "text and tuple": [("a", (4, 5.5, 6))], "pair with a matrix": [(3, np.ones((2, 3)))]}

#: What is an error or nothing, as the translator has no array of objects, empty tuples or an array's
#: identity.
BEYOND = {("tuple of one", "v[1:]"), ("tuple of one", "v[0], v[1:]"), ("pair with an array", "v == v"),
          ("text and array", "v == v"), ("pair with None", "np.sqrt"), ("pair with a matrix", "v == v"),
          ("pair with a matrix", "np.sum"), ("pair with text", "np.sum")}


def form(value: Any) -> Any:
    """Return a value with its type; NumPy's number and a 0-d array are what Python's of the same kind and size is."""
    match value:
        case dict():
            return {name: form(each) for name, each in value.items()}
        case tuple() | list():
            return tuple(map(form, value))
        case np.ndarray() if value.shape:
            return value.dtype.str, value.shape, value.tolist()
    held = np.asarray(value)
    return held.dtype.str, held.tolist()


def by_map(function: Any, record: Any) -> Any:
    """Return the result of ``map``, or None where it is an error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return form(function(record))
        except (TypeError, ValueError, IndexError, AttributeError):
            return None


def by_vmap(function: Any, record: Any) -> Any:
    """Return the result of ``vmap`` as README and guide have it."""
    match record:
        case tuple() if len(record) == 2:
            value = by_vmap(function, record[1])
            return value if type(value) is tuple and len(value) == 2 and not isinstance(value[0], str) else (
                None if value is None else (form(record[0]), value))
        case tuple():
            return by_map(function, np.array(record))
        case np.ndarray() if record.ndim > 1:
            rows = [function(row) for row in record]
            if isinstance(rows[0], tuple):
                return tuple(form(np.array(each)) for each in zip(*rows, strict=True))
            return form({name: np.array([row[name] for row in rows]) for name in rows[0]} if isinstance(rows[0], dict)
                        else np.array(rows))
    return by_map(function, record)


def warned(function: Any, records: list[Any], of: str | None = None, *, anew: bool = True) -> bool | None:
    """Return whether a warning is given; None where the call is an error. Not ``anew``: beside those given before."""
    packed = pack(iter(records), seal=lambda keys: keys)
    spec = map_call.record_map(function, (), of)
    if anew:
        map_call._warned.clear()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            layout, signature = map_call.given(spec, packed.layout, packed.signatures[0])
            map_call.resolve_maps([(0, spec)], layout, signature)
        except (TranslationError, PlanError):
            return None
    words = [str(each.message) for each in caught if each.category is MeaningWarning]
    assert all('of="' in each or "Write " in each for each in words)
    return bool(words)


@pytest.mark.parametrize("name", RECORDS)
def test_vmap_means_what_map_does_or_a_warning_has_both_spellings(name: str):
    for written, function in FUNCTIONS.items():
        if (name, written) in BEYOND:
            continue
        wanted, record = by_map(function, RECORDS[name][0]), RECORDS[name][0]
        try:
            is_warned = warned(function, RECORDS[name])
        except TranslationError:
            continue
        if is_warned is False and wanted is not None:
            assert wanted == by_vmap(function, record), f"{written} of {record!r} is silently something else"


def test_each_function_and_each_form_of_records_is_warned_of_once():
    """Also functions on one line, and one function of records of two forms."""
    map_call._warned.clear()
    pair, double = lambda v: (v, v), lambda v: 2 * v
    assert [warned(each, RECORDS["pair"], anew=False) for each in (pair, double, pair, double)] == [1, 1, 0, 0]
    assert [warned(double, RECORDS["tuple of ints"], anew=False) for _ in range(2)] == [1, 0]


@pytest.mark.parametrize("of", ["record", "row", "value"])
def test_a_word_for_what_is_meant_ends_the_warning(of: str):
    for name, records in RECORDS.items():
        for function in FUNCTIONS.values():
            try:
                assert not warned(function, records, of), name
            except TranslationError:
                continue


def test_what_means_the_same_is_not_told_of():
    numbers, mixed, pair = RECORDS["tuple of ints"], RECORDS["mixed tuple"], RECORDS["pair with text"]
    for written in ("v[0]", "v[0] + v[1]", "v[0] / 2", "sum", "max", "len", "tuple", "three", "v + 1", "v.sum()"):
        assert warned(FUNCTIONS[written], numbers) is False, written
    assert warned(lambda v: v[0] * v[1], mixed) is warned(lambda v: v[0] / 2 + v[2], mixed) is False
    assert warned(FUNCTIONS["v[0]"], mixed) is warned(FUNCTIONS["v"], mixed) is True
    for function in (lambda v: v + 1.5, lambda v: v, lambda v: v ** 2, lambda v: v * 2.0, abs):
        assert warned(function, pair) is False


@pytest.mark.parametrize("record", [None, "a", b"a", [1, 2], {1}, range(3), {"x": (1, 2, 3)}, ((1, 2), (3, 4)),
                                    ((1, 2), (3, 4), (5, 6)), (1, "a"), (1, None), (1, np.ones((2, 2)), 3)])
def test_what_cannot_be_held_is_refused(record: object):
    with pytest.raises(RecordError):
        pack(iter([record]), seal=lambda keys: keys)
