"""``vispark record`` and what rests on it, each program in a process and with a Spark of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from vispark.migrate.capture.run_capture import RunCapture
from vispark.migrate.qualify.from_capture import qualify_capture

#: Two programs of Spark in one test, on a machine that may be busy.
pytestmark = pytest.mark.timeout(400)

PROGRAM = '''\
import sys
import numpy as np
from pyspark import SparkConf, SparkContext

sc = SparkContext(conf=SparkConf().setMaster("local[2]").set("spark.ui.enabled", "false"))
K = 3
# Äpfel und Birnen: columns count bytes of UTF-8.
data = sc.parallelize([np.array([i, i % 7, 1.0]) for i in range(200)], 2) \\
    .map(lambda p: p / 10) \\
    .cache()
centers = data.takeSample(False, K, 1)
for i in range(int(sys.argv[1])):
    sums = data.map(
        lambda p: (int(np.argmin([np.sum((p - c) ** 2) for c in centers])), (p, 1))
    ).reduceByKey(lambda a, b: (a[0] + b[0], a[1] + b[1]))
    for key, (total, count) in sums.collect():
        centers[key] = total / count
print("centers", np.array(centers).tolist())
sc.stop()
sys.exit(int(sys.argv[2]))
'''


def _vispark(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"VISPARK_RUNTIME_DIR": str(folder / "run"), "PYTHONWARNINGS": "ignore",
                                "VISPARK_HISTORY": str(folder / "history.db")}
    return subprocess.run([sys.executable, "-m", "vispark.migrate", *words], cwd=folder, env=environment,
                          capture_output=True, text=True, timeout=180)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a folder with the program and its recording of three passes, port and report by ``vispark run``."""
    folder = tmp_path_factory.mktemp("migrate")
    (folder / "job.py").write_text(PROGRAM, encoding="utf-8")
    ended = _vispark(folder, "run", "--json", "--no-noise", "--device", "host", "--out", ".", "job.py", "3", "0")
    assert ended.returncode == 0, ended.stderr
    (folder / "answer.json").write_text(ended.stdout, encoding="utf-8")
    assert "centers" in (folder / "record.log").read_text(encoding="utf-8")
    return folder


def test_a_recording_is_enough_to_predict_a_pass(recorded: Path):
    ended = _vispark(recorded, "qualify", "--no-history", "--json", "--on", "h200", "capture")
    assert ended.returncode == 0, ended.stderr
    prediction, = json.loads(ended.stdout)["predictions"]
    # 200 records of three numbers: what counts is the plan.
    assert 0 < prediction["pass"][0] < prediction["pass"][1]
    call = next(each for each in RunCapture.read(recorded / "capture").calls if each.method == "cache")
    assert (call.count, call.record_bytes) == (200, 24.0)


def test_a_run_probes_its_loop_and_lays_what_is_predicted_beside_what_was_measured(recorded: Path):
    answer = json.loads((recorded / "answer.json").read_text(encoding="utf-8"))
    prediction, = answer["qualification"]["predictions"]
    assert prediction["device"] == "here" and not prediction["calibrated"]
    assert 0 < prediction["pass"][0] < prediction["pass"][1]
    call = next(each for each in RunCapture.read(recorded / "capture").calls if each.method == "collect")
    assert set(call.probes) == {"host"}
    one, = answer["predicted"]
    assert one["line"] == 16 and one["measured"] > 0 and [one["low"], one["high"]] == prediction["pass"]
    shown = json.loads(_vispark(recorded, "report", "job", "--json", str(answer["job"])).stdout)
    assert {(each["line"], each["device"]) for each in shown["predictions"]} == {(16, "here")}


def test_a_run_ends_with_a_diff_a_verdict_and_a_report(recorded: Path):
    answer = json.loads((recorded / "answer.json").read_text(encoding="utf-8"))
    assert answer["ported"] == [12] and answer["verdict"] in ("equal", "within rounding") and answer["stopped"] == ""
    assert "+++ job.py" in answer["diff"] and "data.vmap(" in (recorded / "job_gpu.py").read_text(encoding="utf-8")
    report = (recorded / answer["report"]).read_text(encoding="utf-8")
    assert "data.vmap(" in report and answer["verdict"] in report
    shown = json.loads(_vispark(recorded, "report", "job", "--json", str(answer["job"])).stdout)
    cpu, gpu, *_ = shown["runs"]
    assert "kernel" in gpu["conf"]["profile"] and "kernel" not in cpu["conf"]["profile"]
    assert any(place.endswith("job_gpu.py:17") for place in gpu["conf"]["plans"])
    # Jobs are of the program's lines, also where the recorder runs them.
    assert {Path(place.partition(":")[0]).name for place in cpu["conf"]["lines"] if place} == {"job.py"}
    assert any(place.endswith("job.py:11") for place in cpu["conf"]["lines"])
    for run in (cpu, gpu):
        assert run["application"].startswith("local-") and "Spark jobs" in Path(run["log"]).read_text(encoding="utf-8")
    assert "Where the time went" in report
    assert list(answer["seconds"]) == ["record", "qualify", "port", "validate", "report"]


def test_a_recording_has_chains_places_types_keys_and_results(recorded: Path):
    capture = RunCapture.read(recorded / "capture")
    calls = {call.method: call for call in capture.calls}
    assert capture.failed == "" and capture.arguments == ["3", "0"]
    assert {call.method for call in capture.calls} == {"map", "cache", "takeSample", "reduceByKey", "collect"}
    assert (calls["map"].times, calls["collect"].times, calls["takeSample"].times) == (3, 3, 1)
    assert calls["cache"].records == "rows of 3 float64"
    assert len(capture.value(calls["cache"].sample)) == 200
    assert calls["map"].is_read and calls["reduceByKey"].is_read
    assert calls["reduceByKey"].keys == [0, 2] and calls["reduceByKey"].num_keys == ["K", "len(centers)"]
    first, *_ = capture.value(calls["collect"].results[0])
    assert isinstance(first, tuple) and isinstance(first[1][0].tolist(), list)


def test_a_recording_qualifies_with_types(recorded: Path):
    answer = qualify_capture(RunCapture.read(recorded / "capture"))
    loop, = answer.loops
    assert answer.qualifies and answer.evidence == "recording" and loop.passes == 3
    assert {each.verdict for each in loop.advice if each.line >= 13} == {"vmap", "fold", "as it is"}
    assert all(each.certain for each in loop.advice)
    ended = _vispark(recorded, "qualify", "--json", "capture")
    assert ended.returncode == 0 and json.loads(ended.stdout)["loops"][0]["line"] == 12


def test_a_port_is_run_and_compared_before_it_is_written(recorded: Path):
    ended = _vispark(recorded, "port", "--json", "--out", "ported.py", "--capture", "capture", "job.py")
    assert ended.returncode == 0, ended.stderr + ended.stdout
    document = json.loads(ended.stdout)
    assert document["ported"] == [12] and document["verdict"] in ("equal", "within rounding")
    text = (recorded / "ported.py").read_text(encoding="utf-8")
    assert 'cache("GPU")' in text and "data.vmap(" in text and "numKeys=len(centers)" in text
    assert (recorded / "job.py").read_text(encoding="utf-8") == PROGRAM
