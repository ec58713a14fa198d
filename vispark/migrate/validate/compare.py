"""Comparison of two results value by value: how far apart they are, where, and what that means.

Results that lie in files are read a block at a time, twice: for the largest value of each field, and to be compared.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from vispark.migrate.capture.packed_values import BLOCK, StoredArray, UnreadObject, array_blocks
from vispark.migrate.capture.stored_results import StoredResult
from vispark.migrate.validate.digests import (
    Summary,
    as_reals,
    digest,
    eps_of,
    is_float,
    is_pair,
    leaves,
    packed,
    summarize,
)
from vispark.migrate.validate.record_order import in_order, records_of
from vispark.migrate.validate.verdicts import (
    BINS,
    DIFFERS,
    EQUAL,
    NOT_KNOWN,
    TERMS,
    VERDICTS,
    WITHIN_NOISE,
    WITHIN_ROUNDING,
    Comparison,
    FieldSizes,
    Tolerance,
    ValuePlace,
    ulps,
)

__all__ = ["DIFFERS", "EQUAL", "NOT_KNOWN", "TERMS", "VERDICTS", "WITHIN_NOISE", "WITHIN_ROUNDING", "Comparison",
           "FieldSizes", "Tolerance", "ValuePlace", "compare", "compare_summaries", "sizes_of", "ulps"]

#: eps of float32: what is computed of float32 and float64 comes as float64.
NARROW = float(np.finfo(np.float32).eps)
#: Records that are compared at once where they are floats, or arrays of one shape.
BATCH = 1 << 10
_Path = tuple[Any, ...]
#: Number and key of a record, and the record on both sides.
_Matched = tuple[int | None, Any, Any, Any]


def compare(reference: Any, other: Any, tolerance: Tolerance | None = None, ordered: bool = True,
            former: FieldSizes | None = None, by_key: bool = True) -> Comparison:
    """Compare two results of an action.

    Parameters
    ----------
    reference, other : object
        Numbers, strings, arrays, tuples and dicts of them, or lists of such records. Lists of pairs whose keys are
        unique are compared key by key; other lists record by record; a :class:`Summary` stands for records, and a
        :class:`~vispark.migrate.capture.stored_results.StoredResult` for what lies in a file.
    tolerance : Tolerance, optional
        What is noise, and what rounding.
    ordered : bool
        Whether the order of a list's records counts.
    former : mapping, optional
        Sizes by which the floats of a field are judged where its own are smaller, of results that are no lists.
    by_key : bool
        Whether pairs in another order are compared by their keys, though the order of records counts.

    Returns
    -------
    Comparison
        With the first record that differs, or the worst value where none does.

    Examples
    --------
    >>> compare([(1, 0.5), (2, 0.25)], [(2, 0.25), (1, 0.5)]).verdict
    'equal'
    >>> found = compare([(1, 0.5), (2, 0.25)], [(1, 0.5), (2, -0.25)])
    >>> found.verdict, str(found.place), found.reference, found.other
    ('differs', 'record 1, key 2, [1]', 0.25, -0.25)
    """
    if isinstance(reference, Summary) or isinstance(other, Summary):
        return compare_summaries(_summary(reference), _summary(other), tolerance)
    one, two, walk = _opened(reference), _opened(other), _Walk(tolerance or Tolerance(), former or {}, by_key)
    if isinstance(one, list | StoredResult) and isinstance(two, list | StoredResult):
        return walk.lists(one, two, ordered)
    if isinstance(one, StoredResult) or isinstance(two, StoredResult):
        one, two = (list(each.items()) if isinstance(each, dict) else each for each in (one, two))
        if isinstance(one, list | StoredResult) and isinstance(two, list | StoredResult):
            return walk.lists(one, two, ordered)
        return Comparison(DIFFERS, math.inf, "results of another form")
    comparison = walk.values(one, two)
    if isinstance(one, dict) and isinstance(two, dict):
        return replace(comparison, ordered=list(one) == list(two))
    return comparison


def sizes_of(result: Any) -> FieldSizes:
    """Return the largest finite sizes of a result's floats by their fields; none of lists of records, and of dicts.

    Examples
    --------
    >>> sizes_of((np.array([3.0, -4.0]), 0.5))
    {(0,): 4.0, (1,): 0.5}
    """
    opened = _opened(result)
    return {} if isinstance(opened, list | dict | StoredResult | Summary) else _Survey.of([opened]).scales


def _opened(result: Any) -> Any:
    return result.value() if isinstance(result, StoredResult) and result.form == "value" else result


def _summary(value: Any) -> Summary:
    return value if isinstance(value, Summary) else summarize(value if isinstance(value, list) else [value])


def compare_summaries(reference: Summary, other: Summary, tolerance: Tolerance | None = None) -> Comparison:
    """Compare two sets of records of any size by their summaries.

    Examples
    --------
    >>> from vispark.migrate.validate.digests import summarize
    >>> compare_summaries(summarize(range(9)), summarize(range(8))).why
    'records: 9 and 8'
    """
    tolerance = tolerance or Tolerance()
    if reference.whole == other.whole and reference.counts == other.counts:
        return Comparison(EQUAL)
    for name, number in reference.counts.items():
        if number != other.counts[name]:
            return Comparison(DIFFERS, math.inf, f"{name}: {number:,} and {other.counts[name]:,}", None, number,
                              other.counts[name])
    if reference.exact != other.exact:
        return Comparison(DIFFERS, math.inf, "integers, strings or keys differ")
    distance = reference.distance(other)
    eps = max(reference.eps, other.eps, NARROW) if tolerance.allow_narrower else reference.eps
    # Signed sums of different records may cancel where their floats are the same: digests have told them apart.
    if distance == 0:
        return Comparison(DIFFERS, math.inf, "digests differ, sums do not")
    return Comparison(tolerance.verdict(distance, eps), distance, f"floats differ by {distance:.1e} of their norm")


@dataclass
class _Survey:
    """Survey of one side's records: their number, whether all are pairs, a digest of their keys, and the scales.

    A scale is the largest finite size of the values of a field.
    """

    count: int = 0
    keyed: bool = True
    keys: bytes = b""
    scales: dict[_Path, float] = field(default_factory=dict)

    @staticmethod
    def of(records: Iterable[Any], pairs: bool = False) -> _Survey:
        """Return the survey of records; ``pairs`` says that all of them are, whatever their keys."""
        survey, keys = _Survey(), hashlib.blake2b(digest_size=16)
        for batch in _batches((record, None) for record in records):
            survey.count += len(batch)
            stacked = _stacked([record for record, _ in batch])
            if stacked is not None:
                survey.keyed = False
                survey.note((), stacked)
                continue
            for record, _ in batch:
                survey.keyed = survey.keyed and (pairs or is_pair(record))
                if survey.keyed:
                    keys.update(packed(record[0]))
                for path, leaf in leaves(record):
                    if is_float(leaf):
                        survey.note(path, leaf)
        survey.keys = keys.digest()
        return survey

    def note(self, path: _Path, leaf: Any) -> None:
        """Have the scale of a field be that of a leaf, if that is larger."""
        for block in _float_blocks(leaf):
            sizes = np.abs(block)
            sizes = sizes[np.isfinite(sizes)]
            if sizes.size:
                self.scales[path] = max(self.scales.get(path, 0.0), float(sizes.max()))


class _Walk:
    """Walk over two results at once: pairs of leaves, each judged against the largest value of its field."""

    def __init__(self, tolerance: Tolerance, former: FieldSizes, by_key: bool):
        self._tolerance, self._former, self._by_keys = tolerance, former, by_key
        self._scales: dict[_Path, float] = {}
        self._histogram = [0] * len(BINS)
        self._worst: dict[_Path, float] = {}

    def values(self, reference: Any, other: Any) -> Comparison:
        """Compare results that are no lists."""
        self._note_scales(_Survey.of([reference]), _Survey.of([other]))
        return self._records([(None, None, reference, other)])

    def lists(self, reference: list[Any] | StoredResult, other: list[Any] | StoredResult, ordered: bool) -> Comparison:
        """Compare lists, or dicts as those of their pairs."""
        is_dict = any(isinstance(each, StoredResult) and each.form == "dict" for each in (reference, other))
        one, two = (_Survey.of(records_of(each), is_dict) for each in (reference, other))
        self._note_scales(one, two)
        is_keyed = one.keyed and two.keyed and one.count > 0 and two.count > 0
        if is_keyed and one.keys != two.keys and (self._by_keys or not ordered):
            comparison = self._by_key(reference, other, f"{one.count:,} records and {two.count:,}: " * (
                one.count != two.count))
            if comparison is not None:
                return replace(comparison, ordered=False)
        if one.count != two.count:
            return self._uneven(reference, other, f"{one.count:,} records and {two.count:,}", ordered)
        if ordered or (is_keyed and one.keys == two.keys):
            records = zip(records_of(reference), records_of(other), strict=True)
            return self._records((i, mine[0] if is_dict else _key(mine), mine, theirs)
                                 for i, (mine, theirs) in enumerate(records))
        return replace(self._records((None, None, mine, theirs) for (_, _, mine), (_, _, theirs) in zip(
            in_order(reference, _sort_key), in_order(other, _sort_key), strict=True)), ordered=False)

    def _uneven(self, reference: list[Any] | StoredResult, other: list[Any] | StoredResult, counts: str,
                ordered: bool) -> Comparison:
        """Return the first record in which lists of other lengths differ, or where one of them ends."""
        differs = Comparison(DIFFERS, math.inf, counts)
        if not ordered:
            return differs
        ends: list[int] = [0]

        def matched() -> Iterator[_Matched]:
            for number, (ours, theirs) in enumerate(zip(records_of(reference), records_of(other), strict=False)):
                ends[0] = number + 1
                yield number, _key(ours), ours, theirs

        comparison = self._records(matched())
        if comparison.verdict == DIFFERS:
            return replace(comparison, worst=math.inf, why=f"{counts}: {comparison.why}")
        return replace(differs, place=ValuePlace(ends[0], None, ()), why=f"{counts}: one ends")

    def _note_scales(self, one: _Survey, two: _Survey) -> None:
        self._scales = {path: max(one.scales.get(path, 0.0), two.scales.get(path, 0.0))
                        for path in one.scales.keys() | two.scales.keys()}

    def _by_key(self, reference: list[Any] | StoredResult, other: list[Any] | StoredResult,
                counts: str) -> Comparison | None:
        """Compare lists of pairs that come in other orders; None where a key comes twice."""
        joined = _KeyJoin(reference, other)
        comparison = self._records(iter(joined))
        if joined.has_one_twice:
            self._histogram = [0] * len(BINS)
            return None
        if joined.lacking is not None:
            number, record = joined.lacking
            return Comparison(DIFFERS, math.inf, counts + "a key is missing", ValuePlace(number, record[0], ()), record)
        if joined.more is not None:
            number, record = joined.more
            return Comparison(DIFFERS, math.inf, counts + "a key is there in excess",
                              ValuePlace(number, record[0], ()), None, record)
        return comparison

    def _records(self, matched: Iterable[_Matched]) -> Comparison:
        worst, first, unread = Comparison(EQUAL), None, None
        for batch in _batches((one, (number, key, one, two)) for number, key, one, two in matched):
            for compared in self._batch([each for _, each in batch]):
                if compared.verdict == DIFFERS and (first is None or _is_before(compared, first)):
                    first = compared
                if compared.verdict == NOT_KNOWN:
                    unread = compared
                if compared.worst > worst.worst or (compared.verdict != EQUAL and worst.verdict == EQUAL):
                    worst = compared
        return replace(first or unread or worst, worst=worst.worst, histogram=tuple(self._histogram),
                       fields=dict(self._worst))

    def _batch(self, batch: list[_Matched]) -> Iterator[Comparison]:
        one = _stacked([each[2] for each in batch]) if len(batch) > 1 else None
        two = _stacked([each[3] for each in batch]) if one is not None else None
        if one is None or two is None or one.shape != two.shape:
            for number, key, ours, theirs in batch:
                yield from self._leaves(number, key, ours, theirs)
            return
        scale, eps = self._scale_of(()), self._eps(one, two)
        relative = self._relative(one, two, scale)
        of_records = relative.reshape(len(batch), -1).max(axis=1, initial=0.0)
        self._note_worst((), float(of_records.max(initial=0.0)))
        differing = np.flatnonzero(of_records > self._tolerance.limit(eps, ()))
        for at in {int(np.argmax(of_records)), *map(int, differing[:1])}:
            index = np.unravel_index(int(np.argmax(relative[at])), one.shape[1:])
            number, key, _, _ = batch[at]
            place = ValuePlace(number, key, tuple(int(i) for i in index))
            yield self._judged(place, (), float(relative[at][index]), eps, scale, one[at][index], two[at][index])

    def _leaves(self, number: int | None, key: Any, one: Any, two: Any) -> Iterator[Comparison]:
        ours, theirs = list(leaves(one)), list(leaves(two))
        if [path for path, _ in ours] != [path for path, _ in theirs]:
            yield Comparison(DIFFERS, math.inf, "records of another form", ValuePlace(number, key, ()), one, two)
            return
        for (path, left), (_, right) in zip(ours, theirs, strict=True):
            yield self._leaf(ValuePlace(number, key, path), left, right, self._scale_of(path))

    def _leaf(self, place: ValuePlace, left: Any, right: Any, scale: float) -> Comparison:
        if isinstance(left, UnreadObject) and left == right:
            return Comparison(NOT_KNOWN, why=f"objects of type {left.name} are not looked at", place=place)
        if np.shape(left) != np.shape(right):
            return Comparison(DIFFERS, math.inf, f"shapes {np.shape(left)} and {np.shape(right)}", place, left, right)
        if _is_number(left) and _is_number(right) and (is_float(left) or is_float(right)):
            return self._floats(place, left, right, scale)
        different = _first_unequal(left, right)
        if different is None:
            return Comparison(EQUAL)
        at, one, two = different
        return Comparison(DIFFERS, math.inf, "values that are no floats differ", replace(place, path=place.path + at),
                          one, two)

    def _floats(self, place: ValuePlace, left: Any, right: Any, scale: float) -> Comparison:
        """Compare floats, or arrays of them a block at a time; of an array the worst value counts."""
        eps = self._eps(left, right)
        worst, at, values, first = -1.0, 0, (0.0, 0.0), 0
        for one, two in _block_pairs(left, right):
            relative = self._relative(one, two, scale).ravel()
            if relative.size and (index := int(np.argmax(relative))) is not None and relative[index] > worst:
                worst, at = float(relative[index]), first + index
                values = float(as_reals(one).ravel()[index]), float(as_reals(two).ravel()[index])
            first += relative.size
        shape = (*np.shape(left), *((2,) if _dtype(left).kind == "c" or _dtype(right).kind == "c" else ()))
        path = place.path + (tuple(int(i) for i in np.unravel_index(at, shape)) if shape and first else ())
        self._note_worst(place.path, max(worst, 0.0))
        return self._judged(replace(place, path=path), place.path, max(worst, 0.0), eps, scale, *values)

    def _note_worst(self, path: _Path, relative: float) -> None:
        self._worst[path] = max(self._worst.get(path, 0.0), relative)

    def _judged(self, place: ValuePlace, path: _Path, relative: float, eps: float, scale: float, one: float,
                two: float) -> Comparison:
        verdict = self._tolerance.verdict(relative, eps, path)
        of = "its largest value so far" if scale in self._former.values() else "the largest value of its field"
        why = "" if verdict == EQUAL else f"differs by {relative:.1e} of {of}"
        if math.isinf(relative):
            why = "not finite on one side alone"
        return Comparison(verdict, relative, why, place, float(one), float(two))

    def _scale_of(self, path: _Path) -> float:
        return max(self._former.get(path, 0.0), self._scales.get(path, 0.0))

    def _eps(self, left: Any, right: Any) -> float:
        eps = eps_of(left if is_float(left) else right)
        return max(eps, eps_of(right), NARROW) if self._tolerance.allow_narrower and is_float(right) else eps

    def _relative(self, left: Any, right: Any, scale: float) -> np.ndarray:
        """Count the distances of floats, and return their differences over a scale, complex numbers as pairs."""
        one, two = np.atleast_1d(as_reals(left)), np.atleast_1d(as_reals(right))
        self._count(ulps(left if is_float(left) else one, right if is_float(right) else two))
        finite = np.isfinite(one) & np.isfinite(two)
        with np.errstate(invalid="ignore", over="ignore"):
            difference = np.abs(one - two) / (scale or 1.0)
        return np.where(finite, difference, np.where(_same(one, two), 0.0, np.inf))

    def _count(self, distances: np.ndarray) -> None:
        bins = np.searchsorted(np.array(BINS, dtype=np.uint64), np.atleast_1d(distances).ravel(), side="right") - 1
        for bin_, count in zip(*np.unique(bins, return_counts=True), strict=True):
            self._histogram[int(bin_)] += int(count)


class _KeyJoin:
    """Join of two lists of pairs by their keys, as an iterator that notes the first key which one alone has.

    Attributes
    ----------
    lacking, more : tuple of int and object, optional
        Number and record of the first pair that the other side lacks, and of the first that it has in excess.
    has_one_twice : bool
        Whether a key comes twice, where the iterator ends.
    """

    def __init__(self, reference: list[Any] | StoredResult, other: list[Any] | StoredResult):
        self._sides = [in_order(each, lambda record: packed(record[0])) for each in (reference, other)]
        self.lacking: tuple[int, Any] | None = None
        self.more: tuple[int, Any] | None = None
        self.has_one_twice = False

    def __iter__(self) -> Iterator[_Matched]:
        one, two = (self._unique(side) for side in self._sides)
        ours, theirs = next(one, None), next(two, None)
        while (ours is not None or theirs is not None) and not self.has_one_twice:
            if theirs is None or (ours is not None and ours[0] < theirs[0]):
                self.lacking = min(filter(None, (self.lacking, ours[1:])), key=lambda each: each[0])  # type: ignore
                ours = next(one, None)
            elif ours is None or theirs[0] < ours[0]:
                self.more = min(filter(None, (self.more, theirs[1:])), key=lambda each: each[0])
                theirs = next(two, None)
            else:
                yield ours[1], ours[2][0], ours[2], theirs[2]
                ours, theirs = next(one, None), next(two, None)

    def _unique(self, side: Iterator[tuple[bytes, int, Any]]) -> Iterator[tuple[bytes, int, Any]]:
        before = None
        for keyed in side:
            if keyed[0] == before:
                self.has_one_twice = True
                return
            before = keyed[0]
            yield keyed


def _batches(records: Iterable[tuple[Any, Any]]) -> Iterator[list[tuple[Any, Any]]]:
    """Yield lists of up to :data:`BATCH` records, each with what belongs to it, of about a block's elements at most."""
    batch: list[tuple[Any, Any]] = []
    size = 0
    for record, beside in records:
        batch.append((record, beside))
        size += _size(record)
        if len(batch) >= BATCH or size >= BLOCK:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _size(record: Any) -> int:
    """Return about how many numbers of a record are held in memory."""
    if isinstance(record, np.ndarray):
        return int(record.size)
    return sum(map(_size, record)) if isinstance(record, list | tuple) else 1


def _stacked(records: list[Any]) -> np.ndarray | None:
    """Return records that are floats of one type, or float arrays of one form, as one array; None of others."""
    first = records[0]
    if isinstance(first, np.ndarray):
        is_one = first.dtype.kind == "f" and all(isinstance(each, np.ndarray) and each.dtype == first.dtype
                                                 and each.shape == first.shape for each in records)
        return np.stack(records) if is_one else None
    is_one = isinstance(first, float | np.floating) and all(type(each) is type(first) for each in records)
    return np.array(records) if is_one else None


def _float_blocks(leaf: Any) -> Iterator[np.ndarray]:
    """Yield float64 of a leaf, a block at a time."""
    for block in array_blocks(leaf if isinstance(leaf, np.ndarray | StoredArray) else np.asarray(leaf)):
        yield as_reals(block)


def _block_pairs(left: Any, right: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the elements of two leaves of one shape, a block at a time."""
    if not isinstance(left, np.ndarray | StoredArray) or not isinstance(right, np.ndarray | StoredArray):
        yield left, right
    else:
        yield from zip(array_blocks(left), array_blocks(right), strict=True)


def _is_before(one: Comparison, two: Comparison) -> bool:
    numbers = [each.place.record if each.place else None for each in (one, two)]
    return numbers[0] is not None and numbers[1] is not None and numbers[0] < numbers[1]


def _key(record: Any) -> Any:
    return record[0] if is_pair(record) else None


def _sort_key(record: Any) -> list[Any]:
    """Return a key that sorts records alike that differ by rounding: what is exact, then the floats."""
    exact: list[Any] = []
    floats: list[float] = []
    for path, leaf in leaves(record):
        if is_float(leaf):
            # The beginning of a large array is enough of a key.
            floats.extend(float(each) for each in next(_float_blocks(leaf)).ravel())
        else:
            exact.append([list(path), leaf])
    return [packed(exact), [each if each == each else math.inf for each in floats]]


def _dtype(leaf: Any) -> np.dtype:
    return leaf.dtype if isinstance(leaf, StoredArray) else np.asarray(leaf).dtype


def _is_number(leaf: Any) -> bool:
    return isinstance(leaf, int | float | complex | np.number) or (
        isinstance(leaf, np.ndarray | StoredArray) and leaf.dtype.kind in "biufc")


def _same(one: np.ndarray, two: np.ndarray) -> np.ndarray:
    return (one == two) | (np.isnan(one) & np.isnan(two))


def _first_unequal(left: Any, right: Any) -> tuple[tuple[int, ...], Any, Any] | None:
    """Return the place of the first elements that are not equal, and these; None where all are."""
    are_arrays = [isinstance(each, np.ndarray | StoredArray) and each.ndim > 0 for each in (left, right)]
    if not all(are_arrays):
        return None if not any(are_arrays) and digest(left) == digest(right) else ((), left, right)
    first = 0
    for one, two in _block_pairs(left, right):
        places = np.flatnonzero(one != two)
        if len(places):
            at = np.unravel_index(first + int(places[0]), left.shape)
            return tuple(int(i) for i in at), one[places[0]], two[places[0]]
        first += len(one)
    return None
