"""Statements of a program that take results of actions: found in its syntax tree, and made to record what they take.

Positions of the source stay, so that the translator and tracebacks find the user's lines.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from vispark.migrate.errors import SourceError
from vispark.migrate.source.program import ACTIONS, SOURCES, TRANSFORMATIONS

#: Name under which a changed program finds the recorder.
RECORD = "__vispark_record__"
#: Functions that make one value of an iterator.
_OF_ITERATORS = frozenset(["list", "tuple", "sorted", "set", "dict", "sum", "min", "max"])
#: Operations whose records come in an order of their own.
_SORTING = frozenset(["sortBy", "sortByKey", "takeOrdered", "top"])
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
#: Of each kind of statement, the field whose value is recorded.
VALUES: dict[type[ast.stmt], str] = {
    ast.Assign: "value", ast.AugAssign: "value", ast.AnnAssign: "value", ast.Return: "value", ast.Expr: "value",
    ast.For: "iter", ast.If: "test", ast.While: "test", ast.Assert: "test"}


@dataclass(frozen=True)
class RecordedStatement:
    """A statement whose value is recorded each time that it runs.

    Parameters
    ----------
    number, line : int
        Its number in the order of the source, and its line.
    scope : str
        The function that it is in; empty outside of functions.
    target : str
        What it assigns to, or the word that it begins with.
    is_sorted : bool
        Whether what it takes was sorted, so that its order is part of the result.
    sources : tuple of int
        Numbers of the statements with actions of whose records it makes something; empty of one with actions.
    """

    number: int
    line: int
    scope: str
    target: str
    is_sorted: bool = False
    sources: tuple[int, ...] = ()


def recorded_statements(source: str, path: str) -> tuple[ast.Module, list[RecordedStatement]]:
    """Return a program that records the values of its statements with actions, and these statements.

    Functions that run in Spark's tasks stay as they are: those that operations of RDDs are given, and what they call.

    Raises
    ------
    SourceError
        If the source is none of Python's.

    Examples
    --------
    >>> source = "for i in range(3):\\n    total = rdd.map(f).reduce(add)\\n"
    >>> [(each.line, each.target) for each in recorded_statements(source, "job.py")[1]]
    [(2, 'total')]
    """
    try:
        tree = ast.parse(source, path)
    except (SyntaxError, ValueError) as error:
        raise SourceError(f"{path} does not parse: {error}") from error
    transformer = _Recording(run_in_tasks(tree), _accumulators(tree), _sorted_rdds(tree))
    transformer.visit(tree)
    return ast.fix_missing_locations(tree), transformer.statements


def loop_variables(tree: ast.AST) -> set[str]:
    """Return the names that loops leave behind, whose last values are of no meaning.

    Examples
    --------
    >>> sorted(loop_variables(ast.parse("for i, x in points: total += x")))
    ['i', 'x']
    """
    return _names(node.target for node in ast.walk(tree) if isinstance(node, ast.For | ast.AsyncFor))


class _Recording(ast.NodeTransformer):
    """Transformer that wraps the values of statements with actions in calls of the recorder."""

    def __init__(self, in_tasks: set[str], accumulators: set[str], in_order: set[str]) -> None:
        self.statements: list[RecordedStatement] = []
        self._in_tasks, self._accumulators, self._sorted = in_tasks, accumulators, in_order
        self._scope: list[str] = []

    def visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if node.name in self._in_tasks:
                return node
            self._scope.append(node.name)
            self.generic_visit(node)
            self._scope.pop()
            return node
        name = VALUES.get(type(node)) if isinstance(node, ast.stmt) else None
        value = getattr(node, name, None) if name else None
        if isinstance(node, ast.stmt) and isinstance(value, ast.expr) and self._has_action(value):
            setattr(node, name or "", self._wrapped(node, value))
        if isinstance(node, ast.stmt | ast.Module | ast.ExceptHandler | ast.match_case):
            self.generic_visit(node)
        return node

    def _wrapped(self, statement: ast.stmt, value: ast.expr) -> ast.expr:
        number = len(self.statements)
        self.statements.append(RecordedStatement(number, statement.lineno, ".".join(self._scope), target_of(statement),
                                                 _sorts(value) or bool(_names([value]) & self._sorted)))
        if isinstance(statement, ast.Expr) and isinstance(value, ast.Call) and not _is_action(value):
            # print(rdd.count()): its argument is the value, not what print gives.
            value.args = [with_recorded(each, self._has_action, record_call(number)) for each in value.args]
            return value
        return with_recorded(value, self._has_action, record_call(number))

    def _has_action(self, node: ast.AST) -> bool:
        if isinstance(node, _FUNCTIONS):
            return False
        if isinstance(node, ast.Attribute) and node.attr == "value" and isinstance(node.value, ast.Name):
            return node.value.id in self._accumulators
        return _is_action(node) or _is_whole_iterator(node) or any(map(self._has_action, ast.iter_child_nodes(node)))


def record_call(number: int) -> Callable[[ast.expr], ast.expr]:
    """Return a function that wraps an expression, so that its value is recorded as the value of a statement."""
    def call(value: ast.expr) -> ast.expr:
        return ast.copy_location(ast.Call(ast.Name(RECORD, ast.Load()), [ast.Constant(number), value], []), value)
    return call


def with_recorded(value: ast.expr, wants: Callable[[ast.expr], bool],
                  call: Callable[[ast.expr], ast.expr]) -> ast.expr:
    """Return an expression that is recorded; of text what it is made of, as digits of floats are no values.

    Parameters
    ----------
    value : ast.expr
    wants : callable
        Whether an expression is to be recorded.
    call : callable
        Has it recorded.

    Examples
    --------
    >>> text = ast.parse("f'{a:.2f} of {b}'", mode="eval").body
    >>> ast.unparse(with_recorded(text, lambda each: ast.unparse(each) == "a", record_call(0)))
    "f'{__vispark_record__(0, a):.2f} of {b}'"
    """
    def inside(part: ast.expr) -> ast.expr:
        return with_recorded(part, wants, call)

    if isinstance(value, ast.JoinedStr):
        for part in value.values:
            if isinstance(part, ast.FormattedValue):
                part.value = inside(part.value)
    elif isinstance(value, ast.BinOp) and isinstance(value.op, ast.Mod) and _is_text(value.left):
        if isinstance(value.right, ast.Tuple):
            value.right.elts = list(map(inside, value.right.elts))
        else:
            value.right = inside(value.right)
    elif isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add) and (
            _is_text(value.left) or _is_text(value.right)):
        value.left, value.right = inside(value.left), inside(value.right)
    elif _is_text(value) and isinstance(value, ast.Call):
        value.args = list(map(inside, value.args))
        for keyword in value.keywords:
            keyword.value = inside(keyword.value)
    elif wants(value):
        return call(value)
    return value


def _is_text(node: ast.expr) -> bool:
    """Return whether an expression makes text."""
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, ast.Add | ast.Mod) and (_is_text(node.left) or _is_text(node.right))
    if isinstance(node, ast.Call):
        return (isinstance(node.func, ast.Name) and node.func.id in ("str", "repr")) or (
            isinstance(node.func, ast.Attribute) and node.func.attr == "format" and _is_text(node.func.value))
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def target_of(statement: ast.stmt) -> str:
    """Return the target of an assignment, or the word that another statement begins with."""
    if isinstance(statement, ast.Assign):
        return ", ".join(ast.unparse(each) for each in statement.targets)
    if isinstance(statement, ast.AugAssign | ast.AnnAssign):
        return ast.unparse(statement.target)
    return type(statement).__name__.lower() if not isinstance(statement, ast.Expr) else "value"


def _is_action(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in (
        ACTIONS - {"toLocalIterator", "checkpoint", "localCheckpoint", "foreach", "foreachPartition"} | {"vreduce"})


def _is_whole_iterator(node: ast.AST) -> bool:
    """Return whether a node makes one value of all that ``toLocalIterator`` gives."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _OF_ITERATORS and any(
        isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute) and each.func.attr == "toLocalIterator"
        for each in node.args)


def _sorts(node: ast.AST) -> bool:
    return any(isinstance(each, ast.Attribute) and each.attr in _SORTING for each in ast.walk(node)) or (
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "sorted")


def _sorted_rdds(tree: ast.Module) -> set[str]:
    """Return the names of RDDs that are sorted where they are made, by whatever comes last."""
    return {target.id for node in ast.walk(tree) if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
            and isinstance(node.value.func, ast.Attribute) and node.value.func.attr in _SORTING
            for target in node.targets if isinstance(target, ast.Name)}


def _accumulators(tree: ast.Module) -> set[str]:
    """Return the names of Spark's accumulators."""
    return {target.id for node in ast.walk(tree) if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
            and isinstance(node.value.func, ast.Attribute) and node.value.func.attr == "accumulator"
            for target in node.targets if isinstance(target, ast.Name)}


def run_in_tasks(tree: ast.Module) -> set[str]:
    """Return the names that operations of RDDs are given, and those that functions of these names use."""
    functions: dict[str, list[ast.AST]] = {}
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            functions.setdefault(node.name, []).append(node)
        elif isinstance(node, ast.Assign) and (isinstance(node.value, ast.Lambda | ast.Name | ast.Attribute)
                                               or _is_partial(node.value)):
            for target in node.targets:
                functions.setdefault(ast.unparse(target), []).append(node.value)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in (
                TRANSFORMATIONS | ACTIONS | {"vreduce", "exec", "iterate"}) - SOURCES:
            names |= _used([*node.args, *(each.value for each in node.keywords)])
    searched: set[str] = set()
    while rest := (names & functions.keys()) - searched:
        searched |= rest
        names |= _used(node for name in rest for node in functions[name])
    return names & functions.keys()


def _is_partial(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func) in ("partial", "functools.partial")


def _used(nodes: Iterable[ast.AST]) -> set[str]:
    """Return the names that nodes use, those of methods and attributes among them."""
    nodes = list(nodes)
    return _names(nodes) | {each.attr for node in nodes for each in ast.walk(node) if isinstance(each, ast.Attribute)}


def _names(nodes: Iterable[ast.AST]) -> set[str]:
    return {each.id for node in nodes for each in ast.walk(node) if isinstance(each, ast.Name)}
