"""Plans that follow one another on a connection: what is on its way, and the memory that their values travel in."""

from __future__ import annotations

import gc
import os
import pickle
import signal
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

from gpu_worker.client.connection import Client
from gpu_worker.protocol.errors import PlanError, PlanUnknown, WorkerLost
from gpu_worker.protocol.messages import Done, Folded, Ran, Release, Reply, Request, Times, Welcome
from gpu_worker.protocol.payload import PLACED_FROM, Payload
from gpu_worker.protocol.plans import KEPT_PLANS
from gpu_worker.protocol.shared import Shared, captured
from gpu_worker.protocol.wire import Connection, close_all, failure_of
from vispark.plan.cuda_source import ArrayValue
from vispark.plan.lower.executable import Executable, Invocation
from vispark.plan.slots import BoundArguments
from vispark.runtime.driver import pipeline
from vispark.runtime.driver.pipeline import PendingRequest, RequestPipeline


class WatchedClient(Client):
    """A client that notes, whenever it looks for an answer, whether VRDD 7 counts as used.

    Where ``interrupted`` says so, Ctrl-C is pressed before or after it has sent or received something.
    """

    pipeline: RequestPipeline
    interrupted = ""

    def __init__(self, *arguments) -> None:
        super().__init__(*arguments)
        self.used: list[bool] = []

    def send(self, *arguments) -> None:
        self.pressed("before send")
        super().send(*arguments)
        self.pressed("after send")

    def receive(self, number: int):
        self.used.append(self.pipeline.uses(7))
        self.pressed("before receive")
        answer = super().receive(number)
        self.pressed("after receive")
        return answer

    def pressed(self, now: str) -> None:
        if now == self.interrupted:
            signal.raise_signal(signal.SIGINT)


class NotWatched:
    """Plans that nobody looks at while they are awaited."""

    def begin(self, _: tuple[str, ...]) -> int:
        return 0

    def end(self, _: int) -> None:
        pass


@pytest.fixture
def connected() -> Iterator[tuple[RequestPipeline, Connection]]:
    """Connect a pipeline, and yield it with the worker's end of its connection."""
    ours, theirs = socket.socketpair()
    with Connection(theirs) as worker, WatchedClient(Connection(ours), Welcome(2, "w", 1, 1, (), 0), "") as client:
        client.pipeline = RequestPipeline(client, 30.0, blame=lambda *_: None, heard=lambda *_: None,
                                          awaited=NotWatched())
        yield client.pipeline, worker


def invocation(*values: np.ndarray) -> Invocation:
    arrays = tuple(ArrayValue(value.dtype.str, value.shape, value.tobytes()) for value in values)
    return Invocation(Executable(b"k" * 16, b"plan", (), (), (), {}, (), -1), (7, 8), BoundArguments(arrays))


def answer(worker: Connection) -> tuple[int, int]:
    """Answer one request; the file that its values came in, and its size."""
    request, descriptors = worker.receive(Request)
    status = [os.fstat(descriptor) for descriptor in descriptors]
    close_all(descriptors)
    worker.send(Ran(request.number, (), None, False, Times(0.0, 0.0), b""), Reply)
    return (status[0].st_ino, status[0].st_size) if status else (0, 0)


def test_what_a_plan_starts_from_is_in_use_until_its_answer_was_taken(connected: tuple[RequestPipeline, Connection]):
    sending, worker = connected
    pendings = [sending.send(invocation()) for _ in range(2)]
    for _ in pendings:
        answer(worker)
    for pending in pendings:
        sending.wait(pending)
    # A thread that sees it unused lets the worker release it, maybe before the plan has begun.
    assert sending.client.used == [True, True] and not sending.uses(7) and sending.idle


def test_answers_that_have_come_are_taken_without_waiting_for_others(connected: tuple[RequestPipeline, Connection]):
    sending, worker = connected
    pendings = [sending.send(invocation()) for _ in range(2)]
    sending.take_arrived()
    assert not pendings[0].done
    answer(worker)
    sending.take_arrived()
    assert [pending.done for pending in pendings] == [True, False] and not sending.idle
    answer(worker)
    with ThreadPoolExecutor(1) as pool, sending.lock:
        pool.submit(sending.take_arrived).result(10)
        assert not pendings[1].done, "another thread uses it"
    sending.take_arrived()
    assert pendings[1].done and sending.idle


def test_a_small_request_gets_its_own_answer_behind_a_release_that_is_on_its_way(connected: tuple[RequestPipeline,
                                                                                                  Connection]):
    sending, worker = connected
    sending.release((7,))                                   # as the collector's thread does
    with ThreadPoolExecutor(1) as pool:
        pending = pool.submit(sending.ask, lambda client: Release(client.next_number(), (8,)))
        numbers = []
        for _ in range(2):
            request, _ = worker.receive(Request)
            numbers.append(request.number)
            worker.send(Done(request.number), Reply)
        assert pending.result(10).number == numbers[1] and sending.idle


def test_large_values_travel_in_the_same_memory_once_it_is_free(connected: tuple[RequestPipeline, Connection]):
    sending, worker = connected
    large = np.zeros(100_000)
    first, second = sending.send(invocation(large)), sending.send(invocation(large))
    one, other = answer(worker), answer(worker)
    assert one != other
    sending.wait(first)
    third = sending.send(invocation(large))
    assert answer(worker) == one            # which others are on their way before, so it is told of again
    for pending in (second, third):
        sending.wait(pending)


def test_large_folds_come_back_in_the_memory_that_the_values_went_in(connected: tuple[RequestPipeline, Connection]):
    sending, worker = connected
    large, result, folded = np.ones(100_000), np.arange(200_000, dtype="u1"), Folded(1, (), -1)
    kept: list[np.ndarray] = []
    numbers = []
    mapped: dict[int, Payload] = {}
    for number in range(5):
        pending = sending.send(invocation(large))
        request, descriptors = worker.receive(Request)
        # What the worker has mapped does not come again.
        assert len(descriptors) == (request.memory not in mapped)
        for descriptor in descriptors:
            mapped[request.memory] = Payload.receive(descriptor)
        payload = mapped[request.memory]
        numbers.append(request.memory)
        assert (payload.view(0, large.nbytes).view("f8") == 1).all()
        placed = request.results >= 0
        assert placed == (number > 0) and (not placed or large.nbytes <= request.results <= payload.size - 200_000)
        beside = Payload.create(result.nbytes)
        (payload if placed else beside).put(max(0, request.results), result + number)
        with beside:
            worker.send(Ran(request.number, (), folded, False, Times(0.0, 0.0), b"", placed=200_000 * placed),
                        Reply, [] if placed else [beside.descriptor])
        kept.append(sending.wait(pending)[1].array)
        del pending
        if number == 2:
            assert all((array == result + before).all() for before, array in enumerate(kept))
            kept.clear()
    # Memory is used again once nobody has what came in it.
    assert numbers[1] != numbers[2] and numbers[3] in numbers[1:3] and numbers[4] != numbers[3]
    assert (kept[0] == result + 3).all()


def test_folds_of_a_few_kilobytes_are_copied_out_of_the_requests_memory(connected: tuple[RequestPipeline, Connection]):
    sending, worker = connected
    result, folded, kept, memories = np.arange(PLACED_FROM + 256, dtype="u1"), Folded(1, (), -1), [], set()
    for number in range(6):
        pending = sending.send(invocation(np.ones(1)))
        request, descriptors = worker.receive(Request)
        for descriptor in descriptors:
            memories.add(request.memory)
            payload = Payload.receive(descriptor)
        assert (request.results >= 0) == (number > 0)
        if number:
            payload.put(request.results, result + np.uint8(number))
        data = b"" if number else result.tobytes()
        placed = result.nbytes if number else 0
        worker.send(Ran(request.number, (), folded, False, Times(0.0, 0.0), data, placed=placed), Reply)
        kept.append(sending.wait(pending)[1].array)
    assert all((array == result + np.uint8(number)).all() for number, array in enumerate(kept)) and len(memories) == 1


def test_values_of_a_few_kilobytes_go_in_memory_that_is_sent_anyway(connected: tuple[RequestPipeline, Connection]):
    sending, worker = connected
    w, memory = np.arange(4 * PLACED_FROM, dtype="u1"), {}
    for number in range(3):
        pending = sending.send(invocation(w + np.uint8(number)))
        request, descriptors = worker.receive(Request)
        for descriptor in descriptors:
            memory[request.memory] = Payload.receive(descriptor)
        value, = request.values
        assert len(value.data) == (0 if number else w.nbytes)
        content = memory[request.memory].view(value.offset, w.nbytes) if number else np.frombuffer(value.data, "u1")
        assert (content == w + np.uint8(number)).all() and (not number or request.results >= value.offset + w.nbytes)
        data = w[:PLACED_FROM + 256].tobytes()
        worker.send(Ran(request.number, (), Folded(1, (), -1), False, Times(0.0, 0.0), data), Reply)
        sending.wait(pending)


def test_what_is_captured_into_a_workers_memory_is_sent_from_there(connected: tuple[RequestPipeline, Connection]):
    sending, worker = connected

    def passed(data: bytes | Shared, expected: np.ndarray, known: dict[int, Payload]) -> int:
        """Send a value, and return the number of the memory that it came in."""
        call = invocation(expected)
        call = replace(call, values=BoundArguments((replace(call.values.values[0], data=data),)))
        pending = sending.send(call)
        request, descriptors = worker.receive(Request)
        for descriptor in descriptors:
            known[request.memory] = Payload.receive(descriptor)
        assert (known[request.memory].view(0, expected.nbytes).view("f8") == expected).all()
        worker.send(Ran(request.number, (), None, False, Times(0.0, 0.0), b""), Reply)
        sending.wait(pending)
        return request.memory

    large, known = np.arange(100_000.0), {}
    first = passed(captured(large), large, known)               # nothing has been there and back yet
    one, other, third = captured(large), captured(large + 1), captured(large + 2)
    assert [type(each) for each in (one, other, third)] == [Shared, Shared, bytes]
    assert one == large.tobytes() and hash(one) == hash(large.tobytes()) and one != other
    assert pickle.loads(pickle.dumps(one)) == large.tobytes()
    kept = large.copy()
    large[:] = -1                                                # which changes nothing that was captured
    numbers = [passed(each, kept + number, known) for number, each in ((0, one), (1, other), (0, one), (2, third))]
    assert numbers[0] == numbers[2] == first != numbers[1] and numbers[3] not in numbers[:3]
    del other
    assert passed(captured(kept[::-1]), kept[::-1], known) in (numbers[1], numbers[3])
    # One request at a time brings it; who comes then is sent a copy.
    assert one.lease.take() and passed(one, kept, known) != first
    one.lease.end()
    assert passed(one, kept, known) == first


def test_memory_whose_reader_is_not_known_to_be_done_is_not_filled_again(connected: tuple[RequestPipeline, Connection]):
    sending, worker = connected
    large = np.ones(100_000)
    pending = sending.send(invocation(large))
    answer(worker)
    sending.wait(pending)
    data = captured(large)
    call = Invocation(invocation().prepared, (7, 8), BoundArguments((ArrayValue("<f8", large.shape, data),)))
    pending = sending.send(call)
    request, _ = worker.receive(Request)
    worker.send(failure_of(PlanError("no"), request.number), Reply)
    with pytest.raises(PlanError):
        sending.wait(pending)
    again = sending.send(call)
    repeated, descriptors = worker.receive(Request)             # of what was captured there is a copy
    with Payload.receive(*descriptors) as copy:
        assert repeated.memory != request.memory and (copy.view(0, large.nbytes).view("f8") == 1).all()
    worker.send(Ran(repeated.number, (), None, False, Times(0.0, 0.0), b""), Reply)
    sending.wait(again)
    payload = data.lease.payload
    del data, call, pending, again
    gc.collect()        # the error has the frames that it passed
    assert payload.descriptor < 0 and payload not in sending.client._spare


def test_memory_that_a_worker_has_no_more_is_sent_again_with_the_plan(connected: tuple[RequestPipeline, Connection]):
    sending, worker = connected
    large = np.ones(100_000)
    sent = sending.send(invocation(large))
    one = answer(worker)
    sending.wait(sent)
    with ThreadPoolExecutor(1) as pool:
        waited = pool.submit(lambda: sending.wait(sending.send(invocation(large))))
        refused, descriptors = worker.receive(Request)
        assert not descriptors and not refused.plan and refused.memory
        worker.send(failure_of(PlanUnknown("gone"), refused.number), Reply)
        assert answer(worker) == one
        waited.result(10)
    # Nor does a request rely on it behind which others may be on their way.
    first, second = sending.send(invocation()), sending.send(invocation(large))
    assert answer(worker) == (0, 0) and answer(worker) == one
    for pending in (first, second):
        sending.wait(pending)


@pytest.mark.parametrize("when", ["before send", "after send", "before receive", "after receive"])
@pytest.mark.parametrize("what", ["a plan", "a question"])
def test_what_is_interrupted_is_lost_with_its_connection(connected: tuple[RequestPipeline, Connection], when: str,
                                                         what: str):
    sending, worker = connected
    heard: list[PendingRequest] = []
    sending.heard = heard.append
    pendings = [sending.send(invocation(), released=(number,)) for number in (4, 5)]
    answer(worker)
    answer(worker)
    sending.client.interrupted = when
    with pytest.raises(KeyboardInterrupt):
        if what == "a question":
            sending.ask(lambda client: Release(client.next_number(), (8,)))
        else:
            sending.send(invocation(), released=(6,))
            sending.wait(pendings[1])
    assert sending.idle and sending.client.fileno() < 0
    lost = [pending for pending in pendings if pending.error is not None]
    assert lost == [pending for pending in heard if pending in pendings and pending.error is not None]
    assert lost or (what, when[-4:]) == ("a question", "send")
    for pending in lost:
        with pytest.raises(WorkerLost, match="interrupted"):
            sending.wait(pending)


def test_a_plan_is_sent_again_behind_many_others(connected: tuple[RequestPipeline, Connection]):
    """Send it anew: the worker may have it no more, and others that start from its result would be on their way when it
    says so.
    """
    sending, worker = connected
    brought = []
    for number in (0, 0, *range(KEPT_PLANS), 0, KEPT_PLANS - 1):
        call = invocation()
        pending = sending.send(replace(call, prepared=replace(call.prepared, key=number.to_bytes(16))))
        request, _ = worker.receive(Request)
        brought.append(bool(request.plan))
        worker.send(Ran(request.number, (), None, False, Times(0.0, 0.0), b""), Reply)
        sending.wait(pending)
    assert brought == [True, False, False] + [True] * KEPT_PLANS + [False]


def test_how_long_a_worker_has_memory_counts_from_when_it_was_sent(connected: tuple[RequestPipeline, Connection],
                                                                   monkeypatch: pytest.MonkeyPatch):
    sending, worker = connected
    monkeypatch.setattr(pipeline, "MAPPED_SECONDS", 0.2)
    large = np.ones(100_000)
    sent = sending.send(invocation(large))
    one = answer(worker)
    time.sleep(0.2)
    sending.wait(sent)
    sent = sending.send(invocation(large))
    assert answer(worker) == one
    sending.wait(sent)
