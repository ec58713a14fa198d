"""Device process's side of TCP: TLS, the challenge, and administrative requests of an admitted driver to the daemon."""

from __future__ import annotations

import hmac
import socket
import ssl
import time
from contextlib import suppress
from pathlib import Path

from gpu_worker.client.connection import administer, finish, open_lease
from gpu_worker.protocol.control import Configuration, KeyPair, TcpEndpoint
from gpu_worker.protocol.errors import ProtocolError, Unauthorized, VisparkError, WorkerLost
from gpu_worker.protocol.messages import (
    VERSION,
    AdminReply,
    AdminRequest,
    AdmissionMessage,
    Challenge,
    Done,
    GetExitStatus,
    Hello,
    Leased,
    Proof,
)
from gpu_worker.protocol.stream import StreamConnection, keep_alive, max_payload, shake_hands
from gpu_worker.protocol.system import is_refusal, new_memfd, refused, system_call
from gpu_worker.protocol.tcp_auth import ADMISSION_SECONDS, NONCE_BYTES, TLS, nonce, proof
from gpu_worker.protocol.wire import MAX_GREETING, failure_of
from gpu_worker.system.handshake_limiter import HandshakeLimiter


class Guard:
    """Authenticator of TCP peers, which have to know the session's secret.

    Parameters
    ----------
    configuration : Configuration
        Whose process it is.
    """

    def __init__(self, configuration: Configuration):
        self._mine = configuration
        self._unauthenticated = HandshakeLimiter()
        self._context: tuple[KeyPair, ssl.SSLContext] | None = None

    def admit(self, sock: socket.socket, endpoint: TcpEndpoint) -> tuple[StreamConnection, Hello]:
        """Perform the TLS handshake and the challenge with a peer, and receive its greeting.

        ``sock`` stays open, and shutting it down ends the connection.

        Raises
        ------
        VisparkError
            If it is not let in, or is too slow.
        """
        until = time.monotonic() + ADMISSION_SECONDS
        # TLS would speak in the clear if its own socket were shut down.
        with system_call("a descriptor of a remote client's connection"):
            peer = sock.dup()
        try:
            self._unauthenticated.add(sock)
            try:
                keep_alive(peer)
                secured = self._context_of(endpoint.pair).wrap_socket(peer, server_side=True,
                                                                      do_handshake_on_connect=False)
                peer = secured
                shake_hands(secured, until)
                connection = StreamConnection(secured, until=until)
                hello = self._challenge(connection, endpoint.pair.certificate)
            finally:
                self._unauthenticated.remove(sock)
            connection.payload_limit = max_payload()
            connection.clear_deadline()
            return connection, hello
        except VisparkError:
            peer.close()
            raise
        except OSError as error:
            peer.close()
            if is_refusal(error):
                raise refused(error, "a remote client's connection") from error
            raise WorkerLost(f"a remote client is gone: {error}") from error

    def _challenge(self, connection: StreamConnection, certificate: bytes) -> Hello:
        ours = nonce()
        connection.send(Challenge(ours), AdmissionMessage)
        answer, _ = connection.receive(AdmissionMessage, cap=MAX_GREETING)
        if not isinstance(answer, Proof) or len(answer.nonce) != NONCE_BYTES:
            raise ProtocolError("a remote client did not answer the challenge")
        named = self._mine.session, ours + answer.nonce, certificate
        if not hmac.compare_digest(answer.proof, proof(self._mine.secret, "client", *named)):
            error = Unauthorized(f"session {self._mine.session} has another secret")
            with suppress(WorkerLost):
                connection.send(failure_of(error), AdmissionMessage)
            raise error
        connection.send(Proof(b"", proof(self._mine.secret, "worker", *named)), AdmissionMessage)
        hello, _ = connection.receive(Hello, cap=MAX_GREETING)
        if hello.session != self._mine.session or hello.version != VERSION:
            raise ProtocolError(f"a remote client greets session {hello.session[:80]!r} in version {hello.version}")
        return hello

    def _context_of(self, pair: KeyPair) -> ssl.SSLContext:
        if self._context is None or self._context[0] != pair:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.minimum_version = TLS
            context.num_tickets = 0
            # It is read from a file only, and this one is nobody else's.
            with system_call("a file for a key pair"), open(new_memfd("vispark key"), "w+b") as file:
                file.write(pair.key + ssl.DER_cert_to_PEM_cert(pair.certificate).encode())
                file.flush()
                context.load_cert_chain(f"/proc/self/fd/{file.fileno()}")
            self._context = pair, context
        return self._context[1]

    # -- what the daemon answers --------------------------------------------------------------------------------------

    def serve_driver(self, hello: Hello, connection: StreamConnection) -> None:
        """Serve a driver on another node in place of its daemon, as the daemon serves a driver on this node.

        Raises
        ------
        VisparkError
            If it asks for what is not its own, or the daemon refuses.
        """
        directory = str(Path(self._mine.crash_record).parents[1])
        greeting = Hello(VERSION, hello.role, self._mine.session, self._mine.secret, self._mine.application, 0,
                         self._mine.options)
        try:
            if hello.role == "lease":
                with open_lease(greeting, runtime_dir=directory) as lease:
                    connection.send(Leased(lease.worker), AdminReply)
                    # A lease's holder never speaks again.
                    connection.wait_for_end()
            elif hello.role == "finish":
                finish(greeting, runtime_dir=directory)
                connection.send(Done(0), AdminReply)
            elif hello.role == "admin":
                connection.until = time.monotonic() + ADMISSION_SECONDS
                request, _ = connection.receive(AdminRequest, cap=MAX_GREETING)
                if not isinstance(request, GetExitStatus) or request.session != self._mine.session:
                    raise ProtocolError("over TCP, how a process of the session ended is all that is told")
                connection.send(administer(request, runtime_dir=directory), AdminReply)
            else:
                raise ProtocolError(f"over TCP a role is driver, lease, finish or admin, not {hello.role[:80]!r}")
        except WorkerLost:
            raise
        except VisparkError as error:
            with suppress(WorkerLost):
                connection.send(failure_of(error), AdminReply)
            raise
