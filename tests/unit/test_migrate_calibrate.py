"""``vispark calibrate``: refused on a busy machine; what it writes is what predictions read."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from vispark.migrate import calibrate_command
from vispark.migrate.calibrate import least_seconds, refuse_busy, seconds_above, written
from vispark.migrate.cli import main
from vispark.migrate.errors import UNKNOWN, PredictionError
from vispark.migrate.predict import KernelWork, PassWork, predict_pass, read_devices


@pytest.mark.parametrize(("load", "cores"), [(1.1, 2), (7.0, 2), (64.0, 16)])
def test_a_busy_machine_is_refused(load: float, cores: int):
    with pytest.raises(PredictionError, match="is busy"):
        refuse_busy(load, cores)


def test_the_command_starts_nothing_on_a_busy_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(calibrate_command, "machine_load", lambda: (9.0, 2))
    monkeypatch.setattr(calibrate_command, "SparkContext", None)
    ended = CliRunner().invoke(main, ["calibrate", "--out", str(tmp_path / "c.json")])
    assert ended.exit_code == UNKNOWN and "9.0 processes on 2 cores" in ended.output
    assert not (tmp_path / "c.json").exists()


def test_a_calibration_is_read_by_predictions(tmp_path: Path):
    written(tmp_path / "c.json", "mine", "mine", {"plan": 1e-3, "memory": 1e9, "float64": 1e9, "job": 0.1}, 0.1)
    found = read_devices(calibration=tmp_path / "c.json")["mine"]
    answer = predict_pass(PassWork([KernelWork(1e9)]), found)
    assert found.calibrated and answer.low <= 1.001 <= answer.high


def test_the_first_run_is_left_out():
    runs = []
    least_seconds(lambda: runs.append(1), 3)
    assert len(runs) == 4


def test_long_runs_are_repeated_less_often():
    times = iter([0.0, 0.6, 0.6, 1.2])
    assert least_seconds(lambda: None, 7, lambda: next(times)) == (0.6, 0.6)


def test_kinds_of_operations_have_rates_of_their_own(tmp_path: Path):
    rates = {"plan": 1e-3, "memory": 1e18, "float64": 1e9, "float64 exp": 1e8, "float32": 2e9}
    written(tmp_path / "c.json", "mine", "mine", rates, 0.1)
    found = read_devices(calibration=tmp_path / "c.json")["mine"]
    assert (found.rate("float64 exp"), found.rate("float32 exp")) == (1e8, 2e9 / 16)
    assert (found.rate("float64 product"), found.rate("float16 exp")) == (1e9, None)
    answer = predict_pass(PassWork([KernelWork(1.0, {"float64 exp": 1e8})]), found)
    assert answer.low <= 1.001 <= answer.high


@pytest.mark.parametrize("whole", [0.9e-3, 1.0e-3, 1.9e-3])
def test_a_pass_that_an_empty_plan_hides_gives_no_rate(whole: float):
    with pytest.raises(PredictionError, match="more --elements"):
        seconds_above(1e-3, whole)
