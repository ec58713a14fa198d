"""Device process's side of its session's MPI world."""

from __future__ import annotations

import logging
import socket
import subprocess
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any

from gpu_worker.device.base import Device
from gpu_worker.mpi.messages import Answer, Ended, Forget, Gather, Go, Joined, Order, SharedRange, StagedExchange
from gpu_worker.mpi.nodes import mpirun, refusals, world_socket
from gpu_worker.protocol.errors import NodeSilent, OptionError, OutOfMemory, OutOfResources, VisparkError, WorldLost
from gpu_worker.protocol.grids import World as Wanted
from gpu_worker.protocol.messages import StartPrted
from gpu_worker.protocol.payload import Payload
from gpu_worker.protocol.system import refused, start_thread, system_call
from gpu_worker.protocol.wire import Connection
from gpu_worker.system import log
from gpu_worker.system.admin import administer
from gpu_worker.system.failpoints import failpoint
from gpu_worker.system.paths import locate
from gpu_worker.system.peer import check_peer

_log = logging.getLogger(__name__)

#: Stages kept from one plan to the next; the one used least recently goes first.
KEPT = 16

_WATCH_SECONDS = 0.1
#: How many lines of what mpirun wrote an error has.
_LAST_WORDS = 10

#: How long to look for what a rank said before it ended, where it cannot be told anything any more.
_LAST_WORDS_SECONDS = 0.1


@dataclass(frozen=True, eq=False)
class Staged:
    """Memory that a rank moves to and from its peers, pinned for a device."""

    number: int
    memory: Payload
    device: Device


@dataclass(frozen=True, eq=False)
class RecordedExchange:
    """Record of a plan's exchanges with other nodes, replayable when all nodes agree on the same ones.

    Attributes
    ----------
    world : JoinedWorld
    said : bytes
        What this rank said of its part.
    agreed : tuple of bytes
        What all did.
    stages : tuple of Staged
        What is moved.
    """

    world: JoinedWorld
    said: bytes
    agreed: tuple[bytes, ...]
    stages: tuple[Staged, ...]

    def holds(self, agreed: tuple[bytes, ...]) -> bool:
        """Return whether the same can be done, where all say this now."""
        return agreed == self.agreed and self.world.has(self.stages)


class JoinedWorld:
    """A world that this process has joined; made by :func:`join`.

    Attributes
    ----------
    key : bytes
    rank, size : int
    sent : int
        The bytes that this node has given to MPI.
    """

    def __init__(self, joined: Joined, connection: Connection, launcher: subprocess.Popen | None):
        self.key, self.rank, self.size = joined.key, joined.rank, joined.size
        self.sent = 0
        self._connection = connection
        self._launcher = launcher
        self._stages: OrderedDict[tuple, Staged] = OrderedDict()
        #: What the present plan has staged, what all have said of it, and until when others are waited for.
        self._used: dict[Staged, None] = {}
        self._agreed: tuple[bytes, ...] = ()
        self._deadline = 0.0
        self._numbers = 0
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="world")
        # There is a thread from now on: what is asked of the rank is never left in a queue.
        try:
            self._thread.submit(bool)
        except RuntimeError as error:
            raise refused(error, "a thread for an MPI world") from error

    def begin(self, deadline: float) -> None:
        """Begin a plan, which waits for other nodes until its deadline; may be repeated if the plan is begun in another
        way.
        """
        self._used, self._deadline = {}, deadline

    def end(self) -> None:
        """End the current plan: forget what the nodes agreed on for it."""
        self._agreed = ()

    def agree(self, said: bytes) -> tuple[bytes, ...]:
        """Return the messages of all ranks about their parts of the present plan, gathered once in a plan."""
        if not self._agreed:
            self._agreed = self.gather(said)
        return self._agreed

    def exchange(self, said: bytes) -> RecordedExchange:
        """Return the record of the present plan's exchanges with other nodes."""
        return RecordedExchange(self, said, self._agreed, tuple(self._used))

    def has(self, stages: Sequence[Staged]) -> bool:
        """Return whether the stages are still registered, and mark them as used."""
        known = {staged: key for key, staged in self._stages.items()}
        if any(staged not in known for staged in stages):
            return False
        for staged in stages:
            self._stages.move_to_end(known[staged])
        return True

    def gather(self, data: bytes) -> tuple[bytes, ...]:
        """Gather the data of all ranks, in their order.

        Raises
        ------
        WorldLost
            If a rank is gone, or does not answer until the plan's deadline.
        """
        return self.result(self._thread.submit(self._ask, Gather(data))).data

    def stage(self, sends: Sequence[SharedRange], receives: Sequence[SharedRange], nbytes: int,
              device: Device) -> Staged:
        """Return a registered exchange: memory of ``nbytes`` and the ranges to move; the same one for equal arguments.
        """
        key = tuple(sends), tuple(receives), nbytes
        if key not in self._stages:
            self._numbers += 1
            memory = Payload.create(nbytes)
            self._tell(StagedExchange(self._numbers, *key[:2]), memory.descriptor)
            device.pin(memory.array)
            self._stages[key] = Staged(self._numbers, memory, device)
        self._stages.move_to_end(key)
        self._used[self._stages[key]] = None
        return self._stages[key]

    def forget_old(self) -> None:
        """Forget the stages used least recently; called between plans, as a running plan uses all of its stages."""
        while len(self._stages) > KEPT:
            _, oldest = self._stages.popitem(last=False)
            self._tell(Forget(oldest.number))
            oldest.device.unpin(oldest.memory.array)

    def go(self, staged: Staged, ready: Any) -> Future:
        """Start a staged exchange in the background, once ``ready()`` returns."""
        return self._thread.submit(self._go, staged, ready)

    def result(self, future: Future) -> Any:
        """Wait for a future's result until the plan's deadline, or raise WorldLost."""
        try:
            return future.result(max(self._deadline - time.monotonic(), 0) + 1)
        except FutureTimeout:
            raise WorldLost(f"rank {self.rank} of {self.size} was not done at the plan's deadline") from None

    def _go(self, staged: Staged, ready: Any) -> None:
        ready()
        failpoint("halo-packed")
        self.sent = self._ask(Go(staged.number)).sent
        failpoint("halo-moved")

    def _tell(self, order: Order, *descriptors: int) -> None:
        # Behind all that was asked before.
        self._thread.submit(self._send, order, descriptors).result()

    def _send(self, order: Order, descriptors: Sequence[int]) -> None:
        try:
            self._connection.send(order, Order, descriptors)
        except VisparkError as error:
            raise self._lost(error) from error

    def _ask(self, order: Order) -> Any:
        self._send(order, ())
        try:
            self._connection.socket.settimeout(max(self._deadline - time.monotonic(), 0.001))
            answer, _ = self._connection.receive(Answer)
        except VisparkError as error:
            raise self._lost(error) from error
        if isinstance(answer, Ended):
            raise self._fallen(answer)
        return answer

    def _fallen(self, ended: Ended) -> WorldLost:
        return WorldLost(f"rank {self.rank} of {self.size} ended, and with it the world: {ended.said}",
                         detail=ended.traceback)

    def _lost(self, error: VisparkError) -> WorldLost:
        """Return the error for the loss of the rank, with the reason that the rank may have sent."""
        with suppress(VisparkError, OSError):
            self._connection.socket.settimeout(_LAST_WORDS_SECONDS)
            answer, _ = self._connection.receive(Answer)
            if isinstance(answer, Ended):
                return self._fallen(answer)
        return WorldLost(f"rank {self.rank} of {self.size} ended or does not answer, and with it the world: "
                         f"{error.message}")

    def interrupt(self) -> None:
        """End the world while it is in use."""
        with suppress(OSError):
            self._connection.socket.shutdown(socket.SHUT_RDWR)
        launcher, self._launcher = self._launcher, None
        if launcher is not None:
            try:
                start_thread(_end, [launcher], name="end of a world")
            except (OutOfMemory, OutOfResources):
                _end(launcher)

    def close(self) -> None:
        """Leave; the world ends with that."""
        self.interrupt()
        self._thread.shutdown(wait=True, cancel_futures=True)
        self._connection.close()
        while self._stages:
            _, staged = self._stages.popitem()
            staged.device.unpin(staged.memory.array)


def join(wanted: Wanted, deadline: float, is_over: Callable[[], bool] = lambda: False) -> JoinedWorld:
    """Join a world, which the first worker starts.

    Raises
    ------
    WorldLost
        If it does not come to be until the deadline, because a node or a rank does not answer, or ``is_over``.
    NodeSilent
        If the daemon of a node does not answer.
    OptionError
        If a node is unknown to the daemons.
    """
    directory = locate()
    path, launcher = world_socket(directory, wanted.key), None
    with ExitStack() as undo, system_call("an MPI world", WorldLost):
        path.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(path))
            try:
                path.chmod(0o600)
                listener.listen()
                if wanted.rank == 0:
                    check_nodes(wanted.workers)
                    launcher = mpirun(directory, wanted.key, wanted.workers)
                    undo.callback(_end, launcher)
                failpoint("world-starting")
                connection, joined = _accepted(listener, wanted, launcher, deadline, is_over)
                undo.callback(connection.close)
            finally:
                path.unlink(missing_ok=True)
        world = JoinedWorld(joined, connection, launcher)
        undo.pop_all()
    _log.info("rank %d of %d of world %s has joined", joined.rank, joined.size, wanted.key.hex()[:16])
    return world


def check_nodes(workers: Sequence[str]) -> None:
    """Check that there is a daemon for each worker, which mpirun would take seconds to find out.

    Raises
    ------
    OptionError
        If this node's daemon knows none for some of them.
    NodeSilent
        If it knows all, and one does not answer.
    """
    unknown: list[VisparkError] = []
    silent: list[VisparkError] = []
    for worker in workers:
        try:
            administer(StartPrted(worker, (), asks=True))
        except OptionError as error:
            unknown.append(error)
        except VisparkError as error:
            silent.append(error)
    if unknown:
        raise OptionError(f"no MPI world of {', '.join(workers)} can come to be: "
                          f"{'; '.join(error.message for error in unknown)}",
                          detail="\n".join(error.detail for error in unknown if error.detail))
    if silent:
        raise NodeSilent(f"{silent[0].message}. Without it no MPI world of the {len(workers)} workers that hold the "
                         "grid can come to be", detail=silent[0].detail) from silent[0]


def _accepted(listener: socket.socket, wanted: Wanted, launcher: subprocess.Popen | None, deadline: float,
              is_over: Callable[[], bool]) -> tuple[Connection, Joined]:
    names = ", ".join(wanted.workers)
    listener.settimeout(_WATCH_SECONDS)
    while True:
        try:
            sock, _ = listener.accept()
            break
        except TimeoutError:
            if launcher is not None and launcher.poll() is not None:
                if lasting := refusals(locate(), wanted.key, OptionError):
                    raise OptionError(f"no MPI world of {names} can come to be: {lasting}") from None
                said = refusals(locate(), wanted.key, VisparkError) or \
                    f"mpirun ended with status {launcher.returncode}"
                raise WorldLost(f"no MPI world of {names} came to be: {said}; see {locate().process_log}",
                                detail=log.tail(locate().process_log, _LAST_WORDS)) from None
            if is_over():
                raise WorldLost(f"a worker of the MPI world of {names} was lost before it came to be") from None
            if time.monotonic() > deadline:
                raise WorldLost(f"no MPI world of {names} came to be before the plan's deadline; see "
                                f"{locate().process_log}") from None
    connection = Connection(sock)
    try:
        check_peer(sock, "the rank")
        sock.settimeout(max(deadline - time.monotonic(), 0.1))
        joined, _ = connection.receive(Joined)
        if (joined.key, joined.rank, joined.size) != (wanted.key, wanted.rank, len(wanted.workers)):
            raise WorldLost(f"rank {joined.rank} of {joined.size} came, and not {wanted.rank} of {len(wanted.workers)}")
        return connection, joined
    except VisparkError:
        connection.close()
        raise


def _end(launcher: subprocess.Popen) -> None:
    """End an mpirun and the processes that it started."""
    assert launcher.stdin is not None
    launcher.stdin.close()
    launcher.wait()
