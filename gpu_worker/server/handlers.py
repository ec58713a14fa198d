"""Handlers of a device process's requests on the session's partitions.

One :class:`SessionWorker` per device process. Each connection calls :meth:`SessionWorker.handle` from a thread of its
own.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Any, NoReturn

from gpu_worker.device import open_devices
from gpu_worker.device.clock import BusyTime
from gpu_worker.device.memory.registry import Registry
from gpu_worker.device.memory.tiers import Tiers
from gpu_worker.exchange.mpi.world import check_nodes
from gpu_worker.execution.grid.state import Grids
from gpu_worker.execution.plans.chunked_input import ChunkedInput
from gpu_worker.execution.plans.verification import verify_request
from gpu_worker.execution.scheduling.in_flight import InFlightQueue, Submission
from gpu_worker.execution.scheduling.streams import StreamPool
from gpu_worker.protocol.errors import KernelFault, NodeSilent, OutOfMemory, PlanUnknown, ProtocolError, VisparkError
from gpu_worker.protocol.messages import (
    Abandon,
    Attach,
    AttachedVrdd,
    CheckWorldNodes,
    Chunk,
    Describe,
    DescribedVrdd,
    DeviceMemory,
    Done,
    HoldCopy,
    OpenWorld,
    Publish,
    Ran,
    Release,
    Reply,
    Report,
    Reported,
    Request,
    Restore,
    Retain,
    Retract,
    Run,
    Save,
    SessionOptions,
    Times,
    WorldOpened,
)
from gpu_worker.protocol.payload import Payload
from gpu_worker.protocol.wire import close_all, failure_of
from gpu_worker.server.counters import Counters
from gpu_worker.server.payload_cache import KEPT_SECONDS, Payloads
from gpu_worker.server.plan_runs import PlanRuns
from gpu_worker.server.publications import ProcessPublications
from gpu_worker.server.snapshots import ProcessSnapshots
from gpu_worker.system.crash_record import CrashRecorder
from gpu_worker.system.failpoints import failpoint

log = logging.getLogger(__name__)

#: How long a partition that comes in pieces may wait for memory that others have, in seconds.
_ADMISSION_SECONDS = 600.0

#: A reply, and the descriptors that go with it.
SentReply = tuple[Reply, list[int]]

#: The exit status of a process whose device can no longer be used.
POISONED = 70


class SessionWorker:
    """Worker of one session: its partitions on one node, and the handlers of requests.

    Parameters
    ----------
    options : SessionOptions
        The device to open, its limits of memory and of shared memory in bytes, and where compiled kernels are kept.
    epoch : int
        Counts the session's device processes on this node.
    recorder : CrashRecorder
        Where running kernels are noted for whoever finds this process dead.
    session, secret : str and bytes
        What the daemon knows the session by.

    Raises
    ------
    DeviceUnavailable
        If the device asked for cannot be opened here.
    """

    def __init__(self, options: SessionOptions, *, epoch: int, recorder: CrashRecorder, session: str = "",
                 secret: bytes = b""):
        opened = partial(open_devices, memory=options.memory, cache_dir=options.cache_dir,
                         shared_limit=options.shared_limit, bounds=options.bounds)
        self._pool = StreamPool([], lambda addresses: opened(options.device, addresses=addresses),
                                partial(opened, options.unassigned) if options.unassigned else None) \
            if options.scheduled else StreamPool(opened(options.device))
        self._names = Registry(epoch, Tiers(options.stream, options.host_memory, options.spill_dir, self._pool.pin,
                                            self._pool.unpin))
        self._grids = Grids()
        self._line = InFlightQueue(recorder)
        self._runs = PlanRuns(self._names, self._pool, self._grids, recorder, self._line)
        self._plans = self._runs.plans
        self._snapshots = ProcessSnapshots(session, secret, options, self._names, self._pool)
        self._publications = ProcessPublications(session, secret, self._names, self._pool)
        self._recorder = recorder
        self._requests = 0
        self._counters = Counters()
        self._busy = BusyTime()
        #: The numbers of the plans that are under way.
        self._running: set[int] = set()
        self._handlers: dict[type, Callable[..., Any]] = {Describe: self._describe, Release: self._release,
                                                Retain: self._retain, Report: self._report,
                                                Restore: self._restore, Abandon: self._abandon,
                                                CheckWorldNodes: self._check_world_nodes,
                                                Publish: self._publish, Attach: self._attach, Retract: self._retract,
                                                OpenWorld: self._open_world}

    def payloads(self) -> Payloads:
        """Return a new cache of a connection's payloads; to be closed with the connection."""
        return Payloads(self._pool)

    @property
    def devices(self) -> tuple[str, ...]:
        """The names of the devices that are open."""
        return tuple(device.name for device in self._pool.devices)

    @property
    def shared_limit(self) -> int:
        """The least shared memory of a thread block on them, in bytes; 0 while there are none."""
        return min((device.shared_limit for device in self._pool.devices), default=0)

    def open(self, addresses: Sequence[str]) -> None:
        """Open the devices at addresses that Spark assigned; raises as :meth:`StreamPool.open`."""
        self._pool.open(addresses)

    def unassigned(self, addresses: Collection[str]) -> list[str]:
        """Return the names of the open devices that none of the addresses names any more."""
        return [device.name for device in self._pool.unassigned(addresses)]

    def handle(self, request: Request, descriptors: list[int], payloads: Payloads | None = None) -> SentReply:
        """Answer one request, as :meth:`begin` and :meth:`finish` do."""
        begun = self.begin(request, descriptors, payloads)
        return self.finish(begun) if isinstance(begun, Submission) else begun

    def begin(self, request: Request, descriptors: list[int],
              payloads: Payloads | None = None) -> SentReply | Submission:
        """Answer one request, or begin it, so that :meth:`finish` returns the answer.

        ``descriptors`` become the worker's; those returned are to be sent with the reply and closed by the caller.
        ``payloads`` are those of the connection that it came by, if it is to come by one again.

        Raises
        ------
        VisparkError
            What went wrong; whatever was held before is still held. After a :class:`KernelFault` the process ends
            instead, since its device can no longer be trusted.
        """
        self._requests += 1
        _check_count(request, descriptors, (0, 1) if isinstance(request, Run) else (1,) if
                     isinstance(request, HoldCopy) else (0,))
        try:
            if isinstance(request, HoldCopy):
                return self._hold_copy(request, *descriptors)
            if not isinstance(request, Run):
                return self._handlers[type(request)](request)
            if payloads is None:
                with closing(self.payloads()) as payloads:
                    return self._served(request, descriptors, payloads)
            return self._served(request, descriptors, payloads)
        except KernelFault as fault:
            self._end(fault, request.number)
        finally:
            self._running.discard(request.number)

    def take(self, piece: Chunk, descriptors: list[int], payloads: Payloads) -> None:
        """Enqueue the copy of a piece to its device, without an answer; if that fails, drop the pieces of the
        partition.

        Arguments and errors are those of :meth:`begin`.
        """
        self._requests += 1
        _check_count(piece, descriptors, (0,) if piece.offset else (1,))
        try:
            for descriptor in descriptors:
                payloads.begin(descriptor, partial(self._chunked, piece))
            payloads.take(piece)
        except KernelFault as fault:
            self._end(fault, piece.number)
        except VisparkError:
            payloads.drop()
            raise

    def _served(self, request: Run, descriptors: list[int], payloads: Payloads) -> SentReply | Submission:
        self._running.add(request.number)
        self._busy.begin()
        answer: SentReply | Submission | None = None
        try:
            # Streams, recordings and memory that are made before a plan runs wait for kernels too.
            with self._recorder.serving(request.number), self._recorder.waiting():
                answer = self._run(request, payloads, *descriptors)
            return answer
        finally:
            if not isinstance(answer, Submission):       # which ends when it is answered
                self._busy.end()

    def finish(self, flight: Submission) -> SentReply:
        """Return the answer to a request that was begun. Raises as :meth:`begin` does."""
        try:
            self._line.finish(flight)
        except KernelFault as fault:
            self._end(fault, flight.number)
        finally:
            self._busy.end()
        total = time.monotonic() - flight.started
        self._counters.working += total
        log.debug("plan %d: %.6f s", flight.number, total)
        reply = Ran(flight.number, (), None, False, Times(total, 0.0), b"", flight.iterated)
        return self._with_snapshots(reply), []

    def is_done(self, flight: Submission) -> bool:
        """Return whether a request that was begun can be answered at once."""
        self._line.reap()
        return flight.done

    def adopted(self) -> None:
        """Hand complete snapshots, replicas and publications to the daemon that has just adopted this process."""
        self._snapshots.adopted()
        self._publications.adopted()

    def rest(self, seconds: float, payloads: Payloads | None = None) -> None:
        """Release the workspaces of plans that were idle for some seconds, and a connection's payload memory."""
        if payloads is not None:
            try:
                payloads.rest()
            except KernelFault as fault:
                self._end(fault, 0)
        self._plans.rest(seconds)

    @property
    def may_rest(self) -> bool:
        """Whether plans have workspaces that :meth:`rest` would release."""
        return self._plans.may_rest

    def _end(self, fault: KernelFault, number: int) -> NoReturn:
        """End the process, whose device is unusable, with a report of the kernel that failed.

        A device tells whoever waits for it, whether it was his kernel or not.
        """
        others, first = self._running - {number}, self._line.suspect()
        if first is not None and not others:
            fault, number = KernelFault(fault.message, first.place, fault.detail), first.number
        log.error("%s", fault)
        self._recorder.blame(failure_of(fault, 0 if others else number))
        os._exit(POISONED)

    def report(self, number: int = 0) -> Reported:
        """Return a report of the session's content and memory on this node."""
        lines, host_bytes = self._names.report()
        counters, counts = self._counters, [device.counts for device in self._pool.devices]
        figures = [(device, device.memory()) for device in self._pool.devices]
        memory = tuple(DeviceMemory(device.name, figure.used, figure.total, device.counts.busy.seconds)
                       for device, figure in figures)
        return Reported(number, lines, memory, host_bytes, self._requests, self._grids.sent, self._runs.repeated,
                        counters.begun, counters.failed, counters.lowered, self._snapshots.completed,
                        counters.received, counters.returned, working=counters.working, crowded=counters.crowded,
                        kernels=sum(each.launches for each in counts), loaded=sum(each.loaded for each in counts),
                        compiling=sum(each.compiling for each in counts), busy=self._busy.seconds,
                        exchange=self._grids.way)

    def close(self) -> None:
        """Free all memory."""
        self._snapshots.close()
        self._publications.close()
        self._line.drain()
        self._plans.forget()
        self._names.close()
        self._grids.close()
        for device in self._pool.devices:
            device.close()

    # -- one method per request ---------------------------------------------------------------------------------------

    def _chunked(self, piece: Chunk, memory: Payload) -> ChunkedInput:
        self._names.admit(piece.epoch)
        plan = self._plans.get(piece.key, piece.plan)
        admission = self._runs.admission
        number = admission.enter(_ADMISSION_SECONDS)
        return ChunkedInput(piece.key, plan, self._pool, memory, piece.vrdd, partial(admission.leave, number))

    def _run(self, request: Run, payloads: Payloads, descriptor: int | None = None) -> SentReply | Submission:
        self._counters.begun += 1
        number = request.memory
        payload = payloads.find(number) if descriptor is None else payloads.receive(descriptor, number)
        again = False
        try:
            failpoint("payload-mapped")
            self._names.admit(request.epoch)
            self._forget(request.released)
            if number and payload is None:
                raise PlanUnknown("the memory of a plan's values is not here any more, and has to be sent again")
            chunked = payloads.blocks(request)
            self._plans.drop_idle_actions(KEPT_SECONDS)
            self._counters.lowered += bool(request.plan)
            plan = chunked.prepared if chunked else self._plans.get(request.key, request.plan)
            verify_request(request, plan.slots)
            self._publications.check_kept([vrdd for slot, vrdd in enumerate(request.vrdds) if slot != plan.source])
            answer = self._runs.run(request, plan, payload, chunked)
            again = isinstance(answer, Submission) or not answer[0].retained
            self._counters.received += payload.size if payload is not None else 0
            if request.save is not None:
                self._save(request.save, answer)
        except VisparkError as error:
            self._counters.failed += 1
            self._counters.crowded += isinstance(error, OutOfMemory)
            self._grids.failed(request.world, request.vrdds, error)
            log.info("plan %d refused: %s", request.number, error.message)
            raise
        finally:
            payloads.drop()
            if payload is not None:
                payloads.done(again=again)
        if isinstance(answer, Submission):
            return answer
        reply, fetched = answer
        self._counters.working += reply.times.total
        self._counters.returned += fetched.size if fetched is not None else 0
        log.debug("plan %d: %d partitions, %.6f s", request.number, len(plan.plan.inputs), reply.times.total)
        return self._with_snapshots(reply), [] if fetched is None else [fetched.release()]

    def _save(self, save: Save, answer: tuple[Ran, Payload | None] | Submission) -> None:
        """Take a snapshot of a plan's kept result, once the plan is complete."""
        if isinstance(answer, Submission):
            self._line.finish(answer)
        self._snapshots.begin(save)

    def _with_snapshots(self, reply: Ran) -> Ran:
        """Return a reply with the numbers of the snapshots that are complete."""
        return replace(reply, saved=self._snapshots.saved) if self._snapshots.saved else reply

    def _describe(self, request: Describe) -> tuple[Reply, list[int]]:
        signatures, held = self._names.describe(request.vrdd, request.partitions)
        return DescribedVrdd(request.number, signatures, held), []

    def _release(self, request: Release) -> tuple[Reply, list[int]]:
        self._forget(request.vrdds)
        return Done(request.number), []

    def _forget(self, numbers: tuple[int, ...]) -> None:
        if not numbers:
            return
        self._names.release(numbers)
        self._runs.moves.released(numbers)
        self._plans.release(numbers, self._names)
        self._snapshots.forget(numbers)
        self._publications.forget(numbers)
        self._pool.forget(numbers)

    def _retain(self, request: Retain) -> tuple[Reply, list[int]]:
        self._names.retain(request.vrdd, request.partitions, only=request.only)
        return Done(request.number), []

    def _restore(self, request: Restore) -> tuple[Reply, list[int]]:
        self._snapshots.restore(request.source, request.vrdd, request.name, request.owner)
        return self._describe(Describe(request.number, request.vrdd, ()))

    def _publish(self, request: Publish) -> tuple[Reply, list[int]]:
        self._publications.publish(request)
        return Done(request.number), []

    def _attach(self, request: Attach) -> tuple[Reply, list[int]]:
        details = self._publications.attach(request)
        content = DescribedVrdd(request.number, *self._names.describe(request.vrdd, ()))
        return AttachedVrdd(request.number, details, content), []

    def _retract(self, request: Retract) -> tuple[Reply, list[int]]:
        self._publications.retract(request)
        return Done(request.number), []

    def _hold_copy(self, request: HoldCopy, descriptor: int) -> tuple[Reply, list[int]]:
        self._snapshots.hold(request, descriptor)
        return Done(request.number), []

    def _abandon(self, request: Abandon) -> tuple[Reply, list[int]]:
        self._grids.end(request.world)
        return Done(request.number), []

    def _check_world_nodes(self, request: CheckWorldNodes) -> tuple[Reply, list[int]]:
        try:
            check_nodes(request.workers)
        except NodeSilent as error:     # which the world's start meets again, and may be over by then
            log.info("%s", error)
        return Done(request.number), []

    def _open_world(self, request: OpenWorld) -> tuple[Reply, list[int]]:
        return WorldOpened(request.number, self._grids.open(request.world, request.exchange)), []

    def _report(self, request: Report) -> tuple[Reply, list[int]]:
        return self.report(request.number), []


def _check_count(request: Request, descriptors: list[int], wanted: tuple[int, ...]) -> None:
    """Refuse a request with another number of descriptors."""
    if len(descriptors) not in wanted:
        close_all(descriptors)
        raise ProtocolError(f"{type(request).__name__} came with {len(descriptors)} descriptors")
