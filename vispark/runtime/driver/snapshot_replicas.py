"""Placement of snapshot replicas on other nodes, so that the loss of a whole node does not lose its part."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from gpu_worker.protocol.grids import place_name
from gpu_worker.protocol.messages import CopyTo
from vispark.runtime.driver.worker import Workers
from vispark.runtime.identity import WorkerAddress


def holders(homes: Iterable[WorkerAddress], known: Iterable[WorkerAddress],
            leads: Callable[[WorkerAddress, WorkerAddress], bool]) -> dict[WorkerAddress, WorkerAddress]:
    """Assign each worker's part of a snapshot to the worker that holds the replica: the next one on another machine,
    else on the same machine.

    Parameters
    ----------
    homes : iterable of WorkerAddress
        Whose parts.
    known : iterable of WorkerAddress
        Whom they may be given to.
    leads : callable
        Whether there is a way from one to another.
    """
    ring = sorted({*homes, *known}, key=lambda home: (home.machine, home.runtime_dir))
    chosen = {}
    for home in set(homes):
        place = ring.index(home)
        others = sorted([*ring[place + 1:], *ring[:place]], key=lambda other: other.machine == home.machine)
        holder = next((other for other in others if leads(home, other)), None)
        if holder is not None:
            chosen[home] = holder
    return chosen


def owner(home: WorkerAddress) -> str:
    """Return the name of a worker's part of a snapshot at the holder of its replica."""
    return place_name(home.machine, home.runtime_dir)


def copies(workers: Workers, homes: Iterable[WorkerAddress]) -> dict[WorkerAddress, tuple[WorkerAddress, CopyTo]]:
    """Return, for each worker, the worker that its part of a snapshot is to be copied to, and the request for the copy.

    Not where one is relayed to: after the loss of a node no token says where another is that holds the copy.
    """
    homes = {home for home in homes if workers.at(home).direct}
    reachable = {worker.home for worker in workers.known() if worker.direct and not worker.gone}
    if len(homes | reachable) < 2:
        return {}

    def leads(home: WorkerAddress, other: WorkerAddress) -> bool:
        return home.machine == other.machine or workers.at(other).door() is not None

    def way(home: WorkerAddress, holder: WorkerAddress) -> CopyTo:
        if home.machine == holder.machine:
            return CopyTo(owner(home), holder.runtime_dir, None)
        return CopyTo(owner(home), "", workers.at(holder).door())

    return {home: (holder, way(home, holder)) for home, holder in holders(homes, reachable, leads).items()}
