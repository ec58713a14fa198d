"""Lines of the user's program."""

from __future__ import annotations

import linecache
import sys
import sysconfig
from pathlib import Path
from types import FrameType

from gpu_worker.protocol import system

_PACKAGES = tuple(f"{Path(path).resolve()}/" for path in (
    Path(__file__).parents[1], Path(system.__file__).parents[1], sysconfig.get_path("stdlib"),
    sysconfig.get_path("purelib")))


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
