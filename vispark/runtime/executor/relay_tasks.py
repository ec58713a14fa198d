"""Spark tasks for a driver that cannot reach a worker: they carry plans, requests and deferred messages to it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from gpu_worker.client.connection import Client, administer, locate, machine
from gpu_worker.protocol import messages
from gpu_worker.protocol.messages import Reply, Request, Status
from gpu_worker.protocol.wire import close_all
from vispark.errors import VisparkError, WorldLost
from vispark.plan.lower.executable import Invocation
from vispark.runtime.executor.client import answered, forget, local_client, run
from vispark.runtime.identity import Credentials, WorkerAddress

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Deferred:
    """Messages deferred until a task reaches a worker: the VRDDs to forget, and which partitions of others to hold at
    most.
    """

    released: tuple[int, ...]
    retained: dict[int, tuple[int, ...]]

    def send(self, client: Client) -> None:
        if self.released:
            client.request(messages.Release(client.next_number(), self.released))
        for number, partitions in self.retained.items():
            # It hears too late of those that are coming, so it may take them.
            client.request(messages.Retain(client.next_number(), number, partitions, only=False))


@dataclass(frozen=True)
class Relay:
    """Task that carries a plan, and the deferred messages, to the worker of a node that the driver cannot reach.

    It gives the worker's epoch, the reply or the error, and what was fetched; None on another node.
    """

    credentials: Credentials
    home: WorkerAddress
    invocation: Invocation
    deferred: Deferred

    def __call__(self, _: int, tokens: Iterable[Any]) -> Iterator[tuple[Any, ...] | None]:
        _use_up(tokens)
        if not self.home.here:
            yield None
            return
        runtime_dir = self.home.runtime_dir
        answered(self.credentials, runtime_dir, self.deferred.send)
        try:
            self._connect_to_process()
            client, reply, data = run(self.credentials, self.invocation, runtime_dir=runtime_dir)
        except VisparkError as error:
            # Spark would repeat the task, which is of no use, and tell the driver of the error in words alone, and of
            # the process that is there now not at all.
            yield local_client(self.credentials, runtime_dir).epoch, error, b""
            return
        yield client.epoch, reply, data.array.tobytes()

    def _connect_to_process(self) -> None:
        """Connect to the process that the plan is for. A connection that was kept may lead to one that has ended, which
        nothing told of: it is made anew before the plan is refused.

        Raises
        ------
        WorldLost
            If another process is there, which is in no world with those of other nodes.
        """
        client = local_client(self.credentials, self.home.runtime_dir)
        try:
            self.invocation.check(client.epoch)
        except WorldLost:
            forget(client)
            self.invocation.check(local_client(self.credentials, self.home.runtime_dir).epoch)


@dataclass(frozen=True)
class Ask:
    """Task that sends a small request to the worker of a node for a driver that cannot reach it.

    It gives the worker's epoch, the reply or the error, and no bytes; None on another node.
    """

    credentials: Credentials
    home: WorkerAddress
    request: Callable[[int], Request]

    def __call__(self, _: int, tokens: Iterable[Any]) -> Iterator[tuple[Any, ...] | None]:
        _use_up(tokens)
        if not self.home.here:
            yield None
            return
        try:
            yield *answered(self.credentials, self.home.runtime_dir, self._ask), b""
        except VisparkError as error:
            yield local_client(self.credentials, self.home.runtime_dir).epoch, error, b""

    def _ask(self, client: Client) -> tuple[int, Reply]:
        reply, descriptors = client.request(self.request(client.next_number()))
        close_all(descriptors)
        return client.epoch, reply


@dataclass(frozen=True)
class CollectTask:
    """Task that tells the worker of its node which VRDDs to free, if the session runs there; returns the worker's
    address.

    Attributes
    ----------
    deferred : dict of WorkerAddress to Deferred
        For workers that are relayed to.
    keep : dict of int to (dict of WorkerAddress to tuple of int)
        Of some VRDDs, all partitions that are to be held, and where.
    """

    credentials: Credentials
    deferred: dict[WorkerAddress, Deferred]
    keep: dict[int, dict[WorkerAddress, tuple[int, ...]]]

    def __call__(self, _: int, slots: Iterable[Any]) -> Iterator[WorkerAddress]:
        _use_up(slots)
        directory = locate()
        home = WorkerAddress(str(directory.path), machine())
        deferred = self.deferred.get(home, Deferred((), {}))
        retained = deferred.retained | {number: places.get(home, ()) for number, places in self.keep.items()}
        if (deferred.released or retained) and directory.session_socket(self.credentials.session).exists():
            # A process that has ended holds nothing; told of this, the daemon would start another, with GPUs that were
            # given back.
            if _has_process(self.credentials.session, home.runtime_dir):
                answered(self.credentials, None, Deferred(deferred.released, retained).send)
            yield home


def _has_process(session: str, runtime_dir: str) -> bool:
    """Return whether the session has a device process on this node."""
    try:
        status = administer(Status(), runtime_dir=runtime_dir)
    except VisparkError as error:
        log.info("no daemon says whether session %s has a process: %s", session, error)
        return False
    return any(each.session == session and each.pid for each in status.sessions)


def _use_up(records: Iterable[Any]) -> None:
    """Read all of a task's input: a Python worker that leaves some of it unread ends with the task, and the next task
    has to wait for another Python worker, with all imports and a new connection.
    """
    for _ in records:
        pass
