"""Daemons, device processes and Python workers die at moments that nobody chose, under a loop of plans."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
from collections.abc import Callable

import pytest

from gpu_worker.system.failpoints import VARIABLE
from tests import leaks
from tests.chaos.arena import KILLS, PLANS, Arena, expected_of

pytestmark = pytest.mark.chaos


@pytest.fixture(scope="module")
def expected(arena: Arena) -> dict[str, object]:
    """Return each plan's answer without a kill."""
    answers = expected_of(arena)
    arena.check_empty()
    return answers


def python_workers(arena: Arena) -> list[int]:
    """Return the processes in which this arena's tasks of Python run, not the server that forks them."""
    processes = leaks.processes_with(VARIABLE, str(arena.failpoints))
    servers = {process.pid for process in processes if "daemon pyspark.worker" in process.command}
    return [process.pid for process in processes if process.parent in servers]


VICTIMS: dict[str, Callable[[Arena], list[int]]] = {
    "device process": Arena.device_processes,
    "daemon": Arena.daemons,
    "both": lambda arena: arena.daemons() + arena.device_processes(),
    "Python worker": python_workers,
}


def kill_soon(arena: Arena, victim: str, delay: float, killed: list[int]) -> threading.Thread:
    """Kill in a while, from a thread of its own."""

    def strike() -> None:
        for pid in VICTIMS[victim](arena):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)

    timer = threading.Timer(delay, strike)
    timer.start()
    return timer


@pytest.mark.parametrize("victim", VICTIMS)
def test_a_loop_of_plans_gives_what_it_gives_in_peace(arena: Arena, expected: dict[str, object], victim: str):
    draw, killed = random.Random(victim), []
    names = [draw.choice(list(PLANS)) for _ in range(max(KILLS, 2))] + list(PLANS)
    for number, name in enumerate(names):
        timer = kill_soon(arena, victim, draw.uniform(0.0, 0.6), killed)
        try:
            assert arena.answer(name) == expected[name], f"{name}, plan {number}, {len(killed)} killed"
        finally:
            timer.join()
    assert len(killed) >= len(names) / 2
    for name in PLANS:
        assert arena.answer(name) == expected[name]
    arena.check_empty()
