"""Pacing of long loops: parts of about half a second each."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass

from gpu_worker.protocol.grids import Iterated

log = logging.getLogger(__name__)

#: A part of a loop takes about so long: short beside a plan's deadline, long beside a request's way.
_SECONDS = 0.5
#: Parts that take between the one and the other are as long as the one before, so that its plan comes again.
_LEAST_SECONDS, _MOST_SECONDS = 0.35, 0.75
#: A part has at most so many times the steps of the one before.
_GROWTH = 8
#: The first part; longer ones are multiples of it, so that few of the steps done several at once are left over.
FIRST_STEPS = 12

#: Told the steps done and the last change.
Shown = Callable[[int, float], None]


@dataclass(frozen=True)
class EndedLoop:
    """Outcome of a loop: its steps, and the largest change of a cell.

    Attributes
    ----------
    steps : int
        The steps done.
    change : float or None
        The largest change of a cell in the last step that was compared, NaN where that of a cell was; None where no
        step was.
    """

    steps: int
    change: float | None


@dataclass
class ChunkController:
    """Controller of the steps of a loop's next part, from the measured time of earlier steps.

    Attributes
    ----------
    steps : int
        Of the last part that was measured; 0 before there was one.
    seconds : float
        What a worker took for these.
    """

    steps: int = 0
    seconds: float = 0.0
    _count: int = FIRST_STEPS

    def learn(self, steps: int, seconds: float) -> None:
        """Update the estimate by the seconds that some steps took."""
        if steps:
            self.steps, self.seconds = steps, max(seconds, 1e-6)

    def part(self, left: int, done: int = 0, period: int = 1) -> int:
        """Return the number of steps of the next part, of ``left`` ones, rounded down to whole periods of the loop's
        tests if possible.

        Parameters as for :func:`run_parts`.
        """
        count = self._wanted(left)
        over = (done + count) % period
        return count - over if over < count < left else count

    def _wanted(self, left: int) -> int:
        if not self.steps:
            return min(FIRST_STEPS, left)
        most, seconds = _GROWTH * self.steps, self.seconds / self.steps
        # The fewer steps, the more of their time is what goes before them: so many more do not take longer than that.
        if left <= max(most, FIRST_STEPS) and left * seconds <= _MOST_SECONDS:
            return left
        if not _LEAST_SECONDS <= self._count * seconds <= _MOST_SECONDS:
            self._count = _rounded(min(most, _SECONDS / seconds))
        return min(self._count, left)


def run_parts(steps: int, until: float, run: Callable[[int, int], Iterated], show: Shown, pace: ChunkController,
              label: str = "iterate", period: int = 1) -> EndedLoop:
    """Run a loop in parts.

    Parameters
    ----------
    steps : int
        How many at most.
    until : float
        The change at which to end; below 0, none is.
    run : callable
        Runs so many steps after so many done ones; gives how it ended.
    show : callable
        Told after each part how far the loop is.
    pace : ChunkController
        Told by ``run`` what workers took for a part. What the way to them takes is none of it, or parts would become
        shorter and shorter where that is long.
    label : str
        What a warning calls the loop.
    period : int
        After how many steps the same is asked again: a part that ends there is the same plan as the one before.
    """
    done, change, warned = 0, -1.0, False
    while True:
        count = pace.part(steps - done, done, period)
        ended = run(count, done)
        done += ended.steps
        change = change if ended.change < 0 else ended.change
        if math.isnan(change) and not warned:
            warned = True
            log.warning("%s: by step %d the change of a cell is NaN, so that until=%g does not end the loop; "
                        "check=1 names the first cell that is not finite", label, done, until)
        show(done, change)
        if done >= steps or ended.steps < count or 0 <= change <= until:
            return EndedLoop(done, None if change < 0 else change)


def _rounded(steps: float) -> int:
    whole = max(1, round(steps))
    return whole - whole % FIRST_STEPS if whole > FIRST_STEPS else whole
