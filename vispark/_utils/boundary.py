"""Boundary at which errors leave vispark: the trace that the user sees ends at the user's own call.

Frames of vispark, PySpark and Py4J between the call and the error say nothing to a user, and are many. They are kept as
text in :attr:`~vispark.VisparkError.full_trace`.
"""

from __future__ import annotations

import functools
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FunctionType, TracebackType
from typing import Any, TypeVar

import py4j
import pyspark

from gpu_worker.protocol import system
from vispark.errors import VisparkError

_OURS = f"{Path(__file__).parents[1]}/", f"{Path(system.__file__).parents[1]}/"
_FOREIGN = tuple(f"{Path(package.__file__ or '').parent}/" for package in (pyspark, py4j))

#: What functions of the user's, and PySpark of their arguments, raise in the driver.
_OTHERS = ValueError, TypeError, ArithmeticError, LookupError, AttributeError, NameError, RuntimeError, AssertionError

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
            shortened: BaseException = cut(error)
        except KeyboardInterrupt as interrupt:
            interrupt.__context__ = None
            shortened = interrupt.with_traceback(None)
        except _OTHERS as error:
            raise _without_frames_between(error)    # noqa: B904 - it is the same error
        raise shortened from None
    return called  # type: ignore[return-value]


def _without_frames_between(error: Exception) -> Exception:
    """Take the frames of vispark, PySpark and Py4J off an error that the user's own function or PySpark raised.

    One that vispark raised keeps them: it may be a defect, for which they are wanted.
    """
    frames = list(_frames(error.__traceback__))
    if not frames or _is_in(frames[-1], _OURS):
        return error
    trace = None
    for frame in reversed([each for each in frames if not _is_in(each, (*_OURS, *_FOREIGN))]):
        trace = TracebackType(trace, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    return error.with_traceback(trace)


def _frames(trace: TracebackType | None) -> Iterator[TracebackType]:
    while trace is not None:
        yield trace
        trace = trace.tb_next


def _is_in(trace: TracebackType, packages: tuple[str, ...]) -> bool:
    return trace.tb_frame.f_code.co_filename.startswith(packages)


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
