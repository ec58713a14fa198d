"""Verdicts on a difference of two results: their names, what is tolerated, and where the difference is."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from vispark.migrate.validate.digests import as_reals

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
#: Sizes by the places of fields in a result.
FieldSizes = Mapping[tuple[Any, ...], float]
LABELS = ("0", "1", "2-3", "4-15", "16-255", "256-65535", "65536..")


@dataclass(frozen=True)
class ValuePlace:
    """Place of a value: number and key of the record, and the indices within the record."""

    record: int | None
    key: Any
    path: tuple[Any, ...]

    def __str__(self) -> str:
        parts = [f"record {self.record}"] if self.record is not None else []
        parts += [f"key {self.key!r}"] if self.key is not None else []
        parts += ["".join(f"[{each!r}]" for each in self.path)] if self.path else []
        return ", ".join(parts) or "the value"


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
    nearer : str
        Which of the two is nearer to a run in wider floats, or why that is not known; empty where nobody asked.
    fields : mapping
        The largest difference of each field, as ``worst`` is of all of them.
    """

    verdict: str
    worst: float = 0.0
    why: str = ""
    place: ValuePlace | None = None
    reference: Any = None
    other: Any = None
    histogram: tuple[int, ...] = (0,) * len(BINS)
    ordered: bool = True
    nearer: str = ""
    fields: FieldSizes = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Return the comparison as JSON has it."""
        return {"verdict": self.verdict, "worst": self.worst if math.isfinite(self.worst) else None, "why": self.why,
                "place": str(self.place) if self.place else None, "reference": short(self.reference),
                "other": short(self.other), "ulps": dict(zip(LABELS, self.histogram, strict=True)),
                "ordered": self.ordered, **({"nearer_to_float64": self.nearer} if self.nearer else {})}


@dataclass(frozen=True)
class Tolerance:
    """Tolerance of a comparison, all of it relative.

    Parameters
    ----------
    noise : float
        Difference of the reference from itself when its partitions are dealt anew.
    fields : mapping, optional
        The same of each field, of which none has the noise of another. [default: ``noise`` is that of all]
    terms : int
        Terms of the sums that the values are.
    allow_narrower : bool
        Whether the other side may compute in a narrower dtype than the reference.
    """

    noise: float = 0.0
    terms: int = TERMS
    allow_narrower: bool = False
    fields: FieldSizes | None = None

    def verdict(self, difference: float, eps: float, path: tuple[Any, ...] | None = None) -> str:
        """Return the verdict of a relative difference of values whose dtype has this distance of 1.0 to the next.

        ``path`` is their field's; None for a result as a whole.

        Examples
        --------
        >>> Tolerance(noise=1e-14).verdict(5e-14, 2.0 ** -52), Tolerance().verdict(1e-9, 2.0 ** -52)
        ('within noise', 'differs')
        """
        if difference == 0:
            return EQUAL
        if difference <= NOISE_FACTOR * self._noise_of(path):
            return WITHIN_NOISE
        return WITHIN_ROUNDING if difference <= self.limit(eps, path) else DIFFERS

    def limit(self, eps: float, path: tuple[Any, ...] | None = None) -> float:
        """Return the largest relative difference that is not "differs"."""
        return max(NOISE_FACTOR * self._noise_of(path), ROUNDING_FACTOR * math.sqrt(self.terms) * eps)

    def _noise_of(self, path: tuple[Any, ...] | None) -> float:
        return self.noise if self.fields is None or path is None else self.fields.get(path, 0.0)


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


def short(value: Any) -> str | float | int | None:
    """Return a value as a line and JSON have it: numbers as they are, of all else the beginning of its text."""
    if value is None or isinstance(value, int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else repr(value)
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}.."
