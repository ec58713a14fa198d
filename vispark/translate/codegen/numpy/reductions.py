"""Reductions of arrays, whole or along an axis: sums, products, extremes and their places; loops that read each element
once.

A reduction of NumPy's is one function that reduces all elements of an array (:func:`reduces`); along an axis it is
applied to each line.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TypeVar

import numpy as np

from vispark.translate.codegen.arguments import dtype_argument
from vispark.translate.codegen.elementwise import astype, elementwise
from vispark.translate.codegen.emitter import Emitter, Serial
from vispark.translate.codegen.lowering import call_library
from vispark.translate.codegen.numpy.sums import advance, drifts, hint_order, in_blocks
from vispark.translate.codegen.operands import plain, static
from vispark.translate.codegen.scalar import numbers, scalars
from vispark.translate.codegen.scalar.casts import cast, literal, text_of, truth
from vispark.translate.ir.errors import Refusal
from vispark.translate.ir.types import BOOL, NUMPY_BOOL, Scalar
from vispark.translate.ir.values import Array, List, Nothing, Number, Tuple, Value, describe, reindexed
from vispark.translate.language.registry import register

#: What sums begin with.
_NOTHING = ("0", "0.0", "0.0f")


#: Reduces all elements of an array to a number; ``less`` is NumPy's ddof.
ArrayReduction = Callable[[Emitter, Array, int], Number]
_Decorated = TypeVar("_Decorated", bound=ArrayReduction)
_REDUCTIONS: dict[str, ArrayReduction] = {}

_EXTREME = "a axis= out! keepdims= initial! where!"
_TRUTH = "a axis= out! keepdims= * where!"
_PLACE = "a axis= out! * keepdims="
_SPREAD = "a axis= dtype= out! ddof= keepdims= * where! mean! correction!"
_SUM = "a axis= dtype= out! keepdims= initial! where!"


def reduces(name: str, parameters: str, *, method: str = "",
            alias: str = "") -> Callable[[_Decorated], _Decorated]:
    """Register the decorated function as ``np.name``: it reduces all elements of an array, and is taken along axes."""
    def add(reduction: _Decorated) -> _Decorated:
        register(f"numpy.{name}", parameters, functools.partial(reduce, name=name), method=method, alias=alias)
        _REDUCTIONS[name] = reduction
        return reduction
    return add


def reduce(emit: Emitter, a: Value, axis: Value | None = None, dtype: Value | None = None, ddof: Value | None = None,
           *, name: str) -> Value:
    """Return ``np.sum`` and its like."""
    value = plain(call_library(emit, "numpy.array", (a,), {}) if isinstance(a, Tuple | List) else a)
    array = value if isinstance(value, Array) else Array(value.type.strong, (1,), lambda index: value.closed)
    if not array.size and name not in ("sum", "prod", "any", "all"):
        raise Refusal(f"np.{name} of an empty array has no value")
    if dtype is not None and not isinstance(dtype, Nothing):
        kind = dtype_argument(dtype)
        array = astype(array, kind)
        if kind.kind in "biu" and name in ("sum", "prod"):
            # Sums that wrap at the end are those that wrap at each step.
            return elementwise(emit, lambda one: numbers.convert(one, kind), reduce(emit, array, axis, name=name))
        if kind.kind in "biu":
            raise Refusal(f"np.{name} in {kind.dtype} is not supported; take that of its result")
        if kind.kind == "c" and name in ("var", "std"):
            # NumPy's has the type asked for, though it is a real number.
            result = reduce(emit, array, axis, None, ddof, name=name)
            return elementwise(emit, lambda one: numbers.convert(one, kind), result)
    less = 0 if ddof is None else static(plain(ddof), "ddof must be known before the kernel runs")
    if axis is None or isinstance(axis, Nothing):
        return whole(emit, name, array, less)
    if not isinstance(value, Array):
        raise Refusal(f"np.{name} along an axis takes an array")
    return along_axis(emit, name, array, axis, less)


def whole(emit: Emitter, name: str, array: Array, less: int = 0) -> Number:
    """Reduce all elements of an array to one number; a variance is divided by their count minus ``less``."""
    return _REDUCTIONS[name](emit, array, less)


def along_axis(emit: Emitter, name: str, array: Array, axis: Value, less: int = 0) -> Value:
    """Reduce an array along one axis, to an array of the others; it is stored, as each element is a loop."""
    if isinstance(axis, Tuple | List):
        raise Refusal(f"axis of np.{name} is one whole number; leave it out for all, or reshape several to one")
    number = static(plain(axis), "the axis must be known before the kernel runs")
    if not -len(array.shape) <= number < len(array.shape):
        raise Refusal(f"{describe(array)} has no axis {number}")
    number %= len(array.shape)
    others = array.shape[:number] + array.shape[number + 1:]

    def line(indices: tuple[str, ...]) -> Array:
        return reindexed(array, (array.shape[number],), lambda i: (*indices[:number], i, *indices[number:]))

    if not others:
        return whole(emit, name, array, less)
    if name == "sum" and len(others) == 1:
        product = emit.products.product_of(lambda j, k: line((str(j),)).element(str(k)), others[0], array.shape[number],
                                  array.type)
        if product is not None:
            return product
    with emit.detached():
        kind = whole(emit, name, line(("0",) * len(others))).type
    result = emit.storage(kind, others, name)
    with emit.over(others, "row") as indices:
        emit.line(f"{result.element(*indices)} = {whole(emit, name, line(indices), less).text};")
    emit.barrier(result)
    return result


# -- of all elements --------------------------------------------------------------------------------------------------

@reduces("sum", _SUM, method="sum")
def sum_of(emit: Emitter, array: Array, less: int = 0) -> Number:
    """Return the sum, in at least 64 bits for integers, and of half precision in single."""
    return _total(emit, "sum", "+", 0, array)


@reduces("prod", _SUM, method="prod")
def product_of_all(emit: Emitter, array: Array, less: int = 0) -> Number:
    """Return the product, in the type of a sum."""
    return _total(emit, "prod", "*", 1, array)


def _total(emit: Emitter, name: str, symbol: str, start: int, array: Array) -> Number:
    kind = _sum_type(array.type)
    wide = Scalar("float32") if kind.dtype == "float16" else kind
    total = fold(emit, astype(array, wide), lambda a, b: scalars.binary(symbol, a, b), name, wide,
                 numbers.convert(literal(start), wide))
    return cast(total, kind)


@reduces("min", _EXTREME, method="min", alias="numpy.amin")
def least(emit: Emitter, array: Array, less: int = 0) -> Number:
    """Return the least element, or a NaN."""
    return fold(emit, array, lambda a, b: scalars.ufunc("minimum", a, b), "min", array.type)


@reduces("max", _EXTREME, method="max", alias="numpy.amax")
def greatest(emit: Emitter, array: Array, less: int = 0) -> Number:
    """Return the greatest element, or a NaN."""
    return fold(emit, array, lambda a, b: scalars.ufunc("maximum", a, b), "max", array.type)


@reduces("argmin", _PLACE, method="argmin")
def place_of_least(emit: Emitter, array: Array, less: int = 0) -> Number:
    """Return the first place of the least element, or of a NaN."""
    return _place_of_extreme(emit, "min", array)


@reduces("argmax", _PLACE, method="argmax")
def place_of_greatest(emit: Emitter, array: Array, less: int = 0) -> Number:
    """Return the first place of the greatest element, or of a NaN."""
    return _place_of_extreme(emit, "max", array)


@reduces("any", _TRUTH, method="any")
def any_true(emit: Emitter, array: Array, less: int = 0) -> Number:
    """Return whether an element is true."""
    return replace(truths(emit, "any", array), type=NUMPY_BOOL)


@reduces("all", _TRUTH, method="all")
def all_true(emit: Emitter, array: Array, less: int = 0) -> Number:
    """Return whether no element is false."""
    return replace(truths(emit, "all", array), type=NUMPY_BOOL)


@reduces("mean", "a axis= dtype= out! keepdims= * where!", method="mean")
def mean(emit: Emitter, array: Array, less: int = 0) -> Number:
    """Return the sum divided by the number of elements minus ``less``."""
    kind = array.type if array.type.kind in "fc" else Scalar("float64")
    wide = Scalar("float32") if kind.dtype == "float16" else kind
    total = sum_of(emit, astype(array, wide))
    count = Number(wide, text_of(max(0, array.size - less), wide))
    return cast(scalars.ufunc("divide", total, count), kind)


@reduces("var", _SPREAD, method="var")
def variance(emit: Emitter, array: Array, less: int = 0) -> Number:
    """Return the mean of the squares of the distances from the mean."""
    return _spread(emit, "var", array, less)


@reduces("std", _SPREAD, method="std")
def deviation(emit: Emitter, array: Array, less: int = 0) -> Number:
    """Return the root of the variance."""
    return _spread(emit, "std", array, less)


def _spread(emit: Emitter, name: str, array: Array, less: int) -> Number:
    kind = array.type if array.type.kind in "fc" else Scalar("float64")
    if kind.dtype == "float16":
        return _half_spread(emit, name, array, less)
    middle = emit.keep(mean(emit, astype(array, kind)), "mean")
    apart = elementwise(emit, lambda a: squared(scalars.binary("-", a, middle)), astype(array, kind))
    kind = apart.type if kind.kind == "c" else kind
    variance = mean(emit, apart, less)
    return cast(variance if name == "var" else scalars.ufunc("sqrt", variance), kind)


def _half_spread(emit: Emitter, name: str, array: Array, less: int) -> Number:
    """Compute a variance or deviation of half precision, rounding each part to half as NumPy does: squares beyond
    65504 are infinite.
    """
    def mean(row: Array, count: int) -> Number:
        return scalars.ufunc("divide", sum_of(emit, row), Number(array.type, text_of(count, array.type)))

    middle = emit.keep(mean(array, array.size), "mean")
    apart = elementwise(emit, lambda a: squared(scalars.binary("-", a, middle)), array)
    variance = mean(apart, max(0, array.size - less))
    return variance if name == "var" else scalars.ufunc("sqrt", variance)


# -- loops ------------------------------------------------------------------------------------------------------------

def fold(emit: Emitter, array: Array, step: Callable[[Number, Number], Number], name: str, kind: Scalar,
         start: Number | None = None) -> Number:
    """Fold all elements into one variable of a type; without a start, from the first element on."""
    if name in ("sum", "dot") and len(array.shape) == 1 and start is not None and start.text in _NOTHING:
        noted = emit.products.placeholder(lambda k: array.element(str(k)), array.size, kind)
        if noted is not None:
            return noted
    if emit.is_dealt(array.size):
        return _fold_by_lanes(emit, array, step, name, kind, start)
    if drifts(emit, array, name, kind):
        return replace(in_blocks(emit, array, step, name, kind, start), variable=False)
    skip = start is None
    first = array.at(*("0",) * len(array.shape)) if start is None else start
    total = emit.variable(kind, name, cast(first, kind))
    if skip and array.size == 1:
        return replace(total, variable=False)
    loops = reindexed(array, (array.shape[0] - 1,), lambda i: (f"{i} + 1",)) if skip and len(array.shape) == 1 \
        else array
    hint_order(emit, total, name, loops.size)
    with emit.over(loops.shape) as indices:
        advance(emit, total, step(total, loops.at(*indices)))
    return replace(total, variable=False)


def _fold_by_lanes(emit: Emitter, array: Array, step: Callable[[Number, Number], Number], name: str, kind: Scalar,
                   start: Number | None) -> Number:
    """Fold all elements by the lanes of a row: each lane its own elements, and then the lanes' results."""
    if drifts(emit, array, name, kind):
        total = in_blocks(emit, array, step, name, kind, None)
    else:
        total = emit.variable(kind, name, cast(array.at(*emit.unflattened("lane", array.shape)), kind))
        with emit.along(array.shape, 1) as indices:
            advance(emit, total, step(total, array.at(*indices)))
    with _joining(emit) as apart:
        advance(emit, total, step(total, _other_lane(emit, total, apart)))
    if start is not None:
        advance(emit, total, step(total, cast(start, kind)))
    return replace(total, variable=False)


@contextlib.contextmanager
def _joining(emit: Emitter) -> Iterator[str]:
    """Yield the lane distance of each step of a butterfly reduction, after which all lanes have the joined value.
    """
    offset = emit.name("offset")
    emit.line("VISPARK_UNROLL")
    with emit.block(f"for (int {offset} = {emit.lanes // 2}; {offset} > 0; {offset} /= 2)"):
        yield offset
    emit.taken.discard(offset)


def _other_lane(emit: Emitter, number: Number, offset: str) -> Number:
    """Return the value that another lane has of a variable."""
    text = f"rows::exchange(rows::row_mask<{emit.lanes}>(), {number.text}, {offset})"
    return emit.keep(replace(number, text=text), "other")


def truths(emit: Emitter, name: str, array: Array) -> Number:
    """Return ``any`` or ``all`` of an array, as a bool of Python's."""
    total, sign = emit.variable(BOOL, f"{name}_true", literal(name == "all")), "&&" if name == "all" else "||"
    with emit.along(array.shape) as indices:
        emit.line(f"{total.text} = {total.text} {sign} {truth(array.at(*indices)).closed};")
    if emit.is_dealt(array.size):
        with _joining(emit) as offset:
            emit.line(f"{total.text} = {total.text} {'&' if name == 'all' else '|'} "
                      f"{_other_lane(emit, total, offset).text};")
    return replace(total, variable=False)


def _place_of_extreme(emit: Emitter, name: str, array: Array) -> Number:
    """Return the first place of the extreme, or of a NaN."""
    dealt = emit.is_dealt(array.size)
    start = emit.unflattened("lane", array.shape) if dealt else ("0",) * len(array.shape)
    best = emit.variable(array.type, name, scalars.unseen(array.at(*start)))
    place = emit.name(f"arg{name}")
    emit.line(f"int {place} = {'lane' if dealt else '0'};")
    with emit.along(array.shape, int(dealt)) as indices:
        one = emit.keep(array.at(*indices), "value")
        with emit.block(f"if ({is_beyond(name, one, best)})"):
            emit.line(f"{best.text} = {one.text};")
            emit.line(f"{place} = {_flat_place(indices, array.shape)};")
    if dealt:
        _join_places(emit, name, best, place)
    return Number(Scalar("int64"), f"(long long){place}", atom=False)


def _join_places(emit: Emitter, name: str, best: Number, index: str) -> None:
    """Write the reduction of the lanes' extremes and their places; of equal extremes the first place wins."""
    with _joining(emit) as offset:
        other = _other_lane(emit, best, offset)
        place = _other_lane(emit, Number(Scalar("int32"), index), offset)
        with emit.block(f"if ({is_beyond(name, other, best)} || (!({is_beyond(name, best, other)}) && "
                        f"{place.text} < {index}))"):
            emit.line(f"{best.text} = {other.text};")
            emit.line(f"{index} = {place.text};")


def fold_row(emit: Emitter, name: str, array: Array, start: Number | None = None) -> Number:
    """Return ``sum``, ``min``, ``max``, ``any`` and ``all`` of a row, one after the other."""
    if name in ("any", "all"):
        return truths(emit, name, array)
    if name in ("min", "max"):
        if not array.size:
            raise Refusal(f"{name}() of nothing has no value")
        if emit.is_dealt(array.size) and array.type.kind == "f":
            raise Serial    # where a NaN stands decides what Python finds
        return fold(emit, array, lambda a, b: numbers.extreme(name, a, b), name, array.type)
    assert start is not None
    if not array.size:
        return start
    kind = scalars.binary("+", start, array.at("0")).type
    if kind.dtype == "float16" and drifts(emit, array, name, kind):
        wide = Scalar("float32")
        return cast(fold_row(emit, name, astype(array, wide), cast(start, wide)), kind)
    return fold(emit, array, lambda a, b: scalars.binary("+", a, b), name, kind, start)


def is_beyond(name: str, one: Number, best: Number) -> str:
    """Return whether a number is less, or greater, than the best so far, or a NaN."""
    test = scalars.ufunc("less" if name == "min" else "greater", one, best).text
    if one.type.kind not in "fc":
        return test
    return f"{test} || ({scalars.ufunc('isnan', one).closed} && !{scalars.ufunc('isnan', best).closed})"


def squared(number: Number) -> Number:
    """Return the square of a number's size."""
    if number.type.kind != "c":
        return scalars.ufunc("square", number)
    return scalars.binary("+", *(scalars.ufunc("square", numbers.part(number, name)) for name in ("re", "im")))


def _sum_type(kind: Scalar) -> Scalar:
    """Return the type of ``np.sum`` and ``np.prod``: at least 64 bits for integers."""
    if kind.kind in "bi":
        return Scalar("int64")
    return Scalar("uint64") if kind.kind == "u" else kind


def _flat_place(indices: tuple[str, ...], shape: tuple[int, ...]) -> str:
    terms = []
    for axis, index in enumerate(indices):
        stride = int(np.prod(shape[axis + 1:], dtype=np.int64))
        if index != "0":
            terms.append(index if stride == 1 else f"{index} * {stride}")
    return " + ".join(terms) or "0"
