"""Names that change between a lazy operation and what runs it: Spark takes closures as they are then, vmap at once."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from vispark.migrate.source.program import RddCall, SourceProgram

#: Operations that keep the functions before them unread, for what comes behind.
_LAZY = frozenset(["map", "mapValues", "flatMap", "flatMapValues", "filter", "keyBy", "mapPartitions",
                   "mapPartitionsWithIndex", "glom", "sample"])
#: Methods that change lists, dicts, sets and arrays in place.
IN_PLACE = frozenset(["append", "extend", "insert", "pop", "remove", "clear", "update", "setdefault", "add", "sort",
                       "reverse", "fill", "put", "itemset", "partition"])


def late_change(program: SourceProgram, call: RddCall) -> tuple[str, int, int] | None:
    """Return a name that a lazy operation's function reads and that changes before it runs; None where none does.

    Returns
    -------
    tuple of str, int and int
        The name, the line at which it changes, and that of the operation behind which runs the function.

    Examples
    --------
    >>> program = SourceProgram("job.py", '''
    ... scores = sc.parallelize(rows).map(lambda x: x * scale)
    ... scale = scale + 1
    ... total = scores.sum()
    ... ''')
    >>> late_change(program, program.calls[1])
    ('scale', 3, 4)
    """
    first = _statement(program, call.node)
    running = [each for each in program.calls if each.scope is call.scope and each.method not in _LAZY
               and each.line >= call.line and call in program.upstream(each)]
    if not running:
        return None
    runs = min(running, key=lambda each: each.line)
    last = _statement(program, runs.node)
    if last is first:
        return None
    names = _names_read(program, call)
    changes = [(node.lineno, name) for node in ast.walk(call.scope) if isinstance(node, ast.stmt)
               and (first.end_lineno or 0) < node.lineno < last.lineno for name in _changed(node) if name in names]
    if not changes:
        return None
    line, name = min(changes)
    return name, line, runs.line


def _statement(program: SourceProgram, node: ast.AST) -> ast.stmt:
    return next(each for each in program.around(node) if isinstance(each, ast.stmt))


def _names_read(program: SourceProgram, call: RddCall) -> set[str]:
    """Return the names that an operation's functions, and those of the program that they call, find around them."""
    read, todo, seen = set[str](), list[ast.AST](call.node.args), set[str]()
    while todo:
        node = todo.pop()
        inside = list(ast.walk(node))
        own = {each.arg for each in inside if isinstance(each, ast.arg)}
        names = {each.id for each in inside if isinstance(each, ast.Name)} - own
        read |= names
        todo += [program.functions[name] for name in names & program.functions.keys() - seen]
        seen |= names
    return read


def _changed(node: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement binds anew, or whose values it changes in place."""
    targets: list[ast.expr] = []
    if isinstance(node, ast.Assign | ast.Delete):
        targets = list(node.targets)
    elif isinstance(node, ast.AugAssign | ast.AnnAssign | ast.For):
        targets = [node.target]
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and isinstance(
            node.value.func, ast.Attribute) and node.value.func.attr in IN_PLACE:
        targets = [node.value.func.value]
    for target in targets:
        for changed in target.elts if isinstance(target, ast.Tuple | ast.List) else [target]:
            while isinstance(changed, ast.Subscript | ast.Attribute | ast.Starred):
                changed = changed.value
            if isinstance(changed, ast.Name):
                yield changed.id
