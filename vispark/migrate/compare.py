"""Comparison of two results value by value: how far apart they are, where, and what that means."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from vispark.migrate.digests import Summary, as_reals, digest, eps_of, is_float, is_pair, leaves, packed, summarize

EQUAL, WITHIN_NOISE, WITHIN_ROUNDING, DIFFERS, NOT_KNOWN = (
    "equal", "within noise", "within rounding", "differs", "not known")
#: Verdicts from the best to the worst.
VERDICTS = (EQUAL, WITHIN_NOISE, WITHIN_ROUNDING, NOT_KNOWN, DIFFERS)
#: Differences of up to this many times the noise are noise: the noise is the worst of a few runs.
NOISE_FACTOR = 8.0
#: ``c`` of ``c sqrt(n) eps``: rounding errors of a sum of n terms grow as a random walk.
ROUNDING_FACTOR = 8.0
#: Terms of a sum where nobody says how many there are.
TERMS = 10_000
#: Beginnings of the histogram's bins, in units of the last place.
BINS = (0, 1, 2, 4, 16, 256, 65536)
LABELS = ("0", "1", "2-3", "4-15", "16-255", "256-65535", "65536..")


@dataclass(frozen=True)
class ValuePlace:
    """Place of a value: number and key of the record, and the indices within the record."""

    record: int | None
    key: Any
    path: tuple[Any, ...]

    def __str__(self) -> str:
        said = [f"record {self.record}"] if self.record is not None else []
        said += [f"key {self.key!r}"] if self.key is not None else []
        said += ["".join(f"[{each!r}]" for each in self.path)] if self.path else []
        return ", ".join(said) or "the value"


@dataclass(frozen=True)
class Comparison:
    """Answer of a comparison.

    Parameters
    ----------
    verdict : str
        One of :data:`VERDICTS`.
    worst : float
        The largest difference, relative to the largest value of its field; infinite where values cannot be subtracted.
    why : str
        The difference in words; empty where there is none.
    place : ValuePlace, optional
        Where the first difference is that counts, or the worst where none does.
    reference, other : object
        The values there.
    histogram : tuple of int
        Floats by units in the last place, in the bins of :data:`BINS`.
    ordered : bool
        Whether the records came in one order.
    """

    verdict: str
    worst: float = 0.0
    why: str = ""
    place: ValuePlace | None = None
    reference: Any = None
    other: Any = None
    histogram: tuple[int, ...] = (0,) * len(BINS)
    ordered: bool = True

    def as_json(self) -> dict[str, Any]:
        """Return the comparison as JSON has it."""
        return {"verdict": self.verdict, "worst": self.worst if math.isfinite(self.worst) else None, "why": self.why,
                "place": str(self.place) if self.place else None, "reference": _short(self.reference),
                "other": _short(self.other), "ulps": dict(zip(LABELS, self.histogram, strict=True)),
                "ordered": self.ordered}


@dataclass(frozen=True)
class Tolerance:
    """Tolerance of a comparison, all of it relative.

    Parameters
    ----------
    noise : float
        Difference of the reference from itself when its partitions are dealt anew.
    terms : int
        Terms of the sums that the values are.
    allow_narrower : bool
        Whether the other side may compute in a narrower dtype than the reference.
    """

    noise: float = 0.0
    terms: int = TERMS
    allow_narrower: bool = False

    def verdict(self, difference: float, eps: float) -> str:
        """Return the verdict of a relative difference of values whose dtype has this distance of 1.0 to the next.

        Examples
        --------
        >>> Tolerance(noise=1e-14).verdict(5e-14, 2.0 ** -52), Tolerance().verdict(1e-9, 2.0 ** -52)
        ('within noise', 'differs')
        """
        if difference == 0:
            return EQUAL
        if difference <= NOISE_FACTOR * self.noise:
            return WITHIN_NOISE
        return WITHIN_ROUNDING if difference <= ROUNDING_FACTOR * math.sqrt(self.terms) * eps else DIFFERS


def ulps(left: Any, right: Any) -> np.ndarray:
    """Return the distances of floats in units of the last place of the narrower dtype.

    Parameters
    ----------
    left, right : float or array
        Of one shape, float16, float32 or float64, complex numbers as pairs.

    Returns
    -------
    array of uint64
        0 for equal values and for two NaN, 2**64 - 1 where one alone is NaN.

    Examples
    --------
    >>> int(ulps(1.0, np.nextafter(1.0, 2.0))), int(ulps(-0.0, 0.0)), int(ulps(np.float32(1), 1.0 + 1e-9))
    (1, 0, 0)
    """
    width = min(np.asarray(left).real.dtype.itemsize, np.asarray(right).real.dtype.itemsize, 8)
    dtype, integer = f"f{width}", f"i{width}"
    one, two = (np.atleast_1d(as_reals(each)).astype(dtype) for each in (left, right))
    with np.errstate(over="ignore"):
        places = [np.where(bits < 0, np.iinfo(integer).min - bits, bits)
                  for bits in (one.view(integer), two.view(integer))]
        low, high = np.minimum(*places).astype(np.int64), np.maximum(*places).astype(np.int64)
        distance = high.astype(np.uint64) - low.astype(np.uint64)
    distance[np.isnan(one) != np.isnan(two)] = np.iinfo(np.uint64).max
    distance[np.isnan(one) & np.isnan(two)] = 0
    return distance if np.ndim(as_reals(left)) else distance[0]


def compare(reference: Any, other: Any, tolerance: Tolerance | None = None, ordered: bool = True,
            scale: float = 0.0) -> Comparison:
    """Compare two results of an action.

    Parameters
    ----------
    reference, other : object
        Numbers, strings, arrays, tuples and dicts of them, or lists of such records. Lists of pairs whose keys are
        unique are compared key by key; other lists record by record; a :class:`Summary` stands for records.
    tolerance : Tolerance, optional
        What is noise, and what rounding.
    ordered : bool
        Whether the order of a list's records counts.
    scale : float
        Floats are judged by this value where the largest one of their field is smaller.

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
    return _Walk(tolerance or Tolerance(), scale).of(reference, other, ordered)


def _summary(value: Any) -> Summary:
    return value if isinstance(value, Summary) else summarize(value if isinstance(value, list) else [value])


def compare_summaries(reference: Summary, other: Summary, tolerance: Tolerance | None = None) -> Comparison:
    """Compare two sets of records of any size by their summaries.

    Examples
    --------
    >>> from vispark.migrate.digests import summarize
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
    eps = max(reference.eps, other.eps) if tolerance.allow_narrower else reference.eps
    # Signed sums of different records may cancel where their floats are the same: digests have told them apart.
    if distance == 0:
        return Comparison(DIFFERS, math.inf, "digests differ, sums do not")
    return Comparison(tolerance.verdict(distance, eps), distance, f"floats differ by {distance:.1e} of their norm")


@dataclass
class _Walk:
    """Walk over two results at once: pairs of leaves, each judged against the largest value of its field."""

    tolerance: Tolerance
    scale: float = 0.0
    histogram: list[int] = field(default_factory=lambda: [0] * len(BINS))

    def of(self, reference: Any, other: Any, ordered: bool) -> Comparison:
        if digest(reference) == digest(other):
            return Comparison(EQUAL)
        if isinstance(reference, list) and isinstance(other, list):
            return self._lists(reference, other, ordered)
        return self._records([(None, None, reference, other)])

    def _lists(self, reference: list[Any], other: list[Any], ordered: bool) -> Comparison:
        if len(reference) != len(other):
            return Comparison(DIFFERS, math.inf, f"{len(reference):,} records and {len(other):,}")
        mine, theirs = _by_key(reference), _by_key(other)
        if mine is not None and theirs is not None:
            if mine.keys() != theirs.keys():
                lacking = next(mine[key] for key in mine if key not in theirs)
                return Comparison(DIFFERS, math.inf, "a key is missing", ValuePlace(lacking, reference[lacking][0], ()),
                                  reference[lacking], None)
            in_order = list(mine) == list(theirs)
            pairs = [(mine[key], reference[mine[key]][0], reference[mine[key]], other[theirs[key]]) for key in mine]
            return replace(self._records(pairs), ordered=in_order)
        if ordered:
            return self._records([(i, _key(one), one, two) for i, (one, two) in enumerate(zip(reference, other,
                                                                                          strict=True))])
        return replace(self._records([(None, None, one, two) for one, two in zip(
            sorted(reference, key=_sort_key), sorted(other, key=_sort_key), strict=True)]), ordered=False)

    def _records(self, pairs: Sequence[tuple[int | None, Any, Any, Any]]) -> Comparison:
        scales = _scales(record for _, _, one, two in pairs for record in (one, two))
        worst, first = Comparison(EQUAL), None
        for number, key, one, two in pairs:
            for compared in self._leaves(number, key, one, two, scales):
                if compared.verdict == DIFFERS and first is None:
                    first = compared
                if compared.worst > worst.worst or (compared.verdict != EQUAL and worst.verdict == EQUAL):
                    worst = compared
        return replace(first or worst, worst=worst.worst, histogram=tuple(self.histogram))

    def _leaves(self, number: int | None, key: Any, one: Any, two: Any,
                scales: dict[tuple[Any, ...], float]) -> Iterator[Comparison]:
        mine, theirs = list(leaves(one)), list(leaves(two))
        if [path for path, _ in mine] != [path for path, _ in theirs]:
            yield Comparison(DIFFERS, math.inf, "records of another form", ValuePlace(number, key, ()), one, two)
            return
        for (path, left), (_, right) in zip(mine, theirs, strict=True):
            yield self._leaf(ValuePlace(number, key, path), left, right, max(self.scale, scales.get(path, 0.0)))

    def _leaf(self, place: ValuePlace, left: Any, right: Any, scale: float) -> Comparison:
        if np.shape(left) != np.shape(right):
            return Comparison(DIFFERS, math.inf, f"shapes {np.shape(left)} and {np.shape(right)}", place, left, right)
        if not (_is_number(left) and _is_number(right)) or not (is_float(left) or is_float(right)):
            if digest(left) == digest(right):
                return Comparison(EQUAL)
            at, one, two = _first_unequal(left, right)
            place = replace(place, path=place.path + at)
            return Comparison(DIFFERS, math.inf, "values that are no floats differ", place, one, two)
        return self._floats(place, left, right, scale)

    def _floats(self, place: ValuePlace, left: Any, right: Any, scale: float) -> Comparison:
        dtype = np.asarray(left).dtype if is_float(left) else np.asarray(right).dtype
        one, two = np.atleast_1d(as_reals(left)), np.atleast_1d(as_reals(right))
        distances = ulps(left if is_float(left) else one, right if is_float(right) else two)
        self._count(distances)
        finite = np.isfinite(one) & np.isfinite(two)
        with np.errstate(invalid="ignore", over="ignore"):
            difference = np.abs(one - two)
        difference = np.where(finite, difference, np.where(_same(one, two), 0.0, np.inf))
        at = np.unravel_index(int(np.argmax(difference)), difference.shape)
        relative = float(difference[at] / scale) if scale and math.isfinite(difference[at]) else float(difference[at])
        eps = float(np.finfo(dtype).eps)
        if self.tolerance.allow_narrower and is_float(right):
            eps = max(eps, eps_of(right))
        path = place.path + (tuple(int(i) for i in at) if np.ndim(left) else ())
        verdict = self.tolerance.verdict(relative, eps)
        of = "its largest value so far" if scale and scale == self.scale else "the largest value of its field"
        why = "" if verdict == EQUAL else f"differs by {relative:.1e} of {of}"
        if math.isinf(relative):
            why = "not finite on one side alone"
        return Comparison(verdict, relative, why, replace(place, path=path), float(one[at]), float(two[at]))

    def _count(self, distances: np.ndarray) -> None:
        bins = np.searchsorted(np.array(BINS, dtype=np.uint64), np.atleast_1d(distances).ravel(), side="right") - 1
        for bin_, count in zip(*np.unique(bins, return_counts=True), strict=True):
            self.histogram[int(bin_)] += int(count)


def _scales(records: Any) -> dict[tuple[Any, ...], float]:
    """Return the largest finite size of the values of each field."""
    found: dict[tuple[Any, ...], float] = {}
    for record in records:
        for path, leaf in leaves(record):
            if is_float(leaf):
                sizes = np.abs(as_reals(leaf))
                sizes = sizes[np.isfinite(sizes)]
                if sizes.size:
                    found[path] = max(found.get(path, 0.0), float(sizes.max()))
    return found


def _by_key(records: list[Any]) -> dict[bytes, int] | None:
    """Return the numbers of records by their packed keys; None where some record is no pair, or a key comes twice."""
    if not records or not all(map(is_pair, records)):
        return None
    found = {packed(record[0]): number for number, record in enumerate(records)}
    return found if len(found) == len(records) else None


def _key(record: Any) -> Any:
    return record[0] if is_pair(record) else None


def _sort_key(record: Any) -> tuple[bytes, list[float]]:
    """Return a key that sorts records alike that differ by rounding: what is exact, then the floats."""
    exact: list[Any] = []
    floats: list[float] = []
    for path, leaf in leaves(record):
        if is_float(leaf):
            floats.extend(float(each) for each in as_reals(leaf).ravel())
        else:
            exact.append([list(path), leaf])
    return packed(exact), [each if each == each else math.inf for each in floats]


def _is_number(leaf: Any) -> bool:
    return isinstance(leaf, int | float | complex | np.number) or (
        isinstance(leaf, np.ndarray) and leaf.dtype.kind in "biufc")


def _same(one: np.ndarray, two: np.ndarray) -> np.ndarray:
    return (one == two) | (np.isnan(one) & np.isnan(two))


def _first_unequal(left: Any, right: Any) -> tuple[tuple[int, ...], Any, Any]:
    if np.ndim(left) == 0 or not isinstance(left, np.ndarray):
        return (), left, right
    places = np.argwhere(left != right)
    at = tuple(int(i) for i in places[0]) if len(places) else (0,) * left.ndim
    return at, left[at], right[at]


def _short(value: Any) -> str | float | int | None:
    if value is None or isinstance(value, int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else repr(value)
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}.."
