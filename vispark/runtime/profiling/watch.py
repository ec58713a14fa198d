"""Watchers of applications: totals of plans by the user's line, kept where somebody watches."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpu_worker.protocol.messages import Times

#: Lines of a program that are told apart; the others are one.
MOST_LINES = 200
#: Names of operations that are kept for a line.
_MOST_OPERATIONS = 20


@dataclass
class _Line:
    """Totals of the plans of one line."""

    #: Of its plans, each once, in the order in which they came first.
    operations: dict[str, None] = field(default_factory=dict)
    plans: int = 0
    seconds: float = 0.0
    worker: float = 0.0
    compile: float = 0.0
    nbytes: int = 0
    ended: float = 0.0


@dataclass
class FollowedPlans:
    """Plans of one session that are followed: totals of its plans by line, and the address that Spark's pages link to.

    Attributes
    ----------
    link : str
        Address, below that of Spark's pages, to which the descriptions of jobs lead; empty where there is none.
    closed : callable
        Called when the session closes.

    Examples
    --------
    >>> watch = FollowedPlans()
    >>> watch.answered(["vmap"], "loop.py:7: total = rows.sum()", Times(0.25, 0.125), 0.5, 8)
    >>> watch.lines()[0]["line"], watch.lines()[0]["plans"]
    ('loop.py:7: total = rows.sum()', 1)
    """

    link: str = ""
    closed: Callable[[], None] = lambda: None
    _lines: dict[str, _Line] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def answered(self, operations: Sequence[str], line: str, times: Times, seconds: float, nbytes: int) -> None:
        """Add a worker's answer; ``seconds`` is how long the driver waited for it, 0 where the plan was sent ahead."""
        with self._lock:
            name = line if line in self._lines or len(self._lines) < MOST_LINES else "other lines"
            total = self._lines.setdefault(name, _Line())
            if len(total.operations) < _MOST_OPERATIONS:
                total.operations.update(dict.fromkeys(operations))
            total.plans += 1
            total.seconds += seconds
            total.worker += times.total
            total.compile += times.compile
            total.nbytes += nbytes
            total.ended = time.time()

    def lines(self) -> list[dict[str, Any]]:
        """Return the lines of the driver, or of the workers, with their totals, the line of the most seconds first."""
        with self._lock:
            rows = [{"line": line, "operations": ", ".join(each.operations)[:200], "plans": each.plans,
                     "seconds": each.seconds, "worker": each.worker, "compile": each.compile, "bytes": each.nbytes,
                     "ended": each.ended}
                    for line, each in self._lines.items()]
        return sorted(rows, key=lambda row: -max(row["seconds"], row["worker"]))


_watches: dict[str, FollowedPlans] = {}


def begin(session: str, watch: FollowedPlans) -> None:
    """Have a session be watched; one at a time."""
    _watches[session] = watch


def of(session: str) -> FollowedPlans | None:
    """Return the watch of a session, where it is watched."""
    return _watches.get(session)


def end(session: str) -> None:
    """End the watch of a session, as that closes or nobody watches any more."""
    watch = _watches.pop(session, None)
    if watch is not None:
        watch.closed()
