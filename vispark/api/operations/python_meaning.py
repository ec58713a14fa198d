"""Checks that workers compute with Python numbers what Python would, for functions of RDD's own methods.

``vmap`` computes as NumPy does. ``filter`` and ``sortBy`` are PySpark's, and mean what they mean there: their functions
are lowered where that is the same for all numbers, or for those between the least and the greatest record.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from gpu_worker.protocol.messages import FoldStep
from vispark.api.rdds.recorded_rdd import RecordedRDD
from vispark.data.records.layout import BY_NAME, RecordLayout, RecordPart
from vispark.plan import ops
from vispark.plan.fold.aggregation import parts_of
from vispark.plan.fold.lowering import finish, reduce_by, why_not_joined
from vispark.plan.fold.reading import Leaf
from vispark.plan.fold.spec import FoldSpec
from vispark.plan.lower.stages import to_fold
from vispark.plan.map_call import record_map
from vispark.translate import Function, trace
from vispark.translate.frontend.exactness import why_no_exact_join, why_no_exact_number, why_not_exact
from vispark.translate.frontend.python_ranges import OfNumPy, Range

#: By part, the least and the greatest number.
_EndsOfParts = Mapping[str, tuple[Any, Any]]
#: The ends of numbers that are kept, which do not change.
_known: weakref.WeakKeyDictionary[RecordedRDD, _EndsOfParts] = weakref.WeakKeyDictionary()


def why_not_python(source: RecordedRDD, function: Callable[[Any], Any]) -> str:
    """Return the reason why a function of a VRDD's records may give something else in workers than in Python; "" if it
    does not.

    Raises
    ------
    TranslationError
        If it has what the language lacks.
    """
    traced: list[Function] = []     # where there are records of Python's numbers

    def why_not(record: Any) -> str:
        traced[:] = traced or [trace(function)]
        return why_not_exact(traced[0], record)

    return _why_not(source, why_not)


def why_no_python_number(source: RecordedRDD, function: Function) -> str:
    """Return the reason why what a function gives of a VRDD's records may be something else in workers than in Python,
    also its type; "" if it is not.
    """
    return _why_not(source, partial(why_no_exact_number, function))


def why_no_python_join(source: RecordedRDD, function: Function) -> str:
    """Return the reason why the fold of a VRDD's records by a function of two may be something else in workers than in
    Python; "" if it is not.
    """
    return _why_not(source, partial(why_no_exact_join, function))


def why_no_python_join_of_values(source: RecordedRDD, function: Function) -> str:
    """Return the reason why the fold of the values of a ``vmap``'s pairs by a function of two may be something else in
    workers than in Python; "" if it is not.
    """
    return _why_not(source, lambda pair: why_no_exact_join(function, pair[1], is_mapped=True))


def _why_not(source: RecordedRDD, why_not: Callable[[Any], str]) -> str:
    """Return the doubt that there is of a VRDD's records, after one of all numbers of their types."""
    contents = [each for each in source._results() if each.count]
    if not contents or why_not_joined(contents) or not any(map(_is_python, contents[0].layout.parts)):
        return ""
    layout = contents[0].layout
    return why_not(_record(layout, {})) and why_not(_record(layout, _ends(source, layout)))


def _is_python(part: RecordPart) -> bool:
    return part.form == "number" and part.types[0] in BY_NAME


def _record(layout: RecordLayout, ends: _EndsOfParts) -> Any:
    """Return the ranges of a record's numbers, as :func:`why_not_exact` takes it."""
    values = {part.name: _value(part, ends.get(part.name)) for part in layout.parts}
    return dict(sorted(values.items())) if layout.named else _tuple_of(values)


def _tuple_of(values: Mapping[str, Any]) -> Any:
    """Return the nested tuple of values whose names are their places in it."""
    if "" in values:
        return values[""]
    items: dict[int, dict[str, Any]] = {}
    for name, value in values.items():
        first, _, rest = name.partition(".")
        items.setdefault(int(first), {})[rest] = value
    return tuple([_tuple_of(items[number]) for number in sorted(items)])


def _value(part: RecordPart, ends: tuple[Any, Any] | None) -> Range | OfNumPy:
    if not _is_python(part) or part.types[0] == "complex":
        return OfNumPy(part.dtype.name)
    return Range(part.types[0], *ends) if ends else Range.of(part.types[0])


def _ends(source: RecordedRDD, layout: RecordLayout) -> _EndsOfParts:
    """Return the least and the greatest number of each part, where there is no NaN; empty where workers do not fold."""
    if source not in _known:
        _known[source] = _folded(source, layout)
    return _known[source]


def _folded(source: RecordedRDD, layout: RecordLayout) -> _EndsOfParts:
    """Return the ends of a VRDD's numbers, by one fold of each record beside itself."""
    if layout.named:
        return {}       # which workers do not fold
    leaves = [_end(part, side, least=side == "0") for side in ("0", "1") for part in layout.parts]
    answer = source._then(ops.Map(record_map(_twice, (), "record")))._evaluate(
        range(source.getNumPartitions()), to_fold(reduce_by(FoldSpec(tuple(leaves), "least and greatest"))))
    if not isinstance(answer.fold, FoldStep):
        return {}
    record = finish(answer.fold, [answer.folds[first] for first in sorted(answer.folds)], lambda: None)
    if record is None:
        return {}
    places = [part.name for part in layout.parts if _is_python(part)]
    low, high = (parts_of(each, places) for each in record)
    return {name: (low[name], high[name]) for name in places}


def _twice(record):     # type: ignore[no-untyped-def]
    return record, record


def _end(part: RecordPart, side: str, *, least: bool) -> Leaf:
    place = f"{side}.{part.name}".removesuffix(".")
    if part.dtype.kind == "b":
        return Leaf(place, "and" if least else "or")
    return Leaf(place, "minimum" if least else "maximum", "choice" if _is_python(part) else "ufunc")
