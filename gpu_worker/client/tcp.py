"""Client's side of TCP: it names its session, checks the certificate, and proves that it knows the secret."""

from __future__ import annotations

import hmac
import socket
import ssl
import time
from contextlib import ExitStack
from dataclasses import replace
from typing import ClassVar

from gpu_worker.client.transport import Transport, answered
from gpu_worker.protocol.errors import BY_NAME, ProtocolError, Unauthorized, WorkerLost, WorkerUnavailable
from gpu_worker.protocol.messages import (
    VERSION,
    AdminReply,
    AdminRequest,
    AdmissionMessage,
    Challenge,
    Death,
    Failure,
    GetExitStatus,
    Hello,
    Proof,
    Reach,
)
from gpu_worker.protocol.stream import StreamConnection, keep_alive, max_payload, shake_hands
from gpu_worker.protocol.system import system_call
from gpu_worker.protocol.tcp_auth import ADMISSION_SECONDS, MAX_ANSWER, NONCE_BYTES, READY, REFUSED, TLS, nonce, proof
from gpu_worker.protocol.wire import MAX_GREETING, Connection, error_of

#: How long a connection may take to come to be, in seconds: packets that a firewall drops are not answered.
CONNECT_SECONDS = 5.0


class TcpTransport(Transport):
    """Transport to a worker of another node, over TLS; nothing of that node's files can be read from here."""

    kind: ClassVar[str] = "tcp"

    def __str__(self) -> str:
        reach = self.reach
        return f"at {reach.host}, port {reach.port}"

    @property
    def reach(self) -> Reach:
        """The address to connect to."""
        if self.endpoint.reach is None:
            raise WorkerUnavailable(f"the worker in {self.endpoint.directory.path} has no address for other nodes; "
                                    "daemon.log there says why")
        return self.endpoint.reach

    def open(self, hello: Hello) -> tuple[Connection, Hello]:
        # That it has the secret was proven, in both directions.
        return connect_to_session(self.reach, hello, self.endpoint.timeout), replace(hello, secret=b"")

    def exit_status(self, hello: Hello, epoch: int) -> Death:
        connection = connect_to_session(self.reach, hello, self.endpoint.timeout)
        request: AdminRequest = GetExitStatus(hello.session, epoch)
        with connection:
            connection.send(replace(hello, role="admin", secret=b""), Hello)
            connection.send(request, AdminRequest)
            return answered(connection, AdminReply)


def connect_to_session(reach: Reach, hello: Hello, start_seconds: float) -> StreamConnection:
    """Return a connection to a session's device process on another node, on which to greet within ``start_seconds``.

    Parameters
    ----------
    reach : Reach
        Where it is.
    hello : Hello
        Its session and its secret.
    start_seconds : float
        How long the daemon there may take to start a process, and that until it answers.

    Raises
    ------
    WorkerUnavailable
        If nobody listens there, or does not know the session.
    Unauthorized
        If the certificate is another one, or one of the sides has another secret.
    WorkerLost
        If the connection breaks meanwhile.
    """
    where = f"{reach.host}, port {reach.port}"
    with system_call(f"nobody answers over TCP at {where}", WorkerUnavailable):
        sock = socket.create_connection((reach.host, reach.port), CONNECT_SECONDS)
    with ExitStack() as stack:
        stack.enter_context(sock)
        keep_alive(sock)
        _name_session(sock, hello.session, where, start_seconds)
        until = time.monotonic() + ADMISSION_SECONDS
        secured = stack.enter_context(_tls_context().wrap_socket(sock, do_handshake_on_connect=False))
        shake_hands(secured, until)
        if not hmac.compare_digest(secured.getpeercert(binary_form=True) or b"", reach.certificate):
            raise Unauthorized(f"the worker at {where} shows another certificate than that of session {hello.session}; "
                               "somebody else may have answered in its place")
        connection = StreamConnection(secured, until=until)
        _prove(connection, hello, reach.certificate)
        connection.until, connection.payload_limit = time.monotonic() + start_seconds, max_payload()
        stack.pop_all()
    return connection


def _name_session(sock: socket.socket, session: str, where: str, seconds: float) -> None:
    """Name the session to the daemon, which hands the connection on."""
    answer, until = bytearray(), time.monotonic() + seconds
    try:
        sock.sendall(f"vispark {VERSION} {session}\n".encode())
        while not answer.endswith(b"\n") and len(answer) < MAX_ANSWER:
            sock.settimeout(max(until - time.monotonic(), 0.001))
            # The device process says nothing before TLS does.
            byte = sock.recv(1)
            if not byte:
                raise WorkerLost(f"the daemon at {where} closed the connection")
            answer += byte
    except WorkerLost:
        raise
    except OSError as error:
        raise WorkerLost(f"the daemon at {where} does not answer: {error}") from error
    status, _, reason = answer.decode(errors="replace").strip().partition(" ")
    if status == REFUSED:
        kind, _, why = reason.partition(" ")
        raise BY_NAME.get(kind, ProtocolError)(f"the daemon at {where} refused: {why}")
    if status != READY:
        raise ProtocolError(f"what answers at {where} is no GPU worker of vispark")


def _prove(connection: StreamConnection, hello: Hello, certificate: bytes) -> None:
    challenge, _ = connection.receive(AdmissionMessage, cap=MAX_GREETING)
    if not isinstance(challenge, Challenge) or len(challenge.nonce) != NONCE_BYTES:
        raise ProtocolError("the worker sent no challenge")
    ours = nonce()
    named = hello.session, challenge.nonce + ours, certificate
    connection.send(Proof(ours, proof(hello.secret, "client", *named)), AdmissionMessage)
    answer, _ = connection.receive(AdmissionMessage, cap=MAX_GREETING)
    if isinstance(answer, Failure):
        raise error_of(answer)
    if not isinstance(answer, Proof) or not hmac.compare_digest(answer.proof, proof(hello.secret, "worker", *named)):
        raise Unauthorized(f"the worker did not show that it has the secret of session {hello.session}")


def _tls_context() -> ssl.SSLContext:
    """Return a context of TLS without authorities: the certificate is compared with the only one that is right."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = TLS
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
