"""NumPy's functions that make arrays: of zeros, of ranges, of tuples and lists, of others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from vispark.translate.codegen.arguments import dtype_argument, number_argument, shape_argument
from vispark.translate.codegen.elementwise import astype_method
from vispark.translate.codegen.emitter import Emitter
from vispark.translate.codegen.lowering import call_library
from vispark.translate.codegen.operands import plain, static
from vispark.translate.codegen.scalar import numbers, scalars
from vispark.translate.codegen.scalar.casts import cast, literal, text_of
from vispark.translate.ir.errors import Refusal
from vispark.translate.ir.types import Scalar
from vispark.translate.ir.values import Array, List, Nothing, Number, Tuple, Value
from vispark.translate.language.registry import lowers


@lowers("numpy.zeros", "shape dtype= order!")
def zeros(emit: Emitter, shape: Value, dtype: Value | None = None) -> Value:
    """Return ``np.zeros(shape, dtype)``."""
    return filled(emit, shape_argument(shape), literal(0), dtype_argument(dtype))


@lowers("numpy.empty", "shape dtype= order!")
def empty(emit: Emitter, shape: Value, dtype: Value | None = None) -> Value:
    """Return ``np.empty(shape, dtype)``."""
    return zeros(emit, shape, dtype)


@lowers("numpy.ones", "shape dtype= order!")
def ones(emit: Emitter, shape: Value, dtype: Value | None = None) -> Value:
    """Return ``np.ones(shape, dtype)``."""
    return filled(emit, shape_argument(shape), literal(1), dtype_argument(dtype))


@lowers("numpy.full", "shape fill_value dtype= order!")
def full(emit: Emitter, shape: Value, fill_value: Value, dtype: Value | None = None) -> Value:
    """Return ``np.full(shape, fill_value, dtype)``."""
    number = plain(fill_value)
    if not isinstance(number, Number):
        raise Refusal("np.full fills with a number here")
    return filled(emit, shape_argument(shape), number, dtype_argument(dtype, number.type.dtype))


@lowers("numpy.zeros_like", "a dtype= order! subok! shape!")
def zeros_like(emit: Emitter, a: Value, dtype: Value | None = None) -> Value:
    """Return ``np.zeros_like(a, dtype)``."""
    return _like(emit, a, dtype, 0)


@lowers("numpy.ones_like", "a dtype= order! subok! shape!")
def ones_like(emit: Emitter, a: Value, dtype: Value | None = None) -> Value:
    """Return ``np.ones_like(a, dtype)``."""
    return _like(emit, a, dtype, 1)


def _like(emit: Emitter, value: Value, dtype: Value | None, fill: int) -> Value:
    model = plain(value)
    shape = model.shape if isinstance(model, Array) else ()
    return filled(emit, shape, literal(fill), dtype_argument(dtype, model.type.dtype))


def filled(emit: Emitter, shape: tuple[int, ...], fill: Number, kind: Scalar) -> Value:
    """Return an array of one number in all places; without axes, the number."""
    number = emit.fixed(cast(fill, kind))
    return Array(kind, shape, lambda *indices: number.closed, fresh=True) if shape else number


@lowers("numpy.arange", "start_or_stop / stop= step= * dtype=")
def arange(emit: Emitter, start_or_stop: Value, stop: Value | None = None, step: Value | None = None, *,
           dtype: Value | None = None) -> Value:
    """Return ``np.arange(start_or_stop, stop, step, dtype)``."""
    reason = "the range of np.arange must be whole numbers known before the kernel runs"
    first = literal(0) if stop is None or isinstance(stop, Nothing) else start_or_stop
    last = start_or_stop if stop is None or isinstance(stop, Nothing) else stop
    by = literal(1) if step is None else step
    ends = [static(plain(value), reason) for value in (first, last, by)]
    if ends[2] == 0:
        raise Refusal("np.arange's step is 0")
    values = range(*ends)
    kind = dtype_argument(dtype, "int64")
    if kind.kind == "b" and len(values) > 2:
        raise Refusal("np.arange of bools has at most two, as in NumPy")

    def element(index: str) -> str:
        text = f"{values.start} + {values.step} * {index}" if (values.start, values.step) != (0, 1) else index
        return f"({kind.c})({text})" if not text.isdigit() else text_of(int(text), kind)

    return Array(kind, (len(values),), element, fresh=True)


@lowers("numpy.array", "object dtype=")
def array(emit: Emitter, object: Value, dtype: Value | None = None) -> Value:
    """Return ``np.array(object, dtype)``."""
    dtype = None if isinstance(dtype, Nothing) else dtype
    if isinstance(object, Number | Array):
        copied = copy(emit, object)
        return copied if dtype is None else astype_method(emit, copied, dtype)
    rows, shape = _leaves(object)
    parts = [plain(row) for row in rows]
    kind = dtype_argument(dtype, np.result_type(*(part.type.numpy for part in parts)).name if parts else "float64")
    inner = parts[0].shape if parts and isinstance(parts[0], Array) else ()
    if any((part.shape if isinstance(part, Array) else ()) != inner for part in parts):
        raise Refusal("the items of an array have one shape; these differ")
    return _assembled(emit, parts, shape, inner, kind)


@lowers("numpy.asarray", "a dtype= order!")
def asarray(emit: Emitter, a: Value, dtype: Value | None = None) -> Value:
    """Return ``np.asarray(a, dtype)``."""
    if isinstance(a, Number | Array) and (dtype is None or isinstance(dtype, Nothing)):
        return numbers.convert(a, a.type.strong) if isinstance(a, Number) and a.type.weak else a
    return array(emit, a, dtype)


def _assembled(emit: Emitter, parts: list[Any], shape: tuple[int, ...], inner: tuple[int, ...], kind: Scalar) -> Array:
    array = emit.storage(kind, (*shape, *inner), "array")
    for place, part in zip(np.ndindex(*shape), parts, strict=True):
        where = tuple(map(str, place))
        if isinstance(part, Number):
            emit.line(f"{array.element(*where)} = {numbers.convert(part, kind).text};")
            continue
        with emit.over(inner) as indices:
            element = numbers.convert(part.at(*indices), kind)
            emit.line(f"{array.element(*where, *indices)} = {element.text};")
    emit.barrier(array)
    return array


@lowers("numpy.linspace", "start stop num= endpoint! retstep! dtype! axis!",
        instead={"endpoint": "write start + np.arange(n) * step", "dtype": "write .astype() behind it"})
def linspace(emit: Emitter, start: Value, stop: Value, num: Value | None = None) -> Value:
    """Return ``np.linspace(start, stop, num)``."""
    count = 50 if num is None else static(plain(num), "how many numbers np.linspace gives must be known")
    low, high = (number_argument(value, "np.linspace") for value in (start, stop))
    kind = scalars.ufunc("divide", scalars.ufunc("subtract", high, low), literal(1.0)).type.strong
    if kind.kind != "f":
        raise Refusal(f"np.linspace from {low.type} to {high.type} is not supported; make them floats")
    low, high = (emit.fixed(cast(number, kind)) for number in (low, high))
    step = emit.fixed(scalars.binary("/", scalars.binary("-", high, low), literal(max(1, count - 1))))

    def element(index: str) -> str:
        if index == str(count - 1) and count > 1:
            return high.closed
        one = scalars.binary("+", scalars.binary("*", Number(kind, f"({kind.c})({index})"), step), low)
        if index.isdigit() or count == 1:
            return one.closed
        return f"(({index}) == {count - 1} ? {high.closed} : {one.closed})"

    return Array(kind, (count,), element, cheap=False, fresh=True)


@lowers("numpy.eye", "N M= k= dtype= order!")
def eye(emit: Emitter, N: Value, M: Value | None = None, k: Value | None = None, dtype: Value | None = None) -> Value:
    """Return ``np.eye(N, M, k, dtype)``."""
    reason = "the shape of an array must be known before the kernel runs"
    rows = static(plain(N), reason)
    columns = rows if M is None or isinstance(M, Nothing) else static(plain(M), reason)
    right = 0 if k is None else static(plain(k), "np.eye's k must be known before the kernel runs")
    kind = dtype_argument(dtype)
    return Array(kind, (rows, columns), lambda i, j: f"({kind.c})(({i})" + (f" + {right}" if right else "")
                 + f" == ({j}))", fresh=True)


@lowers("numpy.identity", "n dtype=")
def identity(emit: Emitter, n: Value, dtype: Value | None = None) -> Value:
    """Return ``np.identity(n, dtype)``."""
    return eye(emit, n, dtype=dtype)


@lowers("numpy.full_like", "a fill_value dtype= order! subok! shape!")
def full_like(emit: Emitter, a: Value, fill_value: Value, dtype: Value | None = None) -> Value:
    """Return ``np.full_like(a, fill_value, dtype)``."""
    model = plain(a)
    shape = Tuple(tuple(map(literal, model.shape if isinstance(model, Array) else ())))
    kind = dtype_argument(dtype, model.type.dtype)
    fill = numbers.convert(number_argument(fill_value, "np.full_like"), kind)
    return filled(emit, shape_argument(shape), fill, kind)


@lowers("numpy.empty_like", "prototype / dtype= order! subok! shape!")
def empty_like(emit: Emitter, prototype: Value, dtype: Value | None = None) -> Value:
    """Return ``np.empty_like(prototype, dtype)``."""
    return call_library(emit, "numpy.zeros_like", (prototype,) if dtype is None else (prototype, dtype), {})


@lowers("numpy.copy", "a order! subok!", method="copy")
def copy(emit: Emitter, a: Value) -> Value:
    """Return ``np.copy(a)``."""
    array = plain(a)
    if isinstance(array, Number):
        return array
    return emit.materialised(array, "copy") if array.volatile else replace(array, fresh=True, storage="")


def _leaves(value: Value) -> tuple[list[Value], tuple[int, ...]]:
    """Return the items of nested lists, and the lists' shape."""
    if not isinstance(value, List | Tuple):
        return [value], ()
    parts = [_leaves(item) for item in value.items]
    shapes = {shape for _, shape in parts}
    if len(shapes) > 1:
        raise Refusal("the rows of an array have one length; these differ")
    return [leaf for leaves, _ in parts for leaf in leaves], (len(parts), *(shapes.pop() if shapes else ()))
