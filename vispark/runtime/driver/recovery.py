"""Recovery of a long loop on a grid: recomputation from the newest snapshot on, in short parts.

A halo makes every partition depend on every other, so all of them go back to the same step. Parts are kept one after
the other, as the loop itself keeps its steps; a loss on the way costs what came after the newest snapshot once more.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from pyspark import RDD

from vispark.errors import OutOfMemory, PartitionMissing, VisparkError, WorkerLost, WorkerUnavailable
from vispark.plan import ops
from vispark.plan.loop_call import LoopSpec
from vispark.plan.ops import DatasetId, LineageWalker, LogicalPlan, PlanNode
from vispark.runtime.driver.channel import TokenPlace
from vispark.runtime.driver.loop_pacing import ChunkController
from vispark.runtime.driver.residency import Residency
from vispark.runtime.driver.retry import Recomputed
from vispark.runtime.driver.snapshot_replicas import owner
from vispark.runtime.driver.snapshots import Snapshot, Snapshots
from vispark.runtime.driver.worker import Workers
from vispark.runtime.identity import WorkerAddress

log = logging.getLogger(__name__)

#: The operations that are computed at once, but for loops.
_AT_ONCE = 32


class Holding(Protocol):
    """Interface of a session for recovery: the content that its workers hold, and the connections to the workers.

    """

    snapshots: Snapshots
    workers: Workers
    recomputed: Recomputed

    @property
    def residencies(self) -> Mapping[int, Residency]:
        """The residencies of cached results, by number."""

    def residency(self, name: str) -> Residency:
        """Return a residency with a new number."""

    def missing(self, residency: Residency, partitions: Iterable[int]) -> list[int]:
        """Return the partitions that no worker holds, as far as is known."""

    def materialise(self, loader: RDD[Any], trail: LineageWalker, wanted: DatasetId, partitions: Sequence[int]) -> None:
        """Compute a node's content in the partitions that no worker holds."""

    def computed(self, loader: RDD[Any], chain: LogicalPlan, start: DatasetId, partitions: Sequence[int]) -> None:
        """Compute a chain's cached results from a node that workers hold."""


def computable_from(session: Holding, wanted: DatasetId, partitions: Sequence[int]) -> Callable[[PlanNode], bool]:
    """Return a predicate of nodes, asked the last one first: whether partitions of the wanted node can be computed from
    the node.
    """
    is_before = False

    def is_enough(node: PlanNode) -> bool:
        nonlocal is_before
        is_before = is_before or (node.cached is not None and node.cached.number == wanted.number)
        return is_before and (is_held(session, node, partitions) or session.snapshots.find(node.saved) is not None)

    return is_enough


def is_held(session: Holding, node: PlanNode, partitions: Sequence[int]) -> bool:
    """Return whether workers hold a node's result in some partitions, as far as is known."""
    residency = session.residencies.get(node.cached.number) if node.cached else None
    return residency is not None and not session.missing(residency, partitions)


@dataclass(frozen=True)
class Position:
    """Position of a recovery in a chain: the last node that is done, and the steps done of a loop behind that node."""

    position: int
    steps: int
    residency: Residency


@dataclass(frozen=True)
class SnapshotAt:
    """Snapshot of a loop's state at a position of the chain."""

    position: int
    steps: int
    saved: DatasetId


class Recovery:
    """Recovery of the content of a chain's last node.

    Parameters
    ----------
    session : Holding
    loader : RDD
        The RDD before the send.
    chain : LogicalPlan
        From the send, or from what is held or saved. Its last node is to be kept, and something on the way needs
        neighbours.
    """

    def __init__(self, session: Holding, loader: RDD[Any], chain: LogicalPlan):
        self._session = session
        self._loader = loader
        self._everything = range(loader.getNumPartitions())
        self._take(chain)
        self._base: Residency | None = None
        self._point: Position | None = None
        self._marks: list[SnapshotAt] = []
        self._pace = ChunkController()

    def _take(self, chain: LogicalPlan) -> None:
        self._chain = chain
        #: The first node that may be started from in all partitions alone.
        self._first = 0 if ops.is_cut(chain) else next(
            position for position in range(len(chain)) if ops.needs_neighbours(chain, position))
        #: The last node that was there once; what comes behind it is not computed anew.
        self._was_there = max((index for index, node in enumerate(chain) if self._has_been(node)), default=-1)

    def run(self, whole: Callable[[], LogicalPlan]) -> None:
        """Compute the content; after an error, another call continues from the last position that is done.

        ``whole`` gives the chain from the send on, for the case that what it begins with is lost, too.

        Raises
        ------
        VisparkError
            If something is lost under it, or fails.
        """
        point = self._start(whole)
        if self._was_there > point.position:
            log.warning("what was lost is computed anew for VRDD %s: %d operations behind %s", self._chain[-1].cached,
                        self._was_there - point.position, self._chain[point.position].op)
        while point.position < len(self._chain) - 1:
            point = self._point = self._advanced(point)
            self._session.recomputed.parts += 1
            residencies = self._session.residencies
            self._marks = [mark for mark in self._marks if mark.saved.number in residencies]
            if point.residency.saved is not None:
                self._marks.append(SnapshotAt(point.position, point.steps, point.residency.saved))

    # -- where to start -----------------------------------------------------------------------------------------------

    def _start(self, whole: Callable[[], LogicalPlan]) -> Position:
        """Return the latest position whose content is held, or can be restored from a snapshot; else that of the RDD's
        records.
        """
        if self._point is not None and not self._is_missing(self._point.residency):
            return self._point
        position = self._latest()
        if position is None and ops.is_cut(self._chain):
            self._point, self._marks = None, []         # nothing of which can be had
            self._take(whole())
            position = self._latest()
        return position or self._loaded()

    def _latest(self) -> Position | None:
        for position in range(len(self._chain) - 1, self._first - 1, -1):
            node = self._chain[position]
            for mark in reversed(self._marks):
                if mark.position == position:
                    restored = self._restored(mark.saved, None, node)
                    if restored is not None:
                        return Position(position, mark.steps, restored)
            residency = self._session.residencies.get(node.cached.number) if node.cached else None
            if residency is not None and not self._is_missing(residency):
                return Position(position, 0, residency)
            restored = self._restored(node.saved, residency, node)
            if restored is not None:
                return Position(position, 0, restored)
        return None

    def _has_been(self, node: PlanNode) -> bool:
        residency = self._session.residencies.get(node.cached.number) if node.cached else None
        return residency is not None and bool(residency.contents)

    def _is_missing(self, residency: Residency) -> bool:
        return bool(self._session.missing(residency, self._everything))

    def _restored(self, saved: DatasetId | None, residency: Residency | None, node: PlanNode) -> Residency | None:
        """Restore a snapshot, if it is still held, under the node's own number if there is one; None if it cannot be
        restored.
        """
        session = self._session
        snapshot = session.snapshots.find(saved)
        if snapshot is None or not snapshot.places.keys() >= set(self._everything):
            return None
        target = residency or session.residency(str(node.op))
        try:
            for home in set(snapshot.places.values()):
                self._take_back(snapshot, home, target)
            target.tokens = target.tokens or snapshot.residency.tokens
        except (PartitionMissing, WorkerUnavailable, OutOfMemory) as error:
            log.warning("a snapshot is gone, and what came before it is computed anew: %s", error)
            session.snapshots.forget(snapshot)
            return None
        if self._is_missing(target):
            session.snapshots.forget(snapshot)
            return None
        session.snapshots.restored += 1
        log.info("went back to the snapshot of %.1f s ago", time.monotonic() - snapshot.began)
        return target

    def _take_back(self, snapshot: Snapshot, home: WorkerAddress, target: Residency) -> None:
        """Restore a worker's part of a snapshot there, or, if that part is lost, at the holder of its replica."""
        worker, holder = self._session.workers.at(home), snapshot.holders.get(home)
        partition = next(partition for partition, place in snapshot.places.items() if place == home)
        token = TokenPlace(snapshot.residency, partition)
        try:
            target.bind(home, *worker.restore(snapshot.number, target.cached, token))
            return
        except (PartitionMissing, WorkerUnavailable, WorkerLost) as error:
            if isinstance(error, WorkerLost) and not worker.gone:
                raise
            if holder is None:
                if isinstance(error, WorkerLost):
                    raise WorkerUnavailable(f"the node of a snapshot is not there: {error.message}") from error
                raise
            log.warning("a node has lost its part of a snapshot, and another one takes its place: %s", error)
        try:
            target.bind(holder, *self._session.workers.at(holder).restore(
                snapshot.number, target.cached, token, owner(home)))
        except WorkerLost:
            raise
        except VisparkError as error:           # There may be no room for it beside the holder's own part.
            raise PartitionMissing(f"the copy of a node's part of a snapshot cannot be had: {error.message}") from error

    def _loaded(self) -> Position:
        """Return the position before the first operation that needs neighbours, loading its content if no worker holds
        it.
        """
        session, chain = self._session, self._chain
        cached = [index for index, node in enumerate(chain[:self._first])
                  if node.cached and node.cached.number in session.residencies]
        last = max(cached, default=self._first - 1)
        if not cached:
            self._base = self._base or session.residency("the grid before its neighbours are needed")
            chain = (*chain[:last], PlanNode(chain[last].op, self._base.cached))
        session.materialise(self._loader, lambda _=None: chain[:last + 1], chain[last].dataset, self._everything)
        return Position(last, 0, session.residencies[chain[last].dataset.number])

    # -- parts --------------------------------------------------------------------------------------------------------

    def _advanced(self, point: Position) -> Position:
        """Compute the next part, and return the position after it."""
        position = point.position + 1
        node, is_last = self._chain[position], position == len(self._chain) - 1
        loop = node.op.loop
        if loop is not None and not is_last and node.cached is None:
            return self._looped(point, loop)
        stop = position
        if loop is None:
            while stop + 1 < min(position + _AT_ONCE, len(self._chain)) \
                    and self._chain[stop + 1].op.loop is None:
                stop += 1
        target = self._target(stop)
        self._round(point, (*self._chain[position:stop], PlanNode(self._chain[stop].op, target.cached)))
        self._session.recomputed.steps += sum(ops.needs_neighbours(self._chain, each)
                                      for each in range(position, min(stop, self._was_there) + 1))
        return Position(stop, 0, target)

    def _looped(self, point: Position, spec: LoopSpec) -> Position:
        """Compute some steps of a loop, and return the position after them."""
        target = self._session.residency(spec.label)
        target.pace = self._pace
        done = spec.done + point.steps
        part = spec.part(self._pace.part(spec.steps - point.steps, done, spec.period), done)
        self._round(point, (PlanNode(ops.Iterate(part), target.cached),))
        ended = target.iterated
        assert ended is not None
        self._session.recomputed.steps += ended.steps
        done = point.steps + ended.steps
        if done >= spec.steps or ended.steps < part.steps or 0 <= ended.change <= spec.until:
            return Position(point.position + 1, 0, target)
        return Position(point.position, done, target)

    def _target(self, position: int) -> Residency:
        """Return the residency for a node's content."""
        node = self._chain[position]
        residency = self._session.residencies.get(node.cached.number) if node.cached else None
        return residency or self._session.residency(str(node.op))

    def _round(self, point: Position, nodes: LogicalPlan) -> None:
        """Compute the nodes after a position."""
        before = point.position
        op = self._chain[before + 1].op if point.steps else self._chain[before].op
        while before and self._chain[before].op.passes_on:
            before -= 1
        context = [replace(node, cached=None) for node in self._chain[before:point.position]]
        chain = (*context, PlanNode(op, point.residency.cached), *nodes)
        self._session.computed(self._loader, chain, point.residency.cached, self._everything)
