"""Operators: arithmetic, comparisons, ``and``, ``or``, ``not`` and conditional expressions."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

from vispark.translate.codegen.dispatch import errors_at, expression, lowers_node
from vispark.translate.codegen.elementwise import elementwise
from vispark.translate.codegen.emitter import Emitter, Lines, same
from vispark.translate.codegen.lowering import call_library
from vispark.translate.codegen.numpy.products import product
from vispark.translate.codegen.operands import as_number, bool_of, static
from vispark.translate.codegen.scalar import scalars
from vispark.translate.codegen.scalar.casts import cast, literal
from vispark.translate.codegen.scalar.scalars import NeedsStatic
from vispark.translate.ir import nodes
from vispark.translate.ir.errors import Refusal
from vispark.translate.ir.types import BOOL, INT
from vispark.translate.ir.values import (
    Array,
    ForRange,
    List,
    Nothing,
    Number,
    Tuple,
    Type,
    Value,
    chosen,
    derived,
    describe,
    join_types,
    type_of,
)
from vispark.translate.language.library import COMPARISONS, OPERATORS, UFUNC_OF
from vispark.translate.language.registry import register


@lowers_node(nodes.Unary)
def lower_unary(emit: Emitter, node: nodes.Unary) -> Value:
    """Return ``-x``, ``+x``, ``~x`` or ``not x``."""
    if node.operator == "not":
        return scalars.unary("not", condition_of(emit, node.operand))
    operand = expression(emit, node.operand)
    return elementwise(emit, lambda a: scalars.unary(node.operator, a), operand)


@lowers_node(nodes.Binary)
def lower_binary(emit: Emitter, node: nodes.Binary) -> Value:
    """Return ``left operator right``."""
    return operate(emit, node.operator, expression(emit, node.left), expression(emit, node.right))


def operate(emit: Emitter, symbol: str, left: Value, right: Value) -> Value:
    """Return ``left symbol right``."""
    if symbol == "@":
        return product(emit, left, right)
    if symbol == "**" and isinstance(left, Array) and left.type.kind == "b":
        raise Refusal("** of bools has several types in NumPy, by the exponent's value; write .astype(int) before")
    if isinstance(left, Tuple | List) and isinstance(right, Tuple | List) and symbol == "+":
        if type(left) is not type(right):
            raise Refusal(f"Python has no + of {describe(left)} and {describe(right)}")
        return type(left)((*left.items, *right.items))
    if isinstance(left, Number) and isinstance(right, Tuple | List) and symbol == "*":
        left, right = right, left
    if isinstance(left, Tuple | List) and isinstance(right, Number) and symbol == "*":
        return type(left)(left.items * static(right, "how often a tuple is repeated must be known before the "
                                                          "kernel runs"))
    return elementwise(emit, lambda a, b: scalars.binary(symbol, a, b), left, right)


@lowers_node(nodes.Compare)
def lower_compare(emit: Emitter, node: nodes.Compare) -> Value:
    """Return a comparison, or a chain of them."""
    left: Value = expression(emit, node.first)
    result: Any = None
    for symbol, other in zip(node.operators, node.others, strict=True):
        right = expression(emit, other)
        if len(node.operators) > 1 and isinstance(right, Number):
            right = emit.fixed(right)
        one = compare(emit, symbol, left, right)
        result = one if result is None else both(result, one)
        left = right
    return result


def compare(emit: Emitter, symbol: str, left: Value, right: Value) -> Value:
    """Compare two values by one operator; ``is`` compares with None alone."""
    if isinstance(left, Nothing) or isinstance(right, Nothing):
        if symbol in ("is", "=="):
            return literal(left == right)
        if symbol in ("is not", "!="):
            return literal(left != right)
    if symbol in ("is", "is not"):
        raise Refusal("is compares with None only; write == for numbers")
    if symbol in ("in", "not in"):
        test = _within(emit, left, right)
        return scalars.unary("not", test) if symbol == "not in" else test
    if isinstance(left, Tuple | List) and type(left) is type(right) and symbol in ("==", "!="):
        return _compare_tuples(emit, symbol, left, right)
    if isinstance(left, Array) or isinstance(right, Array):
        return elementwise(emit, lambda a, b: scalars.ufunc(UFUNC_OF[symbol], a, b), left, right)
    return elementwise(emit, lambda a, b: scalars.binary(symbol, a, b), left, right)


def _within(emit: Emitter, value: Value, container: Value) -> Number:
    """Return ``value in container``."""
    if isinstance(container, Array):
        equal = compare(emit, "==", value, container)
        return dataclasses.replace(bool_of(call_library(emit, "numpy.any", (equal,), {})), type=BOOL)
    if isinstance(container, ForRange) and container.kind == "range" and len(container.items) < 3:
        low, high = (literal(0), *container.items)[-2:]
        return dataclasses.replace(both(compare(emit, "<=", low, value), compare(emit, "<", value, high)),
                                   type=BOOL) if as_number(value).type.kind in "iu" else _not_whole()
    if not isinstance(container, Tuple | List):
        raise Refusal(f"in is of a tuple, a row or range(), and this is {describe(container)}")
    test = literal(False)
    for item in container.items:
        # What is the same object is found without a comparison, which a NaN would not pass.
        one = literal(True) if same(value, item) else bool_of(compare(emit, "==", value, item))
        test = one if test.known and not test.value else test if test.known else literal(True) \
            if one.known and one.value else Number(BOOL, f"{test.closed} || {one.closed}", atom=False)
    return dataclasses.replace(test, type=BOOL)


def _not_whole() -> Number:
    raise Refusal("in range() is of whole numbers; write low <= x < high")


def _compare_tuples(emit: Emitter, symbol: str, left: Tuple | List, right: Tuple | List) -> Number:
    equal = literal(len(left.items) == len(right.items))
    for a, b in zip(left.items, right.items, strict=False):
        equal = dataclasses.replace(both(equal, compare(emit, "==", a, b)), type=BOOL)
    return scalars.unary("not", equal) if symbol == "!=" else equal


def both(a: Value, b: Value) -> Number:
    """Return ``a and b`` of truth values."""
    a, b = bool_of(a), bool_of(b)
    if a.known:
        return b if a.value else a
    return a if b.known and b.value else derived(Number(b.type, f"{a.closed} && {b.closed}", atom=False), a, b)


def condition_of(emit: Emitter, node: nodes.Expression) -> Number:
    """Return ``bool(expression)``: of ``and`` and ``or``, whose operands may be of any types then, only the truth.
    """
    if not isinstance(node, nodes.Logical):
        return bool_of(expression(emit, node))
    with errors_at(emit, node):
        test = condition_of(emit, node.operands[0])
        for operand in node.operands[1:]:
            test = _condition_with(emit, node.operator, test, operand)
    return test


def _condition_with(emit: Emitter, symbol: str, left: Number, right: nodes.Expression) -> Number:
    """Compute the right operand only if it is needed."""
    if left.known:
        return condition_of(emit, right) if left.value == (symbol == "and") else left
    with emit.detached(1) as lines:
        other = condition_of(emit, right)
    if lines.lines:
        left = emit.fixed(left)
        needed = left if symbol == "and" else scalars.unary("not", left)
        return as_number(_chosen(emit, needed, lines, other, None, left))
    sign = "&&" if symbol == "and" else "||"
    return derived(Number(BOOL, f"{left.closed} {sign} {other.closed}", atom=False), left, other)


@lowers_node(nodes.Logical)
def lower_logical(emit: Emitter, node: nodes.Logical) -> Value:
    """Return ``and`` or ``or``: one of the operands."""
    result = expression(emit, node.operands[0])
    for operand in node.operands[1:]:
        result = _logical(emit, node.operator, result, operand)
    return result


def _logical(emit: Emitter, symbol: str, left: Any, right: nodes.Expression) -> Value:
    """Return the operand that ``and`` or ``or`` gives; the right one is computed only if it is needed."""
    test = bool_of(left)
    if test.known:
        return expression(emit, right) if test.value == (symbol == "and") else left
    with emit.detached(1) as lines:
        other = expression(emit, right)
    if not lines.lines and all(isinstance(value, Number) and value.type.kind == "b" for value in (left, other)):
        sign = "&&" if symbol == "and" else "||"
        kind: Any = join_types(left.type, other.type)
        return derived(Number(kind, f"{test.closed} {sign} {other.closed}", atom=False), test, other)
    test = emit.fixed(test, "holds")
    needed = test if symbol == "and" else derived(Number(BOOL, f"!{test.closed}"), test)
    return _chosen(emit, needed, lines, other, None, emit.snapshot(left))


@lowers_node(nodes.Choice)
def lower_choice(emit: Emitter, node: nodes.Choice) -> Value:
    """Return ``yes if test else no``."""
    test = condition_of(emit, node.test)
    if test.known:
        return expression(emit, node.yes if test.value else node.no)
    with emit.detached(1) as yes_lines:
        yes = expression(emit, node.yes)
    with emit.detached(1) as no_lines:
        no = expression(emit, node.no)
    if not yes_lines.lines and not no_lines.lines and isinstance(yes, Number) and isinstance(no, Number):
        kind: Any = join_types(yes.type, no.type)
        bounds = None
        if kind == INT and yes.bounds and no.bounds:
            bounds = min(yes.bounds[0], no.bounds[0]), max(yes.bounds[1], no.bounds[1])
        a, b = cast(yes, kind), cast(no, kind)
        if kind == INT and bounds is not None:
            a, b = yes, no
        return derived(Number(kind, f"{test.closed} ? {a.closed} : {b.closed}", bounds=bounds, atom=False),
                       test, yes, no)
    return _chosen(emit, test, yes_lines, yes, no_lines, no)


def _chosen(emit: Emitter, test: Number, yes_lines: Lines, yes: Value, no_lines: Lines | None, no: Value) -> Value:
    """Write the choice between two values whose lines were written apart; without ``no_lines`` the second is
    computed already.
    """
    kind = joined(test, yes, no)
    result = emit.variable(kind, "chosen", None)
    if no_lines is None:
        emit.assign(result, no)
    with emit.block(f"if ({test.text})"):
        emit.put(yes_lines)
        emit.assign(result, yes)
    if no_lines is not None:
        with emit.block("else"):
            emit.put(no_lines)
            emit.assign(result, no)
    fresh = all(isinstance(value, Array) and value.fresh for value in (yes, no))
    return settled(chosen(result, test, yes, no), fresh=fresh)


def joined(test: Number, *values: Value) -> Type:
    """Return the type of what has one of several values, by a test; ints that choose values of no one type become
    part of the kernel.
    """
    try:
        return functools.reduce(join_types, map(type_of, values))
    except Refusal as error:
        raise NeedsStatic.of(test, str(error)) from error


def _apply(emit: Emitter, *arguments: Value, symbol: str) -> Value:
    """Return an operator of ``operator``'s."""
    if len(arguments) == 1 and symbol == "not":
        return scalars.unary("not", bool_of(arguments[0]))
    if len(arguments) == 1:
        return elementwise(emit, lambda a: scalars.unary(symbol, a), *arguments)
    if symbol in COMPARISONS:
        return compare(emit, symbol, *arguments)
    return operate(emit, symbol, *arguments)


for _name, _symbol in OPERATORS.items():
    if _name != "abs":
        register(f"operator.{_name}", "a /" if _symbol in ("not", "~") or _name in ("neg", "pos") else "a b /",
                 functools.partial(_apply, symbol=_symbol), family="operator")


def settled(value: Any, fresh: bool = False) -> Any:
    """Return a value that branches assigned, in the form after their merge: it is not assigned again; ``fresh`` if it
    is a new array in Python.
    """
    if isinstance(value, Array):
        return dataclasses.replace(value, volatile=False, storage="", fresh=fresh)
    if isinstance(value, Tuple | List):
        return dataclasses.replace(value, items=tuple(map(settled, value.items)))
    return dataclasses.replace(value, variable=False) if isinstance(value, Number) else value
