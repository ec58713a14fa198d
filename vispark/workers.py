"""The workers that hold a session's data, as the driver reaches them: by their socket, or through a Spark task."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from gpu_worker.client import Client, Lease, connect, finish, open_lease
from gpu_worker.protocol import messages
from gpu_worker.protocol.messages import Ran, Release, Request, Retain
from gpu_worker.protocol.payload import Data, Payload, results
from vispark.bridge import Credentials, Home, Relay, blame, contents
from vispark.errors import Fenced, PartitionMissing, VisparkError, WorkerError, WorkerLost
from vispark.lower import Content, Lowered

log = logging.getLogger(__name__)

#: What a plan is repeated after: the data is rebuilt, or found elsewhere.
LOST = (WorkerLost, Fenced, PartitionMissing)

#: Runs a task where a partition's token lies, by a Spark job.
Relayed = Callable[[Relay], "tuple[int, Ran, bytes] | None"]


@dataclass
class Ticket:
    """A plan on its way to a worker."""

    number: int
    lowered: Lowered | None
    client: Client | None
    relayed: Callable[[], tuple[int, Ran, bytes] | None] | None


class Worker:
    """One worker.

    Attributes
    ----------
    home : Home
        Where it is.
    epoch : int
        Which of the session's device processes there answered last; content from before is gone.
    direct : bool
        Whether plans go to its socket from here.
    plans : int
        How many plans it was sent.
    fetched_bytes : int
        How many bytes of results came back from it.
    """

    def __init__(self, credentials: Credentials, home: Home):
        self.home = home
        self.epoch = 0
        self.plans = 0
        self.fetched_bytes = 0
        self._credentials = credentials
        self._idle: list[Client] = []
        self._lease: Lease | None = None
        self._released: list[int] = []
        self._lock = threading.Lock()
        transport = credentials.options.transport
        self.direct = transport == "direct" or (transport == "auto" and home.here)

    def learn(self, epoch: int) -> None:
        """Take note of the epoch that the worker is in."""
        self.epoch = max(self.epoch, epoch)

    def send(self, lowered: Lowered, relay: Relayed) -> Ticket:
        """Send a plan. ``relay`` is used where the worker cannot be reached from here."""
        self.plans += 1
        if not self.direct:
            task = Relay(self._credentials, self.home, lowered, self._take_released())
            return Ticket(0, None, None, lambda: relay(task))
        client = self._client()
        try:
            request, constants = lowered.request(client.next_number(), client.epoch, self._credentials.options.deadline)
            if constants:
                with Payload.create(constants) as payload:
                    lowered.constants.write(payload)
                    client.send(request, [payload.descriptor])
            else:
                client.send(request)
        except WorkerLost:
            self._drop(client)
            raise
        except VisparkError:
            self._give(client)
            raise
        return Ticket(request.number, lowered, client, None)

    def receive(self, ticket: Ticket) -> tuple[int, Ran, Data]:
        """The answer to a plan: the worker's epoch, its reply, and the payload with what was fetched.

        Raises
        ------
        WorkerLost, Fenced, PartitionMissing
            If the plan is to be repeated.
        VisparkError
            If it failed.
        """
        if ticket.relayed:
            return self._receive_relayed(ticket)
        client = ticket.client
        try:
            reply, descriptors = client.receive(ticket.number)
        except (WorkerLost, Fenced):
            self._drop(client)
            blame(self._credentials, client, ticket.lowered)
            raise
        except VisparkError:
            self._give(client)
            raise
        self._give(client)
        payload = results(reply.data, descriptors)
        self.fetched_bytes += payload.size
        return client.epoch, reply, payload

    def held(self, number: int) -> tuple[int, dict[int, Content]]:
        """What the worker holds of a VRDD, and its epoch; nothing can be told of one that is relayed to."""
        if not self.direct:
            return self.epoch, {}
        epoch, reply = self._ask(lambda client: messages.Describe(client.next_number(), number, ()))
        return epoch, contents(reply)

    def retain(self, number: int, partitions: list[int]) -> None:
        """Let the worker forget all other partitions of a VRDD."""
        if self.direct:
            with suppress(WorkerError):
                self._ask(lambda client: Retain(client.next_number(), number, tuple(partitions)))

    def release(self, numbers: tuple[int, ...]) -> None:
        """Let the worker forget VRDDs; where it is relayed to, with the next plan."""
        if not self.direct:
            with self._lock:
                self._released.extend(numbers)
            return
        with suppress(WorkerError):
            self._ask(lambda client: Release(client.next_number(), numbers))

    def close(self) -> None:
        """Close all connections; the worker gives back all that the session holds."""
        with self._lock:
            idle, self._idle = self._idle, []
            lease, self._lease = self._lease, None
        for client in idle:
            client.close()
        if lease:
            lease.close()
            with suppress(WorkerError):
                finish(self._credentials.hello("finish", 0), runtime_dir=self.home.runtime_dir)

    def _ask(self, request: Callable[[Client], Request]) -> tuple[int, Any]:
        """The answer to a small request, of the process after it where one is lost, and its epoch.

        A connection that waited may lead to a process that is gone, while tasks have brought data to the next one.
        """
        attempts = self._credentials.options.attempts
        while True:
            try:
                with self._borrowed() as client:
                    return client.epoch, client.request(request(client))[0]
            except WorkerLost:
                attempts -= 1
                if attempts < 0:
                    raise

    def _receive_relayed(self, ticket: Ticket) -> tuple[int, Ran, Data]:
        answer = ticket.relayed()
        if answer is None:
            raise PartitionMissing("no task came to the node that holds the partition")
        epoch, reply, data = answer
        self.learn(epoch)
        self.fetched_bytes += len(data)
        return epoch, reply, results(data, ())

    def _take_released(self) -> tuple[int, ...]:
        with self._lock:
            released, self._released = tuple(self._released), []
        return released

    def _client(self) -> Client:
        with self._lock:
            if self._idle:
                return self._idle.pop()
        hello = self._credentials.hello("driver", 0)
        timeout = self._credentials.options.startTimeout
        client = connect(hello, runtime_dir=self.home.runtime_dir, timeout=timeout)
        with self._lock:
            if self._lease is None:
                self._lease = open_lease(self._credentials.hello("lease", 0), runtime_dir=self.home.runtime_dir)
        self.learn(client.epoch)
        return client

    def _give(self, client: Client) -> None:
        with self._lock:
            if client.fileno() >= 0:
                self._idle.append(client)

    def _drop(self, client: Client) -> None:
        """Close a connection that broke, and with it all that wait: they lead to the same process."""
        client.close()
        with self._lock:
            idle, self._idle = self._idle, []
        for each in idle:
            each.close()

    def _borrowed(self) -> _Borrowed:
        return _Borrowed(self)


class _Borrowed:
    """A connection for one request; closed where that fails."""

    def __init__(self, worker: Worker):
        self._worker = worker

    def __enter__(self) -> Client:
        self._client = self._worker._client()
        return self._client

    def __exit__(self, kind, error, _) -> None:
        if isinstance(error, WorkerLost | Fenced):
            self._worker._drop(self._client)
        else:
            self._worker._give(self._client)


class Workers:
    """All workers that a session knows of."""

    def __init__(self, credentials: Credentials):
        self._credentials = credentials
        self._known: dict[Home, Worker] = {}
        self._lock = threading.Lock()

    def at(self, home: Home) -> Worker:
        """The worker at a place."""
        with self._lock:
            if home not in self._known:
                self._known[home] = Worker(self._credentials, home)
            return self._known[home]

    def known(self) -> list[Worker]:
        """All of them."""
        with self._lock:
            return list(self._known.values())

    def alive(self, home: Home, epoch: int) -> bool:
        """Whether the process that got some content then is, as far as is known, the one that is there now."""
        return self.at(home).epoch <= epoch

    def release(self, numbers: tuple[int, ...]) -> None:
        """Let all workers forget VRDDs."""
        for worker in self.known():
            worker.release(numbers)

    def close(self) -> None:
        """Close all connections."""
        with self._lock:
            workers, self._known = list(self._known.values()), {}
        for worker in workers:
            worker.close()
