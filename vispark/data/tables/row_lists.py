"""Rows of several lengths and sparse vectors as Arrow's lists."""

from __future__ import annotations

from typing import Any

import numpy as np

from vispark.data.records.ragged import FlatRows
from vispark.data.tables.arrow import pa
from vispark.data.tables.types import VECTOR


def arrow_lists(rows: FlatRows) -> Any:
    """Return rows as an Arrow array of lists, or of Spark's vectors.

    Examples
    --------
    >>> arrow_lists(FlatRows(np.array([0, 1, 3]), np.array([3.0, 1.0, 2.0]))).to_pylist()
    [[3.0], [1.0, 2.0]]
    """
    offsets = pa.array(rows.offsets.astype(np.int32))
    values = pa.ListArray.from_arrays(offsets, pa.array(rows.items))
    if rows.places is None or rows.sizes is None:
        return values
    kinds = np.zeros(len(rows), np.int8)        # Spark's number for a sparse one
    places = pa.ListArray.from_arrays(offsets, pa.array(rows.places))
    return pa.StructArray.from_arrays([pa.array(kinds), pa.array(rows.sizes.astype(np.int32)), places, values], VECTOR)
