"""Seconds and processor seconds of tables: ``python -m benchmarks.table_costs [frames|files|tasks]``.

A DataFrame out of a VRDD by ``toDF`` and by rows, and a Parquet file into one by ``read_parquet`` and by Spark's own
reader, beside decoding it in this process; in one run. ``tasks`` reads the file as tasks do, in this process alone.
Processor seconds, which other programs on the machine change little, are those of the driver, of Spark's JVM, of
Spark's Python processes ("tasks"), and of the worker.
"""

from __future__ import annotations

import json
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
from pyspark import SparkContext
from pyspark.sql import SparkSession

import vispark
from benchmarks import machine
from benchmarks.session import context, environment
from benchmarks.tables import COLUMNS, DOUBLES, NAMES, SCHEMA, decode, write
from gpu_worker.protocol.payload import Payload
from gpu_worker.system.paths import VARIABLE
from vispark.data.records import pack
from vispark.data.tables.files import FileSlice, ReadTask, partitions
from vispark.data.tables.parquet import ParquetFormat
from vispark.data.tables.selection import select
from vispark.runtime.executor.chunked_upload import PIECE_BYTES

_TICKS = os.sysconf("SC_CLK_TCK")

#: Seconds between two looks at the processes: what one takes from its last on, before it ends, is not counted.
_PERIOD = 0.1

#: Kinds of processes, by what their command line has.
KINDS = {"JVM": b"org.apache.spark", "tasks": b"pyspark.daemon", "worker": b"gpu_worker"}


class Processors:
    """Processor seconds of this run's processes, those that end among them: a thread looks again and again."""

    def __init__(self) -> None:
        self._mark = f"{VARIABLE}={os.environ[VARIABLE]}".encode()
        self._kinds: dict[str, str] = {}
        self._spent: dict[str, float] = {}
        self._looking = 0.0
        self._lock = threading.Lock()
        threading.Thread(target=self._run, daemon=True).start()

    def spent(self) -> dict[str, float]:
        """Return the seconds so far, by kind of process."""
        self._look()
        totals = dict.fromkeys(KINDS, 0.0)
        with self._lock:
            for process, seconds in self._spent.items():
                totals[self._kinds[process]] += seconds
            return totals | {"driver": time.process_time() - self._looking}

    def _run(self) -> None:
        while True:
            time.sleep(_PERIOD)
            self._look()

    def _look(self) -> None:
        began = time.thread_time()
        with self._lock:
            for process in Path("/proc").glob("[0-9]*"):
                with suppress(OSError):
                    fields = (process / "stat").read_text().rpartition(")")[2].split()
                    name = f"{process.name} {fields[19]}"      # with the time at which it began
                    if name not in self._kinds:
                        self._kinds[name] = self._kind(process)
                    if self._kinds[name]:
                        self._spent[name] = (int(fields[11]) + int(fields[12])) / _TICKS
            self._looking += time.thread_time() - began

    def _kind(self, process: Path) -> str:
        if self._mark not in (process / "environ").read_bytes().split(b"\0"):
            return ""
        command = (process / "cmdline").read_bytes()
        return next((kind for kind, part in KINDS.items() if part in command), "")


@dataclass(frozen=True)
class TableCost:
    """Something to measure.

    Attributes
    ----------
    name : str
        What tables call it.
    run : callable
        Does it once.
    after : callable
        Undoes it, which does not count.
    warm : int
        Runs before each group of samples that do not count.
    samples : int
        Samples of a group.
    """

    name: str
    run: Callable[[], Any]
    after: Callable[[Any], object] = lambda _: None
    warm: int = 1
    samples: int = 3

    def sampled(self, processors: Processors) -> dict[str, float]:
        """Return the seconds of a run, and its processor seconds by kind of process."""
        before, began = processors.spent(), time.perf_counter()
        result = self.run()
        wall, spent = time.perf_counter() - began, processors.spent()
        self.after(result)
        parts = {kind: seconds - before[kind] for kind, seconds in spent.items()}
        return {"wall": wall, "processors": sum(parts.values())} | parts


def frames(sc: SparkContext, rows: int) -> list[TableCost]:
    """Return the ways from a VRDD to a sum over a DataFrame."""
    session = SparkSession(sc)
    frame = session.range(rows).selectExpr(*[f"float(id % 1000 + {number}) {name}"
                                             for number, name in enumerate(NAMES)])
    held = vispark.from_dataframe(frame, dtype="float32").cache("GPU")
    held.count()
    return [TableCost("toDF", lambda: held.toDF(SCHEMA).selectExpr("sum(x0)").collect(), warm=8),
            TableCost("createDataFrame of rows",
                      lambda: session.createDataFrame(held.recv().map(_numbers), DOUBLES).selectExpr(
                          "sum(x0)").collect(),
                      warm=1, samples=2)]


def _numbers(row: Any) -> list[float]:
    return row.tolist()


def files(sc: SparkContext, path: str) -> list[TableCost]:
    """Return the ways from a Parquet file to what a worker holds."""
    session = SparkSession(sc)

    def cached(rdd: Any) -> Any:
        held = rdd.cache("GPU")
        held.count()
        return held

    return [TableCost("decoded, this process", lambda: decode(path)),
            TableCost("read_parquet, in tasks", lambda: vispark.read_parquet(sc, path, dtype="float32", blocks=True)
                      .map(len).sum()),
            TableCost('read_parquet, cache("GPU")', lambda: cached(vispark.read_parquet(sc, path, dtype="float32")),
                      lambda held: held.unpersist()),
            TableCost('spark.read.parquet, from_dataframe, cache("GPU")',
                      lambda: cached(vispark.from_dataframe(session.read.parquet(path), dtype="float32")),
                      lambda held: held.unpersist())]


def tasks(path: str) -> list[TableCost]:
    """Return the ways to read a Parquet file in this process: decoded alone, and as tasks do, into shared memory."""
    def read(columns: Any, dtype: Any) -> Callable[[], None]:
        form = ParquetFormat()
        selection = select(form.footer(path, None, None).schema, columns, dtype, "error", path)
        parts = [FileSlice(path, part) for part in form.footer(path, selection, None).parts]
        shares = partitions(parts, 128 << 20, machine.cores(), None)

        def run() -> None:
            with Payload.create(2 * PIECE_BYTES) as memory:
                memory.populate()
                for share in shares:
                    pack(ReadTask(form, selection, None, False)([share]), seal=bytes).write_blocks(_Ring(memory), 0)
        return run

    return [TableCost("decoded", lambda: decode(path)), TableCost("as rows of float32", read(None, "float32")),
            TableCost("as dicts of a number and rows", read({"y": NAMES[0], "x": NAMES[1:]}, None)),
            TableCost("as dicts of numbers", read(None, None))]


class _Ring:
    """Shared memory of two pieces, which arrays are written to in turn, as pieces of an upload are."""

    def __init__(self, memory: Payload):
        self._memory = memory

    def put(self, offset: int, array: np.ndarray) -> None:
        """Copy an array's bytes."""
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        while data.nbytes:
            place = offset % (2 * PIECE_BYTES)
            part = data[:2 * PIECE_BYTES - place]
            self._memory.put(place, part)
            data, offset = data[part.nbytes:], offset + part.nbytes


def in_turn(ways: list[TableCost], groups: int) -> dict[str, list[dict[str, float]]]:
    """Return samples of ways that take turns, a group of samples each."""
    processors = Processors()
    samples: dict[str, list[dict[str, float]]] = {way.name: [] for way in ways}
    for way in ways[::-1]:      # the first run of all, which nobody counts
        way.after(way.run())
    for _ in range(groups):
        for way in ways:
            # Each way ends or starts others' Python processes, and the JVM compiles what runs often.
            for _ in range(way.warm):
                way.after(way.run())
            samples[way.name] += [way.sampled(processors) for _ in range(way.samples)]
    return samples


def show(samples_of: dict[str, list[dict[str, float]]]) -> None:
    """Print the medians of samples, and what they are of the first way's."""
    medians = {name: {kind: statistics.median(each[kind] for each in samples) for kind in samples[0]}
               for name, samples in samples_of.items()}
    first = next(iter(medians.values()))
    print(f"{'':50} {'wall s':>7} {'ratio':>6} {'processor s':>11} {'ratio':>6}   of which")
    for name, figures in medians.items():
        wall, processors = (figures[kind] / first[kind] for kind in ("wall", "processors"))
        rest = ", ".join(f"{kind} {figures[kind]:.2f}" for kind in ("driver", *KINDS) if figures[kind] > 0.005)
        print(f"{name:50} {figures['wall']:7.3f} {wall:6.2f} {figures['processors']:11.3f} {processors:6.2f}   {rest}")


@click.command(help=__doc__)
@click.argument("only", type=click.Choice(["all", "frames", "files", "tasks"]), default="all")
@click.option("--rows", default=1_000_000, show_default=True, help="Of a DataFrame; files have 4 times as many.")
@click.option("--groups", default=2, show_default=True, help="Times that the ways take turns.")
@click.option("--out", type=click.Path(path_type=Path), help="A file for the samples.")
def main(only: str, rows: int, groups: int, out: Path | None) -> None:
    samples = {}
    with environment(), tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        path = str(Path(directory, "points.parquet"))
        write(path, 4 * rows)
        if only in ("all", "tasks"):
            samples["tasks"] = in_turn(tasks(path), groups)
        sc = stack.enter_context(context("host", machine.cores())) if only != "tasks" else None
        if sc is not None and only in ("all", "frames"):
            samples["frames"] = in_turn(frames(sc, rows), groups)
        if sc is not None and only in ("all", "files"):
            samples["files"] = in_turn(files(sc, path), groups)
    for name, ways in samples.items():
        count = rows if name == "frames" else 4 * rows
        print(f"{count:,} rows of {COLUMNS} float32, {machine.cores()} cores, load {os.getloadavg()[0]:.1f}; medians")
        show(ways)
    if out:
        about = {"rows": rows, "load": os.getloadavg(), "machine": machine.description(), **machine.commit()}
        out.write_text(json.dumps(about | {"samples": samples}, indent=1) + "\n")


if __name__ == "__main__":
    main()
