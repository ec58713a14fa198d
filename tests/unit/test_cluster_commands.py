"""``vispark cluster`` and ``vispark submit`` without Spark: parameters, dry runs, records, refusals."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner, Result

from gpu_worker.commands.deployment import scheduled_gpus
from gpu_worker.commands.deployment.platforms import PLATFORMS, SubmitSettings, platform_of
from vispark.migrate.cli import main
from vispark.migrate.clusters import on_cluster, spark_submit, standalone, tagged_processes
from vispark.migrate.errors import NO, UNKNOWN, USAGE, YES, MasterError
from vispark.migrate.record.recorder import Recorder
from vispark.migrate.store.history import History

#: Tag of a process of this test, which is no cluster's of anybody else.
STRAY = "5" * 32


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Have a user without records; return the folder of these."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("VISPARK_HISTORY", str(tmp_path / "history.db"))
    return tmp_path / "state" / "vispark" / "clusters"


def _vispark(*words: str) -> Result:
    return CliRunner().invoke(main, list(words))


def _create(name: str, *words: str, platform: str = "local") -> Result:
    return _vispark("cluster", "create", name, "--platform", platform, *words)


def test_a_local_cluster_is_created_listed_shown_submitted_to_and_deleted():
    assert _create("laptop", "-p", "cores=2", "-p", "device=host").exit_code == YES
    (cluster,) = json.loads(_vispark("cluster", "list", "--json").output)["clusters"]
    assert (cluster["name"], cluster["platform"], cluster["state"], cluster["details"]["master"]) == (
        "laptop", "local", "ready", "local[2]")
    assert cluster["id"] in _vispark("cluster", "show", "laptop").output
    line = json.loads(_vispark("submit", "--cluster", "laptop", "--name", "demo", "--verbose", "--conf",
                               "spark.cores.max=1", "--dry-run", "--json", "job.py", "--name", "x").stdout)["command"]
    assert line[1:] == ["--master", "local[2]", "--conf", "spark.vispark.device=host", "--conf", "spark.cores.max=1",
                        "--name", "demo", "--verbose", "job.py", "--name", "x"] or sorted(line[1:-3]) == sorted(
        ["--master", "local[2]", "--conf", "spark.vispark.device=host", "--name", "demo", "--verbose", "--conf",
         "spark.cores.max=1"])
    assert "doctor.py" in _vispark("cluster", "doctor", "laptop", "--dry-run").output
    assert _vispark("cluster", "delete", "laptop", "--dry-run").exit_code == YES
    assert _vispark("cluster", "show", "laptop").exit_code == YES
    assert _vispark("cluster", "delete", "laptop").exit_code == YES
    assert _vispark("cluster", "list").output == "no clusters\n"


@pytest.mark.parametrize(("words", "message"), [
    (["-p", "cors=2"], "meant cores?"),
    (["-p", "cores=many"], "cores is a whole number from 1 to 4096"),
    (["-p", "cores"], "a parameter is NAME=VALUE"),
    (["-p", "cores=1", "-p", "cores=2"], "given twice"),
    (["-p", "device=GPU!"], "device is a device as spark.vispark.device takes it"),
])
def test_parameters_that_are_wrong_are_named(state: Path, words: list[str], message: str):
    ended = _create("laptop", *words)
    assert ended.exit_code == USAGE and message in ended.output
    assert not state.exists()


def test_names_that_are_wrong_are_named():
    assert _create("laptop", platform="locl").exit_code == USAGE
    ended = _create("no name")
    assert ended.exit_code == USAGE and "a letter, then letters" in ended.output
    for command in ("show", "doctor", "delete"):
        ended = _vispark("cluster", command, "nothing")
        assert ended.exit_code == UNKNOWN and "no cluster nothing is recorded here" in ended.output
    assert _vispark("submit", "--cluster", "nothing", "job.py").exit_code == UNKNOWN


def test_a_name_is_taken_once():
    assert _create("laptop", "-p", "cores=2").exit_code == YES
    ended = _create("laptop", "-p", "cores=3")
    assert ended.exit_code == UNKNOWN and "vispark cluster delete laptop" in ended.output


def test_a_record_that_cannot_be_read_is_named(state: Path):
    state.mkdir(parents=True)
    (state / "laptop.json").write_text("{")
    ended = _vispark("cluster", "list")
    assert ended.exit_code == UNKNOWN and "laptop.json cannot be read" in ended.output


@pytest.mark.parametrize("platform", sorted(PLATFORMS))
def test_each_platform_lists_its_parameters_which_have_valid_defaults(platform: str):
    rows = json.loads(_create("any", "--parameters", "--json", platform=platform).output)["parameters"]
    parameters = platform_of(platform).parameters
    assert [row["name"] for row in rows] == [parameter.name for parameter in parameters]
    for parameter in parameters:
        if parameter.default:
            parameter.check(parameter.default)


def test_a_dry_run_of_a_standalone_cluster_starts_and_records_nothing(state: Path):
    ended = _create("pair", "-p", "workers=2", "-p", "cores=3", "-p", "memory=2g", "-p", "gpus=2", "-p",
                    "device=host:2", "--dry-run", platform="standalone")
    assert ended.exit_code == YES, ended.output
    plan = json.loads(ended.output)["plan"]
    assert plan["workers"] == [{"host": f"127.0.0.{number}", "cores": 3, "memory": "2g", "gpus": ["0", "1"]}
                               for number in (2, 3)]
    assert not state.exists() and not tagged_processes.of_cluster("0" * 32)


def test_gpus_are_dealt_to_workers_and_no_more_than_there_are(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(scheduled_gpus, "addresses", lambda: ["0", "1", "2", "3", "4"])
    words = ["-p", "workers=2", "--dry-run"]
    plan = json.loads(_create("pair", *words, platform="standalone").output)["plan"]
    assert [worker["gpus"] for worker in plan["workers"]] == [["0", "1"], ["2", "3"]]
    ended = _create("pair", *words, "-p", "gpus=3", platform="standalone")
    assert ended.exit_code == USAGE and "need 6, and this machine has 5" in ended.output
    ended = _create("pair", *words, "-p", "gpus=3", "-p", "device=host:2", platform="standalone")
    assert ended.exit_code == USAGE and "host:2 has 2" in ended.output


def test_a_discovery_script_that_fails_is_quoted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    script = tmp_path / "gpus.sh"
    script.write_text("echo no driver >&2; exit 1\n")
    monkeypatch.setattr(scheduled_gpus, "DISCOVERY_SCRIPT", script)
    ended = _create("one", "--dry-run", platform="standalone")
    assert ended.exit_code == UNKNOWN and "no driver" in ended.output


def test_a_directory_that_others_may_read_is_left_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    taken = tmp_path / "taken"
    taken.mkdir(mode=0o755)
    monkeypatch.setattr(standalone.StandalonePlatform, "place", lambda *_: {"place": str(taken)})
    ended = _create("one", "-p", "gpus=0", platform="standalone")
    assert ended.exit_code == NO and "not a directory of this user alone" in ended.output
    assert _vispark("cluster", "list").output == "no clusters\n" and taken.is_dir()


@pytest.fixture
def stray(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a process with the tags of a cluster that is not recorded."""
    marks = {tagged_processes.ID: STRAY, tagged_processes.NAME: "theirs", tagged_processes.PLACE: str(tmp_path / "it")}
    with subprocess.Popen(["sleep", "60"], env=os.environ | marks) as process:
        yield process
        process.kill()


def test_a_cluster_that_is_not_recorded_is_found_and_refuses_to_be_deleted(stray: subprocess.Popen[bytes]):
    clusters = [each for each in json.loads(_vispark("cluster", "list", "--json").output)["clusters"]
                if each["id"] == STRAY]
    assert [(each["name"], each["is_recorded"], each["state"]) for each in clusters] == [("theirs", False, "starting")]
    for words in ([], ["--id", "6" * 32]):
        ended = _vispark("cluster", "delete", "theirs", *words)
        assert ended.exit_code == NO and f"vispark cluster delete theirs --id {STRAY}" in ended.output
    assert stray.poll() is None
    assert _vispark("cluster", "delete", "theirs", "--id", STRAY, "--dry-run").exit_code == YES and stray.poll() is None
    assert _vispark("cluster", "delete", "theirs", "--id", STRAY).exit_code == YES
    assert stray.wait(10) is not None


def test_the_id_of_another_cluster_deletes_nothing():
    _create("laptop")
    ended = _vispark("cluster", "delete", "laptop", "--id", STRAY)
    assert ended.exit_code == NO and "it is left as it is" in ended.output
    assert _vispark("cluster", "show", "laptop").exit_code == YES


@pytest.mark.parametrize(("words", "message"), [
    (["--confg", "a=b", "job.py"], "No such option"),
    (["--conf", "spark.vispark.devic=host", "job.py"], "the nearest is spark.vispark.device"),
    (["--conf", "spark.vispark.device", "job.py"], "a setting is NAME=VALUE"),
    ([], "Missing argument"),
])
def test_submit_refuses_what_spark_or_vispark_would(words: list[str], message: str):
    ended = _vispark("submit", *words)
    assert ended.exit_code == USAGE and message in ended.output


def test_secrets_are_in_a_file_that_no_other_user_reads_beside_the_users_own_settings(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "spark-defaults.conf").write_text("spark.cores.max 3")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    _made_spark_submit(tmp_path, monkeypatch, 'echo "$@"\nwhile [ "$1" != --properties-file ]; do shift; done\n'
                                              'stat -c %a "$2"; cat "$2"\n')
    settings = SubmitSettings("local", secrets={"spark.authenticate.secret": "hidden"})
    line, mode, *file = spark_submit.run(settings, [], "job.py", capture=True).stdout.splitlines()
    assert "hidden" not in line and mode == "600"
    assert file == ["spark.cores.max 3", "spark.authenticate.secret hidden"]


def test_programs_of_a_checkout_find_vispark_and_nothing_inside_of_it():
    # vispark/random.py would stand for Python's random.
    path = Path(spark_submit._own_path({}))
    assert (path / "vispark" / "random.py").is_file() and not (path / "random.py").exists()


def _made_spark_submit(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    (folder / "bin").mkdir()
    program = folder / "bin" / "spark-submit"
    program.write_text(f"#!/bin/sh\n{text}")
    program.chmod(0o755)
    monkeypatch.setattr(spark_submit, "_find_spark_home", lambda: str(folder))


#: An answer of a worker, as the journal has it.
ANSWER = {"ended": 1000.0, "seconds": 0.5, "worker": 0.375, "compile": 0.125, "operations": ["vmap", "sum"],
          "line": "/srv/job.py:7: x.sum()"}


def test_a_submitted_run_is_kept_with_its_trace_and_its_break_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    _made_spark_submit(tmp_path, monkeypatch, f"""for each in "$@"; do case "$each" in spark.vispark.journal=*)
        echo '{json.dumps(ANSWER)}' >"${{each#*=}}";; esac; done\nexit 3\n""")
    (tmp_path / "job.py").write_text("pass\n")
    _create("laptop")
    answer = json.loads(_vispark("submit", "--cluster", "laptop", "--json", str(tmp_path / "job.py")).output)
    (run,) = History().whole_job(1)["runs"]
    assert (run["kind"], run["state"], run["cluster"], run["log"]) == ("gpu", "failed", "laptop", answer["trace"])
    assert run["conf"] == {"profile": {"transport": 0.125, "compile": 0.125, "kernel": 0.25}, "plans": {
        "/srv/job.py:7": 1}, "lines": {"/srv/job.py:7": {"transport": 0.125, "compile": 0.125, "kernel": 0.25}}}
    assert (tmp_path / "traces").stat().st_mode & 0o777 == 0o700
    slices = [each["name"] for each in json.loads(Path(run["log"]).read_text())["traceEvents"] if each["ph"] == "X"]
    assert slices == ["vmap, sum: transport", "vmap, sum: compile", "vmap, sum: kernel"]
    assert json.loads(_vispark("report", "job", "1", "--json").output)["runs"][0]["id"] == answer["run"]
    History().prune(runs=0, is_gone=os.unlink)
    assert not Path(run["log"]).exists()


@pytest.mark.parametrize("words", [["--no-history"], ["--deploy-mode", "cluster"],
                                   ["--conf", "spark.submit.deployMode=cluster"]])
def test_a_run_whose_driver_is_elsewhere_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]):
    _made_spark_submit(tmp_path, monkeypatch, 'echo "$@"\n')
    (tmp_path / "job.py").write_text("pass\n")
    answer = json.loads(_vispark("submit", "--json", *words, str(tmp_path / "job.py")).output)
    assert answer["run"] is None and "eventLog" not in answer["stdout"] and History().count() == 0


@pytest.mark.parametrize("words", [["--conf", "spark.eventLog.dir=hdfs:///logs"], ["--properties-file", "own.conf"]])
def test_event_logs_of_the_users_own_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]):
    _made_spark_submit(tmp_path, monkeypatch, 'echo "$@"\n')
    monkeypatch.chdir(tmp_path)
    Path("own.conf").write_text("spark.eventLog.enabled true\n")
    Path("job.py").write_text("pass\n")
    output = json.loads(_vispark("submit", "--json", *words, "job.py").output)["stdout"]
    assert "spark.vispark.journal=" in output and "eventLog.compress" not in output


# -- vispark run --cluster -------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("words", "status", "message"), [
    (["--cluster", "nothing"], UNKNOWN, "no cluster nothing"),
    (["--cluster", "laptop", "--device", "host"], USAGE, "--device is that of the cluster"),
    (["--cluster", "laptop", "--conf", "spark.vispark.devic=host"], USAGE, "the nearest is spark.vispark.device"),
    (["--conf", "a"], USAGE, "a setting is NAME=VALUE")])
def test_run_refuses_clusters_and_settings_that_are_none(tmp_path: Path, words: list[str], status: int, message: str):
    _create("laptop")
    (tmp_path / "job.py").write_text("pass\n")
    ended = _vispark("run", "--out", str(tmp_path / "out"), *words, str(tmp_path / "job.py"))
    assert ended.exit_code == status and message in ended.output, ended.output


def test_programs_of_a_block_run_on_the_cluster_and_its_secret_is_no_argument(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--name mine pyspark-shell")
    settings = SubmitSettings("spark://h:7077", {"spark.a": "b c"}, ("--deploy-mode", "client"), {"OF_THE_TEST": "1"},
                              {"spark.authenticate.secret": "hidden"})
    with on_cluster.running_on(settings):
        first, *words = shlex.split(os.environ["PYSPARK_SUBMIT_ARGS"])
        assert words == ["--master", "spark://h:7077", "--deploy-mode", "client", "--conf", "spark.a=b c", "--name",
                         "mine", "pyspark-shell"]
        file = Path(first.removeprefix("--properties-file="))
        assert "hidden" in file.read_text() and file.stat().st_mode & 0o777 == 0o600
        assert os.environ["OF_THE_TEST"] == "1"
    assert not file.exists() and os.environ["PYSPARK_SUBMIT_ARGS"] == "--name mine pyspark-shell"
    assert "OF_THE_TEST" not in os.environ


def test_a_program_that_names_a_master_of_its_own_is_not_run_there(tmp_path: Path):
    (tmp_path / "job.py").write_text("pass\n")
    recorder = Recorder(tmp_path / "job.py", [], master="spark://h:7077")
    recorder._check_master(SimpleNamespace(master="spark://h:7077"))
    with pytest.raises(MasterError, match=r"runs on local\[2\], not on spark://h:7077"):
        recorder._check_master(SimpleNamespace(master="local[2]"))
