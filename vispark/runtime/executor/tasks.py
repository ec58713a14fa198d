"""Tasks that Spark runs for a VRDD: one loads a partition into the worker of its node, one receives its records.

They are shipped to the executors with the session's credentials.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from pyspark import TaskContext

from gpu_worker.client.connection import Client, machine
from gpu_worker.protocol.messages import Ran
from gpu_worker.protocol.payload import Data
from vispark.data.records import Packed, pack, pack_as
from vispark.data.records.partition_schema import PartitionSchema
from vispark.errors import (
    CompileError,
    DeviceUnavailable,
    NotFinite,
    OptionError,
    OutOfMemory,
    PartitionMissing,
    PlanError,
    RecordError,
    VisparkError,
    WorkerUnavailable,
)
from vispark.plan import ops
from vispark.plan.lower.executable import Invocation
from vispark.plan.lower.grid import lowering
from vispark.plan.lower.stages import FETCH, KEEP, RequestedOutput
from vispark.plan.operation import functions_of
from vispark.plan.ops import CompressedLineage, DatasetId, LogicalPlan
from vispark.runtime.executor.assigned_gpus import executor_id
from vispark.runtime.executor.client import answered, held, local_client, run
from vispark.runtime.executor.publications import attach_here
from vispark.runtime.identity import Credentials, PartitionHandle, WorkerAddress
from vispark.runtime.profiling.profiler import TaskSeconds
from vispark.runtime.task_errors import task_error
from vispark.translate.frontend import index_faults


def _packed(credentials: Credentials, chain: LogicalPlan, partition: int, records: Iterable[Any]) -> Packed:
    if chain[0].op.layout is not None:
        return pack_as(chain[0].op.layout, records)
    try:
        return pack(records, seal=credentials.keyring.seal)
    except RecordError as error:
        raise error.at(vrdd=ops.name_of(chain), partition=partition, operation="send") from error.__cause__


def _run(credentials: Credentials, chain: LogicalPlan, partition: int, invocation: Invocation,
         packed: Packed) -> tuple[Client, Ran, Data]:
    """Run a plan on records, some of which may be read while they are sent."""
    try:
        return run(credentials, invocation, packed)
    except RecordError as error:
        raise error.at(vrdd=ops.name_of(chain), partition=partition, operation="send") from error.__cause__


def content_of(packed: Packed) -> PartitionSchema:
    """Return the schema of a packed partition."""
    return PartitionSchema(packed.count, len(packed.keys), packed.layout, tuple(packed.signatures), packed.positions)


def _lowered(client: Client, chain: LogicalPlan, start: DatasetId | None, requested: RequestedOutput, partition: int,
             content: PartitionSchema,
             devices: Sequence[str] = ()) -> Invocation:
    """Return the plan for one partition, with kernels for a client's worker."""
    work = lowering(chain, start, requested, [content], client.shared_limit)
    work.add(partition, content)
    return work.ship(devices)


#: What no other attempt mends, and what leaves the worker as it was. A fault of a kernel ends the job at once, before
#: another of its tasks finds that the worker is gone.
_FINAL = RecordError, PlanError, CompileError, NotFinite, OutOfMemory, OptionError

#: What another attempt mends only where it runs on another node: a missing GPU, a worker that does not start.
_OF_A_NODE = DeviceUnavailable, WorkerUnavailable


@dataclass(frozen=True)
class RefusedTask:
    """Result of a task that no retry would make succeed: the error and its trace.

    Spark has nothing to repeat and nothing to write to its log then.
    """

    error: VisparkError
    trace: str


@dataclass(frozen=True)
class ErrorReturning:
    """Function of a partition that hands errors back as its last result, for :func:`checked` to raise in the driver.

    Those that another attempt may mend, as errors of users' functions, it hands back in the last of the ``attempts``
    that Spark makes.
    """

    function: Callable[[int, Iterable[Any]], Iterable[Any]]
    attempts: int

    def __call__(self, partition: int, records: Iterable[Any]) -> Iterator[Any]:
        try:
            yield from self.function(partition, records)
        except _FINAL as error:
            yield RefusedTask(error, traceback.format_exc())
        except Exception as error:
            task, trace = TaskContext.get(), traceback.format_exc()
            refusal = task_error(trace) if not isinstance(error, VisparkError) else \
                error if isinstance(error, _OF_A_NODE) else None
            if refusal is None or task is None or task.attemptNumber() + 1 < self.attempts:
                raise
            yield RefusedTask(refusal, refusal.full_trace or trace)


def checked(results: list[Any], chain: LogicalPlan | None = None) -> list[Any]:
    """Return the results of tasks, for ``chain`` where that is known; raise the error that a task handed back, if one
    did.
    """
    for result in results:
        if type(result) is RefusedTask:
            result.error.full_trace = result.trace
            index_faults.add_user_lines(result.error, None if chain is None else functions_of(chain))
            raise result.error
    return results


@dataclass(frozen=True)
class LoadTask:
    """Task that loads a partition into the worker of its node and keeps the chain's cached results."""

    credentials: Credentials
    chain: LogicalPlan
    profile: bool = False

    def __call__(self, partition: int, records: Iterable[Any]) -> Iterator[PartitionHandle]:
        spent = TaskSeconds()
        packed = _packed(self.credentials, self.chain, partition, records)
        spent.lap("parse")
        invocation = _lowered(local_client(self.credentials), self.chain, None, KEEP, partition, content_of(packed),
                              self.credentials.gpus.own_addresses())
        spent.lap("python")
        client, reply, _ = _run(self.credentials, self.chain, partition, replace(invocation, profile=self.profile),
                                packed)
        spent.answered(reply.times)
        schemas = {number: contents[partition]
                   for number, contents in zip(invocation.vrdds, invocation.prepared.kept, strict=True)}
        task = TaskContext.get()
        yield PartitionHandle(partition, WorkerAddress(client.runtime_dir, machine()), client.epoch, schemas,
                              dict(spent.seconds) if self.profile else None, client.reach,
                              task.stageId() if task else 0, client.shared_limit, executor_id())


def _not_alone(partition: int, what: str = "") -> PartitionMissing:
    return PartitionMissing(f"partition {partition}{what} is not held any more, and needs neighbours to be computed: "
                            "use the VRDD's own actions, or take its recv() anew")


@dataclass(frozen=True)
class Receive:
    """Task that gives a partition's records to Spark.

    It starts from the nearest result that is held: where ``places`` say (as the driver knew them, with what is there),
    or in the worker of its node. Where there is none, it starts from the records, and keeps what the chain says on the
    way unless that is held elsewhere.

    Attributes
    ----------
    chain : LogicalPlan
        From a result on that was held, if one was.
    past : CompressedLineage
        All of it, for the case that this is lost.
    is_columnar : bool
        Whether it gives a :class:`FetchedPartition`, with the arrays as they came, in place of the records.
    """

    credentials: Credentials
    chain: LogicalPlan
    places: dict[int, dict[int, tuple[WorkerAddress, PartitionSchema]]]
    past: CompressedLineage
    is_columnar: bool = False

    def __call__(self, partition: int, records: Iterable[Any]) -> Iterator[Any]:
        held = self._from_held(partition)
        if held is not None:
            return held
        *_, chain = self._chains()
        if chain[0].op.publication is not None and chain[0].cached is not None:
            attach_here(self.credentials, chain[0].op.publication, chain[0].cached)
            return self._from(chain, chain[0].cached, partition, None)
        return self._from_records(chain, partition, records)

    def from_worker(self, partition: int, _: Iterable[Any]) -> Iterator[Any]:
        """Receive the content if a worker holds something to compute it from; else nothing."""
        return self._from_held(partition) or iter(())

    def _from_held(self, partition: int) -> Iterator[Any] | None:
        for chain in self._chains():
            for cached in [node.cached for node in reversed(chain) if node.cached]:
                if ops.runs_together(chain, cached):
                    raise _not_alone(partition, f" of {cached}")
                with suppress(PartitionMissing):
                    return self._from(chain, cached, partition,
                                      *self.places.get(cached.number, {}).get(partition, (None, None)))
        return None

    def _chains(self) -> Iterator[LogicalPlan]:
        """Yield the chain, and then, for the case that its start is lost, the chain from the send on."""
        yield self.chain
        if ops.is_cut(self.chain):
            yield tuple([node for nodes, times in self.past for _ in range(times) for node in nodes])

    def from_token(self, partition: int, tokens: Iterable[PartitionHandle]) -> Iterator[Any]:
        """Receive the content at the place that a token names.

        Raises
        ------
        PartitionMissing
            If it is not there any more.
        """
        token, = tokens
        last = next(node.cached for node in reversed(self.chain) if node.cached)
        return self._from(self.chain, last, partition, token.home, token.contents.get(last.number))

    def _from(self, chain: LogicalPlan, start: DatasetId, partition: int, home: WorkerAddress | None,
              content: PartitionSchema | None = None) -> Iterator[Any]:
        """Receive content from a worker; its schema is requested from the worker if it is unknown."""
        runtime_dir = home.runtime_dir if home and home.here else None
        if content is None:
            content = answered(self.credentials, runtime_dir,
                                lambda client: held(client, start.number, [partition]).get(partition))
        if content is None:
            raise PartitionMissing(f"partition {partition} of VRDD {start.number} is not held here")
        client = local_client(self.credentials, runtime_dir)
        invocation = _lowered(client, chain, start, FETCH, partition, content)
        return self._records(invocation, run(self.credentials, invocation, runtime_dir=runtime_dir))

    def _from_records(self, chain: LogicalPlan, partition: int, records: Iterable[Any]) -> Iterator[Any]:
        packed = _packed(self.credentials, chain, partition, records)
        grid = packed.layout.grid
        if grid is not None and len(packed.positions) < grid.blocks and ops.runs_together(chain, None):
            raise _not_alone(partition)
        chain = tuple([ops.PlanNode(node.op, None if self._elsewhere(node.cached, partition) else node.cached)
                       for node in chain])
        invocation = _lowered(local_client(self.credentials), chain, None, FETCH, partition, content_of(packed),
                              self.credentials.gpus.own_addresses())
        return self._records(invocation, _run(self.credentials, chain, partition, invocation, packed))

    def _elsewhere(self, cached: DatasetId | None, partition: int) -> bool:
        return cached is not None and partition in self.places.get(cached.number, {})

    def _records(self, invocation: Invocation, answer: tuple[Client, Ran, Data]) -> Iterator[Any]:
        _, reply, data = answer
        if self.is_columnar:
            return iter([invocation.prepared.columns(reply.outputs[0], data, self.credentials.keyring)])
        return invocation.prepared.records(reply.outputs[0], data, self.credentials.keyring)
