"""Clusters of EMR against moto's server: recorded first, created once, found again, and only our own deleted.

``gpu-worker clusters`` and ``vispark cluster`` are the same commands. moto does not check roles, machines, subnets and
scripts, knows no idle end (``AutoTerminationPolicy``), has no machines that come up and never runs a step; EMR itself
is the only proof of these.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gpu_worker import cli
from gpu_worker.commands.deployment import cluster_template, emr
from gpu_worker.commands.deployment.emr import EmrStacks
from gpu_worker.commands.deployment.records import RecordStore
from tests.optional import needed
from tests.unit.faulty_server import EMPTY, FAILED, HALF, REFUSED, SILENT, FaultyServer, faulty_server
from vispark.migrate.cli import main as vispark
from vispark.migrate.errors import NO, UNKNOWN, USAGE, YES

boto3, errors, server, models = map(needed, ("boto3", "botocore.exceptions", "moto.server", "moto.emr.models"))

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::DeprecationWarning"),
              pytest.mark.filterwarnings("ignore::ResourceWarning")]

BUCKET = ["-p", "Bootstrap=s3://bucket/bootstrap.sh", "-p", "Wheel=s3://bucket/vispark-0.11.0-py3-none-any.whl"]


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """Run AWS on a free port of loopback."""
    aws = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    aws.start()
    host, port = aws.get_host_and_port()
    yield f"http://{host}:{port}"
    aws.stop()


@pytest.fixture(autouse=True)
def account(endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have an account without clusters, and a user without records."""
    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    # moto's server takes requests for EMR of any region for this one.
    settings = {"AWS_ENDPOINT_URL": endpoint, "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret",
                "AWS_DEFAULT_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true",
                "XDG_STATE_HOME": str(tmp_path / "state"), "HOME": str(tmp_path)}
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    run_job_flow = models.ElasticMapReduceBackend.run_job_flow

    def stays_up(self, *arguments, instance_attrs, **named):
        # moto reads this under another name than the template has, and would end the cluster at once.
        instance_attrs["keep_job_flow_alive_when_no_steps"] = instance_attrs["KeepJobFlowAliveWhenNoSteps"]
        return run_job_flow(self, *arguments, instance_attrs=instance_attrs, **named)

    monkeypatch.setattr(models.ElasticMapReduceBackend, "run_job_flow", stays_up)
    stacks = boto3.client("cloudformation")
    for stack in stacks.describe_stacks()["Stacks"]:
        stacks.delete_stack(StackName=stack["StackName"])


def _run(*arguments: str) -> Result:
    return CliRunner().invoke(cli.main, ["clusters", *arguments])


def _vispark(*words: str) -> Result:
    return CliRunner().invoke(vispark, list(words))


def _listed() -> list[dict]:
    return json.loads(_run("list", "--json").output)["clusters"]


def _create(name: str = "night", *more: str) -> Result:
    return _run("create", name, *BUCKET, "--yes", *more)


def test_a_cluster_is_created_listed_connected_to_and_deleted():
    assert _run("create", "night", *BUCKET).exit_code == 1 and RecordStore().all() == []        # not confirmed
    created = _create("night", "-p", "WorkerCount=3", "-p", "IdleSeconds=900")
    assert created.exit_code == 0, created.output
    (listed,) = _listed()
    details = listed["details"]
    assert (listed["name"], listed["state"], listed["is_recorded"], details["stack"], details["state"]) == (
        "night", "ready", True, "CREATE_COMPLETE", "WAITING")
    assert listed["id"] in created.output and _run("show", "night").exit_code == 0
    emr = boto3.client("emr")
    cluster = emr.describe_cluster(ClusterId=details["cluster"])["Cluster"]
    assert {"Key": "vispark:id", "Value": listed["id"]} in cluster["Tags"]
    assert cluster["ReleaseLabel"] == "emr-7.9.0" and not cluster["AutoTerminate"]
    (stack,) = boto3.client("cloudformation").describe_stacks()["Stacks"]
    assert {"ParameterKey": "IdleSeconds", "ParameterValue": "900"} in stack["Parameters"]
    connected = _run("connect", "night")
    assert connected.exit_code == 0 and details["cluster"] in connected.output and "import vispark" in connected.output
    assert _run("delete", "night", "--dry-run").exit_code == 0 and len(_listed()) == 1
    assert _run("stop", "night").exit_code == 0             # its name up to 0.12
    assert _listed() == [] and RecordStore().all() == []
    assert emr.describe_cluster(ClusterId=details["cluster"])["Cluster"]["Status"]["State"] == "TERMINATED"


def test_programs_go_there_as_steps():
    assert _create().exit_code == 0
    (cluster,) = json.loads(_vispark("cluster", "list", "--json").output)["clusters"]
    refused = _vispark("cluster", "doctor", "night")
    assert refused.exit_code == UNKNOWN and "as steps" in refused.output
    refused = _vispark("submit", "--cluster", "night", "job.py")
    assert refused.exit_code == USAGE and "aws s3 cp job.py" in refused.output
    sent = _vispark("submit", "--cluster", "night", "--num-executors", "3", "s3://bucket/job.py", "a")
    assert sent.exit_code == YES, sent.output
    (step,) = boto3.client("emr").list_steps(ClusterId=cluster["details"]["cluster"])["Steps"]
    assert step["Config"]["Jar"] == "command-runner.jar"
    words = step["Config"]["Args"]
    assert words[0] == "spark-submit" and words[-4:] == ["--num-executors", "3", "s3://bucket/job.py", "a"]
    assert _vispark("cluster", "delete", "night").exit_code == YES and _listed() == []


def test_a_dry_run_asks_for_nothing(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    result = _create("night", "--dry-run")
    assert result.exit_code == 0, result.output
    plan = json.loads(result.output)["plan"]
    assert (plan["stack"], plan["region"], plan["parameters"]["WorkerType"]) == (
        "vispark-night", "us-east-1", "g5.xlarge")
    assert RecordStore().all() == []


# The process dies with the request unsent, or sent and not noted.
_KILLED = """
import os, signal, sys
from gpu_worker import cli
from gpu_worker.commands.deployment.emr import EmrStacks
create = EmrStacks._create_stack
def dies(self, **request):
    if sys.argv[1] == "sent":
        create(self, **request)
    os.kill(os.getpid(), signal.SIGKILL)
EmrStacks._create_stack = dies
cli.main(sys.argv[2:])
"""


@pytest.mark.parametrize("when", ["unsent", "sent"])
def test_a_creation_that_was_killed_is_found_again_and_happens_once(when: str):
    ended = subprocess.run([sys.executable, "-c", _KILLED, when, "clusters", "create", "night", *BUCKET, "--yes"],
                           timeout=60, check=False)
    assert ended.returncode == -signal.SIGKILL
    (record,) = RecordStore().all()
    assert record.state == "recorded"
    (cluster,) = _listed()
    assert (cluster["id"], cluster["state"]) == (record.id, "ready" if when == "sent" else "absent")
    assert "create it with these" in _create("night", "-p", "WorkerCount=5").output
    assert _create().exit_code == 0
    (cluster,) = _listed()
    assert (cluster["id"], cluster["state"]) == (record.id, "ready")
    assert len(boto3.client("cloudformation").describe_stacks()["Stacks"]) == 1
    assert _run("stop", "night").exit_code == 0 and _listed() == []


def test_a_killed_creation_can_be_stopped():
    subprocess.run([sys.executable, "-c", _KILLED, "sent", "clusters", "create", "night", *BUCKET, "--yes"],
                   timeout=60, check=False)
    assert _run("stop", "night").exit_code == 0
    assert _listed() == [] and RecordStore().all() == []


def test_what_others_created_is_left_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    template = cluster_template.load("")
    stacks = boto3.client("cloudformation")
    values = {"Bootstrap": "s3://b/b.sh", "Wheel": "s3://b/vispark-1.whl", "ClusterName": "theirs",
              "VisparkId": "0" * 32}
    stacks.create_stack(StackName="vispark-theirs", TemplateBody=template.text,
                        Parameters=[{"ParameterKey": key, "ParameterValue": value} for key, value in values.items()])
    for refused in (_run("stop", "theirs"), _run("stop", "theirs", "--id", "0" * 32)):
        assert refused.exit_code == 1 and "no cluster theirs is recorded here" in refused.output
    refused = _create("theirs")
    assert refused.exit_code == 1 and "choose another name" in refused.output and RecordStore().all() == []

    assert _create("night").exit_code == 0
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another user"))
    night = next(each for each in _listed() if each["name"] == "night")
    assert not night["is_recorded"]
    refused = _run("stop", "night")
    assert refused.exit_code == 1 and f"clusters delete night --id {night['id']}" in refused.output
    assert {stack["StackName"] for stack in stacks.describe_stacks()["Stacks"]} == {"vispark-theirs", "vispark-night"}
    assert _run("stop", "night", "--id", night["id"]).exit_code == 0
    assert [stack["StackName"] for stack in stacks.describe_stacks()["Stacks"]] == ["vispark-theirs"]


def test_an_api_that_does_not_answer_leaves_a_record_and_one_that_refuses_none(monkeypatch: pytest.MonkeyPatch):
    create = EmrStacks._create_stack

    def unanswered(self, **request):
        create(self, **request)
        raise errors.ReadTimeoutError(endpoint_url="http://aws")

    monkeypatch.setattr(EmrStacks, "_create_stack", unanswered)
    result = _create()
    assert result.exit_code == 1 and "it is not known whether cluster night was created" in result.output
    assert _listed()[0]["details"]["stack"] == "CREATE_COMPLETE"
    monkeypatch.setattr(EmrStacks, "_create_stack", create)
    assert _create().exit_code == 0 and _run("stop", "night").exit_code == 0

    def refused(self, **request):
        raise errors.ClientError({"Error": {"Code": "AccessDenied", "Message": "not you"},
                           "ResponseMetadata": {"HTTPStatusCode": 403}}, "CreateStack")

    monkeypatch.setattr(EmrStacks, "_create_stack", refused)
    result = _create()
    assert result.exit_code == 1 and "not you" in result.output and RecordStore().all() == []


@pytest.fixture
def faulty(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyServer]:
    """Run AWS behind a server that fails as a test says; requests are sent once."""
    monkeypatch.setattr(emr, "ATTEMPTS", 1)
    with faulty_server(endpoint) as (address, server):
        monkeypatch.setenv("AWS_ENDPOINT_URL", address)
        yield server


@pytest.mark.parametrize(("fault", "message"), [
    (SILENT, "AWS does not answer create_stack: Read timeout"),
    (HALF, "AWS answers create_stack by what cannot be read")])
def test_a_creation_whose_answer_is_lost_is_found_again_and_deleted(faulty: FaultyServer, fault: str, message: str,
                                                                    monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(emr, "ANSWER", 3.0)
    faulty.faults = {"CreateStack": [fault]}
    ended = _vispark("cluster", "create", "night", "--platform", "emr", *BUCKET, "--yes")
    assert ended.exit_code == UNKNOWN and ended.output.count("\n") == 1
    assert "it is not known whether cluster night was created" in ended.output and message in ended.output
    assert [each.state for each in RecordStore().all()] == ["recorded"]
    assert [each["state"] for each in _listed()] == ["ready"]
    # The machines are not known, and the stack is deleted all the same.
    faulty.faults = {"DescribeCluster": [HALF]}
    assert _vispark("cluster", "delete", "night").exit_code == YES
    assert _listed() == [] and RecordStore().all() == []
    assert boto3.client("cloudformation").describe_stacks()["Stacks"] == []


def test_a_list_says_which_platform_did_not_answer(faulty: FaultyServer, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(emr, "ANSWER", 3.0)
    faulty.faults = {"DescribeStacks": [SILENT, SILENT]}
    listed = _run("list")
    assert listed.exit_code == UNKNOWN and "not known" in listed.output
    assert "?: AWS does not answer describe_stacks" in listed.output
    connected = _run("connect", "night")
    assert connected.exit_code == 1 and "there are none; AWS does not answer describe_stacks" in connected.output


def test_a_request_that_was_sent_twice_is_no_refusal(faulty: FaultyServer, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(emr, "ATTEMPTS", 2)
    faulty.faults = {"CreateStack": [FAILED]}
    ended = _vispark("cluster", "create", "night", "--platform", "emr", *BUCKET, "--yes")
    assert ended.exit_code == UNKNOWN and "AlreadyExists" in ended.output
    assert _vispark("cluster", "create", "night", "--platform", "emr", *BUCKET, "--yes").exit_code == YES
    assert _vispark("cluster", "delete", "night").exit_code == YES and _listed() == []


@pytest.mark.parametrize(("fault", "message"), [
    (REFUSED, "AWS refuses describe_stacks: .*not you"), (EMPTY, "AWS answers describe_stacks without Stacks")])
def test_an_answer_that_says_nothing_of_a_cluster_deletes_no_record(faulty: FaultyServer, fault: str, message: str):
    assert _create().exit_code == 0
    for words in (("show", "night"), ("delete", "night")):
        faulty.faults = {"DescribeStacks": [fault] * 2}
        ended = _vispark("cluster", *words)
        assert ended.exit_code == UNKNOWN and re.search(message, ended.output)
    faulty.faults = {"DescribeStacks": [fault]}
    (cluster,) = json.loads(_vispark("cluster", "list", "--json").output)["clusters"]
    assert cluster["state"] == "not known" and re.search(message, cluster["details"]["error"])
    faulty.faults = {"DeleteStack": [fault]}
    assert _vispark("cluster", "delete", "night").exit_code == (YES if fault == EMPTY else UNKNOWN)
    assert len(RecordStore().all()) == (0 if fault == EMPTY else 1)
    assert _listed() == [] or _vispark("cluster", "delete", "night").exit_code == YES


@pytest.mark.parametrize(("parameters", "message"), [
    (["WorkerCounts=3"], "WorkerCounts is no parameter of this platform; meant WorkerCount?"),
    (["WorkerCount=17"], "WorkerCount is a whole number from 1 to 16, not '17'"),
    (["WorkerType=t3.nano"], "WorkerType is one of g4dn.xlarge"),
    (["VisparkId=1"], "VisparkId is no parameter"),
    (["Wheel"], "a parameter is NAME=VALUE, not 'Wheel'"),
    (["Wheel=file"], "Wheel is s3://BUCKET/.../vispark-VERSION-py3-none-any.whl, not 'file'"),
    ([], "Bootstrap is s3://BUCKET/.../bootstrap.sh, not ''; Wheel is s3:"),
])
def test_guard_rails_hold_before_anything_is_asked(parameters: list[str], message: str):
    result = _run("create", "night", *(word for each in parameters for word in ("-p", each)))
    assert result.exit_code == 1 and message in result.output
    assert RecordStore().all() == []
    assert _vispark("cluster", "create", "night", "--platform", "emr", *(
        word for each in parameters for word in ("-p", each))).exit_code == USAGE


def test_templates_of_ones_own_are_looked_at(tmp_path: Path):
    path = tmp_path / "cluster.json"
    for text, message in [("{", "cannot be read as JSON"), ("{}", "has no Resources"),
                          ('{"Resources": {}, "Parameter": {}}', "has Parameter; known are"),
                          ('{"Resources": {"Cluster": {"Typo": 1}}}', "has resources without a Type: Cluster"),
                          ('{"Resources": {"Cluster": {"Type": "T", "Propertiez": {}}}}',
                           "has Propertiez in the resource Cluster; known are Condition, CreationPolicy"),
                          ('{"Resources": {}, "Parameters": {"N": {"Type": "Number", "MaxValu": 3}}}',
                           "has MaxValu in the parameter N; known are"),
                          ('{"Resources": {}, "Parameters": ["X"]}', "has Parameters that are no object"),
                          ('{"Resources": {}, "Parameters": null}', "has Parameters that are no object"),
                          ('{"Resources": {}, "Parameters": {"X": "String", "Y": null}}',
                           "are no objects: X, Y; one is"),
                          ('{"Resources": {}}', "has no parameter ClusterName and none VisparkId")]:
        path.write_text(text)
        result = _create("night", "-p", f"template={path}")
        assert result.exit_code == 1 and message in result.output


def test_a_platform_that_does_not_answer_is_not_known(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    ended = _vispark("cluster", "create", "night", "--platform", "emr", *BUCKET, "--yes")
    assert ended.exit_code == UNKNOWN and "does not answer" in ended.output
    assert [each.state for each in RecordStore().all()] == ["recorded"]
    (cluster,) = json.loads(_vispark("cluster", "list", "--json").output)["clusters"]
    assert cluster["state"] == "not known" and "does not answer" in cluster["details"]["error"]
    kept = _vispark("cluster", "delete", "night")
    assert kept.exit_code == UNKNOWN and f"remove {RecordStore().path('night')}" in kept.output


def test_a_cluster_with_the_name_of_ours_is_left_as_it_is():
    assert _create().exit_code == 0
    record = RecordStore().read("night")
    RecordStore().remove(record)
    RecordStore().create("night", record.region, record.parameters, "emr", record.details, "0" * 32)
    refused = _vispark("cluster", "delete", "night")
    assert refused.exit_code == NO and "left as it is" in refused.output
    assert len(boto3.client("cloudformation").describe_stacks()["Stacks"]) == 1


def test_names_that_are_none_and_clusters_that_are_not_there_are_said():
    assert "a cluster's name is a letter" in _create("1 night").output
    for command in ("stop", "connect"):
        result = _run(command, "nowhere")
        assert result.exit_code == 1 and "nowhere" in result.output
    damaged = Path(os.environ["XDG_STATE_HOME"], "vispark/clusters/night.json")
    damaged.parent.mkdir(parents=True)
    damaged.write_text("{")
    result = _run("list")
    assert result.exit_code == 1 and str(damaged) in result.output
