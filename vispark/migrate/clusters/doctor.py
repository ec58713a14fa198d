"""Examination of a cluster: a program on it, and what its answer shows to be missing."""

from __future__ import annotations

import json
import platform
import re
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpu_worker.commands.deployment.errors import ClusterError
from gpu_worker.commands.deployment.platforms import SubmitSettings
from gpu_worker.protocol.version import __version__
from vispark.migrate.clusters import doctor_job, spark_submit

_ERROR = re.compile(r"(Caused by: )?[A-Za-z_][\w.]*(Error|Exception)\b")


@dataclass
class Diagnosis:
    """Diagnosis of a cluster: facts of its nodes, and problems, each with what mends it."""

    answer: dict[str, Any] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def nodes(self) -> dict[str, dict[str, Any]]:
        """Return the facts of each node by its host, with all addresses of GPUs that its tasks had."""
        nodes: dict[str, dict[str, Any]] = {}
        for task in self.answer.get("tasks", []):
            node = nodes.setdefault(task["host"], task | {"gpus": [], "tasks": 0})
            node["tasks"] += 1
            node["gpus"] = sorted({*node["gpus"], *task["gpus"]})
        return nodes


#: The program; it stands in no folder of vispark's, whose modules would hide others.
PROGRAM = "from vispark.migrate.clusters.doctor_job import main\n\nmain()\n"


def examine(settings: SubmitSettings, timeout: float) -> Diagnosis:
    """Run the program on a cluster, and return its diagnosis.

    Raises
    ------
    ClusterError
        If the program gives no answer in time.
    """
    try:
        with tempfile.TemporaryDirectory(prefix="vispark-doctor-") as folder:
            script = Path(folder) / "doctor.py"
            script.write_text(PROGRAM, encoding="utf-8")
            ended = spark_submit.run(settings, [], str(script), capture=True, timeout=timeout)
    except subprocess.TimeoutExpired as error:
        raise ClusterError(f"the cluster does not answer within {timeout:g} s: no executor came up, or none has as "
                           "many cores, GPUs or bytes as it is to have; the master's page shows why") from error
    for line in ended.stdout.splitlines():
        if line.startswith(doctor_job.ANSWER):
            answer = json.loads(line.removeprefix(doctor_job.ANSWER))
            return Diagnosis(answer, problems_of(answer, settings))
    output = [line for line in (ended.stderr or ended.stdout).splitlines() if line.strip()]
    errors = [line for line in output if _ERROR.match(line)] or output
    raise ClusterError(f"the program on the cluster ended with status {ended.returncode}: "
                       f"{errors[-1].strip() if errors else 'no output'}")


def problems_of(answer: dict[str, Any], settings: SubmitSettings) -> list[str]:
    """Return the problems of a cluster, by the answer of the program on it.

    Examples
    --------
    >>> task = {"host": "a", "vispark": "0.1", "python": "3.9.1", "gpus": [], "user": 1}
    >>> driver = {"vispark": "0.2", "python": "3.11.2", "user": 1}
    >>> for each in problems_of({"tasks": [task], "driver": driver, "computes": True}, SubmitSettings("local")):
    ...     print(each)
    a has vispark 0.1, the driver 0.2: install the same everywhere
    a has Python 3.9, the driver 3.11: set PYSPARK_PYTHON to the same version
    """
    problems, driver = [], answer["driver"]
    for host, task in {each["host"]: each for each in answer["tasks"]}.items():
        if task["vispark"] != driver["vispark"]:
            problems.append(f"{host} has vispark {task['vispark']}, the driver {driver['vispark']}: install the same "
                            "everywhere")
        if _minor(task["python"]) != _minor(driver["python"]):
            problems.append(f"{host} has Python {_minor(task['python'])}, the driver {_minor(driver['python'])}: set "
                            "PYSPARK_PYTHON to the same version")
        if int(settings.conf.get("spark.executor.resource.gpu.amount", "0")) and not task["gpus"]:
            problems.append(f"tasks on {host} have no GPU, though executors ask for some: the discovery script there "
                            "(gpu-worker gpus) names none")
    if not answer["computes"]:
        problems.append("the worker computes something else: gpu-worker doctor on the nodes")
    return problems


def versions() -> dict[str, str]:
    """Return the versions here, which those of a cluster are compared with."""
    return {"python": platform.python_version(), "vispark": __version__}


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])
