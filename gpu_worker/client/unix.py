"""Transport by the daemon's Unix socket: descriptors pass, so that payloads are memory that both sides map."""

from __future__ import annotations

from typing import ClassVar

from gpu_worker.client.transport import Transport
from gpu_worker.protocol.messages import Death, GetExitStatus, Hello
from gpu_worker.protocol.wire import Connection
from gpu_worker.system import log
from gpu_worker.system.admin import administer, open_connection


class UnixTransport(Transport):
    """Transport to the worker in a runtime directory of this node, which starts a daemon where there is none."""

    kind: ClassVar[str] = "unix"

    def __str__(self) -> str:
        return f"in {self.endpoint.directory.path}"

    def open(self, hello: Hello) -> tuple[Connection, Hello]:
        endpoint = self.endpoint
        return open_connection(endpoint.directory, endpoint.start, hello.options.log_level, endpoint.timeout), hello

    def exit_status(self, hello: Hello, epoch: int) -> Death:
        return administer(GetExitStatus(hello.session, epoch), runtime_dir=str(self.endpoint.directory.path))

    def log_tail(self) -> str:
        return log.tail(self.endpoint.directory.log, 20)

    @property
    def process_log(self) -> str:
        return str(self.endpoint.directory.process_log)
