"""Boundary at which errors leave vispark: the trace that the user sees ends at the user's own call.

Frames of vispark, PySpark and Py4J between the call and the error say nothing to a user, and are many. They are kept as
text in :attr:`~vispark.VisparkError.full_trace`.
"""

from __future__ import annotations

import functools
import traceback
from collections.abc import Callable
from types import FunctionType
from typing import Any, TypeVar

from vispark.errors import VisparkError

_Class = TypeVar("_Class", bound=type)
_Function = TypeVar("_Function", bound=Callable[..., Any])


def brief(function: _Function) -> _Function:
    """Return the function, but with vispark's errors that leave it cut down to message and caller's frames.

    Those of an interrupt are cut, too: a notebook reads the sources of all frames before it takes the next cell.
    """
    @functools.wraps(function)
    def called(*arguments: Any, **named: Any) -> Any:
        try:
            return function(*arguments, **named)
        except VisparkError as error:
            shown: BaseException = cut(error)
        except KeyboardInterrupt as interrupt:
            interrupt.__context__ = None
            shown = interrupt.with_traceback(None)
        raise shown from None
    return called  # type: ignore[return-value]


def cut(error: VisparkError) -> VisparkError:
    """Take the trace, the causes and the context off an error, and keep them as text."""
    if not error.full_trace:
        error.full_trace = "".join(traceback.format_exception(error))
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)


def brief_errors(cls: _Class) -> _Class:
    """Do as :func:`brief` for each public method that a class itself defines, under the name that it has there."""
    for name, value in list(vars(cls).items()):
        if name.startswith("_"):
            continue
        if isinstance(value, FunctionType):
            setattr(cls, name, _named(brief(value), cls, name))
        elif isinstance(value, staticmethod | classmethod):
            setattr(cls, name, type(value)(brief(value.__func__)))
    return cls


def _named(method: _Function, cls: type, name: str) -> _Function:
    method.__name__, method.__qualname__ = name, f"{cls.__qualname__}.{name}"
    return method
