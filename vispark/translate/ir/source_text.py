"""Lookup of a function's source and syntax tree, and printing of its lines in errors."""

from __future__ import annotations

import ast
import dis
import functools
import linecache
import threading
import types
from typing import Any

from vispark.translate.ir.errors import TranslationError
from vispark.translate.ir.nodes import At, Definition, SourceText

#: CPython 3.11 counts the depth of a tree that it makes for all threads together.
_PARSING = threading.RLock()

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


def find(function: types.FunctionType) -> tuple[FunctionNode, SourceText]:
    """Return the syntax tree of a function, and the lines of its file that it covers.

    Raises
    ------
    TranslationError
        If there is no source, it was changed since, or two lambdas cannot be told apart.
    """
    # Sources inside archives are found through the module's loader.
    linecache.lazycache(function.__code__.co_filename, function.__globals__)
    return _tree_of(function.__code__)


@functools.lru_cache(maxsize=512)
def _tree_of(code: types.CodeType) -> tuple[FunctionNode, SourceText]:
    """Return a function's tree; kept, as loops translate the same function again and again."""
    file = code.co_filename
    linecache.checkcache(file)
    lines = linecache.getlines(file)
    if not lines and file == "<stdin>":
        raise TranslationError(f"the source of {_shown(code)} was not found: Python's own prompt keeps what is typed "
                               "from version 3.13 on. Write it in a file, or type it in IPython (for pyspark: "
                               "PYSPARK_DRIVER_PYTHON=ipython)", file=file)
    if not lines:
        raise TranslationError(f"the source of {_shown(code)} was not found: {file} cannot be read. A translated "
                               "function is written in a file or a notebook, not made by exec or eval", file=file)
    candidates = _functions(file, "".join(lines))
    nodes = [node for node in candidates if _starts(node) == code.co_firstlineno and _named(node, code)]
    if code.co_name == "<lambda>":
        # The innermost one, as those around it cover the code too.
        nodes = sorted((node for node in nodes if _covers(node, code)), key=_length)[:1]
    if len(nodes) != 1:
        raise TranslationError(f"the source of {_shown(code)} was not found at line {code.co_firstlineno} of {file}; "
                               "it has changed since it was read, or stands twice in one place", file=file,
                               line=code.co_firstlineno)
    node = nodes[0]
    first, last = min(code.co_firstlineno, node.lineno), node.end_lineno or node.lineno
    return node, SourceText(file, first, tuple(line.rstrip("\n") for line in lines[first - 1:last]))


def place(node: Any) -> At:
    """Return the place of a syntax tree's node in the source."""
    return At(node.lineno, node.col_offset, node.end_lineno or node.lineno, node.end_col_offset or node.col_offset)


def complain(message: str, at: At, text: SourceText, name: str) -> TranslationError:
    """Return an error at a place, with the user's line reprinted and marked.

    Parameters
    ----------
    message : str
        What is not supported, and what would be.
    name : str
        The function in which it happened.
    """
    if not at.line:
        return TranslationError(f"{message}\n  in {name} ({text.file})", file=text.file)
    described = f"{message}\n  File \"{text.file}\", line {at.line}, column {at.column + 1}, in {name}"
    number = at.line - text.first
    if 0 <= number < len(text.lines):
        line = text.lines[number]
        # The syntax tree counts bytes of UTF-8.
        start = len(line.encode()[:at.column].decode(errors="ignore"))
        end = len(line.encode()[:at.end_column].decode(errors="ignore")) if at.end_line == at.line else len(line)
        indent = len(line) - len(line.lstrip())
        described += f"\n    {line.strip()}\n    {' ' * max(0, start - indent)}{'^' * max(1, end - start)}"
    return TranslationError(described, file=text.file, line=at.line, column=at.column + 1)


def at_definition(definition: Definition, message: str) -> TranslationError:
    """Return an error where a function begins."""
    return complain(message, definition.at, definition.text, definition.name)


def heading(node: Any) -> At:
    """Return the place of a function's start, after its decorators: its ``def``, or a lambda."""
    return At(node.lineno, node.col_offset)


@functools.lru_cache(maxsize=64)
def _functions(file: str, text: str) -> tuple[FunctionNode, ...]:
    """Return all functions of a file; kept, as a look at everything in a long file takes longer than a translation."""
    try:
        with _PARSING:
            tree = ast.parse(text)
    except SyntaxError as error:
        raise TranslationError(f"the source in {file} cannot be read: {error.msg}", file=file,
                               line=error.lineno or 0) from error
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
    return tuple(node for node in ast.walk(tree) if isinstance(node, kinds))


def _starts(node: FunctionNode) -> int:
    return min([node.lineno, *(decorator.lineno for decorator in getattr(node, "decorator_list", ()))])


def _named(node: FunctionNode, code: types.CodeType) -> bool:
    return code.co_name == ("<lambda>" if isinstance(node, ast.Lambda) else node.name)


def _covers(node: Any, code: types.CodeType) -> bool:
    """Return whether a lambda's body is where the code's instructions are, or, where these only return a constant and
    have no
    place, as in Python 3.12, whether it is that constant.
    """
    spans = [(start, column, end, end_column) for start, end, column, end_column in code.co_positions()
             if start is not None and column is not None and (start, column) != (end, end_column)]
    body = node.body
    if not spans:
        parameters = tuple(each.arg for each in (*node.args.posonlyargs, *node.args.args))
        only = _only_returned(code)
        return bool(only) and parameters == code.co_varnames[:code.co_argcount] and only == _only_returned(
            compile(ast.Expression(body), "", "eval"))
    return all((body.lineno, body.col_offset) <= (start, column)
               and (end, end_column) <= (body.end_lineno, body.end_col_offset)
               for start, column, end, end_column in spans)


def _only_returned(code: types.CodeType) -> str:
    """Return the constant that a code only returns, as Python shows it; empty if it does something else."""
    return next((repr(each.argval) for each in dis.get_instructions(code) if each.opname == "RETURN_CONST"), "")


def _length(node: Any) -> tuple[int, int]:
    return node.end_lineno - node.lineno, node.end_col_offset - node.col_offset


def _shown(code: types.CodeType) -> str:
    return "the lambda" if code.co_name == "<lambda>" else code.co_name


def label_of(node: FunctionNode) -> str:
    """Return a function's name."""
    return "lambda" if isinstance(node, ast.Lambda) else node.name


def bound_names(node: FunctionNode) -> set[str]:
    """Return the names that are local to a function: parameters, targets, inner functions; not those of functions
    inside.
    """
    arguments = [*node.args.posonlyargs, *node.args.args, *starred(node), *node.args.kwonlyargs]
    names = {argument.arg for argument in arguments}
    todo: list[ast.AST] = list(node.body) if isinstance(node.body, list) else [node.body]
    while todo:
        part = todo.pop()
        if isinstance(part, ast.FunctionDef):
            names.add(part.name)
        elif isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
            names.add(part.id)
        if not isinstance(part, ast.FunctionDef | ast.Lambda | ast.GeneratorExp | ast.ListComp):
            todo.extend(ast.iter_child_nodes(part))
    return names


def starred(node: FunctionNode) -> list[ast.arg]:
    """Return the parameter with a *, if there is one."""
    return [] if node.args.vararg is None else [node.args.vararg]
