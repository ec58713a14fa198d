"""Operations on scalars: their types by NumPy's and Python's rules, their text in C++.

What C++ does differently (floor division, wrapping, shifts, NaN in ``minimum``) goes through small functions of
:mod:`vispark.translate.codegen.scalar.prelude`.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from vispark.translate.codegen.scalar.casts import (
    INT64,
    SHORT,
    cast,
    computed,
    fits_python_int,
    literal,
    text_of,
    truth,
)
from vispark.translate.codegen.scalar.comparisons import (
    are_integers,
    compare_floats,
    compare_integers,
    compare_python,
    compared_as_scalars,
)
from vispark.translate.codegen.scalar.reciprocals import COMMON_QUOTIENT, by_reciprocal
from vispark.translate.ir.errors import Refusal
from vispark.translate.ir.types import BOOL, FLOAT, INT, Scalar, python_arithmetic, resolve
from vispark.translate.ir.values import INT32, Number, bared, derived, is_call
from vispark.translate.language.library import COMPARISONS, FUNCTION_OF, OPERATOR_OF, ORDER, UFUNC_C, UFUNC_OF

_PYTHON_UNARY: dict[str, Callable[[Any], Any]] = {"-": operator.neg, "+": operator.pos, "~": operator.invert}


# -- operators --------------------------------------------------------------------------------------------------------

def binary(symbol: str, a: Number, b: Number) -> Number:
    """Return ``a symbol b``, arithmetic or a comparison, by Python's and NumPy's rules."""
    result = derived(_binary(symbol, a, b), a, b)
    return replace(result, common=True) if a.common and b.common else result


def _binary(symbol: str, a: Number, b: Number) -> Number:
    if a.type.weak and b.type.weak:
        return _python_binary(symbol, a, b)
    if symbol == "**" and b.known and isinstance(b.value, int) and b.value < 0 and a.type.kind in "iu":
        raise Refusal(f"an integer to the power {b.value} is an error in NumPy; write float(x) ** {b.value}")
    if symbol in ORDER and "c" in (a.type.kind, b.type.kind):
        casts, kind = resolve(UFUNC_OF[symbol], a.type, b.type)
        if compared_as_scalars(a, b):
            return Number(kind, f"{cast(a, casts[0]).closed} {symbol} {cast(b, casts[1]).closed}", atom=False)
    return ufunc(UFUNC_OF[symbol], a, b)


#: Bits beyond which a known int is not even computed.
_MOST_BITS = 4096


def _python_binary(symbol: str, a: Number, b: Number) -> Number:
    if a.known and b.known:
        if symbol in ("**", "<<") and a.type.kind in "bi" and b.type.kind == "i" and b.value > _MOST_BITS \
                and abs(a.value) > (symbol == "**"):
            raise Refusal(f"{a.value} {symbol} {b.value} does not fit 64 bits")
        try:
            return literal(FUNCTION_OF[symbol](a.value, b.value))
        except (ArithmeticError, TypeError, ValueError) as error:
            raise Refusal(f"{a.value} {symbol} {b.value}: {error}") from error
    for one, other in ((a, b), (b, a)):
        if one.known and one.type == INT and other.type.kind in "bi" and not fits_python_int(one.value):
            raise Refusal(f"{one.value} does not fit the 64 bits that a Python int has here; write np.uint64(...) of "
                          "both numbers")
    if symbol in COMPARISONS:
        return compare_python(symbol, a, b)
    kind = python_arithmetic(symbol, a.type, b.type)
    if symbol == "**" and kind == INT:
        kind = _power_type(b)
    if kind == INT:
        return _python_int(symbol, a, b)
    if kind == BOOL:
        return Number(BOOL, f"{a.closed} {symbol} {b.closed}", atom=False)
    return _emit(UFUNC_OF[symbol], (cast(a, kind), cast(b, kind)), kind)


def _power_type(exponent: Number) -> Scalar:
    if exponent.bounds and exponent.bounds[0] >= 0:
        return INT
    if exponent.bounds and exponent.bounds[1] < 0:
        return FLOAT
    raise NeedsStatic.of(exponent, "an int to the power of an int is an int or a float, by the exponent's sign, which "
                                   "is not known here; write float(x) ** n")


def _python_int(symbol: str, a: Number, b: Number) -> Number:
    """Compute with Python ints: in 32 bits where the result is known to fit, else in 64."""
    bounds = _bounds(symbol, _int_bounds(a), _int_bounds(b))
    result = Number(INT, "", bounds=bounds, atom=False)
    x, y = (f"(int){n.closed}" if n.type == BOOL else n.closed for n in (a, b))
    if not result.narrow or not (a.narrow or a.type == BOOL) or not (b.narrow or b.type == BOOL):
        x, y = (f"(long long){text}" if n.c != "long long" and not n.known else text
                for n, text in ((a, x), (b, y)))
        y = f"{y}LL" if b.known and b.narrow and a.known else y
    if symbol in ("//", "%") and a.bounds and a.bounds[0] >= 0 and b.bounds and b.bounds[0] > 0:
        text = f"{x} {symbol[0]} {y}"
    elif symbol in _FUNCTIONS:
        wide = "int" if result.narrow and a.narrow and b.narrow else "long long"
        text = f"{_FUNCTIONS[symbol]}<{wide}>({x}, {y})"
    else:
        text = f"{x} {symbol} {y}"
    if result.narrow and not (a.c in ("int", "bool") and b.c in ("int", "bool")):
        text = f"(int)({text})"
    return Number(INT, text, bounds=bounds, atom=text.endswith(")") and text.startswith("floor"))


_FUNCTIONS = {"//": "floor_divide", "%": "floor_remainder", "**": "integer_power", "<<": "shift_left",
              ">>": "shift_right"}


def _int_bounds(number: Number) -> tuple[int, int] | None:
    return (0, 1) if number.type == BOOL else number.bounds


def _bounds(symbol: str, a: tuple[int, int] | None, b: tuple[int, int] | None) -> tuple[int, int] | None:
    if symbol == "%" and b and b[0] > 0:
        return 0, b[1] - 1
    if a is None or b is None:
        return None
    if symbol in "+-*":
        corners = [FUNCTION_OF[symbol](x, y) for x in a for y in b]
    elif symbol == "//" and b[0] > 0:
        corners = [x // y for x in a for y in b]
    else:
        return None
    bounds = min(corners), max(corners)
    return bounds if bounds[0] >= INT64[0] and bounds[1] <= INT64[1] else None


def unary(symbol: str, a: Number) -> Number:
    """Return ``-a``, ``+a``, ``~a`` or ``not a``."""
    return replace(derived(_unary(symbol, a), a), common=a.common)


def _unary(symbol: str, a: Number) -> Number:
    if symbol == "not":
        test = truth(a)
        return literal(not test.value) if test.known else Number(BOOL, f"!{test.closed}")
    if not a.type.weak:
        return ufunc({"-": "negative", "+": "positive", "~": "invert"}[symbol], a)
    if symbol == "~" and a.type != INT:
        raise Refusal(f"~ of a {a.type} is not supported; write not x")
    if a.known:
        return literal(_PYTHON_UNARY[symbol](a.value))
    a = cast(a, INT) if a.type == BOOL else a
    if symbol == "+":
        return a
    bounds = None if a.type != INT or not a.bounds else (
        (-a.bounds[1], -a.bounds[0]) if symbol == "-" else (~a.bounds[1], ~a.bounds[0]))
    text = f"-{a.closed}" if not a.narrow or bounds is None or INT32[0] <= bounds[0] <= bounds[1] <= INT32[1] \
        else f"-(long long){a.closed}"
    return Number(a.type, text if symbol == "-" else f"~{a.closed}", bounds=bounds, atom=False)


class NeedsStatic(Exception):
    """The kernel cannot be written before these captured or given ints are known."""

    def __init__(self, sources: frozenset[tuple[str, int]]):
        super().__init__(sources)
        self.sources = sources

    @staticmethod
    def of(number: Number, reason: str) -> Exception:
        """Return the exception to raise if a number must be known and is not."""
        if number.sources:
            return NeedsStatic(number.sources)
        return Refusal(reason + blamed(number))


def blamed(number: Number) -> str:
    """Return an error's hint if a NumPy integer was given for a number that must be known; else ""."""
    name = number.numpy_int
    return f"; {name} is a NumPy integer, and of numbers given or captured only Python's ints are compiled in: give " \
           f"the function int({name}) in its place" if name else ""


# -- ufuncs -----------------------------------------------------------------------------------------------------------

def ufunc(name: str, *operands: Number) -> Number:
    """Return a NumPy ufunc of scalars."""
    if OPERATOR_OF.get(name) in COMPARISONS and are_integers(*operands):
        return compare_integers(OPERATOR_OF[name], *operands)
    casts, kind = resolve(name, *(operand.type for operand in operands))
    numbers = tuple(map(cast, operands, casts))
    if OPERATOR_OF.get(name) in ORDER and casts[0].kind == "f":
        work = Scalar("float32") if casts[0].dtype == "float16" else casts[0]
        text = compare_floats(OPERATOR_OF[name], operands, list(map(computed, numbers)), work)
        return Number(kind, text, atom=False)
    return replace(_emit(name, numbers, kind), common=all(number.common for number in numbers))


def _emit(name: str, numbers: tuple[Number, ...], result: Scalar) -> Number:
    """Return a ufunc's text, for operands that have the types of its loop."""
    kind = numbers[0].type
    half = kind.dtype == "float16"
    work = Scalar("float32") if half else kind
    texts = [computed(number) for number in numbers]
    if kind.kind == "b" and name in _LOGIC:
        text = f"{texts[0]} {_LOGIC[name]} {texts[1]}"
    elif kind.kind == "c" and name in _OF_COMPLEX:
        function, swapped = _OF_COMPLEX[name]
        text = f"{function}({', '.join(map(bared, texts[::-1] if swapped else texts))})"
    elif name in OPERATOR_OF and OPERATOR_OF[name] in COMPARISONS:
        text = f"{texts[0]} {OPERATOR_OF[name]} {texts[1]}"
    elif name in UFUNC_C:
        text = _c_function(UFUNC_C[name], texts, work)
    elif name in _EMIT:
        text = _EMIT[name](texts, work, numbers)
    else:
        text = _arithmetic(OPERATOR_OF[name], texts, work, numbers)
    if half and result.dtype == "float16":
        return Number(result, f"half_t({text})")
    return Number(result, text, atom=is_call(text))


#: What orders complex numbers, and sign and rint: a C++ function, and whether its operands are swapped.
_OF_COMPLEX = {"less": ("complex_less", False), "less_equal": ("complex_less_equal", False),
               "greater": ("complex_less", True), "greater_equal": ("complex_less_equal", True),
               **{name: (f"complex_{name}", False) for name in ("maximum", "minimum", "fmax", "fmin", "sign", "rint")}}
_LOGIC = {"add": "|", "multiply": "&", "maximum": "|", "minimum": "&", "bitwise_and": "&", "bitwise_or": "|",
          "bitwise_xor": "^", "fmax": "|", "fmin": "&"}


def _c_function(name: str, texts: list[str], kind: Scalar) -> str:
    if kind.kind == "c":
        return f"complex_{name}({', '.join(texts)})"
    suffix = "f" if kind.dtype == "float32" else ""
    if name == "fmod" and kind.kind in "iu":
        return f"c_remainder<{kind.c}>({', '.join(texts)})"
    return f"{name}{suffix}({', '.join(map(bared, texts))})"


def _arithmetic(symbol: str, texts: list[str], kind: Scalar, numbers: tuple[Number, ...]) -> str:
    a, b = texts
    if symbol == "**":
        return _power(a, b, kind, numbers)
    if symbol in ("//", "%", "<<", ">>"):
        # Where CUDA 13.0 optimises least, it shifts the sign of 16 bits wrongly.
        wide = symbol in ("//", "%") and kind.kind == "i" and kind.numpy.itemsize < 4
        text = f"{_FUNCTIONS[symbol]}<{'int' if wide else kind.c}>({bared(a)}, {bared(b)})"
        return f"({kind.c}){text}" if wide else text
    if symbol == "/" and by_reciprocal(*numbers):
        return f"{COMMON_QUOTIENT}({bared(a)}, {bared(b)}, sure)"
    if kind.dtype in ("int32", "int64") and (turned := _turned(symbol, a, b, kind)):
        return f"wrapped_negative<{kind.c}>({bared(turned)})"
    if kind.kind in "iu" and symbol in "+-*":
        return _wrapping(symbol, a, b, kind)
    if kind.dtype == "int32" and symbol == "^" and not a.isdigit() and not b.isdigit():
        # (a ^ s) - s is a choice of a and its negation where s is a >> 31.
        return f"opaque<int>({bared(a)}) ^ {b}"
    if kind.kind in "iu" and kind.numpy.itemsize < 4:
        text = f"({kind.c})({a} {symbol} {b})"
        return f"opaque<{kind.c}>({text})" if symbol == "^" and kind.numpy.itemsize == SHORT else text
    return f"{a} {symbol} {b}"


def _turned(symbol: str, a: str, b: str, kind: Scalar) -> str:
    """Return the text of an integer that is subtracted from 0 or multiplied by -1; "" if there is none."""
    if symbol == "-":
        return b if a == text_of(0, kind) else ""
    minus = text_of(-1, kind)
    return "" if symbol != "*" else b if bared(a) == minus else a if bared(b) == minus else ""


def _wrapping(symbol: str, a: str, b: str, kind: Scalar) -> str:
    """Return integer arithmetic that wraps; signed overflow is undefined in C++, so it is done without signs."""
    if kind.dtype in ("uint32", "uint64"):
        return f"{a} {symbol} {b}"
    if kind.numpy.itemsize == SHORT:
        return _wrapping_short(symbol, a, b, kind)
    if kind.numpy.itemsize < 4:
        return f"({kind.c})({a} {symbol} {b})"
    unsigned = "unsigned long long" if kind.numpy.itemsize == 8 else "unsigned"
    return f"({kind.c})(({unsigned}){a} {symbol} ({unsigned}){b})"


def _wrapping_short(symbol: str, a: str, b: str, kind: Scalar) -> str:
    """Return integer arithmetic of 16 bits: nothing is known of a sum; differences and products are of 32 bits, without
    signs,
    as a GPU loads them so."""
    if symbol == "+":
        return f"opaque<{kind.c}>(({kind.c})({a} + {b}))"
    if kind.kind == "i":
        a, b = f"(unsigned short){a}", f"(unsigned short){b}"
    if symbol == "*":
        return f"({kind.c})opaque<unsigned>((unsigned){a} * {b})"
    return f"({kind.c})opaque<int>({a} - {b})"


def _power(a: str, b: str, kind: Scalar, numbers: tuple[Number, ...]) -> str:
    if kind.kind in "iu":
        return f"integer_power<{kind.c}>({bared(a)}, {bared(b)})"
    if kind.kind == "c":
        return f"complex_power({bared(a)}, {bared(b)})"
    small = {text_of(exponent, kind): exponent for exponent in (2, 3, 4)}.get(b)
    if small:
        return f"power{small}({bared(a)})"
    return f"pow{'f' if kind.dtype == 'float32' else ''}({bared(a)}, {bared(b)})"


def _call(function: str) -> Callable[[list[str], Scalar, tuple[Number, ...]], str]:
    return lambda texts, kind, numbers: f"{function}<{kind.c}>({', '.join(map(bared, texts))})"


def unseen(number: Number) -> Number:
    """Return a float that may be a zero which a GPU's compiler may not see: opaque() in the prelude says why."""
    if number.type.dtype not in ("float32", "float64"):
        return number
    return Number(number.type, f"opaque<{number.type.c}>({bared(number.text)})")


def extreme(function: str, texts: list[str], kind: Scalar) -> str:
    """Return the lesser or greater of two numbers; those of 8 and 16 bits are compared in 32: opaque() in the prelude
    says why.
    """
    a, b = texts
    if kind.kind in "iu" and kind.numpy.itemsize <= SHORT:
        return f"({kind.c}){function}<int>(opaque<int>({bared(a)}), {bared(b)})"
    return f"{function}<{kind.c}>({bared(a)}, {bared(b)})"


def _extreme(function: str) -> Callable[[list[str], Scalar, tuple[Number, ...]], str]:
    return lambda texts, kind, numbers: extreme(function, texts, kind)


def _rounding(function: str) -> Callable[[list[str], Scalar, tuple[Number, ...]], str]:
    def emit(texts: list[str], kind: Scalar, numbers: tuple[Number, ...]) -> str:
        if kind.kind != "f":
            return texts[0]
        return f"{function}{'f' if kind.dtype == 'float32' else ''}({bared(texts[0])})"
    return emit


def _logical(symbol: str) -> Callable[[list[str], Scalar, tuple[Number, ...]], str]:
    return lambda texts, kind, numbers: f" {symbol} ".join(truth(number).closed for number in numbers)


def _reciprocal(texts: list[str], kind: Scalar, numbers: tuple[Number, ...]) -> str:
    function = "complex_reciprocal" if kind.kind == "c" else f"reciprocal<{kind.c}>"
    return f"{function}({bared(texts[0])})"


def _absolute(texts: list[str], kind: Scalar, numbers: tuple[Number, ...]) -> str:
    if kind.kind in "bu":
        return texts[0]
    if kind.kind == "f":
        return f"fabs{'f' if kind.dtype == 'float32' else ''}({bared(texts[0])})"
    return f"absolute<{kind.c}>({bared(texts[0])})" if kind.kind == "i" else f"complex_absolute({bared(texts[0])})"


def _negative(texts: list[str], kind: Scalar, numbers: tuple[Number, ...]) -> str:
    if kind.kind in "iu":
        return f"wrapped_negative<{kind.c}>({bared(texts[0])})"
    return f"-{texts[0]}"


def _invert(texts: list[str], kind: Scalar, numbers: tuple[Number, ...]) -> str:
    text = f"!{texts[0]}" if kind.kind == "b" else f"({kind.c})~{texts[0]}"
    is_exact = kind.numpy.itemsize != SHORT and (kind.kind != "i" or numbers[0].bounds is not None)
    return text if is_exact or kind.dtype == "int8" else f"opaque<{kind.c}>({text})"


def _classify(function: str, integer: str) -> Callable[[list[str], Scalar, tuple[Number, ...]], str]:
    def emit(texts: list[str], kind: Scalar, numbers: tuple[Number, ...]) -> str:
        if kind.kind == "c":
            part = Scalar("float32" if kind.dtype == "complex64" else "float64").c
            joined = " && " if function == "is_finite" else " || "
            return joined.join(f"{function}<{part}>({numbers[0].closed}.{name})" for name in ("re", "im"))
        if kind.kind != "f":
            return integer if "{" not in integer else integer.format(texts[0])
        return f"{function}<{kind.c}>({bared(texts[0])})"
    return emit


def _not_of_half(name: str, function: str) -> Callable[[list[str], Scalar, tuple[Number, ...]], str]:
    def emit(texts: list[str], kind: Scalar, numbers: tuple[Number, ...]) -> str:
        if numbers[0].type.dtype == "float16":
            raise Refusal(f"np.{name} of float16 is not supported; write np.float32(x)")
        return f"{function}<{kind.c}>({', '.join(map(bared, texts))})"
    return emit


def _scaled(factor: float) -> Callable[[list[str], Scalar, tuple[Number, ...]], str]:
    return lambda texts, kind, numbers: f"{texts[0]} * {text_of(factor, kind)}"


_EMIT: dict[str, Callable[[list[str], Scalar, tuple[Number, ...]], str]] = {
    "absolute": _absolute, "negative": _negative, "positive": lambda texts, kind, numbers: texts[0],
    "invert": _invert, "maximum": _extreme("maximum"), "minimum": _extreme("minimum"),
    "fmax": _extreme("maximum_number"), "fmin": _extreme("minimum_number"), "sign": _call("sign"),
    "floor": _rounding("floor"), "ceil": _rounding("ceil"),
    "trunc": _rounding("trunc"), "rint": _rounding("rint"), "square": _call("square"),
    "reciprocal": _reciprocal, "logaddexp": _call("log_add_exp"), "heaviside": _call("heaviside"),
    "hypot": _call("hypotenuse"), "logaddexp2": _call("log_add_exp2"), "gcd": _call("greatest_divisor"),
    "lcm": _call("least_multiple"), "bitwise_count": _call("bits_of"), "ldexp": _call("load_exponent"),
    "nextafter": _not_of_half("nextafter", "next_after"), "spacing": _not_of_half("spacing", "spacing_of"),
    "float_power": lambda texts, kind, numbers: _power(texts[0], texts[1], kind, numbers),
    "isnan": _classify("is_nan", "false"), "isinf": _classify("is_inf", "false"),
    "isfinite": _classify("is_finite", "true"), "signbit": _classify("sign_bit", "{} < 0"),
    "deg2rad": _scaled(math.pi / 180), "radians": _scaled(math.pi / 180), "rad2deg": _scaled(180 / math.pi),
    "degrees": _scaled(180 / math.pi), "logical_and": _logical("&&"), "logical_or": _logical("||"),
    "logical_xor": lambda texts, kind, numbers: " != ".join(f"({truth(number).text})" for number in numbers),
    "logical_not": lambda texts, kind, numbers: f"!{truth(numbers[0]).closed}",
    "conjugate": lambda texts, kind, numbers: f"conjugate({texts[0]})" if kind.kind == "c" else texts[0],
}
