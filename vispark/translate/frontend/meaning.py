"""Analysis of whether a function means the same for rows as for the array that they make, and whether it takes a pair
apart.

``map`` gives a function the whole record, where ``vmap`` gives it the value of a pair, or the rows of an array. This
looks at the intermediate form alone; what is doubtful does not mean the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vispark.translate.ir import nodes
from vispark.translate.ir.nodes import Definition, Expression

#: Functions of NumPy that are no ufuncs and go number by number all the same.
_BY_NUMBER = frozenset(["abs", "numpy.where", "numpy.clip", "numpy.copy", "numpy.real", "numpy.imag", "numpy.round",
                        "numpy.around", "numpy.asarray", "numpy.nan_to_num", "numpy.isclose", "numpy.angle"])
_METHODS = frozenset(["astype", "clip", "copy", "conj", "conjugate", "round"])
_PRODUCTS = frozenset(["numpy.matmul", "numpy.dot", "operator.matmul"])
#: Items of a pair, counted from either end.
_ITEMS_OF_PAIR = frozenset([0, 1, -1, -2])


class _Doubtful(Exception):
    """Something that may differ."""


@dataclass(frozen=True)
class _Axes:
    """Number of axes of a value for one row, and whether the array of all rows has one more."""

    number: int
    along: bool


_Kind = _Axes | tuple[Any, ...]  # of kinds, for a tuple


# -- pairs ------------------------------------------------------------------------------------------------------------

def takes_pair_apart(definition: Definition) -> bool:
    """Return whether all that a function does with its element is what one does with a pair: take item 0 or 1, unpack
    it, or compare it with itself.

    Examples
    --------
    >>> from vispark.translate.frontend.reader import trace
    >>> [takes_pair_apart(trace(f).definition) for f in (lambda kv: (kv[0], kv[1] * 2), lambda p: p[0] * p.sum(),
    ...                                                        lambda kv: kv == kv)]
    [True, False, True]
    """
    first = next((each for each in definition.parameters if not each.keyword_only), None)
    if first is None or first.many:
        return False
    uses = _uses(frozenset([first.name]), definition.body)
    return bool(uses) and all(uses)


def is_returned_in_dict(definition: Definition) -> bool:
    """Return whether a function returns its element as it is as a field of a dict."""
    name = definition.parameters[0].name if definition.parameters else ""
    return any(isinstance(item, nodes.Local) and item.name == name for node in nodes.nodes_of(definition.body)
               if isinstance(node, nodes.DictOf) for item in node.items)


def is_given_to_numpy(definition: Definition) -> bool:
    """Return whether a function of NumPy's is given the element as it is, of which it makes an array if it is a tuple.

    Examples
    --------
    >>> from vispark.translate.frontend.reader import trace
    >>> [is_given_to_numpy(trace(f).definition) for f in (lambda v: np.sqrt(v) + 1, lambda v: np.sqrt(v[0]))]
    [True, False]
    """
    name = definition.parameters[0].name if definition.parameters else ""
    return any(_is_one_of(given, frozenset([name])) for node in nodes.nodes_of(definition.body)
               if isinstance(node, nodes.Call) and isinstance(node.function, nodes.Library)
               and node.function.name.startswith("numpy.") for given in node.arguments)


def _uses(names: frozenset[str], part: object) -> list[bool]:
    """Return, for each use of an element that goes by some names, whether the use is one of a pair."""
    if isinstance(part, tuple):
        names |= _names_of_elements(names, part)
        return [use for node in part for use in _uses(names, node)]
    match part:
        case nodes.Index(nodes.Local(name), (index,)) if name in names:
            return [_number(index) in _ITEMS_OF_PAIR, *_uses(names, index)]
        # A pair is equal to itself as a whole, where an array says so number by number.
        case nodes.Compare(nodes.Local(name), ("==" | "!=",), (nodes.Local(other),)) if {name, other} <= names:
            return [True]
        case nodes.Assign(targets, nodes.Local(name)) if name in names:
            return [_is_two(target) for target in targets if not isinstance(target, nodes.Local)]
        case nodes.Call(nodes.Called(inner), arguments, keywords):
            passed = {each.name for number, each in enumerate(inner.parameters)
                      if number < len(arguments) and _is_one_of(arguments[number], names) and not each.many}
            others = tuple([each for each in arguments if not (passed and _is_one_of(each, names))])
            return _uses(frozenset(passed) | (names & set(inner.free)), inner.body) \
                + _uses(names, (*others, *[value for _, value in keywords]))
        case nodes.Called(inner):
            return _uses(names & set(inner.free), inner.body)
        case nodes.Local(name):
            return [False] if name in names else []
        case nodes.Node():
            return _uses(names, tuple(nodes.parts(part)))
    return []


def _names_of_elements(names: frozenset[str], block: tuple[object, ...]) -> frozenset[str]:
    """Return further names that a block binds to an element."""
    return frozenset([target.name for statement in block if isinstance(statement, nodes.Assign)
                      and _is_one_of(statement.value, names) for target in statement.targets
                      if isinstance(target, nodes.Local)])


def _is_one_of(value: object, names: frozenset[str]) -> bool:
    return isinstance(value, nodes.Local) and value.name in names


def _number(index: Expression) -> object:
    match index:
        case nodes.Literal(value) if isinstance(value, int):
            return value
        case nodes.Unary("-", nodes.Literal(value)) if isinstance(value, int):
            return -value
    return None


def _is_two(target: Expression) -> bool:
    return isinstance(target, nodes.TupleOf) and len(target.items) == 2 and not any(
        isinstance(item, nodes.Spread) for item in target.items)


# -- arrays -----------------------------------------------------------------------------------------------------------

def same_by_rows(function: nodes.Function, arguments: Sequence[nodes.Constant], axes: Mapping[str, int]) -> bool:
    """Return whether a function's result for an array consists of its results for the array's rows.

    Parameters
    ----------
    arguments : sequence of Constant
        What it is given beside the element.
    axes : mapping of str to int
        How many axes a row has: of each field, under its name; of a record without fields under "".

    Examples
    --------
    >>> from vispark.translate.frontend.reader import trace
    >>> [same_by_rows(trace(f), (), {"": 1}) for f in (lambda m: 2 * m + 1, lambda m: m.sum())]
    [True, False]
    """
    try:
        parameters = _parameters(function.definition, [_Axes(len(each.shape), False) for each in arguments], axes)
        result = _Kinds(function).of_body(function.definition, parameters)
    except _Doubtful:
        return False
    return all(kind.along for kind in _flat(result))


def _flat(kind: _Kind) -> list[_Axes]:
    return [each for part in kind for each in _flat(part)] if isinstance(kind, tuple) else [kind]


def _parameters(definition: Definition, arguments: Sequence[_Kind], axes: Mapping[str, int]) -> dict[str, _Kind]:
    positional = [each for each in definition.parameters if not each.keyword_only]
    if any(each.many for each in positional) or not positional:
        raise _Doubtful
    if "" in axes:
        kinds: dict[str, _Kind] = {positional[0].name: _Axes(axes[""], True)}
    elif all(name.replace(".", "0").isdecimal() for name in axes):
        if any("." in name for name in axes):
            raise _Doubtful
        kinds = {positional[0].name: tuple(_Axes(axes[name], True) for name in sorted(axes, key=int))}
    else:
        names = {each.name for each in definition.parameters}
        kinds = {name: _Axes(number, True) for name, number in axes.items() if name in names}
    others = [each.name for each in positional if each.name not in kinds]
    return kinds | dict(zip(others, arguments, strict=False))


class _Kinds:
    """Evaluator of the kinds of a function's expressions."""

    def __init__(self, function: nodes.Function):
        self.captures = function.captures

    def of_body(self, definition: Definition, known: dict[str, _Kind]) -> _Kind:
        """Return the kind of a function's result for parameters of known kinds."""
        for parameter in definition.parameters:
            if parameter.name not in known:
                if parameter.default is None:
                    raise _Doubtful
                known = known | {parameter.name: self.of(parameter.default, known)}
        for statement in definition.body:
            match statement:
                case nodes.Return(value):
                    return self.of(value, known)
                case nodes.Assign(targets, value):
                    kind = self.of(value, known)
                    for target in targets:
                        known = known | _bound(target, kind)
                case nodes.Augment(nodes.Local(name), operator, value):
                    known = known | {name: self.of(nodes.Binary(operator, nodes.Local(name), value), known)}
                case _:
                    raise _Doubtful
        raise _Doubtful

    def of(self, expression: Expression, known: Mapping[str, _Kind]) -> _Kind:
        """Return the kind of an expression."""
        match expression:
            case nodes.Literal(value) if isinstance(value, int | float | complex):
                return _Axes(0, False)
            case nodes.Local(name) if name in known:
                return known[name]
            case nodes.Captured(number):
                return _Axes(len(self.captures[number].value.shape), False)
            case nodes.Unary(operator, operand) if operator != "not":
                return self.of(operand, known)
            case nodes.Binary("@", left, right):
                return _product(self.of(left, known), self.of(right, known))
            case nodes.Binary(_, left, right):
                return _broadcast_kind([self.of(left, known), self.of(right, known)])
            case nodes.Compare(first, (operator,), (other,)) if operator not in ("is", "is not", "in", "not in"):
                return _broadcast_kind([self.of(first, known), self.of(other, known)])
            case nodes.TupleOf(items) | nodes.DictOf(_, items):
                return tuple([self.of(item, known) for item in items])
            case nodes.Attribute(value, "real" | "imag"):
                return self.of(value, known)
            case nodes.Index(value, indices):
                return self._item(self.of(value, known), indices, known)
            case nodes.Call(function, arguments, keywords):
                return self._call(function, arguments, keywords, known)
        raise _Doubtful

    def _item(self, kind: _Kind, indices: tuple[Expression, ...], known: Mapping[str, _Kind]) -> _Kind:
        if isinstance(kind, tuple):
            number = _number(indices[0]) if len(indices) == 1 else None
            if not isinstance(number, int) or not -len(kind) <= number < len(kind):
                raise _Doubtful
            return kind[number]
        if kind.along or any(self.of(index, known) != _Axes(0, False) for index in indices):
            raise _Doubtful
        return _Axes(kind.number - len(indices), False)

    def _call(self, function: Expression, arguments: tuple[Expression, ...],
              keywords: tuple[tuple[str, Expression], ...], known: Mapping[str, _Kind]) -> _Kind:
        match function:
            case nodes.Called(inner) if not (inner.free
                                             or any(isinstance(each, nodes.Spread) for each in arguments)):
                names = [each.name for each in inner.parameters if not each.keyword_only]
                kinds = dict(zip(names, [self.of(each, known) for each in arguments], strict=False))
                return self.of_body(inner, kinds | {name: self.of(value, known) for name, value in keywords})
            case nodes.Attribute(value, name) if name in _METHODS:
                # A dtype says nothing of axes.
                others = () if name == "astype" else (*arguments, *[each for _, each in keywords])
                return _broadcast_kind([self.of(each, known) for each in (value, *others)])
            case nodes.Attribute(left, "dot") if len(arguments) == 1:
                return _product(self.of(left, known), self.of(arguments[0], known))
            case nodes.Library(name) if name in _PRODUCTS and len(arguments) == 2:
                return _product(self.of(arguments[0], known), self.of(arguments[1], known))
            case nodes.Library(name) if name in _BY_NUMBER or _is_ufunc(name):
                others = tuple([value for key, value in keywords if key != "dtype"])
                return _broadcast_kind([self.of(each, known) for each in (*arguments, *others)])
        raise _Doubtful


def _is_ufunc(name: str) -> bool:
    module, _, function = name.rpartition(".")
    return module in ("operator", "scipy.special") or (
        module == "numpy" and isinstance(getattr(np, function, None), np.ufunc))


def _bound(target: Expression, kind: _Kind) -> dict[str, _Kind]:
    match target:
        case nodes.Local(name):
            return {name: kind}
        case nodes.TupleOf(items) if isinstance(kind, tuple) and len(kind) == len(items):
            return {name: each for item, part in zip(items, kind, strict=True)
                    for name, each in _bound(item, part).items()}
    raise _Doubtful


def _broadcast_kind(kinds: Sequence[_Kind]) -> _Axes:
    """Return the kind of an elementwise result of some values."""
    axes = [kind for kind in kinds if isinstance(kind, _Axes)]
    along = {kind.number for kind in axes if kind.along}
    most = max((kind.number for kind in axes), default=0)
    if len(axes) < len(kinds) or not axes or (along and along != {most}):
        raise _Doubtful
    return _Axes(most, bool(along))


def _product(left: _Kind, right: _Kind) -> _Axes:
    """Return the kind of ``left @ right``."""
    if isinstance(left, tuple) or isinstance(right, tuple) or right.along or right.number not in (1, 2) \
            or not left.number:
        raise _Doubtful
    return _Axes(left.number - (right.number == 1), left.along)
