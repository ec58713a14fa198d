"""How a long loop is run: in parts of about half a second each, with a line that says how far it is."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from gpu_worker.protocol.grids import Iterated

#: A part of a loop takes about so long: short beside a plan's deadline, long beside a request's way.
_SECONDS = 0.5
#: The first part; longer ones are multiples of it, so that few of the steps done several at once are left over.
FIRST_STEPS = 12
#: A loop that is done before shows nothing.
_QUIET_SECONDS = 2.0

#: Told the steps done and the last change.
Shown = Callable[[int, float], None]


@dataclass(frozen=True)
class Loop:
    """How a loop ended.

    Attributes
    ----------
    steps : int
        The steps done.
    change : float or None
        The largest change of a cell in the last step that was compared; None where none was.
    """

    steps: int
    change: float | None


def run_parts(steps: int, until: float, run: Callable[[int, int], tuple[Iterated, float]], show: Shown) -> Loop:
    """Run a loop in parts.

    Parameters
    ----------
    steps : int
        How many at most.
    until : float
        The change at which to end; below 0, none is.
    run : callable
        Runs so many steps after so many done ones; gives how it ended, and the seconds that workers took. What the way
        to them takes is none of these, or parts would become shorter and shorter where that is long.
    show : callable
        Told after each part how far the loop is.
    """
    done, change, count = 0, -1.0, FIRST_STEPS
    while True:
        count = min(count, steps - done)
        ended, seconds = run(count, done)
        done += ended.steps
        change = ended.change if ended.change >= 0 else change
        show(done, change)
        if done >= steps or ended.steps < count or 0 <= change <= until:
            return Loop(done, change if change >= 0 else None)
        count = next_steps(count, seconds)


def next_steps(count: int, seconds: float) -> int:
    """The steps of the next part, where so many took so long."""
    found = max(1, round(count * min(8.0, _SECONDS / max(seconds, 1e-6))))
    return found - found % FIRST_STEPS if found > FIRST_STEPS else found


@contextmanager
def progress(label: str, steps: int, wanted: bool | None) -> Iterator[Shown]:
    """A line on the terminal while a loop runs; by default where there is a terminal and the loop is a long one."""
    if wanted is False or (wanted is None and not sys.stderr.isatty()):
        yield lambda done, change: None
        return
    console = Console(stderr=True)
    line = Progress(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(),
                    TextColumn("{task.fields[change]}"), console=console, transient=console.is_terminal)
    task = line.add_task(label, total=steps, change="")
    started = time.monotonic()

    def show(done: int, change: float) -> None:
        if not line.live.is_started and (wanted or time.monotonic() - started > _QUIET_SECONDS):
            line.start()
        line.update(task, completed=done, change=f"change {change:.3g}" if change >= 0 else "")

    try:
        yield show
    finally:
        line.stop()
