"""Kills at random moments of long loops on a grid; run by hand.

    python -m benchmarks.loop_kills --kills 60 --out benchmarks/results/kills/loops-2core.json

The loops are those of tests/chaos/loops.py, in one call and step by step, on one node and on two and four whose halos
go by MPI. Each kill is a SIGKILL of a node's device process, or one time in three of its daemon. Counted are final
fields that differ from the undisturbed run's in a bit, steps that were done once more, and seconds that were lost.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import tests.conftest  # It sets the environment before Spark is started.
from benchmarks import machine
from tests.chaos.loops import OPTIONS, Ended, Track, tracks
from tests.system import topology
from vispark import VisparkError

__all__ = ["main", "tests"]

#: Nodes, the loop, its steps, and its share of the kills.
CASES = ((1, "iterate", 200_000, 0.3), (1, "listing", 2000, 0.3), (2, "iterate", 500, 0.15), (2, "listing", 250, 0.15),
         (4, "iterate", 150, 0.1))
_UNDISTURBED = 3


def campaign(track: Track, loop: str, steps: int, kills: int, choice: random.Random) -> dict:
    """Run a loop until it was killed under so many times; the figures."""
    calm = [track.run(loop, steps) for _ in range(_UNDISTURBED)]
    seconds = statistics.median(each.seconds for each in calm)
    found: list[Ended] = []
    errors: list[str] = []
    wrong = sum(not np.array_equal(each.field, calm[0].field) for each in calm)
    while (struck := sum(len(each.kills) for each in found)) < kills and len(errors) < 3:
        try:
            ended = track.run(loop, steps, choice, min(3, kills - struck), longest=max(seconds / 2, 1.0))
        except VisparkError as error:
            errors.append(f"{type(error).__name__}: {error}")
            continue
        wrong += not np.array_equal(ended.field, calm[0].field)
        if ended.kills:
            found.append(ended)
        print(loop, ended.kills, f"{ended.seconds:.1f} s, {ended.replayed} steps again", flush=True)
    return {"steps": steps, "undisturbed_s": [round(each.seconds, 3) for each in calm],
            "snapshots_undisturbed": [each.snapshots for each in calm], "wrong": wrong, "errors": errors,
            **_figures(found, seconds)}


def _figures(found: Sequence[Ended], seconds: float) -> dict:
    lost = [(each.seconds - seconds) / len(each.kills) for each in found]
    again = [each.replayed / len(each.kills) for each in found]
    return {
        "kills": dict(Counter(kind for each in found for kind in each.kills)),
        "runs": len(found),
        "went_back_to_snapshots": sum(each.restored for each in found),
        "lost_s_per_kill": {"median": round(statistics.median(lost), 2), "max": round(max(lost), 2)},
        "steps_again_per_kill": {"median": round(statistics.median(again), 1), "max": round(max(again), 1)},
        "samples": [[*each.kills, round(each.seconds, 2), each.replayed] for each in found],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=60, help="in all")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 10**6)
    parser.add_argument("--out", type=Path, help="where the figures go, as JSON")
    arguments = parser.parse_args()
    choice = random.Random(arguments.seed)
    found: dict[str, dict] = {}
    figures = {"machine": machine.description(), **machine.commit(), "seed": arguments.seed,
               "options": {name: str(value) for name, value in OPTIONS.items()}, "loops": found}
    for nodes in dict.fromkeys(nodes for nodes, *_ in CASES):
        with tracks(nodes) as track:
            for loop, steps, share in [case[1:] for case in CASES if case[0] == nodes]:
                kills = max(1, round(share * arguments.kills))
                found[f"{loop} on {nodes}"] = campaign(track, loop, steps, kills, choice)
                if arguments.out:       # After each, as the whole takes long.
                    arguments.out.write_text(json.dumps(figures, indent=1) + "\n")
    topology.shutdown()
    bad = [name for name, each in found.items() if each["wrong"] or each["errors"]]
    print(f"{sum(sum(each['kills'].values()) for each in found.values())} kills; wrong or failed: {bad or 'none'}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
