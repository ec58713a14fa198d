"""Identity of the peer of a Unix socket, and liveness of processes."""

from __future__ import annotations

import os
import select
import socket
import struct
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from gpu_worker.protocol.errors import Unauthorized

_CREDENTIALS = struct.Struct("=iII")


#: The user whose service manager may listen for a daemon that is not there yet.
ROOT = 0


def check_peer(sock: socket.socket, who: str, others: Collection[int] = ()) -> None:
    """Check that the peer of ``sock`` is of our own user, or of one of the ``others``.

    Raises
    ------
    Unauthorized
        If it is another user's; ``who`` says in the message what the peer is.
    """
    _, user, _ = _CREDENTIALS.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    if user not in (os.geteuid(), *others):
        raise Unauthorized(f"{who} belongs to user {user}, not to user {os.geteuid()}")


def peer_process(sock: socket.socket) -> int:
    """Return the process at the other end, or that listened there; 0 where it is not to be seen from here."""
    return _CREDENTIALS.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))[0]


def holds_open(pid: int, path: Path) -> bool:
    """Return whether a process of our user has a file open."""
    try:
        status, opened = path.stat(), list(Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return False
    for descriptor in opened:
        with suppress(OSError):     # closed meanwhile
            if os.path.samestat(descriptor.stat(), status):
                return True
    return False


def has_ended(pidfd: int, seconds: float = 0.0) -> bool:
    """Return whether a process has ended, or does so within ``seconds``."""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(seconds * 1000))
