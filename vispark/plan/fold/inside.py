"""Lowering of ``vreduce`` for records of one layout and signature."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gpu_worker.protocol.fold_operators import operator_of
from gpu_worker.protocol.messages import Field, Signature
from vispark.data.records.layout import RecordLayout, RecordPart
from vispark.errors import Place, PlanError
from vispark.plan.fold.spec import FoldSpec

#: The dtypes that have kernels.
_FOLDED = ("b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8", "c8", "c16")


def fold_inside(spec: FoldSpec, layout: RecordLayout, signature: Signature,
                label: str) -> tuple[Signature, RecordLayout]:
    """Return the signature and layout of records after each is folded along its leading axis.

    Raises
    ------
    PlanError
        If they have no such axis, or parts that the fold does not name.
    """
    place = Place(operation=label)
    if spec.whole is None and (layout.named or spec.places != {part.name for part in layout.parts}):
        raise PlanError(f"{label} joins {_shown(spec.places)} of a record, which has "
                        f"{_shown(frozenset(part.name for part in layout.parts))}", place)
    if spec.whole is not None and layout.tupled:
        raise PlanError(f"{label} would join tuples as a whole: name their parts, as in "
                        "lambda p, q: (p[0] + q[0], p[1] + q[1])", place)
    by_name = {leaf.place: leaf.operator for leaf in spec.leaves}
    axis = 1 if layout.kind == "elements" else 0
    fields, parts = [], []
    for described, part in zip(signature.fields, layout.parts, strict=True):
        _check(described, by_name[part.name if part.name in by_name else ""], axis, label)
        folded = replace(described, shape=described.shape[:axis] + described.shape[axis + 1:])
        fields.append(folded)
        parts.append(_folded(part, is_number=len(folded.shape) == axis))
    return Signature(tuple(fields)), replace(layout, parts=tuple(parts))


def _check(described: Field, operator: str, axis: int, label: str) -> None:
    dtype, place = np.dtype(described.dtype), Place(operation=label)
    called = f"field {described.name!r}" if described.name else "a record"
    if len(described.shape) <= axis:
        raise PlanError(f"{label} folds inside each record, and {called} is a number: reduce() folds records with each "
                        "other, and vmap() before it may make them rows", place)
    if not described.shape[axis] and operator_of(operator).chooses:
        raise PlanError(f"{called} of shape {described.shape[axis:]} has nothing to take the {operator} of", place)
    if dtype.kind not in operator_of(operator).kinds or dtype.str[1:] not in _FOLDED:
        raise PlanError(f"{called} is of {dtype}, which has no {operator} on the device; convert it in a vmap()", place)


def _folded(part: RecordPart, is_number: bool) -> RecordPart:
    if part.form == "tuple":
        part = part.computed()
    return replace(part, form="number" if is_number else "array")


def _shown(places: frozenset[str]) -> str:
    return "the parts " + ", ".join(repr(place) for place in sorted(places)) if places != {""} else "a single part"
