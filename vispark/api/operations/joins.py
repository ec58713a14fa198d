"""Folds by any associative function, in the workers: neighbouring records are joined until one of a partition is left.
"""

from __future__ import annotations

import functools
import logging
import operator
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from gpu_worker.protocol.errors import OutOfMemory
from vispark.api.operations.python_meaning import why_no_python_join
from vispark.api.rdds.explain import IN_PASSES
from vispark.api.rdds.recorded_rdd import RecordedRDD
from vispark.data.records.layout import RecordLayout
from vispark.errors import PlanError
from vispark.plan.fold.lowering import why_not_joined
from vispark.plan.fold.spec import LOWERED
from vispark.plan.lower.stages import FETCH
from vispark.plan.map_call import MapSpec, record_map
from vispark.plan.operations.joins import JoinRows, passes
from vispark.translate import TranslationError, trace

log = logging.getLogger(__name__)

#: The records by which it is tried whether a function is associative.
_TRIED = 7
_NUMBERS = [np.float64(0.375), np.float64(-2.5), np.float64(1.25)]
#: How far apart two ways to join floats may be, in units of their dtype's epsilon.
_EPSILONS = 1 << 12


def spec_of(function: Callable[[Any, Any], Any], action: str) -> MapSpec:
    """Record a function of two records.

    Raises
    ------
    TranslationError
        If it has what the language lacks, at its line.
    """
    spec = record_map(function, ())
    return replace(spec, label=f"{action} {spec.function.definition.name}")


def joined(source: RecordedRDD, action: str, function: Callable[[Any, Any], Any]) -> tuple[Any] | str:
    """Return the fold of the records of a VRDD by a function, or the reason why workers cannot compute it.

    The function is called in the driver: on a few records, to see whether it is associative, and on what each
    partition leaves.
    """
    if not source._is_held():
        return "nothing is cached"
    try:
        spec = spec_of(function, action)
        reason = _reason(source, spec) or not_associative(function, source.take(_TRIED))
        if reason:
            return reason
        joined_rows = source
        for op in passes(spec, inside=False):
            joined_rows = joined_rows._then(op)
        records = joined_rows._evaluate(range(source.getNumPartitions()), FETCH).records
    except (OutOfMemory, PlanError, TranslationError) as error:
        return str(error)
    remaining = [record for index in sorted(records) for record in records[index]]
    source._folds[action] = IN_PASSES
    log.debug("%s() of VRDD %s joined neighbours in the workers", action, source._shown())
    with np.errstate(all="ignore"):
        return functools.reduce(function, remaining),


def is_neutral(source: RecordedRDD, zero: Any, function: Callable[[Any, Any], Any]) -> bool:
    """Return whether a value leaves the first records of a VRDD as they are, on either side: where it does not, the
    order in which partitions' totals are joined with it counts.
    """
    if not source._is_held():
        return False
    try:
        trace(function)
        with np.errstate(all="ignore"):
            return all(_same(function(zero, each), each) and _same(function(each, zero), each)
                       for each in source.take(_TRIED))
    except (ArithmeticError, LookupError, TranslationError, TypeError, ValueError):
        return False


def inside(function: Callable[[Any, Any], Any]) -> Sequence[JoinRows]:
    """Return the operations that join the rows inside of each record by a function; none if it is not translated.

    Raises
    ------
    PlanError
        If the function is not associative for three numbers, or three rows of them.
    """
    try:
        spec = spec_of(function, "vreduce")
    except TranslationError:
        return ()
    if len(spec.function.definition.parameters) < 2:
        return ()
    for trial in (_NUMBERS, [np.array([x, -x, 2 * x]) for x in _NUMBERS]):
        try:
            reason = not_associative(function, trial)
        except (LookupError, TypeError, ValueError):        # it is of something else
            continue
        if reason:
            raise PlanError(f"vreduce() cannot run on the device: {reason}. What can: {LOWERED}")
    return passes(spec, inside=True)


def _reason(source: RecordedRDD, spec: MapSpec) -> str:
    """Return the reason why records of a VRDD are not joined by a function in workers; "" if they are."""
    contents = [content for content in source._results() if content.count]
    if not contents:
        return "there are no records"
    return why_not_joined(contents) or _not_joined(contents[0].layout) \
        or why_no_python_join(source, spec.function)


def _not_joined(layout: RecordLayout) -> str:
    if layout.keyed or layout.only:
        return "the records are pairs that were sent, whose keys stay on the host"
    if layout.kind != "elements":
        return "the records are blocks, and functions of whole blocks are not joined in the workers"
    if any(part.form == "tuple" for part in layout.parts):
        return "the records are tuples that were sent: a vmap that returns tuples makes records that can be joined"
    return ""


# -- whether it is associative ----------------------------------------------------------------------------------------

def not_associative(function: Callable[[Any, Any], Any], records: Sequence[Any]) -> str:
    """Return the reason to take a function for one that is not associative, by three records at a time; "" if it may be
    associative.

    Examples
    --------
    >>> not_associative(lambda a, b: a - b, [1.0, 2.0, 3.0])
    'f(f(a, b), c) is -4.0 and f(a, f(b, c)) is 2.0, for a = 1.0, b = 2.0, c = 3.0: f is not associative'
    >>> not_associative(lambda a, b: a if abs(a) > abs(b) else b, [1.0, -2.0, 3.0])
    ''
    """
    with np.errstate(all="ignore"):
        for a, b, c in zip(records, records[1:], records[2:], strict=False):
            left, right = function(function(a, b), c), function(a, function(b, c))
            if not _same(left, right):
                return (f"f(f(a, b), c) is {left} and f(a, f(b, c)) is {right}, for a = {a}, b = {b}, c = {c}: f is "
                        "not associative")
    return ""


def _same(one: Any, other: Any) -> bool:
    """Return whether two values are equal, floats but for rounding."""
    if isinstance(one, tuple | list) and isinstance(other, tuple | list):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[name], other[name]) for name in one)
    first, second = np.asarray(one), np.asarray(other)
    if first.shape != second.shape:
        return False
    if first.dtype.kind not in "fc" and second.dtype.kind not in "fc":
        return bool(np.all(operator.eq(first, second)))
    epsilon = max(float(np.finfo(each.dtype).eps) for each in (first, second) if each.dtype.kind in "fc")
    size = max([float(np.max(np.abs(each[np.isfinite(each)]), initial=0.0)) for each in (first, second)])
    return bool(np.allclose(first, second, rtol=_EPSILONS * epsilon, atol=_EPSILONS * epsilon * size, equal_nan=True))
