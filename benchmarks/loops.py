"""Costs of calls of ``iterate`` in a worker alone, by the places where they may end: ``python -m benchmarks.loops``.

A loop of heat on 64 blocks, on a device that does nothing: all that is measured is the worker's own work, as processor
time of its process, for plans that come again and for those that come once; and the functions, Python's and C's, that
one call of those that come again calls, which are as many on a busy machine. What is read back is NaN, so that a loop
that may end does not. The other node of a world is one that moves nothing either.
"""

from __future__ import annotations

import itertools
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import click
import numpy as np

from benchmarks.worker import GRID, HALO, HEAT, PARTITIONS, STENCIL, fill_grid, grid_plan
from gpu_worker.device.base import Buffer, Source, Stream
from gpu_worker.device.memory.grid.patches import Cells, Domain, lattice_of
from gpu_worker.device.null import NullDevice
from gpu_worker.exchange.base import JoinedWorld, MessageMemory, MessageSpec, Staged
from gpu_worker.execution.grid.context import GridContext
from gpu_worker.execution.grid.iterate import Loop, StencilSource, Stepper
from gpu_worker.execution.memory.scratch import Arguments, Scratch
from gpu_worker.execution.plans import plan_cache
from gpu_worker.execution.scheduling.streams import StreamPool, Streams
from gpu_worker.protocol.grids import IterateStep, Phase
from gpu_worker.protocol.messages import (
    ArgumentValue,
    Input,
    KeepStep,
    LoadStep,
    Plan,
    Release,
    Run,
    SessionOptions,
    ToDeviceStep,
)
from gpu_worker.protocol.plans import sealed
from gpu_worker.server import handlers as workers
from gpu_worker.system.crash_record import CrashRecorder

PHASE = Phase("heat", (HALO,), 0)
SHARE = ArgumentValue("<f4", (), np.float32(0.1).tobytes(), 0)
STEPS = 100


class Blank(NullDevice):
    """A device that does nothing, from which NaN is read."""

    def copy_out(self, target: np.ndarray, source: Buffer, *, stream: Stream) -> None:
        super().copy_out(target, source, stream=stream)
        target[:] = 0xFF


def loop(steps: int, until: float, every: int, check: int) -> Plan:
    """Return a plan of a loop whose result is kept."""
    inputs = tuple(Input(index, 4, 0, 0, b"", (0,) * 4, tuple(range(4 * index, 4 * index + 4)))
                   for index in range(PARTITIONS))
    step = IterateStep("iterate heat", (PHASE,), steps, 0, until, every, check)
    return grid_plan(ToDeviceStep(), step, KeepStep(1, "u", "device"), source=LoadStep(0), inputs=inputs)


def calls(worker: workers.SessionWorker, numbers: Iterator[int], plans: Sequence[Plan]) -> tuple[list[float], int]:
    """Return the processor time of calls, each on what the one before gave, and the number of functions called in the
    last, which is counted and not timed.
    """
    vrdd = next(numbers)
    fill_grid(worker, vrdd)
    seconds: list[float] = []
    counted = 0

    def count(_: Any, event: str, __: Any) -> None:
        nonlocal counted
        counted += event in ("call", "c_call")

    for plan in plans:
        key, encoded = sealed(plan)
        request = Run(vrdd, 1, 60.0, key, encoded, (vrdd, vrdd + 1), (SHARE,), released=(vrdd - 1,))
        started = time.process_time()
        sys.setprofile(count if len(seconds) == len(plans) - 1 else None)
        worker.handle(request, [])
        sys.setprofile(None)
        seconds.append(time.process_time() - started)
        vrdd += 1
    worker.handle(Release(1, (vrdd,)), [])
    return seconds[:-1], counted


class LoneWorld(JoinedWorld):
    """A world of two of which the other one gives and takes nothing, at once."""

    def __init__(self, other: bytes):
        super().__init__(b"", 0, 2)
        self.other = other

    @property
    def way(self) -> str:
        return "nothing"

    def gather(self, data: bytes) -> tuple[bytes, ...]:
        return data, self.other

    def start(self, staged: Staged, ready: Callable[[], None]) -> Future:
        done: Future = Future()
        ready()
        done.set_result(None)
        return done

    def result(self, future: Future) -> Any:
        return future.result()

    def interrupt(self) -> None:
        pass

    def _disconnect(self) -> None:
        pass

    def _stage(self, number: int, sends: tuple[MessageSpec, ...], receives: tuple[MessageSpec, ...]) -> Staged:
        memory = [MessageMemory(None, np.zeros(part.nbytes, np.uint8)) for part in (*sends, *receives)]
        return Staged(number, tuple(memory[:len(sends)]), tuple(memory[len(sends):]), lambda: None)

    def _gather(self, data: bytes) -> tuple[bytes, ...]:
        return self.gather(data)

    def _move(self, staged: Staged, ready: Callable[[], None]) -> None:
        ready()


@contextmanager
def between_nodes(steps: int) -> Iterator[Loop]:
    """Yield a loop on the half of the grid that one of two nodes has."""
    device, lattice = Blank(), lattice_of(GRID)
    numbers = range(lattice.splits[0] * lattice.splits[1] * lattice.splits[2])
    half = len(numbers) // 2
    other = Domain.of(GRID, dict.fromkeys(numbers[half:], cast(Any, device)))
    domain = Domain.of(GRID, dict.fromkeys(numbers[:half], cast(Any, device)))
    world = LoneWorld(other.described())
    domain = domain.with_ranks((domain.described(), other.described()))
    streams = Streams(StreamPool([device]), 1)
    scratch = Scratch(streams)
    context = GridContext(streams, scratch, Arguments([SHARE], None))
    cells = Cells(np.dtype("f4"),
                  tuple(context.allocate(4 * patch.layout.elements, device) for patch in domain.patches))
    world.begin(time.monotonic() + 60)
    stepper = Stepper(domain, {"": cells}, context, world)
    yield Loop(IterateStep("iterate heat", (PHASE,), steps, 0, -1.0, 1, 0), {0: StencilSource(HEAT, Source(STENCIL))},
               stepper,
               lambda: None)
    stepper.finish()


def show(name: str, seconds: Sequence[float], steps: int, functions: int | None = None) -> None:
    """Print the least and the median, and the functions that were called."""
    least, median = (1e6 * float(each) for each in np.quantile(seconds, (0, 0.5)))
    print(f"{name:58} {least:10.0f} {median:10.0f} {least / steps:12.2f} {median / steps:12.2f} "
          f"{'' if functions is None else f'{functions:12,}'}", flush=True)


class Anew(plan_cache.DecodedPlan):
    """A plan each pass of which is run anew where it tests cells, and not replayed."""

    def __init__(self, plan: Plan):
        super().__init__(plan)
        self.may_be_recorded &= not self.branches


@click.command(help=__doc__)
@click.option("--anew", is_flag=True, help="Replay no loop that tests its cells, as if such recordings were not.")
def main(anew: bool) -> None:
    if anew:
        plan_cache.DecodedPlan = Anew       # type: ignore[misc]
    workers.open_devices = lambda *_, **__: [Blank()]       # type: ignore[assignment]
    print(f"{'':58} {'us a call':>21} {'us a step':>25}")
    print(f"{'':58} " + f"{'least':>10} {'median':>10}   " * 2 + "  functions")
    numbers = itertools.count(100_000, 100_000)
    with tempfile.TemporaryDirectory() as directory:
        box = CrashRecorder(Path(directory, "box"), epoch=1)
        worker = workers.SessionWorker(SessionOptions("null", 0, 30.0, "", "info"), epoch=1, recorder=box)
        cases = {"no test": (-1.0, 1, 0), "until, every step": (0.0, 1, 0), "until, every 10th": (0.0, 10, 0),
                 "until, every 100th": (0.0, 100, 0), "check, every 10th": (-1.0, 1, 10),
                 "until and check, every 10th": (0.0, 10, 10)}
        for name, options in cases.items():
            seconds, functions = calls(worker, numbers, [loop(STEPS, *options)] * 300)
            show(f"{STEPS} steps, {name}", seconds[20:], STEPS, functions)
        for name, options in cases.items():
            once = [loop(10 * STEPS + place, *options) for place in range(10)]
            show(f"{10 * STEPS} steps in one call that comes once, {name}", calls(worker, numbers, once)[0], 10 * STEPS)
        worker.close()
    with between_nodes(10 * STEPS) as between:
        seconds = []
        for _ in range(10):
            started = time.process_time()
            between.run()
            seconds.append(time.process_time() - started)
    show(f"{10 * STEPS} steps between two nodes", seconds, 10 * STEPS)


if __name__ == "__main__":
    main()
