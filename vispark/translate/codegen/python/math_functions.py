"""Functions of ``math``: of Python's floats and ints, with results of theirs."""

from __future__ import annotations

import functools
from typing import Any

from vispark.translate.codegen.arguments import items_argument, number_argument, scalar_argument
from vispark.translate.codegen.emitter import Emitter
from vispark.translate.codegen.scalar import numbers, scalars
from vispark.translate.codegen.scalar.casts import cast, literal
from vispark.translate.ir.errors import Refusal
from vispark.translate.ir.types import BOOL, FLOAT, INT, Scalar
from vispark.translate.ir.values import Number, Tuple, Value
from vispark.translate.language.library import MATH, MATH_OTHER
from vispark.translate.language.registry import lowers, register


def _register_family() -> None:
    """Register the functions of a float, or of two, with one result."""
    parameters = {"atan2": "y x /", "log": "x base= /", "pow": "x y /", "fmod": "x y /", "copysign": "x y /",
                  "remainder": "x y /", "nextafter": "x y /"}
    for name in (*MATH, *MATH_OTHER):
        register(f"math.{name}", parameters.get(name, "x /"), functools.partial(_of_floats, name=name))


def _of_floats(emit: Emitter, *arguments: Value, name: str) -> Number:
    return numbers.math(name, tuple(scalar_argument(f"math.{name}", argument) for argument in arguments))


_register_family()


@lowers("math.prod", "iterable / * start=")
def math_prod(emit: Emitter, iterable: Value, *, start: Value | None = None) -> Value:
    """Multiply items one after the other, from 1 or ``start`` on."""
    product: Any = literal(1) if start is None else number_argument(start, "math.prod")
    for item in items_argument(iterable, "math.prod"):
        product = emit.fixed(scalars.binary("*", product, number_argument(item, "math.prod")))
    return product


@lowers("math.hypot", "*coordinates")
def math_hypot(emit: Emitter, *coordinates: Value) -> Value:
    """Return ``math.hypot(*coordinates)``."""
    parts = [cast(number_argument(value, "math.hypot"), FLOAT) for value in coordinates]
    if len(parts) == 2:
        return numbers.math("hypot", tuple(parts))
    if not parts:
        return literal(0.0)
    if len(parts) == 1:
        return numbers.absolute(parts[0])
    return Number(FLOAT, f"vector_length<{len(parts)}>({{{', '.join(one.text for one in parts)}}})")


@lowers("math.dist", "p q /")
def math_dist(emit: Emitter, p: Value, q: Value) -> Value:
    """Return ``math.dist(p, q)``."""
    places = [items_argument(value, "math.dist", "; of longer rows write np.linalg.norm(p - q)") for value in (p, q)]
    if len(places[0]) != len(places[1]):
        raise Refusal(f"math.dist is of two places with as many numbers, and these have {len(places[0])} and "
                      f"{len(places[1])}")
    pairs = list(zip(*places, strict=True))
    return math_hypot(emit, *(scalars.binary("-", *(cast(number_argument(one, "math.dist"), FLOAT)
                                                    for one in pair)) for pair in pairs))


@lowers("math.isclose", "a b * rel_tol= abs_tol=")
def math_isclose(emit: Emitter, a: Any, b: Any, *, rel_tol: Value | None = None,
                 abs_tol: Value | None = None) -> Value:
    """Return ``math.isclose(a, b, rel_tol, abs_tol)``."""
    a, b = (emit.fixed(cast(number_argument(value, "math.isclose"), FLOAT)) for value in (a, b))
    near, least = (cast(literal(default) if given is None else number_argument(given, "math.isclose"), FLOAT)
                   for given, default in ((rel_tol, 1e-9), (abs_tol, 0.0)))
    apart = f"fabs({a.text} - {b.text})"
    tolerance = f"fmax({near.closed} * fmax(fabs({a.text}), fabs({b.text})), {least.closed})"
    finite = f"is_finite<double>({a.text}) && is_finite<double>({b.text})"
    return Number(BOOL, f"{a.closed} == {b.closed} || ({finite} && {apart} <= {tolerance})", atom=False)


@lowers("math.frexp", "x /")
def math_frexp(emit: Emitter, x: Value) -> Value:
    """Return ``math.frexp(x)``."""
    return _two_of_python(emit, x, ("significand", FLOAT), ("binary_exponent", INT))


@lowers("math.modf", "x /")
def math_modf(emit: Emitter, x: Value) -> Value:
    """Return ``math.modf(x)``."""
    return _two_of_python(emit, x, ("fraction", FLOAT), ("whole_part", FLOAT))


def _two_of_python(emit: Emitter, x: Value, *parts: tuple[str, Scalar]) -> Value:
    number = emit.fixed(cast(number_argument(x, "math.frexp and math.modf"), FLOAT))
    return Tuple(tuple(Number(kind, f"{function}<double>({number.text})") for function, kind in parts))


@lowers("math.ldexp", "x i /")
def math_ldexp(emit: Emitter, x: Value, i: Value) -> Value:
    """Return ``math.ldexp(x, i)``."""
    number, power = cast(number_argument(x, "math.ldexp"), FLOAT), number_argument(i, "math.ldexp")
    if power.type.kind not in "iu":
        raise Refusal(f"math.ldexp takes a whole number as its second argument, and this is {power.type}")
    return Number(FLOAT, f"load_exponent<double>({number.text}, {cast(power, INT).text})")
