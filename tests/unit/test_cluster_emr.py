"""``vispark cluster --platform emr`` against moto's server: the records, stacks and tags of ``gpu-worker clusters``.

moto does not check roles, machine types, subnets and scripts, knows no idle end, and never runs a step.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest
from click.testing import CliRunner, Result

from gpu_worker import cli as worker_cli
from gpu_worker.deployment.records import RecordStore
from tests.unit.test_emr_clusters import account, boto3, endpoint  # noqa: F401 - fixtures
from vispark.migrate.cli import main
from vispark.migrate.errors import NO, UNKNOWN, USAGE, YES

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::DeprecationWarning"),
              pytest.mark.filterwarnings("ignore::ResourceWarning")]

BUCKET = ["--platform", "emr", "-p", "Bootstrap=s3://bucket/bootstrap.sh", "-p",
          "Wheel=s3://bucket/vispark-0.11.0-py3-none-any.whl"]


def _vispark(*words: str) -> Result:
    return CliRunner().invoke(main, list(words))


def _listed() -> list[dict]:
    return json.loads(_vispark("cluster", "list", "--json").output)["clusters"]


def test_a_cluster_is_created_shown_given_a_step_and_deleted():
    assert _vispark("cluster", "create", "night", *BUCKET).exit_code == 1 and RecordStore().all() == []   # unconfirmed
    created = _vispark("cluster", "create", "night", *BUCKET, "-p", "WorkerCount=3", "--yes", "--json")
    assert created.exit_code == YES, created.output
    (found,) = [each for each in _listed() if each["platform"] == "emr"]
    assert (found["name"], found["state"], found["details"]["state"]) == ("night", "ready", "WAITING")
    assert found["id"] == json.loads(created.output)["id"]
    assert found["id"] in CliRunner().invoke(worker_cli.main, ["clusters", "list", "--json"]).output
    refused = _vispark("cluster", "doctor", "night")
    assert refused.exit_code == UNKNOWN and "as steps" in refused.output
    refused = _vispark("submit", "--cluster", "night", "job.py")
    assert refused.exit_code == USAGE and "aws s3 cp job.py" in refused.output
    sent = _vispark("submit", "--cluster", "night", "--num-executors", "3", "s3://bucket/job.py", "a")
    assert sent.exit_code == YES, sent.output
    (step,) = boto3.client("emr").list_steps(ClusterId=found["details"]["cluster"])["Steps"]
    assert step["Config"]["Jar"] == "command-runner.jar"
    words = step["Config"]["Args"]
    assert words[0] == "spark-submit" and words[-4:] == ["--num-executors", "3", "s3://bucket/job.py", "a"]
    assert _vispark("cluster", "delete", "night").exit_code == YES
    assert [each for each in _listed() if each["platform"] == "emr"] == [] and RecordStore().all() == []


def test_a_dry_run_asks_aws_for_nothing(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    said = _vispark("cluster", "create", "night", *BUCKET, "--dry-run")
    assert said.exit_code == YES, said.output
    plan = json.loads(said.output)["plan"]
    assert (plan["stack"], plan["region"], plan["parameters"]["WorkerType"]) == (
        "vispark-night", "us-east-1", "g5.xlarge")
    assert RecordStore().all() == []


@pytest.mark.parametrize(("words", "said"), [
    ([*BUCKET, "-p", "WorkerCounts=3"], "meant WorkerCount?"),
    ([*BUCKET, "-p", "WorkerCount=99"], "WorkerCount is a whole number from"),
    (["--platform", "emr"], "Bootstrap is"),
])
def test_parameters_outside_of_the_guard_rails_are_named(words: list[str], said: str):
    ended = _vispark("cluster", "create", "night", *words, "--yes")
    assert ended.exit_code == USAGE and said in ended.output and RecordStore().all() == []


def test_an_api_that_does_not_answer_leaves_a_record_and_one_that_refuses_none(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    ended = _vispark("cluster", "create", "night", *BUCKET, "--yes")
    assert ended.exit_code == UNKNOWN and "does not answer" in ended.output
    assert [each.state for each in RecordStore().all()] == ["recorded"]
    (found,) = [each for each in _listed() if each["platform"] == "emr"]
    assert found["state"] == "not known" and "does not answer" in found["details"]["error"]
    assert _vispark("cluster", "delete", "night").exit_code == UNKNOWN


# The process dies with the request sent and not noted.
_KILLED = """
import os, signal, sys
from gpu_worker.deployment.emr import EmrClusters
from vispark.migrate.cli import main
create = EmrClusters._create_stack
def dies(self, **request):
    create(self, **request)
    os.kill(os.getpid(), signal.SIGKILL)
EmrClusters._create_stack = dies
main(sys.argv[1:])
"""


def test_a_creation_that_was_killed_is_found_goes_on_and_is_deleted():
    ended = subprocess.run([sys.executable, "-c", _KILLED, "cluster", "create", "night", *BUCKET, "--yes"], timeout=60,
                           env=os.environ | {"PYTHONWARNINGS": "ignore"})
    assert ended.returncode == -signal.SIGKILL
    (record,) = RecordStore().all()
    (found,) = [each for each in _listed() if each["platform"] == "emr"]
    assert (found["id"], found["state"]) == (record.id, "ready") and record.state == "recorded"
    assert _vispark("cluster", "create", "night", *BUCKET, "--yes").exit_code == YES
    assert len(boto3.client("cloudformation").describe_stacks()["Stacks"]) == 1
    assert _vispark("cluster", "delete", "night").exit_code == YES
    assert boto3.client("cloudformation").describe_stacks()["Stacks"] == []


def test_a_cluster_of_another_user_is_left_as_it_is(tmp_path, monkeypatch: pytest.MonkeyPatch):
    assert _vispark("cluster", "create", "night", *BUCKET, "--yes").exit_code == YES
    record = RecordStore().read("night")
    RecordStore().remove(record)
    RecordStore().create("night", record.region, record.parameters, "emr", record.details, "0" * 32)
    refused = _vispark("cluster", "delete", "night")
    assert refused.exit_code == NO and "left as it is" in refused.output
    assert len(boto3.client("cloudformation").describe_stacks()["Stacks"]) == 1
