"""``vispark calibrate``: refused on a busy machine; what it writes is what predictions read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from gpu_worker.protocol.errors import OutOfMemory
from vispark.migrate.cli import main
from vispark.migrate.commands import calibrate_command
from vispark.migrate.errors import UNKNOWN, PredictionError
from vispark.migrate.predict import calibration
from vispark.migrate.predict.calibration import (
    least_seconds,
    measure,
    most_elements,
    refuse_busy,
    seconds_above,
    written,
)
from vispark.migrate.predict.physics import KernelWork, PassWork, predict_pass, read_devices


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
    device = read_devices(calibration=tmp_path / "c.json")["mine"]
    answer = predict_pass(PassWork([KernelWork(1e9)]), device)
    assert device.calibrated and answer.low <= 1.001 <= answer.high


def test_the_first_run_is_left_out():
    times = iter([0.0, 0.5, 0.5, 0.9, 1.0, 1.3])
    runs = []
    assert least_seconds(lambda: runs.append(1), 3, lambda: next(times))[0] == pytest.approx(0.3)
    assert len(runs) == 4


def test_short_runs_are_repeated_until_they_are_steady():
    seconds, spent = iter([0.003] * 20 + [0.0003] * 100), [0.0]

    def run() -> None:
        spent.append(spent[-1] + next(seconds))
    least, median = least_seconds(run, 5, lambda: spent[-1])
    assert (least, median) == (pytest.approx(0.0003), pytest.approx(0.0003))
    assert len(spent) == 1 + 1 + 64, "the first one is left out"


def test_long_runs_are_repeated_less_often():
    times = iter([0.0, 0.6, 0.6, 1.2])
    assert least_seconds(lambda: None, 7, lambda: next(times)) == (0.6, 0.6)


def test_kinds_of_operations_have_rates_of_their_own(tmp_path: Path):
    rates = {"plan": 1e-3, "memory": 1e18, "float64": 1e9, "float64 exp": 1e8, "float32": 2e9}
    written(tmp_path / "c.json", "mine", "mine", rates, 0.1)
    device = read_devices(calibration=tmp_path / "c.json")["mine"]
    assert (device.rate("float64 exp"), device.rate("float32 exp")) == (1e8, 2e9 / 16)
    assert (device.rate("float64 product"), device.rate("float16 exp")) == (1e9, None)
    answer = predict_pass(PassWork([KernelWork(1.0, {"float64 exp": 1e8})]), device)
    assert answer.low <= 1.001 <= answer.high


@pytest.mark.parametrize("whole", [0.9e-3, 1.0e-3, 1.9e-3])
def test_a_pass_that_an_empty_plan_hides_gives_no_rate(whole: float):
    with pytest.raises(PredictionError, match="more --elements"):
        seconds_above(1e-3, whole)


class FakeDevice:
    """Device whose empty plan takes 1 ms, its passes 0.1 ns a number on top; it has room for some numbers."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, most: int):
        self.seconds, self.most, self.held = 0.0, most, list[int]()
        monkeypatch.setattr(calibration, "_held", self._hold)
        monkeypatch.setattr(calibration, "_pass", self._pass)

    def _hold(self, sc: Any, elements: int, dtype: str, width: int = 0) -> FakeRows:
        if elements > self.most:
            raise OutOfMemory(f"no room for {elements}")
        self.held.append(elements)
        return FakeRows(self, elements)

    def _pass(self, held: FakeRows, function: Any, *arguments: Any) -> None:
        self.seconds += 1e-3 + held.elements * 1e-10

    def clock(self) -> float:
        """Return the seconds of all passes so far."""
        self.seconds += 1e-6
        return self.seconds


class FakeRows:
    """Numbers that a device holds, and a SparkContext's job, which takes no time."""

    def __init__(self, device: FakeDevice, elements: int):
        self.device, self.elements = device, elements

    def parallelize(self, records: Any, partitions: int) -> FakeRows:
        """Return an RDD."""
        return self

    def vmap(self, function: Any) -> FakeRows:
        """Return an RDD."""
        return self

    def reduceByKey(self, function: Any, numKeys: int) -> FakeRows:
        """Return an RDD of as many records as there are keys."""
        return FakeRows(self.device, numKeys)

    def count(self) -> int:
        """Run a job."""
        return self.elements

    def collect(self) -> None:
        """Run a pass."""
        self.device.seconds += 1e-3 + self.elements * 1e-7

    def uncache(self) -> None:
        """Free nothing."""


def test_as_many_numbers_are_held_as_tell_a_rate(monkeypatch: pytest.MonkeyPatch):
    device = FakeDevice(monkeypatch, 1 << 31)
    rates = measure(FakeRows(device, 1), 1 << 30, clock=device.clock)  # type: ignore[arg-type]
    assert rates["memory"] == pytest.approx(8e10, rel=0.01)
    assert rates["plan"] == pytest.approx(1e-3, rel=0.01) and rates["objects"] == pytest.approx(1e7, rel=0.01)
    assert sorted(set(device.held)) == [1000, 1 << 18, 1 << 20, 1 << 22, 1 << 26], (
        "0.4 ms tell nothing beside 1, 6.7 ms do")


def test_more_than_a_device_has_room_for_is_not_held(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(calibration, "TELLING", 1000.0)
    device = FakeDevice(monkeypatch, 1 << 27)
    rates = measure(FakeRows(device, 1), 1 << 30, clock=device.clock)  # type: ignore[arg-type]
    assert max(device.held) == 1 << 26 and rates["float32"] == pytest.approx(2e10 * calibration.OPERATIONS, rel=0.01)


def test_no_rate_is_made_up_where_the_room_is_too_little(monkeypatch: pytest.MonkeyPatch):
    device = FakeDevice(monkeypatch, 1 << 22)
    with pytest.raises(PredictionError, match="as many numbers as there is room for"):
        measure(FakeRows(device, 1), 1 << 30, clock=device.clock)  # type: ignore[arg-type]


def test_numbers_take_a_part_of_this_machines_memory():
    assert calibration.FEWEST <= most_elements() <= calibration.MOST
