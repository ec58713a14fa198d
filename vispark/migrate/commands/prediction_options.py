"""Options of commands that predict the loops of a recording."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from vispark.migrate.commands.predict_command import devices_of
from vispark.migrate.predict.loop_prediction import PredictionTarget
from vispark.migrate.predict.physics import Interval
from vispark.migrate.predict.prices import SHIPPED, read_prices

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_OPTIONS = (
    click.option("--on", default="", metavar="DEVICES", help="Devices, with commas between them, on which the loops of "
                 "a recording are predicted, as vispark predict has them."),
    click.option("--passes", type=click.IntRange(1), default=100, show_default=True,
                 help="Passes of the program that are asked about, beside those that it had."),
    click.option("--load", type=click.FloatRange(0), nargs=2, default=(0.5, 3.0), show_default=True,
                 metavar="LOW HIGH", help="Seconds that starting a worker, loading and compiling add."),
    click.option("--calibration", type=_FILE, default=None, help="What vispark calibrate wrote."),
    click.option("--prices", type=_FILE, default=SHIPPED, help="A dated file of prices. [default: vispark's own]"))


def prediction_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options of predictions, which it takes as one argument ``target``, a PredictionTarget.

    Its devices are those that were asked for; none where that is none.
    """
    @functools.wraps(command)
    def wrapper(*args: Any, on: str, passes: int, load: tuple[float, float], calibration: Path | None,
                prices: Path, **named: Any) -> Any:
        devices = devices_of(on, calibration) if on or calibration else {}
        target = PredictionTarget(devices, passes, Interval(*load), read_prices(prices))
        return command(*args, target=target, **named)
    for option in reversed(_OPTIONS):
        wrapper = option(wrapper)
    return wrapper
