"""Analysis of functions of Python numbers that would give something else than Python does.

``vmap`` computes with a record as with NumPy's scalar of 64 bits. Most functions give the same; this looks at the
intermediate form alone for those that do not, whatever the data are. Division by zero and sums and products beyond 64
bits are seen in the data only, and are not looked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from vispark._utils.lazy import LazyModule
from vispark.translate.ir import nodes
from vispark.translate.ir.nodes import Definition, Expression, Function
from vispark.translate.language import composed

if TYPE_CHECKING:
    from vispark.translate.language import library
else:
    library = LazyModule("vispark.translate.language.library")

#: What a factor or a term of Python's keeps its type beside.
_WIDE = frozenset(["bool", "int64", "float64", "complex128"])

_TRUTHS = ("adds truth values: of records that are Python numbers they are NumPy's in vmap(), where True + True is "
           "True, and in map() it is 2. Write int(x > 0) + int(y > 0) for 2, np.logical_or(x > 0, y > 0) for True")
_POWER = ("has {shown} of ints, which wraps beyond 64 bits, where map() gives Python's long ones. Write float(x) for "
          "large numbers, np.int64(x) if they are to wrap")
_NARROW = ("computes with records that are Python numbers and with {name}, which is {dtype}: vmap() takes the records "
           "as {wide}, so that {what} {result}; in map() it is {dtype}. Write np.{dtype}(x) for {dtype}, "
           "{cured} for {result}")
#: What NumPy's operands decide the type of.
_RESULT, _COMPARED = "the result is", "what is compared is"


def meaning_of_numbers(function: Function, numbers: Mapping[str, str]) -> str:
    """Return a text of the first operation on Python's numbers that means something else in ``map``; empty if none is
    found.

    Parameters
    ----------
    numbers : mapping of str to str
        The fields of a record that are Python numbers, each with its type's name; "" is a record without fields.

    Examples
    --------
    >>> from vispark.translate.frontend.reader import trace
    >>> meaning_of_numbers(trace(lambda x: (x > 0) + (x < 6)), {"": "int"})[:17]
    'adds truth values'
    >>> meaning_of_numbers(trace(lambda x: 2 * x + 1), {"": "int"})
    ''
    """
    first = next((each.name for each in function.definition.parameters), "")
    kinds = {first if name == "" else name: kind for name, kind in numbers.items()}
    return next(_Reading(function).differences(function.definition, kinds), "")


class _Reading:
    """Analysis of a function, and of those that it calls, for operations on Python's numbers."""

    def __init__(self, function: Function):
        self.captures = function.captures
        #: The variables that hold constants of NumPy's that are written out, with their dtypes.
        self.named: dict[str, str] = {}

    def differences(self, definition: Definition, known: Mapping[str, str]) -> Iterator[str]:
        """Yield texts of a function's operations on variables that hold, or depend on, Python's numbers."""
        known = dict(known)
        for node in nodes.nodes_of(definition.body):
            match node:
                case nodes.Assign(targets, value):
                    for target in targets:
                        known |= self._bound(target, value, known)
                case nodes.Binary() | nodes.Augment():
                    yield from self._operation(node, known)
                case nodes.Compare(first, operators, others):
                    for left, operator, right in zip((first, *others), operators, others, strict=False):
                        if operator in library.COMPARISONS:
                            yield from self._narrower(left, right, known, _COMPARED)
                case nodes.Call(nodes.Called(inner), arguments, keywords):
                    yield from self._called(inner, arguments, dict(keywords), known)

    def _bound(self, target: Expression, value: Expression, known: Mapping[str, str]) -> dict[str, str]:
        match target, value:
            case nodes.Local(name), _:
                self.named.pop(name, None)
                if isinstance(value, nodes.Call) and (dtype := self._of_numpy(value)[1]):
                    self.named[name] = dtype
                kind = self._kind(value, known)
                return {name: kind} if kind else {}
            case nodes.TupleOf(targets), nodes.TupleOf(values) if len(targets) == len(values):
                return {name: kind for one, other in zip(targets, values, strict=True)
                        for name, kind in self._bound(one, other, known).items()}
        return {}

    def _called(self, inner: Definition, arguments: tuple[Expression, ...], keywords: dict[str, Expression],
                known: Mapping[str, str]) -> Iterator[str]:
        passed = dict(zip([each.name for each in inner.parameters], arguments, strict=False)) | keywords
        kinds = {name: kind for name, value in passed.items() if (kind := self._kind(value, known))}
        if inner.text.file != composed.__file__:
            yield from self.differences(inner, kinds) if kinds else ()
        elif inner.name in ("comb", "factorial") and kinds:
            yield _POWER.format(shown=f"math.{inner.name}")

    def _operation(self, node: nodes.Binary | nodes.Augment, known: Mapping[str, str]) -> Iterator[str]:
        left, right = (node.left, node.right) if isinstance(node, nodes.Binary) else (node.target, node.value)
        kinds = self._kind(left, known), self._kind(right, known)
        if node.operator in ("+", "-", "*") and kinds == ("bool", "bool"):
            yield _TRUTHS
        if node.operator in ("**", "<<") and not isinstance(right, nodes.Literal) and "int" in kinds \
                and all(kind == "int" or _is_int(side) for kind, side in zip(kinds, (left, right), strict=True)):
            yield _POWER.format(shown=node.operator)
        if node.operator in "+-*/%//**":
            yield from self._narrower(left, right, known, _RESULT)

    def _narrower(self, left: Expression, right: Expression, known: Mapping[str, str], what: str) -> Iterator[str]:
        """Yield warnings about Python numbers of records that meet NumPy numbers of fewer bits."""
        for one, other in ((left, right), (right, left)):
            kind = self._kind(one, known)
            if kind in ("int", "float"):
                yield from self._narrow(kind, other, what)

    def _narrow(self, kind: str, other: Expression, what: str) -> Iterator[str]:
        name, dtype, is_array = self._of_numpy(other)
        if dtype in _WIDE or not dtype:
            return
        wide = {"int": "int64", "float": "float64"}[kind]
        result = np.result_type(wide, dtype).name
        if np.result_type({"int": int, "float": float}[kind](0), np.zeros(1, dtype)).name == dtype:
            cured = f"{name}.astype(np.{result})" if is_array else f"np.{result}({name})"
            yield _NARROW.format(name=name, dtype=dtype, wide=wide, what=what, result=result, cured=cured)

    def _of_numpy(self, other: Expression) -> tuple[str, str, bool]:
        """Return a constant of NumPy's, captured or written out: its name, its dtype, and whether it is an array; empty
        names of anything else.
        """
        match other:
            case nodes.Captured(number, name) if not (constant := self.captures[number].value).weak:
                return name, np.dtype(constant.dtype).name, bool(constant.shape)
            case nodes.Unary("-" | "+", operand):
                return self._of_numpy(operand)
            case nodes.Local(name) if name in self.named:
                return name, self.named[name], False
            case nodes.Call(nodes.Library(function), (argument,), ()) \
                    if (dtype := function.removeprefix("numpy.")) in library.TYPES and (value := _literal(argument)):
                return f"np.{dtype}({value})", np.dtype(dtype).name, False
        return "", "", False

    def _kind(self, value: Expression, known: Mapping[str, str]) -> str:
        """Return the Python type that a value has in ``map``, if it is computed of records; "" if it is not."""
        match value:
            case nodes.Local(name):
                return known.get(name, "")
            case nodes.Compare(first, _, others):
                return "bool" if any(self._kind(each, known) for each in (first, *others)) else ""
            case nodes.Unary("not", _):
                return ""
            case nodes.Unary(_, operand):
                return self._kind(operand, known)
            case nodes.Binary("/", left, right):
                return "float" if self._kind(left, known) or self._kind(right, known) else ""
            case nodes.Binary(_, left, right):
                kinds = {self._kind(left, known), self._kind(right, known)}
                return next((kind for kind in ("float", "int", "bool") if kind in kinds), "")
        return ""


def _literal(argument: Expression) -> str:
    """Return a number that is written in the source, as text; empty if it is none."""
    match argument:
        case nodes.Literal(int() | float() as value):
            return repr(value)
        case nodes.Unary("-", nodes.Literal(int() | float() as value)):
            return f"-{value!r}"
    return ""


def _is_int(side: Expression) -> bool:
    return isinstance(side, nodes.Literal) and type(side.value) is int
