"""Lowering of folds of a VRDD's records to workers' steps, and the joining of the workers' answers."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

import numpy as np

from gpu_worker.protocol.fold_operators import operator_of
from gpu_worker.protocol.messages import Field, FieldFold, FoldByKeyStep, Folded, FoldedField, FoldStep
from gpu_worker.protocol.payload import Data
from vispark._utils.hashing import hashed_once
from vispark.data.records import RecordLayout, unpack
from vispark.data.records.layout import BY_NAME, RecordPart
from vispark.data.records.partition_schema import PartitionSchema
from vispark.errors import Place, PlanError
from vispark.plan.fold.each_item import EACH
from vispark.plan.fold.reading import Leaf
from vispark.plan.fold.spec import FoldSpec, function_of

#: Each worker's result, its payload, and what the records look like; in the order of their first partitions.
Folds = Sequence[tuple[Folded, Data, PartitionSchema]]

_ADD = FoldSpec((Leaf("", "add"),), "add")

#: Tables with a cell for each key: how many keys are few, how many there may be else for each record, and the most
#: numbers, which kernels count with 32 bits.
_FEW_KEYS, _KEYS_A_RECORD, _MOST_NUMBERS = 1 << 15, 8, (1 << 31) - 1

#: Folds of Python ints whose sizes stay below this have not overflowed 64 bits, rounding of the sizes included.
_SAFE = 2.0 ** 62


@hashed_once
@dataclass(frozen=True)
class Reduce:
    """``reduce`` with a fold of records, whatever they are; ``double`` gives sums of float32 in float64."""

    spec: FoldSpec
    double: bool = False

    def lower(self, contents: Sequence[PartitionSchema]) -> FoldStep | str:
        """Return the step by which workers fold, or why they cannot.

        Parameters
        ----------
        contents : sequence of PartitionSchema
            Partitions with at least one record each; at least one partition.
        """
        reason = why_not_joined(contents)
        if reason:
            return reason
        layout = contents[0].layout
        if layout.keyed or contents[0].only != "":
            return "pairs are not folded on the device"
        fields = fold_fields(self.spec, layout, layout.parts, "")
        if isinstance(fields, str):
            return fields
        fields = _in_double(fields, layout.parts) if self.double else fields
        return FoldStep(fields, "rows" if layout.kind == "elements" else "blocks")


@dataclass(frozen=True)
class Sum:
    """``sum()``, or the sum that ``mean()`` divides; ``double`` gives that of float32 in float64."""

    mean: bool = False
    double: bool = False

    def lower(self, contents: Sequence[PartitionSchema]) -> FoldStep | str:
        """Return the step of the sum, or why workers cannot compute it, as :meth:`Reduce.lower` does."""
        fold = Reduce(_ADD).lower(contents)
        layout = contents[0].layout
        part, = layout.parts if len(layout.parts) == 1 else (RecordPart("", "tuple", ("float",)),)
        counted = part.form == "number" and part.dtype.kind == "b" and not layout.keyed and not part.name \
            and contents[0].only == ""
        if isinstance(fold, str) and not counted:
            return fold
        if self.mean and part.dtype.kind == "c":
            return "the mean of complex numbers is not taken on the device"
        over = "rows" if layout.kind == "elements" else "blocks"
        if self.mean:
            return FoldStep((FieldFold("", "add", "", "f8"),), over)
        if self.double and part.dtype == np.float32 and not isinstance(fold, str):
            return FoldStep(tuple([replace(each, result="f8") for each in fold.fields]), over)
        return FoldStep((FieldFold("", "add", "", "i8"),), over) if part.dtype.kind == "b" else fold


@functools.lru_cache(maxsize=256)
def reduce_by(spec: FoldSpec, double: bool = False) -> Reduce:
    """Return one object for equal folds, as a loop asks for a fold again and again."""
    return Reduce(spec, double)


@hashed_once
@dataclass(frozen=True)
class ByKey:
    """``reduceByKey`` of pairs that a ``vmap`` made, with keys below ``groups``; ``double`` as in :class:`Reduce`."""

    spec: FoldSpec
    groups: int
    double: bool = False

    def lower(self, contents: Sequence[PartitionSchema]) -> FoldByKeyStep | str:
        """Return the step of the fold by key, or why workers cannot compute it, as :meth:`Reduce.lower` does."""
        reason = why_not_joined(contents)
        if reason:
            return reason
        layout = contents[0].layout
        if layout.keyed:
            return "the keys of pairs that were sent stay on the host; keys that a vmap computes are on the device"
        if not layout.tupled or contents[0].only != "" \
                or {part.name.split(".")[0] for part in layout.parts} != {"0", "1"}:
            return "the records are not pairs that a vmap made"
        key, *values = layout.parts
        if layout.kind != "elements" and key.form == "number":
            return "the pairs are of whole arrays, and lie in a block each"
        if layout.kind != "elements":
            raise PlanError("reduceByKey takes pairs with one key each, and these are made of blocks: the key of each "
                            "is an array, with a key for each row. Load the rows as records, as in "
                            "rdd.flatMap(list).cache(\"GPU\"), and vmap these", Place(operation="reduceByKey"))
        if key.name != "0" or key.form != "number" or key.dtype.kind not in "biu":
            return "the keys are not integers"
        fields = fold_fields(self.spec, layout, values, "1")
        if isinstance(fields, str):
            return fields
        fields = _in_double(fields, values) if self.double else fields
        return self.why_no_table(contents) or FoldByKeyStep("0", self.groups, fields)

    @property
    def has_many_keys(self) -> bool:
        """Whether it goes by the records whether tables of all keys pay."""
        return self.groups > _FEW_KEYS

    def why_no_table(self, contents: Sequence[PartitionSchema]) -> str:
        """Return the reason why tables of all keys do not fit or pay; "" if they do."""
        records = sum(content.count for content in contents)
        numbers = self.groups * max(math.prod(each.shape[1:]) * (2 if np.dtype(each.dtype).kind == "c" else 1)
                                    for each in contents[0].signatures[0].fields)
        if numbers > _MOST_NUMBERS:
            return (f"numKeys={self.groups} asks each worker for a table of {numbers:,} numbers, and "
                    f"{_MOST_NUMBERS:,} is the most")
        if self.has_many_keys and self.groups > _KEYS_A_RECORD * records:
            return (f"numKeys={self.groups} is many more than the {records} records, and tables of so many keys take "
                    "longer than they do")
        return ""


@functools.lru_cache(maxsize=256)
def by_key(spec: FoldSpec, groups: int, double: bool = False) -> ByKey:
    """Return one object for equal folds by key into ``groups`` keys, as :func:`reduce_by` does."""
    return ByKey(spec, groups, double)


@dataclass(frozen=True)
class Total:
    """``aggregate`` or ``fold``: a fold whose result is joined with a value given, of these types by place."""

    spec: FoldSpec
    zero: tuple[tuple[str, str], ...]

    def lower(self, contents: Sequence[PartitionSchema]) -> FoldStep | str:
        """Return the step, or why workers cannot fold, as :meth:`Reduce.lower` does; also if Python would calculate in
        another type than the records'.
        """
        fold = Reduce(self.spec).lower(contents)
        if isinstance(fold, str):
            return fold
        parts = {part.name: part for part in contents[0].layout.parts}
        for (place, of), leaf in zip(self.zero, self.spec.leaves, strict=True):
            if _joined_type(leaf, of, parts[place]) != parts[place].types[0]:
                return f"it starts from {of}, and joins records of {parts[place].types[0]} with it"
        return fold


_Lowered = TypeVar("_Lowered", FoldStep, FoldByKeyStep, covariant=True)


class FoldRequest(Protocol[_Lowered]):
    """Interface of fold requests: hashable, equal by content."""

    def lower(self, contents: Sequence[PartitionSchema]) -> _Lowered | str:
        """Return the step for partitions of some contents, or why workers cannot fold them, as :meth:`Reduce.lower`
        does.
        """


def type_of(value: Any) -> str:
    """Return a number's or an array's type, as a :class:`RecordPart` names it; empty for anything else."""
    if isinstance(value, np.generic | np.ndarray):
        return value.dtype.str
    return type(value).__name__ if type(value).__name__ in BY_NAME else ""


def _joined_type(leaf: Leaf, of: str, part: RecordPart) -> str:
    """Return the type in Python of a total of one type joined with a record's part."""
    if not of or leaf.kind == "choice":
        return of
    one = BY_NAME[of](1) if of in BY_NAME else np.dtype(of).type(1)
    other = BY_NAME[part.types[0]](1) if part.types[0] in BY_NAME else np.dtype(part.types[0]).type(1)
    try:
        return type_of(function_of(leaf.operator)(one, other))
    except TypeError:
        return ""


def finish(fold: FoldStep, folds: Folds, otherwise: Callable[[], Any]) -> Any:
    """Return the folded record, of what each worker gave.

    Parameters
    ----------
    fold : FoldStep
        As lowered.
    folds : Folds
        What the workers gave.
    otherwise : callable
        Gives the result where these cannot be trusted: an integer overflowed, or NaN has no place in an order.
    """
    arrays = _joined(fold.fields, folds)
    if arrays is None:
        return otherwise()
    content = next(content for folded, _, content in folds if folded.count)
    only = _only_array(content.layout, arrays)
    if only is not None:
        return only
    parts = tuple([_as(part, arrays[part.name].dtype) for part in content.layout.parts])
    layout = content.layout if parts == content.layout.parts else replace(content.layout, parts=parts)
    fields = {name: array[None] if layout.kind == "elements" else array for name, array in arrays.items()}
    return next(_records(layout, 1, fields))


def _only_array(layout: RecordLayout, arrays: dict[str, np.ndarray]) -> np.ndarray | None:
    """Return the record of folded blocks that are an array each, as a loop's gradient is; None for others."""
    if layout.kind != "blocks" or len(layout.parts) > 1 or layout.tupled or layout.named:
        return None
    part, = layout.parts
    array = arrays[part.name]
    return array if part.form == "array" and np.dtype(part.types[0]) == array.dtype and array.flags.writeable else None


def finish_number(fold: FoldStep, folds: Folds) -> tuple[int, np.ndarray]:
    """Return the number of records, and the fold of their only part as an array."""
    arrays = _joined(fold.fields, folds)
    assert arrays is not None
    return sum(folded.count for folded, _, _ in folds), arrays[""]


def finish_by_key(fold: FoldByKeyStep, folds: Folds) -> tuple[RecordLayout, dict[str, np.ndarray]] | None:
    """Return the pairs' arrays with the keys that occur, in ascending order, by part; None if the guards say that they
    are not exact.
    """
    folds = [each for each in folds if each[0].count]
    arrays = _joined(fold.fields, folds)
    if arrays is None:
        return None
    counts = [payload.field(Field("", "<i8", (fold.groups,)), folded.counts) for folded, payload, _ in folds]
    keys = functools.reduce(np.add, counts).nonzero()[0]
    if len(keys) < fold.groups:
        arrays = {name: array[keys] for name, array in arrays.items()}
    layout = folds[0][2].layout
    table = {fold.key: keys.astype(layout.parts[0].dtype)} | arrays
    layout = replace(layout, parts=tuple([part if part.form == "tuple" else _as(part, table[part.name].dtype)
                                          for part in layout.parts]))
    for array in table.values():
        array.flags.writeable = False       # each record made of it is its own
    return layout, table


def records(layout: RecordLayout, arrays: dict[str, np.ndarray]) -> Iterator[Any]:
    """Return records out of arrays that have them along their first axis."""
    count = len(next(iter(arrays.values())))
    return _records(layout, count, arrays)


def _records(layout: RecordLayout, count: int, arrays: dict[str, np.ndarray]) -> Iterator[Any]:
    return unpack(layout, count, b"", [arrays], open=bytes)


def _as(part: RecordPart, dtype: np.dtype) -> RecordPart:
    """Return the part with the dtype that its fold has: sums of bools are ints."""
    if part.dtype == dtype:
        return part
    return replace(part, types=("int",) if part.types[0] in BY_NAME else (dtype.str,))


def why_not_joined(contents: Sequence[PartitionSchema]) -> str:
    """Return the reason why partitions cannot be folded with each other; "" if they can."""
    if len({content.layout for content in contents}) > 1:
        return "records of different types are not folded on the device"
    layout = contents[0].layout
    if layout.ragged:
        return "rows of several lengths are not folded on the device: make one number or row of each by a vmap"
    axis = 1 if layout.kind == "elements" else 0
    shapes = {tuple(each.shape[axis:] for each in signature.fields)
              for content in contents for signature in content.signatures}
    return "records of different shapes are not folded on the device" if len(shapes) > 1 else ""


def fold_fields(spec: FoldSpec, layout: RecordLayout, parts: Sequence[RecordPart],
            below: str) -> tuple[FieldFold, ...] | str:
    """Return the folds of some parts, or why they are not folded; the parts' names start with ``below``."""
    names = {part.name[len(below):].removeprefix("."): part for part in parts}
    if layout.named:
        return "records with named fields are not folded on the device"
    if spec.leaves[0].place == EACH:
        if not layout.tupled or any("." in name or not name for name in names):
            return "it joins tuples item by item, and the records are no tuples of numbers and arrays"
        spec = spec.of_parts(names)
    if spec.whole is not None and (list(names) != [""] or parts[0].form == "tuple"):
        return "tuples are joined, not added, by Python's operators"
    if spec.places != set(names):
        return "it does not give back what records have: " + ", ".join(map(repr, names))
    folds = []
    for leaf in spec.leaves:
        fold = _field(leaf, names[leaf.place])
        if isinstance(fold, str):
            return fold
        folds.append(fold)
    return tuple(folds)


def _in_double(fields: Sequence[FieldFold], parts: Sequence[RecordPart]) -> tuple[FieldFold, ...]:
    """Return folds whose sums of float32 are left in float64, in which they are added up."""
    single = {part.name for part in parts if part.dtype == np.float32}
    return tuple([replace(each, result="f8") if each.field in single and each.operator == "add" else each
                  for each in fields])


def widened(value: Any) -> Any:
    """Return a record with its float32 in float64."""
    if isinstance(value, tuple):
        return tuple(map(widened, value))
    single = isinstance(value, np.generic | np.ndarray) and value.dtype == np.float32
    return value.astype(np.float64)[()] if single else value


@dataclass(frozen=True)
class DoublePrecisionFold:
    """Function of two records, or a ``function`` of these, that is given them with their float32 in float64."""

    function: Callable[[Any, Any], Any]

    def __call__(self, one: Any, other: Any) -> Any:
        return self.function(widened(one), widened(other))


def check_double(action: str, dtype: Any) -> bool:
    """Return whether ``dtype=`` asks for sums in float64.

    Raises
    ------
    PlanError
        If it is another dtype.
    """
    if dtype is not None and np.dtype(dtype) != np.float64:
        raise PlanError(f"{action}(dtype=) is np.float64 or is left out, and not {dtype!r}")
    return dtype is not None


def _field(leaf: Leaf, part: RecordPart) -> FieldFold | str:
    """Return the fold of one part, or why it is not folded."""
    dtype, named, join = part.dtype, leaf.operator, operator_of(leaf.operator)
    python = part.form == "number" and part.types[0] in BY_NAME
    if dtype.kind == "b" and python and (not join.is_bitwise or leaf.kind == "ufunc"):
        return "Python's bools become ints in arithmetic"
    if join.is_bitwise and dtype.kind not in join.kinds:
        return f"there is no {named} of {dtype}"
    if dtype.kind not in "iubfc" or (dtype.kind == "f" and dtype.itemsize not in (4, 8)) \
            or (dtype.kind == "c" and ("c" not in join.kinds or dtype.itemsize not in (8, 16))):
        return f"{dtype} has no {named} on the device"
    if not python and np.dtype(part.types[0]).byteorder not in "=|<":
        return "numbers of foreign byte order are not folded on the device"
    if leaf.kind == "choice" and part.form != "number":
        return f"the {named} of two arrays by comparing them has no truth value"
    if leaf.kind == "ufunc" and python:
        return "a NumPy function makes NumPy numbers of Python's"
    return FieldFold(part.name, named, _guard(leaf, dtype, python))


def _guard(leaf: Leaf, dtype: np.dtype, python: bool) -> str:
    if python and dtype.kind == "i" and operator_of(leaf.operator).may_overflow:
        return "overflow"
    return "nan" if leaf.kind == "choice" and dtype.kind == "f" else ""


def _joined(fields: Sequence[FieldFold], folds: Folds) -> dict[str, np.ndarray] | None:
    """Return each part's fold over all workers, by name; None if the guards of one say that it is not exact."""
    filled = [(folded.fields, payload) for folded, payload, _ in folds if folded.count]
    how = {each.field: each for each in fields}
    if len(filled) == 1:
        return _alone(how, *filled[0])
    arrays = {}
    for parts in zip(*[[(part, payload) for part in parts] for parts, payload in filled], strict=True):
        name = parts[0][0].field
        by = how[name].operator
        if not _trusted(by, [part for part, _ in parts]):
            return None
        values = [payload.field(Field("", part.dtype, part.shape), part.offset) for part, payload in parts]
        arrays[name] = values[0] if len(values) == 1 else _reduced(by, values)
    return arrays


def _alone(how: dict[str, FieldFold], parts: Sequence[FoldedField], payload: Data) -> dict[str, np.ndarray] | None:
    """Return the arrays of a fold that a single worker computed; None if its guards say that they are not exact."""
    for part in parts:
        if (part.magnitude or not part.ordered) and not _trusted(how[part.field].operator, [part]):
            return None
    return {part.field: payload.field(Field("", part.dtype, part.shape), part.offset) for part in parts}


def _reduced(by: str, values: Sequence[np.ndarray]) -> np.ndarray:
    with np.errstate(all="ignore"):
        return np.array(functools.reduce(getattr(np, operator_of(by).ufunc), values))


def _trusted(by: str, parts: Sequence[FoldedField]) -> bool:
    magnitudes = [part.magnitude for part in parts]
    magnitude = math.prod(max(each, 1.0) for each in magnitudes) if by == "multiply" else sum(magnitudes)
    return magnitude < _SAFE and all(part.ordered for part in parts)
