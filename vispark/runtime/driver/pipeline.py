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
from gpu_worker.protocol.payload import KEPT_MEMORIES, MAPPED_SECONDS, Data, Payload, results
from gpu_worker.protocol.plans import KEPT_PLANS
from gpu_worker.protocol.shared import BufferLease, prefer
from vispark.errors import Fenced, PartitionMissing, PlanUnknown, ProtocolError, VisparkError, WorkerLost
from vispark.lower.executable import Invocation
from vispark.runtime.driver.awaited_plans import AwaitedPlans

_P = ParamSpec("_P")
_Given = TypeVar("_Given")

#: The plans that a lane may have sent without having taken their answers.
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
    shipment: Invocation | None
    released: tuple[int, ...] = ()
    answer: tuple[Ran, Data] | None = None
    error: VisparkError | None = None
    done: bool = False
    loan: BufferLease | None = None
    #: When it was sent, on the monotonic clock.
    sent: float = 0.0
    #: Where results may lie in the memory that the request brought.
    results: int = -1

    def end(self) -> None:
        """Return the request's shared memory to its pool: no reader of the payload is left."""
        if self.loan is not None:
            self.loan.end()
            self.loan = None

    def spoil(self) -> None:
        """Exclude the request's shared memory from reuse, as the worker may still be using it."""
        if self.loan is not None:
            self.loan.spoil()
            self.loan = None


def _alone(action: Callable[Concatenate[Pipeline, _P], _Given]) -> Callable[Concatenate[Pipeline, _P], _Given]:
    """Serialise a pipeline's method. An exception other than ours, such as Ctrl-C, closes the connection, since its
    state is unknown.
    """
    @functools.wraps(action)
    def alone(lane: Pipeline, *arguments: _P.args, **named: _P.kwargs) -> _Given:
        with lane.lock:
            is_known = False
            try:
                found = action(lane, *arguments, **named)
                is_known = True
                return found
            except VisparkError:
                is_known = True
                raise
            finally:
                if not is_known:
                    lane._break_off()

    return alone


@dataclass
class Pipeline:
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
    #: By the plan, the bytes that it folded last, where those are too many for a reply.
    _large: dict[bytes, int] = field(default_factory=dict)
    #: What was to be kept by a plan that failed, so that plans that start from there tell of the same error.
    _failed: dict[int, VisparkError] = field(default_factory=dict)

    @property
    def idle(self) -> bool:
        """Whether no request is in flight."""
        return not self._waiting

    def close(self) -> None:
        """Close the connection."""
        for ticket in list(self._waiting):
            ticket.spoil()
        self.client.close()

    def uses(self, number: int) -> bool:
        """Return whether a plan in flight starts from a VRDD."""
        return any(ticket.shipment and number in ticket.shipment.vrdds for ticket in list(self._waiting))

    @_alone
    def send(self, shipment: Invocation, released: tuple[int, ...] = ()) -> PendingRequest:
        """Send a plan, and the VRDDs that the worker may free before it.

        Raises
        ------
        WorkerLost
            If the connection breaks.
        """
        while len(self._waiting) >= AHEAD:
            self._take()
        ticket = PendingRequest(0, shipment, released)
        self._send(ticket, shipment)
        self._waiting.append(ticket)
        return ticket

    def _send(self, ticket: PendingRequest, shipment: Invocation) -> None:
        key, client = shipment.prepared.key, self.client
        results = self._large.get(key, 0) if client.shares_memory else 0
        loan: BufferLease | None = None

        def memory(nbytes: int) -> int:
            nonlocal loan
            loan = self._loan(shipment, nbytes)
            return loan.payload.number if client.shares_memory else 0

        request, nbytes = shipment.request(client.next_number(), client.epoch, self.seconds, known=key in self._known,
                                           released=ticket.released, results=results, memory=memory)
        if not client.shares_memory and (nbytes or key not in self._known):
            # What is large is not sent towards a worker that waits for its own answers to be taken.
            while self._waiting and self._waiting[0] is not ticket:
                self._take()
        ticket.number, ticket.loan, ticket.results = request.number, loan, request.results
        self._transmit(request, ticket)
        self._known[key] = None
        self._known.move_to_end(key)
        if len(self._known) > _KNOWN:
            self._known.popitem(last=False)

    def _loan(self, shipment: Invocation, nbytes: int) -> BufferLease:
        """Return shared memory of at least ``nbytes`` that contains the plan's values: the memory that they were
        captured into, if it is large enough.
        """
        found = shipment.values.loan() if self.client.shares_memory else None
        if found is not None and found.take():
            if found.payload.size >= nbytes:
                return found
            found.spoil()       # what is captured next goes to the memory that is large enough
            found.end()
        found = BufferLease(self.client.payload(nbytes), self.client.recycle)
        found.take()
        shipment.values.write(found.payload, 0)
        return found

    def _has_mapped(self, payload: Payload) -> bool:
        """Return whether the worker has some memory mapped, as far as is known; if it has not, the last request in
        flight can be sent again.
        """
        return payload.number in self._mapped and not self._waiting and time.monotonic() < self._mapped_until

    @_alone
    def release(self, numbers: tuple[int, ...]) -> None:
        """Request the release of VRDDs, after the plans sent before. Raises as :meth:`send` does."""
        request = Release(self.client.next_number(), numbers)
        ticket = PendingRequest(request.number, None, numbers)
        self._transmit(request, ticket)
        self._waiting.append(ticket)

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

    def _transmit(self, request: Request, ticket: PendingRequest) -> None:
        loan = ticket.loan
        descriptors = [] if loan is None or self._has_mapped(loan.payload) else [loan.payload.descriptor]
        ticket.sent, is_sent = time.monotonic(), False
        try:
            self.client.send(request, descriptors)
            is_sent = True
        except WorkerLost as error:
            self._lost(error)
            raise
        finally:
            if not is_sent:
                ticket.spoil()

    @_alone
    def wait(self, ticket: PendingRequest) -> tuple[Ran, Data]:
        """Wait for the answer to a plan, and return it.

        Raises
        ------
        VisparkError
            If it failed, or one did whose result it starts from.
        """
        while not ticket.done:
            self._take()
        if ticket.error is not None:
            raise ticket.error
        return ticket.answer

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
        ticket = self._waiting[0]       # which is on its way, and uses what it starts from, until it is answered
        try:
            if not self._answered(ticket):
                return
        except (WorkerLost, Fenced) as error:
            self._lost(error)
            return
        except VisparkError as error:
            ticket.spoil()
            ticket.error = self._reason(ticket, error)
            self._failed.update(dict.fromkeys(ticket.shipment.vrdds[1:] if ticket.shipment else (), ticket.error))
        ticket.done = True
        self._waiting.popleft()
        self.heard(ticket)
        if not self._waiting:
            self._failed.clear()

    def _answered(self, ticket: PendingRequest) -> bool:
        """Handle the answer to a request; return False if the request was sent again, with its plan and the memory of
        its values.

        It is not where others behind it may have started from what it was to keep.
        """
        number = self.awaited.begin(ticket.shipment.prepared.labels if ticket.shipment else ())
        try:
            reply, descriptors = self.client.receive(ticket.number)
        except PlanUnknown as error:
            self._known.pop(ticket.shipment.prepared.key, None)
            self._mapped.clear()
            ticket.end()
            if len(self._waiting) > 1:
                raise PartitionMissing(error.message, error.place, error.detail) from error
            self._send(ticket, ticket.shipment)
            return False
        finally:
            self.awaited.end(number)
        if ticket.shipment:
            if ticket.loan and self.client.shares_memory:
                self._keeps(ticket.loan.payload, ticket.sent)
            ticket.answer = reply, self._results(ticket, reply, descriptors)
            ticket.end()
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
        prefer(self.client)

    def _results(self, ticket: PendingRequest, reply: Ran, descriptors: list[int]) -> Data:
        """Return the result data of a reply: in the request's payload, inline, or in a payload beside the reply."""
        if reply.placed:
            loan = ticket.loan
            if loan is None or ticket.results < 0:
                raise ProtocolError("a worker says that it put results where there is no place for them")
            whole = np.frombuffer(loan.payload.memory, np.uint8)
            found = Data(Data(whole).view(ticket.results, reply.placed))
            ticket.loan = None
            weakref.finalize(whole, loan.end).atexit = False
            return found
        found = results(reply.data, descriptors)
        if reply.folded is not None and descriptors:
            self._large[ticket.shipment.prepared.key] = found.size
        return found

    def _reason(self, ticket: PendingRequest, error: VisparkError) -> VisparkError:
        if isinstance(error, PartitionMissing) and ticket.shipment:
            return self._failed.get(ticket.shipment.vrdds[0], error)
        return error

    def _lost(self, error: VisparkError) -> None:
        """Fail all plans in flight because the worker was lost; the plan whose kernel caused the loss, and the plans
        that start from its results, fail with that kernel's error.
        """
        todo = self._given_up(error)
        try:
            self._find_guilty(todo)
        finally:
            for each in todo:
                self.heard(each)
            self._failed.clear()

    def _find_guilty(self, lost: list[PendingRequest]) -> None:
        is_found = False
        for each in lost:
            if each.shipment is None:
                continue
            start, *kept = each.shipment.vrdds
            reason = self._failed.get(start)
            if reason is None and not is_found:
                try:
                    self.blame(self.client, each.shipment, each.number)
                except VisparkError as fault:
                    is_found, reason = True, fault
            if reason is not None:
                each.error = reason
                self._failed.update(dict.fromkeys(kept, reason))

    def _break_off(self) -> None:
        """Fail all plans in flight because the program was interrupted; the worker lives on and may still run them."""
        for each in self._given_up(WorkerLost("the program was interrupted while it used the connection to a worker, "
                                              "which was closed therefore")):
            self.heard(each)

    def _given_up(self, error: VisparkError) -> list[PendingRequest]:
        """Close the connection; return the requests that were in flight."""
        self.client.close()
        found = list(self._waiting)
        for each in found:
            each.spoil()
            each.error, each.done = error, True
        self._waiting.clear()
        return found
