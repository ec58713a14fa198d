"""How a profile adds up, and what its trace looks like."""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
import pytest

import vispark
from gpu_worker.protocol.messages import Times
from vispark import PlanError, TranslationError, profiling
from vispark.profiling import KINDS, job_parts, parts_of, profile

TIMES = Times(1.0, 0.125, copy_in=0.25, kernels=0.5, exchange=0.0, copy_out=0.0625)


def test_an_answer_is_what_the_worker_says_and_the_way_there():
    assert parts_of(TIMES, 2.0) == {"host-to-device": 0.25, "compile": 0.125, "kernel": 0.5, "exchange": 0.0,
                                    "transport": 1.125}
    # Where others were waited for meanwhile, only the rest of it was seen.
    assert parts_of(TIMES, 0.4375) == {"host-to-device": 0.125, "compile": 0.0625, "kernel": 0.25, "exchange": 0.0}


def test_tasks_side_by_side_share_a_jobs_time():
    tasks = [{"parse": 1.0, "transport": 0.5}, {"parse": 0.5}, {"parse": 1.0, "kernel": 1.0}]
    found = job_parts(3.0, tasks, 2)
    assert found["scheduling"] == 1.0 and sum(found.values()) == pytest.approx(3.0)
    assert found["parse"] == pytest.approx(2.5 * 2.0 / 4.0)
    assert job_parts(1.0, [], 2) == {"scheduling": 1.0}


def trace(path: Path, names: list[str]) -> list[dict]:
    """The spans of a trace, which must be what the Trace Event Format says a JSON object of it is."""
    document = json.loads(path.read_text(), parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert document["displayTimeUnit"] in ("ms", "ns")
    named = [event for event in document["traceEvents"] if event["ph"] == "M"]
    spans = [event for event in document["traceEvents"] if event["ph"] == "X"]
    assert len(named) + len(spans) == len(document["traceEvents"])
    assert [event["name"] for event in named] == ["process_name"] + ["thread_name"] * (len(names) - 1)
    assert [event["args"]["name"] for event in named] == names
    for span in spans:
        assert span.keys() == {"ph", "name", "cat", "pid", "tid", "ts", "dur"}
        assert all(isinstance(span[key], int) for key in ("pid", "tid"))
        assert all(isinstance(span[key], float) and span[key] >= 0 for key in ("ts", "dur"))
    # Slices of a track lie side by side or within each other, or Perfetto drops them.
    for tid in {span["tid"] for span in spans}:
        ends: list[float] = []
        for span in sorted((each for each in spans if each["tid"] == tid), key=lambda each: (each["ts"], -each["dur"])):
            ends = [end for end in ends if end > span["ts"] + 1e-3]
            assert not ends or span["ts"] + span["dur"] <= min(ends) + 1e-3
            ends.append(span["ts"] + span["dur"])
    return spans


def test_kinds_add_up_to_the_whole(tmp_path: Path):
    with profile(tmp_path / "trace.json") as found:
        assert profiling.current() is found
        found.add("first", {"kernel": 1e-4, "transport": 0.0}, found.started, "one")
        found.add("second", {"parse": 2e-4, "kernel": 1e-4}, found.started, "two")
        with pytest.raises(PlanError, match="already"), profile():
            pass
    assert profiling.current() is None
    assert list(found.seconds) == list(KINDS)
    assert found.seconds["kernel"] == pytest.approx(2e-4) and found.seconds["exchange"] == 0.0
    assert sum(found.seconds.values()) == pytest.approx(max(found.total, 4e-4))
    spans = trace(tmp_path / "trace.json", ["vispark", "one", "two"])
    assert [(span["name"], span["tid"]) for span in spans] == [
        ("first: kernel", 1), ("second: parse", 2), ("second: kernel", 2)]
    assert spans[2]["ts"] == pytest.approx(200.0) and spans[2]["dur"] == pytest.approx(100.0)


def test_what_is_within_counts_once(tmp_path: Path):
    with profile(tmp_path / "trace.json") as found:
        with found.around("outer", "scheduling", "one"), found.around("inner", "scheduling", "one"):
            began = time.monotonic()
            time.sleep(0.02)
            found.add("load", {"parse": time.monotonic() - began}, began, "one")
        with pytest.raises(PlanError), found.around("failed", "scheduling", "one"):
            raise PlanError("no")
    assert found.seconds["parse"] >= 0.02
    assert sum(found.seconds.values()) == pytest.approx(found.total)
    assert {span["name"] for span in trace(tmp_path / "trace.json", ["vispark", "one"])} == {
        "load: parse", "inner: scheduling", "outer: scheduling"}


def test_a_trace_that_cannot_be_written_is_an_error_at_once(tmp_path: Path):
    done = []
    with pytest.raises(FileNotFoundError), profile(tmp_path / "none" / "trace.json"):
        done.append("the program")
    assert not done and profiling.current() is None


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
