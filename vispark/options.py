"""The options ``spark.vispark.*``: one table, from which docs/reference/options.md is generated."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from gpu_worker.protocol import device_kinds, exchange_kinds, transport_kinds
from gpu_worker.protocol.errors import DeviceUnavailable
from gpu_worker.protocol.messages import STREAM_BYTES, SessionOptions
from vispark.errors import OptionError

PREFIX = "spark.vispark."

#: The shared memory that a thread block can have on every GPU, in bytes.
LEAST_SHARED = 48 * 1024


@dataclass(frozen=True)
class Option:
    """One option: its name behind the prefix, default, how its text is read, unit and meaning."""

    name: str
    default: Any
    parse: Callable[[str], Any]
    unit: str
    meaning: str


def _choice(*choices: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in choices:
            raise ValueError(f"one of {', '.join(choices)}")
        return text
    return parse


#: Seconds of the units that Spark's own options take, the longest names first.
_UNITS = {"min": 60.0, "us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def _number(text: str) -> float:
    """Return a number; NaN, which fits no option, for what is none."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def _seconds(text: str) -> float:
    text = text.strip().lower()
    unit = next((unit for unit in _UNITS if text.endswith(unit)), "")
    value = _number(text.removesuffix(unit)) * _UNITS.get(unit, 1.0)
    if not 0 < value < math.inf:
        raise ValueError("seconds, more than 0, or a number with its unit, as 500ms, 90s, 10m or 2h")
    return value


def _share(text: str) -> float:
    value = _number(text)
    if not 0 <= value < 1:
        raise ValueError("a number from 0 up to, without, 1")
    return value


def _count(text: str) -> int:
    if not text.strip().isdecimal():
        raise ValueError("a whole number, 0 or more")
    return int(text)


def _bytes(text: str) -> int:
    factors = {"k": 10, "m": 20, "g": 30, "t": 40}
    short = text.strip().lower().removesuffix("b")
    digits = short[:-1] if short[-1:] in factors else short
    if not digits.isdecimal():
        raise ValueError("bytes, a whole number, 0 or more, or one with its unit, as 512k, 64m or 8g")
    return int(digits) << factors.get(short[-1:], 0)


def _positive_bytes(text: str) -> int:
    value = _bytes(text)
    if not value:
        raise ValueError("1 or more")
    return value


def _shared_limit(text: str) -> int:
    value = _bytes(text)
    if 0 < value < LEAST_SHARED:
        raise ValueError(f"{LEAST_SHARED >> 10}k or more, which all GPUs have, or 0")
    return value


def _device(text: str) -> str:
    try:
        device_kinds.parse_spec(text)
    except DeviceUnavailable as error:
        raise ValueError(str(error)) from error
    return text


def _unassigned(text: str) -> str:
    needless = {kind.name for kind in device_kinds.kinds() if kind.is_countable}
    if text != "error" and text.partition(":")[0] not in needless:
        raise ValueError(f"error, or one of {', '.join(sorted(needless))}, which are no GPUs")
    return text if text == "error" else _device(text)


def _link(text: str) -> str:
    try:
        text.format(host="", port=0)
    except (KeyError, IndexError, ValueError) as error:
        raise ValueError("an address, in which {host} and {port} stand for the dashboard's own") from error
    return text


def _devices() -> str:
    """Return the meaning of the option ``device``, by the table of kinds."""
    kinds = ", ".join(f"`{kind.name}` ({kind.meaning})" for kind in device_kinds.kinds())
    numbers = " and ".join(f"`{kind.name}:4`" for kind in device_kinds.kinds() if kind.is_countable)
    best, *others = [f"`{kind.name}`" for kind in device_kinds.automatic()]
    return (f"Where blocks live: {kinds}, or `auto`: {best} where there is one, else {', else '.join(others)}. "
            f"{numbers} are four of them in each worker, with the addresses 0 to 3 where Spark schedules GPUs.")


def _transport(text: str) -> str:
    return _choice(*transport_kinds.names())(text)


def _transports() -> str:
    """Return the meaning of the option ``transport``, by the table of kinds."""
    kinds = ", ".join(f"`{kind.name}` {kind.meaning}" for kind in transport_kinds.kinds())
    return (f"How plans on cached data go from the driver to a worker: {kinds}, or `auto`: the first of them that "
            "works.")


def _exchange(text: str) -> str:
    return _choice(*exchange_kinds.names())(text)


def _exchanges() -> str:
    """Return the meaning of the option ``exchange``, by the table of kinds."""
    kinds = ", or ".join(f"`{kind.name}`: {kind.meaning}" for kind in exchange_kinds.kinds())
    return f"How the nodes of a grid exchange halos: {kinds}. See [grids.md](../guide/grids.md#several-nodes)."


OPTIONS = (
    Option("device", "auto", _device, "", _devices()),
    Option("unassigned", "error", _unassigned, "",
           "Where Spark schedules GPUs: what holds blocks on a node whose executors got none: `host`, the CPU, or "
           "nothing, as loads are an `error` there."),
    Option("memory", 0, _bytes, "bytes",
           "The most memory a session takes of each device; `8g` and the like are understood. 0: all there is."),
    Option("hostMemory", 0, _bytes, "bytes",
           "The most host memory that content takes on a node that is kept by `persist(\"GPU_AND_HOST\")` or "
           "`persist(\"GPU_HOST_AND_DISK\")` and finds no room on devices. 0: half of the node's."),
    Option("stream", STREAM_BYTES, _positive_bytes, "bytes",
           "The bytes of one of the buffers that such content is streamed through; a device keeps three of them free."),
    Option("spillDir", "", str, "",
           "The directory, on each node, of the files of `persist(\"GPU_HOST_AND_DISK\")`; empty: the system's "
           "temporary one."),
    Option("sharedMemory", 0, _shared_limit, "bytes",
           "The most shared memory a session's thread blocks take, as on a smaller GPU; `99k` and the like are "
           "understood. 0: all that the devices have for them."),
    Option("lease", 10.0, _seconds, "s",
           "How long a worker keeps a session's data after its driver, or its last executor, has gone; and data on "
           "GPUs that Spark schedules after the last executor that had one of them."),
    Option("deadline", 600.0, _seconds, "s",
           "How long the kernels of a plan may take, from the first launch on, before the worker's process is ended."),
    Option("transport", "auto", _transport, "", _transports()),
    Option("exchange", "mpi", _exchange, "", _exchanges()),
    Option("attempts", 8, _count, "",
           "How often a plan is repeated after a worker was lost under it, before the loss is an error."),
    Option("snapshotShare", 0.02, _share, "",
           "The share of the time that snapshots of long loops on grids may cost; 0: none are taken, and what is lost "
           "is computed anew from the RDD that was sent."),
    Option("timeToLoss", 21600.0, _seconds, "s",
           "How long it takes on average until a worker of the application is lost. The shorter, the more snapshots."),
    Option("startTimeout", 30.0, _seconds, "s", "How long to wait for a worker that starts by itself."),
    Option("cacheDir", "", str, "", "Where compiled kernels are kept; empty: the user's cache directory."),
    Option("udfBytes", 64 << 20, _positive_bytes, "bytes",
           "Up to how many bytes of columns a task joins before `vispark.udf` computes them in one plan; `64m` and the "
           "like are understood."),
    Option("fallback", "warn", _choice("warn", "error", "silent"), "",
           "What an action on cached data does that workers cannot answer, as it is a Spark job then, and `filter`, "
           "`sample`, `zip`, `union` and others that bring the records back: a "
           "`FallbackWarning` with the reason, once for a line of code; an `error`; or nothing, `silent`."),
    Option("features", "float64", _choice("float64", "float32"), "",
           "In what fits of `vispark.ml` hold arrays and vectors of features: `float32` rounds them, and halves what "
           "they take and what a pass reads; arithmetic is float64 all the same. Columns of floats stay as they are."),
    Option("check", "none", _choice("none", "bounds"), "",
           "`bounds`: on `host` (which `auto` is then), each read and write of an `exec` kernel is checked against the "
           "buffers that it was given, and one out of their bounds is a `KernelFault`; slow. See "
           "[kernels.md](../guide/kernels.md#out-of-bounds)."),
    Option("journal", "", str, "",
           "A file of the driver's, to which each answer of a worker adds a line of JSON: plan, operations, the user's "
           "line, seconds and bytes; empty: none."),
    Option("dashboardLink", "", _link, "",
           "How `vispark.dashboard()` is reached through a proxy, such as `/proxy/{port}/`; a path alone is linked to "
           "by the descriptions of jobs in Spark's pages, too. Empty: at its own address."),
    Option("logLevel", "info", _choice("debug", "info", "warning", "error"), "",
           "What the device process writes to its log; `debug` has a line per plan."),
)

_BY_NAME = {PREFIX + option.name: option for option in OPTIONS}


@dataclass(frozen=True)
class Options:
    """The values in force for one Spark application."""

    device: str
    unassigned: str
    memory: int
    hostMemory: int
    stream: int
    spillDir: str
    sharedMemory: int
    lease: float
    deadline: float
    transport: str
    exchange: str
    attempts: int
    snapshotShare: float
    timeToLoss: float
    startTimeout: float
    cacheDir: str
    udfBytes: int
    fallback: str
    features: str
    check: str
    journal: str
    dashboardLink: str
    logLevel: str

    @classmethod
    def read(cls, settings: Iterable[tuple[str, str]]) -> Options:
        """Read the options out of a Spark configuration.

        Parameters
        ----------
        settings : iterable of (name, text)
            All settings; those without the prefix are left alone.

        Raises
        ------
        OptionError
            For a name that is not in the table, or a text that the option does not take.

        Examples
        --------
        >>> Options.read([("spark.vispark.device", "host"), ("spark.app.name", "demo")]).device
        'host'
        """
        values = {option.name: option.default for option in OPTIONS}
        for name, text in settings:
            if name.startswith(PREFIX):
                option = _find(name)
                try:
                    values[option.name] = option.parse(text)
                except ValueError as error:
                    raise OptionError(f"{name} = {text!r} is not understood: {error}") from error
        return cls(**values)

    def for_worker(self) -> SessionOptions:
        """Return the part of them that a session's first greeting fixes for its device process."""
        return SessionOptions(self.device, self.memory, self.lease, self.cacheDir, self.logLevel,
                              self.sharedMemory, self.check == "bounds", stream=self.stream,
                              host_memory=self.hostMemory, spill_dir=self.spillDir,
                              unassigned="" if self.unassigned == "error" else self.unassigned)


def _find(name: str) -> Option:
    if name not in _BY_NAME:
        near = get_close_matches(name, _BY_NAME, 1)
        others = ", ".join(each.removeprefix(PREFIX) for each in _BY_NAME)
        raise OptionError(f"there is no option {name}" + (f"; the nearest is {near[0]}" if near else
                                                          f"; behind {PREFIX} there are {others}"))
    return _BY_NAME[name]


def markdown() -> str:
    """Return the table as docs/reference/options.md shows it."""
    rows = [f"| `{PREFIX}{option.name}` | {_default_text(option)} | {option.meaning} |" for option in OPTIONS]
    return "\n".join(["| name | default | meaning |", "|---|---|---|", *rows]) + "\n"


def _default_text(option: Option) -> str:
    """Return an option's default as one would write it, and its unit."""
    if option.default == "":
        return "empty"
    text = f"{option.default:g}" if isinstance(option.default, float) else str(option.default)
    return f"`{text}` {option.unit}".strip()
