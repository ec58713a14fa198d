"""Recorded chains of operations as their port has them, run on a device by a probe."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np
from py4j.protocol import Py4JError
from pyspark import SparkContext

from vispark.errors import VisparkError
from vispark.migrate.capture.clocks import pass_clock
from vispark.migrate.capture.recorded_program import asking_rows, programs_of, promised_keys, recorded_calls
from vispark.migrate.capture.run_capture import CapturedCall, RunCapture
from vispark.migrate.predict.physics import ProbedRate
from vispark.migrate.predict.probe import probe
from vispark.migrate.record.live_rows import live_row_function
from vispark.migrate.rules.functions import FOLDS, FOLDS_BY_KEY
from vispark.migrate.rules.loop_rules import DRAWS, MAPS, PASSING
from vispark.migrate.rules.record_forms import RecordForm, held_as_form
from vispark.migrate.source.row_functions import FunctionOfRow

_DEVICE = "spark.vispark.device"
#: Rows of blocks that a probe draws from, about.
ROWS = 256


@dataclass(frozen=True)
class ProbedCall:
    """Recorded operation with the arguments of its last run.

    Attributes
    ----------
    row : FunctionOfRow, optional
        Of a ``map`` of blocks, which its port has as one of rows.
    is_bounded : bool
        Whether its port gives it ``numKeys=``.
    """

    call: CapturedCall
    arguments: tuple[Any, ...]
    named: Mapping[str, Any]
    row: FunctionOfRow | None = None
    is_bounded: bool = False

    @property
    def is_ported(self) -> bool:
        """Whether a port has it in the workers, if it has a function."""
        return bool(self.call.is_read) or self.row is not None

    def as_ported(self) -> Callable[[Any], Any]:
        """Return a function that gives the operation's result on a VRDD, as the port has it.

        A row function is made here, once, as the port has it once: one that is new in each pass would be read anew.
        """
        method, named = self.call.method, dict(self.named)
        if self.row is not None:
            function, fold = live_row_function(self.arguments[0], self.row)
            return lambda vrdd: vrdd.vmap(function).vreduce(fold) if fold else vrdd.vmap(function)
        if method == "map":
            return lambda vrdd: vrdd.vmap(*self.arguments, **named, of=self.call.of or None)
        if method == "mapValues":
            return lambda vrdd: vrdd.vmap(*self.arguments, **named, of="value")
        if self.is_bounded and self.call.keys:
            named["numKeys"] = self.call.keys[1] + 1
        return lambda vrdd: getattr(vrdd, method)(*self.arguments, **named)


def probe_recording(context: SparkContext, capture: RunCapture, calls: Mapping[int, ProbedCall],
                    samples: Mapping[int, Sequence[Any]], device: str, limit: float = math.inf) -> None:
    """Run each recorded action that its port would have on a device there, and note its seconds with it.

    Those that ran most often go first.

    Parameters
    ----------
    context : SparkContext
        Of the program; what runs vispark in it has this device.
    capture : RunCapture
        The program's recording; its actions get their ``probes``.
    calls, samples : mapping
        By the numbers of the recorded calls: operations, and records of what is cached.
    device : str
        ``spark.vispark.device``.
    limit : float
        Seconds, beside the first measurement of each action, after which nothing larger is begun.
    """
    context._conf.set(_DEVICE, device)
    clock = pass_clock()
    began, first = time.perf_counter(), 0.0
    with_rows = {**calls, **{number: replace(calls[number], row=row) for number, row in _rows(capture).items()
                             if number in calls}}
    with_rows |= {number: replace(with_rows[number], is_bounded=True) for number in _bounded(capture)
                  if number in calls}
    for action in sorted(capture.calls, key=lambda call: -len(call.starts)):
        chain, held = chain_of(action.number, with_rows, samples) if action.starts else ([], None)
        if held is None:
            continue
        if time.perf_counter() - began - first > limit:
            return
        started = time.perf_counter()
        rate = probed(context, chain, samples[held], capture.calls[held].count, limit, clock)
        first = first or time.perf_counter() - started
        if rate is not None:
            action.probes[device] = [rate.plan, rate.record]


def _rows(capture: RunCapture) -> dict[int, FunctionOfRow]:
    """Return the row functions of recorded functions of blocks, by the numbers of their calls."""
    row_functions = {}
    for program in programs_of(capture):
        recorded = recorded_calls(program, capture)
        ask = asking_rows(program, recorded, capture)
        for call, one in recorded.items():
            if one.method == "map" and not one.is_read and isinstance(row := ask(call), FunctionOfRow):
                row_functions[one.number] = row
    return row_functions


def _bounded(capture: RunCapture) -> set[int]:
    """Return the numbers of the folds by key that a port gives ``numKeys=``."""
    return {found.number for program in programs_of(capture) for call, found in recorded_calls(program, capture).items()
            if found.method in FOLDS_BY_KEY and promised_keys(program, call, found)}


def chain_of(number: int, calls: Mapping[int, ProbedCall],
             samples: Mapping[int, Sequence[Any]]) -> tuple[list[ProbedCall], int | None]:
    """Return an action with the operations before it, and the number of what is cached, which the first one is on.

    None where a port would not have all of them on the device. What the driver does with the few records of a fold by
    key is left out.
    """
    chain, at, seen = [calls[number]], calls[number].call.on, {number}
    while at is not None and at not in samples and at in calls and at not in seen:
        seen.add(at)
        chain.insert(0, calls[at])
        at = calls[at].call.on
    keyed = next((place for place, each in enumerate(chain) if each.call.method in FOLDS_BY_KEY), None)
    if keyed is not None:
        chain = [*chain[:keyed + 1], calls[number]]
    before = chain[:-1]
    fits = all(each.call.method in PASSING | FOLDS for each in before) and all(
        each.is_ported for each in chain if each.call.method in MAPS | FOLDS | {"filter"})
    # A function of blocks is on what is cached, and nothing but folds goes behind it.
    fits = fits and all(each.row is None for each in chain[1:]) and (
        not before or chain[0].row is None or not any(each.call.method in MAPS | DRAWS for each in before[1:]))
    return (chain, at) if at is not None and at in samples and before and fits else ([], None)


def probed(context: SparkContext, chain: Sequence[ProbedCall], records: Sequence[Any], count: int | None = None,
           limit: float = math.inf, clock: Callable[[], float] = time.perf_counter) -> ProbedRate | None:
    """Return the seconds of a chain's action on a device; None where it does not run there, or ``limit`` ended it.

    Parameters
    ----------
    context : SparkContext
        Of the program; its ``spark.vispark.device`` says which.
    chain : sequence of ProbedCall
        By :func:`chain_of`.
    records : sequence
        Some of what it is on.
    count : int, optional
        How many there are.
    limit : float
        Seconds, as :func:`~vispark.migrate.predict.probe.probe` has them.
    clock : callable
        Gives seconds.
    """
    scale = 1.0
    if chain[0].row is not None:
        scale = sum(map(len, records)) / len(records)
        rows, count = np.concatenate(records), None if count is None else int(count * scale)
        records = list(rows[::max(1, len(rows) // ROWS)])
    elif chain[0].call.method == "map":
        first = chain[0]
        function, records = held_as_form(first.arguments[0], records, RecordForm(first.call.pairs, first.call.of))
        chain = [ProbedCall(first.call, (function, *first.arguments[1:]), first.named), *chain[1:]]
    try:
        rate = probe(context, records, _action(chain), clock, count, limit)
    except (VisparkError, Py4JError):
        return None
    if rate is None or rate.record is None:
        return rate
    return ProbedRate(rate.plan, rate.record * scale)


def _action(chain: Sequence[ProbedCall]) -> Callable[[Any], Any]:
    operations = [each.as_ported() for each in chain]
    return lambda held: reduce(lambda vrdd, operation: operation(vrdd), operations, held)
