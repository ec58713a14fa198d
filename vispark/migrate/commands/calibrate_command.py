"""``vispark calibrate``: measures a device, and writes what predictions rest on."""

from __future__ import annotations

from pathlib import Path

import click
from pyspark import SparkConf, SparkContext

from gpu_worker.commands.deployment.output import emit, json_option
from vispark.migrate.predict.calibration import machine_load, measure, most_elements, refuse_busy, written
from vispark.migrate.written_files import check_file


@click.command("calibrate")
@click.option("--device", default="auto", show_default=True, help="As spark.vispark.device.")
@click.option("--name", default="", help="Its name in predictions, as h200. [default: that of --device]")
@click.option("--elements", type=click.IntRange(1000), default=None,
              help="Numbers held at most, of 8 bytes; each rate takes as few as tell it. [default: what fits into a "
                   "quarter of the memory that is free, 2**30 at most]")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), default=Path("calibration.json"),
              show_default=True)
@json_option
def command(device: str, name: str, elements: int | None, out: Path, as_json: bool) -> None:
    """Measure a device by plans of vispark, for vispark predict --calibration.

    Refused, with exit status 4, on a machine of which more than half of the cores were busy in the last minute.
    """
    check_file(out)
    load, cores = machine_load()
    refuse_busy(load, cores)
    conf = SparkConf().setMaster("local[1]").setAppName("vispark calibrate").set("spark.vispark.device", device)
    with SparkContext(conf=conf.set("spark.ui.enabled", "false")) as sc:
        rates = measure(sc, elements or most_elements())
    document = written(out, name or device, name or device, rates, load, device)
    emit(document, as_json, lambda: f"{out}: " + ", ".join(f"{key} {value:.3g}" for key, value in rates.items()))
