"""Ranges of Python numbers, and what operators and functions give of them.

What NumPy's numbers of 64 bits, with which workers compute, may give otherwise raises :class:`Doubtful`.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from vispark.translate.ir import nodes

INT64 = np.iinfo(np.int64)
#: The ints that float64 has, each and its neighbours.
EXACT = 1 << 53
#: What a number of Python's keeps its type beside, in NumPy and in workers.
WIDE = frozenset(["bool", "int64", "float64", "complex128"])


@dataclass(frozen=True)
class Range:
    """Python numbers from ``low`` to ``high``.

    Attributes
    ----------
    kind : str
        "bool", "int" or "float"; "mixed" for one of them or another, which depends on the data.
    low, high : int or float
        Both are among the numbers that there may be, infinities too.
    nan : bool
        Whether it may be NaN.
    nonzero : bool
        Whether it is known not to be 0.
    literal : bool
        Whether it is a number of the source, whose type gives way to NumPy's in workers too.
    """

    kind: str
    low: Any
    high: Any
    nan: bool = False
    nonzero: bool = False
    literal: bool = False

    @classmethod
    def of(cls, kind: str) -> Range:
        """Return the range of all numbers of a kind that workers hold."""
        return {"bool": TRUTH, "int": cls("int", INT64.min, INT64.max)}.get(
            kind, cls("float", -math.inf, math.inf, True))

    @property
    def may_be_zero(self) -> bool:
        """Whether 0 is among the numbers."""
        return not self.nonzero and self.low <= 0 <= self.high

    @property
    def is_finite(self) -> bool:
        """Whether no number is NaN or infinite."""
        return not self.nan and self.low > -math.inf and self.high < math.inf

    @property
    def most(self) -> Any:
        """The largest size of a number."""
        return max(abs(self.low), abs(self.high))


@dataclass(frozen=True)
class OfNumPy:
    """A number or an array of NumPy's, of a dtype where that is known."""

    dtype: str = ""


TRUTH = Range("bool", 0, 1)
NumberRange = Range | OfNumPy | nodes.Called | tuple[Any, ...] | dict[str, Any]     # of values, for a tuple or a dict


class Doubtful(Exception):
    """Reason why workers may give something else than Python; ``is_placed`` once it says where."""

    def __init__(self, why: str, *, is_placed: bool = False):
        super().__init__(why)
        self.is_placed = is_placed


def number(value: int | float) -> Range:
    """Return the range of one number."""
    if isinstance(value, float):
        range_ = Range.of("float") if value != value else Range("float", value, value)
    else:
        range_ = replace(int_of(value), kind=type(value).__name__)
    return replace(range_, literal=True)


def int_of(*ends: int) -> Range:
    """Return the range of ints, if they fit 64 bits."""
    low, high = min(ends), max(ends)
    if low < INT64.min or high > INT64.max:
        raise Doubtful("may leave 64 bits, which ints of Python do not")
    return Range("int", low, high)


def python(value: NumberRange) -> Range:
    """Return a Python number of one type."""
    if not isinstance(value, Range) or value.kind == "mixed":
        raise Doubtful("computes with what may be an int or a float" if isinstance(value, Range)
                   else "is not followed for Python numbers")
    return value


def either(one: NumberRange, other: NumberRange) -> NumberRange:
    """Return the range of both of two values."""
    if one == other:
        return one
    if isinstance(one, Range) != isinstance(other, Range):
        one, other = _as_mixed(one), _as_mixed(other)
    match one, other:
        case Range(), Range():
            kind = one.kind if one.kind == other.kind else "mixed"
            if {one.kind, other.kind} - {"bool", "int"} and kind == "mixed" \
                    and max(_int_size(one), _int_size(other)) > EXACT:
                raise Doubtful("gives an int or a float, and ints above 2 ** 53 do not fit floats")
            return Range(kind, min(one.low, other.low), max(one.high, other.high), one.nan or other.nan,
                         one.nonzero and other.nonzero)
        case OfNumPy(), OfNumPy():
            return OfNumPy()
        case tuple(), tuple() if len(one) == len(other):
            return tuple([either(a, b) for a, b in zip(one, other, strict=True)])
        case dict(), dict() if one.keys() == other.keys():
            return {name: either(value, other[name]) for name, value in one.items()}
    raise Doubtful("gives values of several types")


def unbounded(value: NumberRange) -> NumberRange:
    """Return the range of a variable that grows in a loop."""
    match value:
        case Range("float"):
            return Range.of("float")
        case Range():
            raise Doubtful("counts without bounds that are known")
        case tuple():
            return tuple([unbounded(each) for each in value])
    return value


def all_of(value: NumberRange) -> NumberRange:
    """Return the range of all numbers that are of the types of a value's."""
    match value:
        case Range(kind):
            return Range.of(kind)
        case tuple():
            return tuple([all_of(each) for each in value])
        case dict():
            return {name: all_of(each) for name, each in value.items()}
    return value


def as_pythons(value: NumberRange, of: NumberRange) -> NumberRange:
    """Return the range of a value whose numbers of NumPy's of 64 bits are Python's where another's are."""
    match value, of:
        case OfNumPy(("bool" | "int64" | "float64") as dtype), Range():
            return Range.of(dtype.removesuffix("64"))
        case tuple(), tuple() if len(value) == len(of):
            return tuple([as_pythons(*each) for each in zip(value, of, strict=True)])
    return value


def unary(symbol: str, value: NumberRange) -> NumberRange:
    if symbol == "not":
        return TRUTH
    if isinstance(value, OfNumPy):
        return value
    number = python(value)
    if number.kind == "bool":
        raise Doubtful("makes an int of a bool in Python")
    match symbol:
        case "-" if number.kind == "int":
            return replace(int_of(-number.low, -number.high), nonzero=number.nonzero,
                           literal=number.literal)
        case "-":
            return replace(number, low=-number.high, high=-number.low)
        case "~" if number.kind == "int":
            return int_of(~number.low, ~number.high)
        case "+":
            return number
    raise Doubtful("is not followed for Python numbers")


def binary(symbol: str, left: NumberRange, right: NumberRange) -> NumberRange:
    """Return the range of what an operator gives."""
    if isinstance(left, OfNumPy) or isinstance(right, OfNumPy):
        return of_numpy(symbol, left, right)
    a, b = python(left), python(right)
    if a.kind == b.kind == "bool":
        if symbol in ("&", "|", "^"):
            return TRUTH
        raise Doubtful("computes with truth values, which are ints in Python")
    if symbol in ("/", "//", "%") and b.may_be_zero:
        raise Doubtful("may divide by zero, which raises in Python")
    if "float" in (a.kind, b.kind):
        return floats(symbol, _float(a), _float(b), b)
    return ints(symbol, a, b)


def ints(symbol: str, a: Range, b: Range) -> Range:
    corners = [(x, y) for x in (a.low, a.high) for y in (b.low, b.high)]
    match symbol:
        case "+" | "-" | "*":
            by = {"+": operator.add, "-": operator.sub, "*": operator.mul}[symbol]
            return replace(int_of(*[by(x, y) for x, y in corners]),
                           nonzero=symbol == "*" and not (a.may_be_zero or b.may_be_zero))
        case "/":
            if max(a.most, b.most) > EXACT:
                raise Doubtful("divides ints above 2 ** 53, which do not fit floats")
            return _quotients(_float(a), _float(b))
        case "//":
            divisors = [y for y in (b.low, b.high, -1, 1) if b.low <= y <= b.high and y]
            return int_of(*[x // y for x in (a.low, a.high) for y in divisors])
        case "%":
            return Range("int", min(b.low + 1, 0), max(b.high - 1, 0))
        case "**":
            if b.low < 0:
                raise Doubtful("has a power below 0 of ints, which is a float in Python")
            if b.high > 64 and a.most > 1:
                raise Doubtful("may leave 64 bits, which ints of Python do not")
            ends = [x ** y for x in (a.low, a.high) for y in {b.low, b.high, max(b.high - 1, b.low)}]
            return int_of(*ends, *([0] if a.low <= 0 <= a.high else []), *([1] if b.low == 0 else []))
        case "<<" | ">>":
            if b.low < 0 or b.high > 63:
                raise Doubtful("shifts by less than 0 or more than 63")
            ends = [x << y if symbol == "<<" else x >> y for x, y in corners]
            return int_of(*ends)
        case "&" | "|" | "^":
            if a.low < 0 or b.low < 0:
                return Range.of("int")
            return Range("int", 0, (1 << max(a.high, b.high).bit_length()) - 1)
    raise Doubtful("is not followed for Python numbers")


def floats(symbol: str, a: Range, b: Range, exponent: Range) -> Range:
    match symbol:
        case "+" | "-" | "*":
            by = {"+": operator.add, "-": operator.sub, "*": operator.mul}[symbol]
            return _floats([by(x, y) for x in (a.low, a.high) for y in (b.low, b.high)], a, b)
        case "/":
            return _quotients(a, b)
        case "//" | "%":
            if not (a.is_finite and b.is_finite):
                raise Doubtful("divides with a remainder what may be infinite")
            return Range("float", min(b.low, 0.0), max(b.high, 0.0)) if symbol == "%" else \
                Range("float", -math.inf, math.inf)
        case "**":
            return power(a, b, exponent)
    raise Doubtful("is not followed for Python numbers")


def power(a: Range, b: Range, exponent: Range) -> Range:
    """Return the range of a power of floats."""
    if not (a.is_finite and b.is_finite):
        raise Doubtful("raises to a power what may be infinite or NaN")
    if a.low < 0 and not (exponent.kind == "int" or (b.low == b.high and b.low.is_integer())):
        raise Doubtful("may be complex in Python")
    if a.may_be_zero and b.low < 0:
        raise Doubtful("may divide by zero, which raises in Python")
    sizes = [0.0 if a.low <= 0 <= a.high else min(abs(a.low), abs(a.high)), a.most]
    try:
        ends = [x ** y for x in sizes for y in (b.low, b.high) if x or y >= 0]
    except OverflowError:
        raise Doubtful("may leave the range of floats, which raises in Python") from None
    if a.may_be_zero is False and b.low < 0 and a.low <= 0 <= a.high:
        raise Doubtful("may leave the range of floats, which raises in Python")
    most = max(ends)
    return Range("float", -most if a.low < 0 else min(ends), most)


def of_numpy(symbol: str, left: NumberRange, right: NumberRange) -> OfNumPy:
    """Return the result of an operator of which one side is NumPy's: a Python number beside it takes its type."""
    kinds = []
    for value, operand in ((left, right), (right, left)):
        if isinstance(value, tuple):
            raise Doubtful("is not followed for Python numbers")
        if isinstance(value, Range) and isinstance(operand, OfNumPy):
            if value.kind == "mixed":
                raise Doubtful("computes with what may be an int or a float")
            if not value.literal and operand.dtype not in WIDE:
                raise Doubtful(f"computes with a Python number and with {operand.dtype or 'a dtype'} of NumPy, "
                                 "which is the result's type in Python and not in workers")
        kinds.append(dtype_of(value))
    if not all(kinds) or symbol in ("@",):
        return OfNumPy()
    ufunc = _UFUNCS.get(symbol)
    return OfNumPy(probed(ufunc, kinds)) if ufunc else OfNumPy()


def compared(symbol: str, left: NumberRange, right: NumberRange) -> NumberRange:
    """Return the result of a comparison."""
    if symbol in ("in", "not in") and isinstance(right, tuple):
        for item in right:
            compared("==", left, item)
        return TRUTH
    match left, right:
        case Range(), Range():
            for one, other in ((left, right), (right, left)):
                if _int_size(one) > EXACT and other.kind in ("float", "mixed") and not (
                        other.most < EXACT or (other.low == other.high and math.isinf(other.low))):
                    raise Doubtful("compares floats with ints above 2 ** 53, which do not fit floats")
            return TRUTH
        case (OfNumPy(), _) | (_, OfNumPy()):
            if symbol in ("in", "not in", "is", "is not"):
                return among(left, right)
            of_numpy(symbol, left, right)
            return OfNumPy("bool")
    raise Doubtful("is not followed for Python numbers")


def among(left: NumberRange, right: NumberRange) -> NumberRange:
    """Return whether ``in`` holds for an array, which may be a list of Python numbers."""
    if isinstance(left, Range) and isinstance(right, OfNumPy) and right.dtype in WIDE - {"complex128"}:
        kind = right.dtype.rstrip("64")
        return compared("==", left, Range.of(kind))
    raise Doubtful("is not followed for Python numbers")


def library(name: str, operands: Sequence[NumberRange]) -> NumberRange:
    """Return the result of a function of Python's or of ``math`` for Python numbers."""
    if name == "len" and len(operands) == 1 and isinstance(operands[0], tuple):
        return number(len(operands[0]))
    if name in ("min", "max", "sum") and len(operands) == 1 and isinstance(operands[0], tuple) and operands[0]:
        operands = operands[0]
    numbers = [python(each) for each in operands]
    if name in ("min", "max"):
        return extreme(name, numbers)
    if name == "sum":
        total: NumberRange = Range("int", 0, 0)
        if any(each.kind != "int" for each in numbers):
            raise Doubtful("adds what are not ints, for which Python has ways of its own")
        for addend in numbers:
            total = binary("+", total, addend)
        return total
    if name == "pow" and len(numbers) == 2:
        return python(binary("**", *numbers))
    if len(numbers) == 1:
        return of_one(name, numbers[0])
    if name in ("math.atan2", "math.copysign") and len(numbers) == 2:
        return Range.of("float")
    raise Doubtful("is not followed for Python numbers")


def extreme(name: str, numbers: Sequence[Range]) -> NumberRange:
    if any(each.nan for each in numbers):
        raise Doubtful("depends on the order of its arguments where one is NaN")
    joined: NumberRange = numbers[0]
    for other in numbers[1:]:
        joined = either(joined, other)
    by = min if name == "min" else max
    assert isinstance(joined, Range)
    return replace(joined, low=by(each.low for each in numbers), high=by(each.high for each in numbers))


def of_one(name: str, x: Range) -> NumberRange:
    """Return the result of a function of one Python number."""
    size = [0 if x.low <= 0 <= x.high else min(abs(x.low), abs(x.high)), x.most]
    match name:
        case "abs" if x.kind == "int":
            return replace(int_of(*size), nonzero=x.nonzero)
        case "abs" | "math.fabs" if x.kind != "bool":
            return replace(_float(x), low=float(size[0]), high=float(size[1]))
        case "float":
            return _float(x)
        case "int" | "round" | "math.floor" | "math.ceil" | "math.trunc" if x.kind != "bool" or name == "int":
            if x.kind != "float":
                return replace(x, kind="int")
            if not x.is_finite or x.most >= INT64.max:
                raise Doubtful("may be of NaN, an infinity or a number above 64 bits, of which there is no int "
                                 "of 64 bits")
            return Range("int", math.floor(x.low), math.ceil(x.high))
        case "math.isnan" | "math.isinf" | "math.isfinite":
            return TRUTH
        case _ if name in _FUNCTIONS:
            return function(name, _float(x))
    raise Doubtful("is not followed for Python numbers")


def function(name: str, x: Range) -> Range:
    """Return the result of a function of ``math``, if it raises for no number."""
    least, greatest, infinite, rises = _FUNCTIONS[name]
    inside = least <= x.low and x.high <= greatest and (least != 0 or name == "math.sqrt" or not x.may_be_zero)
    if not inside or (not infinite and (x.low == -math.inf or x.high == math.inf)):
        raise Doubtful("may be of a number outside of its domain, which raises in Python")
    if not rises:
        return Range("float", -math.inf, math.inf, x.nan)
    function = getattr(math, name.removeprefix("math."))
    try:
        return Range("float", function(x.low), function(x.high), x.nan)
    except (OverflowError, ValueError):
        raise Doubtful("may leave the range of floats, which raises in Python") from None


#: Functions of ``math``: their domain, whether infinities are in it, and whether they rise in all of it.
_FUNCTIONS: dict[str, tuple[float, float, bool, bool]] = {
    "math.sqrt": (0.0, math.inf, True, True), "math.exp": (-math.inf, 709.0, True, True),
    "math.expm1": (-math.inf, 709.0, True, True), "math.log": (0.0, math.inf, True, False),
    "math.log2": (0.0, math.inf, True, False), "math.log10": (0.0, math.inf, True, False),
    "math.log1p": (-0.5, math.inf, True, False), "math.sin": (-math.inf, math.inf, False, False),
    "math.cos": (-math.inf, math.inf, False, False), "math.tan": (-math.inf, math.inf, False, False),
    "math.asin": (-1.0, 1.0, True, True), "math.acos": (-1.0, 1.0, True, False),
    "math.atan": (-math.inf, math.inf, True, True), "math.tanh": (-math.inf, math.inf, True, True),
    "math.sinh": (-709.0, 709.0, True, True), "math.cosh": (-709.0, 709.0, True, False),
    "math.erf": (-math.inf, math.inf, True, True), "math.radians": (-math.inf, math.inf, True, False),
    "math.degrees": (-math.inf, math.inf, True, False)}
COMPARED = ("<", "<=", ">", ">=", "==", "!=")
_UFUNCS = {"+": np.add, "-": np.subtract, "*": np.multiply, "/": np.true_divide, "//": np.floor_divide,
           "%": np.remainder, "**": np.power, "&": np.bitwise_and, "|": np.bitwise_or, "^": np.bitwise_xor,
           "<<": np.left_shift, ">>": np.right_shift}


def flat(value: NumberRange) -> list[Any]:
    """Return the numbers of a value, of a tuple or a dict its items'."""
    value = tuple(value.values()) if isinstance(value, dict) else value
    return [each for part in value for each in flat(part)] if isinstance(value, tuple) else [value]


def is_python(value: NumberRange) -> bool:
    """Return whether Python numbers are among a value's."""
    return any(isinstance(each, Range) for each in flat(value))


def _as_mixed(value: NumberRange) -> NumberRange:
    """Return the range of what a number of NumPy's compares like; other values as they are."""
    kind = value.dtype.rstrip("64") if isinstance(value, OfNumPy) else ""
    return replace(Range.of(kind), kind="mixed") if kind in ("bool", "int", "float") else value


def _int_size(value: Range) -> int:
    return 0 if value.kind == "float" else int(value.most) if math.isfinite(value.most) else 0


def _float(value: Range) -> Range:
    """Return the floats nearest to some numbers."""
    return value if value.kind == "float" else replace(value, kind="float", low=float(value.low),
                                                       high=float(value.high))


def _floats(ends: Sequence[float], *of: Range) -> Range:
    """Return the range of what floats become, which rounding keeps in order."""
    if any(end != end for end in ends):
        return Range.of("float")
    # Beside infinities, numbers between may make NaN of what the ends do not.
    nan = any(each.nan or not each.is_finite for each in of)
    return Range("float", min(ends), max(ends), nan)


def _quotients(a: Range, b: Range) -> Range:
    if b.low <= 0 <= b.high:
        return Range("float", -math.inf, math.inf, a.may_be_zero or a.nan or b.nan or not a.is_finite)
    return _floats([x / y for x in (a.low, a.high) for y in (b.low, b.high)], a, b)


def dtype_of(value: NumberRange) -> str:
    if isinstance(value, OfNumPy):
        return value.dtype
    return {"bool": "bool", "int": "int64", "float": "float64"}.get(value.kind, "") if isinstance(value, Range) else ""


def probed(function: Any, dtypes: Sequence[str]) -> str:
    """Return the dtype of what a function gives of ones of some dtypes; empty if that is not known."""
    try:
        with np.errstate(all="ignore"):
            return str(np.asarray(function(*[np.ones((), dtype)[()] for dtype in dtypes])).dtype.name)
    except (TypeError, ValueError):
        return ""
