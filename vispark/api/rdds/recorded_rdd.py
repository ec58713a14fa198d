"""Recorded RDD: the operations of a VRDD, which of their results workers hold, and how what is asked for is computed.

:class:`~vispark.VRDD` adds what users call, as functions of a recorded RDD in modules of their own.
"""

from __future__ import annotations

import threading
import weakref
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self, TypeVar

from pyspark import RDD, StorageLevel
from pyspark.resource import ResourceProfile
from pyspark.serializers import Serializer

from gpu_worker.protocol.messages import FoldByKeyStep, FoldStep
from vispark._utils.lazy import LazyModule
from vispark.api.rdds import local_rdd
from vispark.api.rdds.explain import IN_DRIVER
from vispark.api.rdds.fallback import report_fallback
from vispark.api.rdds.gpu_profile import with_profile
from vispark.api.rdds.lineage_walk import LineageWalk
from vispark.api.rdds.local_rdd import ACTIONS, LocalRDD, is_harmless
from vispark.api.rdds.received_rdd import ReceivedRDD
from vispark.data.records.partition_schema import FetchedPartition, PartitionSchema
from vispark.errors import PlanError
from vispark.plan import ops
from vispark.plan.fold.lowering import FoldRequest
from vispark.plan.loop_call import LoopSpec
from vispark.plan.lower.grid import lowering
from vispark.plan.lower.stages import FETCH, RequestedOutput
from vispark.plan.ops import Lineage
from vispark.plan.storage_levels import spills_of
from vispark.runtime.driver.loop_pacing import EndedLoop
from vispark.runtime.driver.residency import Residency
from vispark.runtime.driver.result import PartialResult
from vispark.runtime.driver.session import Session
from vispark.runtime.executor.tasks import Receive
from vispark.translate import TranslationError, trace

if TYPE_CHECKING:
    from vispark.api.rdds import table_output
else:
    table_output = LazyModule("vispark.api.rdds.table_output")     # it imports Arrow and Spark SQL

#: A kind of recorded RDD: an operation gives one of the kind of that which it is recorded on.
Recorded = TypeVar("Recorded", bound="RecordedRDD")

_NOT_KEPT = StorageLevel(False, False, False, False)
#: Spark's levels for those of devices, where it is not MEMORY_ONLY.
_LEVELS = {"GPU_HOST_AND_DISK": StorageLevel.MEMORY_AND_DISK}

#: Actions of Spark's of which nobody is told: users call them to have Python run, or they begin with a ``collect``.
_EXPECTED = ("collectAsMap", "foreach", "foreachPartition")
_NO_KERNEL = "it has no kernel; what has one: sum, mean, min, max, reduce, fold, aggregate and reduceByKey(numKeys=)"
_UNTRUSTED = ("the result may not be Python's: an integer overflows, or floats that are compared are NaN, or zeros of "
              "which the order says whose sign is left")


def _why_no_kernel(arguments: Iterable[Any]) -> str:
    """Return the reason why workers do not run an action: that of the first function that cannot be translated, if any.
    """
    for function in filter(callable, arguments):
        try:
            trace(function)
        except TranslationError as error:
            return error.message
    return _NO_KERNEL


class RecordedRDD(LineageWalk):
    """RDD of recorded operations, some of whose results are kept in GPU workers."""

    # What most never set is their class's, as a loop makes some of them in each pass.
    is_cached = False
    is_checkpointed = False
    has_resource_profile = False
    _bypass_serializer = False
    _lineage: Lineage | None = None
    _residency: Residency | None = None
    _level = _NOT_KEPT
    _received: tuple[tuple[Any, ...], ReceivedRDD] | None = None
    _profile: ResourceProfile | None = None
    _checkpoint: ReceivedRDD | None = None
    _named: str | None = None
    #: How many results up to here wait for what they are made of; below 0 where that is not tried again.
    _backlog: float = 0
    #: Whether the halos of this version of a grid were exchanged.
    _shuffled = False
    #: Whether a loop shows how far it is, and how it ended.
    _progress: bool | None = None
    _loop: EndedLoop | None = None
    #: How much had come when nothing was known of what it was made of.
    _unknown = -1

    def __init__(self, loader: RDD[Any], op: ops.RecordedOperation, before: Self | None):
        self.ctx = loader.ctx
        self.partitioner = None if op.item else loader.partitioner
        self._origin, self._looked_up = loader, LineageWalk._starts
        self._op = op
        self._before = before
        self._partitions: int | None = None if before is None else before._partitions
        #: The fold that each action ran last, or why it was a Spark job; and what was asked for by those that workers
        #: ran.
        self._folds: dict[str, FoldStep | FoldByKeyStep | str] = {}
        self._requests: dict[str, FoldRequest[Any]] = {}
        self._lock = threading.RLock()

    def _then(self, op: ops.RecordedOperation) -> Self:
        return type(self)(self._loader, op, self)

    def _beginning(self, loader: RDD[Any], op: ops.RecordedOperation, partitions: int) -> Self:
        """Return a recorded RDD that begins with an operation on an RDD."""
        vrdd = type(self)(loader, op, None)
        vrdd._partitions = partitions
        return vrdd

    def _alone(self) -> Self:
        """Return a VRDD of the same records without what is kept on the way: the lineage alone."""
        vrdd = self._beginning(self._loader, self._op, self.getNumPartitions())
        vrdd._lineage = self._lineage if self._before is None else self._before._link()
        vrdd.partitioner = self.partitioner
        return vrdd

    @abstractmethod
    def _begin(self) -> None:
        """Submit plans for what is to be kept and is not computed yet, without waiting."""

    @abstractmethod
    def _run_loop(self, spec: LoopSpec) -> None:
        """Run the loop that this begins with, in parts."""

    @abstractmethod
    def _table(self, request: FoldRequest[Any] | str, function: Callable[[Any, Any], Any], keys: int | None,
               double: bool) -> Any:
        """Return the table of a fold, which stays in the workers."""

    # -- keeping ------------------------------------------------------------------------------------------------------

    def cache(self, level: str = "GPU") -> Self:
        """Keep a copy where the records are: on the device, or in host memory after ``send`` or ``dtoh``.

        Parameters
        ----------
        level : str, optional
            "GPU", "GPU_AND_HOST" or "GPU_HOST_AND_DISK", as for :meth:`persist`.

        Returns
        -------
        VRDD
            This VRDD. It is computed once: by the first action that needs it, or without waiting for one, where what it
            is made of is held or many results in a row wait for theirs.

        Examples
        --------
        >>> points = sc.parallelize([1.0, 2.0, 4.0], 2).cache("GPU")
        >>> squares = points.vmap(lambda x: x * x).cache()
        >>> squares.sum(), squares.max()        # computed once
        (21.0, 16.0)
        """
        return self.persist(level)

    def persist(self, storageLevel: str | StorageLevel = "GPU") -> Self:
        """Keep a copy, as :meth:`cache` does; a Spark storage level is recorded and means the same.

        Parameters
        ----------
        storageLevel : str or StorageLevel, optional
            "GPU", "GPU_AND_HOST" or "GPU_HOST_AND_DISK", or a level of Spark's.

        Returns
        -------
        VRDD
            This VRDD.

        Raises
        ------
        PlanError
            If the level is a string other than "GPU", "GPU_AND_HOST" and "GPU_HOST_AND_DISK". The second keeps in
            host memory those partitions that do not fit on the device, and the third those in files that do not fit
            there either.

        Examples
        --------
        >>> sc.parallelize([1.0, 2.0]).cache("GPU").vmap(lambda x: 2 * x).persist("GPU_AND_HOST").collect()
        [2.0, 4.0]
        """
        spills = spills_of(storageLevel) if isinstance(storageLevel, str) else ""
        with self._lock:
            if self._residency is None:
                self._residency = Session.of(self.ctx).residency(
                    self.name() or str(self._op), spills=spills)
                self._level = _LEVELS.get(storageLevel, StorageLevel.MEMORY_ONLY) if isinstance(storageLevel, str) \
                    else storageLevel
                self.is_cached = True
                self._begin()
        return self

    def uncache(self) -> Self:
        """Release the copy that :meth:`cache` keeps. A plan that is running keeps the content that it needs to its end.

        Returns
        -------
        VRDD
            This VRDD.

        Examples
        --------
        >>> points = sc.parallelize([1.0, 2.0, 4.0], 2).cache("GPU")
        >>> points.count(), points.uncache() is points, points.collect()
        (3, True, [1.0, 2.0, 4.0])
        """
        return self.unpersist()

    def unpersist(self, blocking: bool = False) -> Self:
        """Release the copy that :meth:`cache` keeps.

        Parameters
        ----------
        blocking : bool, optional
            PySpark's, and without effect: workers free the memory without being waited for.

        Returns
        -------
        VRDD
            This VRDD.

        Examples
        --------
        >>> sc.parallelize([1.0, 2.0, 4.0], 2).cache("GPU").unpersist().collect()
        [1.0, 2.0, 4.0]
        """
        with self._lock:
            residency, self._residency = self._residency, None
            self._level = _NOT_KEPT
            self.is_cached = False
        if residency is not None:
            residency.close()
        return self

    def getStorageLevel(self) -> StorageLevel:
        """Return the level asked for; ``MEMORY_ONLY`` for "GPU" and "GPU_AND_HOST", ``MEMORY_AND_DISK`` for
        "GPU_HOST_AND_DISK".

        Returns
        -------
        pyspark.StorageLevel
            Spark's own where :meth:`persist` was given one; without a copy ``StorageLevel(False, False, False,
            False)``.

        Examples
        --------
        >>> sc.parallelize([1.0]).cache("GPU").getStorageLevel()
        StorageLevel(False, True, False, False, 1)
        """
        return self._level

    def _is_complete(self) -> bool:
        residency = self._residency
        return residency is not None and len(residency.places) == self.getNumPartitions()

    def _is_held(self) -> bool:
        self._save_checkpoint()
        vrdd: RecordedRDD | None = self
        while vrdd is not None and vrdd._residency is None:
            vrdd = vrdd._before
        return vrdd is not None

    def _let_go_of_inputs(self) -> None:
        """Forget the VRDDs before this one once its content is complete; their operations stay, to recompute lost
        content.
        """
        residency, before = self._residency, self._before
        if residency is not None and before is not None and len(residency.places) == self.getNumPartitions():
            with self._lock:
                self._origin, self._lineage = before._loader, before._link()
                self._before = None

    # -- evaluating ---------------------------------------------------------------------------------------------------

    def _evaluate(self, partitions: Iterable[int], requested: RequestedOutput) -> PartialResult:
        """Run the plan on cached data; an error names the VRDD."""
        session, partitions = Session.of(self.ctx), partitions if isinstance(partitions, range) else list(partitions)
        self._prepare_grid(partitions)
        answer = session.evaluate(self._loader, self._recent(), partitions, requested, self._chain)
        self._let_go_of_inputs()
        return answer

    def _contents(self) -> dict[int, PartitionSchema]:
        """Compute the nearest cached result, if necessary, and return the schema of each of its partitions."""
        session = Session.of(self.ctx)
        self._run_loops()
        contents = session.ensure(self._loader, self._nearest(), range(self.getNumPartitions()), self._chain)
        self._let_go_of_inputs()
        return contents

    def _results(self) -> list[PartitionSchema]:
        """Return the schema of each partition of the result."""
        contents = self._contents()
        work = lowering(self._recent(), self._nearest(), FETCH, contents.values(),
                        Session.of(self.ctx).workers.shared_limit)
        for partition, content in contents.items():
            work.add(partition, content)
        return list(work.results().values())

    def _is_few(self) -> bool:
        """Return whether the records are few enough to be looked at in the driver."""
        results = self._results()
        return (sum(each.count for each in results) <= local_rdd.MOST_RECORDS
                and sum(each.nbytes for each in results) <= local_rdd.MOST_BYTES)

    def _is_exchanged(self) -> bool:
        """Have workers exchange the records that this begins with; return whether they did, and not Spark."""
        residency = self._residency
        if residency is not None and residency.exchange is not None:
            residency.exchange()
        return residency is not None and residency.exchange is not None

    def _spark(self, action: str, *arguments: Any, **named: Any) -> Any:
        """Run an action by Spark: in the driver if few records are held, else by a job over :meth:`recv`."""
        if self._is_held() and action not in _EXPECTED:
            near = self._local_rdd(action, arguments, named)
            if near is not None:
                # What goes wrong is shown as Spark shows it, and once.
                with suppress(ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
                    result = getattr(RDD, action)(near, *arguments, **named)
                    self._folds[action] = IN_DRIVER
                    return result
                return Session.of(self.ctx).jobs.run(lambda: getattr(RDD, action)(self, *arguments, **named))
            reason = self._folds.get(action, IN_DRIVER)
            lacks = _why_no_kernel((*arguments, *named.values())) if reason is IN_DRIVER else reason
            why = lacks if isinstance(lacks, str) else _UNTRUSTED
            report_fallback(self.ctx, action, f"VRDD {self._shown()}", why)
        self._save_checkpoint()
        # PySpark's own are reduce(), which would be told of, too.
        source = self.recv() if action in ("max", "min") else self
        return Session.of(self.ctx).jobs.run(lambda: getattr(RDD, action)(source, *arguments, **named))

    def _local_rdd(self, action: str, arguments: tuple[Any, ...], named: dict[str, Any]) -> LocalRDD | None:
        """Return an RDD of the records in the driver, if they are few and the action needs no Spark; else None."""
        if action not in ACTIONS or not all(map(is_harmless, (*arguments, *named.values()))) or not self._is_few():
            return None
        records = self._evaluate(range(self.getNumPartitions()), FETCH).records
        return LocalRDD(self.ctx, [list(records[index]) for index in sorted(records)])

    # -- loops and grids ----------------------------------------------------------------------------------------------

    @property
    def iterated(self) -> EndedLoop:
        """The outcome of the loop that computes this VRDD; the loop is run if it has not been.

        Raises
        ------
        PlanError
            If it is no result of :meth:`iterate`.

        Examples
        --------
        >>> import numpy as np
        >>> from vispark import Grid, stencil
        >>> @stencil
        ... def mean(u):
        ...     return (u[-1] + u[1]) / 2
        >>> blocks = Grid(6, splits=3, boundary="periodic").scatter(sc, np.arange(6.0)).cache("GPU")
        >>> blocks.iterate(mean, steps=4).iterated.steps
        4
        """
        if self._loop is None:
            self._run_loops()
        if self._loop is None:
            raise PlanError("iterated is known of what iterate() gives, and of nothing that was made of it")
        return self._loop

    def _prepare_grid(self, partitions: Sequence[int]) -> None:
        """Run pending loops in short requests, and keep this VRDD whole if only some partitions are to be computed."""
        self._run_loops()
        if len(partitions) < self.getNumPartitions():
            self._keep_together()

    def _compute_grid(self) -> None:
        """Compute the operations that read neighbours, which Spark's tasks cannot, as each sees one partition."""
        if self._reaches():
            self._run_loops()
            self._keep_together()
            if any(node.cached for node in self._recent()):     # Halos that nothing reads need nothing kept.
                self._contents()

    def _keep_together(self) -> None:
        """Cache the last result that needed neighbours; if that VRDD is forgotten, the first one after it that is not.
        """
        chain = self._recent()
        start = max((index for index, node in enumerate(chain) if node.cached), default=-1)
        last = max((index for index in range(len(chain)) if ops.needs_neighbours(chain, index)), default=-1)
        vrdd = self
        if last > start:
            for _ in range(len(chain) - 1 - last):
                vrdd = vrdd._before or vrdd
            vrdd.persist()

    def _run_loops(self) -> None:
        """Run the pending loops that the result is computed from, the first one first."""
        loops: list[tuple[RecordedRDD, LoopSpec]] = []
        vrdd: RecordedRDD | None = self
        while vrdd is not None:
            loop = vrdd._op.loop
            if loop is not None and vrdd._before is not None and not vrdd._is_complete():
                loops.append((vrdd, loop))
            vrdd = vrdd._before
        for looped, spec in reversed(loops):
            looped._run_loop(spec)

    # -- what Spark is given ------------------------------------------------------------------------------------------

    def recv(self) -> RDD[Any]:
        """Return an ordinary RDD of the records.

        Its tasks take the records from where they are held; where they are not, they compute them from the RDD that was
        sent, like Spark does for a partition that it has lost.

        Returns
        -------
        RDD
            Of as many partitions, with the records that :meth:`collect` gives: Python's numbers where Python's were
            sent, NumPy's scalars and arrays in their dtypes.

        Examples
        --------
        >>> sc.parallelize([1.0, 2.0]).cache("GPU").recv().map(lambda x: f"{x:g}").collect()
        ['1', '2']
        """
        return self._received_by(self)

    def columnar(self) -> ReceivedRDD:
        """Return the RDD of the partitions' arrays as they come from the workers, each a single record.

        It is computed as :meth:`recv` is.
        """
        self._compute_grid()
        receive = replace(self._receive(self._held()), is_columnar=True)
        return ReceivedRDD(self._loader, receive, False, table_output.ColumnarTokens(self))

    def sent(self) -> RDD[Any] | None:
        """Return the RDD that was sent, if the records are still its own; else None."""
        is_same = all(op.begins or (op.passes_on and not op.item) for op in self._backwards())
        return self._loader if is_same else None

    def held_columnar(self) -> RDD[FetchedPartition] | None:
        """Return the RDD of the partitions' arrays as far as workers hold what they are computed from, and of nothing
        where they do not; None if nothing is cached.
        """
        if not self._is_held() or not self.getNumPartitions():
            return None
        receive = replace(self._receive(self._held()), is_columnar=True)
        numbers = self.ctx.parallelize(range(self.getNumPartitions()), self.getNumPartitions())
        return numbers.mapPartitionsWithIndex(receive.from_worker)

    def tokens(self, *,
               columnar: bool = False) -> tuple[RDD[Any], Callable[[int, Iterable[Any]], Iterable[Any]]] | None:
        """Compute the nearest cached result, if necessary; return an RDD with a token for each partition, and the
        function of a task that takes a partition's records, or its arrays, by its token.

        For the RDDs that :meth:`recv` and :meth:`columnar` give. None if nothing is cached, or there are no partitions.
        """
        self._save_checkpoint()
        self._compute_grid()
        if not self._is_held() or not self.getNumPartitions():
            return None
        self._contents()
        session, recent = Session.of(self.ctx), self._recent()
        return session.tokens(recent), Receive(session.credentials, recent, {}, (), columnar).from_token

    def forget_places(self) -> None:
        """Ask the workers again for the places of the nearest cached result, after a plan did not find it."""
        Session.of(self.ctx).find(self._recent())

    def _received_by(self, source: RecordedRDD) -> ReceivedRDD:
        """Return the RDD of :meth:`recv` for the present state of this VRDD's caches; it refers to ``source``."""
        self._compute_grid()
        received = ReceivedRDD(self._loader, self._receive(self._held()), self.partitioner is not None, source)
        received.partitioner = self.partitioner
        return received if self._profile is None else received.withResources(self._profile)

    def _inner(self) -> ReceivedRDD:
        """Return the RDD that stands for this VRDD where Spark asks for one; made again if workers have come to hold
        other results.

        It does not keep this VRDD alive: that is for what :meth:`recv` gives.
        """
        with self._lock:
            self._compute_grid()
            chain, places = self._held(), Session.of(self.ctx).places(self._since())
            held = tuple((number, len(known)) for number, known in places.items())
            if self._received is None or self._received[0] != (chain, held):
                self._received = (chain, held), self._received_by(weakref.proxy(self))
            return self._received[1]

    @property
    def _jrdd(self) -> Any:
        return self._inner()._jrdd

    @property
    def _jrdd_deserializer(self) -> Serializer:  # type: ignore[override]
        return self.ctx.serializer

    def checkpoint(self) -> None:
        """Cut the lineage: at the next action the records are saved in Spark's checkpoint directory.

        What is lost later is rebuilt from there.

        Examples
        --------
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     sc.setCheckpointDir(folder)
        ...     points = sc.parallelize([1.0, 2.0, 4.0], 2).cache("GPU").vmap(lambda x: 2 * x).cache()
        ...     points.checkpoint()
        ...     points.count(), points.isCheckpointed()
        (3, True)
        """
        self._cut_lineage("checkpoint")

    def localCheckpoint(self) -> None:
        """Cut the lineage: at the next action the records are saved in the executors' storage.

        Examples
        --------
        >>> points = sc.parallelize([1.0, 2.0, 4.0], 2).cache("GPU").vmap(lambda x: 2 * x).cache()
        >>> points.localCheckpoint()
        >>> points.collect()
        [2.0, 4.0, 8.0]
        """
        self._cut_lineage("localCheckpoint")

    def isCheckpointed(self) -> bool:
        """Return whether the records have been saved."""
        return self._checkpoint is not None and self._checkpoint.isCheckpointed()

    def isLocallyCheckpointed(self) -> bool:
        """Return whether the lineage was cut by :meth:`localCheckpoint`."""
        return self._checkpoint is not None and self._checkpoint.isLocallyCheckpointed()

    def getCheckpointFile(self) -> str | None:
        """Return the path of the checkpoint that the records were saved to; None if there is none."""
        return None if self._checkpoint is None else self._checkpoint.getCheckpointFile()

    def _cut_lineage(self, how: str) -> ReceivedRDD:
        self.is_checkpointed = True
        self._checkpoint = saved = self._received_by(weakref.proxy(self))
        getattr(saved, how)()
        saved.is_checkpointed = True        # PySpark's localCheckpoint leaves it, and would compute it again
        return saved

    def _save_checkpoint(self) -> None:
        """Save the records by Spark if a checkpoint was requested, and start the lineage from the checkpoint."""
        saved = self._checkpoint
        if saved is None or self._origin is saved:
            return
        if self._reaches():         # Tasks save what is held, which may be held anew since.
            saved = self._cut_lineage("localCheckpoint" if saved.isLocallyCheckpointed() else "checkpoint")
        # Not saved.count(): that would take what workers hold, and save nothing.
        Session.of(self.ctx).jobs.run(saved._jrdd.count)
        with self._lock:
            on_host = ops.place_of(self._recent()) == "host"
            self._origin, self._before, self._end = saved, None, None
            self._op, self._lineage = (ops.Send(), None) if on_host else (ops.ToDevice(), Lineage((ops.Send(),)))
            # Last: whoever reads the new number finds the new origin.
            with LineageWalk._counting:
                LineageWalk._starts += 1

    # -- the rest of being an RDD -------------------------------------------------------------------------------------

    def id(self) -> int:
        """Return the number of the RDD that :meth:`recv` gives."""
        return int(self._inner().id())

    def name(self) -> str | None:
        """Return the name given by :meth:`setName`."""
        return self._named

    def setName(self, name: str) -> Self:
        """Name the VRDD; errors and ``gpu-worker status`` show the name, too.

        Parameters
        ----------
        name : str
            Of the VRDD in plans, reports and Spark's pages.

        Returns
        -------
        VRDD
            This VRDD.

        Examples
        --------
        >>> sc.parallelize([1.0]).cache("GPU").setName("points").name()
        'points'
        """
        with self._lock:
            self._named = name
            if self._residency is not None:
                self._residency.rename(name)
        return self

    def _shown(self) -> str:
        return self.name() or str(self._op)

    def getNumPartitions(self) -> int:
        """Return the number of partitions, that of the RDD that was sent."""
        if self._partitions is None:
            first = self
            while first._partitions is None and first._before is not None:
                first = first._before
            if first._partitions is None:
                first._partitions = first._origin.getNumPartitions()
            self._partitions = first._partitions
        return self._partitions

    def mapPartitionsWithIndex(self, f: Callable[[int, Iterable[Any]], Iterable[Any]],
                               preservesPartitioning: bool = False) -> RDD[Any]:
        """Apply a Python function to each partition's records, in Spark."""
        return self.recv().mapPartitionsWithIndex(f, preservesPartitioning)

    def withResources(self, profile: ResourceProfile) -> Self:
        """Ask for resources for the tasks that load the records, that carry plans, and of the RDD that :meth:`recv`
        gives.

        What is held already stays where it is. It is the same as :meth:`pyspark.RDD.withResources` on the RDD that was
        sent, which itself stays without a profile.

        Parameters
        ----------
        profile : ResourceProfile
            Of the tasks that load the records.

        Returns
        -------
        VRDD
            This VRDD.

        Raises
        ------
        PlanError
            If the RDD that was sent has another profile.

        See Also
        --------
        vispark.gpu_profile

        Examples
        --------
        Loads of two cores each::

            profile = ResourceProfileBuilder().require(TaskResourceRequests().cpus(2)).build
            points = rdd.cache("GPU").withResources(profile)
        """
        first = self._first
        with self._lock:
            first._origin = with_profile(first._origin, profile)
            with LineageWalk._counting:
                LineageWalk._starts += 1
            self.has_resource_profile = True
            self._profile = profile
            self._received = None
        return self
