"""Operations on numbers, applied to each element of arrays, and NumPy's functions that are such operations."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from vispark.translate.codegen.arguments import PYTHON_TYPES, dtype_argument, number_argument, scalar_argument
from vispark.translate.codegen.emitter import Emitter
from vispark.translate.codegen.lowering import call_library
from vispark.translate.codegen.numpy.ragged import elementwise_ragged
from vispark.translate.codegen.operands import plain, static
from vispark.translate.codegen.scalar import numbers, scalars
from vispark.translate.codegen.scalar.casts import cast, literal, truth
from vispark.translate.ir.errors import NotConstant, Refusal
from vispark.translate.ir.types import BOOL, FLOAT, INT, Scalar
from vispark.translate.ir.values import Array, Named, Nothing, Number, RaggedRow, Selected, Tuple, Value, describe
from vispark.translate.language.library import TYPES, UFUNC_C, UFUNC_OTHER
from vispark.translate.language.registry import lowers, register

#: The greatest power of ten that is finite.
_MOST_DIGITS = 308


def elementwise(emit: Emitter, operation: Callable[..., Number], *operands: Value) -> Any:
    """Apply an operation on numbers to numbers, arrays, or both in one broadcast shape; items that a mask selects stay
    selected.
    """
    if any(isinstance(one, Selected) for one in operands):
        return _of_selected(emit, operation, operands)
    if any(isinstance(one, RaggedRow) for one in operands):
        return elementwise_ragged(emit, operation, operands)
    parts = [plain(operand) for operand in operands]
    if all(isinstance(part, Number) for part in parts):
        return operation(*parts)
    shape = broadcast(*(part.shape for part in parts if isinstance(part, Array)))
    settled = [emit.fixed(part) if isinstance(part, Number) else part for part in parts]
    # Asked once without an index for its type; what is wrong is wrong here.
    kind = operation(*(part if isinstance(part, Number) else Number(part.type, "x") for part in settled)).type

    def element(*indices: str) -> str:
        result = operation(*(part if isinstance(part, Number) else part.at(*stretched(part.shape, indices))
                             for part in settled))
        return cast(result, kind.strong).closed

    arrays = [part for part in settled if isinstance(part, Array)]
    sample = element(*("0",) * len(shape))
    cheap = all(array.cheap for array in arrays) and "(" not in sample.replace("(float)", "").strip("()")
    return Array(kind.strong, shape, element, cheap=cheap, fresh=True,
                 volatile=any(array.volatile for array in arrays))


def _of_selected(emit: Emitter, operation: Callable[..., Number], operands: tuple[Value, ...]) -> Selected:
    """Apply an operation to items that one mask selects, and to numbers."""
    chosen = [one for one in operands if isinstance(one, Selected)]
    mask = chosen[0].mask
    if any(one.mask is not mask for one in chosen) or any(isinstance(one, Array) for one in operands):
        raise NotConstant("how many items each side has is not known before the kernel runs; use np.where(mask, "
                          "p * q, 0), which keeps all")
    values = elementwise(emit, operation, *(one.values if isinstance(one, Selected) else one for one in operands))
    return Selected(values, mask, chosen[0].reason)


def astype(value: Array, kind: Scalar) -> Array:
    """Return the array with its elements converted."""
    return replace(value, type=kind, fresh=True, storage="",
                   element=lambda *indices: numbers.convert(value.at(*indices), kind).closed)


def ufunc(emit: Emitter, name: str, operands: tuple[Value, ...]) -> Value:
    """Return one of NumPy's ufuncs of numbers and arrays."""
    return elementwise(emit, lambda *elements: scalars.ufunc(name, *elements), *operands)


def convert(emit: Emitter, *arguments: Value, name: str, **keywords: Value) -> Value:
    """Return ``float(x)``, ``np.float32(x)`` and their like."""
    kind = dtype_argument(Named(name))
    kind = Scalar(kind.dtype, weak=name in PYTHON_TYPES)
    parts = (*arguments, *keywords.values())
    if len(parts) == 2:
        re, im = (cast(scalar_argument(name, value), FLOAT) for value in parts)
        return Number(kind, f"{kind.c}({re.text}, {im.text})")
    value = plain(parts[0])
    if isinstance(value, Array):
        if kind.weak:
            raise Refusal(f"{name}() takes a number, and this is {describe(value)}; use .astype({name})")
        return astype(value, kind)
    return numbers.convert(value, kind)


@lowers("astype", "value dtype order! casting! subok! copy!", method="astype")
def astype_method(emit: Emitter, value: Any, dtype: Value) -> Value:
    """Return ``value.astype(dtype)``."""
    kind = dtype_argument(dtype)
    value = plain(value)
    return astype(value, kind) if isinstance(value, Array) else numbers.convert(value, kind)


@lowers("item", "value", method="item")
def item_method(emit: Emitter, value: Value) -> Value:
    """Return ``value.item()``."""
    number = plain(value)
    if not isinstance(number, Number):
        raise Refusal(".item() is of an array of one element; index it")
    return Number(Scalar(_python_type(number.type), weak=True),
                  cast(number, Scalar(_python_type(number.type))).text, atom=False)


@lowers("bit_count", "value", method="bit_count")
def bit_count_method(emit: Emitter, value: Value) -> Number:
    """Return ``value.bit_count()``, the ones among the bits of a number without its sign."""
    number = _integer(value, "bit_count")
    return Number(INT, f"(long long)bits_of<{number.type.c}>({number.text})", atom=False)


@lowers("bit_length", "value", method="bit_length")
def bit_length_method(emit: Emitter, value: Value) -> Number:
    """Return ``value.bit_length()``, the bits that a number without its sign needs."""
    number = _integer(value, "bit_length")
    return Number(INT, f"(long long)length_in_bits<{number.type.c}>({number.text})", atom=False)


@lowers("is_integer", "value", method="is_integer")
def is_integer_method(emit: Emitter, value: Value) -> Value:
    """Return ``value.is_integer()``: whether a number is finite and whole."""
    number = scalar_argument("is_integer", value)
    if number.type.kind in "iu":
        return literal(True)
    if number.type.kind != "f":
        raise Refusal(f".is_integer() is of a float or an int, and this is {describe(value)}")
    number = emit.fixed(number)
    whole = scalars.binary("-", number, scalars.ufunc("trunc", number))
    # An infinity less itself is no number.
    return Number(BOOL, scalars.binary("==", whole, literal(0.0)).text, atom=False)


def _integer(value: Value, name: str) -> Number:
    number = scalar_argument(name, value)
    if number.type.kind not in "iub" or (number.type.kind == "b" and not number.type.weak):
        raise Refusal(f".{name}() is of an int, and this is {describe(value)}")
    return cast(number, INT) if number.type.kind == "b" else number


def _register_families() -> None:
    """Register NumPy's ufuncs, and the types, which convert."""
    for name in (*UFUNC_C, *UFUNC_OTHER):
        operands = "x /" if getattr(np, name).nin == 1 else "x1 x2 /"
        register(f"numpy.{name}", f"{operands} out! * where! casting! order! dtype! subok!",
                 functools.partial(_call_ufunc, name=name), family="ufunc",
                 method="conj conjugate" if name == "conjugate" else "")
    for name, parameters in (("int", "x / base!"), ("float", "x /"), ("bool", "x /"), ("complex", "real imag=")):
        register(name, parameters, functools.partial(convert, name=name))
    for name in TYPES:
        kind = getattr(np, name)
        full_name = f"numpy.{np.dtype(kind).name}"
        register(full_name, "x /", functools.partial(convert, name=full_name), value=kind, family="type")


def _call_ufunc(emit: Emitter, *operands: Value, name: str) -> Value:
    return ufunc(emit, name, operands)


_register_families()


@lowers("numpy.where", "condition x y /")
def where(emit: Emitter, condition: Value, x: Value, y: Value) -> Value:
    """Return ``np.where(condition, x, y)``."""
    return elementwise(emit, numbers.where, condition, x, y)


@lowers("numpy.clip", "a a_min= a_max= out! * min= max=")
def clip(emit: Emitter, a: Value, a_min: Value | None = None, a_max: Value | None = None, *,
         min: Value | None = None, max: Value | None = None) -> Value:
    """Return ``np.clip(a, a_min, a_max, min, max)``."""
    for name, bounds in (("maximum", (a_min, min)), ("minimum", (a_max, max))):
        present = [bound for bound in bounds if bound is not None]
        if len(present) > 1:
            raise Refusal("np.clip takes a_min and a_max, or min and max, and not both")
        if present and not isinstance(present[0], Nothing) and not _is_beyond(present[0], a, name):
            a = ufunc(emit, name, (a, present[0]))
    return a


def _is_beyond(bound: Value, a: Value, name: str) -> bool:
    """Return whether a bound is a Python int that an integer type cannot hold, and that leaves its numbers alone."""
    kind = getattr(a, "type", None)
    if not (isinstance(bound, Number) and bound.type.weak and isinstance(bound.value, int) and kind
            and kind.kind in "iu"):
        return False
    held = np.iinfo(kind.dtype)
    return bound.value < held.min if name == "maximum" else bound.value > held.max


@lowers("numpy.nan_to_num", "x copy= nan= posinf= neginf=")
def nan_to_num(emit: Emitter, x: Value, copy: Value | None = None, nan: Value | None = None,
               posinf: Value | None = None, neginf: Value | None = None) -> Value:
    """Return ``np.nan_to_num(x, copy, nan, posinf, neginf)``."""
    array = plain(call_library(emit, "numpy.asarray", (x,), {}))
    if not isinstance(array, Number | Array):
        raise Refusal(f"np.nan_to_num is of numbers and arrays, and this is {describe(array)}")
    kind = array.type
    if kind.kind == "c":
        raise Refusal("np.nan_to_num of complex numbers is not supported; use .real and .imag")
    if kind.kind != "f":
        return array
    most = float(np.finfo(kind.dtype).max)
    fills = [literal(default) if fill is None or isinstance(fill, Nothing) else fill
             for fill, default in ((nan, 0.0), (posinf, most), (neginf, -most))]

    def finite(number: Number, *fills: Number) -> Number:
        tests = (scalars.ufunc("isnan", number), scalars.ufunc("greater", number, literal(most)),
                 scalars.ufunc("less", number, literal(-most)))
        for test, fill in zip(tests, fills, strict=True):
            number = numbers.where(test, cast(fill, kind), number)
        return number

    return elementwise(emit, finite, array, *fills)


@lowers("clip", "value min= max= out!", method="clip")
def clip_method(emit: Emitter, value: Value, min: Value | None = None, max: Value | None = None) -> Value:
    """Return ``value.clip(min, max)``."""
    return clip(emit, value, min=min, max=max)


@lowers("numpy.real", "val")
def real(emit: Emitter, val: Value) -> Value:
    """Return ``np.real(val)``."""
    return elementwise(emit, lambda z: numbers.part(z, "re"), val)


@lowers("numpy.imag", "val")
def imag(emit: Emitter, val: Value) -> Value:
    """Return ``np.imag(val)``."""
    return elementwise(emit, lambda z: numbers.part(z, "im"), val)


@lowers("numpy.angle", "z deg!", instead={"deg": "write np.rad2deg(np.angle(z))"})
def angle(emit: Emitter, z: Value) -> Value:
    """Return ``np.angle(z)``."""
    def one(z: Number) -> Number:
        if z.type.kind == "c":
            return scalars.ufunc("arctan2", numbers.part(z, "im"), numbers.part(z, "re"))
        return scalars.ufunc("arctan2", literal(0), z)
    return elementwise(emit, one, z)


@lowers("numpy.isclose", "a b rtol= atol= equal_nan!")
def isclose(emit: Emitter, a: Value, b: Value, rtol: Value | None = None, atol: Value | None = None) -> Value:
    """Return ``np.isclose(a, b, rtol, atol)``."""
    near, least = (literal(default) if given is None else number_argument(given, "np.isclose")
                   for given, default in ((rtol, 1e-5), (atol, 1e-8)))

    def one(a: Number, b: Number) -> Number:
        if b.type.kind in "biu" and not a.type.weak:
            b = cast(b, scalars.ufunc("multiply", b, literal(1.0)).type)
        apart = numbers.absolute(scalars.binary("-", a, b))
        tolerance = scalars.binary("+", least, scalars.binary("*", near, numbers.absolute(b)))
        within, alike = scalars.binary("<=", apart, tolerance), scalars.binary("==", a, b)
        finite = scalars.ufunc("isfinite", b)
        return Number(Scalar("bool"), f"({within.closed} && {finite.closed}) || {alike.closed}", atom=False)

    return elementwise(emit, one, a, b)


@lowers("numpy.allclose", "a b rtol= atol= equal_nan!")
def allclose(emit: Emitter, a: Value, b: Value, rtol: Value | None = None, atol: Value | None = None) -> Value:
    """Return ``np.allclose(a, b, rtol, atol)``."""
    test = truth(plain(call_library(emit, "numpy.all", (isclose(emit, a, b, rtol, atol),), {})))
    return Number(BOOL, test.text, atom=test.atom)


@lowers("numpy.round", "a decimals= out!", method="round")
def numpy_round(emit: Emitter, a: Value, decimals: Value | None = None) -> Value:
    """Return ``np.round(a, decimals)``."""
    digits = 0 if decimals is None or isinstance(decimals, Nothing) else static(
        plain(decimals), "to how many digits np.round rounds must be known before the kernel runs")
    return elementwise(emit, lambda number: _rounded(number, digits), a)


@lowers("numpy.around", "a decimals= out!")
def around(emit: Emitter, a: Value, decimals: Value | None = None) -> Value:
    """Return ``np.around(a, decimals)``."""
    return numpy_round(emit, a, decimals)


@lowers("numpy.divmod", "x1 x2 /")
def numpy_divmod(emit: Emitter, x1: Value, x2: Value) -> Value:
    """Return ``np.divmod(x1, x2)``."""
    return Tuple(tuple(elementwise(emit, lambda a, b, name=name: scalars.ufunc(name, a, b), x1, x2)
                       for name in ("floor_divide", "remainder")))


@lowers("numpy.modf", "x /")
def modf(emit: Emitter, x: Value) -> Value:
    """Return ``np.modf(x)``."""
    return two_results(emit, "modf", "fraction", "whole_part", x)


@lowers("numpy.frexp", "x /")
def frexp(emit: Emitter, x: Value) -> Value:
    """Return ``np.frexp(x)``."""
    return two_results(emit, "frexp", "significand", "binary_exponent", x)


def two_results(emit: Emitter, ufunc: str, first: str, second: str, x: Value) -> Value:
    """Return a ufunc of one number with two results, each by a function of C++."""
    operand = plain(x)
    return Tuple(tuple(elementwise(emit, _result(ufunc, name, place), operand)
                       for place, name in enumerate((first, second))))


def broadcast(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape that shapes have together.

    Raises
    ------
    Refusal
        If they do not fit.
    """
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError as error:
        raise Refusal(f"arrays of shapes {' and '.join(map(str, shapes))} do not fit each other") from error


def stretched(shape: tuple[int, ...], indices: tuple[str, ...]) -> tuple[str, ...]:
    """Return the indices of an operand that is stretched to a larger shape."""
    last = indices[len(indices) - len(shape):]
    return tuple("0" if extent == 1 else index for extent, index in zip(shape, last, strict=True))


def _python_type(kind: Scalar) -> str:
    return {"b": "bool", "i": "int64", "u": "int64", "f": "float64", "c": "complex128"}[kind.kind]


def _rounded(number: Number, digits: int) -> Number:
    """Round to decimals as NumPy does: scaled, to even, and back."""
    if number.type.kind == "b" or (number.type.kind in "iu" and digits < 0):
        raise Refusal(f"rounding {number.type} to {digits} digits is not supported")
    if number.type.kind in "iu":
        return cast(number, number.type.strong)
    if number.type.kind == "c":
        kind = number.type.strong
        parts = (_rounded(numbers.part(cast(number, kind), name), digits).text for name in ("re", "im"))
        return Number(kind, f"{kind.c}({', '.join(parts)})")
    number = cast(number, number.type.strong)
    if not digits:
        return scalars.ufunc("rint", number)
    if abs(digits) > _MOST_DIGITS:
        raise Refusal(f"numbers are rounded to {-_MOST_DIGITS} to {_MOST_DIGITS} digits, and not to {digits}")
    power = literal(10.0 ** abs(digits))
    there, back = ("*", "/") if digits > 0 else ("/", "*")
    return scalars.binary(back, scalars.ufunc("rint", scalars.binary(there, number, power)), power)


def _result(ufunc: str, function: str, place: int) -> Callable[[Number], Number]:
    """Return the operation that gives one of a ufunc's results by a function of C++."""
    def one(number: Number) -> Number:
        kind = number.type.strong.numpy
        if kind.kind == "c":
            raise Refusal(f"NumPy has no {ufunc} of {number.type}")
        loop = getattr(np, ufunc).resolve_dtypes((kind, None, None))
        work = Scalar("float32" if loop[0].name == "float16" else loop[0].name)
        operand = cast(cast(number, Scalar(loop[0].name)), work)
        computed = Number(Scalar("int32") if function == "binary_exponent" else work,
                          f"{function}<{work.c}>({operand.text})")
        return cast(computed, Scalar(loop[1 + place].name))
    return one
