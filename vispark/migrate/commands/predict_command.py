"""``vispark predict``: a pass and a program on devices, from what is known of its work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from gpu_worker.commands.deployment.output import emit, json_option
from vispark.migrate.errors import UNKNOWN, YES, PredictionError
from vispark.migrate.predict.cluster_shapes import NODES, ShapeRow, least_gpus, matrix, shapes
from vispark.migrate.predict.physics import (
    DeviceRates,
    Interval,
    KernelWork,
    PassWork,
    ProgramTimes,
    chosen_devices,
    predict_pass,
)
from vispark.migrate.predict.prices import SHIPPED, PriceList, read_prices
from vispark.migrate.store.history import History

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command("predict")
@click.option("--bytes", "bytes_", type=click.FloatRange(0), default=None, help="Bytes that a pass reads and writes.")
@click.option("--data", type=click.FloatRange(0), default=None, help="Bytes that are held. [default: --bytes]")
@click.option("--operations", type=click.FloatRange(0), default=0.0, help="Operations of a pass.")
@click.option("--dtype", type=click.Choice(["float64", "float32"]), default="float64", show_default=True)
@click.option("--readings", type=click.IntRange(1), default=1, help="How often a pass goes over its data.")
@click.option("--passes", type=click.IntRange(1), default=100, show_default=True)
@click.option("--cpu-pass", type=click.FloatRange(0, min_open=True), default=None, help="Seconds of a pass on the CPU.")
@click.option("--rest", type=click.FloatRange(0), default=0.0, help="Seconds of the program without its passes.")
@click.option("--load", type=click.FloatRange(0), nargs=2, default=None, metavar="LOW HIGH",
              help="Seconds that loading and compiling add.")
@click.option("--on", default="", help="Devices, with commas between them. [default: all]")
@click.option("--calibration", type=_FILE, default=None, help="What vispark calibrate wrote.")
@click.option("--nodes", default=",".join(map(str, NODES)), show_default=True, help="Numbers of nodes.")
@click.option("--prices", type=_FILE, default=SHIPPED, help="A dated file of prices. [default: vispark's own]")
@click.option("--job", type=int, default=None, help="Keep it with this job of vispark report list, with --line.")
@click.option("--line", type=click.IntRange(1), default=None, help="Line of the loop in the job's program.")
@json_option
def command(bytes_: float | None, data: float | None, operations: float, dtype: str, readings: int, passes: int,
            cpu_pass: float | None, rest: float, load: tuple[float, float] | None, on: str, calibration: Path | None,
            nodes: str, prices: Path, job: int | None, line: int | None, as_json: bool) -> None:
    """Predict a loop's passes, the whole program, and from which pass on a port pays, as intervals.

    Exit status 4 where no device's times are known.
    """
    devices = devices_of(on, calibration)
    work = PassWork([KernelWork(bytes_, {dtype: operations} if operations else {}, readings)])
    price_list = read_prices(prices)
    rows = shapes(work, passes, Interval(rest, rest) + Interval(*load or (0.0, 0.0)), data or bytes_ or 0.0, devices,
                  price_list, nodes=_numbers(nodes))
    known = [_prediction(name, device, work, cpu_pass, rest, load) for name, device in devices.items()]
    if job is not None:
        _keep(job, line, known)
    emit({"devices": known, "shapes": [row.as_json() for row in rows], "prices": price_list.date,
          "no_price": [name for name in devices if price_list.price(name) is None]},
         as_json, lambda: _text(known, rows, passes, price_list))
    click.get_current_context().exit(YES if any(each["pass"] for each in known) else UNKNOWN)


def devices_of(on: str, calibration: Path | None) -> dict[str, DeviceRates]:
    """Return the devices that ``--on`` names; one that is not known is wrong use."""
    try:
        return chosen_devices(on, calibration)
    except PredictionError as error:
        if error.message.startswith("no device"):
            raise click.BadParameter(error.message, param_hint="--on") from error
        raise


def _numbers(text: str) -> list[int]:
    """Return the numbers of a list with commas; one that is none above 0 is wrong use."""
    try:
        numbers = [int(each) for each in text.split(",")]
    except ValueError:
        numbers = [0]
    if min(numbers) < 1:
        raise click.BadParameter(f"{text!r} are no numbers above 0 with commas between them", param_hint="--nodes")
    return numbers


def _keep(job: int, line: int | None, known: list[dict[str, Any]]) -> None:
    """Write the passes that are predicted of a job's loop to the store."""
    if line is None:
        raise click.UsageError("--job takes --line, the line of the loop in the job's program")
    history = History()
    for prediction in known:
        if prediction["pass"]:
            history.add_prediction(job, line, prediction["device"], *prediction["pass"])


def _prediction(name: str, device: DeviceRates, work: PassWork, cpu_pass: float | None, rest: float,
                load: tuple[float, float] | None) -> dict[str, Any]:
    one = predict_pass(work, device)
    least = least_gpus(sum(each.bytes or 0 for each in work.kernels), device)
    prediction: dict[str, Any] = {"device": name, "calibrated": device.calibrated, "pass": None, "why": str(one),
                                  "pays_from": None, "least_gpus": least}
    if isinstance(one, Interval):
        prediction |= {"pass": [one.low, one.high], "why": ""}
        if cpu_pass is None or load is None:
            prediction["why"] = "from which pass on it pays needs --cpu-pass and --load"
        else:
            cpu = Interval(cpu_pass, cpu_pass)
            prediction["pays_from"] = ProgramTimes(cpu, Interval(rest, rest), one, Interval(*load)).break_even()
    return prediction


def _text(known: list[dict[str, Any]], rows: list[ShapeRow], passes: int, prices: PriceList) -> str:
    lines = []
    for prediction in known:
        figure = f"a pass {Interval(*prediction['pass'])}" if prediction["pass"] else prediction["why"]
        if prediction["pays_from"]:
            best, surely = prediction["pays_from"]
            figure += f"; pays from pass {best or 'never'}, surely from {surely or 'never'}"
        basis = "" if prediction["calibrated"] else " (data sheet, not calibrated)"
        lines.append(f"{prediction['device']}: {figure}{basis}")
    lines.append(f"the program, {passes} passes, by nodes and GPUs, time and cost; {prices}")
    return "\n".join([*lines, *matrix(rows, prices)])
