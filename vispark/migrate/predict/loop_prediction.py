"""Prediction of a recorded loop on devices: its pass and the whole program, by what was recorded of its work."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from vispark.migrate.capture.run_capture import CapturedCall, RunCapture
from vispark.migrate.predict.cluster_shapes import ShapeRow, least_gpus, matrix, shapes
from vispark.migrate.predict.physics import (
    DeviceRates,
    Interval,
    KernelWork,
    PassWork,
    PredictedTime,
    ProbedRate,
    ProgramTimes,
    UnknownTime,
    predict_pass,
)
from vispark.migrate.predict.prices import PriceList
from vispark.migrate.rules.advice import ON_DEVICE, Advice, LoopAdvice
from vispark.migrate.rules.functions import FOLDS, FOLDS_BY_KEY
from vispark.migrate.rules.loop_rules import MAPS
from vispark.migrate.source.program import RddCall

#: Keys from which on sums by key go over the data twice.
_MANY_KEYS = 1024
#: Part by which the program's own code between its operations takes more or less in another run.
DRIVER = 0.3
#: Name of the device of this machine, where it is not calibrated.
HERE = "here"
#: Actions that fold, without a function.
_OF_WORKERS = frozenset(["sum", "count", "max", "min", "mean", "stats", "variance", "stdev", "histogram"])


@dataclass(frozen=True)
class PredictionTarget:
    """Devices that a prediction is for, and what is given beside the recording.

    Parameters
    ----------
    devices : mapping
        Rates by name.
    passes : int
        Passes of the program that are asked about, beside those that it had.
    load : Interval
        Seconds that starting a worker, loading and compiling add.
    prices : PriceList, optional
        Without them there is no cost.
    probed : str
        ``spark.vispark.device`` on which the recorded run's actions are probed; empty where they are not.
    """

    devices: Mapping[str, DeviceRates]
    passes: int
    load: Interval
    prices: PriceList | None = None
    probed: str = ""

    def probing(self, device: str) -> PredictionTarget:
        """Return the same, with predictions for the device on which actions are probed.

        That is the calibrated one, if it was measured there; else what the probe alone says.
        """
        known = any(each.runs == device for each in self.devices.values())
        this_machine = {} if known else {HERE: DeviceRates(f"this machine, {device}", runs=device)}
        return replace(self, devices={**self.devices, **this_machine}, probed=device)

    def is_here(self, device: str) -> bool:
        """Return whether a device, by its name, is that on which actions are probed."""
        return bool(self.probed) and self.devices[device].runs == self.probed


@dataclass(frozen=True)
class LoopPrediction:
    """Prediction of a loop on one device."""

    device: str
    name: str
    calibrated: bool
    basis: str
    one_pass: PredictedTime
    times: ProgramTimes | None
    passes: tuple[int, int]
    gpus: int | None
    prices: PriceList | None = None
    rows: Sequence[ShapeRow] = ()

    def lines(self) -> Iterator[str]:
        """Yield the prediction as text."""
        yield f"on {self.name} ({self.basis}): a pass {self.one_pass}"
        if self.times is None:
            return
        for passes in dict.fromkeys(self.passes):
            seconds = self.times.gpu(passes)
            yield f"  the program with {passes} passes: {self.times.cpu(passes)} -> {seconds}"
        best, surely = self.times.break_even()
        yield (f"  it pays from pass {best or 'never'} on, surely from {surely or 'never'}"
               + (f"; its data takes {self.gpus} GPUs" if self.gpus and self.gpus > 1 else ""))
        if self.rows:
            yield (f"  with {self.passes[-1]} passes, by nodes and GPUs"
                   + (f", time and cost; {self.prices}" if self.prices else ""))
            yield from (f"    {line}" for line in matrix(self.rows, self.prices))

    def document(self) -> dict[str, object]:
        """Return the prediction as JSON has it."""
        one = self.one_pass
        return {"device": self.device, "calibrated": self.calibrated, "gpus": self.gpus,
                "pass": [one.low, one.high] if isinstance(one, Interval) else None,
                "why": "" if isinstance(one, Interval) else str(one),
                "pays_from": self.times.break_even() if self.times else None,
                "shapes": [row.as_json() for row in self.rows],
                "prices": self.prices.date if self.prices and self.rows else None,
                "program": {str(passes): [seconds.low, seconds.high] for passes in self.passes
                            if self.times for seconds in [self.times.gpu(passes)]}}


def predicted_loop(loop: LoopAdvice, verdicts: Mapping[RddCall, Advice], recorded: Mapping[RddCall, CapturedCall],
                   capture: RunCapture, target: PredictionTarget) -> list[LoopPrediction]:
    """Return the predictions of a loop, one for each device; none where nothing of it runs on a device."""
    if not loop.qualifies or loop.low is None or loop.high is None:
        return []
    work, data = _work(loop, verdicts, recorded, capture)
    predictions = []
    for device, rates in target.devices.items():
        one = work if isinstance(work, UnknownTime) else predict_pass(work, rates)
        times = None
        if isinstance(one, Interval):
            rest = max(0.0, capture.seconds - loop.seconds)
            loading = data / rates.load if rates.load else 0.0
            times = ProgramTimes(Interval(loop.low, loop.high), Interval(rest, rest), one,
                                 target.load + Interval(loading, loading))
        rows = [] if device == HERE or times is None or isinstance(work, UnknownTime) else shapes(
            work, target.passes, times.cpu_rest + times.gpu_load, data, {device: rates}, target.prices)
        predictions.append(LoopPrediction(device, rates.name, rates.calibrated, rates.basis, one, times,
                                          (loop.passes or 1, target.passes), least_gpus(data, rates),
                                          target.prices, rows))
    return predictions


def _work(loop: LoopAdvice, verdicts: Mapping[RddCall, Advice], recorded: Mapping[RddCall, CapturedCall],
          capture: RunCapture) -> tuple[PassWork | UnknownTime, float]:
    """Return the work of a pass, and the bytes that its data takes."""
    verdict_of = {found.number: verdicts[call].verdict for call, found in recorded.items() if call in verdicts}
    actions = [found for call, found in recorded.items() if call in verdicts and found.starts]
    kernels, jobs, data = [], [], 0.0
    for action in actions:
        chain = list(_chain(action, capture))
        inside = [call for call in chain if call.count is None]
        # A line search, for one, runs an action several times a pass.
        times = max(1, round(len(action.starts) / max(1, loop.passes or 1)))
        if any(verdict_of.get(call.number) in ("stays", "by hand") for call in inside):
            jobs += [action] * times
            continue
        is_known = action.method == "count" and inside == [action]      # how many records are held, the driver knows
        if is_known or not any(verdict_of.get(call.number) in ON_DEVICE for call in inside):
            continue
        held = next((call for call in chain if call.count is not None), None)
        if held is None or held.record_bytes is None:
            return UnknownTime("the bytes of a kernel (a recording with samples of what is cached has them)"), data
        size = (held.count or 0) * held.record_bytes
        data = max(data, size)
        maps = [call for call in inside if call.method in MAPS and verdict_of.get(call.number) in ON_DEVICE]
        kernels += [kernel_work(size, held.count or 0, maps[0] if maps else None, inside)] * times
    job = Interval(min(min(each.seconds) for each in jobs), max(max(each.seconds) for each in jobs)) if jobs else None
    driver = sum(found.driver for call, found in recorded.items() if call in verdicts)
    return PassWork(kernels, len(jobs), job, Interval(driver, driver).spread(DRIVER)), data


def kernel_work(size: float, count: int, mapped: CapturedCall | None,
                chain: Sequence[CapturedCall]) -> KernelWork:
    """Return the work of an action's kernels.

    Parameters
    ----------
    size, count : float and int
        Bytes and records of what is held.
    mapped : CapturedCall, optional
        The last map before the action.
    chain : sequence of CapturedCall
        From the action back to what is held.
    """
    many = any(call.keys and call.keys[1] >= _MANY_KEYS for call in chain)
    operations = {kind: each * count for kind, each in (mapped.operations if mapped else {}).items()}
    read, written, result = [each * count for each in mapped.traffic] if mapped and mapped.traffic else (size, 0.0, 0.0)
    # What a fold takes is not written, and what it gives is little.
    if any(call.method in FOLDS or call.method in _OF_WORKERS for call in chain):
        written = result = 0.0
    probes = {device: ProbedRate(plan or 0.0, record) for device, (plan, record) in chain[0].probes.items()}
    return KernelWork(read + written, operations, 2 if many else 1, result, count, count if result else 0.0,
                      any(call.method in FOLDS_BY_KEY for call in chain), probes)


def _chain(call: CapturedCall, capture: RunCapture) -> Iterator[CapturedCall]:
    """Yield a call and those that it was made on, up to one that is cached."""
    number: int | None = call.number
    seen: set[int] = set()
    while number is not None and number not in seen:
        seen.add(number)
        one = capture.calls[number]
        yield one
        if one.count is not None:
            return
        number = one.on
