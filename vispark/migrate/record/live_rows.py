"""Row functions of a running program's functions of blocks, as objects, so that a probe can run them."""

from __future__ import annotations

import ast
import itertools
import linecache
import types
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from vispark.migrate.source.row_functions import FunctionOfRow

_NUMBERS = itertools.count()


def live_row_function(function: types.FunctionType, row: FunctionOfRow) -> tuple[Callable[..., Any], Any]:
    """Return the row function in place of a function of blocks, and the fold behind it, None where there is none.

    Parameters
    ----------
    function : callable
        The program's, which takes a block; what it and those that it calls find around them is what the row function
        finds.
    row : FunctionOfRow
        By :func:`~vispark.migrate.source.row_functions.rows_of`.

    Examples
    --------
    >>> w = np.array([1.0, 2.0])
    >>> row = FunctionOfRow("lambda m: m @ w", "lambda a, b: a + b", {})
    >>> made, fold = live_row_function(lambda m: (m @ w).sum(), row)
    >>> float(made(np.array([3.0, 4.0]))), fold(1, 2)
    (11.0, 3)
    """
    names = names_around(function)
    for definition, text in row.definitions.items():
        _execute(text, names)
        names[f"{definition.name}_row"].__defaults__ = names[definition.name].__defaults__
    _execute(f"__row__ = {row.text}", names)
    names["__row__"].__defaults__ = function.__defaults__
    if row.fold:
        _execute(f"__fold__ = {row.fold}", names)
    return names["__row__"], names.get("__fold__")


def _execute(text: str, names: dict[str, Any]) -> None:
    """Execute a text, whose functions the translator finds by the name of a file; they get their defaults later."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        for default in node.defaults if isinstance(node, ast.arguments) else ():
            names |= {name.id: None for name in ast.walk(default) if isinstance(name, ast.Name)} | names
    file = f"<row function {next(_NUMBERS)}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    exec(compile(tree, file, "exec", dont_inherit=True), names)


def names_around(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the values that a function, and those that it calls, find around them; nearer ones go before the rest.

    Examples
    --------
    >>> k = 3
    >>> def inner(x): return x * k
    >>> found = names_around(lambda x: inner(x) + 1)
    >>> found["inner"] is inner, found["k"]
    (True, 3)
    """
    around: dict[str, Any] = {}
    todo, seen = [function], list[Any]()
    while todo:
        one = todo.pop(0)
        if not isinstance(one, types.FunctionType) or one in seen:
            continue
        seen.append(one)
        names = {name: one.__globals__[name] for name in one.__code__.co_names if name in one.__globals__}
        for name, cell in zip(one.__code__.co_freevars, one.__closure__ or (), strict=True):
            # A cell is empty until its name has a value.
            with suppress(ValueError):
                names[name] = cell.cell_contents
        for name, value in names.items():
            around.setdefault(name, value)
            todo.append(value)
    for one in seen:        # annotations are no names of the code
        around = {**one.__globals__, **around}
    return around
