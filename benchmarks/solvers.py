"""Common parts of the solvers on grids: their ways, the check of a way, and the measuring of a step of it.

What is measured is a step. The ways that need no Spark job a step do many of them as one action and are divided by
their number; a Spark job a step is measured as it is.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field

import numpy as np
from py4j.protocol import Py4JJavaError
from pyspark import SparkContext

from benchmarks.bare import BareCopy, bytes_of
from benchmarks.measure import Case, Series, interleave
from benchmarks.regression import FLOOR, Settings
from benchmarks.results import Group
from gpu_worker.device import open_devices
from gpu_worker.device.base import Buffer, CompiledKernel, Device

OURS = "vispark: iterate"

#: Of a way with Spark jobs: the seconds after which it is given up, and those that its samples may take together, of
#: which there is always one.
_LIMIT, _JOB_SECONDS = 100.0, 15.0

Slices = tuple[slice, ...]


@dataclass
class Way:
    """Manner of solving: it does so many steps on from where it is; ``corner`` gives some of the cells that it has.

    ``nbytes`` is what one of its steps must move, and ``expected`` what it is compared with, where that is no whole
    step of the problem. ``blocks`` gives the cells of all blocks, where it has such.
    """

    advance: Callable[[int], None]
    corner: Callable[[Slices], np.ndarray]
    blocks: Callable[[], list[tuple[tuple[int, ...], np.ndarray]]] | None = None
    nbytes: int = 0
    expected: Callable[[int], np.ndarray] | None = None


@dataclass(frozen=True)
class Problem:
    """Problem that is solved.

    Attributes
    ----------
    nbytes : int
        The bytes that a step must move.
    steps : int
        How many of them are one action, where a way can do that.
    checked : int
        After how many steps from the start a way's cells are compared.
    corner : tuple of slice
        The cells that are.
    expected : callable
        What they are after so many steps, in float64.
    tolerance : float
        How far each may be off.
    """

    nbytes: int
    steps: int
    checked: int
    corner: Slices
    expected: Callable[[int], np.ndarray]
    tolerance: float

    def check(self, name: str, way: Way, steps: int, group: Group) -> None:
        """Raise AssertionError for a way whose cells are not those in float64."""
        way.advance(steps)
        off = float(np.abs(way.corner(self.corner) - (way.expected or self.expected)(steps)).max())
        group.checks[name] = {"off": off, "allowed": self.tolerance}
        if not off <= self.tolerance:
            raise AssertionError(f"{name} is off by {off:.2g}")


@dataclass(frozen=True)
class Jobs:
    """The ways with Spark jobs, each made when its turn comes."""

    sc: SparkContext
    ways: Iterator[tuple[str, Callable[[], AbstractContextManager[Way]]]]

    def measure(self, problem: Problem, group: Group, samples: int, done: Callable[[str], None]) -> Iterator[None]:
        """Measure one after the other; one that takes too long, or fails, is given up, and why is noted."""
        for name, make in self.ways:
            began, ended = time.monotonic(), threading.Event()
            threading.Thread(target=self._watch, args=(ended,), daemon=True).start()
            try:
                with make() as way:
                    done(f"check of {name}")
                    problem.check(name, way, 1, group)
                    group.series.append(_sampled(name, way, problem.nbytes, samples, done))
            except (Py4JJavaError, TimeoutError) as error:
                group.skipped[name] = f"its blocks and a step or two took longer than {_LIMIT:.0f} s" \
                    if time.monotonic() - began >= _LIMIT else f"it failed: {_cause(error)}"
            finally:
                ended.set()
            yield

    def _watch(self, ended: threading.Event) -> None:
        """Cancel the jobs of a way that has not ended in time, one that begins later too."""
        seconds = _LIMIT
        while not ended.wait(seconds):
            self.sc.cancelAllJobs()
            seconds = 1.0


def _cause(error: Exception) -> str:
    """Return the line that says what went wrong: of a task in Python the traceback's end, which Java's trace follows.
    """
    lines = str(error).strip().splitlines()
    return next((line for line in lines if re.match(r"[\w.]+(Error|Exception): ", line)), lines[-1])


def _sampled(name: str, way: Way, nbytes: int, samples: int, done: Callable[[str], None]) -> Series:
    """Take the samples for which there is time, and note if those are fewer than were asked for."""
    seconds: list[float] = []
    while len(seconds) < samples and sum(seconds) * (1 + 1 / max(1, len(seconds))) < _JOB_SECONDS:
        start = time.perf_counter()
        way.advance(1)
        seconds.append(time.perf_counter() - start)
        done(name)
    notes = {} if len(seconds) == samples else {"fewer_samples": f"as many as {_JOB_SECONDS:.0f} s allow"}
    return Series(name, tuple(seconds), 1, way.nbytes or nbytes, (FLOOR,), notes)


def measured(group: Group, problem: Problem, settings: Settings,
             alone: Callable[[Device], AbstractContextManager[dict[str, Way]]], ours: Callable[[], dict[str, Way]],
             jobs: Jobs, done: Callable[[str], None]) -> Iterator[Group]:
    """Measure all ways, and give the group again each time that it has more: what comes last takes longest.

    Parameters
    ----------
    alone : callable
        The ways on one device, which may be opened beside ours.
    ours : callable
        Ours.
    jobs : Jobs
        The ways with Spark jobs.
    """
    group.series = _quick(group, problem, settings, alone, ours, done)
    yield group
    for _ in jobs.measure(problem, group, settings.samples, done) if settings.jobs else ():
        yield group


def _quick(group: Group, problem: Problem, settings: Settings,
           alone: Callable[[Device], AbstractContextManager[dict[str, Way]]], ours: Callable[[], dict[str, Way]],
           done: Callable[[str], None]) -> list[Series]:
    """Measure the ways that need no Spark job a step, and the floor, in turn."""
    with ExitStack() as stack:
        devices = open_devices(settings.kind)
        for device in devices:
            stack.callback(device.close)
        ways = ours() | (stack.enter_context(alone(devices[0])) if settings.peers else {})
        for name, way in ways.items():
            done(f"check of {name}")
            problem.check(name, way, problem.checked, group)
        copy = BareCopy(devices[0], max(64 << 20, min(problem.nbytes // 2, 1 << 30)),
                        1 if settings.kind == "cuda" else settings.units)
        stack.callback(copy.close)
        cases = [Case(name, lambda way=way: way.advance(problem.steps), problem.nbytes * problem.steps,
                      _against(name, ways), repeat=False) for name, way in ways.items()]
        measured = interleave([*cases, Case(FLOOR, copy.run, copy.moved)], settings.samples, done=done)
        ways.clear()
    return [series if series.name == FLOOR else a_step(series, problem.steps) for series in measured]


def a_step(series: Series, steps: int) -> Series:
    """Return the samples of one step, of those of several."""
    return Series(series.name, tuple(sample / steps for sample in series.samples), steps, series.nbytes // steps,
                  series.against, series.notes)


def _against(name: str, ways: dict[str, Way]) -> tuple[str, ...]:
    return (FLOOR, *(other for other in ways if other != name)) if name == OURS else (FLOOR,)


@dataclass
class Arrays:
    """Named arrays on a device, for loops over kernels without anything around them."""

    device: Device
    shape: tuple[int, ...]
    held: dict[str, Buffer] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.stream = self.device.stream()

    def put(self, name: str, cells: np.ndarray) -> None:
        """Put a new array with these cells on the device."""
        buffer = self.held[name] = self.device.allocate(cells.nbytes, stream=self.stream)
        self.device.copy_in(buffer, bytes_of(cells), stream=self.stream)
        self.device.synchronize(stream=self.stream)

    def launch(self, kernel: CompiledKernel, grid: tuple[int, ...], block: tuple[int, ...], names: str,
               *numbers: np.generic) -> None:
        """Launch a kernel that takes arrays, their names separated by blanks, and numbers."""
        self.device.launch(kernel, grid, block, [*(self.held[name] for name in names.split()), *numbers],
                           stream=self.stream)

    def exchange(self, one: str, other: str) -> None:
        """Let two arrays have each other's names."""
        self.held[one], self.held[other] = self.held[other], self.held[one]

    def wait(self) -> None:
        self.device.synchronize(stream=self.stream)

    def corner(self, name: str, where: Slices) -> np.ndarray:
        """Return some cells of an array, from its first on."""
        cells = np.empty((where[0].stop, *self.shape[1:]), np.float32)
        self.device.copy_out(cells.reshape(-1).view(np.uint8), self.held[name], stream=self.stream)
        self.wait()
        return cells[where]

    def close(self) -> None:
        for buffer in self.held.values():
            buffer.close()
        self.held.clear()
