"""What is kept for later use has a bound, and what was used last stays."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from gpu_worker.execution import plan_cache as worker_plans
from gpu_worker.execution.replay import Recordings
from vispark.runtime.driver import plan_cache as driver_plans


def _recording(version: int, used: float) -> SimpleNamespace:
    return SimpleNamespace(source=None, version=version, rooms=(), nbytes=1 << 30, used=used, lock=threading.Lock(),
                           is_complete=True, joint=None)


def test_a_vrdd_that_stays_keeps_no_recordings_that_are_gone(monkeypatch: pytest.MonkeyPatch):
    closed: list[object] = []
    plans = worker_plans.Plans(closed.append)
    for number in range(20):
        prepared = SimpleNamespace(recordings=Recordings(keeps=False))
        plans._known[bytes([number])] = prepared
        plans.keep(prepared, 7, _recording(version=1, used=0.0))
    assert len(plans._reading[7]) == 20
    plans.rest(0.0)
    assert len(closed) == 20
    assert not plans._reading


def test_plans_that_are_used_stay_while_others_come(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(driver_plans, "_PLANS", 4)
    made: list[str] = []

    def make(self: driver_plans.Plans, chain, start, shape, *_: object) -> driver_plans.Ready:
        made.append(shape)
        return driver_plans.Ready((), None, "", ())

    monkeypatch.setattr(driver_plans.Plans, "_made", make)
    plans = driver_plans.Plans()

    def ready(shape: str) -> None:
        plans.ready((), None, (), shape, "fetch", range(1), 0)

    for number in range(20):
        ready("hot")
        ready(f"cold {number}")
    assert made.count("hot") == 1
    assert len(plans._plans) == 4
