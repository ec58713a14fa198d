"""Executors that Spark asks a cluster manager for: their parameters and settings, and where files about them lie."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import platformdirs

from gpu_worker.commands.deployment.platforms import ClusterParameter, Platform, device, memory, whole

#: Parameters of platforms whose executors come and go.
PARAMETERS = (
    ClusterParameter("executors", "2", whole(1, 10_000), "Executors at most."),
    ClusterParameter("cores", "4", whole(1, 256), "Cores of each executor."),
    ClusterParameter("memory", "4g", memory, "Memory of each executor."),
    ClusterParameter("gpus", "1", whole(0, 16), "GPUs of each executor."),
    ClusterParameter("device", "auto", device, "As spark.vispark.device."),
    ClusterParameter("idle", "1800", whole(1, 10 ** 7), "Seconds until an executor without tasks ends."),
)


class ExecutorFiles(Platform):
    """Base of platforms that write files about their executors below the user's directory of states."""

    def place(self, identity: str, values: Mapping[str, str]) -> dict[str, str]:
        """Return the folder of the files, by the cluster's id."""
        return {"place": str(Path(platformdirs.user_state_dir("vispark")) / "cluster-files" / identity)}


def settings(values: Mapping[str, str], discovery: str) -> dict[str, str]:
    """Return Spark's settings of executors that end when they are idle.

    Parameters
    ----------
    values : mapping of str to str
        Of :data:`PARAMETERS`.
    discovery : str
        The script by which executors find their GPUs.

    Examples
    --------
    >>> settings({each.name: each.default for each in PARAMETERS}, "gpus.sh")["spark.task.resource.gpu.amount"]
    '0.25'
    """
    allocation, gpu, gpus = "spark.dynamicAllocation.", "spark.executor.resource.gpu.", int(values["gpus"])
    conf = {"spark.executor.cores": values["cores"], "spark.executor.memory": values["memory"] or "1g",
            f"{allocation}enabled": "true", f"{allocation}shuffleTracking.enabled": "true",
            f"{allocation}initialExecutors": values["executors"], f"{allocation}maxExecutors": values["executors"],
            f"{allocation}executorIdleTimeout": f"{values['idle']}s",
            f"{allocation}cachedExecutorIdleTimeout": f"{values['idle']}s",
            "spark.vispark.device": values["device"]}
    if gpus:
        conf |= {f"{gpu}amount": str(gpus), f"{gpu}discoveryScript": discovery,
                 "spark.task.resource.gpu.amount": task_share(gpus, int(values["cores"]))}
    return conf


def task_share(gpus: int, cores: int) -> str:
    """Return the GPUs of a task so that as many tasks as cores run: a share of one, or a whole number.

    Examples
    --------
    >>> task_share(1, 4), task_share(2, 2), task_share(4, 2)
    ('0.25', '1', '2')
    """
    return str(max(1, gpus // cores)) if gpus >= cores else f"{int(1000 * gpus / cores) / 1000:g}"
