"""Programs that go on for long, and what grows: ``python -m benchmarks.soak --iterations 10000``.

Each leg repeats one thing that makes something new every time. Of the driver, the device process and the daemon it
prints the slopes, a 10,000 iterations, of resident memory, memory mappings, descriptors and threads; of the directory
of compiled kernels that of its bytes. The first third of a leg does not count: caches fill in it. Ctrl-C ends a leg
with what it has.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import click
import numpy as np
from pyspark import SparkContext

from benchmarks import machine
from benchmarks.session import context, environment
from gpu_worker.client.connection import administer, connect, finish, open_lease
from gpu_worker.protocol.messages import VERSION, Hello, Report, SessionOptions, Status
from vispark import IN, OUT, VRDD, Kernels

_POINTS = 60

_SCALE = 'extern "C" __global__ void scale(const float *x, float *y, float k) { y[threadIdx.x] = k * x[threadIdx.x]; }'


@dataclass(frozen=True)
class Usage:
    """What a process has: bytes that are resident, memory mappings, descriptors, threads."""

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
    """A function of other text in each iteration."""
    names: dict[str, object] = {}
    source = f"def f(p):\n    return p * {iteration}.5 + {iteration % 7}\n"
    path = Path(os.environ["VISPARK_RUNTIME_DIR"]) / f"f{iteration}.py"
    path.write_text(source)
    exec(compile(source, str(path), "exec"), names)
    held.vmap(names["f"]).sum()
    path.unlink()


def arguments(sc: SparkContext, held: VRDD, iteration: int) -> None:
    """Arrays as arguments that are others in each iteration, captured ones and a kernel's."""
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
    """A VRDD that is kept and let go of, from one that stays."""
    kept = held.vmap(lambda p: p + 1).cache()
    kept.count()
    kept.unpersist()


def shapes(sc: SparkContext, held: VRDD, iteration: int) -> None:
    """Records of another length, for which kernels are made anew."""
    rows = [np.zeros(3 + iteration % 900, np.float32)] * 2
    loaded = sc.parallelize(rows, 1).cache("GPU")
    loaded.vmap(lambda p: p.sum()).sum()
    loaded.unpersist()


def sessions(sc: SparkContext, held: VRDD, iteration: int) -> None:
    """A session of another application's beside this one: its lease, its device process, a question, and its end."""
    greeting = Hello(version=VERSION, role="driver", session=f"soak-{iteration}", secret=os.urandom(32),
                     application="soak", anchor=os.getpid(),
                     options=SessionOptions("null", 0, 10.0, "", "info"))
    with open_lease(replace(greeting, role="lease", anchor=0)), connect(greeting) as client:
        client.request(Report(client.next_number()))
    finish(greeting)


def _of(row: np.ndarray, table: object) -> tuple[int, np.ndarray]:
    return int(row[0]) % 4, row + table[0]      # type: ignore[index]


_tables: list[object] = []


def tables(sc: SparkContext, held: VRDD, iteration: int) -> None:
    """A table of sums by key, as an argument of the function that the next one is made of."""
    table = _tables.pop() if _tables and iteration else np.zeros((4, 64), np.float32)
    sums = held.vmap(_of, table).reduceByKey(lambda one, other: one + other, numKeys=4)
    _tables[:] = [sums.vmap(lambda row: row * 0.125)]
    if iteration % 10 == 9:
        _tables[0].toNumpy()        # type: ignore[attr-defined]


_rows: list[VRDD] = []


def ragged(sc: SparkContext, held: VRDD, iteration: int) -> None:
    """Functions of rows of several lengths that are kept; those rows are loaded anew in every 100th iteration."""
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
    """By what was measured, how much more of it there is after 10,000 iterations; by least squares."""
    late = points[len(points) // 3:]
    at = np.array([iteration for iteration, _ in late], float)
    return {name: float(np.polyfit(at, [figures[name] for _, figures in late], 1)[0] * 10_000) for name in late[0][1]}


def figures(directory: Path) -> dict[str, float]:
    """What the processes have now, and what the compiled kernels take on disk."""
    status = administer(Status())
    pids = {"driver": os.getpid(), "daemon": status.pid, "device": status.sessions[0].pid}
    found = {f"{who} {what}": float(value) for who, pid in pids.items()
             for what, value in asdict(Usage.of(pid)).items()}
    sizes = [entry.stat().st_size for entry in os.scandir(directory)] if directory.is_dir() else [0]
    return found | {"cache bytes": float(sum(sizes))}


def soaked(sc: SparkContext, name: str, iterations: int, directory: Path, beside: int = 1,
           ) -> Iterator[tuple[int, dict[str, float]]]:
    """Run a leg; what there was after each of some iterations, of which ``beside`` go on at once."""
    leg, share = LEGS[name]
    held = sc.parallelize([np.arange(64, dtype=np.float32)] * 8, 2).cache("GPU")
    held.count()
    most = max(int(iterations * share), _POINTS)
    every = max(most // _POINTS // beside, 1) * beside
    with ThreadPoolExecutor(beside) as pool:
        for first in range(0, most, beside):
            list(pool.map(lambda iteration: leg(sc, held, iteration), range(first, first + beside)))
            if first % every == 0:
                yield first + beside - 1, figures(directory)
    held.unpersist()


@click.command(help=__doc__)
@click.option("--iterations", type=click.IntRange(60), default=10_000, show_default=True)
@click.option("--device", type=click.Choice(["auto", "host", "cuda"]), default="auto", show_default=True)
@click.option("--leg", "legs", type=click.Choice(list(LEGS)), multiple=True, help="May be given several times.")
@click.option("--beside", type=click.IntRange(1), default=1, show_default=True, help="Sessions at once.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Where slopes and samples go, as JSON.")
def main(iterations: int, device: str, legs: tuple[str, ...], beside: int, out: Path | None) -> None:
    kept: dict[str, object] = {"machine": machine.description(), **machine.commit(), "iterations": iterations,
                               "beside": beside}
    with environment():
        directory = Path(os.environ["VISPARK_RUNTIME_DIR"]) / "kernels"
        for name in legs or LEGS:
            began = time.monotonic()
            with context(device, 2, {"spark.vispark.cacheDir": str(directory)}) as sc:
                points: list[tuple[int, dict[str, float]]] = []
                with suppress(KeyboardInterrupt):
                    for point in soaked(sc, name, iterations, directory, beside if name == "sessions" else 1):
                        points.append(point)
            found = slopes(points)
            kept[name] = {"slopes": found, "seconds": time.monotonic() - began, "samples": points}
            seconds = time.monotonic() - began
            print(f"{name}, {points[-1][0] + 1} iterations, {seconds:.0f} s: slopes a 10,000 iterations")
            for what, slope in found.items():
                print(f"    {what:20} {slope:14,.0f}   at the end {points[-1][1][what]:14,.0f}", flush=True)
            if out:
                out.write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
