"""Slices whose place is only known as the kernel runs, but not their length: ``p[i:i + 3]``."""

from __future__ import annotations

from vispark.translate.codegen.dispatch import expression, number_of
from vispark.translate.codegen.emitter import Emitter
from vispark.translate.codegen.operands import static
from vispark.translate.codegen.scalar.casts import range_of
from vispark.translate.codegen.scalar.scalars import NeedsStatic, blamed
from vispark.translate.ir import nodes
from vispark.translate.ir.errors import NotConstant
from vispark.translate.ir.types import INT
from vispark.translate.ir.values import Number, limits_of, plus

#: What a slice's end adds up: expressions with how often each is taken, and a number.
Terms = tuple[dict[nodes.Expression, int], int]
#: The functions in such arithmetic.
_CALLED = tuple(map(nodes.Library, ("abs", "int", "max", "min")))
#: The names and numbers of arithmetic that is looked at twice without a line of code more.
_PLAIN = (nodes.Literal, nodes.Local, nodes.Captured)


def window_of(emit: Emitter, node: nodes.Slice, extent: int) -> tuple[str, int] | None:
    """Return the start of a slice of constant length at a computed place, in C++, and the length; None for other
    slices.

    It must lie inside the array for all values that the number can have: else Python's is shorter at an end.
    """
    if node.start is None or node.stop is None or node.step not in (None, nodes.Literal(1)):
        return None
    (start, first), (stop, last) = _terms(emit, node.start), _terms(emit, node.stop)
    if start != stop or not start or last < first:
        return None
    alone, = start if list(start.values()) == [1] else (None,)
    number = number_of(emit, node.start if alone is None else alone, "a slice's end")
    if number.known or number.type.kind not in "iu" or (alone is None and number.type != INT):
        return None
    first, last = (0, last - first) if alone is None else (first, last)
    low, high = number.bounds or range_of(number.type)
    if low + first < 0 or high + last > extent:
        if limits_of(number):
            raise NeedsStatic(limits_of(number))
        reach = f"from {low + first} to {high + last}" if number.bounds else "anywhere"
        raise NotConstant(f"this slice may lie {reach}, and is shorter where it leaves the {extent} numbers, which "
                          "is only known as the kernel runs; use a loop whose range keeps it inside"
                          f"{blamed(number)}")
    return plus(emit.fixed(number, "i").text, first), last - first


def _terms(emit: Emitter, node: nodes.Expression) -> Terms:
    """Return an expression as a sum, in which ints that were captured or given become part of the kernel."""
    if _is_plain(node):
        number = expression(emit, node)
        if isinstance(number, Number) and number.type.kind in "iu" and (number.known or number.sources):
            return {}, static(number, "a slice's end")
    if isinstance(node, nodes.Binary) and node.operator in ("+", "-"):
        (left, first), (right, second) = _terms(emit, node.left), _terms(emit, node.right)
        sign = 1 if node.operator == "+" else -1
        joined = {one: left.get(one, 0) + sign * right.get(one, 0) for one in {**left, **right}}
        return {one: times for one, times in joined.items() if times}, first + sign * second
    if isinstance(node, nodes.Binary) and node.operator == "*":
        (left, first), (right, second) = _terms(emit, node.left), _terms(emit, node.right)
        if not left or not right:
            factor, terms, added = (first, right, second) if not left else (second, left, first)
            return {one: times * factor for one, times in terms.items() if factor}, added * factor
    return {node: 1}, 0


def _is_plain(node: nodes.Expression) -> bool:
    """Return whether an expression is arithmetic of names, numbers and lengths."""
    if isinstance(node, nodes.Binary):
        return _is_plain(node.left) and _is_plain(node.right)
    if isinstance(node, nodes.Call):
        plain = node.function in _CALLED and all(map(_is_plain, node.arguments))
        return plain or node.function == nodes.Library("len")
    return isinstance(node, _PLAIN) or (isinstance(node, nodes.Unary) and _is_plain(node.operand))
