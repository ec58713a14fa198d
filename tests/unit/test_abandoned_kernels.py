"""Kernels that nobody waits for any more: when their process is ended, and for whom it is not."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpu_worker.protocol.errors import Place
from gpu_worker.system import caller
from gpu_worker.system.abandoned_kernels import PATIENCE_SECONDS, Watched, kernels_in_the_way
from gpu_worker.system.crash_record import CrashRecorder
from tests.unit.test_crash_record import die

PLACE = Place("7", 3, "vmap endless", "cuda:0")

#: The start of a program in which a plan, whose client is the socket ``other``, spins.
SPINS = """
import socket
from gpu_worker.system import abandoned_kernels, caller
abandoned_kernels.PATIENCE_SECONDS = 0.3
mine, other = socket.socketpair()
began = threading.Event()
def spin():
    with caller.serving(mine), box.serving(81), box.watching(
            place, time.monotonic() + 60, lambda: None, abandoned_kernels.Watched(lambda: place, int)):
        began.set()
        time.sleep(20)
threading.Thread(target=spin, daemon=True).start()
began.wait()
"""


@pytest.fixture
def client() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Yield the ends of a connection: a process's, and its client's."""
    own, other = socket.socketpair()
    with own, other:
        yield own, other


def _plan(end: socket.socket | None, running: Place | None = None, at: list[int] | None = None) -> Watched:
    progress = at or [0]
    client = caller.Caller(-1 if end is None else end.fileno())
    return Watched(lambda: running, lambda: progress[0], client)


def test_a_plan_that_waits_behind_a_kernel_of_nobody_ends_it_in_time(client):
    spins, waits = _plan(client[0], PLACE), _plan(None)
    plans, now = [spins, waits], time.monotonic()
    assert kernels_in_the_way(spins, plans, now + 100) is None          # its client is there
    client[1].close()
    assert kernels_in_the_way(spins, plans, now + 101) is None
    assert kernels_in_the_way(spins, plans, now + 100.9 + PATIENCE_SECONDS) is None
    assert kernels_in_the_way(spins, plans, now + 101.1 + PATIENCE_SECONDS) == PLACE
    assert kernels_in_the_way(waits, plans, now + 200) is None
    assert kernels_in_the_way(spins, [spins], now + 200) is None        # nobody minds


def test_a_plan_that_gets_on_does_not_wait(client):
    at = [1]
    spins, works = _plan(client[0], PLACE), _plan(None, None, at)
    client[1].close()
    now = time.monotonic()
    for second in range(1, 40, 4):
        at[0] += 1
        assert kernels_in_the_way(spins, [spins, works], now + second) is None
    assert kernels_in_the_way(spins, [spins, works], now + 50) == PLACE


def test_kernels_that_are_done_are_in_nobodys_way(client):
    client[1].close()
    done, waits, now = _plan(client[0], None), _plan(None), time.monotonic()
    assert kernels_in_the_way(done, [done, waits], now) is None
    assert kernels_in_the_way(done, [done, waits], now + 100) is None


def test_a_plan_whose_own_client_is_gone_waits_for_nothing(client):
    client[1].close()
    both, now = [_plan(client[0], PLACE), _plan(client[0])], time.monotonic()
    assert kernels_in_the_way(both[0], both, now) is None
    assert kernels_in_the_way(both[0], both, now + 100) is None


def test_a_client_whose_descriptor_is_anothers_now_is_gone(client):
    with caller.serving(client[0]):
        spins = Watched(lambda: PLACE, int)
        assert not spins.client.is_gone()
    taken = client[0].fileno()
    for one in client:
        one.close()
    new, other = socket.socketpair()
    with new, other:
        assert taken in (new.fileno(), other.fileno())
        assert spins.client.is_gone() and not caller.Caller(taken).is_gone()


def test_a_client_counts_as_waiting_but_where_its_plan_runs(tmp_path: Path):
    box = CrashRecorder(tmp_path / "box", epoch=1)
    with box.waiting():
        with box.waiting():
            assert len(box._watched) == 1
        assert list(box._watched) == [-threading.get_ident()]
        with box.watching(PLACE, time.monotonic() + 60, lambda: None, Watched(lambda: None, int)):
            assert all(key > 0 for key in box._watched) and len(box._watched) == 1
        assert list(box._watched) == [-threading.get_ident()]
    assert not box._watched
    box.close()


@pytest.mark.parametrize(("then", "ended"), [
    ("other.close()\nwith box.waiting():\n    time.sleep(20)", True),
    ("other.close()\ntime.sleep(1)\nos._exit(0)", False),
    ("with box.waiting():\n    time.sleep(1)\nos._exit(0)", False)])
def test_a_process_is_ended_and_tells_why(tmp_path: Path, then: str, ended: bool):
    status, record = die(tmp_path / "app.box", SPINS + then)
    assert (status == -9) is ended and (record.failure is not None) is ended
    if ended:
        assert (record.failure.number, record.failure.operation) == (81, "heat")
        assert "that nobody waited for any more" in record.failure.message
