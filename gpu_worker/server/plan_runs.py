"""Runs of a device process's plans: beside others or alone, replayed, recorded, in waves, on a world."""

from __future__ import annotations

import time
from contextlib import ExitStack, nullcontext
from dataclasses import replace

from gpu_worker.device.memory.admission import Admission
from gpu_worker.device.memory.registry import Registry
from gpu_worker.exchange.base import JoinedWorld
from gpu_worker.execution.executor import Execution
from gpu_worker.execution.grid.state import Grids, TakenByPlanes
from gpu_worker.execution.memory.payload_copies import PayloadCopies
from gpu_worker.execution.memory.scratch import Arguments
from gpu_worker.execution.memory.tier_moves import TierMoves
from gpu_worker.execution.plans.chunked_input import ChunkedInput
from gpu_worker.execution.plans.plan_cache import DecodedPlan, DecodedPlans
from gpu_worker.execution.plans.waves import WaveSize, least_free, may_stream
from gpu_worker.execution.replay.loop_replay import LoopReplay
from gpu_worker.execution.replay.recording import Recording
from gpu_worker.execution.scheduling.in_flight import InFlightQueue, Submission
from gpu_worker.execution.scheduling.streams import SIDE_STREAMS, StreamPool, Streams
from gpu_worker.protocol.errors import OutOfMemory, WorldLost
from gpu_worker.protocol.messages import Ran, Run
from gpu_worker.protocol.payload import Payload
from gpu_worker.system.crash_record import CrashRecorder

#: How long an MPI world may take to come to be, in seconds.
_WORLD_SECONDS = 30.0

#: How many VRDDs an error names that hold a device's memory.
_SHOWN = 3

#: How much smaller pieces of a partition are where those of a wave's size find no room.
_SMALLER = 4


class PlanRuns:
    """Runner of a session's plans.

    Parameters
    ----------
    names : Registry
        The session's partitions on this node.
    pool : StreamPool
        Its devices.
    grids : Grids
        The worlds of its grids.
    recorder : CrashRecorder
        Where running kernels are noted.
    line : InFlightQueue
        The repeated plans that are under way.

    Attributes
    ----------
    plans : DecodedPlans
        The plans that are known, with their recordings.
    admission : Admission
        Which plans have memory beside others.
    moves : TierMoves
        Moves of partitions between devices, host and disk.
    repeated : int
        How many plans were replayed.
    """

    def __init__(self, names: Registry, pool: StreamPool, grids: Grids, recorder: CrashRecorder, line: InFlightQueue):
        self._names, self._pool, self._grids, self._recorder, self._line = names, pool, grids, recorder, line
        self.plans = DecodedPlans(self._close_recording)
        self.admission = Admission()
        self.moves = TierMoves(names, pool)
        self.repeated = 0

    def run(self, request: Run, plan: DecodedPlan, payload: Payload | None,
            chunked: ChunkedInput | None) -> tuple[Ran, Payload | None] | Submission:
        """Run a plan beside others; by itself, with all memory that can be had, where it finds no room beside them."""
        self._promoted(request, chunked)
        # What came in pieces was admitted with the first of them, and a plan of several nodes never waits for one node.
        admitted = nullcontext() if chunked or request.world else self.admission.among_others(request.seconds)
        with admitted:
            try:
                return self._replay_or_run(request, plan, payload, chunked)
            except OutOfMemory as error:
                # What came in pieces is used up.
                if request.pieces:
                    raise
                failed, place, is_crowded = error, error.place, self.admission.is_crowded
        try:
            if request.world is not None:
                if not (self.plans.forget() or self._has_tried_patches(request, plan)
                        or self._streams_more(request, plan)):
                    raise failed
                raise WorldLost("a plan begins anew on all nodes, as here it takes less memory at once, or that was "
                                f"given back in which others worked: {failed.message}", failed.place) from failed
            with self.admission.alone(request.seconds):
                may_fit = self.plans.forget() or self._has_tried_patches(request, plan) or is_crowded
                sizes: list[WaveSize | None] = [None] if may_fit else []
                if self._may_stream(request, plan):
                    sizes += self._sizes()
                for size in sizes:
                    try:
                        return self._run_anew(request, plan, payload, waves=size)
                    except OutOfMemory as error:
                        failed = error
                size, most = sizes[-1] if sizes else None, 1
                while self.moves.demote(most):
                    try:
                        return self._run_anew(request, plan, payload, waves=size)
                    except OutOfMemory as error:
                        failed, most = error, 2 * most
            # What is copied in for a wave belongs to no step; the plan as a whole failed in one.
            # Where the room of an option is short, the message says that already.
            more = "" if "spark.vispark." in failed.message else _advice(plan) + self._held_on_devices()
            raise OutOfMemory(failed.message + more, failed.place if failed.place.operation else place) from failed
        finally:
            # Its frames have the plan's payload, and this one is of them: the two would stay until Python collects
            # garbage, which an idle process does not.
            del failed

    def _held_on_devices(self) -> str:
        """Return the VRDDs that hold most of the devices' memory, for errors; empty if there are none."""
        devices = {device.name for device in self._pool.devices}
        lines = [line for line in self._names.report()[0] if devices & set(line.device.split(", "))]
        most = sorted(lines, key=lambda line: -line.nbytes)[:_SHOWN]
        shown = ", ".join(f"VRDD {line.vrdd} {line.name} ({line.nbytes:,} bytes)" for line in most)
        return f"; held there: {shown}, until uncache()" if shown else ""

    def _replay_or_run(self, request: Run, plan: DecodedPlan, payload: Payload | None,
                       chunked: ChunkedInput | None) -> tuple[Ran, Payload | None] | Submission:
        """Replay a plan, or run it anew: by planes of a grid, if another node of its world does so."""
        try:
            return self._again(request, plan, payload) or self._run_anew(request, plan, payload, chunked,
                                                                         self._wave_size(request, plan))
        except TakenByPlanes:
            return self._run_anew(request, plan, payload, waves=self._sizes()[0])

    def _promoted(self, request: Run, chunked: ChunkedInput | None) -> None:
        """Move what has room on devices now back there, where no plan runs that might have to wait for its memory."""
        if not self.moves.may_promote or chunked or request.world:
            return
        with self.admission.alone(request.seconds):
            self.moves.promote()

    def _stream_bytes(self) -> int:
        """Return the bytes of a wave on the smallest device."""
        return min([self._names.tiers.stream_bytes(device) for device in self._pool.devices], default=0)

    def _sizes(self) -> list[WaveSize]:
        """Return the sizes of waves, in the order in which they are tried."""
        stream = self._stream_bytes()
        return [WaveSize(stream, stream), WaveSize(0, stream // _SMALLER, ahead=False)]

    def _streams_more(self, request: Run, plan: DecodedPlan) -> bool:
        """Have a plan of several nodes run in the next smaller waves from now on; return whether there are any."""
        if not self._may_stream(request, plan):
            return False
        plan.wave_sizes = (plan.wave_sizes + 1) % (len(self._sizes()) + 1)
        return plan.wave_sizes > 0

    def _may_stream(self, request: Run, plan: DecodedPlan) -> bool:
        """Return whether a plan can run in waves here; on a grid if all of its blocks are below devices."""
        if not may_stream(plan):
            return False
        return plan.plan.grid is None or (0 <= plan.source < len(request.vrdds) and all(
            array.host is not None for value in self._names.held(request.vrdds[plan.source]) for array in value.arrays))

    def _wave_size(self, request: Run, plan: DecodedPlan) -> WaveSize | None:
        """Return the size of the waves for a plan that has to copy in more than half of the free memory; None where all
        fits.
        """
        if not self._may_stream(request, plan) or not 0 <= plan.source < len(request.vrdds):
            return None
        if plan.wave_sizes:
            return self._sizes()[plan.wave_sizes - 1]
        missing, free = least_free(self._names.held(request.vrdds[plan.source]))
        return self._sizes()[0] if 2 * missing > free else None

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
            self.repeated += 1
            try:
                return recording.run(request, arguments, self._recorder, self._names, self._line)
            finally:
                recording.lock.release()
        if plan.recordings.is_empty:
            return None
        self._grids.await_turn(request.world, time.monotonic() + request.seconds, _WORLD_SECONDS)
        with self._grids.turns(fills_ghosts=plan.fills_ghosts), self._line.turn(alone=plan.branches):
            states = self._node_states(request, plan)
            recording = states and plan.recordings.find(request, arguments, self._names, plan.source, *states)
            if recording is None:
                return None
            started = time.monotonic()
            try:
                flight = recording.begin(request, arguments, self._recorder, self._names, self._line)
            finally:
                recording.lock.release()
            if flight is not None:
                self._grids.turn_done(request.world)
                self.repeated += 1
                return flight
            for other in plan.recordings.discard(recording):
                self._close_recording(other)
        return self._run_anew(replace(request, seconds=request.seconds - (time.monotonic() - started)), plan, payload)

    def _node_states(self, request: Run, plan: DecodedPlan) -> tuple[JoinedWorld | None, tuple[bytes, ...]] | None:
        """Return a plan's world, and the messages of its ranks about the plan; (None, ()) if no recording of the plan
        is of that world.

        One rank may do again what another one does anew: both ask the others once, and then exchange the same cells.
        """
        if request.world is None:
            return None, ()
        world = self._grids.present(request.world, time.monotonic() + request.seconds)
        version = self._names.version(request.vrdds[plan.source])
        exchange = None if world is None else plan.recordings.exchange(version, world)
        return None if exchange is None else (exchange.world, exchange.world.allgather_state(exchange.said))

    def _run_anew(self, request: Run, plan: DecodedPlan, payload: Payload | None,
                  chunked: ChunkedInput | None = None, waves: WaveSize | None = None) -> tuple[Ran, Payload | None]:
        with ExitStack() as stack:
            self._grids.await_turn(request.world, time.monotonic() + request.seconds, _WORLD_SECONDS)
            stack.enter_context(self._grids.turns(fills_ghosts=plan.fills_ghosts))
            records = waves is None and self._may_record(request, plan)
            if plan.plan.grid is not None or (records and plan.keeps):
                # It may write ghost cells that those under way read, or where they work.
                stack.enter_context(self._line.turn(alone=True))
            recording = self._recording(request, plan) if records else None
            answer = self._done_anew(request, plan, payload, chunked, recording, waves)
            self._grids.turn_done(request.world)
            return answer

    def _recording(self, request: Run, plan: DecodedPlan) -> Recording:
        """Return a new recording for a pass of a plan."""
        if plan.branches:
            return LoopReplay(request, plan.source, self._names, plan.recordings.free())
        buffer_set = plan.recordings.free_set()
        return Recording(request, plan.source, self._names, () if buffer_set is None else (buffer_set,),
                         plan.recordings.lent(),
                         None if plan.keeps else PayloadCopies())

    def _done_anew(self, request: Run, plan: DecodedPlan, payload: Payload | None, chunked: ChunkedInput | None,
                   recording: Recording | None, waves: WaveSize | None) -> tuple[Ran, Payload | None]:
        side_streams = 1 if recording else min(SIDE_STREAMS, len(plan.plan.inputs))
        streams = Streams(self._pool, side_streams, record=recording is not None,
                          line=self._line if recording and plan.keeps else None, timed=request.profile)
        try:
            world = self._joined(request, plan)
            return Execution(request, plan, payload, self._names, streams, self._recorder, self._grids, recording,
                             world, chunked, waves).run()
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
            and plan.recordings.comes_again(self._names.version(source)) and (plan.keeps or self.plans.is_not_full)

    def _has_tried_patches(self, request: Run, plan: DecodedPlan) -> bool:
        """Return whether a plan may have tried, as it does once, to replace the blocks that it read by patches."""
        return request.world is None and 0 <= plan.source < len(request.vrdds) and \
            self._names.has_tried_patches(request.vrdds[plan.source])

    def _joined(self, request: Run, plan: DecodedPlan) -> JoinedWorld | None:
        """Return the MPI world of a plan, joining it if necessary."""
        world = request.world
        if world is not None and not self._grids.is_joined(world) and plan.source >= 0:
            # A process that lacks the data need not come, and the others need not wait until it did.
            self._names.require(request.vrdds[plan.source], [part.partition for part in plan.plan.inputs])
        now = time.monotonic()
        return self._grids.world(world, now + request.seconds, now + min(request.seconds, _WORLD_SECONDS))

    def _keep(self, request: Run, plan: DecodedPlan, recording: Recording) -> None:
        """Keep a recording, if it is complete and valid."""
        plan.recordings.refused |= recording.refused
        if recording.has_kept_lent:
            # Nothing may write again to where a result lies now.
            for other in plan.recordings.clear():
                self._close_recording(other)
        # Where a name changed while the plan ran, nobody knows which content it was recorded with.
        useful = recording.is_complete and recording.holds(self._names)
        if useful:
            self.plans.keep(plan, request.vrdds[plan.source], recording)
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


def _advice(plan: DecodedPlan) -> str:
    """Return the advice for a plan that found no room by itself and, if it can, in waves; empty if there is none."""
    if plan.plan.grid is not None:
        if may_stream(plan) and not all(step.by_planes for step in plan.steps[1:]):
            return "; a fold over the cells takes a block that is alone in its partition by some of its planes, and " \
                'else as a whole, from host memory with persist("GPU_AND_HOST"): more partitions, or more blocks by ' \
                "splits= of the Grid, find room"
        return "; the blocks of a grid are on devices all at once, as each step needs their neighbours: more or " \
            'larger devices, or a smaller dtype, hold them, and persist("GPU_AND_HOST") in host memory, from where ' \
            "steps take planes of them"
    if plan.keeps_on_devices:
        return '; persist("GPU_AND_HOST") keeps in host memory what does not fit'
    if may_stream(plan):
        return "; a plan streams a partition by rows, or whole where a raw kernel sees all of it, and takes the " \
            "records of one key together, and these and what is written find no room: more and smaller partitions do"
    return ""
