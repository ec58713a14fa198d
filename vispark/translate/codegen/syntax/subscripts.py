"""Subscripts: numbers, slices, masks and lists of places in the brackets of arrays and tuples."""

from __future__ import annotations

import dataclasses
import functools
import re
from typing import Any

from vispark.translate.codegen.dispatch import errors_at, expression, lowers_node, number_of
from vispark.translate.codegen.emitter import Emitter
from vispark.translate.codegen.lowering import call_library
from vispark.translate.codegen.numpy.ragged import gathered_by_row, item_of_row
from vispark.translate.codegen.operands import as_number, plain, static
from vispark.translate.codegen.scalar.casts import cast, range_of
from vispark.translate.codegen.syntax.dynamic_slices import window_of
from vispark.translate.codegen.syntax.iterables import element_of
from vispark.translate.frontend import index_faults
from vispark.translate.ir import nodes
from vispark.translate.ir.errors import NotConstant, Refusal
from vispark.translate.ir.types import INT, NUMPY_BOOL, Scalar
from vispark.translate.ir.values import (
    Array,
    ArrayType,
    Dict,
    List,
    ListType,
    NamedTupleType,
    Nothing,
    Number,
    RaggedRow,
    Selected,
    Tuple,
    Value,
    describe,
    join_types,
    plus,
    reindexed,
    shown,
    times,
    type_of,
)


@lowers_node(nodes.Index)
def lower_index(emit: Emitter, node: nodes.Index) -> Value:
    """Return ``value[...]``."""
    value = expression(emit, node.value)
    if isinstance(value, Tuple | List):
        return _item(emit, value, node)
    if isinstance(value, Number) and not value.type.weak and not node.indices:
        return value
    if isinstance(value, RaggedRow) and len(node.indices) == 1:
        if isinstance(node.indices[0], nodes.Slice):
            raise Refusal("a row whose length only data says has no slices; write a loop, as in "
                          "for i in range(1, len(p)): total += p[i]")
        return item_of_row(emit, value, _index_of(emit, node.indices[0]), _subscript(emit, node))
    if isinstance(value, Dict):
        raise Refusal(f"{describe(value)} has no items by number; write the name of a field, as r[\"x\"]")
    if not isinstance(value, Array):
        raise Refusal(f"{describe(value)} has no items")
    if len(node.indices) != 1 or isinstance(node.indices[0], nodes.Slice | nodes.Literal):
        return _sliced(emit, value, node)
    index = expression(emit, node.indices[0])
    if isinstance(index, Array) and index.type.kind == "b" and index.shape == value.shape:
        return Selected(value, index)
    if isinstance(index, RaggedRow):
        return gathered_by_row(emit, value, index, _subscript(emit, node))
    if isinstance(index, List) or (isinstance(index, Array) and index.type.kind in "iu"):
        return gathered(emit, value, index, node)
    return indexed(emit, value, node, index)


@lowers_node(nodes.Slice)
def lower_slice(emit: Emitter, node: nodes.Slice) -> Value:
    """Refuse a slice outside of brackets."""
    raise Refusal("a slice stands inside [...] only")


def _sliced(emit: Emitter, array: Array, node: nodes.Index) -> Value:
    """Return ``array[...]``; of a row whose slice has ends that only the kernel knows, the items between these."""
    one = node.indices[0] if len(node.indices) == 1 else None
    if not isinstance(one, nodes.Slice) or len(array.shape) != 1 or one.step not in (None, nodes.Literal(1)):
        return indexed(emit, array, node)
    try:
        with emit.detached() as lines:
            result = indexed(emit, array, node)
    except NotConstant as error:
        ends = [_end_of(emit, part, default, array.shape[0])
                for part, default in ((one.start, 0), (one.stop, array.shape[0]))]
        low, high = ends

        def inside(index: str) -> str:
            return f"({low} <= {index} && {index} < {high})"

        return Selected(array, Array(NUMPY_BOOL, array.shape, inside), str(error))
    emit.put(lines)
    return result


def _end_of(emit: Emitter, node: nodes.Expression | None, default: int, extent: int) -> str:
    """Return the place where a slice of a row begins or ends, as Python counts it."""
    value = Nothing() if node is None else expression(emit, node)
    if isinstance(value, Nothing):
        return str(default)
    number = as_number(value, "a slice's end")
    if number.type.kind not in "iu":
        raise Refusal(f"a slice's end is {number.type}; it must be an integer")
    wide = emit.keep(dataclasses.replace(cast(number, INT), bounds=None), "end")
    return emit.keep(Number(INT, f"{wide.text} < 0 ? {wide.text} + {extent} : {wide.text}", atom=False), "end").text


def gathered(emit: Emitter, array: Array, index: List | Array, node: nodes.Index) -> Value:
    """Return ``array[[1, 4]]``: the items at these places along the first axis."""
    extent = array.shape[0]
    if isinstance(index, List):
        places = [element_index(emit, plain(one), extent, node) for one in index.items]
        items = List(tuple(element_of(array, place) for place in places))
        return call_library(emit, "numpy.array", (items,), {})
    if not index.cheap:
        index = emit.materialised(index, "places")
    axes, chosen, subscript = len(index.shape), index, _subscript(emit, node)

    def where(*indices: str) -> tuple[str, ...]:
        return f"checked_index<{extent}>({chosen.at(*indices[:axes]).text}, {subscript})", *indices[axes:]

    return dataclasses.replace(reindexed(array, (*index.shape, *array.shape[1:]), where), cheap=False, fresh=True)


def _item(emit: Emitter, value: Tuple | List, node: nodes.Index) -> Value:
    indices = node.indices
    if len(indices) == 1 and isinstance(indices[0], nodes.Slice):
        return type(value)(value.items[slice(*_slice_parts(emit, indices[0]))])
    if not indices:
        raise Refusal("a tuple has no item (); its items are counted from 0")
    index = number_of(emit, indices[0], "an index")
    if len(indices) == 1 and not index.known and index.sources is None and index.type.kind in "iu":
        return picked(emit, value.items, index, _subscript(emit, node))
    position = static(index, "the index of a tuple's item must be known before the kernel runs")
    if len(indices) > 1 or not -len(value.items) <= position < len(value.items):
        raise Refusal(f"a tuple of {len(value.items)} has no item {position}")
    return value.items[position]


def indexed(emit: Emitter, array: Array, subscript: nodes.Index, only: Value | None = None) -> Value:
    """Return ``array[...]`` by numbers, slices, None and ``...``; ``only`` is the one index's value, if it is
    known.
    """
    axis, shape = 0, list[int]()
    maps: list[Any] = []
    for node in _expanded(array, subscript.indices):
        if isinstance(node, nodes.Literal) and node.value is None:
            shape.append(1)
            maps.append(None)
            continue
        extent = array.shape[axis]
        axis += 1
        if isinstance(node, nodes.Slice):
            start, count, step = _range_of(emit, node, extent)
            maps.append((start, step, len(shape)))
            shape.append(count)
        else:
            maps.append(element_index(emit, _index_of(emit, node, only), extent, subscript))
    places = [entry for entry in maps if entry is not None]

    def where(*indices: str) -> tuple[str, ...]:
        return tuple(place if isinstance(place, str) else f"{indices[place[2]]} + {place[0]}"
                     if isinstance(place[0], str) else plus(times(indices[place[2]], place[1]), place[0])
                     for place in places)

    if not shape:
        return array.at(*where())
    return reindexed(array, tuple(shape), where)


def _expanded(array: Array, indices: tuple[nodes.Expression, ...]) -> list[nodes.Expression]:
    """Return the indices with ``...`` and missing ones written as slices."""
    whole = nodes.Slice(None, None, None)
    count = sum(not (isinstance(node, nodes.Literal) and node.value in (None, Ellipsis)) for node in indices)
    missing = len(array.shape) - count
    if missing < 0:
        raise Refusal(f"{describe(array)} has {len(array.shape)} axes, and {count} indices are given")
    expanded: list[nodes.Expression] = []
    for node in indices:
        if isinstance(node, nodes.Literal) and node.value is Ellipsis:
            expanded += [whole] * missing
            missing = 0
        else:
            expanded.append(node)
    return expanded + [whole] * missing


def _index_of(emit: Emitter, node: nodes.Expression, known: Value | None = None) -> Number:
    value = expression(emit, node) if known is None else known
    if isinstance(value, Array) and value.type.kind == "b":
        with errors_at(emit, node):
            raise Refusal("how many items a mask selects is not known before the kernel runs; their sum is "
                          "np.where(mask, p, 0).sum(), their mean this / mask.sum(), their largest np.where(mask, "
                          "p, -np.inf).max()")
    with errors_at(emit, node):
        return as_number(value, "an index")


def _subscript(emit: Emitter, node: nodes.Index) -> str:
    """Return the number by which a kernel reports a subscript that ends it."""
    return f"{index_faults.subscript(emit.frame.definition, node):#x}"


def element_index(emit: Emitter, number: Number, extent: int, node: nodes.Index | str) -> str:
    """Return a C++ index expression; outside the array is an error where it is known, a fault where it is not."""
    if not isinstance(number, Number):
        raise Refusal(f"an index is {describe(number)}; it must be an integer")
    if number.type.kind not in "iu":
        raise Refusal(f"an index is {number.type}; it must be an integer, as int(...) gives; whole numbers in a record "
                      "beside others are of the others' type")
    if number.known and not -extent <= number.value < extent:
        raise Refusal(f"index {number.value} is outside an axis of length {extent}")
    if number.known:
        return str(number.value % extent)
    low, high = number.bounds or range_of(number.type)
    if (number.bounds and high < -extent) or low >= extent:
        raise Refusal(f"the index is at least {low} here, outside an axis of length {extent}" if low >= extent else
                      f"the index is at most {high} here, outside an axis of length {extent}")
    if low >= 0 and high < extent:
        return emit.fixed(number, "i").text if number.variable or not _simple(number.text) else number.text
    if -extent <= low and high < 0:
        return plus(emit.fixed(number, "i").text, extent)
    subscript = node if isinstance(node, str) else _subscript(emit, node)
    checked = f"checked_index<{extent}>({number.text}, {subscript})"
    return emit.keep(Number(INT, checked, bounds=(0, extent - 1)), "i").text


def _range_of(emit: Emitter, node: nodes.Slice, extent: int) -> tuple[int | str, int, int]:
    """Start, count and step of a slice."""
    window = window_of(emit, node, extent)
    if window is not None:
        return *window, 1
    places = range(*slice(*_slice_parts(emit, node)).indices(extent))
    return places.start, len(places), places.step


def _slice_parts(emit: Emitter, node: nodes.Slice) -> list[int | None]:
    reason = "a slice's ends must be known before the kernel runs, as lengths are compiled in; use a loop"
    values = [Nothing() if part is None else expression(emit, part) for part in (node.start, node.stop, node.step)]
    numbers = [None if isinstance(value, Nothing) else as_number(value) for value in values]
    try:
        for number in numbers:
            if number is not None and number.numpy_int:
                static(number, reason)
        parts = [None if number is None else static(number, reason) for number in numbers]
    except Refusal as error:
        raise NotConstant(str(error)) from error
    if parts[2] == 0:
        raise Refusal("a slice's step is 0")
    return parts


def picked(emit: Emitter, items: tuple[Value, ...], index: Number, subscript: str) -> Value:
    """Return an item of a tuple whose place is only known as the kernel runs, by an array of them."""
    if not items:
        raise Refusal("an empty tuple has no items")
    whole = functools.reduce(join_types, map(type_of, items))
    index = emit.fixed(index)
    if isinstance(whole, tuple | NamedTupleType | ListType):
        parts = zip(*(item.items for item in items if isinstance(item, Tuple | List)), strict=True)
        chosen = tuple(picked(emit, part, index, subscript) for part in parts)
        return List(chosen) if isinstance(whole, ListType) else Tuple(chosen, getattr(whole, "names", ()))
    if not isinstance(whole, Scalar | ArrayType):
        raise Refusal(f"the index of a tuple's item must be known before the kernel runs where the items are "
                      f"{shown(whole)}")
    kind, inner = (whole.element, whole.shape) if isinstance(whole, ArrayType) else (whole, ())
    place = element_index(emit, index, len(items), subscript)
    array = emit.storage(kind, (len(items), *inner), "items")
    for number, item in enumerate(items):
        with emit.over(inner) as indices:
            one: Any = item.at(*indices) if isinstance(item, Array) else item
            emit.line(f"{array.element(str(number), *indices)} = {cast(one, kind).text};")
    emit.barrier(array)
    return element_of(array, place)


def _simple(text: str) -> bool:
    return re.fullmatch(r"[\w\s+*()-]+", text) is not None
