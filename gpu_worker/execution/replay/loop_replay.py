"""Recordings of loops that end by a test of cell values: segments of recorded steps, with tests in between.

Such a loop may end in one of several places, each with its result in other buffers. So each buffer that it writes is a
buffer set of its own: the next call reads some of them, and takes any others to write to. Its segments are a graph
(:mod:`gpu_worker.execution.grid.loop_graph`), of which the recorded call went along some. A call that wants to leave
what is known of it, and one in which a cell is not finite, starts anew from what it started from, which nothing has
changed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from gpu_worker.device.base import Buffer, Device, RecordedWork, Stream
from gpu_worker.device.memory.double_buffer import BoundBuffers, BufferSet
from gpu_worker.device.memory.partition import HeldArray, Partition
from gpu_worker.device.memory.registry import Registry
from gpu_worker.execution.grid.loop_graph import LoopRoute, LoopState, Segment, SegmentShape, reachable_segments
from gpu_worker.execution.replay.recorded_pass import GridOutcome, PassResult, ReplayedPass, SlotValues
from gpu_worker.execution.replay.recording import MOST_WORK, Alike, Recording
from gpu_worker.execution.scheduling.streams import Streams
from gpu_worker.protocol.errors import KernelFault, NotFinite, Place
from gpu_worker.protocol.grids import Iterated
from gpu_worker.protocol.messages import Run


class RecordedLoop:
    """Loop that was recorded, with what it keeps in each state in which it has ended.

    Parameters
    ----------
    path : LoopRoute
        The way that it went.
    alike : callable
        As for :meth:`gpu_worker.execution.replay.recording.Recording.keep`.

    Attributes
    ----------
    others : dict of LoopState to dict of int to BoundBuffers
        What is kept, by slot, where it ends in another state than it did when it was recorded.
    """

    def __init__(self, path: LoopRoute, alike: Alike):
        self.path = path
        self.alike = alike
        self.others: dict[LoopState, dict[int, BoundBuffers]] = {}
        self._calls = RecordedWork(())

    def count(self) -> int:
        """Return the number of launches and copies of all segments."""
        return sum(len(segment.entries) for segment in reachable_segments(self.path.start))

    def record(self, streams: Streams) -> None:
        """Make replayable work of the segments."""
        segments = reachable_segments(self.path.start)
        for segment in segments:
            segment.work = streams.recorded(segment.entries)
        self._calls = RecordedWork(list({id(entry): (stream, entry) for segment in segments
                                         for stream, entry in segment.entries}.values()))

    def run(self, arguments: SlotValues, wait: Callable[[], None]) -> tuple[Iterated, LoopState] | None:
        """Run the loop by its graph; return its outcome and its last state, or None if it leaves what is known, or a
        cell is not finite.
        """
        self._calls.set(arguments.number)
        try:
            ended, state = self.path.graph.run(self.path.start, _start_segment, wait)
        except NotFinite:
            return None         # the error tells more of the plan than a recording knows
        finally:
            wait()
        return None if ended is None else (ended, state)

    def moved(self, partition: Partition, state: LoopState) -> Partition:
        """Return a kept partition as it lies where the loop ends in ``state``."""
        buffers = {buffer: there for name, cells in self.path.end.content.items()
                   for buffer, there in zip(cells.buffers, state.content[name].buffers, strict=True)}
        return partition.with_blocks([
            tuple(HeldArray(array.field, buffer=buffers[array.on_device].share(), window=array.window)
                  for array in block) for block in partition.blocks])

    def close(self) -> None:
        """Close the work of the segments, and drop what is kept in further states."""
        for segment in reachable_segments(self.path.start):
            for work in segment.work:
                work.close()
        for bindings in self.others.values():
            for binding in bindings.values():
                binding.drop()


class LoopReplay(Recording):
    """Recording of a loop with tests of cell values; parameters as for
    :class:`~gpu_worker.execution.replay.recording.Recording`.
    """

    def __init__(self, request: Run, source: int, names: Registry, buffer_sets: Sequence[BufferSet]):
        super().__init__(request, source, names, buffer_sets)
        self._free = self._set_buffers()
        self._loop: RecordedLoop | None = None

    # -- while the plan runs ------------------------------------------------------------------------------------------

    def given(self, place: int, nbytes: int, device: Device) -> Buffer | None:
        for number, buffer in enumerate(self._free):
            if buffer.nbytes == nbytes and buffer.device is device:
                return self._free.pop(number).share()
        return None

    def keep(self, kept: Mapping[tuple[int, str], Sequence[Partition]], allocated: Mapping[int, Buffer],
             alike: Alike) -> None:
        used = {buffer for buffer in allocated.values() if buffer.nbytes}
        for buffer_set in [buffer_set for buffer_set in self.buffer_sets
                           if used.isdisjoint(buffer_set.buffers.values())]:
            self.buffer_sets.remove(buffer_set)
            buffer_set.give()
        for buffer in used.difference(self._set_buffers()):
            self.buffer_sets.append(BufferSet({0: buffer}))
            self.buffer_sets[-1].hold()
        self.bindings = {slot: self._binding(name, partitions, alike) for (slot, name), partitions in kept.items()}
        assert self.grid.path is not None
        self._loop = RecordedLoop(self.grid.path, alike)

    def complete(self, streams: Streams, buffers: Sequence[Buffer], place: Place, answer: PassResult) -> None:
        loop = self._loop
        self.refused |= loop is None or loop.count() > MOST_WORK
        if loop is None or self.refused:
            return
        loop.record(streams)
        super().complete(streams, buffers, place, answer)
        own = self._set_buffers()
        self._ghosts.before = {buffer: tag for buffer, tag in self._ghosts.before.items() if buffer in own}
        if loop.path.is_steady:
            self._ghosts.read, self._ghosts.before = _filled(self._ghosts.read), _filled(own)

    # -- at every further call ----------------------------------------------------------------------------------------

    def _replayed(self, arguments: SlotValues, place: Place) -> ReplayedPass | None:
        started, loop = time.monotonic(), self._loop
        assert loop is not None
        try:
            self._enqueue(arguments)
            ended = loop.run(arguments, self._wait)
        except KernelFault as fault:
            raise fault.at(**asdict(place)) from fault.__cause__
        # Where the loop is steady, all ghost cells that sides are given for are as they were.
        changed = () if loop.path.is_steady else self._ghosts.after
        if ended is None:
            for buffer in changed:
                buffer.ghosts = None
            return None
        iterated, state = ended
        return ReplayedPass(self._ending(loop, state), (iterated,),
                            {buffer: state.tags.get(buffer) for buffer in changed}, started, [])

    def _wait(self) -> None:
        for device, stream in self.work.streams:
            device.synchronize(stream=stream)

    def _ending(self, loop: RecordedLoop, state: LoopState) -> dict[int, BoundBuffers]:
        """Return the kept results for a loop that ends in ``state``, bound to the buffers of that state."""
        if state is loop.path.end:
            return self.bindings
        if state not in loop.others:
            loop.others[state] = {
                slot: self._binding(binding.name, [loop.moved(each, state) for each in binding.contents.values()],
                                    loop.alike)
                for slot, binding in self.bindings.items()}
        return loop.others[state]

    @property
    def ends(self) -> list[BoundBuffers]:
        others = self._loop.others.values() if self._loop is not None else ()
        return [*self.bindings.values(), *(binding for bindings in others for binding in bindings.values())]

    def close(self, give: Callable[[Device, Stream], None]) -> None:
        if self._loop is not None:
            self._loop.close()
        self._loop, self.grid = None, GridOutcome()
        super().close(give)


def _filled(buffers: Iterable[Buffer]) -> dict[Buffer, tuple[Any, ...] | None]:
    """Return the ghost-cell tags of those buffers that have some."""
    return {buffer: buffer.ghosts for buffer in buffers if buffer.ghosts is not None}


def _start_segment(state: LoopState, shape: SegmentShape) -> Segment | None:
    """Start a recorded segment; return None if the state has none of this shape."""
    segment = state.segments.get(shape)
    if segment is not None:
        for work in segment.work:
            work.start()
    return segment
