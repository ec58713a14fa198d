"""Writer of generators given to ``sum`` and its like, and list comprehensions."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from vispark.translate.codegen.dispatch import expression, lowers_call, lowers_node
from vispark.translate.codegen.elementwise import broadcast, elementwise, stretched
from vispark.translate.codegen.emitter import Emitter, Serial
from vispark.translate.codegen.frame import UNROLLED, CallFrame
from vispark.translate.codegen.lowering import call_library
from vispark.translate.codegen.operands import as_number, bool_of, plain
from vispark.translate.codegen.scalar import numbers, scalars
from vispark.translate.codegen.scalar.casts import cast, literal
from vispark.translate.codegen.syntax.assignments import in_place, store
from vispark.translate.codegen.syntax.control_flow import written_out_if_refused
from vispark.translate.codegen.syntax.functions import call
from vispark.translate.codegen.syntax.iterables import (
    count_of,
    counted,
    evaluated_once,
    item_at,
    item_of,
    items_of,
    known_count,
    steps_of,
    turns,
)
from vispark.translate.codegen.syntax.operators import compare, condition_of
from vispark.translate.ir import liveness, nodes
from vispark.translate.ir.errors import Refusal
from vispark.translate.ir.types import BOOL, INT, Scalar
from vispark.translate.ir.values import (
    Array,
    ArrayType,
    ForRange,
    List,
    Number,
    Tuple,
    Type,
    Value,
    join_types,
    shown,
    type_of,
)
from vispark.translate.language import signatures

_LENGTH = ("a list has a length that is known before the kernel runs: its iterable's, and no if; sum() and its like "
           "take a generator with if")
#: The most items of a list over several iterables.
_MOST_ITEMS = 2048
#: A list of more items than this goes into an array by a loop.
_WRITTEN_OUT = 16
_Each = nodes.Each | nodes.Listed


def over_each(emit: Emitter, name: str, node: _Each, start: nodes.Expression | None = None,
              key: nodes.Expression | None = None, default: nodes.Expression | None = None) -> Value:
    """Return ``sum(... for ... in ...)`` and its like."""
    steps = _steps_of_each(emit, node)
    first: Any = literal(0) if start is None else emit.snapshot(plain(expression(emit, start)))
    if count_of(steps) == 0 and name in ("sum", "any", "all"):
        return first if name == "sum" else literal(name == "all")
    if count_of(steps) == 0 and default is not None:
        return expression(emit, default)
    if name in ("any", "all"):
        return _truth_of_each(emit, name, node, steps)
    kinds = _kinds_of_each(emit, node, steps)
    if name == "sum" and (isinstance(first, Array) or all(isinstance(kind, ArrayType) for kind in kinds)):
        return _sum_of_rows(emit, node, steps, kinds, first)
    if not all(isinstance(kind, Scalar) for kind in kinds):
        advice = f"; for a place write {name}(range(n), key=lambda i: ...)" if name in ("min", "max") else ""
        raise Refusal(f"{name}() of a generator is over numbers, and these are {shown(kinds[0])}{advice}")
    if name == "sum":
        return _sum_of_each(emit, node, steps, kinds, first)
    reason = f"{name}() of a generator needs at least one value: one iterable whose length is known, and no if"
    if node.conditions or isinstance(node.value, nodes.Each) or not known_count(steps, reason):
        raise Refusal(reason)
    kind = functools.reduce(join_types, kinds)
    if key is not None:
        return _extreme_by_key(emit, name, node, steps, kind, expression(emit, key))
    return _extreme_of_each(emit, name, node, steps, kind)


def _steps_of_each(emit: Emitter, node: _Each) -> ForRange:
    return evaluated_once(emit, steps_of(expression(emit, node.iterable)))


def _kinds_of_each(emit: Emitter, node: _Each, steps: ForRange) -> list[Any]:
    """Return the types of the values that turns give."""
    kinds: list[Type] = []
    with emit.detached():
        _turns_of_each(emit, node, steps, lambda value: kinds.append(type_of(value)))
    if not kinds:
        raise Refusal("a generator that never gives a value has no type here")
    return list(dict.fromkeys(kinds))


def _sum_of_each(emit: Emitter, node: _Each, steps: ForRange, kinds: list[Scalar], start: Number) -> Value:
    kind = start.type
    for one in (*kinds, *kinds):
        kind = scalars.binary("+", Number(kind, "x"), Number(one, "y")).type
    count = count_of(steps)
    if count is not None and start == literal(0) and not node.conditions and not isinstance(node.value, nodes.Each):
        here = replace(emit.frame, variables=dict(emit.frame.variables))
        noted = emit.products.placeholder(functools.partial(_text_at, emit, node, steps, here, count), count, kind)
        if noted is not None:
            return noted
    total = emit.variable(kind, "sum", cast(start, kind))
    _turns_of_each(emit, node, steps, lambda value: _add(emit, total, value))
    return replace(total, variable=False)


def _text_at(emit: Emitter, node: _Each, steps: ForRange, here: CallFrame, count: int, number: int | str) -> str:
    """Return the text of one value of a generator, by its number or a variable for it, in a frame as it was."""
    outer, emit.frame = emit.frame, replace(here, variables=dict(here.variables))
    try:
        with emit.detached() as lines, in_place(emit):
            bind_target(emit, node.target, item_at(steps, number) if isinstance(number, int) else
                        item_of(steps, Number(INT, number, bounds=(0, count - 1))))
            text = as_number(expression(emit, node.value)).text
    finally:
        emit.frame = outer
    if lines.lines and isinstance(number, str):
        raise Refusal("a value that is more than one expression has no text of its own")
    return text


def _add(emit: Emitter, total: Number, value: Value) -> None:
    text = cast(scalars.binary("+", total, as_number(value)), total.type).text
    plain = f"{total.text} + "
    emit.line(f"{total.text} += {text[len(plain):]};" if text.startswith(plain) and total.type.kind == "f"
              else f"{total.text} = {text};")


def _sum_of_rows(emit: Emitter, node: _Each, steps: ForRange, kinds: list[Any], start: Number | Array) -> Value:
    """Return the first is added to Python's 0 too, which changes bools alone."""
    whole: Any = functools.reduce(join_types, kinds)
    element = whole.element if isinstance(whole, ArrayType) else whole
    kind = scalars.binary("+", Number(start.type, "x"), Number(element, "x")).type
    shape = broadcast(*(one.shape for one in (start, whole) if isinstance(one, Array | ArrayType)))
    if emit.is_dealt(int(shape[0]) if shape else 1):
        raise Serial
    total = emit.materialised(Array(kind, shape, lambda *indices: cast(
        start.at(*stretched(start.shape, indices)) if isinstance(start, Array) else start, kind).text), "sum", True)
    _turns_of_each(emit, node, steps, lambda value: emit.copy(total, elementwise(emit,
        lambda a, b: scalars.binary("+", a, b), total, value)))
    return replace(total, volatile=False, storage="")


def _extreme_of_each(emit: Emitter, name: str, node: _Each, steps: ForRange, kind: Any) -> Value:
    best, first = emit.variable(kind, name), emit.name("first")
    emit.line(f"bool {first} = true;")

    def step(value: Value) -> None:
        one = emit.fixed(as_number(value))
        emit.line(f"{best.text} = {first} ? {cast(one, kind).closed} : "
                  f"{cast(numbers.extreme(name, best, one), kind).text};")
        emit.line(f"{first} = false;")

    _turns_of_each(emit, node, steps, step)
    return replace(best, variable=False)


def _extreme_by_key(emit: Emitter, name: str, node: _Each, steps: ForRange, kind: Any, key: Value) -> Value:
    """Return the first whose key no other's is beyond."""
    sizes: list[Type] = []
    with emit.detached():
        _turns_of_each(emit, node, steps, lambda value: sizes.append(type_of(call(emit, key, (value,), {}))))
    if not all(isinstance(one, Scalar) for one in sizes):
        raise Refusal(f"the key of {name}() gives numbers here, and this one gives {shown(sizes[0])}")
    best, first = emit.variable(kind, name), emit.name("first")
    beyond = emit.variable(functools.reduce(join_types, sizes), "key")
    emit.line(f"bool {first} = true;")

    def step(value: Value) -> None:
        one = emit.fixed(as_number(value))
        size = emit.fixed(as_number(call(emit, key, (one,), {})))
        test = bool_of(compare(emit, "<" if name == "min" else ">", size, beyond))
        with emit.block(f"if ({first} || {test.closed})"):
            emit.line(f"{best.text} = {cast(one, kind).text};")
            emit.line(f"{beyond.text} = {cast(size, beyond.type).text};")
        emit.line(f"{first} = false;")

    _turns_of_each(emit, node, steps, step)
    return replace(best, variable=False)


def _truth_of_each(emit: Emitter, name: str, node: _Each, steps: ForRange) -> Value:
    """Compute ``any`` or ``all`` of a generator; items after the deciding one are not computed."""
    truth = emit.variable(BOOL, f"{name}_true", literal(name == "all"))
    undecided = scalars.unary("not", truth) if name == "any" else truth

    def step(value: Value) -> None:
        emit.line(f"{truth.text} = {bool_of(value).text};")

    _turns_of_each(emit, node, steps, step, undecided.text)
    return replace(truth, variable=False)


def _turns_of_each(emit: Emitter, node: _Each, steps: ForRange, step: Callable[[Value], None],
                   while_: str = "") -> None:
    """Write the nested loops of a generator; ``while_`` is a condition under which they go on."""
    items = items_of(steps)
    if items is not None:
        _items_in_turn(emit, node, items, step, while_)
        return

    def loop() -> None:
        with turns(emit, steps) as item:
            if while_:
                emit.line(f"if (!({while_})) break;")
            _turn_of_each(emit, node, item, step, while_)

    count = count_of(steps)
    written_out_if_refused(emit, loop, lambda: _items_in_turn(emit, node, items_of(steps, True) or [], step,
                                                              while_), count or UNROLLED + 1)


def _items_in_turn(emit: Emitter, node: _Each, items: list[Value], step: Callable[[Value], None], while_: str) -> None:
    """Write the turns of a generator one after the other."""
    for item in items:
        if while_:
            with emit.block(f"if ({while_})"):
                _turn_of_each(emit, node, item, step, while_)
        else:
            with emit.block(""):
                _turn_of_each(emit, node, item, step, while_)


def _turn_of_each(emit: Emitter, node: _Each, item: Value, step: Callable[[Value], None], while_: str) -> None:
    outer = dict(emit.frame.variables)
    bind_target(emit, node.target, item)
    tests = [condition_of(emit, condition) for condition in node.conditions]
    with emit.block(f"if ({' && '.join(test.closed for test in tests)})") if tests else contextlib.nullcontext():
        if isinstance(node.value, nodes.Each):
            _turns_of_each(emit, node.value, _steps_of_each(emit, node.value), step, while_)
        else:
            step(expression(emit, node.value))
    emit.frame.variables = outer


def bind_target(emit: Emitter, target: nodes.Expression, item: Value) -> None:
    """Give the names of a loop's or a comprehension's target an item."""
    for name in liveness.stored(target):
        emit.frame.variables.pop(name, None)
    store(emit, target, item)


@lowers_node(nodes.Listed)
def lower_listed(emit: Emitter, node: nodes.Listed) -> Value:
    """Return a list comprehension, written out."""
    return List(items_of_each(emit, node))


def items_of_each(emit: Emitter, node: _Each) -> tuple[Value, ...]:
    """Return the items of a comprehension, written out."""
    return _items_of_each(emit, node, UNROLLED)


def _items_of_each(emit: Emitter, node: _Each, most: int) -> tuple[Value, ...]:
    steps = _steps_of_each(emit, node)
    if node.conditions:
        raise Refusal(_LENGTH)
    outer, items = dict(emit.frame.variables), list[Value]()
    for item in written_items(steps, most):
        bind_target(emit, node.target, item)
        if isinstance(node.value, nodes.Each):
            items += _items_of_each(emit, node.value, most - len(items))
        else:
            items.append(emit.snapshot(expression(emit, node.value)))
    emit.frame.variables = outer
    if len(items) > most:
        raise Refusal(_too_long(len(items)))
    return tuple(items)


def written_items(steps: ForRange, most: int = UNROLLED) -> tuple[Value, ...]:
    """Return the items of a loop, to be written out turn by turn."""
    count = known_count(steps, _LENGTH)
    if count > most:
        raise Refusal(_too_long(count))
    return tuple(items_of(steps, True) or ())


def array_of(emit: Emitter, node: nodes.Listed) -> Value:
    """Return a list comprehension that becomes an array: a long one by a loop."""
    steps = _steps_of_each(emit, node)
    count = count_of(steps)
    if isinstance(node.value, nodes.Each):
        return _array_of_several(emit, node, steps)
    product = None if node.conditions else emit.products.product_over(steps, node.target, node.value)
    if product is not None:
        return product
    if count is None or node.conditions or count <= _WRITTEN_OUT or items_of(steps) is not None:
        return lower_listed(emit, node)
    return written_out_if_refused(emit, lambda: _array_by_loop(emit, node, steps, count),
                                  lambda: lower_listed(emit, node), count)


def _array_of_several(emit: Emitter, node: nodes.Listed, steps: ForRange) -> Value:
    """Return the array of a list comprehension over several iterables: many items by loops, one after the other."""
    items: list[Type] = []
    with emit.detached():
        values = _items_of_each(emit, node, _MOST_ITEMS)
        items += map(type_of, values)
    if len(items) <= _WRITTEN_OUT:
        return lower_listed(emit, node)
    kind = functools.reduce(join_types, items)
    if not isinstance(kind, Scalar):
        raise Refusal(f"a list over several iterables is of numbers where it has more than {_WRITTEN_OUT} items, "
                      f"and these are {shown(kind)}; write one list inside the other for two axes")
    if emit.lanes > 1:
        raise Serial
    array, place = emit.storage(kind.strong, (len(items),), "array"), emit.name("place")
    emit.line(f"int {place} = 0;")

    def step(value: Value) -> None:
        one = numbers.convert(as_number(value), kind.strong)
        emit.line(f"{array.element(place)} = {one.text};")
        emit.line(f"++{place};")

    _turns_of_each(emit, node, steps, step)
    return array


def _array_by_loop(emit: Emitter, node: nodes.Listed, steps: ForRange, count: int) -> Value:
    outer = dict(emit.frame.variables)

    def value(index: Number) -> Value:
        bind_target(emit, node.target, item_of(steps, index))
        one = array_of(emit, node.value) if isinstance(node.value, nodes.Listed) else expression(emit, node.value)
        return call_library(emit, "numpy.array", (one,), {}) if isinstance(one, List) else one

    with emit.detached():
        kind = type_of(value(literal(0)))
    inner = kind.shape if isinstance(kind, ArrayType) else ()
    element = kind.element if isinstance(kind, ArrayType) else kind
    if not isinstance(element, Scalar):
        raise Refusal(f"an array is of numbers, and these are {shown(kind)}")
    if emit.lanes > 1:
        raise Serial
    array = emit.storage(element.strong, (count, *inner), "array")
    with counted(emit, count) as index:
        one: Any = value(index)
        with emit.over(inner) as indices:
            number = one if isinstance(one, Number) else one.at(*indices)
            emit.line(f"{array.element(index.text, *indices)} = {numbers.convert(number, element.strong).text};")
    emit.frame.variables = outer
    return array


@lowers_call("tuple", "list")
def gathered_items(emit: Emitter, name: str, node: nodes.Call) -> Value:
    """Return ``tuple(...)`` and ``list(...)`` of a generator, a row, a tuple or several at once."""
    kind = Tuple if name == "tuple" else List
    if not node.arguments:
        return kind(())
    first = node.arguments[0]
    if isinstance(first, nodes.Each):
        return kind(items_of_each(emit, first))
    value = expression(emit, first)
    if isinstance(value, Tuple | List):
        return kind(value.items)
    return kind(written_items(steps_of(value)))


@lowers_call("sum", "min", "max", "any", "all")
def folded(emit: Emitter, name: str, node: nodes.Call) -> Value | None:
    """Return ``sum``, ``min`` and their like of a generator, a list comprehension or a range, or by a key."""
    if any(isinstance(one, nodes.Spread) for one in node.arguments):
        return None
    operands, keywords = signatures.bind(name, node.arguments, dict(node.keywords))
    if name == "sum":
        operands, keywords = operands[:1], {"start": operands[1]} if len(operands) > 1 else {}
    keywords = {word: one for word, one in keywords.items() if word == "start" or one != nodes.Literal(None)}
    first = operands[0] if len(operands) == 1 else nodes.TupleOf(operands, at=node.at)
    if isinstance(first, nodes.Each | nodes.Listed):
        return over_each(emit, name, first, **keywords)
    of_range = isinstance(first, nodes.Call) and first.function == nodes.Library("range")
    if "key" in keywords or (of_range and name in ("sum", "min", "max")):
        if len(operands) != 1 and "default" in keywords:
            raise Refusal(f"default of {name}() is for one row or tuple that may be empty")
        turn = nodes.Local("turn of the range" if of_range else "one of several", at=first.at)
        return over_each(emit, name, nodes.Each(turn, turn, first, (), at=first.at), **keywords)
    return None


@lowers_call("numpy.array", "numpy.asarray")
def listed_array(emit: Emitter, name: str, node: nodes.Call) -> Value | None:
    """Return the array of a list comprehension."""
    first = node.arguments[0] if node.arguments else None
    if not isinstance(first, nodes.Listed):
        return None
    others = tuple(expression(emit, argument) for argument in node.arguments[1:])
    return call_library(emit, name, (array_of(emit, first), *others),
                        {key: expression(emit, value) for key, value in node.keywords})


def _too_long(count: int) -> str:
    return f"a list of {count} items is too long to be written out; give it to np.array() at once"
