"""Clusters of Kubernetes: by Spark's own client against an API on loopback whose pods are processes of this machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
from click.testing import Result

from gpu_worker.commands.deployment.scheduled_gpus import DISCOVERY_SCRIPT
from tests import leaks
from tests.system.command_tools import here
from tests.system.fake_kubernetes import FakeKubernetes
from tests.system.topology import jvm_options
from vispark.migrate.clusters import kubernetes_api

pytestmark = [pytest.mark.timeout(400), pytest.mark.filterwarnings("ignore::DeprecationWarning")]

SCRIPT = '''\
import sys
from pyspark import SparkContext
import vispark
sc = SparkContext()
data = sc.parallelize([float(each) for each in range(10)], 4).cache("GPU")
print("answer", data.vmap(lambda x: 2 * x).sum(), sys.argv[1:])
sc.stop()
'''


LOOP = '''\
from pyspark import SparkContext
sc = SparkContext()
data = sc.parallelize([float(each) for each in range(10)], 2).cache()
w = 1.0
for _ in range(3):
    w = data.map(lambda x: x * w + 1).reduce(lambda a, b: a + b)
print("w", w)
sc.stop()
'''
#: Settings with which programs of these tests have their driver here, and JVMs that start quickly.
CLIENT = [word for name, value in {
    "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1", "spark.ui.enabled": "false",
    "spark.executor.extraJavaOptions": jvm_options(), "spark.vispark.fallback": "silent",
    "spark.kubernetes.executor.apiPollingInterval": "2s"}.items() for word in ("--conf", f"{name}={value}")]


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="vk-", ignore_cleanup_errors=True) as place:
        yield Path(place)


@pytest.fixture(autouse=True, scope="module")
def shared_client() -> Iterator[None]:
    """Start one JVM with Spark's client for all commands that run in this process; others start theirs.
    """
    with kubernetes_api.client_jvm() as jvm, pytest.MonkeyPatch.context() as patch:
        leaks.POOLED.add(jvm._gateway_client.port)
        patch.setattr(kubernetes_api, "client_jvm", lambda: nullcontext(jvm))
        yield


@pytest.fixture
def kubernetes(folder: Path) -> Iterator[FakeKubernetes]:
    (folder / "pods").mkdir()
    fake = FakeKubernetes(folder / "pods")
    yield fake
    fake.close()


def _environment(folder: Path) -> dict[str, str]:
    return os.environ | {"XDG_STATE_HOME": str(folder / "state"), "PYTHONWARNINGS": "ignore", "HOME": str(folder),
                         "KUBECONFIG": str(folder / "none"), "VISPARK_RUNTIME_DIR": str(folder / "run")}


def _vispark(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "vispark.migrate", *words], cwd=folder, env=_environment(folder) | {
        "PYTHONPATH": os.getcwd()}, capture_output=True, text=True, timeout=300)


def _here(folder: Path, *words: str) -> Result:
    return here(_environment(folder), *words)


def _create(folder: Path, api: str, executors: int = 2) -> Result:
    return _here(folder, "cluster", "create", "pods", "--platform", "kubernetes", "-p", f"api={api}", "-p",
                    "device=host:2", "-p", "gpus=2", "-p", "cores=1", "-p", "memory=512m", "-p",
                    f"executors={executors}", "-p", f"discovery={DISCOVERY_SCRIPT}", "--json")


def test_a_cluster_runs_programs_whose_executors_are_pods(folder: Path, kubernetes: FakeKubernetes):
    created = _create(folder, kubernetes.address)
    assert created.exit_code == 0, created.stderr
    identity = json.loads(created.stdout)["id"]
    namespace = kubernetes.objects["/api/v1/namespaces"]["vispark-pods"]
    assert namespace["metadata"]["labels"]["vispark/id"] == identity
    assert {"serviceaccounts", "resourcequotas"} <= {each.rpartition("/")[2] for each in kubernetes.objects}
    (folder / "job.py").write_text(SCRIPT)
    ran = _vispark(folder, "submit", "--cluster", "pods", *CLIENT, "job.py", "x")
    logs = "\n".join(path.read_text(errors="replace")[-1500:] for path in (folder / "pods").glob("*.log"))
    assert "answer 90.0 ['x']" in ran.stdout, ran.stderr[-3000:] + logs
    assert kubernetes.problems == []
    assert sum(each.startswith("POST") and "/pods" in each for each in kubernetes.requests) >= 2
    assert _here(folder, "cluster", "delete", "pods").exit_code == 0
    assert kubernetes.objects["/api/v1/namespaces"] == {}
    assert json.loads(_here(folder, "cluster", "list", "--json").stdout)["clusters"] == []


def test_a_program_is_taken_the_whole_way_on_a_cluster(folder: Path, kubernetes: FakeKubernetes):
    assert _create(folder, kubernetes.address, executors=1).exit_code == 0
    (folder / "loop.py").write_text(LOOP)
    ran = _vispark(folder, "run", "--json", "--cluster", "pods", "--no-noise", *CLIENT, "loop.py")
    record = folder / "loop.vispark" / "record.log"
    assert ran.returncode == 0, ran.stderr[-3000:] + (record.read_text()[-3000:] if record.exists() else "")
    answer = json.loads(ran.stdout)
    assert answer["ported"] == [5] and answer["verdict"] in ("equal", "within rounding")
    assert kubernetes.problems == []
    # The recorded run and the port's have executors of their own.
    applications = {each["metadata"]["labels"]["spark-app-selector"] for each in kubernetes.made["pods"]}
    assert len(applications) == 2
    assert _here(folder, "cluster", "delete", "pods").exit_code == 0


def test_a_driver_in_a_pod_starts_its_executors(folder: Path, kubernetes: FakeKubernetes):
    assert _create(folder, kubernetes.address, executors=1).exit_code == 0
    (folder / "job.py").write_text(SCRIPT)
    ran = _vispark(folder, "submit", "--cluster", "pods", "--deploy-mode", "cluster", "--conf",
                   f"spark.kubernetes.driver.master={kubernetes.address}", "--conf", "spark.driver.memory=512m",
                   "--conf", "spark.ui.enabled=false", "--conf", f"spark.driver.extraJavaOptions={jvm_options()}",
                   "--conf", f"spark.executor.extraJavaOptions={jvm_options()}", "--conf",
                   "spark.vispark.fallback=silent", "--conf", "spark.kubernetes.executor.apiPollingInterval=2s",
                   "--conf", "spark.kubernetes.report.interval=1s", f"local://{folder}/job.py", "x")
    logs = "\n".join(path.read_text(errors="replace") for path in (folder / "pods").glob("*.log"))
    assert ran.returncode == 0, ran.stderr[-3000:] + logs[-6000:]
    assert "answer 90.0 ['x']" in logs and kubernetes.problems == []
    roles = [each["metadata"]["labels"]["spark-role"] for each in kubernetes.made["pods"]]
    assert roles[0] == "driver" and "executor" in roles[1:]
    assert _here(folder, "cluster", "delete", "pods").exit_code == 0


# The process dies with the namespace not asked for yet, or asked for and not noted.
_KILLED = """
import os, signal, sys
from vispark.migrate.clusters.kubernetes_api import KubernetesApi
from vispark.migrate.cli import main
call = KubernetesApi.call
def dies(self, method, *given):
    if method == "POST":
        if sys.argv[1] == "sent":
            call(self, method, *given)
        os.kill(os.getpid(), signal.SIGKILL)
    return call(self, method, *given)
KubernetesApi.call = dies
main(sys.argv[2:])
"""


def _killed(folder: Path, when: str, api: str) -> None:
    words = ["cluster", "create", "pods", "--platform", "kubernetes", "-p", f"api={api}"]
    ended = subprocess.run([sys.executable, "-c", _KILLED, when, *words], env=_environment(folder), timeout=100)
    assert ended.returncode == -signal.SIGKILL


def test_a_creation_that_was_killed_is_found_again_goes_on_and_is_deleted(folder: Path, kubernetes: FakeKubernetes):
    _killed(folder, "sent", kubernetes.address)
    (cluster,) = json.loads(_here(folder, "cluster", "list", "--json").stdout)["clusters"]
    assert (cluster["name"], cluster["state"], cluster["is_recorded"]) == ("pods", "ready", True)
    created = _here(folder, "cluster", "create", "pods", "--platform", "kubernetes", "-p",
                       f"api={kubernetes.address}", "--json")
    assert created.exit_code == 0 and json.loads(created.stdout)["id"] == cluster["id"]
    assert sum(each == "POST /api/v1/namespaces" for each in kubernetes.requests) == 1
    record = folder / "state" / "vispark" / "clusters" / "pods.json"
    hidden = record.read_text()
    record.write_text(hidden.replace(cluster["id"], "0" * 32))
    refused = _here(folder, "cluster", "delete", "pods")
    assert refused.exit_code == 3 and "others created it" in refused.stderr
    assert "vispark-pods" in kubernetes.objects["/api/v1/namespaces"]
    record.write_text(hidden)
    assert _here(folder, "cluster", "delete", "pods").exit_code == 0
    assert kubernetes.objects["/api/v1/namespaces"] == {} and not record.exists()


def test_an_api_that_refuses_half_answers_or_is_not_there(folder: Path, kubernetes: FakeKubernetes):
    records = folder / "state" / "vispark" / "clusters"
    kubernetes.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace",
                                             "metadata": {"name": "vispark-pods"}})
    theirs = _create(folder, kubernetes.address)
    assert theirs.exit_code == 3 and "choose another name" in theirs.stderr and not list(records.glob("*.json"))
    kubernetes.delete("/api/v1/namespaces", ["vispark-pods"])
    kubernetes.answers = [403]
    refused = _create(folder, kubernetes.address)
    assert refused.exit_code == 3 and "refuses" in refused.stderr and not list(records.glob("*.json"))
    kubernetes.answers = [b'{"kind": "Names']
    half = _create(folder, kubernetes.address)
    assert half.exit_code == 3 and "no JSON" in half.stderr and not list(records.glob("*.json"))
    kubernetes.answers = [404, b'{"kind": "Names']
    half = _create(folder, kubernetes.address)
    assert half.exit_code == 4 and "no JSON" in half.stderr and list(records.glob("*.json"))
    kubernetes.answers = [None]
    cut = _here(folder, "cluster", "show", "pods")
    assert cut.exit_code == 4 and "does not answer" in cut.stderr
    kubernetes.answers = [None, None]
    kept = _here(folder, "cluster", "delete", "pods")
    assert kept.exit_code == 4 and f"remove {records}/pods.json" in kept.stderr and list(records.glob("*.json"))
    assert _here(folder, "cluster", "delete", "pods").exit_code == 0
    gone = _create(folder, "http://127.0.0.1:9")
    assert gone.exit_code == 3 and "does not answer" in gone.stderr and not list(records.glob("*.json"))
