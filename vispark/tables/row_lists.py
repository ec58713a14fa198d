"""Rows of several lengths and sparse vectors as Arrow's lists."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from vispark.records.layout import PLACES, STARTS, RecordPart
from vispark.tables.arrow import pa
from vispark.tables.types import VECTOR


@dataclass(frozen=True)
class RowLists:
    """Rows of several lengths, or sparse vectors, one behind the other.

    Attributes
    ----------
    offsets : ndarray of int64
        Where each row's items begin, and behind them where the last ones end.
    items : ndarray
        The items of all rows.
    places : ndarray of int32, optional
        Of sparse vectors the place of each item.
    sizes : ndarray of int64, optional
        Of sparse vectors their sizes.
    """

    offsets: np.ndarray
    items: np.ndarray
    places: np.ndarray | None = None
    sizes: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def row_bytes(self) -> int:
        """Bytes of a row in the mean."""
        place = self.items.itemsize + (0 if self.places is None else self.places.itemsize)
        return 8 + int(self.offsets[-1] - self.offsets[0]) * place // max(1, len(self))

    def __getitem__(self, rows: slice) -> RowLists:
        start, stop, _ = rows.indices(len(self))
        return replace(self, offsets=self.offsets[start:stop + 1],
                       sizes=None if self.sizes is None else self.sizes[start:stop])

    def arrow(self) -> Any:
        """Return the rows as an Arrow array of lists, or of Spark's vectors."""
        values = self._lists(self.items)
        if self.places is None or self.sizes is None:
            return values
        kinds = np.zeros(len(self), np.int8)        # Spark's number for a sparse one
        columns = [pa.array(kinds), pa.array(self.sizes.astype(np.int32)), self._lists(self.places), values]
        return pa.StructArray.from_arrays(columns, VECTOR)

    def _lists(self, items: np.ndarray) -> Any:
        first, last = self.offsets[[0, -1]]
        return pa.ListArray.from_arrays(pa.array((self.offsets - first).astype(np.int32)), pa.array(items[first:last]))


def row_lists(part: RecordPart, block: Mapping[str, np.ndarray]) -> RowLists:
    """Return the rows of one part of a partition's block.

    Examples
    --------
    >>> block = {"w#": np.array([[2, 1], [0, 2]]), "w": np.array([1.0, 2.0, 3.0])}
    >>> row_lists(RecordPart("w", "ragged", ("<f8",)), block)
    RowLists(offsets=array([0, 1, 3]), items=array([3., 1., 2.]), places=None, sizes=None)
    """
    starts = block[part.name + STARTS]
    begins, lengths = starts[:, 0], starts[:, 1]
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    items = np.ascontiguousarray(block[part.name], part.dtype)
    places = block[part.name + PLACES] if part.form == "sparse" else None
    if not np.array_equal(begins, offsets[:-1]):
        chosen = np.repeat(begins - offsets[:-1], lengths) + np.arange(offsets[-1])
        items, places = items[chosen], None if places is None else places[chosen]
    return RowLists(offsets, items, places, starts[:, 2] if part.form == "sparse" else None)
