"""Cache of a session's plans, so that a loop's later passes only bind their values.

A plan depends on the operations' shapes (``key`` of :mod:`vispark.plan.operation`), on what is wanted, and on
what the content that it starts from looks like and where it is: not on VRDDs' numbers, nor on the values of arguments.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from gpu_worker.protocol.messages import FoldByKeyStep, FoldStep
from vispark._utils.bounded import BoundedCache
from vispark.data.records.partition_schema import PartitionSchema
from vispark.plan.lower.executable import Executable
from vispark.plan.lower.grid import lowering
from vispark.plan.lower.stages import RequestedOutput
from vispark.plan.ops import DatasetId, LogicalPlan, PlanNode, place_of
from vispark.runtime.identity import WorkerAddress

#: The most plans that are kept, and the most of one shape whose kernels were made for other numbers.
_PLANS = 256
_ALIKE = 8


@dataclass(frozen=True)
class PlacementKey:
    """Cache key of content and placement by partition: schemas and workers' addresses; its hash is computed once."""

    homes: tuple[tuple[int, WorkerAddress], ...]
    contents: tuple[PartitionSchema, ...]
    hashed: int = field(default=0, compare=False, repr=False)

    @classmethod
    def of(cls, homes: Mapping[int, WorkerAddress], contents: Mapping[int, PartitionSchema]) -> PlacementKey:
        """Return the key of the partitions that are in ``homes``."""
        partitions = sorted(homes)
        where = tuple([(partition, homes[partition]) for partition in partitions])
        what = tuple([contents[partition] for partition in partitions])
        return cls(where, what, hash((where, what)))

    def __hash__(self) -> int:
        return self.hashed

    @cached_property
    def nbytes(self) -> int:
        """Size of the content in bytes."""
        return sum(content.nbytes for content in self.contents)


@dataclass(frozen=True)
class DistributedExecutable:
    """Executable plans of one chain, one for each worker.

    Attributes
    ----------
    shares : tuple of (WorkerAddress, Executable)
        Where each part of it goes.
    fold : FoldStep, FoldByKeyStep or None
        The fold at the end.
    reason : str
        Why that cannot run in the workers, where it cannot; then there are no shares.
    kept : tuple of PlacementKey
        What everything that is kept looks like, if the plan is for all partitions.
    exchanges : bool
        Whether workers exchange rows with each other.
    """

    shares: tuple[tuple[WorkerAddress, Executable], ...]
    fold: FoldStep | FoldByKeyStep | None
    reason: str
    kept: tuple[PlacementKey, ...]
    exchanges: bool = False

    def fits(self, nodes: LogicalPlan) -> bool:
        """Return whether the kernels were compiled for the numbers in these operations."""
        return not self.shares or self.shares[0][1].fits(nodes)


class PlanCache:
    """Cache of the plans of one session; bounded."""

    def __init__(self) -> None:
        self._plans: BoundedCache[tuple[DistributedExecutable, ...]] = BoundedCache(_PLANS)
        self._shapes: OrderedDict[PlacementKey, PlacementKey] = OrderedDict()
        self._lock = threading.Lock()
        #: What was asked for last, and the plan.
        self._last: tuple[Hashable, DistributedExecutable] = (None, DistributedExecutable((), None, "", ()))
        #: How many plans were worked out.
        self.made = 0

    def shape(self, homes: Mapping[int, WorkerAddress], contents: Mapping[int, PartitionSchema]) -> PlacementKey:
        """Return the placement key of content; equal keys are one object."""
        key = PlacementKey.of(homes, contents)
        with self._lock:
            cached = self._shapes.setdefault(key, key)
            self._shapes.move_to_end(key)
            while len(self._shapes) > _PLANS:
                self._shapes.popitem(last=False)
        return cached

    def ready(self, chain: LogicalPlan, start: DatasetId, nodes: LogicalPlan, shape: PlacementKey,
              requested: RequestedOutput,
              partitions: Sequence[int], shared_limit: int) -> DistributedExecutable:
        """Return the plan for some partitions of content with a placement key.

        Parameters
        ----------
        chain : LogicalPlan
            At least from the operation on that says where the content of ``start`` lies.
        nodes : LogicalPlan
            The part of it behind ``start``.
        shared_limit : int
            The bytes of shared memory that thread blocks can have wherever it runs.

        Raises
        ------
        PlanError
            If it cannot be run as written.
        """
        which = partitions if isinstance(partitions, range) else tuple(partitions)
        key = (tuple([_key(node, chain, nodes) for node in nodes]), requested, which, shared_limit, shape)
        before, last = self._last
        if key == before and last.fits(nodes):      # which takes less than hashing it
            return last
        alike = self._plans.get(key) or ()
        for ready in alike:
            if ready.fits(nodes):
                self._last = key, ready
                return ready
        ready = self._lower(chain, start, shape, requested, partitions, shared_limit)
        with self._lock:
            self.made += 1
        self._plans.put(key, (ready, *alike)[:_ALIKE])
        return ready

    def _lower(self, chain: LogicalPlan, start: DatasetId, shape: PlacementKey, requested: RequestedOutput,
               partitions: Sequence[int],
               shared_limit: int) -> DistributedExecutable:
        homes = dict(shape.homes)
        contents = dict(zip(homes, shape.contents, strict=True))
        work = lowering(chain, start, requested, shape.contents, shared_limit)
        shares: dict[WorkerAddress, list[int]] = {}
        for partition in partitions:
            work.add(partition, contents[partition])
            shares.setdefault(homes[partition], []).append(partition)
        reason = work.finish()
        if reason:
            return DistributedExecutable((), None, reason, ())
        prepared = tuple([(home, work.prepare(here)) for home, here in shares.items()])
        whole = len(partitions) == len(homes) and prepared      # an RDD may have no partitions
        shapes = tuple([self.shape(homes, {partition: content for _, share in prepared
                                           for partition, content in share.kept[number].items()})
                        for number in range(len(prepared[0][1].kept))]) if whole else ()
        assert not isinstance(work.fold, str)
        return DistributedExecutable(prepared, work.fold, "", shapes,
                                     requested.exchanges)


def _key(node: PlanNode, chain: LogicalPlan, nodes: LogicalPlan) -> Hashable:
    """Return the part of a node that a plan's cache key consists of."""
    if node.cached is None:
        return node.op.key
    position = next(index for index, each in enumerate(chain) if each is node)
    return node.op.key, node.cached.name, place_of(chain[:position + 1])

