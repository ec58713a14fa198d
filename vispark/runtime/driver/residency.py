"""Residency of content that workers hold under one number, as the driver knows it, and its release."""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from pyspark import RDD

from gpu_worker.protocol.errors import KeysRefused
from gpu_worker.protocol.grids import Iterated
from gpu_worker.protocol.messages import Ran
from vispark.data.records.partition_schema import PartitionSchema
from vispark.plan.ops import DatasetId, LogicalPlan
from vispark.runtime.driver.channel import LOST, Sent
from vispark.runtime.driver.loop_pacing import ChunkController
from vispark.runtime.driver.plan_cache import PlacementKey, PlanCache
from vispark.runtime.driver.release_queue import Released
from vispark.runtime.driver.worker import Worker
from vispark.runtime.identity import PartitionHandle, WorkerAddress


class Residency:
    """Residency of one VRDD number's content in workers. Dropping the last reference lets the workers forget the
    content.

    Attributes
    ----------
    cached : DatasetId
        The number and the name.
    places : dict of int to (WorkerAddress, int)
        Where each partition is, and the epoch of the process that got it.
    contents : dict of int to PartitionSchema
        What each partition looks like.
    pending : tuple of (Worker, Sent)
        The plans that are to bring it, where their answers were not taken yet; it counts as held meanwhile.
    unsure : set of WorkerAddress
        The workers that may hold some of it all the same: the connection broke before they could say so.
    tokens : RDD or None
        Tokens in Spark's storage, whose tasks come to the nodes that hold the partitions: of this content, or of that
        which it was made of.
    iterated : Iterated or None
        How the loop ended whose result it is.
    pace : ChunkController or None
        Told what the loop took in a worker.
    saved : DatasetId or None
        The snapshot that was begun of it.
    exchange : callable or None
        Has workers make it of other content by their keys, or says why they do not, and is None then: Spark is to.
    copies : frozenset of (WorkerAddress, int)
        The processes that hold all of it: a table, which each worker has that folded some of it.
    """

    #: How often some content came, of any number.
    came: ClassVar[int] = 0
    exchange: Callable[[], None] | None = None
    copies: frozenset[tuple[WorkerAddress, int]] = frozenset()

    def __init__(self, released: Released, cached: DatasetId):
        self.iterated: Iterated | None = None
        self.pace: ChunkController | None = None
        self.cached = cached
        self.places: dict[int, tuple[WorkerAddress, int]] = {}
        self.contents: dict[int, PartitionSchema] = {}
        self.pending: tuple[tuple[Worker, Sent], ...] = ()
        #: What the plans in ``pending`` compute.
        self.chain: LogicalPlan = ()
        self.unsure: set[WorkerAddress] = set()
        self.tokens: RDD[PartitionHandle] | None = None
        self.saved: DatasetId | None = None
        self.lock = threading.RLock()
        #: Held while the places change, by whichever thread takes an answer; they are replaced, and never changed as
        #: they are, so that others go over those of one moment.
        self._mutex = threading.Lock()
        self._shape: PlacementKey | None = None
        #: How often the places changed, and the processes that hold some of it, as of one of these times.
        self._changes = 0
        self._processes: tuple[int, frozenset[tuple[WorkerAddress, int]]] = (-1, frozenset())
        self._release = weakref.finalize(self, released.put, cached.number)
        self._release.atexit = False

    def keep(self) -> None:
        """Keep the content in the workers to the end of the application, also when the last reference to it goes."""
        self._release.detach()

    def bind(self, home: WorkerAddress, epoch: int, contents: Mapping[int, PartitionSchema]) -> None:
        """Record the places of some partitions."""
        with self._mutex:
            Residency.came += 1
            self.contents = {**self.contents, **contents}
            self.places = {**self.places, **dict.fromkeys(contents, (home, epoch))}
            self._changed()
            self.pending, self.chain = (), ()

    def ended(self, reply: Ran) -> None:
        """Record the outcome of the loop that computed the content, if there was one."""
        if reply.iterated:
            self.iterated = reply.iterated[-1]
            if self.pace is not None:
                self.pace.learn(self.iterated.steps, reply.times.total - reply.times.compile)

    def lose(self, partitions: Iterable[int]) -> None:
        lost = set(partitions)
        with self._mutex:
            self.places = {partition: place for partition, place in self.places.items() if partition not in lost}
            self._changed()

    def _changed(self) -> None:
        """Invalidate values that were derived from the places; called after each change, so that no thread caches an
        outdated value.
        """
        self._changes += 1
        self._shape = None

    @property
    def has_failed(self) -> bool:
        """Whether a plan that was to compute the content failed, other than by a loss, and no caller has been told."""
        errors = [sent.pending.error for _, sent in self.pending if sent.pending is not None]
        return any(error is not None and not isinstance(error, LOST) for error in errors)

    @property
    def is_whole(self) -> bool:
        """Whether all partitions that were held or coming still are."""
        return self.contents.keys() == self.places.keys()

    @property
    def processes(self) -> frozenset[tuple[WorkerAddress, int]]:
        """The processes that hold a part of the content."""
        with self._mutex:
            if self._processes[0] != self._changes:
                self._processes = self._changes, frozenset(self.places.values())
            return self._processes[1]

    def by_home(self) -> dict[WorkerAddress, tuple[int, ...]]:
        """Return the partitions that each worker holds."""
        by_home: dict[WorkerAddress, list[int]] = {}
        for partition, (home, _) in sorted(self.places.items()):
            by_home.setdefault(home, []).append(partition)
        return {home: tuple(partitions) for home, partitions in by_home.items()}

    def shape(self, plans: PlanCache) -> PlacementKey:
        """Return the cache key of content and places for plans."""
        key = self._shape
        if key is None:
            with self._mutex:
                changes, places, contents = self._changes, self.places, self.contents
            key = plans.shape({partition: home for partition, (home, _) in places.items()}, contents)
            with self._mutex:
                if changes == self._changes:
                    self._shape = key
        return key

    def known_shape(self, shape: PlacementKey) -> None:
        """Set the placement key, if it is known already."""
        self._shape = shape

    def rename(self, name: str) -> None:
        """Change the name; workers keep the old name of content that they hold already."""
        self.cached = replace(self.cached, name=name)

    def close(self) -> None:
        """Have the workers forget the content now."""
        self._release()


def shared_homes(residency: Residency, others: Sequence[Residency], *, is_relayed: bool) -> list[WorkerAddress]:
    """Return the workers that hold a VRDD, which exchange its rows or read others' beside them.

    Raises
    ------
    KeysRefused
        If the driver does not reach them, or partitions of the others lie elsewhere than the VRDD's.
    """
    homes = list(dict.fromkeys(home for home, _ in residency.places.values()))
    if not homes:
        raise KeysRefused("the records lie in no worker")
    if is_relayed:
        raise KeysRefused("the driver does not reach the worker" if len(homes) < 2 else
                          f"the records lie in {len(homes)} workers, which the driver does not reach")
    for partition, (home, _) in residency.places.items():
        if any(other.places.get(partition, (home, 0))[0] != home for other in others):
            raise KeysRefused(f"the two sides of partition {partition} lie in different workers")
    return homes


class Residencies(weakref.WeakValueDictionary[int, Residency]):
    """Residencies of a session by number, as long as somebody refers to them."""

    def __init__(self, released: Released):
        super().__init__()
        self._released = released
        self._numbers = itertools.count(1)

    def new(self, name: str, *, spills: str = "") -> Residency:
        """Return a residency with a new number; ``spills`` is as in :class:`DatasetId`."""
        residency = Residency(self._released, DatasetId(next(self._numbers), name, spills))
        self[residency.cached.number] = residency
        return residency

    def of(self, chain: LogicalPlan) -> list[Residency]:
        """Return the residencies of a chain's cached nodes that have one, in the chain's order."""
        residencies = [self.get(node.cached.number) for node in chain if node.cached]
        return [residency for residency in residencies if residency is not None]
