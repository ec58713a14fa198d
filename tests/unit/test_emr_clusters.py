"""Clusters of EMR against moto's server: recorded first, created once, found again, and only our own ended.

moto does not check roles, machines, subnets and scripts, knows no idle end (``AutoTerminationPolicy``) and has no
machines that come up; EMR itself is the only proof of these.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gpu_worker import cli
from gpu_worker.deployment import cluster_template
from gpu_worker.deployment.emr import EmrClusters
from gpu_worker.deployment.records import RecordStore

boto3 = pytest.importorskip("boto3")
errors = pytest.importorskip("botocore.exceptions")
server = pytest.importorskip("moto.server")
models = pytest.importorskip("moto.emr.models")

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::DeprecationWarning"),
              pytest.mark.filterwarnings("ignore::ResourceWarning")]

BUCKET = ["-p", "Bootstrap=s3://bucket/bootstrap.sh", "-p", "Wheel=s3://bucket/vispark-0.11.0-py3-none-any.whl"]


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """AWS on a free port of loopback."""
    aws = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    aws.start()
    host, port = aws.get_host_and_port()
    yield f"http://{host}:{port}"
    aws.stop()


@pytest.fixture(autouse=True)
def account(endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An account without clusters, and a user without records."""
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


def _listed() -> list[dict[str, str]]:
    return json.loads(_run("list", "--json").output)


def _create(name: str = "night", *more: str) -> Result:
    return _run("create", name, *BUCKET, *more)


def test_a_cluster_is_created_listed_connected_to_and_stopped():
    created = _create("night", "-p", "WorkerCount=3", "-p", "IdleSeconds=900")
    assert created.exit_code == 0, created.output
    (found,) = _listed()
    assert (found["name"], found["record"], found["stack"], found["state"]) == (
        "night", "requested", "CREATE_COMPLETE", "WAITING")
    assert found["id"] in created.output
    emr = boto3.client("emr")
    cluster = emr.describe_cluster(ClusterId=found["cluster"])["Cluster"]
    assert {"Key": "vispark:id", "Value": found["id"]} in cluster["Tags"]
    assert cluster["ReleaseLabel"] == "emr-7.9.0" and not cluster["AutoTerminate"]
    (stack,) = boto3.client("cloudformation").describe_stacks()["Stacks"]
    assert {"ParameterKey": "IdleSeconds", "ParameterValue": "900"} in stack["Parameters"]
    said = _run("connect", "night")
    assert said.exit_code == 0 and found["cluster"] in said.output and "import vispark" in said.output
    assert _run("stop", "night", "--dry-run").exit_code == 0 and len(_listed()) == 1
    assert _run("stop", "night").exit_code == 0
    assert _listed() == [] and RecordStore().all() == []
    assert emr.describe_cluster(ClusterId=found["cluster"])["Cluster"]["Status"]["State"] == "TERMINATED"


def test_a_dry_run_asks_for_nothing(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    said = _create("night", "--dry-run")
    assert said.exit_code == 0, said.output
    assert json.loads(said.output)["parameters"]["WorkerType"] == "g5.xlarge"
    assert RecordStore().all() == []


# The process dies with the request unsent, or sent and not noted.
_KILLED = """
import os, signal, sys
from gpu_worker import cli
from gpu_worker.deployment.emr import EmrClusters
create = EmrClusters._create_stack
def dies(self, **request):
    if sys.argv[1] == "sent":
        create(self, **request)
    os.kill(os.getpid(), signal.SIGKILL)
EmrClusters._create_stack = dies
cli.main(sys.argv[2:])
"""


@pytest.mark.parametrize("when", ["unsent", "sent"])
def test_a_creation_that_was_killed_is_found_again_and_happens_once(when: str):
    ended = subprocess.run([sys.executable, "-c", _KILLED, when, "clusters", "create", "night", *BUCKET], timeout=60,
                           check=False)
    assert ended.returncode == -signal.SIGKILL
    (record,) = RecordStore().all()
    assert record.state == "recorded"
    (found,) = _listed()
    assert (found["id"], found["record"]) == (record.id, "recorded")
    assert found["stack"] == ("CREATE_COMPLETE" if when == "sent" else "")
    assert "create it with these" in _create("night", "-p", "WorkerCount=5").output
    assert _create().exit_code == 0
    (found,) = _listed()
    assert (found["id"], found["record"], found["state"]) == (record.id, "requested", "WAITING")
    assert len(boto3.client("cloudformation").describe_stacks()["Stacks"]) == 1
    assert _run("stop", "night").exit_code == 0 and _listed() == []


def test_a_killed_creation_can_be_stopped():
    subprocess.run([sys.executable, "-c", _KILLED, "sent", "clusters", "create", "night", *BUCKET], timeout=60,
                   check=False)
    assert _run("stop", "night").exit_code == 0
    assert _listed() == [] and RecordStore().all() == []


def test_what_others_created_is_left_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    template = cluster_template.load("")
    stacks = boto3.client("cloudformation")
    values = template.check({"Bootstrap": "s3://b/b.sh", "Wheel": "s3://b/vispark-1.whl"})
    values |= {"ClusterName": "theirs", "VisparkId": "0" * 32}
    stacks.create_stack(StackName="vispark-theirs", TemplateBody=template.text,
                        Parameters=[{"ParameterKey": key, "ParameterValue": value} for key, value in values.items()])
    for said in (_run("stop", "theirs"), _run("stop", "theirs", "--id", "0" * 32)):
        assert said.exit_code == 1 and "was not created by gpu-worker clusters" in said.output
    said = _create("theirs")
    assert said.exit_code == 1 and "choose another name" in said.output and RecordStore().all() == []

    assert _create("night").exit_code == 0
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another user"))
    night = next(each for each in _listed() if each["name"] == "night")
    assert night["record"] == ""
    said = _run("stop", "night")
    assert said.exit_code == 1 and f"stop night --id {night['id']}" in said.output
    assert {stack["StackName"] for stack in stacks.describe_stacks()["Stacks"]} == {"vispark-theirs", "vispark-night"}
    assert _run("stop", "night", "--id", night["id"]).exit_code == 0
    assert [stack["StackName"] for stack in stacks.describe_stacks()["Stacks"]] == ["vispark-theirs"]


def test_an_api_that_does_not_answer_leaves_a_record_and_one_that_refuses_none(monkeypatch: pytest.MonkeyPatch):
    create = EmrClusters._create_stack

    def unanswered(self, **request):
        create(self, **request)
        raise errors.ReadTimeoutError(endpoint_url="http://aws")

    monkeypatch.setattr(EmrClusters, "_create_stack", unanswered)
    said = _create()
    assert said.exit_code == 1 and "it is not known whether cluster night was created" in said.output
    assert _listed()[0]["stack"] == "CREATE_COMPLETE"
    monkeypatch.setattr(EmrClusters, "_create_stack", create)
    assert _create().exit_code == 0 and _run("stop", "night").exit_code == 0

    def refused(self, **request):
        raise errors.ClientError({"Error": {"Code": "AccessDenied", "Message": "not you"},
                           "ResponseMetadata": {"HTTPStatusCode": 403}}, "CreateStack")

    monkeypatch.setattr(EmrClusters, "_create_stack", refused)
    said = _create()
    assert said.exit_code == 1 and "not you" in said.output and RecordStore().all() == []


@pytest.mark.parametrize(("given", "said"), [
    (["WorkerCounts=3"], "WorkerCounts is no parameter of the template; meant WorkerCount?"),
    (["WorkerCount=17"], "WorkerCount is a whole number from 1 to 16, not 17"),
    (["WorkerType=t3.nano"], "WorkerType is one of g4dn.xlarge"),
    (["VisparkId=1"], "VisparkId is given by this command"),
    (["Wheel"], "a parameter is KEY=VALUE, not 'Wheel'"),
    (["Wheel=file"], "Wheel is s3://BUCKET/.../vispark-VERSION-py3-none-any.whl, not 'file'"),
    ([], "Bootstrap is missing: s3://BUCKET/.../bootstrap.sh; Wheel is missing"),
])
def test_guard_rails_hold_before_anything_is_asked(given: list[str], said: str):
    result = _run("create", "night", *(word for each in given for word in ("-p", each)))
    assert result.exit_code == 1 and said in result.output
    assert RecordStore().all() == []


def test_templates_of_ones_own_are_looked_at(tmp_path: Path):
    path = tmp_path / "cluster.json"
    for text, said in [("{", "cannot be read as JSON"), ("{}", "has no Resources"),
                       ('{"Resources": {}, "Parameter": {}}', "has Parameter; known are"),
                       ('{"Resources": {}}', "has no parameter ClusterName and none VisparkId")]:
        path.write_text(text)
        result = _create("night", "--template", str(path))
        assert result.exit_code == 1 and said in result.output


def test_names_that_are_none_and_clusters_that_are_not_there_are_said():
    assert "a cluster's name is a letter" in _create("1 night").output
    for command in ("stop", "connect"):
        said = _run(command, "nowhere")
        assert said.exit_code == 1 and "nowhere" in said.output
    damaged = Path(os.environ["XDG_STATE_HOME"], "vispark/clusters/night.json")
    damaged.parent.mkdir(parents=True)
    damaged.write_text("{")
    said = _run("list")
    assert said.exit_code == 1 and str(damaged) in said.output
