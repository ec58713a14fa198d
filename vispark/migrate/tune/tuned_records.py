"""Functions over records that ``vispark tune`` puts before what is cached; they run in Spark's tasks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from vispark.data.records.rows import Rows


def narrowed(record: Any) -> Any:
    """Return a record with float32 in place of float64.

    Examples
    --------
    >>> narrowed((1, np.ones(2)))[1].dtype
    dtype('float32')
    """
    if isinstance(record, dict):
        return {name: narrowed(value) for name, value in record.items()}
    if isinstance(record, tuple | list):
        return type(record)(map(narrowed, record))
    if isinstance(record, np.ndarray):
        return record.astype(np.float32) if record.dtype == np.float64 else record
    return np.float32(record) if isinstance(record, float) else record


def narrowed_blocks(rows: Iterable[Any]) -> Any:
    """Return the records of a partition, narrowed; arrays stay arrays of rows."""
    if not isinstance(rows, Rows):
        return map(narrowed, rows)
    return Rows(_narrowed_arrays(rows))


def _narrowed_arrays(rows: Rows) -> Iterator[Any]:
    for array in rows._arrays:
        yield narrowed(array)


def one_block(rows: Iterable[Any]) -> Any:
    """Return the arrays of a partition as the rows of one."""
    listed = list(rows)
    return Rows([np.stack(listed)] if listed else [])


def block_probe(rows: Iterable[Any]) -> list[bool]:
    """Return whether a partition comes as the rows of arrays."""
    return [isinstance(rows, Rows)]


def is_wide(record: Any) -> bool:
    """Return whether a record has float64.

    Examples
    --------
    >>> is_wide((1, np.ones(2))), is_wide(np.float32(1))
    (True, False)
    """
    if isinstance(record, dict):
        return any(map(is_wide, record.values()))
    if isinstance(record, tuple | list):
        return any(map(is_wide, record))
    return isinstance(record, float) or getattr(record, "dtype", None) == np.float64
