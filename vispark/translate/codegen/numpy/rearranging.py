"""NumPy's functions whose elements are others of the same arrays: turned, repeated, framed, joined."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from vispark.translate.codegen.arguments import (
    array_argument,
    at_least,
    axis_argument,
    count_argument,
    items_argument,
    number_argument,
    row_argument,
)
from vispark.translate.codegen.emitter import Emitter, Serial
from vispark.translate.codegen.lowering import call_library
from vispark.translate.codegen.numpy.creation import copy, filled
from vispark.translate.codegen.operands import plain, static
from vispark.translate.codegen.scalar import numbers
from vispark.translate.codegen.scalar.casts import cast, literal
from vispark.translate.ir.errors import Refusal
from vispark.translate.ir.types import Scalar
from vispark.translate.ir.values import Array, List, Nothing, Number, Tuple, Value, reindexed
from vispark.translate.language.registry import lowers

#: What np.pad puts around an axis of a length: the place that an element outside takes its value from, in C++.
_PADDED = {"edge": lambda place, extent: f"({place}) < 0 ? 0 : ({place}) >= {extent} ? {extent - 1} : ({place})",
           "wrap": lambda place, extent: f"((({place}) % {extent}) + {extent}) % {extent}",
           "reflect": lambda place, extent: _mirrored(place, 2 * extent - 2, 2 * extent - 2),
           "symmetric": lambda place, extent: _mirrored(place, 2 * extent, 2 * extent - 1)}


@lowers("numpy.transpose", "a axes!", method="transpose", instead={"axes": "the axes are turned round"})
def transpose(emit: Emitter, a: Value) -> Value:
    """Return ``np.transpose(a)``."""
    array = plain(a)
    if isinstance(array, Number):
        return array
    return reindexed(array, array.shape[::-1], lambda *indices: indices[::-1])


@lowers("numpy.flip", "m axis=")
def flip(emit: Emitter, m: Value, axis: Value | None = None) -> Value:
    """Return ``np.flip(m, axis)``."""
    array = array_argument(emit, m, "np.flip")
    chosen = range(len(array.shape)) if axis is None or isinstance(axis, Nothing) else [
        axis_argument(array, axis)]
    return reindexed(array, array.shape, lambda *indices: tuple(
        f"{array.shape[place] - 1} - ({index})" if place in chosen else index
        for place, index in enumerate(indices)))


@lowers("numpy.roll", "a shift axis!", instead={"axis": "it is of a row"})
def roll(emit: Emitter, a: Value, shift: Value) -> Value:
    """Return ``np.roll(a, shift)``."""
    array = row_argument(emit, a, "np.roll")
    by = static(plain(shift), "np.roll's shift must be known before the kernel runs")
    size = max(1, array.size)
    by %= size
    moved = reindexed(array, array.shape,
                      lambda index: (f"(({index}) + {size - by}) % {size}" if by else index,))
    return copy(emit, moved)


@lowers("numpy.reshape", "a / shape order! * copy!")
def reshape(emit: Emitter, a: Value, shape: Value) -> Value:
    """Return ``np.reshape(a, shape)``."""
    return reshape_method(emit, a, shape)


@lowers("reshape", "value *shape order! copy!", method="reshape")
def reshape_method(emit: Emitter, value: Value, *shape: Value) -> Value:
    """Return ``value.reshape(*shape)``."""
    array = array_argument(emit, value, "np.reshape")
    extents = [static(plain(one), "an array's shape must be known before the kernel runs") for given in
               shape for one in (given.items if isinstance(given, Tuple | List) else (given,))]
    known = math.prod(extent for extent in extents if extent >= 0)
    if extents.count(-1) == 1 and known and not array.size % known:
        extents[extents.index(-1)] = array.size // known
    if math.prod(extents) != array.size or min(extents, default=0) < 0:
        raise Refusal(f"an array of {array.size} elements does not have the shape {tuple(extents)}")
    strides = [math.prod(extents[place + 1:]) for place in range(len(extents))]

    def where(*indices: str) -> tuple[str, ...]:
        flat = " + ".join(f"({index}) * {stride}" for index, stride in zip(indices, strides, strict=True)) or "0"
        behind = [math.prod(array.shape[place + 1:]) for place in range(len(array.shape))]
        return tuple(f"(({flat}) / {stride}) % {extent}" for stride, extent in
                     zip(behind, array.shape, strict=True)) if len(array.shape) > 1 else (flat,)

    return reindexed(array, tuple(extents), where)


@lowers("numpy.ravel", "a order!", method="ravel")
def ravel(emit: Emitter, a: Value) -> Value:
    """Return ``np.ravel(a)``."""
    return reshape(emit, a, literal(-1)) if array_argument(emit, a, "np.ravel").size else \
        filled(emit, (0,), literal(0), array_argument(emit, a, "np.ravel").type)


@lowers("flatten", "value order!", method="flatten")
def flatten_method(emit: Emitter, value: Value) -> Value:
    """Return ``value.flatten()``."""
    return copy(emit, ravel(emit, value))


@lowers("numpy.squeeze", "a axis!", method="squeeze")
def squeeze(emit: Emitter, a: Value) -> Value:
    """Return ``np.squeeze(a)``."""
    array = array_argument(emit, a, "np.squeeze")
    extents = [literal(extent) for extent in array.shape if extent != 1]
    return reshape_method(emit, array, *extents) if extents else array.at(*("0",) * len(array.shape))


@lowers("numpy.swapaxes", "a axis1 axis2", method="swapaxes")
def swapaxes(emit: Emitter, a: Value, axis1: Value, axis2: Value) -> Value:
    """Return a view with two axes in each other's places."""
    array = array_argument(emit, a, "np.swapaxes")
    order = list(range(len(array.shape)))
    one, other = axis_argument(array, axis1), axis_argument(array, axis2)
    order[one], order[other] = other, one
    return reindexed(array, tuple(array.shape[axis] for axis in order),
                     lambda *indices: tuple(indices[axis] for axis in order))


@lowers("numpy.expand_dims", "a axis")
def expand_dims(emit: Emitter, a: Value, axis: Value) -> Value:
    """Return ``np.expand_dims(a, axis)``."""
    array = array_argument(emit, a, "np.expand_dims")
    place = axis_argument(array, axis, 1)
    return reindexed(array, (*array.shape[:place], 1, *array.shape[place:]),
                     lambda *indices: (*indices[:place], *indices[place + 1:]))


@lowers("numpy.repeat", "a repeats axis=")
def repeat(emit: Emitter, a: Value, repeats: Value, axis: Value | None = None) -> Value:
    """Return ``np.repeat(a, repeats, axis)``."""
    times = count_argument(repeats, "np.repeat's repeats")
    whole = axis is None or isinstance(axis, Nothing)
    array: Any = ravel(emit, at_least(emit, a, 1)) if whole else array_argument(emit, a, "np.repeat")
    place = 0 if whole else axis_argument(array, axis)
    shape = (*array.shape[:place], array.shape[place] * times, *array.shape[place + 1:])
    return copy(emit, reindexed(array, shape, lambda *indices: (
        *indices[:place], f"({indices[place]}) / {times}", *indices[place + 1:])))


@lowers("numpy.tile", "A reps")
def tile(emit: Emitter, A: Value, reps: Value) -> Value:
    """Return ``np.tile(A, reps)``."""
    repeats = reps.items if isinstance(reps, Tuple | List) else (reps,)
    times = [count_argument(one, "np.tile's reps") for one in repeats]
    array = at_least(emit, A, max(1, len(times)))
    times = [1] * (len(array.shape) - len(times)) + times
    shape = tuple(extent * count for extent, count in zip(array.shape, times, strict=True))
    return copy(emit, reindexed(array, shape, lambda *indices: tuple(
        index if count == 1 else f"({index}) % {extent}"
        for index, extent, count in zip(indices, array.shape, times, strict=True))))


@lowers("numpy.pad", "array pad_width mode= * constant_values=")
def pad(emit: Emitter, array: Value, pad_width: Value, mode: Value | None = None,
        constant_values: Value | None = None) -> Value:
    """Return ``np.pad(array, pad_width, mode, constant_values)``."""
    source = array_argument(emit, array, "np.pad")
    how = "constant" if mode is None else mode.what if isinstance(mode, Nothing) else ""
    widths = _pad_widths(pad_width, len(source.shape))
    shape = tuple(before + extent + behind for extent, (before, behind) in zip(source.shape, widths, strict=True))

    def places(indices: tuple[str, ...]) -> list[str]:
        return [f"{index} - {before}" if before else index
                for index, (before, _) in zip(indices, widths, strict=True)]

    if how in _PADDED:
        if how == "reflect" and 1 in source.shape:
            raise Refusal("np.pad by reflection needs axes of at least two items")
        return copy(emit, reindexed(source, shape, lambda *indices: tuple(
            _PADDED[how](place, extent) for place, extent in zip(places(indices), source.shape, strict=True))))
    if how != "constant":
        raise Refusal(f"np.pad's mode is 'constant', {', '.join(map(repr, _PADDED))} here; pad by np.concatenate")
    fill = number_argument(constant_values or literal(0), "np.pad's constant_values")
    value = emit.fixed(cast(fill, source.type))

    def element(*indices: str) -> str:
        inside = [test for place, extent, (before, behind) in zip(places(indices), source.shape, widths, strict=True)
                  for test, needed in ((f"{place} >= 0", before), (f"{place} < {extent}", behind)) if needed]
        one = source.at(*places(indices)).closed
        return f"({' && '.join(inside)} ? {one} : {value.closed})" if inside else one

    return copy(emit, Array(source.type, shape, element, cheap=False, volatile=source.volatile))


def _pad_widths(value: Value, axes: int) -> list[tuple[int, int]]:
    """Return the numbers of items that are put before and behind each axis."""
    reason = "np.pad's pad_width"
    if isinstance(value, Number):
        return [(count_argument(value, reason),) * 2] * axes
    if not isinstance(value, Tuple | List):
        raise Refusal(f"{reason} is a number, (before, behind), or one such pair for each axis")
    if all(isinstance(one, Number) for one in value.items):
        pair = [count_argument(one, reason) for one in value.items]
        return [(pair[0], pair[-1])] * axes
    pairs = [_pad_widths(one, 1)[0] for one in value.items]
    if len(pairs) not in (1, axes):
        raise Refusal(f"{reason} has {len(pairs)} pairs for {axes} axes")
    return pairs if len(pairs) == axes else pairs * axes


@lowers("numpy.lib.stride_tricks.sliding_window_view", "x window_shape axis! * subok! writeable!")
def sliding_window_view(emit: Emitter, x: Value, window_shape: Value) -> Value:
    """Return ``np.lib.stride_tricks.sliding_window_view(x, window_shape)``."""
    array = array_argument(emit, x, "sliding_window_view")
    extents = window_shape.items if isinstance(window_shape, Tuple | List) else (window_shape,)
    sizes = [count_argument(one, "window_shape") for one in extents]
    if len(sizes) != len(array.shape):
        raise Refusal(f"window_shape has {len(sizes)} lengths for {len(array.shape)} axes")
    if any(not 0 < size <= extent for size, extent in zip(sizes, array.shape, strict=True)):
        raise Refusal(f"a window of {tuple(sizes)} does not fit an array of shape {array.shape}")
    windows = tuple(extent - size + 1 for extent, size in zip(array.shape, sizes, strict=True))
    axes = len(windows)
    return reindexed(array, (*windows, *sizes), lambda *indices: tuple(
        f"{first} + {second}" for first, second in zip(indices[:axes], indices[axes:], strict=True)))


@lowers("numpy.concatenate", "arrays / axis= out! * dtype! casting!")
def concatenate(emit: Emitter, arrays: Value, axis: Value | None = None) -> Value:
    """Return arrays one behind the other, along the first axis."""
    if axis is not None and static(plain(axis), "the axis must be known before the kernel runs") != 0:
        raise Refusal("np.concatenate is along axis 0 here")
    parts = [array_argument(emit, value, "np.concatenate") for value in items_argument(arrays, "np.concatenate")]
    inner = parts[0].shape[1:]
    if any(part.shape[1:] != inner for part in parts):
        raise Refusal("arrays that are joined have one shape behind the first axis; these differ")
    kind = Scalar(np.result_type(*(part.type.numpy for part in parts)).name)
    extent = sum(part.shape[0] for part in parts)
    if emit.lanes > 1:
        raise Serial
    result, first = emit.storage(kind, (extent, *inner), "joined"), 0
    for part in parts:
        with emit.over(part.shape) as indices:
            place = f"{indices[0]} + {first}" if first else indices[0]
            element = numbers.convert(part.at(*indices), kind)
            emit.line(f"{result.element(place, *indices[1:])} = {element.text};")
        first += part.shape[0]
    return result


@lowers("numpy.hstack", "tup * dtype! casting!")
def hstack(emit: Emitter, tup: Value) -> Value:
    """Return ``np.hstack(tup)``."""
    parts = [at_least(emit, value, 1) for value in items_argument(tup, "np.hstack")]
    if any(isinstance(part, Array) and len(part.shape) > 1 for part in parts):
        raise Refusal("np.hstack is of numbers and rows here; np.concatenate joins others")
    return concatenate(emit, Tuple(tuple(parts)))


@lowers("numpy.vstack", "tup * dtype! casting!")
def vstack(emit: Emitter, tup: Value) -> Value:
    """Return ``np.vstack(tup)``."""
    return concatenate(emit, Tuple(tuple(at_least(emit, value, 2) for value in items_argument(tup, "np.vstack"))))


@lowers("numpy.stack", "arrays axis! out! * dtype! casting!",
        instead={"axis": "rows are stacked along axis 0; .T of that has them along axis 1"})
def stack(emit: Emitter, arrays: Value) -> Value:
    """Return ``np.stack(arrays)``."""
    return call_library(emit, "numpy.array", (List(tuple(items_argument(arrays, "np.stack"))),), {})


@lowers("numpy.append", "arr values axis!", instead={"axis": "use np.concatenate"})
def append(emit: Emitter, arr: Value, values: Value) -> Value:
    """Concatenate two arrays; without an axis, flatten both first."""
    parts = (at_least(emit, one, 1) for one in (arr, values))
    return concatenate(emit, Tuple(tuple(one if len(one.shape) == 1 else ravel(emit, one) for one in parts)))


def _mirrored(place: str, period: int, last: int) -> str:
    turned = f"((({place}) % {period}) + {period}) % {period}"
    return f"{turned} < {(last + 2) // 2} ? {turned} : {last} - {turned}"
