"""Checks that workers compute with Python numbers what Python would, for functions of RDD's own methods.

``vmap`` computes as NumPy does. ``filter`` and ``sortBy`` are PySpark's, and mean what they mean there: their functions
are lowered where that is the same for all numbers, or for those between the least and the greatest record.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gpu_worker.protocol.messages import FoldStep
from vispark.api.recorded_rdd import RecordedRDD
from vispark.data.records.layout import BY_NAME, RecordPart
from vispark.data.records.partition_schema import PartitionSchema
from vispark.plan.fold.aggregation import parts_of
from vispark.plan.fold.lowering import finish, reduce_by, unlike
from vispark.plan.fold.reading import Leaf
from vispark.plan.fold.spec import FoldSpec
from vispark.plan.lower.stages import to_fold
from vispark.translate import trace
from vispark.translate.frontend.exactness import why_not_exact
from vispark.translate.frontend.python_ranges import OfNumPy, Range

#: By part, the least and the greatest number.
_Ends = Mapping[str, tuple[Any, Any]]


def why_not_python(source: RecordedRDD, function: Callable[[Any], Any]) -> str:
    """Return the reason why a function of a VRDD's records may give something else in workers than in Python; "" if it
    does not.

    Raises
    ------
    TranslationError
        If it has what the language lacks.
    """
    contents = [each for each in source._results() if each.count]
    if not contents or unlike(contents) or not any(map(_is_python, contents[0].layout.parts)):
        return ""
    parts, traced = contents[0].layout.parts, trace(function)
    if not why_not_exact(traced, _record(parts, {})):
        return ""
    return why_not_exact(traced, _record(parts, _ends(source, contents)))


def _is_python(part: RecordPart) -> bool:
    return part.form == "number" and part.types[0] in BY_NAME


def _record(parts: Sequence[RecordPart], ends: _Ends) -> Any:
    """Return the ranges of a record's numbers, as :func:`why_not_exact` takes it."""
    values = {part.name: _value(part, ends.get(part.name)) for part in parts}
    return values[""] if "" in values else _tuple_of(values)


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


def _ends(source: RecordedRDD, contents: Sequence[PartitionSchema]) -> _Ends:
    """Return the least and the greatest number of each part, where there is no NaN, by two folds in the workers."""
    parts = contents[0].layout.parts
    places = [part.name for part in parts if _is_python(part)]
    found = []
    for name, of_bools in (("minimum", "and"), ("maximum", "or")):
        leaves = tuple([Leaf(part.name, of_bools) if part.dtype.kind == "b" else
                        Leaf(part.name, name, "choice" if _is_python(part) else "ufunc") for part in parts])
        answer = source._evaluate(range(source.getNumPartitions()), to_fold(reduce_by(FoldSpec(leaves, name))))
        if not isinstance(answer.fold, FoldStep):
            return {}
        record = finish(answer.fold, [answer.folds[first] for first in sorted(answer.folds)], lambda: None)
        if record is None:
            return {}
        found.append(parts_of(record, places))
    return {name: (low, found[1][name]) for name, low in found[0].items()}
