"""Liveness analysis: the variables that may still be read at each place of a function, whose values must be merged."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from vispark.translate.ir import nodes

NameSet = frozenset[str]
NONE: NameSet = frozenset()
#: What each kind of expression is made of.
_PARTS = {kind: tuple(part.name for part in dataclasses.fields(kind) if part.name != "at")
          for kind in vars(nodes).values() if dataclasses.is_dataclass(kind)}


def reads(node: object) -> NameSet:
    """Return the local names that an expression reads, or a tuple of expressions."""
    return frozenset(_reads(node))


def _reads(node: object) -> list[str]:
    """Return the names that are read, once for each reading."""
    names: list[str] = []
    _gather(node, names)
    return names


def _gather(node: object, names: list[str]) -> None:
    if isinstance(node, tuple):
        for item in node:
            _gather(item, names)
    elif isinstance(node, nodes.Local):
        names.append(node.name)
    elif isinstance(node, nodes.Called):
        names += node.definition.free
        for parameter in node.definition.parameters:
            _gather(parameter.default, names)
    elif isinstance(node, nodes.Each | nodes.Listed):
        names += (reads((node.value, *node.conditions)) - stored(node.target)) | reads(node.iterable)
    elif isinstance(node, nodes.Expression):
        for name in _PARTS[type(node)]:
            _gather(getattr(node, name), names)


def stored(target: nodes.Expression) -> NameSet:
    """Return the names that an assignment to a target binds."""
    if isinstance(target, nodes.Local):
        return frozenset({target.name})
    if isinstance(target, nodes.TupleOf):
        return NONE.union(*map(stored, target.items))
    return stored(target.value) if isinstance(target, nodes.Spread) else NONE


def _read_by(target: nodes.Expression) -> NameSet:
    """Return the names that an assignment to a target reads: the array and the indices of ``a[i] = ...``."""
    if isinstance(target, nodes.TupleOf):
        return NONE.union(*map(_read_by, target.items))
    if isinstance(target, nodes.Spread):
        return _read_by(target.value)
    return NONE if isinstance(target, nodes.Local) else reads(target)


def assigned(block: nodes.Statements) -> NameSet:
    """Return the names that a block may bind."""
    names = NONE
    for statement in block:
        if isinstance(statement, nodes.Assign):
            names |= NONE.union(*map(stored, statement.targets))
        elif isinstance(statement, nodes.Augment):
            names |= stored(statement.target)
        elif isinstance(statement, nodes.If | nodes.While | nodes.For):
            names |= assigned(statement.body) | assigned(statement.orelse)
            if isinstance(statement, nodes.For):
                names |= stored(statement.target)
    return names


def live(block: nodes.Statements, after: NameSet, breaks: NameSet = NONE, goes_on: NameSet = NONE) -> NameSet:
    """Return the names that may be read from the start of a block on.

    Parameters
    ----------
    after, breaks, goes_on
        Those that may be read after the block, after a ``break`` and after a ``continue`` in it.
    """
    for statement in reversed(block):
        after = _before(statement, after, breaks, goes_on)
    return after


def at_head(loop: nodes.For | nodes.While, after: NameSet) -> NameSet:
    """Return the names that may be read at a loop's head, before another turn or after the last."""
    ends = live(loop.orelse, after)
    head = ends | (reads(loop.test) if isinstance(loop, nodes.While) else NONE)
    while True:
        body = live(loop.body, head, breaks=after, goes_on=head)
        if isinstance(loop, nodes.For):
            body -= stored(loop.target)
        if body <= head:
            return head
        head |= body


def _before(statement: nodes.Statement, after: NameSet, breaks: NameSet, goes_on: NameSet) -> NameSet:
    if isinstance(statement, nodes.Assign):
        needed = after - NONE.union(*map(stored, statement.targets))
        return needed | reads(statement.value) | NONE.union(*map(_read_by, statement.targets))
    if isinstance(statement, nodes.Augment):
        return after | reads(statement.value) | reads(statement.target)
    if isinstance(statement, nodes.If):
        return (reads(statement.test) | live(statement.body, after, breaks, goes_on)
                | live(statement.orelse, after, breaks, goes_on))
    if isinstance(statement, nodes.For):
        return at_head(statement, after) | reads(statement.iterable)
    if isinstance(statement, nodes.While):
        return at_head(statement, after)
    if isinstance(statement, nodes.Return):
        return reads(statement.value)
    return breaks if isinstance(statement, nodes.Break) else goes_on


# -- questions about whole functions ----------------------------------------------------------------------------------

def statements(block: nodes.Statements) -> Iterator[tuple[nodes.Statement, int]]:
    """Yield all statements of a block, each with the number of loops around it."""
    for statement in block:
        yield statement, 0
        if isinstance(statement, nodes.If | nodes.For | nodes.While):
            inside = isinstance(statement, nodes.For | nodes.While)
            for part, depth in (*statements(statement.body), *statements(statement.orelse)):
                yield part, depth + inside


def mutated(block: nodes.Statements) -> NameSet:
    """Return the names whose arrays are written to in place."""
    names = set()
    for statement, _ in statements(block):
        targets = statement.targets if isinstance(statement, nodes.Assign) else (
            (statement.target,) if isinstance(statement, nodes.Augment) else ())
        for target in (part for whole in targets for part in _flat(whole)):
            root = target
            while isinstance(root, nodes.Index):
                root = root.value
            if (isinstance(root, nodes.Local)
                    and (isinstance(target, nodes.Index) or isinstance(statement, nodes.Augment))):
                names.add(root.name)
    return frozenset(names)


def _flat(target: nodes.Expression) -> Iterator[nodes.Expression]:
    if isinstance(target, nodes.TupleOf):
        for item in target.items:
            yield from _flat(item)
    else:
        yield target


def uses(block: nodes.Statements) -> dict[str, int]:
    """Return the number of reads of each name; a read inside a loop counts twice, since it stands for many."""
    counts: dict[str, int] = {}
    for statement, depth in statements(block):
        parts: tuple[object, ...] = tuple(getattr(statement, name, ()) for name in ("value", "test", "iterable"))
        parts += tuple(_read_by(target) and target for target in getattr(statement, "targets", ()))
        for name in _reads(parts):
            counts[name] = counts.get(name, 0) + (2 if depth else 1)
    return counts


def leaves(block: nodes.Statements) -> bool:
    """Return whether a block never goes on with what follows it."""
    if not block:
        return False
    last = block[-1]
    if isinstance(last, nodes.If):
        return leaves(last.body) and leaves(last.orelse)
    if isinstance(last, nodes.While):
        return last.test == nodes.Literal(True) and not breaks_out(last.body)
    return isinstance(last, nodes.Return | nodes.Break | nodes.Continue)


def breaks_out(body: nodes.Statements) -> bool:
    """Return whether a loop's body has a ``break`` of this loop."""
    return _has_of_loop(body, nodes.Break)


def jumps(body: nodes.Statements) -> bool:
    """Return whether a loop's body has a ``break`` or a ``continue`` of this loop."""
    return _has_of_loop(body, (nodes.Break, nodes.Continue))


def _has_of_loop(body: nodes.Statements, kinds: type | tuple[type, ...]) -> bool:
    """Return whether a loop's body has a statement of some kinds that is not inside another loop's body."""
    for statement in body:
        if isinstance(statement, kinds):
            return True
        if isinstance(statement, nodes.If) and (_has_of_loop(statement.body, kinds)
                                               or _has_of_loop(statement.orelse, kinds)):
            return True
        if isinstance(statement, nodes.For | nodes.While) and _has_of_loop(statement.orelse, kinds):
            return True
    return False


def returns(block: nodes.Statements) -> int:
    """Return the number of ``return`` statements in a block."""
    return sum(isinstance(statement, nodes.Return) for statement, _ in statements(block))


def returns_last(block: nodes.Statements) -> bool:
    """Return whether every ``return`` is the last thing done on its way."""
    if not block:
        return True
    *before, last = block
    if returns(tuple(before)):
        return False
    if isinstance(last, nodes.If):
        return returns_last(last.body) and returns_last(last.orelse)
    return isinstance(last, nodes.Return) or not returns((last,))
