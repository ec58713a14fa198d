"""Reader of a function's intermediate form for the fold of two records that it computes.

The form is evaluated with two unknown records: names stand for parts of the first or of the second one, and what
is returned must be the same part of both under one associative operator, or a tuple of such.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpu_worker.protocol.fold_operators import operators
from vispark.translate.ir import nodes
from vispark.translate.ir.nodes import Definition, Expression

#: Python's operators, and functions by their names in the form, with the operator of a fold and the kind of its join.
BINARY = {each.symbol: each.name for each in operators() if each.symbol}
LIBRARY = {name: (each.name, kind) for each in operators()
           for name, kind in ((each.function, "choice" if each.chooses else "operator"),
                              (f"numpy.{each.ufunc}", "ufunc"))}

_NEITHER = "does not join its two values by one associative operator for each part"


class Unreadable(Exception):
    """A function that is no fold with operators, and why."""


@dataclass(frozen=True)
class Leaf:
    """Fold of one part of a record; hashable, equal by content.

    Attributes
    ----------
    place : str
        The part: "" for the whole record, or a place in nested tuples such as "1.0".
    operator : str
        The name of a :class:`~gpu_worker.protocol.fold_operators.FoldOperator`.
    kind : str
        "operator"; "ufunc", which makes NumPy numbers of Python's; or "choice" of one of the two numbers by comparing
        them, as ``min`` does.
    """

    place: str
    operator: str
    kind: str = "operator"


@dataclass(frozen=True)
class _Of:
    """A part of the first (0) or the second (1) record."""

    side: int
    path: tuple[int, ...] = ()


@dataclass(frozen=True)
class JoinedPart:
    """The same part of both, joined."""

    operator: str
    kind: str = "operator"
    path: tuple[int, ...] = ()


@dataclass(frozen=True)
class _Several:
    """A tuple's items."""

    items: tuple[_Value, ...]


_Value = _Of | JoinedPart | _Several


def join_of(definition: Definition) -> tuple[Leaf, ...]:
    """Read a function of two records as one fold for each part of a record.

    Raises
    ------
    Unreadable
        If it is not an associative operator for each part.
    """
    leaves = tuple(_leaves(_called(definition, (_Of(0), _Of(1))), ()))
    if not leaves:
        raise Unreadable("gives an empty tuple")
    return leaves


def _leaves(value: _Value, path: tuple[int, ...]) -> list[Leaf]:
    match value:
        case JoinedPart(operator, kind, of) if of == path:
            return [Leaf(".".join(map(str, path)), operator, kind)]
        case _Several(items):
            return [leaf for number, item in enumerate(items) for leaf in _leaves(item, (*path, number))]
    raise Unreadable(_NEITHER)


def _called(definition: Definition, arguments: Sequence[_Value]) -> _Value:
    positional = [parameter for parameter in definition.parameters if not parameter.keyword_only]
    needed = [parameter for parameter in definition.parameters if parameter.default is None]
    if len(positional) < len(arguments) or len(needed) > len(arguments) or definition.halo is not None:
        raise Unreadable(f"takes {len(positional)} parameters, not {len(arguments)} values")
    names = {parameter.name: value for parameter, value in zip(positional, arguments, strict=False)}
    return _block(definition.body, names)


def _block(statements: Sequence[nodes.Statement], before: Mapping[str, _Value]) -> _Value:
    names = dict(before)
    for statement in statements:
        match statement:
            case nodes.Assign(targets, value):
                assigned = _value(value, names)
                for target in targets:
                    names |= _bound(target, assigned)
            case nodes.Augment(nodes.Local(name), operator, value):
                names[name] = _joined(operator, names.get(name), _value(value, names))
            case nodes.If(test, body, orelse):
                return _chosen(test, _block(body, names), _block(orelse, names), names)
            case nodes.Return(value):
                return _value(value, names)
            case _:
                raise Unreadable(_NEITHER)
    raise Unreadable("does not return a value on every way")


def _bound(target: Expression, value: _Value) -> dict[str, _Value]:
    match target:
        case nodes.Local(name):
            return {name: value}
        case nodes.TupleOf(items):
            names: dict[str, _Value] = {}
            for number, item in enumerate(items):
                names |= _bound(item, _item(value, number))
            return names
    raise Unreadable(_NEITHER)


def _value(expression: Expression, names: Mapping[str, _Value]) -> _Value:
    match expression:
        case nodes.Local(name) if name in names:
            return names[name]
        case nodes.Index(value, (nodes.Literal(index),)) if type(index) is int and index >= 0:
            return _item(_value(value, names), index)
        case nodes.Binary(operator, left, right):
            return _joined(operator, _value(left, names), _value(right, names))
        case nodes.TupleOf(items):
            return _Several(tuple(_value(item, names) for item in items))
        case nodes.Choice(test, yes, no):
            return _chosen(test, _value(yes, names), _value(no, names), names)
        case nodes.Call(nodes.Called(definition), arguments, ()):
            return _called(definition, [_value(argument, names) for argument in arguments])
        case nodes.Call(nodes.Library(name), arguments, ()) if name in LIBRARY:
            return _by_library(name, [_value(argument, names) for argument in arguments])
    raise Unreadable(_NEITHER)


def _item(value: _Value, index: int) -> _Value:
    match value:
        case _Of(side, path):
            return _Of(side, (*path, index))
        case _Several(items) if index < len(items):
            return items[index]
    raise Unreadable(_NEITHER)


def _joined(operator: str, left: _Value | None, right: _Value) -> _Value:
    if operator not in BINARY:
        raise Unreadable(f"joins its values by {operator}, which is not one of {' '.join(BINARY)}")
    return _both(left, right, JoinedPart(BINARY[operator]))


def _by_library(name: str, arguments: Sequence[_Value]) -> _Value:
    operator, kind = LIBRARY[name]
    if kind == "choice" and len(arguments) == 1 and isinstance(arguments[0], _Several):
        arguments = arguments[0].items
    if len(arguments) != 2:
        raise Unreadable(_NEITHER)
    return _both(arguments[0], arguments[1], JoinedPart(operator, kind))


def _both(left: _Value | None, right: _Value, joined: JoinedPart) -> JoinedPart:
    if not isinstance(left, _Of) or not isinstance(right, _Of) or left.path != right.path or left.side == right.side:
        raise Unreadable(_NEITHER)
    return JoinedPart(joined.operator, joined.kind, left.path)


def _chosen(test: Expression, yes: _Value, no: _Value, names: Mapping[str, _Value]) -> JoinedPart:
    """Return ``a if a < b else b`` and its like."""
    match test:
        case nodes.Compare(first, (("<" | "<=" | ">" | ">=") as order,), (other,)):
            compared = _value(first, names), _value(other, names)
            if (yes, no) in (compared, compared[::-1]):
                least = (order[0] == "<") == (compared[0] == yes)
                return _both(yes, no, JoinedPart("minimum" if least else "maximum", "choice"))
    raise Unreadable(_NEITHER)
