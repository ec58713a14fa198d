"""Client of a worker: connections, requests, leases, administration.

A connection is a Unix socket, or TCP to another node. It is used by one thread at a time.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import secrets
import signal
import socket
import ssl
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from gpu_worker.client.transport import Endpoint, Transport, greeted, transport_to
from gpu_worker.protocol.errors import (
    ProtocolError,
    VisparkError,
    WorkerLost,
    WorkerUnavailable,
)
from gpu_worker.protocol.messages import (
    VERSION,
    AdminReply,
    Death,
    Failure,
    GetExitStatus,
    Greeting,
    Hello,
    Reach,
    Reply,
    Request,
    Welcome,
)
from gpu_worker.protocol.payload import KEPT_MEMORIES, RECYCLED_BYTES, Payload
from gpu_worker.protocol.shared import BufferLease
from gpu_worker.protocol.system import start_thread
from gpu_worker.protocol.wire import PATIENT_SECONDS, Connection, close_all, error_of
from gpu_worker.system.admin import administer as administer
from gpu_worker.system.admin import exchange_descriptors as exchange_descriptors
from gpu_worker.system.failpoints import failpoint as failpoint
from gpu_worker.system.paths import locate as locate
from gpu_worker.system.paths import machine as machine

_log = logging.getLogger(__name__)

_RENEWAL_SECONDS = 1.0
#: Between two greetings, in seconds.
_FIRST_PAUSE, _LAST_PAUSE = 0.02, 1.0

#: The number of no request: what comes then can only say what went wrong.
_NOBODY = -1

#: Numbers for memories, none of which is given twice, whichever connections a memory goes by.
_memories = itertools.count(1)


def _transport(runtime_dir: str | None, reach: Reach | None, start: bool, timeout: float, name: str = "") -> Transport:
    return transport_to(Endpoint(locate(runtime_dir), reach, start, timeout), name)


_Greeted = TypeVar("_Greeted")


def _greet(transport: Transport, hello: Hello, of: object) -> tuple[Connection, Any]:
    """Open a connection, send the greeting, and return the connection and the answer, a message of the union ``of``."""
    with contextlib.ExitStack() as stack:
        connection, hello = transport.open(hello)
        stack.enter_context(connection)
        welcome = greeted(connection, hello, of)
        connection.clear_deadline()
        stack.pop_all()
    return connection, welcome


class Client:
    """A connection to a session's device process. Made by :func:`connect`.

    Attributes
    ----------
    worker : str
        The worker's name; the same for all sessions of a node, and after a restart.
    epoch : int
        Grows with every device process; what an earlier one held is gone.
    pid : int
        The device process.
    devices : tuple of str
        Its devices, such as "cuda:0".
    shared_limit : int
        The bytes of shared memory that a thread block can have on each of them.
    runtime_dir : str
        The worker's runtime directory; of no meaning on another node.
    reach : Reach or None
        Where drivers on other nodes reach the session's processes, if that was asked for.
    shares_memory : bool
        Whether payloads are memory that the worker shares; else they are copied to it.
    """

    def __init__(self, connection: Connection, welcome: Welcome, runtime_dir: str, hello: Hello | None = None,
                 transport: Transport | None = None):
        self.worker = welcome.worker
        self.epoch = welcome.epoch
        self.pid = welcome.pid
        self.devices = welcome.devices
        self.shared_limit = welcome.shared_limit
        self.runtime_dir = runtime_dir
        self.reach = welcome.reach
        self.shares_memory = connection.shares_memory
        self._connection = connection
        self._hello = hello
        self._transport = transport
        self._spare: deque[Payload] = deque()
        #: All that were made and are still used, and the bytes of the largest that ever was.
        self._made: weakref.WeakSet[Payload] = weakref.WeakSet()
        self._largest = 0
        # Numbers must differ from those of all other clients of the session.
        self._numbers = itertools.count(secrets.randbits(39) << 24)

    def payload(self, size: int) -> Payload:
        """Return a payload of at least ``size`` bytes for a request; the caller gives it back by :meth:`recycle`, or
        closes it.

        The last request's payload is used again if it is large enough: its pages are allocated, and the worker has it
        mapped and pinned.
        """
        with contextlib.suppress(IndexError):
            payload = self._spare.pop()
            if size <= payload.size:
                payload.used = True
                return payload
            payload.close()
        payload = Payload.create(size)
        payload.number = next(_memories)
        self._made.add(payload)
        if size <= RECYCLED_BYTES:
            self._largest = max(size, self._largest)
        return payload

    @property
    def spare(self) -> list[Payload]:
        """The memory that is kept for later requests."""
        return list(self._spare)

    def lend(self, size: int) -> BufferLease | None:
        """Return a lease of at least ``size`` bytes for values that may never be sent: memory of an earlier request, or
        new memory as large as the largest request's.

        At most two leases exist, so that one can be filled while a reply in the other is still read.
        """
        try:
            payload = self._spare.pop()
        except IndexError:
            if size > self._largest or len(self._made) >= KEPT_MEMORIES or self.fileno() < 0:
                return None
            payload = self.payload(self._largest)
        else:
            if size > payload.size:
                self._spare.append(payload)
                return None
            payload.used = True
        return BufferLease(payload, self.recycle)

    def recycle(self, payload: Payload) -> None:
        """Take back a payload that is out of use, for later requests; finalizers may call this, in any thread."""
        if self.shares_memory and payload.size <= RECYCLED_BYTES and self.fileno() >= 0:
            self._spare.append(payload)
            while len(self._spare) > KEPT_MEMORIES:
                with contextlib.suppress(IndexError):       # another thread may be quicker
                    self._spare.popleft().close()
        else:
            payload.close()

    def next_number(self) -> int:
        """Return a number for a request that no other request of the session has."""
        return next(self._numbers)

    def request(self, message: Request, descriptors: Sequence[int] = ()) -> tuple[Any, list[int]]:
        """Send a request and wait for its reply and the descriptors that come with it, which the caller owns.

        Raises
        ------
        VisparkError
            What the worker says went wrong.
        WorkerLost
            If the connection breaks; it is closed then.
        """
        self.send(message, descriptors)
        return self.receive(message.number)

    def send(self, message: Request, descriptors: Sequence[int] = ()) -> None:
        """Send a request; a :meth:`receive` must follow for each, in the same order."""
        try:
            self._connection.send(message, Request, descriptors)
        except WorkerLost as error:
            self.close()
            raise self._lost(error) from error

    def receive(self, number: int) -> tuple[Any, list[int]]:
        """Wait for the reply to the request of this number. Raises as :meth:`request` does."""
        try:
            self._connection.poll(PATIENT_SECONDS)
            reply, descriptors = self._connection.receive(Reply)
        except ProtocolError:
            self.close()
            raise
        except WorkerLost as error:
            self.close()
            raise self._lost(error) from error
        if isinstance(reply, Failure):
            close_all(descriptors)
            raise error_of(reply)
        if reply.number != number:
            close_all(descriptors)
            self.close()
            raise ProtocolError(f"a reply to request {reply.number} came, not to {number}")
        return reply, descriptors

    def wait_until(self, done: Callable[[], bool]) -> None:
        """Wait until the worker has done something that it does not answer. Raises as :meth:`request` does."""
        if not self._connection.wait_until(done):
            self.receive(_NOBODY)

    def _lost(self, error: WorkerLost) -> WorkerLost:
        """Return the error for the loss of the process, with its fate as far as it is known here."""
        if self._transport is None or not self._transport.process_log:
            return WorkerLost(f"the worker {self.worker}, process {self.pid} there, is not reached any more: "
                              f"{error.message}; see daemon.log there")
        try:
            fate = fate_of(self.exit_status())
        except VisparkError as failure:
            fate = f"is gone, or its daemon is: {failure.message}"
        return WorkerLost(f"process {self.pid} of the worker in {self.runtime_dir} {fate}; "
                          f"see {self._transport.process_log}")

    def exit_status(self) -> Death:
        """Ask the daemon for the death of the process that this connection led to; its ``signal`` is 0 if unknown.

        Raises
        ------
        WorkerError
            If its daemon is gone too, and with it what it knew.
        """
        assert self._transport is not None and self._hello is not None
        return self._transport.exit_status(self._hello, self.epoch)

    def fileno(self) -> int:
        """Return the socket's descriptor, to wait for replies on; -1 once closed."""
        return self._connection.socket.fileno()

    @property
    def has_more(self) -> bool:
        """Whether bytes have been deciphered already, of which polling the socket's descriptor does not tell."""
        sock = self._connection.socket
        return isinstance(sock, ssl.SSLSocket) and sock.fileno() >= 0 and sock.pending() > 0

    def close(self) -> None:
        self._connection.close()
        while self._spare:
            self._spare.pop().close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def connect(hello: Hello, *, runtime_dir: str | None = None, reach: Reach | None = None, start: bool = True,
            timeout: float = 60.0, transport: str = "") -> Client:
    """Connect to the session's device process; on this node, start the daemon and the process if they are missing.

    Parameters
    ----------
    hello : Hello
        With the role "driver" or "executor".
    runtime_dir : str, optional
        The worker's runtime directory; by the rule of :mod:`gpu_worker.system.paths` when left out.
    reach : Reach, optional
        Where a worker on another node is reached over TCP, by a driver.
    start : bool
        Whether to start a daemon where there is none.
    timeout : float
        Seconds in all.
    transport : str
        The name of the transport; by the socket, or over TCP if ``reach`` is given, when left out.

    Raises
    ------
    WorkerUnavailable
        If there is no worker and none can be started; says why.
    Unauthorized
        If the worker is another user's, the session has another secret, or the certificate is another one.
    ProtocolError
        If the worker is of another version.
    """
    opened = _transport(runtime_dir, reach, start, timeout, transport)
    opened.endpoint.directory.session_socket(hello.session)
    connection, welcome = _until_greeted(opened, lambda: _greet(opened, hello, Greeting))
    if welcome.version != VERSION:
        connection.close()
        raise ProtocolError(f"the worker speaks version {welcome.version} of the protocol and this client {VERSION}")
    return Client(connection, welcome, str(opened.endpoint.directory.path), hello, opened)


class Lease:
    """A driver's lease: its session lives on a node while this is held. Made by :func:`open_lease`.

    A thread holds it, and takes it anew (from a new daemon, if need be) when the daemon dies.

    Attributes
    ----------
    worker : str
        The worker's name.
    """

    def __init__(self, hello: Hello, transport: Transport):
        self._hello = replace(hello, role="lease")
        self._transport = transport
        self._closed = threading.Event()
        self._connection, self.worker = self._acquire()
        with contextlib.ExitStack() as undo:
            undo.callback(self._connection.close)
            start_thread(self._hold, name="vispark-lease")
            undo.pop_all()

    def close(self) -> None:
        """Close the lease; the session ends after its lease time."""
        self._closed.set()
        # Its thread, which waits on the socket, closes it.
        with contextlib.suppress(OSError):
            self._connection.socket.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _acquire(self) -> tuple[Connection, str]:
        connection, leased = _until_greeted(self._transport, lambda: _greet(self._transport, self._hello, AdminReply))
        return connection, leased.worker

    def _hold(self) -> None:
        while True:
            with self._connection as connection, contextlib.suppress(OSError):
                connection.socket.recv(1)
            if self._closed.is_set():
                return
            _log.warning("the lease of session %s broke; it is taken anew", self._hello.session)
            while not self._renewed():
                if self._closed.wait(_RENEWAL_SECONDS):
                    return
            if self._closed.is_set():
                self._connection.close()
                return

    def _renewed(self) -> bool:
        try:
            self._connection, _ = self._acquire()
            return True
        except VisparkError as error:
            _log.warning("the lease of session %s cannot be taken anew: %s", self._hello.session, error)
            return False
        except Exception:
            _log.exception("the lease of session %s cannot be taken anew", self._hello.session)
            return False


def open_lease(hello: Hello, *, runtime_dir: str | None = None, reach: Reach | None = None,
               timeout: float = 60.0, transport: str = "") -> Lease:
    """Lease the session; on this node, start a daemon if there is none. Raises as :func:`connect` does."""
    opened = _transport(runtime_dir, reach, True, timeout, transport)
    opened.endpoint.directory.session_socket(hello.session)
    return Lease(hello, opened)


def finish(hello: Hello, *, runtime_dir: str | None = None, reach: Reach | None = None, timeout: float = 60.0,
           transport: str = "") -> None:
    """Report that a session's application is over, so that the daemon ends the session at once; no daemon is started
    for this.

    Raises
    ------
    WorkerUnavailable
        If there is no daemon.
    """
    connection, _ = _greet(_transport(runtime_dir, reach, False, timeout, transport), replace(hello, role="finish"),
                           AdminReply)
    connection.close()


def exit_status(session: str, epoch: int, *, runtime_dir: str | None = None) -> Death:
    """Ask the daemon for the death of a session's device process; its ``signal`` is 0 if unknown. Raises as
    :func:`administer`.
    """
    return administer(GetExitStatus(session, epoch), runtime_dir=runtime_dir)


def fate_of(death: Death) -> str:
    """Return the text of a process's death for errors."""
    if death.alive:
        return "closed the connection"
    if death.failure is not None:
        return f"was ended by a kernel: {error_of(death.failure)}"
    if not death.signal:
        return "has ended"
    names = {each.value: f", {each.name}" for each in signal.Signals}
    return f"was killed by signal {death.signal}{names.get(death.signal, '')}"


# -- connecting -------------------------------------------------------------------------------------------------------

def _until_greeted(transport: Transport, greet: Callable[[], _Greeted]) -> _Greeted:
    """Greet until a peer answers, for as long as its endpoint's timeout, with growing pauses: a connection breaks where
    a process or a daemon has just died, and another takes its place.
    """
    seconds, pause = transport.endpoint.timeout, _FIRST_PAUSE
    end = time.monotonic() + seconds
    while True:
        try:
            return greet()
        except WorkerLost as error:
            if time.monotonic() >= end:
                raise WorkerUnavailable(f"no GPU worker answered {transport} within {seconds:g} s: {error}",
                                        detail=transport.log_tail()) from error
        time.sleep(pause)
        pause = min(2 * pause, _LAST_PAUSE)
