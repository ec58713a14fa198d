"""Event logs: forms, cuts, loops, and ``vispark qualify LOG --source DIR``."""

from __future__ import annotations

import gzip
import io
import itertools
import json
import pickle
import random
import re
import tracemalloc
from collections.abc import Callable, Iterable
from pathlib import Path

import pyspark
import pytest
import zstandard
from click.testing import CliRunner

from benchmarks import event_logs
from vispark.migrate.capture.event_log import Application, application_of, read_log
from vispark.migrate.cli import main
from vispark.migrate.errors import UNKNOWN, YES, EventLogError
from vispark.migrate.qualify.logged_loops import loops_of

LOGS = Path(__file__).parent / "event_logs"
EXAMPLES = Path(pyspark.__file__).parent / "examples/src/main/python"
VERSIONS = ("3.5", "4")


def _log(version: str) -> bytes:
    return (LOGS / f"kmeans-{version}.jsonl").read_bytes()


def _zstd(data: bytes) -> bytes:
    """Compress into several frames, as Spark does."""
    step = len(data) // 5 + 1
    return b"".join(zstandard.compress(data[at:at + step]) for at in range(0, len(data), step))


def _event(name: str, **fields: object) -> dict:
    return {"Event": f"SparkListener{name}"} | {key.replace("_", " "): value for key, value in fields.items()}


def _job(number: int, stages: Iterable[tuple[int, str]], tasks: int = 1, result: str = "JobSucceeded") -> list[dict]:
    """Return the events of a job; its last stage's place is the job's."""
    stages, at = list(stages), number * 1000
    infos = [{"Stage ID": stage, "Stage Name": name} for stage, name in stages]
    events = [_event("JobStart", Job_ID=number, Submission_Time=at, Stage_IDs=[stage for stage, _ in stages],
                     Stage_Infos=infos, Properties={"callSite.short": stages[-1][1]})]
    for stage, name in stages:
        info = {"Stage ID": stage, "Stage Name": name, "Submission Time": at, "Completion Time": at + 10}
        events.append(_event("StageSubmitted", Stage_Info=info))
        for task in range(tasks):
            events.append(_event("TaskEnd", Stage_ID=stage, Task_End_Reason={"Reason": "Success"}, Task_Info={
                "Index": task, "Launch Time": at, "Finish Time": at + 10, "Getting Result Time": 0}))
        events.append(_event("StageCompleted", Stage_Info=info))
    return [*events, _event("JobEnd", Job_ID=number, Completion_Time=at + 500, Job_Result={"Result": result})]


def _application(*jobs: list[dict]) -> Application:
    events = [_event("ApplicationStart", App_Name="a", App_ID="1", Timestamp=0), *itertools.chain(*jobs),
              _event("ApplicationEnd", Timestamp=10**6)]
    return application_of([json.dumps(each).encode() for each in events])


@pytest.mark.parametrize("version", VERSIONS)
def test_a_log_of_each_version(version: str, tmp_path: Path):
    path = tmp_path / "log"
    path.write_bytes(_log(version))
    application = read_log(str(path))
    assert application.version.startswith(version) and application.is_complete and application.problems == []
    assert (application.name, len(application.jobs)) == ("PythonKMeans", 4)
    for stage in application.stages.values():
        assert sum(stage.parts.values()) == pytest.approx(stage.seconds, abs=2e-3)
    *_, loop = loops_of(application)
    assert [(site.method, site.line) for site in loop.sites] == [("collect", 76), ("reduceByKey", 73)]
    assert (len(loop.passes), loop.jobs, loop.tasks) == (2, 1, (2, 2))


def test_all_forms_say_the_same(tmp_path: Path):
    data = _log("4")
    half = data.index(b"\n", len(data) // 2) + 1
    folder, compacted = tmp_path / "eventlog_v2_a", tmp_path / "eventlog_v2_b"
    for directory in (folder, compacted):
        directory.mkdir()
        (directory / "appstatus_a").touch()
        (directory / "events_10_a.zstd").write_bytes(_zstd(data[half:]))
    (folder / "events_9_a.zstd").write_bytes(_zstd(data[:half]))
    (compacted / "events_9_a.zstd.compact").write_bytes(_zstd(data[:half]))
    (compacted / "events_8_a.zstd").write_bytes(b"not read")
    for name, content in (("plain", data), ("log.gz", gzip.compress(data)), ("log.zstd", _zstd(data)),
                          ("log.zstd.inprogress", _zstd(data))):
        (tmp_path / name).write_bytes(content)
    applications = [read_log(str(tmp_path / name)) for name in (
        "plain", "log.gz", "log.zstd", "log.zstd.inprogress", "eventlog_v2_a", "eventlog_v2_b")]
    applications.append(read_log((tmp_path / "plain").as_uri()))
    assert all(each == applications[0] for each in applications)


def test_a_log_behind_a_url():
    fsspec = pytest.importorskip("fsspec")
    with fsspec.open("memory://migrate-log/kmeans.zstd", "wb") as file:
        file.write(_zstd(_log("3.5")))
    assert len(read_log("memory://migrate-log/kmeans.zstd").jobs) == 4
    with pytest.raises(EventLogError, match="cannot be read"):
        read_log("memory://migrate-log/nothing")
    with pytest.raises(EventLogError, match="cannot be read"):
        read_log("nosuchprotocol://x/y")


@pytest.mark.parametrize("form", ["plain", "gz", "zstd"])
@pytest.mark.parametrize("version", VERSIONS)
def test_a_log_cut_anywhere_is_read_as_far_as_it_goes(version: str, form: str, tmp_path: Path):
    whole = {"plain": lambda data: data, "gz": gzip.compress, "zstd": _zstd}[form](_log(version))
    path, before = tmp_path / "log", 0
    for length in range(0, len(whole) - 1, 1 + len(whole) // 40):
        path.write_bytes(whole[:length])
        try:
            application = read_log(str(path))
        except EventLogError:
            assert length < 1 + len(whole) // 3
            continue
        assert application.problems and len(application.jobs) >= before
        before = len(application.jobs)
        loops_of(application)
    assert before == 4


def test_damage_is_never_another_exception(tmp_path: Path):
    rng, path = random.Random(1), tmp_path / "log"
    for whole in (_log("4"), _zstd(_log("4")), gzip.compress(_log("4"))):
        for _ in range(30):
            data = bytearray(whole)
            for _ in range(rng.randrange(1, 20)):
                data[rng.randrange(len(data))] = rng.randrange(256)
            path.write_bytes(data)
            try:
                loops_of(read_log(str(path)))
            except EventLogError as error:
                assert str(path) in error.message


@pytest.mark.parametrize("line", [
    b"[]", b"null", b'{"Event":"SparkListenerJobStart"}', b'"SparkListenerJobEnd"', b"\xff\xfe" * 9,
    b'{"Event":"SparkListenerTaskEnd","Stage ID":{},"Task Info":[]}'])
def test_strange_lines_are_counted(line: bytes):
    known = json.dumps(_event("LogStart", Spark_Version="4")).encode()
    assert any("could not be read" in each for each in application_of([known, line]).problems)


@pytest.mark.parametrize(("name", "content", "wanted"), [
    ("log", b"", "no event log"), ("log", b"text\n", "no event log"), ("log", bytes(5000), "no event log"),
    ("log.lz4", b"LZ4Block", "spark.eventLog.compression.codec=zstd"), ("log.gz", b"\x1f\x8b\x08", "no event log"),
    ("missing", None, "cannot be read"), ("folder/x", b"", "without events_")])
def test_what_is_no_log_says_so(tmp_path: Path, name: str, content: bytes | None, wanted: str):
    path = tmp_path / name
    if content is not None:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
    ended = CliRunner().invoke(main, ["qualify", str(path.parent if "/" in name else path)])
    assert ended.exit_code == UNKNOWN and wanted in ended.output and ended.output.count("\n") == 1


# -- loops ------------------------------------------------------------------------------------------------------------

def test_a_pass_of_several_jobs():
    sites = ["collect at /a.py:90", "collect at /a.py:98"]
    loop, = loops_of(_application(*[_job(number, [(number, sites[number % 2])]) for number in range(8)]))
    assert (len(loop.passes), loop.jobs) == (4, 2)
    assert loop.passes == (2.0, 2.0, 2.0, 1.5)


def test_a_lazy_loop_is_one_job_whose_stages_come_again():
    stages = [(number, ["join at /a.py:78", "reduceByKey at /a.py:83"][number % 2]) for number in range(6)]
    loop, = loops_of(_application(_job(0, [*stages, (6, "collect at /a.py:86")])))
    assert (len(loop.passes), loop.jobs) == (3, 0)
    assert {site.line for site in loop.sites} == {78, 83}


def test_jobs_without_a_place_of_the_user_make_no_loop():
    assert loops_of(_application(*[_job(each, [(each, "runJob at PythonRDD.scala:1")]) for each in range(4)])) == []


def test_failed_jobs_and_second_attempts_do_not_count():
    job = _job(1, [(1, "sum at /a.py:3")], tasks=2)
    second = dict(job[2])
    failed = dict(job[2], **{"Task End Reason": {"Reason": "ExceptionFailure"}})
    application = _application(_job(0, [(0, "sum at /a.py:3")], result="JobFailed"),
                               [*job[:4], second, failed, *job[4:]])
    assert application.stages[1].tasks == 2 and application.stages[1].retried == 2
    assert any("1 of 2 jobs failed" in each for each in application.problems)


def _tasks(stages: int, tasks: int) -> Iterable[bytes]:
    """Yield the lines of one job with distinct tasks, made one by one."""
    start, *_ = _job(0, [(number, f"sum at /a.py:{number}") for number in range(stages)], tasks=0)
    yield json.dumps(start).encode()
    for stage in range(stages):
        info = {"Stage ID": stage, "Stage Name": f"sum at /a.py:{stage}", "Submission Time": 0}
        yield json.dumps(_event("StageSubmitted", Stage_Info=info)).encode()
        for task in range(tasks):
            number = stage * tasks + task
            values = stage, number, task, number, 2 * number + 1, number
            yield (b'{"Event": "SparkListenerTaskEnd", "Stage ID": %d, "Task End Reason": {"Reason": "Success"}, '
                   b'"Task Info": {"Task ID": %d, "Index": %d, "Launch Time": %d, "Finish Time": %d, '
                   b'"Host": "host-%d", "Getting Result Time": 0}}' % values)
        yield json.dumps(_event("StageCompleted", Stage_Info=info)).encode()


def test_many_tasks_cost_no_memory():
    application = application_of(_tasks(stages=20, tasks=5000))
    assert sum(stage.tasks for stage in application.stages.values()) == 100_000
    assert not any(stage.done for stage in application.stages.values()) and len(pickle.dumps(application)) < 100_000


# -- the command ------------------------------------------------------------------------------------------------------

def test_with_the_source_every_operation_of_the_loop_is_there(tmp_path: Path):
    ended = CliRunner().invoke(main, ["qualify", str(LOGS / "kmeans-4.jsonl"), "--source", str(EXAMPLES), "--json"])
    assert ended.exit_code == YES, ended.output
    document = json.loads(ended.stdout)
    loop, = document["loops"]
    assert document["evidence"] == "log and source" and document["application"]["tasks"] == 6
    assert (loop["line"], loop["passes"], loop["jobs"], loop["tasks"]) == (70, 2, 1, 2)
    assert {(each["line"], each["verdict"]) for each in loop["advice"]} >= {(71, "vmap"), (73, "fold"), (75, "driver")}


def test_without_the_source_nothing_is_known_of_the_operations():
    ended = CliRunner().invoke(main, ["qualify", str(LOGS / "kmeans-3.5.jsonl")])
    assert ended.exit_code == UNKNOWN and "--source DIR" in ended.output


@pytest.mark.parametrize(("change", "message"), [
    (lambda log: re.sub(rb".*(Stage|JobEnd).*\n", b"", log), "the log has no job"),
    (lambda log: log.replace(b"JobSucceeded", b"JobFailed"), "4 of 4 jobs failed")])
def test_of_a_run_without_a_job_that_ended_nothing_is_known(change: Callable[[bytes], bytes], message: str,
                                                            tmp_path: Path):
    (tmp_path / "log").write_bytes(change(_log("4")))
    ended = CliRunner().invoke(main, ["qualify", str(tmp_path / "log"), "--source", str(EXAMPLES)])
    assert ended.exit_code == UNKNOWN and message in ended.output and "gains nothing" not in ended.output


def test_passes_that_double_are_warned_of(tmp_path: Path):
    script = tmp_path / "heat.py"
    script.write_text("u = sc.parallelize(x).cache()\nfor i in range(4):\n    u = u.join(v)\n    u.count()\n")
    jobs = [_job(each, [(each, f"count at /elsewhere/{script.name}:4")], tasks=2 ** each) for each in range(4)]
    events = [_event("ApplicationStart", App_Name="a", Timestamp=0), *[each for job in jobs for each in job],
              _event("ApplicationEnd", Timestamp=9000)]
    log = io.BytesIO()
    log.writelines(json.dumps(each).encode() + b"\n" for each in events)
    (tmp_path / "log").write_bytes(log.getvalue())
    ended = CliRunner().invoke(main, ["qualify", str(tmp_path / "log"), "--source", str(tmp_path)])
    assert "the tasks of a pass double (1, 2, 4, 8)" in ended.output
    assert "join without numPartitions" in ended.output


def test_memory_does_not_grow_with_the_bytes_of_a_log(tmp_path: Path):
    peaks = []
    for size in (2e6, 20e6):
        tasks = event_logs.write(tmp_path / "large", size)
        tracemalloc.start()
        application = read_log(str(tmp_path / "large"))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert sum(stage.tasks for stage in application.stages.values()) == tasks
    # A block that is read, and its lines; ten times the bytes are less than half a megabyte more.
    assert peaks[1] - peaks[0] < 5e5
