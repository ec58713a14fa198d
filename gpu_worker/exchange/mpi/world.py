"""Device process's side of its session's MPI world."""

from __future__ import annotations

import logging
import os
import select
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any

from gpu_worker.device.base import Device
from gpu_worker.exchange.base import JoinedWorld, MessageMemory, MessageSpec, Staged
from gpu_worker.exchange.mpi.messages import (
    Ended,
    Forget,
    Gather,
    Go,
    Joined,
    Order,
    RankAnswer,
    SharedRange,
    StagedExchange,
)
from gpu_worker.exchange.mpi.nodes import mpirun, program, refusals, why_unfit, world_socket
from gpu_worker.exchange.mpi.supervise import GRACE_SECONDS
from gpu_worker.protocol.errors import (
    NodeSilent,
    OptionError,
    OutOfMemory,
    OutOfResources,
    VisparkError,
    WorkerLost,
    WorldLost,
)
from gpu_worker.protocol.grids import World as Wanted
from gpu_worker.protocol.messages import StartPrted
from gpu_worker.protocol.payload import Payload
from gpu_worker.protocol.system import start_thread, system_call
from gpu_worker.protocol.wire import Connection
from gpu_worker.system import log
from gpu_worker.system.admin import administer
from gpu_worker.system.failpoints import failpoint
from gpu_worker.system.paths import locate
from gpu_worker.system.peer import check_peer, peer_process
from gpu_worker.system.stopped_processes import LOOK_SECONDS, STOPPED_SECONDS, StoppedProcesses

_log = logging.getLogger(__name__)

_WATCH_SECONDS = 0.1
#: Where a message starts in the memory that the rank shares.
_ALIGNMENT = 256
#: How many lines of what mpirun wrote an error has.
_LAST_WORDS = 10

#: How long to look for what a rank said before it ended, where it cannot be told anything any more.
_LAST_WORDS_SECONDS = 0.1

#: How long this node's daemon may take to ask another one, in seconds: more than it waits for that.
_DAEMON_SECONDS = 15.0

#: How long the supervisor of an mpirun may take to end it, in seconds: more than it waits for mpirun twice.
_END_SECONDS = 3 * GRACE_SECONDS


class MpiWorld(JoinedWorld):
    """A world whose messages are moved by an MPI rank beside this process; made by :func:`join`."""

    def __init__(self, joined: Joined, connection: Connection, launcher: subprocess.Popen[bytes] | None):
        super().__init__(joined.key, joined.rank, joined.size)
        self._connection = connection
        self._looking = select.poll()
        self._looking.register(connection.socket, select.POLLIN)
        self._launcher = launcher
        self._is_over = False

    @property
    def way(self) -> str:
        """What messages go by, for people."""
        return "mpi"

    def _gather(self, data: bytes) -> tuple[bytes, ...]:
        return self._ask(Gather(data)).data

    def _stage(self, number: int, sends: tuple[MessageSpec, ...], receives: tuple[MessageSpec, ...]) -> Staged:
        ranges, nbytes = [], 0
        for part in (*sends, *receives):
            ranges.append(SharedRange(part.peer, part.tag, nbytes, part.nbytes))
            nbytes += -(-part.nbytes // _ALIGNMENT) * _ALIGNMENT
        memory, device = Payload.create(nbytes), (*sends, *receives)[0].device
        order = StagedExchange(number, tuple(ranges[:len(sends)]), tuple(ranges[len(sends):]))
        self._send_order(order, memory.descriptor)
        device.pin(memory.array)
        places = tuple(MessageMemory(None, memory.view(part.offset, part.nbytes)) for part in ranges)
        return Staged(number, places[:len(sends)], places[len(sends):], partial(self._forget, number, memory, device))

    def _forget(self, number: int, memory: Payload, device: Device) -> None:
        if not self._is_over:
            self._send_order(Forget(number))
        device.unpin(memory.array)

    def _move(self, staged: Staged, ready: Callable[[], None]) -> None:
        ready()
        failpoint("halo-packed")
        self.sent = self._ask(Go(staged.number)).sent
        failpoint("halo-moved")

    def _send_order(self, order: Order, *descriptors: int) -> None:
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
            self._await_rank()
            self._connection.socket.settimeout(max(self._deadline - time.monotonic(), 0.001))
            answer, _ = self._connection.receive(RankAnswer)
        except VisparkError as error:
            raise self._lost(error) from error
        if isinstance(answer, Ended):
            raise self._fallen(answer)
        return answer

    def _await_rank(self) -> None:
        """Wait for the rank's answer until the deadline; end a rank that is stopped, of which all ranks learn."""
        if self._looking.poll(LOOK_SECONDS * 1000):
            return
        stops, process = StoppedProcesses(), peer_process(self._connection.socket)
        while not self._looking.poll(LOOK_SECONDS * 1000) and time.monotonic() < self._deadline:
            if process in stops.overdue([process]):
                _log.error("rank %d has been stopped for %g s, and is ended", self.rank, STOPPED_SECONDS)
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)

    def _fallen(self, ended: Ended) -> WorldLost:
        return WorldLost(f"rank {self.rank} of {self.size} ended, and with it the world: {ended.said}",
                         detail=ended.traceback)

    def _lost(self, error: VisparkError) -> WorldLost:
        """Return the error for the loss of the rank, with the reason that the rank may have sent."""
        with suppress(VisparkError, OSError):
            self._connection.socket.settimeout(_LAST_WORDS_SECONDS)
            answer, _ = self._connection.receive(RankAnswer)
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
            _end_in_thread(launcher)

    def _disconnect(self) -> None:
        self._is_over = True
        self._connection.close()


def join(wanted: Wanted, deadline: float, is_over: Callable[[], bool] = lambda: False) -> MpiWorld:
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
                    undo.callback(_end_in_thread, launcher)
                failpoint("world-starting")
                connection, joined = _accepted(listener, wanted, launcher, deadline, is_over)
                undo.callback(connection.close)
            finally:
                path.unlink(missing_ok=True)
        world = MpiWorld(joined, connection, launcher)
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
        If it knows all, and one does not answer, or it does not answer itself.
    """
    unknown: list[VisparkError] = []
    silent: list[VisparkError] = []
    for worker in workers:
        try:
            administer(StartPrted(worker, (), asks=True), timeout=_DAEMON_SECONDS)
        except OptionError as error:
            unknown.append(error)
        except WorkerLost as error:     # others' daemons are this one's to ask
            raise NodeSilent(f"the daemon of this node does not answer: {error.message}. Without it no MPI world of "
                             f"the {len(workers)} workers that hold the grid can come to be") from error
        except VisparkError as error:
            silent.append(error)
    if unknown:
        raise OptionError(f"no MPI world of {', '.join(workers)} can come to be: "
                          f"{'; '.join(error.message for error in unknown)}, or set spark.vispark.exchange=ucx, for "
                          "which no daemon needs to know another",
                          detail="\n".join(error.detail for error in unknown if error.detail))
    if silent:
        raise NodeSilent(f"{silent[0].message}. Without it no MPI world of the {len(workers)} workers that hold the "
                         "grid can come to be", detail=silent[0].detail) from silent[0]


def _accepted(listener: socket.socket, wanted: Wanted, launcher: subprocess.Popen[bytes] | None, deadline: float,
              is_over: Callable[[], bool]) -> tuple[Connection, Joined]:
    names = ", ".join(wanted.workers)
    listener.settimeout(_WATCH_SECONDS)
    while True:
        try:
            sock, _ = listener.accept()
            break
        except TimeoutError:
            if launcher is not None and launcher.poll() is not None:
                if lasting := refusals(locate(), wanted.key, OptionError) or why_unfit(program("mpirun")):
                    raise OptionError(f"no MPI world of {names} can come to be: {lasting}") from None
                reason = refusals(locate(), wanted.key, VisparkError) or \
                    f"mpirun ended with status {launcher.returncode}"
                raise WorldLost(f"no MPI world of {names} came to be: {reason}; see {locate().process_log}",
                                detail=log.tail(locate().process_log, _LAST_WORDS)) from None
            if is_over():
                raise WorldLost(f"a worker of the MPI world of {names} was lost before it came to be") from None
            if time.monotonic() > deadline:
                raise WorldLost(f"no MPI world of {names} came to be in time; a process that it needs may be stopped, "
                                f"or a node not answer: see {locate().process_log}") from None
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


def _end_in_thread(launcher: subprocess.Popen[bytes]) -> None:
    """End an mpirun in a thread: it takes seconds, for which no recovery waits."""
    try:
        start_thread(_end, [launcher], name="end of a world")
    except (OutOfMemory, OutOfResources):
        _end(launcher)


def _end(launcher: subprocess.Popen[bytes]) -> None:
    """End an mpirun and the processes that it started; at once what is stopped, and so ends nothing itself."""
    assert launcher.stdin is not None
    launcher.stdin.close()
    try:
        launcher.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        _log.warning("the supervisor %d of mpirun does not end, and is killed with it", launcher.pid)
        os.killpg(launcher.pid, signal.SIGKILL)
        launcher.wait()
