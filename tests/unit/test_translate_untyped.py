"""Errors where ``trace`` is called, at the user's line, of functions that no data could make right."""

# What a linter would change is what is tried here.
# ruff: noqa: SIM108
from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import pytest

from gpu_worker.system.fault_report import REPORT, reported
from vispark.errors import KernelFault, Place
from vispark.translate import ElementField, ElementSpec, TranslationError, trace, translate
from vispark.translate.frontend import index_faults


def _unbound(x):
    if x > 0:
        y = x
    return y


def _unbound_loop(x):
    n = int(x)
    for i in range(n):
        y = i
    return y


def _no_return(x):
    if x > 0:
        return x


def _nothing_returned(x):
    return


def _view(p):
    q = p
    q[0] = 1
    return q


def _alias(p):
    a = p.copy()
    b = a
    b[0] = 1
    return a


def _found_by_a_loop(p):
    for i in range(len(p)):
        if p[i] > 0:
            return i


def _item_of_a_list(p):
    items = [0.0] * 2
    items[0] = p[0]
    return items[0]


def _list_returned(p):
    items = [p[0], p[1]]
    return items


def _function_on_two_ways(x):
    if x > 0:
        f = math.sin
    else:
        f = math.cos
    return f(x)


#: What no data could make right, and the line of it, from the function's first on.
AT_THE_CALL = [
    (_unbound, 3, "y may have no value here"),
    (_unbound_loop, 4, "y may have no value here"),
    (_no_return, 0, "returns a value on some ways and none on others"),
    (_found_by_a_loop, 0, "returns a value on some ways and none on others"),
    (_nothing_returned, 0, "returns nothing"),
    (_view, 1, r"q is written to and would be a view .*\.copy\(\)"),
    (_alias, 2, r"would be a view .*\.copy\(\)"),
    (_item_of_a_list, 2, r"only the items of an array .* items is a list"),
    (_list_returned, 2, r"items is a list, which cannot be returned; .* np\.array\(items\)"),
    (_function_on_two_ways, 4, "a function cannot be chosen while the kernel runs; call both"),
    (lambda x: (math.sin if x else math.cos)(x), 0, "a function cannot be chosen while the kernel runs"),
    (lambda p: p[0] is p[1], 0, "is compares with None only; write == for numbers"),
    (lambda p: [p[0], p[1]], 0, "a list cannot be"),
    (lambda p: None, 0, "returns nothing"),
    (lambda x: x if x > 0 else None, 0, "returns a value on some ways and none on others"),
    (lambda x: (x, None), 0, "None cannot be part of a result"),
    (lambda x: (), 0, "an empty tuple"),
]


@pytest.mark.parametrize(("fn", "line", "message"), [
    pytest.param(*one, id=f"{number}{one[0].__name__}") for number, one in enumerate(AT_THE_CALL)])
def test_what_no_types_could_make_right(fn: Callable[..., Any], line: int, message: str):
    with pytest.raises(TranslationError, match=message) as caught:
        trace(fn)
    assert caught.value.line == fn.__code__.co_firstlineno + line


def _found_or_else(p):
    for i in range(len(p)):
        if p[i] > 0:
            return i
    else:
        return -1


def _by_an_argument(x, scaled, factor=None):
    if scaled:
        y = 2 * x
    if factor is None:
        factor = 1
    return factor * (y if scaled else x)


def _of_the_turn_before(p):
    first = True
    for v in p:
        if first:
            last, first = v, False
        else:
            last = last + v
    return last


def _forever(x):
    while True:
        y = x * 2
        if y > 3:
            break
        x = y
    return y


@pytest.mark.parametrize("fn", [_found_or_else, _by_an_argument, _of_the_turn_before, _forever])
def test_what_may_be_right_is_left_to_the_types(fn: Callable[..., Any]):
    assert trace(fn).name == fn.__name__


def _picked(p, k):
    rest = p[1:]
    total = sum(rest[i] for i in range(len(rest)))
    return total + p[-1] + rest[int(p[0]) + k]


def test_a_kernels_fault_tells_where_its_function_indexes_by_computed_numbers():
    index_faults.remember("vmap _picked", trace(_picked, (1,)).definition)
    faults = [KernelFault("a kernel ended its process", Place(operation=f"vmap {name} in one of the partitions 0, 1"))
              for name in ("_picked", "_picked_other")]
    for fault in faults:
        index_faults.add_user_lines(fault)
    line = _picked.__code__.co_firstlineno + 3
    assert faults[0].detail.splitlines()[1:-1] == \
        [f'  File "{__file__}", line {line}, in _picked: rest[int(p[0]) + k]']
    assert "out of range" in str(faults[0]) and not faults[1].detail


def test_two_functions_of_one_name_do_not_get_each_others_lines():
    def named(function: Callable[..., Any]) -> Callable[..., Any]:
        function.__name__ = function.__qualname__ = "_same"
        return function

    first, second = [trace(named(function)).definition
                     for function in (lambda p: p[int(p[0])], lambda p: p[int(p[1])])]
    assert first.name == second.name
    label = f"vmap {first.name}"
    for definition in (first, second):
        index_faults.remember(label, definition)
    fault = KernelFault("a kernel ended its process", Place(operation=f"{label} in partition 0"))
    index_faults.add_user_lines(fault)
    assert not fault.detail, "it is not known which"
    index_faults.add_user_lines(fault, [("vmap other", first), (label, second)])
    assert "p[int(p[1])]" in fault.detail and "p[int(p[0])]" not in fault.detail


def _doubly_indexed(p):
    return p[int(p[0])] + (lambda q: q[int(q[1])] * q[int(q[1])])(p)


def test_a_kernels_fault_tells_the_subscript_that_the_kernel_reported():
    definition = trace(_doubly_indexed).definition
    index_faults.remember("vmap _doubly_indexed", definition)
    numbers = [int(text, 16) for text in re.findall(r"checked_index<\d+>\(.*?, (0x[0-9a-f]+)\)", translate(
        _doubly_indexed, record=ElementSpec((ElementField("", "f8", (4,)),))))]
    assert len(set(numbers)) == 3
    columns = []
    for number in numbers:
        message = "a kernel ended" + reported(REPORT.pack(1, -9, 4, number))
        fault = KernelFault(message, Place(operation="vmap _doubly_indexed in one of the partitions 0, 1"))
        index_faults.add_user_lines(fault)
        assert fault.message == "a kernel ended; index -9 is out of range for an axis of length 4"
        line = f'File "{__file__}", line {_doubly_indexed.__code__.co_firstlineno + 1}, column '
        columns.append(int(fault.detail.partition(line)[2].partition(",")[0]))
    assert columns == [12, 38, 53]


def test_a_kernels_fault_tells_rows_whose_lengths_do_not_go_together():
    definition = trace(_doubly_indexed).definition
    index_faults.remember("vmap _doubly_indexed", definition)
    for lengths, words in (((1, 3, 9, 0), "rows of 9 and of 3 items"), ((1, 0, 0, 0), "a row without items")):
        fault = KernelFault("a kernel ended" + reported(REPORT.pack(*lengths)), Place(operation="vmap _doubly_indexed"))
        index_faults.add_user_lines(fault)
        assert words in fault.message and "out of range" not in str(fault)
        assert f"line {definition.text.first}, in _doubly_indexed" in fault.detail
