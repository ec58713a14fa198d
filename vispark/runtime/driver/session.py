"""Session of a Spark application: placement of partitions, and plans sent to workers.

A plan on cached data goes straight to the workers that hold it, one request and one reply for all partitions of a
worker. Spark jobs run for what is not there yet, or no more: lost partitions are found when a worker does not answer
or does not know them, rebuilt from what is left of their lineage, and the plan is repeated for them alone.
"""

from __future__ import annotations

import atexit
import logging
import secrets
import threading
import time
import uuid
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, ClassVar

from pyspark import RDD, SparkContext

from gpu_worker.client.connection import machine
from gpu_worker.protocol.errors import KeysRefused
from gpu_worker.protocol.messages import Ran
from gpu_worker.protocol.plans import KeyBounds
from vispark._utils.callers import user_line
from vispark.data.records.partition_schema import PartitionSchema
from vispark.errors import (
    Fenced,
    OptionError,
    OutOfMemory,
    PartitionMissing,
    PlanError,
    VisparkError,
    WorkerLost,
    WorkerUnavailable,
)
from vispark.options import Options
from vispark.plan import ops
from vispark.plan.lower.executable import Executable
from vispark.plan.lower.stages import KEEP, RequestedOutput, after_start
from vispark.plan.operation import tables_of
from vispark.plan.ops import DatasetId, LineageWalker, LogicalPlan, PlanNode
from vispark.plan.references import TableReference
from vispark.runtime.driver import publications
from vispark.runtime.driver.channel import LOST, Sent
from vispark.runtime.driver.executor_gpus import assigned
from vispark.runtime.driver.garbage_collector import GarbageCollector
from vispark.runtime.driver.loads import Loads
from vispark.runtime.driver.loop_pacing import ChunkController
from vispark.runtime.driver.pipeline import PendingRequest
from vispark.runtime.driver.plan_cache import DistributedExecutable, PlacementKey, PlanCache
from vispark.runtime.driver.plan_sender import PlanSender
from vispark.runtime.driver.recovery import Recovery, computable_from, is_held
from vispark.runtime.driver.relay_jobs import RelayJobs
from vispark.runtime.driver.release_queue import Released
from vispark.runtime.driver.residency import Residencies, Residency, shared_homes
from vispark.runtime.driver.result import PartialResult
from vispark.runtime.driver.retry import STOPPED, Recomputed, check_open, shortened, until_done
from vispark.runtime.driver.snapshots import Snapshots
from vispark.runtime.driver.spark_jobs import SparkJobs
from vispark.runtime.driver.worker import Worker, Workers, as_answered, await_all, collect_error, raise_gravest
from vispark.runtime.driver.worlds import Worlds
from vispark.runtime.identity import Credentials, PartitionHandle, WorkerAddress
from vispark.runtime.profiling import journal, watch
from vispark.runtime.profiling import profiler as profiling

log = logging.getLogger(__name__)

#: How many results that are to be kept, and how many bytes of them, wait for an action where plans are relayed.
BATCH = 16
_BATCH_BYTES = 1 << 26

#: Of how many loops that started from the same it is kept how long their steps take.
_CONTROLLERS = 64


class Session:
    """Session of one Spark application in the workers.

    There is one for each SparkContext, made when it is first needed and ended with it; see :meth:`of`.
    """

    _sessions: ClassVar[weakref.WeakKeyDictionary[SparkContext, Session]] = weakref.WeakKeyDictionary()
    _lock = threading.Lock()

    def __init__(self, context: SparkContext):
        options = Options.read(context.getConf().getAll())
        self.context = weakref.proxy(context)
        self.credentials = Credentials(uuid.uuid4().hex, secrets.token_bytes(32), context.applicationId or "", options,
                                       context.getConf().get("spark.driver.host", ""), machine(), assigned(context))
        self.released = Released()
        self.jobs = SparkJobs(self.context, self.credentials, self.released)
        #: The tasks that carry plans, or something small, to workers that are relayed to.
        self.relay = RelayJobs(self.context, self.jobs.records, lambda home: self.workers.at(home).executor)
        self.workers = Workers(self.credentials, self._record_outcome, self.relay.run)
        self.worlds = Worlds()
        self.snapshots = Snapshots(options.snapshotShare, options.timeToLoss)
        journal.begin(options.journal)
        self.recomputed = Recomputed()
        #: Whether a plan was lost whose answer nobody waits for.
        self._is_suspect = False
        self.plans = PlanCache()
        self._controllers: weakref.WeakKeyDictionary[RDD[Any],
                                               OrderedDict[Hashable, ChunkController]] = weakref.WeakKeyDictionary()
        self.residencies = Residencies(self.released)
        #: What computes content anew, until that is done.
        self._replays: weakref.WeakKeyDictionary[Residency, Recovery] = weakref.WeakKeyDictionary()
        self.loads = Loads(self.context, self.credentials, self.jobs, self.workers, self.residencies,
                           GarbageCollector(self.context, self.credentials, self.workers, self.released,
                                            self.residencies))
        self._sender = PlanSender(options, self.workers, self.worlds, self.snapshots, self.residencies)
        atexit.register(self.close)

    @property
    def options(self) -> Options:
        """The options of the context's configuration."""
        return self.credentials.options

    @classmethod
    def of(cls, context: SparkContext) -> Session:
        """Return the session of a SparkContext.

        Raises
        ------
        OptionError
            If its configuration has an unknown ``spark.vispark.*`` option, or amounts of GPUs that let no task start.
        PlanError
            If it has been stopped, or is about to be.
        """
        if context._jsc is None:
            raise PlanError(STOPPED)
        with cls._lock:
            if context not in cls._sessions:
                cls._sessions[context] = cls(context)
            session = cls._sessions[context]
        check_open(session.released)
        return session

    @classmethod
    def link(cls, context: SparkContext) -> str:
        """Return the address that the jobs of a SparkContext link to in Spark's pages; empty where nobody follows."""
        session = cls._sessions.get(context)
        followed = watch.of(session.credentials.session) if session else None
        return followed.link if followed else ""

    @classmethod
    def end(cls, context: SparkContext) -> None:
        """End the session of a SparkContext that is about to stop, if it has one; the context gets no other."""
        session = cls._sessions.get(context)
        if session:
            session.close()

    def close(self) -> None:
        """Close the session; the workers free all of its memory."""
        atexit.unregister(self.close)
        journal.end(self.options.journal)
        watch.end(self.credentials.session)
        self.released.close()
        self.jobs.close()
        self.loads.collector.join()
        self.workers.close()

    def residency(self, name: str, *, spills: str = "") -> Residency:
        """Return a residency with a new number; ``spills`` is as in :class:`DatasetId`."""
        return self.residencies.new(name, spills=spills)

    # -- plans on cached data -----------------------------------------------------------------------------------------

    def evaluate(self, loader: RDD[Any], chain: LogicalPlan, partitions: Sequence[int], requested: RequestedOutput,
                 trail: LineageWalker, *, is_columnar: bool = False) -> PartialResult:
        """Run a chain that passes through cached content, and bring the result to the driver.

        Parameters
        ----------
        loader : RDD
            The RDD before the send.
        chain : LogicalPlan
            At least one of its nodes is cached. From the operation on that says where the content of the last cached
            node lies.
        partitions : sequence of int
            The partitions wanted.
        requested : RequestedOutput
            What is wanted of them.
        trail : LineageWalker
            The way back from the result, for what is not there.
        is_columnar : bool
            Whether the result is the arrays, and not the records.

        Raises
        ------
        VisparkError
            If the plan fails, or a worker is lost under it more often than ``spark.vispark.attempts``.
        """
        start = next(node.cached for node in reversed(chain) if node.cached)
        answer = PartialResult(is_columnar)

        def once() -> None:
            todo = [each for each in partitions if each not in answer.done] if answer.done else partitions
            if self.missing(self.residencies[start.number], todo):
                self.materialise(loader, trail, start, todo)
            self._round(loader, chain, start, requested, todo, answer)

        until_done(self, once)
        return answer

    def ensure(self, loader: RDD[Any], start: DatasetId, partitions: Sequence[int],
               trail: LineageWalker) -> dict[int, PartitionSchema]:
        """Materialise some partitions of a cached result; return their schemas."""
        residency = self.residencies[start.number]
        self.complete(loader, residency, partitions, trail)
        return {partition: residency.contents[partition] for partition in partitions}

    def complete(self, loader: RDD[Any], residency: Residency, partitions: Sequence[int], trail: LineageWalker) -> None:
        """Wait for the plans that compute a cached result, and compute the partitions that are missing afterwards."""
        def once() -> None:
            self._settle_pending(residency)
            if self.missing(residency, partitions):
                self.materialise(loader, trail, residency.cached, partitions)

        until_done(self, once)

    def pace(self, loader: RDD[Any], shape: Hashable) -> ChunkController:
        """Return the pacing of a loop from earlier runs, by the loader and the loop's shape; a new one if there were
        none.
        """
        controllers = self._controllers.setdefault(loader, OrderedDict())
        controllers[shape] = controllers.pop(shape) if shape in controllers else ChunkController()
        while len(controllers) > _CONTROLLERS:
            controllers.popitem(last=False)
        return controllers[shape]

    def submit(self, loader: RDD[Any], chain: LogicalPlan, partitions: Sequence[int], trail: LineageWalker) -> None:
        """Submit the plan of a chain's last node without waiting, if workers hold its input.

        Whatever is wrong with it is told by the first action that needs it. Where it needs neighbours and something was
        lost, it is computed now, all that was lost before it too, rather than all of a loop at its end.

        Parameters
        ----------
        loader, chain, partitions, trail
            As for :meth:`evaluate`.
        """
        *before, last = chain
        start = next((node.cached for node in reversed(before) if node.cached), None)
        residency = self.residencies.get(start.number) if start else None
        if not partitions or residency is None or residency.has_failed or len(residency.contents) < len(partitions):
            return
        assert start is not None and last.cached is not None
        try:
            runs_together = ops.runs_together(chain, start)
            if runs_together and self._is_suspect:
                self._is_suspect = False
                self._settle_pending(residency)
            if not self.missing(residency, partitions):
                self._begin(loader, chain, start, residency, self.residencies[last.cached.number], partitions)
            elif runs_together:
                self.ensure(loader, last.cached, partitions, trail)
        except LOST as error:
            log.warning("lost under a loop: %s", shortened(error))
            if runs_together:
                with suppress(VisparkError):
                    self.ensure(loader, last.cached, partitions, trail)
        except VisparkError as error:
            log.debug("not begun before it is needed: %s", error)

    @property
    def relays(self) -> bool:
        """Whether a worker is reached by relay only."""
        return self.workers.relays

    def flush(self, loader: RDD[Any], trail: LineageWalker, partitions: Sequence[int],
              waiting: Sequence[Residency]) -> None:
        """Compute the waiting cached results once they are many: relayed plans run in batches, not ahead.

        Whatever is wrong with it is told by the first action that needs it.

        Parameters
        ----------
        loader, trail, partitions
            As for :meth:`evaluate`.
        waiting : sequence of Residency
            What is to be kept, the last one first, behind what is there, which is the last in the sequence.
        """
        *coming, there = waiting if waiting else (None,)
        if there is None:
            return
        nbytes = sum(content.nbytes for content in there.contents.values())
        if len(coming) >= BATCH or len(coming) * nbytes > _BATCH_BYTES:
            try:
                self.ensure(loader, coming[0].cached, partitions, trail)
            except VisparkError as error:
                log.debug("not computed before it is needed: %s", error)

    def _begin(self, loader: RDD[Any], chain: LogicalPlan, start: DatasetId, residency: Residency, target: Residency,
               partitions: Sequence[int]) -> None:
        nodes = after_start(chain, start)
        bring_tables(nodes)
        ready = self.plans.ready(chain, start, nodes, residency.shape(self.plans), KEEP, partitions,
                                 self.workers.shared_limit)
        began = time.monotonic()
        under_way = self._send(loader, ready, nodes, start, residency, line=user_line() if self._is_noted else "")
        for worker, prepared, sent in under_way:
            assert sent.pipeline is not None
            target.bind(worker.home, sent.pipeline.client.epoch, prepared.kept[-1])
        target.tokens = residency.tokens
        target.known_shape(ready.kept[-1])
        target.chain = chain
        target.pending = tuple([(worker, sent) for worker, _, sent in under_way])
        if profiling.current():
            await_all(under_way, began)

    def _settle_pending(self, residency: Residency) -> None:
        """Receive the answers to the plans that compute some content.

        Raises
        ------
        VisparkError
            What went wrong; the content counts as lost then.
        """
        with residency.lock:
            pending, residency.pending = residency.pending, ()
            chain, residency.chain = residency.chain, ()
            errors: list[VisparkError] = []
            for number in as_answered([sent for _, sent in pending]):
                worker, sent = pending[number]
                if collect_error(errors, worker.receive, sent) is None:
                    residency.lose([partition for partition, (home, _) in residency.places.items()
                                    if home == worker.home])
            if errors and all(isinstance(error, LOST) for error in errors):
                self._make_sure(residency)
                if residency.is_whole:
                    errors.clear()
        raise_gravest(errors, chain)

    def _make_sure(self, residency: Residency) -> None:
        """Ask the workers whose connections broke whether they hold the content."""
        while residency.unsure:
            worker = self.workers.at(residency.unsure.pop())
            with suppress(*LOST, WorkerUnavailable):
                if not worker.gone:
                    self.discover(residency, worker)

    def tokens(self, chain: LogicalPlan) -> RDD[Any]:
        """Materialise a chain's last cached node; return an RDD with the token of each partition.

        Where a worker is out of the driver's reach it is the one in Spark's storage: its tasks come to the right node.
        """
        residency = self._last(chain)
        if residency.tokens is not None and self.relays:
            return residency.tokens
        number = residency.cached.number
        handles = [PartitionHandle(partition, *place, {number: residency.contents[partition]})
                   for partition, place in sorted(residency.places.items())]
        return self.context.parallelize(handles, max(len(handles), 1))

    def find(self, chain: LogicalPlan) -> None:
        """Ask all workers for the partitions that they hold of a chain's last cached node."""
        residency = self._last(chain)
        with residency.lock:
            residency.lose(residency.places)
            for worker in self.workers.known():
                with suppress(*LOST, WorkerUnavailable):
                    self.discover(residency, worker)

    def _last(self, chain: LogicalPlan) -> Residency:
        return self.residencies[next(node.cached for node in reversed(chain) if node.cached).number]

    def places(self, chain: Sequence[PlanNode]) -> dict[int, dict[int, tuple[WorkerAddress, PartitionSchema]]]:
        """Return the workers and schemas of the partitions of a chain's cached nodes, as far as they are known, by
        number.
        """
        places = {}
        for node in chain:
            residency = self.residencies.get(node.cached.number) if node.cached else None
            if residency:
                places[node.dataset.number] = {index: (home, residency.contents[index])
                                             for index, (home, _) in residency.places.items()}
        return places

    def _record_outcome(self, home: WorkerAddress, pending: PendingRequest) -> None:
        """Record the outcome of a plan, whether a thread waits for its answer or not."""
        if pending.answer is not None:
            reply, _ = pending.answer
            self.snapshots.learn(home, reply.saved)
            if pending.invocation and pending.invocation.line:
                self._note(pending.invocation.prepared, pending.invocation.line, reply, time.monotonic(), 0)
            for number in pending.invocation.vrdds[1:] if pending.invocation and reply.iterated else ():
                if number in self.residencies:
                    self.residencies[number].ended(reply)
        if isinstance(pending.error, WorkerLost | Fenced) and pending.released:
            self.released.put(*pending.released)
        if pending.error is None or pending.invocation is None:
            return
        lost = isinstance(pending.error, LOST)
        self._is_suspect = self._is_suspect or lost
        for number in pending.invocation.vrdds[1:] if lost else ():
            residency = self.residencies.get(number)
            if residency is not None:
                residency.lose([partition for partition, (place, _) in list(residency.places.items())
                                if place == home])
                if isinstance(pending.error, WorkerLost):
                    residency.unsure.add(home)
        if not pending.error.is_alike:
            self._sender.end_world(pending.invocation)

    def materialise(self, loader: RDD[Any], trail: LineageWalker, wanted: DatasetId, partitions: Sequence[int]) -> None:
        """Materialise a node in the partitions where workers do not hold it: from earlier nodes, or by a Spark job.

        What came before the last that is held in these partitions, or of which there is a snapshot, is not looked at.
        """
        residency = self.residencies[wanted.number]
        with residency.lock:
            self._make_sure(residency)
            missing = self.missing(residency, partitions)
            if not missing:
                return
            chain = ops.chain_up_to(trail(computable_from(self, wanted, missing)), wanted)
            for cached in self.residencies.of(chain):
                if cached.has_failed:
                    self._settle_pending(cached)
                if cached.exchange is not None and self.missing(cached, range(loader.getNumPartitions())):
                    cached.exchange()
            chain, attached = self._attached(chain, missing)
            missing = self.missing(residency, missing)
            if not missing:
                return
            if ops.runs_together(chain, None) or (
                    ops.is_cut(chain) and not any(is_held(self, node, missing) for node in chain)):
                replay = self._replays.setdefault(residency, Recovery(self, loader, chain))
                replay.run(lambda: ops.chain_up_to(trail(), wanted))
                del self._replays[residency]
                return
            for node in reversed(chain[:-1]):
                earlier = self.residencies.get(node.cached.number) if node.cached else None
                if earlier is None:
                    continue
                absent = set(self.missing(earlier, missing))
                here = [partition for partition in missing if partition not in absent]
                if here:
                    self.computed(loader, chain, earlier.cached, here)
                missing = self.missing(residency, missing)
            if missing and chain[0].op.publication is not None:
                raise PartitionMissing(f"the publication that {wanted} is computed from was lost meanwhile")
            if missing and ops.is_cut(chain):
                raise PartitionMissing(f"what {wanted} is computed from was lost meanwhile")
            if missing:
                bring_tables(chain)         # tasks get them by value, in the midst of their pickling
                self.loads.load(loader, chain, missing)
            del attached        # workers keep what it holds until here

    def _attached(self, chain: LogicalPlan, partitions: Sequence[int]) -> tuple[LogicalPlan, Residency | None]:
        """Return the chain, and the residency of the publication that it starts from, if it starts from one; that is
        attached anew where no worker holds some partitions.

        Only the caller may refer to the residency, without which workers forget what it holds.
        """
        first = chain[0]
        if first.op.publication is None:
            return chain, None
        residency = self.residencies.get(first.cached.number) if first.cached else None
        if residency is None:
            residency = self.residency(str(first.op))
            chain = (replace(first, cached=residency.cached), *chain[1:])
        if self.missing(residency, partitions):
            log.warning("publication %r is in no worker, lost or let go of, and it is attached again",
                        first.op.publication.name)
            publications.attach(self, first.op.publication, residency)
        return chain, residency

    def computed(self, loader: RDD[Any], chain: LogicalPlan, start: DatasetId, partitions: Sequence[int]) -> None:
        """Compute a chain's cached results from a node that workers hold."""
        self._round(loader, chain, start, KEEP, partitions, PartialResult())

    def computed_at(self, home: WorkerAddress, loader: RDD[Any], chain: LogicalPlan, start: DatasetId) -> None:
        """Compute a chain's cached results from a table of which a worker holds a copy, there."""
        shape = self.plans.shape({0: home}, self.residencies[start.number].contents)
        self._round(loader, chain, start, KEEP, range(1), PartialResult(), shape=shape)

    def exchanged(self, loader: RDD[Any], chain: LogicalPlan, keyed: RequestedOutput, partitions: Sequence[int],
                  trail: LineageWalker, target: Residency,
                  others: Callable[[], Sequence[Residency]] = tuple) -> tuple[KeyBounds, ...]:
        """Run a chain, and the steps of ``keyed`` behind it, which make other partitions; ``target`` is what they are.
        Return the bounds of ranges of keys that workers drew.

        ``others`` computes what these read besides, where that is not held, and returns it.

        Raises
        ------
        KeysRefused
            If workers cannot do it, or not as Spark would.
        VisparkError
            As :meth:`evaluate` does.
        """
        start = next(node.cached for node in reversed(chain) if node.cached)
        residency, answer = self.residencies[start.number], PartialResult()

        def once() -> None:
            if self.missing(residency, partitions):
                self.materialise(loader, trail, start, partitions)
            beside = others()
            homes = shared_homes(residency, beside, is_relayed=self.relays)
            try:
                self._round(loader, chain, start, keyed, partitions, answer,
                            (*[each.cached.number for each in beside], target.cached.number))
            except (OptionError, OutOfMemory, WorkerUnavailable) as error:
                # A table that has no room among workers that wait for each other may be folded in waves by each alone.
                if len(homes) < 2 or (isinstance(error, OutOfMemory) and keyed.table is None):
                    raise
                raise KeysRefused(f"the records lie in {len(homes)} workers, which do not exchange rows: "
                                  f"{error.message}") from error
            for home in homes:
                self.discover(target, self.workers.at(home))
                if keyed.table is not None:
                    target.copies |= target.processes

        until_done(self, once)
        return answer.bounds

    def missing(self, residency: Residency, partitions: Iterable[int]) -> list[int]:
        """Return the partitions that, as far as is known, no worker holds."""
        places = residency.places
        gone = {place for place in residency.processes if not self.workers.is_alive(*place)}
        if gone:
            return [partition for partition in partitions if places.get(partition, None) in (gone | {None})]
        if partitions == range(len(places)):
            return []       # all of them, and a loop asks for all in every pass
        return [partition for partition in partitions if partition not in places]

    def _round(self, loader: RDD[Any], chain: LogicalPlan, start: DatasetId, requested: RequestedOutput,
               partitions: Sequence[int],
               answer: PartialResult, targets: tuple[int, ...] = (), shape: PlacementKey | None = None) -> None:
        """Send a plan to each worker that holds some of the partitions, and receive the answers.

        ``shape`` says where the partitions are; if it is None, the first copy of each is used.
        """
        residency = self.residencies[start.number]
        nodes = after_start(chain, start)
        tables = bring_tables(nodes)
        ready = self.plans.ready(chain, start, nodes, shape or residency.shape(self.plans), requested, partitions,
                                 self.workers.shared_limit)
        answer.fold = ready.reason or ready.fold
        errors: list[VisparkError] = []
        cached = [self.residencies.get(node.cached.number) for node in nodes if node.cached]
        began = time.monotonic()
        under_way = self._send(loader, ready, nodes, start, residency, errors, targets)
        for number in as_answered([sent for _, _, sent in under_way]):
            worker, prepared, sent = under_way[number]
            collect_error(errors, self._take, worker, prepared, sent, answer, residency, cached, began)
            began = time.monotonic()
        for table in tables if any(isinstance(error, LOST) for error in errors) else ():
            table.lost()
        raise_gravest(errors, chain)

    def _send(self, loader: RDD[Any], ready: DistributedExecutable, nodes: LogicalPlan, start: DatasetId,
              residency: Residency,
              errors: list[VisparkError] | None = None,
              targets: tuple[int, ...] = (), line: str = "") -> list[tuple[Worker, Executable, Sent]]:
        """Send each worker its part, which makes the VRDDs ``targets`` too; errors are appended to ``errors``, if it is
        given. Answers that nobody waits for are noted by the user's ``line``.
        """
        if residency.pending and not all(worker.follows(sent) for worker, sent in residency.pending):
            self._settle_pending(residency)     # what another thread sent may be done after this
        if not ready.shares:
            return []
        with self.released.taken(self._is_used) as released:
            return self._sender.send(loader, ready, nodes, start, residency, released, errors, targets, line)

    def _is_used(self, number: int) -> bool:
        """Return whether another thread's plan in flight starts from a VRDD, so that workers may not free it yet."""
        return any(worker.uses(number) for worker in self.workers.known())

    def _take(self, worker: Worker, prepared: Executable, sent: Sent, answer: PartialResult, residency: Residency,
              kept: Sequence[Residency | None], began: float) -> None:
        """Receive one worker's answer, for which the driver waits since ``began``."""
        try:
            epoch, reply, data = worker.receive(sent)
        except PartitionMissing:
            residency.lose(prepared.results)
            self.discover(residency, worker)
            raise
        profiling.answered(prepared.labels, reply.times, began, worker.home.runtime_dir, relayed=bool(sent.relayed))
        if self._is_noted:
            self._note(prepared, user_line(), reply, began, data.size)
        for target, contents in zip(kept, prepared.kept, strict=True):
            if target:
                target.bind(worker.home, epoch, contents)
                # What plans make lies where they ran.
                target.tokens = target.tokens or residency.tokens
            if target:
                target.ended(reply)
        answer.add(prepared, reply, data, self.credentials.keyring)

    @property
    def _is_noted(self) -> bool:
        """Whether answers are noted by the user's line: in a journal, or for a dashboard."""
        return bool(self.options.journal) or watch.of(self.credentials.session) is not None

    def _note(self, prepared: Executable, line: str, reply: Ran, began: float, nbytes: int) -> None:
        """Note an answer, for which the driver waits since ``began``, by the user's line."""
        journal.answered(self.options.journal, prepared.key, prepared.labels, line, reply.times, began,
                         len(prepared.results), nbytes)
        followed = watch.of(self.credentials.session)
        if followed is not None:
            followed.answered(prepared.labels, line, reply.times, time.monotonic() - began, nbytes)

    def discover(self, residency: Residency, worker: Worker) -> None:
        """Ask a worker for the partitions of a VRDD that it holds."""
        epoch, contents = worker.held(residency.cached.number)
        residency.bind(worker.home, epoch, contents)

def bring_tables(nodes: LogicalPlan) -> list[TableReference]:
    """Have workers hold the tables that functions of a chain take by reference; return the tables."""
    tables = tables_of(nodes)
    for table in tables:
        table.bring()
    return tables
