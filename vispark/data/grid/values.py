"""Conversion of values of cells to a field's dtype; a value that the dtype cannot hold is an error that names the cell.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from gpu_worker.protocol.errors import PlanError

#: What functions of users raise.
_OF_A_FUNCTION = (ArithmeticError, AssertionError, AttributeError, LookupError, NameError, OSError, RuntimeError,
                  TypeError, ValueError)


def called(field: str) -> str:
    """Return the name of a field for errors; "" is the only field of a grid whose fields have no names."""
    return f"field {field!r}" if field else "the grid"


def evaluate(function: Callable[..., Any], coordinates: Sequence[np.ndarray], shape: tuple[int, ...],
             dtype: str | None, name: str) -> np.ndarray:
    """Evaluate a function of the position for cells.

    Parameters
    ----------
    function : callable
        Of one integer array for each axis, which broadcast against each other.
    coordinates : sequence of ndarray
        Those arrays.
    shape : tuple of int
        Of the result.
    dtype : str or None
        Of the result; None for what the function gives.
    name : str
        What an error calls it.

    Raises
    ------
    PlanError
        If the result has another shape, is no numbers, or is not of a kind that ``dtype`` holds, or a cell's value is
        beyond what it holds.
    """
    try:
        values = np.asarray(function(*coordinates))
    except _OF_A_FUNCTION as error:
        raise PlanError(f"the function that gives {name} failed: {type(error).__name__}: {error}; it is called with "
                        f"one integer array for each of the {len(shape)} axes, which broadcast against each "
                        "other") from error
    if values.ndim == 0 and isinstance(fields := values[()], Mapping):
        own = ", ".join(f"{field!r}: f_{field}" for field in fields)
        raise PlanError(f"the function that gives {name} returned a dict; each field takes a function of its own, as "
                        f"in {{{own}}}")
    return fitted(values, shape, dtype, name, coordinates)


def fitted(values: np.ndarray, shape: tuple[int, ...], dtype: str | None, name: str,
           coordinates: Sequence[np.ndarray]) -> np.ndarray:
    """Return values broadcast to a shape, contiguous and of a dtype.

    Parameters as for :func:`evaluate`.

    Raises
    ------
    PlanError
        If they cannot be.
    """
    if values.dtype.kind not in "biufc":
        raise PlanError(f"{name} is of dtype {values.dtype}; cells hold numbers")
    if dtype is not None and not np.can_cast(values.dtype, dtype, "same_kind"):
        raise PlanError(f"{name} is of dtype {values.dtype}, which the field's {np.dtype(dtype)} does not hold")
    try:
        whole = np.broadcast_to(values, shape)
    except ValueError as error:
        raise PlanError(f"{name} has shape {values.shape}, and its cells {shape}") from error
    with np.errstate(over="ignore"):
        array = np.asarray(whole, dtype, order="C")
    if not np.can_cast(whole.dtype, array.dtype, "safe"):
        lost = array != whole if array.dtype.kind in "iu" else np.isfinite(whole) & ~np.isfinite(array)
        cell = first_cell(lost, coordinates)
        if cell is not None:
            raise PlanError(f"{name} is {whole[np.unravel_index(lost.argmax(), shape)]} at cell {cell}, which the "
                            f"field's {array.dtype} cannot hold")
    return array


def held(number: Any, dtype: str, name: str) -> np.ndarray:
    """Return a number as one of a dtype.

    Raises
    ------
    PlanError
        If the dtype cannot hold it.
    """
    kind = np.dtype(dtype)
    refused = PlanError(f"{name} is {number}, which its {kind} cannot hold")
    if kind.kind in "biu":
        integral = np.isrealobj(number) and float(number).is_integer()
        low, high = (0, 1) if kind.kind == "b" else (int(np.iinfo(kind).min), int(np.iinfo(kind).max))
        if not integral or not low <= int(number) <= high:
            raise refused
        return np.array(int(number), kind)
    if kind.kind == "f" and np.iscomplexobj(number):
        raise refused
    with np.errstate(over="ignore"):
        array = np.asarray(number).astype(kind)
    if np.isfinite(number) and not np.isfinite(array):
        raise refused
    return array


def first_cell(marked: np.ndarray, coordinates: Sequence[np.ndarray]) -> tuple[int, ...] | None:
    """Return the position of the first of the cells that are marked; None where none is.

    Parameters
    ----------
    marked : ndarray of bool
        With an axis for each of the grid's.
    coordinates : sequence of ndarray
        The positions along each axis, as for :func:`evaluate`.
    """
    if not marked.any():
        return None
    at = np.unravel_index(int(marked.argmax()), marked.shape)
    return tuple(int(along.ravel()[place]) for along, place in zip(coordinates, at, strict=True))
