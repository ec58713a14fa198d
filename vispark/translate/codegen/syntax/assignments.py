"""Writes assignments: to names, to several names, to items of arrays the function made.

A variable of Python's has no type; a value has. So an assignment makes a new C++ variable, or writes to the one there
is if the type is the same.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from vispark.translate.codegen.elementwise import elementwise, stretched
from vispark.translate.codegen.emitter import Serial
from vispark.translate.codegen.operands import as_number, plain
from vispark.translate.codegen.scalar.casts import cast
from vispark.translate.codegen.syntax.expressions import Expressions
from vispark.translate.ir import nodes
from vispark.translate.ir.errors import Refusal
from vispark.translate.ir.liveness import Names
from vispark.translate.ir.types import INT
from vispark.translate.ir.values import (
    Array,
    List,
    LocalFunction,
    Named,
    Nothing,
    Number,
    Selected,
    Tuple,
    Value,
    describe,
    reindexed,
)

#: The most items that a name with a * takes some of.
MOST_UNPACKED = 64


class Assignments(Expressions):
    """Assignments in the function whose frame is current."""

    #: Whether a name stands for the expression itself, for those that only look at it.
    named_in_place = False

    @contextlib.contextmanager
    def in_place(self) -> Iterator[None]:
        """Yield names that are given numbers stand for these expressions, without variables."""
        before, self.named_in_place = self.named_in_place, True
        try:
            yield
        finally:
            self.named_in_place = before

    def _do_Assign(self, statement: nodes.Assign, after: Names) -> bool:
        value = self.expression(statement.value)
        if isinstance(value, Tuple) and (len(statement.targets) > 1 or isinstance(statement.targets[0], nodes.TupleOf)):
            value = self._all_at_once(statement.targets[-1], value)
        elif len(statement.targets) > 1:
            # A later target takes what the value was before the first was assigned.
            value = self.snapshot(value)
        for target in statement.targets:
            self.store(target, value)
        return True

    def _all_at_once(self, target: nodes.Expression, value: Tuple) -> Tuple:
        """Return the items before any is assigned, as in ``a, b = b, a``."""
        named = target.items if isinstance(target, nodes.TupleOf) and len(target.items) == len(value.items) else ()
        names = [one.name if isinstance(one, nodes.Local) else "value" for one in named] or ["value"] * len(value.items)
        return Tuple(tuple(self.snapshot(item, name) for item, name in zip(value.items, names, strict=True)))

    def store(self, target: nodes.Expression, value: Value) -> None:
        """Assign to a name, to names, or to elements of an array."""
        if isinstance(target, nodes.Local):
            with self.told_at(target):
                self.bind(target.name, value)
        elif isinstance(target, nodes.TupleOf):
            with self.told_at(target):
                items = self._unpacked(value, target.items)
            for one, item in zip(target.items, items, strict=True):
                self.store(one.value if isinstance(one, nodes.Spread) else one, item)
        else:
            with self.told_at(target):
                self._store_elements(target, value)

    def _unpacked(self, value: Value, targets: tuple[nodes.Expression, ...]) -> tuple[Value, ...]:
        """Return the items that several names get; the one with a * gets a list of the rest."""
        starred = [place for place, target in enumerate(targets) if isinstance(target, nodes.Spread)]
        wanted = len(targets)
        if isinstance(value, Array) and value.shape:
            items: tuple[Value, ...] = tuple(self.element_of(value, str(i)) for i in range(value.shape[0]))
        elif isinstance(value, Tuple | List):
            items = value.items
        else:
            raise Refusal(f"{describe(value)} cannot be unpacked")
        if starred and wanted - 1 <= len(items) <= MOST_UNPACKED:
            start, rest = starred[0], len(items) - wanted + 1
            return (*items[:start], List(items[start:start + rest]), *items[start + rest:])
        if starred and len(items) > MOST_UNPACKED:
            raise Refusal(f"* takes a list of at most {MOST_UNPACKED} items here; write a slice, as in p[1:]")
        if len(items) != wanted:
            raise Refusal(f"{len(items)} values cannot be unpacked into {wanted} names")
        return items

    def element_of(self, array: Array, index: str) -> Value:
        """Return ``array[index]``: a number, or a row."""
        if len(array.shape) == 1:
            return array.at(index)
        return reindexed(array, array.shape[1:], lambda *rest: (index, *rest))

    def bind(self, name: str, value: Value) -> None:
        """Give a name a value."""
        frame = self.frame
        old = frame.variables.get(name)
        if isinstance(value, Number):
            if isinstance(old, Number) and old.variable and old.type == value.type:
                self.assign(old, value)
                frame.variables[name] = replace(old, numpy_int=value.numpy_int)
                return
            settled = self.named_in_place or value.known or (value.text.isidentifier() and not value.variable)
            frame.variables[name] = value if settled else self._named(name, value)
        elif isinstance(value, Array):
            frame.variables[name] = self._bound_array(name, value)
        elif isinstance(value, Tuple | List):
            # A list that nothing can be appended to is a tuple.
            parts = tuple(self._part(f"{name}_{i}", item) for i, item in enumerate(value.items))
            frame.variables[name] = type(value)(parts)
        elif isinstance(value, Selected) and (value.values.volatile or value.mask.volatile):
            raise Refusal(f"{name} would be items of an array that is written to; reduce them where they are selected")
        elif isinstance(value, LocalFunction | Named | Nothing | Selected):
            frame.variables[name] = value
        else:
            raise Refusal(f"{describe(value)} cannot be kept in a variable; range(), zip() and their like stand where "
                          "a loop goes over them, and functools.reduce goes over a row or a tuple")

    def _named(self, name: str, value: Number) -> Number:
        found = self.name(name)
        self.line(f"{value.c} {found} = {value.text};")
        # An int of known bounds is not assigned again: another value may need more room. Nor is what given ints alone
        # decide: another value may be decided otherwise.
        settled = (value.type == INT and value.c == "int") or value.sources is not None
        return replace(value, text=found, atom=True, variable=not settled)

    def _part(self, name: str, value: Value) -> Value:
        if isinstance(value, Number):
            return value if value.known else replace(self._named(name, value), variable=False)
        if isinstance(value, Array) and not value.cheap:
            return self.materialised(value, name)
        return value

    def _bound_array(self, name: str, value: Array) -> Array:
        """Return an array under a name: the recipe itself, or storage where it is written to or costly and used again.
        """
        if name in self.frame.mutated:
            if not value.fresh:
                raise Refusal(f"{name} is written to and would be a view of another array, which would change too; "
                              "write .copy() here")
            return self.materialised(value, name, volatile=True)
        if value.volatile:
            if not value.fresh or value.storage:
                raise Refusal(f"{name} would be a view of an array that is written to; write .copy() here")
            return self.materialised(value, name)
        if not value.cheap and self.frame.uses.get(name, 0) > 1 and value.size:
            return self.materialised(value, name)
        return value

    def _store_elements(self, target: Any, value: Any) -> None:
        """Write an assignment to elements of an array: ``a[i] = value``, ``a[1:] = row``."""
        array = self.expression(target.value)
        if not isinstance(array, Array) or not (array.storage or self._view_of_storage(target.value)):
            raise Refusal("only the items of an array that the function made can be assigned to, with np.zeros(n), "
                          f"np.array([...]) or .copy(); this is {describe(array)}")
        if self.dealt(array.size) or any(self.dealt(held.size) for held in self._held(target.value)):
            raise Serial
        mask = self._mask(array, target.indices)
        if mask is not None:
            number = self.fixed(as_number(value, "where a mask selects, a number"))
            self._store_masked(array, mask, lambda _: number)
            return
        place: Any = self.indexed(array, target)
        if isinstance(place, Number):
            number = as_number(value, "a number")
            self.line(f"{place.text} = {cast(number, array.type).text};")
            return
        source = value if isinstance(value, Number) else plain(value)
        if isinstance(source, Array) and source.volatile:
            source = self.materialised(source, "value")
        whole: Any = elementwise(self, lambda number: number, source)
        if isinstance(whole, Array):
            whole = _fitted(whole, place.shape)
        with self.over(place.shape) as indices:
            one = whole if isinstance(whole, Number) else whole.at(*stretched(whole.shape, indices))
            self.line(f"{place.element(*indices)} = {cast(one, array.type).text};")

    def _mask(self, array: Array, indices: tuple[nodes.Expression, ...]) -> Array | None:
        """Return the bools that an array of its shape is indexed by, as they are now; None for other indices."""
        if len(indices) != 1 or isinstance(indices[0], nodes.Slice):
            return None
        with self.apart():
            found = self.expression(indices[0])
        if not isinstance(found, Array) or found.type.kind != "b" or found.shape != array.shape:
            return None
        return self.materialised(self.expression(indices[0]), "mask")

    def _store_masked(self, array: Array, mask: Array, value: Callable[[Number], Number]) -> None:
        """Assign to the items that a mask selects what becomes of each."""
        with self.over(array.shape) as indices:
            one = array.at(*indices)
            self.line(f"if ({mask.element(*indices)}) {one.text} = {cast(value(one), array.type).text};")

    def _held(self, node: nodes.Expression) -> tuple[Array, ...]:
        """Return the array of the function's own that an expression is an item or a slice of."""
        while isinstance(node, nodes.Index):
            node = node.value
        found = self.frame.variables.get(node.name) if isinstance(node, nodes.Local) else None
        return (found,) if isinstance(found, Array) else ()

    def _view_of_storage(self, node: nodes.Expression) -> bool:
        """Return whether an expression is an item or a slice of an array of the function's own."""
        return any(held.storage for held in self._held(node))

    def _do_Augment(self, statement: nodes.Augment, after: Names) -> bool:
        target: Any = statement.target
        if isinstance(target, nodes.Index):
            with self.told_at(target):
                array = self.expression(target.value)
                mask = self._mask(array, target.indices) if isinstance(array, Array) and array.storage else None
            if mask is not None:
                if self.dealt(array.size):
                    raise Serial
                number = self.fixed(self.number(statement.value))
                self._store_masked(array, mask, lambda one: as_number(
                    self.operate(statement.operator, one, number)))
                return True
        current = self.expression(statement.target)
        value = self.expression(statement.value)
        if isinstance(current, Array) and isinstance(statement.target, nodes.Local):
            self._augment_array(statement, current, value)
            return True
        found = self.operate(statement.operator, current, value)
        if isinstance(current, Array) and isinstance(found, Array) and found.shape != current.shape:
            raise Refusal(f"{statement.operator}= of an array of shape {found.shape} does not fit the shape "
                          f"{current.shape} of what it changes")
        self.store(statement.target, found)
        return True

    def _augment_array(self, statement: nodes.Augment, current: Array, value: Value) -> None:
        """Write ``row += value``, which changes the array in place and keeps its type."""
        target: Any = statement.target
        name = target.name
        found = self.operate(statement.operator, current, value)
        if not isinstance(found, Array) or found.shape != current.shape:
            raise Refusal(f"{name} {statement.operator}= does not fit its shape {current.shape}")
        order = "buifc"
        if order.index(found.type.kind) > order.index(current.type.kind) and \
                not (current.type.kind in "iu" and found.type.kind in "iu"):
            raise Refusal(f"{name} {statement.operator}= would put {found.type} into {current.type}; write "
                          f"{name} = {name} {statement.operator} ...")
        if not current.storage:
            raise Refusal(f"{name} {statement.operator}= would change the array that {name} is a view of; write "
                          f"{name} = {name} {statement.operator} ...")
        if isinstance(value, Array) and value.volatile:
            found = self.materialised(found, "value")
        self.copy(current, found)


def _fitted(array: Array, shape: tuple[int, ...]) -> Array:
    """Return the array to assign to a part of an array, without leading axes of one item that the part lacks, as in
    NumPy.

    Raises
    ------
    Refusal
        If it does not fit there.
    """
    more = max(0, len(array.shape) - len(shape))
    rest = array.shape[more:]
    if set(array.shape[:more]) - {1} or any(extent not in (1, wanted) for extent, wanted in
                                           zip(rest[::-1], shape[::-1], strict=False)):
        raise Refusal(f"an array of shape {array.shape} does not fit where one of shape {shape} is assigned to")
    return reindexed(array, rest, lambda *indices: ("0",) * more + indices) if more else array
