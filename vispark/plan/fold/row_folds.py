"""Folds of rows by ``vreduce`` as functions of the row, fused with the kernel that computes the row.

Each gives what :class:`~gpu_worker.protocol.messages.FoldInside` gives of records that are rows: floats are folded in
double precision, sums of float64 with what rounding takes from them (Neumaier, "Rundungsfehleranalyse einiger Verfahren
zur Summation endlicher Summen", 1974, with the exact error of Knuth's sum), integers modulo their size.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gpu_worker.protocol.messages import Field
from vispark.plan.fold.spec import FoldSpec

#: A sum of float64 goes along its row step by step: of more numbers one thread for each row is too few.
_MOST_DOUBLES = 32


def _add(p):
    return np.sum(p).astype(p.dtype)


def _add_floats(p):
    return np.sum(p, dtype=np.float64).astype(p.dtype)


def _add_doubles(p):
    total, lost = 0.0, 0.0
    for x in p:
        after = total + x
        back = after - total
        lost += (total - (after - back)) + (x - back)
        total = after
    return total + lost if np.isfinite(total) else total


def _multiply(p):
    return np.prod(p).astype(p.dtype)


def _multiply_floats(p):
    return np.prod(p, dtype=np.float64).astype(p.dtype)


def _minimum(p):
    return np.min(p)


def _maximum(p):
    return np.max(p)


_OF_INTEGERS: dict[str, Callable[..., Any]] = {"add": _add, "multiply": _multiply, "minimum": _minimum,
                                               "maximum": _maximum}
_OF_FLOATS = {**_OF_INTEGERS, "add": _add_floats, "multiply": _multiply_floats}


def along(spec: FoldSpec, row: Field) -> Callable[..., Any] | None:
    """Return the translator's function that folds a row; None if there is none.

    Parameters
    ----------
    row : Field
        The rows, along their first axis.
    """
    dtype = np.dtype(row.dtype)
    if spec.whole is None or len(row.shape) != 2 or row.name or not row.shape[1]:
        return None
    operator = spec.whole.operator
    if dtype == np.float64 and operator == "add":
        return _add_doubles if row.shape[1] <= _MOST_DOUBLES else None
    if dtype in (np.float32, np.float64):
        return _OF_FLOATS.get(operator)
    return _OF_INTEGERS.get(operator) if dtype.kind in "iu" else None
