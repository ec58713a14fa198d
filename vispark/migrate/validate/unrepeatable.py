"""Search for what a program does that is not to happen twice: a validation, and the run of a port, run it again."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import suppress

from vispark.migrate.capture.run_capture import RunCapture

#: What a DataFrameWriter writes by.
_WRITERS = frozenset({"csv", "insertInto", "jdbc", "json", "orc", "parquet", "save", "saveAsTable", "text"})
#: Modes in which it may write again.
_AGAIN = frozenset({"ignore", "overwrite"})


def unrepeatable(capture: RunCapture) -> str:
    """Return the first thing of a recorded program that is not to happen again, with its line; "" without one.

    Found are ``save...`` actions that ran, and in the text of its files the opening of a file to append to it and the
    writing of a DataFrame in other modes than "overwrite" and "ignore". Other files are written anew by each run.
    """
    for call in capture.calls:
        if call.method.startswith("save"):
            return f"line {call.line} of {call.file} is a save... action ({call.method})"
    for file, source in capture.sources.items():
        with suppress(SyntaxError, ValueError):
            for line, what in writes(source):
                return f"line {line} of {file} {what}"
    return ""


def writes(source: str) -> Iterator[tuple[int, str]]:
    """Yield the lines of a program that write what is not to be written twice, and what each does.

    Examples
    --------
    >>> list(writes("log = open('log', 'a')"))
    [(1, 'appends to a file')]
    >>> list(writes("df.write.parquet(path)")), list(writes("df.write.mode('overwrite').parquet(path)"))
    ([(1, 'writes a DataFrame')], [])
    """
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            if _name(node.func) == "open" and "a" in _mode(node):
                yield node.lineno, "appends to a file"
            elif _name(node.func) in _WRITERS and _writes_anew(node.func):
                yield node.lineno, "writes a DataFrame"


def _name(function: ast.expr) -> str:
    return function.id if isinstance(function, ast.Name) else \
        function.attr if isinstance(function, ast.Attribute) else ""


def _mode(opening: ast.Call) -> str:
    """Return the mode in which a file is opened, as it is written there: ``open(path, mode)``, ``path.open(mode)``."""
    named = [word.value for word in opening.keywords if word.arg == "mode"]
    place = 1 if isinstance(opening.func, ast.Name) or len(opening.args) > 1 else 0
    modes = [*named, *opening.args[place:place + 1]]
    value = modes[0].value if modes and isinstance(modes[0], ast.Constant) else ""
    return value if isinstance(value, str) and len(value) <= 3 else ""


def _writes_anew(function: ast.expr) -> bool:
    """Return whether a method is of ``df.write``, in no mode that may be repeated."""
    while isinstance(function, ast.Attribute):
        function = function.value
        if isinstance(function, ast.Attribute) and function.attr == "write":
            return True
        if isinstance(function, ast.Call):
            if _name(function.func) == "mode" and any(isinstance(each, ast.Constant) and each.value in _AGAIN
                                                      for each in function.args):
                return False
            function = function.func
    return False
