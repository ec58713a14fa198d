"""Log files of the worker."""

from __future__ import annotations

import io
import logging
import logging.handlers
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from gpu_worker.protocol.errors import OptionError

MAX_BYTES = 4 << 20
MOST_LINES, MINUTE = 100, 60.0
LEVELS = ("debug", "info", "warning", "error")
_FORMAT = "%(asctime)s %(levelname)s %(process)d {who}%(message)s"


class RateLimit(logging.Filter):
    """Filter of a handler: at most :data:`MOST_LINES` messages a minute of one line of code, then how many there were.

    Whoever may connect, unauthenticated peers over TCP too, may make a worker say that they are refused, and would fill
    its disk. Messages for those who debug pass.

    Parameters
    ----------
    clock : callable
        Gives the time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        super().__init__()
        self._clock = clock
        self._lock = threading.Lock()
        #: By place in the code: when its minute began, and how many messages it had.
        self._said: dict[tuple[str, int], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a message is logged; the first after a minute says how many were not."""
        if record.levelno <= logging.DEBUG:
            return True
        place, now = (record.pathname, record.lineno), self._clock()
        with self._lock:
            began, count = self._said.get(place, (now, 0))
            if now - began < MINUTE:
                self._said[place] = began, count + 1
                return count < MOST_LINES
            self._said[place] = now, 1
        if count > MOST_LINES:
            record.msg = f"{record.msg} (and {count - MOST_LINES} more before, which are not logged)"
        return True


class _PrivateLog(logging.handlers.RotatingFileHandler):
    """Log files that only their owner reads, whatever the process's mask for new files is."""

    def _open(self) -> io.TextIOWrapper:
        return open(_opened(self.baseFilename), "a")


def to_file(path: Path, level: str) -> None:
    """Log to a file that is replaced when it has grown large; one older file is kept."""
    _install(_PrivateLog(path, maxBytes=MAX_BYTES, backupCount=1), level, "")


def to_stderr(level: str, who: str = "") -> None:
    """Log to the standard error output; ``who`` leads every line."""
    _install(logging.StreamHandler(), level, who and who + " ")


def _install(handler: logging.Handler, level: str, who: str) -> None:
    handler.addFilter(RateLimit())
    handler.setFormatter(logging.Formatter(_FORMAT.format(who=who.replace("%", "%%"))))
    logger = logging.getLogger("gpu_worker")
    logger.addHandler(handler)
    logger.setLevel(checked_level(level).upper())


def checked_level(level: str) -> str:
    """Return ``level``, if it is one.

    Raises
    ------
    OptionError
        If it is not.
    """
    if level not in LEVELS:
        raise OptionError(f"the log level is one of {', '.join(LEVELS)}, not {level!r}")
    return level


def open_for_output(path: Path) -> int:
    """Return a descriptor for what a process prints, at the end of ``path``; a large file is set aside first."""
    if path.exists() and path.stat().st_size > MAX_BYTES:
        path.replace(path.with_name(path.name + ".1"))
    return _opened(path)


def _opened(path: str | Path) -> int:
    """Return a descriptor for the end of a log that only its owner reads, also where it was there and open to others.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    os.fchmod(descriptor, 0o600)
    return descriptor


def size(path: Path) -> int:
    """Return the bytes of a log; 0 where there is none."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def tail(path: Path, lines: int, since: int = 0) -> str:
    """Return the last lines of a log, of what it got since it had ``since`` bytes; empty where there is none."""
    try:
        with path.open(errors="replace") as file:
            # A log that is shorter now was set aside, and begun anew.
            file.seek(since if since <= size(path) else 0)
            return "".join(deque(file, lines))
    except OSError:     # whoever asks is about to say what else went wrong
        return ""
