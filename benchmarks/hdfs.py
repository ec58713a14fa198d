"""A grid out of HDFS into the workers, against the same through Spark's ``binaryFiles``, and where the tasks ran.

::

    python -m benchmarks.hdfs --megabytes 128 --samples 7 --out benchmarks/results/2core-hdfs.json

A NameNode, two DataNodes and two executors of the same hosts run on this machine (``.ci/hadoop`` gets the servers).
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import statistics
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import numpy as np
from pyspark import RDD, SparkContext
from rich.console import Console

from benchmarks import machine
from benchmarks.measure import Case, interleave
from benchmarks.results import Group, document, table
from benchmarks.session import environment
from tests.system import topology
from tests.system.gpu_tools import warm_up
from tests.system.hdfs import Hdfs, running
from vispark import Grid

HOSTS = ("127.0.0.2", "127.0.0.3")
OURS, STOCK, NOTHING = "scatter", "binaryFiles", "an empty job"


def run(sc: SparkContext, hdfs: Hdfs, nbytes: int, blocks: int, samples: int, done: Callable[[str], None]) -> Group:
    """Measure on a grid of about so many bytes in a file for each block, each one block of HDFS."""
    rows = max(blocks, nbytes // (4 * 1024))
    grid = Grid((rows, 1024), splits=(blocks, 1))
    nbytes = rows * 4 * 1024
    Grid.save(grid.scatter(sc, values), f"{hdfs.url}/parts", per_block=True)
    group = Group(f"HDFS, {nbytes / 1e6:.0f} MB", {"bytes": nbytes, "blocks": blocks, "dtype": "float32",
                                                   "replication": 1, "samples": samples})
    sources = {OURS: lambda: grid.scatter(sc, f"{hdfs.url}/parts", partitions=blocks),
               STOCK: lambda: stock(sc, grid, f"{hdfs.url}/parts", blocks)}
    places = {place: set(hdfs.blocks(sc, f"/parts/block-{place}-0.npy")[0][1]) for place in range(blocks)}
    for name, source in sources.items():
        before = hdfs.bytes_read()
        group.checks[name] = {"equal": all(source().map(_is_equal).collect()),
                              "bytes read / bytes": (hdfs.bytes_read() - before) / nbytes,
                              "tasks": len(ran := source().mapPartitions(_where).collect()),
                              "share of blocks read where they are": local(ran, places)}
    cases = [Case(NOTHING, lambda: sc.parallelize(range(blocks), blocks).count(), repeat=False),
             *(Case(name, lambda source=source: _cached(source()), nbytes, () if name == OURS else (OURS,),
                    repeat=False) for name, source in sources.items())]
    group.series = interleave(cases, samples, done=done)
    ratios = processor_ratios({name: lambda source=source: _cached(source()) for name, source in sources.items()},
                              samples)
    group.checks[f"processor seconds of {STOCK} over {OURS}"] = {"pairs": ratios, "median": statistics.median(ratios)}
    return group


def processor_ratios(ways: dict[str, Callable[[], None]], samples: int) -> list[float]:
    """Return by how much the other way takes more of the processors than the first, in pairs whose order changes: of
    HDFS's servers, executors, their Python workers and GPU workers, and this driver, which other programs on the
    machine change little.
    """
    ratios = []
    for number in range(samples):
        used = {}
        for name in list(ways)[::1 if number % 2 else -1]:
            before = _processor_seconds()
            ways[name]()
            used[name] = sum(max(0.0, seconds - before.get(process, 0.0))
                             for process, seconds in _processor_seconds().items())
        ratios.append(used[STOCK] / used[OURS])
    return ratios


def _processor_seconds() -> dict[int, float]:
    """Return the seconds that each process of this run has had of processors."""
    mark, seconds = f"VISPARK_TEST_RUN={os.getpid()}\0".encode(), {}
    for place in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if place.name == str(os.getpid()) or (place.name.isdecimal() and mark in (place / "environ").read_bytes()):
                ticks = (place / "stat").read_text().rpartition(")")[2].split()[11:13]
                seconds[int(place.name)] = sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")
    return seconds


def stock(sc: SparkContext, grid: Grid, path: str, blocks: int) -> RDD[Any]:
    """Return the blocks as a program without vispark reads them: whole files through the JVM, then NumPy."""
    def block(file: tuple[str, bytes]) -> tuple[Any, np.ndarray]:
        place = file[0].rpartition("/")[2].removeprefix("block-").removesuffix(".npy").split("-")
        return grid.block(*map(int, place)), np.load(io.BytesIO(file[1]))

    # Twice as many, as it counts the opening of each file as 4 MiB: so there is a task for each block, as in scatter.
    return sc.binaryFiles(path, 2 * blocks).map(block)


def local(ran: list[tuple[str, list[int]]], places: dict[int, set[str]]) -> float:
    """Return the share of the blocks that tasks read that lies on the task's node."""
    read = [(host, place) for host, found in ran for place in found]
    return sum(host in places[place] for host, place in read) / len(read)


def values(y: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Return the cells, which differ from their neighbours in all bits of their fractions."""
    return ((y * 1024 + x) * 0.6180339887 % 1).astype(np.float32)


def _is_equal(record: tuple[Any, np.ndarray]) -> bool:
    places = np.ix_(*(np.arange(part.start, part.stop) for part in record[0].slices))
    return np.array_equal(record[1], values(*places))


def _where(records: Any) -> list[tuple[str, list[int]]]:
    return [(os.environ["SPARK_LOCAL_IP"], [key.position[0] for key, _ in records])]


def _cached(blocks: RDD[Any]) -> None:
    held = blocks.cache("GPU")
    held.count()
    held.unpersist()


@click.command()
@click.option("--megabytes", default=128, help="of the grid")
@click.option("--blocks", default=8, help="of the grid")
@click.option("--samples", default=7)
@click.option("--out", type=click.Path(path_type=Path), help="file for the samples")
def main(megabytes: int, blocks: int, samples: int, out: Path | None) -> None:
    """Measure grids out of HDFS."""
    console = Console(width=150)
    os.environ["VISPARK_TEST_RUN"] = str(os.getpid())
    with environment(), running(*HOSTS, block=128 << 20) as hdfs, topology.standalone(2) as cluster:
        with cluster.context({"spark.vispark.device": "host"}) as sc:
            warm_up(sc)
            group = run(sc, hdfs, megabytes << 20, blocks, samples, lambda name: None)
        topology.shutdown()
    console.print(table([group], "HDFS"))
    console.print(group.checks)
    if out:
        about = {"machine": machine.description(), "command": ["python", "-m", "benchmarks.hdfs", *sys.argv[1:]],
                 "date": datetime.now(UTC).isoformat(timespec="seconds"), **machine.commit(), "scale": "small"}
        out.write_text(json.dumps(document([group], **about), indent=1) + "\n")


if __name__ == "__main__":
    main()
