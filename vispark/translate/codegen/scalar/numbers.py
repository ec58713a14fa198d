"""Functions of numbers that are no ufuncs: conversions, Python's ``min`` and ``round``, the module ``math``."""

from __future__ import annotations

import contextlib
import math as python_math

from vispark.translate.codegen.scalar import scalars
from vispark.translate.codegen.scalar.casts import cast, literal, truth
from vispark.translate.codegen.scalar.comparisons import compared_as_scalars
from vispark.translate.ir.errors import Refusal
from vispark.translate.ir.types import BOOL, FLOAT, INT, NUMPY_BOOL, Scalar, join, resolve
from vispark.translate.ir.values import Number, derived
from vispark.translate.language import library


def convert(number: Number, to: Scalar) -> Number:
    """Return ``np.float32(x)``, ``int(x)`` and their like: a conversion that the user asks for."""
    if number.known and isinstance(number.value, float) and to.kind in "iu":
        if not python_math.isfinite(number.value):
            raise Refusal(f"{number.value} does not become an integer")
        return cast(literal(int(number.value)), to)
    return cast(number, to)


def absolute(number: Number) -> Number:
    """Return ``abs(number)``."""
    return derived(_absolute(number), number)


def _absolute(number: Number) -> Number:
    if not number.type.weak:
        return scalars.ufunc("absolute", number)
    if number.known:
        return literal(abs(number.value))
    if number.type.kind == "f":
        return Number(FLOAT, f"fabs({number.text})")
    if number.type.kind == "c":
        return Number(FLOAT, f"complex_absolute({number.text})")
    number = cast(number, INT)
    bounds, function = None, "absolute"
    if number.bounds:
        bounds = 0, max(abs(number.bounds[0]), abs(number.bounds[1]))
        function = "absolute_in_range" if bounds[1] < 2**63 else function
    result = Number(INT, "", bounds=bounds)
    return Number(INT, f"{function}<{result.c}>({number.text})", bounds=bounds)


def rounded(number: Number) -> Number:
    """Return ``round(number)``: to even, a Python int."""
    if number.type == NUMPY_BOOL or number.type.kind == "c":
        raise Refusal(f"Python has no round() of {number.type}")
    if number.known:
        if not python_math.isfinite(number.value):
            raise Refusal(f"round() of {number.value} is an error in Python")
        return literal(round(number.value))
    if number.type.kind in "biu":
        return cast(number, INT)
    return cast(scalars.ufunc("rint", number), INT)


def extreme(name: str, a: Number, b: Number) -> Number:
    """Return Python's ``min`` or ``max`` of two numbers; a NaN is kept only as the first."""
    if "c" in (a.type.kind, b.type.kind) and a.type.weak and b.type.weak:
        raise Refusal(f"Python has no {name}() of complex numbers; compare abs(), .real or .imag")
    if a.known and b.known:
        return literal({"min": min, "max": max}[name](a.value, b.value))
    if "c" in (a.type.kind, b.type.kind) and not compared_as_scalars(b, a):
        raise Refusal(f"{name}() of {a.type} and {b.type} is not supported; convert one to the other's type, or both "
                      "to np.complex128")
    kind = join(a.type, b.type)
    choose = {"min": min, "max": max}[name]
    bounds = None
    if kind == INT and a.bounds and b.bounds:
        bounds = choose(a.bounds[0], b.bounds[0]), choose(a.bounds[1], b.bounds[1])
    function = {"min": "first_minimum", "max": "first_maximum"}[name]
    a, b = cast(a, kind), cast(b, kind)
    if kind == INT:
        text = f"{function}<long long>({a.text}, {b.text})"
    else:
        # A zero that is the first may not be seen: see opaque() in the prelude.
        first = f"opaque<{kind.c}>({a.text})" if kind.dtype in ("float32", "float64") else a.text
        text = scalars.extreme(function, [first, b.text], kind)
    narrow = Number(INT, "", bounds=bounds).narrow
    return derived(Number(kind, f"(int){text}" if narrow else text, bounds=bounds, atom=not narrow), a, b)


def where(test: Number, yes: Number, no: Number) -> Number:
    """Return ``np.where`` of numbers: of NumPy's type, also for two Python numbers."""
    kind = resolve("add", yes.type, no.type)[1] if not yes.type.kind == no.type.kind == "b" else Scalar("bool")
    a, b = cast(yes, kind), cast(no, kind)
    return Number(kind, f"{truth(test).closed} ? {a.closed} : {b.closed}", atom=False)


def part(number: Number, name: str) -> Number:
    """Return the real or the imaginary part."""
    if number.type.kind != "c":
        return number if name == "re" else cast(literal(0), number.type)
    kind = Scalar("float32" if number.type.dtype == "complex64" else "float64", weak=number.type.weak)
    return Number(kind, f"{number.closed}.{name}")


def math(name: str, operands: tuple[Number, ...]) -> Number:
    """Return a function of ``math``: computed in double precision, giving a Python number."""
    result = _math(name, operands)
    if all(operand.known for operand in operands):
        with contextlib.suppress(ArithmeticError, ValueError):
            return literal(getattr(python_math, name)(*(operand.value for operand in operands)))
    return derived(result, *operands)


def _math(name: str, operands: tuple[Number, ...]) -> Number:
    if any(operand.type.kind == "c" for operand in operands):
        raise Refusal(f"math.{name} takes real numbers; use numpy's")
    wide = [cast(operand, FLOAT) for operand in operands]
    texts = ", ".join(number.text for number in wide)
    _check_count(name, len(operands))
    if name in ("isnan", "isinf", "isfinite"):
        return Number(BOOL, f"is_{name[2:]}<double>({texts})")
    if name == "trunc" and not (operands[0].type.weak or operands[0].type.dtype == "float64"):
        raise Refusal(f"Python has no math.trunc of {operands[0].type}; write int() or np.trunc()")
    if name in ("floor", "ceil", "trunc"):
        if operands[0].type in (BOOL, INT):
            return cast(operands[0], INT)
        # NumPy's integers become floats on the way.
        return cast(Number(FLOAT, f"{name}({texts})"), INT)
    if name in ("radians", "degrees"):
        factor = literal(python_math.pi / 180 if name == "radians" else 180 / python_math.pi)
        return Number(FLOAT, f"{wide[0].closed} * {factor.text}", atom=False)
    if name == "log" and len(wide) == 2:
        return Number(FLOAT, f"log({wide[0].text}) / log({wide[1].text})", atom=False)
    function = "hypotenuse<double>" if name == "hypot" else library.MATH.get(name, name)
    return Number(FLOAT, f"{function}({texts})")


def _check_count(name: str, operands: int) -> None:
    two = name in ("atan2", "hypot", "pow", "fmod", "copysign", "remainder", "nextafter")
    if operands != (2 if two else 1) and not (name == "log" and operands == 2):
        raise Refusal(f"math.{name} takes {'two numbers' if two else 'one number'}, and {operands} are given")
