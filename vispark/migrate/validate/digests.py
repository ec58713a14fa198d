"""Summaries of records in constant memory: exact digests that are blind to order, and sums that show what floats lost.

Digests are of msgpack bytes of a canonical form, as pickles of equal values differ by the identity of their objects.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgpack
import numpy as np

from vispark.migrate.capture.packed_values import StoredArray

#: Digests are added modulo this; a sum, as in an exclusive or two equal records cancel.
MODULUS = 1 << 128
#: Sums whose signs are hashed from a record's key or place.
SIGNED_SUMS = 8
_INTEGERS = range(-2 ** 63, 2 ** 64)


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yield the numbers, arrays and strings of a record, each with its place in it.

    Parameters
    ----------
    value : object
        Tuples, lists and dicts of anything; the entries of a dict come in the order of their keys' digests.
    path : tuple
        Place of the value itself.

    Yields
    ------
    tuple of a tuple and an object
        Indices and keys from the record down, and what is there.

    Examples
    --------
    >>> list(leaves((3, {"a": 0.5})))
    [((0,), 3), ((1, 'a'), 0.5)]
    """
    if isinstance(value, dict):
        for key in sorted(value, key=packed):
            yield from leaves(value[key], (*path, key))
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from leaves(item, (*path, index))
    else:
        yield path, value


def canonical(value: Any) -> Any:
    """Return a value as msgpack can have it: equal values give one form, whatever NumPy type carries them.

    Notes
    -----
    -0.0 is 0.0, every NaN is one NaN, a float32 is the float64 of its value, tuples and lists are one thing.

    Examples
    --------
    >>> canonical((np.float32(0.5), -0.0, np.int64(3)))
    ['t', [0.5, 0.0, 3]]
    """
    if value is None or isinstance(value, bool | str | bytes):
        return value
    if isinstance(value, np.bool_):
        return bool(value)
    if isinstance(value, int | np.integer):
        return int(value) if int(value) in _INTEGERS else ["i", str(int(value))]
    if isinstance(value, float | np.floating):
        return math.nan if math.isnan(value) else float(value) + 0.0
    if isinstance(value, complex | np.complexfloating):
        return ["c", canonical(value.real), canonical(value.imag)]
    if isinstance(value, dict):
        return ["d", sorted([packed(key), packed(item)] for key, item in value.items())]
    if isinstance(value, list | tuple):
        return ["t", [canonical(item) for item in value]]
    if isinstance(value, set | frozenset):
        return ["s", sorted(packed(item) for item in value)]
    if isinstance(value, StoredArray):
        digest = hashlib.blake2b(digest_size=16)
        for block in value.blocks():
            digest.update(_array_bytes(block))
        return ["A", value.dtype.kind, list(value.shape), digest.digest()]
    if isinstance(value, np.ndarray) and value.dtype.kind in "biufc":
        return ["a", value.dtype.kind, list(value.shape), _array_bytes(value)]
    if isinstance(value, np.ndarray):
        return ["a", value.dtype.kind, list(value.shape), [canonical(item) for item in value.ravel().tolist()]]
    return ["o", type(value).__name__, repr(value)]


def _array_bytes(array: np.ndarray) -> bytes:
    kind = array.dtype.kind
    wide = np.array(array, dtype={"b": "?", "i": "<i8", "u": "<u8", "f": "<f8", "c": "<c16"}[kind])
    if kind in "fc":
        parts = wide.reshape(-1).view("<f8")
        parts += 0.0
        parts[np.isnan(parts)] = np.nan
    return wide.tobytes()


def packed(value: Any) -> bytes:
    """Return the msgpack bytes of a value's canonical form."""
    return bytes(msgpack.packb(canonical(value), use_bin_type=True))


def digest(value: Any) -> int:
    """Return the 128-bit digest of a value.

    Examples
    --------
    >>> digest((1, 2.0)) == digest([np.int32(1), np.float32(2.0)]) != digest((2.0, 1))
    True
    """
    return int.from_bytes(hashlib.blake2b(packed(value), digest_size=16).digest(), "little")


class CompensatedSum:
    """Sum of floats that keeps what each addition rounds away, by Neumaier's algorithm (ZAMM 54, 1974)."""

    def __init__(self) -> None:
        self._sum = 0.0
        self._lost = 0.0

    def add(self, value: float) -> None:
        """Add a number."""
        total = self._sum + value
        if math.isfinite(total):
            large, small = (self._sum, value) if abs(self._sum) >= abs(value) else (value, self._sum)
            self._lost += (large - total) + small
        self._sum = total

    @property
    def value(self) -> float:
        """The sum."""
        return self._sum + self._lost


def _signs(seed: int, count: int) -> np.ndarray:
    """Return signs, shape (:data:`SIGNED_SUMS`, count), of a record's number: bits of splitmix64."""
    with np.errstate(over="ignore"):
        steps = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        state = np.uint64(seed & (2 ** 64 - 1)) + steps
        state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        state ^= state >> np.uint64(31)
    bits = (state[None, :] >> np.arange(SIGNED_SUMS, dtype=np.uint64)[:, None]) & np.uint64(1)
    return 1.0 - 2.0 * bits.astype(np.float64)


_FIELDS = ("count", "whole", "exact", "nans", "infinities", "negative_infinities", "zeros", "floats", "least",
           "greatest", "eps")


@dataclass
class Summary:
    """Summary of any number of records in constant memory; see :func:`summarize`.

    Parameters
    ----------
    count : int
        Records.
    whole : int
        Sum of all records' digests modulo 2**128: equal for equal records in any order.
    exact : int
        The same of the records without their floats.
    nans, infinities, negative_infinities, zeros, floats : int
        Floats that are each, and all of them.
    least, greatest : float
        Of the finite floats.
    """

    count: int = 0
    whole: int = 0
    exact: int = 0
    nans: int = 0
    infinities: int = 0
    negative_infinities: int = 0
    zeros: int = 0
    floats: int = 0
    least: float = math.inf
    greatest: float = -math.inf
    eps: float = 0.0
    sums: list[CompensatedSum] = field(default_factory=lambda: [CompensatedSum() for _ in range(3)])
    signed: list[CompensatedSum] = field(default_factory=lambda: [CompensatedSum() for _ in range(SIGNED_SUMS)])

    def add(self, record: Any, place: Any) -> None:
        """Add a record; its key or its number says the signs with which its floats are summed."""
        self.count += 1
        self.whole = (self.whole + digest(record)) % MODULUS
        parts, rest = [], []
        for path, leaf in leaves(record):
            if is_float(leaf):
                parts.append(np.atleast_1d(as_reals(leaf)).ravel())
                rest.append([list(path), list(np.shape(leaf))])
                self.eps = max(self.eps, eps_of(leaf))
            else:
                rest.append([list(path), leaf])
        self.exact = (self.exact + digest(rest)) % MODULUS
        if parts:
            self._add_floats(np.concatenate(parts), place)

    def _add_floats(self, values: np.ndarray, place: Any) -> None:
        finite = np.isfinite(values)
        self.floats += values.size
        self.nans += int(np.isnan(values).sum())
        self.infinities += int((values == np.inf).sum())
        self.negative_infinities += int((values == -np.inf).sum())
        self.zeros += int((values == 0).sum())
        if finite.any():
            self.least = min(self.least, float(values[finite].min()))
            self.greatest = max(self.greatest, float(values[finite].max()))
        values = np.where(finite, values, 0.0)
        with np.errstate(over="ignore"):
            squares = values * values
        for total, part in zip(self.sums, (values, np.abs(values), squares), strict=True):
            total.add(_sum(part))
        for total, signs in zip(self.signed, _signs(digest(place), values.size), strict=True):
            total.add(_sum(signs * values))

    @property
    def counts(self) -> dict[str, int]:
        """What must be equal whatever is rounded."""
        return {"records": self.count, "floats": self.floats, "NaN": self.nans, "inf": self.infinities,
                "-inf": self.negative_infinities}

    def state(self) -> list[int | float]:
        """Return the summary as numbers, from which :meth:`of_state` makes it again."""
        return [*(getattr(self, name) for name in _FIELDS), *(each.value for each in [*self.sums, *self.signed])]

    @staticmethod
    def of_state(state: list[int | float]) -> Summary:
        """Return the summary of what :meth:`state` gave.

        Examples
        --------
        >>> summary = summarize([(1, 0.5)])
        >>> Summary.of_state(summary.state()).state() == summary.state()
        True
        """
        summary = Summary()
        for name, value in zip(_FIELDS, state, strict=False):
            setattr(summary, name, value)
        for total, value in zip([*summary.sums, *summary.signed], state[len(_FIELDS):], strict=True):
            total.add(value)
        return summary

    def distance(self, other: Summary) -> float:
        """Return an estimate of the norm of the difference of all floats, relative to the norm of both.

        Each signed sum of the differences has the norm of the differences as its standard deviation.
        """
        differences = [mine.value - theirs.value for mine, theirs in zip(self.signed, other.signed, strict=True)]
        if not all(map(math.isfinite, differences)):
            return math.inf
        scale = math.sqrt(max(self.sums[2].value, other.sums[2].value, 0.0))
        if math.isinf(scale):
            scale = max(abs(self.least), abs(self.greatest))
        return math.hypot(*differences) / math.sqrt(SIGNED_SUMS) / (scale or 1.0)


def _sum(values: np.ndarray) -> float:
    try:
        return math.fsum(values)
    except OverflowError:       # of an intermediate sum
        return math.inf


def is_float(leaf: Any) -> bool:
    """Return whether a leaf is a float or complex number, or an array of these."""
    return isinstance(leaf, float | complex | np.inexact) or (
        isinstance(leaf, np.ndarray | StoredArray) and leaf.dtype.kind in "fc")


def as_reals(leaf: Any) -> np.ndarray:
    """Return a leaf as float64; complex numbers as pairs on a last axis."""
    array = np.asarray(leaf)
    if array.dtype.kind == "c":
        return np.stack([array.real, array.imag], axis=-1).astype(np.float64)
    return array.astype(np.float64)


def eps_of(leaf: Any) -> float:
    """Return the distance of 1.0 to the next number of a leaf's dtype.

    Examples
    --------
    >>> eps_of(1.0) == 2.0 ** -52, eps_of(np.float32(1)) == 2.0 ** -23
    (True, True)
    """
    return float(np.finfo(leaf.dtype if isinstance(leaf, StoredArray) else np.asarray(leaf).dtype).eps)


def summarize(records: Iterable[Any], first: int = 0) -> Summary:
    """Return the summary of records, of which only one at a time is held.

    Parameters
    ----------
    records : iterable
        Pairs count as keys with their values: signs are hashed from keys, from the record's number otherwise.
    first : int
        Number of the first record.

    Examples
    --------
    >>> a, b = summarize([(1, 0.5), (2, 0.25)]), summarize([(2, 0.25), (1, 0.5)])
    >>> a.whole == b.whole, a.distance(b)
    (True, 0.0)
    >>> summarize([(1, 0.25), (2, 0.5)]).distance(a) > 0.1      # the values of two keys swapped
    True
    """
    summary = Summary()
    for number, record in enumerate(records, first):
        summary.add(record, record[0] if is_pair(record) else number)
    return summary


def is_pair(record: Any) -> bool:
    """Return whether a record is a key with its value; a key has no floats."""
    return (isinstance(record, tuple) and len(record) == 2
            and not any(is_float(leaf) or isinstance(leaf, np.ndarray | StoredArray) for _, leaf in leaves(record[0])))
