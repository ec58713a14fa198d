"""Reader of functions that join two tuples item by item: ``tuple(x + y for x, y in zip(a, b))``.

The translator has no tuples of unknown length, and a fold needs none: each part of the records is joined alike.
"""

from __future__ import annotations

import ast
import builtins
import types
from collections.abc import Callable
from typing import Any, TypeGuard

from vispark.plan.fold.reading import BINARY
from vispark.translate import TranslationError
from vispark.translate.ir.source_text import find

#: The place that stands for each part of a tuple of numbers or arrays.
EACH = "*"

def item_join(function: Callable[..., Any]) -> str | Callable[..., Any] | None:
    """Return the operator, or the function, that joins the items of two tuples; None if that is not seen.

    Parameters
    ----------
    function : callable
        Of two tuples; never called.
    """
    if type(function) is not types.FunctionType:
        return None
    try:
        node, _ = find(function)
    except TranslationError:
        return None
    names = [argument.arg for argument in node.args.args]
    body = node.body if isinstance(node, ast.Lambda) else _returned(node.body)
    if len(names) != 2 or not _is_call(body, "tuple", 1, function):
        return None
    return _items(body.args[0], names, function)


def meanings(function: types.FunctionType) -> list[Any]:
    """Return the values of the global names of a function, and of those inside it; functions of equal code have their
    names in one order.
    """
    surroundings, values, codes = function.__globals__, [], [function.__code__]
    while codes:
        code = codes.pop()
        codes += [each for each in code.co_consts if isinstance(each, types.CodeType)]
        values += [surroundings.get(name, getattr(builtins, name, None)) for name in code.co_names]
    cells = function.__closure__ or ()
    return values + [cell.cell_contents for cell in cells]


def _returned(body: list[ast.stmt]) -> ast.expr | None:
    """Return the value of a function whose body is a single return."""
    statements = [each for each in body if not (isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant))]
    return statements[0].value if len(statements) == 1 and isinstance(statements[0], ast.Return) else None


def _items(items: ast.expr, names: list[str], function: types.FunctionType) -> str | Callable[..., Any] | None:
    if _is_call(items, "map", 3, function) and [_name(each) for each in items.args[1:]] == names:
        mapped: Callable[..., Any] | None = _resolve(items.args[0], function)
        return mapped
    if not isinstance(items, ast.GeneratorExp | ast.ListComp) or len(items.generators) != 1:
        return None
    one = items.generators[0]
    if not _is_call(one.iter, "zip", 2, function, strict=True) or [_name(each) for each in one.iter.args] != names:
        return None
    if one.ifs or not isinstance(one.target, ast.Tuple):
        return None
    targets = [_name(each) for each in one.target.elts]
    if len(targets) != 2 or None in targets:
        return None
    match items.elt:
        case ast.BinOp(left, operator, right) if {_name(left), _name(right)} == set(targets):
            return next((symbol for symbol in BINARY if _is_operator(operator, symbol)), None)
        case ast.Call(called, [left, right], []) if {_name(left), _name(right)} == set(targets):
            joined: Callable[..., Any] | None = _resolve(called, function)
            return joined
    return None


def _is_operator(operator: ast.operator, symbol: str) -> bool:
    match ast.parse(f"x {symbol} y", mode="eval").body:
        case ast.BinOp(_, known, _):
            return type(known) is type(operator)
    return False


def _is_call(node: ast.expr | None, name: str, arguments: int, function: types.FunctionType,
             strict: bool = False) -> TypeGuard[ast.Call]:
    """Return whether a node calls the builtin of this name with ``arguments`` arguments and no others (but
    ``strict=``).
    """
    if not isinstance(node, ast.Call) or len(node.args) != arguments or _name(node.func) != name:
        return False
    if any(not strict or keyword.arg != "strict" for keyword in node.keywords):
        return False
    return _resolve(node.func, function) is getattr(builtins, name)


def _name(node: ast.expr) -> str | None:
    return node.id if isinstance(node, ast.Name) else None


def _resolve(node: ast.expr, function: types.FunctionType) -> Any:
    """Resolve a name, or a module's attribute, in a function's surroundings; None if it is unknown."""
    if isinstance(node, ast.Attribute):
        owner = _resolve(node.value, function)
        return getattr(owner, node.attr, None) if isinstance(owner, types.ModuleType) else None
    name = _name(node)
    if name is None:
        return None
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    if name in cells:
        return cells[name].cell_contents
    return function.__globals__.get(name, getattr(builtins, name, None))
