"""Protocol between a daemon and its device processes.

A device process reads its :class:`Configuration` from its standard input. It listens on its session's socket, where one
daemon at a time is connected: the process introduces itself with a :class:`Registration`, then the daemon sends a
:class:`HandOver` with a client's connection beside it, and gets :class:`Taken`.
"""

from __future__ import annotations

from dataclasses import field

from gpu_worker.protocol.frozen import dataclass
from gpu_worker.protocol.messages import Reach, SessionOptions

#: The role of a connection that came over TCP.
REMOTE = "remote"


@dataclass(frozen=True, slots=True)
class KeyPair:
    """TLS identity of a session's processes on a node: a certificate (DER), and its key (PEM)."""

    certificate: bytes
    key: bytes

    def __repr__(self) -> str:
        return "KeyPair()"


@dataclass(frozen=True, slots=True)
class TcpEndpoint:
    """TCP address at which a daemon accepts connections for a session, and the TLS identity that its processes show."""

    host: str
    port: int
    pair: KeyPair

    @property
    def reach(self) -> Reach:
        """The address and certificate for clients."""
        return Reach(self.host, self.port, self.pair.certificate)


@dataclass(frozen=True, slots=True)
class Configuration:
    """Configuration with which a device process is started."""

    session: str
    secret: bytes = field(repr=False)
    application: str
    options: SessionOptions
    epoch: int
    worker: str
    crash_record: str


@dataclass(frozen=True, slots=True)
class Registration:
    """Message by which a running process introduces itself to a daemon; ``client_pids`` are its clients that live.
    """

    session: str
    secret: bytes = field(repr=False)
    application: str
    options: SessionOptions
    epoch: int
    pid: int
    client_pids: tuple[int, ...]
    endpoint: TcpEndpoint | None = None


@dataclass(frozen=True, slots=True)
class HandOver:
    """Message with a client's connection, greeted and authenticated; ``client_pid`` is 0 if the client has none.

    Of the role :data:`REMOTE` it came over TCP, and is an unauthenticated peer's until it has shown that it is not. The
    ``endpoint`` is the session's, for a remote client and for a client that asked for it. ``gpus`` are the addresses of
    the devices that Spark assigned to an executor; for other clients those of all executors here.
    """

    number: int
    role: str
    client_pid: int
    endpoint: TcpEndpoint | None = None
    gpus: tuple[str, ...] = ()


#: What a process says in place of a number of clients where it could not take a connection.
NOT_TAKEN = -1


@dataclass(frozen=True, slots=True)
class Taken:
    """Reply that the process has the connection, and ``clients`` in all; :data:`NOT_TAKEN` if it has no room for the
    connection.
    """

    number: int
    clients: int
