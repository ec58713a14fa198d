"""Comparisons of scalars, by NumPy's and Python's rules, in a way that no compiler for GPUs takes for another."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vispark.translate.codegen.scalar.casts import SHORT, cast, text_of
from vispark.translate.ir.errors import Refusal
from vispark.translate.ir.types import BOOL, FLOAT, NUMPY_BOOL, Scalar, resolve
from vispark.translate.ir.values import Number, bared
from vispark.translate.language.library import FUNCTION_OF, ORDER, UFUNC_OF


def compare_python(symbol: str, a: Number, b: Number) -> Number:
    """Compare two Python numbers, at least one of which is known only when the kernel runs."""
    if a.type.kind == "c" or b.type.kind == "c":
        if symbol not in ("==", "!="):
            raise Refusal(f"Python has no {symbol} of complex numbers; compare abs(), .real or .imag")
        casts, _ = resolve(UFUNC_OF[symbol], a.type, b.type)
        return Number(BOOL, f"{cast(a, casts[0]).closed} {symbol} {cast(b, casts[1]).closed}", atom=False)
    if a.type.kind == "f" or b.type.kind == "f":
        return Number(BOOL, compare_floats(symbol, (a, b), [cast(n, FLOAT).closed for n in (a, b)], FLOAT), atom=False)
    return Number(BOOL, f"{a.closed} {symbol} {b.closed}", atom=False)


def compare_floats(symbol: str, operands: Sequence[Number], texts: list[str], kind: Scalar) -> str:
    """Return a comparison of floats that compilers for GPUs do not simplify wrongly for NaN or -0 if one side is known.

    Where 0 would pass, float32 is compared with NaN in mind; of a zero that does not pass nothing may be known: less()
    and opaque() in the prelude say why.
    """
    constants = [position for position, number in enumerate(operands) if number.known]
    if len(constants) == 1 and symbol in ORDER and kind.kind == "f":
        value = float(operands[constants[0]].value)
        passes = FUNCTION_OF[symbol](*((value, 0.0) if constants == [0] else (0.0, value)))
        if passes and kind.dtype == "float32":
            a, b = map(bared, texts if symbol in ("<", "<=") else texts[::-1])
            return f"{'less_equal' if '=' in symbol else 'less'}<float>({a}, {b})"
        if value == 0 and not passes:
            texts[constants[0]] = f"opaque<{kind.c}>({bared(texts[constants[0]])})"
    return f"{texts[0]} {symbol} {texts[1]}"


def are_integers(a: Number, b: Number) -> bool:
    """Return whether NumPy compares two numbers as integers."""
    return a.type.kind in "iu" and b.type.kind in "iu" and not (a.type.weak and b.type.weak)


def compare_integers(symbol: str, a: Number, b: Number) -> Number:
    """Compare integers of any two types by their values, as in NumPy 2."""
    constant = a if a.known else b if b.known else None
    other = b if constant is a else a
    if constant is not None and not other.type.weak:
        limits = np.iinfo(other.type.numpy)
        if not limits.min <= constant.value <= limits.max:
            answer = FUNCTION_OF[symbol](*((constant.value, 0) if constant is a else (0, constant.value)))
            return Number(NUMPY_BOOL, text_of(answer, NUMPY_BOOL))
        constant = cast(constant, other.type)
        a, b = (constant, other) if b is other else (other, constant)
    wide = {a.type.dtype, b.type.dtype}
    if "uint64" in wide and len(wide) > 1:
        first, second = (b, a) if symbol in (">", "<=") else (a, b)
        function = f"{'!' if symbol in ('>=', '<=', '!=') else ''}mixed_{'equal' if symbol in ('==', '!=') else 'less'}"
        return Number(NUMPY_BOOL, f"{function}({', '.join(_wide(n) for n in (first, second))})")
    if a.type.dtype != b.type.dtype:
        return Number(NUMPY_BOOL, f"(long long){a.closed} {symbol} (long long){b.closed}", atom=False)
    if a.type.numpy.itemsize <= SHORT and not a.type.weak:
        text = f"opaque<int>({a.text})"
    elif a.type.kind == "u" and constant is None:
        # A GPU's compiler may not see that one is the other and a constant: opaque() in the prelude says why.
        text = f"opaque<{a.type.c}>({a.text})"
    else:
        text = a.closed
    return Number(NUMPY_BOOL, f"{text} {symbol} {b.closed}", atom=False)


def _wide(number: Number) -> str:
    return number.text if number.type.dtype == "uint64" else f"(long long){number.closed}"


def compared_as_scalars(a: Number, b: Number) -> bool:
    """Return whether NumPy's scalars order two numbers, one of them complex, by themselves: where one's type holds the
    other.

    Else its ufuncs do, to whom a NaN in either part is neither before nor behind anything.
    """
    if a.type.weak or b.type.weak:
        return True
    return a.type.kind != "b" and resolve("less", a.type, b.type)[0][0] in (a.type, b.type)
