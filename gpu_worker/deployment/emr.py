"""Clusters of EMR, each a stack of CloudFormation that is recorded before it is created and found again by its tag."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from importlib import import_module
from typing import Any

from gpu_worker.deployment.cluster_template import ClusterTemplate
from gpu_worker.deployment.errors import ClusterError
from gpu_worker.deployment.records import Record, RecordStore, checked_name
from gpu_worker.protocol.extras import install

_PREFIX = "vispark-"
_NAME_TAG, _ID_TAG = "vispark:cluster", "vispark:id"
_GONE = "DELETE_COMPLETE"

_CONNECTION = """\
cluster {name}, {cluster}: {state}
From a terminal, as Livy and Spark's pages are open to the cluster alone:

    ssh -N -L 8998:localhost:8998 -L 18080:localhost:18080 hadoop@{master}

A program on it:

    aws emr add-steps --region {region} --cluster-id {cluster} --steps Type=Spark,Name=program,Args=[s3://BUCKET/program.py]

In a notebook on it (EMR Studio, Jupyter Enterprise Gateway, Livy), one cell:

    import vispark
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.appName("{name}").config("spark.vispark.device", "cuda").getOrCreate()
    sc = spark.sparkContext
"""


@dataclass(frozen=True)
class ClusterState:
    """State of a cluster, by its record and by the provider.

    Attributes
    ----------
    name, id, region : str
        As recorded, or as the tags say.
    record : str
        The record's state; empty where this user has none.
    stack : str
        State of its stack; empty where there is none.
    cluster : str
        Id of the cluster of EMR; empty while there is none.
    state : str
        State of the cluster; empty while there is none.
    master : str
        Address of the master; empty while there is none.
    """

    name: str
    id: str
    region: str
    record: str
    stack: str
    cluster: str = ""
    state: str = ""
    master: str = ""


class EmrClusters:
    """Clusters of EMR of one region.

    Parameters
    ----------
    records : RecordStore
        What this user has created.
    region : str
        Where; the one that AWS's own settings name where it is empty.

    Raises
    ------
    ClusterError
        If boto3 is missing, or no region is known.
    """

    def __init__(self, records: RecordStore, region: str = ""):
        self._records = records
        try:
            boto3, self._errors = import_module("boto3"), import_module("botocore.exceptions")
        except ModuleNotFoundError as error:
            raise ClusterError(f"clusters of EMR need boto3: {install('aws')}") from error
        session = boto3.session.Session(region_name=region or None)
        if not session.region_name:
            raise ClusterError("no region is known; name one by --region or AWS_DEFAULT_REGION")
        self.region: str = session.region_name
        config = import_module("botocore.config").Config(connect_timeout=10, read_timeout=60,
                                                         retries={"mode": "standard", "total_max_attempts": 3})
        self._stacks = session.client("cloudformation", config=config)
        self._emr = session.client("emr", config=config)

    def create(self, name: str, template: ClusterTemplate, given: dict[str, str]) -> Record:
        """Create a cluster, or go on with a creation that was cut short.

        Parameters
        ----------
        name : str
            Of the cluster; its stack is called ``vispark-NAME``.
        template : ClusterTemplate
            What is created.
        given : dict of str to str
            Parameters of the template.

        Returns
        -------
        Record
            Of the cluster, which takes minutes to come up.

        Raises
        ------
        OptionError
            If the template does not allow a parameter.
        ClusterError
            If AWS refuses, which leaves nothing, or does not answer, which leaves a record to look it up by.
        """
        values = template.check(given)
        record = self._records.create(name, self.region, dict(sorted(given.items())))
        self.request(record, template, values)
        return self._records.set_state(record, "requested")

    def request(self, record: Record, template: ClusterTemplate, values: dict[str, str]) -> None:
        """Ask for the stack of a recorded cluster, unless it is there already.

        Raises
        ------
        ClusterError
            If AWS refuses, and the record is forgotten then; or if it does not answer.
        """
        if self._own_stack(record) is not None:
            return
        values = {"ClusterName": record.name, "VisparkId": record.id, **values}
        try:
            self._create_stack(
                StackName=_PREFIX + record.name, TemplateBody=template.text, OnFailure="DELETE",
                ClientRequestToken=record.id,
                Parameters=[{"ParameterKey": key, "ParameterValue": value} for key, value in values.items()],
                Tags=[{"Key": _NAME_TAG, "Value": record.name}, {"Key": _ID_TAG, "Value": record.id}])
        except (self._errors.ClientError, self._errors.BotoCoreError) as error:
            if self._is_refusal(error):
                self._records.remove(record)
                raise ClusterError(f"cluster {record.name} was not created: {error}") from error
            raise ClusterError(
                f"AWS did not answer, and it is not known whether cluster {record.name} was created: {error}; "
                f"gpu-worker clusters list shows it if it was, and create with the same parameters goes on") from error

    def _create_stack(self, **request: Any) -> None:
        self._stacks.create_stack(**request)

    def _is_refusal(self, error: Exception) -> bool:
        """Return whether an error says that nothing was created, as one does that AWS answered with, or that came
        before anything was sent.
        """
        if isinstance(error, self._errors.ClientError):
            return 400 <= error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 500) < 500
        return isinstance(error, (self._errors.NoCredentialsError, self._errors.PartialCredentialsError,
                                  self._errors.ParamValidationError, self._errors.EndpointConnectionError))

    def states(self) -> list[ClusterState]:
        """Return the clusters of this region: those recorded, and those with vispark's tags that others recorded."""
        records = {record.id: record for record in self._own_records() if record.region == self.region}
        found = [self._state(records.pop(identity, None), stack) for stack in self._all_stacks()
                 if (identity := _tags(stack).get(_ID_TAG))]
        for record in records.values():
            if record.state == "stopping":
                self._records.remove(record)
            else:
                found.append(ClusterState(record.name, record.id, record.region, record.state, ""))
        return sorted(found, key=lambda each: (each.name, each.id))

    def connect(self, name: str) -> str:
        """Return the ways to a cluster: a tunnel, a step, and a notebook's cell.

        Raises
        ------
        ClusterError
            If there is no such cluster, or it is not up.
        """
        stack = self._stack(_PREFIX + checked_name(name))
        if stack is None or _ID_TAG not in _tags(stack):
            raise ClusterError(f"there is no cluster {name} in {self.region}; gpu-worker clusters list names them")
        found = self._state(None, stack)
        if found.state not in ("RUNNING", "WAITING"):
            raise ClusterError(f"cluster {name} is {found.state or 'not there yet'}, its stack {found.stack}; it can "
                               "be connected to when it is WAITING or RUNNING")
        return _CONNECTION.format(**asdict(found))

    def add_step(self, name: str, title: str, words: list[str]) -> str:
        """Add a step to a cluster that is up, a command line, and return its id.

        Raises
        ------
        ClusterError
            If there is no such cluster, or it is not up.
        """
        stack = self._stack(_PREFIX + checked_name(name))
        found = self._state(None, stack) if stack is not None and _ID_TAG in _tags(stack) else None
        if found is None or found.state not in ("RUNNING", "WAITING"):
            raise ClusterError(f"cluster {name} is {found.state or 'not there yet' if found else 'not there'}; it "
                               "takes programs when it is WAITING or RUNNING")
        step = {"Name": title, "ActionOnFailure": "CONTINUE",
                "HadoopJarStep": {"Jar": "command-runner.jar", "Args": words}}
        ids: list[str] = self._call("add_job_flow_steps", self._emr.add_job_flow_steps, JobFlowId=found.cluster,
                                    Steps=[step])["StepIds"]
        return ids[0]

    def stop(self, name: str, identity: str = "", *, dry_run: bool = False) -> None:
        """End a cluster that was created by :meth:`create`, and forget it; one whose creation was cut short too.

        Parameters
        ----------
        name : str
            Of the cluster.
        identity : str
            Its tag ``vispark:id``, where another machine recorded it.
        dry_run : bool
            Whether only to look whether it would be ended.

        Raises
        ------
        ClusterError
            If it was not created here, by its tag; nothing is ended then.
        """
        record = next((each for each in self._own_records() if each.name == checked_name(name)), None)
        if record is not None and record.region != self.region:
            raise ClusterError(f"cluster {name} is in {record.region}, not in {self.region}: --region {record.region}")
        stack = self._stack(_PREFIX + name)
        if stack is not None:
            self._check_ours(name, stack, record, identity)
        elif record is None:
            raise ClusterError(f"no cluster {name} is recorded here, and there is none in {self.region}")
        if dry_run:
            return
        if stack is not None:
            self._call("delete_stack", self._stacks.delete_stack, StackName=stack["StackId"])
        if record is not None:
            is_gone = stack is None or self._stack(stack["StackId"]) is None
            if is_gone:
                self._records.remove(record)
            else:
                self._records.set_state(record, "stopping")

    def _own_records(self) -> list[Record]:
        return [record for record in self._records.all() if record.platform == "emr"]

    def _check_ours(self, name: str, stack: dict[str, Any], record: Record | None, identity: str) -> None:
        tag = _tags(stack).get(_ID_TAG, "")
        if not tag:
            raise ClusterError(f"the stack {stack['StackName']} was not created by gpu-worker clusters: it has no tag "
                               f"{_ID_TAG}; it is left as it is")
        if tag != identity and (record is None or record.id != tag):
            raise ClusterError(f"cluster {name} was not created by this user on this machine; it is left as it is. "
                               f"Whoever may end it does so by: gpu-worker clusters stop {name} --id {tag}")

    def _own_stack(self, record: Record) -> dict[str, Any] | None:
        """Return the stack that was made for a record; ``None`` where none is there.

        Raises
        ------
        ClusterError
            If another stack has its name; the record is forgotten then.
        """
        stack = self._stack(_PREFIX + record.name)
        if stack is not None and _tags(stack).get(_ID_TAG) != record.id:
            self._records.remove(record)
            raise ClusterError(f"there is a stack {_PREFIX}{record.name} in {self.region} already, which this command "
                               "did not create; choose another name")
        return stack

    def _state(self, record: Record | None, stack: dict[str, Any]) -> ClusterState:
        tags = _tags(stack)
        outputs = {each["OutputKey"]: each.get("OutputValue", "") for each in stack.get("Outputs", [])}
        cluster = outputs.get("ClusterId", "")
        details: dict[str, Any] = {}
        if cluster:
            details = self._call("describe_cluster", self._emr.describe_cluster, ClusterId=cluster)["Cluster"]
        return ClusterState(tags.get(_NAME_TAG, ""), tags[_ID_TAG], self.region, record.state if record else "",
                            stack["StackStatus"], cluster, details.get("Status", {}).get("State", ""),
                            details.get("MasterPublicDnsName", ""))

    def _all_stacks(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        token: dict[str, str] = {}
        while True:
            page = self._call("describe_stacks", self._stacks.describe_stacks, **token)
            found += page["Stacks"]
            if not page.get("NextToken"):
                return found
            token = {"NextToken": page["NextToken"]}

    def _stack(self, name: str) -> dict[str, Any] | None:
        """Return a stack by its name or id; ``None`` where there is none, or none any more."""
        try:
            found = self._stacks.describe_stacks(StackName=name)["Stacks"]
        except self._errors.ClientError as error:
            if error.response["Error"]["Code"] == "ValidationError" and "does not exist" in str(error):
                return None
            raise ClusterError(f"AWS refuses describe_stacks: {error}") from error
        except self._errors.BotoCoreError as error:
            raise ClusterError(f"AWS does not answer describe_stacks: {error}") from error
        return next((stack for stack in found if stack["StackStatus"] != _GONE), None)

    def _call(self, name: str, function: Any, **request: Any) -> Any:
        try:
            return function(**request)
        except self._errors.ClientError as error:
            raise ClusterError(f"AWS refuses {name}: {error}") from error
        except self._errors.BotoCoreError as error:
            raise ClusterError(f"AWS does not answer {name}: {error}") from error


def _tags(stack: dict[str, Any]) -> dict[str, str]:
    return {tag["Key"]: tag["Value"] for tag in stack.get("Tags", [])}
