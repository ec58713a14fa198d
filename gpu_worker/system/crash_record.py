"""Crash record of a device process: which kernels its threads were running when it died.

A file of a session, mapped by its device process: a header, in which kernels on the host report an index that ended
them, slots of 1 KiB, and a verdict. A thread that runs a kernel holds a slot, which says where it is and for which
request; the slot outlives the process, however it ends, and the daemon reads it then.

A slot starts with two 32-bit integers, its state and a signal's number, at :func:`current_slot`; a signal handler
written in C sets them to :data:`CULPRIT` and the signal before it lets the process die.
"""

from __future__ import annotations

import ctypes
import functools
import logging
import mmap
import os
import queue
import signal
import struct
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from gpu_worker.protocol.codec import decode, encode
from gpu_worker.protocol.errors import DeadlineExceeded, KernelFault, Place, ProtocolError
from gpu_worker.protocol.messages import Failure
from gpu_worker.protocol.system import start_thread
from gpu_worker.protocol.wire import failure_of
from gpu_worker.system.abandoned_kernels import Watched, kernels_in_the_way
from gpu_worker.system.fault_report import REPORT, reported

_log = logging.getLogger(__name__)

SLOT_BYTES = 1024
SLOTS = 256
VERDICT_BYTES = 128 << 10

#: States of a slot.
FREE, RUNNING, CULPRIT, LATE, WATCHED, ABANDONED = range(6)

_MAGIC = b"vispark2"
_HEADER = struct.Struct("=8sq")
#: Where kernels on the host report an index that ends them, in the header's part of the file.
_REPORT = 64
_SLOT = struct.Struct("=iiddiQ")
_STATE = struct.Struct("=ii")
_LENGTH = struct.Struct("=i")
_VERDICT = SLOT_BYTES * (1 + SLOTS)
_SIZE = _VERDICT + VERDICT_BYTES
_FAULTS = (signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT, signal.SIGTRAP)
_WATCH_SECONDS = 0.1
#: For how long it is tried to say which kernel is late, in seconds.
_PATIENCE_SECONDS = 1.0

_thread = threading.local()
_reports: list[int] = []


def report_address() -> int:
    """Return the address at which host kernels report an index that ends them (:mod:`gpu_worker.system.fault_report`),
    or 0.
    """
    return _reports[-1] if _reports else 0


def current_slot() -> int:
    """Return the address of the calling thread's slot; 0 outside of :meth:`CrashRecorder.running`."""
    return getattr(_thread, "slot", 0)


class CrashRecorder:
    """A device process's side of the file.

    Parameters
    ----------
    path : Path
        The file; one that is there is replaced.
    epoch : int
        The process's epoch.
    """

    def __init__(self, path: Path, *, epoch: int):
        path.unlink(missing_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.ftruncate(descriptor, _SIZE)
            self._memory = mmap.mmap(descriptor, _SIZE)
        finally:
            os.close(descriptor)
        _HEADER.pack_into(self._memory, 0, _MAGIC, epoch)
        self._exported = ctypes.c_char.from_buffer(self._memory)
        self.address = ctypes.addressof(self._exported)
        _reports.append(self.address + _REPORT)
        self._free: queue.SimpleQueue[int] = queue.SimpleQueue()
        for slot in range(SLOTS):
            self._free.put(SLOT_BYTES * (1 + slot))
        self._deadlines: dict[int, tuple[float, Callable[[], Place | None] | None]] = {}
        self._watched: dict[int, Watched] = {}
        self._closed = threading.Event()

    def running(self, place: Place, deadline: float | None,
                watched: Watched | None = None) -> AbstractContextManager[None]:
        """Return a context in which this thread runs a kernel at ``place``, until ``deadline`` on the monotonic
        clock; ``watched`` where it goes on by itself.
        """
        return _Running(self, place, deadline, watched=watched)

    def watching(self, place: Place, deadline: float, late: Callable[[], Place | None],
                 watched: Watched | None = None) -> AbstractContextManager[None]:
        """Return a context in which this thread starts kernels and waits for them; a kernel that still runs at the
        deadline, as ``late`` finds, ends the process, and so does one that nobody waits for any more and that another
        plan waits behind. A signal is not attributed to the context.
        """
        return _Running(self, place, deadline, late, WATCHED, watched)

    def waiting(self) -> AbstractContextManager[None]:
        """Return a context that counts this thread's client among those that wait behind kernels of others, but where
        it runs its own.
        """
        return _Waiting(self)

    def leave_waiting(self) -> bool:
        """Count this thread's client no longer among those that wait; return whether it was."""
        return self._watched.pop(-threading.get_ident(), None) is not None

    def wait_again(self) -> None:
        """Count this thread's client among those that wait, from now on."""
        self._watched[-threading.get_ident()] = Watched(_nothing, int)

    def begin(self, place: Place, deadline: float | None, number: int,
              late: Callable[[], Place | None] | None = None, state: int = RUNNING,
              watched: Watched | None = None) -> int:
        """Note that a kernel runs for the request ``number``, until :meth:`end` with what this returns.

        Where ``late`` finds nothing at the deadline, no kernel runs then; it is asked again.
        """
        slot = self._free.get()
        self._write(slot, place, time.monotonic(), deadline or 0.0, number)
        _STATE.pack_into(self._memory, slot, state, 0)
        if deadline is not None:
            self._deadlines[slot] = deadline, late
        if watched is not None:
            self._watched[slot] = watched
        return slot

    def end(self, slot: int) -> None:
        """Record that a kernel no longer runs."""
        self._deadlines.pop(slot, None)
        self._watched.pop(slot, None)
        _STATE.pack_into(self._memory, slot, FREE, 0)
        self._free.put(slot)

    def serving(self, number: int) -> AbstractContextManager[None]:
        """Return a context in which kernels of this thread are attributed to the request ``number``."""
        return _Serving(number)

    def _write(self, slot: int, place: Place, started: float, deadline: float, number: int) -> None:
        text = _packed(place)
        _SLOT.pack_into(self._memory, slot, FREE, 0, started, deadline, len(text), number)
        self._memory[slot + _SLOT.size:slot + _SLOT.size + len(text)] = text

    def blame(self, failure: Failure) -> None:
        """Note the error that this process cannot go on after; the caller ends the process."""
        text = encode(failure, Failure)[:VERDICT_BYTES - _LENGTH.size]
        start = _VERDICT + _LENGTH.size
        self._memory[start:start + len(text)] = text
        _LENGTH.pack_into(self._memory, _VERDICT, len(text))

    def watch(self) -> None:
        """Start the thread that ends this process when a kernel runs past its deadline."""
        start_thread(self._watch, name="deadlines")

    def close(self) -> None:
        """Unmap the file, which stays."""
        self._closed.set()
        _reports.remove(self.address + _REPORT)
        del self._exported
        self._memory.close()

    def _watch(self) -> None:
        while not self._closed.wait(_WATCH_SECONDS):
            now = time.monotonic()
            for slot, (deadline, late) in list(self._deadlines.items()):
                try:
                    if now > deadline and slot in self._deadlines and self._is_late(slot, deadline, late):
                        self._end_process(slot)
                    self._end_abandoned(slot, now)
                except Exception:
                    _log.exception("a deadline was not looked at")
                    if now > deadline + _PATIENCE_SECONDS:
                        self._end_process(slot)

    def _end_abandoned(self, slot: int, now: float) -> None:
        """End this process for a kernel that nobody waits for and others wait behind."""
        plan = self._watched.get(slot)
        place = kernels_in_the_way(plan, list(self._watched.values()), now) if plan is not None else None
        if plan is not None and place is not None and slot in self._watched:
            fields = _SLOT.unpack_from(self._memory, slot)
            self._write(slot, place, fields[2], plan.gone, fields[5])
            self._end_process(slot, ABANDONED)

    def _is_late(self, slot: int, deadline: float, late: Callable[[], Place | None] | None) -> bool:
        """Return whether a kernel runs past its deadline; if so, record its place."""
        if late is not None:
            place = late()
            if place is None:
                return False
            fields = _SLOT.unpack_from(self._memory, slot)
            self._write(slot, place, fields[2], deadline, fields[5])
        return True

    def _end_process(self, slot: int, state: int = LATE) -> None:
        _STATE.pack_into(self._memory, slot, state, 0)
        os.kill(os.getpid(), signal.SIGKILL)


@dataclass(slots=True)
class _Running:
    """Context of :meth:`CrashRecorder.running`: a class because every pass of a loop enters one, at a third of a
    generator's cost.
    """

    recorder: CrashRecorder
    place: Place
    deadline: float | None
    late: Callable[[], Place | None] | None = None
    state: int = RUNNING
    watched: Watched | None = None
    waited: bool = False
    slot: int = 0
    outer: int = 0

    def __enter__(self) -> None:
        self.waited = self.watched is not None and self.recorder.leave_waiting()
        self.slot, self.outer = self.recorder.begin(self.place, self.deadline, getattr(_thread, "number", 0), self.late,
                                               self.state, self.watched), current_slot()
        _thread.slot = self.recorder.address + self.slot

    def __exit__(self, *_: object) -> None:
        _thread.slot = self.outer
        self.recorder.end(self.slot)
        if self.waited:
            self.recorder.wait_again()


@dataclass(slots=True)
class _Serving:
    """Context of :meth:`CrashRecorder.serving`."""

    number: int

    def __enter__(self) -> None:
        _thread.number = self.number

    def __exit__(self, *_: object) -> None:
        _thread.number = 0


@dataclass(slots=True)
class _Waiting:
    """Context of :meth:`CrashRecorder.waiting`; a class and no generator, as :class:`_Running` is."""

    recorder: CrashRecorder
    waited: bool = False

    def __enter__(self) -> None:
        self.waited = self.recorder.leave_waiting()
        self.recorder.wait_again()

    def __exit__(self, *_: object) -> None:
        self.recorder.leave_waiting()
        if self.waited:
            self.recorder.wait_again()


def _nothing() -> None:
    """Return None: a client that waits runs no kernels."""


# -- the daemon's side ------------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class CrashRecord:
    """Content of a crash record: the process's epoch, and the failure that the death is attributed to, if any."""

    epoch: int
    failure: Failure | None


def read(path: Path, death_signal: int = 0) -> CrashRecord | None:
    """Read the crash record of a process that has died of ``death_signal``; ``None`` where there is none."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    if len(data) != _SIZE:
        return None
    magic, epoch = _HEADER.unpack_from(data)
    return CrashRecord(epoch, _verdict(data) or _suspect(data, death_signal)) if magic == _MAGIC else None


def _verdict(data: bytes) -> Failure | None:
    length, = _LENGTH.unpack_from(data, _VERDICT)
    start = _VERDICT + _LENGTH.size
    return decode(data[start:start + length], Failure) if length else None


def _suspect(data: bytes, death_signal: int) -> Failure | None:
    report = reported(data[_REPORT:_REPORT + REPORT.size])
    slots = [(_SLOT.unpack_from(data, start), start) for start in range(SLOT_BYTES, _VERDICT, SLOT_BYTES)]
    for (state, number, started, deadline, length, request), start in slots:
        if state == CULPRIT:
            return failure_of(KernelFault(f"a kernel ended its process with {_name(number)}{report}",
                                          _place(data, start, length)), request)
        if state == LATE:
            return failure_of(DeadlineExceeded(
                f"a kernel was still running at the plan's deadline, {max(deadline - started, 0):.3g} s after its "
                "launch, and its process was ended", _place(data, start, length)), request)
        if state == ABANDONED:
            return failure_of(DeadlineExceeded(
                f"a kernel that nobody waited for any more, since {max(deadline - started, 0):.3g} s after its launch, "
                "was still running while other plans waited behind it, and its process was ended",
                _place(data, start, length)), request)
    running = [(length, request, start) for (state, _, _, _, length, request), start in slots if state == RUNNING]
    if death_signal in _FAULTS and len(running) == 1:
        # No handler had its say, but nothing else was running.
        length, request, start = running[0]
        return failure_of(KernelFault(f"a kernel ended its process with {_name(death_signal)}{report}",
                                      _place(data, start, length)), request)
    return None


@functools.lru_cache(maxsize=256)
def _packed(place: Place) -> bytes:
    short = Place(_cut(place.vrdd, 256), place.partition, _cut(place.operation, 512), _cut(place.device, 64))
    return encode(short, Place)


def _cut(text: str, size: int) -> str:
    return text if len(text) * 4 <= size else text.encode()[:size].decode(errors="ignore")


def _place(data: bytes, start: int, length: int) -> Place:
    try:
        return decode(data[start + _SLOT.size:start + _SLOT.size + length], Place)
    except ProtocolError:
        return Place()


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
