"""Kills at every fail-point, many times each, with a plan in flight; run by hand.

    python -m benchmarks.kills --kills 20 --out benchmarks/results/kills/2core.json

Each kill is a SIGKILL of whoever passes the point (the daemon, the device process, or a Python worker of Spark) under
one of the plans of tests/chaos/arena.py, in turn. Counted are answers that differ from the undisturbed one in a bit,
partitions loaded without need, and the seconds that the longer of the disturbed plan and the one after it took.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections import Counter
from pathlib import Path

import click

import tests.conftest  # It sets the environment before Spark is started.
from benchmarks import machine
from tests.chaos.arena import PLANS, POINTS, Arena, Strike, expected_of, opened, plans_through, strike
from tests.system import topology

__all__ = ["main", "tests"]


def campaign(arena: Arena, kills: int) -> dict[str, dict]:
    """Kill at every point; return the figures by point."""
    expected, figures = expected_of(arena), {}
    for shift, point in enumerate(POINTS):
        plans = plans_through(point)
        names = [plans[(shift + number) % len(plans)] for number in range(kills)]
        strikes = [strike(arena, point, name, expected[name], number) for number, name in enumerate(names)]
        figures[point] = _figures(names, strikes)
        print(f"{point:18}", {key: figures[point][key] for key in ("wrong", "median_s", "max_s")}, flush=True)
    arena.check_empty()
    return figures


def _figures(names: list[str], strikes: list[Strike]) -> dict:
    seconds = [each.seconds for each in strikes]
    return {
        "kills": len(strikes),
        "wrong": sum(not each.right for each in strikes),
        "loaded_without_need": sum(not each.frugal for each in strikes),
        "median_s": round(statistics.median(seconds), 3),
        "max_s": round(max(seconds), 3),
        "plans": dict(Counter(names)),
        "samples_s": [round(each, 4) for each in seconds],
    }


def undisturbed(arena: Arena, times: int) -> dict[str, float]:
    """Return the median seconds of each plan without a kill."""
    medians = {}
    for name, plan in PLANS.items():
        samples = []
        for _ in range(times):
            subject, _ = plan.prepare(arena, None)
            started = time.monotonic()
            plan.run(subject)
            samples.append(time.monotonic() - started)
        medians[name] = round(statistics.median(samples), 4)
    return medians


@click.command(help=__doc__)
@click.option("--kills", default=20, show_default=True, help="At each fail-point.")
@click.option("--out", type=click.Path(path_type=Path), help="Where the figures go, as JSON.")
def main(kills: int, out: Path | None) -> None:
    with topology.local(2) as running, opened(running) as arena:
        figures = {
            "machine": machine.description(),
            "undisturbed_s": undisturbed(arena, 5),
            "points": campaign(arena, kills),
        }
    topology.shutdown()
    if out:
        out.write_text(json.dumps(figures, indent=1) + "\n")
    bad = [point for point, each in figures["points"].items() if each["wrong"] or each["loaded_without_need"]]
    print(f"{sum(each['kills'] for each in figures['points'].values())} kills; wrong or wasteful at: {bad or 'none'}")
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
