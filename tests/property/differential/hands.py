"""Processes that work on units; one that a unit ends, or that does not end, is replaced, and its unit is halved."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from typing import Any

from tests.property.differential.dealing import Unit

#: Units of one process, which keeps what it has compiled.
_TASKS = 50
#: Seconds in which a unit ends, also on a machine that has much to do.
_SECONDS = 1200.0
_FORK = multiprocessing.get_context("fork")


@dataclass(frozen=True)
class UnitTask:
    """Functions ``low`` to ``high`` of a unit."""

    unit: Unit
    device: str
    low: int
    high: int


@dataclass(frozen=True)
class FinishedTask:
    """A task and what came of it."""

    task: UnitTask
    result: Any


@dataclass(frozen=True)
class Lost:
    """A function whose process ended, or did not end."""

    task: UnitTask
    words: str


class _Hand:
    """A process that does one task after the other."""

    def __init__(self, work: Callable[[UnitTask], Any]):
        self.pipe, theirs = _FORK.Pipe()
        self.process = _FORK.Process(target=_loop, args=(work, theirs), daemon=True)
        self.process.start()
        theirs.close()
        self.done = 0

    def start(self, task: UnitTask) -> None:
        """Give it a task."""
        self.task, self.since = task, time.monotonic()
        self.pipe.send(task)

    def dismiss(self) -> None:
        """Tell the process that nothing more is to be done, and wait for its end."""
        self.pipe.send(None)
        self.process.join()
        self.pipe.close()

    def end(self) -> str:
        """End it if it is late; how it ended."""
        late = time.monotonic() - self.since > _SECONDS
        if late:
            self.process.kill()
        self.process.join()
        self.pipe.close()
        return f"did not end in {_SECONDS:.0f} s" if late else f"ended with {self.process.exitcode}"


def _loop(work: Callable[[UnitTask], Any], pipe: Connection) -> None:
    # What there is stays, and what a unit makes is mostly freed without a search.
    gc.freeze()
    gc.set_threshold(50_000)
    with contextlib.suppress(EOFError):
        while task := pipe.recv():
            pipe.send(work(task))


def by_hands(work: Callable[[UnitTask], Any], tasks: Iterator[UnitTask], jobs: int) -> Iterator[FinishedTask | Lost]:
    """Work on tasks in so many processes; what is done, in the order in which it ends."""
    halves: list[UnitTask] = []
    hands: dict[Connection, _Hand] = {}
    idle: list[_Hand] = []
    while True:
        while len(hands) < jobs and (task := halves.pop() if halves else next(tasks, None)):
            hand = idle.pop() if idle else _Hand(work)
            hand.start(task)
            hands[hand.pipe] = hand
        if not hands:
            break
        for pipe in wait(list(hands), timeout=1.0):
            hand = hands.pop(pipe)
            try:
                result = pipe.recv()
            except EOFError:
                yield from _halved(hand, halves)
                continue
            hand.done += 1
            if hand.done < _TASKS:
                idle.append(hand)
            else:
                hand.dismiss()
            yield FinishedTask(hand.task, result)
        for hand in [hand for hand in hands.values() if time.monotonic() - hand.since > _SECONDS]:
            del hands[hand.pipe]
            yield from _halved(hand, halves)
    for hand in idle:
        hand.dismiss()


def _halved(hand: _Hand, halves: list[UnitTask]) -> Iterator[Lost]:
    words, task = hand.end(), hand.task
    middle = (task.low + task.high) // 2
    if middle == task.low:
        yield Lost(task, words)
    else:
        halves += [replace(task, low=middle), replace(task, high=middle)]
