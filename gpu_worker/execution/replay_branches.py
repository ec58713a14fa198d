"""Recordings of loops that end by a test of cell values: segments of recorded steps, with tests in between.

Such a loop may end in one of several places, each with its result in other buffers. So each buffer that it writes is a
buffer set of its own: the next call reads some of them, and takes any others to write to. Its stretches are a graph
(:mod:`gpu_worker.execution.grid.loop_graph`), of which the recorded call went along some. A call that wants to leave
what is known of it, and one in which a cell is not finite, starts anew from what it started from, which nothing has
changed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace

from gpu_worker.device.base import Buffer, Device, RecordedWork, Stream
from gpu_worker.execution.grid.loop_graph import LoopRoute, LoopState, Segment, SegmentShape, reached
from gpu_worker.execution.replay import MOST_WORK, Answer, Recording, SlotValues
from gpu_worker.execution.streams import Streams
from gpu_worker.memory.double_buffer import BoundBuffers, BufferSet
from gpu_worker.memory.partition import HeldArray, Partition
from gpu_worker.memory.registry import Registry
from gpu_worker.protocol.errors import KernelFault, NotFinite, Place
from gpu_worker.protocol.grids import Iterated
from gpu_worker.protocol.messages import Ran, Run, Times
from gpu_worker.system.crash_record import BlackBox
from gpu_worker.system.failpoints import failpoint


class LoopReplay(Recording):
    """Recording of a loop with tests of cell values; parameters as for :class:`~gpu_worker.execution.replay.Recording`.

    Attributes
    ----------
    path : LoopRoute or None
        The way that the loop went when it was recorded.
    """

    def __init__(self, request: Run, source: int, names: Registry, buffer_sets: Sequence[BufferSet]):
        super().__init__(request, source, names, buffer_sets)
        self.path: LoopRoute | None = None
        self._free = [buffer for buffer_set in buffer_sets for buffer in buffer_set.buffers.values()]
        self._stretches: list[Segment] = []
        self._calls = RecordedWork(())
        #: What is kept where the loop ends in another state than it did when it was recorded.
        self._others: dict[LoopState, dict[int, BoundBuffers]] = {}

    # -- while the plan runs ------------------------------------------------------------------------------------------

    def given(self, place: int, nbytes: int, device: Device) -> Buffer | None:
        for number, buffer in enumerate(self._free):
            if buffer.nbytes == nbytes and buffer.device is device:
                return self._free.pop(number).share()
        return None

    def keep(self, kept: Mapping[tuple[int, str], Sequence[Partition]], allocated: Mapping[int, Buffer],
             alike: Callable[[BoundBuffers], BoundBuffers]) -> None:
        used = {buffer for buffer in allocated.values() if buffer.nbytes}
        for buffer_set in [buffer_set for buffer_set in self.buffer_sets
                           if used.isdisjoint(buffer_set.buffers.values())]:
            self.buffer_sets.remove(buffer_set)
            buffer_set.give()
        for buffer in used.difference(*(buffer_set.buffers.values() for buffer_set in self.buffer_sets)):
            self.buffer_sets.append(BufferSet({0: buffer}))
            self.buffer_sets[-1].hold()
        self.bindings = {slot: self._binding(name, partitions, alike) for (slot, name), partitions in kept.items()}

    def complete(self, streams: Streams, buffers: Sequence[Buffer], place: Place, answer: Answer) -> None:
        assert self.path is not None
        stretches = reached(self.path.start)
        calls = {id(entry): (stream, entry) for each in stretches for stream, entry in each.entries}
        self.refused |= sum(len(each.entries) for each in stretches) > MOST_WORK
        if self.refused:
            return
        for each in stretches:
            each.work = streams.recorded(each.entries)
        self._stretches, self._calls = stretches, RecordedWork(list(calls.values()))
        super().complete(streams, buffers, place, answer)
        mine = {buffer for buffer_set in self.buffer_sets for buffer in buffer_set.buffers.values()}
        self._before = {buffer: ghosts for buffer, ghosts in self._before.items() if buffer in mine}
        if self.path.is_steady:
            self._found = _ghosts(self._found)
            self._before = _ghosts(mine)

    # -- at every further call ----------------------------------------------------------------------------------------

    def pursue(self, request: Run, arguments: SlotValues, box: BlackBox, names: Registry,
               alike: Callable[[BoundBuffers], BoundBuffers]) -> Ran | None:
        """Replay the loop within an exclusive turn of the queue; return None if the loop has to run anew.

        Raises
        ------
        KernelFault
            If a kernel has failed.
        """
        started, vrdd = time.monotonic(), request.vrdds[self.slot]
        place = replace(self._place, vrdd=names.called(vrdd))
        with ExitStack() as stack:
            stack.callback(names.give_back, (vrdd,))
            for buffer_set in self.buffer_sets:
                stack.callback(buffer_set.give)
            try:
                with box.running(place, started + request.seconds):
                    self._enqueue(arguments)
                    self._calls.set(arguments.number)
                    ended, state = self._gone()
                    self._wait()
            except KernelFault as fault:
                raise fault.at(**asdict(place)) from fault.__cause__
            # Where the loop is steady, all ghost cells that sides are given for are as they were.
            assert self.path is not None
            for buffer in () if self.path.is_steady else self._after:
                buffer.ghosts = None if ended is None else state.tags.get(buffer)
            if ended is None:
                return None
            failpoint("computed")
            for slot, binding in self._ending(state, alike).items():
                names.bind_all(request.vrdds[slot], binding)
            failpoint("bound")
        return Ran(request.number, (), None, False, Times(time.monotonic() - started, 0.0), b"", (ended,))

    def _gone(self) -> tuple[Iterated | None, LoopState]:
        """Run the loop by its graph; return its outcome and its last state, or (None, the start) if a value is not
        finite.
        """
        assert self.path is not None
        start = self.path.start
        try:
            return self.path.course.run(start, _begun, self._wait)
        except NotFinite:
            return None, start      # the error tells more of the plan than a recording knows

    def _wait(self) -> None:
        for device, stream in self._streams:
            device.synchronize(stream=stream)

    def _ending(self, state: LoopState, alike: Callable[[BoundBuffers], BoundBuffers]) -> dict[int, BoundBuffers]:
        """Return the kept results for a loop that ends in ``state``, bound to the buffers of that state."""
        assert self.path is not None
        end = self.path.end
        if state is end:
            return self.bindings
        if state not in self._others:
            moved = {buffer: there for name, cells in end.content.items()
                     for buffer, there in zip(cells.buffers, state.content[name].buffers, strict=True)}

            def in_set(partition: Partition) -> Partition:
                return partition.with_blocks([tuple(
                    HeldArray(array.field, buffer=moved[array.on_device].share(),
                              window=array.window) for array in block)
                    for block in partition.blocks])

            self._others[state] = {
                slot: self._binding(binding.name, list(map(in_set, binding.contents.values())), alike)
                for slot, binding in self.bindings.items()}
        return self._others[state]

    @property
    def ends(self) -> list[BoundBuffers]:
        return [*self.bindings.values(),
                *(binding for bindings in self._others.values() for binding in bindings.values())]

    def close(self, give: Callable[[Device, Stream], None]) -> None:
        for stretch in self._stretches:
            for work in stretch.work:
                work.close()
        for bindings in self._others.values():
            for binding in bindings.values():
                binding.drop()
        self._others, self._stretches, self._calls, self.path = {}, [], RecordedWork(()), None
        super().close(give)


def _ghosts(buffers: Iterable[Buffer]) -> dict[Buffer, tuple | None]:
    """Return the ghost-cell tags of those buffers that have some."""
    return {buffer: buffer.ghosts for buffer in buffers if buffer.ghosts is not None}


def _begun(state: LoopState, shape: SegmentShape) -> Segment | None:
    """Start a recorded segment; return None if the state has none of this shape."""
    stretch = state.stretches.get(shape)
    if stretch is not None:
        for work in stretch.work:
            work.start()
    return stretch
