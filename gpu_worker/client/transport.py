"""Interface of transports that have connections.

A new transport is one file beside this one that implements :class:`Transport`, and an entry in the table
:mod:`gpu_worker.protocol.transport_kinds`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar

from gpu_worker.protocol.errors import WorkerLost
from gpu_worker.protocol.messages import Death, Hello, Reach
from gpu_worker.protocol.transport_kinds import TransportKind, kind_of, kinds
from gpu_worker.protocol.versions import answer
from gpu_worker.protocol.wire import Connection, close_all
from gpu_worker.system.paths import RuntimeDirectory


@dataclass(frozen=True)
class Endpoint:
    """Address of a worker, and how it is to be reached.

    Attributes
    ----------
    directory : RuntimeDirectory
        Its runtime directory, if it is on this node.
    reach : Reach or None
        Its address for other nodes, if it is known.
    start : bool
        Whether to start a daemon where there is none on this node.
    timeout : float
        Seconds that connecting and greeting may take in all.
    """

    directory: RuntimeDirectory
    reach: Reach | None
    start: bool
    timeout: float


class Transport(ABC):
    """Transport of clients to one worker: its daemon, which answers or hands the connection on to a device process.

    What a connection can do is its own: see :attr:`gpu_worker.protocol.wire.Connection.shares_memory`.

    Parameters
    ----------
    endpoint : Endpoint
        The worker.
    """

    kind: ClassVar[str]

    def __init__(self, endpoint: Endpoint):
        self.endpoint = endpoint

    @abstractmethod
    def __str__(self) -> str:
        """Return the place of the worker, for errors, as in "no GPU worker answered in /run/user/1000"."""

    @abstractmethod
    def open(self, hello: Hello) -> tuple[Connection, Hello]:
        """Open a connection, on which nothing was said yet.

        Returns
        -------
        connection, hello
            The connection, which its user closes, and the greeting to send: ``hello``, without what the transport has
            proven otherwise.

        Raises
        ------
        WorkerLost
            If the connection breaks meanwhile; the caller tries again until its time is over.
        WorkerUnavailable
            If there is no worker.
        Unauthorized
            If somebody else answers.
        """

    @abstractmethod
    def exit_status(self, hello: Hello, epoch: int) -> Death:
        """Ask the daemon for the death of a session's device process; its ``signal`` is 0 if unknown.

        Raises
        ------
        WorkerError
            If the daemon is gone too.
        """

    def log_tail(self) -> str:
        """Return the last lines of the daemon's log; "" if the log cannot be read from here."""
        return ""

    @property
    def process_log(self) -> str:
        """The file in which the device process says why it ended; "" if it cannot be read from here."""
        return ""


def greeted(connection: Connection, hello: Hello, of: object) -> Any:
    """Greet on a connection, and return the answer, which is of the union ``of``."""
    with suppress(WorkerLost):
        # A worker that refuses may do so, and close, before it has read anything.
        connection.send(hello, Hello)
    return answered(connection, of)


def answered(connection: Connection, of: object) -> Any:
    """Return the first message of a connection, which is of the union ``of``."""
    connection.await_answer()
    reply, descriptors = connection.receive_as(lambda body: answer(body, of))
    close_all(descriptors)
    return reply


def transport_to(endpoint: Endpoint, name: str = "") -> Transport:
    """Return a worker's transport: one by name, else one for the address that is known."""
    return _kind(endpoint, name).load()(endpoint)


def _kind(endpoint: Endpoint, name: str) -> TransportKind:
    if name:
        return kind_of(name)
    return next(kind for kind in kinds() if kind.is_direct and kind.needs_address == (endpoint.reach is not None))
