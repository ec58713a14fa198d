"""Folds by key by any associative function, in the workers: a key's values become one record, whose values are joined.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from gpu_worker.protocol.errors import OutOfMemory
from vispark.api.keys import keyed
from vispark.api.operations.device_ops import vmap
from vispark.api.operations.joins import not_associative, spec_of
from vispark.api.operations.python_meaning import why_no_python_join_of_values
from vispark.api.rdds.fallback import report_fallback
from vispark.api.rdds.recorded_rdd import RecordedRDD
from vispark.data.records.layout import RecordLayout
from vispark.data.records.pairs import key_parts, not_pairs, value_parts
from vispark.errors import PlanError
from vispark.translate import TranslationError

log = logging.getLogger(__name__)

_ACTION = "reduceByKey"
#: The records by which it is tried whether a function is associative.
_TRIED = 21
#: The most numbers of a value.
_WIDEST = 4
#: Python's types of numbers, as which a function gives them back.
_PYTHONS: dict[str, Callable[[Any], Any]] = {"int": int, "float": float, "bool": bool}


def reduced_by(source: RecordedRDD, function: Callable[[Any, Any], Any], why: str,
               partitions: int) -> tuple[Any, Any] | None:
    """Return the VRDD of ``reduceByKey`` by a function that is no operator, behind that of the keys' rows; None where
    Spark is to fold, with the reason told.

    A key's values are joined one after another, in the order of the records. ``why`` says why it is no operator.
    """
    if not source._is_held():
        return None
    try:
        layout, reason = _layout_of(source, function)
        joined = None if layout is None or reason else _joined(function, layout)
    except (OutOfMemory, PlanError, TranslationError) as error:
        joined, reason = None, str(error)
    rows = None if joined is None else keyed.rows_by_key(source, partitions)
    if rows is not None and joined is not None:
        values = vmap(rows, joined).cache()
        values.partitioner = rows.partitioner
        return rows, values
    if reason:
        reason = f"{why}; and it is not run as a function: {reason}"
        log.info("reduceByKey() of VRDD %s is a Spark job: %s", source._shown(), reason)
        source._folds[_ACTION] = reason
        report_fallback(source.ctx, _ACTION, f"VRDD {source._shown()}", reason)
    return None


def _layout_of(source: RecordedRDD, function: Callable[[Any, Any], Any]) -> tuple[RecordLayout | None, str]:
    """Return the layout of the pairs, with the reason why a function does not join their values; "" if it does."""
    contents = [each for each in source._results() if each.count]
    if not contents:
        return None, "there are no records"
    layout = contents[0].layout
    reason = not_pairs(layout)
    if reason:
        return None, reason
    parts = value_parts(layout)
    names = [part.name for part in parts]
    if any(part.form != "number" for part in parts) or len(parts) > _WIDEST or \
            names not in (["1"], [f"1.{place}" for place in range(len(parts))]):
        return None, f"values are no numbers, nor tuples of up to {_WIDEST}; rowsByKey() and a loop fold others"
    reason = why_no_python_join_of_values(source, spec_of(function, _ACTION).function)
    if reason:
        return None, reason
    after = next(each for each in vmap(source, lambda pair: (pair[0], function(pair[1], pair[1])))._results()
                 if each.count).layout
    if [(part.name, part.dtype) for part in after.parts] != [(part.name, part.dtype) for part in layout.parts]:
        return None, "the function of two values gives another type than theirs"
    return layout, not_associative(function, [value for _, value in source.take(_TRIED)])


def _joined(function: Callable[[Any, Any], Any], layout: RecordLayout) -> Callable[[Any], Any]:
    """Return the function of a key and the rows of its values' numbers that joins these, and gives the key beside.

    Numbers that were Python's are so again.
    """
    parts = value_parts(layout)
    keys = [_PYTHONS.get(part.types[0], _same) for part in key_parts(layout)]
    kinds = [_PYTHONS.get(part.types[0], _same) for part in parts]
    whole = _python_key(keys)
    if parts[0].name == "1":
        return _of_numbers(function, whole, kinds[0])
    return _OF_TUPLES[len(parts)](function, whole, kinds)


def _python_key(kinds: Sequence[Callable[[Any], Any]]) -> Callable[[Any], Any]:
    """Return the function of a key that gives its numbers the types that they had."""
    if len(kinds) == 1:
        return kinds[0]
    if all(kind is _same for kind in kinds):
        return _same
    if len(kinds) > len(_OF_TUPLES):
        raise PlanError(f"keys are tuples of {len(kinds)} Python numbers; rowsByKey() and a loop fold their values")
    first, second, third = (*kinds, _same)[:3]
    if len(kinds) == 2:
        return lambda key: (first(key[0]), second(key[1]))
    return lambda key: (first(key[0]), second(key[1]), third(key[2]))


def _of_numbers(function: Callable[[Any, Any], Any], key: Callable[[Any], Any],
                kind: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def joined(pair):       # type: ignore[no-untyped-def]
        total = pair[1][0]
        for place in range(1, len(pair[1])):
            total = function(total, pair[1][place])
        return key(pair[0]), kind(total)
    return joined


def _of_pairs(function: Callable[[Any, Any], Any], key: Callable[[Any], Any],
              kinds: Any) -> Callable[[Any], Any]:
    kind_a, kind_b = kinds

    def joined(pair):       # type: ignore[no-untyped-def]
        a, b = pair[1]
        first, second = a[0], b[0]
        for place in range(1, len(a)):
            first, second = function((first, second), (a[place], b[place]))
        return key(pair[0]), (kind_a(first), kind_b(second))
    return joined


def _of_triples(function: Callable[[Any, Any], Any], key: Callable[[Any], Any],
              kinds: Any) -> Callable[[Any], Any]:
    kind_a, kind_b, kind_c = kinds

    def joined(pair):       # type: ignore[no-untyped-def]
        a, b, c = pair[1]
        first, second, third = a[0], b[0], c[0]
        for place in range(1, len(a)):
            first, second, third = function((first, second, third), (a[place], b[place], c[place]))
        return key(pair[0]), (kind_a(first), kind_b(second), kind_c(third))
    return joined


def _of_fours(function: Callable[[Any, Any], Any], key: Callable[[Any], Any],
              kinds: Any) -> Callable[[Any], Any]:
    kind_a, kind_b, kind_c, kind_d = kinds

    def joined(pair):       # type: ignore[no-untyped-def]
        a, b, c, d = pair[1]
        first, second, third, fourth = a[0], b[0], c[0], d[0]
        for place in range(1, len(a)):
            first, second, third, fourth = function((first, second, third, fourth),
                                                    (a[place], b[place], c[place], d[place]))
        return key(pair[0]), (kind_a(first), kind_b(second), kind_c(third), kind_d(fourth))
    return joined


_OF_TUPLES: dict[int, Callable[..., Callable[[Any], Any]]] = {2: _of_pairs, 3: _of_triples, 4: _of_fours}


def _same(value: Any) -> Any:
    return value
