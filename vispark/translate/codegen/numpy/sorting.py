"""NumPy's functions that go by the order of a row's numbers: sorting, medians, places in sorted rows, interpolation."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from vispark.translate.codegen.arguments import array_argument, number_argument, row_argument
from vispark.translate.codegen.elementwise import elementwise
from vispark.translate.codegen.emitter import Emitter, Serial
from vispark.translate.codegen.lowering import call_library
from vispark.translate.codegen.numpy.reductions import mean, reduces
from vispark.translate.codegen.operands import as_number, plain, static
from vispark.translate.codegen.scalar import numbers, scalars
from vispark.translate.codegen.scalar.casts import cast, literal
from vispark.translate.ir.errors import Refusal
from vispark.translate.ir.types import BOOL, FLOAT, INT, Scalar
from vispark.translate.ir.values import Array, List, Nothing, Number, Tuple, Value, describe, reindexed
from vispark.translate.language.registry import lowers

_KNOWN = "the axis must be known before the kernel runs"


@lowers("numpy.sort", "a axis= kind= order! * stable=")
def sort(emit: Emitter, a: Value, axis: Value | None = None, kind: Value | None = None, *,
         stable: Value | None = None) -> Array:
    """Sort an array by a sorting network, whose comparisons do not depend on the numbers."""
    array = array_argument(emit, a, "np.sort")
    if isinstance(axis, Nothing):
        array, axis = _flat(array), None
    place = -1 if axis is None else static(plain(axis), _KNOWN)
    if not -len(array.shape) <= place < len(array.shape):
        raise Refusal(f"{describe(array)} has no axis {place}")
    ordered = in_order(emit, sortable(emit, _swapped(array, place), "sorted"))
    return replace(_swapped(ordered, place), fresh=True)


def sortable(emit: Emitter, array: Array, name: str) -> Array:
    """Return the array's numbers in storage of its own, to be sorted."""
    if array.type.kind == "c":
        raise Refusal("sorting complex numbers is not supported; sort .real, .imag or abs()")
    if emit.lanes > 1:
        raise Serial
    return emit.materialised(array, name)


def in_order(emit: Emitter, stored: Array) -> Array:
    """Return the array, sorted along the last axis where it is stored."""
    if stored.shape[-1] > 1 and stored.size:
        with emit.over(stored.shape[:-1], "row") as indices:
            emit.line(f"sort_row<{stored.shape[-1]}>(&{stored.element(*indices, '0')});")
    return stored


@lowers("numpy.argsort", "a axis! kind= order! * stable=", method="argsort")
def argsort(emit: Emitter, a: Value, kind: Value | None = None, *, stable: Value | None = None) -> Array:
    """Return the places in order; equal numbers keep theirs."""
    array = row_argument(emit, a, "np.argsort")
    keys = sortable(emit, array, "keys")
    places = emit.storage(Scalar("int64"), array.shape, "places")
    if array.size:
        emit.line(f"sort_places<{array.size}>({keys.storage}, {places.storage});")
    return places


@lowers("numpy.argpartition", "a kth axis! kind! order!", method="argpartition")
def argpartition(emit: Emitter, a: Value, kth: Value) -> Array:
    """Return the places in order, which is a partition at every place."""
    array = row_argument(emit, a, "np.argpartition")
    _in_row(kth, array, "np.argpartition")
    return argsort(emit, array)


@lowers("numpy.partition", "a kth axis! kind! order!")
def partition(emit: Emitter, a: Value, kth: Value) -> Array:
    """Return the numbers in order, which is a partition at every place."""
    array = row_argument(emit, a, "np.partition")
    _in_row(kth, array, "np.partition")
    return sort(emit, array)


def _in_row(kth: Value, row: Array, name: str) -> None:
    """Refuse a place of a partition that the row does not have."""
    place = static(number_argument(kth, name), f"kth of {name} must be known before the kernel runs")
    if not -row.size <= place < row.size:
        raise Refusal(f"kth of {name} is {place}, and the row has {row.size} numbers")


@reduces("median", "a axis= out! overwrite_input! keepdims=")
def median(emit: Emitter, array: Array, less: int = 0) -> Number:
    """Return the mean of the middle one or two; a NaN, which is sorted last, if there is one."""
    row = in_order(emit, sortable(emit, _flat(array), "sorted"))
    first, count = (row.size - 1) // 2, 2 - row.size % 2
    middle = mean(emit, reindexed(row, (count,), lambda index: (f"({index}) + {first}",)))
    if array.type.kind != "f":
        return middle
    last = row.at(str(row.size - 1))
    return Number(middle.type, f"{scalars.ufunc('isnan', last).closed} ? {last.text} : {middle.closed}", atom=False)


@lowers("numpy.quantile", "a q axis! out! overwrite_input! method! keepdims!")
def quantile(emit: Emitter, a: Value, q: Value) -> Value:
    """Compute quantiles by linear interpolation; for an int ``q``, 0 or 1, return the minimum or maximum
    unchanged.
    """
    row = _sorted_row(emit, a, "np.quantile")
    shares = _shares(emit, q, "np.quantile", 1)
    if shares is not None:
        if any(share.type.kind not in "f" for share in shares):
            raise Refusal("np.quantile's q is of floats where it is an array")
        return _array(emit, [_interpolate(emit, row, share, "np.quantile") for share in shares])
    share = number_argument(q, "np.quantile")
    if share.type.kind not in "biu":
        return _interpolate(emit, row, share, "np.quantile")
    end = static(share, "an int as np.quantile's q must be known before the kernel runs; write float(q)")
    if end not in (0, 1):
        raise Refusal(f"np.quantile's q is from 0 to 1, and this is {end}")
    return _unless_nan(row, row.at(str(end * (row.size - 1))))


@lowers("numpy.percentile", "a q axis! out! overwrite_input! method! keepdims!")
def percentile(emit: Emitter, a: Value, q: Value) -> Value:
    """Return ``np.percentile(a, q)``."""
    row = _sorted_row(emit, a, "np.percentile")

    def one(share: Number) -> Number:
        return _interpolate(emit, row, scalars.binary("/", share, literal(100)), "np.percentile")

    shares = _shares(emit, q, "np.percentile", 100)
    return one(number_argument(q, "np.percentile")) if shares is None else _array(emit, [one(each) for each in shares])


def _shares(emit: Emitter, q: Value, name: str, most: int) -> list[Number] | None:
    """Return the numbers of a list, a tuple or an array, in the type that they have as one; None for a number."""
    if isinstance(q, Tuple | List):
        kind = row_argument(emit, call_library(emit, "numpy.array", (q,), {}), "q").type
        items = [as_number(item) for item in q.items]
        if any(item.known and not 0 <= item.value <= most for item in items):
            raise Refusal(f"{name}'s q is from 0 to {most}, and one of these is not")
        return [cast(item, kind) for item in items]
    if isinstance(q, Array) and q.shape:
        row = row_argument(emit, q, "q")
        return [row.at(str(place)) for place in range(row.size)]
    return None


def _array(emit: Emitter, items: list[Number]) -> Value:
    return call_library(emit, "numpy.array", (List(tuple(items)),), {})


def _sorted_row(emit: Emitter, a: Value, name: str) -> Array:
    array = array_argument(emit, a, name)
    if not array.size:
        raise Refusal(f"{name} of an empty array has no value")
    return in_order(emit, sortable(emit, _flat(array), "sorted"))


def _unless_nan(row: Array, value: Number) -> Number:
    """Return a number of a sorted row, or its NaN, which is sorted last, if there is one."""
    if row.type.kind != "f":
        return value
    last = row.at(str(row.size - 1))
    return numbers.where(scalars.ufunc("isnan", last), cast(last, value.type), value)


def _interpolate(emit: Emitter, row: Array, share: Number, name: str) -> Number:
    """Interpolate between the two numbers of a sorted row next to a share of it."""
    if share.type.kind == "c" or (share.known and not 0 <= share.value <= 1):
        raise Refusal(f"{name}'s q is from 0 to {1 if name == 'np.quantile' else 100}, and this is not")
    last = row.size - 1
    place = emit.fixed(scalars.binary("*", literal(last), share), "place")
    low, here = scalars.ufunc("floor", place), cast(place, FLOAT).closed
    part = emit.fixed(scalars.binary("-", place, cast(low, place.type)), "part")
    if place.known:
        first = second = str(math.floor(place.value))
        second = str(min(int(first) + 1, last))
    else:
        # Of what is no share, and of a NaN, the row is not read beside its places.
        inside = f"{here} > 0 ? {here} < {last} ? (int){here} : {last} : 0"
        first = emit.keep(Number(INT, inside, bounds=(0, last), atom=False), "first").text
        second = f"({first} < {last} ? {first} + 1 : {last})"
    below, above = (emit.keep(row.at(index), "item") for index in (first, second))
    apart = emit.keep(scalars.binary("-", above, below), "difference")
    ahead = scalars.binary("-", above, scalars.binary("*", apart, scalars.binary("-", literal(1), part)))
    behind = scalars.binary("+", below, scalars.binary("*", apart, part))
    value = _unless_nan(row, numbers.where(scalars.binary(">=", part, literal(0.5)), ahead, behind))
    if share.known:
        return value
    right = Number(BOOL, f"{here} >= 0 && {here} <= {last}", atom=False)
    return numbers.where(right, value, cast(literal(math.nan), value.type))


def _flat(array: Array) -> Array:
    return reindexed(array, (array.size,), lambda index: _places(index, array.shape))


def _places(index: str, shape: tuple[int, ...]) -> tuple[str, ...]:
    if len(shape) == 1:
        return (index,)
    behind = [int(np.prod(shape[axis + 1:])) for axis in range(len(shape))]
    return tuple(f"(({index}) / {stride}) % {extent}" for stride, extent in zip(behind, shape, strict=True))


@lowers("numpy.searchsorted", "a v side! sorter!", instead={"side": "np.digitize counts equal numbers too"})
def searchsorted(emit: Emitter, a: Value, v: Value) -> Value:
    """Return ``np.searchsorted(a, v)``."""
    return _insertion_points(emit, a, v, "np.searchsorted", "false")


@lowers("numpy.digitize", "x bins right!", instead={"right": "np.searchsorted does not count equal numbers"})
def digitize(emit: Emitter, x: Value, bins: Value) -> Value:
    """Return ``np.digitize(x, bins)``."""
    return _insertion_points(emit, bins, x, "np.digitize", "true")


def _insertion_points(emit: Emitter, row: Value, value: Value, name: str, after: str) -> Value:
    """Count by binary search how many numbers of a sorted row lie before each value, or not after it."""
    array = row_argument(emit, row, name)
    if array.type.kind == "c":
        raise Refusal(f"{name} of complex numbers is not supported")

    def one(number: Number) -> Number:
        kind = scalars.ufunc("add", Number(array.type, "x"), Number(number.type.strong, "x")).type
        text = f"place_of<{after}>({cast(number, kind).text}, {array.size}, {_read(emit, array, kind)})"
        return Number(Scalar("int64"), f"(long long){text}", atom=False)

    return elementwise(emit, one, value)


def _read(emit: Emitter, array: Array, kind: Scalar) -> str:
    """Return a C++ lambda that reads an item by its place."""
    place = emit.name("place")
    emit.taken.discard(place)
    return f"[&](int {place}) {{ return {cast(array.at(place), kind).text}; }}"


@lowers("numpy.interp", "x xp fp left= right= period!")
def interp(emit: Emitter, x: Value, xp: Value, fp: Value, left: Value | None = None,
           right: Value | None = None) -> Value:
    """Interpolate linearly in float64, as ``np.interp`` does."""
    places, values = (row_argument(emit, value, "np.interp") for value in (xp, fp))
    if places.shape != values.shape or not places.size:
        raise Refusal(f"np.interp takes as many values as places; these are {values.size} and {places.size}")
    if "c" in (places.type.kind, values.type.kind):
        raise Refusal("np.interp of complex numbers is not supported; interpolate .real and .imag")
    kind = Scalar("float64")
    ends = [emit.fixed(cast(values.at(place) if given is None or isinstance(given, Nothing) else
                                    number_argument(given, "np.interp"), kind)).text
            for given, place in ((left, "0"), (right, str(values.size - 1)))]

    def one(number: Number) -> Number:
        reads = [_read(emit, array, kind) for array in (places, values)]
        at = cast(number, kind).text
        return Number(kind, f"interpolate({', '.join([at, str(places.size), *reads, *ends])})")

    return elementwise(emit, one, x)


def _swapped(array: Array, axis: int) -> Array:
    """Return the array with an axis and the last one in each other's places."""
    axis %= len(array.shape)
    if axis == len(array.shape) - 1:
        return array

    def swap(items: tuple[Any, ...]) -> tuple[Any, ...]:
        return (*items[:axis], items[-1], *items[axis + 1:-1], items[axis])

    return reindexed(array, swap(array.shape), lambda *indices: swap(indices))
