"""A node of benchmarks.exchanges: benchmarks.exchange_rank GIVEN, which is JSON; prints its address where its exchange
has one, then its samples as JSON, and ends with its input. On stderr it says how far it is; one that does not get
further for a minute prints where each of its threads is, and ends.
"""

from __future__ import annotations

import faulthandler
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from gpu_worker.device import open_devices
from gpu_worker.device.base import Device
from gpu_worker.exchange.base import JoinedWorld, MessageSpec
from gpu_worker.protocol import exchange_kinds
from gpu_worker.protocol.grids import World as Wanted

#: Until when all must be done, how long a part of it may take, and how many exchanges are not measured before others.
_SECONDS, _PATIENCE, _FIRST = 300, 60, 20


def reached(rank: int, what: str) -> None:
    """Say how far a rank is; whoever is not further in time is ended with the stacks of its threads on stderr."""
    print(f"  {time.monotonic() - _BEGAN:6.1f} s, rank {rank}, process {os.getpid()}: {what}", file=sys.stderr,
          flush=True)
    faulthandler.dump_traceback_later(_PATIENCE, exit=True)


_BEGAN = time.monotonic()


def joined(exchange: str, key: bytes, rank: int, workers: list[str], deadline: float) -> JoinedWorld:
    """Join the world of both nodes."""
    kind = exchange_kinds.kind_of(exchange)
    if not kind.needs_addresses:
        return kind.load()(Wanted(key, rank, tuple(workers)), deadline, lambda: False)
    opened = kind.load()()
    reached(rank, "UCX has begun")
    print(opened.address.hex(), flush=True)
    addresses = tuple(bytes.fromhex(each) for each in sys.stdin.readline().split())
    return opened.join(Wanted(key, rank, tuple(workers), 0, addresses), deadline)


def swapping(world: JoinedWorld, device: Device, nbytes: int) -> tuple[Callable[[], Any], Callable[[], None]]:
    """Return the swap of a face with the other node, from the device's memory to the other's, and the check of it."""
    part, stream = MessageSpec(device, 1 - world.rank, 7, nbytes), device.stream()
    staged = world.stage([part], [part])
    (leaving,), (taken,) = staged.sends, staged.receives
    buffer = device.allocate(nbytes, stream=stream)
    face = np.full(nbytes, 1 + world.rank, np.uint8)
    device.copy_in(leaving.buffer or buffer, face, stream=stream)
    device.synchronize(stream=stream)

    def ready() -> None:
        if leaving.host is not None:
            device.copy_out(leaving.host, buffer, stream=stream)
        device.synchronize(stream=stream)

    def swap() -> None:
        world.result(world.start(staged, ready))
        if taken.host is not None:
            device.copy_in(buffer, taken.host, stream=stream)
            device.synchronize(stream=stream)

    def compare() -> None:
        device.copy_out(face, taken.buffer or buffer, stream=stream)
        device.synchronize(stream=stream)
        if not (face == 2 - world.rank).all():
            raise SystemExit(f"rank {world.rank} has another face of {nbytes:,} bytes than was sent")

    return swap, compare


def main(exchange: str, key: str, rank: int, workers: list[str], sizes: list[int], samples: int, device: str,
         addresses: list[str]) -> None:
    """Print the seconds of each swap of a face of each size."""
    deadline, rounds = time.monotonic() + _SECONDS, []
    reached(rank, f"begins, CUDA_VISIBLE_DEVICES={os.environ.get('CUDA_VISIBLE_DEVICES')}, addresses={addresses}")
    (where,) = open_devices(device, memory=0, cache_dir="", addresses=addresses)
    reached(rank, f"{where.name} is open")
    world = joined(exchange, bytes.fromhex(key), rank, workers, deadline)
    world.begin(deadline)
    reached(rank, "the world is there")
    for nbytes in sizes:
        swap, compare = swapping(world, where, nbytes)
        reached(rank, f"memory for {nbytes:,} bytes is registered")
        taken = []
        for _ in range(_FIRST + samples):
            world.gather(b"")
            began = time.perf_counter()
            swap()
            taken.append(time.perf_counter() - began)
            if len(taken) == 1:
                compare()
                reached(rank, "a face has come")
        rounds.append(taken[_FIRST:])
    faulthandler.cancel_dump_traceback_later()
    print(json.dumps(rounds), flush=True)
    sys.stdin.read()        # the world ends with the first one that leaves
    world.close()
    where.close()


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
