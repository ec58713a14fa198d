"""Interface of devices: buffers, streams, copies, compilation and launches.

A new device is one file beside this one that implements :class:`Device`, and an entry in the table
:mod:`gpu_worker.protocol.device_kinds`.
Buffers, streams and kernels come from its factories only. Work is ordered within a stream and not between streams;
it is complete after :meth:`Device.synchronize`. All methods may be called from several threads at once.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from operator import index
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from gpu_worker.device.clock import UNTIMED, BusyTime, Clock
from gpu_worker.protocol.errors import DeviceUnavailable

#: Where sources find, on every device, headers of ours and those that stand in for hosts' headers.
INCLUDES = tuple(map(Path(__file__).with_name, ("include", "stand_ins")))


class Buffer:
    """A range of device memory, returned to the device when its last user closes it.

    Attributes
    ----------
    address : int
        Its address, as a kernel sees it.
    nbytes : int
        Its size in bytes; may be 0.
    """

    #: Whether it is memory of a publication, which is read only.
    is_read_only = False

    def __init__(self, device: Device, address: int, nbytes: int):
        self.device = device
        self.address = address
        self.nbytes = nbytes
        #: What of its content is known by a name, for whoever recycles it; of a patch, how its ghost cells were filled.
        self.ghosts: tuple[Any, ...] | None = None
        self._users = 1

    @property
    def last(self) -> bool:
        """Whether the buffer has a single user left."""
        return self._users == 1

    @property
    def users(self) -> int:
        """The number of users."""
        return self._users

    def share(self) -> Buffer:
        """Return the buffer for one more user, who must close it too."""
        with self.device.lock:
            self._users += 1
        return self

    def part(self, offset: int, nbytes: int) -> Buffer:
        """Return a part of the buffer, to copy to; it is not closed, and valid as long as this buffer."""
        return Buffer(self.device, self.address + offset, nbytes)

    def close(self) -> None:
        """End one use; the last one frees the memory. No work on the buffer may be pending."""
        with self.device.lock:
            self._users -= 1
            last = self._users == 0
        if last:
            self._free()

    def discard(self) -> None:
        """Free the memory regardless of its users, as for allocations of a failed plan."""
        with self.device.lock:
            used, self._users = self._users > 0, 0
        if used:
            self._free()

    def _free(self) -> None:
        self.device.free(self)


class CountedPart(Buffer):
    """Part of a buffer with users of its own; the whole is freed when its last part is.

    Parameters
    ----------
    whole : Buffer
        The buffer; the part counts as a user of it.
    offset, nbytes : int
        The part of it, in bytes.
    """

    def __init__(self, whole: Buffer, offset: int, nbytes: int):
        super().__init__(whole.device, whole.address + offset, nbytes)
        self._whole = whole.share()

    def _free(self) -> None:
        self._whole.close()


class ReadOnlyPart(CountedPart):
    """Part of memory that other processes map too, as :meth:`Device.map_memory` returned it."""

    is_read_only = True


@dataclass(frozen=True)
class SharedMemory:
    """Memory that other processes can map: a buffer of this process, to be written until ``protect`` makes it read only
    here too, and the descriptor to pass on, which is the caller's to close. No work may be pending then.
    """

    buffer: Buffer
    descriptor: int
    protect: Callable[[], None]


class Stream:
    """An order of work on a device.

    Attributes
    ----------
    marks : int
        How many marks were put on it, see :meth:`Device.mark`.
    tape : list or None
        Where what is enqueued is noted, to be done again; see :meth:`Device.recorded`. Streams may share one.
    clock : context manager
        What its device enters around each launch and copy that takes time; see :meth:`Device.clock`.
    """

    def __init__(self) -> None:
        self.marks = 0
        self.tape: list[TapeEntry] | None = None
        self.clock: AbstractContextManager[None] = UNTIMED

    def note(self, do: Callable[..., None], target: Any, source: Any) -> None:
        """Record a copy, if there is a tape."""
        if self.tape is not None:
            self.tape.append((self, BufferCopy(do, target, source)))

    @contextmanager
    def unnoted(self) -> Iterator[None]:
        """Suspend the recording of work on the stream, within the context."""
        tape, self.tape = self.tape, None
        try:
            yield
        finally:
            self.tape = tape

    @property
    def passed(self) -> int:
        """The number of marks that the stream has passed; readable after a fault too."""
        return self.marks


@dataclass(frozen=True)
class Source:
    """Compilation unit: CUDA C++ as the user wrote it, macros, and the values of its ``__constant__`` symbols.

    ``file`` is what error messages call it. Equal content makes an equal source.
    """

    text: str
    file: str = "kernels.cu"
    options: tuple[str, ...] = ()
    constants: tuple[tuple[str, bytes], ...] = ()


class CompiledKernel:
    """A compiled kernel of one source, ready to launch on the device that compiled it."""

    def __init__(self, device: Device, source: Source, name: str):
        self.device = device
        self.source = source
        self.name = name


@dataclass(frozen=True)
class Late:
    """Argument by value from a slot, which may differ at each replay."""

    slot: int
    value: np.generic


#: What a launch is given for a parameter: an address, a value, or a value that changes.
LaunchValue = Buffer | np.generic | Late


@dataclass
class PackedLaunch:
    """A launch, checked and with its parameters packed."""

    kernel: Any
    grid: tuple[int, ...]
    block: tuple[int, ...]
    shared: int
    arguments: Sequence[LaunchValue]
    packed: bytes


@dataclass(frozen=True)
class BufferCopy:
    """A copy between a buffer and host bytes, or another buffer."""

    do: Callable[..., None]
    target: Any
    source: Any


@dataclass(frozen=True)
class Wait:
    """Recorded wait of a stream for all work so far of another stream, of the same or another device."""

    device: Device
    other: Stream
    of: Device


@dataclass(frozen=True)
class Act:
    """Action of this process between recorded launches, such as a message to other nodes."""

    do: Callable[[], object]


#: What was noted on a tape, with the stream that it was enqueued on.
TapeEntry = tuple[Stream, PackedLaunch | BufferCopy | Wait | Act]


def enqueue(entries: Sequence[TapeEntry]) -> None:
    """Enqueue recorded entries again, in order."""
    for stream, entry in entries:
        if isinstance(entry, PackedLaunch):
            entry.kernel.device.start(entry, stream=stream)
        elif isinstance(entry, BufferCopy):
            entry.do(entry.target, entry.source, stream=stream)
        elif isinstance(entry, Wait):
            entry.device.order(entry.other, stream=stream, of=entry.of)
        else:
            entry.do()


class RecordedWork:
    """Work that was enqueued once, and can be again, with other values of its :class:`Late` arguments.

    Parameters
    ----------
    entries : sequence of Entry
        The work, in order.
    """

    def __init__(self, entries: Sequence[TapeEntry]):
        self.entries = entries
        self.late = [entry for _, entry in entries if isinstance(entry, PackedLaunch)
                     and any(isinstance(each, Late) for each in entry.arguments)]
        self._kernels = Counter(entry.kernel.device for _, entry in entries if isinstance(entry, PackedLaunch))
        self._slots = {each.slot: each.value.tobytes() for call in self.late for each in call.arguments
                       if isinstance(each, Late)}

    def set(self, values: Callable[[int], np.generic]) -> bool:
        """Set the values of slots; return whether one of them has changed."""
        slots = {slot: values(slot).tobytes() for slot in self._slots}
        if slots == self._slots:
            return False
        self._slots, changed = slots, False
        for call in self.late:
            arguments = [Late(each.slot, values(each.slot)) if isinstance(each, Late) else each
                         for each in call.arguments]
            packed = call.kernel.device.packed(call.kernel, arguments)
            changed |= packed != call.packed
            call.arguments, call.packed = arguments, packed
        return changed

    def start(self) -> None:
        """Enqueue the work."""
        enqueue(self.entries)
        self._count()

    def _count(self) -> None:
        for device, kernels in self._kernels.items():
            device.counts.launches += kernels

    def close(self) -> None:
        """Free the recorded work."""


@dataclass(frozen=True)
class Memory:
    """Bytes in use by this process, and in all."""

    used: int
    total: int


@dataclass(slots=True)
class DeviceCounts:
    """Counters of a device: launches of kernels, kernels that were compiled or taken from the cache on disk, and the
    seconds of that; how long at least one plan had work for it.
    """

    launches: int = 0
    loaded: int = 0
    compiling: float = 0.0
    busy: BusyTime = field(default_factory=BusyTime)


class Device(ABC):
    """A place where blocks live and kernels run.

    Attributes
    ----------
    kind : str
        Its :class:`~gpu_worker.protocol.device_kinds.DeviceKind`'s name, such as "cuda".
    name : str
        The kind with a number, such as "cuda:0".
    multiprocessors : int
        How many thread blocks it can work on side by side, at least.
    shared_limit : int
        The bytes of shared memory that a thread block can have.
    counts : DeviceCounts
        What it has done so far.
    work_bytes : int
        The bytes that a thread block of a fold reads, at most, unless it leaves much; 0 for any number. It is for
        devices with few processors, where a thread block is a large part of what there is.
    asynchronous : bool
        Whether kernels, and copies of memory that is pinned, go on by themselves while their caller does.
    clusters : bool
        Whether thread blocks of neighbouring numbers can form clusters.
    """

    kind: ClassVar[str]
    asynchronous: ClassVar[bool] = False
    work_bytes: ClassVar[int] = 0

    def __init__(self, name: str, multiprocessors: int = 1, shared_limit: int = 0):
        self.name = name
        self.multiprocessors = multiprocessors
        self.shared_limit = shared_limit
        self.counts = DeviceCounts()
        self.clusters = False
        self.lock = threading.Lock()

    @classmethod
    def devices_at(cls, devices: Sequence[Device], addresses: Sequence[str]) -> Sequence[Device]:
        """Return the devices that Spark's addresses of GPUs name, of a worker's devices, all of this class.

        Here these are all, as such addresses mean nothing to a device that is no GPU.

        Raises
        ------
        DeviceUnavailable
            If the worker has none of them.
        """
        return devices

    def active(self) -> AbstractContextManager[None]:
        """Return a context in which calls of this thread need not make the device current."""
        return nullcontext()

    @abstractmethod
    def stream(self) -> Stream:
        """Return a new stream."""

    def clock(self) -> Clock:
        """Return a new clock of the device's busy time on streams whose :attr:`Stream.clock` is of it; for one thread
        at a time.
        """
        return Clock()

    @abstractmethod
    def allocate(self, nbytes: int, *, stream: Stream, is_for_messages: bool = False) -> Buffer:
        """Return memory of ``nbytes`` bytes with undefined content, aligned to 256 bytes. Where it is for messages, a
        library that moves them may open it in other processes.

        Raises
        ------
        OutOfMemory
            If the device, or the limit set for it, has no room. Nothing else is touched.
        """

    @abstractmethod
    def free(self, buffer: Buffer) -> None:
        """Take a buffer's memory back. Called by :meth:`Buffer.close` alone."""

    @property
    def shares(self) -> str:
        """Name of the memory that other processes' devices of the same kind can map, equal for all that can map it;
        empty where they cannot.
        """
        return ""

    def share_memory(self, nbytes: int) -> SharedMemory:
        """Return new memory that other processes can map by its descriptor.

        Raises
        ------
        OutOfMemory
            If there is no room for it.
        DeviceUnavailable
            If the device has no memory of that kind.
        """
        raise DeviceUnavailable(f"{self.name} has no memory that other processes can map")

    def map_memory(self, descriptor: int, nbytes: int) -> Buffer:
        """Map memory that :meth:`share_memory` made, here or in another process, to be read only.

        Other processes' devices can do so too. The descriptor stays the caller's. It does not count as used here.

        Raises
        ------
        DeviceUnavailable
            If it is no such memory, or the device cannot map it.
        """
        raise DeviceUnavailable(f"{self.name} cannot map memory of other processes")

    @abstractmethod
    def copy_in(self, target: Buffer, source: np.ndarray, *, stream: Stream) -> None:
        """Copy host bytes (a contiguous uint8 array) to the start of a buffer. ``source`` must outlive the copy."""

    @abstractmethod
    def copy_out(self, target: np.ndarray, source: Buffer, *, stream: Stream) -> None:
        """Copy the start of a buffer to host bytes (a contiguous uint8 array), which must outlive the copy."""

    @abstractmethod
    def copy_across(self, target: Buffer, source: Buffer, *, stream: Stream) -> None:
        """Copy a buffer to another of at least its size, on this device or from a device of the same kind."""

    def compile(self, source: Source, name: str) -> CompiledKernel:
        """Compile the kernel ``name`` (it may be a template's instance, such as ``"fold<float, 256>"``).

        Results are kept in this process and, by content, on disk.

        Raises
        ------
        CompileError
            If the compiler refuses the source or it has no kernel ``name``; with the compiler's words in ``detail``.
        """
        before = time.monotonic()
        try:
            return self.compiled(source, name)
        finally:
            self.counts.compiling += time.monotonic() - before

    @abstractmethod
    def compiled(self, source: Source, name: str) -> CompiledKernel:
        """Return the compiled kernel for :meth:`compile`, which measures the time of this call."""

    def launch(self, kernel: CompiledKernel, grid: Sequence[int], block: Sequence[int],
               arguments: Sequence[LaunchValue], *, shared: int = 0, stream: Stream) -> None:
        """Launch a kernel over ``grid`` blocks of ``block`` threads (1 to 3 extents each).

        Raises
        ------
        LaunchError
            If an extent is not in the device's range, or the number or the sizes of the arguments are not the
            kernel's.
        """
        call = PackedLaunch(kernel, tuple(map(index, grid)), tuple(map(index, block)), index(shared), arguments, b"")
        self.check(call)
        call.packed = self.packed(kernel, arguments)
        self.start(call, stream=stream)
        self.counts.launches += 1
        if stream.tape is not None:
            stream.tape.append((stream, call))

    @abstractmethod
    def check(self, call: PackedLaunch) -> None:
        """Raise what :meth:`launch` does where a launch is out of the kernel's or the device's range."""

    @abstractmethod
    def packed(self, kernel: Any, arguments: Sequence[LaunchValue]) -> bytes:
        """Return a kernel's parameters; raises as :meth:`launch` does."""

    @abstractmethod
    def start(self, call: PackedLaunch, *, stream: Stream) -> None:
        """Enqueue a launch that was checked."""

    def side_by_side(self, kernel: Any, threads: int, shared: int) -> int:
        """Return the number of thread blocks of a kernel that run at once, each of ``threads`` threads and ``shared``
        bytes of shared memory.

        0 where that is not known, or all numbers of them take as long.
        """
        return 0

    def recorded(self, entries: Sequence[TapeEntry], *, stream: Stream) -> RecordedWork:
        """Return replayable work of a tape's entries, all of one stream."""
        return RecordedWork(entries)

    def mark(self, *, stream: Stream) -> int:
        """Put a mark behind all work enqueued so far; return its number, counted from 1."""
        stream.marks += 1
        return stream.marks

    def wait(self, other: Stream, *, stream: Stream, of: Device | None = None) -> None:
        """Let a stream of this device wait for all work enqueued so far on another stream, which may be of device
        ``of``.
        """
        if stream.tape is not None:
            stream.tape.append((stream, Wait(self, other, of or self)))
        self.order(other, stream=stream, of=of or self)

    def order(self, other: Stream, *, stream: Stream, of: Device) -> None:
        """Let ``stream`` run behind what ``other`` has enqueued so far; a no-op on devices whose streams run in one
        order.
        """

    def reaches(self, other: Device) -> bool:
        """Return whether this device's kernels may read and write another's memory."""
        return True

    @abstractmethod
    def synchronize(self, *, stream: Stream) -> None:
        """Wait until all work of a stream is complete.

        Raises
        ------
        KernelFault
            If a kernel of this process has failed; the process must end.
        """

    def synchronize_asleep(self, *, stream: Stream) -> None:
        """Wait like :meth:`synchronize`, but asleep: other threads get the processor, and the wake-up takes longer."""
        self.synchronize(stream=stream)

    def query(self, *, stream: Stream) -> None:
        """Raise what :meth:`synchronize` would by now, without waiting."""

    @abstractmethod
    def memory(self) -> Memory:
        """Return the device's memory figures."""

    def pin(self, memory: np.ndarray) -> None:
        """Make copies to and from this host memory (uint8) as fast as the device can; optional."""

    def unpin(self, memory: np.ndarray) -> None:
        """Undo :meth:`pin`, before the memory goes away."""

    @abstractmethod
    def close(self) -> None:
        """Give everything back."""
