"""Recordings of repeated plans: their work on the devices is recorded once and then replayed.

A recording holds for as long as what it reads lies where it lay, and the values in its slots have the same types. It
keeps what the plan allocated, tables of launches among it, so addresses stay as they are. What does change from one
pass to the next, array arguments and values, is put where the noted work finds it. What a plan keeps it writes into a
:class:`~gpu_worker.device.memory.double_buffer.BufferSet`: a loop has a recording for each buffer set that it reads
from and writes to in turn.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import asdict
from functools import partial

import numpy as np

from gpu_worker.device.base import Buffer, Device, Stream
from gpu_worker.device.memory.double_buffer import BoundBuffers, BufferSet
from gpu_worker.device.memory.partition import Partition
from gpu_worker.device.memory.registry import Registry
from gpu_worker.exchange.base import JoinedWorld
from gpu_worker.execution.memory.payload_copies import PayloadCopies
from gpu_worker.execution.replay.recorded_pass import (
    FixedValues,
    GhostTags,
    GridOutcome,
    Origin,
    PassResult,
    RecordedMemory,
    RecordedPass,
    ReplayedPass,
    SlotValues,
)
from gpu_worker.execution.scheduling.in_flight import InFlightQueue, Submission
from gpu_worker.execution.scheduling.streams import MAIN, Streams
from gpu_worker.protocol.errors import KernelFault, Place, VisparkError, WorldLost
from gpu_worker.protocol.messages import Ran, Run, Times
from gpu_worker.protocol.payload import INLINE_BYTES, Data, Payload
from gpu_worker.system.abandoned_kernels import Watched
from gpu_worker.system.crash_record import CrashRecorder
from gpu_worker.system.failpoints import failpoint

#: The most device memory that a recording may hold on to beside what its plan keeps, and what a plan that keeps
#: something works in, in bytes.
MOST_BYTES = 512 << 20

#: The most launches and copies that a recording may have.
MOST_WORK = 10_000

#: Gives the binding that lies where another one does, if there is one.
Alike = Callable[[BoundBuffers], BoundBuffers]


class Recording:
    """Record of the device work of one pass of a plan, replayable for later passes.

    Parameters
    ----------
    request : Run
        The pass.
    source : int
        The slot of the VRDD that the plan reads.
    names : Registry
        Where that is held.
    buffer_sets : sequence of BufferSet
        What the plan keeps is to lie here, in one where it cannot lie in another; they are held.
    lent : mapping of int to Buffer
        What other recordings of the plan work in, by the number of the allocation; the recording's to close. They are
        never under way at once.
    copies : PayloadCopies, optional
        Where its passes are waited for, and what is large is copied straight from and to their payloads.
    """

    def __init__(self, request: Run, source: int, names: Registry, buffer_sets: Sequence[BufferSet] = (),
                 lent: Mapping[int, Buffer] | None = None, copies: PayloadCopies | None = None):
        self.lock = threading.Lock()
        self.copies = copies
        self.origin = Origin(source, request.vrdds[source], names)
        self.buffer_sets = list(buffer_sets)
        self.bindings: dict[int, BoundBuffers] = {}
        #: What its steps on a grid did.
        self.grid = GridOutcome()
        #: When it was last made or found, on the monotonic clock.
        self.used = time.monotonic()
        #: The last pass that was begun.
        self.flight: Submission | None = None
        #: Whether it turned out not to be of use.
        self.refused = False
        #: Whether what it keeps lies where others were to work.
        self.has_kept_lent = False
        self._values = FixedValues(request.values)
        self._memory = RecordedMemory(dict(lent or {}))
        #: How ghost cells were filled before: of a new buffer set in no way that it relies on.
        self._ghosts = GhostTags((*self._set_buffers(), *self._memory.lent.values()))
        self._pass: RecordedPass | None = None

    @property
    def version(self) -> int:
        """The version of the content that it reads."""
        return self.origin.version

    @property
    def source(self) -> BoundBuffers | None:
        """The content that it reads, where that is filled again and again itself."""
        return self.origin.binding

    @property
    def workspace(self) -> dict[int, Buffer]:
        """The buffers that the plan works in and does not keep, by number of the allocation, of one that keeps
        something.
        """
        return self._memory.workspace

    # -- while the plan runs ------------------------------------------------------------------------------------------

    def host(self, nbytes: int, device: Device) -> np.ndarray:
        """Return host memory at a fixed address, which is fast to copy from and to."""
        return self._memory.host(nbytes, device)

    def stage(self, slot: int, data: np.ndarray, device: Device) -> np.ndarray:
        """Return host memory with an array argument, from which each replay copies the argument."""
        return self._memory.stage(slot, data, device)

    def fix(self, slot: int, data: bytes) -> None:
        """Restrict the recording to this value in a slot, as the work depends on it."""
        self._values.fixed[slot] = data

    def given(self, place: int, nbytes: int, device: Device) -> Buffer | None:
        """Return the buffer for the plan's allocation of this number, from a buffer set or the workspace, shared with
        the caller.
        """
        buffer = next((buffer_set.buffers[place] for buffer_set in self.buffer_sets if place in buffer_set.buffers),
                      self._memory.lent.get(place))
        return buffer.share() if buffer and buffer.nbytes == nbytes and buffer.device is device else None

    def reads(self, partition: Partition) -> None:
        """Record the partition that the plan starts from."""
        self._ghosts.reads(partition)

    def keep(self, kept: Mapping[tuple[int, str], Sequence[Partition]], allocated: Mapping[int, Buffer],
             alike: Alike) -> None:
        """Bind the plan's kept results, by slot and name, to buffers that the recording holds from now on.

        ``allocated`` are the buffers that it worked in, by the number of the allocation that gave each last. ``alike``
        gives the binding that lies where another one does, if there is one.
        """
        buffers = {array.buffer for partitions in kept.values() for partition in partitions
                   for array in partition.arrays if array.buffer is not None}
        fresh = {place: buffer for place, buffer in allocated.items() if buffer in buffers and buffer.nbytes}
        if not self.buffer_sets:
            self.buffer_sets.append(BufferSet(fresh))
            self.buffer_sets[0].hold()
        self.has_kept_lent = any(buffer in buffers for buffer in self._memory.lent.values())
        self.refused |= fresh != self.buffer_sets[0].buffers
        self._memory.workspace = {place: buffer.share() for place, buffer in allocated.items()
                                  if buffer not in buffers and buffer.nbytes}
        for (slot, name), partitions in kept.items():
            self.bindings[slot] = self._binding(name, partitions, alike)

    def _binding(self, name: str, partitions: Sequence[Partition], alike: Alike) -> BoundBuffers:
        """Return the buffers of a kept result, held from now on; equal buffers of another recording if there are some.
        """
        binding = BoundBuffers(name, partitions, (*self.buffer_sets, *(self.source.buffer_sets if self.source else ())))
        binding.hold()
        earlier = alike(binding)
        earlier.hold()
        binding.drop()
        return earlier

    def _set_buffers(self) -> list[Buffer]:
        """Return the buffers of the buffer sets."""
        return [buffer for buffer_set in self.buffer_sets for buffer in buffer_set.buffers.values()]

    @property
    def ends(self) -> list[BoundBuffers]:
        """All results that the recording may keep."""
        return list(self.bindings.values())

    def fail(self) -> None:
        """Take the buffer sets back from a failed plan."""
        for buffer_set in self.buffer_sets:
            buffer_set.reclaim()

    def complete(self, streams: Streams, buffers: Sequence[Buffer], place: Place, answer: PassResult) -> None:
        """Keep the recorded work of a plan that is done, unless it would hold too much memory."""
        own = {*self.workspace.values(), *self._set_buffers()}
        needed = [buffer for buffer in buffers if buffer not in own]
        self.refused |= sum(buffer.nbytes for buffer in needed) > MOST_BYTES or len(streams.noted) > MOST_WORK
        if self.refused or self.has_kept_lent:
            return
        self._memory.buffers = [buffer.share() for buffer in needed]
        self._ghosts.complete(own)
        self._pass = RecordedPass(streams.recorded(streams.noted), streams.keep(), place, answer)

    @property
    def is_complete(self) -> bool:
        """Whether there is recorded work to replay."""
        return self._pass is not None

    @property
    def work(self) -> RecordedPass:
        """The recorded work of a complete recording."""
        assert self._pass is not None
        return self._pass

    @property
    def nbytes(self) -> int:
        """Device memory that the recording holds, beside the plan's kept results and its workspace."""
        return sum([buffer.nbytes for buffer in self._memory.buffers])

    # -- at every further pass ----------------------------------------------------------------------------------------

    def holds(self, names: Registry) -> bool:
        """Return whether the content to read is that which the recording was made from."""
        return names.version(self.origin.vrdd) == self.version

    def is_of(self, world: JoinedWorld | None, states: tuple[bytes, ...]) -> bool:
        """Return whether the other nodes, if there are any, replay their parts of the same recording."""
        exchange = self.grid.exchange
        if exchange is None or world is None:
            return exchange is None and world is None
        return exchange.world is world and exchange.holds(states)

    def fits(self, request: Run, arguments: SlotValues, names: Registry) -> bool:
        """Return whether the plan can be replayed with these values, and reserve the recording; :meth:`run` must
        follow, or :meth:`begin` if results are kept.
        """
        if self.grid.has_filled or not self._values.fit(request.values, arguments) or not self._ghosts.hold():
            return False
        vrdd = request.vrdds[self.origin.slot]
        if not names.borrow({vrdd: self.version}):
            return False
        reserved = [buffer_set for buffer_set in self.buffer_sets if buffer_set.take()]
        if len(reserved) < len(self.buffer_sets):
            for buffer_set in reserved:
                buffer_set.give()
            names.give_back((vrdd,))
            return False
        return True

    def run(self, request: Run, arguments: SlotValues, recorder: CrashRecorder, names: Registry,
            line: InFlightQueue) -> tuple[Ran, Payload | None]:
        """Replay the pass of an action; return the reply, and the payload if the result is too large for the reply.

        Raises
        ------
        KernelFault
            If a kernel has failed.
        """
        started, vrdd, placed, copies = time.monotonic(), request.vrdds[self.origin.slot], 0, self.copies
        streams, place = self.work.streams, self.work.place
        self.work.begin_busy()
        try:
            current = streams[0][0].active() if streams else nullcontext()
            goes_on = any(device.asynchronous for device, _ in streams)
            watched = Watched(lambda: place, int) if goes_on else None
            with recorder.running(place, started + request.seconds, watched), current:
                if names.is_incomplete(vrdd):
                    for device, stream in streams:
                        device.order(line.stream(device, MAIN), stream=stream, of=device)
                self._enqueue(arguments)
                result = copies.end(arguments.payload, request.results) if copies else None
                for device, stream in streams:
                    device.synchronize(stream=stream)
            failpoint("fetched")
            placed = copies.placed(result) if copies else 0
            outputs, folded, data = self.work.answer()
            failpoint("computed")
        except KernelFault as fault:
            raise fault.at(**asdict(place)) from fault.__cause__
        finally:
            self.work.end_busy()
            names.give_back((vrdd,))
        failpoint("bound")
        payload, inline = None, b""
        if not placed:
            payload, inline, placed = place_result(data, request, arguments.payload)
        times = Times(time.monotonic() - started, 0.0)
        return Ran(request.number, outputs, folded, False, times, inline, placed=placed), payload

    def begin(self, request: Run, arguments: SlotValues, recorder: CrashRecorder, names: Registry,
              line: InFlightQueue) -> Submission | None:
        """Start a replay within a turn of the queue; its kept results are bound before they are complete. Return None
        if the plan has to run anew, as it goes on in a way that was not recorded.

        Raises
        ------
        KernelFault
            If a kernel has failed.
        WorldLost
            If another node is lost.
        """
        vrdd, flight, is_lent = request.vrdds[self.origin.slot], None, False
        try:
            flight = self._start(request, arguments, recorder, names, line)
            if flight is not None:
                failpoint("bound")
                line.push(flight)
                is_lent = self.source is None   # until it is complete; else whoever writes there does so behind it
        finally:
            if not is_lent:
                names.give_back((vrdd,))
        return flight

    def _start(self, request: Run, arguments: SlotValues, recorder: CrashRecorder, names: Registry,
               line: InFlightQueue) -> Submission | None:
        """Enqueue a replay, and bind its results, in buffer sets that are held until then; as :meth:`begin`."""
        where, is_bound = self.work.place, False
        place = Place(names.called(request.vrdds[self.origin.slot]), where.partition, where.operation, where.device)
        self.work.begin_busy()                  # until it is complete
        try:
            if self._memory.staged and self.flight is not None:
                line.wait(self.flight)          # its copies may not have been made
            with recorder.running(place, time.monotonic() + request.seconds):
                replayed = self._replayed(arguments, place)
            if replayed is None:
                return None
            failpoint("computed")
            flight = self.flight = self._submission(request, place, names, replayed)
            wait = None if flight.has_passed else partial(line.wait, flight)
            for slot, binding in replayed.bindings.items():
                names.bind_all(request.vrdds[slot], binding, wait)
            is_bound = True
            return flight
        finally:
            if not is_bound:
                self.work.end_busy()
            for buffer_set in self.buffer_sets:
                buffer_set.give()

    def _replayed(self, arguments: SlotValues, place: Place) -> ReplayedPass | None:
        """Enqueue the recorded work; return the pass that is under way then, or None if the plan has to run anew."""
        try:
            self._enqueue(arguments)
        except WorldLost:
            for device, stream in self.work.streams:
                with suppress(VisparkError):
                    device.synchronize(stream=stream)
            raise
        for device, stream in self.work.streams:
            device.query(stream=stream)
        return ReplayedPass(self.bindings, self.grid.iterated, self._ghosts.after, time.monotonic(),
                            [(device, stream, device.mark(stream=stream)) for device, stream in self.work.streams])

    def _submission(self, request: Run, place: Place, names: Registry, replayed: ReplayedPass) -> Submission:
        """Return the submission of a pass, which holds the content that the pass works on."""
        for buffer, ghosts in replayed.ghosts.items():
            buffer.ghosts = ghosts
        bindings = [*replayed.bindings.values(), *([self.source] if self.source else [])]
        for binding in bindings:
            binding.hold()
        bound = [request.vrdds[slot] for slot in replayed.bindings]
        borrowed = [] if self.source else [request.vrdds[self.origin.slot]]
        return Submission(place, request.seconds, request.number, replayed.iterated, replayed.marks,
                          partial(self._complete, self.work, names, bound, borrowed, bindings), replayed.started)

    @staticmethod
    def _complete(work: RecordedPass, names: Registry, bound: Sequence[int], borrowed: Sequence[int],
                bindings: Sequence[BoundBuffers]) -> None:
        """Mark bound partitions as complete, and return what the pass borrowed and the buffers that it held."""
        work.end_busy()
        names.mark_complete(bound)
        names.give_back(borrowed)
        for binding in bindings:
            binding.drop()

    def _enqueue(self, arguments: SlotValues) -> None:
        self._memory.restage(arguments)
        if self.copies is not None:
            self.copies.begin(arguments)
        failpoint("launching")
        self.work.start(arguments)

    def close(self, give: Callable[[Device, Stream], None]) -> None:
        """Close the recording's buffers and give its own streams to ``give``; not while a replay is in flight."""
        if self._pass is not None:
            self._pass.close(give, has_own_streams=not self.buffer_sets)
        self._memory.close()
        for binding in self.bindings.values():
            binding.drop()
        self.bindings, self._pass = {}, None


def place_result(data: Data | None, request: Run, payload: Payload | None) -> tuple[Payload | None, bytes, int]:
    """Place a result: return (separate payload, inline bytes, bytes written into the request's payload)."""
    if data is None or isinstance(data, Payload):
        return data, b"", 0
    if data.size <= INLINE_BYTES:
        return None, data.array.tobytes(), 0
    if payload is not None and 0 <= request.results <= payload.size - data.size:
        payload.view(request.results, data.size)[:] = data.array
        return None, b"", data.size
    beside = Payload.create(data.size)
    beside.put(0, data.array)
    return beside, b"", 0
