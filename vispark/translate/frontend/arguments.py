"""Inputs of the reader beside the syntax tree: arguments and defaults by value, and places of errors."""

from __future__ import annotations

import ast
import types
from typing import Any

from vispark.translate.frontend.capture import constant
from vispark.translate.ir import nodes
from vispark.translate.ir.errors import Refusal, TranslationError
from vispark.translate.ir.nodes import Definition
from vispark.translate.ir.source_text import at_definition, complain, find, heading, label_of


def of_decorated(fn: types.FunctionType, error: TranslationError) -> TranslationError:
    """Return an error of a decorator's function with a hint that names the decorated function; other errors as they
    are.
    """
    inner = getattr(fn, "__wrapped__", None)
    if not isinstance(inner, types.FunctionType) or error.file != fn.__code__.co_filename:
        return error
    return TranslationError(f"{error.message}\n  {inner.__name__} is decorated, and this is its decorator's function; "
                            f"what it is around is {inner.__name__}.__wrapped__", file=error.file, line=error.line,
                            column=error.column)


def constants(args: tuple[Any, ...], definition: Definition | None, fn: Any = None) -> tuple[nodes.Constant, ...]:
    """Return the arguments by value; errors are reported at the function, which may not have been read yet."""
    try:
        return tuple([constant(value, f"argument {number}") for number, value in enumerate(args, 1)])
    except Refusal as error:
        if definition is not None:
            raise at_definition(definition, str(error)) from error
        if not isinstance(fn, types.FunctionType):
            raise TranslationError(str(error)) from error
        node, text = find(fn)
        raise complain(str(error), heading(node), text, label_of(node)) from error


def defaults(fn: types.FunctionType) -> dict[str, Any]:
    """Return the defaults of a function's parameters, by their names."""
    code, values = fn.__code__, fn.__defaults__ or ()
    names = code.co_varnames[:code.co_argcount]
    return dict(zip(names[len(names) - len(values):], values, strict=True)) | (fn.__kwdefaults__ or {})


def spelled(node: ast.expr) -> float | None:
    """Return the number of ``float("inf")`` and its like."""
    try:
        return float(node.value) if isinstance(node, ast.Constant) and isinstance(node.value, str) else None
    except ValueError:
        return None
