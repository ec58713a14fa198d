"""``vispark profile`` and ``vispark config``: lines that add up, settings with their sources, and what is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from vispark.migrate.cli import main
from vispark.migrate.clusters.program_settings import merged, problems
from vispark.migrate.commands import profile_command
from vispark.migrate.errors import NO, UNKNOWN, USAGE, YES
from vispark.migrate.store.history import History
from vispark.runtime.profiling.profiler import Profile
from vispark.runtime.profiling.spark_jobs import Job


@pytest.fixture(autouse=True)
def _surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have no settings, jobs or clusters of anybody's."""
    monkeypatch.setenv("VISPARK_HISTORY", str(tmp_path / "history.db"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    monkeypatch.delenv("PYSPARK_SUBMIT_ARGS", raising=False)


def _vispark(*words: str) -> Result:
    return CliRunner().invoke(main, list(words))


def test_lines_add_up_to_the_whole_with_jobs_at_their_sites():
    profile = Profile(total=10.0)
    profile.add("reduce", {"kernel": 2.0, "transport": 1.0}, profile.started + 1.0, "worker", "/a/job.py:12")
    for number, name in enumerate(["collect at /a/job.py:14", "runJob at PythonRDD.scala"]):
        profile.jobs.append(Job(number, name, profile.epoch + 5.0 + number, profile.epoch + 6.0 + number, ()))
    lines = profile.lines()
    assert set(lines) == {"/a/job.py:12", "/a/job.py:14", ""}
    assert lines["/a/job.py:12"] == pytest.approx({"kernel": 2.0, "transport": 1.0})
    assert lines["/a/job.py:14"] == pytest.approx({"scheduling": 1.0})
    assert sum(sum(kinds.values()) for kinds in lines.values()) == pytest.approx(10.0)
    assert sum(profile.seconds.values()) == pytest.approx(10.0)


def test_a_script_that_ends_before_it_begins_has_a_profile_of_its_failure(tmp_path: Path):
    script = tmp_path / "job.py"
    script.write_text("import sys\nsys.exit(5)\n")
    trace = tmp_path / "trace.json"
    ended = _vispark("profile", "--json", "--trace", str(trace), str(script))
    assert ended.exit_code == NO, ended.output
    answer = json.loads(ended.stdout)
    assert answer["failed"] == "it ended with status 5" and set(answer["lines"]) == {""}
    assert "traceEvents" in trace.read_text()
    (run,) = History().whole_job(1)["runs"]
    assert (run["kind"], run["state"], run["log"]) == ("tune", "failed", str(trace))


def test_a_script_that_kills_itself_has_none(tmp_path: Path):
    script = tmp_path / "job.py"
    script.write_text("import os\nos.kill(os.getpid(), 9)\n")
    ended = _vispark("profile", "--trace", str(tmp_path / "t.json"), str(script))
    assert ended.exit_code == UNKNOWN and "ended with status -9, without a profile" in ended.output


def test_a_script_that_takes_too_long_is_ended(tmp_path: Path):
    script = tmp_path / "job.py"
    script.write_text("import time\ntime.sleep(60)\n")
    ended = _vispark("profile", "--trace", str(tmp_path / "t.json"), "--timeout", "1", str(script))
    assert ended.exit_code == UNKNOWN and "did not end within 1 s" in ended.output


def test_a_profile_shows_the_longest_lines_with_their_plans(tmp_path: Path):
    (tmp_path / "job.py").write_text("one\ntwo = sc.sum()\n")
    place = f"{tmp_path / 'job.py'}:2"
    answer = {"total": 4.0, "kinds": {}, "lines": {"": {"driver": 1.0}, place: {"kernel": 2.5, "parse": 0.5}},
              "plans": {place: 7}, "forgotten": 2, "failed": ""}
    lines = profile_command.text_of(Path("job.py"), answer, Path("t.json"), top=1).splitlines()
    assert lines[1].split() == ["3.000", "s", "75.0", "%", "job.py:2", "two", "=", "sc.sum()", "7", "plans;",
                                "kernel", "2.500,", "parse", "0.500"]
    assert lines[2].endswith("in 1 further lines") and "2 jobs" in lines[3]


def test_settings_are_shown_with_their_sources_and_those_that_they_hide(tmp_path: Path,
                                                                        monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "spark-defaults.conf").write_text("# ours\nspark.cores.max 2\nspark.vispark.lease: 30\n")
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--conf spark.cores.max=3 pyspark-shell")
    shown = json.loads(_vispark("config", "show", "--json", "--conf", "spark.cores.max=4").output)["settings"]
    file = str(tmp_path / "spark-defaults.conf")
    assert {each["name"]: (each["value"], each["source"], each["hidden"]) for each in shown} == {
        "spark.cores.max": ("4", "--conf", [file, "PYSPARK_SUBMIT_ARGS"]), "spark.vispark.lease": ("30", file, [])}
    everything = json.loads(_vispark("config", "show", "--json", "--all").output)["settings"]
    assert any(each["source"] == "default" for each in everything)
    output = _vispark("config", "explain", "lease").output
    assert output.startswith("spark.vispark.lease = 30") and "default 10.0 s" in output
    assert "a setting of Spark's" in _vispark("config", "explain", "spark.cores.max").output
    assert _vispark("config", "explain", "spark.nothing").exit_code == USAGE


def test_settings_of_a_cluster_are_shown():
    assert _vispark("cluster", "create", "laptop", "--platform", "local", "-p", "cores=2").exit_code == YES
    lines = _vispark("config", "show", "--cluster", "laptop").output.splitlines()
    assert lines[0].split() == ["spark.vispark.device", "auto", "cluster", "laptop"] and "local[2]" in lines[1]
    assert _vispark("config", "check", "--cluster", "laptop").exit_code == YES
    assert _vispark("config", "check", "--cluster", "nothing").exit_code == UNKNOWN


@pytest.mark.parametrize(("settings", "message"), [
    ({"spark.vispark.attempts": "many"}, "is not understood"),
    ({"spark.task.resource.gpu.amount": "1"}, "executors have no GPU"),
    ({"spark.task.resource.gpu.amount": "2", "spark.executor.resource.gpu.amount": "1"}, "no task would ever start"),
    ({"spark.executor.resource.gpu.amount": "1"}, "no share for tasks"),
    ({"spark.executor.resource.gpu.amount": "one", "spark.task.resource.gpu.amount": "0.5"}, "no number of GPUs"),
    ({"spark.master": "local[2]", "spark.executor.resource.gpu.amount": "1", "spark.task.resource.gpu.amount": "1"},
     "has no effect on local[2]"),
    ({"spark.dynamicAllocation.maxExecutors": "2", "spark.dynamicAllocation.initialExecutors": "4"}, "more than"),
    ({"spark.executor.cores": "8", "spark.cores.max": "4"}, "no executor would ever start"),
])
def test_what_would_be_refused_or_wait_in_vain_is_named_with_its_source(settings: dict[str, str], message: str):
    named = problems(merged([("a file", settings)]))
    assert message in named[0] and "(a file)" in named[0]
    ended = _vispark("config", "check", *[word for each in settings.items() for word in ("--conf", "=".join(each))])
    assert ended.exit_code == NO and message in ended.output


def test_a_file_of_settings_that_is_not_there_is_named(tmp_path: Path):
    ended = _vispark("config", "show", "--properties-file", str(tmp_path / "none.conf"))
    assert ended.exit_code == USAGE and "none.conf cannot be read" in ended.output
