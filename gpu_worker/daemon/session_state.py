"""State machine of a node's sessions: which exist, who may use them, and when they end.

Pure decisions: every method of :class:`SessionStateMachine` is an event, what it returns are instructions to the
daemon, and the only outside thing is the clock, which is injected. Nothing here knows of sockets, threads or processes.

The lease. While a driver's lease connection is open, its session lives; when the last one closes, the session ends
``options.lease`` seconds later unless the driver leases it again. A session whose driver never leased it here (it
cannot reach this node, or the daemon was replaced) lives while a process of one of its clients lives, and then
``options.lease`` seconds more.

Epochs number a session's device processes, upwards. A session starts above all numbers that were in use before, also
with an earlier daemon, so that what was meant for a process that is gone is never taken for its successor's.
"""

from __future__ import annotations

import hmac
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from gpu_worker.protocol.control import Registration, TcpEndpoint
from gpu_worker.protocol.errors import ProtocolError, Unauthorized, WorkerUnavailable
from gpu_worker.protocol.messages import VERSION, Death, Hello, SessionOptions
from gpu_worker.protocol.versions import other_version
from gpu_worker.system.log import checked_level
from gpu_worker.system.paths import checked_session

#: Roles of a greeting: those that are handed on to the session's device process, and those that the daemon answers.
CLIENT_ROLES = ("driver", "executor")
ADMIN_ROLES = ("lease", "finish", "admin")
ROLES = CLIENT_ROLES + ADMIN_ROLES

#: The longest name of a host.
MAX_HOST = 253
#: Most GPUs of an executor, and most characters of an address of one.
MAX_GPUS, MAX_ADDRESS = 1024, 128

_DEATHS_KEPT = 16
_UNKNOWN_DEATH = Death(False, 0, None)


# -- instructions -----------------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class Start:
    """Instruction to start a device process of this epoch."""

    session: str
    epoch: int


@dataclass(frozen=True)
class Watch:
    """Instruction to report when this process ends."""

    session: str
    pid: int


@dataclass(frozen=True)
class End:
    """Instruction to end the session's process, if it has one, and to remove the session's files."""

    session: str


Instruction = Start | Watch | End


# -- state ------------------------------------------------------------------------------------------------------------

@dataclass
class SessionState:
    """State of one application's session. ``leased`` says that its driver has held a lease, ``lapsed`` since when none
    is held; ``gpus`` are the addresses of the devices that Spark assigned to an executor, by its process. ``ended``
    counts its processes that ended, ``faults`` those that a kernel ended.
    """

    name: str
    application: str
    options: SessionOptions
    secret: bytes = field(repr=False)
    epoch: int
    running: bool = False
    leases: int = 0
    leased: bool = False
    client_pids: set[int] = field(default_factory=set)
    gpus: dict[int, tuple[str, ...]] = field(default_factory=dict)
    lapsed: float | None = None
    deaths: dict[int, Death] = field(default_factory=dict)
    endpoint: TcpEndpoint | None = None
    ended: int = 0
    faults: int = 0

    @property
    def assigned(self) -> tuple[str, ...]:
        """The addresses of the devices that Spark assigned to the executors that live."""
        return tuple(sorted({address for addresses in self.gpus.values() for address in addresses}))

    @property
    def renewed(self) -> bool:
        return self.leases > 0 if self.leased else bool(self.client_pids)


class SessionStateMachine:
    """State machine of the daemon's sessions.

    Parameters
    ----------
    clock : callable
        Monotonic time in seconds.
    last_epoch : int
        A number that no epoch of an earlier daemon has exceeded.
    """

    def __init__(self, clock: Callable[[], float], last_epoch: int = 0):
        self._clock = clock
        self._last_epoch = last_epoch
        self._sessions: dict[str, SessionState] = {}
        self._empty_since: float | None = clock()

    def __iter__(self) -> Iterator[SessionState]:
        return iter(list(self._sessions.values()))

    def get(self, name: str) -> SessionState | None:
        return self._sessions.get(name)

    # -- events -------------------------------------------------------------------------------------------------------

    def greet(self, hello: Hello) -> list[Instruction]:
        """Admit a greeting client; a session's first greeting creates the session.

        Raises
        ------
        ProtocolError
            If the greeting is of another version or not well-formed.
        Unauthorized
            If the session has another secret.
        """
        check(hello)
        if hello.role == "admin":
            return []
        session = self._authenticated(hello)
        if hello.role == "lease":
            session.leases += 1
            session.leased = True
            self._renew(session)
            return []
        if hello.client_pid and hello.gpus:
            session.gpus[hello.client_pid] = tuple(sorted({*session.gpus.get(hello.client_pid, ()), *hello.gpus}))
        # Whoever greets is then handed on to the session's process.
        return [*self._watched(session, [hello.client_pid]), *self._started(session)]

    def admit_remote(self, name: str) -> list[Instruction]:
        """Hand a TCP peer that names a session on to the session's process, which asks for the secret.

        Raises
        ------
        WorkerUnavailable
            If there is no such session, or it is not to be reached so.
        """
        session = self._sessions.get(name)
        if session is None or session.endpoint is None:
            raise WorkerUnavailable("no session of this name is reached here")
        return self._started(session)

    def opened(self, name: str, endpoint: TcpEndpoint) -> None:
        """Record that a session can be reached over TCP, at ``endpoint``."""
        if name in self._sessions:
            self._sessions[name].endpoint = endpoint

    def finish(self, hello: Hello) -> list[Instruction]:
        """End the session of a driver whose application is over. Raises as :meth:`greet` does."""
        check(hello)
        return [self._remove(self._authenticated(hello).name)] if hello.session in self._sessions else []

    def lease_closed(self, name: str) -> None:
        """Record that a driver's lease connection closed, and renew the session's expiry."""
        if name in self._sessions:
            session = self._sessions[name]
            session.leases = max(session.leases - 1, 0)
            self._renew(session)

    def client_process_ended(self, name: str, pid: int) -> None:
        """Record that the process of a session's client ended, and renew the session's expiry."""
        if name in self._sessions:
            self._sessions[name].client_pids.discard(pid)
            self._sessions[name].gpus.pop(pid, None)
            self._renew(self._sessions[name])

    def process_ended(self, name: str, epoch: int, death: Death) -> None:
        """Record that a device process ended, or that it could not be started."""
        session = self._sessions.get(name)
        if session is not None and session.epoch >= epoch:
            session.deaths[epoch] = death
            session.ended += 1
            session.faults += death.failure is not None
            for old in sorted(session.deaths)[:-_DEATHS_KEPT]:
                del session.deaths[old]
            session.running = session.running and session.epoch != epoch

    def adopt(self, process: Registration) -> list[Instruction]:
        """Take over a process that an earlier daemon started and that is still there."""
        self._last_epoch = max(self._last_epoch, process.epoch)
        session = self._add(SessionState(process.session, process.application, process.options, process.secret,
                                         process.epoch, True, endpoint=process.endpoint))
        return self._watched(session, process.client_pids)

    def expire(self) -> list[Instruction]:
        """End the sessions whose lease has run out by now."""
        now = self._clock()
        ended = [session.name for session in self if self._expiry(session) <= now]
        return [self._remove(name) for name in ended]

    def stop(self) -> list[Instruction]:
        """End all sessions, as the daemon stops."""
        return [self._remove(session.name) for session in self]

    # -- questions ----------------------------------------------------------------------------------------------------

    def next_expiry(self) -> float | None:
        """Return the time on the injected clock at which :meth:`expire` is due; None if no session expires."""
        expiry = min(map(self._expiry, self), default=math.inf)
        return None if expiry == math.inf else expiry

    def empty_since(self) -> float | None:
        """Return the time since which there has been no session; None where there is one."""
        return self._empty_since

    def exit_status(self, name: str, epoch: int) -> Death:
        """Return the death of a session's process of an epoch, or that the process is alive."""
        session = self._sessions.get(name)
        if session is None:
            return _UNKNOWN_DEATH
        if session.running and session.epoch == epoch:
            return Death(True, 0, None)
        return session.deaths.get(epoch, _UNKNOWN_DEATH)

    def lease_text(self, session: SessionState) -> str:
        """Return the reason why a session is kept, as the status shows it: "driver", "executors" or the seconds left.
        """
        if session.lapsed is not None:
            return f"ends in {max(self._expiry(session) - self._clock(), 0):.0f} s"
        return "driver" if session.leased else "executors"

    def validate(self) -> None:
        """Assert the invariants of the sessions."""
        assert (self._empty_since is None) == bool(self._sessions)
        for name, session in self._sessions.items():
            assert name == session.name
            assert session.epoch <= self._last_epoch
            assert session.leases >= 0 and (session.leased or not session.leases)
            assert (session.lapsed is None) == session.renewed
            assert session.gpus.keys() <= session.client_pids
            assert len(session.deaths) <= _DEATHS_KEPT and max(session.deaths, default=0) <= session.epoch

    # -- helpers ------------------------------------------------------------------------------------------------------

    def knows(self, name: str, secret: bytes) -> bool:
        """Return whether there is a session of this name, and it has this secret."""
        session = self._sessions.get(name)
        return session is not None and hmac.compare_digest(session.secret, secret)

    def lives(self, name: str) -> bool | None:
        """Return whether a session is kept by its driver or executors; None if there is none of this name."""
        session = self._sessions.get(name)
        return None if session is None else session.lapsed is None

    def _authenticated(self, hello: Hello) -> SessionState:
        session = self._sessions.get(hello.session)
        if session is None:
            return self._add(SessionState(hello.session, hello.application, hello.options, hello.secret,
                                          self._last_epoch))
        if not hmac.compare_digest(session.secret, hello.secret):
            raise Unauthorized(f"session {hello.session} has another secret")
        return session

    def _add(self, session: SessionState) -> SessionState:
        self._sessions[session.name] = session
        self._empty_since = None
        self._renew(session)
        return session

    def _remove(self, name: str) -> End:
        del self._sessions[name]
        if not self._sessions:
            self._empty_since = self._clock()
        return End(name)

    def _watched(self, session: SessionState, pids: Iterable[int]) -> list[Instruction]:
        new = sorted({pid for pid in pids if pid} - session.client_pids)
        session.client_pids.update(new)
        # A greeting counts as a sign of life even where nothing else renews the lease.
        if not session.leased:
            session.lapsed = None
        self._renew(session)
        return [Watch(session.name, pid) for pid in new]

    def _started(self, session: SessionState) -> list[Instruction]:
        """Count a new epoch and return the instruction to start a session's process; empty if a process runs."""
        if session.running:
            return []
        session.epoch += 1
        session.running = True
        self._last_epoch = max(self._last_epoch, session.epoch)
        return [Start(session.name, session.epoch)]

    def _renew(self, session: SessionState) -> None:
        if session.renewed:
            session.lapsed = None
        elif session.lapsed is None:
            session.lapsed = self._clock()

    def _expiry(self, session: SessionState) -> float:
        return math.inf if session.lapsed is None else session.lapsed + session.options.lease


def check(hello: Hello) -> None:
    """Check a greeting's version and fields.

    Raises
    ------
    ProtocolError
        If the client's version is not ours or a field is not in its range.
    OptionError
        If there is no such log level.
    """
    if hello.version != VERSION:
        raise other_version(hello.version)
    if hello.role not in ROLES:
        raise ProtocolError(f"a role is one of {', '.join(ROLES)}, not {hello.role[:80]!r}")
    if hello.role == "admin":
        return
    checked_session(hello.session)
    if not 16 <= len(hello.secret) <= 64:
        raise ProtocolError(f"a session's secret has 16 to 64 bytes, not {len(hello.secret)}")
    if not 0 <= hello.client_pid < 1 << 31:
        raise ProtocolError(f"a client's process is a number or 0, not {hello.client_pid}")
    if len(hello.reach) > MAX_HOST:
        raise ProtocolError(f"a node's address has at most {MAX_HOST} characters, not {len(hello.reach)}")
    if len(hello.gpus) > MAX_GPUS or not all(0 < len(address) <= MAX_ADDRESS for address in hello.gpus):
        raise ProtocolError(f"an executor has at most {MAX_GPUS} GPUs, of addresses of 1 to {MAX_ADDRESS} characters")
    if not 0 < hello.options.lease < math.inf:
        raise ProtocolError(f"a lease is a positive number of seconds, not {hello.options.lease}")
    if hello.options.memory < 0:
        raise ProtocolError(f"a session's memory is a number of bytes or 0, not {hello.options.memory}")
    checked_level(hello.options.log_level)
