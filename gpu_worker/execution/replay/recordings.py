"""Recordings of one plan, found by what a request reads and writes, and the buffer sets that they share."""

from __future__ import annotations

import itertools
import threading
import time
from collections import OrderedDict
from collections.abc import Set

from gpu_worker.device.base import Buffer
from gpu_worker.device.memory.double_buffer import BoundBuffers, BufferSet
from gpu_worker.device.memory.registry import Registry
from gpu_worker.exchange.base import JoinedWorld, RecordedExchange
from gpu_worker.execution.replay.recorded_pass import SlotValues
from gpu_worker.execution.replay.recording import Recording
from gpu_worker.protocol.messages import Run


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
            return next((each.grid.exchange for each in self._known.values() if each.version == version
                         and each.grid.exchange and each.grid.exchange.world is world), None)

    def find(self, request: Run, arguments: SlotValues, names: Registry, source: int, world: JoinedWorld | None = None,
             states: tuple[bytes, ...] = ()) -> Recording | None:
        """Return a recording that can serve a request, in a ``world`` whose ranks have ``states``; it is locked,
        and its names are borrowed.
        """
        if not self._known:
            return None
        version = names.version(request.vrdds[source])
        with self.lock:
            alike = [(number, each) for number, each in self._known.items() if each.version == version]
        for number, recording in alike:
            if recording.lock.acquire(blocking=False):
                is_fit = False
                try:
                    is_fit = (recording.is_complete and recording.is_of(world, states)
                              and recording.fits(request, arguments, names))
                finally:
                    if not is_fit:
                        recording.lock.release()
                if is_fit:
                    self._used(number)
                    recording.used = self.used
                    return recording
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

    def comes_again(self, version: int) -> bool:
        """Return whether a plan that is about to run on content of a version is likely to come again: it has come
        before, or is a loop.
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
            workspace = next((each.workspace for each in self._known.values() if each.workspace), {})
            return {place: buffer.share() for place, buffer in workspace.items()}

    def in_same_buffers(self, binding: BoundBuffers) -> BoundBuffers:
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
