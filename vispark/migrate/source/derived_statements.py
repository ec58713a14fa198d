"""Statements of the driver that make something of records which actions gave, and that are recorded, too.

An action may give its records in another order in a port than in the program. Whether that matters is seen by what the
program makes of them: the first one, an array of all, what a loop over them leaves behind.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from vispark.migrate.source.class_members import FunctionStatement, is_place
from vispark.migrate.source.rebound_names import IN_PLACE
from vispark.migrate.source.statements import (
    RECORD,
    VALUES,
    RecordedStatement,
    record_call,
    run_in_tasks,
    target_of,
    with_recorded,
)

#: Actions that give records in an order for which nobody asked.
_UNORDERED = frozenset(["collect", "collectAsMap", "countByKey", "countByValue", "lookup", "take", "toLocalIterator"])
_PLAIN = (bool, int, float, complex, str, bytes, np.generic, np.ndarray, type(None))
#: The function around a name, and the name; an attribute of a name is one for all functions.
_Place = tuple[str, str]


def record_what_is_made(tree: ast.Module, statements: list[RecordedStatement]) -> None:
    """Have a program record what its statements make of records of actions, and append these statements.

    Bodies of loops over such records stay as they are: what they leave behind is recorded after the loop.

    Parameters
    ----------
    tree : ast.Module
        The program, as :func:`~vispark.migrate.source.statements.recorded_statements` made it.
    statements : list of RecordedStatement
        Its statements with actions.

    Examples
    --------
    >>> from vispark.migrate.source.statements import recorded_statements
    >>> source = '''
    ... sums = rdd.collect()
    ... first = sums[0]
    ... for k, v in sums:
    ...     best = max(best, v)
    ... print(best)
    ... '''
    >>> tree, statements = recorded_statements(source, "job.py")
    >>> record_what_is_made(tree, statements)
    >>> [(each.line, each.target, each.sources) for each in statements[1:]]
    [(3, 'first', (0,)), (4, 'best', (0,)), (6, 'value', (0,))]
    """
    in_tasks = run_in_tasks(tree)
    unsorted = {each.number for each in statements if not each.is_sorted}
    flow = _RecordFlow(tree, in_tasks, unsorted)
    _FlowRecording(tree, flow, in_tasks, statements).visit(tree)
    ast.fix_missing_locations(tree)


def is_plain(value: Any, depth: int = 4) -> bool:
    """Return whether a value can be compared: numbers, strings, arrays, and lists, tuples, sets and dicts of these.

    Of lists, sets and dicts the first record is looked at.

    Examples
    --------
    >>> is_plain([(1, 2.0)]), is_plain([object()]), is_plain(iter([]))
    (True, False, False)
    """
    if isinstance(value, list | set | frozenset | dict):
        first = next(iter(value.items() if isinstance(value, dict) else value), None)
        return depth > 0 and is_plain(first, depth - 1)
    if isinstance(value, tuple):
        return depth > 0 and all(is_plain(each, depth - 1) for each in value)
    return isinstance(value, _PLAIN)


class _RecordFlow:
    """Flow of records from the statements with actions through a program's names, whatever the order of its lines."""

    def __init__(self, tree: ast.Module, in_tasks: set[str], numbers: set[int]) -> None:
        self._numbers = numbers
        self._sources: dict[_Place, set[int]] = {}
        self._returned: dict[str, set[int]] = {}
        self._bound: dict[str, set[str]] = {}
        #: Of functions of a name, the scopes and the parameters.
        self._functions: dict[str, list[tuple[str, list[str]]]] = {}
        nodes = list(_scoped(tree, in_tasks))
        for scope, node in nodes:
            self._note(scope, node)
        while sum(self._step(scope, node) for scope, node in nodes):
            pass

    def of(self, scope: str, node: ast.AST) -> set[int]:
        """Return the numbers of the statements of whose records an expression is made."""
        if _is_record(node):
            number: int = node.args[0].value       # type: ignore[attr-defined]
            return {number} & self._numbers if any(isinstance(each, ast.Attribute) and each.attr in _UNORDERED
                                                   for each in ast.walk(node)) else set()
        sources = set[int]()
        if is_place(node):
            sources |= self._sources.get(self.place(scope, node), set())
        elif isinstance(node, ast.Call) and (name := _name_of(node)) is not None:
            sources |= self._returned.get(name, set())
        for child in ast.iter_child_nodes(node):
            sources |= self.of(scope, child)
        return sources

    def place(self, scope: str, node: ast.AST) -> _Place:
        """Return the place of a name, or of an attribute of one, that a function uses."""
        if isinstance(node, ast.Name):
            return (scope if node.id in self._bound.get(scope, ()) else ""), node.id
        return "", ast.unparse(node)

    def _note(self, scope: str, node: ast.AST) -> None:
        """Note the names that a function binds."""
        bound = self._bound.setdefault(scope, set())
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            bound.add(node.id)
        if isinstance(node, FunctionStatement):
            names = [each.arg for each in (*node.args.posonlyargs, *node.args.args)]
            inside = _within(scope, node.name)
            self._bound.setdefault(inside, set()).update(names)
            self._functions.setdefault(node.name, []).append((inside, names))

    def _step(self, scope: str, node: ast.AST) -> bool:
        """Carry records through a node, and return whether a place has more sources than before."""
        if isinstance(node, ast.Return) and node.value is not None:
            return _grows(self._returned.setdefault(scope.rpartition(".")[2], set()), self.of(scope, node.value))
        grown = False
        for target, values in _assigned(node):
            sources = set[int]().union(*(self.of(scope, value) for value in values))
            grown |= _grows(self._sources.setdefault(self.place(scope, target), set()), sources)
        if isinstance(node, ast.Call) and not _is_record(node):
            for inside, names in self._functions.get(_name_of(node) or "", []):
                own = names[isinstance(node.func, ast.Attribute) and names[:1] == ["self"]:]
                arguments = [*zip(own, node.args, strict=False), *((each.arg, each.value) for each in node.keywords)]
                for name, value in arguments:
                    grown |= _grows(self._sources.setdefault((inside, name or ""), set()), self.of(scope, value))
        return grown


class _FlowRecording(ast.NodeTransformer):
    """Transformer that records what is made of records, and behind loops over records what these leave."""

    def __init__(self, tree: ast.Module, flow: _RecordFlow, in_tasks: set[str],
                 statements: list[RecordedStatement]) -> None:
        self._flow, self._in_tasks, self._statements = flow, in_tasks, statements
        self._scope, self._loops = [""], list[ast.AST]()
        self._bodies: list[ast.AST] = [tree]

    def visit(self, node: ast.AST) -> Any:
        if isinstance(node, FunctionStatement):
            if node.name not in self._in_tasks:
                loops, self._loops = self._loops, []
                self._scope.append(_within(self._scope[-1], node.name))
                self._bodies.append(node)
                self.generic_visit(node)
                self._bodies.pop()
                self._scope.pop()
                self._loops = loops
            return node
        if isinstance(node, ast.For) and (sources := self._flow.of(self._scope[-1], node.iter)):
            return [node, *self._behind(node, sources)]
        if isinstance(node, ast.stmt):
            self._record(node)
        is_loop = isinstance(node, ast.For | ast.While)
        self._loops += [node] * is_loop
        if isinstance(node, ast.stmt | ast.Module | ast.ExceptHandler | ast.match_case):
            self.generic_visit(node)
        self._loops = self._loops[:len(self._loops) - is_loop]
        return node

    def _record(self, statement: ast.stmt) -> None:
        """Record the value of a statement, or the arguments of a call, where it is made of records."""
        value = getattr(statement, VALUES.get(type(statement), ""), None)
        if not isinstance(value, ast.expr) or isinstance(statement, ast.For | ast.While) or any(
                map(_is_record, ast.walk(value))):
            return
        scope = self._scope[-1]

        def is_made(node: ast.AST) -> bool:
            return not isinstance(node, ast.Starred) and bool(self._flow.of(scope, node))

        values = [*value.args, *(each.value for each in value.keywords)] if isinstance(value, ast.Call) else []
        if not any(map(is_made, values if isinstance(statement, ast.Expr) else [value])) or (
                is_place(value) and not isinstance(statement, ast.If)):
            return
        call = record_call(self._noted(statement, target_of(statement), self._flow.of(scope, value)))
        if not isinstance(statement, ast.Expr):
            setattr(statement, VALUES[type(statement)], with_recorded(value, is_made, call))
        elif isinstance(value, ast.Call):
            value.args = [with_recorded(each, is_made, call) for each in value.args]
            for keyword in value.keywords:
                keyword.value = with_recorded(keyword.value, is_made, call)

    def _behind(self, loop: ast.For, sources: set[int]) -> Iterator[ast.stmt]:
        """Yield the statements that record what a loop over records leaves in names that are read behind it."""
        own = {each.id for each in ast.walk(loop.target) if isinstance(each, ast.Name)}
        places = dict.fromkeys(ast.unparse(target) for node in _inside(loop.body) for target, _ in _assigned(node)
                               if self._flow.of(self._scope[-1], target))
        for place in places:
            if place not in own and self._is_read_next(place, loop):
                number = self._noted(loop, place, sources)
                text = f"try:\n    {RECORD}({number}, {place})\nexcept (NameError, AttributeError):\n    pass\n"
                for statement in ast.parse(text).body:
                    for node in ast.walk(statement):
                        ast.copy_location(node, loop)
                    yield statement

    def _is_read_next(self, place: str, loop: ast.For) -> bool:
        """Return whether a place is read behind a loop before it is assigned anew; attributes always are."""
        if "." in place:
            return True
        inside = {id(each) for each in ast.walk(loop)}
        end, outer = loop.end_lineno or loop.lineno, self._loops[0] if self._loops else None
        names = [((each.lineno, isinstance(each.ctx, ast.Store)), each) for each in ast.walk(self._bodies[-1])
                 if isinstance(each, ast.Name) and each.id == place and id(each) not in inside]
        behind = sorted((at, isinstance(each.ctx, ast.Load)) for at, each in names if at[0] > end)
        # What comes behind the last line of an outer loop's body is its first one.
        again = sorted((at, isinstance(each.ctx, ast.Load)) for at, each in names if outer is not None
                       and outer.lineno <= at[0] <= loop.lineno)  # type: ignore[attr-defined]
        return next((is_read for _, is_read in [*behind, *again]), False)

    def _noted(self, statement: ast.stmt, target: str, sources: set[int]) -> int:
        number = len(self._statements)
        self._statements.append(RecordedStatement(number, statement.lineno, self._scope[-1], target,
                                                  sources=tuple(sorted(sources))))
        return number


def _scoped(tree: ast.AST, in_tasks: set[str], scope: str = "") -> Iterator[tuple[str, ast.AST]]:
    """Yield the nodes of a program, each with the function that it is in, without functions of tasks."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, FunctionStatement) and node.name in in_tasks:
            continue
        yield scope, node
        yield from _scoped(node, in_tasks, _within(scope, node.name) if isinstance(node, FunctionStatement) else scope)


def _within(scope: str, name: str) -> str:
    return f"{scope}.{name}".lstrip(".")


def _inside(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    for node in nodes:
        yield from ast.walk(node)


def _assigned(node: ast.AST) -> Iterator[tuple[ast.expr, list[ast.expr]]]:
    """Yield the names and attributes whose values a node changes, each with what they are made of."""
    targets, values = list[ast.expr](), list[ast.expr]()
    if isinstance(node, ast.Assign):
        targets, values = list(node.targets), [node.value]
    elif isinstance(node, ast.AugAssign | ast.AnnAssign | ast.NamedExpr) and node.value is not None:
        targets, values = [node.target], [node.value]
    elif isinstance(node, ast.For):
        targets, values = [node.target], [node.iter]
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in IN_PLACE:
        targets, values = [node.func.value], list(node.args)
    while targets:
        target = targets.pop(0)
        if isinstance(target, ast.Tuple | ast.List):
            targets[:0] = target.elts
            continue
        indices = list[ast.expr]()
        while isinstance(target, ast.Subscript | ast.Starred):
            indices += [target.slice] if isinstance(target, ast.Subscript) else []
            target = target.value
        if is_place(target):
            yield target, [*values, *indices]


def _is_record(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == RECORD


def _name_of(call: ast.Call) -> str | None:
    """Return the name of the function or the method that is called."""
    if isinstance(call.func, ast.Name):
        return call.func.id
    return call.func.attr if isinstance(call.func, ast.Attribute) else None


def _grows(places: set[int], more: set[int]) -> bool:
    before = len(places)
    places |= more
    return len(places) > before
