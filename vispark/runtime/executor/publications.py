"""Attaching publications in Spark's tasks: to the worker of a task's node, if its daemon has a part of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from pyspark import TaskContext

from gpu_worker.client.connection import Client, administer, locate, machine
from gpu_worker.protocol.messages import Attach, AttachedVrdd, ListPublications, PublicationDetails, Unpublish
from gpu_worker.protocol.wire import close_all
from vispark.data.records.partition_schema import PartitionSchema
from vispark.errors import PublicationLost, VisparkError, WorkerUnavailable
from vispark.plan.operation import AttachedPublication, DatasetId
from vispark.runtime.executor.assigned_gpus import executor_id
from vispark.runtime.executor.client import answered, contents
from vispark.runtime.identity import Credentials, PartitionHandle, WorkerAddress


@dataclass(frozen=True)
class AttachedPart:
    """Part of a publication that the worker of an executor's node has attached, or the error that it gave."""

    executor: str
    details: PublicationDetails | None = None
    handles: tuple[PartitionHandle, ...] = ()
    error: VisparkError | None = None


@dataclass(frozen=True)
class AttachTask:
    """Task that attaches a publication to the worker of its node, and says what of it is there.

    No worker is started where none runs: there is nothing to be attached then.
    """

    credentials: Credentials
    wanted: AttachedPublication
    dataset: DatasetId

    def __call__(self, _: int, keys: Iterable[Any]) -> Iterator[AttachedPart]:
        for _ in keys:
            pass
        try:
            yield self._attached()
        except (PublicationLost, WorkerUnavailable):
            yield AttachedPart(executor_id())
        except VisparkError as error:
            # Another attempt would be told the same.
            yield AttachedPart(executor_id(), error=error)

    def _attached(self) -> AttachedPart:
        administer(ListPublications())      # raises where no worker runs
        client, reply = attach_here(self.credentials, self.wanted, self.dataset)
        home = WorkerAddress(client.runtime_dir, machine())
        task = TaskContext.get()
        handles = [PartitionHandle(partition, home, client.epoch, {self.dataset.number: content}, None, client.reach,
                                   task.stageId() if task else 0, client.shared_limit, executor_id())
                   for partition, content in parts(reply).items()]
        return AttachedPart(executor_id(), reply.details, tuple(handles))


@dataclass(frozen=True)
class NamedPart:
    """Part of a publication on a node: the worker's address, the part's key, and an executor of the node, which is ""
    on the driver's own node.
    """

    home: WorkerAddress
    key: str
    executor: str = ""


@dataclass(frozen=True)
class ListTask:
    """Task that says which publication has a name on its node."""

    name: str

    def __call__(self, _: int, keys: Iterable[Any]) -> Iterator[NamedPart]:
        for _ in keys:
            pass
        yield from [replace(part, executor=executor_id()) for part in named(self.name, str(locate().path))]


@dataclass(frozen=True)
class TakeBackTask:
    """Task that takes a publication of a name back on its node, which is given by its key."""

    name: str

    def __call__(self, _: int, keys: Iterable[str]) -> Iterator[None]:
        for key in keys:
            take_back(self.name, key)
        yield None


def named(name: str, runtime_dir: str) -> list[NamedPart]:
    """Return the publication that has a name at the daemon of a directory of this node; none if there is none."""
    with suppress(WorkerUnavailable):
        listed = administer(ListPublications(), runtime_dir=runtime_dir).publications
        return [NamedPart(WorkerAddress(runtime_dir, machine()), each.key) for each in listed if each.name == name]
    return []


def take_back(name: str, key: str, runtime_dir: str | None = None) -> None:
    """Take a publication back at a daemon of this node, if it has the name there still."""
    with suppress(PublicationLost, WorkerUnavailable):
        administer(Unpublish(name, key), runtime_dir=runtime_dir)


def attach_here(credentials: Credentials, wanted: AttachedPublication,
                dataset: DatasetId) -> tuple[Client, AttachedVrdd]:
    """Attach a publication to the worker of this node; return the connection that answered, and the answer.

    Raises
    ------
    PublicationLost
        If there is none of that name here, or not any more.
    """
    def ask(client: Client) -> tuple[Client, AttachedVrdd]:
        reply, descriptors = client.request(request(client.next_number(), wanted, dataset))
        close_all(descriptors)
        return client, reply

    return answered(credentials, None, ask)


def request(number: int, wanted: AttachedPublication, dataset: DatasetId) -> Attach:
    """Return the request to attach a publication as a VRDD."""
    return Attach(number, wanted.name, wanted.key, wanted.digest, dataset.number, dataset.name)


def parts(reply: AttachedVrdd) -> dict[int, PartitionSchema]:
    """Return the content of the partitions that a worker has attached."""
    return contents(reply.content)
