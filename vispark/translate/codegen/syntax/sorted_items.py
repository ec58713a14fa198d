"""Writer of Python's ``sorted``: items ordered by themselves, or by the keys that a function gives of them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace

from vispark.translate.codegen.arguments import array_argument, items_argument, number_argument
from vispark.translate.codegen.dispatch import expression, lowers_call
from vispark.translate.codegen.emitter import Emitter, Serial
from vispark.translate.codegen.lowering import call_library
from vispark.translate.codegen.numpy.sorting import in_order, sortable
from vispark.translate.codegen.operands import as_number, plain, static
from vispark.translate.codegen.scalar.casts import cast, literal
from vispark.translate.codegen.syntax.comprehensions import items_of_each, written_items
from vispark.translate.codegen.syntax.functions import call
from vispark.translate.ir import nodes
from vispark.translate.ir.errors import Refusal
from vispark.translate.ir.types import INT, Scalar
from vispark.translate.ir.values import (
    Array,
    ForRange,
    List,
    Nothing,
    Number,
    Tuple,
    Value,
    describe,
    reindexed,
    shown,
    type_of,
)
from vispark.translate.language.registry import lowers

_NAME = "sorted()"
#: Returns the item at a place, which is a C++ expression.
_At = Callable[[str], Value]


@lowers_call("sorted")
def sorted_each(emit: Emitter, name: str, node: nodes.Call) -> Value | None:
    """Return ``sorted`` of a generator, whose items are written out."""
    first = node.arguments[0] if node.arguments else None
    if not isinstance(first, nodes.Each):
        return None
    return call_library(emit, name, (List(items_of_each(emit, first)),),
                        {key: expression(emit, value) for key, value in node.keywords})


@lowers("sorted", "iterable / * key= reverse=")
def python_sorted(emit: Emitter, iterable: Value, key: Value | None = None, reverse: Value | None = None) -> List:
    """Return ``sorted(iterable, key, reverse)``."""
    turned = literal(False) if reverse is None else plain(reverse)
    is_reversed = bool(static(turned, "reverse must be known before the kernel runs"))
    if isinstance(iterable, ForRange):
        iterable = List(written_items(iterable))
    if isinstance(iterable, Tuple | List) and not iterable.items:
        return List(())
    items = items_argument(iterable, _NAME)
    if key is not None and not isinstance(key, Nothing):
        return _by_key(emit, items, lambda item: call(emit, key, (item,), {}), is_reversed)
    if isinstance(items[0], Tuple):
        return _by_key(emit, items, lambda item: item, is_reversed)
    return _by_themselves(emit, iterable, [number_argument(item, _NAME) for item in items], is_reversed)


def _by_themselves(emit: Emitter, iterable: Value, items: Sequence[Number], is_reversed: bool) -> List:
    """Return numbers in their own order, by a network."""
    _of_one_type([item.type for item in items], f"{_NAME} is of numbers of one type here, and these are")
    row = iterable if isinstance(iterable, Array) else array_argument(emit, List(tuple(items)), _NAME)
    stored = in_order(emit, sortable(emit, row, "sorted"))
    ordered = tuple(replace(stored.at(str(number)), type=items[0].type) for number in range(len(items)))
    return List(ordered[::-1] if is_reversed else ordered)


def _by_key(emit: Emitter, items: Sequence[Value], key: Callable[[Value], Value], is_reversed: bool) -> List:
    """Return items in the order of their keys; those of equal keys stay in theirs, also in reverse."""
    if emit.lanes > 1:
        raise Serial
    own = [emit.snapshot(item) for item in items]
    # What is sorted from the last item on, and turned round, has equal ones in their order.
    own = own[::-1] if is_reversed else own
    places = _places(emit, [_parts(emit, key(item)) for item in own])
    at = _column(emit, own)
    ordered = [at(places.element(str(number))) for number in range(len(own))]
    return List(tuple(ordered[::-1] if is_reversed else ordered))


def _parts(emit: Emitter, key: Value) -> tuple[Number, ...]:
    """Return the numbers of a key, which is one or a tuple of some."""
    parts = key.items if isinstance(key, Tuple) else (key,)
    numbers = tuple(emit.fixed(as_number(part), "key") for part in parts if isinstance(plain(part), Number))
    if len(numbers) < len(parts) or not parts:
        raise Refusal(f"the key of {_NAME} gives a number, or a tuple of numbers, and this one gives {describe(key)}")
    if any(part.type.kind == "c" for part in numbers):
        raise Refusal(f"the key of {_NAME} gives complex numbers, which have no order; give abs() of them")
    return numbers


def _places(emit: Emitter, keys: Sequence[tuple[Number, ...]]) -> Array:
    """Return the places of items in the order of their keys: sorted by the last number of a key first."""
    if len({len(parts) for parts in keys}) > 1:
        raise Refusal(f"the key of {_NAME} gives tuples of different lengths")
    count, before = len(keys), None
    for part in reversed(range(len(keys[0]))):
        column = [parts[part] for parts in keys]
        kind = _of_one_type([number.type.strong for number in column],
                            f"the key of {_NAME} gives numbers of one type here, and these are")
        stored = _stored(emit, column, kind, "keys")
        places = emit.storage(Scalar("int64"), (count,), "places")
        if before is not None:
            stored = emit.materialised(reindexed(stored, (count,), _looked_up(before)), "keys")
        emit.line(f"sort_places<{count}>({stored.storage}, {places.storage});")
        before = places if before is None else emit.materialised(reindexed(before, (count,), _looked_up(places)),
                                                                 "places")
    assert before is not None
    return before


def _looked_up(places: Array) -> Callable[[str], tuple[str, ...]]:
    """Return a function from an index to the place there."""
    return lambda index: (places.element(index),)


def _column(emit: Emitter, items: Sequence[Value]) -> _At:
    """Return a function of places, as C++ expressions, that gives the items there."""
    first = items[0]
    if any(type_of(item) != type_of(first) for item in items):
        other = next(item for item in items if type_of(item) != type_of(first))
        raise Refusal(f"{_NAME} is of items of one type here, and these are {shown(type_of(first))} and "
                      f"{shown(type_of(other))}")
    if isinstance(first, Tuple):
        columns = [_column(emit, column) for column in zip(*(item.items for item in items if isinstance(item, Tuple)),
                                                           strict=True)]
        return lambda place: replace(first, items=tuple(at(place) for at in columns))
    if isinstance(first, Number):
        numbers = [item for item in items if isinstance(item, Number)]
        return functools.partial(_number_at, _stored(emit, numbers, first.type, "items"), numbers)
    if not isinstance(first, Array):
        raise Refusal(f"{_NAME} is of numbers, tuples and rows here, and these are {describe(first)}")
    rows = emit.storage(first.type, (len(items), *first.shape), "items")
    for number, item in enumerate(items):
        assert isinstance(item, Array)
        emit.copy(_row_at(rows, str(number)), item)
    return functools.partial(_row_at, rows)


def _row_at(rows: Array, place: str) -> Array:
    return reindexed(rows, rows.shape[1:], lambda *indices: (place, *indices))


def _number_at(stored: Array, items: Sequence[Number], place: str) -> Number:
    """Return the number at a place, of Python ints with the bounds that they all have."""
    number = replace(stored.at(place), type=items[0].type)
    limits = [item.bounds for item in items if item.bounds is not None]
    if number.type != INT or len(limits) < len(items):
        return number
    bounds = min(low for low, _ in limits), max(high for _, high in limits)
    within = replace(number, bounds=bounds)
    return replace(within, text=f"(int){within.text}", atom=False) if within.narrow else within


def _stored(emit: Emitter, numbers: Sequence[Number], kind: Scalar, name: str) -> Array:
    """Return an array with numbers, which a loop may read."""
    array = emit.storage(kind.strong, (len(numbers),), name)
    for place, number in enumerate(numbers):
        emit.line(f"{array.element(str(place))} = {cast(number, kind.strong).text};")
    return array


def _of_one_type(types: Sequence[Scalar], otherwise: str) -> Scalar:
    """Return the type that all numbers have; refuse several with a text that they are added to."""
    kinds = dict.fromkeys(types)
    if len(kinds) > 1:
        raise Refusal(f"{otherwise} {' and '.join(map(str, kinds))}")
    return types[0]
