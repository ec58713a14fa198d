"""Clocks by which probes and the passes of ports are timed: the wall's, or that of processors on a busy machine."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

#: Environment variable: "processor" has all runs of a command timed by processors.
CLOCK = "VISPARK_MIGRATE_CLOCK"
_DIRECTORY = "VISPARK_RUNTIME_DIR"


def pass_clock() -> Callable[[], float]:
    """Return the clock, in seconds, that the environment asks for.

    Examples
    --------
    >>> clock = pass_clock()
    >>> clock() <= clock()
    True
    """
    return processor_clock(os.environ.get(_DIRECTORY, "")) if os.environ.get(CLOCK) == "processor" \
        else time.perf_counter


def processor_clock(runtime: str) -> Callable[[], float]:
    """Return a clock of the processor seconds of this process and of a runtime directory's workers.

    The clock's own seconds are left out, as there are many processes to look at.

    Parameters
    ----------
    runtime : str
        The directory; empty for workers that are given none.
    """
    spent = 0.0

    def clock() -> float:
        nonlocal spent
        own = time.process_time()
        total = own - spent + sum(map(_seconds_of, _workers(runtime)))
        spent += time.process_time() - own
        return total
    return clock


def _workers(runtime: str) -> Iterator[Path]:
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if b"gpu_worker" in (folder / "cmdline").read_bytes():
                given = [each for each in (folder / "environ").read_bytes().split(b"\0")
                         if each.startswith(f"{_DIRECTORY}=".encode())]
                if given == ([f"{_DIRECTORY}={runtime}".encode()] if runtime else []):
                    yield folder


def _seconds_of(folder: Path) -> float:
    total = 0
    for thread in (folder / "task").glob("*/schedstat"):
        with suppress(OSError):
            total += int(thread.read_text().split()[0])
    return total / 1e9
