"""Iterables of loops and generators: ranges, rows, tuples, several of them at once."""

from __future__ import annotations

import functools

from vispark.translate.codegen.emitter import Emitter
from vispark.translate.codegen.operands import as_number, static
from vispark.translate.codegen.scalar.casts import literal
from vispark.translate.codegen.scalar.scalars import NeedsStatic
from vispark.translate.ir.errors import Refusal
from vispark.translate.ir.values import (
    Array,
    ForRange,
    List,
    Number,
    Tuple,
    Type,
    Value,
    describe,
    join_types,
    plus,
    reindexed,
    type_of,
)
from vispark.translate.language.registry import register

#: The most turns that a count of enumerate may reach.
_ENDLESS = 2**31 - 1


for _name, _parameters in (("range", "*bounds"), ("enumerate", "iterable start="), ("zip", "*iterables strict="),
                           ("reversed", "sequence /"), ("tuple", "iterable= /"), ("list", "iterable= /")):
    register(_name, _parameters)


class Iterables(Emitter):
    """``range``, ``enumerate``, ``zip`` and ``reversed``."""

    def steps(self, name: str, values: list[Value], keywords: dict[str, Value]) -> ForRange:
        """Return a call of one of them."""
        unknown = set(keywords) - {"enumerate": {"start"}, "zip": {"strict"}}.get(name, set())
        if unknown:
            raise Refusal(f"{name} takes no keyword {unknown.pop()} here")
        if name == "zip":
            return self._zipped([self.steps_of(value) for value in values], keywords.get("strict"))
        values = [*values, *keywords.values()]
        if name == "reversed":
            return self._reversed(values)
        if name == "enumerate":
            return self._enumerated(values)
        return self._counting(values)

    def _zipped(self, items: list[ForRange], strict: Value | None) -> ForRange:
        if strict is not None and static(as_number(strict), "strict must be known before the kernel runs"):
            counts = [self.count_of(one) for one in items]
            if len(set(counts)) > 1 and None not in counts:
                raise Refusal(f"zip() of {' and '.join(map(str, counts))} items is strict, and their numbers differ")
        return ForRange("zip", tuple(items))

    def _counting(self, values: list[Value]) -> ForRange:
        if not 1 <= len(values) <= 3:
            raise Refusal("range takes one to three whole numbers")
        numbers = [as_number(value, "a whole number") for value in values]
        if any(number.type.kind not in "iu" for number in numbers):
            raise Refusal("range takes whole numbers; make one with int()")
        if len(numbers) == 3 and numbers[2].known and numbers[2].value == 0:
            raise Refusal("range's step is 0")
        return ForRange("range", tuple(numbers))

    def _enumerated(self, values: list[Value]) -> ForRange:
        if not 1 <= len(values) <= 2:
            raise Refusal("enumerate takes what it counts, and a start")
        steps, start = self.steps_of(values[0]), 0
        if len(values) > 1:
            start = static(as_number(values[1]), "enumerate's start must be known before the kernel runs")
        if not start:
            return ForRange("enumerate", (steps,))
        return ForRange("zip", (ForRange("range", (literal(start), literal(_ENDLESS))), steps))

    def _reversed(self, values: list[Value]) -> ForRange:
        if len(values) != 1:
            raise Refusal("reversed takes one row, tuple or range")
        value, = values
        if isinstance(value, Tuple | List):
            return ForRange("tuple", value.items[::-1])
        if isinstance(value, Array) and value.shape:
            last = value.shape[0] - 1
            return ForRange("array", (reindexed(value, value.shape, lambda i, *rest: (plus(f"-({i})", last), *rest)),))
        if isinstance(value, ForRange) and value.kind == "range":
            reason = "the bounds of a reversed range must be known before the kernel runs; write the step as -1"
            turned = range(*(static(number, reason) for number in value.items))[::-1]
            return ForRange("range", tuple(map(literal, (turned.start, turned.stop, turned.step))))
        raise Refusal(f"reversed() is of a tuple, a row or range(), and this is {describe(value)}")

    def steps_of(self, value: Value) -> ForRange:
        """Return a value as the iterable of a ``for``."""
        if isinstance(value, ForRange):
            return value
        if isinstance(value, Tuple | List):
            return ForRange("tuple", value.items)
        if isinstance(value, Array) and value.shape:
            return ForRange("array", (value,))
        raise Refusal("for goes over range(), rows, tuples, enumerate() and zip() of them, and not over "
                      f"{describe(value)}")

    def count_of(self, steps: ForRange) -> int | None:
        """Return the number of turns of a loop, if it is known; else None."""
        raise NotImplementedError

    # -- what must be of a kind ----------------------------------------------------------------------------------------

    def joined(self, test: Number, *values: Value) -> Type:
        """Return the type of what has one of several values, by a test; ints that choose values of no one type become
        part of
        the kernel."""
        try:
            return functools.reduce(join_types, map(type_of, values))
        except Refusal as error:
            raise NeedsStatic.of(test, str(error)) from error
