"""Lines of the user's program."""

from __future__ import annotations

import linecache
import sys
import sysconfig
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from pathlib import Path
from types import FrameType

import pyspark
from pyspark import SparkContext
from pyspark.traceback_utils import SCCallSiteSync

from gpu_worker.protocol import system

_PACKAGES = tuple(f"{Path(path).resolve()}/" for path in (
    Path(__file__).parents[1], Path(system.__file__).parents[1], Path(pyspark.__file__).parent,
    sysconfig.get_path("stdlib"), sysconfig.get_path("purelib")))


_thread = threading.local()
_DESCRIPTION = "spark.job.description"


def user_call(frame: FrameType | None = None) -> str:
    """Return the innermost call of the user's, as Spark shows calls: ``collect at /srv/loop.py:7``.

    Where a thread runs for another one, it is the call that :func:`called_from` names; empty where there is none.

    Parameters
    ----------
    frame : frame, optional
        Where to begin, as of :func:`user_line`.
    """
    frame = frame or sys._getframe(1)
    called = frame
    while frame is not None and frame.f_code.co_filename.startswith((*_PACKAGES, "<frozen")):
        called, frame = frame, frame.f_back
    if frame is None:
        return getattr(_thread, "call", "")
    return f"{_name(called)} at {frame.f_code.co_filename}:{frame.f_lineno}"


def _name(frame: FrameType) -> str:
    """Return the name of a frame's function; of a decorator's ``called`` the name of the decorated function."""
    name = frame.f_code.co_name
    around = (frame.f_locals.get(each) for each in ("function", "method", "reader")) if name == "called" else ()
    return next((each.__name__ for each in around if each is not None), name)


@contextmanager
def called_from(call: str) -> Iterator[None]:
    """Have the calling thread, which runs for another one, act for a call of the user's."""
    _thread.call = call
    try:
        yield
    finally:
        del _thread.call


@contextmanager
def call_site(context: SparkContext, call: str, link: str = "") -> Iterator[None]:
    """Have Spark's pages and event log name a call for the jobs of a block, unless they name another one already.

    PySpark itself would name the line of vispark that runs the job.

    Parameters
    ----------
    context : SparkContext
        Whose jobs.
    call : str
        From :func:`user_call`; where it is empty, PySpark does what it does.
    link : str, optional
        Address, below that of Spark's pages, that the jobs' descriptions link to; Spark takes no others.
    """
    java = context._jsc
    if not call or java is None or java.getLocalProperty("callSite.short"):
        yield
        return
    SCCallSiteSync._spark_stack_depth += 1
    java.setCallSite(call)
    described = link and not java.getLocalProperty(_DESCRIPTION)
    if described:
        java.setLocalProperty(_DESCRIPTION, f'<a href="{escape(link)}">vispark</a> {escape(call)}')
    try:
        yield
    finally:
        if described:
            java.setLocalProperty(_DESCRIPTION, None)
        SCCallSiteSync._spark_stack_depth -= 1
        java.setCallSite(None)


def user_line(frame: FrameType | None = None) -> str:
    """Return file, line and text of the innermost frame that is the user's; empty where there is none.

    Parameters
    ----------
    frame : frame, optional
        Where to begin; the caller's, if it is left out. Frames of vispark, of the standard library and of what is
        installed are passed over.
    """
    frame = frame or sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith((*_PACKAGES, "<frozen")):
        frame = frame.f_back
    if frame is None:
        return ""
    file, line = frame.f_code.co_filename, frame.f_lineno
    text = linecache.getline(file, line).strip()
    return f"{file}:{line}" + (f": {text}" if text else "")
