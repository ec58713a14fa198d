"""Parts of a recording: what it reads, relies on, works in and repeats, each an object of its own."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from gpu_worker.device.base import Buffer, Device, RecordedWork, Stream
from gpu_worker.device.memory.double_buffer import BoundBuffers
from gpu_worker.device.memory.partition import Partition
from gpu_worker.device.memory.registry import Registry
from gpu_worker.exchange.base import RecordedExchange
from gpu_worker.execution.grid.loop_graph import LoopRoute
from gpu_worker.protocol import frozen
from gpu_worker.protocol.errors import Place
from gpu_worker.protocol.grids import Iterated
from gpu_worker.protocol.messages import ArgumentValue, Folded, Output
from gpu_worker.protocol.payload import Data, Payload
from gpu_worker.protocol.system import system_call

PassResult = Callable[[], tuple[tuple[Output, ...], Folded | None, Data | None]]


class SlotValues(Protocol):
    """Interface of a request's slot values: payload, array bytes, fixed values and numbers."""

    @property
    def payload(self) -> Payload | None: ...
    def data(self, slot: int) -> np.ndarray: ...
    def fixed(self, slot: int) -> bytes: ...
    def number(self, slot: int) -> np.generic: ...


class Origin:
    """Content that a recording reads.

    Parameters
    ----------
    slot : int
        The slot of the VRDD in a request.
    vrdd : int
        Its number.
    names : Registry
        Where it is held.

    Attributes
    ----------
    version : int
        Of the content.
    binding : BoundBuffers or None
        The content, where it is filled again and again itself.
    """

    def __init__(self, slot: int, vrdd: int, names: Registry):
        self.slot = slot
        self.vrdd = vrdd
        self.version = names.version(vrdd)
        self.binding: BoundBuffers | None = names.binding(vrdd)


@dataclass(frozen=True)
class GridOutcome:
    """Outcome of a plan's steps on a grid.

    Attributes
    ----------
    iterated : tuple of Iterated
        How its loops ended.
    has_filled : bool
        Whether it filled ghost cells that are there from now on: then it is noted once more, without that.
    exchange : RecordedExchange or None
        What it does together with other nodes; None where it is alone.
    path : LoopRoute or None
        The way that its last loop went.
    """

    iterated: tuple[Iterated, ...] = ()
    has_filled: bool = False
    exchange: RecordedExchange | None = None
    path: LoopRoute | None = None


class FixedValues:
    """Values that a recording is valid for: the kinds of all, and the content of some.

    Parameters
    ----------
    values : sequence of ArgumentValue
        Of the recorded pass.
    """

    def __init__(self, values: Sequence[ArgumentValue]):
        #: The content of the values that the work depends on, by their slot.
        self.fixed: dict[int, bytes] = {}
        self._kinds = _kinds(values)

    def fit(self, values: Sequence[ArgumentValue], arguments: SlotValues) -> bool:
        """Return whether the recorded work serves these values."""
        if _kinds(values) != self._kinds:
            return False
        # Asked first, as there are none in nearly all plans, and an empty generator takes half a microsecond.
        return not self.fixed or all(arguments.fixed(slot) == data for slot, data in self.fixed.items())


def _kinds(values: Sequence[ArgumentValue]) -> list[tuple[Any, ...]]:
    """Return the dtypes and shapes of values, and whether they are held tables."""
    return [(value.dtype, value.shape, value.vrdd > 0) for value in values]


class GhostTags:
    """Tags of ghost cells that a recording relies on, and those that it leaves.

    Parameters
    ----------
    written : iterable of Buffer
        What it writes to, before it does.
    """

    def __init__(self, written: Iterable[Buffer]):
        self.before: dict[Buffer, tuple[Any, ...] | None] = {buffer: buffer.ghosts for buffer in written}
        self.read: dict[Buffer, tuple[Any, ...] | None] = {}
        self.after: dict[Buffer, tuple[Any, ...] | None] = {}

    def reads(self, partition: Partition) -> None:
        """Take down the tags of a partition that is read."""
        for array in partition.arrays:
            if array.buffer is not None:
                self.read[array.buffer] = array.buffer.ghosts

    def complete(self, own: Iterable[Buffer]) -> None:
        """Take down the tags after the pass, which worked in buffers of its ``own``. What was not filled before is
        filled in each pass, whether it is by then or not.
        """
        self.after = {buffer: buffer.ghosts for buffer in (*self.read, *own)}
        self.read = {buffer: ghosts for buffer, ghosts in self.read.items() if ghosts is not None}
        self.before = {buffer: ghosts for buffer, ghosts in self.before.items() if ghosts is not None}

    def hold(self) -> bool:
        """Return whether ghost cells are filled as they were."""
        for tags in (self.read, self.before):
            for buffer, ghosts in tags.items():
                if buffer.ghosts != ghosts:
                    return False
        return True


class RecordedMemory:
    """Memory that a recording holds beside its results.

    Parameters
    ----------
    lent : dict of int to Buffer
        What other recordings of the plan work in, by the number of the allocation; to be closed with the rest.

    Attributes
    ----------
    workspace : dict of int to Buffer
        What the plan works in and does not keep, by the number of the allocation; of one that keeps something.
    staged : dict of int to ndarray of uint8
        Array arguments by their slots, where the recorded copies take them from.
    buffers : list of Buffer
        Further memory of devices.
    """

    def __init__(self, lent: dict[int, Buffer]):
        self.lent = lent
        self.workspace: dict[int, Buffer] = {}
        self.staged: dict[int, np.ndarray] = {}
        self.buffers: list[Buffer] = []
        self._pinned: list[tuple[Device, np.ndarray]] = []

    def host(self, nbytes: int, device: Device) -> np.ndarray:
        """Return pinned host memory."""
        with system_call(f"{nbytes:,} bytes of memory"):
            memory = mmap.mmap(-1, max(nbytes, 1))
        array = np.frombuffer(memory, np.uint8)[:nbytes]
        device.pin(array)
        self._pinned.append((device, array))
        return array

    def stage(self, slot: int, data: np.ndarray, device: Device) -> np.ndarray:
        """Return pinned host memory with an array argument."""
        if slot not in self.staged:
            self.staged[slot] = self.host(data.nbytes, device)
            self.staged[slot][:] = data
        return self.staged[slot]

    def restage(self, arguments: SlotValues) -> None:
        """Put the array arguments of a further pass where the recorded copies take them from."""
        for slot, array in self.staged.items():
            array[:] = arguments.data(slot)

    def close(self) -> None:
        """Release everything."""
        for buffer in (*self.buffers, *self.workspace.values(), *self.lent.values()):
            buffer.close()
        for device, array in self._pinned:
            device.unpin(array)
        self.lent, self.workspace, self.staged, self.buffers, self._pinned = {}, {}, {}, [], []


@dataclass
class RecordedPass:
    """Work of a complete pass on the devices.

    Attributes
    ----------
    works : list of RecordedWork
        What the streams do.
    streams : list of (Device, Stream)
    place : Place
        Where its kernels are.
    answer : callable
        Gives the reply of an action.
    """

    works: list[RecordedWork]
    streams: list[tuple[Device, Stream]]
    place: Place
    answer: PassResult

    def __post_init__(self) -> None:
        self._devices = tuple({device for device, _ in self.streams})

    def begin_busy(self) -> None:
        """Count its devices as busy with a further pass."""
        for device in self._devices:
            device.counts.busy.begin()

    def end_busy(self) -> None:
        """Count a further pass as complete."""
        for device in self._devices:
            device.counts.busy.end()

    def start(self, arguments: SlotValues) -> None:
        """Enqueue the work, with the values of a further pass."""
        for work in self.works:
            if work.late:
                work.set(arguments.number)
            work.start()

    def close(self, give: Callable[[Device, Stream], None], *, has_own_streams: bool) -> None:
        """Close the work, and give its streams to ``give`` where they are its own."""
        for work in self.works:
            work.close()
        for device, stream in self.streams if has_own_streams else ():
            give(device, stream)


@frozen.dataclass(frozen=True, slots=True)
class ReplayedPass:
    """Outcome of a replay that keeps results.

    Attributes
    ----------
    bindings : mapping of int to BoundBuffers
        What is kept, by slot.
    iterated : tuple of Iterated
        How the plan's loops ended, or will.
    ghosts : mapping of Buffer to tuple or None
        Tags of ghost cells behind it.
    started : float
        From when on it is timed, on the monotonic clock.
    marks : list of (Device, Stream, int)
        What streams pass when the work is complete; empty where it is.
    """

    bindings: Mapping[int, BoundBuffers]
    iterated: tuple[Iterated, ...]
    ghosts: Mapping[Buffer, tuple[Any, ...] | None]
    started: float
    marks: list[tuple[Device, Stream, int]]
