"""Frames over a Unix socket: four bytes of length, a message, and descriptors beside its first byte.

Nothing is allocated for a frame before its length is known to be within the cap, a long one takes memory as it comes,
and no more than :data:`MAX_DESCRIPTORS` descriptors are ever taken from a peer.
"""

from __future__ import annotations

import array
import errno
import os
import select
import socket
import struct
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from gpu_worker.protocol.codec import decode, encode
from gpu_worker.protocol.errors import BY_NAME, OutOfResources, Place, ProtocolError, VisparkError, WorkerLost
from gpu_worker.protocol.messages import Failure
from gpu_worker.protocol.processors import are_free
from gpu_worker.protocol.system import is_refusal, refused

#: A frame before the peer is known, and any later one.
MAX_GREETING = 4 << 10
MAX_FRAME = 8 << 20
MAX_DESCRIPTORS = 17

#: What is allocated for a frame before any of it has come; most frames are shorter.
FIRST_BYTES = 128 << 10

#: How long a worker looks for a next request before it sleeps, and a client for an answer, in seconds.
LINGER_SECONDS = 0.002
PATIENT_SECONDS = 0.01

#: After how long whoever waits for what nobody tells of looks again, in seconds.
_NAP_SECONDS = 5e-5

#: For how long a call on a socket is made again that the system refuses for want of memory, and how often, in seconds.
_REFUSED_SECONDS, _REFUSED_NAP_SECONDS = 5.0, 0.01

_Given = TypeVar("_Given")

Sockets = Iterable[socket.socket]

_LENGTH = struct.Struct("!I")
_ANCILLARY_BYTES = socket.CMSG_LEN(MAX_DESCRIPTORS * array.array("i").itemsize)
#: As ints: arithmetic with enumerations takes longer than a system call.
_CLOEXEC, _CUT_OFF = int(socket.MSG_CMSG_CLOEXEC), int(socket.MSG_CTRUNC)


class CutOff(OutOfResources):
    """A message for whose descriptors this process has no room; the next one can be received.

    Attributes
    ----------
    cut : object
        The message.
    """

    cut: Any = None


class Connection:
    """A stream of typed messages over a connected Unix socket. Not for several threads at once."""

    #: Whether the other side shares the memory of the descriptors that it is sent, or has a copy of it.
    shares_memory = True

    def __init__(self, sock: socket.socket):
        self.socket = sock

    def send(self, message: object, of: object, descriptors: Sequence[int] = ()) -> None:
        """Send a message of the type or union ``of``, with ``descriptors`` (the peer gets its own copies).

        Raises
        ------
        WorkerLost
            If the peer is gone or does not take the message within the socket's timeout.
        OutOfMemory, OutOfResources
            If the system has no room for it; nothing of the message was sent then.
        """
        body = encoded(message, of)
        frame = _LENGTH.pack(len(body)) + body
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
        try:
            count = self.socket.sendmsg([frame], rights)
        except OSError as error:
            if is_refusal(error):
                raise refused(error, f"a message of {len(frame):,} bytes") from error
            raise WorkerLost(f"the peer is gone: {error}") from error
        if count < len(frame):
            self._send_rest(memoryview(frame)[count:])

    def _send_rest(self, rest: memoryview) -> None:
        """Send the rest of a frame, for which the peer waits."""
        while rest:
            rest = rest[_call_again(lambda: self.socket.send(rest)):]    # noqa: B023 - called at once

    def receive(self, of: object, cap: int = MAX_FRAME) -> tuple[Any, list[int]]:
        """Receive a message of the type or union ``of`` and the descriptors that came with it (now the caller's).

        Raises
        ------
        WorkerLost
            If the peer closed the connection, or the socket's timeout passed.
        ProtocolError
            If the frame is longer than ``cap``, is not of type ``of``, or brought too many descriptors.
        CutOff
            If this process has no room for the descriptors.
        """
        return self.receive_as(lambda body: decode(body, of), cap)

    def receive_as(self, read: Callable[[bytearray], Any], cap: int = MAX_FRAME) -> tuple[Any, list[int]]:
        """Receive a message and its descriptors like :meth:`receive`, decoding the message's bytes by ``read``."""
        descriptors: list[int] = []
        is_whole = False
        try:
            length, are_there = self._length(descriptors)
            if length > cap:
                raise ProtocolError(f"a frame of {length} bytes is over the cap of {cap}")
            message = read(self._receive_exactly(length))
            if not are_there:
                error = refused(OSError(errno.EMFILE, os.strerror(errno.EMFILE)), "a descriptor of a peer's message")
                cut_off = CutOff(error.message)
                cut_off.cut = message
                raise cut_off
            is_whole = True
            return message, descriptors
        finally:
            if not is_whole:
                close_all(descriptors)

    def poll(self, seconds: float, still: Callable[[], bool] = lambda: True,
             others: Sockets = ()) -> bool:
        """Look for input again and again for up to some seconds, giving way to other threads each time.

        A thread that sleeps is woken late, in a virtual machine by 50 to 100 µs; one that looks is there at once. Not
        where processors are few or busy: there whoever looks takes the time of whom it waits for. Nor any longer than
        ``still`` says so, or there is input for ``others``: their threads, which sleep, would get the interpreter's
        lock late, as it is free for less than they take to wake up. Whether there is input.
        """
        if not are_free():
            return False
        looking, own = select.poll(), self.socket.fileno()
        for sock in (self.socket, *others):
            if sock.fileno() >= 0:
                looking.register(sock, select.POLLIN)
        until = time.monotonic() + seconds
        while not (events := looking.poll(0)):
            if time.monotonic() > until or not still():
                return False
        return own in dict(events)

    def wait(self, seconds: float) -> bool:
        """Sleep until there is input, for at most some seconds; return whether there is input."""
        looking = select.poll()
        looking.register(self.socket, select.POLLIN)
        return bool(looking.poll(1000 * seconds))

    def await_answer(self) -> None:
        """Wait for a peer's first answer where something is to be seen to meanwhile; at once where there is nothing.
        """

    def wait_until(self, done: Callable[[], bool]) -> bool:
        """Poll until ``done`` returns true, or there is input; return whether it did.

        It is looked for again and again, for as long as an answer is where processors are to spare, else after naps.
        """
        looking = select.poll()
        looking.register(self.socket, select.POLLIN)
        until = time.monotonic() + PATIENT_SECONDS
        while not done():
            if looking.poll(0):
                return False
            if time.monotonic() > until or not are_free():
                time.sleep(_NAP_SECONDS)
        return True

    def _length(self, descriptors: list[int]) -> tuple[int, bool]:
        """Return the length of the next frame, and whether all its descriptors are there, which go with the others."""
        head, are_there = bytearray(_LENGTH.size), True
        view = memoryview(head)
        while view:
            count, ancillary, flags, _ = _call_again(
                lambda: self.socket.recvmsg_into([view], _ANCILLARY_BYTES, _CLOEXEC))   # noqa: B023 - called at once
            for level, kind, data in ancillary:
                if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                    rights = array.array("i")
                    rights.frombytes(data[:len(data) - len(data) % rights.itemsize])
                    descriptors.extend(rights)
            if flags & _CUT_OFF and len(descriptors) < MAX_DESCRIPTORS:
                are_there = False       # the kernel had room for fewer than were asked for
            elif flags & _CUT_OFF or len(descriptors) > MAX_DESCRIPTORS:
                raise ProtocolError(f"a frame brought more than {MAX_DESCRIPTORS} descriptors")
            view = view[self._receive_some(count):]
        return int(_LENGTH.unpack(head)[0]), are_there

    def _receive_exactly(self, length: int) -> bytearray:
        """Receive exactly so many bytes of a frame; unexpected descriptors among them are closed by the kernel."""
        return read_as_it_comes(length, self._fill)

    def _fill(self, view: memoryview) -> None:
        while view:
            count = _call_again(lambda: self.socket.recv_into(view))     # noqa: B023 - called at once
            view = view[self._receive_some(count):]

    @staticmethod
    def _receive_some(count: int) -> int:
        if not count:
            raise WorkerLost("the peer closed the connection")
        return count

    def clear_deadline(self) -> None:
        """Remove the deadline: the peer may be silent for any time from now on."""
        self.socket.settimeout(None)

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read_as_it_comes(length: int, fill: Callable[[memoryview], None]) -> bytearray:
    """Return ``length`` bytes of a frame, for which no more memory is taken than twice what has come of them.

    A peer may say that megabytes follow, and be silent then; many may.
    """
    body = bytearray(min(length, FIRST_BYTES))
    fill(memoryview(body))
    while len(body) < length:
        more = bytearray(min(length - len(body), len(body)))
        fill(memoryview(more))
        body += more
    return body


def _call_again(call: Callable[[], _Given]) -> _Given:
    """Call a socket function and return its result, retrying for a while if the system has no memory for it.

    Raises
    ------
    WorkerLost
        If the peer is gone, or the system refuses for long: what has come or gone of a frame cannot be undone.
    """
    until = None
    while True:
        try:
            return call()
        except OSError as error:
            now = time.monotonic()
            until = until or now + _REFUSED_SECONDS
            if not is_refusal(error) or now > until:
                raise WorkerLost(f"the peer is gone: {error}") from error
        time.sleep(_REFUSED_NAP_SECONDS)


def encoded(message: object, of: object) -> bytes:
    """Return a message of the type or union ``of`` as bytes, which are within the cap.

    Raises
    ------
    ProtocolError
        If they are more.
    """
    body = encode(message, of)
    if len(body) > MAX_FRAME:
        raise ProtocolError(f"a message of {len(body)} bytes is over the cap of {MAX_FRAME}; "
                            "use fewer partitions per worker or smaller array arguments")
    return body


def close_all(descriptors: Sequence[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def failure_of(error: VisparkError, number: int = 0) -> Failure:
    """Return the message that carries an error to the other side."""
    place = error.place
    kind = next((each.__name__ for each in type(error).__mro__ if each.__name__ in BY_NAME), VisparkError.__name__)
    return Failure(number, kind, error.message[:4096], place.vrdd, place.partition, place.operation,
                   place.device, error.detail[:65536])


def error_of(failure: Failure) -> VisparkError:
    """Return the error that a message carries."""
    return BY_NAME.get(failure.kind, VisparkError)(
        failure.message, Place(failure.vrdd, failure.partition, failure.operation, failure.device), failure.detail)
