"""Shapes of clusters, nodes and the GPUs of each, with a program's time, whether its data fits, and what it costs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from vispark.migrate.predict.physics import DeviceRates, Interval, PassWork, PredictedTime, UnknownTime, predict_pass
from vispark.migrate.predict.prices import Price, PriceList

#: Least part of a device's memory that stays free, and versions of the data that passes hold at most.
USABLE, VERSIONS, OVERHEAD = 0.85, 2.0, 1.1
#: GPUs of a node, and nodes, that are looked at.
GPUS, NODES = (1, 2, 4, 8), (1, 2, 4)


@dataclass(frozen=True)
class ShapeRow:
    """Cell of the matrix of shapes: nodes with GPUs of one device, whether the data fits, a time, and a price.

    Attributes
    ----------
    gpus : int
        Of each node.
    price : Price or None
        None where there is none.
    """

    device: str
    nodes: int
    gpus: int
    fits: bool | None
    seconds: PredictedTime
    price: Price | None
    calibrated: bool

    @property
    def cost(self) -> tuple[float, float] | None:
        """What the program costs; None where time or price is not known."""
        if self.price is None or isinstance(self.seconds, UnknownTime):
            return None
        return self.price.of(self.seconds.low, self.seconds.high)

    def as_json(self) -> dict[str, Any]:
        """Return the shape as JSON has it."""
        low, high = (self.seconds.low, self.seconds.high) if isinstance(self.seconds, Interval) else (None, None)
        return {"device": self.device, "nodes": self.nodes, "gpus": self.gpus, "fits": self.fits,
                "calibrated": self.calibrated, "low": low, "high": high, "why": "" if low else str(self.seconds),
                "cost": self.cost, "instance": self.price.instance if self.price else ""}

    def __str__(self) -> str:
        if isinstance(self.seconds, UnknownTime):
            return "not known"
        if self.fits is False:
            return "does not fit"
        cost = f", {self.cost[0]:.2g} .. {self.cost[1]:.2g}" if self.cost else ""
        return f"{self.seconds}{cost}{'?' if self.fits is None else ''}"


def least_gpus(data: float, device: DeviceRates) -> int | None:
    """Return the number of GPUs that hold two versions of data, in bytes; None where their memory is not known.

    Examples
    --------
    >>> from vispark.migrate.predict.physics import read_devices
    >>> least_gpus(300e9, read_devices()["h200"])
    6
    """
    return math.ceil(VERSIONS * data * OVERHEAD / (USABLE * device.size)) or 1 if device.size else None


def shapes(work: PassWork, passes: int, rest: Interval, data: float, devices: Mapping[str, DeviceRates],
           prices: PriceList | None = None, gpus: Sequence[int] = GPUS, nodes: Sequence[int] = NODES) -> list[ShapeRow]:
    """Return the matrix of devices, nodes and GPUs: kernels' work is divided, what is the driver's is not.

    Parameters
    ----------
    work : PassWork
        Of a pass, over all data.
    passes : int
        How many.
    rest : Interval
        Seconds of the program without its passes, whatever the shape.
    data : float
        Bytes of one version of the data on devices.
    devices : mapping
        Rates by name.
    prices : PriceList, optional
        Without it there are none.
    gpus, nodes : sequence of int
        Numbers of GPUs of a node, and of nodes.
    """
    rows = []
    for name, device in devices.items():
        least = least_gpus(data, device)
        for count in nodes:
            for number in gpus:
                parts = replace(work, kernels=[each.part(count * number) for each in work.kernels])
                one = predict_pass(parts, device, count)
                rows.append(ShapeRow(name, count, number, None if least is None else count * number >= least,
                                     rest + one.times(passes) if isinstance(one, Interval) else one,
                                     prices.price(name, number, count) if prices else None, device.calibrated))
    return rows


def matrix(rows: Sequence[ShapeRow], prices: PriceList | None = None) -> Iterator[str]:
    """Yield the lines of a matrix: for each device a line of GPUs, and one for each number of nodes.

    Examples
    --------
    >>> rows = [ShapeRow("t4", 2, number, number > 1, Interval(1, 2), None, True) for number in (1, 8)]
    >>> print("\\n".join(matrix(rows)))
    t4       1 GPU a node  8 GPUs a node
    2 nodes  does not fit  1 .. 2 s
    """
    for device in dict.fromkeys(row.device for row in rows):
        own = [row for row in rows if row.device == device]
        lines = [[device, *(f"{each} GPU{'s' if each > 1 else ''} a node" for each in dict.fromkeys(
            row.gpus for row in own))]]
        for nodes in dict.fromkeys(row.nodes for row in own):
            lines.append([f"{nodes} node{'s' if nodes > 1 else ''}", *(str(row) for row in own if row.nodes == nodes)])
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        yield from ("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)
        types: dict[str, list[str]] = {}
        for row in own:
            if row.nodes == own[0].nodes and row.price and row.price.instance:
                types.setdefault(row.price.instance, []).append(str(row.gpus))
        if types:
            yield "nodes: " + ", ".join(f"{name} for {' and '.join(gpus)}" for name, gpus in types.items())
        elif prices is not None and own[0].price is None:
            yield prices.missing(device)
