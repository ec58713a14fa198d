"""Programs that go on for long, and what grows: ``python -m benchmarks.soak --iterations 10000``.

Each leg repeats one thing that makes something new every time. Of the driver, the device process and the daemon it
prints the slopes, a 10,000 iterations, of resident memory, memory mappings, descriptors and threads; of the directory
of compiled kernels that of its bytes. The first third of a leg does not count: caches fill in it. Ctrl-C ends a leg,
and SIGTERM the program, with the slopes of what there is.

Two legs make processes, a device process or a compiler, and wait for them: with ``--beside N`` they have N iterations
at once, in threads. One takes 0.36 s of a processor in a session, in a new function 0.15 s on ``host`` and 0.08 s for a
GPU, by g++ 12 and NVRTC 13.5 on one machine; on others it was some times as long.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import FrameType

import click
import numpy as np
from pyspark import SparkContext

from benchmarks import machine
from benchmarks.session import context, environment
from gpu_worker.client.connection import administer, connect, finish, open_lease
from gpu_worker.protocol.messages import VERSION, Hello, Report, SessionOptions, Status
from vispark import IN, OUT, VRDD, Kernels

_POINTS = 60

#: How long what ended may take until it is gone, in seconds.
_GONE_SECONDS, _NAP_SECONDS = 20.0, 0.02
#: The fewest points that a slope is taken of.
_FEWEST = 6
#: How many times over the threads are used between two points: at each all wait for the slowest.
_ROUNDS = 8
#: How the sessions of other applications are called.
_SESSIONS = "soak-"

#: Records that legs go over; for a GPU a function of numbers compiles in a third of the time that one of rows takes.
_RECORDS = [np.arange(64, dtype=np.float32)] * 8
_NUMBERS = list(np.arange(8, dtype=np.float32))

_SCALE = 'extern "C" __global__ void scale(const float *x, float *y, float k) { y[threadIdx.x] = k * x[threadIdx.x]; }'


@dataclass(frozen=True)
class Usage:
    """Resources of a process: bytes that are resident, memory mappings, descriptors, threads."""

    rss: int
    maps: int
    descriptors: int
    threads: int

    @classmethod
    def of(cls, pid: int) -> Usage:
        """Look at a process of this user's."""
        base = Path(f"/proc/{pid}")
        pages = int((base / "statm").read_text().split()[1])
        with open(base / "maps", encoding="utf-8") as lines:
            maps = sum(1 for _ in lines)
        return cls(pages * os.sysconf("SC_PAGE_SIZE"), maps, len(os.listdir(base / "fd")),
                   len(os.listdir(base / "task")))


def functions(sc: SparkContext, held: VRDD, iteration: int) -> None:
    """Run a function of other text in each iteration."""
    names: dict[str, object] = {}
    source = f"def f(p):\n    return p * {iteration}.5 + {iteration % 7}\n"
    path = Path(os.environ["VISPARK_RUNTIME_DIR"]) / f"f{iteration}.py"
    path.write_text(source)
    exec(compile(source, str(path), "exec"), names)
    held.vmap(names["f"]).sum()
    path.unlink()


def arguments(sc: SparkContext, held: VRDD, iteration: int) -> None:
    """Pass arrays as arguments that are others in each iteration, captured ones and a kernel's."""
    weights = np.full(64, iteration, np.float32)
    held.vmap(lambda p, w: p * w[0], weights).sum()
    held.exec(_kernel().scale, IN, OUT, float(iteration), out=((IN.shape[0],), "f4"),
              grid=lambda block: 1 + 0 * int(weights[0]), block=64).count()


_kernels: list[Kernels] = []


def _kernel() -> Kernels:
    if not _kernels:
        _kernels.append(Kernels(_SCALE))
    return _kernels[0]


def churn(sc: SparkContext, held: VRDD, iteration: int) -> None:
    """Keep a VRDD and let go of it, made from one that stays."""
    kept = held.vmap(lambda p: p + 1).cache()
    kept.count()
    kept.unpersist()


def shapes(sc: SparkContext, held: VRDD, iteration: int) -> None:
    """Load records of another length, for which kernels are made anew."""
    rows = [np.zeros(3 + iteration % 900, np.float32)] * 2
    loaded = sc.parallelize(rows, 1).cache("GPU")
    loaded.vmap(lambda p: p.sum()).sum()
    loaded.unpersist()


def sessions(sc: SparkContext, held: VRDD, iteration: int) -> None:
    """Open a session of another application's beside this one: its lease, its device process, a question, and its end.
    """
    greeting = Hello(version=VERSION, role="driver", session=f"{_SESSIONS}{iteration}", secret=os.urandom(32),
                     application="soak", client_pid=os.getpid(),
                     options=SessionOptions("null", 0, 10.0, "", "info"))
    with open_lease(replace(greeting, role="lease", client_pid=0)), connect(greeting) as client:
        client.request(Report(client.next_number()))
    finish(greeting)


def _of(row: np.ndarray, table: object) -> tuple[int, np.ndarray]:
    return int(row[0]) % 4, row + table[0]      # type: ignore[index]


_tables: list[object] = []


def tables(sc: SparkContext, held: VRDD, iteration: int) -> None:
    """Make a table of sums by key, as an argument of the function that the next one is made of."""
    table = _tables.pop() if _tables and iteration else np.zeros((4, 64), np.float32)
    sums = held.vmap(_of, table).reduceByKey(lambda one, other: one + other, numKeys=4)
    _tables[:] = [sums.vmap(lambda row: row * 0.125)]
    if iteration % 10 == 9:
        _tables[0].toNumpy()        # type: ignore[attr-defined]


_rows: list[VRDD] = []


def ragged(sc: SparkContext, held: VRDD, iteration: int) -> None:
    """Run functions of rows of several lengths that are kept; those rows are loaded anew in every 100th iteration."""
    if not iteration % 100:
        if _rows and iteration:
            _rows.pop().unpersist()
        rows = [np.arange(1 + (iteration + at) % 50, dtype=np.float32) for at in range(64)]
        _rows[:] = [sc.parallelize(rows, 2).cache("GPU")]
    _rows[0].vmap(lambda p, k: (p * k).sum() + len(p), float(iteration)).sum()
    kept = _rows[0].vmap(lambda p: p.sum()).cache()
    kept.count()
    kept.unpersist()


Leg = Callable[[SparkContext, VRDD, int], None]

#: By name, the leg and its share of the iterations: those with Spark jobs take a hundred times as long.
LEGS: dict[str, tuple[Leg, float]] = {"functions": (functions, 1.0), "arguments": (arguments, 1.0),
                                      "churn": (churn, 1.0), "tables": (tables, 1.0), "ragged": (ragged, 1.0),
                                      "sessions": (sessions, 1.0), "shapes": (shapes, 0.02)}


def slopes(points: list[tuple[int, dict[str, float]]]) -> dict[str, float]:
    """Return, for each figure, how much more of it there is after 10,000 iterations; by least squares."""
    late = points[len(points) // 3:]
    at = np.array([iteration for iteration, _ in late], float)
    return {name: float(np.polyfit(at, [figures[name] for _, figures in late], 1)[0] * 10_000) for name in late[0][1]}


#: The legs whose iterations wait for processes of their own.
BESIDE = ("functions", "sessions")


def figures(directory: Path) -> dict[str, float]:
    """Return the resources that the processes have now, and the bytes of the compiled kernels on disk; once this
    session is the only one.
    """
    until = time.monotonic() + _GONE_SECONDS
    while len((status := administer(Status())).sessions) > 1 and time.monotonic() < until:
        time.sleep(_NAP_SECONDS)
    own = next(session for session in status.sessions if not session.session.startswith(_SESSIONS))
    pids = {"driver": os.getpid(), "daemon": status.pid, "device": own.pid}
    usage = {f"{who} {what}": float(value) for who, pid in pids.items()
             for what, value in asdict(Usage.of(pid)).items()}
    sizes = [entry.stat().st_size for entry in os.scandir(directory)] if directory.is_dir() else [0]
    return usage | {"sessions": float(len(status.sessions)), "cache bytes": float(sum(sizes))}


def soaked(sc: SparkContext, name: str, iterations: int, directory: Path, beside: int = 1,
           ) -> Iterator[tuple[int, dict[str, float]]]:
    """Run a leg; yield the figures after each of some iterations, when those before have ended: ``beside`` go on at
    once.
    """
    leg, share = LEGS[name]
    held = sc.parallelize(_NUMBERS if name == "functions" else _RECORDS, 2).cache("GPU")
    held.count()
    most = max(int(iterations * share), _POINTS)
    every = max(most // _POINTS, beside * _ROUNDS if beside > 1 else 1)
    with ThreadPoolExecutor(beside) as pool:
        for first in range(0, most, every):
            last = min(first + every, most)
            answers = pool.map(lambda iteration: leg(sc, held, iteration), range(first, last))
            with closing(answers):         # what has not begun when it is interrupted does not begin
                list(answers)
            yield last - 1, figures(directory)
    held.unpersist()


class _Ended(Exception):
    """SIGTERM."""


def _end(_number: int, _frame: FrameType | None) -> None:
    raise _Ended


def _points(sc: SparkContext, name: str, iterations: int, directory: Path, beside: int,
            points: list[tuple[int, dict[str, float]]]) -> bool:
    """Run a leg, whose figures come to ``points``; whether the program goes on."""
    try:
        for point in soaked(sc, name, iterations, directory, beside):
            points.append(point)
    except KeyboardInterrupt:
        return True
    except _Ended:
        return False
    return True


@click.command(help=__doc__)
@click.option("--iterations", type=click.IntRange(60), default=10_000, show_default=True)
@click.option("--device", type=click.Choice(["auto", "host", "cuda"]), default="auto", show_default=True)
@click.option("--leg", "legs", type=click.Choice(list(LEGS)), multiple=True, help="May be given several times.")
@click.option("--beside", type=click.IntRange(1), default=1, show_default=True,
              help=f"Iterations at once, in the legs {' and '.join(BESIDE)}.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Where slopes and samples go, as JSON.")
def main(iterations: int, device: str, legs: tuple[str, ...], beside: int, out: Path | None) -> None:
    kept: dict[str, object] = {"machine": machine.description(), **machine.commit(), "iterations": iterations,
                               "beside": beside}
    signal.signal(signal.SIGTERM, _end)
    with environment():
        directory = Path(os.environ["VISPARK_RUNTIME_DIR"]) / "kernels"
        for name in legs or LEGS:
            began = time.monotonic()
            points: list[tuple[int, dict[str, float]]] = []
            with context(device, 2, {"spark.vispark.cacheDir": str(directory)}) as sc:
                goes_on = _points(sc, name, iterations, directory, beside if name in BESIDE else 1, points)
                kept[name] = _reported(name, points, time.monotonic() - began)
                if out:
                    out.write_text(json.dumps(kept, indent=1) + "\n")
            if not goes_on:
                return


def _reported(name: str, points: list[tuple[int, dict[str, float]]], seconds: float) -> dict[str, object]:
    """Print what a leg came to, and return the same, to be kept."""
    if len(points) < _FEWEST:
        print(f"{name}: ended after {seconds:.0f} s with {len(points)} points, too few for slopes", flush=True)
        return {"seconds": seconds, "samples": points}
    per_10000 = slopes(points)
    print(f"{name}, {points[-1][0] + 1} iterations, {seconds:.0f} s: slopes a 10,000 iterations")
    for what, slope in per_10000.items():
        print(f"    {what:20} {slope:14,.0f}   at the end {points[-1][1][what]:14,.0f}", flush=True)
    return {"slopes": per_10000, "seconds": seconds, "samples": points}


if __name__ == "__main__":
    main()
