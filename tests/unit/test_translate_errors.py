"""Errors where ``trace`` is called, at the user's line, of what the language lacks; of ``specialise``, of what types
forbid.
"""

# What a linter would change is what is tried here.
# ruff: noqa: C416, F841, RUF015, SIM108
from __future__ import annotations

import functools
import itertools
import math
import pickle
import re
from collections import namedtuple
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import special

from gpu_worker.protocol.errors import PlanError
from tests.golden.case import rows
from tests.golden.harness import record_of
from vispark.api.rdds.explain import translate
from vispark.translate import ElementField, ElementSpec, TranslationError, specialise, stencil, trace

NUMBERS = np.float32([1, 2])
HALF = np.int64(1)
ROWS = rows(2, 4)
INTS = np.int32([1, 2])
state: list[float] = []
table = {"a": 1}


class Model:
    """Something a user may have."""

    rate = 0.5

    def apply(self, x):
        return x * self.rate

    def change(self, x):
        self.rate = x
        return x


model = Model()
NamedPlace = namedtuple("NamedPlace", "x y")
LONG_LIST = [(1, 2.5)] * 200


def _listed(p):
    return [p[0], 1]


def _lengthened(p):
    other = items = [p[0]]
    items += [p[1]]
    return len(other)


def _print(x):
    print(x)
    return x


def _mapped(p):
    return sum(map(abs, p))


def _print_value(x):
    return print(x)


def _recursion(x):
    return 1 if x < 1 else x * _recursion(x - 1)


def _even(x):
    return x < 1 or _odd(x - 1)


def _odd(x):
    return _even(x - 1)


def _inner_recursion(x):
    def f(y):
        return y if y < 1 else f(y - 1)
    return f(x)


def _attribute(x):
    model.rate = x
    return x


def _field(r):
    return r.mass + 1


def _get(r):
    return r.get("x")


def _sets_a_field(r):
    r["a"] = 1
    return r


def _global(x):
    global state
    state = x
    return x


def _append(x):
    state.append(x)
    return x


def _try(x):
    try:
        return 1 / x
    except ZeroDivisionError:
        return 0


def _with(x):
    with open("f") as f:
        return x + len(f.read())


def _raise(x):
    if x < 0:
        raise ValueError("negative")
    return x


def _assert(x):
    assert x > 0
    return x


def _yield(x):
    yield x


async def _async(x):
    return x


def _string(x):
    return "a" if x > 0 else "b"


def _fstring(x):
    return f"{x}"


def _keywords(x, **kw):
    return kw


def _call_star(x):
    return max(**x)


def _writes_input(p):
    p[0] = 1
    return p


def _unused(x):
    x + 1
    return x


def _undefined(x):
    return x + undefined_name  # noqa: F821


def _class(x):
    class A:
        pass
    return x


def _delete(x):
    y = x
    del y
    return x


def _match(x):
    match x:
        case 1:
            return x
    return x


def _walrus_sometimes(x):
    return x > 0 and (y := x) > 1


def _walrus_late(x):
    y = 1
    return y + (y := x)


def _walrus_in_generator(p):
    return sum((y := x) for x in p)


def _captured_list(x):
    return x + state[0]


def _captured_dict(x):
    return x + table[x]


def _lacking_key(x):
    return x + table["b"]


def _nested_iterators(x):
    return sum(itertools.accumulate((x, 1)))


def _code_of(x):
    return ord(x)


def _first_of(x):
    return next(i for i in range(3) if i > x)


def _changes_object(x):
    return model.change(x)


def _guarded(f):
    @functools.wraps(f)
    def wrapper(*args, **kw):
        try:
            return f(*args, **kw)
        except ValueError:
            return 0
    return wrapper


@_guarded
def plain(x):
    return x


def _wrapped(x):
    return plain(x)


def _set(x):
    return len({x, 1})


def _open(x):
    return open(x)


def _unsupported_numpy(x):
    return np.fft.fft(x)


def _unsupported_numpy_function(x):
    return np.unique(x)


def _module(x):
    return np


def _broadened(p):
    o = np.zeros(4)
    o[:] += p[None]
    return o


def _huge(x):
    return x + 100000000000000000000000


def _nonlocal(x):
    y = x

    def f():
        nonlocal y
        y = 2
        return y
    return f()


def _decorated(x):
    @functools.cache
    def f(y):
        return y
    return f(x)


def _dict_keys(x):
    return {x: 1}


#: The function, the column where it is wrong (0: any), and words of the message.
LACKING = [
    (_print, 5, "print is not supported.*collect"),
    (_print_value, 12, "print is not supported"),
    (_recursion, 32, "_recursion calls itself: recursion is not supported; write a loop"),
    (_even, 0, "recursion is not supported"),
    (_inner_recursion, 0, "recursion is not supported"),
    (_attribute, 5, r"assigning to \.rate is not supported"),
    (_field, 12, r'where r is a record with a field mass, write r\["mass"\]'),
    (_get, 12, r'where r is a record with a field x, write r\["x"\]'),
    (_sets_a_field, 5, "assigning to a field is not supported.*return a dict with it"),
    (_global, 5, "global is not supported"),
    (_append, 5, r"\.append\(\) is not supported: .*no side effects"),
    (_try, 5, "try is not supported"),
    (_with, 5, "with is not supported"),
    (_raise, 9, "raise is not supported"),
    (_assert, 5, "assert is not supported"),
    (_yield, 5, "yield is not supported"),
    (_async, 1, "async is not supported"),
    (_string, 0, "string is not supported"),
    (_fstring, 12, "string is not supported"),
    (_keywords, 12, r"\*\*kw can only be handed on"),
    (_call_star, 12, r"\*\* in a call is not supported"),
    (_writes_input, 5, r"a function does not change what it is given; .*\.copy\(\)"),
    (_unused, 5, "goes nowhere"),
    (_undefined, 16, "the name undefined_name has no value"),
    (_class, 5, "class is not supported"),
    (_delete, 5, "del is not supported"),
    (_match, 5, "match is not supported"),
    (_walrus_sometimes, 23, ":= in what is evaluated only sometimes"),
    (_walrus_late, 17, "y is read before := gives it a value"),
    (_walrus_in_generator, 17, ":= in what is evaluated only sometimes"),
    (_captured_dict, 16, r"table is a dict.*table\["),
    (_lacking_key, 16, "table has no item 'b'; it has 'a'"),
    (_nested_iterators, 16, r"itertools.accumulate is not supported; write loops"),
    (_code_of, 12, "ord.. is of a character that is written out"),
    (_first_of, 12, "next is not supported; write a loop with break"),
    (_changes_object, 0, r"assigning to \.rate is not supported"),
    (_wrapped, 0, "(?s)try is not supported.*plain is decorated.*plain.__wrapped__"),
    (_set, 16, "set is not supported"),
    (_open, 12, "open is "),
    (_unsupported_numpy, 12, "np.fft.fft is not among"),
    (_mapped, 16, "map is not supported; write a generator"),
    (_unsupported_numpy_function, 12, "np.unique has as many items as there are distinct"),
    (_module, 12, "the module np is no value"),
    (_huge, 16, "does not fit 64 bits"),
    (_nonlocal, 9, "nonlocal is not supported"),
    (_decorated, 6, "decorator is not supported"),
    (_dict_keys, 13, "names written out"),
]


@pytest.mark.parametrize(("fn", "column", "message"), [pytest.param(*one, id=one[0].__name__)
                                                               for one in LACKING])
def test_what_the_language_lacks(fn: Callable[..., Any], column: int, message: str):
    with pytest.raises(TranslationError, match=message) as caught:
        trace(fn)
    error = caught.value
    assert error.file == __file__
    assert fn.__code__.co_firstlineno <= error.line or not column
    assert not column or error.column == column
    assert "^" in str(error)


def test_the_users_line_is_reprinted_and_marked():
    with pytest.raises(TranslationError) as caught:
        trace(_unsupported_numpy_function)
    line = _unsupported_numpy_function.__code__.co_firstlineno + 1
    assert str(caught.value).splitlines()[1:] == [
        f'  File "{__file__}", line {line}, column 12, in _unsupported_numpy_function',
        "    return np.unique(x)",
        "           ^^^^^^^^^"]


def test_errors_are_plan_errors_and_pickle():
    with pytest.raises(PlanError) as caught:
        trace(_try)
    again = pickle.loads(pickle.dumps(caught.value))
    assert (again.file, again.line, again.column) == (caught.value.file, caught.value.line, caught.value.column)
    assert str(again) == str(caught.value)
    placed = caught.value.at(operation="vmap")
    assert placed.place.operation == "vmap" and placed.line == caught.value.line


@pytest.mark.parametrize("fn", [Model(), 3, functools.partial(math.pow, 2), Model, np.vectorize(abs)])
def test_what_is_no_function_of_the_users(fn: object):
    with pytest.raises(TranslationError, match="not a function written in Python"):
        trace(fn)


def test_an_argument_that_no_kernel_takes():
    with pytest.raises(TranslationError, match=r"argument 1 is None, .*leave it out where None"):
        trace(lambda x, k: x, (None,))
    with pytest.raises(TranslationError, match="argument 1 is a str, which a kernel cannot take"):
        trace(lambda x, k: x, ("a",))
    with pytest.raises(TranslationError, match="argument 1 has dtype object"):
        trace(lambda x, k: x, (np.array([None]),))
    with pytest.raises(TranslationError, match="takes 1 parameters, the element and 0 arguments; 1 arg"):
        trace(lambda x: x, (1,))
    with pytest.raises(TranslationError, match="does not fit 64 bits"):
        trace(lambda x, k: x, (2**70,))


def _augmented_view(p):
    q = p[1:]
    q += 1
    return q


def _augmented_cast(p):
    q = np.zeros(3, int)
    q += 0.5
    return q


def _bool_or_number(x):
    if x > 0:
        y = True
    else:
        y = x
    return y


def _shapes(p):
    if p[0] > 0:
        y = p
    else:
        y = p[1:]
    return y


def _big(p):
    a = np.zeros((400, 400))
    a[0, 0] = p[0]
    return a[0, 0]


def _loop_type(x):
    y = x
    for _ in range(3):
        y = y > 0
    return y


def _growing_list(p):
    items = []
    for i in range(3):
        items = items + [p[i]]      # noqa: RUF005 - as users write it
    return np.array(items)


def _jump_over_rows(p):
    s = p[0]
    for q in (p, p * 2):
        if q[0] > 0:
            break
        s = q[1]
    return s


def _calls_itself_through(x):
    def apply(f, n):
        return f(f, n)
    return apply(apply, x)


FORBIDDEN = [
    (_augmented_view, ROWS, (), r"q is written to and would be a view|write q = q \+"),
    (_augmented_cast, ROWS, (), "would put float64 into int64"),
    (_bool_or_number, NUMBERS, (), "y: a value is Python bool on one way and float32 on another"),
    (_shapes, ROWS, (), r"y: a value is float32 array \(4,\) on one way and float32 array \(3,\) on another"),
    (_big, ROWS, (), "1,280,000 bytes; at most"),
    (_loop_type, NUMBERS, (), "y is float32 in one turn of the loop and bool in another"),
    (_growing_list, ROWS, (), r"items is a list of 0 in one turn .* make it at once, items = \[\.\.\. for"),
    (_calls_itself_through, NUMBERS, (), "recursion is not supported"),
    (lambda p: p + np.zeros(3), ROWS, (), r"shapes \(4,\) and \(3,\) do not fit"),
    (lambda p: p[4], ROWS, (), "index 4 is outside an axis of length 4"),
    (lambda p: p[-5], ROWS, (), "index -5 is outside an axis of length 4"),
    (lambda p: sum(p[i + 4] for i in range(2)), ROWS, (), "at least 4 here, outside"),
    (lambda p: p[0.5], ROWS, (), "an index is Python float"),
    (lambda p: p[p > 0], ROWS, (), r"how many items a mask selects .* p\[mask\]\.mean\(\), .* np\.where\(mask, p, 0\)"),
    (lambda p: p[0, 0], ROWS, (), "has 1 axes, and 2 indices"),
    (lambda p: np.outer(p, p).sum(axis=(0, 1)), ROWS, (), r"axis of np\.sum is one whole number; leave it out"),
    (lambda x: x[0], NUMBERS, (), "float32 has no items"),
    (lambda x: x % 2 & 1, NUMBERS, (), "NumPy has no bitwise_and of float32"),
    (lambda x: ~x, NUMBERS, (), "NumPy has no invert of float32"),
    (lambda x: x << 1, NUMBERS, (), "NumPy has no left_shift"),
    (lambda x: (x > 0) - (x < 0), NUMBERS, (), "NumPy has no subtract of bool and bool .*boolean subtract"),
    (lambda p: special.log_softmax(p > 0), ROWS, (), "NumPy has no subtract of bool and bool .*boolean subtract"),
    (lambda x: -(x > 0), NUMBERS, (), "NumPy has no negative of bool"),
    (lambda x: x + 300, np.int8([1]), (), "300 does not fit int8"),
    (lambda x: x ** -1, INTS, (), "an integer to the power -1 is an error in NumPy"),
    (lambda x: x + 1 // 0, INTS, (), "1 // 0"),
    (lambda x: x(1), NUMBERS, (), "float32 cannot be called"),
    (lambda p: len(p[0]), ROWS, (), "has no length"),
    (lambda p: p and 1, ROWS, (), r"neither true nor false; use np\.any\(\)"),
    (lambda p: [p[0], p[1]] - 2, ROWS, (), r"a list is no array; make one: np\.array"),
    (_captured_list, NUMBERS, (), "a tuple of 0 has no item 0"),
    (lambda p: len([p[0]] + (p[1],)), ROWS, (), r"Python has no \+ of a list and a tuple"),
    (lambda p: _listed(p), ROWS, (), r"a list cannot be a record or a part of one; .* np\.array"),
    (lambda p: (p[0], _listed(p)), ROWS, (), "a list cannot be a record or a part of one"),
    (_lengthened, ROWS, (), r"items \+= changes the list under all of its names; write items = items \+"),
    (lambda p: NamedPlace(p[0], p[1]), ROWS, (), "a named tuple of x, y would come back as a plain tuple"),
    (lambda p: (1, NamedPlace(p[0], p[1])), ROWS, (), "a named tuple of x, y would come back"),
    (lambda p: NamedPlace(p[0]), ROWS, (), "NamedPlace needs its argument y"),
    (lambda p: p[0].x, ROWS, (), r"float32 has no \.x here"),
    (lambda p: np.dot(p, np.zeros(3)), ROWS, (), "do not fit in a product: 4 is not 3"),
    (lambda x: np.zeros(int(x)), NUMBERS, (), "shape of an array must be known"),
    (lambda p: p[:int(p[0])], ROWS, (), "a slice's ends must be known"),
    (lambda x: range(3), NUMBERS, (), "an iterable cannot be"),
    (lambda x: {"a": (x, x)}, NUMBERS, (), "the field a is a tuple of 2"),
    (lambda x: ({"a": x}, 1), NUMBERS, (), "a dict inside a result"),
    (lambda x: complex(x) < 1j, NUMBERS, (), "Python has no < of complex numbers; compare abs"),
    (lambda p: np.sum(p, axis=1), ROWS, (), "has no axis 1"),
    (lambda x: round(x * math.pi * math.exp(x), int(x)), NUMBERS, (), "to how many digits"),
    (lambda x: round(math.exp(x), -2), NUMBERS, (), r"to 0 to 22 digits here; write np\.round"),
    (lambda x: math.trunc(x), NUMBERS, (), r"Python has no math\.trunc of float32; write int"),
    (lambda x: round(x > 0), NUMBERS, (), r"Python has no round\(\) of bool"),
    (lambda z: max(complex(z), 1j), np.complex64([1]), (), r"Python has no max\(\) of complex numbers; compare"),
    (lambda z: round(z, 1), np.complex64([1]), (), r"Python has no round\(\) of complex64; write np.round"),
    (lambda z: np.floor(z), np.complex64([1]), (), "NumPy has no floor of complex64|floor of complex"),
    (lambda p: (p > 0) ** 2, ROWS, (), r"several types in NumPy.*astype\(int\)"),
    (lambda p: p[0] in 3, ROWS, (), "in is of a tuple, a row or range"),
    (lambda x: x in range(3), NUMBERS, (), "in range.. is of whole numbers"),
    (lambda x: max(*x), NUMBERS, (), r"\* is before a tuple or a short row"),
    (lambda p: [v for v in p if v > 0][0], ROWS, (), "a list has a length that is known"),
    (lambda p: [i for i in range(100)][3] * p, ROWS, (), "too long to be written out"),
    (lambda p: max(v for v in p if v > 0), ROWS, (), "needs at least one value"),
    (lambda p: np.reshape(p, (3, 2)), ROWS, (), r"does not have the shape \(3, 2\)"),
    (lambda p: np.concatenate((p, np.outer(p, p))), ROWS, (), "one shape behind the first axis"),
    (lambda p: np.cumsum(np.outer(p, p)), ROWS, (), "is of a row here"),
    (lambda p: np.linspace(0, 1, int(p[0])), ROWS, (), "must be known"),
    (lambda p: np.cross(p, p), ROWS, (), "two rows of three"),
    (lambda p: np.sort(p + 1j), ROWS, (), "sorting complex numbers is not supported; sort .real"),
    (lambda p: np.flip(p, 1), ROWS, (), "has no axis 1"),
    (lambda p: np.expand_dims(p, 3), ROWS, (), "has no axis 3"),
    (lambda p: np.diag(np.outer(p, p)[None]), ROWS, (), "axes"),
    (_broadened, ROWS, (), r"\+= of an array of shape \(1, 4\) does not fit the shape \(4,\)"),
    (lambda p: np.sort(p, 1), ROWS, (), "has no axis 1"),
    (lambda p: sorted((p[0], 1)), ROWS, (), r"sorted\(\) is of numbers of one type here"),
    (lambda p: sorted((p[0], 1), key=abs)[0], ROWS, (), r"the key of sorted\(\) gives numbers of one type here"),
    (lambda p: sorted((p[0], 1), key=lambda v: v > 0)[0], ROWS, (), r"sorted\(\) is of items of one type here"),
    (lambda p: sorted(p, key=lambda v: p)[0], ROWS, (), r"the key of sorted\(\) gives a number, or a tuple of numbers"),
    (lambda p: sorted(p, key=lambda v: v * 1j)[0], ROWS, (), r"complex numbers, which have no order; give abs\(\)"),
    (lambda p: np.interp(p, p, p[1:]), ROWS, (), "as many values as places"),
    (lambda p: np.einsum("i...,i", p, p), ROWS, (), r"is not supported; np\.einsum takes letters"),
    (lambda p: np.einsum("ij,i", p, p), ROWS, (), "'ij' does not name the axes of"),
    (lambda p: np.einsum("i,i->k", p, p), ROWS, (), "k is in no operand"),
    (_jump_over_rows, ROWS, (), "no break or continue here"),
    (lambda p: (1, 2) * int(p[0]), ROWS, (), "how often a tuple is repeated"),
    (lambda p: min(p, key=lambda v: (v, v)), ROWS, (), r"the key of min\(\) gives numbers here"),
    (lambda p: np.linalg.norm(p, "nuc"), ROWS, (), "order 'nuc' is not supported here"),
    (lambda p: np.linalg.norm(p, "fro"), ROWS, (), "'fro' is of a matrix"),
    (lambda p: np.linalg.inv(np.outer(p, p)), ROWS.astype("f2"), (), "np.linalg takes no float16, in NumPy neither"),
    (lambda p: np.linalg.solve(np.eye(4), p), ROWS.astype("f2"), (), "np.linalg takes no float16, in NumPy neither"),
    (lambda p: np.linalg.eigvalsh(p), ROWS, (), r"np\.linalg is of square matrices here, and this is .*\(4,\)"),
    (lambda p: np.linalg.eigh(np.outer(p, p)[:3])[0], ROWS, (), r"of square matrices here, and this is .*\(3, 4\)"),
    (lambda p: np.linalg.det(p[0]), ROWS, (), "of square matrices here, and this is"),
    (lambda p: special.logsumexp(p * 1j), ROWS, (), "scipy.special.logsumexp of complex"),
    (lambda p: np.linalg.norm(np.outer(p, p), 2), ROWS, (), "order 2 of a matrix is not supported"),
    (lambda p: sum(p, start=p), ROWS, (), r"begins with a number here.*write start \+ sum\(p\)"),
    (lambda p: np.cumsum(p, 1), ROWS, (), "no such axis; a running sum"),
    (lambda p, n: p[:n], ROWS, (np.int64(2),), r"; n is a NumPy integer, .* only Python's .* int\(n\) in its place"),
    (lambda p, n: np.zeros(len(p) - n), ROWS, (np.uint8(2),), r"must be known.* give the function int\(n\)"),
    (lambda p, n: p[:len(p) - HALF * n], ROWS, (2,), r"a slice's ends.* give the function int\(HALF\)"),
    (lambda p, n: np.array([p[i:i + n] for i in range(2)]), ROWS, (np.int32(2),), r"give the function int\(n\)"),
    (lambda p, n: p[n:n + 2], ROWS, (np.int64(2),), r"may lie anywhere.* give the function int\(n\)"),
    (lambda p, n: p[:3] if n > 2 else p[:2], ROWS, (np.int64(2),), r"one shape on all; n is a NumPy integer"),
    (lambda p, n: [p[i] for i in range(n)][0], ROWS, (np.int64(2),), r"has a length .* give the function int\(n\)"),
    (lambda p, n: sum(p[i] for i in range(0, len(p), n)), ROWS, (0,), "range's step is 0"),
    (lambda p, n: np.arange(0, len(p), n), ROWS, (0,), r"np\.arange's step is 0"),
    (lambda p, n: np.zeros(len(p) - n), ROWS, (9,), r"cannot have the shape"),
    (lambda x, y: x + y, NUMBERS, (), "no value is given for the parameter y"),
    (lambda a, y: a, {"a": NUMBERS, "b": NUMBERS}, (), "no value is given for the parameter y.*fields are a, b"),
    (lambda q: q, {"a": NUMBERS, "b": NUMBERS}, (), "no parameter of lambda is named after a field.*a, b.*q..a.."),
    (lambda q: q["c"], {"a": NUMBERS, "b": NUMBERS}, (), "there is no field 'c'; the fields are a, b"),
    (lambda q: q["a"], NUMBERS, (), r"float32 has no fields: \['a'\] is of records that are dicts"),
    (lambda p: min((v, i) for i, v in enumerate(p))[1], ROWS, (), r"write min\(range\(n\), key=lambda i: "),
    (lambda p: functools.reduce(lambda a, i: a + p[i], range(4), 0.5), ROWS, (), "reduce goes over a row or a tuple"),
    (lambda p: math.dist(p, p + 1), rows(2, 80), (), r"of longer rows write np\.linalg\.norm"),
    (lambda p: math.dist((p[0], p[1]), (0, 0, 0)), ROWS, (), "as many numbers, and these have 2 and 3"),
    (lambda p: np.mean(p, dtype=np.int32), ROWS, (), r"np\.mean in int32 is not supported"),
]


@pytest.mark.parametrize(("fn", "data", "args", "message"), [
    pytest.param(*one, id=f"{number}{one[0].__name__}") for number, one in enumerate(FORBIDDEN)])
def test_what_the_types_forbid(fn: Callable[..., Any], data: Any, args: tuple[Any, ...], message: str):
    function = trace(fn, args)
    with pytest.raises(TranslationError, match=re.compile(message, re.S)) as caught:
        specialise(function, record_of(data), args)
    assert caught.value.file == __file__ and caught.value.line >= fn.__code__.co_firstlineno


def test_an_unknown_dtype():
    with pytest.raises(TranslationError, match="the element has dtype datetime64"):
        specialise(trace(lambda x: x), ElementSpec((ElementField("", "M8[s]"),)))


def test_what_stands_for_a_function_of_numpys_is_told_of_at_the_users_line():
    with pytest.raises(TranslationError, match="float32 has no items") as caught:
        specialise(trace(lambda x: np.trapezoid(x)), ElementSpec((ElementField("", "f4"),)))
    assert caught.value.file == __file__ and "np.trapezoid(x)" in str(caught.value)


def test_a_function_without_an_element_and_a_place_where_there_is_no_data():
    with pytest.raises(TranslationError, match="lambda has no parameter for the element"):
        trace(lambda: 1)
    with pytest.raises(TranslationError, match="no value is given for the parameter k") as caught:
        translate(lambda x, k: x * k, schema=((), "f4"))
    assert "partition" not in str(caught.value)


def test_too_many_arguments():
    with pytest.raises(TranslationError, match="takes 1 arguments beside the element, and 2 are given"):
        specialise(trace(lambda x, k: x, (1,)), ElementSpec((ElementField("", "f4"),)), (1, 2))


def test_stencils():
    @stencil
    def heat(u, k):
        return u[0, 0] + k * (u[1, 0] + u[-2, 0] + u[0, 1])

    function = trace(heat, (0.1,))
    assert function.definition.halo == ((2, 1), (0, 1))
    with pytest.raises(TranslationError, match="needs a Grid"):
        specialise(function, ElementSpec((ElementField("", "f4"),)), (0.1,))

    @stencil
    def uneven(u):
        return u[0] + u[0, 1]

    with pytest.raises(TranslationError, match="differ in number"):
        trace(uneven)

    @stencil
    def computed(u, i):
        return u[i]

    with pytest.raises(TranslationError, match="whole numbers written out"):
        trace(computed, (1,))

    @stencil
    def none(u):
        return u

    with pytest.raises(TranslationError, match="reads its cell by offsets"):
        trace(none)


def test_what_is_typed_at_a_prompt_without_a_source():
    names: dict[str, Any] = {}
    exec(compile("f = lambda x: x + 1", "<stdin>", "single"), names)
    with pytest.raises(TranslationError, match=r"Python's own prompt keeps what is typed from version 3\.13 on"):
        trace(names["f"])


def test_a_product_of_numbers_says_what_a_record_is():
    with pytest.raises(TranslationError, match=r"float32 array \(4,\) @ float32; .* of=\"record\""):
        translate(lambda p: p @ p[0], schema=((4,), "float32"))


def test_a_record_with_names_has_no_items_by_number():
    with pytest.raises(TranslationError, match=r'no items by number; write the name of a field, as r\["x"\]'):
        translate(lambda r: r["x"] + r[0], schema={"x": ((), "f4"), "y": ((), "f4")})


def test_lists_that_are_too_long_and_named_tuples_as_arguments_are_refused():
    with pytest.raises(TranslationError, match=r"LONG_LIST\[0\] is a tuple whose items differ"):
        trace(lambda p: p[0] + len(LONG_LIST))
    with pytest.raises(TranslationError, match="is a named tuple, whose fields an array has not"):
        trace(lambda p, place: place[0], (NamedPlace(1.0, 2.0),))
