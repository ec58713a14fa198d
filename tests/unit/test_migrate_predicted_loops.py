"""Loops of a recording on devices: their work is what was recorded, and what was not is not assumed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from vispark.migrate.capture.run_capture import CapturedCall, RunCapture, digest_of
from vispark.migrate.cli import main
from vispark.migrate.errors import USAGE, YES
from vispark.migrate.predict.loop_prediction import PredictionTarget, kernel_work
from vispark.migrate.predict.operation_count import operations_of
from vispark.migrate.predict.physics import DeviceRates, Interval
from vispark.migrate.qualify.from_capture import qualify_capture
from vispark.migrate.record.probed_chains import ProbedCall, chain_of
from vispark.migrate.source.program import SourceProgram
from vispark.migrate.source.row_functions import FunctionOfRow

PROGRAM = """\
data = sc.textFile(path).map(float).cache()
for _ in range(9):
    w -= data.map(lambda x: x * w).reduce(lambda a, b: a + b)
    data.glom().count()
"""
FAST = DeviceRates("fast", 1e12, {"float64": 1e12}, 1e12, 1e10, 1e-3, True)


def _capture(folder: Path, **cached: object) -> RunCapture:
    """Return a recording of four passes of 1.0 s, half a second of which is each action."""
    file = str(folder / "job.py")
    program = SourceProgram(file, PROGRAM)
    calls = {each.method: each for each in program.calls}
    numbers = {name: number for number, name in enumerate(calls)}
    before = {"map": "cache", "reduce": "map", "glom": "cache", "count": "glom"}
    captured = []
    for name, call in calls.items():
        ends = call.node.end_lineno or 0, call.node.end_col_offset or 0
        on = numbers.get(before.get(name, ""))
        one = CapturedCall(numbers[name], file, call.line, *ends, name, on,
                           4, is_read=name in ("map", "reduce"), reason="add" if name == "reduce" else "")
        if name in ("reduce", "count"):
            one.starts = [float(i) + (0.5 if name == "count" else 0.0) for i in range(4)]
            one.seconds = [0.5] * 4
        captured.append(one)
    for name, value in cached.items():
        setattr(captured[numbers["cache"]], name, value)
    captured[numbers["map"]].operations = {"float64": 1.0}
    return RunCapture(file, [], digest_of(PROGRAM), 10.0, sources={file: PROGRAM}, calls=captured)


def _target() -> PredictionTarget:
    return PredictionTarget({"fast": FAST}, 100, Interval(1.0, 1.0))


def test_a_pass_is_bytes_and_operations_and_the_job_that_stays(tmp_path: Path):
    answer = qualify_capture(_capture(tmp_path, count=10 ** 9, record_bytes=8.0), _target())
    prediction, = answer.extra["predictions"]
    # 8 GB at 1 TB/s and the plan, 0.8 to 1.5 times, and the count() of glom() that stays a job of half a second.
    low, high = prediction["pass"]
    assert low == pytest.approx(0.8 * (8e-3 + 1e-3) + 0.5) and high == pytest.approx(1.5 * (8e-3 + 1e-3) + 0.5)
    assert set(prediction["program"]) == {"4", "100"}
    lines = [line.strip() for line in answer.text().splitlines()]
    assert any(line.startswith("on fast (calibrated): a pass 507 .. 514 ms") for line in lines), lines
    assert any("it pays from pass" in line for line in lines)


def test_what_is_no_fold_writes_its_results_and_brings_them_to_the_driver():
    mapped = CapturedCall(0, "", 1, 1, 1, "map", operations={"float64": 3.0}, traffic=[24.0, 8.0, 8.0])
    work = kernel_work(1.0, 1000, mapped, [CapturedCall(1, "", 1, 1, 1, "collect"), mapped])
    assert (work.bytes, dict(work.operations), work.results) == (32_000.0, {"float64": 3000.0}, 8000.0)
    work = kernel_work(1.0, 1000, mapped, [CapturedCall(1, "", 1, 1, 1, "reduce"), mapped])
    assert (work.bytes, work.results) == (24_000.0, 0.0)


def test_a_probe_of_the_recording_is_used_for_the_device_that_it_ran_on(tmp_path: Path):
    capture = _capture(tmp_path, count=10 ** 6, record_bytes=8.0)
    next(call for call in capture.calls if call.method == "reduce").probes = {"cuda": [1e-3, 1e-7]}
    capture.write(tmp_path / "job.capture")
    target = PredictionTarget({"one": replace(FAST, runs="cuda"), "two": FAST}, 100, Interval(1.0, 1.0))
    one, two = qualify_capture(RunCapture.read(tmp_path / "job.capture"), target).extra["predictions"]
    assert one["pass"][0] == pytest.approx(0.8 * (1e-3 + 1e-1) + 0.5) and two["pass"][1] < one["pass"][0]


def test_an_action_counts_as_often_as_a_pass_has_it_and_the_number_of_held_records_is_known(tmp_path: Path):
    text = PROGRAM.replace("    data.glom().count()\n", "    n = data.count()\n")
    capture = _capture(tmp_path, count=10 ** 9, record_bytes=8.0)
    program = SourceProgram(capture.script, text)
    capture = replace(capture, digest=digest_of(text), sources={capture.script: text},
                      calls=[each for each in capture.calls if each.method != "glom"])
    count = next(call for call in program.calls if call.method == "count")
    for number, call in enumerate(capture.calls):
        call.number = number
        if call.method == "count":
            call.on, call.end_line, call.end_column = 2, count.node.end_lineno, count.node.end_col_offset
    prediction, = qualify_capture(capture, _target()).extra["predictions"]
    assert prediction["pass"][0] == pytest.approx(0.8 * (8e-3 + 1e-3))
    folded = next(call for call in capture.calls if call.method == "reduce")
    folded.starts, folded.seconds = [i / 2 + 0.6 for i in range(8)], [0.25] * 8
    prediction, = qualify_capture(capture, _target()).extra["predictions"]
    assert prediction["pass"][0] == pytest.approx(2 * 0.8 * (8e-3 + 1e-3))


def test_a_row_function_is_the_same_one_in_each_pass():
    seen = list[Any]()

    class SeenVRDD:
        def vmap(self, function: Any) -> SeenVRDD:
            seen.append(function)
            return self

        def vreduce(self, fold: Any) -> SeenVRDD:
            return self
    block = ProbedCall(CapturedCall(0, "", 1, 1, 1, "map"), (lambda m: m.sum(0),), {},
                       FunctionOfRow("lambda m: m", "lambda a, b: a + b", {}))
    operation = block.as_ported()
    for _ in range(2):
        operation(SeenVRDD())
    assert seen[0] is seen[1]


def _chain(*methods: str, **keys: list[int]) -> dict[int, ProbedCall]:
    """Return calls of methods, each on the one before it; the first one is cached."""
    return {number: ProbedCall(CapturedCall(number, "", 1, 1, 1, method, number - 1 if number else None, is_read=True,
                                            keys=keys.get(method)), (), {}) for number, method in enumerate(methods)}


@pytest.mark.parametrize(("methods", "wanted"), [
    (["cache", "map", "reduce"], ["map", "reduce"]), (["cache", "sample", "map", "sum"], ["sample", "map", "sum"]),
    (["cache", "map", "reduceByKey", "map", "collect"], ["map", "reduceByKey", "collect"]),
    (["cache", "collect"], []), (["cache", "map", "groupByKey", "collect"], [])])
def test_what_a_port_has_on_the_device_is_probed(methods: list[str], wanted: list[str]):
    chain, held = chain_of(len(methods) - 1, _chain(*methods), {0: [1.0]})
    assert [each.call.method for each in chain] == wanted and held == (0 if wanted else None)


def test_nothing_is_probed_without_a_sample_or_where_a_function_stays():
    assert chain_of(2, _chain("cache", "map", "sum"), {}) == ([], None)
    calls = _chain("cache", "map", "sum")
    calls[1].call.is_read = False
    assert chain_of(2, calls, {0: [1.0]}) == ([], None)
    calls[1] = replace(calls[1], row=FunctionOfRow("f_row", "", {}))
    assert chain_of(2, calls, {0: [1.0]})[1] == 0


def test_a_calibrated_rate_of_loading_is_part_of_the_program(tmp_path: Path):
    capture = _capture(tmp_path, count=10 ** 9, record_bytes=8.0)
    target = PredictionTarget({"fast": replace(FAST, load=1e9)}, 100, Interval(1.0, 1.0))
    slow, fast = (qualify_capture(capture, each).extra["predictions"][0] for each in (target, _target()))
    assert slow["program"]["100"][0] - fast["program"]["100"][0] == pytest.approx(8.0)


@pytest.mark.parametrize("cached", [{}, {"count": 10 ** 9}])
def test_without_the_size_of_what_is_cached_nothing_is_predicted(tmp_path: Path, cached: dict):
    prediction, = qualify_capture(_capture(tmp_path, **cached), _target()).extra["predictions"]
    assert prediction["pass"] is None and "the bytes of a kernel" in prediction["why"] and prediction["program"] == {}


def test_on_the_command_line(tmp_path: Path):
    _capture(tmp_path, count=1000, record_bytes=8.0).write(tmp_path / "job.capture")
    words = ["qualify", "--no-history", "--json", "--on", "h200,t4", str(tmp_path / "job.capture")]
    ended = CliRunner().invoke(main, words)
    assert ended.exit_code == YES, ended.output
    assert [each["device"] for each in json.loads(ended.output)["predictions"]] == ["h200", "t4"]
    assert CliRunner().invoke(main, [*words[:4], "none", words[-1]]).exit_code == USAGE
    (tmp_path / "job.py").write_text(PROGRAM)
    refused = CliRunner().invoke(main, [*words[:5], str(tmp_path / "job.py")])
    assert refused.exit_code == USAGE and "vispark record" in refused.output


def test_operations_are_counted():
    centres = [np.ones(16)] * 40
    def nearest(p):
        return min(range(40), key=lambda i: np.sum((p - centres[i]) ** 2))

    # 16 differences, squares and additions to each of 40 centres.
    assert operations_of([(nearest, "")], [np.zeros(16)])["float64"] == pytest.approx(40 * 48, rel=0.05)
    assert operations_of([(lambda p: p @ np.ones((4, 3), "f4"), "")], [np.ones(4, "f4")]) == {"float32 product": 24}
    assert operations_of([(lambda p: np.exp(p), "")], [np.ones(4, "f4")]) == {"float32 exp": 4}
    assert operations_of([(lambda p: p * 2, ""), (lambda p: p + p, "")], [np.zeros(4)]) == {"float64": 8}
    assert operations_of([(lambda v: v * 2, "value")], [(1, np.zeros(4))]) == {"float64": 4}
    assert operations_of([(lambda p: {}[p], "")], [np.zeros(4)]) == {}
