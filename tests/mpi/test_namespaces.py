"""Two network namespaces as two hosts: daemons reach each other over TCP, and halos go through MPI over a cable."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from gpu_worker.client.connection import administer, connect
from gpu_worker.protocol.messages import CopyTo, KeepStep, Restore, Status
from tests.mpi.nodes import NodesApp, nodes
from tests.mpi.test_world import case_of, field
from tests.system.worker_tools import hello
from tests.unit.test_patches_steps import stepped

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(240)]

ADDRESSES = "10.77.0.1", "10.77.0.2"


def ip(*arguments: str, host: int | None = None) -> None:
    """Run ip, within a namespace's holder."""
    within = [] if host is None else ["nsenter", "-t", str(host), "-n"]
    subprocess.run([*within, "ip", *arguments], check=True, timeout=10, capture_output=True)


@contextlib.contextmanager
def hosts() -> Iterator[list[int]]:
    """Yield processes that hold a network namespace each, joined by a cable; skips where they cannot be had."""
    if not all(map(shutil.which, ("ip", "nsenter", "unshare"))) or os.geteuid():
        pytest.skip("no ip, nsenter and unshare, or no right to use them")
    ends = [f"v{os.getpid()}{end}" for end in "ab"]
    with contextlib.ExitStack() as stack:
        holders = []
        for _ in ends:
            holder = stack.enter_context(subprocess.Popen(["unshare", "--net", "sleep", "600"],
                                                          stderr=subprocess.DEVNULL))
            stack.callback(holder.kill)
            holders.append(holder.pid)
            until = time.monotonic() + 10
            while Path(f"/proc/{holder.pid}/ns/net").readlink() == Path("/proc/self/ns/net").readlink():
                if holder.poll() is not None or time.monotonic() > until:
                    pytest.skip("no network namespaces here")
                time.sleep(0.01)
        try:
            ip("link", "add", ends[0], "type", "veth", "peer", "name", ends[1])
        except subprocess.CalledProcessError as error:
            pytest.skip(f"no virtual cable here: {error.stderr.decode()}")
        for holder, end, address in zip(holders, ends, ADDRESSES, strict=True):
            ip("link", "set", end, "netns", str(holder))
            ip("addr", "add", f"{address}/30", "dev", end, host=holder)
            ip("link", "set", end, "up", host=holder)
            ip("link", "set", "lo", "up", host=holder)
        yield holders


def received(holder: int) -> int:
    """Return the bytes that came over the cable."""
    return int(re.search(r"v\d+[ab]: *(\d+)", Path(f"/proc/{holder}/net/dev").read_text())[1])


def test_halos_and_copies_of_snapshots_travel_between_two_hosts(tmp_path: Path):
    """Lose a host, whose loop goes on from the copy on the other one."""
    key = tmp_path / "key"
    key.write_text("of the cluster of this test")
    key.chmod(0o600)
    case = case_of(2, shape=(24, 40, 40))
    full = field(case)
    with hosts() as holders:
        started = [("--listen", f"{here}:7700", "--hosts", f"{there}:7700", "--key", str(key))
                   for here, there in (ADDRESSES, ADDRESSES[::-1])]
        within = [("nsenter", "-t", str(holder), "-n") for holder in holders]
        with nodes(tmp_path, 2, started, within) as members, NodesApp("app", members, case) as app:
            app.put(1, full)
            app.run((1, 2), app.loop(5), KeepStep(1, "u", "device"))
            before = [received(holder) for holder in holders]
            app.run((2, 3), app.loop(5), KeepStep(1, "u", "device"))
            expected = app.fetch(3)
            np.testing.assert_allclose(expected, stepped(full, case, 10), rtol=1e-10)
            arrived = [received(holder) - each for holder, each in zip(holders, before, strict=True)]
            assert all(bytes_ > sent // 2 for bytes_, sent in zip(arrived, reversed(app.sent()), strict=True))

            greeting = hello(app.session, device="host", role="driver", reach=ADDRESSES[1])
            with connect(greeting, runtime_dir=str(members[1].path)) as client:
                before_copy = received(holders[1])
                saved = app.save(2, 11, (), CopyTo("first", "", client.reach))
                assert saved.copied and received(holders[1]) - before_copy > saved.nbytes
            app.save(2, 11, (), rank=1)
            os.kill(administer(Status(), runtime_dir=str(members[0].path)).pid, signal.SIGKILL)
            app.kill(0)
            client = app.clients[1]
            for owner in ("", "first"):
                client.request(Restore(client.next_number(), 11, 4, "u", owner))
            app.alone(1, (4, 5), app.loop(5), KeepStep(1, "u", "device"))
            np.testing.assert_array_equal(app.fetch(5, at=1), expected)
            members[0].start(*started[0])         # to clear away what the lost one left
