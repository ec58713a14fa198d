"""Writer of assignments: to names, to several names, to items of arrays the function made.

A variable of Python's has no type; a value has. So an assignment makes a new C++ variable, or writes to the one there
is if the type is the same.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from vispark.translate.codegen.dispatch import errors_at, expression, lowers_node, number_of
from vispark.translate.codegen.elementwise import elementwise, stretched
from vispark.translate.codegen.emitter import Emitter, Serial
from vispark.translate.codegen.operands import as_number, plain
from vispark.translate.codegen.scalar.casts import cast
from vispark.translate.codegen.syntax.iterables import element_of
from vispark.translate.codegen.syntax.operators import operate
from vispark.translate.codegen.syntax.subscripts import indexed
from vispark.translate.ir import nodes
from vispark.translate.ir.errors import Refusal
from vispark.translate.ir.liveness import NameSet
from vispark.translate.ir.types import INT
from vispark.translate.ir.values import (
    Array,
    Dict,
    List,
    LocalFunction,
    Named,
    Nothing,
    Number,
    RaggedRow,
    Selected,
    SparseRow,
    Tuple,
    Value,
    describe,
    reindexed,
)

#: The most items that a name with a * takes some of.
MOST_UNPACKED = 64


@contextlib.contextmanager
def in_place(emit: Emitter) -> Iterator[None]:
    """Yield names that are given numbers stand for these expressions, without variables."""
    before, emit.named_in_place = emit.named_in_place, True
    try:
        yield
    finally:
        emit.named_in_place = before


@lowers_node(nodes.Assign)
def lower_assign(emit: Emitter, statement: nodes.Assign, after: NameSet) -> bool:
    """Write an assignment to one target or several."""
    value = expression(emit, statement.value)
    if isinstance(value, Tuple | List) and (len(statement.targets) > 1
                                            or isinstance(statement.targets[0], nodes.TupleOf)):
        value = _all_at_once(emit, statement.targets[-1], value)
    elif len(statement.targets) > 1:
        # A later target takes what the value was before the first was assigned.
        value = emit.snapshot(value)
    for target in statement.targets:
        store(emit, target, value)
    return True


def _all_at_once(emit: Emitter, target: nodes.Expression, value: Tuple | List) -> Tuple | List:
    """Return the items before any is assigned, as in ``a, b = b, a``."""
    named = target.items if isinstance(target, nodes.TupleOf) and len(target.items) == len(value.items) else ()
    names = [one.name if isinstance(one, nodes.Local) else "value" for one in named] or ["value"] * len(value.items)
    return replace(value, items=tuple(emit.snapshot(item, name)
                                      for item, name in zip(value.items, names, strict=True)))


def store(emit: Emitter, target: nodes.Expression, value: Value) -> None:
    """Assign to a name, to names, or to elements of an array."""
    if isinstance(target, nodes.Local):
        with errors_at(emit, target):
            bind(emit, target.name, value)
    elif isinstance(target, nodes.TupleOf):
        with errors_at(emit, target):
            items = _unpacked(value, target.items)
        for one, item in zip(target.items, items, strict=True):
            store(emit, one.value if isinstance(one, nodes.Spread) else one, item)
    else:
        with errors_at(emit, target):
            _store_elements(emit, target, value)


def _unpacked(value: Value, targets: tuple[nodes.Expression, ...]) -> tuple[Value, ...]:
    """Return the items that several names get; the one with a * gets a list of the rest."""
    starred = [place for place, target in enumerate(targets) if isinstance(target, nodes.Spread)]
    count = len(targets)
    if isinstance(value, Array) and value.shape:
        items: tuple[Value, ...] = tuple(element_of(value, str(i)) for i in range(value.shape[0]))
    elif isinstance(value, Tuple | List):
        items = value.items
    else:
        raise Refusal(f"{describe(value)} cannot be unpacked")
    if starred and count - 1 <= len(items) <= MOST_UNPACKED:
        start, starred_count = starred[0], len(items) - count + 1
        return (*items[:start], List(items[start:start + starred_count]), *items[start + starred_count:])
    if starred and len(items) > MOST_UNPACKED:
        raise Refusal(f"* takes a list of at most {MOST_UNPACKED} items here; write a slice, as in p[1:]")
    if len(items) != count:
        raise Refusal(f"{len(items)} values cannot be unpacked into {count} names")
    return items


def bind(emit: Emitter, name: str, value: Value) -> None:
    """Give a name a value."""
    frame = emit.frame
    old = frame.variables.get(name)
    if isinstance(value, Number):
        if isinstance(old, Number) and old.variable and old.type == value.type:
            emit.assign(old, value)
            frame.variables[name] = replace(old, numpy_int=value.numpy_int)
            return
        settled = emit.named_in_place or value.known or (value.text.isidentifier() and not value.variable)
        frame.variables[name] = value if settled else _named(emit, name, value)
    elif isinstance(value, Array):
        frame.variables[name] = _bound_array(emit, name, value)
    elif isinstance(value, Tuple | List):
        # A list that nothing can be appended to is a tuple.
        parts = tuple(_part(emit, f"{name}_{i}", item) for i, item in enumerate(value.items))
        frame.variables[name] = replace(value, items=parts)
    elif isinstance(value, Dict):
        parts = tuple(_part(emit, f"{name}_{field}", item)
                      for field, item in zip(value.names, value.items, strict=True))
        frame.variables[name] = Dict(value.names, parts)
    elif isinstance(value, Selected) and (value.values.volatile or value.mask.volatile):
        raise Refusal(f"{name} would be items of an array that is written to; reduce them where they are selected")
    elif isinstance(value, LocalFunction | Named | Nothing | Selected | RaggedRow | SparseRow):
        frame.variables[name] = value
    else:
        raise Refusal(f"{describe(value)} cannot be kept in a variable; range(), zip() and their like stand where "
                      "a loop goes over them, and functools.reduce goes over a row or a tuple")


def _named(emit: Emitter, name: str, value: Number) -> Number:
    variable = emit.name(name)
    emit.line(f"{value.c} {variable} = {value.text};")
    # An int of known bounds is not assigned again: another value may need more room. Nor is what given ints alone
    # decide: another value may be decided otherwise.
    settled = (value.type == INT and value.c == "int") or value.sources is not None
    return replace(value, text=variable, atom=True, variable=not settled)


def _part(emit: Emitter, name: str, value: Value) -> Value:
    if isinstance(value, Number):
        return value if value.known else replace(_named(emit, name, value), variable=False)
    if isinstance(value, Array) and not value.cheap:
        return emit.materialised(value, name)
    return value


def _bound_array(emit: Emitter, name: str, value: Array) -> Array:
    """Return an array under a name: the recipe itself, or storage where it is written to or costly and used again.
    """
    if name in emit.frame.mutated:
        if not value.fresh:
            raise Refusal(f"{name} is written to and would be a view of another array, which would change too; "
                          "write .copy() here")
        return emit.materialised(value, name, volatile=True)
    if value.volatile:
        if not value.fresh or value.storage:
            raise Refusal(f"{name} would be a view of an array that is written to; write .copy() here")
        return emit.materialised(value, name)
    if not value.cheap and emit.frame.uses.get(name, 0) > 1 and value.size:
        return emit.materialised(value, name)
    return value


def _store_elements(emit: Emitter, target: Any, value: Any) -> None:
    """Write an assignment to elements of an array: ``a[i] = value``, ``a[1:] = row``."""
    array = expression(emit, target.value)
    if not isinstance(array, Array) or not (array.storage or _view_of_storage(emit, target.value)):
        raise Refusal("only the items of an array that the function made can be assigned to, with np.zeros(n), "
                      f"np.array([...]) or .copy(); this is {describe(array)}")
    if emit.is_dealt(array.size) or any(emit.is_dealt(held.size) for held in _held(emit, target.value)):
        _store_shared(emit, array, target, value)
        return
    mask = _mask(emit, array, target.indices)
    if mask is not None:
        number = emit.fixed(as_number(value, "where a mask selects, a number"))
        _store_masked(emit, array, mask, lambda _: number)
        return
    place: Any = indexed(emit, array, target)
    if isinstance(place, Number):
        number = as_number(value, "a number")
        emit.line(f"{place.text} = {cast(number, array.type).text};")
        return
    source = value if isinstance(value, Number) else plain(value)
    if isinstance(source, Array) and source.volatile:
        source = emit.materialised(source, "value")
    whole: Any = elementwise(emit, lambda number: number, source)
    if isinstance(whole, Array):
        whole = _fitted(whole, place.shape)
    with emit.over(place.shape) as indices:
        one = whole if isinstance(whole, Number) else whole.at(*stretched(whole.shape, indices))
        emit.line(f"{place.element(*indices)} = {cast(one, array.type).text};")


def _store_shared(emit: Emitter, array: Array, target: Any, value: Value) -> None:
    """Write an assignment to one item of an array that the lanes of a row share: one of them stores it."""
    place: Any = indexed(emit, array, target) if isinstance(value, Number) and emit.out.depth == 1 else None
    if not isinstance(place, Number):
        raise Serial
    number = emit.fixed(cast(as_number(value, "a number"), array.type))
    emit.line(f"rows::settle<{emit.lanes}>();")
    emit.line(f"if (lane == 0) {place.text} = {number.text};")
    emit.line(f"rows::settle<{emit.lanes}>();")


def _mask(emit: Emitter, array: Array, indices: tuple[nodes.Expression, ...]) -> Array | None:
    """Return the bools that an array of its shape is indexed by, as they are now; None for other indices."""
    if len(indices) != 1 or isinstance(indices[0], nodes.Slice):
        return None
    with emit.detached():
        mask = expression(emit, indices[0])
    if not isinstance(mask, Array) or mask.type.kind != "b" or mask.shape != array.shape:
        return None
    return emit.materialised(expression(emit, indices[0]), "mask")


def _store_masked(emit: Emitter, array: Array, mask: Array, value: Callable[[Number], Number]) -> None:
    """Assign to the array's items that a mask selects; the value is computed for each item and stored where the mask
    holds.
    """
    with emit.over(array.shape) as indices:
        one = array.at(*indices)
        emit.line(f"if ({mask.element(*indices)}) {one.text} = {cast(value(one), array.type).text};")


def _held(emit: Emitter, node: nodes.Expression) -> tuple[Array, ...]:
    """Return the array of the function's own that an expression is an item or a slice of."""
    while isinstance(node, nodes.Index):
        node = node.value
    variable = emit.frame.variables.get(node.name) if isinstance(node, nodes.Local) else None
    return (variable,) if isinstance(variable, Array) else ()


def _view_of_storage(emit: Emitter, node: nodes.Expression) -> bool:
    """Return whether an expression is an item or a slice of an array of the function's own."""
    return any(held.storage for held in _held(emit, node))


@lowers_node(nodes.Augment)
def lower_augment(emit: Emitter, statement: nodes.Augment, after: NameSet) -> bool:
    """Write ``target += value`` and its like."""
    target: Any = statement.target
    if isinstance(target, nodes.Index):
        with errors_at(emit, target):
            array = expression(emit, target.value)
            mask = _mask(emit, array, target.indices) if isinstance(array, Array) and array.storage else None
        if mask is not None:
            if emit.is_dealt(array.size):
                raise Serial
            number = emit.fixed(number_of(emit, statement.value))
            _store_masked(emit, array, mask, lambda one: as_number(
                operate(emit, statement.operator, one, number)))
            return True
    current = expression(emit, statement.target)
    value = expression(emit, statement.value)
    if isinstance(current, List) and isinstance(statement.target, nodes.Local):
        name = statement.target.name
        raise Refusal(f"{name} {statement.operator}= changes the list under all of its names; write {name} = {name} "
                      f"{statement.operator} ..., or of a loop {name} = [... for ... in ...]")
    if isinstance(current, Array) and isinstance(statement.target, nodes.Local):
        _augment_array(emit, statement, current, value)
        return True
    result = operate(emit, statement.operator, current, value)
    if isinstance(current, Array) and isinstance(result, Array) and result.shape != current.shape:
        raise Refusal(f"{statement.operator}= of an array of shape {result.shape} does not fit the shape "
                      f"{current.shape} of what it changes")
    store(emit, statement.target, result)
    return True


def _augment_array(emit: Emitter, statement: nodes.Augment, current: Array, value: Value) -> None:
    """Write ``row += value``, which changes the array in place and keeps its type."""
    target: Any = statement.target
    name = target.name
    result = operate(emit, statement.operator, current, value)
    if not isinstance(result, Array) or result.shape != current.shape:
        raise Refusal(f"{name} {statement.operator}= does not fit its shape {current.shape}")
    order = "buifc"
    if order.index(result.type.kind) > order.index(current.type.kind) and \
            not (current.type.kind in "iu" and result.type.kind in "iu"):
        raise Refusal(f"{name} {statement.operator}= would put {result.type} into {current.type}; write "
                      f"{name} = {name} {statement.operator} ...")
    if not current.storage:
        raise Refusal(f"{name} {statement.operator}= would change the array that {name} is a view of; write "
                      f"{name} = {name} {statement.operator} ...")
    if isinstance(value, Array) and value.volatile:
        result = emit.materialised(result, "value")
    emit.copy(current, result)


def _fitted(array: Array, shape: tuple[int, ...]) -> Array:
    """Return the array to assign to a part of an array, without leading axes of one item that the part lacks, as in
    NumPy.

    Raises
    ------
    Refusal
        If it does not fit there.
    """
    more = max(0, len(array.shape) - len(shape))
    trailing = array.shape[more:]
    if set(array.shape[:more]) - {1} or any(extent not in (1, wanted) for extent, wanted in
                                           zip(trailing[::-1], shape[::-1], strict=False)):
        raise Refusal(f"an array of shape {array.shape} does not fit where one of shape {shape} is assigned to")
    return reindexed(array, trailing, lambda *indices: ("0",) * more + indices) if more else array
