"""Unrolling of a stencil's loops over known offsets, so that ``u[d, 0]`` in ``for d in (-1, 1)`` has literal offsets.

Loops and comprehensions are unrolled whose items are known before the kernel runs, written out or numbers and tuples
from around the function, and which index something by their variables; others stay loops.
"""

from __future__ import annotations

import ast
import copy
import operator
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from vispark.translate.ir.source_text import FunctionNode

#: The most copies of bodies that one function's loops become.
_COPIES = 512

_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod}
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge}
_ITERABLES: dict[str, Callable[..., Any]] = {"range": range, "enumerate": enumerate, "zip": zip, "reversed": reversed}

#: Returns the value of a name from around the function: an int, a float, or a tuple of these.
ValueOfName = Callable[[str], Any]


class NotKnown(Exception):
    """Value that is not known before the kernel runs, or a loop that cannot be unrolled."""


def is_known(value: Any) -> bool:
    """Return whether an object is a number, or a tuple of numbers and such tuples, which loops can be unrolled over."""
    return type(value) in (int, float) or (type(value) is tuple and all(map(is_known, value)))


def unrolled(node: FunctionNode, value: ValueOfName) -> tuple[FunctionNode, frozenset[str]]:
    """Return a function with its loops over offsets unrolled, and the names from around it whose values that took.

    Parameters
    ----------
    node : FunctionNode
        The function, which is not changed.
    value : callable
        Returns the value of a name from around the function, or raises NotKnown.
    """
    if not any(isinstance(part, ast.For | ast.GeneratorExp | ast.ListComp) for part in ast.walk(node)):
        return node, frozenset()
    unroller = _Unroller(node, value)
    copied = copy.deepcopy(node)
    if isinstance(copied, ast.Lambda):
        copied.body = unroller.visit(copied.body)
    else:
        copied.body = [one for statement in copied.body for one in _listed(unroller.visit(statement))]
    return (copied, frozenset(unroller.used)) if unroller.copies else (node, frozenset())


class _Unroller(ast.NodeTransformer):
    """Transformer of loops into copies of their bodies, one for each item."""

    def __init__(self, function: FunctionNode, value: ValueOfName) -> None:
        self.function, self.value = function, value
        self.used: set[str] = set()
        self.copies = 0

    def visit_For(self, node: ast.For) -> ast.AST | list[ast.stmt]:
        try:
            bindings = self._bindings(node.target, node.iter, node.body)
            if any(_leaves(statement) for statement in node.body):
                raise NotKnown
        except NotKnown:
            return self.generic_visit(node)
        statements: list[ast.stmt] = []
        for binding in bindings:
            statements += [one for statement in _placed(node.body, binding) for one in _listed(self.visit(statement))]
        if bindings and self._read_later(node):
            statements += [ast.copy_location(ast.Assign([ast.copy_location(ast.Name(name, ast.Store()), node.target)],
                                                        _constant(number, node.target)), node)
                           for name, number in bindings[-1].items()]
        return [*statements, *(one for statement in node.orelse for one in _listed(self.visit(statement)))]

    def visit_GeneratorExp(self, node: ast.GeneratorExp) -> ast.AST:
        return self._list(node)

    def visit_ListComp(self, node: ast.ListComp) -> ast.AST:
        return self._list(node)

    def _list(self, node: ast.GeneratorExp | ast.ListComp) -> ast.AST:
        """Return the list of a comprehension's items."""
        before = set(self.used), self.copies
        try:
            items = [self.visit(copy.deepcopy(one)) for one in self._items(node.elt, node.generators)]
        except NotKnown:
            self.used, self.copies = before
            return self.generic_visit(node)
        return ast.copy_location(ast.List(items, ast.Load()), node)

    def _items(self, item: ast.expr, generators: list[ast.comprehension]) -> Iterator[ast.expr]:
        if not generators:
            yield item
            return
        first, *others = generators
        body = [item, *first.ifs, *(part for one in others for part in (one.iter, *one.ifs))]
        for binding in self._bindings(first.target, first.iter, body):
            if all(self._known(condition) for condition in _placed(first.ifs, binding)):
                placed, = _placed([item], binding)
                yield from self._items(placed, [ast.comprehension(
                    one.target, _placed([one.iter], binding)[0], _placed(one.ifs, binding), one.is_async)
                    for one in others])

    def _bindings(self, target: ast.expr, iterable: ast.expr, body: list[Any]) -> list[dict[str, Any]]:
        """Return the values of a loop's variables, turn by turn.

        Raises
        ------
        NotKnown
            If they are not known, index nothing, are assigned elsewhere in the loop, or are too many.
        """
        names = {part.id for part in ast.walk(target) if isinstance(part, ast.Name)}
        parts = [part for statement in body for part in ast.walk(statement)]
        if not any(_indexes(part, names) for part in parts) or any(_stores(part, names) for part in parts):
            raise NotKnown
        bindings: list[dict[str, Any]] = []
        used = set(self.used)
        for item in self._items_of(iterable):
            self.copies += 1
            if self.copies > _COPIES:
                self.used = used
                raise NotKnown
            bindings.append(dict(_matched(target, item)))
        return bindings

    def _items_of(self, iterable: ast.expr) -> tuple[Any, ...]:
        """Return the items of an iterable; what Python would raise is left to the translator to tell."""
        try:
            return tuple(self._known(iterable))
        except (TypeError, ValueError, ZeroDivisionError) as error:
            raise NotKnown from error

    def _known(self, node: ast.expr) -> Any:
        """Return the value of an expression of numbers, tuples, and iterables of these."""
        match node:
            case ast.Constant(value=int() | float() as number):
                return number
            case ast.Name(id=name):
                value = self.value(name)
                self.used.add(name)
                return value
            case ast.Tuple(elts=items) | ast.List(elts=items):
                return tuple(map(self._known, items))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -self._known(operand)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
                return _BINARY[type(op)](self._known(left), self._known(right))
            case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _COMPARE:
                return _COMPARE[type(op)](self._known(left), self._known(right))
            case ast.BoolOp(op=op, values=values):
                return (all if isinstance(op, ast.And) else any)(map(self._known, values))
            case ast.Call(func=ast.Name(id=name), args=arguments, keywords=keywords) if name in _ITERABLES:
                named = {one.arg: self._known(one.value) for one in keywords if one.arg}
                return tuple(islice(_ITERABLES[name](*map(self._known, arguments), **named), _COPIES + 1))
        raise NotKnown

    def _read_later(self, loop: ast.For) -> bool:
        """Return whether a variable of a loop is read where no loop that has it runs."""
        names = {part.id for part in ast.walk(loop.target) if isinstance(part, ast.Name)}
        inside = {id(part) for one in ast.walk(self.function)
                  if isinstance(one, ast.For | ast.GeneratorExp | ast.ListComp) for part in ast.walk(one)}
        return any(isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load) and part.id in names
                   and id(part) not in inside for part in ast.walk(self.function))


class _Placed(ast.NodeTransformer):
    """Transformer that puts numbers in place of loops' variables, and computes the indices that have them."""

    def __init__(self, numbers: dict[str, Any]) -> None:
        self.numbers = numbers

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return _constant(self.numbers[node.id], node) if node.id in self.numbers else node

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        self.generic_visit(node)
        match node:
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() as number)):
                return _constant(-number, node)
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        match node:
            case ast.BinOp(ast.Constant(int() as left), op, ast.Constant(int() as right)) if type(op) in _BINARY and (
                    right or not isinstance(op, ast.FloorDiv | ast.Mod)):
                return _constant(_BINARY[type(op)](left, right), node)
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        self.generic_visit(node)
        match node:
            case ast.Subscript(ast.Tuple(elts=items), ast.Constant(int() as place)) if place in range(len(items)):
                return items[place]
        return node


def _placed(nodes: list[Any], numbers: dict[str, Any]) -> list[Any]:
    """Return copies of nodes with numbers in place of variables."""
    return [_Placed(numbers).visit(copy.deepcopy(one)) for one in nodes]


def _constant(value: Any, at: ast.AST) -> ast.expr:
    node: ast.expr = ast.Tuple([_constant(one, at) for one in value], ast.Load()) if isinstance(value, tuple) else \
        ast.Constant(value)
    return ast.copy_location(node, at)


def _matched(target: ast.expr, item: Any) -> Iterator[tuple[str, Any]]:
    """Yield the variables of a target with their values."""
    if isinstance(target, ast.Name):
        yield target.id, item
        return
    if not isinstance(target, ast.Tuple | ast.List) or not isinstance(item, tuple) or len(item) != len(target.elts):
        raise NotKnown
    for one, part in zip(target.elts, item, strict=True):
        yield from _matched(one, part)


def _indexes(node: ast.AST, names: set[str]) -> bool:
    """Return whether a node is an index in which one of the variables is."""
    return isinstance(node, ast.Subscript) and any(isinstance(part, ast.Name) and part.id in names
                                                   for part in ast.walk(node.slice))


def _stores(node: ast.AST, names: set[str]) -> bool:
    """Return whether a node gives one of the variables another value."""
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in names


def _leaves(statement: ast.stmt) -> bool:
    """Return whether a statement has a ``break`` or ``continue`` of the loop around it."""
    if isinstance(statement, ast.Break | ast.Continue):
        return True
    if isinstance(statement, ast.For | ast.While):
        return any(map(_leaves, statement.orelse))
    return any(_leaves(one) for one in ast.iter_child_nodes(statement) if isinstance(one, ast.stmt))


def _listed(node: Any) -> list[Any]:
    return node if isinstance(node, list) else [node]
