"""Pipelined connection to a worker, on which plans follow one another like work on a CUDA stream.

A plan is sent without waiting for those before it; the worker does them in order, so a plan may start from what an
earlier one will have kept. Answers are taken in the same order, when somebody needs one of them.
"""

from __future__ import annotations

import functools
import select
import threading
import time
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Concatenate, ParamSpec, TypeVar

import numpy as np

from gpu_worker.client.connection import Client
from gpu_worker.protocol.messages import Ran, Release, Request
from gpu_worker.protocol.payload import (
    INLINE_BYTES,
    KEPT_MEMORIES,
    MAPPED_SECONDS,
    PLACED_FROM,
    Data,
    Payload,
    results,
)
from gpu_worker.protocol.plans import KEPT_PLANS
from gpu_worker.protocol.shared import BufferLease, set_current_pool
from vispark.errors import Fenced, PartitionMissing, PlanUnknown, ProtocolError, VisparkError, WorkerLost
from vispark.plan.lower.executable import Invocation
from vispark.runtime.driver.awaited_plans import AwaitedPlans

_P = ParamSpec("_P")
_Given = TypeVar("_Given")

#: The plans that a pipeline may have sent without having taken their answers.
AHEAD = 16

#: How many plans a worker is taken to know of this connection's: others bring plans too, and where it does not know one
#: behind which there are others, what these start from is missing.
_KNOWN = KEPT_PLANS // 2

#: Told of each plan that was answered, or is lost.
Heard = Callable[["PendingRequest"], None]

#: Raises the error of a kernel that ended the worker's process, if it was one of a plan's.
Blame = Callable[[Client, Invocation, int], None]


@dataclass(eq=False)
class PendingRequest:
    """Request in flight with its shared memory, and its answer once that is received.

    ``released`` are the VRDDs that the worker may forget before it does the request.
    """

    number: int
    invocation: Invocation | None
    released: tuple[int, ...] = ()
    answer: tuple[Ran, Data] | None = None
    error: VisparkError | None = None
    done: bool = False
    lease: BufferLease | None = None
    #: When it was sent, on the monotonic clock.
    sent: float = 0.0
    #: Where results may lie in the memory that the request brought.
    results: int = -1

    def end(self) -> None:
        """Return the request's shared memory to its pool: no reader of the payload is left."""
        if self.lease is not None:
            self.lease.end()
            self.lease = None

    def invalidate(self) -> None:
        """Exclude the request's shared memory from reuse, as the worker may still be using it."""
        if self.lease is not None:
            self.lease.invalidate()
            self.lease = None


def _alone(action: Callable[Concatenate[RequestPipeline, _P], _Given]
           ) -> Callable[Concatenate[RequestPipeline, _P], _Given]:
    """Serialise a pipeline's method. An exception other than ours, such as Ctrl-C, closes the connection, since its
    state is unknown.
    """
    @functools.wraps(action)
    def alone(pipeline: RequestPipeline, /, *arguments: _P.args, **named: _P.kwargs) -> _Given:
        with pipeline.lock:
            is_known = False
            try:
                result = action(pipeline, *arguments, **named)
                is_known = True
                return result
            except VisparkError:
                is_known = True
                raise
            finally:
                if not is_known:
                    pipeline._break_off()

    return alone


@dataclass
class RequestPipeline:
    """Pipeline of requests to one worker over one connection, for one thread at a time.

    Parameters
    ----------
    client : Client
        The connection.
    seconds : float
        The deadline of a plan, from when it is begun.
    blame : callable
        Finds the kernel that ended the worker's process.
    heard : callable
        Told of what came of plans.
    awaited : AwaitedPlans
        Told of what threads wait for.
    """

    client: Client
    seconds: float
    blame: Blame
    heard: Heard
    awaited: AwaitedPlans
    lock: threading.RLock = field(default_factory=threading.RLock)
    #: The last plans that the worker was sent over this connection, the very last one at the end.
    _known: OrderedDict[bytes, None] = field(default_factory=OrderedDict)
    _waiting: deque[PendingRequest] = field(default_factory=deque)
    #: The memories that the worker has mapped, by number, and until when that is likely.
    _mapped: deque[int] = field(default_factory=lambda: deque(maxlen=KEPT_MEMORIES))
    _mapped_until: float = 0.0
    #: By the plan, the bytes that it folded last, where those are better not copied to a reply.
    _large: dict[bytes, int] = field(default_factory=dict)
    #: What was to be kept by a plan that failed, so that plans that start from there tell of the same error.
    _failed: dict[int, VisparkError] = field(default_factory=dict)

    @property
    def idle(self) -> bool:
        """Whether no request is in flight."""
        return not self._waiting

    def close(self) -> None:
        """Close the connection."""
        for pending in list(self._waiting):
            pending.invalidate()
        self.client.close()

    def uses(self, number: int) -> bool:
        """Return whether a plan in flight starts from a VRDD."""
        return any(pending.invocation and number in pending.invocation.vrdds for pending in list(self._waiting))

    @_alone
    def send(self, invocation: Invocation, released: tuple[int, ...] = ()) -> PendingRequest:
        """Send a plan, and the VRDDs that the worker may free before it.

        Raises
        ------
        WorkerLost
            If the connection breaks.
        """
        while len(self._waiting) >= AHEAD:
            self._take()
        pending = PendingRequest(0, invocation, released)
        self._send(pending, invocation)
        self._waiting.append(pending)
        return pending

    def _send(self, pending: PendingRequest, invocation: Invocation) -> None:
        key, client = invocation.prepared.key, self.client
        results = self._large.get(key, 0) if client.shares_memory else 0
        lease: BufferLease | None = None

        def memory(nbytes: int) -> int:
            nonlocal lease
            lease = self._lease_for(invocation, nbytes, invocation.inline_bytes(results))
            return lease.payload.number if client.shares_memory else 0

        request, nbytes = invocation.request(client.next_number(), client.epoch, self.seconds, known=key in self._known,
                                             released=pending.released, results=results, memory=memory)
        if not client.shares_memory and (nbytes or key not in self._known):
            # What is large is not sent towards a worker that waits for its own answers to be taken.
            while self._waiting and self._waiting[0] is not pending:
                self._take()
        pending.number, pending.lease, pending.results = request.number, lease, request.results
        self._transmit(request, pending)
        self._known[key] = None
        self._known.move_to_end(key)
        if len(self._known) > _KNOWN:
            self._known.popitem(last=False)

    def _lease_for(self, invocation: Invocation, nbytes: int, inline: int) -> BufferLease:
        """Return shared memory of at least ``nbytes`` that contains the plan's values beyond ``inline`` bytes: the
        memory that they were captured into, if it is large enough.
        """
        lease = invocation.values.lease() if self.client.shares_memory else None
        if lease is not None and lease.take():
            if lease.payload.size >= nbytes:
                return lease
            lease.invalidate()       # what is captured next goes to the memory that is large enough
            lease.end()
        lease = BufferLease(self.client.payload(nbytes), self.client.recycle)
        lease.take()
        invocation.values.write(lease.payload, 0, inline)
        return lease

    def _has_mapped(self, payload: Payload) -> bool:
        """Return whether the worker has some memory mapped, as far as is known; if it has not, the last request in
        flight can be sent again.
        """
        return payload.number in self._mapped and not self._waiting and time.monotonic() < self._mapped_until

    @_alone
    def release(self, numbers: tuple[int, ...]) -> None:
        """Request the release of VRDDs, after the plans sent before. Raises as :meth:`send` does."""
        request = Release(self.client.next_number(), numbers)
        pending = PendingRequest(request.number, None, numbers)
        self._transmit(request, pending)
        self._waiting.append(pending)

    @_alone
    def ask(self, request: Callable[[Client], Request]) -> Any:
        """Send a small request and return its answer, after those of all requests in flight.

        Raises
        ------
        VisparkError
            What the worker says went wrong.
        """
        while self._waiting:
            self._take()
        return self.client.request(request(self.client))[0]

    def _transmit(self, request: Request, pending: PendingRequest) -> None:
        lease = pending.lease
        descriptors = [] if lease is None or self._has_mapped(lease.payload) else [lease.payload.descriptor]
        pending.sent, is_sent = time.monotonic(), False
        try:
            self.client.send(request, descriptors)
            is_sent = True
        except WorkerLost as error:
            self._lost(error)
            raise
        finally:
            if not is_sent:
                pending.invalidate()

    @_alone
    def wait(self, pending: PendingRequest) -> tuple[Ran, Data]:
        """Wait for the answer to a plan, and return it.

        Raises
        ------
        VisparkError
            If it failed, or one did whose result it starts from.
        """
        while not pending.done:
            self._take()
        if pending.error is not None:
            raise pending.error
        assert pending.answer is not None
        return pending.answer

    def take_arrived(self) -> None:
        """Receive the answers that are there, without waiting for others, nor for a thread that uses the pipeline."""
        if not self.lock.acquire(blocking=False):
            return
        try:
            self._take_arrived()
        finally:
            self.lock.release()

    @_alone
    def _take_arrived(self) -> None:
        while self._waiting and self.client.fileno() >= 0:
            looking = select.poll()
            looking.register(self.client.fileno(), select.POLLIN)
            if not self.client.has_more and not looking.poll(0):
                return
            self._take()

    def _take(self) -> None:
        """Receive the oldest answer."""
        pending = self._waiting[0]       # which is on its way, and uses what it starts from, until it is answered
        try:
            if not self._answered(pending):
                return
        except (WorkerLost, Fenced) as error:
            self._lost(error)
            return
        except VisparkError as error:
            pending.invalidate()
            pending.error = self._reason(pending, error)
            self._failed.update(dict.fromkeys(pending.invocation.vrdds[1:] if pending.invocation else (),
                                              pending.error))
        pending.done = True
        self._waiting.popleft()
        self.heard(pending)
        if not self._waiting:
            self._failed.clear()

    def _answered(self, pending: PendingRequest) -> bool:
        """Handle the answer to a request; return False if the request was sent again, with its plan and the memory of
        its values.

        It is not where others behind it may have started from what it was to keep.
        """
        number = self.awaited.begin(pending.invocation.prepared.labels if pending.invocation else ())
        try:
            reply, descriptors = self.client.receive(pending.number)
        except PlanUnknown as error:
            assert pending.invocation is not None
            self._known.pop(pending.invocation.prepared.key, None)
            self._mapped.clear()
            pending.end()
            if len(self._waiting) > 1:
                raise PartitionMissing(error.message, error.place, error.detail) from error
            self._send(pending, pending.invocation)
            return False
        finally:
            self.awaited.end(number)
        if pending.invocation:
            if pending.lease and self.client.shares_memory:
                self._keeps(pending.lease.payload, pending.sent)
            pending.answer = reply, self._results(pending, reply, descriptors)
            pending.end()
        return True

    def _keeps(self, payload: Payload, sent: float) -> None:
        """Note that the worker keeps a payload's memory mapped for some time after ``sent``, and prefer this client for
        the thread's next payload.
        """
        if not self._mapped or self._mapped[-1] != payload.number:
            with suppress(ValueError):
                self._mapped.remove(payload.number)
            self._mapped.append(payload.number)
        self._mapped_until = sent + MAPPED_SECONDS
        set_current_pool(self.client)

    def _results(self, pending: PendingRequest, reply: Ran, descriptors: list[int]) -> Data:
        """Return the result data of a reply: in the request's payload, inline, or in a payload beside the reply."""
        if reply.placed:
            lease = pending.lease
            if lease is None or pending.results < 0:
                raise ProtocolError("a worker says that it put results where there is no place for them")
            if reply.placed <= INLINE_BYTES:    # whoever keeps thousands of them is not to hold a descriptor for each
                return Data(lease.payload.view(pending.results, reply.placed).copy())
            whole = np.frombuffer(lease.payload.memory, np.uint8)
            data = Data(Data(whole).view(pending.results, reply.placed))
            pending.lease = None
            weakref.finalize(whole, lease.end).atexit = False
            return data
        data = results(reply.data, descriptors)
        if reply.folded is not None and data.size > PLACED_FROM:
            assert pending.invocation is not None
            self._large[pending.invocation.prepared.key] = data.size
        return data

    def _reason(self, pending: PendingRequest, error: VisparkError) -> VisparkError:
        if isinstance(error, PartitionMissing) and pending.invocation:
            return self._failed.get(pending.invocation.vrdds[0], error)
        return error

    def _lost(self, error: VisparkError) -> None:
        """Fail all plans in flight because the worker was lost; the plan whose kernel caused the loss, and the plans
        that start from its results, fail with that kernel's error.
        """
        todo = self._given_up(error)
        try:
            self._find_guilty(todo)
        finally:
            for request in todo:
                self.heard(request)
            self._failed.clear()

    def _find_guilty(self, lost: list[PendingRequest]) -> None:
        is_found = False
        for request in lost:
            if request.invocation is None:
                continue
            start, *bound = request.invocation.vrdds
            reason = self._failed.get(start)
            if reason is None and not is_found:
                try:
                    self.blame(self.client, request.invocation, request.number)
                except VisparkError as fault:
                    is_found, reason = True, fault
            if reason is not None:
                request.error = reason
                self._failed.update(dict.fromkeys(bound, reason))

    def _break_off(self) -> None:
        """Fail all plans in flight because the program was interrupted; the worker lives on and may still run them."""
        error = WorkerLost("the program was interrupted while it used the connection to a worker, which was closed "
                           "therefore")
        for request in self._given_up(error):
            self.heard(request)

    def _given_up(self, error: VisparkError) -> list[PendingRequest]:
        """Close the connection; return the requests that were in flight."""
        self.client.close()
        requests = list(self._waiting)
        for request in requests:
            request.invalidate()
            request.error, request.done = error, True
        self._waiting.clear()
        return requests
