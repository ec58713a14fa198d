"""Watch over the daemon by those that need it: one that is stopped (SIGSTOP) answers nobody, and no other ends it."""

from __future__ import annotations

import logging
import os
import signal
import socket
import time
from contextlib import suppress
from pathlib import Path

from gpu_worker.protocol.errors import WorkerLost
from gpu_worker.protocol.wire import Connection
from gpu_worker.system.peer import holds_open, peer_process
from gpu_worker.system.stopped_processes import LOOK_SECONDS, STOPPED_SECONDS, StoppedProcesses, is_stopped

_log = logging.getLogger(__name__)


class DaemonWatch:
    """Watch over the daemon at the other end of a Unix socket, for one thread.

    One that has been stopped for long is ended: whoever needs a daemon then starts another one, which adopts the
    processes of the sessions. One that is busy, or that a debugger holds, is left alone.

    Parameters
    ----------
    sock : socket.socket
        Connected to it, or by it.
    lock : Path
        The file that a daemon holds open: what does not is no daemon.
    """

    def __init__(self, sock: socket.socket, lock: Path):
        #: 0 where the process is not to be seen from here, as in another container.
        self.pid = peer_process(sock)
        self._lock = lock
        self._stops = StoppedProcesses()

    def look(self) -> bool:
        """End the daemon if it has been stopped for too long; return whether that was so. To be called every
        ``LOOK_SECONDS``.
        """
        if not self.pid or not self._stops.overdue([self.pid]):
            return False
        with suppress(OSError):     # ended meanwhile, or not ours
            pidfd = os.pidfd_open(self.pid)
            try:
                if not (is_stopped(self.pid) and holds_open(self.pid, self._lock)):
                    return False
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            finally:
                os.close(pidfd)
            _log.error("the daemon, process %d, has been stopped for %g s, and is ended", self.pid, STOPPED_SECONDS)
            return True
        return False


class DaemonConnection(Connection):
    """Connection to the daemon of this node, who is watched while its first answer is waited for.

    Parameters
    ----------
    sock : socket.socket
        Connected to it, with a timeout.
    lock : Path
        The daemon's lock.
    """

    def __init__(self, sock: socket.socket, lock: Path):
        super().__init__(sock)
        self._watch = DaemonWatch(sock, lock)

    def await_answer(self) -> None:
        """Wait until there is an answer, at most for the socket's timeout.

        Raises
        ------
        WorkerLost
            If the daemon was stopped for long, and is ended.
        """
        seconds = self.socket.gettimeout()
        until = time.monotonic() + (seconds or 0.0)
        while seconds and not self.wait(min(max(until - time.monotonic(), 0.0), LOOK_SECONDS)):
            if self._watch.look():
                raise WorkerLost(f"the daemon, process {self._watch.pid}, had been stopped (SIGSTOP) for "
                                 f"{STOPPED_SECONDS:g} s, and was ended")
            if time.monotonic() >= until:
                return
