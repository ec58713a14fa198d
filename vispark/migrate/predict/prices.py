"""Prices of GPUs and of instances that have them, by a dated file that the user may replace."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vispark.migrate.errors import PredictionError

#: The file that is shipped.
SHIPPED = Path(__file__).with_name("prices.toml")


@dataclass(frozen=True)
class Instance:
    """Type of a node: its GPUs, by device and number, and the price of an hour."""

    device: str
    gpus: int
    hour: float


@dataclass(frozen=True)
class Price:
    """Price of an hour of a shape, and the instance type that it is of; empty where GPUs have prices of their own."""

    hour: float
    instance: str = ""

    def of(self, low: float, high: float) -> tuple[float, float]:
        """Return the costs of an interval of seconds."""
        return low * self.hour / 3600, high * self.hour / 3600


@dataclass(frozen=True)
class PriceList:
    """Prices of an hour, with the date and the place that they are of.

    Attributes
    ----------
    prices : mapping
        Of one GPU, by device.
    instances : mapping
        By the name of their type.
    source, file : str
        Who says so, and the file's name.
    """

    date: str
    region: str
    currency: str
    prices: Mapping[str, float] = field(default_factory=dict)
    instances: Mapping[str, Instance] = field(default_factory=dict)
    source: str = ""
    file: str = ""

    def price(self, device: str, gpus: int = 1, nodes: int = 1) -> Price | None:
        """Return the price of nodes with so many GPUs each: of the cheapest instances that have them, used or not.

        Examples
        --------
        >>> prices = read_prices()
        >>> prices.price("h200", 2, 2).hour, prices.price("h200", 2).instance, prices.price("abacus")
        (126.592, 'p5en.48xlarge', None)
        """
        fitting = [(each.hour, name) for name, each in self.instances.items()
                   if each.device == device and each.gpus >= gpus]
        if fitting:
            hour, name = min(fitting)
            return Price(nodes * hour, name)
        return Price(nodes * gpus * self.prices[device]) if device in self.prices else None

    def missing(self, device: str) -> str:
        """Return the note on a device without a price."""
        return f"no price for {device} in {self.file} (dated {self.date})"

    def __str__(self) -> str:
        source = f" ({self.source})" if self.source else ""
        return f"prices of {self.date}, {self.region}, {self.currency}{source}: {self.file}"


def read_prices(path: Path = SHIPPED) -> PriceList:
    """Return the prices of a TOML file.

    It has ``date``, ``region``, ``currency``, a table ``price`` by device or a table ``instance`` by type, and may have
    ``source``.

    Raises
    ------
    PredictionError
        If something of it is missing, or a price is no number above 0.
    """
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
        if missing := [name for name in ("date", "region", "currency") if name not in document]:
            raise ValueError(f"it has no {', no '.join(missing)}")
        if not document.get("price") and not document.get("instance"):
            raise ValueError("it has no type with a price")
        prices = {name: _above_0(f"the price of {name}", price) for name, price in document.get("price", {}).items()}
        instances = {name: _instance(name, each) for name, each in document.get("instance", {}).items()}
        return PriceList(str(document["date"]), str(document["region"]), str(document["currency"]), prices, instances,
                         str(document.get("source", "")), path.name)
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise PredictionError(
            f"{path} is no price list: {error}; it has date, region and currency, and a table [price] of numbers by "
            "device, or [instance] of types, each {device = \"h200\", gpus = 8, hour = 63.3}") from error


def _instance(name: str, values: Mapping[str, Any]) -> Instance:
    """Return an instance type.

    Raises
    ------
    ValueError
        If it lacks what it must have.
    """
    if missing := [each for each in ("device", "gpus", "hour") if each not in values]:
        raise ValueError(f"instance {name} has no {', no '.join(missing)}")
    if type(values["gpus"]) is not int or values["gpus"] < 1:
        raise ValueError(f"instance {name} has {values['gpus']!r} gpus")
    return Instance(str(values["device"]), values["gpus"], _above_0(f"the hour of {name}", values["hour"]))


def _above_0(what: str, value: Any) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < math.inf:
        raise ValueError(f"{what} is {value!r}, no number above 0")
    return float(value)
