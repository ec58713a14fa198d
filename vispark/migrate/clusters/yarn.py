"""Applications on YARN: a cluster that is there already, with settings and scripts for vispark's programs on it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from gpu_worker.commands.deployment import scheduled_gpus, templates
from gpu_worker.commands.deployment.errors import ClusterError, ClusterRefused
from gpu_worker.commands.deployment.platforms import (
    ABSENT,
    READY,
    ClusterParameter,
    ClusterStatus,
    SubmitSettings,
    matches,
)
from gpu_worker.commands.deployment.records import Record
from vispark.migrate.clusters import executors

_PARAMETERS = (
    ClusterParameter("conf", "/etc/hadoop/conf", matches(r"/\S*", "an absolute path"), "HADOOP_CONF_DIR."),
    ClusterParameter("archive", "", matches(r"\S*", "a file or an address"),
                     "Python environment with vispark, by conda-pack or venv-pack; empty: it is on all nodes."),
    ClusterParameter("queue", "default", matches(r"[\w.-]+", "the name of a queue"), "Queue of YARN."),
    *executors.PARAMETERS,
)


class YarnPlatform(executors.ExecutorFiles):
    """Platform of applications on a cluster of YARN's, of which nothing is created but settings and a script."""

    parameters = _PARAMETERS

    def plan(self, record: Record) -> dict[str, Any]:
        """Return the settings of programs."""
        settings = _settings(record)
        return {"master": settings.master, "conf": settings.conf, "options": list(settings.options),
                "environment": settings.environment}

    def create(self, record: Record) -> dict[str, str]:
        """Write the scripts: nothing is asked of the cluster."""
        conf, place = Path(record.parameters["conf"]), Path(record.details["place"])
        if not (conf / "yarn-site.xml").is_file():
            raise ClusterRefused(f"{conf} has no yarn-site.xml: conf=DIR names the folder with Hadoop's settings")
        templates.write("yarn", place, templates.values(), replace=True)
        shutil.copy(scheduled_gpus.DISCOVERY_SCRIPT, place / "gpus.sh")
        return {"conf": str(conf)}

    def status(self, record: Record) -> ClusterStatus:
        """Return whether scripts and Hadoop's settings are there; YARN itself is not asked."""
        place = Path(record.details["place"])
        is_there = (place / "gpus.sh").is_file() and (Path(record.parameters["conf"]) / "yarn-site.xml").is_file()
        return ClusterStatus(record.name, record.id, record.platform, READY if is_there else ABSENT,
                             details={"place": str(place), "conf": record.parameters["conf"],
                                      "queue": record.parameters["queue"]})

    def delete(self, record: Record) -> bool:
        """Remove the scripts."""
        shutil.rmtree(record.details["place"], ignore_errors=True)
        return True

    def submission(self, record: Record) -> SubmitSettings:
        """Return the settings of programs, whose executors end when they are idle."""
        if self.status(record).state != READY:
            raise ClusterError(f"the scripts of cluster {record.name} or the settings of Hadoop in "
                               f"{record.parameters['conf']} are missing: create it again")
        return _settings(record)


def _settings(record: Record) -> SubmitSettings:
    values = record.parameters
    conf = executors.settings(values, "./gpus.sh") | {
        "spark.yarn.tags": f"vispark-{record.id}",
        # A container that YARN ends may leave the worker, which made a session of its own.
        "spark.vispark.lease": "30"}
    options = ["--queue", values["queue"]]
    if int(values["gpus"]):
        options += ["--files", f"{record.details['place']}/gpus.sh#gpus.sh"]
    if values["archive"]:
        python = "./environment/bin/python"
        options += ["--archives", f"{values['archive']}#environment"]
        conf |= {"spark.pyspark.python": python, "spark.yarn.appMasterEnv.PYSPARK_PYTHON": python}
    return SubmitSettings("yarn", conf, ("--deploy-mode", "cluster", *options), {"HADOOP_CONF_DIR": values["conf"]})


PLATFORM = YarnPlatform()
