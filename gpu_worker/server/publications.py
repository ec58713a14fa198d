"""Publications of a device process: what it publishes, and what it has attached of others.

Content never changes under a name, so a publication is a copy in memory that other processes map, and that the process
then holds in place of what it had. A reader's process maps the same memory, read only, as a VRDD of its own number.
Each process keeps the descriptors too, for a daemon that takes the place of one that ended.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from mmap import ACCESS_READ

import numpy as np

from gpu_worker.device.base import Buffer, Device, ReadOnlyPart, SharedMemory
from gpu_worker.device.memory.partition import Block, HeldArray, Partition
from gpu_worker.device.memory.registry import Registry
from gpu_worker.execution.scheduling.streams import StreamPool
from gpu_worker.protocol.codec import decode, encode
from gpu_worker.protocol.errors import (
    DeviceUnavailable,
    PartitionMissing,
    PlanError,
    VisparkError,
    WorkerLost,
    WorkerUnavailable,
)
from gpu_worker.protocol.messages import Field
from gpu_worker.protocol.payload import Payload, aligned
from gpu_worker.protocol.publications import (
    OPEN_TAG,
    PICKLED,
    TAG_BYTES,
    Attach,
    DetachPublications,
    GetPublication,
    PublicationDetails,
    Publish,
    PutPublication,
    Retract,
    SharedSegment,
    Unpublish,
)
from gpu_worker.protocol.system import system_call
from gpu_worker.protocol.wire import close_all
from gpu_worker.system.admin import exchange_descriptors
from gpu_worker.system.failpoints import failpoint

log = logging.getLogger(__name__)

#: How long a daemon that comes may take until it listens, and how often it is tried, in seconds.
_DAEMON_SECONDS, _AGAIN_SECONDS = 10.0, 0.05

#: Number of the segment of host memory.
_HOST = 0


@dataclass(frozen=True, slots=True)
class PublishedArray:
    """Array of a publication: its field, and where it lies in which segment."""

    field: Field
    segment: int
    offset: int


@dataclass(frozen=True, slots=True)
class PublishedPartition:
    """Partition of a publication; ``keys`` are bytes of its keys' blob at ``offset``, or -1 if it has none."""

    index: int
    count: int
    keys: int
    offset: int
    layout: bytes
    positions: tuple[int, ...]
    blocks: tuple[tuple[PublishedArray, ...], ...]


@dataclass(frozen=True, slots=True)
class PublicationContent:
    """Description of a publication's content on a node."""

    partitions: tuple[PublishedPartition, ...]


@dataclass
class SharedContent:
    """Publication as a process holds it: with its descriptors, which the process closes, and as which VRDD it is
    attached, or 0 if it is published here.
    """

    details: PublicationDetails
    segments: tuple[SharedSegment, ...]
    offset: int
    nbytes: int
    owner: str
    descriptors: list[int]
    vrdd: int = 0

    def close(self) -> None:
        close_all(self.descriptors)
        self.descriptors = []


@dataclass
class ProcessPublications:
    """Publications of a device process.

    Parameters
    ----------
    session : str
    secret : bytes
        What daemons know the session by.
    names : Registry
    pool : StreamPool
    """

    session: str
    secret: bytes = field(repr=False)
    names: Registry
    pool: StreamPool
    _published: dict[str, SharedContent] = field(default_factory=dict)
    _attached: dict[int, SharedContent] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _thread: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "publications"))

    # -- the owner's side ---------------------------------------------------------------------------------------------

    def publish(self, request: Publish) -> None:
        """Publish what is held of a VRDD, and hold it in the shared memory from then on.

        Raises
        ------
        PartitionMissing
            If nothing is held of it.
        PlanError
            If it cannot be read by others: keys are pickled, or blocks are parts of a grid's patches.
        DeviceUnavailable
            If its device has no memory that others can map.
        PublicationExists
            If another publication has the name.
        """
        version = self.names.version(request.vrdd)
        partitions = self.names.share(request.vrdd)
        try:
            if not partitions:
                raise PartitionMissing(f"nothing is held of VRDD {request.vrdd}")
            with ExitStack() as undo:
                copy = _SharedCopy(partitions, self.pool)
                undo.callback(copy.close)
                copy.fill()
                shared = SharedContent(request.details, copy.segments, copy.offset, copy.nbytes, self.session,
                                       copy.take_descriptors())
                undo.callback(shared.close)
                failpoint("publication-copied")
                self._put(shared, replace=request.replace)
                with self._lock:
                    self._published[request.details.key] = shared
                self._hold(request.vrdd, version, copy.blocks())
                undo.pop_all()
                copy.close()
        finally:
            for partition in partitions:
                partition.close()

    def _hold(self, vrdd: int, version: int, blocks: dict[int, list[Block]]) -> None:
        """Hold blocks in place of those that a VRDD had, unless its content has changed since."""
        if not self.names.replace(vrdd, version, blocks):
            for block in [block for held in blocks.values() for block in held]:
                for array in block:
                    array.close()

    def retract(self, request: Retract) -> None:
        """Take a publication of this process back."""
        with self._lock:
            shared = self._published.pop(request.key, None)
        if shared is not None:
            shared.close()
        exchange_descriptors(Unpublish(request.name, request.key))

    # -- the reader's side --------------------------------------------------------------------------------------------

    def attach(self, request: Attach) -> PublicationDetails:
        """Hold this node's part of a publication as a VRDD; nothing is done if it is that already.

        Raises
        ------
        PublicationLost
            If there is none of that name, or that one is gone.
        Unauthorized
            If it has another secret.
        DeviceUnavailable
            If it is in memory that no device of the session can map.
        """
        with self._lock:
            attached = self._attached.get(request.vrdd)
        if attached is not None:
            return attached.details
        reply, descriptors = exchange_descriptors(GetPublication(
            self.session, self.secret, request.name, request.key, request.digest, request.vrdd))
        shared = SharedContent(reply.details, reply.segments, reply.offset, reply.nbytes, reply.owner, descriptors,
                               request.vrdd)
        with ExitStack() as undo:
            undo.callback(self._later, self._detach, (request.vrdd,))
            undo.callback(shared.close)
            partitions = list(_mapped(shared, self.pool))
            with self._lock:
                if request.vrdd in self._attached:      # a twin of this request was faster
                    for partition in partitions:
                        partition.close()
                    undo.pop_all()
                    shared.close()
                    return reply.details
                self._attached[request.vrdd] = shared
            for partition in partitions:
                self.names.bind(request.vrdd, request.dataset, partition)
            undo.pop_all()
        failpoint("publication-attached")
        return reply.details

    def check_kept(self, vrdds: Collection[int]) -> None:
        """Refuse a plan that would keep results as an attached VRDD.

        Raises
        ------
        PlanError
            If one of the VRDDs is attached.
        """
        for vrdd in vrdds if self._attached else ():
            if vrdd in self._attached:
                raise PlanError(f"VRDD {vrdd} is the publication {self._attached[vrdd].details.name!r}, which is read "
                                "only: keep results under a number of their own")

    def forget(self, numbers: Collection[int]) -> None:
        """Give up what was attached as some VRDDs, which are released; other numbers are ignored."""
        with self._lock:
            ours = [self._attached.pop(number) for number in numbers if number in self._attached]
        for shared in ours:
            shared.close()
        if ours:
            self._later(self._detach, tuple(shared.vrdd for shared in ours))

    def _detach(self, vrdds: tuple[int, ...]) -> None:
        with suppress(WorkerLost, WorkerUnavailable):
            exchange_descriptors(DetachPublications(self.session, self.secret, vrdds))

    # -- the daemon ---------------------------------------------------------------------------------------------------

    def adopted(self) -> None:
        """Put all with a daemon that adopts this process, once it listens; the earlier one's went with it."""
        with self._lock:
            everything = [*self._published.values(), *self._attached.values()]
        if everything:
            self._later(self._put_again, everything, time.monotonic() + _DAEMON_SECONDS)

    def _put_again(self, everything: Sequence[SharedContent], until: float) -> None:
        for shared in everything:
            while shared.descriptors:
                try:
                    self._put(shared, replace=False)
                    break
                except VisparkError as error:
                    if time.monotonic() > until:
                        log.warning("the daemon does not take publication %s: %s", shared.details.name, error.message)
                        break
                time.sleep(_AGAIN_SECONDS)

    def _put(self, shared: SharedContent, *, replace: bool) -> None:
        exchange_descriptors(PutPublication(
            self.session, self.secret, shared.details, replace, shared.segments, shared.offset, shared.nbytes,
            shared.owner, shared.vrdd), shared.descriptors)

    def _later(self, work: Callable[..., None], *arguments: object) -> None:
        """Do what concerns the daemon in the background, behind all earlier work."""
        try:
            self._thread.submit(self._do, work, *arguments)
        except RuntimeError as error:
            log.warning("what concerns publications is not done: %s", error)

    def _do(self, work: Callable[..., None], *arguments: object) -> None:
        try:
            work(*arguments)
        except Exception:
            log.exception("what concerns publications was not done")

    def close(self) -> None:
        """Close the descriptors; the daemon and other processes keep theirs."""
        self._thread.shutdown(wait=True, cancel_futures=True)
        for shared in [*self._published.values(), *self._attached.values()]:
            shared.close()


# -- copies -----------------------------------------------------------------------------------------------------------

class _SharedCopy:
    """Copy of partitions in memory that other processes map: a segment of host memory, and one for each device's.

    Parameters
    ----------
    partitions : sequence of Partition
        Not closed here.
    pool : StreamPool
        Gives streams for the copies.
    """

    def __init__(self, partitions: Sequence[Partition], pool: StreamPool):
        self._partitions = partitions
        self._pool = pool
        #: Of each segment: the device that made it, None for host memory; and its bytes.
        self._devices: list[Device | None] = [None]
        self._sizes = [0]
        described = PublicationContent(tuple([self._described(each) for each in partitions]))
        self._content = described
        self._text = encode(described, PublicationContent)
        self.offset, self.nbytes = self._sizes[_HOST], len(self._text)
        self._sizes[_HOST] += aligned(self.nbytes)
        self._buffers: list[Buffer] = []
        self._descriptors: list[int] = []
        self._host: Payload | None = None

    @property
    def segments(self) -> tuple[SharedSegment, ...]:
        return tuple([SharedSegment(device.shares if device else "", size)
                      for device, size in zip(self._devices, self._sizes, strict=True)])

    def _described(self, partition: Partition) -> PublishedPartition:
        blocks = tuple([tuple([self._placed(array, partition) for array in block]) for block in partition.blocks])
        keys = -1 if partition.keys is None else partition.keys.nbytes
        offset = self._sizes[_HOST]
        if partition.keys is not None and keys:
            if partition.keys[TAG_BYTES:TAG_BYTES + 1].tobytes() == PICKLED:
                raise PlanError("its keys are pickled, and no other application may unpickle them: publish .values(), "
                                f"or keys that are numbers, strings or tuples of them (partition {partition.index})")
            self._sizes[_HOST] += aligned(keys)
        return PublishedPartition(partition.index, partition.count, keys, offset, partition.layout,
                                  tuple(partition.positions), blocks)

    def _placed(self, array: HeldArray, partition: Partition) -> PublishedArray:
        if array.window is not None:
            raise PlanError("blocks of a Grid that a stencil has worked on lie in patches with their neighbours: "
                            "publish the grid before its first step")
        segment = _HOST if array.buffer is None else self._segment(array.buffer.device)
        offset = self._sizes[segment]
        self._sizes[segment] += aligned(array.nbytes)
        return PublishedArray(array.field, segment, offset)

    def _segment(self, device: Device) -> int:
        if device in self._devices:
            return self._devices.index(device)
        if not device.shares:
            raise DeviceUnavailable(f"{device.name} has no memory that other processes can map; the host has, and GPUs "
                                    "that can pass memory on by descriptor")
        self._devices.append(device)
        self._sizes.append(0)
        return len(self._devices) - 1

    def fill(self) -> None:
        """Make the memory, copy everything to it, and make it read only."""
        self._host = Payload.create_published(self._sizes[_HOST])
        self._descriptors.append(self._host.descriptor)
        segments: list[SharedMemory] = []
        for device, size in zip(self._devices[1:], self._sizes[1:], strict=True):
            assert device is not None
            segments.append(device.share_memory(max(size, 1)))
            self._buffers.append(segments[-1].buffer)
            self._descriptors.append(segments[-1].descriptor)
        self._copy_to_host(self._host)
        self._copy_on_devices()
        for memory in segments:
            memory.protect()

    def _copy_to_host(self, host: Payload) -> None:
        host.view(self.offset, self.nbytes)[:] = np.frombuffer(self._text, np.uint8)
        for partition, described in zip(self._partitions, self._content.partitions, strict=True):
            if partition.keys is not None and partition.keys.nbytes:
                keys = host.view(described.offset, described.keys)
                keys[:] = partition.keys
                keys[:TAG_BYTES] = np.frombuffer(OPEN_TAG, np.uint8)
            for array, place in _arrays(partition, described):
                if place.segment == _HOST and array.nbytes:
                    host.view(place.offset, array.nbytes)[:] = array.host

    def _copy_on_devices(self) -> None:
        streams = {buffer.device: self._pool.take(buffer.device) for buffer in self._buffers}
        try:
            for partition, described in zip(self._partitions, self._content.partitions, strict=True):
                for array, place in _arrays(partition, described):
                    if array.buffer is not None and array.nbytes:
                        whole = self._buffers[place.segment - 1]
                        whole.device.copy_across(whole.part(place.offset, array.nbytes), array.buffer,
                                                 stream=streams[whole.device])
            for device, stream in streams.items():
                device.synchronize(stream=stream)
        finally:
            for device, stream in streams.items():
                self._pool.give(device, stream)

    def blocks(self) -> dict[int, list[Block]]:
        """Return the blocks of each partition in the shared memory."""
        return {described.index: [tuple([self._held(array, place) for array, place in zip(block, places, strict=True)])
                                  for block, places in zip(partition.blocks, described.blocks, strict=True)]
                for partition, described in zip(self._partitions, self._content.partitions, strict=True)}

    def _held(self, array: HeldArray, place: PublishedArray) -> HeldArray:
        if place.segment == _HOST:
            return array.share()
        return HeldArray(place.field, buffer=ReadOnlyPart(self._buffers[place.segment - 1], place.offset,
                                                          array.nbytes))

    def take_descriptors(self) -> list[int]:
        """Return the descriptors, now the caller's to close."""
        if self._host is not None:
            self._host.release()
        descriptors, self._descriptors = self._descriptors, []
        return descriptors

    def close(self) -> None:
        """End the use of the memory."""
        if self._host is not None:
            self._host.close()
            self._descriptors = self._descriptors[1:]
        close_all(self._descriptors)
        for buffer in self._buffers:
            buffer.close()
        self._descriptors, self._buffers, self._host = [], [], None


def _arrays(partition: Partition, described: PublishedPartition) -> Iterator[tuple[HeldArray, PublishedArray]]:
    for block, places in zip(partition.blocks, described.blocks, strict=True):
        yield from zip(block, places, strict=True)


def _mapped(shared: SharedContent, pool: StreamPool) -> Iterator[Partition]:
    """Return the partitions of a publication in its memory; all of it is mapped when the first is returned."""
    with ExitStack() as undo:
        with system_call("a descriptor of shared memory"):
            copy = os.dup(shared.descriptors[_HOST])
        host = undo.enter_context(Payload.receive(copy, ACCESS_READ))
        content = decode(bytes(host.view(shared.offset, shared.nbytes)), PublicationContent)
        wholes: list[Buffer] = []
        for number, segment in enumerate(shared.segments[1:]):
            device = _device(pool, segment.memory, number, shared.details)
            wholes.append(device.map_memory(shared.descriptors[number + 1], max(segment.nbytes, 1)))
            undo.callback(wholes[-1].close)
        yield from [_partition(each, host, wholes, pool) for each in content.partitions]


def _device(pool: StreamPool, memory: str, number: int, details: PublicationDetails) -> Device:
    """Return a device that can map a segment, the next one for each ``number`` where several can."""
    sharing = [device for device in pool.devices if device.shares == memory]
    if sharing:
        return sharing[number % len(sharing)]
    have = ", ".join(f"{device.name} ({device.shares})" for device in pool.devices) or "none"
    raise DeviceUnavailable(f"the publication {details.name!r} lies on {memory}, and the devices of this application "
                            f"here are {have}: give it the same device")


def _partition(saved: PublishedPartition, host: Payload, wholes: Sequence[Buffer], pool: StreamPool) -> Partition:
    devices = {whole.device for block in saved.blocks for array in block if array.segment != _HOST
               for whole in [wholes[array.segment - 1]]}
    if devices:
        device = devices.pop()
    elif pool.devices:
        device = pool.devices[saved.index % len(pool.devices)]
    else:
        raise DeviceUnavailable("Spark assigned no device to the session, and a publication needs one to be read on")
    keys = None if saved.keys < 0 else host.view(saved.offset, saved.keys).copy()
    blocks = [tuple([_array(each, host, wholes) for each in block]) for block in saved.blocks]
    return Partition(saved.index, saved.count, keys, saved.layout, blocks, device, positions=saved.positions)


def _array(saved: PublishedArray, host: Payload, wholes: Sequence[Buffer]) -> HeldArray:
    nbytes = HeldArray(saved.field).nbytes
    if saved.segment == _HOST:
        return HeldArray(saved.field, host=host.view(saved.offset, nbytes))
    return HeldArray(saved.field, buffer=ReadOnlyPart(wholes[saved.segment - 1], saved.offset, nbytes))
