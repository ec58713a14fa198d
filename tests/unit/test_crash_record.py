"""Crash records: the work of a process is known after its death."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from gpu_worker.protocol.errors import Place
from gpu_worker.system import crash_record
from gpu_worker.system.crash_record import CrashRecorder, current_slot

PLACE = Place("7 grid", 3, "heat", "host:0")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "app.box"


def die(path: Path, code: str) -> tuple[int, crash_record.CrashRecord]:
    """Return the status and the crash record of a process that runs ``code`` with ``box`` and ``place``."""
    program = ("import ctypes, os, signal, sys, threading, time\nfrom gpu_worker.system.crash_record import *\n"
               "from gpu_worker.protocol.errors import *\nfrom gpu_worker.protocol.wire import failure_of\n"
               f"from pathlib import Path\nbox = CrashRecorder(Path({str(path)!r}), epoch=5)\nbox.watch()\n"
               f"place = {PLACE!r}\n{code}")
    status = subprocess.run([sys.executable, "-c", program], timeout=30).returncode
    return status, crash_record.read(path, max(-status, 0))


def test_nothing_is_blamed_on_a_process_that_ends_well(path):
    status, record = die(path, "with box.running(place, None):\n    pass")
    assert (status, record.epoch, record.failure) == (0, 5, None)


def test_a_kill_from_outside_is_nobody_s_fault(path):
    status, record = die(path, "with box.running(place, None):\n    os.kill(os.getpid(), signal.SIGKILL)")
    assert (status, record.failure) == (-signal.SIGKILL, None)


def test_a_handler_s_mark_names_kernel_and_signal(path):
    _, record = die(path, """
other = threading.Thread(target=lambda: box.running(Place("8", 0, "other", ""), None).__enter__())
other.start(); other.join()
with box.running(place, None):
    mark = (ctypes.c_int32 * 2).from_address(current_slot())
    mark[1], mark[0] = signal.SIGFPE, CULPRIT
    os.kill(os.getpid(), signal.SIGKILL)""")
    failure = record.failure
    assert (failure.kind, failure.vrdd, failure.partition, failure.operation, failure.device) == (
        "KernelFault", "7 grid", 3, "heat", "host:0")
    assert "SIGFPE" in failure.message


def test_a_fault_without_a_handler_is_the_only_running_kernel_s(path):
    status, record = die(path, "with box.running(place, None):\n    ctypes.string_at(8)")
    assert status == -signal.SIGSEGV
    assert (record.failure.kind, record.failure.operation) == ("KernelFault", "heat")
    assert "SIGSEGV" in record.failure.message


def test_the_request_is_named(path):
    _, record = die(path, "with box.serving(77), box.running(place, None):\n    ctypes.string_at(8)")
    assert record.failure.number == 77
    _, record = die(path, "with box.serving(78), box.watching(place, time.monotonic() + 0.2, lambda: place):\n"
                         "    time.sleep(20)")
    assert (record.failure.kind, record.failure.number) == ("DeadlineExceeded", 78)
    _, record = die(path, "with box.serving(79):\n    pass\nwith box.running(place, None):\n    ctypes.string_at(8)")
    assert record.failure.number == 0


def test_a_fault_outside_of_kernels_is_nobody_s(path):
    status, record = die(path, "with box.running(place, None):\n    pass\nctypes.string_at(8)")
    assert (status, record.failure) == (-signal.SIGSEGV, None)


def test_a_deadline_ends_the_process_and_is_explained(path):
    began = time.monotonic()
    status, record = die(path, "with box.running(place, time.monotonic() + 0.3):\n    time.sleep(20)")
    assert status == -signal.SIGKILL and time.monotonic() - began < 10
    assert (record.failure.kind, record.failure.operation) == ("DeadlineExceeded", "heat")
    assert "0.3 s" in record.failure.message


def test_a_plan_is_watched_whatever_its_thread_waits_for(path):
    status, record = die(path, """
late = iter([None, None, Place("8", 1, "spin", "cuda:0")])
with box.watching(place, time.monotonic() + 0.2, lambda: next(late)):
    time.sleep(20)""")
    assert status == -signal.SIGKILL
    assert (record.failure.kind, record.failure.operation, record.failure.partition) == ("DeadlineExceeded", "spin", 1)
    status, record = die(path, "with box.watching(place, time.monotonic() + 0.2, lambda: None):\n    time.sleep(0.6)")
    assert (status, record.failure) == (0, None)
    _, record = die(path, "with box.watching(place, time.monotonic() + 9, lambda: None):\n    ctypes.string_at(8)")
    assert record.failure is None


def test_a_deadline_that_is_kept_ends_nothing(path):
    status, record = die(path, "with box.running(place, time.monotonic() + 0.2):\n    pass\ntime.sleep(0.5)")
    assert (status, record.failure) == (0, None)


def test_a_blamed_error_is_kept_whole(path):
    status, record = die(path, "box.blame(failure_of(KernelFault('an illegal address', place, 'x' * 70000), 9))\n"
                              "os._exit(70)")
    assert status == 70
    assert (record.failure.kind, record.failure.message, record.failure.partition) == (
        "KernelFault", "an illegal address", 3)


def test_a_long_place_is_cut_and_stays_readable(path):
    place = Place("√" * 1000, 1, "µ" * 1000, "x" * 1000)
    box = CrashRecorder(path, epoch=1)
    with box.running(place, None):
        (ctypes.c_int32 * 2).from_address(current_slot())[0] = crash_record.CULPRIT
        failure = crash_record.read(path).failure
    box.close()
    assert place.operation.startswith(failure.operation) and len(failure.operation) > 100
    assert place.vrdd.startswith(failure.vrdd) and len(failure.vrdd) > 50


def test_slots_are_a_thread_s_own_and_nest(path):
    box = CrashRecorder(path, epoch=1)
    seen = []
    assert current_slot() == 0
    with box.running(PLACE, None):
        outer = current_slot()
        with box.running(PLACE, None):
            assert current_slot() not in (0, outer)
        assert current_slot() == outer
        thread = threading.Thread(target=lambda: seen.append(current_slot()))
        thread.start()
        thread.join()
    assert (seen, current_slot()) == ([0], 0)
    box.close()


def test_more_threads_than_slots_wait_for_each_other(path):
    box = CrashRecorder(path, epoch=1)
    done = []

    def work():
        for _ in range(3):
            with box.running(PLACE, None):
                done.append(1)

    threads = [threading.Thread(target=work) for _ in range(crash_record.SLOTS + 40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(done) == 3 * len(threads)
    box.close()


@pytest.mark.parametrize("content", [b"", b"x", os.urandom(1 << 12)])
def test_a_file_that_is_no_black_box_says_nothing(path, content):
    assert crash_record.read(path) is None
    path.write_bytes(content)
    assert crash_record.read(path) is None


def test_a_new_box_replaces_the_old_one_s_file(path):
    old = CrashRecorder(path, epoch=1)
    new = CrashRecorder(path, epoch=2)
    with old.running(PLACE, None):
        assert crash_record.read(path, signal.SIGSEGV) == crash_record.CrashRecord(2, None)
    old.close()
    new.close()
