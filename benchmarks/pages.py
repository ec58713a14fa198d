"""Cost for a loop's speed that somebody watches it: with the page of its node open, and without, in turn.

    python -m benchmarks.pages [SECONDS]

First it asks the daemon for its report POLLS times, one after the other, and prints the processors' seconds that daemon
and device process take for one: as a dashboard asks once a second, whatever the number of viewers, this is the share of
a processor that a page costs, which other programs on the machine hardly change.

Samples are short and come in pairs, whose order changes from pair to pair, so that what else the machine does falls
on both. Beside the rate of actions they have the seconds of processors that driver, daemon and device process took
for an action, which depend less on that. A viewer takes the events of a dashboard that asks the daemon once a second;
a browser would do the same, and draw. Dashboard and viewer are in a process of their own, as a user's are.
"""

from __future__ import annotations

import http.client
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import numpy as np

import vispark
from benchmarks.session import context, environment
from gpu_worker.commands.monitor import samples
from gpu_worker.commands.monitor.dashboard import Dashboard
from gpu_worker.commands.web import server
from gpu_worker.system.paths import VARIABLE, locate
from tests import leaks

#: Seconds of a sample: some requests of the dashboard's.
SAMPLE_SECONDS = 3.0

#: How often the daemon is asked for its report.
POLLS = 500

_SERVE = "--serve"


@contextmanager
def watched(runtime_dir: str) -> Iterator[None]:
    """Have a viewer follow the dashboard of a node during the block, in this process."""
    sock = server.listen("127.0.0.1", 0)
    host, port = sock.getsockname()
    shown = Dashboard(locate(runtime_dir), sock)
    serving = threading.Thread(target=shown.run)
    serving.start()
    connection = http.client.HTTPConnection(host, port, timeout=60)
    connection.request("GET", "/events", headers={"Authorization": f"Bearer {shown.access.secret}"})
    viewing = threading.Thread(target=_follow, args=(connection.getresponse(),))
    viewing.start()
    try:
        yield
    finally:
        shown.stop()
        serving.join()
        viewing.join()
        connection.close()


def _follow(stream: http.client.HTTPResponse) -> None:
    while stream.readline():
        pass


def serve() -> None:
    """Open the page of the node, for each two lines of the standard input from the first to the second."""
    for _ in sys.stdin:
        with watched(os.environ[VARIABLE]):
            print("open", flush=True)
            sys.stdin.readline()
        print("closed", flush=True)


class Viewer:
    """A process with a page that can be opened and closed."""

    def __init__(self) -> None:
        self.process = subprocess.Popen([sys.executable, "-m", "benchmarks.pages", _SERVE], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)

    def turn(self) -> None:
        """Open the page, or close it, and wait until that is done."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline()

    def end(self) -> None:
        """End the process, whose page is closed."""
        self.process.communicate()


def _processor_seconds() -> float:
    """Return the seconds that this process, the daemon and its device processes have had of processors."""
    numbers = [os.getpid(), *(each.pid for each in leaks.processes_of(os.environ[VARIABLE])
                              if "benchmarks.pages" not in each.command)]
    times = (Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[11:13] for number in set(numbers))
    return sum(map(int, (ticks for pair in times for ticks in pair))) / os.sysconf("SC_CLK_TCK")


def _processor_nanoseconds() -> int:
    """Return the nanoseconds of processors that the daemon and its device processes have had."""
    tasks = (task for each in leaks.processes_of(os.environ[VARIABLE]) if "benchmarks.pages" not in each.command
             and each.pid != os.getpid() for task in Path(f"/proc/{each.pid}/task").iterdir())
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks)


def poll_seconds() -> float:
    """Return the processors' seconds that a worker takes for one report."""
    used = _processor_nanoseconds()
    for _ in range(POLLS):
        assert samples.sample(os.environ[VARIABLE]).report is not None
    return 1e-9 * (_processor_nanoseconds() - used) / POLLS


def sample(rows: vispark.VRDD) -> tuple[float, float]:
    """Return the seconds of an action of a loop, and the processors' seconds that it takes."""
    used, began, done = _processor_seconds(), time.perf_counter(), 0
    while time.perf_counter() - began < SAMPLE_SECONDS:
        rows.vmap(lambda row: row * row).sum()
        done += 1
    return (time.perf_counter() - began) / done, (_processor_seconds() - used) / done


def pairs(rows: vispark.VRDD, viewer: Viewer, count: int) -> Iterator[tuple[tuple[float, float], tuple[float, float]]]:
    """Yield samples without the page and with it; every second pair begins with the page."""
    for number in range(count):
        samples = {}
        for is_open in (False, True) if number % 2 == 0 else (True, False):
            if is_open:
                viewer.turn()
            samples[is_open] = sample(rows)
            if is_open:
                viewer.turn()
        yield samples[False], samples[True]


@click.command(help=__doc__)
@click.argument("seconds", type=float, default=60.0)
@click.option(_SERVE, "is_viewer", is_flag=True, hidden=True)
def main(seconds: float, is_viewer: bool) -> None:
    if is_viewer:
        serve()
        return
    with environment(), context("host", 2) as sc:
        rows = sc.parallelize(list(np.ones((20_000, 2), "f4")), 2).cache("GPU")
        rows.count()
        sample(rows)
        seconds_each = poll_seconds()
        print(f"a report takes {1e3 * seconds_each:.2f} ms of the worker's processors (mean of {POLLS}): one a second "
              f"is {100 * seconds_each:.2f} % of a processor", flush=True)
        viewer = Viewer()
        samples = list(pairs(rows, viewer, max(2, int(seconds / SAMPLE_SECONDS / 2))))
        viewer.end()
    print("milliseconds an action of each pair: wall without, with; processors without, with")
    for alone, shown in samples:
        print("  ".join(f"{1e3 * each:.4f}" for which in (0, 1) for each in (alone[which], shown[which])))
    for name, which in (("wall", 0), ("processors", 1)):
        costs = sorted(100 * (shown[which] / alone[which] - 1) for alone, shown in samples)
        low, high = costs[len(costs) // 4], costs[3 * len(costs) // 4]
        print(f"{name}: {1e3 * statistics.median(alone[which] for alone, _ in samples):.2f} ms an action without, "
              f"{1e3 * statistics.median(shown[which] for _, shown in samples):.2f} ms with the page; costs "
              f"{statistics.median(costs):.1f} % (median of {len(costs)} pairs; half of them {low:.1f} to "
              f"{high:.1f} %)")


if __name__ == "__main__":
    main()
