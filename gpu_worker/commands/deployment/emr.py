"""Clusters of EMR, each a stack of CloudFormation that is found again by its tag; programs go there as steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from importlib import import_module
from typing import Any

from gpu_worker.commands.deployment import cluster_template
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
    checked,
    matches,
)
from gpu_worker.commands.deployment.records import Record
from gpu_worker.protocol.errors import OptionError
from gpu_worker.protocol.extras import install

_PREFIX = "vispark-"
_NAME_TAG, _ID_TAG = "vispark:cluster", "vispark:id"
_GONE = "DELETE_COMPLETE"
#: Seconds for a connection, and for an answer; how often a request is sent.
CONNECT, ANSWER, ATTEMPTS = 10.0, 60.0, 3

_OWN = (
    ClusterParameter("region", "", matches(r"[a-z0-9-]*", "a region, or empty"),
                     "Region of AWS; empty: as AWS's own settings say."),
    ClusterParameter("template", "", lambda _: None, "File with a template of one's own; empty: the package's."),
)
_STATES = {"WAITING": READY, "RUNNING": READY, "STARTING": STARTING, "BOOTSTRAPPING": STARTING}

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


class EmrPlatform(Platform):
    """Platform of clusters of EMR."""

    costs = True

    @cached_property
    def parameters(self) -> tuple[ClusterParameter, ...]:       # type: ignore[override]
        """The region, the template, and the parameters of the package's template."""
        return _parameters("")

    def checked(self, values: Mapping[str, str]) -> dict[str, str]:
        """Return the values of all parameters, those of the template that is given."""
        return checked(_parameters(values.get("template", "")), values)

    def place(self, identity: str, values: Mapping[str, str]) -> dict[str, str]:
        """Return the region, as AWS's own settings say where none is given."""
        return {"region": EmrStacks(values["region"]).region}

    def plan(self, record: Record) -> dict[str, Any]:
        """Return the stack's name and parameters."""
        return {"stack": _PREFIX + record.name, "region": record.details["region"], "parameters": _given(record)}

    def create(self, record: Record) -> dict[str, str]:
        """Ask for the stack, unless it is there already by a creation that was cut short."""
        text = cluster_template.load(record.parameters.get("template", "")).text
        EmrStacks(record.region).request(record, text, _given(record))
        return {"stack": _PREFIX + record.name}

    def status(self, record: Record) -> ClusterStatus:
        """Return the status of the stack with the record's tag."""
        return EmrStacks(record.region).status(record)

    def unrecorded(self, records: list[Record], region: str) -> list[ClusterStatus]:
        """Return the clusters with vispark's tags in the regions of the records and in another one, which is that of
        AWS's own settings where there are no records.
        """
        regions = {each.region for each in records} | ({region} if region or not records else set())
        return [each for region in sorted(regions) for each in EmrStacks(region).statuses()]

    def delete(self, record: Record) -> bool:
        """Ask for the deletion of the stack with the record's tag."""
        return EmrStacks(record.region).delete(record)

    def submission(self, record: Record) -> SubmitSettings:
        """Return the settings of a step; the release has those of GPUs."""
        return SubmitSettings("yarn", {"spark.vispark.device": "cuda"}, ("--deploy-mode", "client"))

    def connection(self, record: Record) -> str:
        """Return the ways to a cluster: a tunnel, a step, and a notebook's cell."""
        return _CONNECTION.format(name=record.name, **EmrStacks(record.region).reachable(record))

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
        step = EmrStacks(record.region).add_step(record, "vispark", ["spark-submit", *line[1:]])
        return f"step {step} of cluster {record.name}; its log is below LogUri"


class EmrStacks:
    """Stacks of clusters in one region.

    Parameters
    ----------
    region : str
        Where; the one that AWS's own settings name where it is empty.

    Raises
    ------
    ClusterError
        If boto3 is missing, or no region is known.
    """

    def __init__(self, region: str = ""):
        try:
            boto3, self._errors = import_module("boto3"), import_module("botocore.exceptions")
            self._half_answer = import_module("botocore.parsers").ResponseParserError
        except ModuleNotFoundError as error:
            raise ClusterError(f"clusters of EMR need boto3: {install('aws')}") from error
        session = boto3.session.Session(region_name=region or None)
        if not session.region_name:
            raise ClusterError("no region is known; name one by --region or AWS_DEFAULT_REGION")
        self.region: str = session.region_name
        config = import_module("botocore.config").Config(
            connect_timeout=CONNECT, read_timeout=ANSWER, retries={"mode": "standard", "total_max_attempts": ATTEMPTS})
        self._stacks = session.client("cloudformation", config=config)
        self._emr = session.client("emr", config=config)

    def request(self, record: Record, template: str, values: dict[str, str]) -> None:
        """Ask for the stack of a recorded cluster, unless it is there already.

        Raises
        ------
        ClusterRefused
            If AWS refuses, or another stack has its name.
        ClusterError
            If AWS does not answer.
        """
        if self._own_stack(record, "choose another name") is not None:
            return
        values = {"ClusterName": record.name, "VisparkId": record.id, **values}
        try:
            self._call("create_stack", self._create_stack, "StackId",
                       StackName=_PREFIX + record.name, TemplateBody=template, OnFailure="DELETE",
                       ClientRequestToken=record.id,
                       Parameters=[{"ParameterKey": key, "ParameterValue": value} for key, value in values.items()],
                       Tags=[{"Key": _NAME_TAG, "Value": record.name}, {"Key": _ID_TAG, "Value": record.id}])
        except ClusterError as error:
            if error.__cause__ is not None and self._is_refusal(error.__cause__):
                raise ClusterRefused(f"cluster {record.name} was not created: {error.message}") from error
            raise ClusterError(
                f"it is not known whether cluster {record.name} was created: {error.message}; the command list shows "
                "it if it was, and create with the same parameters goes on") from error

    def _create_stack(self, **request: Any) -> Any:
        return self._stacks.create_stack(**request)

    def _is_refusal(self, error: BaseException) -> bool:
        """Return whether an error says that nothing was created, as one does that AWS answered with, or that came
        before anything was sent. That there is a stack of that name may come of a request that was sent twice.
        """
        if isinstance(error, self._errors.ClientError):
            return self._status_of(error) < 500 and error.response["Error"].get("Code") != "AlreadyExistsException"
        return isinstance(error, (self._errors.NoCredentialsError, self._errors.PartialCredentialsError,
                                  self._errors.ParamValidationError, self._errors.EndpointConnectionError))

    def statuses(self) -> list[ClusterStatus]:
        """Return the clusters of this region that have vispark's tags."""
        return [self._status(stack) for stack in self._all_stacks() if _ID_TAG in _tags(stack)]

    def status(self, record: Record) -> ClusterStatus:
        """Return the status of the stack with a record's tag."""
        stack = self._stack(_PREFIX + record.name)
        if stack is None or _tags(stack).get(_ID_TAG) != record.id:
            return ClusterStatus(record.name, record.id, "emr", ABSENT, details={"region": self.region})
        return self._status(stack)

    def reachable(self, record: Record) -> dict[str, str]:
        """Return a cluster's region, id, state and master.

        Raises
        ------
        ClusterError
            If it is not up.
        """
        status = self.status(record)
        if status.state != READY:
            raise ClusterError(f"cluster {record.name} is {status.details.get('state', 'not there yet')}, its stack "
                               f"{status.details.get('stack', 'not there')}; programs reach it when it is WAITING or "
                               "RUNNING")
        return {"master": "", **status.details}

    def add_step(self, record: Record, title: str, words: list[str]) -> str:
        """Add a step to a cluster that is up, a command line, and return its id. Raises as :meth:`reachable`."""
        step = {"Name": title, "ActionOnFailure": "CONTINUE",
                "HadoopJarStep": {"Jar": "command-runner.jar", "Args": words}}
        ids: list[str] = self._call("add_job_flow_steps", self._emr.add_job_flow_steps,
                                    "StepIds", JobFlowId=self.reachable(record)["cluster"], Steps=[step])["StepIds"]
        return ids[0]

    def delete(self, record: Record) -> bool:
        """Ask for the deletion of the stack with a record's tag; return whether it is gone.

        Raises
        ------
        ClusterRefused
            If the stack of that name has another tag.
        """
        stack = self._own_stack(record, "it is left as it is")
        if stack is None:
            return True
        self._call("delete_stack", self._stacks.delete_stack, "", StackName=stack["StackId"])
        return self._stack(stack["StackId"]) is None

    def _own_stack(self, record: Record, advice: str) -> dict[str, Any] | None:
        """Return the stack that was made for a record; ``None`` where none is there.

        Raises
        ------
        ClusterRefused
            If another stack has its name.
        """
        stack = self._stack(_PREFIX + record.name)
        if stack is not None and _tags(stack).get(_ID_TAG) != record.id:
            raise ClusterRefused(f"the stack {_PREFIX}{record.name} in {self.region} was not created for this cluster, "
                                 f"by its tag {_ID_TAG}; {advice}")
        return stack

    def _status(self, stack: dict[str, Any]) -> ClusterStatus:
        tags = _tags(stack)
        outputs = {each["OutputKey"]: each.get("OutputValue", "") for each in stack.get("Outputs", [])}
        cluster = outputs.get("ClusterId", "")
        answer: dict[str, Any] = {}
        if cluster:
            answer = self._call("describe_cluster", self._emr.describe_cluster, "Cluster",
                                ClusterId=cluster)["Cluster"]
        word = answer.get("Status", {}).get("State", "")
        details = {"region": self.region, "stack": stack["StackStatus"], "cluster": cluster, "state": word,
                   "master": answer.get("MasterPublicDnsName", "")}
        return ClusterStatus(tags.get(_NAME_TAG, ""), tags[_ID_TAG], "emr",
                             _STATES.get(word, ENDED if word else STARTING),
                             details={name: value for name, value in details.items() if value})

    def _all_stacks(self) -> list[dict[str, Any]]:
        stacks: list[dict[str, Any]] = []
        token: dict[str, str] = {}
        while True:
            page = self._call("describe_stacks", self._stacks.describe_stacks, "Stacks", **token)
            stacks += page["Stacks"]
            if not page.get("NextToken"):
                return stacks
            token = {"NextToken": page["NextToken"]}

    def _stack(self, name: str) -> dict[str, Any] | None:
        """Return a stack by its name or id; ``None`` where there is none, or none any more."""
        try:
            stacks = self._call("describe_stacks", self._stacks.describe_stacks, "Stacks", StackName=name)["Stacks"]
        except ClusterError as error:
            cause = error.__cause__
            if isinstance(cause, self._errors.ClientError) and "does not exist" in str(cause) \
                    and cause.response["Error"]["Code"] == "ValidationError":
                return None
            raise
        return next((stack for stack in stacks if stack["StackStatus"] != _GONE), None)

    def _call(self, name: str, function: Any, part: str, **request: Any) -> Any:
        """Return the answer to a request, which has a part of that name where one is given.

        Raises
        ------
        ClusterError
            If AWS refuses, which botocore's error, its cause, tells; if it does not answer, or not with that part.
        """
        try:
            reply = function(**request)
        except self._errors.ClientError as error:
            does = "refuses" if self._status_of(error) < 500 else "fails at"
            raise ClusterError(f"AWS {does} {name}: {error}") from error
        except self._errors.BotoCoreError as error:
            raise ClusterError(f"AWS does not answer {name}: {error}") from error
        except (self._half_answer, KeyError) as error:
            # botocore's own lookup fails where the outermost part of an answer is not the operation's.
            problem = str(error).partition("\n")[0].rstrip(":")
            raise ClusterError(f"AWS answers {name} by what cannot be read: {problem}") from error
        if part and part not in reply:
            raise ClusterError(f"AWS answers {name} without {part}")
        return reply

    def _status_of(self, error: Any) -> int:
        """Return the HTTP status of an answer of AWS that is an error."""
        return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 500))


def _tags(stack: dict[str, Any]) -> dict[str, str]:
    return {tag["Key"]: tag["Value"] for tag in stack.get("Tags", [])}


def _parameters(template: str) -> tuple[ClusterParameter, ...]:
    """Return the parameters of clusters by a template in a file, or by the package's own."""
    rules = cluster_template.load(template).parameters
    return (*_OWN, *(ClusterParameter(name, str(each.get("Default", "")), _check(name, each),
                                      each.get("Description", "")) for name, each in rules.items()
                     if name not in cluster_template.OWN))


def _check(name: str, rules: dict[str, Any]) -> Callable[[str], object]:
    def check(text: str) -> None:
        if not text and "Default" not in rules:
            raise ValueError(rules.get("ConstraintDescription") or rules.get("Description", "to be given"))
        if problem := cluster_template.problem_of(text, rules):
            raise ValueError(problem)
    return check


def _given(record: Record) -> dict[str, str]:
    """Return the parameters of a record's template."""
    own = {each.name for each in _OWN}
    return {name: value for name, value in record.parameters.items() if name not in own}


PLATFORM = EmrPlatform()
