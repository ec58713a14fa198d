"""Ports of functions that take pairs apart: before the cache these become dicts, whose fields the functions read."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from vispark.migrate.edits import Edit, SourceBytes
from vispark.migrate.sites import RddCall, SourceProgram

#: What makes dicts of pairs, before a cache.
TO_DICTS = '.map(lambda kv: {"key": kv[0], "value": kv[1]})'
_FIELDS = {0: '"key"', 1: '"value"'}
#: Actions whose lists of dicts become lists of pairs again.
LISTS = frozenset(["collect", "take", "takeSample"])
#: Operations for which it is the same whether records are pairs or dicts.
_BLIND = frozenset(["count", "unpersist", "isEmpty", "setName"])


def function_edits(text: SourceBytes, function: ast.expr) -> list[Edit] | None:
    """Return the edits that make a function of pairs one of dicts; None where that takes a hand.

    Examples
    --------
    >>> source = "lambda p: p[1] * (p[0] + 1)"
    >>> text = SourceBytes(source)
    >>> text.edited(function_edits(text, ast.parse(source, mode="eval").body))
    'lambda p: p["value"] * (p["key"] + 1)'
    """
    if isinstance(function, ast.Name):
        return [Edit(text.start(function), text.end(function),
                     f'lambda kv: {function.id}((kv["key"], kv["value"]))')]
    if not isinstance(function, ast.Lambda) or len(function.args.args) != 1 or _binds(function):
        return None
    name, found = function.args.args[0].arg, list[Edit]()
    read = {each.value: each for each in ast.walk(function.body) if isinstance(each, ast.Subscript)}
    for each in ast.walk(function.body):
        if isinstance(each, ast.Name) and each.id == name:
            index = read[each].slice if each in read else None
            if not isinstance(index, ast.Constant) or not isinstance(index.value, int) or index.value not in _FIELDS:
                return None
            found.append(Edit(text.start(index), text.end(index), _FIELDS[index.value]))
    return found


def other_uses(program: SourceProgram, made: set[RddCall], ported: set[RddCall]) -> Iterator[RddCall]:
    """Yield the operations on cached pairs that would see dicts and are not ported.

    Parameters
    ----------
    program : SourceProgram
    made : set of RddCall
        What makes and keeps the pairs.
    ported : set of RddCall
        Operations whose functions are made ones of dicts.
    """
    for call in program.calls:
        if program.before(call) in made and call not in made | ported and call.method not in _BLIND:
            above = program.parent(call.node)
            # X.cache().first(), for the effect on X.
            if not (call.method in ("first", "take") and isinstance(above, ast.Expr)):
                yield call


def list_edits(text: SourceBytes, call: RddCall) -> list[Edit]:
    """Return the edits that make a list of pairs of the list of dicts that an action gives.

    Examples
    --------
    >>> program = SourceProgram("job.py", "x, y = sc.parallelize(a).take(1)[0]")
    >>> text = SourceBytes(program.source)
    >>> text.edited(list_edits(text, program.calls[-1]))
    'x, y = [(kv["key"], kv["value"]) for kv in sc.parallelize(a).take(1)][0]'
    """
    start, end = text.start(call.node), text.end(call.node)
    return [Edit(start, start, '[(kv["key"], kv["value"]) for kv in '), Edit(end, end, "]")]


def map_edits(text: SourceBytes, call: RddCall) -> list[Edit] | None:
    """Return the edits that have a map of pairs that stays in Spark take dicts; None where that takes a hand."""
    return function_edits(text, call.node.args[0]) if call.method in ("map", "filter", "flatMap", "foreach") \
        and len(call.node.args) == 1 and not call.node.keywords else None


def _binds(function: ast.Lambda) -> bool:
    """Return whether a function has others in it, which might give its parameter's name another meaning."""
    args = function.args
    return bool(args.posonlyargs or args.kwonlyargs or args.vararg or args.kwarg or args.defaults) or any(
        isinstance(each, ast.Lambda | ast.comprehension | ast.NamedExpr) for each in ast.walk(function.body))
