"""Plans run ahead of the device: in order, bounded, seen by nobody before they are complete."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from gpu_worker.execution.scheduling.in_flight import AHEAD, Submission
from gpu_worker.protocol.errors import KernelFault
from gpu_worker.protocol.messages import FieldFold, FoldStep, Plan, Release, Run, ValuesStep
from gpu_worker.system.crash_record import read
from tests.unit.late import late_bench
from tests.unit.plans import Bench
from tests.unit.test_recordings_kept import (
    SOURCE,
    equal,
    held,
    kept,
    moved,
    put,
    test_a_fold_of_each_state,
    test_a_loop_with_two_states,
    test_plans_that_take_turns,
    test_what_another_plan_took_of_a_state_stays_as_it_is,
    test_whatever_is_held_released_and_asked_for,
)

__all__ = [
    "test_a_fold_of_each_state",
    "test_a_loop_with_two_states",
    "test_plans_that_take_turns",
    "test_what_another_plan_took_of_a_state_stays_as_it_is",
    "test_whatever_is_held_released_and_asked_for",
]

ONE = np.float32(1)


class Ahead(Bench):
    """A worker whose plans are not waited for, unless they must be."""

    def __init__(self, worker: Bench):
        super().__init__(worker.process)
        self._numbers, self._contents = worker._numbers, worker._contents
        self.flights: list[Submission] = []

    def begin(self, plan: Plan, vrdds: tuple[int, ...], k: np.float32 = ONE, released: tuple[int, ...] = ()) -> Run:
        base = self.request(plan, vrdds, [k])
        request = Run(base.number, 1, base.seconds, base.key, base.plan, base.vrdds, base.values,
                      released=released)
        begun = self.process.begin(request, [])
        if isinstance(begun, Submission):
            self.flights.append(begun)
        return request

    def under_way(self) -> list[Submission]:
        return [flight for flight in self.flights if not flight.done]


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ahead]:
    with late_bench(tmp_path, monkeypatch) as worker:
        yield Ahead(worker)


def warm(host: Ahead, plan: Plan, last: int = 7) -> None:
    """Run a loop from 1 until it is recorded."""
    for vrdd in range(1, last):
        host.begin(plan, (vrdd, vrdd + 1), released=(vrdd - 1,))
    host.process._line.drain()
    host.flights.clear()


def test_plans_are_begun_behind_each_other_and_bounded(host: Ahead):
    state, plan = put(host, 1), kept(host, "moved", "u")
    for _ in range(1, 7):
        state = moved(state, ONE)
    warm(host, plan)
    device = host.process._pool.devices[0]
    used = device.memory().used
    for vrdd in range(7, 47):
        k = np.float32(vrdd % 5 / 8)
        host.begin(plan, (vrdd, vrdd + 1), k, (vrdd - 1,))
        state = moved(state, k)
        assert 0 < len(host.under_way()) <= AHEAD and device.memory().used == used
    assert len(host.flights) == 40 and len(host.under_way()) == AHEAD
    # Whoever looks waits for it, and for all before it.
    assert equal(held(host, 47), state) and not host.under_way()


def test_a_fold_waits_for_what_it_folds_on_the_device(host: Ahead):
    state, plan = put(host, 1), kept(host, "moved", "u")
    fold = host.plan(1, (ValuesStep(), FoldStep((FieldFold("", "add"),), "rows")), [], SOURCE)
    for vrdd in range(1, 20):
        host.begin(plan, (vrdd, vrdd + 1), released=(vrdd - 1,))
        state = moved(state, ONE)
        assert np.isclose(host.folded(fold, (vrdd + 1,))[0], sum(u.sum() for u, _ in state), rtol=1e-5)


def test_what_is_released_under_a_plan_is_there_until_it_was_read(host: Ahead):
    # The input of a plan that is the same at each pass is released, and a loop keeps no memory.
    (first, plan), numbers = (put(host, 1), kept(host, "moved", "u")), iter(range(2, 100))
    last = [next(numbers) for _ in range(5)]
    for vrdd in last:
        host.begin(plan, (1, vrdd), released=(vrdd - 2,) if vrdd > 3 else ())
    final = next(numbers)
    host.begin(plan, (1, final), released=(last[-2],))
    assert host.under_way()
    host.process.handle(Release(1, (1,)), [])
    assert equal(held(host, final), moved(first, ONE))


def test_a_deadline_counts_from_when_the_plan_before_was_complete(host: Ahead):
    plan, recorder = (put(host, 1), kept(host, "moved", "u"))[1], host.process._recorder
    warm(host, plan)
    requests = [host.begin(plan, (vrdd, vrdd + 1), released=(vrdd - 1,)) for vrdd in range(7, 11)]
    for request, flight in zip(requests, host.flights, strict=True):
        assert len(recorder._deadlines) == 1 and flight.noted in recorder._deadlines and flight.number == request.number
        for _, stream, mark in flight.marks:
            while stream.passed < mark:
                stream.upto(stream.done + 1)
        host.process._line.reap()
    assert not recorder._deadlines


def test_a_complete_plan_that_nobody_looked_at_is_not_late(host: Ahead):
    plan = (put(host, 1), kept(host, "moved", "u"))[1]
    warm(host, plan)
    host.begin(plan, (7, 8), released=(6,))
    flight, = host.under_way()
    late = host.process._recorder._deadlines[flight.noted][1]
    assert late() == flight.place and flight.place.operation.startswith("moved")
    for _, stream, _ in flight.marks:
        stream.upto(stream.enqueued)
    assert late() is None and flight.done


class ProcessEnded(BaseException):
    """The process would have ended."""


def test_a_fault_is_blamed_on_the_plan_whose_kernel_failed(host: Ahead, tmp_path: Path,
                                                           monkeypatch: pytest.MonkeyPatch):
    def end(status: int) -> None:
        raise ProcessEnded

    monkeypatch.setattr("gpu_worker.server.handlers.os._exit", end)
    put(host, 1)
    plans = kept(host, "turned", "v"), kept(host, "moved", "u")
    for vrdd in range(1, 17):
        host.begin(plans[vrdd % 2], (vrdd, vrdd + 1), released=(vrdd - 1,))
    host.process._line.drain()
    host.flights.clear()
    known = next(each.recordings._known for each in host.process._plans._known.values() if each.plan == plans[0])
    for recording in known.values():
        for _, call in recording.work.works[0].entries:
            monkeypatch.setattr(call.kernel, "name", "fails")
    requests = [host.begin(plans[vrdd % 2], (vrdd, vrdd + 1), released=(vrdd - 1,)) for vrdd in range(17, 22)]
    with pytest.raises(ProcessEnded):
        host.process.finish(host.flights[-1])
    failure = read(tmp_path / "box").failure
    assert failure.number == requests[1].number and failure.operation.startswith("turned")
    assert failure.vrdd == "18 moved" and failure.message == "a kernel failed"
    while host.process._line.suspect():
        with suppress(KernelFault):
            host.process._line.drain()
