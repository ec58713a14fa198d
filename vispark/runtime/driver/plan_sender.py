"""Sending of plans: to each worker its part, with the world in which it meets the others and the snapshot it takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pyspark import RDD

from gpu_worker.protocol import exchange_kinds
from gpu_worker.protocol.grids import World
from gpu_worker.protocol.messages import Save
from vispark.errors import VisparkError, WorldLost
from vispark.options import Options
from vispark.plan import ops
from vispark.plan.lower.executable import Executable, Invocation
from vispark.plan.ops import DatasetId, LogicalPlan
from vispark.runtime.driver.channel import Sent, TokenPlace
from vispark.runtime.driver.plan_cache import DistributedExecutable
from vispark.runtime.driver.residency import Residencies, Residency
from vispark.runtime.driver.snapshot_replicas import copies
from vispark.runtime.driver.snapshots import Snapshots
from vispark.runtime.driver.worker import Worker, Workers
from vispark.runtime.driver.worlds import OpenEnd, Worlds
from vispark.runtime.identity import WorkerAddress
from vispark.runtime.profiling import profiler as profiling


class PlanSender:
    """Sender of a session's plans.

    Parameters
    ----------
    options : Options
        Of the session.
    workers : Workers
        All that are known.
    worlds : Worlds
        In which workers exchange halos and rows.
    snapshots : Snapshots
        Of loops on grids.
    residencies : Residencies
        Gets one for each snapshot.
    """

    def __init__(self, options: Options, workers: Workers, worlds: Worlds, snapshots: Snapshots,
                 residencies: Residencies):
        self._options = options
        self._workers = workers
        self._worlds = worlds
        self._snapshots = snapshots
        self._residencies = residencies

    def send(self, loader: RDD[Any], ready: DistributedExecutable, nodes: LogicalPlan, start: DatasetId,
             residency: Residency, released: tuple[int, ...], errors: list[VisparkError] | None,
             targets: tuple[int, ...], line: str = "") -> list[tuple[Worker, Executable, Sent]]:
        """Send each worker its part of a plan; return the workers, their parts, and what was sent.

        Parameters
        ----------
        loader : RDD
            The RDD before the send.
        ready : DistributedExecutable
            The plan, lowered for each worker.
        nodes : LogicalPlan
            The operations of the plan.
        start : DatasetId
            What it starts from, which lies where ``residency`` says.
        residency : Residency
        released : tuple of int
            VRDDs that are released with it, also in workers that have no part in it.
        errors : list of VisparkError or None
            Where the errors of workers go; None: the first one is raised.
        targets : tuple of int
            VRDDs that its exchange of rows makes.
        line : str
            The user's line by which answers are noted that nobody waits for; empty where none is.

        Raises
        ------
        VisparkError
            If the workers cannot meet, or one cannot be sent its part and ``errors`` is None.
        """
        under_way: list[tuple[Worker, Executable, Sent]] = []
        values = ready.shares[0][1].values(nodes)
        numbers = (start.number, *[node.cached.number for node in nodes if node.cached], *targets)
        epochs = {home: self._workers.at(home).epoch for home, _ in ready.shares}
        worlds = self._worlds.of(epochs, nodes, self._end_opener(ready, epochs, residency), ready.exchanges)
        self._check_worlds(ready, worlds, residency)
        saves = self._saves(loader, ready, nodes, residency.tokens)
        for (home, prepared), world in zip(ready.shares, worlds, strict=True):
            worker = self._workers.at(home)
            invocation = Invocation(prepared, numbers, values.at((home, epochs[home])),
                                    profiling.current() is not None, world, saves.get(home), epochs[home], line)
            try:
                sent = worker.send(invocation, TokenPlace(residency, next(iter(prepared.results))), released)
                under_way.append((worker, prepared, sent))
            except VisparkError as error:
                if errors is None:
                    raise
                errors.append(error)
            finally:
                if not under_way or under_way[-1][0] is not worker:
                    self.end_world(invocation)
        if released:
            for worker in self._workers.known():
                if all(worker is not other for other, _, _ in under_way):
                    worker.release(released)
        return under_way

    def _end_opener(self, ready: DistributedExecutable, epochs: Mapping[WorkerAddress, int],
                    residency: Residency) -> OpenEnd | None:
        """Return a function that opens a worker's end of a world; None where the exchange needs no addresses."""
        exchange, shares = exchange_kinds.kind_of(self._options.exchange), dict(ready.shares)
        if not exchange.needs_addresses:
            return None

        def open_end(home: WorkerAddress, key: bytes) -> bytes:
            token = TokenPlace(residency, next(iter(shares[home].results)))
            epoch, address = self._workers.at(home).open_world(key, exchange.name, token)
            if epoch != epochs[home]:
                raise WorldLost(f"the plan is for the worker's process of epoch {epochs[home]}, and {epoch} is there")
            return address

        return open_end

    def _check_worlds(self, ready: DistributedExecutable, worlds: Sequence[World | None], residency: Residency) -> None:
        """Check that a world can begin before tasks wait for it, as these cannot be told of a failure."""
        if not any(worlds) or not self._workers.relays:
            return
        for (home, prepared), world in zip(ready.shares, worlds, strict=True):
            if world is not None and not world.addresses and (world.rank, world.turn) == (0, 0):
                try:
                    token = TokenPlace(residency, next(iter(prepared.results)))
                    self._workers.at(home).check_world_nodes(world.workers, token)
                except VisparkError:
                    self._worlds.renew()
                    raise

    def _saves(self, loader: RDD[Any], ready: DistributedExecutable, nodes: LogicalPlan,
               tokens: RDD[Any] | None) -> dict[WorkerAddress, Save]:
        """Return the snapshot request for each worker, if a plan is a step of a loop on a grid and a snapshot is due;
        else none.

        It lies where the ``tokens`` of what the plan starts from are.
        """
        last = nodes[-1].cached if nodes else None
        target = self._residencies.get(last.number) if last else None
        if target is None or not ready.kept or profiling.current() \
                or not any(ops.needs_neighbours(nodes, position) for position in range(len(nodes))):
            return {}
        nbytes = ready.kept[-1].nbytes
        homes = [home for home, _ in ready.shares]
        epochs = {worker.home: worker.epoch for worker in self._workers.known() if not worker.gone}
        epochs |= {home: self._workers.at(home).epoch for home in homes}
        if not self._snapshots.is_due(loader, nbytes, epochs):
            return {}
        residency = self._residencies.new(f"a snapshot of {last}")
        assert last is not None
        residency.tokens, target.saved = tokens, residency.cached
        replicas = copies(self._workers, homes)
        save = self._snapshots.begin(loader, residency, last.number, dict(ready.kept[-1].homes), nbytes, epochs,
                                    {home: holder for home, (holder, _) in replicas.items()})
        return {home: replace(save, copy=replicas[home][1] if home in replicas else None) for home in homes}

    def end_world(self, invocation: Invocation) -> None:
        """End the world in the workers that may wait for the one of a plan that failed.

        Those that are relayed to cannot be told: it ends for them as the one that failed leaves it.
        """
        world = invocation.world
        if world is None:
            return
        members = [self._workers.at(home) for home in self._worlds.end(world)]
        others = [member for rank, member in enumerate(members) if rank != world.rank]
        for member in others if all(member.direct for member in others) else members:
            member.abandon(world.key)
