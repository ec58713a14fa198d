"""Assignment of partitions' work to devices and streams."""

from __future__ import annotations

import logging
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from gpu_worker.device.base import Act, Device, RecordedWork, Stream, TapeEntry, Wait, enqueue
from gpu_worker.device.clock import UNTIMED, Clock
from gpu_worker.execution.scheduling.in_flight import InFlightQueue
from gpu_worker.protocol.errors import DeviceUnavailable, VisparkError
from gpu_worker.protocol.payload import Data, Payload

_log = logging.getLogger(__name__)

#: Streams of one device that a single plan works on at once.
SIDE_STREAMS = 8

#: The numbers of a device's own stream, of the one for copies beside it, and of those for what waits for such copies;
#: side streams count from 0.
MAIN, BESIDE, RIMS = -1, -2, (-3, -4)

#: Smaller payloads are copied faster than they are pinned.
PIN_FROM = 4 << 20


class StreamPool:
    """Pool of a worker's devices and their idle streams.

    Parameters
    ----------
    devices : sequence of Device
        The devices that are open.
    opener : callable, optional
        Opens the devices at addresses that Spark assigned: one for each, or one that stands for all. With it, further
        devices are opened as they are assigned, and partitions go to those of their executor's devices that have the
        fewest; without it, to all in turn.
    substitute : callable, optional
        Opens devices for executors to which Spark assigned none, where no other executor of the node has any either;
        without it, that is an error. From then on they stand for what is assigned, too, as a process has devices of one
        kind; :meth:`unassigned` names them, so that the process ends and its successor opens what was assigned.
    """

    def __init__(self, devices: Sequence[Device], opener: Callable[[Sequence[str]], Sequence[Device]] | None = None,
                 substitute: Callable[[], Sequence[Device]] | None = None):
        self.devices = tuple(devices)
        self._opener = opener
        self._substitute = substitute
        self._substitutes: tuple[Device, ...] = ()
        self._opening = threading.Lock()
        self._at: dict[str, Device] = {}
        self._placements = Placements()
        self._idle: dict[Device, list[Stream]] = defaultdict(list)
        self._lock = threading.Lock()

    def take(self, device: Device) -> Stream:
        with self._lock:
            if self._idle[device]:
                return self._idle[device].pop()
        return device.stream()

    def give(self, device: Device, stream: Stream) -> None:
        with self._lock:
            self._idle[device].append(stream)

    def devices_at(self, addresses: Sequence[str]) -> Sequence[Device]:
        """Return the devices at the GPU addresses that Spark assigned; all devices if it assigned none.

        Raises
        ------
        DeviceUnavailable
            If this worker has none of them, or none at all.
        """
        if self._opener is not None:
            return self._assigned(addresses)
        return self.devices[0].devices_at(self.devices, addresses) if addresses else self.devices

    def open(self, addresses: Sequence[str]) -> None:
        """Open the devices at addresses that Spark assigned, as far as they are not open; none where all are.

        Raises
        ------
        DeviceUnavailable
            If one of them cannot be had; then none of them is opened.
        """
        if self._opener is None:
            return
        with self._opening:
            missing = [address for address in addresses if address not in self._at]
            if missing:
                devices = self._substitutes or self._opener(missing)
                for number, address in enumerate(missing):
                    self._at[address] = self._new(devices[number % len(devices)])

    def _new(self, device: Device) -> Device:
        opened = next((each for each in self.devices if each.name == device.name), None)
        if opened is not None:       # by another of its names, or it is what stands for all addresses
            if opened is not device:
                device.close()
            return opened
        self.devices = (*self.devices, device)
        return device

    def unassigned(self, addresses: Collection[str]) -> list[Device]:
        """Return the open devices that none of the addresses names any more."""
        with self._opening:
            if self._substitutes:
                return list(self._substitutes) if addresses else []
            assigned = {device.name for address, device in self._at.items() if address in addresses}
            return [device for device in self.devices if self._at and device.name not in assigned]

    def _assigned(self, addresses: Sequence[str]) -> Sequence[Device]:
        missing = [address for address in addresses if address not in self._at]
        if missing:
            raise DeviceUnavailable(f"the GPU {missing[0]!r} is not open in this session's process: no executor that "
                                    "has it greeted the worker")
        if not self.devices:
            self._open_substitutes()
        return [self._at[address] for address in addresses] or self.devices

    def _open_substitutes(self) -> None:
        if self._substitute is None:
            raise DeviceUnavailable("Spark assigned no GPU to this executor, nor to another of the application on this "
                                    "node: give the load a resource profile whose executors have some, set "
                                    "spark.vispark.unassigned=host to use the CPU on such nodes, or "
                                    "spark.vispark.device=host for all")
        with self._opening:
            if not self.devices:
                self._substitutes = self.devices = tuple(self._substitute())
                _log.warning("Spark assigned no GPU to the executors of this node: %s in its place",
                             ", ".join(device.name for device in self.devices))

    def place(self, vrdd: int, partition: int, addresses: Sequence[str]) -> Device:
        """Return the device for a new partition of a VRDD; the same for equal arguments."""
        devices = self.devices_at(addresses)
        if self._opener is None:
            return devices[partition % len(devices)]
        return self._placements.device(vrdd, partition, devices)

    def forget(self, vrdds: Collection[int]) -> None:
        """Forget where partitions of released VRDDs were placed."""
        self._placements.forget(vrdds)

    def pin(self, memory: np.ndarray) -> None:
        """Pin memory for all devices, if there are any."""
        if self.devices:
            self.devices[0].pin(memory)

    def unpin(self, memory: np.ndarray) -> None:
        """Undo :meth:`pin`, where it pinned."""
        if self.devices:
            self.devices[0].unpin(memory)


class Placements:
    """Table of the devices that partitions were placed on, by which further ones go where there are the fewest.

    Spark decides which executor has which partition, so that the numbers of an executor's partitions say nothing.
    """

    def __init__(self) -> None:
        self._devices: dict[int, dict[int, Device]] = defaultdict(dict)
        self._lock = threading.Lock()

    def device(self, vrdd: int, partition: int, devices: Sequence[Device]) -> Device:
        """Return the device of a partition: as before if it is one of ``devices``, else that with the fewest."""
        with self._lock:
            placed = self._devices[vrdd]
            if placed.get(partition) not in devices:
                placed.pop(partition, None)
                counts = Counter(device.name for device in placed.values())
                placed[partition] = min(devices, key=lambda device: counts[device.name])
            return placed[partition]

    def forget(self, vrdds: Collection[int]) -> None:
        """Forget the partitions of some VRDDs."""
        with self._lock:
            for vrdd in vrdds:
                self._devices.pop(vrdd, None)


class Streams:
    """The streams of one plan: one for each device, and side streams for work on single partitions.

    Work given to a side stream starts behind all that the device's own stream has, and what that is given next behind
    all work of its side streams.

    Parameters
    ----------
    pool : StreamPool
        Where streams come from.
    side_streams : int
        The most side streams of a device; 1 for none beside its own stream.
    record : bool
        Whether to note what is enqueued on them.
    line : InFlightQueue, optional
        Whose streams to use, in one of its turns.
    timed : bool
        Whether to take down how long the devices work on them.
    """

    def __init__(self, pool: StreamPool, side_streams: int = SIDE_STREAMS, *, record: bool = False,
                 line: InFlightQueue | None = None,
                 timed: bool = False):
        self._pool = pool
        self._line = line
        self._count = side_streams
        self._tape: list[TapeEntry] | None = [] if record else None
        self._clocks: dict[Device, Clock] | None = {} if timed else None
        self._taken: dict[tuple[Device, int], Stream] = {}
        self._forked: dict[Device, set[Stream]] = defaultdict(set)
        self._busy: set[Device] = set()

    def place(self, vrdd: int, partition: int, addresses: Sequence[str]) -> Device:
        """Return the device for a new partition of a VRDD, as :meth:`StreamPool.place` does."""
        return self._pool.place(vrdd, partition, addresses)

    @property
    def devices(self) -> Sequence[Device]:
        """All devices of the worker."""
        return self._pool.devices

    def devices_at(self, addresses: Sequence[str]) -> Sequence[Device]:
        """Return the devices at some addresses, as :meth:`StreamPool.devices_at` does."""
        return self._pool.devices_at(addresses)

    def main(self, device: Device) -> Stream:
        """Return a device's own stream, ordered behind all work in its side streams."""
        main = self._stream(device, MAIN)
        for side in self._forked.pop(device, ()):
            device.wait(side, stream=main)
        return main

    def partition_stream(self, device: Device, partition: int) -> Stream:
        """Return the stream for work on a single partition."""
        main = self._stream(device, MAIN)
        if self._count < 2:
            return main
        stream = self._stream(device, partition // len(self._pool.devices) % self._count)
        if stream not in self._forked[device]:
            device.wait(main, stream=stream)
            self._forked[device].add(stream)
        return stream

    def copy_stream(self, device: Device) -> Stream:
        """Return a stream for copies beside a device's own work, ordered with it by waits alone."""
        return self._stream(device, BESIDE)

    def rim_stream(self, device: Device, number: int) -> Stream:
        """Return a stream for work that waits for other devices' copies while the device's own stream goes on, ordered
        with it by waits alone.
        """
        return self._stream(device, RIMS[number % len(RIMS)])

    def before(self, device: Device, stream: Stream) -> list[Stream]:
        """Return the streams whose work so far precedes a stream's next work: buffers that they freed may be used
        there.
        """
        main = self._stream(device, MAIN)
        if stream is main:
            return [main, *(lane for (owner, number), lane in self._taken.items() if owner is device and number >= 0)]
        return [stream, main]

    def _stream(self, device: Device, number: int) -> Stream:
        if (device, number) not in self._taken:
            if device not in self._busy:
                self._busy.add(device)
                device.counts.busy.begin()
            self._taken[device, number] = self._line.stream(device, number) if self._line else self._pool.take(device)
            self._taken[device, number].tape = self._tape
            if self._clocks is not None:
                self._clocks[device] = self._clocks.get(device) or device.clock()
                self._taken[device, number].clock = self._clocks[device].of(self._taken[device, number])
        return self._taken[device, number]

    def synchronize(self) -> None:
        """Wait for all of the plan's work."""
        for (device, _), stream in self._taken.items():
            device.synchronize(stream=stream)

    def busy(self) -> float:
        """Return the busy seconds of the busiest device since the last call, if devices are timed; all work must be
        complete.
        """
        return max([clock.busy() for clock in (self._clocks or {}).values()], default=0.0)

    def drain(self) -> None:
        """Wait for all work of a failed plan; further errors are ignored."""
        for (device, _), stream in self._taken.items():
            try:
                device.synchronize(stream=stream)
            except VisparkError:
                continue

    def close(self) -> None:
        """Return the streams to the pool."""
        for device, stream in self.keep():
            if self._line is None:
                self._pool.give(device, stream)
        for clock in (self._clocks or {}).values():
            clock.close()
        while self._busy:
            self._busy.pop().counts.busy.end()

    @property
    def noted(self) -> list[TapeEntry]:
        """The recorded launches, copies and waits."""
        return self._tape or []

    @contextmanager
    def noting(self) -> Iterator[list[TapeEntry]]:
        """Record work enqueued within the context in a list of its own."""
        outer, apart = self._tape, []           # type: tuple[list[TapeEntry] | None, list[TapeEntry]]
        self._put(apart)
        try:
            yield apart
        finally:
            self._put(outer)

    def _put(self, tape: list[TapeEntry] | None) -> None:
        self._tape = tape
        for stream in self._taken.values():
            stream.tape = tape

    def enqueue_again(self, entries: Sequence[TapeEntry]) -> None:
        """Enqueue recorded entries again, without recording them once more."""
        if self._tape is None:
            enqueue(entries)
            return
        with self.noting():
            enqueue(entries)

    def note(self, entries: Iterable[TapeEntry]) -> None:
        """Append entries that were enqueued otherwise to the tape, if there is one."""
        if self._tape is not None:
            self._tape.extend(entries)

    def recorded(self, tape: Sequence[TapeEntry]) -> list[RecordedWork]:
        """Return replayable work of the entries on a tape: one piece for each stream, or one for all if a stream waits
        for another.
        """
        if any(isinstance(entry, Wait | Act) for _, entry in tape):
            return [RecordedWork(tape)]
        return [device.recorded([entry for entry in tape if entry[0] is stream], stream=stream)
                for (device, _), stream in self._taken.items() if any(each is stream for each, _ in tape)]

    def keep(self) -> list[tuple[Device, Stream]]:
        """Return the used streams, which the caller owns from then on."""
        streams = [(device, stream) for (device, _), stream in self._taken.items()]
        self._taken.clear()
        for _, stream in streams:
            stream.tape, stream.clock = None, UNTIMED
        return streams

    @contextmanager
    def pinned(self, payload: Data | None) -> Iterator[None]:
        """Pin a payload, if it is large enough, while its copies run."""
        if not isinstance(payload, Payload) or payload.size < PIN_FROM:
            yield
            return
        self._pool.pin(payload.array)
        try:
            yield
        finally:
            self._pool.unpin(payload.array)
