"""Writes ``if`` and loops, and brings the variables of different ways together.

Where ways meet (after an ``if``, at a loop's head) a variable of the type that holds both is declared before, and each
way stores its value there. A loop whose body widens a type is written again with the wider one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from vispark.translate.codegen.emitter import Lines, Serial, same
from vispark.translate.codegen.operands import static
from vispark.translate.codegen.scalar import scalars
from vispark.translate.codegen.scalar.casts import cast, literal
from vispark.translate.codegen.syntax.assignments import Assignments
from vispark.translate.ir import liveness, nodes
from vispark.translate.ir.errors import Refusal, TranslationError, is_of_a_turn
from vispark.translate.ir.liveness import NONE, Names
from vispark.translate.ir.types import BOOL, INT
from vispark.translate.ir.values import (
    Array,
    ForRange,
    LocalFunction,
    Nothing,
    Number,
    Tuple,
    Type,
    Value,
    chosen,
    join_types,
    limits_of,
    shown,
    type_of,
)

#: A loop of so many turns is not run by all lanes of a row alike.
_MANY = 65

#: A loop over a tuple of more items than this is not written out.
UNROLLED = 64

Variables = dict[str, Value]


@dataclass
class OpenLoop:
    """A loop that is being written.

    ``wanted`` are the names that its turns change and that may be read at its head or after it; ``carried`` the C++
    variables that hold them between turns; ``seen`` the types that they had at the ends of turns; ``missing`` those
    without a value at the end of some turn, or at some ``break``.
    """

    wanted: Names
    head: Names
    after: Names
    carried: Variables = field(default_factory=dict)
    seen: dict[str, Type] = field(default_factory=dict)
    missing: set[str] = field(default_factory=set)
    missing_at_break: set[str] = field(default_factory=set)
    broke: str = ""


class Branches(Assignments):
    """Statements with more than one way through them."""

    def __init__(self, lanes: int = 1) -> None:
        super().__init__(lanes)
        self.loops: list[OpenLoop] = []
        #: The tests of the ifs that are being written.
        self.tests: tuple[Number, ...] = ()

    def statements(self, block: nodes.Block, after: Names) -> bool:
        """Write a block; whether what follows it is reached. ``after`` are the names that may be read then."""
        head, ends = (self.loops[-1].head, self.loops[-1].after) if self.loops else (NONE, NONE)
        for number, statement in enumerate(block):
            later = liveness.live(block[number + 1:], after, ends, head)
            with self.told_at(statement):
                goes_on = getattr(self, f"_do_{type(statement).__name__}")(statement, later)
            if not goes_on:
                return False
        return True

    # -- if -----------------------------------------------------------------------------------------------------------

    def _do_If(self, statement: nodes.If, after: Names) -> bool:
        test = self.condition(statement.test)
        if test.known:
            return self.statements(statement.body if test.value else statement.orelse, after)
        return self.ways(test, lambda: self.statements(statement.body, after),
                         lambda: self.statements(statement.orelse, after), after)

    def ways(self, test: Number, yes: Callable[[], bool], no: Callable[[], bool], live: Names) -> bool:
        """Write ``if (test)`` with both branches, and the merge of their variables; return whether a branch goes on
        after it.
        """
        before = self.frame.variables
        tests, ways = self.tests, []
        self.tests = (*tests, test)
        for way in (yes, no):
            self.frame.variables = dict(before)
            with self.apart(1) as lines:
                goes_on = way()
            ways.append((lines, self.frame.variables, goes_on))
        self.tests = tests
        going = [(lines, variables) for lines, variables, goes_on in ways if goes_on]
        self.frame.variables = before
        if going:
            self.frame.variables = self._meet(test, going, before, live)
        (yes_lines, *_), (no_lines, *_) = ways
        self._write_ways(test, yes_lines, no_lines)
        return bool(going)

    def _write_ways(self, test: Number, yes: Lines, no: Lines) -> None:
        if not yes.lines:
            test, yes, no = scalars.unary("not", test), no, yes
        if not yes.lines:
            return
        with self.block(f"if ({test.text})", "}" if not no.lines else "} else {"):
            self.put(yes)
        if no.lines:
            self.put(no)
            self.line("}")

    def _meet(self, test: Number, ways: list[tuple[Lines, Variables]], before: Variables,
              live: Names) -> Variables:
        """Return the variables after ways that meet. What differs is stored by each in a variable declared before them.
        """
        found: Variables = {}
        for name in ways[0][1]:
            values = [variables[name] for _, variables in ways if name in variables]
            if len(values) < len(ways):
                continue
            unchanged = name in before and all(same(before[name], value) for value in values)
            outlasts = all(isinstance(value, LocalFunction | Nothing) or (isinstance(value, Number) and value.known)
                           for value in values) and all(same(values[0], value) for value in values)
            if unchanged or outlasts:
                found[name] = values[0]
            elif name in live:
                found[name] = chosen(self._meet_one(name, test, ways, values), test, *values)
        return found

    def _meet_one(self, name: str, test: Number, ways: list[tuple[Lines, Variables]], values: list[Value]) -> Value:
        try:
            kind = self.joined(test, *values)
        except Refusal as error:
            raise Refusal(f"{name}: {error}") from error
        target = self.variable(kind, name)
        for (lines, _), value in zip(ways, values, strict=True):
            kept, self.out = self.out, lines
            self.assign(target, value)
            self.out = kept
        return target

    # -- loops --------------------------------------------------------------------------------------------------------

    def _do_While(self, statement: nodes.While, after: Names) -> bool:
        if self.lanes > 1:
            raise Serial
        return self._loop(statement, after, lambda loop: self._while(statement, loop), certain=False)

    def _while(self, statement: nodes.While, loop: OpenLoop) -> None:
        with self.apart(1) as lines:
            test = self.condition(statement.test)
        if test.known and not test.value:
            return
        simple = not lines.lines
        head = "true" if test.known or not simple else test.text
        with self.block(f"while ({head})"):
            if not simple:
                self.put(lines)
                self.line(f"if (!{test.closed}) break;")
            self._turn(statement.body, loop)

    def _do_For(self, statement: nodes.For, after: Names) -> bool:
        with self.told_at(statement.iterable):
            steps = self.settled(self.steps_of(self.expression(statement.iterable)))
        count = self.count_of(steps)
        if count == 0:
            return self.statements(statement.orelse, after)
        if self.assigned_product(statement, steps, after):
            return True
        items = self.items_of(steps)
        if items is not None and len(items) <= UNROLLED and not liveness.jumps(statement.body):
            return self._written_out(statement, items, after)
        if items is not None:
            with self.told_at(statement.iterable):
                steps = self.as_arrays(steps)

        def write(loop: OpenLoop) -> None:
            with self.turns(steps) as item:
                self.store(statement.target, item)
                self._turn(statement.body, loop)

        def loop() -> bool:
            return self._loop(statement, after, write, certain=count is not None)

        if count is None or items is not None or liveness.jumps(statement.body):
            return loop()
        return self.written_out_if_refused(
            loop, lambda: self._written_out(statement, self.items_of(steps, True) or [], after), count)

    def written_out_if_refused(self, loop: Callable[[], Any], written: Callable[[], Any], count: int) -> Any:
        """Return the result of a loop; if its variable decides something that must be known, of its turns written out.
        """
        if count > UNROLLED:
            return loop()
        frame, variables, returns = self.frame, dict(self.frame.variables), self.__dict__.get("returns")
        kept = list(self.loops), self.tests, set(self.taken), self.scratch, self.__dict__.get("depth", 0)
        try:
            with self.apart() as lines:
                found = loop()
        except (Refusal, TranslationError) as error:
            if not is_of_a_turn(error):
                raise
            self.frame, self.frame.variables, self.__dict__["returns"] = frame, variables, returns
            self.loops, self.tests, self.taken, self.scratch, self.__dict__["depth"] = kept
            return written()
        self.put(lines)
        return found

    def assigned_product(self, loop: nodes.For, steps: ForRange, after: Names) -> bool:
        """Writes a loop that only stores a product of the element's row with a matrix; False of others."""
        return False

    def _written_out(self, statement: nodes.For, items: list[Value], after: Names) -> bool:
        """Return a loop over a tuple, turn after turn."""
        head = liveness.at_head(statement, after)
        for item in items:
            self.store(statement.target, item)
            if not self.statements(statement.body, head | liveness.stored(statement.target)):
                return False
        return self.statements(statement.orelse, after)

    def _loop(self, statement: nodes.For | nodes.While, after: Names, write: Callable[[OpenLoop], None],
              certain: bool) -> bool:
        """Return a loop with its ``else``. ``certain``: there is at least one turn."""
        head = liveness.at_head(statement, after)
        ends = liveness.live(statement.orelse, after)
        wanted = liveness.assigned((statement,)) & (head | after | ends)
        before, taken, scratch = self.frame.variables, set(self.taken), self.scratch
        types = {name: type_of(before[name]) for name in sorted(wanted & before.keys())}
        while True:
            loop = OpenLoop(wanted, head, after | ends)
            self.frame.variables, self.taken, self.scratch = dict(before), set(taken), scratch
            with self.apart(0) as lines:
                self._declare(loop, types, before, bool(statement.orelse) and liveness.breaks_out(statement.body))
                self.loops.append(loop)
                write(loop)
                self.loops.pop()
            if loop.seen == types:
                break
            types = loop.seen
        self.put(lines)
        changed = liveness.assigned((statement,))
        self.frame.variables = {name: value for name, value in before.items() if name not in changed}
        self.frame.variables |= {name: value for name, value in loop.carried.items()
                                 if name in before or (certain and name not in loop.missing | loop.missing_at_break)}
        return self._after_loop(statement, loop, after)

    def _declare(self, loop: OpenLoop, types: dict[str, Type], before: Variables, flagged: bool) -> None:
        """Declare, before a loop, the variables that its turns share."""
        for name, kind in types.items():
            old = before.get(name)
            keeps = isinstance(kind, Nothing) or (isinstance(old, Number) and old.variable and old.type == kind)
            keeps = keeps or (isinstance(old, Array) and bool(old.storage) and type_of(old) == kind)
            loop.carried[name] = old if keeps else self.variable(kind, name, old)
            if name in before:
                self.frame.variables[name] = loop.carried[name]
                loop.seen[name] = kind
        if flagged:
            loop.broke = self.name("broke")
            self.line(f"bool {loop.broke} = false;")

    def _after_loop(self, statement: nodes.For | nodes.While, loop: OpenLoop, after: Names) -> bool:
        forever = isinstance(statement, nodes.While) and statement.test == nodes.Literal(True)
        if forever and not liveness.breaks_out(statement.body):
            return False
        at_break = {name: value for name, value in loop.carried.items() if name not in loop.missing_at_break}
        if forever:
            self.frame.variables |= at_break
            return True
        if not loop.broke:
            return self.statements(statement.orelse, after)

        def broken() -> bool:
            self.frame.variables |= at_break
            return True

        test = Number(BOOL, f"!{loop.broke}")
        return self.ways(test, lambda: self.statements(statement.orelse, after), broken, after)

    def _turn(self, body: nodes.Block, loop: OpenLoop) -> None:
        if self.statements(body, loop.head):
            self._carry(loop, loop.head, loop.missing)

    def _carry(self, loop: OpenLoop, live: Names, missing: set[str]) -> None:
        """Store, at the end of a turn, what the next turn or the code after the loop may read."""
        pending: list[tuple[Value, Value]] = []
        for name in sorted(loop.wanted):
            value = self.frame.variables.get(name)
            if value is None:
                missing.add(name)
                continue
            if name not in live and name not in loop.after:
                continue
            self._see(loop, name, type_of(value))
            target = loop.carried.get(name)
            if target is not None and not same(target, value) and type_of(target) == loop.seen[name]:
                pending.append((target, value))
        # One's new value may read another's old one.
        values = [self.snapshot(value) if len(pending) > 1 else value for _, value in pending]
        for (target, _), value in zip(pending, values, strict=True):
            self.assign(target, value)

    def _see(self, loop: OpenLoop, name: str, kind: Type) -> None:
        known = loop.seen.get(name, kind)
        try:
            loop.seen[name] = join_types(known, kind)
        except Refusal as error:
            raise Refusal(f"{name} is {shown(known)} in one turn of the loop and {shown(kind)} in another; use another "
                          "name, or one type") from error

    def _do_Break(self, statement: nodes.Break, after: Names) -> bool:
        loop = self.loops[-1]
        self._carry(loop, loop.after, loop.missing_at_break)
        if loop.broke:
            self.line(f"{loop.broke} = true;")
        self.line("break;")
        return False

    def _do_Continue(self, statement: nodes.Continue, after: Names) -> bool:
        self._carry(self.loops[-1], self.loops[-1].head, self.loops[-1].missing)
        self.line("continue;")
        return False

    # -- what loops go over -------------------------------------------------------------------------------------------

    def settled(self, steps: ForRange) -> ForRange:
        """Return the steps with their bounds evaluated once, as Python does."""
        if steps.kind == "range":
            return ForRange("range", tuple(map(self.fixed, map(self._python_int, steps.items))))
        if steps.kind == "tuple":
            return ForRange("tuple", tuple(map(self.snapshot, steps.items)))
        if steps.kind == "array":
            return steps
        return ForRange(steps.kind, tuple(map(self.settled, steps.items)))

    def items_of(self, steps: ForRange, always: bool = False) -> list[Value] | None:
        """Return the items of each turn where there is a tuple among the steps (or ``always``), so that it is written
        out.
        """
        if not always and not _has_tuple(steps):
            return None
        count = self.known_count(steps, "beside a tuple stands what has a length known before the kernel runs")
        return [self._item_at(steps, number) for number in range(count)]

    def _item_at(self, steps: ForRange, number: int) -> Value:
        if steps.kind == "tuple":
            return steps.items[number]
        if steps.kind in ("array", "range"):
            return self.item_of(steps, literal(number))
        items = tuple(self._item_at(item, number) for item in steps.items)
        return Tuple((literal(number), *items)) if steps.kind == "enumerate" else Tuple(items)

    def as_arrays(self, steps: ForRange) -> ForRange:
        """Return the steps with tuples of numbers as arrays, for a loop that is not written out."""
        if steps.kind == "tuple":
            if not all(isinstance(item, Number) for item in steps.items):
                raise Refusal("a for over a tuple of other than numbers has no break or continue here; write for i in "
                              "range(n), or make it an array")
            kind: Any = type_of(steps.items[0])
            for item in steps.items[1:]:
                kind = join_types(kind, type_of(item))
            array = self.storage(kind, (len(steps.items),), "items")
            for number, item in enumerate(steps.items):
                self.line(f"{array.element(str(number))} = {cast(item, kind).text};")
            return ForRange("array", (array,))
        if steps.kind in ("array", "range"):
            return steps
        return ForRange(steps.kind, tuple(map(self.as_arrays, steps.items)))

    def _python_int(self, number: Number) -> Number:
        return number if number.type == INT else cast(number, INT)

    def count_of(self, steps: ForRange) -> int | None:
        """Return the number of turns of a loop, if it is known; else None."""
        if steps.kind == "array":
            return steps.items[0].shape[0]
        if steps.kind == "tuple":
            return len(steps.items)
        if steps.kind == "range":
            known = all(number.known for number in steps.items)
            return len(range(*(number.value for number in steps.items))) if known else None
        counts = [self.count_of(item) for item in steps.items]
        return None if None in counts else min(counts)

    def known_count(self, steps: ForRange, reason: str) -> int:
        """Return the number of turns of a loop, which must be known; ints that were captured or given become part of
        the kernel.
        """
        count = self.count_of(steps)
        if count is not None:
            return count
        if steps.kind == "range":
            return len(range(*(static(number, reason) for number in steps.items)))
        return min(self.known_count(item, reason) for item in steps.items)

    @contextmanager
    def turns(self, steps: ForRange) -> Iterator[Value]:
        """Yield the head and the braces of a ``for``, and the item of a turn."""
        if self.lanes > 1 and (self.count_of(steps) or _MANY) >= _MANY:
            raise Serial
        if steps.kind == "range":
            with self._range(*self._range_parts(steps)) as number:
                yield number
            return
        count = self._length(steps)
        with self._range(literal(0), count, 1) as number:
            yield self.item_of(steps, number)

    def _range_parts(self, steps: ForRange) -> tuple[Number, Number, int]:
        numbers = steps.items
        start, stop = (literal(0), numbers[0]) if len(numbers) == 1 else numbers[:2]
        step = 1
        if len(numbers) == 3:
            step = static(numbers[2], "range's step must be known before the kernel runs")
        return start, stop, step

    @contextmanager
    def counted(self, count: int) -> Iterator[Number]:
        """Write a loop of ``count`` turns, and yield its index."""
        with self._range(literal(0), literal(count), 1) as index:
            yield index

    @contextmanager
    def _range(self, start: Number, stop: Number, step: int) -> Iterator[Number]:
        lows, highs = (start.bounds, stop.bounds) if step > 0 else (stop.bounds, start.bounds)
        bounds = None
        if step > 0 and lows:
            bounds = lows[0], max(lows[0], (highs[1] if highs else 2**63 - 1) - 1)
        elif step < 0 and highs:
            bounds = (lows[0] if lows else -2**63) + 1, highs[1]
            bounds = min(bounds), max(bounds)
        if bounds and start.known and stop.known:
            found = range(start.value, stop.value, step)
            bounds = (min(found[0], found[-1]), max(found[0], found[-1])) if found else bounds
        index = Number(INT, self.name("i"), bounds=bounds, limits=limits_of(start, stop))
        # One step beyond the last must fit too.
        roomy = index.narrow and bounds[0] - abs(step) >= -(2**31) and bounds[1] + abs(step) < 2**31
        if not roomy:
            index = replace(index, bounds=None if not bounds or index.narrow else bounds)
        sign, change = ("<", f"++{index.text}") if step == 1 else ("<", f"{index.text} += {step}")
        if step < 0:
            sign, change = ">", f"--{index.text}" if step == -1 else f"{index.text} -= {-step}"
        head = f"for ({index.c} {index.text} = {start.text}; {index.text} {sign} {stop.text}; {change})"
        with self.block(head):
            yield index

    def _length(self, steps: ForRange) -> Number:
        """Return the number of turns over arrays, several at once or counted."""
        if steps.kind == "array":
            return literal(steps.items[0].shape[0])
        if steps.kind == "range":
            start, stop, step = self._range_parts(steps)
            reason = "a range inside zip() or enumerate() has a length known before the kernel runs"
            return literal(len(range(static(start, reason), static(stop, reason), step)))
        lengths = [self._length(item) for item in steps.items[:1 if steps.kind == "enumerate" else None]]
        return min(lengths, key=lambda number: number.value)

    def item_of(self, steps: ForRange, index: Number) -> Value:
        """Return the item of a turn of a loop over arrays or several things."""
        if steps.kind == "array":
            return self.element_of(steps.items[0], index.text)
        if steps.kind == "range":
            start, _, step = self._range_parts(steps)
            return scalars.binary("+", start, scalars.binary("*", index, literal(step)))
        items = tuple(self.item_of(item, index) for item in steps.items)
        return Tuple((index, *items)) if steps.kind == "enumerate" else Tuple(items)


def _has_tuple(steps: ForRange) -> bool:
    return steps.kind == "tuple" or (steps.kind in ("zip", "enumerate") and any(map(_has_tuple, steps.items)))
