"""Errors about records that cannot be held, in the user's terms: which record, its type, and what would be right."""

from __future__ import annotations

import numbers
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np

from gpu_worker.protocol.errors import RecordError
from vispark.data.records.layout import NUMERIC, PYTHON

ARRAYS = (np.ndarray, np.memmap)

_RIGHT = ("a record is a number, a numeric array, a tuple of numbers and rows, a dict of numbers and arrays, a "
          "SparseVector where all are, or a (key, value) pair with such a value")


@dataclass(frozen=True, slots=True)
class Subject:
    """Subject of a check within each record: the record or its value, and in it a field or a position."""

    keyed: bool
    part: str = ""

    def of(self, index: int) -> str:
        whole = f"the value of record {index}" if self.keyed else f"record {index}"
        return f"{self.part} of {whole}" if self.part else whole


def is_number(value: Any) -> bool:
    """Return whether a value is one of Python's numbers or a NumPy scalar."""
    return type(value) in PYTHON or (isinstance(value, np.generic) and value.dtype.char in NUMERIC)


def is_array(value: Any) -> bool:
    """Return whether a value is a numeric array."""
    return type(value) in ARRAYS and value.dtype.char in NUMERIC


def is_pair(record: object) -> bool:
    return type(record) is tuple and len(record) == 2


def describe(value: Any) -> str:
    """Return a value's type, as precisely as it matters here."""
    if value is None:
        return "None"
    if type(value) in ARRAYS:
        return f"a {value.ndim}-D array of {value.dtype}"
    if is_pair(value):
        return "a (key, value) pair"
    if type(value) is tuple:
        return f"a tuple of {len(value)}"
    if type(value) is dict:
        return "a dict of " + (", ".join(map(repr, value)) or "no fields")
    name = type(value).__name__
    name = f"NumPy {name}" if isinstance(value, np.generic) else name
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"


def refused(subject: Subject, index: int, value: object, advice: str = "") -> RecordError:
    """Return the error for a value that no worker can hold."""
    return RecordError(f"{subject.of(index)} is {describe(value)}; {advice or advice_for(value)}")


def mixed(subject: Subject, index: int, value: object, first: object) -> RecordError:
    """Return the error for a value that is valid alone, but not beside those before it."""
    return RecordError(f"{subject.of(index)} is {describe(value)}, but {subject.of(0)} is {describe(first)}; "
                       "the records of a partition must be of one type, dtype and number of dimensions: "
                       "convert them before they are sent")


def advice_for(value: object) -> str:
    """Return the advice for a value that cannot be held."""
    if value is None:
        return "leave out records without a value, or use float('nan')"
    if isinstance(value, np.ndarray):
        return _array_advice(value)
    if isinstance(value, np.datetime64 | np.timedelta64):
        return "convert it with .astype('int64')"
    if isinstance(value, list):
        return "np.asarray it, or make it a tuple"
    if isinstance(value, tuple):
        return _tuple_advice(value)
    if isinstance(value, dict):
        return "a record has at least one field" if type(value) is dict else "make it a plain dict"
    if isinstance(value, set | frozenset):
        return "make it an array: sort it and np.array it"
    if isinstance(value, str | bytes | bytearray):
        return "text can be a key of a pair, but values are numbers: parse it, or np.frombuffer its bytes"
    if isinstance(value, Decimal | numbers.Number):
        return "convert it with float() or int()"
    return _RIGHT


def _tuple_advice(value: tuple[Any, ...]) -> str:
    if type(value) is not tuple:
        return "use a plain tuple for a row, or a dict for named fields"
    if len(value) == 2:
        return "a tuple of two is a pair, and a pair's value cannot be one again: np.asarray it, or use a dict of two"
    return _RIGHT


def _array_advice(array: np.ndarray) -> str:
    if isinstance(array, np.ma.MaskedArray):
        return "fill what is masked, with .filled()"
    if type(array) not in ARRAYS:
        return "np.asarray it"
    if array.dtype.names:
        return "use a dict with an array for each of its fields"
    if array.dtype.kind in "mM":
        return "convert it with .astype('int64')"
    return "use a numeric dtype, as with .astype('float64')"
