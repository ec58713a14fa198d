"""Recordings of repeated plans: their work on the devices is recorded once and then replayed.

A recording holds for as long as what it reads lies where it lay, and the values in its slots have the same types. It
keeps what the plan allocated, tables of launches among it, so addresses stay as they are. What does change from one
pass to the next, array arguments and values, is put where the noted work finds it. What a plan keeps it writes into a
:class:`~gpu_worker.memory.double_buffer.BufferSet`: a loop has a recording for each buffer set that it reads from and
writes to in turn.
"""

from __future__ import annotations

import itertools
import mmap
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import replace
from functools import partial
from typing import Protocol

import numpy as np

from gpu_worker.device.base import Buffer, Device, RecordedWork, Stream
from gpu_worker.execution.in_flight import InFlightQueue, Submission
from gpu_worker.execution.payload_copies import Passages
from gpu_worker.execution.streams import MAIN, Streams
from gpu_worker.memory.double_buffer import BoundBuffers, BufferSet
from gpu_worker.memory.partition import Partition
from gpu_worker.memory.registry import Registry
from gpu_worker.protocol.errors import KernelFault, Place, VisparkError, WorldLost
from gpu_worker.protocol.grids import Iterated
from gpu_worker.protocol.messages import ArgumentValue, Folded, Output, Ran, Run, Times
from gpu_worker.protocol.payload import INLINE_BYTES, Data, Payload
from gpu_worker.protocol.system import system_call
from gpu_worker.system.crash_record import BlackBox
from gpu_worker.system.failpoints import failpoint
from gpu_worker.worlds.base import JoinedWorld, RecordedExchange

#: The most device memory that a recording may hold on to beside what its plan keeps, and what a plan that keeps
#: something works in, in bytes.
MOST_BYTES = 512 << 20

#: The most launches and copies that a recording may have.
MOST_WORK = 10_000

Answer = Callable[[], tuple[tuple[Output, ...], Folded | None, Data | None]]


class SlotValues(Protocol):
    """Interface of a request's slot values: payload, array bytes, fixed values and numbers."""

    @property
    def payload(self) -> Payload | None: ...
    def data(self, slot: int) -> np.ndarray: ...
    def fixed(self, slot: int) -> bytes: ...
    def number(self, slot: int) -> np.generic: ...


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
    passages : Passages, optional
        Where its passes are waited for, and what is large is copied straight from and to their payloads.
    """

    def __init__(self, request: Run, source: int, names: Registry, buffer_sets: Sequence[BufferSet] = (),
                 lent: Mapping[int, Buffer] | None = None, passages: Passages | None = None):
        self.lock = threading.Lock()
        self.passages = passages
        self.slot = source
        self.version = names.version(request.vrdds[source])
        #: What it reads, where that is filled again and again itself.
        self.source = names.binding(request.vrdds[source])
        self.buffer_sets = list(buffer_sets)
        self.bindings: dict[int, BoundBuffers] = {}
        #: What the plan works in and does not keep, by the number of the allocation; of one that keeps something.
        self.workspace: dict[int, Buffer] = {}
        #: What it does together with other nodes; None where it is alone.
        self.exchange: RecordedExchange | None = None
        #: How the plan's loops ended.
        self.iterated: tuple[Iterated, ...] = ()
        self._lent = dict(lent or {})
        self._reads = request.vrdds[source]
        self._shapes = _shapes(request.values)
        self._staged: dict[int, np.ndarray] = {}
        self._fixed: dict[int, bytes] = {}
        self._pinned: list[tuple[Device, np.ndarray]] = []
        self._buffers: list[Buffer] = []
        self._streams: list[tuple[Device, Stream]] = []
        self._work: list[RecordedWork] = []
        self._place = Place()
        self._answer: Answer | None = None
        #: When it was last made or found, on the monotonic clock.
        self.used = time.monotonic()
        #: The last pass that was begun.
        self.flight: Submission | None = None
        #: How the ghost cells of what it writes were filled before: of a new buffer set in no way that it relies on.
        self._before = {buffer: buffer.ghosts for buffer in (*self._set_buffers(), *self._lent.values())}
        #: The same of what it reads.
        self._found: dict[Buffer, tuple | None] = {}
        self._after: dict[Buffer, tuple | None] = {}
        #: Whether it turned out not to be of use.
        self.refused = False
        #: Whether the plan filled ghost cells that are there from now on: then it is noted once more, without that.
        self.has_filled = False
        #: Whether what it keeps lies where others were to work.
        self.has_kept_lent = False

    # -- while the plan runs ------------------------------------------------------------------------------------------

    def host(self, nbytes: int, device: Device) -> np.ndarray:
        """Return host memory at a fixed address, which is fast to copy from and to."""
        with system_call(f"{nbytes:,} bytes of memory"):
            memory = mmap.mmap(-1, max(nbytes, 1))
        array = np.frombuffer(memory, np.uint8)[:nbytes]
        device.pin(array)
        self._pinned.append((device, array))
        return array

    def stage(self, slot: int, data: np.ndarray, device: Device) -> np.ndarray:
        """Return host memory with an array argument, from which each replay copies the argument."""
        if slot not in self._staged:
            self._staged[slot] = self.host(data.nbytes, device)
            self._staged[slot][:] = data
        return self._staged[slot]

    def fix(self, slot: int, data: bytes) -> None:
        """Restrict the recording to this value in a slot, as the work depends on it."""
        self._fixed[slot] = data

    def given(self, place: int, nbytes: int, device: Device) -> Buffer | None:
        """Return the buffer for the plan's allocation of this number, from a buffer set or the workspace, shared with
        the caller.
        """
        buffer = next((buffer_set.buffers[place] for buffer_set in self.buffer_sets if place in buffer_set.buffers),
                      self._lent.get(place))
        return buffer.share() if buffer and buffer.nbytes == nbytes and buffer.device is device else None

    def reads(self, partition: Partition) -> None:
        """Record the partition that the plan starts from."""
        for array in partition.arrays:
            if array.buffer is not None:
                self._found[array.buffer] = array.buffer.ghosts

    def keep(self, kept: Mapping[tuple[int, str], Sequence[Partition]], allocated: Mapping[int, Buffer],
             alike: Callable[[BoundBuffers], BoundBuffers]) -> None:
        """Bind the plan's kept results, by slot and name, to buffers that the recording holds from now on.

        ``allocated`` are the buffers that it worked in, by the number of the allocation that gave each last. ``alike``
        gives the binding that lies where another one does, if there is one.
        """
        found = {array.buffer for partitions in kept.values() for partition in partitions
                 for array in partition.arrays if array.buffer is not None}
        fresh = {place: buffer for place, buffer in allocated.items() if buffer in found and buffer.nbytes}
        if not self.buffer_sets:
            self.buffer_sets.append(BufferSet(fresh))
            self.buffer_sets[0].hold()
        self.has_kept_lent = any(buffer in found for buffer in self._lent.values())
        self.refused |= fresh != self.buffer_sets[0].buffers
        self.workspace = {place: buffer.share() for place, buffer in allocated.items()
                          if buffer not in found and buffer.nbytes}
        for (slot, name), partitions in kept.items():
            self.bindings[slot] = self._binding(name, partitions, alike)

    def _binding(self, name: str, partitions: Sequence[Partition],
                 alike: Callable[[BoundBuffers], BoundBuffers]) -> BoundBuffers:
        """Return the buffers of a kept result, held from now on; equal buffers of another recording if there are some.
        """
        binding = BoundBuffers(name, partitions, (*self.buffer_sets, *(self.source.buffer_sets if self.source else ())))
        binding.hold()
        known = alike(binding)
        known.hold()
        binding.drop()
        return known

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

    def complete(self, streams: Streams, buffers: Sequence[Buffer], place: Place, answer: Answer) -> None:
        """Keep the recorded work of a plan that is done, unless it would hold too much memory."""
        own = {*self.workspace.values(), *self._set_buffers()}
        needed = [buffer for buffer in buffers if buffer not in own]
        self.refused |= sum(buffer.nbytes for buffer in needed) > MOST_BYTES or len(streams.noted) > MOST_WORK
        if self.refused or self.has_kept_lent:
            return
        self._buffers = [buffer.share() for buffer in needed]
        self._place, self._answer = place, answer
        self._after = {buffer: buffer.ghosts for buffer in (*self._found, *own)}
        # What was not known then is done again, whether it is by now or not.
        self._found = {buffer: ghosts for buffer, ghosts in self._found.items() if ghosts is not None}
        self._before = {buffer: ghosts for buffer, ghosts in self._before.items() if ghosts is not None}
        self._work, self._streams = streams.recorded(streams.noted), streams.keep()

    @property
    def is_complete(self) -> bool:
        """Whether there is recorded work to replay."""
        return self._answer is not None

    @property
    def nbytes(self) -> int:
        """Device memory that the recording holds, beside the plan's kept results and its workspace."""
        return sum([buffer.nbytes for buffer in self._buffers])

    # -- at every further pass ----------------------------------------------------------------------------------------

    def holds(self, names: Registry) -> bool:
        """Return whether the content to read is that which the recording was made from."""
        return names.version(self._reads) == self.version

    def is_of(self, world: JoinedWorld | None, agreed: tuple[bytes, ...]) -> bool:
        """Return whether the other nodes, if there are any, replay their parts of the same recording."""
        if self.exchange is None or world is None:
            return self.exchange is None and world is None
        return self.exchange.world is world and self.exchange.holds(agreed)

    def fits(self, request: Run, arguments: SlotValues, names: Registry) -> bool:
        """Return whether the plan can be replayed with these values, and reserve the recording; :meth:`run` must
        follow, or :meth:`begin` if results are kept.
        """
        if self.has_filled or _shapes(request.values) != self._shapes:
            return False
        # Loops, as these are empty in nearly all plans, and an empty generator takes half a microsecond.
        for slot, data in self._fixed.items():
            if arguments.fixed(slot) != data:
                return False
        for known in (self._found, self._before):
            for buffer, ghosts in known.items():
                if buffer.ghosts != ghosts:
                    return False
        vrdd = request.vrdds[self.slot]
        if not names.borrow({vrdd: self.version}):
            return False
        taken = [buffer_set for buffer_set in self.buffer_sets if buffer_set.take()]
        if len(taken) < len(self.buffer_sets):
            for buffer_set in taken:
                buffer_set.give()
            names.give_back((vrdd,))
            return False
        return True

    def run(self, request: Run, arguments: SlotValues, box: BlackBox, names: Registry,
            line: InFlightQueue) -> tuple[Ran, Payload | None]:
        """Replay the pass of an action; return the reply, and the payload if the result is too large for the reply.

        Raises
        ------
        KernelFault
            If a kernel has failed.
        """
        started, vrdd, placed, passages = time.monotonic(), request.vrdds[self.slot], 0, self.passages
        try:
            current = self._streams[0][0].active() if self._streams else nullcontext()
            with box.running(self._place, started + request.seconds), current:
                if names.is_coming(vrdd):
                    for device, stream in self._streams:
                        device.order(line.stream(device, MAIN), stream=stream, of=device)
                self._enqueue(arguments)
                place = passages.end(arguments.payload, request.results) if passages else None
                for device, stream in self._streams:
                    device.synchronize(stream=stream)
            failpoint("fetched")
            placed = passages.placed(place) if passages else 0
            assert self._answer is not None
            outputs, folded, data = self._answer()
            failpoint("computed")
        except KernelFault as fault:
            raise fault.at(vrdd=self._place.vrdd, partition=self._place.partition, operation=self._place.operation,
                           device=self._place.device) from fault.__cause__
        finally:
            names.give_back((vrdd,))
        failpoint("bound")
        payload, inline = None, b""
        if not placed:
            payload, inline, placed = parted(data, request, arguments.payload)
        times = Times(time.monotonic() - started, 0.0)
        return Ran(request.number, outputs, folded, False, times, inline, placed=placed), payload

    def begin(self, request: Run, arguments: SlotValues, box: BlackBox, names: Registry,
              line: InFlightQueue) -> Submission:
        """Start a replay within a turn of the queue; its kept results are bound before they are complete.

        Raises
        ------
        KernelFault
            If a kernel has failed.
        WorldLost
            If another node is lost.
        """
        vrdd = request.vrdds[self.slot]
        place = replace(self._place, vrdd=names.called(vrdd))
        with ExitStack() as stack:
            stack.callback(names.give_back, (vrdd,))
            with ExitStack() as held:
                for buffer_set in self.buffer_sets:
                    held.callback(buffer_set.give)
                if self._staged and self.flight is not None:
                    line.wait(self.flight)      # its copies may not have been made
                with box.running(place, time.monotonic() + request.seconds):
                    try:
                        self._enqueue(arguments)
                    except WorldLost:
                        self._settle()
                        raise
                    for device, stream in self._streams:
                        device.query(stream=stream)
                failpoint("computed")
                flight = self.flight = self._depart(request, place, names)
                wait = None if flight.has_passed else partial(line.wait, flight)
                for slot, binding in self.bindings.items():
                    names.bind_all(request.vrdds[slot], binding, wait)
            failpoint("bound")
            line.push(flight)
            if self.source is None:
                stack.pop_all()         # given back when it has landed; else whoever writes there does so behind it
        return flight

    def _settle(self) -> None:
        """Wait for the enqueued work of a failed pass; further errors are ignored."""
        for device, stream in self._streams:
            with suppress(VisparkError):
                device.synchronize(stream=stream)

    def _depart(self, request: Run, place: Place, names: Registry) -> Submission:
        """Return the submission of a pass, which holds the content that the pass works on."""
        marks = [(device, stream, device.mark(stream=stream)) for device, stream in self._streams]
        for buffer, ghosts in self._after.items():
            buffer.ghosts = ghosts
        bindings = [*self.bindings.values(), *([self.source] if self.source else [])]
        for binding in bindings:
            binding.hold()
        bound = [request.vrdds[slot] for slot in self.bindings]
        borrowed = [] if self.source else [request.vrdds[self.slot]]
        reply = Ran(request.number, (), None, False, Times(0.0, 0.0), b"", self.iterated)
        return Submission(place, request.seconds, reply, marks, partial(self._landed, names, bound, borrowed, bindings))

    @staticmethod
    def _landed(names: Registry, bound: Sequence[int], borrowed: Sequence[int],
                bindings: Sequence[BoundBuffers]) -> None:
        """Mark bound partitions as complete, and return what the pass borrowed and the buffers that it held."""
        names.came(bound)
        names.give_back(borrowed)
        for binding in bindings:
            binding.drop()

    def _enqueue(self, arguments: SlotValues) -> None:
        for slot, array in self._staged.items():
            array[:] = arguments.data(slot)
        if self.passages is not None:
            self.passages.begin(arguments)
        failpoint("launching")
        for work in self._work:
            if work.late:
                work.set(arguments.number)
            work.start()

    def close(self, give: Callable[[Device, Stream], None]) -> None:
        """Close the recording's buffers and give its own streams to ``give``; not while a replay is in flight."""
        for work in self._work:
            work.close()
        for device, stream in () if self.buffer_sets else self._streams:
            give(device, stream)
        for buffer in (*self._buffers, *self.workspace.values(), *self._lent.values()):
            buffer.close()
        for device, array in self._pinned:
            device.unpin(array)
        for binding in self.bindings.values():
            binding.drop()
        self._work, self._streams, self._buffers, self._pinned, self.bindings = [], [], [], [], {}
        self.workspace, self._lent, self._answer = {}, {}, None


def parted(data: Data | None, request: Run, payload: Payload | None) -> tuple[Payload | None, bytes, int]:
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


def _shapes(values: Sequence[ArgumentValue]) -> list[tuple]:
    """Return the dtypes and shapes of values, which a recording is valid for, and whether they are held tables."""
    return [(value.dtype, value.shape, value.vrdd > 0) for value in values]


class Recordings:
    """Recordings of one plan, and the buffer sets that they write.

    Parameters
    ----------
    keeps, loops : bool
        Whether the plan keeps something, and whether it is a loop, of which there are likely to be more steps.
    """

    #: The most of them; the one used least recently goes first.
    MOST = 8
    #: How often a plan that keeps something is recorded without one of them having been of use.
    PATIENCE = 12

    def __init__(self, *, keeps: bool, loops: bool = False) -> None:
        self.lock = threading.Lock()
        #: Whether the plan turned out not to be one that can be recorded.
        self.refused = False
        self.buffer_sets: list[BufferSet] = []
        self._keeps = keeps
        self._loops = loops
        #: When one was last made or found, on the monotonic clock.
        self.used = time.monotonic()
        self._patience = self.PATIENCE
        self._numbers = itertools.count()
        self._known: OrderedDict[int, Recording] = OrderedDict()
        self._seen: dict[int, None] = {}

    def exchange(self, version: int, world: JoinedWorld) -> RecordedExchange | None:
        """Return the record of exchanges with other nodes of a world for content of a version; None if no recording has
        one.
        """
        with self.lock:
            return next((each.exchange for each in self._known.values()
                         if each.version == version and each.exchange and each.exchange.world is world), None)

    def find(self, request: Run, arguments: SlotValues, names: Registry, source: int, world: JoinedWorld | None = None,
             agreed: tuple[bytes, ...] = ()) -> Recording | None:
        """Return a recording that can serve a request, in a ``world`` whose ranks have ``agreed`` on it; it is locked,
        and its names are borrowed.
        """
        if not self._known:
            return None
        version = names.version(request.vrdds[source])
        with self.lock:
            alike = [(number, each) for number, each in self._known.items() if each.version == version]
        for number, found in alike:
            if found.lock.acquire(blocking=False):
                with ExitStack() as stack:
                    stack.callback(found.lock.release)
                    if found.is_complete and found.is_of(world, agreed) and found.fits(request, arguments, names):
                        self._used(number)
                        found.used = self.used
                        stack.pop_all()
                        return found
        return None

    def _used(self, number: int) -> None:
        self._patience, self.used = self.PATIENCE, time.monotonic()
        with self.lock:
            if number in self._known:
                self._known.move_to_end(number)

    @property
    def of_actions(self) -> list[Recording]:
        """The recordings that keep no results."""
        with self.lock:
            return [each for each in self._known.values() if not each.buffer_sets]

    @property
    def is_empty(self) -> bool:
        """Whether there are no recordings."""
        return not self._known

    def has(self, version: int) -> bool:
        """Return whether a recording reads content of a version."""
        with self.lock:
            return any(each.version == version for each in self._known.values())

    def wanted(self, version: int) -> bool:
        """Return whether a plan that is about to run on content of a version is likely to come again: it has come
        before, or
        is a loop.
        """
        with self.lock:
            if self.refused:
                return False
            seen = 0 if self._keeps else version
            if seen in self._seen or self._loops:
                self._patience -= self._keeps
                return self._patience > 0
            self._seen[seen] = None
            if len(self._seen) > self.MOST:
                del self._seen[next(iter(self._seen))]
            return False

    def free_set(self) -> BufferSet | None:
        """Return a buffer set to write to, held; None if a new one is needed."""
        with self.lock:
            return next((each for each in self.buffer_sets if each.take()), None)

    def free(self) -> list[BufferSet]:
        """Return all buffer sets that may be written to, held for the caller."""
        with self.lock:
            return [buffer_set for buffer_set in self.buffer_sets if buffer_set.take()]

    def lent(self) -> dict[int, Buffer]:
        """Return the workspace that the recordings share, by number of the allocation; each buffer is shared with the
        caller.
        """
        with self.lock:
            found = next((each.workspace for each in self._known.values() if each.workspace), {})
            return {place: buffer.share() for place, buffer in found.items()}

    def alike(self, binding: BoundBuffers) -> BoundBuffers:
        """Return a recording's result in the same buffers as the given one, if there is one; else the given one."""
        with self.lock:
            return next((each for recording in self._known.values() for each in recording.ends
                         if each.place == binding.place), binding)

    def add(self, recording: Recording) -> list[Recording]:
        """Add a recording; return the recordings that it displaces, for the caller to close."""
        with self.lock:
            self.buffer_sets += [buffer_set for buffer_set in recording.buffer_sets
                                 if buffer_set not in self.buffer_sets]
            recording.used = self.used = time.monotonic()
            # One that reads and writes the same, but did not fit, is of no more use.
            gone = [number for number, each in self._known.items()
                    if each.version == recording.version and set(each.buffer_sets) == set(recording.buffer_sets)]
            self._known[next(self._numbers)] = recording
            if len(self._known) - len(gone) > self.MOST:
                gone.append(next(iter(self._known)))
            return [self._known.pop(number) for number in gone]

    def in_use(self, names: Registry) -> bool:
        """Return whether content is bound that lies in a buffer set or that a recording would go on from; for a loop
        also content outside of buffer sets, from which the loop may begin with other values.
        """
        with self.lock:
            return any(buffer_set.held for buffer_set in self.buffer_sets) or any(
                each.source.is_bound if each.source else self._loops and each.holds(names)
                for each in self._known.values())

    def reads(self, buffer_sets: Set[BufferSet]) -> bool:
        """Return whether a recording reads content in some buffer sets, as it will again after they are rewritten."""
        with self.lock:
            return any(buffer_set in buffer_sets for each in self._known.values() if each.source
                       for buffer_set in each.source.buffer_sets)

    def discard(self, recording: Recording) -> list[Recording]:
        """Remove a recording, for the caller to close."""
        with self.lock:
            return [self._known.pop(number) for number, each in list(self._known.items()) if each is recording]

    def drop(self, version: int) -> list[Recording]:
        """Remove and return the recordings that read content of a version, for the caller to close.

        What keeps something stays: others are to work where it does, and what they give is to lie where that lies.
        """
        with self.lock:
            self._seen.pop(version, None)
            return [self._known.pop(number) for number, each in list(self._known.items())
                    if each.version == version and not each.buffer_sets]

    def clear(self) -> list[Recording]:
        """Remove all recordings, for the caller to close, and the buffer sets."""
        with self.lock:
            gone, self._known = list(self._known.values()), OrderedDict()
            buffer_sets, self.buffer_sets = self.buffer_sets, []
        for buffer_set in buffer_sets:
            buffer_set.close()
        return gone
