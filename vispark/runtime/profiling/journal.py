"""Journal of an application's plans: a line of JSON for each answer, for who asks later what ran, from where, how long.

Spark's event log says little of a program whose passes run in the workers: its jobs are the loads.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from gpu_worker.protocol.messages import Times
from vispark.errors import OptionError

log = logging.getLogger(__name__)


_journals: dict[str, Journal] = {}


def begin(path: str) -> None:
    """Open the journal of a session; there is none where the path is empty.

    Raises
    ------
    OptionError
        If it cannot be opened.
    """
    if path:
        _journals[path] = Journal(path)


def end(path: str) -> None:
    """Close the journal of a session, if it has one."""
    if path in _journals:
        _journals.pop(path).close()


def answered(path: str, key: bytes, operations: Sequence[str], line: str, times: Times, began: float, partitions: int,
             nbytes: int) -> None:
    """Add an answer to the journal of a session that has one; see :meth:`Journal.answered`."""
    if path in _journals:
        _journals[path].answered(key, operations, line, times, began, partitions, nbytes)


class Journal:
    """File to which a line is added for each answer of a worker; only its owner reads it.

    Where it cannot be written any more, it ends, and the log says so: plans go on.

    Parameters
    ----------
    path : str
        A file, which may be there; its directory must be.

    Raises
    ------
    OptionError
        If it cannot be opened.
    """

    def __init__(self, path: str):
        self.path = Path(path).expanduser()
        self._lock = threading.Lock()
        try:
            descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise OptionError(f"spark.vispark.journal={path}: {error.strerror}; it is a file in a directory that is "
                              "there and may be written to") from error
        self._file: TextIO | None = os.fdopen(descriptor, "a", buffering=1, encoding="utf-8")

    def answered(self, key: bytes, operations: Sequence[str], line: str, times: Times, began: float, partitions: int,
                 nbytes: int) -> None:
        """Add an answer of a worker.

        Parameters
        ----------
        key : bytes
            The plan's digest.
        operations : sequence of str
            What the plan does, in order.
        line : str
            The user's line that waits, or that sent the plan ahead: file, number and text.
        times : Times
            What the worker says it spent.
        began : float
            Since when the driver has waited, by ``time.monotonic``; now, where the plan was sent ahead.
        partitions : int
            How many the answer is of.
        nbytes : int
            How many bytes it brings.
        """
        seconds = time.monotonic() - began
        entry = {"ended": round(time.time(), 6), "plan": key.hex(), "operations": list(operations), "line": line,
                 "seconds": round(seconds, 9), "worker": round(times.total, 9), "compile": round(times.compile, 9),
                 "partitions": partitions, "bytes": nbytes}
        with self._lock:
            if self._file is None:
                return
            try:
                self._file.write(json.dumps(entry) + "\n")
            except OSError as error:
                log.warning("the journal %s ends here: %s", self.path, error)
                self._end()

    def close(self) -> None:
        """Close the file; what is answered afterwards is not noted."""
        with self._lock:
            self._end()

    def _end(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            try:
                file.close()
            except OSError as error:
                log.warning("the end of the journal %s is not written: %s", self.path, error)
