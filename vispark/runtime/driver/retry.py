"""Retry loop for plans that lost a worker, and its log messages."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from vispark.errors import NodeSilent, PlanError, VisparkError
from vispark.options import Options
from vispark.runtime.driver.channel import LOST
from vispark.runtime.driver.release_queue import Released
from vispark.runtime.driver.worlds import Worlds
from vispark.translate.frontend import index_faults

log = logging.getLogger(__name__)

STOPPED = "the SparkContext was stopped, and what workers held for it is gone: make the RDD anew"

#: Within so many seconds a daemon that does not answer may be back, as one that is started again.
_SILENT_SECONDS = 2.0
#: The most characters of an error that a warning has; the error itself has all of it where it is raised.
_SHORT = 200


@dataclass
class Recomputed:
    """Count of what a session computed once more.

    Attributes
    ----------
    parts : int
        The parts of long chains: after a loss behind one, something has come of the attempts.
    steps : int
        The steps of loops that were lost.
    """

    parts: int = 0
    steps: int = 0


class Repeating(Protocol):
    """Interface of a session for the retry loop."""

    released: Released
    worlds: Worlds
    recomputed: Recomputed

    @property
    def options(self) -> Options:
        """The options of the session."""


def check_open(released: Released) -> None:
    """Raise an error if the context was stopped whose session releases there, or is about to be."""
    if released.is_closed:
        raise PlanError(STOPPED)


def until_done(session: Repeating, once: Callable[[], None]) -> None:
    """Call ``once``, and repeat it after losses up to the allowed number of attempts; progress in between resets the
    count.

    Raises
    ------
    PlanError
        If the context is stopped under it.
    VisparkError
        If it fails, or something is lost under it more often than that.
    """
    attempts, parts, retry_log = 0, session.recomputed.parts, RetryLog()
    # By what is said of each node whose daemon did not answer: another one that falls silent is another loss.
    silences: Counter[str] = Counter()
    while True:
        try:
            once()
            return retry_log.recovered()
        except LOST as error:
            check_open(session.released)
            session.worlds.renew()
            if session.recomputed.parts == parts:
                attempts += 1
            else:
                attempts = 1
                silences.clear()
            parts, most, is_silent = session.recomputed.parts, session.options.attempts, isinstance(error, NodeSilent)
            # What was lost before counts for nothing here: a daemon that died with it is started anew by its lease.
            silences[error.message] += is_silent
            if attempts > most or silences[error.message] > min(most, 1):
                raise
            retry_log.failed(error, attempts, most)
            if is_silent:
                time.sleep(_SILENT_SECONDS)


class RetryLog:
    """Log of losses under an action, and of the time until recovery; silent without losses."""

    def __init__(self) -> None:
        self._began = 0.0

    def failed(self, error: VisparkError, attempt: int, most: int) -> None:
        """Log a loss, after which the plan is tried again."""
        self._began = self._began or time.monotonic()
        log.warning("lost under a plan, which is repeated (%d of %d): %s", attempt, most, shortened(error))

    def recovered(self) -> None:
        """Log that the loss is recovered, if there was one."""
        if self._began:
            log.warning("what was lost is there again, after %.1f s", time.monotonic() - self._began)


def shortened(error: VisparkError) -> str:
    """Return an error as one short line of text.

    Examples
    --------
    >>> from vispark.errors import WorkerLost
    >>> shortened(WorkerLost("the peer closed the connection", detail="a long log"))
    'the peer closed the connection'
    """
    text = index_faults.without_number(error.message).partition("\n")[0]
    return text if len(text) <= _SHORT else text[:_SHORT].rpartition(" ")[0] + " ..."
