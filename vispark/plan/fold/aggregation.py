"""Reader of the functions given to ``aggregate``: what they compute of each record, and the fold of the results.

``seqOp(total, record)`` must join each part of its total, by one associative operator, with something that it computes
of the record alone: ``(total[0] + x, total[1] + 1)`` joins ``x`` and ``1`` by ``add``. That becomes a ``vmap`` and a
fold.
"""

from __future__ import annotations

import copy
import functools
import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vispark._utils.lazy import LazyModule
from vispark.plan.fold.reading import BINARY, LIBRARY, Leaf, Unreadable
from vispark.plan.fold.spec import FoldSpec, fold_of
from vispark.translate import Function, TranslationError
from vispark.translate.ir import nodes
from vispark.translate.ir.nodes import Definition, Expression

if TYPE_CHECKING:
    from vispark.translate.frontend import reader
else:
    reader = LazyModule("vispark.translate.frontend.reader")

#: Functions without a source, as the translator reads them.
_WRITTEN: tuple[tuple[Callable[..., Any], Callable[[Any, Any], Any]], ...] = (
    (operator.add, lambda total, record: total + record), (operator.iadd, lambda total, record: total + record),
    (operator.mul, lambda total, record: total * record))

_NOT_JOINED = "does not join each part of its first value with what it computes of the second one"


@dataclass(frozen=True)
class Aggregation:
    """Meaning of an ``aggregate`` call: a function of each record, and the fold of its results.

    Attributes
    ----------
    mapped : Function
        What is computed of each record: the parts, or a tuple of them.
    fold : FoldSpec
        How they are joined.
    """

    mapped: Function
    fold: FoldSpec


def aggregation_of(step: Callable[[Any, Any], Any], combine: Callable[[Any, Any], Any]) -> Aggregation | str:
    """Read the aggregation that ``aggregate`` with these functions computes, or why it has no kernel; neither function
    is called.

    Examples
    --------
    >>> found = aggregation_of(lambda t, x: (t[0] + x, t[1] + 1), lambda a, b: (a[0] + b[0], a[1] + b[1]))
    >>> found.fold.label
    '(add, add)'
    >>> aggregation_of(lambda total, x: total * 0.5 + x, lambda a, b: a + b)
    'lambda does not join each part of its first value with what it computes of the second one'
    >>> aggregation_of(operator.add, operator.add).fold.label
    'add'
    """
    joined = fold_of(combine)
    if isinstance(joined, str):
        return joined
    try:
        function = reader.trace(next((each for named, each in _WRITTEN if named is step), step))
    except TranslationError as error:
        return str(error)
    reading = _read(function.definition)
    if isinstance(reading, str):
        return reading
    if {leaf.place: leaf for leaf in reading.leaves} != {leaf.place: leaf for leaf in joined.leaves}:
        return "the two functions of aggregate() join by different operators"
    mapped = Function(reading.definition, function.captures)
    return Aggregation(mapped, joined)


# -- what joins the total ---------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class _Total:
    """A part of the total."""

    path: tuple[int, ...] = ()


@dataclass(frozen=True)
class _Joined:
    """A part of the total, joined with the local variable ``with_``."""

    path: tuple[int, ...]
    operator: str
    kind: str
    with_: str


@dataclass(frozen=True)
class _TupleItems:
    """A tuple's items."""

    items: tuple[_FoldValue, ...]


#: None stands for what is computed of the record alone.
_FoldValue = _Total | _Joined | _TupleItems | None


@dataclass(frozen=True)
class _Split:
    definition: Definition
    leaves: tuple[Leaf, ...]


@functools.lru_cache(maxsize=256)
def _read(definition: Definition) -> _Split | str:
    try:
        return _Splitter(definition).split()
    except Unreadable as error:
        return f"{definition.name} {error}"


class _Splitter:
    """Splitter of a function of a total and a record into a function of the record and a fold."""

    def __init__(self, definition: Definition):
        if len(definition.parameters) != 2 or definition.halo is not None:
            raise Unreadable(f"takes {len(definition.parameters)} parameters, not a total and a record")
        self.definition = definition
        self.names: dict[str, _FoldValue] = {definition.parameters[0].name: _Total()}
        self.body: list[nodes.Statement] = []
        self.used = {node.name for node in nodes.nodes_of(definition.body) if isinstance(node, nodes.Local)}

    def split(self) -> _Split:
        for statement in self.definition.body:
            match statement:
                case nodes.Return(value):
                    return self._returned(self._value(value))
                case nodes.Assign((target,), value) if self._mentions(value):
                    self._bind(target, self._value(value))
                case nodes.Augment(nodes.Local(name), operator, value) if name in self.names:
                    self.names[name] = self._by_operator(operator, self.names[name], None, value)
                case _:
                    self._plain(statement)
        raise Unreadable("does not return a value on every way")

    def _returned(self, value: _FoldValue) -> _Split:
        leaves: list[Leaf] = []
        result = self._result(value, (), leaves)
        parameters = self.definition.parameters[1:]
        definition = Definition(self.definition.name, parameters, (*self.body, nodes.Return(result)),
                                self.definition.free, None, self.definition.text)
        return _Split(definition, tuple(leaves))

    def _result(self, value: _FoldValue, path: tuple[int, ...], leaves: list[Leaf]) -> Expression:
        match value:
            case _Joined(of, operator, kind, with_) if of == path:
                leaves.append(Leaf(".".join(map(str, path)), operator, kind))
                return nodes.Local(with_)
            case _TupleItems(items) if items:
                return nodes.TupleOf(tuple([self._result(item, (*path, number), leaves)
                                           for number, item in enumerate(items)]))
        raise Unreadable(_NOT_JOINED)

    def _plain(self, statement: nodes.Statement) -> None:
        """Append a statement that reads and writes variables of the record alone."""
        written = {node.name for node in nodes.nodes_of((statement,)) if isinstance(node, nodes.Local)}
        if written & self.names.keys() or any(isinstance(node, nodes.Return) for node in nodes.nodes_of((statement,))):
            raise Unreadable(_NOT_JOINED)
        self.body.append(statement)

    def _bind(self, target: Expression, value: _FoldValue) -> None:
        match target, value:
            case nodes.Local(name), _:
                self.names[name] = value
            case nodes.TupleOf(items), _Total(path):
                for number, item in enumerate(items):
                    self._bind(item, _Total((*path, number)))
            case nodes.TupleOf(items), _TupleItems(values) if len(items) == len(values) and None not in values:
                for item, part in zip(items, values, strict=True):
                    self._bind(item, part)
            case _:
                raise Unreadable(_NOT_JOINED)

    def _mentions(self, node: Any) -> bool:
        return any(isinstance(part, nodes.Local) and part.name in self.names for part in nodes.nodes_of((node,)))

    def _value(self, expression: Expression) -> _FoldValue:
        if not self._mentions(expression):
            return None
        match expression:
            case nodes.Local(name):
                return self.names[name]
            case nodes.Index(value, (nodes.Literal(index),)) if type(index) is int and index >= 0:
                return _item(self._value(value), index)
            case nodes.TupleOf(items):
                return _TupleItems(tuple([self._value(item) for item in items]))
            case nodes.Binary(operator, left, right):
                first = self._value(left)
                return self._by_operator(operator, first if first else self._value(right), left, right)
            case nodes.Call(nodes.Library(name), (left, right), ()) if name in LIBRARY:
                return self._joined(*LIBRARY[name], left, right)
            case nodes.Choice(nodes.Compare(first, ((("<" | "<=" | ">" | ">=") as order),), (other,)), yes, no):
                if (yes, no) not in ((first, other), (other, first)):
                    raise Unreadable(_NOT_JOINED)
                least = (order[0] == "<") == (yes == first)
                return self._joined("minimum" if least else "maximum", "choice", first, other)
        raise Unreadable(_NOT_JOINED)

    def _by_operator(self, operator: str, total: _FoldValue, left: Expression | None, right: Expression) -> _Joined:
        if operator not in BINARY:
            raise Unreadable(f"joins its values by {operator}, which is not one of {' '.join(BINARY)}")
        if left is None:
            return self._with(BINARY[operator], "operator", total, right)
        return self._joined(BINARY[operator], "operator", left, right)

    def _joined(self, operator: str, kind: str, left: Expression, right: Expression) -> _Joined:
        """Return a part of the total on one side, something else on the other."""
        if not self._mentions(right):
            return self._with(operator, kind, self._value(left), right)
        return self._with(operator, kind, self._value(right), left)

    def _with(self, operator: str, kind: str, total: _FoldValue, other: Expression) -> _Joined:
        if not isinstance(total, _Total) or self._mentions(other):
            raise Unreadable(_NOT_JOINED)
        name = next(name for number in range(len(self.used) + 1) if (name := f"part_{number}") not in self.used)
        self.used.add(name)
        # Here, as its variables may get other values before the function returns.
        self.body.append(nodes.Assign((nodes.Local(name),), other, at=other.at))
        return _Joined(total.path, operator, kind, name)


def _item(value: _FoldValue, index: int) -> _FoldValue:
    match value:
        case _Total(path):
            return _Total((*path, index))
        case _TupleItems(items) if index < len(items):
            return items[index]
    raise Unreadable(_NOT_JOINED)


# -- values of totals -------------------------------------------------------------------------------------------------

def parts_of(value: Any, places: Iterable[str]) -> dict[str, Any]:
    """Return the parts of a total, by place.

    Raises
    ------
    LookupError, TypeError
        If it has no such part.
    """
    return {place: functools.reduce(lambda part, step: part[int(step)], filter(None, place.split(".")), value)
            for place in places}


def total(zero: Any, partitions: int, folded: Any, combine: Callable[[Any, Any], Any]) -> Any:
    """Combine the zero values of all partitions and of the driver with a folded value, as Spark does."""
    # Copies, as it may change what it is given: of a total every partition has its own.
    zeros = [copy.deepcopy(zero) for _ in range(partitions + 1)]
    return combine(functools.reduce(combine, zeros), folded)
