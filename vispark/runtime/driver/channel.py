"""Interface of the ways from the driver to a worker: over connections, or by Spark tasks that relay."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, NamedTuple, Protocol

from pyspark import RDD

from gpu_worker.protocol.frozen import dataclass
from gpu_worker.protocol.messages import Ran, Request
from gpu_worker.protocol.payload import Data
from vispark.data.records.partition_schema import PartitionSchema
from vispark.errors import Fenced, PartitionMissing, WorkerLost, WorldLost
from vispark.plan.lower.executable import Invocation
from vispark.runtime.driver.pipeline import PendingRequest, RequestPipeline
from vispark.runtime.executor.relay_tasks import Ask, Relay

#: What a plan is repeated after: the data is rebuilt, or found elsewhere.
LOST = (WorkerLost, Fenced, PartitionMissing, WorldLost)

#: What a task brings from a worker that is relayed to; None where it came to another node.
CarriedReply = tuple[int, Any, bytes] | None
#: Told a worker's epoch, and the shared memory of its thread blocks in bytes, 0 where that is not known.
Learn = Callable[[int, int], None]


class TokenHolder(Protocol):
    """Interface of a residency for tasks that run where its tokens lie."""

    tokens: RDD[Any] | None


class TokenPlace(NamedTuple):
    """Place of a partition's token, at its worker's node."""

    holder: TokenHolder
    partition: int


#: Runs a task where a partition's token lies, by a Spark job.
RunTask = Callable[[Relay | Ask, TokenPlace], CarriedReply]


@dataclass(frozen=True, slots=True)
class Sent:
    """Plan in flight to a worker: in a pipeline, or in a Spark task, which has started where the plan is of a world."""

    channel: WorkerChannel
    pipeline: RequestPipeline | None
    pending: PendingRequest | None
    relayed: Callable[[], CarriedReply] | None = None
    started: Future[CarriedReply] | None = None


class WorkerChannel(Protocol):
    """Interface of a way to a worker. Which one is taken says the worker's
    :class:`~gpu_worker.protocol.transport_kinds.TransportKind`, by whether it ``is_direct``.
    """

    def send(self, invocation: Invocation, token: TokenPlace, released: tuple[int, ...]) -> Sent:
        """Send a plan and the numbers of VRDDs that are released with it; a ``token`` lies on the worker's node.

        Raises
        ------
        WorkerLost, WorldLost
            If the connection breaks, or leads to another process than the plan is for.
        """

    def receive(self, sent: Sent) -> tuple[int, Ran, Data]:
        """Return the answer to a plan: the worker's epoch, its reply, and the fetched data.

        Raises
        ------
        WorkerLost, Fenced, PartitionMissing
            If the plan is to be repeated.
        VisparkError
            If it failed.
        """

    def ask(self, request: Callable[[int], Request], token: TokenPlace) -> tuple[int, Any]:
        """Send the small request that ``request`` makes of its number; return the worker's epoch and the reply."""

    def held(self, number: int) -> tuple[int, dict[int, PartitionSchema]] | None:
        """Return the worker's epoch and the schemas of a VRDD that it holds; None where it cannot be asked now."""

    def retain(self, number: int, partitions: tuple[int, ...], *, only: bool) -> None:
        """Release all other partitions of a VRDD in the worker, which with ``only`` then accepts no others."""

    def release(self, numbers: tuple[int, ...]) -> None:
        """Release VRDDs in the worker, after the plans in flight."""

    def abandon(self, world: bytes) -> None:
        """Notify plans that wait in an MPI world, or for it, that it lost a worker; nothing where that cannot be."""
