"""Knowledge of the driver about held content: it is of one moment, whichever thread takes note of a change."""

from __future__ import annotations

import sys
import threading
import weakref
from types import SimpleNamespace

from vispark.plan.ops import DatasetId
from vispark.runtime.driver.connections import WorkerConnections
from vispark.runtime.driver.relay import DeferredMessages
from vispark.runtime.driver.release_queue import Released
from vispark.runtime.driver.residency import Residency
from vispark.runtime.executor import client
from vispark.runtime.identity import WorkerAddress

HOMES = [WorkerAddress(f"/rt{number}", "m") for number in range(2)]


def test_places_change_while_others_go_over_them():
    residency, over, wrong = Residency(Released(), DatasetId(1, "x")), threading.Event(), []
    plans = SimpleNamespace(shape=lambda homes, contents: (len(homes), len(contents)))

    def change(home: WorkerAddress) -> None:
        while not over.is_set():
            residency.bind(home, 1, dict.fromkeys(range(200), "content"))
            residency.lose(range(100))

    def look() -> None:
        try:
            while not over.is_set():
                for partition in residency.places:
                    assert residency.contents[partition] == "content"
                residency.by_home()
                assert residency.processes <= {(home, 1) for home in HOMES}
                residency.shape(plans)
        except (RuntimeError, KeyError) as error:
            wrong.append(error)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    threads = [threading.Thread(target=change, args=[home]) for home in HOMES]
    threads += [threading.Thread(target=look) for _ in range(2)]
    for thread in threads:
        thread.start()
    over.wait(1)
    over.set()
    for thread in threads:
        thread.join()
    sys.setswitchinterval(interval)
    assert not wrong


def test_a_shape_that_is_of_places_before_is_not_remembered():
    residency = Residency(Released(), DatasetId(1, "x"))
    residency.bind(HOMES[0], 1, {0: "a", 1: "b"})

    def shape(homes, contents):
        if len(homes) == 2:
            residency.lose([1])
        return len(homes)

    assert residency.shape(SimpleNamespace(shape=shape)) == 2
    assert residency.shape(SimpleNamespace(shape=shape)) == 1


class FakePipeline:
    """A pipeline with a plan on its way, whose answer comes once it is told of."""

    def __init__(self) -> None:
        self.idle, self.has_come = False, False
        self.client = SimpleNamespace(fileno=lambda: 3)

    def take_arrived(self) -> None:
        self.idle = self.has_come


def test_a_thread_with_the_number_of_one_that_ended_takes_no_lane_of_its(monkeypatch):
    worker = WorkerConnections.__new__(WorkerConnections)
    worker._lock, worker._busy, worker._idle, opened = threading.Lock(), {}, [], []
    monkeypatch.setattr(WorkerConnections, "_open", lambda _: opened.append(FakePipeline()) or opened[-1])
    monkeypatch.setattr(threading, "get_ident", lambda: 7)
    taken = []
    for _ in range(2):
        thread = threading.Thread(target=lambda: taken.append(worker._own_pipeline()))
        thread.start()
        thread.join()
    assert len(opened) == 2 and taken == opened and len(worker._busy) == 2


def test_the_connection_of_a_thread_that_ended_with_plans_on_their_way_serves_others(monkeypatch):
    worker = WorkerConnections.__new__(WorkerConnections)
    worker._lock, worker._busy, worker._idle, opened = threading.Lock(), {}, [], []
    monkeypatch.setattr(WorkerConnections, "_open", lambda _: opened.append(FakePipeline()) or opened[-1])
    for _ in range(20):
        thread = threading.Thread(target=worker._own_pipeline)
        thread.start()
        thread.join()
        opened[-1].has_come = True
    assert len(opened) == 1 and len(worker._busy) == 1
    assert worker._own_pipeline() is opened[0] and list(worker._busy) == [threading.current_thread()]


def test_garbage_that_is_there_when_modules_are_frozen_goes_first(monkeypatch):
    class Cycle:
        def __init__(self) -> None:
            self.itself = self

    calls = []
    gone = weakref.ref(Cycle())
    monkeypatch.setattr(client, "TaskContext", SimpleNamespace(get=lambda: object()))
    monkeypatch.setattr(client.gc, "freeze", lambda: calls.append(gone()))
    client._settle.__wrapped__()
    assert calls == [None]


def test_messages_that_no_task_delivered_wait_for_the_next_one():
    waiting = DeferredMessages()
    waiting.retain(3, (0, 1))
    assert not waiting
    waiting.release((7,))
    lost = waiting.take()
    assert (lost.released, lost.retained) == ((7,), {3: (0, 1)}) and not waiting
    waiting.retain(3, (1,))
    waiting.put_back(lost)
    assert waiting and waiting.take().retained == {3: (1,)}
    waiting.retain(3, (1,))
    waiting.release((3,))
    assert waiting.take().retained == {}
