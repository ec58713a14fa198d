"""Bounds of what is kept for later use; what was used last stays."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import numpy as np
import pytest

from gpu_worker.execution.plans import plan_cache as worker_plans
from gpu_worker.execution.replay.recordings import Recordings
from vispark._utils.bounded import BoundedCache, cached, nbytes_of
from vispark._utils.closures import capture
from vispark.runtime.driver import plan_cache as driver_plans


def _recording(version: int, used: float) -> SimpleNamespace:
    return SimpleNamespace(source=None, version=version, buffer_sets=(), nbytes=1 << 30, used=used,
                           lock=threading.Lock(),
                           is_complete=True, exchange=None)


def test_a_vrdd_that_stays_keeps_no_recordings_that_are_gone(monkeypatch: pytest.MonkeyPatch):
    closed: list[object] = []
    plans = worker_plans.DecodedPlans(closed.append)
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
    shapes: list[str] = []

    def make(self: driver_plans.PlanCache, chain, start, shape, *_: object) -> driver_plans.DistributedExecutable:
        shapes.append(shape)
        return driver_plans.DistributedExecutable((), None, "", ())

    monkeypatch.setattr(driver_plans.PlanCache, "_lower", make)
    plans = driver_plans.PlanCache()

    def ready(shape: str) -> None:
        plans.ready((), None, (), shape, "fetch", range(1), 0)

    for number in range(20):
        ready("hot")
        ready(f"cold {number}")
    assert shapes.count("hot") == 1
    assert len(plans._plans) == 4


def test_a_cache_is_bounded_by_what_its_keys_and_values_refer_to():
    cache: BoundedCache[bytes] = BoundedCache(entries=100, nbytes=1000)
    for number in range(50):
        cache.put(number, bytes(300))
    assert [number for number in range(50) if cache.get(number)] == [47, 48, 49]
    assert cache.nbytes == 900
    assert cache.get(47)
    cache.put("new", bytes(300))
    assert cache.get(47)
    assert cache.get(48) is None
    cache.put("too large", bytes(2000))
    assert cache.get("too large") is None
    assert len(cache) == 3


def test_functions_count_with_the_arrays_that_they_captured():
    array = np.zeros(1000)
    captured = capture(lambda block: 1 + len(array))
    assert nbytes_of(captured) >= 2 * array.nbytes      # a copy, and the bytes by which it is compared


def test_calls_with_other_large_arguments_do_not_add_up():
    @cached(entries=1000, nbytes=10_000)
    def length(data: bytes) -> int:
        return len(data)

    for number in range(100):
        assert length(bytes([number]) * 1000) == 1000
    assert length.cache.nbytes <= 10_000
    assert len(length.cache) <= 10
