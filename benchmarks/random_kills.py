"""Random kills under a loop of plans: ``python -m benchmarks.random_kills --minutes 20 --out kills.jsonl``.

A victim (the device process, the daemon, both, a Python worker; on a cluster an executor, too) gets SIGKILL, or SIGSTOP
and after some seconds SIGCONT, at a moment that nobody chose. With ``--drivers`` it is the driver of another program,
whose seconds are from its kill until the worker holds nothing of it; its lease is a second. Every answer is compared,
bit for bit, with that of a run without kills; a sum over two nodes within rounding, as the node that loads a partition
decides which are added up first. Printed are kills, actions, wrong answers, errors at the user, hangs, and by kind the
seconds from a kill until the program goes on: to the end of the action under way, or of the one after it where that
takes longer. Records of several runs side by side are joined by naming them.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import click
import numpy as np

import tests.conftest  # It sets the environment before Spark is started.
from gpu_worker.client.connection import administer
from gpu_worker.protocol.messages import Status
from gpu_worker.system.failpoints import VARIABLE
from tests import leaks
from tests.chaos.arena import PLANS, Arena, expected_of, opened
from tests.system import topology
from vispark.errors import VisparkError
from vispark.runtime.driver.spark_errors import SPARK_JOB_FAILED

__all__ = ["main", "tests"]

#: Seconds that an action may take before it counts as one that hangs.
HANG_SECONDS = 120.0

#: Seconds after a plan began at which a kill comes, and that a stopped process stands still, at most.
_SOON, _STOPPED = 0.6, 2.0
#: Seconds for which a driver that is killed keeps what it held.
LEASE = 1.0


def python_workers(arena: Arena) -> list[int]:
    """Return one of the processes in which this arena's Python tasks run."""
    processes = leaks.processes_with(VARIABLE, str(arena.failpoints))
    servers = {process.pid for process in processes if "daemon" in process.command and "pyspark" in process.command}
    return [process.pid for process in processes if process.parent in servers][:1]


def executors(arena: Arena) -> list[int]:
    """Return one of the executors."""
    pids = [process.pid for process in leaks.processes_with(VARIABLE, str(arena.failpoints))
            if "CoarseGrainedExecutorBackend" in process.command]
    return pids[:1]


VICTIMS: Mapping[str, Callable[[Arena], list[int]]] = {
    "device process": Arena.device_processes,
    "daemon": Arena.daemons,
    "both": lambda arena: arena.daemons() + arena.device_processes(),
    "Python worker": python_workers,
    "executor": executors,
}


@dataclass(frozen=True)
class Blow:
    """Outcome of a kill: the seconds are from the kill on, and without it for the same plans."""

    kind: str
    plan: str
    hit: int
    seconds: float
    undisturbed: float
    wrong: int
    lost: int
    error: str = ""


def strike(pids: Iterable[int], stopped: float) -> int:
    """Kill processes, or stop them for so many seconds; how many there were."""
    hit = []
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP if stopped else signal.SIGKILL)
            hit.append(pid)
    if stopped:
        time.sleep(stopped)
        for pid in hit:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
    return len(hit)


class Campaign:
    """Kills one after another, each under a plan."""

    def __init__(self, arena: Arena, seed: int):
        self._arena, self._draw = arena, random.Random(seed)
        self._expected = expected_of(arena)
        #: Which partitions are added up first, where several nodes have some, is not for ever.
        self._rounded = {"reduce"} if len(arena.nodes) > 1 else set()
        self._usual = {name: self._timed(name)[0] for name in PLANS}
        self.actions = 0

    def _timed(self, name: str) -> tuple[float, object]:
        began = time.monotonic()
        answer = self._arena.answer(name)
        return time.monotonic() - began, answer

    def _is_wrong(self, name: str, answer: object) -> bool:
        expected = self._expected[name]
        if name not in self._rounded:
            return answer != expected
        sums = [np.frombuffer(one[-1], np.float64) for one in (answer, expected)]
        return answer[:-1] != expected[:-1] or not np.allclose(*sums, rtol=1e-13, atol=1e-13)

    def driver(self) -> Blow:
        """Kill another program's driver; this one's plans must not notice, and the worker gives back what it held."""
        node = self._arena.nodes[0]
        environment = os.environ | {"VISPARK_RUNTIME_DIR": str(node.runtime_dir)}
        with subprocess.Popen([sys.executable, "-m", "tests.chaos.driver", str(LEASE)], stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, text=True, env=environment) as other:
            assert other.stdout.readline() == "ready\n"
            time.sleep(self._draw.uniform(0, _SOON))
            other.kill()
        began, name = time.monotonic(), self._draw.choice(list(PLANS))
        wrong = self._is_wrong(name, self._timed(name)[1])
        self.actions += 1
        while len(administer(Status(), runtime_dir=str(node.runtime_dir)).sessions) > 1:
            time.sleep(0.01)
        return Blow("kill driver", name, 1, time.monotonic() - began, self._usual[name], int(wrong), 0)

    def blow(self, victim: str) -> Blow:
        """Kill once: the plan under it, then others until it has come, and one after it."""
        stopped = self._draw.uniform(0.1, _STOPPED) if self._draw.random() < 1 / 3 else 0.0
        delay, struck, hit = self._draw.uniform(0, _SOON), [0.0], [0]

        def soon() -> None:
            pids = VICTIMS[victim](self._arena)
            struck[0] = time.monotonic()
            hit[0] = strike(pids, stopped)

        timer = threading.Timer(delay, soon)
        timer.start()
        names, wrong, lost, error, longest, last = [], 0, 0, "", 0.0, False
        while not last:
            last = bool(struck[0])
            name = self._draw.choice(list(PLANS))
            names.append(name)
            began = time.monotonic()
            try:
                wrong += self._is_wrong(name, self._timed(name)[1])
            except (VisparkError, *SPARK_JOB_FAILED) as failed:
                lost, error = lost + 1, f"{type(failed).__name__}: {failed}"[:500]
            self.actions += 1
            if struck[0]:
                longest = max(longest, time.monotonic() - max(began, struck[0]))
        timer.join()
        usual = max(self._usual[name] for name in names[-2:])
        return Blow(f"{'stop' if stopped else 'kill'} {victim}", names[-1], hit[0], longest, usual, wrong, lost, error)


def summary(blows: list[Blow], actions: int) -> str:
    """Return the table that is printed."""
    def row(name: str, struck: list[Blow]) -> str:
        seconds = "".join(f"{each:8.2f}" for each in np.percentile([blow.seconds for blow in struck], [50, 95, 100]))
        return (f"{name:22}{sum(blow.hit for blow in struck):7}{sum(blow.wrong for blow in struck):7}"
                f"{sum(blow.lost for blow in struck):6}{seconds}")

    kinds = Counter(blow.kind for blow in blows)
    lines = [f"{actions:,} actions, no hang" if actions else f"{len(blows):,} kills and stops",
             f"{'kind':22}{'kills':>7}{'wrong':>7}{'lost':>6}{'p50 s':>8}{'p95 s':>8}{'max s':>8}"]
    lines += [row(kind, [blow for blow in blows if blow.kind == kind]) for kind in sorted(kinds)]
    return "\n".join([*lines, *([row("all", blows)] if blows else [])])


@click.command(help=__doc__)
@click.option("--kills", type=click.IntRange(1), default=1000, show_default=True)
@click.option("--minutes", type=float, default=20.0, show_default=True, help="It ends then, whatever was done.")
@click.option("--cluster", is_flag=True, help="Two executors under a standalone master, on nodes of their own.")
@click.option("--drivers", is_flag=True, help="Kill drivers of other programs alone.")
@click.option("--seed", type=int, default=1, show_default=True)
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Where each kill goes, a line of JSON.")
@click.argument("records", nargs=-1, type=click.Path(exists=True, dir_okay=False, path_type=Path))
def main(records: tuple[Path, ...], kills: int, minutes: float, cluster: bool, drivers: bool, seed: int,
         out: Path | None) -> None:
    if records:
        known = [Blow(**json.loads(line)) for path in records for line in path.read_text(encoding="utf-8").splitlines()]
        print(summary(known, 0))
        return
    until, blows = time.monotonic() + 60 * minutes, []
    with (topology.standalone(2) if cluster else topology.local(2)) as running, opened(running) as arena:
        campaign = Campaign(arena, seed)
        victims = [victim for victim in VICTIMS if cluster or victim != "executor"]
        for number in range(kills):
            if time.monotonic() > until:
                break
            faulthandler.dump_traceback_later(HANG_SECONDS, exit=True)      # a hang: where all threads stand
            blows.append(campaign.driver() if drivers else campaign.blow(victims[number % len(victims)]))
            faulthandler.cancel_dump_traceback_later()
            if out:
                with out.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(asdict(blows[-1])) + "\n")
        arena.check_empty()
    print(summary(blows, campaign.actions))
    sys.exit(any(blow.wrong or blow.lost for blow in blows))


if __name__ == "__main__":
    main()
