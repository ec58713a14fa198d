"""Boundary to the operating system: its refusals become errors of ours here, each with advice."""

from __future__ import annotations

import errno
import functools
import os
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from gpu_worker.protocol.errors import OutOfMemory, OutOfResources, VisparkError

_MEMORY = "end other programs or use a machine, or a container's limit, with more memory"
_SHARED = "give shared memory (/dev/shm, the container's memory) or the disk more room"
#: How long a thread may take until it runs, in seconds; and how often it is looked whether it has ended before.
_START_SECONDS, _LOOK_SECONDS = 20.0, 0.1
#: What Python says where it cannot start a thread.
_NO_THREAD = "can't start new thread"
_THREADS = "raise the limit of processes (ulimit -u) or the container's pids limit"

#: The error numbers by which a system says that there is no more of something: the error, and what would help.
_REFUSALS: dict[int, tuple[type[VisparkError], str]] = {
    errno.ENOMEM: (OutOfMemory, _MEMORY),
    errno.ENOBUFS: (OutOfMemory, _MEMORY),
    errno.ENOSPC: (OutOfMemory, _SHARED),
    errno.EDQUOT: (OutOfMemory, _SHARED),
    errno.EMFILE: (OutOfResources, "raise the limit of open files of this process (ulimit -n)"),
    errno.ENFILE: (OutOfResources, "raise the machine's limit of open files (fs.file-max)"),
    errno.ETOOMANYREFS: (OutOfResources, "raise the limit of open files of this process (ulimit -n)"),
    errno.EAGAIN: (OutOfResources, _THREADS),
}


def is_refusal(error: OSError) -> bool:
    """Return whether a call failed because the system has no more of something, rather than because of a peer.

    A timeout, and a call that would block, are none, though they may have the number of one.
    """
    return error.errno in _REFUSALS and error.errno != errno.EAGAIN


def refused(error: OSError | RuntimeError | MemoryError, request: str) -> VisparkError:
    """Return the error of ours for a call that the system refused.

    Parameters
    ----------
    error : OSError, RuntimeError or MemoryError
        What Python raised; a RuntimeError is that of a thread that cannot be started.
    asked : str
        What was asked for, in a user's words.

    Returns
    -------
    VisparkError
        OutOfMemory or OutOfResources, with the name of the error number and what would help.

    Examples
    --------
    >>> refused(OSError(errno.EMFILE, "Too many open files"), "a memfd of 8 bytes")
    ... # doctest: +NORMALIZE_WHITESPACE +ELLIPSIS
    OutOfResources('a memfd of 8 bytes: the system refused it with EMFILE (Too many open files); raise the limit of
    open files of this process (ulimit -n)', ...)
    """
    if isinstance(error, OSError):
        number = error.errno or 0
        name = f"{errno.errorcode.get(number, 'no error number')} ({error.strerror or error})"
        kind, remedy = _REFUSALS.get(number, (OutOfResources, ""))
    elif isinstance(error, MemoryError):
        name, (kind, remedy) = "ENOMEM", _REFUSALS[errno.ENOMEM]
    else:
        name, (kind, remedy) = str(error), _REFUSALS[errno.EAGAIN]
    return kind(f"{request}: the system refused it with {name}" + (f"; {remedy}" if remedy else ""))


@contextmanager
def system_call(request: str, otherwise: type[VisparkError] = OutOfResources) -> Iterator[None]:
    """Raise an OSError that comes from within as :func:`refused` says.

    Parameters
    ----------
    asked : str
        What is asked for, in a user's words.
    otherwise : type
        The error where the call fails for another reason than that there is no more of something.

    Examples
    --------
    >>> with system_call("a log", VisparkError):
    ...     os.open("/no/such/file", os.O_RDONLY)
    Traceback (most recent call last):
    gpu_worker.protocol.errors.VisparkError: a log: [Errno 2] No such file or directory: '/no/such/file'
    """
    try:
        yield
    except VisparkError:        # some of which are OSErrors
        raise
    except OSError as error:
        if otherwise is OutOfResources or error.errno in _REFUSALS:
            raise refused(error, request) from error
        raise otherwise(f"{request}: {error}") from error


class _Started(threading.Event):
    """Event that a thread has started; waiting for it ends with the thread, and is bounded.

    Attributes
    ----------
    main : weakref
        What the thread calls, of which it has the only reference: a thread that the system has no memory for ends
        before any code of Python runs in it, and nothing but the end of this reference tells.
    """

    main: weakref.ref[Callable[[], None]]

    def wait(self, timeout: float | None = None) -> bool:
        """Wait at most as long as a thread may take to start."""
        if timeout is not None:
            return super().wait(timeout)
        end = time.monotonic() + _START_SECONDS
        while not super().wait(_LOOK_SECONDS) and self.main() is not None and time.monotonic() < end:
            pass
        return self.is_set()


class Thread(threading.Thread):
    """Daemon thread whose start raises an error, and does not wait for ever, if the system has no memory for the
    thread.
    """

    def __init__(self, target: Callable[..., None], args: Sequence[object] = (), *, name: str):
        super().__init__(target=target, args=args, name=name, daemon=True)
        self._started = _Started()

    @property
    def _bootstrap(self) -> Callable[[], None]:
        """What the new thread calls, in place of the method of this name."""
        main = functools.partial(threading.Thread._bootstrap, self)     # type: ignore[attr-defined]
        self._started.main = weakref.ref(main)
        return main

    def start(self) -> None:
        """Start the thread.

        Raises
        ------
        OutOfMemory, OutOfResources
            If the system has no thread, or no memory, for it.
        """
        try:
            super().start()
        except (RuntimeError, OSError, MemoryError) as error:
            raise refused(error, f"a thread ({self.name})") from error
        if not self._started.is_set():
            raise refused(MemoryError(), f"a thread ({self.name})")


def start_thread(target: Callable[..., None], args: Sequence[object] = (), *, name: str) -> threading.Thread:
    """Start a daemon thread. Raises as :meth:`Thread.start`."""
    thread = Thread(target, args, name=name)
    thread.start()
    return thread


def as_error(error: Exception) -> VisparkError:
    """Return the error to send to a peer: itself, a refusal of the system, or a defect with its trace."""
    if isinstance(error, VisparkError):
        return error
    lines = "".join(traceback.format_exception(error))
    if isinstance(error, OSError | RuntimeError | MemoryError) and is_out(error):
        known_error = refused(error, "something that the worker needed")
        return type(known_error)(known_error.message, detail=lines)
    if isinstance(error, OSError):
        return VisparkError(f"a call of the system failed in the worker: {error}", detail=lines)
    return VisparkError(f"the worker met a defect of its own: {type(error).__name__}: {error}", detail=lines)


def is_out(error: Exception) -> bool:
    """Return whether an error says that the system, or Python, has no more of something: memory, threads, files."""
    if isinstance(error, OSError):
        return is_refusal(error)
    return isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and _NO_THREAD in str(error))


def new_memfd(name: str) -> int:
    """Return a new memfd, which may be sealed.

    Raises
    ------
    OutOfMemory, OutOfResources
        If the system has none.
    """
    with system_call("a piece of shared memory"):
        return os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
