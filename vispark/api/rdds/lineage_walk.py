"""Lineage of a VRDD: the operations up to it, and which of their results are kept."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

from pyspark import RDD

from vispark.plan import ops
from vispark.plan.ops import CompressedLineage, DatasetId, Lineage, LogicalPlan, PlanNode
from vispark.runtime.driver.recovery import is_held
from vispark.runtime.driver.residency import Residency
from vispark.runtime.driver.session import Session
from vispark.runtime.executor.tasks import Receive


class LineageWalk(RDD[Any]):
    """Lineage of a VRDD: the VRDDs before it, and the operations of those that are forgotten."""

    _op: ops.RecordedOperation
    _origin: RDD[Any]
    _before: Any
    _lineage: Lineage | None
    _residency: Residency | None
    #: The chain's end up to here, while this is kept.
    _end: LogicalPlan | None = None
    #: How often the start of some lineage was set anew, by a checkpoint: in all, and when the origin was looked up.
    _starts = 0
    _counting = threading.Lock()
    _looked_up: int = 0

    def _chain(self, is_enough: Callable[[PlanNode], bool] | None = None) -> LogicalPlan:
        """Return the plan up to here: from the send on, or from the last node whose result is enough to start from and,
        before that node, as far back as its place is decided.
        """
        nodes: list[PlanNode] = []
        is_complete = False
        for node in self._nodes():
            nodes.append(node)
            is_complete = is_complete or (is_enough is not None and is_enough(node))
            if is_complete and not node.op.passes_on:
                return tuple(reversed(nodes))
        return ops.verify(tuple(reversed(nodes)))

    def _nodes(self) -> Iterator[PlanNode]:
        """Yield the operations with their cached results and snapshots, newest first."""
        vrdd: LineageWalk | None = self
        while vrdd is not None:
            residency = vrdd._residency
            yield PlanNode(vrdd._op, residency.cached, residency.saved) if residency else PlanNode(vrdd._op)
            last, vrdd = vrdd, vrdd._before
        if last._lineage is not None:
            yield from last._lineage.nodes()

    def _is_narrowed(self) -> bool:
        """Return whether the operations since the last computed result take keys or values; Spark takes items of the
        records itself then.
        """
        for op in self._backwards():
            if not op.passes_on:
                break
            if op.item:
                return True
        return False

    def _keep_attached(self) -> None:
        """Keep the nearest cached result in the workers without a reference to it, if it comes from a publication: a
        DataFrame holds none, and there is no lineage to compute it from.
        """
        *_, first = self._backwards()
        vrdd: LineageWalk | None = self if first.publication is not None else None
        while vrdd is not None and vrdd._residency is None:
            vrdd = vrdd._before
        if vrdd is not None and vrdd._residency is not None:
            vrdd._residency.keep()

    def _backwards(self) -> Iterator[ops.RecordedOperation]:
        """Yield the operations, newest first."""
        vrdd: LineageWalk | None = self
        while vrdd is not None:
            yield vrdd._op
            last, vrdd = vrdd, vrdd._before
        yield from last._earlier()

    def _earlier(self) -> Iterator[ops.RecordedOperation]:
        """Return an iterator over the operations before this VRDD that are left as lineage, newest first."""
        return self._lineage.newest_first() if self._lineage else iter(())

    @property
    def _loader(self) -> RDD[Any]:
        """The RDD that was sent, or its checkpoint once it has one."""
        starts = LineageWalk._starts      # before the origin, which may change meanwhile
        if self._before is not None and self._looked_up != starts:
            self._origin = self._first._origin
            self._looked_up = starts
        return self._origin

    def _compressed(self) -> CompressedLineage:
        """Return the compressed lineage of all operations, with their cached results."""
        return (*(self._first._lineage.compressed() if self._first._lineage else ()), (tuple(self._since()), 1))

    def _since(self) -> list[PlanNode]:
        """Return the operations of the VRDDs that still exist, with their cached results, oldest first."""
        nodes = []
        vrdd: LineageWalk | None = self
        while vrdd is not None:
            nodes.append(PlanNode(vrdd._op, vrdd._residency.cached if vrdd._residency else None))
            vrdd = vrdd._before
        return nodes[::-1]

    @property
    def _first(self) -> LineageWalk:
        """The oldest VRDD of the lineage that is not forgotten."""
        vrdd = self
        while vrdd._before is not None:
            vrdd = vrdd._before
        return vrdd

    def _reaches(self) -> bool:
        """Return whether an operation reads neighbours' cells."""
        lineage = self._first._lineage
        return (lineage is not None and lineage.reaches) or any(ops.reaches(node.op) for node in self._since())

    def _link(self) -> Lineage:
        """Return the lineage up to this operation, without cached results."""
        operations = [self._op]
        vrdd = self
        while vrdd._before is not None:
            vrdd = vrdd._before
            operations.append(vrdd._op)
        oldest_first = tuple(reversed(operations))
        saved = vrdd._residency.saved if vrdd._residency else None
        if vrdd._lineage is None:
            return Lineage(oldest_first, saved=saved)
        return vrdd._lineage.extended(oldest_first, saved,
                                      lambda saved: saved.number in Session.of(self.ctx).residencies)

    def _recent(self) -> LogicalPlan:
        """Return the end of the chain, from the operation that fixes the place of the nearest cached result; all of the
        chain if none is cached.

        What comes before counts only where something has to be computed anew.
        """
        nodes: list[PlanNode] = []
        vrdd: LineageWalk | None = self
        while vrdd is not None and vrdd._residency is None:
            nodes.append(PlanNode(vrdd._op))
            last, vrdd = vrdd, vrdd._before
        nodes.reverse()
        if vrdd is not None:
            return (*vrdd._kept_end(), *nodes)
        return (*reversed([PlanNode(op) for op in last._earlier()]), *nodes)

    def _kept_end(self) -> LogicalPlan:
        """Return the last nodes of the plan, back to the one that fixes the result's place; computed once, as loops
        start from the result in every pass.
        """
        cached = self._residency.cached if self._residency else None
        if self._end is not None and self._end[-1].cached is cached:
            return self._end
        nodes = [PlanNode(self._op, cached)]
        for node in self._before_here():
            if not nodes[-1].op.passes_on:
                break
            nodes.append(node)
        self._end = end = tuple(reversed(nodes))
        return end

    def _before_here(self) -> Iterator[PlanNode]:
        """Yield the nodes before this one, newest first."""
        last, vrdd = self, self._before
        while vrdd is not None:
            yield PlanNode(vrdd._op, vrdd._residency.cached if vrdd._residency else None)
            last, vrdd = vrdd, vrdd._before
        for op in last._earlier():      # a long loop has many, of which few are wanted
            yield PlanNode(op)

    def _nearest(self) -> DatasetId:
        """Return the nearest cached result; at least one must be cached."""
        vrdd: LineageWalk = self
        while vrdd._residency is None:
            vrdd = vrdd._before
        return vrdd._residency.cached

    def _held(self) -> LogicalPlan:
        """Return the chain from the last operation whose result workers hold."""
        session, everything = Session.of(self.ctx), range(self.getNumPartitions())
        return self._chain(lambda node: is_held(session, node, everything))

    def _receive(self, chain: LogicalPlan) -> Receive:
        """Return the task that gives a partition's records to Spark, from the chain's start if it is held, or else from
        the send on.
        """
        session = Session.of(self.ctx)
        return Receive(session.credentials, chain, session.places(self._since()), self._compressed())

    def _waiting(self) -> list[Residency]:
        """Return the cached results that are not computed yet, newest first, followed by the nearest computed one;
        empty if none is computed.

        Nothing either where a loop of unknown length comes behind it.
        """
        waiting: list[Residency] = []
        partitions = self.getNumPartitions()
        vrdd: LineageWalk | None = self
        while vrdd is not None and vrdd._op.loop is None:
            if vrdd._residency is not None:
                waiting.append(vrdd._residency)
                if len(vrdd._residency.contents) == partitions:
                    return waiting
            vrdd = vrdd._before
        return []
