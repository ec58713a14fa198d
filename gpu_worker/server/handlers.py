"""Handlers of a device process's requests on the session's partitions.

One :class:`SessionWorker` per device process. Each connection calls :meth:`SessionWorker.handle` from a thread of its
own.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack, closing, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, NoReturn

from gpu_worker.device import open_devices
from gpu_worker.device.clock import BusyTime
from gpu_worker.execution.chunked_input import ChunkedInput
from gpu_worker.execution.executor import Execution
from gpu_worker.execution.grid.state import Grids
from gpu_worker.execution.in_flight import InFlightQueue, Submission
from gpu_worker.execution.payload_copies import Passages
from gpu_worker.execution.plan_cache import DecodedPlan, DecodedPlans
from gpu_worker.execution.replay import Recording
from gpu_worker.execution.replay_branches import LoopReplay
from gpu_worker.execution.scratch import Arguments
from gpu_worker.execution.streams import SIDE_STREAMS, StreamPool, Streams
from gpu_worker.execution.tier_moves import TierMoves
from gpu_worker.execution.verification import verify_request
from gpu_worker.execution.waves import WaveSize, least_free, may_stream
from gpu_worker.memory.admission import Admission
from gpu_worker.memory.registry import Registry
from gpu_worker.memory.tiers import Tiers
from gpu_worker.mpi.world import check_nodes
from gpu_worker.protocol.errors import (
    KernelFault,
    NodeSilent,
    OutOfMemory,
    PlanUnknown,
    ProtocolError,
    VisparkError,
    WorldLost,
)
from gpu_worker.protocol.messages import (
    Abandon,
    Attach,
    AttachedVrdd,
    Chunk,
    Describe,
    DescribedVrdd,
    DeviceMemory,
    Done,
    HoldCopy,
    Meet,
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
from gpu_worker.server.publications import ProcessPublications
from gpu_worker.server.snapshots import ProcessSnapshots
from gpu_worker.system.crash_record import BlackBox
from gpu_worker.system.failpoints import failpoint
from gpu_worker.worlds.base import JoinedWorld

log = logging.getLogger(__name__)

#: How long an MPI world may take to come to be, in seconds.
_WORLD_SECONDS = 30.0

#: How long a partition that comes in pieces may wait for memory that others have, in seconds.
_ADMISSION_SECONDS = 600.0

#: How much smaller pieces of a partition are where those of a wave's size find no room.
_SMALLER = 4

#: A reply, and the descriptors that go with it.
Answer = tuple[Reply, list[int]]

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
    box : BlackBox
        Where running kernels are noted for whoever finds this process dead.
    session, secret : str and bytes
        What the daemon knows the session by.

    Raises
    ------
    DeviceUnavailable
        If the device asked for cannot be opened here.
    """

    def __init__(self, options: SessionOptions, *, epoch: int, box: BlackBox, session: str = "", secret: bytes = b""):
        opened = partial(open_devices, memory=options.memory, cache_dir=options.cache_dir,
                         shared_limit=options.shared_limit, bounds=options.bounds)
        self._pool = StreamPool([], lambda addresses: opened(options.device, addresses=addresses),
                                partial(opened, options.unassigned) if options.unassigned else None) \
            if options.scheduled else StreamPool(opened(options.device))
        self._names = Registry(epoch, Tiers(options.stream, options.host_memory, options.spill_dir, self._pool.pin,
                                            self._pool.unpin))
        self._moves = TierMoves(self._names, self._pool)
        self._plans = DecodedPlans(self._close_recording)
        self._grids = Grids()
        self._snapshots = ProcessSnapshots(session, secret, options, self._names, self._pool)
        self._publications = ProcessPublications(session, secret, self._names, self._pool)
        self._admission = Admission()
        self._box = box
        self._line = InFlightQueue(box)
        self._requests = self._repeated = 0
        self._counters = Counters()
        self._busy = BusyTime()
        #: The numbers of the plans that are under way.
        self._running: set[int] = set()
        self._handlers: dict[type, Callable[..., Any]] = {Describe: self._describe, Release: self._release,
                                                Retain: self._retain, Report: self._report,
                                                Restore: self._restore, Abandon: self._abandon, Meet: self._meet,
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

    def handle(self, request: Request, descriptors: list[int], payloads: Payloads | None = None) -> Answer:
        """Answer one request, as :meth:`begin` and :meth:`finish` do."""
        begun = self.begin(request, descriptors, payloads)
        return self.finish(begun) if isinstance(begun, Submission) else begun

    def begin(self, request: Request, descriptors: list[int], payloads: Payloads | None = None) -> Answer | Submission:
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
                payloads.begin(descriptor, partial(self._intake, piece))
            payloads.take(piece)
        except KernelFault as fault:
            self._end(fault, piece.number)
        except VisparkError:
            payloads.drop()
            raise

    def _served(self, request: Run, descriptors: list[int], payloads: Payloads) -> Answer | Submission:
        self._running.add(request.number)
        self._busy.begin()
        found: Answer | Submission | None = None
        try:
            # Streams, recordings and memory that are made before a plan runs wait for kernels too.
            with self._box.serving(request.number), self._box.waiting():
                found = self._run(request, payloads, *descriptors)
            return found
        finally:
            if not isinstance(found, Submission):       # which ends when it is answered
                self._busy.end()

    def finish(self, flight: Submission) -> Answer:
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
        self._line.settle()
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
        self._box.blame(failure_of(fault, 0 if others else number))
        os._exit(POISONED)

    def report(self, number: int = 0) -> Reported:
        """Return a report of the session's content and memory on this node."""
        lines, host_bytes = self._names.report()
        counters, counts = self._counters, [device.counts for device in self._pool.devices]
        figures = [(device, device.memory()) for device in self._pool.devices]
        memory = tuple(DeviceMemory(device.name, figure.used, figure.total, device.counts.busy.seconds)
                       for device, figure in figures)
        return Reported(number, lines, memory, host_bytes, self._requests, self._grids.sent, self._repeated,
                        counters.begun, counters.failed, counters.lowered, self._snapshots.completed,
                        counters.received, counters.returned, working=counters.working, crowded=counters.crowded,
                        kernels=sum(each.launches for each in counts), loaded=sum(each.loaded for each in counts),
                        compiling=sum(each.compiling for each in counts), busy=self._busy.seconds)

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

    def _intake(self, piece: Chunk, memory: Payload) -> ChunkedInput:
        self._names.admit(piece.epoch)
        plan = self._plans.get(piece.key, piece.plan)
        self._admission.enter(_ADMISSION_SECONDS)
        return ChunkedInput(piece.key, plan, self._pool, memory, piece.vrdd, self._admission.leave)

    def _run(self, request: Run, payloads: Payloads, descriptor: int | None = None) -> Answer | Submission:
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
            intake = payloads.blocks(request)
            self._plans.tidy(KEPT_SECONDS)
            self._counters.lowered += bool(request.plan)
            plan = intake.prepared if intake else self._plans.get(request.key, request.plan)
            verify_request(request, plan.slots)
            self._publications.check_kept([vrdd for slot, vrdd in enumerate(request.vrdds) if slot != plan.source])
            found = self._admitted(request, plan, payload, intake)
            again = isinstance(found, Submission) or not found[0].retained
            self._counters.received += payload.size if payload is not None else 0
            if request.save is not None:
                self._save(request.save, found)
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
        if isinstance(found, Submission):
            return found
        reply, fetched = found
        self._counters.working += reply.times.total
        self._counters.returned += fetched.size if fetched is not None else 0
        log.debug("plan %d: %d partitions, %.6f s", request.number, len(plan.plan.inputs), reply.times.total)
        return self._with_snapshots(reply), [] if fetched is None else [fetched.release()]

    def _admitted(self, request: Run, plan: DecodedPlan, payload: Payload | None,
                  intake: ChunkedInput | None) -> tuple[Ran, Payload | None] | Submission:
        """Run a plan beside others; by itself, with all memory that can be had, where it finds no room beside them."""
        self._promoted(request, intake)
        # What came in pieces was admitted with the first of them, and a plan of several nodes never waits for one node.
        admitted = nullcontext() if intake or request.world else self._admission.among_others(request.seconds)
        with admitted:
            try:
                return self._again(request, plan, payload) or self._anew(
                    request, plan, payload, intake, self._wave_size(request, plan))
            except OutOfMemory as error:
                # What came in pieces is used up.
                if request.pieces:
                    raise
                failed, place, is_crowded = error, error.place, self._admission.is_crowded
        if request.world is not None:
            if not (self._plans.forget() or self._has_tried_patches(request, plan)):
                raise failed
            raise WorldLost("a plan begins anew on all nodes, as memory that others worked in was given back for it: "
                            f"{failed.message}", failed.place) from failed
        with self._admission.alone(request.seconds):
            may_fit = self._plans.forget() or self._has_tried_patches(request, plan) or is_crowded
            sizes: list[WaveSize | None] = [None] if may_fit else []
            if may_stream(plan):
                stream = self._stream_bytes()
                sizes += [WaveSize(stream, stream), WaveSize(0, stream // _SMALLER, ahead=False)]
            for size in sizes:
                try:
                    return self._anew(request, plan, payload, waves=size)
                except OutOfMemory as error:
                    failed = error
            size, most = sizes[-1] if sizes else None, 1
            while self._moves.demote(most):
                try:
                    return self._anew(request, plan, payload, waves=size)
                except OutOfMemory as error:
                    failed, most = error, 2 * most
        # What is copied in for a wave belongs to no step; the plan as a whole failed in one.
        raise OutOfMemory(failed.message + _advice(plan), failed.place if failed.place.operation else place) from failed

    def _promoted(self, request: Run, intake: ChunkedInput | None) -> None:
        """Move what has room on devices now back there, where no plan runs that might have to wait for its memory."""
        if not self._moves.may_promote or intake or request.world:
            return
        with self._admission.alone(request.seconds):
            self._moves.promote()

    def _stream_bytes(self) -> int:
        """Return the bytes of a wave on the smallest device."""
        return min([self._names.tiers.stream_bytes(device) for device in self._pool.devices], default=0)

    def _wave_size(self, request: Run, plan: DecodedPlan) -> WaveSize | None:
        """Return the size of the waves that a plan is to run in, as what it has to copy in takes more than half of the
        memory that is free; None where it fits.
        """
        if not may_stream(plan) or not 0 <= plan.source < len(request.vrdds):
            return None
        missing, free = least_free(self._names.held(request.vrdds[plan.source]))
        stream = self._stream_bytes()
        return WaveSize(stream, stream) if 2 * missing > free else None

    def _save(self, save: Save, found: tuple[Ran, Payload | None] | Submission) -> None:
        """Take a snapshot of a plan's kept result, once the plan is complete."""
        if isinstance(found, Submission):
            self._line.finish(found)
        self._snapshots.begin(save)

    def _with_snapshots(self, reply: Ran) -> Ran:
        """Return a reply with the numbers of the snapshots that are complete."""
        return replace(reply, saved=self._snapshots.saved) if self._snapshots.saved else reply

    def _again(self, request: Run, plan: DecodedPlan,
               payload: Payload | None) -> tuple[Ran, Payload | None] | Submission | None:
        """Replay a recorded plan and return the answer; None if it has no valid recording, or is to be profiled."""
        if request.profile or not 0 <= plan.source < len(request.vrdds):
            return None
        arguments = Arguments(request.values, payload)
        if not plan.keeps:
            recording = plan.recordings.find(request, arguments, self._names, plan.source)
            if recording is None:
                return None
            self._repeated += 1
            try:
                return recording.run(request, arguments, self._box, self._names, self._line)
            finally:
                recording.lock.release()
        if plan.recordings.is_empty:
            return None
        self._grids.await_turn(request.world, time.monotonic() + request.seconds, _WORLD_SECONDS)
        with self._grids.turns(fills_ghosts=plan.fills_ghosts), self._line.turn(alone=plan.branches):
            agreed = self._agreed(request, plan)
            recording = agreed and plan.recordings.find(request, arguments, self._names, plan.source, *agreed)
            if recording is None:
                return None
            started = time.monotonic()
            try:
                flight = recording.begin(request, arguments, self._box, self._names, self._line)
            finally:
                recording.lock.release()
            if flight is not None:
                self._grids.turn_done(request.world)
                self._repeated += 1
                return flight
            for each in plan.recordings.discard(recording):
                self._close_recording(each)
        return self._anew(replace(request, seconds=request.seconds - (time.monotonic() - started)), plan, payload)

    def _agreed(self, request: Run, plan: DecodedPlan) -> tuple[JoinedWorld | None, tuple[bytes, ...]] | None:
        """Return a plan's world, and the messages of its ranks about the plan; (None, ()) if no recording of the plan
        is of that world.

        One rank may do again what another one does anew: both ask the others once, and then exchange the same cells.
        """
        if request.world is None:
            return None, ()
        world = self._grids.present(request.world, time.monotonic() + request.seconds)
        version = self._names.version(request.vrdds[plan.source])
        exchange = None if world is None else plan.recordings.exchange(version, world)
        return None if exchange is None else (exchange.world, exchange.world.agree(exchange.said))

    def _anew(self, request: Run, plan: DecodedPlan, payload: Payload | None,
              intake: ChunkedInput | None = None, waves: WaveSize | None = None) -> tuple[Ran, Payload | None]:
        with ExitStack() as stack:
            self._grids.await_turn(request.world, time.monotonic() + request.seconds, _WORLD_SECONDS)
            stack.enter_context(self._grids.turns(fills_ghosts=plan.fills_ghosts))
            wanted = waves is None and self._may_record(request, plan)
            if plan.plan.grid is not None or (wanted and plan.keeps):
                # It may write ghost cells that those under way read, or where they work.
                stack.enter_context(self._line.turn(alone=True))
            recording = self._recording(request, plan) if wanted else None
            answer = self._done_anew(request, plan, payload, intake, recording, waves)
            self._grids.turn_done(request.world)
            return answer

    def _recording(self, request: Run, plan: DecodedPlan) -> Recording:
        """Return a new recording for a pass of a plan."""
        if plan.branches:
            return LoopReplay(request, plan.source, self._names, plan.recordings.free())
        buffer_set = plan.recordings.free_set()
        return Recording(request, plan.source, self._names, () if buffer_set is None else (buffer_set,),
                         plan.recordings.lent(),
                         None if plan.keeps else Passages())

    def _done_anew(self, request: Run, plan: DecodedPlan, payload: Payload | None, intake: ChunkedInput | None,
                   recording: Recording | None, waves: WaveSize | None) -> tuple[Ran, Payload | None]:
        side_streams = 1 if recording else min(SIDE_STREAMS, len(plan.plan.inputs))
        streams = Streams(self._pool, side_streams, record=recording is not None,
                          line=self._line if recording and plan.keeps else None, timed=request.profile)
        try:
            world = self._joined(request, plan)
            return Execution(request, plan, payload, self._names, streams, self._box, self._grids, recording,
                             world, intake, waves).run()
        finally:
            streams.close()
            if recording is not None:
                self._keep(request, plan, recording)

    def _may_record(self, request: Run, plan: DecodedPlan) -> bool:
        """Return whether to record a plan, as it is likely to be repeated."""
        if request.profile or not plan.may_be_recorded or plan.source >= len(request.vrdds):
            return False
        if request.world is not None and (plan.branches or not plan.keeps):
            return False
        source = request.vrdds[plan.source]
        # The copies into patches are made once, and never again in a loop.
        return (plan.plan.grid is None or self._names.is_in_patches(source)) \
            and plan.recordings.wanted(self._names.version(source)) and (plan.keeps or self._plans.is_not_full)

    def _has_tried_patches(self, request: Run, plan: DecodedPlan) -> bool:
        """Return whether a plan may have tried, as it does once, to replace the blocks that it read by patches."""
        return request.world is None and 0 <= plan.source < len(request.vrdds) and \
            self._names.has_tried_patches(request.vrdds[plan.source])

    def _joined(self, request: Run, plan: DecodedPlan) -> JoinedWorld | None:
        """Return the MPI world of a plan, joining it if necessary."""
        wanted = request.world
        if wanted is not None and not self._grids.is_joined(wanted) and plan.source >= 0:
            # A process that lacks the data need not come, and the others need not wait until it did.
            self._names.require(request.vrdds[plan.source], [part.partition for part in plan.plan.inputs])
        now = time.monotonic()
        return self._grids.world(wanted, now + request.seconds, now + min(request.seconds, _WORLD_SECONDS))

    def _keep(self, request: Run, plan: DecodedPlan, recording: Recording) -> None:
        """Keep a recording, if it is complete and valid."""
        plan.recordings.refused |= recording.refused
        if recording.has_kept_lent:
            # Nothing may write again to where a result lies now.
            for each in plan.recordings.clear():
                self._close_recording(each)
        # Where a name changed while the plan ran, nobody knows which content it was recorded with.
        useful = recording.is_complete and recording.holds(self._names)
        if useful:
            self._plans.keep(plan, request.vrdds[plan.source], recording)
        for buffer_set in recording.buffer_sets:
            buffer_set.give()
            if not useful and buffer_set not in plan.recordings.buffer_sets:
                buffer_set.close()
        if not useful:
            self._close_recording(recording)

    def _close_recording(self, recording: Recording) -> None:
        with recording.lock:
            if recording.flight is not None:
                self._line.wait(recording.flight)
            recording.close(self._pool.give)

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
        self._moves.released(numbers)
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

    def _meet(self, request: Meet) -> tuple[Reply, list[int]]:
        try:
            check_nodes(request.workers)
        except NodeSilent as error:     # which the world's start meets again, and may be over by then
            log.info("%s", error)
        return Done(request.number), []

    def _open_world(self, request: OpenWorld) -> tuple[Reply, list[int]]:
        return WorldOpened(request.number, self._grids.open(request.world, request.exchange)), []

    def _report(self, request: Report) -> tuple[Reply, list[int]]:
        return self.report(request.number), []


def _advice(plan: DecodedPlan) -> str:
    """Return the advice for a plan that found no room by itself and, if it can, in waves; empty if there is none."""
    if plan.plan.grid is not None:
        return "; the blocks of a grid are on devices all at once, as each step needs their neighbours: more or " \
            "larger devices, or a smaller dtype, hold them"
    if plan.keeps_on_devices:
        return '; persist("GPU_AND_HOST") keeps in host memory what does not fit'
    if may_stream(plan):
        return "; a plan streams a partition by rows, or whole where a raw kernel or a step by key takes all of it, " \
            "and this and what its kernels write find no room together: more and smaller partitions do"
    return ""


def _check_count(request: Request, descriptors: list[int], wanted: tuple[int, ...]) -> None:
    """Refuse a request with another number of descriptors."""
    if len(descriptors) not in wanted:
        close_all(descriptors)
        raise ProtocolError(f"{type(request).__name__} came with {len(descriptors)} descriptors")
