"""Long loops on a grid, under which device processes and daemons are killed at random moments."""

from __future__ import annotations

import contextlib
import gc
import os
import random
import signal
import socket
import struct
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from pyspark import SparkContext

from tests.chaos.arena import Arena, eventually
from tests.system import topology
from tests.system.topology import LocalNode, Topology, clustered
from vispark import VRDD, Grid, stencil
from vispark.runtime.driver.session import Session

SHAPE, SPLITS = (12, 10, 8), (2, 2, 1)
WEIGHT = 0.01

#: Snapshots by the dozen, although a test's loop is short.
OPTIONS = {"spark.vispark.device": "host", "spark.vispark.snapshotShare": 0.3, "spark.vispark.timeToLoss": 2,
           "spark.vispark.lease": 60, "spark.vispark.attempts": 20}


@stencil
def heat(u, k):
    return u[0, 0, 0] + k * (u[1, 0, 0] + u[-1, 0, 0] + u[0, 1, 0] + u[0, -1, 0]
                             + u[0, 0, 1] + u[0, 0, -1] - 6 * u[0, 0, 0])


def iterated(blocks: VRDD, steps: int) -> np.ndarray:
    """Return the field after a loop in one call."""
    return Grid.gather(blocks.iterate(heat, WEIGHT, steps=steps))


def listed(blocks: VRDD, steps: int) -> np.ndarray:
    """Return the field after the design's listing."""
    grids = blocks
    for _ in range(steps):
        grids.halo_extract().halo_shuffle()
        grids = grids.halo_append()
        grids = grids.vmap(heat, WEIGHT).cache()
    return Grid.gather(grids)


LOOPS = {"iterate": iterated, "listing": listed}


@dataclass(frozen=True)
class LoopOutcome:
    """Outcome of a loop: its field, the seconds it took, the kills under it, the steps that were done once more, and
    the snapshots that were taken and gone back to.
    """

    field: np.ndarray
    seconds: float
    kills: tuple[str, ...]
    replayed: int
    snapshots: int
    restored: int


class Track:
    """A context whose loops are killed under.

    Parameters
    ----------
    sc : SparkContext
    nodes : tuple of Node
        Of its workers.
    """

    def __init__(self, sc: SparkContext, nodes: tuple[LocalNode, ...]):
        self.sc = sc
        self.nodes = nodes
        self.initial = np.random.default_rng(4).random(SHAPE, "f4")
        self._arena = Arena(sc, nodes, Path(), Path())

    def session(self) -> Session:
        """Return the session: all that the driver knows of its workers."""
        return self._arena.session()

    def disconnect(self) -> None:
        """Close the driver's connections."""
        gc.collect()
        assert eventually(self._arena.is_quiet), "the driver keeps connecting"

    def blocks(self) -> VRDD:
        """Return the blocks that a loop starts from."""
        return Grid(SHAPE, splits=SPLITS).scatter(self.sc, self.initial, partitions=4).cache("GPU")

    def saved(self, done: threading.Event, count: int = 2) -> bool:
        """Wait until so many more snapshots are complete; whether the loop has not ended before that."""
        snapshots = self._arena.session().snapshots
        wanted = snapshots.taken + count
        while snapshots.taken < wanted and not done.wait(0.005):
            pass
        return not done.is_set()

    def kill_process(self) -> None:
        """End the first node's device process at once."""
        self._arena.kill_process()

    def kill_node(self, number: int) -> None:
        """End a node's device process and its daemon at once."""
        node = self.nodes[number]
        for pid in [*daemon(node), *self._arena.device_processes(node)]:
            os.kill(pid, signal.SIGKILL)

    def run(self, loop: str, steps: int, kills: random.Random | None = None, most: int = 0,
            longest: float = 3.0, kinds: tuple[str, ...] = ("process", "process", "daemon"),
            again: float = 0.0) -> LoopOutcome:
        """Run a loop, and kill at most so many times.

        At random moments no farther apart than ``longest`` seconds; if that is 0, behind two snapshots each. The
        ``kinds`` are "process", "daemon", and "node" for both at once. That share of the kills which ``again`` says
        comes when the loop goes on again, as a new snapshot tells, and the others while what was killed is rebuilt too.
        """
        blocks = self.blocks()
        blocks.count()
        session = self._arena.session()
        replayed, taken, restored = session.recomputed.steps, session.snapshots.taken, session.snapshots.restored
        done, struck = threading.Event(), []

        def moment() -> bool:
            if not longest:
                return self.saved(done)
            if kills.random() < again:
                self.saved(done, 1)
            return not done.wait(kills.uniform(0.05, longest))

        def strike() -> None:
            while len(struck) < most and moment():
                kind, node = kills.choice(kinds), kills.choice(self.nodes)
                victims = self._victims(kind, node)
                for pid in victims:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                if victims:
                    struck.append(kind)

        killer = threading.Thread(target=strike)
        started = time.monotonic()
        killer.start()
        try:
            field = LOOPS[loop](blocks, steps)
        finally:
            done.set()
            killer.join()
        return LoopOutcome(field, time.monotonic() - started, tuple(struck), session.recomputed.steps - replayed,
                           session.snapshots.taken - taken, session.snapshots.restored - restored)

    def _victims(self, kind: str, node: LocalNode) -> list[int]:
        if kind == "rank":
            return self._arena.ranks(node)
        processes = daemon(node) if kind != "process" else []
        return processes + (self._arena.device_processes(node)[:1] if kind != "daemon" else [])

    def killed(self, loop: str, steps: int, kind: str) -> tuple[LoopOutcome, int]:
        """Return a loop under which something was killed behind two snapshots, and its steps.

        They are doubled while it ends before the kill is met, up to a loop of 20 seconds.
        """
        ended = self.run(loop, steps, random.Random(0), 1, longest=0, kinds=(kind,))
        while not ended.restored and ended.seconds < 20:
            steps *= 2
            ended = self.run(loop, steps, random.Random(0), 1, longest=0, kinds=(kind,))
        return ended, steps


def daemon(node: LocalNode) -> list[int]:
    """Return the process that listens as a node's daemon. Commands of others name the node too, as one of their hosts.
    """
    with socket.socket(socket.AF_UNIX) as sock:
        try:
            sock.connect(str(node.runtime_dir / "daemon.sock"))
        except OSError:
            return []
        return [struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]]


@contextlib.contextmanager
def tracks(nodes: int, options: Mapping[str, object] = OPTIONS) -> Iterator[Track]:
    """Yield a context on so many nodes."""
    start = topology.local(2) if nodes == 1 else topology.standalone(nodes)
    with start as running, opened(running, options) as track:
        yield track


@contextlib.contextmanager
def opened(running: Topology, options: Mapping[str, object] = OPTIONS) -> Iterator[Track]:
    """Yield a context on a topology, whose session is up."""
    with contextlib.ExitStack() as stack:
        if len(running.nodes) == 1:
            before = os.environ.get("VISPARK_RUNTIME_DIR")
            os.environ["VISPARK_RUNTIME_DIR"] = str(running.nodes[0].runtime_dir)
            stack.callback(_restore, before)
        stack.enter_context(clustered(running))
        with running.context(options) as sc:
            track = Track(sc, running.nodes)
            track.run("iterate", 2)
            track.disconnect()
            yield track


def _restore(before: str | None) -> None:
    os.environ.pop("VISPARK_RUNTIME_DIR", None)
    if before is not None:
        os.environ["VISPARK_RUNTIME_DIR"] = before
