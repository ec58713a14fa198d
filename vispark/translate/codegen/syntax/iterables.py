"""Iterables of loops and generators: ranges, rows, tuples, several of them at once."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from vispark.translate.codegen.dispatch import expression, lowers_call
from vispark.translate.codegen.emitter import Emitter, Serial
from vispark.translate.codegen.numpy.ragged import length_of
from vispark.translate.codegen.operands import as_number, static
from vispark.translate.codegen.scalar import scalars
from vispark.translate.codegen.scalar.casts import cast, literal
from vispark.translate.ir import nodes
from vispark.translate.ir.errors import Refusal
from vispark.translate.ir.types import INT
from vispark.translate.ir.values import (
    Array,
    ForRange,
    List,
    Number,
    RaggedRow,
    Tuple,
    Value,
    describe,
    join_types,
    limits_of,
    plus,
    reindexed,
    type_of,
)
from vispark.translate.language.registry import register

#: A loop of so many turns is not run by all lanes of a row alike.
_MANY = 65
#: The most turns that a count of enumerate may reach.
_ENDLESS = 2**31 - 1


@lowers_call("range", "enumerate", "zip", "reversed")
def steps(emit: Emitter, name: str, node: nodes.Call) -> ForRange:
    """Return a call of one of them, as what a loop goes over."""
    values = [expression(emit, argument) for argument in node.arguments]
    keywords = {key: expression(emit, value) for key, value in node.keywords}
    unknown = set(keywords) - {"enumerate": {"start"}, "zip": {"strict"}}.get(name, set())
    if unknown:
        raise Refusal(f"{name} takes no keyword {unknown.pop()} here")
    if name == "zip":
        return _zipped([steps_of(value) for value in values], keywords.get("strict"))
    values = [*values, *keywords.values()]
    if name == "reversed":
        return _reversed(values)
    if name == "enumerate":
        return _enumerated(values)
    return _counting(values)


def _zipped(items: list[ForRange], strict: Value | None) -> ForRange:
    if strict is not None and static(as_number(strict), "strict must be known before the kernel runs"):
        counts = [count_of(one) for one in items]
        if len(set(counts)) > 1 and None not in counts:
            raise Refusal(f"zip() of {' and '.join(map(str, counts))} items is strict, and their numbers differ")
    return ForRange("zip", tuple(items))


def _counting(values: list[Value]) -> ForRange:
    if not 1 <= len(values) <= 3:
        raise Refusal("range takes one to three whole numbers")
    numbers = [as_number(value, "a whole number") for value in values]
    if any(number.type.kind not in "iu" for number in numbers):
        raise Refusal("range takes whole numbers; make one with int()")
    if len(numbers) == 3 and numbers[2].known and numbers[2].value == 0:
        raise Refusal("range's step is 0")
    return ForRange("range", tuple(numbers))


def _enumerated(values: list[Value]) -> ForRange:
    if not 1 <= len(values) <= 2:
        raise Refusal("enumerate takes what it counts, and a start")
    steps, start = steps_of(values[0]), 0
    if len(values) > 1:
        start = static(as_number(values[1]), "enumerate's start must be known before the kernel runs")
    if not start:
        return ForRange("enumerate", (steps,))
    return ForRange("zip", (ForRange("range", (literal(start), literal(_ENDLESS))), steps))


def _reversed(values: list[Value]) -> ForRange:
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


def steps_of(value: Value) -> ForRange:
    """Return a value as the iterable of a ``for``."""
    if isinstance(value, ForRange):
        return value
    if isinstance(value, Tuple | List):
        return ForRange("tuple", value.items)
    if isinstance(value, RaggedRow) or (isinstance(value, Array) and value.shape):
        return ForRange("array", (value,))
    raise Refusal("for goes over range(), rows, tuples, enumerate() and zip() of them, and not over "
                  f"{describe(value)}")


def evaluated_once(emit: Emitter, steps: ForRange) -> ForRange:
    """Return the steps with their bounds evaluated once, as Python does."""
    if steps.kind == "range":
        return ForRange("range", tuple(map(emit.fixed, map(_python_int, steps.items))))
    if steps.kind == "tuple":
        return ForRange("tuple", tuple(map(emit.snapshot, steps.items)))
    if steps.kind == "array":
        return steps
    return ForRange(steps.kind, tuple(map(functools.partial(evaluated_once, emit), steps.items)))


def items_of(steps: ForRange, always: bool = False) -> list[Value] | None:
    """Return the items of each turn where there is a tuple among the steps (or ``always``), so that it is written
    out.
    """
    if not always and not _has_tuple(steps):
        return None
    count = known_count(steps, "beside a tuple stands what has a length known before the kernel runs")
    return [item_at(steps, number) for number in range(count)]


def item_at(steps: ForRange, number: int) -> Value:
    """Return the item of a turn by its number, of a loop that is written out."""
    if steps.kind == "tuple":
        return steps.items[number]
    if steps.kind in ("array", "range"):
        return item_of(steps, literal(number))
    items = tuple(item_at(item, number) for item in steps.items)
    return Tuple((literal(number), *items)) if steps.kind == "enumerate" else Tuple(items)


def as_arrays(emit: Emitter, steps: ForRange) -> ForRange:
    """Return the steps with tuples of numbers as arrays, for a loop that is not written out."""
    if steps.kind == "tuple":
        if not all(isinstance(item, Number) for item in steps.items):
            raise Refusal("a for over a tuple of other than numbers has no break or continue here; write for i in "
                          "range(n), or make it an array")
        kind: Any = type_of(steps.items[0])
        for item in steps.items[1:]:
            kind = join_types(kind, type_of(item))
        array = emit.storage(kind, (len(steps.items),), "items")
        for number, item in enumerate(steps.items):
            emit.line(f"{array.element(str(number))} = {cast(item, kind).text};")
        return ForRange("array", (array,))
    if steps.kind in ("array", "range"):
        return steps
    return ForRange(steps.kind, tuple(map(functools.partial(as_arrays, emit), steps.items)))


def _python_int(number: Number) -> Number:
    return number if number.type == INT else cast(number, INT)


def count_of(steps: ForRange) -> int | None:
    """Return the number of turns of a loop, if it is known; else None."""
    if steps.kind == "array":
        return None if isinstance(steps.items[0], RaggedRow) else steps.items[0].shape[0]
    if steps.kind == "tuple":
        return len(steps.items)
    if steps.kind == "range":
        is_known = all(number.known for number in steps.items)
        return len(range(*(number.value for number in steps.items))) if is_known else None
    counts = [count for count in map(count_of, steps.items) if count is not None]
    return min(counts) if len(counts) == len(steps.items) else None


def known_count(steps: ForRange, reason: str) -> int:
    """Return the number of turns of a loop, which must be known; ints that were captured or given become part of
    the kernel.
    """
    count = count_of(steps)
    if count is not None:
        return count
    if steps.kind == "range":
        return len(range(*(static(number, reason) for number in steps.items)))
    if steps.kind == "array":
        raise Refusal(f"{reason}, and this is a row whose length only data says")
    return min(known_count(item, reason) for item in steps.items)


@contextmanager
def turns(emit: Emitter, steps: ForRange) -> Iterator[Value]:
    """Yield the head and the braces of a ``for``, and the item of a turn."""
    if emit.lanes > 1 and (count_of(steps) or _MANY) >= _MANY:
        raise Serial
    if steps.kind == "range":
        with _range(emit, *_range_parts(steps)) as number:
            yield number
        return
    count = _length(steps)
    with _range(emit, literal(0), count, 1) as number:
        yield item_of(steps, number)


def _range_parts(steps: ForRange) -> tuple[Number, Number, int]:
    numbers = steps.items
    start, stop = (literal(0), numbers[0]) if len(numbers) == 1 else numbers[:2]
    step = 1
    if len(numbers) == 3:
        step = static(numbers[2], "range's step must be known before the kernel runs; write a while loop")
    return start, stop, step


@contextmanager
def counted(emit: Emitter, count: int) -> Iterator[Number]:
    """Write a loop of ``count`` turns, and yield its index."""
    with _range(emit, literal(0), literal(count), 1) as index:
        yield index


@contextmanager
def _range(emit: Emitter, start: Number, stop: Number, step: int) -> Iterator[Number]:
    lows, highs = (start.bounds, stop.bounds) if step > 0 else (stop.bounds, start.bounds)
    bounds: tuple[int, int] | None = None
    if step > 0 and lows:
        bounds = lows[0], max(lows[0], (highs[1] if highs else 2**63 - 1) - 1)
    elif step < 0 and highs:
        ends = (lows[0] if lows else -2**63) + 1, highs[1]
        bounds = min(ends), max(ends)
    if bounds and start.known and stop.known:
        values = range(start.value, stop.value, step)
        bounds = (min(values[0], values[-1]), max(values[0], values[-1])) if values else bounds
    index = Number(INT, emit.name("i"), bounds=bounds, limits=limits_of(start, stop))
    # One step beyond the last must fit too.
    roomy = bounds and index.narrow and bounds[0] - abs(step) >= -(2**31) and bounds[1] + abs(step) < 2**31
    if not roomy:
        index = replace(index, bounds=None if not bounds or index.narrow else bounds)
    sign, change = ("<", f"++{index.text}") if step == 1 else ("<", f"{index.text} += {step}")
    if step < 0:
        sign, change = ">", f"--{index.text}" if step == -1 else f"{index.text} -= {-step}"
    head = f"for ({index.c} {index.text} = {start.text}; {index.text} {sign} {stop.text}; {change})"
    with emit.block(head):
        yield index


def _length(steps: ForRange) -> Number:
    """Return the number of turns over arrays, several at once or counted."""
    if steps.kind == "array":
        first = steps.items[0]
        return length_of(first) if isinstance(first, RaggedRow) else literal(first.shape[0])
    if steps.kind == "range":
        start, stop, step = _range_parts(steps)
        reason = "a range inside zip() or enumerate() has a length known before the kernel runs"
        return literal(len(range(static(start, reason), static(stop, reason), step)))
    lengths = [_length(item) for item in steps.items[:1 if steps.kind == "enumerate" else None]]
    if all(number.known for number in lengths):
        return min(lengths, key=lambda number: number.value)
    least = functools.reduce(lambda a, b: f"shorter({a}, {b})", [number.text for number in lengths])
    return Number(INT, least, bounds=(0, 2**31 - 1))


def item_of(steps: ForRange, index: Number) -> Value:
    """Return the item of a turn of a loop over arrays or several things."""
    if steps.kind == "array":
        return element_of(steps.items[0], index.text)
    if steps.kind == "range":
        start, _, step = _range_parts(steps)
        return scalars.binary("+", start, scalars.binary("*", index, literal(step)))
    items = tuple(item_of(item, index) for item in steps.items)
    return Tuple((index, *items)) if steps.kind == "enumerate" else Tuple(items)


def element_of(array: Array | RaggedRow, index: str) -> Value:
    """Return ``array[index]``: a number, or a row."""
    if isinstance(array, RaggedRow) or len(array.shape) == 1:
        return array.at(index)
    return reindexed(array, array.shape[1:], lambda *rest: (index, *rest))


for _name, _parameters in (("range", "*bounds"), ("enumerate", "iterable start="), ("zip", "*iterables strict="),
                           ("reversed", "sequence /"), ("tuple", "iterable= /"), ("list", "iterable= /")):
    register(_name, _parameters)


def _has_tuple(steps: ForRange) -> bool:
    return steps.kind == "tuple" or (steps.kind in ("zip", "enumerate") and any(map(_has_tuple, steps.items)))
