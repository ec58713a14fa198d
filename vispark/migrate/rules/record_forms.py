"""Forms in which a port may have recorded records, so that the functions of these translate: as they are, by
``of="record"``, pairs as dicts, named tuples as tuples.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from vispark.api.keys.keyed import not_whole
from vispark.errors import VisparkError
from vispark.migrate.rules.functions import Verdict, first_line
from vispark.migrate.rules.typed_verdicts import (
    PAIRS,
    AnyFunction,
    as_dicts,
    is_of_pairs,
    of_dicts,
    schema_of,
    typed_verdict,
)
from vispark.translate.frontend.capture import is_named_tuple

Asked = tuple[list[tuple[AnyFunction, str]], Sequence[Any]]


@dataclass(frozen=True)
class RecordForm:
    """Form of what a function is of: dicts in place of pairs, and ``of=`` of the ``vmap``."""

    pairs: bool = False
    of: str = ""


def plain(records: Sequence[Any]) -> list[Any]:
    """Return records with plain tuples in place of named ones.

    Examples
    --------
    >>> from collections import namedtuple
    >>> plain([namedtuple("Point", "x y")(1, 2.5)])
    [(1, 2.5)]
    """
    return [tuple(each) if is_named_tuple(type(each)) else each for each in records]


def named_of(records: Sequence[Any]) -> list[str]:
    """Return the name of the class of named tuples and their fields; empty for other records."""
    kind: Any = type(records[0]) if records else tuple
    return [kind.__name__, *kind._fields] if is_named_tuple(kind) else []


def why_not_kept(records: Sequence[Any]) -> str:
    """Return the reason why workers do not keep the records for which a filter holds; empty where they do.

    Examples
    --------
    >>> why_not_kept([1.5]), why_not_kept([(1, 2.0)])
    ('', 'the records are pairs that were sent, whose keys stay on the host')
    """
    return _why_not_held(records) or not_whole(schema_of(records).layout)


def verdict_by_form(chain: Sequence[tuple[AnyFunction, str]], records: Sequence[Any],
                    only: RecordForm | None = None) -> tuple[Verdict, RecordForm, Asked]:
    """Return the verdict on a chain of functions for some records, in the first form with which it translates.

    Parameters
    ----------
    chain : sequence of (function, of)
        As for :func:`.typed_verdicts.typed_verdict`.
    records : sequence
        Records that its first function is of.
    only : RecordForm, optional
        The form that a port has because of another function.

    Examples
    --------
    >>> said, form, _ = verdict_by_form([(lambda r: r[0] % 2, "")], [(3, 0.5, 1.0)])
    >>> said.is_read, form.of
    (True, 'record')
    """
    refused = None
    if records and (reason := _why_not_held(plain(records))):
        return Verdict(False, reason), RecordForm(), (list(chain), plain(records))
    for form, function, held in _forms(chain[0][0], records):
        if only is not None and form != only:
            continue
        typed = [(function, form.of), *chain[1:]], held
        verdict = typed_verdict(*typed)
        if verdict.is_read:
            return verdict, form, typed
        refused = refused or (verdict, form, typed)
    assert refused is not None
    verdict, form, typed = refused
    if form.pairs and (why := _why_not_held(typed[1]) or ("" if verdict.line else PAIRS)):
        return Verdict(False, why), form, typed
    return verdict, form, typed


def _why_not_held(records: Sequence[Any]) -> str:
    """Return the reason why no worker can hold records; empty where one can."""
    try:
        schema_of(records)
    except VisparkError as error:
        return first_line(error.message)
    return ""


def held_as_form(function: AnyFunction, records: Sequence[Any], form: RecordForm) -> tuple[AnyFunction, Sequence[Any]]:
    """Return a function and records in one form; as they are where there is none such."""
    of_form = [(each, held) for one, each, held in _forms(function, records) if one == form]
    return of_form[0] if of_form else (function, plain(records))


def _forms(function: AnyFunction, records: Sequence[Any]) -> Iterator[tuple[RecordForm, AnyFunction, Sequence[Any]]]:
    """Yield forms, from the most to the least natural, with the function of each and the records in it."""
    held, kind = plain(records), type(records[0]) if records else tuple
    if is_of_pairs(held):
        apart = of_dicts(function) if kind is tuple else _of_named_dicts(function, kind)
        yield RecordForm(pairs=True), apart, as_dicts(held)
        if kind is tuple:
            yield RecordForm(of="record"), function, held
    elif is_named_tuple(kind):
        yield RecordForm(of="record"), _of_named(function, kind), held
    elif kind is tuple and held:
        types = {type(each) for each in held[0]}
        forms = ["", "record"] if len(types) == 1 else ["record", ""]
        yield from ((RecordForm(of=of), function, held) for of in forms)
    else:
        yield RecordForm(), function, held


def _of_named(function: AnyFunction, kind: Any) -> AnyFunction:
    """Return a function of tuples, by one of named tuples."""
    return lambda record: function(kind(*record))


def _of_named_dicts(function: AnyFunction, kind: Any) -> AnyFunction:
    """Return a function of dicts with a key and a value, by one of named tuples of two."""
    return lambda record: function(kind(record["key"], record["value"]))
