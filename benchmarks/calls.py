"""Costs of a call of ``iterate`` beside its steps, split into phases: ``python -m benchmarks.calls DEVICE [FILE]``.

Heat and Navier-Stokes as ``heat.py`` and ``flow.py`` call them, on 64 blocks: a call of ``iterate`` and a look at one
cell. Each on few cells, where there is next to nothing but what a call costs, and on a GPU on many too, where the
devices' part is taken off, as the worker tells it: from the last thing enqueued to when it is complete. Heat also with
``until``, which is tested after the last step of a call: such a call is waited for.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import wraps
from pathlib import Path
from typing import Any

import click
import numpy as np
from pyspark import SparkContext

from benchmarks import flow, heat, machine
from benchmarks.session import context, environment
from vispark import Grid
from vispark.runtime.driver.pipeline import PendingRequest, RequestPipeline

#: What ends where a call's stamps are, in their order.
PHASES = ("recorded", "the loop's message", "sent", "the look's message", "sent too", "the loop's answer",
          "the look's answer", "seen")
#: The same of a loop that is waited for.
WAITED = ("recorded", "the loop's message", "sent", "the loop's answer", "the look's message", "sent too",
          "the look's answer", "seen")


@dataclass(frozen=True)
class CalledLoop:
    """A loop to call again and again."""

    name: str
    grid: Grid
    start: Any
    phases: list
    steps: int
    samples: int
    until: float | None = None


@dataclass
class Stamps:
    """Moments of the phases of a call, and the seconds that devices took for its plans."""

    times: list[float] = field(default_factory=list)
    devices: list[float] = field(default_factory=list)

    def clear(self) -> None:
        self.times.clear()
        self.devices.clear()

    def put(self) -> None:
        self.times.append(time.perf_counter())


def cases(device: str) -> Iterator[CalledLoop]:
    """Yield the loops, on few cells, and on a GPU on many."""
    fields = dict.fromkeys(flow.FIELDS, 0.0) | {name: flow.initial(name) for name in ("u", "v")}
    sizes = [("few", (64, 64, 64), (256, 256), 200)]
    if device == "cuda":
        sizes.append(("many", (800, 1000, 1000), (16384, 8192), 8))
    for cells, cube, plane, samples in sizes:
        steps = CalledLoop(f"heat, {cells} cells", Grid(cube, splits=(4, 4, 4), halo=1, boundary=0.0), heat.initial,
                           [(heat.heat, (heat.NUMBER,))], 100, samples)
        yield steps
        yield replace(steps, name=f"{steps.name}, until", until=0.0)
        yield CalledLoop(f"Navier-Stokes, {cells} cells",
                         Grid(plane, splits=(8, 8), halo=1, boundary=0.0, fields=flow.FIELDS), fields, flow.PHASES, 10,
                         samples)


@contextmanager
def stamped(stamps: Stamps) -> Iterator[None]:
    """Take down when plans are sent and their answers are there."""
    kept_send, kept_take = RequestPipeline.send, RequestPipeline._take

    @wraps(kept_send)
    def send(pipeline: RequestPipeline, *arguments: Any) -> PendingRequest:
        stamps.put()
        pending = kept_send(pipeline, *arguments)
        stamps.put()
        return pending

    @wraps(kept_take)
    def take(pipeline: RequestPipeline) -> None:
        pending = pipeline._waiting[0]
        kept_take(pipeline)
        stamps.put()
        stamps.devices.append(pending.answer[0].times.total if pending.answer else 0.0)

    RequestPipeline.send, RequestPipeline._take = send, take        # type: ignore[method-assign]
    try:
        yield
    finally:
        RequestPipeline.send, RequestPipeline._take = kept_send, kept_take      # type: ignore[method-assign]


def measure(sc: SparkContext, case: CalledLoop, done: Callable[[dict], None]) -> None:
    """Call a loop, and tell what of it took how long."""
    held = [case.grid.scatter(sc, case.start).cache("GPU")]
    held[0].count()
    stamps, samples = Stamps(), []

    def call() -> float:
        stamps.clear()
        started = time.perf_counter()
        held[0] = held[0].iterate(case.phases, steps=case.steps, until=case.until, every=case.steps, progress=False)
        stamps.put()
        Grid.gather(held[0], (np.s_[:1],) * case.grid.ndim)
        stamps.put()
        return started

    with stamped(stamps):
        for _ in range(10):
            call()
        for _ in range(case.samples):
            started = call()
            if len(stamps.times) == len(PHASES):        # else a snapshot was taken, or the loop was in parts
                samples.append({"phases": np.diff([started, *stamps.times]).tolist(), "devices": stamps.devices[:]})
    done({"name": case.name, "steps": case.steps, "calls": case.samples, "samples": samples,
          "phases": PHASES if case.until is None else WAITED})


def show(loop: dict) -> None:
    """Print the quantiles of a loop's calls and of their phases."""
    if not loop["samples"]:
        print(f"\n{loop['name']}: no call was two messages")
        return
    phases = 1e6 * np.array([each["phases"] for each in loop["samples"]])
    devices = 1e6 * np.array([each["devices"][0] for each in loop["samples"]])
    print(f"\n{loop['name']}, {loop['steps']} steps a call, {len(phases)} of {loop['calls']} calls in two messages; "
          "microseconds: least, first quarter, median")
    whole = phases.sum(axis=1)
    lines = {"a call": whole, "the loop, from enqueued to complete": devices, "beside that": whole - devices,
             **dict(zip(loop["phases"], phases.T, strict=True))}
    for name, values in lines.items():
        print(f"  {name:36}" + "".join(f"{value:12.0f}" for value in np.quantile(values, (0, 0.25, 0.5))), flush=True)


@click.command(help=__doc__)
@click.argument("device", default="null")
@click.argument("file", type=click.Path(path_type=Path), required=False)
def main(device: str, file: Path | None) -> None:
    loops: list[dict] = []

    def done(loop: dict) -> None:
        loops.append(loop)
        show(loop)
        if file is not None:
            about = {"device": device, **machine.commit(), "machine": machine.description()}
            file.write_text(json.dumps(about | {"loops": loops}))

    with environment(), context(device, machine.cores()) as sc:
        for case in cases(device):
            measure(sc, case, done)


if __name__ == "__main__":
    main()
