"""Clusters of one machine without processes of their own: tasks run in the driver's JVM."""

from __future__ import annotations

import os
from typing import Any

from gpu_worker.commands.deployment.platforms import (
    ABSENT,
    READY,
    ClusterParameter,
    ClusterStatus,
    Platform,
    SubmitSettings,
    device,
    whole,
)
from gpu_worker.commands.deployment.records import Record


class LocalPlatform(Platform):
    """Platform whose clusters are settings alone: nothing runs between programs, so nothing idles."""

    parameters = (ClusterParameter("cores", "", whole(1, 4096, empty=True), "Tasks at a time; empty: all cores."),
                  ClusterParameter("device", "auto", device, "As spark.vispark.device."))

    def plan(self, record: Record) -> dict[str, Any]:
        """Return the master and settings of programs."""
        settings = self.submission(record)
        return {"master": settings.master, "conf": settings.conf}

    def create(self, record: Record) -> dict[str, str]:
        """Create nothing."""
        return {"master": self.submission(record).master}

    def status(self, record: Record) -> ClusterStatus:
        """Return the status by the record alone: ready as soon as it is recorded as created."""
        details = {"master": self.submission(record).master, "cores": record.parameters["cores"] or str(os.cpu_count())}
        return ClusterStatus(record.name, record.id, record.platform, ABSENT if record.state == "recorded" else READY,
                             details=details)

    def delete(self, record: Record) -> bool:
        """Delete nothing."""
        return True

    def submission(self, record: Record) -> SubmitSettings:
        """Return ``local[cores]``."""
        return SubmitSettings(f"local[{record.parameters['cores'] or '*'}]",
                              {"spark.vispark.device": record.parameters["device"]})


PLATFORM = LocalPlatform()
