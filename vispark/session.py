"""The driver's side: which partition is where, and how a plan gets there and back.

A plan on cached data goes straight to the workers that hold it, one request and one reply for all partitions of a
worker. Spark jobs run for what is not there yet, or no more: lost partitions are found when a worker does not answer
or does not know them, rebuilt from what is left of their lineage, and the plan is repeated for them alone.
"""

from __future__ import annotations

import atexit
import itertools
import logging
import queue
import secrets
import threading
import uuid
import weakref
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import ClassVar

from pyspark import RDD, SparkContext, StorageLevel

from gpu_worker.protocol.grids import Iterated
from gpu_worker.protocol.messages import Folded
from gpu_worker.protocol.payload import Data
from vispark.bridge import Credentials, Home, Load, Relay, Token
from vispark.errors import PartitionMissing, PlanError, VisparkError, WorkerUnavailable
from vispark.lower import Content, Lowered
from vispark.options import Options
from vispark.plan import Cached, Chain
from vispark.rewrite import KEEP, Goal
from vispark.spark import SPARK_JOB_FAILED, reraise, worker_crashed
from vispark.workers import LOST, Relayed, Worker, Workers

log = logging.getLogger(__name__)


class Residency:
    """What workers hold under one VRDD number. Dropping the last reference lets the workers forget it.

    Attributes
    ----------
    cached : Cached
        The number and the name.
    places : dict of int to (Home, int)
        Where each partition is, and the epoch of the process that got it.
    contents : dict of int to Content
        What each partition looks like.
    iterated : Iterated or None
        How the loop ended whose result it is.
    """

    def __init__(self, session: Session, cached: Cached):
        self.iterated: Iterated | None = None
        self.cached = cached
        self.places: dict[int, tuple[Home, int]] = {}
        self.contents: dict[int, Content] = {}
        self.tokens: RDD[Token] | None = None
        self.lock = threading.RLock()
        self._release = weakref.finalize(self, session.released.put, cached.number)
        self._release.atexit = False

    def bind(self, partition: int, home: Home, epoch: int, content: Content) -> None:
        self.places[partition] = home, epoch
        self.contents[partition] = content

    def lose(self, partitions: Iterable[int]) -> None:
        for partition in list(partitions):
            self.places.pop(partition, None)

    def rename(self, name: str) -> None:
        """Call it so from now on; what workers hold already keeps its name there."""
        self.cached = Cached(self.cached.number, name)

    def close(self) -> None:
        """Let the workers forget the content now."""
        self._release()


@dataclass
class Answer:
    """What a plan gave so far: a list of records, or a fold, by partition or by the first of a worker's partitions."""

    records: dict[int, list] = field(default_factory=dict)
    folds: dict[int, tuple[Folded, Data, Content]] = field(default_factory=dict)
    done: set[int] = field(default_factory=set)


class Session:
    """One Spark application's stay in the workers.

    There is one for each SparkContext, made when it is first needed and ended with it; see :meth:`of`.
    """

    _sessions: ClassVar[weakref.WeakKeyDictionary[SparkContext, Session]] = weakref.WeakKeyDictionary()
    _lock = threading.Lock()

    def __init__(self, context: SparkContext):
        options = Options.read(context.getConf().getAll())
        self.context = weakref.proxy(context)
        self.credentials = Credentials(uuid.uuid4().hex, secrets.token_bytes(32), context.applicationId or "", options)
        self.options = options
        self.workers = Workers(self.credentials)
        self.released: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self.residencies: weakref.WeakValueDictionary[int, Residency] = weakref.WeakValueDictionary()
        self._numbers = itertools.count(1)
        self._keeper = threading.Thread(target=self._keep_house, name="vispark keeper", daemon=True)
        self._keeper.start()
        atexit.register(self.close)

    @classmethod
    def of(cls, context: SparkContext) -> Session:
        """The session of a SparkContext.

        Raises
        ------
        OptionError
            If its configuration has an unknown ``spark.vispark.*`` option.
        PlanError
            If it has been stopped.
        """
        if context._jsc is None:
            raise PlanError("the SparkContext was stopped, and what workers held for it is gone: make the RDD anew")
        with cls._lock:
            if context not in cls._sessions:
                cls._sessions[context] = cls(context)
            return cls._sessions[context]

    @classmethod
    def end(cls, context: SparkContext) -> None:
        """End the session of a SparkContext that is about to stop, if it has one."""
        with cls._lock:
            session = cls._sessions.pop(context, None)
        if session:
            session.close()

    def close(self) -> None:
        """Let go of everything; the workers give all of the session's memory back."""
        atexit.unregister(self.close)
        self.released.put(None)
        if self._keeper is not threading.current_thread():
            self._keeper.join(timeout=5)
        self.workers.close()

    def residency(self, name: str) -> Residency:
        """A new number for content to be kept."""
        residency = Residency(self, Cached(next(self._numbers), name))
        self.residencies[residency.cached.number] = residency
        return residency

    def _keep_house(self) -> None:
        """Pass on what finalizers have released; they only enqueue."""
        while (number := self.released.get()) is not None:
            numbers = [number]
            while not self.released.empty() and (number := self.released.get()) is not None:
                numbers.append(number)
            self.workers.release(tuple(numbers))
            if number is None:
                return

    # -- plans on cached data -----------------------------------------------------------------------------------------

    def evaluate(self, loader, chain: Chain, partitions: Sequence[int], goal: Goal) -> Answer:
        """Run a chain that passes through cached content, and bring the result to the driver.

        Parameters
        ----------
        loader : RDD
            The RDD before the send.
        chain : Chain
            From the send; at least one of its nodes is cached.
        partitions : sequence of int
            The partitions wanted.
        goal : Goal
            What is wanted of them.

        Raises
        ------
        VisparkError
            If the plan fails, or a worker is lost under it more often than ``spark.vispark.attempts``.
        """
        start = next(node.cached for node in reversed(chain) if node.cached)
        answer = Answer()

        def once() -> None:
            todo = [partition for partition in partitions if partition not in answer.done]
            self._ensure(loader, chain, start, todo)
            self._round(chain, start, goal, todo, answer)

        self._until_done(once)
        return answer

    def ensure(self, loader, chain: Chain, partitions: Sequence[int]) -> dict[int, Content]:
        """Materialise the last cached node of a chain in some partitions; what it looks like there."""
        start = next(node.cached for node in reversed(chain) if node.cached)
        self._until_done(lambda: self._ensure(loader, chain, start, partitions))
        contents = self.residencies[start.number].contents
        return {partition: contents[partition] for partition in partitions}

    def tokens(self, chain: Chain):
        """An RDD with the token of each partition of a chain's last cached node, which is materialised.

        Where a worker is out of the driver's reach it is the one in Spark's storage: its tasks come to the right node.
        """
        residency = self._last(chain)
        if residency.tokens is not None and not all(worker.direct for worker in self.workers.known()):
            return residency.tokens
        found = [Token(partition, *residency.places[partition], {}) for partition in sorted(residency.places)]
        return self.context.parallelize(found, max(len(found), 1))

    def find(self, chain: Chain) -> None:
        """Ask all workers anew what they hold of a chain's last cached node."""
        residency = self._last(chain)
        with residency.lock:
            residency.lose(residency.places)
            for worker in self.workers.known():
                with suppress(*LOST, WorkerUnavailable):
                    self._discover(residency, worker)

    def _last(self, chain: Chain) -> Residency:
        return self.residencies[next(node.cached for node in reversed(chain) if node.cached).number]

    def places(self, chain: Chain) -> dict[int, dict[int, Home]]:
        """Where the partitions of a chain's cached nodes are, as far as is known, by number."""
        found = {}
        for node in chain:
            residency = self.residencies.get(node.cached.number) if node.cached else None
            if residency:
                found[node.cached.number] = {index: home for index, (home, _) in residency.places.items()}
        return found

    def _until_done(self, once: Callable[[], None]) -> None:
        for attempt in itertools.count():
            try:
                return once()
            except LOST as error:
                log.warning("lost under a plan, repeating it: %s", error)
                if attempt >= self.options.attempts:
                    raise

    def _ensure(self, loader, chain: Chain, wanted: Cached, partitions: Sequence[int]) -> None:
        """Materialise a node in the partitions where workers do not hold it: from earlier nodes, or by a Spark job."""
        residency = self.residencies[wanted.number]
        with residency.lock:
            missing = self._missing(residency, partitions)
            if not missing:
                return
            upto = chain[:next(index for index, node in enumerate(chain) if node.cached == wanted) + 1]
            for node in reversed(upto[:-1]):
                earlier = self.residencies.get(node.cached.number) if node.cached else None
                if earlier is None:
                    continue
                absent = set(self._missing(earlier, missing))
                here = [partition for partition in missing if partition not in absent]
                if here:
                    self._round(upto, earlier.cached, KEEP, here, Answer())
                missing = self._missing(residency, missing)
            if missing:
                self._load(loader, upto, missing)

    def _missing(self, residency: Residency, partitions: Iterable[int]) -> list[int]:
        return [partition for partition in partitions
                if partition not in residency.places or not self.workers.alive(*residency.places[partition])]

    def _round(self, chain: Chain, start: Cached, goal: Goal, partitions: Sequence[int], answer: Answer) -> None:
        """Send a plan to each worker that holds some of the partitions, then take the answers."""
        residency = self.residencies[start.number]
        shares: dict[Home, Lowered] = {}
        for partition in partitions:
            home, _ = residency.places[partition]
            if home not in shares:
                shares[home] = Lowered(chain, start, goal)
            shares[home].add(partition, residency.contents[partition])
        sent = [(self.workers.at(home), lowered) for home, lowered in shares.items()]
        errors: list[VisparkError] = []
        pending = [(worker, lowered, _trying(errors, worker.send, lowered, self._relayed(residency, lowered)))
                   for worker, lowered in sent]
        for worker, lowered, ticket in pending:
            if ticket is not None:
                _trying(errors, self._take, worker, lowered, ticket, answer, residency)
        _raise_gravest(errors)

    def _take(self, worker: Worker, lowered: Lowered, ticket, answer: Answer, residency: Residency) -> None:
        """Take one worker's answer."""
        try:
            epoch, reply, payload = worker.receive(ticket)
        except PartitionMissing:
            residency.lose([part.partition for part in lowered.inputs])
            self._discover(residency, worker)
            raise
        for number, contents in lowered.kept.items():
            kept = self.residencies.get(number)
            for partition, content in contents.items():
                if kept:
                    kept.bind(partition, worker.home, epoch, content)
        answer.done.update(part.partition for part in lowered.inputs)
        if reply.folded is not None:
            # Partitions without records do not say what a record looks like.
            results = lowered.results
            first = next((partition for partition, content in results.items() if content.count), min(results))
            answer.folds[first] = reply.folded, payload, results[first]
        for output in reply.outputs:
            answer.records[output.partition] = list(lowered.records(output, payload, self.credentials.keyring))

    def _discover(self, residency: Residency, worker: Worker) -> None:
        """Learn anew what a worker holds of a VRDD."""
        epoch, contents = worker.held(residency.cached.number)
        for partition, content in contents.items():
            residency.bind(partition, worker.home, epoch, content)

    # -- Spark jobs ---------------------------------------------------------------------------------------------------

    def _load(self, loader, chain: Chain, partitions: Sequence[int]) -> None:
        """Bring partitions into the workers by a Spark job over the RDD before the send."""
        tokens = loader.mapPartitionsWithIndex(Load(self.credentials, chain), preservesPartitioning=True)
        residency = self.residencies[chain[-1].cached.number]
        if not residency.contents:
            residency.tokens = tokens.setName(f"vispark tokens of {residency.cached.name}").persist(
                StorageLevel.MEMORY_ONLY)
        self._settle(chain, partitions)
        for token in self.job(lambda: self.context.runJob(tokens, list, list(partitions))):
            self._place(token)
        self._settle(chain)

    def _relayed(self, residency: Residency, lowered: Lowered) -> Relayed:
        """Runs a task where the token of a plan's first partition lies."""
        partition = lowered.inputs[0].partition

        def relayed(task: Relay):
            carried = residency.tokens.mapPartitionsWithIndex(task)
            return self.job(lambda: self.context.runJob(carried, list, [partition]))[0]
        return relayed

    def _place(self, token: Token) -> None:
        self.workers.at(token.home).learn(token.epoch)
        for number, content in token.contents.items():
            residency = self.residencies.get(number)
            if residency:
                residency.bind(token.partition, token.home, token.epoch, content)

    def _settle(self, chain: Chain, coming: Sequence[int] = ()) -> None:
        """Let workers hold of a chain's cached nodes what is known to be there and what is coming, no twin's copies."""
        kept = [self.residencies.get(node.cached.number) for node in chain if node.cached]
        for residency in kept:
            # Workers were told nothing yet of what has never been anywhere.
            for worker in self.workers.known() if residency and residency.contents else ():
                here = [partition for partition, (home, _) in list(residency.places.items()) if home == worker.home]
                worker.retain(residency.cached.number, sorted({*here, *coming}))

    def job(self, action: Callable[[], object]):
        """Run a Spark job, again where a Python worker crashed under it, and raise vispark's errors as themselves.

        Spark repeats failed tasks itself on a cluster, but not in local mode.
        """
        for attempt in itertools.count():
            try:
                return action()
            except SPARK_JOB_FAILED as error:
                if not worker_crashed(error) or attempt >= self.options.attempts:
                    reraise(error)
                log.warning("a Python worker crashed under a Spark job, repeating it")


def _trying(errors: list[VisparkError], action: Callable, *arguments):
    """The action's result; where it fails, nothing, and the error goes with the others."""
    try:
        return action(*arguments)
    except VisparkError as error:
        errors.append(error)
        return None


def _raise_gravest(errors: list[VisparkError]) -> None:
    """Raise one of the errors, if there are any; no loss, where there is something else.

    No frame that it passes refers to it afterwards: its traceback would keep them, and their data on the devices.
    """
    if errors:
        gravest = min(errors, key=lambda error: isinstance(error, LOST))
        errors.clear()
        try:
            raise gravest
        finally:
            del gravest
