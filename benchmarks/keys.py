"""Records put into partitions by their keys, in a worker and by Spark: ``python -m benchmarks.keys [DEVICE]``.

In the worker alone: records of 32 bytes, an int64 key and six float32, held on the device, and a plan that makes new
partitions of them, or sorts them, as ``partitionBy`` and ``sortByKey`` ask for; beside it a copy of the same bytes on
the device. Then Spark's ``partitionBy`` and ``sortByKey`` of as many bytes a record, in the same run, on one core.
Beside seconds are those of processors, which other programs on the machine hardly change: the worker's, and of Spark
those of all its processes.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from operator import itemgetter
from pathlib import Path

import click
import numpy as np

from benchmarks.estimators import spent
from benchmarks.session import context, environment
from gpu_worker.device import open_devices
from gpu_worker.protocol.messages import (
    Field,
    Input,
    KeepStep,
    LoadStep,
    Plan,
    PutStep,
    Release,
    Run,
    SessionOptions,
    Signature,
    Step,
    ToDeviceStep,
    Variant,
)
from gpu_worker.protocol.payload import Payload, block_bytes, field_offsets
from gpu_worker.protocol.plans import KeepKeyedStep, PartitionByKeyStep, SortByKeyStep, sealed
from gpu_worker.server.handlers import SessionWorker
from gpu_worker.system.crash_record import CrashRecorder
from gpu_worker.system.paths import VARIABLE

_VALUES = 6


def signature(rows: int) -> Signature:
    """Return the fields of records: a key and six numbers."""
    return Signature((Field("0", "<i8", (rows,)), Field("1", "<f4", (rows, _VALUES))))


def filled(worker: SessionWorker, rows: int, parts: int) -> tuple[Input, ...]:
    """Hold records in some partitions as VRDD 1; return what a plan on them is given."""
    random, inputs = np.random.default_rng(0), tuple(Input(index, rows, 0, 0, b"", (0,)) for index in range(parts))
    for part in inputs:
        plan = Plan((PutStep(), ToDeviceStep(), KeepStep(0, "records", "device")), (),
                    (Variant(signature(rows), (), (b"",), (-1,)),), (part,), ())
        with Payload.create(block_bytes(signature(rows))) as payload:
            for described, offset in field_offsets(signature(rows), 0):
                column = payload.field(described, offset)
                column[:] = random.integers(0, 1 << 40, rows) if described.name == "0" else 0.5
            worker.handle(Run(1, 1, 300.0, *sealed(plan), (1,), ()), [payload.release()])
    return inputs


def seconds_of(worker: SessionWorker, inputs: tuple[Input, ...], steps: tuple[Step, ...],
               times: int) -> tuple[float, float]:
    """Return the median seconds, and those of processors, of passes of a plan, each of which makes a VRDD."""
    plan = Plan((LoadStep(0), ToDeviceStep(), *steps, KeepKeyedStep(1, "")), (),
                (Variant(signature(inputs[0].count), (), (), ()),), inputs, ())
    passes = []
    for number in range(2, times + 3):
        began, processors = time.perf_counter(), time.process_time()
        worker.handle(Run(number, 1, 300.0, *sealed(plan), (1, number), ()), [])
        passes.append((time.perf_counter() - began, time.process_time() - processors))
        worker.handle(Release(1, (number,)), [])
    wall, of_processors = [statistics.median(each) for each in zip(*passes[1:], strict=True)]
    return wall, of_processors


def copy_seconds(device_name: str, nbytes: int) -> float:
    """Return the seconds of a copy of so many bytes on the device."""
    device = open_devices(device_name)[0]
    stream = device.stream()
    source, target = device.allocate(nbytes, stream=stream), device.allocate(nbytes, stream=stream)
    seconds = []
    for _ in range(6):
        began = time.perf_counter()
        device.copy_across(target, source, stream=stream)
        device.synchronize(stream=stream)
        seconds.append(time.perf_counter() - began)
    source.close()
    target.close()
    device.close()
    return statistics.median(seconds[1:])


def spark_seconds(rows: int, parts: int) -> dict[str, tuple[float, float]]:
    """Return the least seconds, and those of processors, of Spark's own operations on one core."""
    seconds = {}
    with environment(), context("null", 1) as sc:
        records = sc.parallelize(range(rows), 4).map(_record).cache()
        records.count()
        for name, call in {f"partitionBy({parts})": lambda: records.partitionBy(parts, hash).count(),
                           f"sortByKey({parts})": lambda: records.sortByKey(True, parts).count()}.items():
            seconds[name] = min([spent(os.environ[VARIABLE], call) for _ in range(2)], key=itemgetter(1))
    return seconds


def _record(number: int) -> tuple[int, np.ndarray]:
    return number * 2654435761 % (1 << 40), np.full(_VALUES, 0.5, np.float32)


@click.command()
@click.argument("device", default="host")
@click.option("--rows", default=1 << 18, help="Records, all partitions together.")
@click.option("--partitions", default=8, help="Partitions that they lie in.")
@click.option("--parts", default=64, help="Partitions that they are put into.")
@click.option("--spark-rows", default=0, help="Records of Spark's partitionBy; 0 for none.")
@click.option("--times", default=5, help="Passes.")
def main(device: str, rows: int, partitions: int, parts: int, spark_rows: int, times: int) -> None:
    """Measure exchanges by key on a device."""
    nbytes = rows * (8 + 4 * _VALUES)
    copy = copy_seconds(device, nbytes)
    print(f"{device}: {rows:,} records of {8 + 4 * _VALUES} bytes in {partitions} partitions; a copy of them "
          f"{1e3 * copy:.3f} ms ({2e-9 * nbytes / copy:.0f} GB/s)")
    with tempfile.TemporaryDirectory() as directory:
        box = CrashRecorder(Path(directory, "box"), epoch=1)
        worker = SessionWorker(SessionOptions(device, 0, 300.0, "", "info"), epoch=1, recorder=box)
        inputs = filled(worker, rows // partitions, partitions)
        hashed = PartitionByKeyStep("partitionBy", "0", parts, "hash", b"", b"")
        ranged = PartitionByKeyStep("sortByKey", "0", parts, "ascending", b"", b"")
        cases: dict[str, tuple[Step, ...]] = {
            f"partitionBy({parts})": (hashed,),
            "partitionBy(1000)": (PartitionByKeyStep("partitionBy", "0", 1000, "hash", b"", b""),),
            f"sortByKey({parts})": (ranged, SortByKeyStep("sortByKey", "0", False))}
        ours = {name: seconds_of(worker, inputs, steps, times) for name, steps in cases.items()}
        for name, (seconds, processors) in ours.items():
            print(f"{name:20} {1e3 * seconds:9.3f} ms   {seconds / copy:6.2f} copies   "
                  f"{rows / seconds / 1e6:9.1f} M records/s   {1e9 * processors / rows:8.1f} ns of processors a record")
        worker.close()
    for name, (seconds, processors) in (spark_seconds(spark_rows, parts) if spark_rows else {}).items():
        print(f"Spark's {name} on one core: {spark_rows / seconds:,.0f} records/s, "
              f"{1e9 * processors / spark_rows:,.0f} ns of processors a record: "
              f"{processors / spark_rows / (ours[name][1] / rows):,.0f} times those here")


if __name__ == "__main__":
    main()
