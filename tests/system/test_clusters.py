"""Standalone clusters by ``vispark cluster``: real masters and workers, real kills, and nothing that stays behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import Result

from tests.system.command_tools import here
from tests.system.topology import jvm_options
from tests.system.worker_tools import eventually
from vispark.migrate.clusters import tagged_processes

pytestmark = pytest.mark.timeout(400)

SCRIPT = '''\
import sys
from pyspark import SparkContext, TaskContext
import vispark
sc = SparkContext()
data = sc.parallelize([float(each) for each in range(10)], 4).cache("GPU")
print("answer", sc.master, data.vmap(lambda x: 2 * x).sum(), sys.argv[1:])
sc.stop()
sys.exit(int(sys.argv[1]))
'''
LOOP = '''\
from pyspark import SparkContext
sc = SparkContext()
data = sc.parallelize([float(each) for each in range(10)], 4).cache()
total = 0.0
for step in range(3):
    total += data.map(lambda x: x * step).sum()
print("total", total)
'''
PAIR = ("--platform", "standalone", "-p", "workers=2", "-p", "cores=1", "-p", "memory=1g", "-p", "gpus=2", "-p",
        "device=host:2")
ONE = ("--platform", "standalone", "-p", "cores=1", "-p", "memory=1g", "-p", "gpus=0", "-p", "device=host")
SMALL = ("--conf", "spark.executor.memory=512m", "--conf", "spark.driver.memory=512m", "--conf",
         "spark.ui.enabled=false", "--conf", "spark.vispark.fallback=silent")


@pytest.fixture
def folder() -> Iterator[Path]:
    """Make a folder for records and clusters, with a short path; what runs there is ended."""
    with tempfile.TemporaryDirectory(prefix="vc-") as place:
        yield Path(place)
        identities = {each[tagged_processes.ID] for each in tagged_processes.tagged().values()
                      if each.get(tagged_processes.PLACE, "").startswith(place)}
        for identity in identities:
            tagged_processes.end(identity, 5.0)
        assert not identities, "a cluster is left"


def _environment(folder: Path) -> dict[str, str]:
    return os.environ | {"XDG_STATE_HOME": str(folder / "state"), "TMPDIR": str(folder), "PYTHONWARNINGS": "ignore",
                         "SPARK_DAEMON_JAVA_OPTS": jvm_options(), "VISPARK_RUNTIME_DIR": str(folder / "run"),
                         "VISPARK_HISTORY": str(folder / "history.db")}


def _vispark(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command; one that does not end is ended with the programs and JVMs that it started."""
    with subprocess.Popen([sys.executable, "-m", "vispark.migrate", *words], cwd=folder, env=_environment(folder),
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        try:
            output, errors = process.communicate(timeout=120)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, errors = process.communicate()
            pytest.fail(f"vispark {' '.join(words)} did not end in 120 s:\n{output[-3000:]}\n{errors[-6000:]}")
    return subprocess.CompletedProcess(words, process.returncode, output, errors)


def _here(folder: Path, *words: str) -> Result:
    return here(_environment(folder), *words)


def _listed(folder: Path) -> list[dict]:
    """Return the clusters below the folder; other tests' may run beside."""
    listed = json.loads(_here(folder, "cluster", "list", "--json").stdout)["clusters"]
    return [each for each in listed if each["details"].get("place", "").startswith(str(folder))]


def test_a_standalone_cluster_runs_programs_and_leaves_nothing(folder: Path):
    created = _vispark(folder, "cluster", "create", "pair", *PAIR, "--json")
    assert created.returncode == 0, created.stderr
    identity = json.loads(created.stdout)["id"]
    assert [(each["name"], each["state"]) for each in _listed(folder)] == [("pair", "ready")]
    examined = _vispark(folder, "cluster", "doctor", "pair", "--json")
    assert examined.returncode == 0, examined.stderr
    answer = json.loads(examined.stdout)
    assert answer["computes"] and not answer["problems"]
    assert {task["host"] for task in answer["tasks"]} <= {"127.0.0.2", "127.0.0.3"}
    assert all(task["gpus"] == ["0", "1"] for task in answer["tasks"])
    (folder / "job.py").write_text(SCRIPT)
    ran = _vispark(folder, "submit", "--cluster", "pair", *SMALL, "job.py", "3")
    assert ran.returncode == 3 and "answer spark://127.0.0.1:" in ran.stdout and "90.0 ['3']" in ran.stdout
    (folder / "loop.py").write_text(LOOP)
    # Its runs of the program take one executor each.
    ported = _vispark(folder, "run", "--cluster", "pair", "--no-noise", "--no-probe", "--json", *SMALL, "--conf",
                      "spark.cores.max=1", "loop.py")
    assert ported.returncode == 0, ported.stderr
    answer = json.loads(ported.stdout)
    assert answer["verdict"] == "equal" and '.cache("GPU")' in answer["diff"]
    assert Path(folder, answer["report"]).exists()
    shown = json.loads(_here(folder, "report", "job", "--json", str(answer["job"])).stdout)
    assert [run["kind"] for run in shown["runs"]] == ["cpu", "gpu"]
    assert {(run["cluster"], run["application"].partition("-")[0]) for run in shown["runs"]} == {("pair", "app")}
    commands = [Path(f"/proc/{each}/cmdline").read_text() for each in tagged_processes.of_cluster(identity)]
    secret = (Path(_listed(folder)[0]["details"]["place"]) / "secret").read_text()
    assert len(commands) >= 4 and not [each for each in commands if secret in each]
    assert _here(folder, "cluster", "delete", "pair").exit_code == 0
    assert _listed(folder) == [] and tagged_processes.of_cluster(identity) == []
    assert not list(folder.glob("vispark-cluster-*"))


# The process dies with the supervisor not started yet, or started and not noted.
_KILLED = """
import os, signal, sys
from vispark.migrate.clusters import standalone
from vispark.migrate.cli import main
start = standalone._start
def dies(*given):
    if sys.argv[1] == "sent":
        start(*given)
    os.kill(os.getpid(), signal.SIGKILL)
standalone._start = dies
main(sys.argv[2:])
"""


def _killed(folder: Path, when: str, *words: str) -> None:
    ended = subprocess.run([sys.executable, "-c", _KILLED, when, "cluster", "create", *words], env=_environment(folder),
                           cwd=folder, timeout=60)
    assert ended.returncode == -signal.SIGKILL


def test_a_creation_that_was_killed_before_it_began_can_be_deleted(folder: Path):
    _killed(folder, "unsent", "one", *ONE)
    (cluster,) = _listed(folder)
    assert (cluster["name"], cluster["state"]) == ("one", "absent")
    assert _here(folder, "cluster", "show", "one").exit_code == 3
    assert _here(folder, "cluster", "delete", "one").exit_code == 0 and _listed(folder) == []


def test_a_creation_that_was_killed_goes_on_once_and_ends_when_it_is_idle(folder: Path):
    _killed(folder, "sent", "one", *ONE, "-p", "idle=2")
    (cluster,) = _listed(folder)
    assert (cluster["name"], cluster["is_recorded"]) == ("one", True) and cluster["state"] in ("starting", "ready")
    created = _vispark(folder, "cluster", "create", "one", *ONE, "-p", "idle=2", "--json")
    assert created.returncode == 0, created.stderr
    assert json.loads(created.stdout)["id"] == cluster["id"]
    assert eventually(lambda: not tagged_processes.of_cluster(cluster["id"]), 60.0), "the idle end did not come"
    assert [each["state"] for each in _listed(folder)] == ["ended"]
    refused = _here(folder, "submit", "--cluster", "one", "job.py")
    assert refused.exit_code == 4 and "vispark cluster delete one" in refused.stderr
    assert _here(folder, "cluster", "delete", "one").exit_code == 0 and _listed(folder) == []


def test_a_creation_that_was_killed_is_found_and_deleted_with_all_its_processes(folder: Path):
    _killed(folder, "sent", "one", *ONE)
    (cluster,) = _listed(folder)
    assert tagged_processes.of_cluster(cluster["id"])
    assert _here(folder, "cluster", "delete", "one").exit_code == 0
    assert _listed(folder) == [] and tagged_processes.of_cluster(cluster["id"]) == []


def test_a_cluster_that_cannot_start_is_taken_away_with_the_end_of_its_log(folder: Path):
    environment = _environment(folder) | {"SPARK_MASTER_OPTS": "-XX:+UseParallelGC -XX:+UseSerialGC"}
    ended = subprocess.run([sys.executable, "-m", "vispark.migrate", "cluster", "create", "one", *ONE], cwd=folder,
                           env=environment, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 3 and "garbage collectors" in ended.stderr
    assert _listed(folder) == []
