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
#: Processor seconds of this process that its clocks took themselves.
_own_seconds = 0.0


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

    The seconds of the clocks themselves are left out, as there are many processes to look at.

    Parameters
    ----------
    runtime : str
        The directory; empty for workers that are given none.
    """
    def clock() -> float:
        global _own_seconds
        began = time.process_time()
        total = began - _own_seconds + sum(map(_seconds_of, _workers(runtime)))
        _own_seconds += time.process_time() - began
        return total
    return clock


def driver_seconds() -> float:
    """Return the seconds of this process by the clock that the environment asks for: the wall's, by which its waits
    for the JVM count, or those of processors, without those of its clocks.
    """
    return time.process_time() - _own_seconds if os.environ.get(CLOCK) == "processor" else time.perf_counter()


def _workers(runtime: str) -> Iterator[Path]:
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if b"gpu_worker" in (folder / "cmdline").read_bytes():
                directories = [each for each in (folder / "environ").read_bytes().split(b"\0")
                               if each.startswith(f"{_DIRECTORY}=".encode())]
                if directories == ([f"{_DIRECTORY}={runtime}".encode()] if runtime else []):
                    yield folder


def _seconds_of(folder: Path) -> float:
    total = 0
    for thread in (folder / "task").glob("*/schedstat"):
        with suppress(OSError):
            total += int(thread.read_text().split()[0])
    return total / 1e9
