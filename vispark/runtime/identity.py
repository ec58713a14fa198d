"""Identity of an application's processes and of its workers: credentials, addresses, handles of partitions.

The driver makes credentials, and ships them with its tasks; handles come back, and are all that Spark stores.
"""

from __future__ import annotations

import logging
import socket
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path

from gpu_worker.client.connection import machine
from gpu_worker.protocol.messages import VERSION, Hello, Reach
from gpu_worker.protocol.transport_kinds import wants_address
from vispark.data.records import Keyring
from vispark.data.records.partition_schema import PartitionSchema
from vispark.options import Options
from vispark.runtime.executor.assigned_gpus import AssignedGpus

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Credentials:
    """Credentials of a process that acts for a Spark application; shipped with its tasks and nowhere else.

    ``driver`` is the host of the driver, and ``machine`` what it sees as its machine. ``gpus`` are those of Spark's
    executors, which the driver brings up to date before each load.
    """

    session: str
    secret: bytes
    application: str
    options: Options
    driver: str = ""
    machine: str = ""
    gpus: AssignedGpus = field(default_factory=AssignedGpus)

    @cached_property
    def keyring(self) -> Keyring:
        return Keyring(self.secret)

    def hello(self, role: str, client_pid: int = 0, reach: str = "") -> Hello:
        """Return the greeting of a process for the worker of its node, or of another, in a role."""
        addresses = self.gpus.own_addresses() if role == "executor" else ()
        options = replace(self.options.for_worker(), scheduled=self.gpus.is_scheduled or bool(addresses))
        return Hello(VERSION, role, self.session, self.keyring.auth, self.application, client_pid, options, reach,
                     addresses)

    def reached_at(self) -> str:
        """Return the address of this node at which the driver is to reach the worker over TCP; empty if it reaches the
        worker otherwise.
        """
        needs_address = wants_address(self.options.transport, is_here=self.machine == machine())
        return _address_towards(self.driver) if needs_address else ""

    def __repr__(self) -> str:
        return f"Credentials({self.session})"


@dataclass(frozen=True)
class WorkerAddress:
    """Address of a worker: its runtime directory, and the name of its machine; a container counts as a machine."""

    runtime_dir: str
    machine: str

    @property
    def here(self) -> bool:
        """Whether the worker's socket can be opened from this process."""
        return self.machine == machine() and Path(self.runtime_dir, "daemon.sock").parent.is_dir()


@dataclass(frozen=True)
class PartitionHandle:
    """Handle that stands for a partition in Spark: its worker, and the schemas of its content by VRDD number.

    ``seconds`` says what its task spent them on, where that is asked for, ``reach`` where the worker is reached over
    TCP, where it is, ``stage`` which stage of Spark's the task was of, and ``shared_limit`` how much shared memory the
    worker's thread blocks can have, 0 where that is not known. ``executor`` is Spark's name of the executor that
    the task ran on.
    """

    partition: int
    home: WorkerAddress
    epoch: int
    contents: dict[int, PartitionSchema]
    seconds: dict[str, float] | None = None
    reach: Reach | None = None
    stage: int = 0
    shared_limit: int = 0
    executor: str = ""


@cache
def _address_towards(host: str) -> str:
    """Return this node's address for packets to a host; empty if there is no route."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, protocol) as sock:
            sock.connect(address)       # which sends nothing
            return sock.getsockname()[0]
    except OSError as error:
        log.warning("no address of this node leads to the driver's host %s: %s", host, error)
        return ""
