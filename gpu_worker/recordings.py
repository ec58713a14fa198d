"""Plans that come again and again: their work on the devices is noted once and then only told to start.

A recording holds for as long as the names it reads hold the same content, and the values in its slots have the same
types. It keeps what the plan allocated, tables of launches among it, so addresses stay as they are. What does change
from one pass to the next, array arguments and values, is put where the noted work finds it.
"""

from __future__ import annotations

import mmap
import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from gpu_worker.blackbox import BlackBox
from gpu_worker.device.base import Buffer, Device, Recorded, Stream
from gpu_worker.failpoints import failpoint
from gpu_worker.names import Names
from gpu_worker.protocol.errors import KernelFault, Place
from gpu_worker.protocol.messages import Constant, Folded, Output, Ran, Run, Times
from gpu_worker.protocol.payload import Data
from gpu_worker.streams import Streams

#: The most device memory that a recording may hold on to, in bytes.
MOST_BYTES = 512 << 20

Answer = Callable[[], tuple[tuple[Output, ...], Folded | None, Data | None]]


class Arguments(Protocol):
    """What the slots of a request hold."""

    def data(self, slot: int) -> np.ndarray: ...
    def fixed(self, slot: int) -> bytes: ...
    def number(self, slot: int) -> np.generic: ...


class Recording:
    """What one pass of a plan did, on its way to being done again.

    Parameters
    ----------
    request : Run
        The pass.
    versions : dict of int to int
        The version of each VRDD that the plan reads.
    """

    def __init__(self, request: Run, versions: dict[int, int]):
        self.lock = threading.Lock()
        self._versions = versions
        self._shapes = _shapes(request.values)
        self._staged: dict[int, np.ndarray] = {}
        self._fixed: dict[int, bytes] = {}
        self._pinned: list[tuple[Device, np.ndarray]] = []
        self._buffers: list[Buffer] = []
        self._work: list[Recorded] = []
        self._place = Place()
        self._answer: Answer | None = None
        #: Whether it turned out not to be of use.
        self.refused = False

    # -- while the plan runs ------------------------------------------------------------------------------------------

    def host(self, nbytes: int, device: Device) -> np.ndarray:
        """Host memory that stays where it is, and is fast to copy from and to."""
        array = np.frombuffer(mmap.mmap(-1, max(nbytes, 1)), np.uint8)[:nbytes]
        device.pin(array)
        self._pinned.append((device, array))
        return array

    def stage(self, slot: int, data: np.ndarray, device: Device) -> np.ndarray:
        """Host memory with an array argument, from which it is copied at every pass."""
        if slot not in self._staged:
            self._staged[slot] = self.host(data.nbytes, device)
            self._staged[slot][:] = data
        return self._staged[slot]

    def fix(self, slot: int, data: bytes) -> None:
        """Hold only for this value in a slot, which a kernel was compiled with."""
        self._fixed[slot] = data

    def complete(self, streams: Streams, buffers: Sequence[Buffer], place: Place, answer: Answer) -> None:
        """Keep what the plan did, once it is done, unless that would take too much memory."""
        self.refused |= sum(buffer.nbytes for buffer in buffers) > MOST_BYTES
        if self.refused:
            return
        self._buffers = [buffer.share() for buffer in buffers]
        self._place, self._answer = place, answer
        for device, stream in streams.keep():
            entries, stream.tape = stream.tape or [], None
            self._work.append(device.recorded(entries, stream=stream))

    @property
    def is_complete(self) -> bool:
        """Whether there is something to be done again."""
        return self._answer is not None

    # -- at every further pass ----------------------------------------------------------------------------------------

    def holds(self, names: Names) -> bool:
        """Whether the names it reads hold what they held when it was made."""
        return names.versions(self._versions) == self._versions

    def fits(self, request: Run, arguments: Arguments, names: Names) -> bool:
        """Whether the plan can be done so with these values, while nothing else does; then :meth:`run` must follow."""
        if _shapes(request.values) != self._shapes or any(
                arguments.fixed(slot) != data for slot, data in self._fixed.items()):
            return False
        return names.borrow(self._versions)

    def run(self, request: Run, arguments: Arguments, box: BlackBox, names: Names) -> Ran:
        """Do it again.

        Raises
        ------
        KernelFault
            If a kernel has failed.
        """
        started = time.monotonic()
        try:
            for slot, array in self._staged.items():
                array[:] = arguments.data(slot)
            failpoint("launching")
            with box.running(self._place, started + request.seconds):
                self._start(arguments)
            failpoint("fetched")
            outputs, folded, data = self._answer()
            failpoint("computed")
        except KernelFault as fault:
            raise fault.at(vrdd=self._place.vrdd, partition=self._place.partition, operation=self._place.operation,
                           device=self._place.device) from fault.__cause__
        finally:
            names.give_back(self._versions)
        failpoint("bound")
        inline = b"" if data is None else data.array.tobytes()
        return Ran(request.number, outputs, folded, (), False, Times(time.monotonic() - started, 0.0), inline)

    def _start(self, arguments: Arguments) -> None:
        for work in self._work:
            if work.late:
                work.set(arguments.number)
            work.start()
        for work in self._work:
            if work.entries:
                work.device.synchronize(stream=work.stream)

    def close(self, give: Callable[[Device, Stream], None]) -> None:
        """Give back what it holds, and its streams to whoever takes them."""
        for work in self._work:
            work.close()
            give(work.device, work.stream)
        for buffer in self._buffers:
            buffer.close()
        for device, array in self._pinned:
            device.unpin(array)
        self._work, self._buffers, self._pinned = [], [], []


def _shapes(values: Sequence[Constant]) -> list[tuple]:
    """What values must have in common for a recording to do for both."""
    return [(value.dtype, value.shape) for value in values]


class Recordings:
    """The recordings of one plan, by the numbers of the VRDDs."""

    #: The most of them; the one used least recently goes first.
    MOST = 4

    def __init__(self) -> None:
        self.lock = threading.Lock()
        #: Whether the plan turned out not to be one that can be recorded.
        self.refused = False
        self._known: dict[tuple[int, ...], Recording] = {}
        self._seen: dict[tuple[int, ...], None] = {}

    def find(self, request: Run, arguments: Arguments, names: Names) -> Recording | None:
        """The recording that a request can be done with; it is locked, and its names are borrowed."""
        found = self._known.get(request.vrdds)
        if found is None or not found.lock.acquire(blocking=False):
            return None
        if found.fits(request, arguments, names):
            return found
        found.lock.release()
        return None

    def wanted(self, vrdds: tuple[int, ...]) -> bool:
        """Whether a plan that is about to run on these is likely to come again: it has come before."""
        with self.lock:
            if self.refused or vrdds in self._seen:
                return not self.refused
            self._seen[vrdds] = None
            if len(self._seen) > self.MOST:
                del self._seen[next(iter(self._seen))]
            return False

    def add(self, vrdds: tuple[int, ...], recording: Recording) -> list[Recording]:
        """Keep a recording; those that it displaces, for the caller to close."""
        with self.lock:
            gone = [self._known.pop(vrdds)] if vrdds in self._known else []
            self._known[vrdds] = recording
            if len(self._known) > self.MOST:
                gone.append(self._known.pop(next(iter(self._known))))
        return gone

    def drop(self, vrdds: tuple[int, ...]) -> list[Recording]:
        """Forget the one for these VRDDs, where there is one, for the caller to close."""
        with self.lock:
            self._seen.pop(vrdds, None)
            return [self._known.pop(vrdds)] if vrdds in self._known else []

    def clear(self) -> list[Recording]:
        """Forget all of them, for the caller to close."""
        with self.lock:
            gone, self._known = list(self._known.values()), {}
        return gone
