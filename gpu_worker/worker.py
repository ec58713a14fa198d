"""The requests of a device process: what is asked of the session's partitions, and the answers.

One :class:`Worker` per device process. Each connection calls :meth:`Worker.handle` from a thread of its own.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable

from gpu_worker.blackbox import BlackBox
from gpu_worker.device import open_devices
from gpu_worker.executor import Execution
from gpu_worker.failpoints import failpoint
from gpu_worker.protocol.errors import KernelFault, ProtocolError, VisparkError
from gpu_worker.protocol.messages import (
    Describe,
    Described,
    DeviceMemory,
    Done,
    Held,
    HeldVrdd,
    Release,
    Reply,
    Report,
    Reported,
    Request,
    Retain,
    Run,
    SessionOptions,
    Signature,
)
from gpu_worker.protocol.payload import Payload
from gpu_worker.protocol.wire import close_all, failure_of
from gpu_worker.state import State
from gpu_worker.store import Partition, signature_of
from gpu_worker.streams import StreamPool, Streams

log = logging.getLogger(__name__)

#: The exit status of a process whose device can no longer be used.
POISONED = 70


class Worker:
    """One session's partitions on one node.

    Parameters
    ----------
    options : SessionOptions
        The device to open, its memory limit in bytes and where compiled kernels are kept.
    epoch : int
        Counts the session's device processes on this node.
    box : BlackBox
        Where running kernels are noted for whoever finds this process dead.

    Raises
    ------
    DeviceUnavailable
        If the device asked for cannot be opened here.
    """

    def __init__(self, options: SessionOptions, *, epoch: int, box: BlackBox):
        devices = open_devices(options.device, memory=options.memory, cache_dir=options.cache_dir)
        self.devices = tuple(device.name for device in devices)
        self._pool = StreamPool(devices)
        self._state = State(epoch)
        self._lock = threading.Lock()
        self._box = box
        self._requests = 0
        self._handlers: dict[type, Callable] = {Run: self._run, Describe: self._describe, Release: self._release,
                                                Retain: self._retain, Report: self._report}

    def handle(self, request: Request, descriptors: list[int]) -> tuple[Reply, list[int]]:
        """Answer one request.

        ``descriptors`` become the worker's; those returned are to be sent with the reply and closed by the caller.

        Raises
        ------
        VisparkError
            What went wrong; whatever was held before is still held. After a :class:`KernelFault` the process ends
            instead, since its device can no longer be trusted.
        """
        self._requests += 1
        if descriptors and (not isinstance(request, Run) or len(descriptors) > 1):
            close_all(descriptors)
            raise ProtocolError(f"{type(request).__name__} came with {len(descriptors)} descriptors")
        try:
            return self._handlers[type(request)](request, *descriptors)
        except KernelFault as fault:
            log.error("%s", fault)
            self._box.blame(failure_of(fault, request.number))
            os._exit(POISONED)

    def report(self, number: int = 0) -> Reported:
        """What is held, and how much memory it takes."""
        with self._lock:
            lines, host_bytes = [], 0
            for vrdd in self._state.vrdds():
                partitions: list[Partition] = self._state.held(vrdd)
                lines.append(_line(vrdd, self._state.names[vrdd], partitions))
                host_bytes += sum(partition.host_bytes() for partition in partitions)
        figures = [(device.name, device.memory()) for device in self._pool.devices]
        memory = tuple(DeviceMemory(name, figure.used, figure.total) for name, figure in figures)
        return Reported(number, tuple(lines), memory, host_bytes, self._requests)

    def close(self) -> None:
        """Give everything back."""
        with self._lock:
            self._state.release(list(self._state.vrdds()))
        for device in self._pool.devices:
            device.close()

    # -- one method per request ---------------------------------------------------------------------------------------

    def _run(self, request: Run, descriptor: int | None = None) -> tuple[Reply, list[int]]:
        payload = None if descriptor is None else Payload.receive(descriptor)
        failpoint("payload-mapped")
        self._state.admit(request.epoch)
        streams = Streams(self._pool)
        try:
            with streams.pinned(payload):
                execution = Execution(request, payload, _Locked(self._state, self._lock), streams, self._box)
                reply, fetched = execution.run()
        except VisparkError as error:
            log.info("plan %d refused: %s", request.number, error.message)
            raise
        finally:
            streams.close()
            if payload is not None:
                payload.close()
        log.debug("plan %d: %d partitions, %.6f s", request.number, len(request.inputs), reply.times.total)
        return reply, [] if fetched is None else [fetched.release()]

    def _describe(self, request: Describe) -> tuple[Reply, list[int]]:
        signatures: dict[Signature, int] = {}
        with self._lock:
            held = tuple(
                Held(partition.index, partition.count, 0 if partition.keys is None else partition.keys.nbytes,
                     partition.layout,
                     tuple(signatures.setdefault(signature_of(block), len(signatures)) for block in partition.blocks))
                for partition in self._state.held(request.vrdd, request.partitions))
        return Described(request.number, tuple(signatures), held), []

    def _release(self, request: Release) -> tuple[Reply, list[int]]:
        with self._lock:
            self._state.release(request.vrdds)
        return Done(request.number), []

    def _retain(self, request: Retain) -> tuple[Reply, list[int]]:
        with self._lock:
            self._state.retain(request.vrdd, request.partitions)
        return Done(request.number), []

    def _report(self, request: Report) -> tuple[Reply, list[int]]:
        return self.report(request.number), []


class _Locked:
    """A session's names, for plans that run beside each other."""

    def __init__(self, state: State, lock: threading.Lock):
        self._state = state
        self._lock = lock
        self.names = state.names

    def lookup(self, vrdd: int, partition: int) -> Partition:
        with self._lock:
            return self._state.lookup(vrdd, partition)

    def bind(self, vrdd: int, name: str, content: Partition) -> bool:
        with self._lock:
            return self._state.bind(vrdd, name, content)


def _line(vrdd: int, name: str, partitions: list[Partition]) -> HeldVrdd:
    dtypes = {array.field.dtype for partition in partitions for array in partition.arrays}
    places = {partition.place for partition in partitions}
    return HeldVrdd(vrdd, name, len(partitions), ", ".join(sorted(dtypes)),
                    sum(partition.nbytes for partition in partitions), ", ".join(sorted(places)))
