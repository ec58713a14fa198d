"""Paths of a worker's sockets and files: one private directory per user.

The rule, in order: what the caller names, ``$VISPARK_RUNTIME_DIR``, ``$XDG_RUNTIME_DIR/vispark``,
``/run/user/UID/vispark`` where ``/run/user/UID`` exists, and ``vispark-UID`` in the system's temporary place. Whoever
may enter the directory may run code as its owner, so it is used only if it belongs to us and nobody else may enter.
"""

from __future__ import annotations

import hashlib
import os
import re
import socket
import stat
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import platformdirs

from gpu_worker.protocol.errors import ProtocolError, Unauthorized, WorkerUnavailable

VARIABLE = "VISPARK_RUNTIME_DIR"

#: The script with which Spark finds this machine's GPUs.
DISCOVERY_SCRIPT = Path(__file__).with_name("gpus.sh")

#: Longest path of a Unix socket on Linux, in bytes.
MAX_SOCKET_PATH = 107

_SESSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def locate(explicit: str | os.PathLike[str] | None = None) -> RuntimeDirectory:
    """Return the runtime directory by the rule above, not made or checked yet."""
    if explicit:
        return RuntimeDirectory(Path(explicit).absolute())
    if os.environ.get(VARIABLE):
        return RuntimeDirectory(Path(os.environ[VARIABLE]).absolute())
    if os.environ.get("XDG_RUNTIME_DIR"):
        return RuntimeDirectory(Path(os.environ["XDG_RUNTIME_DIR"]).absolute() / "vispark")
    system = Path(f"/run/user/{os.geteuid()}")
    if system.is_dir():
        return RuntimeDirectory(system / "vispark")
    return RuntimeDirectory(Path(tempfile.gettempdir()) / f"vispark-{os.geteuid()}")


def kernel_cache() -> Path:
    """Return the directory of the user's compiled kernels where no option names one, not made or checked yet."""
    return Path(platformdirs.user_cache_dir("vispark")) / "kernels"


@cache
def machine() -> str:
    """Return a name for what this process sees as its machine: its present boot, and the mount namespace of the
    process.

    In another one, as of another container on the same host, the same path leads to other files, and so to another
    daemon.
    """
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    try:
        return f"{boot}.{os.readlink('/proc/self/ns/mnt').strip('mnt:[]')}"
    except OSError:
        return boot     # a system without such namespaces


@dataclass(frozen=True)
class RuntimeDirectory:
    """The names of a worker's files."""

    path: Path

    @property
    def socket(self) -> Path:
        """The daemon's socket."""
        return _short_enough(self.path / "daemon.sock")

    @property
    def lock(self) -> Path:
        return self.path / "daemon.lock"

    @property
    def log(self) -> Path:
        """The daemon's log."""
        return self.path / "daemon.log"

    @property
    def process_log(self) -> Path:
        """What device processes print and log."""
        return self.path / "process.log"

    @property
    def sessions(self) -> Path:
        return self.path / "sessions"

    def session_socket(self, session: str) -> Path:
        """Return the socket on which a session's device process takes connections from the daemon."""
        return _short_enough(self.sessions / f"{checked_session(session)}.sock")

    def session_crash_record(self, session: str) -> Path:
        """Return a session's crash record."""
        return self.sessions / f"{checked_session(session)}.box"

    def found_sessions(self) -> list[str]:
        """Return the sessions of which there are files."""
        names = {path.stem for path in self.sessions.iterdir() if path.suffix in (".sock", ".box")}
        return sorted(filter(_SESSION.fullmatch, names))

    @property
    def worker(self) -> str:
        """The worker's name: the same after a restart, another one for another node or directory."""
        status = self.path.stat()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text()
        digest = hashlib.sha256(f"{boot} {self.path} {status.st_dev} {status.st_ino}".encode()).hexdigest()
        return f"{socket.gethostname()}-{digest[:8]}"

    def ensure(self) -> RuntimeDirectory:
        """Make the directory where it is missing, and check it.

        Raises
        ------
        WorkerUnavailable
            If it cannot be made, or its sockets' paths would be too long.
        Unauthorized
            If it is not ours alone.
        """
        _short_enough(self.path / "daemon.sock")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise WorkerUnavailable(f"the runtime directory {self.path} cannot be made: {error.strerror}; "
                                    f"set {VARIABLE} to a directory that can") from error
        self.check()
        return self

    def check(self) -> None:
        """Check that the directory is ours alone.

        Raises
        ------
        Unauthorized
            If it is a link, no directory, another user's, or open to others.
        """
        try:
            status = self.path.lstat()
        except PermissionError as error:
            raise Unauthorized(f"the runtime directory {self.path} is not open to user {os.geteuid()}") from error
        except OSError as error:
            raise WorkerUnavailable(f"the runtime directory {self.path} cannot be looked at: {error}") from error
        if not stat.S_ISDIR(status.st_mode):
            raise Unauthorized(f"the runtime directory {self.path} is a link or a file, not a directory")
        if status.st_uid != os.geteuid():
            raise Unauthorized(f"the runtime directory {self.path} belongs to user {status.st_uid}, not to user "
                               f"{os.geteuid()}: set VISPARK_RUNTIME_DIR to one of this user's own, or leave it out")
        if status.st_mode & 0o077:
            raise Unauthorized(f"the runtime directory {self.path} has mode {stat.S_IMODE(status.st_mode):04o}; "
                               "it must be 0700")


def checked_session(session: str) -> str:
    """Return ``session``, if it may name files.

    Raises
    ------
    ProtocolError
        If it may not.
    """
    if not _SESSION.fullmatch(session):
        raise ProtocolError(f"a session is named by 1 to 64 letters, digits, dots, hyphens and underscores, "
                            f"not {session[:80]!r}")
    return session


def _short_enough(path: Path) -> Path:
    if len(os.fsencode(path)) > MAX_SOCKET_PATH:
        raise WorkerUnavailable(f"the socket path {path} has {len(os.fsencode(path))} bytes, and the system takes "
                                f"{MAX_SOCKET_PATH}; set {VARIABLE} to a shorter directory")
    return path
