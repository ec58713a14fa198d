"""Refusals of the operating system become errors of ours that say what would help, and nothing is closed twice."""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import resource
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from gpu_worker.client.tcp import connect_to_session
from gpu_worker.daemon import service
from gpu_worker.device.base import Source
from gpu_worker.device.cache import KernelCache
from gpu_worker.device.host import compiler
from gpu_worker.device.host.device import HostDevice
from gpu_worker.protocol import processors
from gpu_worker.protocol.errors import OutOfMemory, OutOfResources, VisparkError, WorkerLost, WorkerUnavailable
from gpu_worker.protocol.messages import (
    VERSION,
    Done,
    Hello,
    Reach,
    Release,
    Reply,
    Request,
    SessionOptions,
)
from gpu_worker.protocol.payload import WRITE_FROM, Payload
from gpu_worker.protocol.system import as_error, is_refusal, refused, start_thread, system_call
from gpu_worker.protocol.wire import Connection
from gpu_worker.system import crash_record, launcher, log
from gpu_worker.system.paths import locate


def refusing(number: int):
    """Return a call that fails with an error number."""
    def call(*_, **__):
        raise OSError(number, os.strerror(number))
    return call


def sealed(size: int) -> int:
    descriptor = os.memfd_create("test", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(descriptor, size)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
    return descriptor


@pytest.fixture
def closed(monkeypatch) -> list[int]:
    """Record the descriptors that are closed, in order."""
    numbers: list[int] = []
    close = os.close
    monkeypatch.setattr(os, "close", lambda number: (numbers.append(number), close(number)))
    return numbers


@pytest.mark.parametrize("make", [lambda: Payload.create(4096), lambda: Payload.receive(sealed(4096))],
                         ids=["create", "receive"])
def test_a_descriptor_that_cannot_be_mapped_is_closed_once(monkeypatch, closed, make):
    before = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(mmap, "mmap", refusing(errno.ENOMEM))
    with pytest.raises(OutOfMemory, match="ENOMEM"):
        make()
    assert len(closed) == len(set(closed)) == 1
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_payload_too_large_to_map_is_out_of_memory_and_closed_once(closed):
    descriptor = sealed(1 << 62)        # sparse, as a client might send it
    with pytest.raises(OutOfMemory, match="ENOMEM"):
        Payload.receive(descriptor)
    assert closed == [descriptor]


@pytest.mark.parametrize(("where", "call", "number", "kind", "says"), [
    (os, "memfd_create", errno.EMFILE, OutOfResources, "EMFILE .*ulimit -n"),
    (os, "memfd_create", errno.ENFILE, OutOfResources, "ENFILE .*fs.file-max"),
    (os, "ftruncate", errno.ENOSPC, OutOfMemory, "4,096 bytes.*ENOSPC .*/dev/shm"),
    (fcntl, "fcntl", errno.ENOMEM, OutOfMemory, "ENOMEM"),
])
def test_shared_memory_that_is_refused_says_what_would_help(monkeypatch, where, call, number, kind, says):
    before = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(where, call, refusing(number))
    with pytest.raises(kind, match=says):
        Payload.create(4096)
    assert len(os.listdir("/proc/self/fd")) == before


def test_shared_memory_that_cannot_be_written_is_out_of_memory(monkeypatch):
    with Payload.create(WRITE_FROM) as payload:
        monkeypatch.setattr(os, "pwrite", refusing(errno.ENOSPC))
        with pytest.raises(OutOfMemory, match="ENOSPC"):
            payload.put(0, np.zeros(WRITE_FROM, np.uint8))


def test_a_message_for_whose_descriptor_there_is_no_room_is_refused_and_the_next_one_taken():
    left, right = socket.socketpair()
    with Connection(left) as sender, Connection(right) as receiver:
        right.settimeout(10)
        sender.send(Done(1), Reply, [0])
        sender.send(Done(2), Reply, [0])
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))), hard))
        filled = []
        try:
            while True:
                try:
                    filled.append(os.dup(0))
                except OSError:
                    break
            with pytest.raises(OutOfResources, match="EMFILE"):
                receiver.receive(Reply)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            for number in filled:
                os.close(number)
        reply, descriptors = receiver.receive(Reply)
        assert (reply.number, len(descriptors)) == (2, 1)
        os.close(descriptors[0])


class Socket:
    """A socket that refuses to send once."""

    def __init__(self, sock: socket.socket, number: int):
        self._sock, self._number = sock, number

    def sendmsg(self, *arguments):
        number, self._number = self._number, 0
        if number:
            raise OSError(number, os.strerror(number))
        return self._sock.sendmsg(*arguments)

    def __getattr__(self, name: str):
        return getattr(self._sock, name)


def test_a_message_that_is_refused_is_not_sent_and_the_next_one_is():
    left, right = socket.socketpair()
    with Connection(Socket(left, errno.ENOBUFS)) as sender, Connection(right) as receiver:
        with pytest.raises(OutOfMemory, match="ENOBUFS"):
            sender.send(Done(1), Reply)
        sender.send(Done(2), Reply)
        assert receiver.receive(Reply)[0].number == 2
    left, right = socket.socketpair()
    with Connection(Socket(left, errno.EPIPE)) as sender, right, pytest.raises(WorkerLost):
        sender.send(Done(1), Reply)


def test_a_defect_in_reading_closes_what_came_with_the_message():
    left, right = socket.socketpair()
    with Connection(left) as sender, Connection(right) as receiver:
        sender.send(Release(1, ()), Request, [0])
        before = len(os.listdir("/proc/self/fd"))
        with pytest.raises(KeyError):
            receiver.receive_as(lambda _: {}["a defect"])
        assert len(os.listdir("/proc/self/fd")) == before


def test_a_thread_that_cannot_be_started_is_out_of_resources(monkeypatch):
    def fails(_):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", fails)
    with pytest.raises(OutOfResources, match=r"can't start new thread.*ulimit -u"):
        start_thread(print, name="test")


def test_a_thread_that_ends_before_it_runs_is_seen_at_once(monkeypatch):
    kinds: list[type] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda error: kinds.append(error.exc_type))
    monkeypatch.setattr(threading.Thread, "_bootstrap", lambda thread: bytes(1 << 62))
    began = time.monotonic()
    with pytest.raises(OutOfMemory, match=r"a thread \(for a test\): the system refused it with ENOMEM"):
        start_thread(print, name="for a test")
    assert time.monotonic() - began < 5 and kinds == [MemoryError]


def test_a_refusal_is_told_as_such_and_a_defect_with_its_trace():
    assert isinstance(as_error(OSError(errno.EMFILE, "too many")), OutOfResources)
    assert isinstance(as_error(MemoryError()), OutOfMemory)
    defect = as_error(KeyError("name"))
    assert type(defect) is VisparkError and "KeyError: 'name'" in defect.message and "KeyError" in defect.detail
    known = OutOfMemory("known")
    assert as_error(known) is known
    assert not is_refusal(BlockingIOError(errno.EAGAIN, "")) and not is_refusal(ConnectionResetError())
    assert "EAGAIN" in refused(BlockingIOError(errno.EAGAIN, "again"), "a process").message


def test_an_error_of_ours_goes_through_as_it_is():
    with pytest.raises(WorkerLost, match=r"^gone$"), system_call("something"):
        raise WorkerLost("gone")
    with pytest.raises(WorkerUnavailable, match=r"a lock: .*No such file"), \
            system_call("a lock", WorkerUnavailable):
        os.open("/no/such/file", os.O_RDONLY)


def test_no_oserror_is_told_as_a_defect():
    for number in errno.errorcode:
        known_error = as_error(OSError(number, os.strerror(number)))
        assert "defect" not in known_error.message and "Traceback" not in known_error.message and known_error.detail
    assert isinstance(as_error(RuntimeError("can't start new thread")), OutOfResources)
    assert "defect" in as_error(RuntimeError("anything else")).message


SOURCE = Source('extern "C" __global__ void fill(float* a) { a[threadIdx.x] = 1; }', file="fill.cu")

#: What the system refuses, at each call that making and loading a kernel takes.
COMPILING = [(tempfile, "mkdtemp"), (subprocess, "run"), (tempfile, "NamedTemporaryFile"), (Path, "write_text"),
             (compiler.Path, "read_bytes")]


@pytest.mark.slow
@pytest.mark.parametrize(("where", "call"), COMPILING, ids=lambda each: getattr(each, "__name__", each))
def test_a_kernel_for_which_the_system_has_no_room_is_compiled_the_next_time(monkeypatch, tmp_path, where, call):
    device = HostDevice(cache=KernelCache(tmp_path))
    before = len(os.listdir("/proc/self/fd"))
    for number, kind in [(errno.EMFILE, OutOfResources), (errno.ENOSPC, OutOfMemory), (errno.EAGAIN, OutOfResources)]:
        with monkeypatch.context() as patch:
            patch.setattr(where, call, refusing(number))
            with pytest.raises(kind, match=errno.errorcode[number]):
                device.compile(SOURCE, "fill")
        assert len(os.listdir("/proc/self/fd")) == before
    assert device.compile(SOURCE, "fill")
    device.close()


@pytest.mark.parametrize("call", ["mkstemp"])
def test_a_kernel_cache_without_room_is_no_error(monkeypatch, tmp_path, call):
    cache = KernelCache(tmp_path, most=16)
    with monkeypatch.context() as patch:
        patch.setattr(tempfile, call, refusing(errno.ENOSPC))
        cache.put(b"code", "source")
    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", refusing(errno.EMFILE))
        cache.put(b"code", "source")
    assert cache.get("source") == b"code"


def test_a_daemon_whose_lock_or_socket_is_refused_says_so(monkeypatch, tmp_path):
    directory = locate(str(tmp_path / "rt")).ensure()
    with monkeypatch.context() as patch:
        patch.setattr(service, "_acquire", refusing(errno.EMFILE))
        with pytest.raises(OutOfResources, match=r"lock.*EMFILE"):
            service.serve(directory, None)
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", refusing(errno.ENOSPC))
        with pytest.raises(OutOfMemory, match="ENOSPC"):
            service.serve(directory, None)


def test_the_tail_of_a_log_is_of_what_came_since(tmp_path):
    path = tmp_path / "log"
    assert log.size(path) == 0 and log.tail(path, 5) == ""
    path.write_text("of another process\n")
    before = log.size(path)
    path.write_text("of another process\nits own\n")
    assert log.tail(path, 5, since=before) == "its own\n"
    path.write_text("anew\n")      # The log was set aside meanwhile.
    assert log.tail(path, 5, since=before) == "anew\n"


def test_what_only_makes_things_quicker_or_clearer_fails_silently(monkeypatch, tmp_path):
    path = tmp_path / "log"
    path.write_text("a line")
    assert log.tail(path, 5) == "a line"
    monkeypatch.setattr("builtins.open", refusing(errno.EMFILE))
    monkeypatch.setattr(Path, "open", refusing(errno.EMFILE))
    monkeypatch.setattr(processors, "_last", processors._Look())
    assert log.tail(path, 5) == "" and not processors.are_free() and processors._waited() == 0
    assert crash_record.read(path) is None


def test_clients_that_cannot_connect_or_start_a_worker_hear_what_is_missing(monkeypatch, tmp_path):
    monkeypatch.setattr(socket, "create_connection", refusing(errno.EMFILE))
    hello = Hello(VERSION, "driver", "app", b"s" * 32, "a", 0, SessionOptions("null", 0, 1.0, "", "info"))
    with pytest.raises(OutOfResources, match="EMFILE"):
        connect_to_session(Reach("127.0.0.1", 1, b""), hello, 1.0)
    monkeypatch.setattr(subprocess, "run", refusing(errno.ENOMEM))
    with pytest.raises(OutOfMemory, match="ENOMEM"):
        launcher.start_from_client(locate(str(tmp_path)), "info")
