"""Prediction: recorded passes of an H200 lie in its intervals, "not known" for what is missing, prices and shapes."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vispark.migrate.capture.clocks import CLOCK, driver_seconds
from vispark.migrate.cli import main
from vispark.migrate.errors import UNKNOWN, USAGE, YES, PredictionError
from vispark.migrate.predict.cluster_shapes import least_gpus, matrix, shapes
from vispark.migrate.predict.physics import (
    DeviceRates,
    Interval,
    KernelWork,
    PassWork,
    ProbedRate,
    ProgramTimes,
    UnknownTime,
    predict_pass,
    read_devices,
)
from vispark.migrate.predict.prices import SHIPPED, PriceList, read_prices
from vispark.migrate.predict.probe import NEXT, probe

H200 = DeviceRates("H200", 4.2e12, {"float64": 34e12, "float32": 67e12}, 141e9, 54e9, 0.148e-3, True)
#: Measured over bytes / 4.2 TB/s + 0.148 ms of recorded passes, with how often each reads its data.
RECORDED = [(1.00, 1), (1.02, 1), (1.10, 1), (1.13, 1), (1.22, 1), (1.18, 1), (1.18, 1), (1.26, 1), (1.32, 1),
            (1.40, 1), (1.46, 1), (2.13, 2), (1.59, 2), (1.94, 2), (0.82, 1)]
_SECONDS = st.floats(1e-6, 1e3)


def test_recorded_passes_of_an_h200_lie_in_their_intervals():
    bytes_ = 4.2e9
    inside = 0
    for ratio, readings in RECORDED:
        predicted = predict_pass(PassWork([KernelWork(bytes_, {}, readings)]), H200)
        inside += predicted.low <= ratio * (bytes_ / 4.2e12 + 0.148e-3) <= predicted.high
    assert inside >= 0.8 * len(RECORDED)


@pytest.mark.parametrize(("work", "device", "why"), [
    (PassWork([KernelWork(None)]), H200, "bytes"),
    (PassWork([KernelWork(1.0)]), DeviceRates("x", plan=1.0), "bandwidth"),
    (PassWork([KernelWork(1.0)]), DeviceRates("x", 1.0), "latency"),
    (PassWork([KernelWork(1.0, {"float16": 1.0})]), H200, "rate of float16"),
    (PassWork([KernelWork(1.0, results=8.0)]), DeviceRates("x", 1.0, plan=1.0), "link"),
    (PassWork([], jobs=1), H200, "Spark job")])
def test_what_is_missing_is_said_and_nothing_is_assumed(work, device, why):
    answer = predict_pass(work, device)
    assert isinstance(answer, UnknownTime) and why in answer.why


def test_operations_count_where_a_card_has_little_float64():
    kernel = {"float64": 15 * 1e9}
    slow, fast = (predict_pass(PassWork([KernelWork(1e9, kernel)]), read_devices()[name]) for name in ("t4", "h200"))
    only_bytes = predict_pass(PassWork([KernelWork(1e9)]), read_devices()["t4"])
    assert slow.low > 5 * only_bytes.low and fast.low < only_bytes.low


def test_a_probe_goes_before_operations_on_its_device_and_not_before_bytes():
    device = DeviceRates("x", 1e9, {"float64": 1e9}, link=1e9, plan=1e-3, calibrated=True, runs="host")
    kernel = KernelWork(1e6, {"float64": 1e9}, results=1e9, records=1e5, probes={"host": ProbedRate(2e-3, 1e-7)})
    middle = 0.8 * 1.5
    for work, seconds in [(kernel, 2e-3 + 1e-2), (replace(kernel, bytes=1e9), 2e-3 + 1.0),
                          (replace(kernel, probes={"host": ProbedRate(2e-3, None)}), 2.002),
                          (kernel.part(2), 2e-3 + 5e-3), (replace(kernel, probes={"cuda": ProbedRate(0, 0)}), 2.001)]:
        predicted = predict_pass(PassWork([work]), device)
        assert (predicted.low * predicted.high / middle) ** 0.5 == pytest.approx(seconds)


def test_sums_by_key_have_a_plan_of_their_own_and_objects_take_the_driver():
    device = DeviceRates("x", 1e9, {"float64": 1e9}, link=1e9, plan=1e-3, calibrated=True, plan_by_key=3e-3,
                         objects=1e7)
    for work, seconds in [(KernelWork(0.0, is_by_key=True), 3e-3), (KernelWork(0.0), 1e-3),
                          (KernelWork(0.0, results=8e6, collected=1e6), 1e-3 + 8e-3 + 0.1)]:
        predicted = predict_pass(PassWork([work]), device)
        assert (predicted.low * predicted.high / 1.2) ** 0.5 == pytest.approx(seconds)
    older = predict_pass(PassWork([KernelWork(0.0, is_by_key=True)]), replace(device, plan_by_key=None))
    assert (older.low * older.high / 1.2) ** 0.5 == pytest.approx(1e-3), "a calibration without it has the plan's"


@pytest.mark.parametrize(("clock", "counts"), [("", True), ("processor", False)])
def test_waits_of_the_programs_own_code_count_by_the_wall(monkeypatch: pytest.MonkeyPatch, clock: str, counts: bool):
    monkeypatch.setenv(CLOCK, clock)
    began = driver_seconds()
    time.sleep(0.05)
    assert (driver_seconds() - began > 0.04) == counts


class _TimedContext:
    """Context whose actions take a latency and seconds a record, by its own clock; what it draws is its last number."""

    def __init__(self, latency: float, record: float):
        self.latency, self.record, self.now, self.drawn = latency, record, 0.0, 0

    def parallelize(self, counts: list[int], _: int) -> _TimedContext:
        self.drawn, = counts
        return self

    def mapPartitions(self, _: Any) -> _TimedContext:
        return self

    def cache(self, _: str) -> _TimedContext:
        return self

    def count(self) -> int:
        return self.drawn

    def uncache(self) -> None:
        pass

    def act(self) -> None:
        self.now += self.latency + self.record * self.drawn


@pytest.mark.parametrize(("latency", "record", "limit", "plan", "per_record"), [
    (0.0, 0.1, 60.0, 0.0, 0.1), (1e-3, NEXT / 16, 60.0, 0.0, NEXT / 16), (1e-3, 1e-3, 60.0, 1e-3, 1e-3),
    (1e-3, 1e-6, 60.0, 1e-3, 1e-6), (1e-3, 1e-10, 60.0, 1e-3, None), (1e-3, 1e-6, -1.0, None, None)],
    ids=["slow", "at-the-bound", "quick", "quicker", "hidden", "late"])
def test_a_probe_tells_the_plan_from_the_records(latency, record, limit, plan, per_record):
    context: Any = _TimedContext(latency, record)
    rate = probe(context, [float(number) for number in range(16)], _TimedContext.act, lambda: context.now,
                 most=10 ** 8, limit=limit)
    if plan is None:
        assert rate is None
    else:
        assert rate is not None and rate.plan == pytest.approx(plan, rel=0.01, abs=1e-9)
        assert rate.record == (per_record and pytest.approx(per_record, rel=0.01))


def test_a_data_sheet_has_a_wider_interval_than_a_calibration():
    sheet = DeviceRates(**{**vars(H200), "calibrated": False})
    work = PassWork([KernelWork(1e9)])
    assert predict_pass(work, sheet).high > predict_pass(work, H200).high


@given(_SECONDS, _SECONDS, _SECONDS, st.integers(1, 10 ** 6))
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_from_the_sure_pass_on_the_port_is_faster(cpu, gpu, load, passes):
    times = ProgramTimes(Interval(cpu, cpu * 1.1), Interval(1.0, 1.0), Interval(gpu, gpu * 1.5), Interval(load, load))
    best, surely = times.break_even()
    if surely is not None:
        assert best is not None and best <= surely
        assert times.gpu(surely).high <= times.cpu(surely).low * (1 + 1e-9)
    else:
        assert times.gpu(passes).high > times.cpu(passes).low * (1 - 1e-9)


def test_memory_of_a_shape_is_that_of_two_versions():
    assert least_gpus(50e9, H200) == 1 and least_gpus(60e9, H200) == 2 and least_gpus(1.0, DeviceRates("x")) is None
    prices = PriceList("2026-01-01", "r", "EUR", {"h200": 36.0})
    rows = shapes(PassWork([KernelWork(60e9)]), 10, Interval(1, 1), 60e9, {"h200": H200}, prices, (1, 2), (1,))
    assert [row.fits for row in rows] == [False, True]
    assert rows[1].cost == pytest.approx((rows[1].seconds.low * 0.02, rows[1].seconds.high * 0.02))


def test_nodes_hold_more_and_pay_for_the_network_and_for_whole_instances():
    work = PassWork([KernelWork(60e9, results=1e9)])
    one, two = shapes(work, 10, Interval(1, 1), 60e9, {"h200": H200}, read_prices(), (1,), (1, 2))
    assert (one.fits, two.fits) == (False, True) and (one.nodes, two.nodes) == (1, 2)
    # Half the bytes each, and the results of all come over a network of 10 Gbit/s: 0.8 s of each pass.
    assert two.seconds.low > one.seconds.low - 10 * 60e9 / 4.2e12 + 10 * 0.8 * 0.8
    assert (one.price.instance, two.price.hour) == ("p5en.48xlarge", 2 * one.price.hour)
    text = list(matrix([one, two], read_prices()))
    assert text[0].split() == ["h200", "1", "GPU", "a", "node"] and "does not fit" in text[1]
    assert text[2].startswith("2 nodes  ") and text[3] == "nodes: p5en.48xlarge for 1"


def test_the_shipped_prices_are_dated_and_of_all_devices_of_data_sheets():
    prices = read_prices()
    assert prices.date.startswith("2025-") and prices.source
    assert {each.device for each in prices.instances.values()} == set(read_devices())
    assert all(prices.price(device) for device in read_devices()) and SHIPPED.name in str(prices)


@pytest.mark.parametrize("text", ['date = 2026-01-01\n', 'region = "x"\ncurrency = "y"\n[price]\na = 1\n', "[price",
                                  'date = 1\nregion = ""\ncurrency = ""\n[price]\na = -1\n',
                                  'date = 1\nregion = ""\ncurrency = ""\n[price]\na = "dear"\n',
                                  'date = 1\nregion = ""\ncurrency = ""\n',
                                  'date = 1\nregion = ""\ncurrency = ""\n[instance.p5]\ngpus = 8\nhour = 5\n',
                                  'date = 1\nregion = ""\ncurrency = ""\n[instance]\np = {device="t4",gpus=0,hour=5}\n',
                                  ])
def test_a_price_list_without_what_it_needs_is_refused(tmp_path: Path, text: str):
    (tmp_path / "prices.toml").write_text(text)
    with pytest.raises(PredictionError, match="no price list"):
        read_prices(tmp_path / "prices.toml")


def _predict(*words: str):
    return CliRunner().invoke(main, ["predict", *words])


def test_the_command_says_when_it_pays_and_what_it_costs(tmp_path: Path):
    (tmp_path / "prices.toml").write_text('date = 2026-11-24\nregion = "r"\ncurrency = "USD"\n[price]\nh200 = 4.0\n')
    ended = _predict("--bytes", "5.2e9", "--cpu-pass", "1.3", "--load", "1", "2", "--on", "h200,t4", "--prices",
                     str(tmp_path / "prices.toml"))
    assert ended.exit_code == YES and "h200: a pass" in ended.output and "surely from 2" in ended.output
    assert "prices of 2026-11-24, r, USD" in ended.output and "data sheet, not calibrated" in ended.output


def test_a_type_without_a_price_is_said_to_have_none_and_unknown_devices_are_named(tmp_path: Path):
    (tmp_path / "own.toml").write_text('date = 2026-11-24\nregion = "r"\ncurrency = "USD"\n[price]\nh200 = 4.0\n')
    words = ("--bytes", "1e9", "--on", "l4,h200", "--prices", str(tmp_path / "own.toml"))
    document = json.loads(_predict(*words, "--json").output)
    assert {row["device"] for row in document["shapes"] if row["cost"]} == {"h200"}
    assert document["no_price"] == ["l4"]
    assert _predict(*words).output.count("no price for l4 in own.toml (dated 2026-11-24)") == 1
    ended = _predict("--bytes", "1", "--on", "abacus")
    assert ended.exit_code == USAGE and "no device abacus; there are h200" in ended.output
    assert _predict("--bytes", "1", "--nodes", "1,x").exit_code == USAGE


def test_an_instance_without_a_type_of_gpu_is_named(tmp_path: Path):
    (tmp_path / "own.toml").write_text('date = 1\nregion = "r"\ncurrency = "USD"\n[instance.p5]\ngpus = 8\nhour = 5\n')
    ended = _predict("--bytes", "1e9", "--prices", str(tmp_path / "own.toml"))
    assert ended.exit_code != YES and "instance p5 has no device" in ended.output


def test_without_bytes_it_is_not_known():
    ended = _predict("--on", "h200")
    assert ended.exit_code == UNKNOWN and "not known: the bytes" in ended.output


def test_a_calibration_goes_before_the_data_sheet(tmp_path: Path):
    calibration = {"device": "h200", "name": "mine", "rates": {"memory": 1e12, "plan": 1}}
    (tmp_path / "c.json").write_text(json.dumps(calibration))
    assert read_devices(calibration=tmp_path / "c.json")["h200"].calibrated
    (tmp_path / "c.json").write_text("{}")
    with pytest.raises(PredictionError, match="no calibration"):
        read_devices(calibration=tmp_path / "c.json")
