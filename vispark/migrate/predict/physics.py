"""Prediction of a pass and of a program on a device, by physics: bytes over bandwidth, operations over rate, latencies.

Every answer is an interval, or says what is not known; nothing is assumed in its place.
"""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from vispark.migrate.errors import PredictionError

#: Measured over predicted passes: 14 of the 18 that were recorded on an H200 are between these.
CALIBRATED_SPREAD = (0.8, 1.5)
#: The same where a data sheet stands for the device.
DATA_SHEET_SPREAD = (0.8, 2.0)
#: Network between nodes, which is assumed: seconds that a plan to other nodes adds, and bytes a second (10 Gbit/s).
NETWORK_PLAN, NETWORK = 0.0003, 1.25e9
#: Kinds of operations behind a dtype: calls of exponentials and their like, and operations of products with a matrix.
EXP, PRODUCT = " exp", " product"
#: Additions that one operation of a kind counts as, on a device whose rate of it is not known.
ADDITIONS = {EXP: 16.0, PRODUCT: 1.0}
_SHEETS = Path(__file__).with_name("devices.toml")


@dataclass(frozen=True)
class Interval:
    """Seconds from low to high.

    Examples
    --------
    >>> Interval(1.0, 2.0) + Interval(0.5, 0.5), Interval(1.0, 2.0).times(3)
    (Interval(low=1.5, high=2.5), Interval(low=3.0, high=6.0))
    """

    low: float
    high: float

    def __add__(self, other: Interval) -> Interval:
        return Interval(self.low + other.low, self.high + other.high)

    def times(self, number: float) -> Interval:
        """Return the interval of a number of these, one after another."""
        return Interval(self.low * number, self.high * number)

    def spread(self, part: float) -> Interval:
        """Return the interval that goes beyond this one by a part of its ends.

        Examples
        --------
        >>> Interval(1.0, 2.0).spread(0.5)
        Interval(low=0.5, high=3.0)
        """
        return Interval(self.low * (1 - part), self.high * (1 + part))

    def __str__(self) -> str:
        unit, factor = ("ms", 1e3) if self.high < 1 else ("s", 1.0)
        low, high = (f"{each * factor:.2g}" if each * factor < 99.5 else f"{each * factor:.0f}"
                     for each in (self.low, self.high))
        return f"{low} .. {high} {unit}"


@dataclass(frozen=True)
class UnknownTime:
    """Answer in place of an interval: what is missing for it."""

    why: str

    def __str__(self) -> str:
        return f"not known: {self.why}"


PredictedTime = Interval | UnknownTime


@dataclass(frozen=True)
class DeviceRates:
    """Rates of a device.

    Parameters
    ----------
    name : str
        As it is printed.
    memory, link : float, optional
        Bytes a second, of its memory, and from the host; what is reached.
    rates : mapping
        Operations a second by dtype, "float64" and "float32"; of exponentials and products with a matrix, "float64 exp"
        and "float64 product", where they were measured.
    size : float, optional
        Bytes of its memory.
    plan : float, optional
        Seconds for a plan that computes nothing, seen from the driver.
    calibrated : bool
        Whether they were measured.
    load : float, optional
        Bytes a second from Spark's partitions to the device.
    plan_by_key : float, optional
        Seconds for a plan that sums by key and computes nothing; those of ``plan`` where it was not measured.
    objects : float, optional
        Records a second that the driver makes objects of.
    runs : str
        ``spark.vispark.device`` with which it was measured; probes of that one are of this device.
    """

    name: str
    memory: float | None = None
    rates: Mapping[str, float] = field(default_factory=dict)
    size: float | None = None
    link: float | None = None
    plan: float | None = None
    calibrated: bool = False
    load: float | None = None
    runs: str = ""
    plan_by_key: float | None = None
    objects: float | None = None

    def rate(self, kind: str) -> float | None:
        """Return operations a second of a dtype and kind; of a kind that was not measured, in additions.

        Examples
        --------
        >>> DeviceRates("x", rates={"float64": 32.0, "float32 exp": 8.0}).rate("float64 exp")
        2.0
        """
        if kind in self.rates:
            return self.rates[kind]
        dtype, *_ = kind.split()
        return self.rates[dtype] / ADDITIONS[kind.removeprefix(dtype)] if dtype in self.rates else None

    @property
    def basis(self) -> str:
        """What its rates rest on, in words.

        Examples
        --------
        >>> DeviceRates("this machine", runs="host").basis
        'probed, not calibrated'
        """
        if self.calibrated:
            return "calibrated"
        return "probed, not calibrated" if self.runs else "data sheet, not calibrated"

    @property
    def spread(self) -> tuple[float, float]:
        """The lowest and the highest ratio of a measured pass to a predicted one; it is narrow where the device was
        calibrated, or where a probe ran the action itself.
        """
        return CALIBRATED_SPREAD if self.calibrated or self.runs else DATA_SHEET_SPREAD


@dataclass(frozen=True)
class ProbedRate:
    """Seconds of an action that was run on few records: of its plan, and of each record beyond that; None where the
    plan's own seconds hide those.
    """

    plan: float
    record: float | None


@dataclass(frozen=True)
class KernelWork:
    """Work of one action's kernels in one pass.

    Parameters
    ----------
    bytes : float, optional
        What it reads and writes, in bytes; None where it is not known.
    operations : mapping
        Operations by dtype and kind, as in :class:`DeviceRates`; an empty one where bytes are what counts.
    readings : int
        How often it goes over what it reads: 2 of sums by many keys and of nearest centres in two steps.
    results : float
        Bytes that come back to the driver.
    collected : float
        Records that come back to the driver, each as an object of its own.
    is_by_key : bool
        Whether it sums by key, which takes more of the driver.
    records : float
        Records that it goes over.
    probes : mapping
        What was seen of it on few records, by ``spark.vispark.device``: its plan goes before the device's, and its
        seconds a record before operations and results.
    """

    bytes: float | None
    operations: Mapping[str, float] = field(default_factory=dict)
    readings: int = 1
    results: float = 0.0
    records: float = 0.0
    collected: float = 0.0
    is_by_key: bool = False
    probes: Mapping[str, ProbedRate] = field(default_factory=dict)

    def part(self, number: int) -> KernelWork:
        """Return the work of one of some devices between which it is divided; results all come to one driver."""
        return replace(self, bytes=self.bytes if self.bytes is None else self.bytes / number,
                       operations={kind: count / number for kind, count in self.operations.items()},
                       records=self.records / number)


@dataclass(frozen=True)
class PassWork:
    """Work of one pass of a loop, once it is ported.

    Parameters
    ----------
    kernels : sequence of KernelWork
        Of each action a plan of its own.
    jobs : int
        Jobs of Spark that stay.
    job : Interval, optional
        Seconds of such a job.
    driver : Interval
        Seconds of the user's own code between them.
    """

    kernels: Sequence[KernelWork]
    jobs: int = 0
    job: Interval | None = None
    driver: Interval = Interval(0.0, 0.0)


def read_devices(sheets: Path = _SHEETS, calibration: Path | None = None) -> dict[str, DeviceRates]:
    """Return devices by name: those of the data sheets, and the one that was calibrated, which goes before its sheet.

    Parameters
    ----------
    sheets : Path
        A TOML file of the form of ``devices.toml``.
    calibration : Path, optional
        What ``vispark calibrate`` wrote.

    Raises
    ------
    PredictionError
        If a file cannot be read, or lacks what it must have.

    Examples
    --------
    >>> rates = read_devices()["h200"]
    >>> round(rates.memory / 1e12, 2), rates.calibrated
    (4.08, False)
    """
    try:
        document = tomllib.loads(sheets.read_text(encoding="utf-8"))
        reached, plan, objects = (float(document[key]) for key in ("reached", "plan", "objects"))
        devices = {key: DeviceRates(
            each["name"], each["memory"] * reached if "memory" in each else None,
            {dtype: each[dtype] for dtype in ("float64", "float32") if dtype in each}, each.get("size"),
            each["link"] * reached if "link" in each else None, plan, objects=objects)
            for key, each in document["device"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise PredictionError(f"{sheets} is no file of devices: {type(error).__name__}: {error}") from error
    return devices | (calibrated_device(calibration) if calibration else {})


def chosen_devices(names: str, calibration: Path | None = None) -> dict[str, DeviceRates]:
    """Return the devices of a list with commas; all of them if it is empty.

    Raises
    ------
    PredictionError
        If there is no such device.
    """
    devices = read_devices(calibration=calibration)
    if unknown := set(filter(None, names.split(","))) - devices.keys():
        raise PredictionError(f"no device {', '.join(sorted(unknown))}; there are {', '.join(devices)}")
    return {name: devices[name] for name in names.split(",")} if names else devices


def calibrated_device(path: Path) -> dict[str, DeviceRates]:
    """Return the device that a calibration is of, by its name.

    Raises
    ------
    PredictionError
        If the file is none of ``vispark calibrate``.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        rates = document["rates"]
        known = {kind: float(rate) for kind, rate in rates.items() if kind.split()[0] in ("float64", "float32")}
        return {document["device"]: DeviceRates(document["name"], rates["memory"], known, document.get("size"),
                                                rates.get("link"), rates["plan"], True, rates.get("load"),
                                                document.get("runs", ""), rates.get("plan_by_key"),
                                                rates.get("objects"))}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise PredictionError(f"{path} is no calibration: {type(error).__name__}: {error}") from error


def predict_pass(work: PassWork, device: DeviceRates, nodes: int = 1) -> PredictedTime:
    """Return the seconds of one pass on a device, or what is missing to tell.

    Parameters
    ----------
    work : PassWork
        Of one device.
    device : DeviceRates
        Its rates.
    nodes : int
        Between which the devices are divided: a plan goes to all of them, and results come over the network.

    Examples
    --------
    >>> work = PassWork([KernelWork(bytes=32e6 * 41 * 4)])
    >>> str(predict_pass(work, read_devices()["h200"]))
    '1.1 .. 2.9 ms'
    >>> str(predict_pass(PassWork([KernelWork(None)]), read_devices()["h200"]))
    'not known: the bytes of a kernel (a recording has them)'
    """
    seconds = 0.0
    for kernel in work.kernels:
        one = _kernel_seconds(kernel, device)
        if isinstance(one, UnknownTime):
            return one
        seconds += one
        if nodes > 1:
            seconds += NETWORK_PLAN + kernel.results / NETWORK
    if work.jobs and work.job is None:
        return UnknownTime("the seconds of a Spark job that stays in the loop (an event log has them)")
    low, high = device.spread
    total = Interval(seconds * low, seconds * high) + work.driver
    return total + work.job.times(work.jobs) if work.job else total


def _kernel_seconds(kernel: KernelWork, device: DeviceRates) -> float | UnknownTime:
    probe = kernel.probes.get(device.runs)
    record = None if probe is None else probe.record
    if kernel.bytes is None and (record is None or device.memory is not None):
        return UnknownTime("the bytes of a kernel (a recording has them)")
    if device.memory is None and record is None:
        return UnknownTime(f"the bandwidth of {device.name}, of which no probe told either")
    moving = (kernel.bytes or 0.0) * kernel.readings / (device.memory or math.inf)
    by_device = device.plan_by_key if kernel.is_by_key and device.plan_by_key is not None else device.plan
    plan = by_device if probe is None else probe.plan
    if plan is None:
        return UnknownTime(f"the latency of a plan on {device.name}")
    if record is not None:
        return plan + max(moving, record * kernel.records)
    computing = 0.0
    for kind, operations in kernel.operations.items():
        rate = device.rate(kind)
        if rate is None:
            return UnknownTime(f"the rate of {kind} on {device.name}")
        computing += operations / rate
    if kernel.results and device.link is None:
        return UnknownTime(f"the link of {device.name}")
    return plan + max(moving, computing) + kernel.results / (device.link or 1.0) + (
        kernel.collected / device.objects if device.objects else 0.0)


@dataclass(frozen=True)
class ProgramTimes:
    """Times of a program's loop on the CPU, and on a device.

    Parameters
    ----------
    cpu_pass, cpu_rest : Interval
        Seconds of a pass, and of the rest of the program with its loading.
    gpu_pass : Interval
        By :func:`predict_pass`.
    gpu_load : Interval
        Seconds that loading and compiling add to the rest.
    """

    cpu_pass: Interval
    cpu_rest: Interval
    gpu_pass: Interval
    gpu_load: Interval

    def cpu(self, passes: int) -> Interval:
        """Return the seconds of the whole program on the CPU."""
        return self.cpu_rest + self.cpu_pass.times(passes)

    def gpu(self, passes: int) -> Interval:
        """Return the seconds of the whole program on the device."""
        return self.cpu_rest + self.gpu_load + self.gpu_pass.times(passes)

    def break_even(self) -> tuple[int | None, int | None]:
        """Return from which pass on the port pays, at best and surely; None for never.

        Examples
        --------
        >>> times = ProgramTimes(*[Interval(a, b) for a, b in ((1.0, 1.2), (5.0, 5.0), (0.1, 0.2), (1.0, 2.0))])
        >>> times.break_even(), str(times.gpu(100))
        ((1, 3), '16 .. 27 s')
        """
        return (_passes(self.gpu_load.low, self.cpu_pass.high - self.gpu_pass.low),
                _passes(self.gpu_load.high, self.cpu_pass.low - self.gpu_pass.high))


def _passes(load: float, gain: float) -> int | None:
    return max(1, math.ceil(load / gain)) if gain > 0 else None
