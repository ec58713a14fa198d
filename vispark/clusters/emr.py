"""Clusters of EMR, as ``gpu-worker clusters`` makes them: the same template, records and tags."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

from gpu_worker.deployment import cluster_template
from gpu_worker.deployment.emr import ClusterState, EmrClusters
from gpu_worker.deployment.records import Record, RecordStore
from vispark.clusters.errors import ClusterError, ClusterRefused
from vispark.clusters.platforms import (
    ABSENT,
    ENDED,
    READY,
    STARTING,
    ClusterParameter,
    ClusterStatus,
    SubmitSettings,
    matches,
)
from vispark.errors import OptionError

_REGION = ClusterParameter("region", "", matches(r"[a-z0-9-]*", "a region, or empty"),
                           "Region of AWS; empty: as AWS's own settings say.")
_STATES = {"WAITING": READY, "RUNNING": READY, "STARTING": STARTING, "BOOTSTRAPPING": STARTING}


class EmrPlatform:
    """Platform of clusters of EMR, each a stack of CloudFormation; programs go there as steps."""

    costs = True

    @cached_property
    def parameters(self) -> tuple[ClusterParameter, ...]:
        """The template's parameters, and the region."""
        rules = cluster_template.load("").parameters
        return (_REGION, *(ClusterParameter(name, str(each.get("Default", "")), _check(name, each),
                                            each.get("Description", "")) for name, each in rules.items()
                           if name not in cluster_template.OWN))

    def place(self, identity: str, values: Mapping[str, str]) -> dict[str, str]:
        """Return the region, as AWS's own settings say where none is given."""
        return {"region": EmrClusters(RecordStore(), values["region"]).region}

    def plan(self, record: Record) -> dict[str, Any]:
        """Return the stack's name and parameters."""
        return {"stack": f"vispark-{record.name}", "region": record.details["region"], "parameters": _given(record)}

    def create(self, record: Record) -> dict[str, str]:
        """Ask for the stack, unless it is there already by a creation that was cut short."""
        records = RecordStore()
        try:
            self._clusters(record, records).request(record, cluster_template.load(""), _given(record))
        except ClusterError as error:
            if record.id not in {each.id for each in records.all()}:
                raise ClusterRefused(str(error)) from error
            raise
        return {"stack": f"vispark-{record.name}"}

    def status(self, record: Record) -> ClusterStatus:
        """Return the status of the stack with the record's tag."""
        found = next((each for each in self._clusters(record).states() if each.id == record.id), None)
        return _status(found) if found else ClusterStatus(record.name, record.id, "emr", ABSENT)

    def strays(self, records: list[Record]) -> list[ClusterStatus]:
        """Return the clusters with vispark's tags that have no record, of the regions that records name."""
        regions = {each.region for each in records}
        return [_status(each) for region in sorted(regions) for each in EmrClusters(RecordStore(), region).states()
                if not each.record]

    def delete(self, record: Record) -> bool:
        """Ask for the deletion of the stack with the record's tag."""
        try:
            self._clusters(record).stop(record.name, record.id)
        except ClusterError as error:
            if "left as it is" in str(error):
                raise ClusterRefused(str(error)) from error
            raise
        return record.id not in {each.id for each in RecordStore().all()}

    def submission(self, record: Record) -> SubmitSettings:
        """Return the settings of a step; the release has those of GPUs."""
        return SubmitSettings("yarn", {"spark.vispark.device": "cuda"}, ("--deploy-mode", "client"))

    def send(self, record: Record, line: list[str], script: str) -> str:
        """Add a step that runs a command line of ``spark-submit``, and return what to look at.

        Raises
        ------
        OptionError
            If the program is not in S3, where the cluster can read it.
        """
        if not script.startswith("s3://"):
            raise OptionError(f"a step of EMR reads its program from S3: aws s3 cp {script} s3://BUCKET/, and then "
                              f"vispark submit ... s3://BUCKET/{script.rpartition('/')[2]}")
        step = self._clusters(record).add_step(record.name, "vispark", ["spark-submit", *line[1:]])
        return f"step {step} of cluster {record.name}; its log is below LogUri"

    def _clusters(self, record: Record, records: RecordStore | None = None) -> EmrClusters:
        return EmrClusters(records or RecordStore(), record.region or record.details.get("region", ""))


def _check(name: str, rules: dict[str, Any]) -> Callable[[str], object]:
    def check(text: str) -> None:
        if not text and "Default" not in rules:
            raise ValueError(rules.get("ConstraintDescription") or rules.get("Description", "to be given"))
        if problem := cluster_template.problem_of(name, text, rules):
            raise ValueError(problem.partition(" is ")[2].partition(", not ")[0] or problem)
    return check


def _given(record: Record) -> dict[str, str]:
    return {name: value for name, value in record.parameters.items() if name != "region"}


def _status(found: ClusterState) -> ClusterStatus:
    state = _STATES.get(found.state, ENDED if found.state else STARTING if found.stack else ABSENT)
    details = {"region": found.region, "stack": found.stack, "cluster": found.cluster, "state": found.state,
               "master": found.master}
    return ClusterStatus(found.name, found.id, "emr", state, bool(found.record),
                         {name: value for name, value in details.items() if value})


PLATFORM = EmrPlatform()
