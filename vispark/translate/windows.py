"""Slices whose place is only known as the kernel runs, but not their length: ``p[i:i + 3]``."""

from __future__ import annotations

from typing import Any

from vispark.translate import form
from vispark.translate.casts import range_of
from vispark.translate.errors import Refusal
from vispark.translate.iterables import Iterables
from vispark.translate.values import Number, plus

#: What is looked at twice without a line of code more.
_PLAIN = (form.Literal, form.Local, form.Captured)


class Windows(Iterables):
    """Finds how long a slice is whose ends are one number and different constants."""

    def expression(self, node: form.Expression) -> Any:
        """The value of an expression."""
        raise NotImplementedError

    def number(self, node: form.Expression, what: str = "a number") -> Number:
        """The value of an expression that must be a number."""
        raise NotImplementedError

    def window(self, node: form.Slice, extent: int) -> tuple[str, int] | None:
        """Where such a slice starts, in C++, and its length; None of other slices.

        It must lie inside the array for all values that the number can have: else Python's is shorter at an end.
        """
        if node.start is None or node.stop is None or node.step not in (None, form.Literal(1)):
            return None
        (start, first), (stop, last) = self._and_more(node.start), self._and_more(node.stop)
        if start != stop or isinstance(start, form.Literal):
            return None
        number = self.number(start, "a slice's end")
        if number.known or number.type.kind not in "iu" or last < first:
            return None
        low, high = number.bounds or range_of(number.type)
        if low + first < 0 or high + last > extent:
            if number.sources:
                return None         # a number that can be compiled in
            reach = f"from {low + first} to {high + last}" if number.bounds else "anywhere"
            raise Refusal(f"this slice may lie {reach}, and is shorter where it leaves the {extent} numbers, which is "
                          "only known as the kernel runs; use a loop whose range keeps it inside")
        return plus(self.fixed(number, "i").text, first), last - first

    def _and_more(self, node: form.Expression) -> tuple[form.Expression, int]:
        """An expression as another one and a constant that is added to it."""
        if isinstance(node, form.Binary) and node.operator in ("+", "-"):
            ways = [(node.left, node.right)] + [(node.right, node.left)] * (node.operator == "+")
            for base, added in ways:
                if not isinstance(added, _PLAIN) and not _is_length(added):
                    continue
                number = self.expression(added)
                if isinstance(number, Number) and number.known and number.type.kind in "iu":
                    inner, more = self._and_more(base)
                    return inner, more + int(number.value) * (1 if node.operator == "+" else -1)
        return node, 0


def _is_length(node: form.Expression) -> bool:
    return isinstance(node, form.Call) and node.function == form.Library("len")
