"""Protocol between daemons of several nodes: requests to start prted.

A daemon knows the others by where they are: an address with a port, or the runtime directory of another one on this
machine. Over TCP both sides prove that they have the cluster's key, by HMAC-SHA256 over a challenge and what is said;
nothing that is said is a secret. A daemon does for another what it would do for its own device processes: start prted
with arguments of prted's own.
"""

from __future__ import annotations

import hmac
import logging
import os
import secrets
import select
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from gpu_worker.exchange.mpi.nodes import start_prted
from gpu_worker.exchange.mpi.supervise import own_folder
from gpu_worker.protocol.codec import decode, encode
from gpu_worker.protocol.errors import OptionError, Unauthorized, VisparkError, WorkerLost, WorkerUnavailable
from gpu_worker.protocol.grids import place_name
from gpu_worker.protocol.messages import AdminReply, Done, Failure, StartPrted
from gpu_worker.protocol.system import as_error, is_refusal, refused, start_thread, system_call
from gpu_worker.protocol.wire import Connection, error_of, failure_of
from gpu_worker.system.admin import administer
from gpu_worker.system.paths import RuntimeDirectory, machine
from gpu_worker.system.stopped_processes import LOOK_SECONDS, STOPPED_SECONDS, StoppedProcesses

_log = logging.getLogger(__name__)

_SECONDS = 10.0
#: How long a prted may take to end before it is killed, in seconds.
_GRACE_SECONDS = 5.0
_CAP = 64 << 10
_NONCE_BYTES = 32
_LEAST_KEY = 16
#: How long the thread that listens stands still after a defect, in seconds.
_AFTER_DEFECT_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class PeerChallenge:
    """Challenge of a daemon, which the peer has to answer."""

    nonce: bytes


@dataclass(frozen=True, slots=True)
class Signed:
    """Message with the proof that its sender has the key, and the challenge to the other side."""

    nonce: bytes
    body: bytes
    proof: bytes


@dataclass(frozen=True, slots=True)
class SavedCluster:
    """Configuration of a daemon's cluster: the other nodes, this daemon's own address, and the file with the key."""

    others: tuple[str, ...]
    listen: str
    key: str


class Cluster:
    """A daemon's view of the nodes.

    Parameters
    ----------
    directory : RuntimeDirectory
        Its own.
    others : sequence of str
        The other daemons: "host:port", or a runtime directory.
    listen : str
        Where others reach this one, "address:port"; empty for nowhere.
    key : Path or None
        A file with the cluster's key, which is ours alone.
    """

    def __init__(self, directory: RuntimeDirectory, others: Sequence[str] = (), listen: str = "",
                 key: Path | None = None):
        self._directory = directory
        self._others = tuple(others)
        self._listen = listen
        self._key_file = key
        self._key = _read(key) if key is not None else b""
        self._place = place_name(machine(), str(directory.path))
        #: The prteds that run, and the thread that waits for each.
        self._started: dict[subprocess.Popen[bytes], threading.Thread] = {}
        self._listener: socket.socket | None = None
        self._closed = False
        if not self._key and (listen or any(_address(other) for other in self._others)):
            raise OptionError("daemons that reach each other over TCP need a key: --key FILE, equal on all nodes")

    def saved(self) -> bytes:
        """Return the cluster's configuration, encoded for a daemon that takes this one's place."""
        return encode(SavedCluster(self._others, self._listen, str(self._key_file or "")), SavedCluster)

    def or_as(self, text: bytes) -> Cluster:
        """Return this cluster, or if it has no configuration, one with the configuration ``text`` that another daemon
        left.
        """
        if self._others or self._listen or not text:
            return self
        saved = decode(text, SavedCluster)
        return Cluster(self._directory, saved.others, saved.listen, Path(saved.key) if saved.key else None)

    def open(self) -> None:
        """Listen at the address for other daemons, if there is one."""
        if self._listen:
            with system_call(f"the daemon cannot listen on {self._listen}", WorkerUnavailable):
                self._listener = socket.create_server(_address(self._listen) or (), reuse_port=False)
            start_thread(self._accept, name="cluster")

    def close(self) -> None:
        self._closed = True
        if self._listener is not None:
            with suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
        for process, reaper in list(self._started.items()):
            if process.poll() is None:
                _end(process)
            reaper.join(_GRACE_SECONDS)

    def start(self, request: StartPrted) -> Done:
        """Start prted on a worker's node, or see whether that can be asked for.

        Raises
        ------
        OptionError
            If no daemon that this one knows is that worker's.
        WorkerUnavailable
            If one does not answer that may be.
        """
        if request.worker in (self._directory.worker, self._place) and request.asks:
            return Done(0)
        if request.worker in (self._directory.worker, self._place):
            with ExitStack() as undo:
                with system_call("a folder of prted's own", WorkerUnavailable):
                    folder = own_folder()
                undo.callback(folder.cleanup)
                process = start_prted(self._directory, request.arguments, folder.name)
                undo.callback(process.wait)
                undo.callback(process.terminate)
                with system_call("prted cannot be watched", WorkerUnavailable):
                    pidfd = os.pidfd_open(process.pid)
                undo.callback(os.close, pidfd)
                reaper = start_thread(self._reap, [process, pidfd, folder], name="prted")
                undo.pop_all()
            self._started[process] = reaper
            if not reaper.is_alive():       # it was quicker
                self._started.pop(process, None)
            _log.info("prted %d is started for an MPI world", process.pid)
            return Done(0)
        if not request.onward:
            raise OptionError(f"this is worker {self._directory.worker}, not {request.worker}")
        errors: list[VisparkError] = []
        for other in self._others:
            try:
                return self._ask(other, replace(request, onward=False))
            except VisparkError as error:
                errors.append(type(error)(f"{other}: {error.message}"))
        # One that does not answer now may be that worker's.
        silent = [error.message for error in errors if not isinstance(error, OptionError)]
        if silent:
            raise WorkerUnavailable(f"{'; '.join(silent)}. No daemon that answers is worker {request.worker}: start "
                                    "the one there, or name the right nodes with 'gpu-worker start --hosts'")
        raise OptionError(
            f"no daemon that this one knows is worker {request.worker}; name the nodes with 'gpu-worker start --hosts'",
            detail="\n".join(error.message for error in errors))

    def _reap(self, process: subprocess.Popen[bytes], pidfd: int, folder: tempfile.TemporaryDirectory[str]) -> None:
        """Wait in the background for a prted's end, so that it does not stay as a zombie; end it if it is stopped. Its
        folder goes with it.

        The descriptor, which is readable from the end on, is closed: ``process.wait`` with a timeout looks each 50 ms.
        """
        stops, looking = StoppedProcesses(), select.poll()
        looking.register(pidfd, select.POLLIN)
        while not looking.poll(LOOK_SECONDS * 1000):
            if stops.overdue([process.pid]):
                _log.error("prted %d has been stopped for %g s, and is ended", process.pid, STOPPED_SECONDS)
                process.kill()
        os.close(pidfd)
        _log.info("prted %d ended with status %d", process.pid, process.wait())
        folder.cleanup()
        self._started.pop(process, None)

    def _ask(self, other: str, request: StartPrted) -> Done:
        address = _address(other)
        if address is None and not Path(other).exists():
            raise OptionError("there is no such runtime directory")
        if address is None:
            return administer(request, runtime_dir=other, timeout=_SECONDS)
        try:
            with socket.create_connection(address, _SECONDS) as sock:
                connection = Connection(sock)
                challenge, _ = connection.receive(PeerChallenge, cap=_CAP)
                own = secrets.token_bytes(_NONCE_BYTES)
                connection.send(self._signed(b"asks", encode(request, StartPrted), challenge.nonce, own), Signed)
                reply, _ = connection.receive(Signed, cap=_CAP)
        except socket.gaierror as error:
            if error.errno == socket.EAI_NONAME:
                raise OptionError(f"no host is called so: {error}") from error
            raise WorkerLost(f"the name of the host is not resolved: {error}") from error
        except VisparkError:
            raise
        except OSError as error:
            if is_refusal(error):
                raise refused(error, f"a connection to the daemon at {other}") from error
            raise WorkerLost(f"the daemon at {other} does not answer: {error}") from error
        answer = decode(self._checked(b"answers", reply, own), AdminReply)
        if isinstance(answer, Failure):
            raise error_of(answer)
        return answer

    # -- the side that is asked ---------------------------------------------------------------------------------------

    def _accept(self) -> None:
        while not self._closed:
            try:
                with ExitStack() as undo:
                    assert self._listener is not None
                    sock = undo.enter_context(self._listener.accept()[0])
                    sock.settimeout(_SECONDS)
                    start_thread(self._serve, [sock], name="cluster")
                    undo.pop_all()
            except Exception:
                if not self._closed:
                    _log.exception("a daemon is not heard")
                    time.sleep(_AFTER_DEFECT_SECONDS)

    def _serve(self, sock: socket.socket) -> None:
        try:
            with Connection(sock) as connection:
                self._converse(connection)
        except WorkerLost as error:
            _log.debug("a daemon is gone: %s", error)
        except VisparkError as error:
            _log.warning("a daemon is refused: %s", error)
        except Exception:
            _log.exception("a daemon's connection met a defect")

    def _converse(self, connection: Connection) -> None:
        nonce = secrets.token_bytes(_NONCE_BYTES)
        connection.send(PeerChallenge(nonce), PeerChallenge)
        signed, _ = connection.receive(Signed, cap=_CAP)
        request = decode(self._checked(b"asks", signed, nonce), StartPrted)
        answer = self._answer(request)
        connection.send(self._signed(b"answers", encode(answer, AdminReply), signed.nonce, b""), Signed)

    def _answer(self, request: StartPrted) -> Done | Failure:
        try:
            return self.start(replace(request, onward=False))
        except VisparkError as error:
            return failure_of(error)
        except Exception as error:
            _log.exception("a daemon's request met a defect")
            return failure_of(as_error(error))

    def _signed(self, role: bytes, body: bytes, challenge: bytes, nonce: bytes) -> Signed:
        return Signed(nonce, body, self._proof(role, body, challenge, nonce))

    def _checked(self, role: bytes, signed: Signed, challenge: bytes) -> bytes:
        if not hmac.compare_digest(signed.proof, self._proof(role, signed.body, challenge, signed.nonce)):
            raise Unauthorized("the other daemon does not have the cluster's key")
        return signed.body

    def _proof(self, role: bytes, body: bytes, challenge: bytes, nonce: bytes) -> bytes:
        parts = (role, challenge, nonce, body)
        message = b"".join(len(part).to_bytes(8, "big") + part for part in parts)
        return hmac.digest(self._key, message, "sha256")


def _address(where: str) -> tuple[str, int] | None:
    """Return host and port; nothing for a directory."""
    if "/" in where:
        return None
    host, _, port = where.rpartition(":")
    if not host or not port.isdecimal():
        raise OptionError(f"{where!r} is no host with a port, and no runtime directory")
    return host, int(port)


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            status, key = os.fstat(file.fileno()), file.read().strip()
    except OSError as error:
        raise OptionError(f"the cluster's key cannot be read: {error}") from error
    if status.st_uid != os.geteuid() or status.st_mode & 0o077:
        raise Unauthorized(f"{path} has mode {status.st_mode & 0o777:04o} and belongs to user {status.st_uid}; the "
                           f"cluster's key must be yours alone, 0600")
    if len(key) < _LEAST_KEY:
        raise OptionError(f"the cluster's key in {path} has {len(key)} bytes; it must have {_LEAST_KEY} or more")
    return key


def _end(process: subprocess.Popen[bytes]) -> None:
    """Terminate a prted; kill it where it does not end in time, as a stopped one."""
    process.terminate()
    try:
        process.wait(_GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
