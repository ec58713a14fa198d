"""NumPy's functions that go by the order of a row's numbers: sorting, medians, places in sorted rows, interpolation."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from vispark.translate.codegen.numpy.rearranged import Rearranged
from vispark.translate.codegen.scalar import numbers, scalars
from vispark.translate.codegen.scalar.casts import cast, literal
from vispark.translate.codegen.scalar.writer import Serial
from vispark.translate.ir.errors import Refusal
from vispark.translate.ir.types import BOOL, FLOAT, INT, Scalar
from vispark.translate.ir.values import Array, List, Nothing, Number, Value, describe, reindexed

_KNOWN = "the axis must be known before the kernel runs"


class Ordering(Rearranged):
    """Functions of the order of numbers."""

    # -- sorting ------------------------------------------------------------------------------------------------------

    def _sort(self, a: Value, axis: Value | None = None) -> Array:
        """Sort an array by a sorting network, whose comparisons do not depend on the numbers."""
        array = self._array_of(a, "np.sort")
        if isinstance(axis, Nothing):
            array, axis = self._flat(array), None
        place = -1 if axis is None else self.static(self.plain(axis), _KNOWN)
        if not -len(array.shape) <= place < len(array.shape):
            raise Refusal(f"{describe(array)} has no axis {place}")
        found = self._in_order(self._own(_swapped(array, place), "sorted"))
        return replace(_swapped(found, place), fresh=True)

    def _own(self, array: Array, name: str) -> Array:
        """Return the array's numbers in storage of its own, to be sorted."""
        if array.type.kind == "c":
            raise Refusal("sorting complex numbers is not supported; sort .real, .imag or abs()")
        if self.lanes > 1:
            raise Serial
        return self.materialised(array, name)

    def _in_order(self, stored: Array) -> Array:
        """Return the array, sorted along the last axis where it is stored."""
        if stored.shape[-1] > 1 and stored.size:
            with self.over(stored.shape[:-1], "row") as indices:
                self.line(f"sort_row<{stored.shape[-1]}>(&{stored.element(*indices, '0')});")
        return stored

    def _argsort(self, a: Value) -> Array:
        """Equal numbers keep their order."""
        array = self._one_axis(a, "np.argsort")
        keys = self._own(array, "keys")
        places = self.storage(Scalar("int64"), array.shape, "places")
        if array.size:
            self.line(f"sort_places<{array.size}>({keys.storage}, {places.storage});")
        return places

    def _python_sorted(self, iterable: Value, reverse: Value | None = None) -> List:
        items = tuple(self._number(item, "sorted()") for item in self._several(iterable, "sorted()"))
        kinds = {item.type for item in items}
        if len(kinds) > 1:
            raise Refusal(f"sorted() is of numbers of one type here, and these are {' and '.join(map(str, kinds))}")
        row = iterable if isinstance(iterable, Array) else self._array_of(List(items), "sorted()")
        stored = self._in_order(self._own(row, "sorted"))
        found = tuple(replace(stored.at(str(number)), type=items[0].type) for number in range(len(items)))
        turned = literal(False) if reverse is None else self.plain(reverse)
        return List(found[::-1] if self.static(turned, "reverse must be known before the kernel runs") else found)

    def _median(self, array: Array) -> Number:
        """Return the mean of the middle one or two; a NaN, which is sorted last, if there is one."""
        row = self._in_order(self._own(self._flat(array), "sorted"))
        first, count = (row.size - 1) // 2, 2 - row.size % 2
        middle = self._mean(reindexed(row, (count,), lambda index: (f"({index}) + {first}",)))
        if array.type.kind != "f":
            return middle
        last = row.at(str(row.size - 1))
        return Number(middle.type, f"{scalars.ufunc('isnan', last).closed} ? {last.text} : {middle.closed}", atom=False)

    def _quantile(self, a: Value, q: Value) -> Number:
        """Compute a quantile by linear interpolation; for an int ``q``, 0 or 1, return the minimum or maximum
        unchanged.
        """
        share = self._number(q, "np.quantile")
        if share.type.kind not in "biu":
            return self._at_share(a, share, "np.quantile")
        end = self.static(share, "an int as np.quantile's q must be known before the kernel runs; write float(q)")
        row = self._sorted_row(a, "np.quantile")
        if end not in (0, 1):
            raise Refusal(f"np.quantile's q is from 0 to 1, and this is {end}")
        return self._unless_nan(row, row.at(str(end * (row.size - 1))))

    def _percentile(self, a: Value, q: Value) -> Number:
        share = self._number(q, "np.percentile")
        return self._at_share(a, scalars.binary("/", share, literal(100)), "np.percentile")

    def _sorted_row(self, a: Value, name: str) -> Array:
        array = self._array_of(a, name)
        if not array.size:
            raise Refusal(f"{name} of an empty array has no value")
        return self._in_order(self._own(self._flat(array), "sorted"))

    def _unless_nan(self, row: Array, found: Number) -> Number:
        """Return a number of a sorted row, or its NaN, which is sorted last, if there is one."""
        if row.type.kind != "f":
            return found
        last = row.at(str(row.size - 1))
        return numbers.where(scalars.ufunc("isnan", last), cast(last, found.type), found)

    def _at_share(self, a: Value, share: Number, name: str) -> Number:
        """Interpolate between the two numbers of the sorted row next to a share of it."""
        if share.type.kind == "c" or (share.known and not 0 <= share.value <= 1):
            raise Refusal(f"{name}'s q is from 0 to {1 if name == 'np.quantile' else 100}, and this is not")
        row = self._sorted_row(a, name)
        last = row.size - 1
        place = self.fixed(scalars.binary("*", literal(last), share), "place")
        low, here = scalars.ufunc("floor", place), cast(place, FLOAT).closed
        part = self.fixed(scalars.binary("-", place, cast(low, place.type)), "part")
        if place.known:
            first = second = str(math.floor(place.value))
            second = str(min(int(first) + 1, last))
        else:
            # Of what is no share, and of a NaN, the row is not read beside its places.
            inside = f"{here} > 0 ? {here} < {last} ? (int){here} : {last} : 0"
            first = self.keep(Number(INT, inside, bounds=(0, last), atom=False), "first").text
            second = f"({first} < {last} ? {first} + 1 : {last})"
        below, above = (self.keep(row.at(index), "item") for index in (first, second))
        apart = self.keep(scalars.binary("-", above, below), "apart")
        ahead = scalars.binary("-", above, scalars.binary("*", apart, scalars.binary("-", literal(1), part)))
        behind = scalars.binary("+", below, scalars.binary("*", apart, part))
        found = self._unless_nan(row, numbers.where(scalars.binary(">=", part, literal(0.5)), ahead, behind))
        if share.known:
            return found
        right = Number(BOOL, f"{here} >= 0 && {here} <= {last}", atom=False)
        return numbers.where(right, found, cast(literal(math.nan), found.type))

    def _flat(self, array: Array) -> Array:
        return reindexed(array, (array.size,), lambda index: self._places(index, array.shape))

    def _places(self, index: str, shape: tuple[int, ...]) -> tuple[str, ...]:
        if len(shape) == 1:
            return (index,)
        behind = [int(np.prod(shape[axis + 1:])) for axis in range(len(shape))]
        return tuple(f"(({index}) / {stride}) % {extent}" for stride, extent in zip(behind, shape, strict=True))

    # -- in sorted rows -----------------------------------------------------------------------------------------------

    def _searchsorted(self, a: Value, v: Value) -> Value:
        return self._sought(a, v, "np.searchsorted", "false")

    def _digitize(self, x: Value, bins: Value) -> Value:
        return self._sought(bins, x, "np.digitize", "true")

    def _sought(self, row: Value, value: Value, name: str, after: str) -> Value:
        """Count by binary search how many numbers of a sorted row lie before each value, or not after it."""
        array = self._one_axis(row, name)
        if array.type.kind == "c":
            raise Refusal(f"{name} of complex numbers is not supported")

        def one(number: Number) -> Number:
            kind = scalars.ufunc("add", Number(array.type, "x"), Number(number.type.strong, "x")).type
            text = f"place_of<{after}>({cast(number, kind).text}, {array.size}, {self._read(array, kind)})"
            return Number(Scalar("int64"), f"(long long){text}", atom=False)

        return self.elementwise(one, value)

    def _read(self, array: Array, kind: Scalar) -> str:
        """Return a C++ lambda that reads an item by its place."""
        place = self.name("place")
        self.taken.discard(place)
        return f"[&](int {place}) {{ return {cast(array.at(place), kind).text}; }}"

    def _interp(self, x: Value, xp: Value, fp: Value, left: Value | None = None, right: Value | None = None) -> Value:
        """Interpolate linearly in float64, as ``np.interp`` does."""
        places, values = (self._one_axis(value, "np.interp") for value in (xp, fp))
        if places.shape != values.shape or not places.size:
            raise Refusal(f"np.interp takes as many values as places; these are {values.size} and {places.size}")
        if "c" in (places.type.kind, values.type.kind):
            raise Refusal("np.interp of complex numbers is not supported; interpolate .real and .imag")
        kind = Scalar("float64")
        ends = [self.fixed(cast(values.at(place) if given is None or isinstance(given, Nothing) else
                                        self._number(given, "np.interp"), kind)).text
                for given, place in ((left, "0"), (right, str(values.size - 1)))]

        def one(number: Number) -> Number:
            reads = [self._read(array, kind) for array in (places, values)]
            at = cast(number, kind).text
            return Number(kind, f"interpolate({', '.join([at, str(places.size), *reads, *ends])})")

        return self.elementwise(one, x)


def _swapped(array: Array, axis: int) -> Array:
    """Return the array with an axis and the last one in each other's places."""
    axis %= len(array.shape)
    if axis == len(array.shape) - 1:
        return array

    def swap(items: tuple) -> tuple:
        return (*items[:axis], items[-1], *items[axis + 1:-1], items[axis])

    return reindexed(array, swap(array.shape), lambda *indices: swap(indices))
