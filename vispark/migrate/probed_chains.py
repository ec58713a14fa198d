"""Recorded chains of operations as their port has them, to be run on a device by a probe."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark import SparkContext

from vispark.errors import VisparkError
from vispark.migrate.capture import CapturedCall
from vispark.migrate.functions import FOLDS
from vispark.migrate.predict import ProbedRate
from vispark.migrate.probe import probe
from vispark.migrate.rules import DRAWS, MAPS
from vispark.migrate.typed import as_dicts, is_of_pairs, of_dicts

_BY_KEY = ("reduceByKey", "foldByKey")
_DEVICE = "spark.vispark.device"


@dataclass(frozen=True)
class ProbedCall:
    """Recorded operation with the arguments of its last run."""

    call: CapturedCall
    arguments: tuple[Any, ...]
    named: Mapping[str, Any]

    def of(self, vrdd: Any) -> Any:
        """Return the operation's result on a VRDD, as the port has it."""
        method, named = self.call.method, dict(self.named)
        if method == "map":
            return vrdd.vmap(*self.arguments, **named)
        if method == "mapValues":
            return vrdd.vmap(*self.arguments, **named, of="value")
        if method in _BY_KEY and self.call.keys:
            named["numKeys"] = self.call.keys[1] + 1
        return getattr(vrdd, method)(*self.arguments, **named)


def chain_of(number: int, calls: Mapping[int, ProbedCall],
             samples: Mapping[int, Sequence[Any]]) -> tuple[list[ProbedCall], Sequence[Any]]:
    """Return an action with the operations before it, and the sample of what is cached and the first one is on.

    The chain is empty where a port would not have all of them on the device. What the driver does with the few records
    of a fold by key is left out.
    """
    chain, at = [calls[number]], calls[number].call.on
    while at is not None and at not in samples and at in calls:
        chain.insert(0, calls[at])
        at = calls[at].call.on
    keyed = next((place for place, each in enumerate(chain) if each.call.method in _BY_KEY), None)
    if keyed is not None:
        chain = [*chain[:keyed + 1], calls[number]]
    before = chain[:-1]
    fits = all(each.call.method in MAPS | DRAWS | FOLDS for each in before) and all(
        each.call.is_read for each in chain if each.call.method in MAPS | FOLDS)
    return (chain, samples[at]) if at is not None and at in samples and before and fits else ([], [])


def probed(context: SparkContext, chain: Sequence[ProbedCall], records: Sequence[Any],
           device: str) -> ProbedRate | None:
    """Return the seconds of a chain's action on a device; None where it does not run there, or tells nothing.

    Parameters
    ----------
    context : SparkContext
        Of the program; what runs vispark in it has this device.
    chain : sequence of ProbedCall
        By :func:`chain_of`.
    records : sequence
        Some of what it is on.
    device : str
        ``spark.vispark.device``.
    """
    context._conf.set(_DEVICE, device)
    if is_of_pairs(records) and chain[0].call.method == "map":
        first, records = chain[0], as_dicts(records)
        changed = ProbedCall(first.call, (of_dicts(first.arguments[0]), *first.arguments[1:]), first.named)
        chain = [changed, *chain[1:]]
    try:
        return probe(context, records, _action(chain))
    except VisparkError:
        return None


def _action(chain: Sequence[ProbedCall]) -> Callable[[Any], Any]:
    def run(held: Any) -> Any:
        for each in chain:
            held = each.of(held)
        return held
    return run
