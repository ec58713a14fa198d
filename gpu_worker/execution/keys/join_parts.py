"""Parts of a join for which a device has no room at once: runs of the left side's rows, each with the rows of the right
one that have their keys. Both sides are sorted by their keys, and in host memory.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from gpu_worker.device.memory.partition import HeldArray
from gpu_worker.device.memory.spill_files import store
from gpu_worker.execution.keys.row_keys import words_of
from gpu_worker.execution.memory.row_chunks import row_bytes

#: The bytes of a row that are repeated at once.
_REPEATED_BYTES = 1 << 20


@dataclass(frozen=True)
class JoinPart:
    """Part of a join.

    Attributes
    ----------
    left, right : tuple of int
        The first row of each side, and the one behind the last.
    first : int
        The number of its first pair.
    pairs : int
        How many pairs it has.
    is_of_one_row : bool
        Whether it has one row of the left side, whose pairs are too many for the device.
    """

    left: tuple[int, int]
    right: tuple[int, int]
    first: int
    pairs: int
    is_of_one_row: bool


class SortedMatches:
    """Matches of the rows of two sides that are sorted by their keys.

    Parameters
    ----------
    left, right : sequence of ndarray
        The keys of each side, an array for each item; none is NaN.

    Attributes
    ----------
    pairs : int
        How many pairs there are.

    Examples
    --------
    >>> matches = SortedMatches([np.array([1, 2, 2, 5])], [np.array([2, 2, 3, 5])])
    >>> matches.pairs
    5
    >>> [(part.left, part.right, part.first, part.is_of_one_row) for part in matches.parts(100, 8, 8, 24)]
    [((1, 2), (0, 2), 0, False), ((2, 3), (0, 2), 2, False), ((3, 4), (3, 4), 4, False)]
    >>> [(part.left, part.right, part.pairs, part.is_of_one_row) for part in matches.parts(40, 8, 8, 24)]
    [((1, 2), (0, 2), 2, True), ((2, 3), (0, 2), 2, True), ((3, 4), (3, 4), 1, False)]
    """

    def __init__(self, left: Sequence[np.ndarray], right: Sequence[np.ndarray]):
        keys, others = _comparable(left), _comparable(right)
        begins, ends = [np.searchsorted(others, keys, side) for side in ("left", "right")]
        #: The left side's rows that have any match, where theirs begin and end, and the pairs before each and of all.
        self._rows = np.flatnonzero(ends > begins)
        self._begins, self._ends = begins[self._rows], ends[self._rows]
        self._before = np.concatenate([[0], np.cumsum(self._ends - self._begins)])
        self.pairs = int(self._before[-1])

    def parts(self, most: int, left: int, right: int, pair: int) -> Iterator[JoinPart]:
        """Yield parts in the order of their pairs, each as large as ``most`` bytes allow.

        Parameters
        ----------
        most : int
            The bytes of a part.
        left, right, pair : int
            The bytes that a row of each side and a pair take.
        """
        rows, begins, ends, before = self._rows, self._begins, self._ends, self._before

        def nbytes(place: int) -> int:
            return int(left * (rows[place] + 1 - rows[first]) + right * (ends[place] - begins[first])
                       + pair * (before[place + 1] - before[first]))

        first = 0
        while first < len(rows):
            behind = bisect.bisect_right(range(len(rows)), most, lo=first, key=nbytes)
            last = max(behind, first + 1) - 1
            yield JoinPart((int(rows[first]), int(rows[last]) + 1), (int(begins[first]), int(ends[last])),
                           int(before[first]), int(before[last + 1] - before[first]), behind == first)
            first = last + 1


def write_pairs_of_row(part: JoinPart, left: Sequence[HeldArray], right: Sequence[HeldArray],
                       targets: Sequence[np.ndarray]) -> None:
    """Store the pairs of one row of the left side: its fields as often as there are pairs, and the right rows' as they
    lie there.

    Parameters
    ----------
    part : JoinPart
        The row and its matches.
    left, right : sequence of HeldArray
        The fields of each side that stay, in host memory.
    targets : sequence of ndarray
        Memory for the pairs of each field (uint8), the left ones first.
    """
    for array, target in zip(left, targets, strict=False):
        size = row_bytes(array)
        many = np.tile(host_of(array.rows(*part.left)), min(part.pairs, max(_REPEATED_BYTES // max(size, 1), 1)))
        for start in range(0, target.nbytes, max(many.nbytes, 1)):
            store(target[start:start + many.nbytes], many[:target.nbytes - start])
    for array, target in zip(right, targets[len(left):], strict=True):
        store(target, host_of(array.rows(*part.right)))


def host_of(array: HeldArray) -> np.ndarray:
    """Return the host memory of an array that is there."""
    assert array.host is not None
    return array.host


def _comparable(keys: Sequence[np.ndarray]) -> np.ndarray:
    """Return numbers, or bytes, that compare as keys do."""
    words = words_of(keys)
    if words.shape[1] == 1:
        return words[:, 0]
    return np.ascontiguousarray(words.astype(">u8")).view(f"V{8 * words.shape[1]}")[:, 0]
