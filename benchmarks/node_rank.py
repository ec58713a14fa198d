"""A node of benchmarks.nodes: benchmarks.node_rank GIVEN, which is JSON; prints its samples as JSON, and ends with its
input.

It does what a device process does of a loop on its part of a grid, in a world that its node's daemon helps to make.
"""

from __future__ import annotations

import json
import struct
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from benchmarks import heat, overlap
from gpu_worker.device.cache import KernelCache
from gpu_worker.device.host.device import HostDevice
from gpu_worker.exchange.base import JoinedWorld, Staged
from gpu_worker.exchange.mpi.world import join
from gpu_worker.protocol.grids import World as Wanted

#: Until when all must be done.
_SECONDS = 600


class TimedWorld:
    """A world, and how long messages were on their way in it and were waited for."""

    def __init__(self, world: JoinedWorld):
        self._world = world
        self.travelled = self.waited = 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._world, name)

    def start(self, staged: Staged, ready: Callable[[], None]) -> Future:
        """Start as the world does; cells are packed by then."""
        began = time.perf_counter()

        def ended(_: Future) -> None:
            self.travelled += time.perf_counter() - began

        moving = self._world.start(staged, ready)
        moving.add_done_callback(ended)
        return moving

    def result(self, future: Future) -> Any:
        began = time.perf_counter()
        messages = self._world.result(future)
        self.waited += time.perf_counter() - began
        return messages


def main(key: str, rank: int, workers: list[str], cube: dict, samples: int) -> None:
    """Print the seconds of each sample, which are those of the node that took longest; the bytes given to MPI in one,
    and the seconds of each in which messages were on their way, and in which this node waited for them.
    """
    solver = heat.solver(heat.Cube(tuple(cube["shape"]), tuple(cube["splits"]), cube["steps"]))
    deadline = time.monotonic() + _SECONDS
    world = TimedWorld(join(Wanted(bytes.fromhex(key), rank, tuple(workers), 0), deadline))
    world.begin(deadline)
    device = HostDevice("host:0", cache=KernelCache())
    try:
        with overlap.loops(solver, [device], world) as cases:
            seconds: dict[str, list[float]] = {name: [] for name in cases}
            travelled: dict[str, list[float]] = {name: [] for name in cases}
            waited: dict[str, list[float]] = {name: [] for name in cases}
            sent: dict[str, int] = {}
            for turn in range(samples + 1):
                for name, run in cases.items():
                    world.gather(b"")
                    before, world.travelled, world.waited, began = world.sent, 0.0, 0.0, time.perf_counter()
                    run()
                    took = struct.pack("d", time.perf_counter() - began)
                    sent[name] = world.sent - before
                    parts = world.travelled, world.waited
                    longest = max(struct.unpack("d", each)[0] for each in world.gather(took))
                    if turn:        # the first one compiles
                        seconds[name].append(longest)
                        travelled[name].append(parts[0])
                        waited[name].append(parts[1])
            print(json.dumps({"samples": seconds, "sent": sent, "travelled": travelled, "waited": waited}), flush=True)
            sys.stdin.read()        # the world ends with the first one that leaves
    finally:
        world.close()
        device.close()


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
