"""Feed of an application's dashboard: its workers as the driver knows them, and as they report themselves; its plans by
the user's line.
"""

from __future__ import annotations

import dataclasses
import time
from typing import Any

from gpu_worker.client.connection import Client, administer, connect
from gpu_worker.commands.web.stream import Feed
from gpu_worker.protocol.errors import VisparkError
from gpu_worker.protocol.messages import Report, Reported, Status, StatusReport
from vispark.runtime.driver.session import Session
from vispark.runtime.driver.worker import Worker
from vispark.runtime.identity import WorkerAddress
from vispark.runtime.profiling.watch import FollowedPlans

#: Seconds in which a worker over TCP has to be connected.
_CONNECT_SECONDS = 5.0
_OF_REPORT = ("kernels", "loaded", "compiling", "failed", "crowded", "snapshots", "received", "returned", "sent")


class ApplicationFeed(Feed):
    """Feed of one application's dashboard.

    A worker that is reached by its socket or over TCP is asked for its report; of one that plans are relayed to, which
    would take a Spark job, there is what the driver knows.

    Parameters
    ----------
    session : Session
        The application's.
    watch : FollowedPlans
        Its plans by line.
    seconds : float, optional
        Between two looks.
    """

    def __init__(self, session: Session, watch: FollowedPlans, seconds: float = 1.0):
        super().__init__(seconds)
        self._session, self._watch, self._name = session, watch, session.context.appName
        self._clients: dict[WorkerAddress, Client] = {}
        self._before: dict[WorkerAddress, tuple[float, int, int]] = {}
        #: Of each worker's devices, when the last report came and the busy seconds that it said.
        self._busy: dict[WorkerAddress, tuple[float, dict[str, float]]] = {}
        #: The names that workers have for themselves, as of their hosts.
        self._names: dict[WorkerAddress, str] = {}

    def look(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Ask the workers, and return what there is."""
        reports = {worker.home: self._report(worker) for worker in self._session.workers.known()}
        workers = [{"name": f"worker {number}", **self._described(worker, reports.get(worker.home))}
                   for number, worker in enumerate(self._session.workers.known(), 1)]
        state = {"up": True, "name": self._name,
                 "application": self._session.credentials.application, "lines": self._watch.lines(),
                 "workers": workers, "vrdds": self._vrdds([each for each in reports.values() if each is not None])}
        devices = {f"{worker['name']} {memory['device']}": memory["used"]
                   for worker in workers for memory in worker["memory"]}
        return state, {"at": time.time(), "up": True, "devices": devices,
                       "plans": {worker["name"]: worker["plans_rate"] for worker in workers},
                       "bytes": {worker["name"]: worker["bytes_rate"] for worker in workers}}

    def _described(self, worker: Worker, report: Reported | None) -> dict[str, Any]:
        now = time.monotonic()
        before, plans, nbytes = self._before.get(worker.home, (now, worker.plans, worker.fetched_bytes))
        self._before[worker.home] = (now, worker.plans, worker.fetched_bytes)
        seconds = max(now - before, 1e-3)
        described: dict[str, Any] = {
            "node": self._names.get(worker.home, worker.home.machine), "directory": worker.home.runtime_dir,
            "transport": worker.transport,
            "state": "gone" if worker.gone else "up" if report else "answers plans" if not worker.direct else "down",
            "plans": worker.plans, "bytes": worker.fetched_bytes, "memory": [],
            "plans_rate": (worker.plans - plans) / seconds, "bytes_rate": (worker.fetched_bytes - nbytes) / seconds}
        if report is not None:
            described |= {name: getattr(report, name) for name in _OF_REPORT}
            shares = self._busy_shares(worker, report)
            described |= {"host_bytes": report.host_bytes, "memory": [
                {**dataclasses.asdict(each), "share": shares.get(each.device)} for each in report.memory]}
        return described

    def _busy_shares(self, worker: Worker, report: Reported) -> dict[str, float]:
        """Return the share of the time since the last report in which each device had at least one plan."""
        now, seconds = time.monotonic(), {each.device: each.busy for each in report.memory}
        before, earlier = self._busy.get(worker.home, (now, {}))
        self._busy[worker.home] = now, seconds
        return {device: max(0.0, busy - earlier[device]) / max(now - before, 1e-3) for device, busy in seconds.items()
                if device in earlier}

    def _vrdds(self, reports: list[Reported]) -> list[dict[str, Any]]:
        """Return the content that is held, with its bytes as far as workers report them."""
        nbytes: dict[int, int] = {}
        for held in [held for report in reports for held in report.vrdds]:
            nbytes[held.vrdd] = nbytes.get(held.vrdd, 0) + held.nbytes
        return [{"vrdd": each.cached.number, "name": each.cached.name, "partitions": len(each.places),
                 "all": len(each.contents), "workers": len({home for home, _ in each.places.values()}),
                 "nbytes": nbytes.get(each.cached.number)}
                for each in sorted(self._session.residencies.values(), key=lambda each: each.cached.number)
                if each.contents]

    # -- reports ------------------------------------------------------------------------------------------------------

    def _report(self, worker: Worker) -> Reported | None:
        """Return a worker's report; None where it is relayed to, or does not answer. Nothing is started."""
        if not worker.direct or worker.gone:
            return None
        try:
            if not worker.kind.needs_address:
                return self._own(worker, administer(Status(), runtime_dir=worker.home.runtime_dir))
            return self._over_tcp(worker)
        except VisparkError:
            client = self._clients.pop(worker.home, None)
            if client is not None:
                client.close()
            return None

    def _own(self, worker: Worker, status: StatusReport) -> Reported | None:
        self._names[worker.home] = status.worker
        name = self._session.credentials.session
        return next((each.report for each in status.sessions if each.session == name), None)

    def _over_tcp(self, worker: Worker) -> Reported | None:
        client = self._clients.get(worker.home)
        if client is None:
            client = connect(self._session.credentials.hello("driver"), runtime_dir=worker.home.runtime_dir,
                             reach=worker.reach, timeout=_CONNECT_SECONDS, transport=worker.transport)
            self._clients[worker.home], self._names[worker.home] = client, client.worker
        reply, _ = client.request(Report(client.next_number()))
        return reply if isinstance(reply, Reported) else None

    def close(self) -> None:
        """Close the connections; no look is under way."""
        while self._clients:
            self._clients.popitem()[1].close()
