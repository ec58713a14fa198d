"""Search for the one of two results that is nearer to a run in wider floats, where they first differ."""

from __future__ import annotations

from typing import Any

import numpy as np

from vispark.migrate.capture.packed_values import StoredArray
from vispark.migrate.capture.stored_results import StoredResult
from vispark.migrate.validate.compare import DIFFERS, Comparison, Tolerance, compare
from vispark.migrate.validate.digests import digest, is_pair, packed
from vispark.migrate.validate.record_order import records_of
from vispark.migrate.validate.verdicts import ValuePlace

CPU, GPU, EQUALLY, UNKNOWN = "the CPU", "the GPU", "both equally", "not known"


def nearer(difference: Comparison, reference: Any, other: Any, wide: Any) -> str:
    """Return the name of the result that is nearer to that in wider floats, or the reason why it is not known.

    Parameters
    ----------
    difference : Comparison
        The first difference of the two.
    reference, other, wide : object
        The result on the CPU, on the GPU, and on the CPU in wider floats.

    Examples
    --------
    >>> one, two, wide = 1 / 3, float(np.float32(1 / 3)), 1 / np.longdouble(3)
    >>> nearer(compare(one, two, Tolerance(terms=1)), one, two, wide)
    'the CPU'
    """
    one, two = difference.reference, difference.other
    if difference.place is None or one is None or two is None:
        return _as_a_whole(reference, other, wide)
    try:
        value = value_at(wide, difference.place)
    except (LookupError, TypeError, ValueError):
        return _as_a_whole(reference, other, wide)
    if not all(isinstance(each, float | int | np.number) for each in (one, two, value)):
        return _of_two(digest(one) == digest(value), digest(two) == digest(value))
    with np.errstate(invalid="ignore", over="ignore"):
        distances = [_distance(each, value) for each in (one, two)]
    if distances[0] == distances[1]:
        return EQUALLY
    return CPU if distances[0] < distances[1] else GPU


def _as_a_whole(reference: Any, other: Any, wide: Any) -> str:
    """Return the name of the result that does not differ from that in wider floats, by its own type's rounding."""
    return _of_two(*(compare(each, wide, Tolerance()).verdict != DIFFERS for each in (reference, other)))


def _of_two(is_cpu: bool, is_gpu: bool) -> str:
    if is_cpu != is_gpu:
        return CPU if is_cpu else GPU
    return EQUALLY if is_cpu else f"{UNKNOWN}: a run in wider floats gives neither"


def _distance(value: Any, wide: Any) -> np.longdouble:
    """Return the distance of two numbers: 0 of two NaN and of equal infinities, infinite where one alone is finite."""
    one, two = np.longdouble(value), np.longdouble(wide)
    if one == two or (np.isnan(one) and np.isnan(two)):
        return np.longdouble(0)
    distance = np.abs(one - two)
    return np.longdouble(np.inf) if np.isnan(distance) else distance


def value_at(result: Any, place: ValuePlace) -> Any:
    """Return the value at a place of a result.

    Raises
    ------
    LookupError
        If there is none.

    Examples
    --------
    >>> value_at([(1, np.array([0.5, 2.0])), (7, np.array([1.0, 4.0]))], ValuePlace(0, 7, (1, 1)))
    np.float64(4.0)
    """
    result = result.value() if isinstance(result, StoredResult) and result.form == "value" else result
    if isinstance(result, list | StoredResult):
        result = _record_at(result, place)
    for number, step in enumerate(place.path):
        if isinstance(result, np.ndarray | StoredArray):
            return _element(result, place.path[number:])
        result = result[step]
    return result


def _record_at(result: list[Any] | StoredResult, place: ValuePlace) -> Any:
    if place.key is None and place.record is None:
        raise LookupError("records without an order")
    key = None if place.key is None else packed(place.key)
    is_dict = isinstance(result, StoredResult) and result.form == "dict"
    for number, record in enumerate(records_of(result)):
        if number == place.record if key is None else (is_dict or is_pair(record)) and packed(record[0]) == key:
            return record
    raise LookupError(str(place))


def _element(array: np.ndarray | StoredArray, path: tuple[Any, ...]) -> Any:
    """Return an element; behind the indices of a complex one there is 0 for its real part, or 1 for its imaginary."""
    at, part = path[:array.ndim], path[array.ndim:]
    if isinstance(array, StoredArray):
        flat = int(np.ravel_multi_index(at, array.shape))
        for block in array.blocks():
            if flat < len(block):
                return _part(block[flat], part)
            flat -= len(block)
        raise LookupError(str(path))
    return _part(array[at], part)


def _part(value: Any, part: tuple[Any, ...]) -> Any:
    return (value.real, value.imag)[part[0]] if part else value
