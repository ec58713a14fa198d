"""Sums of a profile, and its trace."""

from __future__ import annotations

import json
import re
import shutil
import time
from pathlib import Path

import numpy as np
import pytest

import vispark
from gpu_worker.protocol.messages import Times
from vispark import PlanError, TranslationError
from vispark.errors import OptionError
from vispark.runtime.profiling import profiler as profiling
from vispark.runtime.profiling.attribution import shares
from vispark.runtime.profiling.journal import Journal
from vispark.runtime.profiling.profiler import KINDS, Profile, parts_of, profile
from vispark.runtime.profiling.spark_jobs import Job, SparkStage, Task, parts_of_task

TIMES = Times(1.0, 0.125, copy_in=0.25, kernels=0.5, exchange=0.0, copy_out=0.0625, scheduling=0.0625)


def test_an_answer_is_what_the_worker_says_and_the_way_there():
    assert parts_of(TIMES, 2.0) == {"host-to-device": 0.25, "compile": 0.125, "kernel": 0.5, "exchange": 0.0,
                                    "scheduling": 0.0625, "transport": 1.0625}
    # Where others were waited for meanwhile, only the rest of it was seen.
    assert parts_of(TIMES, 0.46875) == {"host-to-device": 0.125, "compile": 0.0625, "kernel": 0.25, "exchange": 0.0,
                                        "scheduling": 0.03125}


def test_a_moment_is_shared_by_what_goes_on_then():
    levels = [[(1.0, 2.0), (1.0, 3.0)], [(-2.0, 3.0), (2.0, 5.0), (2.0, 2.0), (4.0, 6.0), (4.0, 5.0)],
              [(5.0, 8.0), (0.0, 9.0), (7.0, 7.0)]]
    parts, left = shares(levels, 10.0)
    assert sum(map(sum, parts)) + left == pytest.approx(10.0)
    expected = [[0.0] * len(each) for each in levels]
    for moment in np.arange(0.5, 10):
        here = [[start < moment < end for start, end in level] for level in levels]
        first = next((number for number, level in enumerate(here) if any(level)), None)
        for index, active in enumerate(here[first] if first is not None else ()):
            expected[first][index] += active / sum(here[first])
    for one, other in zip(parts, expected, strict=True):
        assert one == pytest.approx(other)
    assert left == 1.0


def task(start: float, seconds: float, **metrics: float) -> Task:
    return Task("t", start, start + seconds, parts_of_task(
        {"duration": 1e3 * seconds, "schedulerDelay": 1e3 * metrics.pop("delay", 0), "taskMetrics": metrics}))


def test_what_a_task_did_adds_up_to_its_duration():
    metrics = {"executorDeserializeTime": 20, "executorRunTime": 100, "executorCpuTime": 90_000_000, "jvmGcTime": 30,
               "resultSerializationTime": 5, "shuffleReadMetrics": {"fetchWaitTime": 10},
               "shuffleWriteMetrics": {"writeTime": 5_000_000}}
    task = {"schedulerDelay": 15, "gettingResultTime": 60, "duration": 200, "taskMetrics": metrics}
    assert parts_of_task(task) == pytest.approx({
        "scheduling": 0.015, "serialisation": 0.025, "transport": 0.06, "shuffle": 0.015, "gc": 0.03, "jvm": 0.055})
    parts = parts_of_task(task, {"parse": 0.06, "transport": 0.02})
    assert parts == pytest.approx({"scheduling": 0.015, "serialisation": 0.025, "transport": 0.08, "parse": 0.06,
                                   "shuffle": 0.015, "gc": 0.005})
    # More than the task ran, by another clock.
    assert parts_of_task(task, {"parse": 0.3, "kernel": 0.1}) == pytest.approx({
        "scheduling": 0.015, "serialisation": 0.025, "transport": 0.06, "parse": 0.075, "kernel": 0.025})
    assert parts_of_task({"duration": 7}) == {"python": 0.007}      # one that runs still, or was killed


def test_jobs_of_spark_are_broken_down(tmp_path: Path):
    profiled = Profile(total=10.0, epoch=1000.0)
    profiled.add("plan", {"kernel": 1.0}, profiled.started + 1, "worker")
    tasks = (task(1000, 4, executorRunTime=4000, executorCpuTime=1e9),
             task(1001, 2, executorRunTime=1500, jvmGcTime=1500, delay=0.5))
    profiled.jobs.append(Job(0, "sum", 999.5, 1005, (SparkStage(0, "map", 1000, 1004, tasks),)))
    profiled.jobs.append(Job(1, "count", 1004.5, float("inf"), (SparkStage(1, "map", 1009, 1011, (task(1009, 2),)),)))
    # The first task has its first second, and half of the one after the plan, whose own is the second.
    assert profiled.seconds == pytest.approx(dict.fromkeys(KINDS, 0.0) | {
        "kernel": 1.0, "jvm": 2.5 / 4, "python": 3 * 2.5 / 4 + 1.0, "gc": 0.5 * 0.75, "scheduling": 0.5 * 0.25 + 5.0})
    profiled.save(tmp_path / "trace.json")
    spans = trace(tmp_path / "trace.json", ["vispark", "worker", "Spark jobs", "Spark jobs 2", "Spark stages",
                                            "Spark tasks", "Spark tasks 2"])
    assert {span["name"] for span in spans} >= {"plan: kernel", "job 0: sum", "stage 0: map", "t", "python", "gc"}
    stage = next(span for span in spans if span["name"] == "stage 0: map")
    assert stage["args"] == pytest.approx({"jvm": 1.0, "python": 3.0, "gc": 1.5, "scheduling": 0.5})


def trace(path: Path, names: list[str] | None) -> list[dict]:
    """Return the spans of a trace with their tracks, which must be what the Trace Event Format says a JSON object of it
    is.
    """
    document = json.loads(path.read_text(), parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert document["displayTimeUnit"] in ("ms", "ns")
    named = [event for event in document["traceEvents"] if event["ph"] == "M"]
    spans = [event for event in document["traceEvents"] if event["ph"] == "X"]
    assert len(named) + len(spans) == len(document["traceEvents"])
    assert [event["name"] for event in named] == ["process_name"] + ["thread_name"] * (len(named) - 1)
    assert names is None or [event["args"]["name"] for event in named] == names
    tracks = {event["tid"]: event["args"]["name"] for event in named[1:]}
    for span in spans:
        assert span.keys() - {"args"} == {"ph", "name", "cat", "pid", "tid", "ts", "dur"}
        assert all(isinstance(span[key], int) for key in ("pid", "tid"))
        assert all(isinstance(span[key], float) and span[key] >= 0 for key in ("ts", "dur"))
    # Slices of a track lie side by side or within each other, or Perfetto drops them.
    for tid in {span["tid"] for span in spans}:
        ends: list[float] = []
        for span in sorted((each for each in spans if each["tid"] == tid), key=lambda each: (each["ts"], -each["dur"])):
            ends = [end for end in ends if end > span["ts"] + 1e-3]
            assert not ends or span["ts"] + span["dur"] <= min(ends) + 1e-3
            ends.append(span["ts"] + span["dur"])
    return [span | {"track": tracks[span["tid"]]} for span in spans]


def test_kinds_add_up_to_the_whole(tmp_path: Path):
    with profile(tmp_path / "trace.json") as profiled:
        assert profiling.current() is profiled
        began = time.monotonic()
        time.sleep(0.02)
        profiled.add("first", {"kernel": 5e-3, "transport": 0.0}, began, "one")
        profiled.add("second", {"parse": 1e-2, "kernel": 5e-3}, began + 5e-3, "two")
        with pytest.raises(PlanError, match="already"), profile():
            pass
    assert profiling.current() is None
    assert list(profiled.seconds) == list(KINDS)
    assert profiled.seconds["kernel"] == pytest.approx(1e-2) and profiled.seconds["exchange"] == 0.0
    assert sum(profiled.seconds.values()) == pytest.approx(profiled.total)
    spans = trace(tmp_path / "trace.json", ["vispark", "one", "two"])
    assert [(span["name"], span["tid"]) for span in spans] == [
        ("first: kernel", 1), ("second: parse", 2), ("second: kernel", 2)]
    assert spans[2]["ts"] == pytest.approx(spans[0]["ts"] + 15e3) and spans[2]["dur"] == pytest.approx(5e3)


def test_answers_that_overlap_are_on_tracks_beside_each_other(tmp_path: Path):
    """Keep what each answer was spent on together, as several threads wait for one worker."""
    profiled = Profile(total=10.0)
    for start in (2.0, 1.0, 4.0, 2.5):
        profiled.add(f"from {start}", {"kernel": 1.0, "transport": 1.0}, profiled.started + start, "worker")
    profiled.save(tmp_path / "trace.json")
    spans = trace(tmp_path / "trace.json", ["vispark", "worker", "worker 2", "worker 3"])
    assert [(span["name"], span["track"]) for span in spans] == [
        (f"from {start}: {kind}", track)
        for start, track in ((1.0, "worker"), (2.0, "worker 2"), (2.5, "worker 3"), (4.0, "worker"))
        for kind in ("kernel", "transport")]


def test_a_trace_that_cannot_be_written_is_an_error_at_once(tmp_path: Path):
    done = []
    (tmp_path / "file").touch()
    for path, why in ((tmp_path / "none" / "trace.json", f"there is no directory {tmp_path / 'none'}; make it first"),
                      (tmp_path, "it is a directory; name a file in it"),
                      (tmp_path / "file" / "x" / "trace.json", f"{tmp_path / 'file'} is a file and no directory"),
                      (Path("/proc/trace.json"), "No such file or directory")):
        with pytest.raises(PlanError, match=re.escape(f"the trace {path} cannot be written: {why}")), profile(path):
            done.append("the program")
    assert not done and profiling.current() is None


def test_a_trace_that_is_there_stays_until_the_end(tmp_path: Path):
    path = tmp_path / "trace.json"
    with profile(path):
        assert not path.exists()
    path.write_text("kept")
    with profile(path):
        assert path.read_text() == "kept"
    assert "traceEvents" in path.read_text()


def test_a_trace_that_cannot_be_written_at_the_end_hides_no_error(tmp_path: Path):
    place = tmp_path / "trace"

    def taken(error: Exception | None) -> None:
        place.mkdir()
        with profile(place / "trace.json"):
            shutil.rmtree(place)
            if error is not None:
                raise error

    with pytest.raises(KeyError, match="mine") as failed:
        taken(KeyError("mine"))
    note, = failed.value.__notes__
    assert "cannot be written" in note and str(place) in note
    with pytest.raises(FileNotFoundError):
        taken(None)
    assert profiling.current() is None


def test_a_trace_is_written_where_its_path_was_when_the_profile_began(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    with profile("trace.json"):
        monkeypatch.chdir("elsewhere")
    assert trace(tmp_path / "trace.json", ["vispark"]) == [] and not list(Path().iterdir())


def scaled(p, w):
    return p * w


@vispark.stencil
def between(u, k):
    return k * (u[-1] + u[1])


@vispark.stencil
def around(u, k):
    return u[0, 0] + k * (u[-1, 0] + u[0, 1])


def test_the_source_without_spark():
    source = vispark.translate(scaled, np.ones(4, "f4"), schema=((4,), "float32"))
    assert 'extern "C" __global__' in source and "scaled" in source
    assert vispark.translate(lambda x, y: {"z": x + y}, schema={"x": ((), "f4"), "y": ((), "f8")}).count("double") > 0
    assert "__global__" in vispark.translate(scaled, 2.0, schema=((100, 4), "float32"))
    for shape in ((64,), (8, 8)):
        assert "vp_region" in vispark.translate(between if len(shape) == 1 else around, 0.5, schema=(shape, "float32"))
    with pytest.raises(PlanError, match="block, which has 1 to 3 axes"):
        vispark.translate(between, 0.5, schema=((), "float32"))
    with pytest.raises(TranslationError):
        vispark.translate(scaled, np.ones(5, "f4"), schema=((4,), "float32"))
    with pytest.raises(PlanError, match=r'schema= .* of a number it is \(\(\), "float32"\)'):
        vispark.translate(scaled, 2.0, schema="float32")


def test_a_journal_that_cannot_be_written_ends_and_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    with pytest.raises(OptionError, match=r"journal=.*No such file or directory; it is a file in a directory"):
        Journal(str(tmp_path / "nowhere" / "plans"))
    journal = Journal("/dev/full")
    for _ in range(2):
        journal.answered(b"\1", ["vmap f"], "mine.py:3: x", TIMES, time.monotonic(), 2, 16)
    assert caplog.text.count("the journal /dev/full ends here") == 1
    journal.close()
