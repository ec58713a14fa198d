"""Standalone clusters of Spark on this machine: a master, and workers with addresses of their own, as processes.

A supervisor starts them, and ends them when no application has been there for a while. All have the cluster's id in
their environment, by which they are found again.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpu_worker.commands.deployment import scheduled_gpus
from gpu_worker.commands.deployment.errors import ClusterError, ClusterRefused
from gpu_worker.commands.deployment.platforms import (
    ABSENT,
    ENDED,
    READY,
    STARTING,
    ClusterParameter,
    ClusterStatus,
    Platform,
    SubmitSettings,
    device,
    memory,
    whole,
)
from gpu_worker.commands.deployment.records import Record
from vispark.errors import OptionError
from vispark.migrate.clusters import tagged_processes
from vispark.migrate.clusters.executors import task_share

#: Seconds until a cluster is up.
START = 120.0

_PARAMETERS = (
    ClusterParameter("workers", "1", whole(1, 64), "Workers of Spark, each at an address of its own."),
    ClusterParameter("cores", "", whole(1, 4096, empty=True), "Cores of each worker; empty: all, shared by workers."),
    ClusterParameter("memory", "", memory, "Memory of each worker; empty: half of the machine's, shared by workers."),
    ClusterParameter("gpus", "", whole(0, 64, empty=True), "GPUs of each worker; empty: all, shared by workers."),
    ClusterParameter("device", "auto", device, "As spark.vispark.device; with host:N the GPUs are devices of the CPU."),
    ClusterParameter("idle", "1800", whole(1, 10 ** 7), "Seconds without an application until the cluster ends."),
)


class StandalonePlatform(Platform):
    """Platform of clusters that are processes of this machine."""

    parameters = _PARAMETERS

    def place(self, identity: str, values: Mapping[str, str]) -> dict[str, str]:
        """Return the directory of a cluster; its path is short, as sockets lie below it."""
        return {"place": str(Path(tempfile.gettempdir()).absolute() / f"vispark-cluster-{identity[:12]}")}

    def plan(self, record: Record) -> dict[str, Any]:
        """Return the processes, with what each worker offers."""
        return {"place": record.details["place"], **specification(record.parameters)}

    def create(self, record: Record) -> dict[str, str]:
        """Start the supervisor, if it does not run yet, and wait until the workers are registered."""
        place = Path(record.details["place"])
        process = None
        if not tagged_processes.of_cluster(record.id):
            process = _start(record, place)
        deadline = time.monotonic() + START
        while (state := _state(place)) is None:
            is_alive = process.poll() is None if process else bool(tagged_processes.of_cluster(record.id))
            if not is_alive or time.monotonic() > deadline:
                tail = log_tail(place)
                tagged_processes.end(record.id)
                shutil.rmtree(place, ignore_errors=True)
                raise ClusterRefused(f"cluster {record.name} does not start, and was taken away:\n{tail}")
            time.sleep(0.1)
        return {"master": state["master"], "page": state["page"]}

    def status(self, record: Record) -> ClusterStatus:
        """Return the status, by the processes that have the cluster's id."""
        place, processes = Path(record.details["place"]), tagged_processes.of_cluster(record.id)
        state = _state(place)
        details = {"place": str(place), "processes": str(len(processes))}
        if state is not None:
            details |= {"master": state["master"], "page": state["page"], "workers": ", ".join(state["workers"])}
        phase = ENDED if place.exists() else ABSENT
        if processes:
            phase = READY if state is not None else STARTING
        return ClusterStatus(record.name, record.id, record.platform, phase, details=details)

    def unrecorded(self, records: list[Record], region: str) -> list[ClusterStatus]:
        """Return the clusters of this user's processes."""
        running = {each[tagged_processes.ID]: each for each in tagged_processes.tagged().values()
                   if each.get(tagged_processes.PLACE)}
        return [ClusterStatus(each.get(tagged_processes.NAME, ""), identity, "standalone",
                              STARTING if _state(Path(each[tagged_processes.PLACE])) is None else READY,
                              details={"place": each[tagged_processes.PLACE]}) for identity, each in running.items()]

    def delete(self, record: Record) -> bool:
        """End the processes that have the cluster's id, and remove its directory."""
        if left := tagged_processes.end(record.id):
            raise ClusterError(f"processes of cluster {record.name} do not end: {', '.join(map(str, left))}")
        place = Path(record.details["place"])
        if place.is_dir() and not place.is_symlink() and place.stat().st_uid == os.getuid():
            shutil.rmtree(place, ignore_errors=True)
        return True

    def submission(self, record: Record) -> SubmitSettings:
        """Return the master's address and secret, and a share of a GPU for each task where workers have some."""
        place = Path(record.details["place"])
        state = _state(place)
        if state is None or not tagged_processes.of_cluster(record.id):
            raise ClusterError(f"cluster {record.name} does not run: vispark cluster show {record.name}; where it "
                               f"ended as it was idle: vispark cluster delete {record.name}, and create it again")
        worker = state["specification"]["workers"][0]
        conf = {"spark.vispark.device": record.parameters["device"], "spark.authenticate": "true",
                "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
        if gpus := len(worker["gpus"]):
            conf |= {"spark.executor.cores": str(worker["cores"]), "spark.executor.resource.gpu.amount": str(gpus),
                     "spark.task.resource.gpu.amount": task_share(gpus, worker["cores"])}
        return SubmitSettings(state["master"], conf, environment={"SPARK_LOCAL_IP": "127.0.0.1"},
                              secrets={"spark.authenticate.secret": (place / "secret").read_text()})


def specification(values: Mapping[str, str]) -> dict[str, Any]:
    """Return the workers of a cluster, with cores, memory and addresses of GPUs of each, and its idle end.

    Raises
    ------
    OptionError
        If the machine has fewer GPUs than workers are to offer.
    """
    number = int(values["workers"])
    cores = int(values["cores"] or max(1, (os.cpu_count() or 1) // number))
    whole_memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20
    each_memory = values["memory"] or f"{max(1024, whole_memory // 2 // number)}m"
    kind, _, count = values["device"].partition(":")
    if kind == "host":
        gpus = [[str(each) for each in range(int(values["gpus"] or 0))]] * number
        if count and int(values["gpus"] or 0) > int(count):
            raise OptionError(f"workers offer {values['gpus']} GPUs, and {values['device']} has {count}: gpus={count}")
    else:
        addresses = scheduled_gpus.addresses() if values["gpus"] != "0" else []
        share = int(values["gpus"]) if values["gpus"] else len(addresses) // number
        if share * number > len(addresses):
            raise OptionError(f"{number} workers with {share} GPUs each need {share * number}, and this machine has "
                              f"{len(addresses)}; device=host:{share} makes devices of the CPU of them")
        gpus = [addresses[share * each:share * (each + 1)] for each in range(number)]
    return {"master": "127.0.0.1", "idle": int(values["idle"]),
            "workers": [{"host": f"127.0.0.{2 + each}", "cores": cores, "memory": each_memory, "gpus": gpus[each]}
                        for each in range(number)]}


def log_tail(place: Path, lines: int = 12) -> str:
    """Return the last lines of each log of a cluster."""
    lines_of_logs = []
    for path in sorted(place.glob("*.log")):
        text = path.read_text(errors="replace").splitlines()[-lines:]
        lines_of_logs += [f"== {path.name}", *text]
    return "\n".join(lines_of_logs)


def _start(record: Record, place: Path) -> subprocess.Popen[bytes]:
    """Start a supervisor that outlives this process."""
    spec = specification(record.parameters)
    try:
        place.mkdir(mode=0o700, exist_ok=True)
        mode = place.lstat()
        if not stat.S_ISDIR(mode.st_mode) or mode.st_uid != os.getuid() or mode.st_mode & 0o077:
            raise ClusterRefused(f"{place} is not a directory of this user alone; it is left as it is")
        _write(place / "secret", secrets.token_urlsafe(32))
        _write(place / "specification.json", json.dumps(spec))
        (place / "state.json").unlink(missing_ok=True)
        log = os.open(place / "supervisor.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    except OSError as error:
        raise ClusterRefused(f"the directory {place} cannot be written: {error}") from error
    marks = {tagged_processes.ID: record.id, tagged_processes.NAME: record.name, tagged_processes.PLACE: str(place)}
    with os.fdopen(log, "wb") as output:
        return subprocess.Popen([sys.executable, "-m", "vispark.migrate.clusters.standalone_supervisor", str(place)],
                                stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=place,
                                env=os.environ | marks, start_new_session=True)


def _write(path: Path, text: str) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        file.write(text)


def _state(place: Path) -> dict[str, Any] | None:
    """Return the state that the supervisor wrote when all was up; None before."""
    try:
        state: dict[str, Any] = json.loads((place / "state.json").read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    return state


PLATFORM = StandalonePlatform()
