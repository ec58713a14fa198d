"""Costs of snapshots for a long loop on a grid: its time a step without them, with their share of it, and with many.

    python -m benchmarks.snapshots --cells 1000 --out snapshots.json

The loop is the heat equation's, in one call and step by step from the driver. Samples with each share take turns in one
session; the first snapshots, for which workers make memory, are told apart from the others, which use it again.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import click
from pyspark import SparkContext

from benchmarks import machine
from benchmarks.heat import Cube, ours
from benchmarks.session import context, environment
from benchmarks.solvers import Way
from vispark.runtime.driver.session import Session
from vispark.runtime.driver.snapshots import SnapshotSchedule

#: Of the time that snapshots may cost: none, as many as by default at most, and many.
SHARES = (0.0, 0.02, 0.5)
#: Snapshots for which workers make memory.
_FIRST = 3
#: Under it the share alone says how many there are.
_TIME_TO_LOSS = 1e-9


def timed(way: Way, steps: int) -> float:
    """Return the seconds that a step takes."""
    started = time.monotonic()
    way.advance(steps)
    return (time.monotonic() - started) / steps


def lasting(way: Way, seconds: float) -> int:
    """Return the number of steps that take so many seconds, once a call of so many has been worked out and compiled."""
    steps = 8
    way.advance(steps)
    while (taken := timed(way, steps) * steps) < seconds / 4:
        steps = round(steps * min(16.0, seconds / taken))
        way.advance(steps)
    return max(1, round(steps * seconds / taken))


def sample(session: Session, way: Way, steps: int, share: float, seconds_per_byte: float) -> dict[str, object]:
    """Do a number of steps with a share of the time for snapshots, which are known to cost so much."""
    snapshots = session.snapshots
    before = snapshots.taken
    pace = snapshots.pace = SnapshotSchedule(share, _TIME_TO_LOSS, seconds_per_byte=seconds_per_byte)
    a_step = timed(way, steps)
    pace.share = 0.0
    while snapshots.is_taking():
        way.advance(1)
        time.sleep(0.05)
    return {"share": share, "steps": steps, "seconds_a_step": a_step, "snapshots": snapshots.taken - before,
            "snapshots_s": round(pace.spent, 4)}


def measured(session: Session, way: Way, seconds: float, samples: int, figures: dict, done: Callable[[], None]) -> None:
    """Find a way's figures by samples of some seconds; ``done`` is called whenever there are more."""
    session.snapshots.pace = SnapshotSchedule(0.0, _TIME_TO_LOSS)
    steps = lasting(way, seconds)
    for _ in range(_FIRST):
        figures["first"].append(sample(session, way, steps, SHARES[1], 0.0))
    latest = session.snapshots.latest()
    if latest is None:
        raise RuntimeError("no snapshot is complete")
    figures["latest"] = {"bytes": latest.nbytes, "seconds": latest.seconds}
    for _ in range(samples):
        for share in SHARES:
            figures["samples"].append(sample(session, way, steps, share, latest.seconds / latest.nbytes))
            figures["slower"] = _slower(figures["samples"])
            done()


def _slower(samples: Sequence[dict]) -> dict[str, float]:
    """Return, by share, the time that the median step took longer than without snapshots, as a part of that."""
    steps = {share: [each["seconds_a_step"] for each in samples if each["share"] == share] for share in SHARES}
    calm = statistics.median(steps[0.0])
    return {str(share): round(statistics.median(found) / calm - 1, 5) for share, found in steps.items() if found}


def run(sc: SparkContext, cube: Cube, seconds: float, samples: int, figures: dict, out: Path) -> None:
    """Measure both ways; the figures are written after every sample."""
    def write() -> None:
        out.write_text(json.dumps(figures, indent=1) + "\n")

    for name, way in ours(sc, cube).items():
        notes = figures["ways"][name] = {"first": [], "samples": []}
        measured(Session.of(sc), way, seconds, samples, notes, write)
        print(name, {"first": notes["first"], "slower": notes["slower"]}, flush=True)


@click.command(help=__doc__)
@click.option("--cells", default=1000, show_default=True, help="Of each axis.")
@click.option("--splits", default=4, show_default=True, help="Of each axis.")
@click.option("--device", default="cuda", show_default=True)
@click.option("--seconds", default=4.0, show_default=True, help="Of a sample.")
@click.option("--samples", default=3, show_default=True, help="With each share.")
@click.option("--out", type=click.Path(path_type=Path), default=Path("snapshots.json"), show_default=True)
def main(cells: int, splits: int, device: str, seconds: float, samples: int, out: Path) -> None:
    figures = {"machine": machine.description(), **machine.commit(), "cells": cells, "splits": splits,
               "device": device, "dtype": "float32", "ways": {}}
    with environment(), context(device, machine.cores()) as sc:
        run(sc, Cube((cells,) * 3, (splits,) * 3, 1), seconds, samples, figures, out)


if __name__ == "__main__":
    main()
