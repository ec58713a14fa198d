"""Writer of ``if`` and loops, whose branches give variables one type in the end.

Where ways meet (after an ``if``, at a loop's head) a variable of the type that holds both is declared before, and each
way stores its value there. A loop whose body widens a type is written again with the wider one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from vispark.translate.codegen.dispatch import errors_at, expression, lowers_node, statements
from vispark.translate.codegen.emitter import Emitter, Lines, Serial, same
from vispark.translate.codegen.frame import UNROLLED, OpenLoop, Variables
from vispark.translate.codegen.scalar import scalars
from vispark.translate.codegen.syntax.assignments import store
from vispark.translate.codegen.syntax.iterables import (
    as_arrays,
    count_of,
    evaluated_once,
    items_of,
    steps_of,
    turns,
)
from vispark.translate.codegen.syntax.operators import condition_of, joined
from vispark.translate.ir import liveness, nodes
from vispark.translate.ir.errors import Refusal, TranslationError, is_of_a_turn
from vispark.translate.ir.liveness import NameSet
from vispark.translate.ir.types import BOOL
from vispark.translate.ir.values import (
    Array,
    ListType,
    LocalFunction,
    Nothing,
    Number,
    Type,
    Value,
    chosen,
    join_types,
    shown,
    type_of,
)


@lowers_node(nodes.If)
def lower_if(emit: Emitter, statement: nodes.If, after: NameSet) -> bool:
    """Write ``if``, or the branch that is known to be taken."""
    test = condition_of(emit, statement.test)
    if test.known:
        return statements(emit, statement.body if test.value else statement.orelse, after)
    return branch(emit, test, lambda: statements(emit, statement.body, after),
                  lambda: statements(emit, statement.orelse, after), after)


def branch(emit: Emitter, test: Number, yes: Callable[[], bool], no: Callable[[], bool], live: NameSet) -> bool:
    """Write ``if (test)`` with both branches, and the merge of their variables; return whether a branch goes on
    after it.
    """
    before = emit.frame.variables
    tests, branches = emit.tests, []
    emit.tests = (*tests, test)
    for way in (yes, no):
        emit.frame.variables = dict(before)
        with emit.detached(1) as lines:
            goes_on = way()
        branches.append((lines, emit.frame.variables, goes_on))
    emit.tests = tests
    going = [(lines, variables) for lines, variables, goes_on in branches if goes_on]
    emit.frame.variables = before
    if going:
        emit.frame.variables = _merge(emit, test, going, before, live)
    (yes_lines, *_), (no_lines, *_) = branches
    _write_branches(emit, test, yes_lines, no_lines)
    return bool(going)


def _write_branches(emit: Emitter, test: Number, yes: Lines, no: Lines) -> None:
    if not yes.lines:
        test, yes, no = scalars.unary("not", test), no, yes
    if not yes.lines:
        return
    with emit.block(f"if ({test.text})", "}" if not no.lines else "} else {"):
        emit.put(yes)
    if no.lines:
        emit.put(no)
        emit.line("}")


def _merge(emit: Emitter, test: Number, branches: list[tuple[Lines, Variables]], before: Variables,
           live: NameSet) -> Variables:
    """Return the variables after ways that meet. What differs is stored by each in a variable declared before them.
    """
    merged: Variables = {}
    for name in branches[0][1]:
        values = [variables[name] for _, variables in branches if name in variables]
        if len(values) < len(branches):
            continue
        unchanged = name in before and all(same(before[name], value) for value in values)
        outlasts = all(isinstance(value, LocalFunction | Nothing) or (isinstance(value, Number) and value.known)
                       for value in values) and all(same(values[0], value) for value in values)
        if unchanged or outlasts:
            merged[name] = values[0]
        elif name in live:
            merged[name] = chosen(_merge_one(emit, name, test, branches, values), test, *values)
    return merged


def _merge_one(emit: Emitter, name: str, test: Number, branches: list[tuple[Lines, Variables]],
               values: list[Value]) -> Value:
    try:
        kind = joined(test, *values)
    except Refusal as error:
        raise Refusal(f"{name}: {error}") from error
    target = emit.variable(kind, name)
    for (lines, _), value in zip(branches, values, strict=True):
        outer, emit.out = emit.out, lines
        emit.assign(target, value)
        emit.out = outer
    return target


@lowers_node(nodes.While)
def lower_while(emit: Emitter, statement: nodes.While, after: NameSet) -> bool:
    """Write ``while``."""
    if emit.lanes > 1:
        raise Serial
    return _loop(emit, statement, after, lambda loop: _while(emit, statement, loop), certain=False)


def _while(emit: Emitter, statement: nodes.While, loop: OpenLoop) -> None:
    with emit.detached(1) as lines:
        test = condition_of(emit, statement.test)
    if test.known and not test.value:
        return
    simple = not lines.lines
    head = "true" if test.known or not simple else test.text
    with emit.block(f"while ({head})"):
        if not simple:
            emit.put(lines)
            emit.line(f"if (!{test.closed}) break;")
        _write_turn(emit, statement.body, loop)


@lowers_node(nodes.For)
def lower_for(emit: Emitter, statement: nodes.For, after: NameSet) -> bool:
    """Write ``for``: as a loop, or turn after turn."""
    with errors_at(emit, statement.iterable):
        steps = evaluated_once(emit, steps_of(expression(emit, statement.iterable)))
    count = count_of(steps)
    if count == 0:
        return statements(emit, statement.orelse, after)
    if emit.products.assigned_product(statement, steps, after):
        return True
    items = items_of(steps)
    if items is not None and len(items) <= UNROLLED and not liveness.jumps(statement.body):
        return _written_out(emit, statement, items, after)
    if items is not None:
        with errors_at(emit, statement.iterable):
            steps = as_arrays(emit, steps)

    def write(loop: OpenLoop) -> None:
        with turns(emit, steps) as item:
            store(emit, statement.target, item)
            _write_turn(emit, statement.body, loop)

    def loop() -> bool:
        return _loop(emit, statement, after, write, certain=count is not None)

    if count is None or items is not None or liveness.jumps(statement.body):
        return loop()
    return written_out_if_refused(emit,
        loop, lambda: _written_out(emit, statement, items_of(steps, True) or [], after), count)


def written_out_if_refused(emit: Emitter, loop: Callable[[], Any], written: Callable[[], Any], count: int) -> Any:
    """Return the result of a loop; if its variable decides something that must be known, of its turns written out.
    """
    if count > UNROLLED:
        return loop()
    frame, variables, loops = emit.frame, dict(emit.frame.variables), list(emit.frame.loops)
    tests, taken, scratch = emit.tests, set(emit.taken), emit.scratch
    try:
        with emit.detached() as lines:
            result = loop()
    except (Refusal, TranslationError) as error:
        if not is_of_a_turn(error):
            raise
        frame.variables, frame.loops = variables, loops
        emit.frame, emit.tests, emit.taken, emit.scratch = frame, tests, taken, scratch
        return written()
    emit.put(lines)
    return result


def _written_out(emit: Emitter, statement: nodes.For, items: list[Value], after: NameSet) -> bool:
    """Return a loop over a tuple, turn after turn."""
    head = liveness.at_head(statement, after)
    for item in items:
        store(emit, statement.target, item)
        if not statements(emit, statement.body, head | liveness.stored(statement.target)):
            return False
    return statements(emit, statement.orelse, after)


def _loop(emit: Emitter, statement: nodes.For | nodes.While, after: NameSet, write: Callable[[OpenLoop], None],
          certain: bool) -> bool:
    """Return a loop with its ``else``. ``certain``: there is at least one turn."""
    head = liveness.at_head(statement, after)
    ends = liveness.live(statement.orelse, after)
    carried = liveness.assigned((statement,)) & (head | after | ends)
    before, taken, scratch = emit.frame.variables, set(emit.taken), emit.scratch
    types = {name: type_of(before[name]) for name in sorted(carried & before.keys())}
    while True:
        loop = OpenLoop(carried, head, after | ends)
        emit.frame.variables, emit.taken, emit.scratch = dict(before), set(taken), scratch
        with emit.detached(0) as lines:
            _declare(emit, loop, types, before, bool(statement.orelse) and liveness.breaks_out(statement.body))
            emit.frame.loops.append(loop)
            write(loop)
            emit.frame.loops.pop()
        if loop.seen == types:
            break
        types = loop.seen
    emit.put(lines)
    changed = liveness.assigned((statement,))
    emit.frame.variables = {name: value for name, value in before.items() if name not in changed}
    emit.frame.variables |= {name: value for name, value in loop.carried.items()
                             if name in before or (certain and name not in loop.missing | loop.missing_at_break)}
    return _after_loop(emit, statement, loop, after)


def _declare(emit: Emitter, loop: OpenLoop, types: dict[str, Type], before: Variables, flagged: bool) -> None:
    """Declare, before a loop, the variables that its turns share."""
    for name, kind in types.items():
        old = before.get(name)
        keeps = isinstance(kind, Nothing) or (isinstance(old, Number) and old.variable and old.type == kind)
        keeps = keeps or (isinstance(old, Array) and bool(old.storage) and type_of(old) == kind)
        loop.carried[name] = old if keeps and old is not None else emit.variable(kind, name, old)
        if name in before:
            emit.frame.variables[name] = loop.carried[name]
            loop.seen[name] = kind
    if flagged:
        loop.broke = emit.name("broke")
        emit.line(f"bool {loop.broke} = false;")


def _after_loop(emit: Emitter, statement: nodes.For | nodes.While, loop: OpenLoop, after: NameSet) -> bool:
    forever = isinstance(statement, nodes.While) and statement.test == nodes.Literal(True)
    if forever and not liveness.breaks_out(statement.body):
        return False
    at_break = {name: value for name, value in loop.carried.items() if name not in loop.missing_at_break}
    if forever:
        emit.frame.variables |= at_break
        return True
    if not loop.broke:
        return statements(emit, statement.orelse, after)

    def broken() -> bool:
        emit.frame.variables |= at_break
        return True

    test = Number(BOOL, f"!{loop.broke}")
    return branch(emit, test, lambda: statements(emit, statement.orelse, after), broken, after)


def _write_turn(emit: Emitter, body: nodes.Statements, loop: OpenLoop) -> None:
    if statements(emit, body, loop.head):
        _carry(emit, loop, loop.head, loop.missing)


def _carry(emit: Emitter, loop: OpenLoop, live: NameSet, missing: set[str]) -> None:
    """Store, at the end of a turn, what the next turn or the code after the loop may read."""
    pending: list[tuple[Value, Value]] = []
    for name in sorted(loop.wanted):
        value = emit.frame.variables.get(name)
        if value is None:
            missing.add(name)
            continue
        if name not in live and name not in loop.after:
            continue
        _join_type(loop, name, type_of(value))
        target = loop.carried.get(name)
        if target is not None and not same(target, value) and type_of(target) == loop.seen[name]:
            pending.append((target, value))
    # One's new value may read another's old one.
    values = [emit.snapshot(value) if len(pending) > 1 else value for _, value in pending]
    for (target, _), value in zip(pending, values, strict=True):
        emit.assign(target, value)


def _join_type(loop: OpenLoop, name: str, kind: Type) -> None:
    before = loop.seen.get(name, kind)
    try:
        loop.seen[name] = join_types(before, kind)
    except Refusal as error:
        how = f"make it at once, {name} = [... for ... in ...]" if isinstance(before, ListType) and isinstance(
            kind, ListType) else "use another name, or one type"
        raise Refusal(
            f"{name} is {shown(before)} in one turn of the loop and {shown(kind)} in another; {how}") from error


@lowers_node(nodes.Break)
def lower_break(emit: Emitter, statement: nodes.Break, after: NameSet) -> bool:
    """Write ``break``, and store what the code after the loop may read."""
    loop = emit.frame.loops[-1]
    _carry(emit, loop, loop.after, loop.missing_at_break)
    if loop.broke:
        emit.line(f"{loop.broke} = true;")
    emit.line("break;")
    return False


@lowers_node(nodes.Continue)
def lower_continue(emit: Emitter, statement: nodes.Continue, after: NameSet) -> bool:
    """Write ``continue``, and store what the next turn may read."""
    _carry(emit, emit.frame.loops[-1], emit.frame.loops[-1].head, emit.frame.loops[-1].missing)
    emit.line("continue;")
    return False
