"""Admission of plans to memory of devices, beside others."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from gpu_worker.device.memory.admission import Admission
from gpu_worker.protocol.errors import DeadlineExceeded


class PlanThread:
    """A plan in a thread of its own, which enters, and leaves when it is told to."""

    def __init__(self, admission: Admission, *, alone: bool):
        self.entered, self._leave = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, args=(admission, alone))
        self._thread.start()

    def _run(self, admission: Admission, alone: bool) -> None:
        with admission.alone(20.0) if alone else admission.among_others(20.0):
            self.entered.set()
            self._leave.wait(20.0)

    def leave(self) -> None:
        self._leave.set()
        self._thread.join()


def eventually(holds: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 20
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.001)
    return holds()


def test_plans_go_on_beside_one_that_waits_for_a_slow_load():
    admission = Admission()
    load = admission.enter(1.0)
    alone = PlanThread(admission, alone=True)
    assert eventually(lambda: admission.is_crowded) and not alone.entered.is_set()
    small = admission.enter(1.0)        # the load holds memory for as long as it likes
    admission.leave(admission.enter(1.0))
    admission.leave(load)
    assert not alone.entered.is_set(), "one holds memory still"
    late = PlanThread(admission, alone=False)
    assert not late.entered.wait(0.05), "what the other waited for is over, and it is next"
    admission.leave(small)
    assert alone.entered.wait(20) and not late.entered.is_set()
    assert admission.running == 1
    alone.leave()
    assert late.entered.wait(20)
    late.leave()
    assert admission.running == 0 and not admission.is_crowded


def test_plans_that_run_by_themselves_take_turns():
    admission = Admission()
    first = PlanThread(admission, alone=True)
    assert first.entered.wait(20)
    second, beside = PlanThread(admission, alone=True), None
    assert eventually(lambda: admission.is_crowded)
    beside = PlanThread(admission, alone=False)
    assert not second.entered.wait(0.02) and not beside.entered.is_set()
    first.leave()
    assert second.entered.wait(20) and not beside.entered.is_set()
    second.leave()
    assert beside.entered.wait(20)
    beside.leave()


@pytest.mark.parametrize("alone", [False, True])
def test_a_turn_that_does_not_come_in_time_is_an_error_that_holds_nobody_up(alone: bool):
    admission = Admission()
    number = admission.enter(1.0, alone=True)
    with pytest.raises(DeadlineExceeded, match=r"other plans had the devices' memory for 0\.01 s"):
        admission.enter(0.01, alone=alone)
    admission.leave(number)
    with admission.among_others(1.0):
        assert admission.running == 1 and not admission.is_crowded
