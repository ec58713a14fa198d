"""Predicted passes against measured ones: what ``vispark qualify CAPTURE --on`` says of a loop, and its port takes.

``python -m benchmarks.predictions DEVICE``: the device is calibrated first, or by ``--calibration FILE``; then each
program's pass is predicted from 64 of its records, as from a recording, with a probe and without, and run. On a busy
machine ``--clock processor`` takes the processor time of the driver and of the worker's processes, not the wall's.
"""

from __future__ import annotations

import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np
from pyspark import SparkConf, SparkContext

from vispark.data.records.rows import Rows
from vispark.migrate.capture.clocks import processor_clock
from vispark.migrate.capture.run_capture import CapturedCall
from vispark.migrate.predict.calibration import measure, most_elements, written
from vispark.migrate.predict.loop_prediction import kernel_work
from vispark.migrate.predict.operation_count import operations_of
from vispark.migrate.predict.physics import DeviceRates, Interval, PassWork, ProbedRate, calibrated_device, predict_pass
from vispark.migrate.predict.probe import probe
from vispark.migrate.rules.typed_verdicts import bytes_of, traffic_of

#: Records that a prediction rests on, and passes that are timed.
SAMPLE, PASSES = 64, 7


@dataclass(frozen=True)
class PredictedProgram:
    """Loop over rows of random numbers: a function of a row, and what brings its results together.

    Attributes
    ----------
    width : int
        Numbers of a row; 0 for single numbers.
    keys : int
        Of a ``reduceByKey``; 0 for a ``reduce``.
    collects : bool
        Whether the results are collected in place of a fold.
    part : float
        Of the rows that are asked for, as some take long.
    """

    name: str
    function: Callable[[Any], Any]
    width: int
    dtype: str = "float64"
    keys: int = 0
    collects: bool = False
    part: float = 1.0


def add(a: Any, b: Any) -> Any:
    """Return the sum of two numbers or arrays."""
    return a + b


def add_pairs(a: Any, b: Any) -> Any:
    """Return the sums of two pairs of arrays and numbers."""
    return a[0] + b[0], a[1] + b[1]


def _k_means(centres: np.ndarray) -> Callable[[Any], Any]:
    return lambda p: (int(np.argmin([np.sum((p - c) ** 2) for c in centres])), (p, 1))


def programs() -> list[PredictedProgram]:
    """Return the programs, of which none is one that the model was made by."""
    rng = np.random.default_rng(7)
    w, wide = rng.standard_normal(20), rng.standard_normal(64)
    narrow = w.astype("f4")
    matrix, wide32 = rng.standard_normal((64, 32)), rng.standard_normal((128, 16)).astype("f4")
    centres = {k: rng.standard_normal((k, 16)) for k in (4, 24)}
    return [
        PredictedProgram("logistic regression", lambda p: p[1:] * (
            (1.0 / (1.0 + np.exp(-p[0] * np.dot(p[1:], w))) - 1.0) * p[0]), 21),
        PredictedProgram("least squares", lambda p: p[1:] * (np.dot(p[1:], w) - p[0]), 21),
        PredictedProgram("least squares, float32", lambda p: p[1:] * (np.dot(p[1:], narrow) - p[0]), 21, "float32"),
        PredictedProgram("K-means, 4 centres", _k_means(centres[4]), 16, keys=4),
        PredictedProgram("K-means, 24 centres", _k_means(centres[24]), 16, keys=24, part=0.25),
        PredictedProgram("norms", lambda p: np.sqrt(np.sum(p * p)), 64),
        PredictedProgram("soft threshold", lambda x: max(abs(x) - 0.1, 0.0) * (1.0 if x > 0 else -1.0), 0),
        PredictedProgram("normal density", lambda x: np.exp(-0.5 * x * x) / 2.5066282746310002, 0),
        PredictedProgram("polynomial", lambda x: ((((x + 1) * x + 2) * x + 3) * x + 4) * x + 5, 0, "float32"),
        PredictedProgram("hidden layer", lambda p: np.tanh(p @ matrix), 64),
        PredictedProgram("projection, float32", lambda p: p @ wide32, 128, "float32"),
        PredictedProgram("scores, collected", lambda p: np.dot(p, wide), 64, collects=True, part=0.1),
    ]


def rows_of(program: PredictedProgram, elements: int, seed: int = 1) -> np.ndarray:
    """Return a program's rows, as many as have a number of elements."""
    rng, count = np.random.default_rng(seed), max(1, int(elements * program.part) // (program.width or 1))
    return rng.standard_normal((count, program.width) if program.width else count).astype(program.dtype)


def predicted(program: PredictedProgram, elements: int, device: DeviceRates,
              probed: ProbedRate | None = None) -> Interval:
    """Return the pass that is predicted from a few records, and by what a probe saw of them, if there is one."""
    sample, chain = sample_of(program), [(program.function, "")]
    count = max(1, int(elements * program.part) // (program.width or 1))
    mapped = CapturedCall(0, "", 0, 0, 0, "map", operations=operations_of(chain, sample[:3]),
                          traffic=traffic_of(chain, sample))
    action = CapturedCall(1, "", 0, 0, 0, "collect" if program.collects else "reduceByKey" if program.keys else
                          "reduce", probes={device.runs: [probed.plan, probed.record]} if probed else {})
    work = kernel_work(count * (bytes_of(sample) or 0.0), count, mapped, [action, mapped])
    interval = predict_pass(PassWork([work]), device)
    if not isinstance(interval, Interval):
        raise click.ClickException(f"{program.name}: {interval}")
    return interval


def sample_of(program: PredictedProgram) -> list[Any]:
    """Return the records that a prediction rests on."""
    return list(rows_of(program, int(SAMPLE * (program.width or 1) / program.part)))[:SAMPLE]


def passed(program: PredictedProgram, held: Any) -> Any:
    """Run one pass of a program over what is cached."""
    mapped = held.vmap(program.function)
    if program.collects:
        return mapped.collect()
    return mapped.reduceByKey(add_pairs, numKeys=program.keys).collect() if program.keys else mapped.reduce(add)


def measured(sc: SparkContext, program: PredictedProgram, elements: int, clock: Callable[[], float]) -> float:
    """Return the median of a program's passes on the context's device, in seconds."""
    records: Any = sc.parallelize([program], 1).mapPartitions(partial(_made, elements))
    held = records.cache("GPU")
    held.count()
    passed(program, held)
    seconds: list[float] = []
    while len(seconds) < PASSES and (not seconds or sum(seconds) < 2.0):
        start = clock()
        passed(program, held)
        seconds.append(clock() - start)
    held.uncache()
    return statistics.median(seconds)


def _made(elements: int, chosen: Iterable[PredictedProgram]) -> Iterable[Any]:
    return Rows(rows_of(program, elements) for program in chosen)


#: Head of the table; the last column is of predictions without a probe.
HEAD = ("| program | predicted, ms | measured, ms | measured over the middle | without a probe |\n"
        "|---|---|---|---|---|")


def line_of(row: dict[str, Any]) -> str:
    """Return a program's line of the table."""
    return (f"| {row['program']} | {row['low']:.3g} .. {row['high']:.3g} | {row['measured']:.3g} | "
            f"{row['ratio']:.2f} | {row['unprobed']:.2f} |")


def summary(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the lines that the table comes to."""
    yield f"\n{_summary([row['ratio'] for row in rows])}; " \
          f"{sum(row['low'] <= row['measured'] <= row['high'] for row in rows)} inside their interval"
    yield f"without a probe {_summary([row['unprobed'] for row in rows])}"


def _summary(ratios: list[float]) -> str:
    return (f"{sum(0.5 <= each <= 2 for each in ratios)} of {len(ratios)} within a factor of 2, geometric mean "
            f"{statistics.geometric_mean(ratios):.2f}")


def compared(sc: SparkContext, program: PredictedProgram, elements: int, device: DeviceRates,
             clock: Callable[[], float]) -> dict[str, Any]:
    """Return a program's row of the table: predicted with and without a probe, and measured."""
    seen = probe(sc, sample_of(program), partial(passed, program), clock)
    plain, probed = predicted(program, elements, device), predicted(program, elements, device, seen)
    seconds = measured(sc, program, elements, clock)
    return {"program": program.name, "low": probed.low * 1e3, "high": probed.high * 1e3, "measured": seconds * 1e3,
            "ratio": seconds / (probed.low * probed.high) ** 0.5, "unprobed": seconds / (plain.low * plain.high) ** 0.5,
            "probe": seen and [seen.plan, seen.record]}


@click.command()
@click.argument("device")
@click.option("--elements", type=click.IntRange(10_000), default=32_000_000, show_default=True, help="Numbers held.")
@click.option("--calibration", type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="Of vispark calibrate.")
@click.option("--clock", type=click.Choice(["wall", "processor"]), default="wall", show_default=True)
@click.option("--only", default="", help="A part of the names of those that are wanted.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="JSON with the calibration and the rows.")
def main(device: str, elements: int, calibration: Path | None, clock: str, only: str, out: Path | None) -> None:
    """Calibrate a device, predict passes of programs on it, run them, and print both."""
    with tempfile.TemporaryDirectory(prefix="vispark-predictions-") as folder:
        os.environ.setdefault("VISPARK_RUNTIME_DIR", folder)
        now = time.perf_counter if clock == "wall" else processor_clock(os.environ["VISPARK_RUNTIME_DIR"])
        conf = SparkConf().setMaster("local[1]").set("spark.vispark.device", device).setAll([
            ("spark.ui.enabled", "false"), ("spark.ui.showConsoleProgress", "false"),
            ("spark.vispark.fallback", "error")])       # a pass that is a Spark job is none of the device's
        with SparkContext(conf=conf) as sc:
            if calibration is None:
                calibration = Path(folder) / "calibration.json"
                figures = measure(sc, most_elements(), clock=now)
                written(calibration, device, device, figures, os.getloadavg()[0], device)
            rates, = calibrated_device(calibration).values()
            kept = json.loads(calibration.read_text(encoding="utf-8"))
            click.echo(HEAD)
            rows = []
            for program in programs():
                if only in program.name:
                    rows.append(compared(sc, program, elements, rates, now))
                    click.echo(line_of(rows[-1]))
                    if out is not None:         # a run that is cut short leaves what it measured
                        out.write_text(json.dumps({"clock": clock, "elements": elements, "calibration": kept,
                                                   "programs": rows}, indent=2) + "\n", encoding="utf-8")
    for line in (*summary(rows), json.dumps(kept["rates"])):
        click.echo(line)


if __name__ == "__main__":
    main()
