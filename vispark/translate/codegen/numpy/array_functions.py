"""NumPy's functions that are made of others: running sums, differences, joined and reshaped arrays, and the like."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from vispark.translate.codegen.numpy.arrays import Arrays
from vispark.translate.codegen.scalar import numbers, scalars
from vispark.translate.codegen.scalar.casts import cast, literal, truth
from vispark.translate.codegen.scalar.writer import Serial
from vispark.translate.ir.errors import Refusal
from vispark.translate.ir.types import BOOL, FLOAT, Scalar
from vispark.translate.ir.values import Array, List, Nothing, Number, Tuple, Value, describe, reindexed


class Numerical(Arrays):
    """Functions made of others."""

    # -- along rows ---------------------------------------------------------------------------------------------------

    def _cumsum(self, a: Value, axis: Value | None = None, dtype: Value | None = None) -> Value:
        return self._running("+", a, axis, dtype)

    def _cumprod(self, a: Value, axis: Value | None = None, dtype: Value | None = None) -> Value:
        return self._running("*", a, axis, dtype)

    def _running(self, symbol: str, value: Value, axis: Value | None, dtype: Value | None) -> Value:
        """Sums or products of the first one, two and so on."""
        array = self._one_axis(value, "a running sum or product")
        if axis is not None and not isinstance(axis, Nothing) and self.static(
                self.plain(axis), "the axis must be known before the kernel runs") not in (0, -1):
            raise Refusal(f"{describe(array)} has no such axis; a running sum or product is along axis 0 of a row")
        kind = Scalar({"b": "int64", "i": "int64", "u": "uint64"}.get(array.type.kind, array.type.dtype))
        kind = self.dtype(dtype, kind.dtype)
        if self.dealt(array.size):
            raise Serial
        result = self.storage(kind, array.shape, "running")
        if not array.size:
            return result
        wide = self.astype(array, kind)
        total = self.variable(kind, "total", wide.at("0"))
        self.line(f"{result.element('0')} = {total.text};")
        with self.over((array.size - 1,)) as (index,):
            one = wide.at(f"{index} + 1")
            self.line(f"{total.text} = {cast(scalars.binary(symbol, total, one), kind).text};")
            self.line(f"{result.element(f'{index} + 1')} = {total.text};")
        return result

    def _diff(self, a: Value) -> Value:
        array = self._array_of(a, "np.diff")
        *before, last = array.shape
        shape = (*before, max(0, last - 1))
        ahead = reindexed(array, shape, lambda *indices: (*indices[:-1], f"{indices[-1]} + 1"))
        symbol = "!=" if array.type.kind == "b" else "-"
        return self.elementwise(lambda a, b: scalars.binary(symbol, a, b), ahead, reindexed(array, shape, _same_place))

    def _gradient(self, f: Value) -> Value:
        """Half the differences of the numbers on either side, the whole ones at the ends; of integers in float64."""
        row = self._one_axis(f, "np.gradient")
        if row.size < 2:
            raise Refusal(f"np.gradient is of two numbers or more, and this is {describe(row)}")
        if row.type.kind == "b":
            raise Refusal("np.gradient of bools is not supported, as NumPy does not subtract them; write .astype(int)")
        wide = self.astype(row, Scalar("float64")) if row.type.kind in "iu" else row

        def apart(first: int, last: int, count: int) -> Array:
            ahead, behind = (reindexed(wide, (count,), lambda index, by=by: (f"{index} + {by}" if by else index,))
                             for by in (last, first))
            return self.elementwise(lambda a, b: scalars.binary("/", scalars.binary("-", a, b),
                                                                literal(float(last - first))), ahead, behind)

        middle = (apart(0, 2, row.size - 2),) if row.size > 2 else ()
        return self._concatenate(Tuple((apart(0, 1, 1), *middle, apart(row.size - 2, row.size - 1, 1))))

    def _ptp(self, a: Value, axis: Value | None = None) -> Value:
        given = (a,) if axis is None else (a, axis)
        return self.elementwise(lambda high, low: scalars.binary("-", high, low),
                                self.library("numpy.max", given, {}), self.library("numpy.min", given, {}))

    def _count_nonzero(self, a: Value, axis: Value | None = None) -> Value:
        there = self.library("numpy.not_equal", (a, literal(0)), {})
        return self.library("numpy.sum", (there,) if axis is None else (there, axis), {})

    def _polyval(self, p: Value, x: Value) -> Value:
        """Evaluate a polynomial by Horner's rule, as NumPy does."""
        items: Sequence[Value]
        if isinstance(p, Tuple | List):
            p = self.library("numpy.array", (p,), {})
        row = self._one_axis(p, "np.polyval's polynomial")
        items = [row.at(str(number)) for number in range(row.size)]
        found: Any = self.library("numpy.zeros_like", (x,), {})
        for item in items:
            found = self.elementwise(lambda a, b, c: scalars.binary("+", scalars.binary("*", a, b), c), found, x,
                                     item)
            found = self.snapshot(found) if isinstance(found, Number) else self.materialised(found, "polynomial")
        return found

    # -- without what is NaN ------------------------------------------------------------------------------------------

    def _nansum(self, a: Value, axis: Value | None = None) -> Value:
        return self._without_nan("sum", 0, a, axis)

    def _nanmin(self, a: Value, axis: Value | None = None) -> Value:
        return self._without_nan("min", math.inf, a, axis)

    def _nanmax(self, a: Value, axis: Value | None = None) -> Value:
        return self._without_nan("max", -math.inf, a, axis)

    def _nanmean(self, a: Value, axis: Value | None = None) -> Value:
        if self._array_of(a, "np.nanmean").type.kind in "biu":
            return self.library("numpy.mean", (a,) if axis is None else (a, axis), {})
        total = self._nansum(a, axis)
        here = self.library("numpy.logical_not", (self.library("numpy.isnan", (a,), {}),), {})
        count = self.library("numpy.sum", (here,), {} if axis is None else {"axis": axis})
        return self.elementwise(lambda a, b: scalars.ufunc("divide", a, cast(b, scalars.ufunc(
            "divide", a, literal(1)).type)), total, count)

    def _without_nan(self, name: str, instead: float, value: Value, axis: Value | None) -> Value:
        array = self._array_of(value, f"np.nan{name}")
        given = {} if axis is None else {"axis": axis}
        if array.type.kind not in "fc":
            return self.library(f"numpy.{name}", (array,), given)
        if array.type.kind == "c" and name != "sum":
            raise Refusal(f"np.nan{name} of complex numbers is not supported; use .real, .imag or abs()")
        fill = literal(instead)
        kept = self.elementwise(lambda a: numbers.where(scalars.ufunc("isnan", a), cast(fill, a.type), a),
                                array)
        if name == "sum":
            return self.library("numpy.sum", (kept,), given)
        # Of nothing but NaN it is NaN.
        none = self.library("numpy.all", (self.library("numpy.isnan", (array,), {}),), given)
        return self.elementwise(lambda test, found: numbers.where(test, cast(literal(math.nan), found.type),
                                                                  found), none,
                                self.library(f"numpy.{name}", (kept,), given))

    # -- new arrays ---------------------------------------------------------------------------------------------------

    def _linspace(self, start: Value, stop: Value, num: Value | None = None) -> Value:
        count = 50 if num is None else self.static(self.plain(num), "how many numbers np.linspace gives must be known")
        low, high = (self._number(value, "np.linspace") for value in (start, stop))
        kind = scalars.ufunc("divide", scalars.ufunc("subtract", high, low), literal(1.0)).type.strong
        if kind.kind != "f":
            raise Refusal(f"np.linspace from {low.type} to {high.type} is not supported; make them floats")
        low, high = (self.fixed(cast(number, kind)) for number in (low, high))
        step = self.fixed(scalars.binary("/", scalars.binary("-", high, low), literal(max(1, count - 1))))

        def element(index: str) -> str:
            if index == str(count - 1) and count > 1:
                return high.closed
            one = scalars.binary("+", scalars.binary("*", Number(kind, f"({kind.c})({index})"), step), low)
            if index.isdigit() or count == 1:
                return one.closed
            return f"(({index}) == {count - 1} ? {high.closed} : {one.closed})"

        return Array(kind, (count,), element, cheap=False, fresh=True)

    def _eye(self, N: Value, M: Value | None = None, k: Value | None = None, dtype: Value | None = None) -> Value:
        reason = "the shape of an array must be known before the kernel runs"
        rows = self.static(self.plain(N), reason)
        columns = rows if M is None or isinstance(M, Nothing) else self.static(self.plain(M), reason)
        right = 0 if k is None else self.static(self.plain(k), "np.eye's k must be known before the kernel runs")
        kind = self.dtype(dtype)
        return Array(kind, (rows, columns), lambda i, j: f"({kind.c})(({i})" + (f" + {right}" if right else "")
                     + f" == ({j}))", fresh=True)

    def _identity(self, n: Value, dtype: Value | None = None) -> Value:
        return self._eye(n, dtype=dtype)

    def _full_like(self, a: Value, fill_value: Value, dtype: Value | None = None) -> Value:
        model = self.plain(a)
        shape = Tuple(tuple(map(literal, model.shape if isinstance(model, Array) else ())))
        kind = self.dtype(dtype, model.type.dtype)
        found = self._filled(self._shape(shape), numbers.convert(self._number(fill_value, "np.full_like"), kind), kind)
        return found

    def _empty_like(self, prototype: Value, dtype: Value | None = None) -> Value:
        return self.library("numpy.zeros_like", (prototype,) if dtype is None else (prototype, dtype), {})

    def _concatenate(self, arrays: Value, axis: Value | None = None) -> Value:
        """Arrays one behind the other, along the first axis."""
        if axis is not None and self.static(self.plain(axis), "the axis must be known before the kernel runs") != 0:
            raise Refusal("np.concatenate is along axis 0 here")
        parts = [self._array_of(value, "np.concatenate") for value in self._several(arrays, "np.concatenate")]
        inner = parts[0].shape[1:]
        if any(part.shape[1:] != inner for part in parts):
            raise Refusal("arrays that are joined have one shape behind the first axis; these differ")
        kind = Scalar(np.result_type(*(part.type.numpy for part in parts)).name)
        extent = sum(part.shape[0] for part in parts)
        if self.lanes > 1:
            raise Serial
        result, first = self.storage(kind, (extent, *inner), "joined"), 0
        for part in parts:
            with self.over(part.shape) as indices:
                place = f"{indices[0]} + {first}" if first else indices[0]
                found = numbers.convert(part.at(*indices), kind)
                self.line(f"{result.element(place, *indices[1:])} = {found.text};")
            first += part.shape[0]
        return result

    def _hstack(self, tup: Value) -> Value:
        parts = [self._at_least(value, 1) for value in self._several(tup, "np.hstack")]
        if any(isinstance(part, Array) and len(part.shape) > 1 for part in parts):
            raise Refusal("np.hstack is of numbers and rows here; np.concatenate joins others")
        return self._concatenate(Tuple(tuple(parts)))

    def _vstack(self, tup: Value) -> Value:
        return self._concatenate(Tuple(tuple(self._at_least(value, 2) for value in self._several(tup, "np.vstack"))))

    def _stack(self, arrays: Value) -> Value:
        return self.library("numpy.array", (List(tuple(self._several(arrays, "np.stack"))),), {})

    def _append(self, arr: Value, values: Value) -> Value:
        """Concatenate two arrays; without an axis, flatten both first."""
        parts = (self._at_least(one, 1) for one in (arr, values))
        return self._concatenate(Tuple(tuple(one if len(one.shape) == 1 else self._ravel(one) for one in parts)))

    def _at_least(self, value: Value, axes: int) -> Array:
        found = self.plain(value)
        if isinstance(found, Number):
            number = self.fixed(cast(found, found.type.strong))
            found = Array(number.type, (1,), lambda index: number.closed)
        while len(found.shape) < axes:
            found = reindexed(found, (1, *found.shape), lambda first, *rest: rest)
        return found

    def _axis(self, array: Array, axis: Value | None, more: int = 0) -> int:
        """Return the number of an axis, counted from 0, of those that there are and ``more``."""
        number = self.static(self.plain(axis or Nothing()), "the axis must be known before the kernel runs")
        axes = len(array.shape) + more
        if not -axes <= number < axes:
            raise Refusal(f"{describe(array)} has no axis {number}")
        return number % axes

    # -- the same array, seen differently -----------------------------------------------------------------------------

    def _flip(self, m: Value, axis: Value | None = None) -> Value:
        array = self._array_of(m, "np.flip")
        chosen = range(len(array.shape)) if axis is None or isinstance(axis, Nothing) else [
            self._axis(array, axis)]
        return reindexed(array, array.shape, lambda *indices: tuple(
            f"{array.shape[place] - 1} - ({index})" if place in chosen else index
            for place, index in enumerate(indices)))

    def _roll(self, a: Value, shift: Value) -> Value:
        array = self._one_axis(a, "np.roll")
        by = self.static(self.plain(shift), "np.roll's shift must be known before the kernel runs")
        size = max(1, array.size)
        by %= size
        moved = reindexed(array, array.shape,
                          lambda index: (f"(({index}) + {size - by}) % {size}" if by else index,))
        return self._copy(moved)

    def _reshape(self, a: Value, shape: Value) -> Value:
        return self._python_reshape(a, shape)

    def _python_reshape(self, value: Value, *shape: Value) -> Value:
        array = self._array_of(value, "np.reshape")
        wanted = [self.static(self.plain(one), "an array's shape must be known before the kernel runs") for given in
                  shape for one in (given.items if isinstance(given, Tuple | List) else (given,))]
        known = math.prod(extent for extent in wanted if extent >= 0)
        if wanted.count(-1) == 1 and known and not array.size % known:
            wanted[wanted.index(-1)] = array.size // known
        if math.prod(wanted) != array.size or min(wanted, default=0) < 0:
            raise Refusal(f"an array of {array.size} elements does not have the shape {tuple(wanted)}")
        strides = [math.prod(wanted[place + 1:]) for place in range(len(wanted))]

        def where(*indices: str) -> tuple[str, ...]:
            flat = " + ".join(f"({index}) * {stride}" for index, stride in zip(indices, strides, strict=True)) or "0"
            behind = [math.prod(array.shape[place + 1:]) for place in range(len(array.shape))]
            return tuple(f"(({flat}) / {stride}) % {extent}" for stride, extent in
                         zip(behind, array.shape, strict=True)) if len(array.shape) > 1 else (flat,)

        return reindexed(array, tuple(wanted), where)

    def _ravel(self, a: Value) -> Value:
        return self._reshape(a, literal(-1)) if self._array_of(a, "np.ravel").size else \
            self._filled((0,), literal(0), self._array_of(a, "np.ravel").type)

    def _python_flatten(self, value: Value) -> Value:
        return self._copy(self._ravel(value))

    def _squeeze(self, a: Value) -> Value:
        array = self._array_of(a, "np.squeeze")
        kept = [literal(extent) for extent in array.shape if extent != 1]
        return self._python_reshape(array, *kept) if kept else array.at(*("0",) * len(array.shape))

    def _expand_dims(self, a: Value, axis: Value) -> Value:
        array = self._array_of(a, "np.expand_dims")
        place = self._axis(array, axis, 1)
        return reindexed(array, (*array.shape[:place], 1, *array.shape[place:]),
                         lambda *indices: (*indices[:place], *indices[place + 1:]))

    def _trace(self, a: Value) -> Value:
        array = self._array_of(a, "np.trace")
        if len(array.shape) != 2:
            raise Refusal("np.trace is of an array of two axes")
        return self.library("numpy.sum", (reindexed(array, (min(array.shape),), lambda index: (index, index)),), {})

    def _cross(self, a: Any, b: Any) -> Value:
        a, b = (self._one_axis(value, "np.cross") for value in (a, b))
        if a.shape != (3,) or b.shape != (3,):
            raise Refusal("np.cross is of two rows of three here")

        def minus(i: int, j: int) -> Number:
            products = [scalars.binary("*", a.at(str(one)), b.at(str(other))) for one, other in ((i, j), (j, i))]
            return scalars.binary("-", *products)

        return self.library("numpy.array", (List((minus(1, 2), minus(2, 0), minus(0, 1))),), {})

    # -- numbers ------------------------------------------------------------------------------------------------------

    def _angle(self, z: Value) -> Value:
        def one(z: Number) -> Number:
            if z.type.kind == "c":
                return scalars.ufunc("arctan2", numbers.part(z, "im"), numbers.part(z, "re"))
            return scalars.ufunc("arctan2", literal(0), z)
        return self.elementwise(one, z)

    def _isclose(self, a: Value, b: Value, rtol: Value | None = None, atol: Value | None = None) -> Value:
        near, least = (literal(default) if given is None else self._number(given, "np.isclose")
                       for given, default in ((rtol, 1e-5), (atol, 1e-8)))

        def one(a: Number, b: Number) -> Number:
            if b.type.kind in "biu" and not a.type.weak:
                b = cast(b, scalars.ufunc("multiply", b, literal(1.0)).type)
            apart = numbers.absolute(scalars.binary("-", a, b))
            room = scalars.binary("+", least, scalars.binary("*", near, numbers.absolute(b)))
            within, alike = scalars.binary("<=", apart, room), scalars.binary("==", a, b)
            finite = scalars.ufunc("isfinite", b)
            return Number(Scalar("bool"), f"({within.closed} && {finite.closed}) || {alike.closed}", atom=False)

        return self.elementwise(one, a, b)

    def _allclose(self, a: Value, b: Value, rtol: Value | None = None, atol: Value | None = None) -> Value:
        found = self.truth_of(self.library("numpy.all", (self._isclose(a, b, rtol, atol),), {}))
        return Number(BOOL, found.text, atom=found.atom)

    def _round(self, a: Value, decimals: Value | None = None) -> Value:
        digits = 0 if decimals is None or isinstance(decimals, Nothing) else self.static(
            self.plain(decimals), "to how many digits np.round rounds must be known before the kernel runs")
        return self.elementwise(lambda number: _rounded(number, digits), a)

    def _around(self, a: Value, decimals: Value | None = None) -> Value:
        return self._round(a, decimals)

    def _python_round(self, number: Any, ndigits: Value | None = None) -> Value:
        value, digits, number = number, ndigits, self.plain(number)
        if digits is None or isinstance(digits, Nothing):
            return self.elementwise(numbers.rounded, value) if isinstance(number, Number) \
                else self._ufunc("rint", (value,))
        if number.type.kind == "c":
            raise Refusal(f"Python has no round() of {number.type}; write np.round(z, n)")
        known = self.static(self.plain(digits), "to how many digits round() rounds must be known before the kernel "
                                                "runs")
        if isinstance(number, Number) and number.known:
            return literal(round(number.value, known))
        if isinstance(number, Number) and number.type == FLOAT:
            if not 0 <= known <= _DIGITS:
                raise Refusal(f"round() of a Python float is to 0 to {_DIGITS} digits here; write np.round(x, n)")
            return Number(FLOAT, f"round_digits({number.text}, {float(10 ** known)!r})")
        return self._round(value, digits)

    # -- math ---------------------------------------------------------------------------------------------------------

    def _math_prod(self, iterable: Value, *, start: Value | None = None) -> Value:
        """Multiply items one after the other, from 1 or ``start`` on."""
        found: Any = literal(1) if start is None else self._number(start, "math.prod")
        for item in self._several(iterable, "math.prod"):
            found = self.fixed(scalars.binary("*", found, self._number(item, "math.prod")))
        return found

    def _math_hypot(self, *coordinates: Value) -> Value:
        given = [cast(self._number(value, "math.hypot"), FLOAT) for value in coordinates]
        if len(given) == 2:
            return numbers.math("hypot", tuple(given))
        if not given:
            return literal(0.0)
        if len(given) == 1:
            return numbers.absolute(given[0])
        return Number(FLOAT, f"vector_length<{len(given)}>({{{', '.join(one.text for one in given)}}})")

    def _math_dist(self, p: Value, q: Value) -> Value:
        places = [self._several(value, "math.dist", "; of longer rows write np.linalg.norm(p - q)") for value in (p, q)]
        if len(places[0]) != len(places[1]):
            raise Refusal(f"math.dist is of two places with as many numbers, and these have {len(places[0])} and "
                          f"{len(places[1])}")
        pairs = list(zip(*places, strict=True))
        return self._math_hypot(*(scalars.binary("-", *(cast(self._number(one, "math.dist"), FLOAT)
                                                        for one in pair)) for pair in pairs))

    def _math_isclose(self, a: Any, b: Any, *, rel_tol: Value | None = None,
                      abs_tol: Value | None = None) -> Value:
        a, b = (self.fixed(cast(self._number(value, "math.isclose"), FLOAT)) for value in (a, b))
        near, least = (cast(literal(default) if given is None else self._number(given, "math.isclose"), FLOAT)
                       for given, default in ((rel_tol, 1e-9), (abs_tol, 0.0)))
        apart = f"fabs({a.text} - {b.text})"
        room = f"fmax({near.closed} * fmax(fabs({a.text}), fabs({b.text})), {least.closed})"
        finite = f"is_finite<double>({a.text}) && is_finite<double>({b.text})"
        return Number(BOOL, f"{a.closed} == {b.closed} || ({finite} && {apart} <= {room})", atom=False)

    # -- arguments ----------------------------------------------------------------------------------------------------

    def _number(self, value: Value, name: str) -> Number:
        found = self.plain(value)
        if not isinstance(found, Number):
            raise Refusal(f"{name} takes a number here, and this is {describe(value)}")
        return found

    def _array_of(self, value: Value, name: str) -> Array:
        if isinstance(value, Tuple | List):
            value = self.library("numpy.array", (value,), {})
        if not isinstance(value, Array) or not value.shape:
            raise Refusal(f"{name} is of arrays, and this is {describe(value)}")
        return value

    def _one_axis(self, value: Value, name: str) -> Array:
        array = self._array_of(value, name)
        if len(array.shape) != 1:
            raise Refusal(f"{name} is of a row here, and this is {describe(value)}")
        return array

    def _several(self, values: Value, name: str, advice: str = "") -> list[Value]:
        if isinstance(values, Tuple | List) and values.items:
            return list(values.items)
        if isinstance(values, Array) and values.shape and 0 < values.shape[0] <= _SEVERAL:
            return [values.at(str(number)) if len(values.shape) == 1 else _part(values, number)
                    for number in range(values.shape[0])]
        raise Refusal(f"{name} takes a tuple or a short row here, and this is {describe(values)}{advice}")

    def truth_of(self, value: Any) -> Number:
        """Return ``bool(value)`` of a number."""
        return truth(self.plain(value))


#: The greatest power of ten that is finite.
_MOST_DIGITS = 308
#: Powers of ten up to this one are exact.
_DIGITS = 22
#: The longest row that is taken apart into its numbers.
_SEVERAL = 64


def _part(array: Array, number: int) -> Array:
    return reindexed(array, array.shape[1:], lambda *rest: (str(number), *rest))


def _same_place(*indices: str) -> tuple[str, ...]:
    return indices


def _rounded(number: Number, digits: int) -> Number:
    """NumPy's rounding to decimals: scaled, to even, and back."""
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
