"""Cases: control. Branches, loops, locals, calls, closures, results of several values."""

# The forms that a linter would change are what is tried here.
# ruff: noqa: E731, SIM108
from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np

from tests.golden import case as given
from tests.golden.case import F32, F64, I32, I64, U32, case, pairs, rows

SMALL = np.arange(-3, 12, dtype="int32")
LIMIT = 5
RATE = 0.25
WEIGHTS = np.float32([0.5, -1.0, 2.0])
BOUNDS = (1.5, 3)

# -- branches ---------------------------------------------------------------------------------------------------------


@case("if, elif, else", F32, golden="if_elif_else")
def _sections(x):
    if x > 3:
        y = x * 2
    elif x > 0:
        y = x + 10
    else:
        y = -x
    return y + 1


@case("if without else", F32)
def _floor(x):
    y = x
    if y < 0:
        y = y * 0.5
    return y


@case("early return", F32, golden="early_return")
def _early(x):
    if x < 0:
        return x * 0.5
    if x > 10:
        return x - 10
    y = x * x
    return y


@case("early return out of a loop whose sums wrap", pairs(U32))
def _wraps(a, b):
    z = a
    for _ in range(3):
        z = z + 1
        if z < a:
            return z
    for _ in range(3):
        z = z + 1
        if z < b:
            return z
    return b


@case("early return of mixed types", F32, promoted=True)
def _clamp(x):
    if x < 0:
        return 0
    if x > 1:
        return 1.0
    return x


@case("branches of an int and a float", I32, promoted=True)
def _mixed(x):
    if x > 0:
        y = x
    else:
        y = 0.5
    return y


@case("branches that widen float32 to float64", pairs(F32[:8], F64[:8]), promoted=True)
def _widened(a, b):
    y = a
    if b > 0:
        y = b
    return y


@case("nested branches", pairs(F32[:12]))
def _quadrant(a, b):
    if a > 0:
        if b > 0:
            q = np.float32(1)
        else:
            q = np.float32(4)
    else:
        if b > 0:
            q = np.float32(2)
        else:
            q = np.float32(3)
    return q * a


@case("a branch that is known", F32)
def _known(x):
    if LIMIT > 3 and x is not None:
        return x + LIMIT
    return x


@case("swap in a branch", pairs(F32[:8]))
def _sorted(a, b):
    if a > b:
        a, b = b, a
    return a, b


@case("pass", F32)
def _nothing(x):
    if x > 0:
        pass
    else:
        x = x + 1
    return x


@case("and guards an index", SMALL)
def _guarded(x):
    if x >= 0 and x < 3 and WEIGHTS[x] > 0:
        return WEIGHTS[x]
    return np.float32(0)


# -- loops ------------------------------------------------------------------------------------------------------------


@case("for over range", F32, golden="for_range")
def _horner(x):
    s = 0.0
    for i in range(5):
        s = s * x + i
    return s


@case("for over range(start, stop, step)", F64[:10])
def _stepped(x):
    s = 0.0
    for i in range(10, 0, -3):
        s += x * i
    for i in range(1, 8, 2):
        s -= i
    return s


@case("for over a range that the element decides", SMALL)
def _triangle(n):
    total = 0
    for i in range(n):
        total += i
    return total


@case("nested loops", SMALL)
def _grid(n):
    total = 0
    for i in range(4):
        for j in range(i, 4):
            total += i * j + n
    return total


@case("while", np.arange(1, 40, dtype="int64"), golden="while")
def _collatz(x):
    steps = 0
    while x > 1:
        if x % 2 == 0:
            x = x // 2
        else:
            x = 3 * x + 1
        steps += 1
    return steps


@case("break", F32, golden="break_continue")
def _escapes(x):
    count = 0
    y = x * 0
    for i in range(20):
        if y > 4:
            break
        if i % 3 == 1:
            continue
        y = y + x
        count += 1
    return count, y


@case("continue in while", SMALL)
def _odds(n):
    i = 0
    total = 0
    while i < 10:
        i += 1
        if i % 2 == 0:
            continue
        total += i * n
    return total


@case("for with else", SMALL, golden="loop_else")
def _first_divisor(n):
    for d in range(2, 6):
        if n % d == 0:
            divisor = d
            break
    else:
        divisor = -1
    return divisor


@case("while with else", SMALL)
def _while_else(n):
    i = 0
    while i < 4:
        if i == n:
            result = 100
            break
        i += 1
    else:
        result = 200
    return result + i


@case("while True", SMALL)
def _forever(n):
    i = 0
    while True:
        i += 2
        if i > n:
            return i


@case("return inside a loop", F32, golden="return_in_loop")
def _crossing(x):
    for i in range(8):
        if x * i > 10:
            return i
    return -1


@case("return inside nested loops", SMALL)
def _pythagorean(n):
    for a in range(1, 6):
        for b in range(a, 6):
            if a * a + b * b == n * n:
                return a, b
    return 0, 0


@case("break of the inner loop alone", SMALL)
def _inner_break(n):
    total = 0
    for i in range(5):
        for j in range(5):
            if j > i:
                break
            total += j * n
        total += 1
    return total


@case("the loop's variable after the loop", SMALL)
def _after(n):
    for i in range(6):
        if i * i > n:
            break
    return i


@case("the loop's variable assigned in the loop", SMALL)
def _reassigned(n):
    total = 0
    for i in range(4):
        i = i * 2
        total += i + n
    return total


@case("a variable that only the loop sets", SMALL)
def _last(n):
    for i in range(3):
        square = i * n
    return square


@case("a loop that widens an int to a float", F32)
def _sum_of(x):
    s = 0
    for i in range(3):
        s = s + x * i
    return s


@case("a loop that swaps", SMALL)
def _fibonacci(n):
    a, b = 0, 1
    for _ in range(10):
        a, b = b, a + b
    return a * n


@case("a loop that swaps rows", rows(5, 3, "int32"), 5)
def _rows_swapped(p, n):
    a, b = p, p * 2
    for _ in range(n):
        a, b = b, a
    return a, b


@case("Newton's method", np.float64([1, 2, 3, 10, 100]), tolerance=2)
def _root(x):
    y = x
    while abs(y * y - x) > 1e-9 * x:
        y = (y + x / y) / 2
    return y


@case("while with and", F64[2:8])
def _both(x):
    i = 0
    while i < 10 and x * i < 12:
        i += 1
    return i


# -- locals -----------------------------------------------------------------------------------------------------------


@case("a parameter assigned again", F32)
def _shadowed(x):
    x = x * 2
    x = x + 1
    return x


@case("a name of several types", F32, golden="shadowed_name")
def _types(x):
    y = x > 0
    y = x if y else -x
    y = int(y > 3)
    return y


@case("a name of a builtin", I32)
def _abs_named(x):
    abs = x * 2
    return abs + 1


@case("a name of C++", F32)
def _keywords(int_, float_=2.0):
    double = int_ * float_
    auto = double + 1
    return auto


@case("names that kernels use", F32)
def _kernel_names(n):
    threadIdx = n * 2
    element = threadIdx + 1
    out = element * 3
    return out


@case("names that kernels use, of arguments", rows(5, 3), 2.0, 3.0, np.float32([1, 2]))
def _argument_names(p, first, rows, p_tile):
    return p * first + rows - p_tile[1]


@case("augmented assignment", I32, golden="augmented_assignment")
def _augmented(x):
    x += 3
    x *= 2
    x -= 1
    x //= 3
    x %= 50
    x <<= 1
    x ^= 5
    x |= 8
    x &= 127
    return x


@case("several targets", F32)
def _targets(x):
    a = b = x + 1
    a += 1
    return a, b


@case("tuples and unpacking", F32, golden="tuples")
def _tuples(x):
    a, (b, c) = x, (x + 1, x * 2)
    a, b = b, a
    t = a, b, c
    return t[0] - t[-1], t[1:]


@case("tuples in a loop", F32[:12])
def _pair_loop(x):
    best = (x, 0)
    for i in range(4):
        if x * i < best[0]:
            best = (x * i, i)
    return best


@case("// and % of a loop's negative variable", SMALL)
def _negative_variable(n):
    total = n
    for i in range(-4, 5):
        total += i // 2 * 10 + i % 3
    return total


@case("continue after a tuple is kept", F32[:12])
def _tuple_continue(x):
    best = (x, 0)
    for i in range(4):
        if x * i < best[0]:
            best = (x * i, i)
            continue
        x = x - 1
    return best


@case("annotations and docstrings", F32)
def _annotated(x: np.float32, k: float = 2.0) -> np.float32:
    """Double a number."""
    y: np.float32 = x * k
    return y


@case("a tuple compared", I32)
def _tuple_compare(x):
    return (x, 1) == (3, 1), (x, x) != (x, 2)


@case("None as a default", F32)
def _optional(x, k=None):
    if k is None:
        return x
    return x * k


# -- calls and captures -----------------------------------------------------------------------------------------------


def _square(x):
    return x * x


def _scaled(x, factor=3.0, *, shift=0):
    return x * factor + shift


def _sign_of(x):
    if x > 0:
        return 1
    if x < 0:
        return -1
    return 0


def _minmax(a, b):
    return (a, b) if a < b else (b, a)


@case("calls of other functions", F32, golden="calls")
def _calls(x):
    return _square(x) + _square(x + 1)


@case("default and keyword arguments", F32)
def _keyword_calls(x):
    return _scaled(x), _scaled(x, 2), _scaled(x, shift=1), _scaled(factor=0.5, x=x)


@case("calls of functions with early returns", F32, golden="inlined_returns")
def _signs(x):
    return _sign_of(x) * 10 + _sign_of(-x)


@case("calls that give tuples", pairs(F32[:8]))
def _ordered(a, b):
    low, high = _minmax(a, b)
    return high - low


def _search(x, limit):
    for i in range(limit):
        if i * i > x:
            return i
    return limit


@case("calls of functions that return from loops", SMALL)
def _calls_search(x):
    return _search(x, 3) + _search(x, 9) * 100


@case("calls inside loops and conditions", SMALL)
def _busy(x):
    total = 0
    for i in range(3):
        if _square(i) < _square(x):
            total += _square(i)
    while _square(total) > 50:
        total -= 3
    return total


@case("functions of other modules", F32)
def _other_module(x):
    return math.fabs(x) if x > 0 else float(x)


@case("inner functions", F32, golden="inner_function")
def _inner(x):
    k = x * 2

    def add(y, scale=3):
        return y * scale + k

    return add(x) + add(1, scale=k)


@case("inner lambdas", F32)
def _inner_lambda(x):
    twice = lambda y: y * 2
    return twice(twice(x))


@case("functions as arguments", F32)
def _applied(x):
    def apply(f, value):
        return f(f(value))
    return apply(_square, x)


@case("module variables", F32, golden="captures")
def _globals(x):
    return x * RATE + LIMIT


@case("module arrays", SMALL[3:6])
def _module_array(i):
    return WEIGHTS[i - i] + WEIGHTS[2]


@case("module tuples", F32)
def _module_tuple(x):
    low, high = BOUNDS
    return x * low + high


@case("attributes of modules", F32)
def _module_attribute(x):
    return x + given.UNIT[1]


def _closure(step: float, table: np.ndarray) -> Callable:
    def shifted(x):
        return x * step + table[1]
    return shifted


case("closures over numbers and arrays", F32, golden="closure")(_closure(0.5, np.float32([1, 2, 3])))
case("a closure over an int that shapes the code", F32)((lambda n: lambda x: x * len(np.zeros(n)))(4))
case("functools.partial", F32)(functools.partial(_scaled, factor=4.0))
case("functools.cache", F32)(functools.cache(_square))
case("scalars as arguments", F32, 2.5, 3, golden="arguments")(lambda x, a, b: x * a + b)
case("NumPy scalars as arguments", F32, np.float64(2.5), np.int8(3))(lambda x, a, b: (x * a, x * b))
case("bools as arguments", F32, True)(lambda x, flag: x * 2 if flag else x)
case("complex arguments", F32[:8], 1 + 2j, tolerance=2)(lambda x, z: x * z)
case("an int argument that shapes the code", F32, 3)(lambda x, n: x * np.sum(np.ones(n, np.float32)))
case("an int argument as an exponent", I32, 3)(lambda x, n: x + 2 ** n)
case("an int argument as a range", SMALL, 4)(lambda x, n: sum(x * i for i in range(n)))

# -- results ----------------------------------------------------------------------------------------------------------

case("a tuple as a result", I32)(lambda x: (x, x > 0, 2.5, 7))
case("nested tuples as a result", rows(4, 3), golden="nested_result")(lambda p: (p[0] > 0, (p, 1)))
case("a dict as a result", {"a": F32, "b": F32}, golden="dict_result")(lambda a, b: {"b": a + b, "c": a > 0})
case("fields by name", {"x": F32[:8], "y": I64[:8], "z": rows(8, 2)}, 2.0, golden="fields")(
    lambda y, k, z: y * k + z[1])
case("a record by its fields, as by map", {"x": F32[:8], "y": I64[:8], "z": rows(8, 2)}, 2.0)(
    lambda r, k: r["y"] * k + r["z"][1])
case("a Python int as a result", F32)(lambda x: 3)


@case("a record given on to a function", {"x": F64[:8] * 2, "y": F64[:8]})
def _given_on(record):
    def total(r):
        return r["x"] + r["y"]
    both = {"total": total(record), "x": record["x"]}
    return both["total"] * 2 if both["x"] > 0 else both["x"]


