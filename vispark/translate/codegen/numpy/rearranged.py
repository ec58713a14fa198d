"""NumPy's functions that repeat, frame or slide over an array's elements, and ufuncs with two results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from vispark.translate.codegen.numpy.array_functions import Numerical
from vispark.translate.codegen.scalar import scalars
from vispark.translate.codegen.scalar.casts import cast, literal
from vispark.translate.codegen.scalar.writer import Serial
from vispark.translate.ir.errors import Refusal
from vispark.translate.ir.types import FLOAT, INT, Scalar
from vispark.translate.ir.values import Array, List, Nothing, Number, Tuple, Value, describe, reindexed

#: What np.pad puts around an axis of a length: the place that an element outside takes its value from, in C++.
_PADDED = {"edge": lambda place, extent: f"({place}) < 0 ? 0 : ({place}) >= {extent} ? {extent - 1} : ({place})",
           "wrap": lambda place, extent: f"((({place}) % {extent}) + {extent}) % {extent}",
           "reflect": lambda place, extent: _mirrored(place, 2 * extent - 2, 2 * extent - 2),
           "symmetric": lambda place, extent: _mirrored(place, 2 * extent, 2 * extent - 1)}


class Rearranged(Numerical):
    """Views and copies whose elements are others of the same array, and pairs of results."""

    # -- elements again -----------------------------------------------------------------------------------------------

    def _repeat(self, a: Value, repeats: Value, axis: Value | None = None) -> Value:
        times = self._whole_number(repeats, "np.repeat's repeats")
        whole = axis is None or isinstance(axis, Nothing)
        array: Any = self._ravel(self._at_least(a, 1)) if whole else self._array_of(a, "np.repeat")
        place = 0 if whole else self._axis(array, axis)
        shape = (*array.shape[:place], array.shape[place] * times, *array.shape[place + 1:])
        return self._copy(reindexed(array, shape, lambda *indices: (
            *indices[:place], f"({indices[place]}) / {times}", *indices[place + 1:])))

    def _tile(self, A: Value, reps: Value) -> Value:
        given = reps.items if isinstance(reps, Tuple | List) else (reps,)
        times = [self._whole_number(one, "np.tile's reps") for one in given]
        array = self._at_least(A, max(1, len(times)))
        times = [1] * (len(array.shape) - len(times)) + times
        shape = tuple(extent * count for extent, count in zip(array.shape, times, strict=True))
        return self._copy(reindexed(array, shape, lambda *indices: tuple(
            index if count == 1 else f"({index}) % {extent}"
            for index, extent, count in zip(indices, array.shape, times, strict=True))))

    def _pad(self, array: Value, pad_width: Value, mode: Value | None = None,
             constant_values: Value | None = None) -> Value:
        found = self._array_of(array, "np.pad")
        how = "constant" if mode is None else mode.what if isinstance(mode, Nothing) else ""
        widths = self._pad_widths(pad_width, len(found.shape))
        shape = tuple(before + extent + behind for extent, (before, behind) in zip(found.shape, widths, strict=True))

        def places(indices: tuple[str, ...]) -> list[str]:
            return [f"{index} - {before}" if before else index
                    for index, (before, _) in zip(indices, widths, strict=True)]

        if how in _PADDED:
            if how == "reflect" and 1 in found.shape:
                raise Refusal("np.pad by reflection needs axes of at least two items")
            return self._copy(reindexed(found, shape, lambda *indices: tuple(
                _PADDED[how](place, extent) for place, extent in zip(places(indices), found.shape, strict=True))))
        if how != "constant":
            raise Refusal(f"np.pad's mode is 'constant', {', '.join(map(repr, _PADDED))} here; pad by np.concatenate")
        given = self._number(constant_values or literal(0), "np.pad's constant_values")
        value = self.fixed(cast(given, found.type))

        def element(*indices: str) -> str:
            inside = [test for place, extent, (before, behind) in zip(places(indices), found.shape, widths, strict=True)
                      for test, needed in ((f"{place} >= 0", before), (f"{place} < {extent}", behind)) if needed]
            one = found.at(*places(indices)).closed
            return f"({' && '.join(inside)} ? {one} : {value.closed})" if inside else one

        return self._copy(Array(found.type, shape, element, cheap=False, volatile=found.volatile))

    def _pad_widths(self, value: Value, axes: int) -> list[tuple[int, int]]:
        """Return the numbers of items that are put before and behind each axis."""
        reason = "np.pad's pad_width"
        if isinstance(value, Number):
            return [(self._whole_number(value, reason),) * 2] * axes
        if not isinstance(value, Tuple | List):
            raise Refusal(f"{reason} is a number, (before, behind), or one such pair for each axis")
        if all(isinstance(one, Number) for one in value.items):
            pair = [self._whole_number(one, reason) for one in value.items]
            return [(pair[0], pair[-1])] * axes
        pairs = [self._pad_widths(one, 1)[0] for one in value.items]
        if len(pairs) not in (1, axes):
            raise Refusal(f"{reason} has {len(pairs)} pairs for {axes} axes")
        return pairs if len(pairs) == axes else pairs * axes

    def _sliding_window_view(self, x: Value, window_shape: Value) -> Value:
        array = self._array_of(x, "sliding_window_view")
        given = window_shape.items if isinstance(window_shape, Tuple | List) else (window_shape,)
        sizes = [self._whole_number(one, "window_shape") for one in given]
        if len(sizes) != len(array.shape):
            raise Refusal(f"window_shape has {len(sizes)} lengths for {len(array.shape)} axes")
        if any(not 0 < size <= extent for size, extent in zip(sizes, array.shape, strict=True)):
            raise Refusal(f"a window of {tuple(sizes)} does not fit an array of shape {array.shape}")
        rest = tuple(extent - size + 1 for extent, size in zip(array.shape, sizes, strict=True))
        axes = len(rest)
        return reindexed(array, (*rest, *sizes), lambda *indices: tuple(
            f"{first} + {second}" for first, second in zip(indices[:axes], indices[axes:], strict=True)))

    def _convolve(self, a: Value, v: Value, mode: Value | None = None) -> Value:
        longer, shorter = (self._one_axis(one, "np.convolve") for one in (a, v))
        if longer.size < shorter.size:
            longer, shorter = shorter, longer
        if not shorter.size:
            raise Refusal("np.convolve of an empty row has no value")
        how = "full" if mode is None else mode.what if isinstance(mode, Nothing) else ""
        ends = {"full": (0, longer.size + shorter.size - 1), "same": ((shorter.size - 1) // 2, longer.size),
                "valid": (shorter.size - 1, longer.size - shorter.size + 1)}
        if how not in ends:
            raise Refusal("np.convolve's mode is 'full', 'same' or 'valid'")
        first, count = ends[how]
        kind = scalars.ufunc("multiply", longer.at("0"), shorter.at("0")).type
        if self.lanes > 1:
            raise Serial
        shorter = shorter if shorter.cheap else self.materialised(shorter, "filter")
        result = self.storage(kind, (count,), "convolved")
        with self.over((count,)) as (place,):
            wide = Scalar("float32") if kind.dtype == "float16" else kind
            total = self.variable(wide, "sum", cast(literal(False if kind.kind == "b" else 0), wide))
            with self.over((shorter.size,), "k") as (turn,):
                at = self.keep(Number(INT, f"{place} + {first} - {turn}", bounds=(-2**20, 2**20), atom=False), "at")
                term = scalars.ufunc("multiply", longer.at(at.text), shorter.at(turn))
                added = cast(scalars.ufunc("add", total, cast(term, wide)), wide)
                inside = "" if how == "valid" else f"if ({at.text} >= 0 && {at.text} < {longer.size}) "
                self.line(f"{inside}{total.text} = {added.text};")
            self.line(f"{result.element(place)} = {cast(replaced(total), kind).text};")
        return result

    # -- two results --------------------------------------------------------------------------------------------------

    def _divmod(self, x1: Value, x2: Value) -> Value:
        return Tuple(tuple(self.elementwise(lambda a, b, name=name: scalars.ufunc(name, a, b), x1, x2)
                           for name in ("floor_divide", "remainder")))

    def _modf(self, x: Value) -> Value:
        return self._two("modf", "fraction", "whole_part", x)

    def _frexp(self, x: Value) -> Value:
        return self._two("frexp", "significand", "binary_exponent", x)

    def _two(self, ufunc: str, first: str, second: str, x: Value) -> Value:
        """Return a ufunc of one number with two results, each by a function of C++."""
        kept = self.plain(x)
        return Tuple(tuple(self.elementwise(_result(ufunc, name, place), kept)
                           for place, name in enumerate((first, second))))

    def _math_frexp(self, x: Value) -> Value:
        return self._two_of_python(x, ("significand", FLOAT), ("binary_exponent", INT))

    def _math_modf(self, x: Value) -> Value:
        return self._two_of_python(x, ("fraction", FLOAT), ("whole_part", FLOAT))

    def _two_of_python(self, x: Value, *parts: tuple[str, Scalar]) -> Value:
        number = self.fixed(cast(self._number(x, "math.frexp and math.modf"), FLOAT))
        return Tuple(tuple(Number(kind, f"{function}<double>({number.text})") for function, kind in parts))

    def _math_ldexp(self, x: Value, i: Value) -> Value:
        number, power = cast(self._number(x, "math.ldexp"), FLOAT), self._number(i, "math.ldexp")
        if power.type.kind not in "iu":
            raise Refusal(f"math.ldexp takes a whole number as its second argument, and this is {power.type}")
        return Number(FLOAT, f"load_exponent<double>({number.text}, {cast(power, INT).text})")

    # -- checks -------------------------------------------------------------------------------------------------------

    def _whole_number(self, value: Value, name: str) -> int:
        if not isinstance(value, Number):
            raise Refusal(f"{name} is one whole number here, and this is {describe(value)}")
        found = self.static(value, f"{name} must be known before the kernel runs")
        if found < 0:
            raise Refusal(f"{name} is {found}; it is not negative")
        return found


def replaced(number: Number) -> Number:
    """Return the number that a variable holds now."""
    return Number(number.type, number.text)


def _mirrored(place: str, period: int, last: int) -> str:
    turned = f"((({place}) % {period}) + {period}) % {period}"
    return f"{turned} < {(last + 2) // 2} ? {turned} : {last} - {turned}"


def _result(ufunc: str, function: str, place: int) -> Callable[[Number], Number]:
    def one(number: Number) -> Number:
        kind = number.type.strong.numpy
        if kind.kind == "c":
            raise Refusal(f"NumPy has no {ufunc} of {number.type}")
        loop = getattr(np, ufunc).resolve_dtypes((kind, None, None))
        work = Scalar("float32" if loop[0].name == "float16" else loop[0].name)
        given = cast(cast(number, Scalar(loop[0].name)), work)
        computed = Number(Scalar("int32") if function == "binary_exponent" else work,
                          f"{function}<{work.c}>({given.text})")
        return cast(computed, Scalar(loop[1 + place].name))
    return one
