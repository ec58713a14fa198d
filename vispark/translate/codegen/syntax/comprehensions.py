"""Writes generators given to ``sum`` and its like, and list comprehensions."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from vispark.translate.codegen.elementwise import broadcast, elementwise, stretched
from vispark.translate.codegen.emitter import Serial
from vispark.translate.codegen.lowering import call_library
from vispark.translate.codegen.operands import as_number, bool_of, plain
from vispark.translate.codegen.scalar import numbers, scalars
from vispark.translate.codegen.scalar.casts import cast, literal
from vispark.translate.codegen.syntax.control_flow import UNROLLED, Branches
from vispark.translate.codegen.syntax.expressions import CallFrame
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

_Each = nodes.Each | nodes.Listed
#: A list of more items than this goes into an array by a loop.
_WRITTEN_OUT = 16
#: The most items of a list over several iterables.
_MOST_ITEMS = 2048
_LENGTH = ("a list has a length that is known before the kernel runs: its iterable's, and no if; sum() and its like "
           "take a generator with if")


class Comprehensions(Branches):
    """Generators and list comprehensions; their targets are variables of their own."""

    # -- sum, min, max, any, all --------------------------------------------------------------------------------------

    def over_each(self, name: str, node: _Each, start: nodes.Expression | None = None,
                  key: nodes.Expression | None = None, default: nodes.Expression | None = None) -> Value:
        """Return ``sum(... for ... in ...)`` and its like."""
        steps = self._steps_of_each(node)
        first: Any = literal(0) if start is None else self.kept(plain(self.expression(start)))
        if self.count_of(steps) == 0 and name in ("sum", "any", "all"):
            return first if name == "sum" else literal(name == "all")
        if self.count_of(steps) == 0 and default is not None:
            return self.expression(default)
        if name in ("any", "all"):
            return self._truth_of_each(name, node, steps)
        kinds = self._kinds_of_each(node, steps)
        if name == "sum" and (isinstance(first, Array) or all(isinstance(kind, ArrayType) for kind in kinds)):
            return self._sum_of_rows(node, steps, kinds, first)
        if not all(isinstance(kind, Scalar) for kind in kinds):
            advice = f"; for a place write {name}(range(n), key=lambda i: ...)" if name in ("min", "max") else ""
            raise Refusal(f"{name}() of a generator is over numbers, and these are {shown(kinds[0])}{advice}")
        if name == "sum":
            return self._sum_of_each(node, steps, kinds, first)
        reason = f"{name}() of a generator needs at least one value: one iterable whose length is known, and no if"
        if node.conditions or isinstance(node.value, nodes.Each) or not self.known_count(steps, reason):
            raise Refusal(reason)
        kind = functools.reduce(join_types, kinds)
        if key is not None:
            return self._extreme_by_key(name, node, steps, kind, self.expression(key))
        return self._extreme_of_each(name, node, steps, kind)

    def _steps_of_each(self, node: _Each) -> ForRange:
        return self.settled(self.steps_of(self.expression(node.iterable)))

    def _kinds_of_each(self, node: _Each, steps: ForRange) -> list[Any]:
        """Return the types of the values that turns give."""
        kinds: list[Type] = []
        with self.apart():
            self._turns_of_each(node, steps, lambda value: kinds.append(type_of(value)))
        if not kinds:
            raise Refusal("a generator that never gives a value has no type here")
        return list(dict.fromkeys(kinds))

    def _sum_of_each(self, node: _Each, steps: ForRange, kinds: list[Scalar], start: Number) -> Value:
        kind = start.type
        for one in (*kinds, *kinds):
            kind = scalars.binary("+", Number(kind, "x"), Number(one, "y")).type
        count = self.count_of(steps)
        if count is not None and start == literal(0) and not node.conditions and not isinstance(node.value, nodes.Each):
            here = replace(self.frame, variables=dict(self.frame.variables))
            noted = self.noted(functools.partial(self._text_at, node, steps, here, count), count, kind)
            if noted is not None:
                return noted
        total = self.variable(kind, "sum", cast(start, kind))
        self._turns_of_each(node, steps, lambda value: self._add(total, value))
        return replace(total, variable=False)

    def _text_at(self, node: _Each, steps: ForRange, here: CallFrame, count: int, number: int | str) -> str:
        """Return the text of one value of a generator, by its number or a variable for it, in a frame as it was."""
        kept, self.frame = self.frame, replace(here, variables=dict(here.variables))
        try:
            with self.apart() as lines, self.in_place():
                self._bind_target(node.target, self._item_at(steps, number) if isinstance(number, int) else
                                  self.item_of(steps, Number(INT, number, bounds=(0, count - 1))))
                text = as_number(self.expression(node.value)).text
        finally:
            self.frame = kept
        if lines.lines and isinstance(number, str):
            raise Refusal("a value that is more than one expression has no text of its own")
        return text

    def _add(self, total: Number, value: Value) -> None:
        found = cast(scalars.binary("+", total, as_number(value)), total.type).text
        plain = f"{total.text} + "
        self.line(f"{total.text} += {found[len(plain):]};" if found.startswith(plain) and total.type.kind == "f"
                  else f"{total.text} = {found};")

    def _sum_of_rows(self, node: _Each, steps: ForRange, kinds: list[Any], start: Number | Array) -> Value:
        """Return the first is added to Python's 0 too, which changes bools alone."""
        whole: Any = functools.reduce(join_types, kinds)
        element = whole.element if isinstance(whole, ArrayType) else whole
        kind = scalars.binary("+", Number(start.type, "x"), Number(element, "x")).type
        shape = broadcast(*(one.shape for one in (start, whole) if isinstance(one, Array | ArrayType)))
        if self.dealt(int(shape[0]) if shape else 1):
            raise Serial
        total = self.materialised(Array(kind, shape, lambda *indices: cast(
            start.at(*stretched(start.shape, indices)) if isinstance(start, Array) else start, kind).text), "sum", True)
        self._turns_of_each(node, steps, lambda value: self.copy(total, elementwise(self,
            lambda a, b: scalars.binary("+", a, b), total, value)))
        return replace(total, volatile=False, storage="")

    def _extreme_of_each(self, name: str, node: _Each, steps: ForRange, kind: Any) -> Value:
        best, first = self.variable(kind, name), self.name("first")
        self.line(f"bool {first} = true;")

        def step(value: Value) -> None:
            one = self.fixed(as_number(value))
            self.line(f"{best.text} = {first} ? {cast(one, kind).closed} : "
                      f"{cast(numbers.extreme(name, best, one), kind).text};")
            self.line(f"{first} = false;")

        self._turns_of_each(node, steps, step)
        return replace(best, variable=False)

    def _extreme_by_key(self, name: str, node: _Each, steps: ForRange, kind: Any, key: Value) -> Value:
        """Return the first whose key no other's is beyond."""
        sizes: list[Type] = []
        with self.apart():
            self._turns_of_each(node, steps, lambda value: sizes.append(type_of(self.call(key, (value,), {}))))
        if not all(isinstance(one, Scalar) for one in sizes):
            raise Refusal(f"the key of {name}() gives numbers here, and this one gives {shown(sizes[0])}")
        best, first = self.variable(kind, name), self.name("first")
        beyond = self.variable(functools.reduce(join_types, sizes), "key")
        self.line(f"bool {first} = true;")

        def step(value: Value) -> None:
            one = self.fixed(as_number(value))
            size = self.fixed(as_number(self.call(key, (one,), {})))
            test = bool_of(self.compare("<" if name == "min" else ">", size, beyond))
            with self.block(f"if ({first} || {test.closed})"):
                self.line(f"{best.text} = {cast(one, kind).text};")
                self.line(f"{beyond.text} = {cast(size, beyond.type).text};")
            self.line(f"{first} = false;")

        self._turns_of_each(node, steps, step)
        return replace(best, variable=False)

    def _truth_of_each(self, name: str, node: _Each, steps: ForRange) -> Value:
        """Compute ``any`` or ``all`` of a generator; items after the deciding one are not computed."""
        found = self.variable(BOOL, f"{name}_true", literal(name == "all"))
        undecided = scalars.unary("not", found) if name == "any" else found

        def step(value: Value) -> None:
            self.line(f"{found.text} = {bool_of(value).text};")

        self._turns_of_each(node, steps, step, undecided.text)
        return replace(found, variable=False)

    def product_over(self, steps: ForRange, target: nodes.Expression, value: nodes.Expression) -> Array | None:
        """Return the items of a comprehension as a product of the element's row with a matrix; None where they are
        none.
        """
        return None

    # -- turns --------------------------------------------------------------------------------------------------------

    def _turns_of_each(self, node: _Each, steps: ForRange, step: Callable[[Value], None], while_: str = "") -> None:
        """Write the nested loops of a generator; ``while_`` is a condition under which they go on."""
        items = self.items_of(steps)
        if items is not None:
            self._items_in_turn(node, items, step, while_)
            return

        def loop() -> None:
            with self.turns(steps) as item:
                if while_:
                    self.line(f"if (!({while_})) break;")
                self._turn_of_each(node, item, step, while_)

        count = self.count_of(steps)
        self.written_out_if_refused(loop, lambda: self._items_in_turn(node, self.items_of(steps, True) or [], step,
                                                                      while_), count or UNROLLED + 1)

    def _items_in_turn(self, node: _Each, items: list[Value], step: Callable[[Value], None], while_: str) -> None:
        """Write the turns of a generator one after the other."""
        for item in items:
            if while_:
                with self.block(f"if ({while_})"):
                    self._turn_of_each(node, item, step, while_)
            else:
                with self.block(""):
                    self._turn_of_each(node, item, step, while_)

    def _turn_of_each(self, node: _Each, item: Value, step: Callable[[Value], None], while_: str) -> None:
        kept = dict(self.frame.variables)
        self._bind_target(node.target, item)
        tests = [self.condition(condition) for condition in node.conditions]
        with self.block(f"if ({' && '.join(test.closed for test in tests)})") if tests else contextlib.nullcontext():
            if isinstance(node.value, nodes.Each):
                self._turns_of_each(node.value, self._steps_of_each(node.value), step, while_)
            else:
                step(self.expression(node.value))
        self.frame.variables = kept

    def _bind_target(self, target: nodes.Expression, item: Value) -> None:
        for name in liveness.stored(target):
            self.frame.variables.pop(name, None)
        self.store(target, item)

    # -- lists --------------------------------------------------------------------------------------------------------

    def _Listed(self, node: nodes.Listed) -> Value:
        """Return a list comprehension, written out."""
        return List(self.items_of_each(node))

    def items_of_each(self, node: _Each) -> tuple[Value, ...]:
        """Return the items of a comprehension, written out."""
        return self._items_of_each(node, UNROLLED)

    def _items_of_each(self, node: _Each, most: int) -> tuple[Value, ...]:
        steps = self._steps_of_each(node)
        if node.conditions:
            raise Refusal(_LENGTH)
        kept, items = dict(self.frame.variables), list[Value]()
        for item in self.written_items(steps, most):
            self._bind_target(node.target, item)
            if isinstance(node.value, nodes.Each):
                items += self._items_of_each(node.value, most - len(items))
            else:
                items.append(self.kept(self.expression(node.value)))
        self.frame.variables = kept
        if len(items) > most:
            raise Refusal(_too_long(len(items)))
        return tuple(items)

    def written_items(self, steps: ForRange, most: int = UNROLLED) -> tuple[Value, ...]:
        """Return the items of a loop, to be written out turn by turn."""
        count = self.known_count(steps, _LENGTH)
        if count > most:
            raise Refusal(_too_long(count))
        return tuple(self.items_of(steps, True) or ())

    def picked(self, items: tuple[Value, ...], index: Number, subscript: str) -> Value:
        """Return an item of a tuple whose place is only known as the kernel runs, by an array of them."""
        if not items:
            raise Refusal("an empty tuple has no items")
        whole = functools.reduce(join_types, map(type_of, items))
        index = self.fixed(index)
        if isinstance(whole, tuple):
            parts = zip(*(item.items for item in items if isinstance(item, Tuple)), strict=True)
            return Tuple(tuple(self.picked(part, index, subscript) for part in parts))
        if not isinstance(whole, Scalar | ArrayType):
            raise Refusal(f"the index of a tuple's item must be known before the kernel runs where the items are "
                          f"{shown(whole)}")
        kind, inner = (whole.element, whole.shape) if isinstance(whole, ArrayType) else (whole, ())
        place = self.index(index, len(items), subscript)
        array = self.storage(kind, (len(items), *inner), "items")
        for number, item in enumerate(items):
            with self.over(inner) as indices:
                one: Any = item.at(*indices) if isinstance(item, Array) else item
                self.line(f"{array.element(str(number), *indices)} = {cast(one, kind).text};")
        self.settle(array)
        return self.element_of(array, place)

    def array_of(self, node: nodes.Listed) -> Value:
        """Return a list comprehension that becomes an array: a long one by a loop."""
        steps = self._steps_of_each(node)
        count = self.count_of(steps)
        if isinstance(node.value, nodes.Each):
            return self._array_of_several(node, steps)
        product = None if node.conditions else self.product_over(steps, node.target, node.value)
        if product is not None:
            return product
        if count is None or node.conditions or count <= _WRITTEN_OUT or self.items_of(steps) is not None:
            return self._Listed(node)
        return self.written_out_if_refused(lambda: self._array_by_loop(node, steps, count),
                                           lambda: self._Listed(node), count)

    def _array_of_several(self, node: nodes.Listed, steps: ForRange) -> Value:
        """Return the array of a list comprehension over several iterables: many items by loops, one after the other."""
        items: list[Type] = []
        with self.apart():
            values = self._items_of_each(node, _MOST_ITEMS)
            items += map(type_of, values)
        if len(items) <= _WRITTEN_OUT:
            return self._Listed(node)
        kind = functools.reduce(join_types, items)
        if not isinstance(kind, Scalar):
            raise Refusal(f"a list over several iterables is of numbers where it has more than {_WRITTEN_OUT} items, "
                          f"and these are {shown(kind)}; write one list inside the other for two axes")
        if self.lanes > 1:
            raise Serial
        array, place = self.storage(kind.strong, (len(items),), "array"), self.name("place")
        self.line(f"int {place} = 0;")

        def step(value: Value) -> None:
            one = numbers.convert(as_number(value), kind.strong)
            self.line(f"{array.element(place)} = {one.text};")
            self.line(f"++{place};")

        self._turns_of_each(node, steps, step)
        return array

    def _array_by_loop(self, node: nodes.Listed, steps: ForRange, count: int) -> Value:
        kept = dict(self.frame.variables)

        def value(index: Number) -> Value:
            self._bind_target(node.target, self.item_of(steps, index))
            one = self.array_of(node.value) if isinstance(node.value, nodes.Listed) else self.expression(node.value)
            return call_library(self, "numpy.array", (one,), {}) if isinstance(one, List) else one

        with self.apart():
            kind = type_of(value(literal(0)))
        inner = kind.shape if isinstance(kind, ArrayType) else ()
        element = kind.element if isinstance(kind, ArrayType) else kind
        if not isinstance(element, Scalar):
            raise Refusal(f"an array is of numbers, and these are {shown(kind)}")
        if self.lanes > 1:
            raise Serial
        array = self.storage(element.strong, (count, *inner), "array")
        with self.counted(count) as index:
            one: Any = value(index)
            with self.over(inner) as indices:
                number = one if isinstance(one, Number) else one.at(*indices)
                self.line(f"{array.element(index.text, *indices)} = {numbers.convert(number, element.strong).text};")
        self.frame.variables = kept
        return array


def _too_long(count: int) -> str:
    return f"a list of {count} items is too long to be written out; give it to np.array() at once"
