"""Report of the exception that ends a rank, for the log and the device process."""

from __future__ import annotations

import traceback
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from gpu_worker.exchange.mpi.messages import Ended, RankAnswer
from gpu_worker.protocol.errors import WorkerLost
from gpu_worker.protocol.wire import Connection


class ExitReport:
    """Context that reports the exception that ends a rank: to the node's log and the device process.

    What the rank prints goes by way of mpirun, which ends it before all of it has arrived.
    """

    def __init__(self, connection: Connection, who: str, log: Path):
        self._connection = connection
        self._who = who
        self._log = log

    def __enter__(self) -> Connection:
        return self._connection

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        if error is None or kind is None or isinstance(error, WorkerLost):
            return      # the device process has ended, and says so itself
        report = traceback.TracebackException(kind, error, trace)
        last = report.stack[-1]
        summary = f"{kind.__name__}: {error} ({Path(last.filename).name}, line {last.lineno}, in {last.name})"
        whole = "".join(report.format())
        with suppress(OSError), self._log.open("a") as file:
            file.write(f"{self._who} ends: {summary}\n{whole}")
        with suppress(WorkerLost):
            self._connection.send(Ended(summary[:4096], whole[-65536:]), RankAnswer)
