"""Lowering of ``:=`` to assignments of their own, before the statement that contains it.

That is the same where the expression is always evaluated, and the name is not read before it in the statement;
elsewhere it is an error.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

_COMPREHENSIONS = ast.GeneratorExp | ast.ListComp | ast.SetComp | ast.DictComp
_INSTEAD = "; assign on a line of its own"

#: Makes the error of a syntax node.
ErrorMaker = Callable[[ast.AST, str], Exception]


def spelled_out(nodes: Sequence[ast.stmt], error: ErrorMaker) -> Sequence[ast.stmt]:
    """Return a suite without ``:=`` in its statements' own expressions; suites inside are left as they are.

    Parameters
    ----------
    error : callable
        Makes what is raised where ``:=`` cannot be spelled out.
    """
    if not any(map(_names, nodes)):
        return nodes
    return [one for node in nodes for one in (_spelled_out(node, error) if _names(node) else [node])]


def _names(node: ast.stmt) -> bool:
    return any(isinstance(part, ast.NamedExpr) for own in _own(node) for part in ast.walk(own))


def _own(node: ast.stmt) -> Iterator[ast.expr]:
    """Yield the expressions of a statement, without those of the statements inside it."""
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield from (part for part in ast.iter_child_nodes(node) if isinstance(part, ast.expr))


def _spelled_out(node: ast.stmt, error: ErrorMaker) -> list[ast.stmt]:
    node = copy.copy(node)
    apart = _WalrusExtractor(error)
    names, turn = _reads(node), _turns(node)
    for field, value in ast.iter_fields(node):
        if isinstance(value, ast.expr):
            setattr(node, field, apart.visit(copy.deepcopy(value)))
    assigned = [name for name, _ in apart.found]
    for name, there in apart.found:
        if assigned.count(name) > 1:
            raise error(there, f"{name} is given two values by := in one statement{_INSTEAD}")
        if any(one.id == name and turn[_position(one)] < turn[_position(there)] for one in names):
            raise error(there, f"{name} is read before := gives it a value here{_INSTEAD}")
    if not isinstance(node, ast.While):
        return [*apart.before, node]
    if node.orelse:
        raise error(apart.found[0][1], f":= in the condition of a while with else is not supported{_INSTEAD}")
    leave = ast.copy_location(ast.If(node.test, [ast.copy_location(ast.Pass(), node)],
                                     [ast.copy_location(ast.Break(), node.test)]), node.test)
    node.test, node.body = ast.copy_location(ast.Constant(True), node.test), [*apart.before, leave, *node.body]
    return [node]


def _reads(node: ast.stmt) -> list[ast.Name]:
    """Return the names that a statement reads in its own expressions."""
    read = [part for own in _own(node) for part in ast.walk(own) if isinstance(part, ast.Name)
            and isinstance(part.ctx, ast.Load)]
    return [*read, node.target] if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name) else read


def _turns(node: ast.stmt) -> dict[tuple[int, int], int]:
    """Return the position of each read of a name and each ``:=`` in the order of evaluation, by their places in the
    source.
    """
    own = list(_own(node))
    if isinstance(node, ast.Assign | ast.AnnAssign):
        own.sort(key=lambda one: one is not node.value)
    places = [_position(one) for expression in own for one in _evaluated(expression)]
    return {place: turn for turn, place in reversed(list(enumerate(places)))}


def _evaluated(node: ast.AST) -> Iterator[ast.expr]:
    """Yield the names and the ``:=`` of an expression in the order of evaluation, a test before its alternatives."""
    if isinstance(node, ast.Name | ast.NamedExpr):
        yield node      # what a := reads itself is what its name was before
    if isinstance(node, ast.IfExp):
        parts: Iterable[ast.AST] = (node.test, node.body, node.orelse)
    else:
        parts = (node.value,) if isinstance(node, ast.NamedExpr) else ast.iter_child_nodes(node)
    for part in parts:
        yield from _evaluated(part)


def _position(node: ast.expr) -> tuple[int, int]:
    return node.lineno, node.col_offset


class _WalrusExtractor(ast.NodeTransformer):
    """Transformer that puts a name in place of each ``:=``, and keeps the assignments."""

    def __init__(self, error: ErrorMaker) -> None:
        self.error = error
        self.before: list[ast.stmt] = []
        self.found: list[tuple[str, ast.expr]] = []

    def visit_NamedExpr(self, node: ast.NamedExpr) -> ast.Name:
        value = self.visit(node.value)
        self.before.append(ast.copy_location(ast.Assign([node.target], value), node))
        self.found.append((node.target.id, node))
        return ast.copy_location(ast.Name(node.target.id, ast.Load()), node.target)

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.BoolOp:
        node.values = [self.visit(node.values[0]), *map(self._check_conditional, node.values[1:])]
        return node

    def visit_IfExp(self, node: ast.IfExp) -> ast.IfExp:
        node.test = self.visit(node.test)
        node.body, node.orelse = self._check_conditional(node.body), self._check_conditional(node.orelse)
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.Compare:
        node.left, first = self.visit(node.left), self.visit(node.comparators[0])
        node.comparators = [first, *map(self._check_conditional, node.comparators[1:])]
        return node

    def visit_Lambda(self, node: ast.Lambda) -> ast.Lambda:
        return node

    def generic_visit(self, node: ast.AST) -> ast.AST:
        return self._check_conditional(node) if isinstance(node, _COMPREHENSIONS) else super().generic_visit(node)

    def _check_conditional(self, node: Any) -> Any:
        """Return a node that is evaluated conditionally or repeatedly; raise an error if it contains ``:=``."""
        for part in ast.walk(node):
            if isinstance(part, ast.NamedExpr):
                raise self.error(part, f":= in what is evaluated only sometimes, or several times, is not supported"
                                       f"{_INSTEAD}")
        return node
