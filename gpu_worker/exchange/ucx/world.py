"""Worlds whose messages device processes send each other over UCX."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from gpu_worker.exchange.base import JoinedWorld, MessageMemory, MessageSpec, Staged
from gpu_worker.exchange.ucx.peers import SAID, Peers, tag
from gpu_worker.exchange.ucx.ucp import RegisteredMemory, UcpRequest, UcxWorker
from gpu_worker.protocol.errors import VisparkError, WorldLost
from gpu_worker.protocol.grids import World as Wanted
from gpu_worker.protocol.system import start_thread
from gpu_worker.system.failpoints import failpoint

_log = logging.getLogger(__name__)

#: How long to wait for messages without a pause, and the pauses that are made from then on.
_BUSY_SECONDS, _NAP_SECONDS = 0.0003, 0.00003
#: How often others are told that this process is there while it is in no exchange.
_BEAT_SECONDS = 0.25
#: How long the connections of a world that is over may take to close.
_CLOSE_SECONDS = 1.0


@dataclass(frozen=True, eq=False)
class RegisteredStage(Staged):
    """Messages whose memory is registered; ``sending`` and ``receiving`` are the parts with it."""

    sending: tuple[tuple[MessageSpec, RegisteredMemory], ...]
    receiving: tuple[tuple[MessageSpec, RegisteredMemory], ...]


class OpenedWorld:
    """This process's end of a world whose other ends are not known yet.

    Attributes
    ----------
    address : bytes
        Where the others reach this process.

    Raises
    ------
    WorkerUnavailable
        If UCX is not installed here.
    WorldLost
        If UCX cannot begin.
    """

    def __init__(self) -> None:
        self._worker = UcxWorker()
        self.address = self._worker.address

    def join(self, wanted: Wanted, deadline: float, is_over: Callable[[], bool] = lambda: False) -> UcxWorld:
        """Join the world of the processes whose addresses a plan brings; this end is the world's then.

        Raises
        ------
        WorldLost
            If one of them does not answer until the deadline, or ``is_over``.
        """
        world = UcxWorld(self._worker, wanted)
        try:
            world.wait_for_ranks(deadline, is_over)
        except VisparkError:
            world.close()
            raise
        _log.info("rank %d of %d of world %s has joined: %s", world.rank, world.size, wanted.key.hex()[:16], world.way)
        return world

    def close(self) -> None:
        """End it without joining."""
        self._worker.close()


class UcxWorld(JoinedWorld):
    """A world whose messages leave from this process; made by :meth:`OpenedWorld.join`.

    UCX is called under a lock: by the world's thread, which holds it while messages are under way, and by a second one,
    which tells the others now and then that this process is there, and lets messages go on, while the first waits for
    a device or has nothing to do.

    Parameters
    ----------
    worker : UcxWorker
        Closed with the world.
    wanted : World
        With the addresses of all ranks.
    """

    def __init__(self, worker: UcxWorker, wanted: Wanted):
        super().__init__(wanted.key, wanted.rank, len(wanted.workers))
        self._worker = worker
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._moving: list[UcpRequest] = []
        self._beats: threading.Thread | None = None
        self._peers = Peers(worker, wanted)

    @property
    def way(self) -> str:
        """What messages go by, for people."""
        return f"ucx over {', '.join(self._peers.transports)}"

    def wait_for_ranks(self, deadline: float, is_over: Callable[[], bool]) -> None:
        """Wait until all ranks have said that they are there."""
        self._thread.submit(self._greet_ranks, deadline, is_over).result()
        self._beats = start_thread(self._beat, name="world's beats")

    def _greet_ranks(self, deadline: float, is_over: Callable[[], bool]) -> None:
        def check() -> None:
            if is_over():
                raise WorldLost(f"a worker of the world of {self._peers.names} was lost before it came to be")
            if time.monotonic() > deadline:
                raise WorldLost(f"no world of {self._peers.names} came to be before the plan's deadline")

        with self._lock:
            self._peers.connect()
            self._gathered(self.key, check)
        self._peers.begin_listening()

    def _beat(self) -> None:
        """Progress messages while the world's own thread is not running."""
        while not self._over.wait(_BEAT_SECONDS):
            if self._lock.acquire(blocking=False):
                try:
                    while self._worker.progress():
                        pass
                    self._peers.beat()
                except VisparkError as error:       # which the next exchange meets too
                    _log.info("%s", error)
                finally:
                    self._lock.release()

    # -- on the world's thread ----------------------------------------------------------------------------------------

    def _gather(self, data: bytes) -> tuple[bytes, ...]:
        with self._lock:
            self._check()       # behind a world's end there is nobody to tell
            return self._gathered(data, self._check)

    def _gathered(self, data: bytes, check: Callable[[], None]) -> tuple[bytes, ...]:
        """Send the data to all ranks, and return the data of all in their order."""
        by_rank: dict[int, bytes] = {self.rank: data}
        sends = [endpoint.send_bytes(data, tag(self.key, self.rank, SAID))
                 for endpoint in self._peers.endpoints.values()]
        for rank in self._peers.endpoints:
            by_rank[rank] = self._receive_from(rank, check)
        self._await(sends, check)
        self._await([self._worker.flush()], check)
        return tuple(by_rank[rank] for rank in range(self.size))

    def _receive_from(self, rank: int, check: Callable[[], None]) -> bytes:
        """Wait for what a rank tells this one, and return it."""
        arrived: list[tuple[Any, UcpRequest]] = []

        def has_arrived() -> bool:
            message = self._worker.arrived(tag(self.key, rank, SAID))
            arrived.extend([message] if message else [])
            return bool(arrived)

        self._wait(has_arrived, check)
        ((memory, request),) = arrived
        self._await([request], check)
        return memory.raw

    def _move(self, staged: Staged, ready: Callable[[], None]) -> None:
        ready()
        failpoint("halo-packed")
        assert isinstance(staged, RegisteredStage)
        with self._lock, ExitStack() as active:
            for device in {part.device for part, _ in (*staged.receiving, *staged.sending)}:
                active.enter_context(device.active())       # UCX's copies from a device's memory look for its context
            self._check()
            with self._naming_peers():
                requests = [self._worker.receive(memory, tag(self.key, part.peer, part.tag))
                            for part, memory in staged.receiving]
                requests += [self._peers.endpoints[part.peer].send(memory, tag(self.key, self.rank, part.tag))
                             for part, memory in staged.sending]
            failpoint("halo-sending")
            self._await(requests, self._check)
            self._await([self._worker.flush()], self._check)
        self.sent += sum(part.nbytes for part, _ in staged.sending)
        failpoint("halo-moved")

    def _await(self, requests: Sequence[UcpRequest], check: Callable[[], None]) -> None:
        """Wait until operations are done; ``check`` says why not to wait any more."""
        self._moving = list(requests)

        def are_done() -> bool:
            self._moving = [request for request in self._moving if not request.done()]
            return not self._moving

        with self._naming_peers():
            self._wait(are_done, check)

    @contextmanager
    def _naming_peers(self) -> Iterator[None]:
        """Say of an operation that failed which peer is lost, where UCX told it of a connection."""
        try:
            yield
        except WorldLost:
            self._peers.check()
            raise

    def _wait(self, is_done: Callable[[], bool], check: Callable[[], None]) -> None:
        busy_until = time.perf_counter() + _BUSY_SECONDS
        while True:
            moved = self._worker.progress()
            if is_done():
                return
            self._peers.beat()
            check()
            if moved:
                busy_until = time.perf_counter() + _BUSY_SECONDS
            elif time.perf_counter() > busy_until:
                time.sleep(_NAP_SECONDS)

    def _check(self) -> None:
        """Raise WorldLost if a rank is lost or interrupted, so that the awaited message will not come."""
        if self._over.is_set():
            raise WorldLost(f"the world of {self._peers.names} is over, as a worker of it is lost")
        self._peers.check()
        if time.monotonic() > self._deadline:
            raise WorldLost(f"rank {self.rank} of {self.size} waited for {self._peers.names} until the plan's deadline")

    # -- memory -------------------------------------------------------------------------------------------------------

    def _stage(self, number: int, sends: tuple[MessageSpec, ...], receives: tuple[MessageSpec, ...]) -> Staged:
        with ExitStack() as undo, self._lock:
            located = [self._location(part, undo) for part in (*sends, *receives)]
            close = undo.pop_all().close
        locations, memories = [each[0] for each in located], [each[1] for each in located]
        count = len(sends)
        return RegisteredStage(number, tuple(locations[:count]), tuple(locations[count:]), partial(self._forget, close),
                               tuple(zip(sends, memories[:count], strict=True)),
                               tuple(zip(receives, memories[count:], strict=True)))

    def _location(self, part: MessageSpec, undo: ExitStack) -> tuple[MessageMemory, RegisteredMemory]:
        """Return memory for a message, registered, which ``undo`` gives back."""
        device = part.device
        if self._worker.moves(device.kind):
            stream = device.stream()
            undo.callback(device.synchronize, stream=stream)        # on which the memory is freed before
            buffer = device.allocate(part.nbytes, stream=stream, is_for_messages=True)
            undo.callback(buffer.close)
            device.synchronize(stream=stream)
            with device.active():
                memory = self._worker.register(buffer.address, part.nbytes, device.kind)
            undo.callback(memory.close)
            return MessageMemory(buffer, None), memory
        host = np.empty(part.nbytes, np.uint8)
        device.pin(host)
        undo.callback(device.unpin, host)
        memory = self._worker.register(host.ctypes.data, part.nbytes, "host")
        undo.callback(memory.close)
        return MessageMemory(None, host), memory

    def _forget(self, close: Callable[[], None]) -> None:
        with self._lock:
            close()

    # -- the end ------------------------------------------------------------------------------------------------------

    def interrupt(self) -> None:
        self._over.set()
        with suppress(RuntimeError):        # the thread has ended, and the connections are closed or about to be
            self._thread.submit(self._close_connections)

    def _close_connections(self) -> None:
        """Close the connections, of which the others learn at once."""
        with self._lock:
            for request in self._moving:
                request.cancel(self._worker)
            pending = [*self._moving, *self._peers.close()]
            self._moving = []
            until = time.monotonic() + _CLOSE_SECONDS
            while pending and time.monotonic() < until:
                if not self._worker.progress():
                    time.sleep(_NAP_SECONDS)
                pending = [request for request in pending if not _is_over(request)]
            for request in pending:
                request.free()

    def _disconnect(self) -> None:
        if self._beats is not None:
            self._beats.join()
        self._close_connections()

    def _destroy(self) -> None:
        self._worker.close()


def _is_over(request: UcpRequest) -> bool:
    """Return whether a cancelled operation is done, or has failed."""
    try:
        return request.done()
    except WorldLost:
        return True
