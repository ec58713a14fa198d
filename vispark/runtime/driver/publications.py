"""Publishing of what workers hold, and attaching of what another application's workers have published.

Both are a small request to each worker; content stays where it is. Which nodes have a part of a publication their
daemons know: the driver asks those that it reaches, and a task of each executor the others.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Protocol

from pyspark import RDD, SparkContext

from gpu_worker.client.connection import administer, locate, machine
from gpu_worker.protocol.messages import ListPublications, PublicationDetails, Publish, Retract
from gpu_worker.protocol.publications import PublicationStatus
from vispark._utils.placed_rdd import placed
from vispark.errors import PublicationLost, VisparkError, WorkerUnavailable
from vispark.plan.operation import AttachedPublication
from vispark.runtime.driver.channel import LOST, TokenPlace
from vispark.runtime.driver.executor_gpus import is_local
from vispark.runtime.driver.loads import Loads
from vispark.runtime.driver.residency import Residency
from vispark.runtime.driver.spark_jobs import SparkJobs
from vispark.runtime.driver.worker import Worker, Workers
from vispark.runtime.executor.publications import (
    AttachedPart,
    AttachTask,
    ListTask,
    NamedPart,
    TakeBackTask,
    named,
    parts,
    request,
    take_back,
)
from vispark.runtime.identity import Credentials, PartitionHandle, WorkerAddress


class Sharing(Protocol):
    """Interface of a session for publications."""

    context: SparkContext
    credentials: Credentials
    workers: Workers
    jobs: SparkJobs
    loads: Loads


def publish(session: Sharing, residency: Residency, details: PublicationDetails, place: str, partitions: int, *,
            replaces: bool) -> None:
    """Have the workers publish a VRDD, all partitions of which they hold.

    Raises
    ------
    PublicationExists
        If another publication has the name, on the first node that is asked; nothing is published then.
    VisparkError
        If a worker cannot publish it, or is lost.
    """
    details = replace(details, key=secrets.token_hex(16), place=place, partitions=partitions)
    earlier = _named(session, details.name) if replaces else {}
    done: list[tuple[Worker, TokenPlace]] = []
    try:
        # All applications ask nodes in the same order, so that of two at once one has the name on all of them.
        for home, held in sorted(residency.by_home().items(), key=lambda each: _order(each[0])):
            worker, token = session.workers.at(home), TokenPlace(residency, held[0])
            worker.ask(_Asking(Publish(0, residency.cached.number, details, replaces)), token)
            done.append((worker, token))
    except VisparkError:
        for worker, token in done:
            _retract(worker, token, details)
        raise
    _take_back(session, details.name, [part for home, part in earlier.items() if home not in residency.by_home()])


def _named(session: Sharing, name: str) -> dict[WorkerAddress, NamedPart]:
    """Return the publications that have a name on the nodes where the driver or an executor runs."""
    listed = {part.home: part for home in _near(session) for part in named(name, home.runtime_dir)}
    if not is_local(session.context):
        executors = executors_of(session.context)
        places = [[place] if place else [] for place in executors.values()]
        listings = placed(session.context, list(executors), places).mapPartitionsWithIndex(ListTask(name))
        listed = {part.home: part for part in session.jobs.run(listings.collect)} | listed
    return listed


def _take_back(session: Sharing, name: str, parts: Sequence[NamedPart]) -> None:
    """Withdraw the parts of a replaced publication from nodes on which the new one has none."""
    far = [part for part in parts if part.executor]
    for part in parts:
        if not part.executor:
            take_back(name, part.key, part.home.runtime_dir)
    if far:
        executors = executors_of(session.context)
        places = [[executors[part.executor]] if executors.get(part.executor) else [] for part in far]
        keys = placed(session.context, [part.key for part in far], places)
        removals = keys.mapPartitionsWithIndex(TakeBackTask(name))
        session.jobs.run(removals.collect)


def _retract(worker: Worker, token: TokenPlace, details: PublicationDetails) -> None:
    try:
        worker.ask(_Asking(Retract(0, details.name, details.key)), token)
    except (*LOST, PublicationLost, WorkerUnavailable):
        pass        # it is gone there


@dataclass(frozen=True)
class _Asking:
    """Function that gives a request its number; tasks may carry it."""

    request: Any

    def __call__(self, number: int) -> Any:
        return replace(self.request, number=number)


def _order(home: WorkerAddress) -> tuple[str, str]:
    return home.machine, home.runtime_dir


def attach(session: Sharing, wanted: AttachedPublication, residency: Residency) -> PublicationDetails:
    """Attach a publication to the workers of all nodes that have a part of it, as the content of a residency.

    Raises
    ------
    PublicationLost
        If there is none of that name, or a part of it lies on nodes where the application has no executor.
    Unauthorized
        If it has another secret.
    VisparkError
        If a worker cannot attach it.
    """
    details: PublicationDetails | None = None
    lost = PublicationLost(f"there is no publication {wanted.name!r} of this user where the driver or an executor of "
                           "this application runs")
    if not session.credentials.gpus.is_scheduled:       # where it is, tasks bring the devices
        for home in _near(session):
            try:
                details = _attached_at(session, home, wanted, residency)
            except PublicationLost as error:
                lost = error
            wanted = replace(wanted, key=details.key) if details else wanted
    if details is None or len(residency.places) < details.partitions:
        details = _by_tasks(session, wanted, residency) or details
    if details is None:
        raise lost
    missing = sorted(set(range(details.partitions)) - residency.places.keys())
    if missing:
        raise PublicationLost(f"of the publication {wanted.name!r} the partitions {missing[:8]} are not there: they "
                              "lie on nodes where this application has no executor, or their daemon has ended in the "
                              "lease. On other nodes the name stays taken until then: publish(..., replace=True) puts "
                              f"another in its place, gpu-worker unpublish {wanted.name!r} makes it free")
    return details


def listed(session: Sharing) -> tuple[PublicationStatus, ...]:
    """Return the publications that have a part on the driver's node, or beside a worker that it reaches by a socket;
    each once, with its bytes there and the most readers that it has on a node.
    """
    by_key: dict[str, PublicationStatus] = {}
    for home in _near(session):
        with suppress(WorkerUnavailable):
            for status in administer(ListPublications(), runtime_dir=home.runtime_dir).publications:
                earlier = by_key.get(status.key)
                by_key[status.key] = status if earlier is None else replace(
                    status, nbytes=status.nbytes + earlier.nbytes, readers=max(status.readers, earlier.readers))
    return tuple(by_key.values())


def _near(session: Sharing) -> Iterator[WorkerAddress]:
    """Yield the workers whose daemons the driver may reach by a socket of its node, of which it need not have one."""
    here = WorkerAddress(str(locate().path), machine())
    yield here
    yield from [worker.home for worker in session.workers.known() if worker.home.here and worker.home != here]


def _attached_at(session: Sharing, home: WorkerAddress, wanted: AttachedPublication,
                 residency: Residency) -> PublicationDetails | None:
    try:
        administer(ListPublications(), runtime_dir=home.runtime_dir)    # raises where no worker runs
    except WorkerUnavailable:
        return None
    worker = session.workers.at(home)
    if not worker.direct:
        return None
    epoch, reply = worker.ask(lambda number: request(number, wanted, residency.cached), TokenPlace(residency, 0))
    residency.bind(home, epoch, parts(reply))
    return reply.details


def _by_tasks(session: Sharing, wanted: AttachedPublication, residency: Residency) -> PublicationDetails | None:
    """Attach a publication by a task of each executor; return None if no executor's node has it."""
    executors = executors_of(session.context)
    task = AttachTask(session.credentials, wanted, residency.cached)
    places = [[executor] if executor else [] for executor in executors.values()]
    attachments = placed(session.context, list(executors), places).mapPartitionsWithIndex(task)
    parts: list[AttachedPart] = session.jobs.run(attachments.collect)
    details = next((part.details for part in parts if part.details), None)
    errors = [part.error for part in parts if part.error]
    if errors:
        raise errors[0]
    near: dict[int, list[str]] = {}
    tokens: dict[int, PartitionHandle] = {}
    for part in parts:
        for handle in part.handles:
            session.loads.place(handle)
            tokens[handle.partition] = handle
            near.setdefault(handle.partition, []).append(executors.get(part.executor, ""))
    if tokens:
        residency.tokens = tokens_at(session.context, tokens, near)
    return details


def tokens_at(context: SparkContext, tokens: dict[int, PartitionHandle],
              near: dict[int, list[str]]) -> RDD[PartitionHandle]:
    """Return an RDD of the tokens in their order, whose tasks run on the executors beside the partitions."""
    numbers: Sequence[int] = sorted(tokens)
    return placed(context, [tokens[number] for number in numbers],
                  [[place for place in near[number] if place] for number in numbers])


def at_executor(context: SparkContext, executor: str) -> RDD[None] | None:
    """Return an RDD of one partition whose task runs on an executor, by its name in Spark; None if that is gone."""
    place = executors_of(context).get(executor)
    return None if place is None else placed(context, [None], [[place] if place else []])


def executors_of(context: SparkContext) -> dict[str, str]:
    """Return the executors by their names in Spark, with what they are called as the place of a task; a single one
    without a place in local mode, and where there are none yet.
    """
    executors: dict[str, str] = {}
    if not is_local(context):
        listed = context._jsc.sc().statusStore().executorList(True)
        for position in range(listed.size()):
            executor = listed.apply(position)
            if executor.id() != "driver":
                host = executor.hostPort().rpartition(":")[0]
                executors[executor.id()] = f"executor_{host}_{executor.id()}"
    return executors or {"driver": ""}
