"""Snapshots of a device process's content: copied in the background, and put into the daemon.

Content never changes under a name, so a snapshot needs no pause: it copies buffers as they lie in device memory while
plans go on. What windows of patches share is copied once. Ghost cells in it hold nothing.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from gpu_worker.client.connection import connect
from gpu_worker.device.base import Buffer, Device
from gpu_worker.device.memory.grid.boxes import Box, Triple
from gpu_worker.device.memory.grid.layout import BlockWindow, PackedLayout, PatchLayout
from gpu_worker.device.memory.partition import HeldArray, Partition
from gpu_worker.device.memory.registry import Registry
from gpu_worker.execution.scheduling.streams import StreamPool
from gpu_worker.protocol.codec import decode, encode
from gpu_worker.protocol.errors import PartitionMissing, VisparkError, WorkerLost, WorkerUnavailable
from gpu_worker.protocol.messages import (
    VERSION,
    CopyTo,
    Discard,
    Field,
    GetSnapshot,
    Hello,
    HoldCopy,
    PutSnapshot,
    Save,
    Saved,
    SessionOptions,
)
from gpu_worker.protocol.payload import Payload, aligned
from gpu_worker.protocol.system import as_error
from gpu_worker.system.admin import exchange_descriptors
from gpu_worker.system.failpoints import failpoint

log = logging.getLogger(__name__)

#: The complete ones that replies tell of: one is of use, the other on its way to be.
_MOST_SAVED = 2
#: How long a daemon that comes may take until it listens, and how often it is tried, in seconds.
_DAEMON_SECONDS = 10.0
_AGAIN_SECONDS = 0.05
#: How long another node may take until it can be sent a copy, in seconds.
_CONNECT_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class SavedBuffer:
    """Part of a snapshot that lay in one buffer, on the device of that number."""

    offset: int
    nbytes: int
    device: int


@dataclass(frozen=True, slots=True)
class SavedWindow:
    """Saved form of a :class:`~gpu_worker.device.memory.grid.layout.BlockWindow`: the cells of patch and block, and the
    patch's ghosts.

    ``packed`` says that it is laid out as kernels of others take it.
    """

    patch_low: Triple
    patch_high: Triple
    ghosts: Triple
    low: Triple
    high: Triple
    packed: bool


@dataclass(frozen=True, slots=True)
class SavedArray:
    """Saved array: its field, and its buffer or a window of one."""

    field: Field
    buffer: int
    window: SavedWindow | None


@dataclass(frozen=True, slots=True)
class SavedPartition:
    """Saved partition; ``keys`` are bytes of its keys' blob at ``offset``, or -1 if it has none."""

    index: int
    count: int
    keys: int
    offset: int
    layout: bytes
    device: int
    positions: tuple[int, ...]
    blocks: tuple[tuple[SavedArray, ...], ...]


@dataclass(frozen=True, slots=True)
class SnapshotDescription:
    """Description of a snapshot's content: its buffers and partitions."""

    buffers: tuple[SavedBuffer, ...]
    partitions: tuple[SavedPartition, ...]


@dataclass(frozen=True)
class Kept:
    """Snapshot's memory, the place of its description in it, and whether it is complete."""

    memory: Payload
    offset: int
    nbytes: int
    is_complete: bool = False


@dataclass
class ProcessSnapshots:
    """Snapshots of a device process.

    Parameters
    ----------
    session : str
    secret : bytes
        What daemons know the session by.
    options : SessionOptions
    names : Registry
    pool : StreamPool
    """

    session: str
    secret: bytes = field(repr=False)
    options: SessionOptions
    names: Registry
    pool: StreamPool
    #: Complete ones, and the one that is being taken.
    _memory: dict[int, Kept] = field(default_factory=dict)
    #: The newest complete and failed ones; only the background thread sets it.
    _saved: tuple[Saved, ...] = ()
    #: Number of those that were completed; only the background thread sets it.
    completed: int = 0
    #: Memory of one that no loop needs any more, pinned as it is, for the next one of a loop that goes on.
    _spare: Payload | None = None
    #: What other nodes gave us, by number and owner: held beside the daemon, so that it is not lost with that.
    _copies: dict[tuple[int, str], Kept] = field(default_factory=dict)
    #: Numbers that the daemon may have.
    _left: set[int] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _thread: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "snapshots"))

    @property
    def saved(self) -> tuple[Saved, ...]:
        """The newest snapshots that are complete, or failed."""
        return self._saved

    def begin(self, save: Save) -> None:
        """Start a snapshot of a VRDD's present content, in the background.

        Memory of earlier ones but those needed is used again, pinned as it is. One that fails is in the log, and
        the next reply says so.
        """
        partitions = self.names.share(save.vrdd)
        self._later(self._take, save, partitions)

    def _later(self, work: Callable[..., None], *arguments: object) -> None:
        """Queue work for the background thread, behind all earlier work."""
        try:
            self._thread.submit(self._do, work, *arguments)
        except RuntimeError as error:
            # It is done with the next thing for which there is a thread.
            log.warning("what concerns snapshots waits: %s", error)

    def _do(self, work: Callable[..., None], *arguments: object) -> None:
        """Run ``work`` in the background, and log its errors."""
        try:
            work(*arguments)
        except Exception:
            log.exception("what concerns snapshots was not done")

    def _take(self, save: Save, partitions: list[Partition]) -> None:
        started = time.monotonic()
        failed = "a defect of the worker, which its log tells of"
        nbytes, copied = 0, False
        try:
            nbytes = self._copied(save, partitions)
            with self._lock:
                snapshot = self._memory[save.number] = replace(self._memory[save.number], is_complete=True)
            copied = save.copy is not None and self._sent(save, save.copy, snapshot)
            failed = ""
            self.completed += 1
        except (VisparkError, OSError, MemoryError) as error:
            failed = as_error(error).message
            log.warning("snapshot %d of VRDD %d failed: %s", save.number, save.vrdd, failed)
        finally:
            saved = Saved(save.number, nbytes, time.monotonic() - started, copied, failed)
            self._saved = (*self._saved, saved)[-_MOST_SAVED:]

    def _copied(self, save: Save, partitions: list[Partition]) -> int:
        """Copy the content, put it into the daemon, and return its bytes."""
        try:
            if not partitions:
                raise PartitionMissing(f"nothing is held of VRDD {save.vrdd}")
            described, buffers, size = self._described(partitions)
            text = encode(described, SnapshotDescription)
            memory = self._snapshot_memory(size + aligned(len(text)), save.needed)
            with self._lock:
                self._memory[save.number] = Kept(memory, size, len(text))
            memory.view(size, len(text))[:] = np.frombuffer(text, np.uint8)
            for partition, saved in zip(partitions, described.partitions, strict=True):
                if partition.keys is not None:
                    memory.view(saved.offset, saved.keys)[:] = partition.keys
            self._copy(memory, described.buffers, buffers)
        finally:
            for partition in partitions:
                partition.close()
        failpoint("snapshot-taken")
        try:
            self._put_snapshot(save.number, self._memory[save.number], save.needed)
        except (WorkerLost, WorkerUnavailable) as error:
            log.info("the next daemon gets snapshot %d: %s", save.number, error.message)
        failpoint("snapshot-left")
        return size

    def _put_snapshot(self, number: int, kept: Kept, needed: tuple[int, ...]) -> None:
        """Put a snapshot into the daemon."""
        self._left.add(number)
        exchange_descriptors(PutSnapshot(self.session, self.secret, number, needed, kept.offset, kept.nbytes),
                             [kept.memory.descriptor])

    def _sent(self, save: Save, to: CopyTo, kept: Kept) -> bool:
        """Send a replica to another node; return whether that node holds it."""
        hello = Hello(VERSION, "driver", self.session, self.secret, "", 0, self.options)
        try:
            with connect(hello, runtime_dir=to.runtime_dir or None, reach=to.reach, start=False,
                         timeout=_CONNECT_SECONDS) as client:
                client.request(HoldCopy(client.next_number(), save.number, to.owner, save.needed, kept.offset,
                                        kept.nbytes), [kept.memory.descriptor])
        except VisparkError as error:
            log.warning("no other node has snapshot %d: %s", save.number, error.message)
            return False
        failpoint("snapshot-copied")
        return True

    def hold(self, request: HoldCopy, descriptor: int) -> None:
        """Hold another node's replica, and put it into the daemon.

        Raises
        ------
        VisparkError
            If the memory is none, or the daemon does not take it.
        """
        copy = Kept(Payload.receive(descriptor), request.offset, request.nbytes, is_complete=True)
        part = request.snapshot, request.owner
        with self._lock:
            needed = (part[0], *request.needed)
            for other in [other for other in self._copies if other == part or other[0] not in needed]:
                self._copies.pop(other).memory.close()
            self._copies[part] = copy
            self._left.add(request.snapshot)
        try:
            failpoint("copy-received")
            self._put_copy(part, copy, request.needed)
        except (WorkerLost, WorkerUnavailable) as error:
            log.info("the next daemon gets the copy of snapshot %d: %s", request.snapshot, error.message)
        except VisparkError:
            with self._lock:
                if self._copies.get(part) is copy:
                    del self._copies[part]
            copy.memory.close()
            raise

    def _put_copy(self, part: tuple[int, str], copy: Kept, needed: tuple[int, ...]) -> None:
        exchange_descriptors(PutSnapshot(self.session, self.secret, part[0], needed, copy.offset, copy.nbytes, part[1]),
                             [copy.memory.descriptor])

    def adopted(self) -> None:
        """Put complete snapshots and replicas into the daemon that adopts this process, once the daemon listens; the
        earlier daemon's copies went with it.
        """
        self._later(self._put_all, time.monotonic() + _DAEMON_SECONDS)

    def _put_all(self, until: float) -> None:
        complete = {number: kept for number, kept in list(self._memory.items()) if kept.is_complete}
        with self._lock:
            copies = {part: replace(copy, memory=copy.memory.share())
                      for part, copy in self._copies.items()}
        needed = (*complete, *(number for number, _ in copies))
        leaving = [partial(self._put_snapshot, number, kept, needed) for number, kept in complete.items()]
        leaving += [partial(self._put_copy, part, copy, needed) for part, copy in copies.items()]
        try:
            for leave in leaving:
                _persist(leave, until)
        except VisparkError as error:
            log.warning("the daemon does not take the snapshots: %s", error.message)
        finally:
            for copy in copies.values():
                copy.memory.close()

    def _described(self, partitions: Sequence[Partition]) -> tuple[SnapshotDescription, list[Buffer], int]:
        """Return a snapshot's description, the buffers to copy, and its size in bytes."""
        places: dict[int, int] = {}
        buffers: list[Buffer] = []
        saved: list[SavedBuffer] = []
        size, described = 0, []
        for partition in partitions:
            blocks = []
            for block in partition.blocks:
                arrays = []
                for array in block:
                    if array.buffer is None:
                        raise PartitionMissing(f"partition {partition.index} is not in device memory")
                    if id(array.buffer) not in places:
                        places[id(array.buffer)] = len(buffers)
                        buffers.append(array.buffer)
                        saved.append(SavedBuffer(size, array.buffer.nbytes, self._number(array.buffer.device)))
                        size += aligned(array.buffer.nbytes)
                    arrays.append(SavedArray(array.field, places[id(array.buffer)], _saved(array.window)))
                blocks.append(tuple(arrays))
            keys = -1 if partition.keys is None else partition.keys.nbytes
            described.append(SavedPartition(partition.index, partition.count, keys, size, partition.layout,
                                            self._number(partition.device), tuple(partition.positions), tuple(blocks)))
            size += aligned(max(keys, 0))
        return SnapshotDescription(tuple(saved), tuple(described)), buffers, size

    def _number(self, device: Device) -> int:
        return self.pool.devices.index(device)

    def _snapshot_memory(self, nbytes: int, needed: Collection[int]) -> Payload:
        free, self._spare = [self._spare] if self._spare else [], None
        for number in [number for number in list(self._memory) if number not in needed]:
            with self._lock:
                free.append(self._memory.pop(number).memory)
        self._left &= set(needed)
        reused = next((memory for memory in free if memory.size == nbytes), None)
        for memory in free:
            if memory is not reused:
                self._discard(memory)
        if reused is not None:
            return reused
        memory = Payload.create(nbytes)
        self.pool.pin(memory.array)
        return memory

    def _discard(self, memory: Payload) -> None:
        self.pool.unpin(memory.array)
        memory.close()

    def _discard_spare(self) -> None:
        if self._spare is not None:
            self._discard(self._spare)
            self._spare = None

    def _copy(self, memory: Payload, saved: Sequence[SavedBuffer], buffers: Sequence[Buffer]) -> None:
        streams = {buffer.device: self.pool.take(buffer.device) for buffer in buffers}
        try:
            for place, buffer in zip(saved, buffers, strict=True):
                buffer.device.copy_out(memory.view(place.offset, place.nbytes), buffer, stream=streams[buffer.device])
            failpoint("snapshot-copying")
            for device, stream in streams.items():
                device.synchronize(stream=stream)
        finally:
            for device, stream in streams.items():
                self.pool.give(device, stream)

    def forget(self, numbers: Collection[int]) -> None:
        """Forget snapshots, here and in the daemon; unknown numbers are ignored."""
        ours = self._left.intersection(numbers)
        if ours:
            self._later(self._forget, ours)

    def _forget(self, numbers: set[int]) -> None:
        self._left -= numbers
        for number in numbers & self._memory.keys():
            with self._lock:
                snapshot = self._memory.pop(number)
            if self._spare is None:
                self._spare = snapshot.memory
            else:
                self._discard(snapshot.memory)
        if not self._memory:
            self._discard_spare()
        with self._lock:
            for part in [part for part in self._copies if part[0] in numbers]:
                self._copies.pop(part).memory.close()
        with suppress(VisparkError):
            exchange_descriptors(Discard(self.session, self.secret, tuple(numbers)))

    def restore(self, source: int, vrdd: int, name: str, owner: str = "") -> None:
        """Restore a snapshot as a VRDD of another number: a snapshot of this process, or the replica of ``owner``.

        Raises
        ------
        PartitionMissing
            If neither this process nor the daemon has the snapshot.
        """
        with self._copy_of(source, owner) if owner else self._complete_snapshot(source) as memory:
            self._restore(memory, vrdd, name)

    @contextmanager
    def _copy_of(self, source: int, owner: str) -> Iterator[Kept]:
        """Yield the replica of another node's part of a snapshot, from the daemon."""
        failpoint("copy-restoring")
        reply, descriptors = exchange_descriptors(GetSnapshot(self.session, self.secret, source, owner))
        with Payload.receive(descriptors[0]) as memory:
            yield Kept(memory, reply.offset, reply.nbytes, is_complete=True)

    @contextmanager
    def _complete_snapshot(self, source: int) -> Iterator[Kept]:
        """Yield a complete snapshot: this process's, or the daemon's, which this process holds from then on."""
        with self._lock:
            snapshot = self._memory.get(source)
            if snapshot is not None and snapshot.is_complete:
                shared = replace(snapshot, memory=snapshot.memory.share())
        if snapshot is None or not snapshot.is_complete:
            reply, descriptors = exchange_descriptors(GetSnapshot(self.session, self.secret, source))
            shared = Kept(Payload.receive(descriptors[0]), reply.offset, reply.nbytes, is_complete=True)
            self._take_over(source, shared)
        with shared.memory:
            yield shared

    def _take_over(self, number: int, snapshot: Kept) -> None:
        """Hold a snapshot that only the daemon has, so that it survives the daemon, and its memory can be reused."""
        memory = snapshot.memory.share()
        self.pool.pin(memory.array)
        with self._lock:
            self._left.add(number)
            before = self._memory.get(number)
            self._memory[number] = replace(snapshot, memory=memory)
        if before is not None:
            self._discard(before.memory)

    def _restore(self, kept: Kept, vrdd: int, name: str) -> None:
        if not self.pool.devices:
            raise PartitionMissing("a snapshot is not restored where Spark assigned no device to the session")
        described = decode(bytes(kept.memory.view(kept.offset, kept.nbytes)), SnapshotDescription)
        buffers = self._filled(kept.memory, described.buffers)
        for saved in described.partitions:
            self.names.bind(vrdd, name, self._partition(saved, buffers, kept.memory))
        for buffer in buffers:
            buffer.close()

    def _filled(self, memory: Payload, saved: Sequence[SavedBuffer]) -> list[Buffer]:
        buffers: list[Buffer] = []
        streams = {place.device: self.pool.take(self._device(place.device)) for place in saved}
        try:
            for place in saved:
                device, stream = self._device(place.device), streams[place.device]
                buffers.append(device.allocate(place.nbytes, stream=stream))
                device.copy_in(buffers[-1], memory.view(place.offset, place.nbytes), stream=stream)
            for number, stream in streams.items():
                self._device(number).synchronize(stream=stream)
        except VisparkError:
            for buffer in buffers:
                buffer.close()
            raise
        finally:
            for number, stream in streams.items():
                self.pool.give(self._device(number), stream)
        return buffers

    def _device(self, number: int) -> Device:
        return self.pool.devices[number % len(self.pool.devices)]

    def _partition(self, saved: SavedPartition, buffers: Sequence[Buffer], memory: Payload) -> Partition:
        keys = None if saved.keys < 0 else memory.view(saved.offset, saved.keys).copy()
        blocks = [tuple(HeldArray(array.field, buffer=buffers[array.buffer].share(), window=_window(array.window))
                        for array in block) for block in saved.blocks]
        return Partition(saved.index, saved.count, keys, saved.layout, blocks, self._device(saved.device),
                         positions=saved.positions)

    def close(self) -> None:
        """Free the snapshots' memory; the daemon's copies stay."""
        self._thread.shutdown(wait=True, cancel_futures=True)
        self._discard_spare()
        while self._memory:
            self._discard(self._memory.popitem()[1].memory)
        while self._copies:
            self._copies.popitem()[1].memory.close()


def _persist(leave: Callable[[], None], until: float) -> None:
    """Put a snapshot into a daemon, which may not listen yet."""
    while True:
        try:
            return leave()
        except VisparkError:
            if time.monotonic() > until:
                raise
            time.sleep(_AGAIN_SECONDS)


def _saved(window: BlockWindow | None) -> SavedWindow | None:
    if window is None:
        return None
    layout = window.layout
    return SavedWindow(layout.box.low, layout.box.high, layout.ghosts, window.box.low, window.box.high,
                       isinstance(layout, PackedLayout))


def _window(saved: SavedWindow | None) -> BlockWindow | None:
    if saved is None:
        return None
    layout = (PackedLayout if saved.packed else PatchLayout)(Box(saved.patch_low, saved.patch_high), saved.ghosts)
    return BlockWindow(layout, Box(saved.low, saved.high))
