"""Daemons, device processes and Python workers die at moments that nobody chose, under a loop of plans."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
from collections.abc import Callable, Iterator

import pytest

from gpu_worker.failpoints import VARIABLE
from tests import leaks
from tests.chaos.arena import KILLS, PLANS, Arena, expected_of

pytestmark = pytest.mark.chaos


@pytest.fixture(scope="module")
def expected(arena: Arena) -> dict[str, object]:
    """Each plan's answer without a kill."""
    found = expected_of(arena)
    arena.check_empty()
    return found


def python_workers(arena: Arena) -> list[int]:
    """The processes in which this arena's tasks of Python run, not the server that forks them."""
    mine = leaks.processes_with(VARIABLE, str(arena.failpoints))
    servers = {process.pid for process in mine if "pyspark.daemon" in process.command}
    return [process.pid for process in mine if process.parent in servers]


VICTIMS: dict[str, Callable[[Arena], list[int]]] = {
    "device process": Arena.device_processes,
    "daemon": Arena.daemons,
    "both": lambda arena: arena.daemons() + arena.device_processes(),
    "Python worker": python_workers,
}


@contextlib.contextmanager
def killer(arena: Arena, victim: str, seed: int) -> Iterator[list[int]]:
    """Kill at random moments in a thread of its own; the processes killed."""
    draw, stop, killed = random.Random(seed), threading.Event(), []

    def hunt() -> None:
        while not stop.wait(draw.uniform(0.2, 2.5)):
            for pid in VICTIMS[victim](arena):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    killed.append(pid)

    hunter = threading.Thread(target=hunt, name="hunter")
    hunter.start()
    try:
        yield killed
    finally:
        stop.set()
        hunter.join()


@pytest.mark.parametrize("victim", VICTIMS)
def test_a_loop_of_plans_gives_what_it_gives_in_peace(arena: Arena, expected: dict[str, object], victim: str):
    with killer(arena, victim, seed=KILLS) as killed:
        rounds = 0
        while len(killed) < KILLS or rounds < len(PLANS):
            name = list(PLANS)[rounds % len(PLANS)]
            assert arena.answer(name) == expected[name], f"{name} after {len(killed)} kills"
            rounds += 1
    for name in PLANS:
        assert arena.answer(name) == expected[name]
    arena.check_empty()
