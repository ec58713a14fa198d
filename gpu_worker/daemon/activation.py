"""Protocol of a service manager: the socket that it passes to the daemon, and the states that the daemon tells it.

Both are those of systemd (``sd_listen_fds(3)``, ``sd_notify(3)``), without its library: three variables and a datagram.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import MutableMapping
from contextlib import suppress
from pathlib import Path

from gpu_worker.protocol.errors import WorkerUnavailable

_log = logging.getLogger(__name__)

_FIRST_DESCRIPTOR = 3
_LISTEN = ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES")


def passed_listener(path: Path, environment: MutableMapping[str, str] | None = None) -> socket.socket | None:
    """Return the listening socket that a service manager passes to this process; ``None`` if it passes none.

    The variables that tell of it are taken out of the environment, so that no process which the daemon starts takes a
    descriptor of its own for that socket.

    Parameters
    ----------
    path : Path
        Where clients look for the daemon's socket.
    environment : mutable mapping of str to str, optional
        The process's own environment by default.

    Returns
    -------
    socket.socket or None
        Closed in processes that are started. The manager owns its path, which outlives the daemon.

    Raises
    ------
    WorkerUnavailable
        If there are several sockets, or it is no Unix stream socket that listens at ``path``.

    Examples
    --------
    >>> passed_listener(Path("/run/user/1000/vispark/daemon.sock"), {}) is None
    True
    """
    environment = os.environ if environment is None else environment
    process, count, _ = (environment.pop(name, "") for name in _LISTEN)
    if process != str(os.getpid()) or count in ("", "0"):
        return None
    if count != "1":
        raise WorkerUnavailable(f"the service manager passes {count} sockets (LISTEN_FDS); the daemon takes one, with "
                                f"ListenStream={path}")
    os.set_inheritable(_FIRST_DESCRIPTOR, False)
    try:
        listener = socket.socket(fileno=_FIRST_DESCRIPTOR)
        listens = listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    except OSError as error:
        raise WorkerUnavailable(f"descriptor {_FIRST_DESCRIPTOR}, which LISTEN_FDS tells of, is no socket: "
                                f"{error.strerror}") from error
    at = listener.getsockname() if listener.family == socket.AF_UNIX else "a socket of another family"
    if listener.type != socket.SOCK_STREAM or not listens or at != str(path):
        kind = "listens" if listens else "does not listen"
        listener.close()
        raise WorkerUnavailable(f"the service manager passes a socket that {kind} at {at!r}; clients of this runtime "
                                f"directory look for ListenStream={path}, with Accept=no")
    return listener


def notify(state: str, environment: MutableMapping[str, str] | None = None) -> bool:
    """Send a state of this process to the service manager; return whether there is one that took it.

    Parameters
    ----------
    state : str
        Lines such as ``READY=1``, ``STATUS=...`` and ``STOPPING=1``.
    environment : mutable mapping of str to str, optional
        The process's own environment by default; ``NOTIFY_SOCKET`` is the manager's address in it.

    Examples
    --------
    >>> notify("READY=1", {})
    False
    """
    address = (os.environ if environment is None else environment).get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return False
    # An abstract name is written with an @ for the zero byte.
    address = "\0" + address[1:] if address.startswith("@") else address
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
        sock.sendto(state.encode(), address)
        return True
    _log.warning("the service manager at NOTIFY_SOCKET=%s does not take %s", address, state)
    return False
