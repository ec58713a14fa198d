"""Supervisor of a standalone cluster: ``python -m vispark.migrate.clusters.standalone_supervisor PLACE``.

It starts the master and the workers that ``specification.json`` of PLACE names, writes ``state.json`` when all are up,
and ends them with itself: on SIGTERM, when one of them ends, and when no application was there for a while.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from pyspark.find_spark_home import _find_spark_home

from gpu_worker.commands.deployment.errors import ClusterError
from gpu_worker.commands.deployment.scheduled_gpus import DISCOVERY_SCRIPT
from vispark.migrate.clusters import tagged_processes

#: Seconds for a master or a worker to come up, and between looks at the applications.
START, LOOK = 90.0, 1.0

_MASTER = re.compile(r"Starting Spark master at (spark://\S+)")
_PAGE = re.compile(r"Bound MasterWebUI to .* and started at (http://\S+)")
_REGISTERED = re.compile(r"(Successfully registered with master)")


class StandaloneSupervisor:
    """Supervisor of the processes of one cluster.

    Parameters
    ----------
    place : Path
        The cluster's directory.
    """

    def __init__(self, place: Path):
        self._place = place
        self._specification: dict[str, Any] = json.loads((place / "specification.json").read_text(encoding="utf-8"))
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._is_ended = False

    def run(self) -> None:
        """Start all, and serve until the end."""
        signal.signal(signal.SIGTERM, lambda *_: setattr(self, "_is_ended", True))
        try:
            page = self._up()
            since = time.monotonic()
            while not self._is_ended:
                time.sleep(LOOK)
                if dead := [name for name, process in self._processes.items() if process.poll() is not None]:
                    print(f"{', '.join(dead)} ended; the cluster ends", flush=True)
                    break
                if applications(page) != 0:
                    since = time.monotonic()
                if time.monotonic() - since > self._specification["idle"]:
                    print(f"no application for {self._specification['idle']} s; the cluster ends", flush=True)
                    break
        finally:
            self._down()

    def _up(self) -> str:
        """Start master and workers, and return the address of the master's page."""
        log = self._start("master", ["org.apache.spark.deploy.master.Master", "--host", self._specification["master"],
                                     "--port", "0", "--webui-port", "0"], self._specification["master"], {})
        master, page = self._awaited_output("master", log, _MASTER), self._awaited_output("master", log, _PAGE)
        workers = {each["host"]: self._worker(each, master) for each in self._specification["workers"]}
        for host, worker_log in workers.items():
            self._awaited_output(f"worker-{host}", worker_log, _REGISTERED)
        state = {"master": master, "page": page, "workers": list(workers), "specification": self._specification}
        written = self._place / "state.json.new"
        written.write_text(json.dumps(state), encoding="utf-8")
        written.replace(self._place / "state.json")
        return page

    def _worker(self, worker: dict[str, Any], master: str) -> Path:
        host = worker["host"]
        runtime = self._place / host.rpartition(".")[2]
        runtime.mkdir(mode=0o700, exist_ok=True)
        variables = {"VISPARK_RUNTIME_DIR": str(runtime), "SPARK_LOCAL_DIRS": str(self._place / f"local-{host}")}
        if worker["gpus"]:
            variables["CUDA_VISIBLE_DEVICES"] = ",".join(worker["gpus"])
            variables["SPARK_WORKER_OPTS"] = (f"-Dspark.worker.resource.gpu.amount={len(worker['gpus'])} "
                                              f"-Dspark.worker.resource.gpu.discoveryScript={DISCOVERY_SCRIPT}")
        return self._start(f"worker-{host}", [
            "org.apache.spark.deploy.worker.Worker", "--host", host, "--cores", str(worker["cores"]), "--memory",
            worker["memory"], "--webui-port", "0", "--work-dir", str(self._place / f"work-{host}"), master],
            host, variables)

    def _start(self, name: str, command: list[str], host: str, variables: dict[str, str]) -> Path:
        """Start a master or a worker, which ends when this process is killed; return its log."""
        home, log = _find_spark_home(), self._place / f"{name}.log"
        common = {"SPARK_HOME": home, "PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON", sys.executable),
                  "SPARK_DAEMON_MEMORY": "512m", "SPARK_LOCAL_IP": host, "SPARK_PUBLIC_DNS": host,
                  "SPARK_LOG_DIR": str(self._place), "SPARK_NO_DAEMONIZE": "1",
                  "_SPARK_AUTH_SECRET": (self._place / "secret").read_text(encoding="utf-8"),
                  "SPARK_DAEMON_JAVA_OPTS": f"{os.environ.get('SPARK_DAEMON_JAVA_OPTS', '')} -Dspark.authenticate=true "
                                            "-Dspark.ui.killEnabled=false -Dspark.master.rest.enabled=false".strip()}
        outlived = ["setpriv", "--pdeathsig", "TERM"] if shutil.which("setpriv") else []
        with os.fdopen(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as output:
            self._processes[name] = subprocess.Popen(
                [*outlived, f"{home}/bin/spark-class", *command], stdin=subprocess.DEVNULL, stdout=output,
                stderr=output, cwd=self._place, env=os.environ | common | variables)
        return log

    def _awaited_output(self, name: str, log: Path, pattern: re.Pattern[str]) -> str:
        """Wait until a process's log has something, and return it.

        Raises
        ------
        ClusterError
            If the process ends before, or needs too long.
        """
        deadline = time.monotonic() + START
        while (match := pattern.search(log.read_text(encoding="utf-8", errors="replace"))) is None:
            if self._processes[name].poll() is not None or time.monotonic() > deadline or self._is_ended:
                raise ClusterError(f"{name} did not start: {log}")
            time.sleep(0.1)
        return match[1]

    def _down(self) -> None:
        """End everything that has the cluster's id: workers, executors, and the workers of vispark that these left."""
        for process in reversed(self._processes.values()):
            process.terminate()
        for process in self._processes.values():
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
        tagged_processes.end(os.environ[tagged_processes.ID], 5.0)


def applications(page: str) -> int | None:
    """Return the number of applications that a master has, running or waiting; None where it does not say."""
    try:
        with urllib.request.urlopen(f"{page}/json/", timeout=5) as answer:
            return len(json.load(answer)["activeapps"])
    except (OSError, ValueError, KeyError):
        return None


if __name__ == "__main__":
    StandaloneSupervisor(Path(sys.argv[1])).run()
