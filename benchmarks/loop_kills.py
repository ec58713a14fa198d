"""Kills at random moments of long loops on a grid; run by hand.

    python -m benchmarks.loop_kills --kills 60 --out benchmarks/results/kills/loops.jsonl
    python -m benchmarks.loop_kills --summary benchmarks/results/kills/loops.jsonl

The loops are those of tests/chaos/loops.py, in one call and step by step, on one node and on two and four whose halos
go by MPI, or by UCX with ``--exchange ucx``, where no node has a rank of its own. Each kill is a SIGKILL of a node's
device process or of its daemon; where there are several nodes, also of both at once, as if a node was lost, or of the
node's rank. Counted are final fields that differ from the undisturbed run's in a bit, steps that were done once more,
and seconds that were lost.

The record has a line for each run, which is added to it at once: a campaign that is cut short keeps what it found, and
``cat`` joins the records of several that ran side by side.
"""

from __future__ import annotations

import json
import random
import statistics
import sys
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np

import tests.conftest  # It sets the environment before Spark is started.
from benchmarks import machine
from gpu_worker.protocol import exchange_kinds
from tests.chaos.loops import OPTIONS, Track, tracks
from tests.system import topology
from vispark import VisparkError

__all__ = ["main", "tests"]

#: Nodes, the loop, the steps to begin with, and its share of the kills.
CASES = ((1, "iterate", 20_000, 0.3), (1, "listing", 1000, 0.3), (2, "iterate", 500, 0.15), (2, "listing", 250, 0.15),
         (4, "iterate", 150, 0.1))
_UNDISTURBED = 3
#: Errors after which a loop's campaign ends.
_ERRORS = 3
_KILLS_A_RUN = 3


@dataclass(frozen=True)
class LineFile:
    """File of what came of campaigns: lines of JSON, each of which names its campaign."""

    path: Path | None
    campaign: str

    def add(self, **line: object) -> None:
        if self.path:
            with self.path.open("a") as file:
                file.write(json.dumps({"campaign": self.campaign} | line) + "\n")


@dataclass(frozen=True)
class KilledLoop:
    """A loop to kill under: on so many nodes, of so many steps at first and then of about so many seconds."""

    nodes: int
    name: str
    first_steps: int
    seconds: float
    exchange: str

    @property
    def kinds(self) -> tuple[str, ...]:
        """What is killed, each as often as it stands here."""
        if self.nodes == 1:
            return "process", "process", "daemon"
        return ("process", "process", "daemon", "node") + ("rank",) * (self.exchange == "mpi")

    def __str__(self) -> str:
        return f"{self.name} on {self.nodes}"

    def steps(self, track: Track) -> int:
        """Return the number of steps that take that long."""
        steps = self.first_steps
        while (seconds := track.run(self.name, steps).seconds) < self.seconds / 2:
            steps = round(steps * min(8.0, self.seconds / seconds))
        return steps


def campaign(track: Track, loop: KilledLoop, kills: int, until: float, choice: random.Random, record: LineFile) -> None:
    """Run a loop until it was killed under so many times, or until a time of the monotonic clock."""
    steps = loop.steps(track)
    calm = [track.run(loop.name, steps) for _ in range(_UNDISTURBED)]
    seconds = statistics.median(each.seconds for each in calm)
    record.add(loop=str(loop), steps=steps, undisturbed_s=[round(each.seconds, 3) for each in calm],
               snapshots=[each.snapshots for each in calm],
               wrong=sum(not np.array_equal(each.field, calm[0].field) for each in calm))
    struck = errors = 0
    while struck < kills and errors < _ERRORS and time.monotonic() < until:
        most = min(_KILLS_A_RUN, kills - struck)
        try:
            ended = track.run(loop.name, steps, choice, most, longest=max(seconds / 2, 1.0), kinds=loop.kinds)
        except VisparkError as error:
            errors += 1
            record.add(loop=str(loop), error=f"{type(error).__name__}: {error}")
            continue
        struck += len(ended.kills)
        record.add(loop=str(loop), kills=ended.kills, seconds=round(ended.seconds, 3), steps_again=ended.replayed,
                   restored=ended.restored, wrong=int(not np.array_equal(ended.field, calm[0].field)))
        print(loop, ended.kills, f"{ended.seconds:.1f} s, {ended.replayed} steps again", flush=True)


@dataclass(frozen=True)
class ChosenCampaigns:
    """Campaigns that are asked for, by the options of the program."""

    kills: int
    only: tuple[str, ...]
    seconds: float
    loop_seconds: float
    device: str
    memory: str
    exchange: str
    seed: int
    out: Path | None


def run(wanted: ChosenCampaigns) -> None:
    """Run campaigns of the loops that are asked for, each with its share of the kills and of the time."""
    options = OPTIONS | {"spark.vispark.device": wanted.device, "spark.vispark.memory": wanted.memory,
                         "spark.vispark.exchange": wanted.exchange}
    record = LineFile(wanted.out, uuid.uuid4().hex[:8])
    record.add(machine=machine.description(), **machine.commit(), seed=wanted.seed,
               options={name: str(value) for name, value in options.items()})
    choice, until = random.Random(wanted.seed), time.monotonic() + wanted.seconds
    cases = [case for case in CASES if not wanted.only or f"{case[1]} on {case[0]}" in wanted.only]
    shares = [case[-1] for case in cases]
    for nodes in dict.fromkeys(nodes for nodes, *_ in cases):
        with tracks(nodes, options) as track:
            for index, (on, name, steps, share) in enumerate(cases):
                if on != nodes:
                    continue
                kills = max(1, round(wanted.kills * share / sum(shares)))
                now = time.monotonic()
                campaign(track, KilledLoop(nodes, name, steps, wanted.loop_seconds, wanted.exchange), kills,
                         now + (until - now) * share / sum(shares[index:]), choice, record)
    topology.shutdown()


def summary(lines: Iterable[str]) -> dict[str, dict]:
    """Summarize what a record says of each loop on each device and machine."""
    heads: dict[str, dict] = {}
    calm: dict[tuple[str, str], float] = {}
    runs: defaultdict[str, list[dict]] = defaultdict(list)
    for line in map(json.loads, lines):
        of = line["campaign"]
        if "machine" in line:
            heads[of] = line
            continue
        on = heads[of]
        options = on["options"]
        place = ", ".join([line["loop"], options["spark.vispark.device"], options.get("spark.vispark.exchange", "mpi"),
                           f"{on['machine']['cores']} cores"])
        if "undisturbed_s" in line:
            calm[of, line["loop"]] = statistics.median(line["undisturbed_s"])
        runs[place].append(line | {"calm": calm[of, line["loop"]]})
    return {place: _figures(found) for place, found in runs.items()}


def _figures(runs: list[dict]) -> dict:
    killed = [each for each in runs if each.get("kills")]
    lost = [(each["seconds"] - each["calm"]) / len(each["kills"]) for each in killed] or [0.0]
    again = [each["steps_again"] / len(each["kills"]) for each in killed] or [0]
    return {
        "kills": dict(Counter(kind for each in killed for kind in each["kills"])),
        "runs": len(killed),
        "wrong": sum(each.get("wrong", 0) for each in runs),
        "errors": [each["error"] for each in runs if "error" in each],
        "went_back_to_snapshots": sum(each["restored"] for each in killed),
        "lost_s_per_kill": {"median": round(statistics.median(lost), 2), "max": round(max(lost), 2)},
        "steps_again_per_kill": {"median": round(statistics.median(again), 1), "max": round(max(again), 1)},
    }


def _outcome(paths: Iterable[Path]) -> int:
    """Print what some records say; return 1 if anything in them is wrong."""
    places = summary(line for path in paths for line in path.read_text().splitlines())
    for place, figures in places.items():
        print(place, json.dumps(figures))
    kills = sum(sum(each["kills"].values()) for each in places.values())
    bad = [place for place, each in places.items() if each["wrong"] or each["errors"]]
    print(f"{kills} kills; wrong or failed: {bad or 'none'}")
    return 1 if bad else 0


@click.command(help=__doc__)
@click.argument("records", type=click.Path(exists=True, path_type=Path), nargs=-1)
@click.option("--summary", is_flag=True, help="Say what the records have, and run nothing.")
@click.option("--kills", default=60, show_default=True, help="In all.")
@click.option("--only", multiple=True, help="A loop and its nodes, as 'iterate on 1'; may be given several times.")
@click.option("--seconds", default=float("inf"), help="After which no run begins.")
@click.option("--loop-seconds", default=3.0, show_default=True, help="Of an undisturbed run.")
@click.option("--device", default="host", show_default=True)
@click.option("--memory", default="0", help="Of a device, at most.")
@click.option("--exchange", type=click.Choice(exchange_kinds.names()), default="mpi", show_default=True)
@click.option("--seed", type=int, default=lambda: time.time_ns() % 10**6, help="Another one each time if left out.")
@click.option("--out", type=click.Path(path_type=Path), help="The record that is added to.")
def main(records: tuple[Path, ...], summary: bool, out: Path | None, **options: Any) -> None:
    if bool(records) != summary:
        raise click.UsageError("--summary takes records, and a campaign takes none")
    if not summary:
        run(ChosenCampaigns(**options, out=out))
        records = (out,) if out else ()
    sys.exit(_outcome(records))


if __name__ == "__main__":
    main()
