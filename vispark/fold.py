"""Which functions of two records have a kernel that folds with them."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gpu_worker.protocol.messages import Field, Fold, Folded
from gpu_worker.protocol.payload import Payload
from vispark.lower import Content
from vispark.records import Layout

_NAMED: dict[Callable, str] = {
    operator.add: "add", operator.iadd: "add", np.add: "add",
    operator.mul: "multiply", operator.imul: "multiply", np.multiply: "multiply",
    np.minimum: "minimum", np.maximum: "maximum", min: "minimum", max: "maximum",
    operator.and_: "and", np.bitwise_and: "and", operator.or_: "or", np.bitwise_or: "or",
    operator.xor: "xor", np.bitwise_xor: "xor",
}
_BITWISE = ("and", "or", "xor")
_PYTHON = ("int", "float", "bool", "complex")
_ON_HOST = {"add": np.add, "multiply": np.multiply, "minimum": np.minimum, "maximum": np.maximum,
            "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}

#: Folds of Python ints whose sizes stay below this have not overflowed 64 bits, rounding of the sizes included.
_SAFE = 2.0 ** 62


def lower_fold(function: Callable, contents: Sequence[Content]) -> Fold | str:
    """The fold for ``reduce(function)`` of the records of some partitions, or why there is none.

    Parameters
    ----------
    function : callable
        Of two records.
    contents : sequence of Content
        Partitions with at least one record each; at least one partition.

    Examples
    --------
    >>> lower_fold(print, [None])
    'print is not one of the operators that have a kernel'
    """
    try:
        named = _NAMED.get(function)
    except TypeError:
        named = None
    if named is None:
        return f"{getattr(function, '__name__', function)} is not one of the operators that have a kernel"
    if len({(content.layout, _record_shape(content)) for content in contents}) > 1:
        return "records of different shapes or types are not folded on the device"
    content = contents[0]
    layout = content.layout
    if layout.keyed or content.only != "":
        return "pairs are not folded on the device"
    if layout.named or len(layout.parts) != 1:
        return "records with named fields are not folded on the device"
    if layout.parts[0].form == "tuple":
        return "tuples are joined, not added, by Python's operators"
    return _of_numbers(function, named, layout, content)


def finish(fold: Fold, folds: Sequence[tuple[Folded, Payload | None, Content]], otherwise: Callable[[], Any]) -> Any:
    """The folded record, of what each worker gave.

    Parameters
    ----------
    fold : Fold
        As lowered.
    folds : sequence of (Folded, Payload, Content)
        Each worker's result, in the order of their first partitions.
    otherwise : callable
        Gives the result where these cannot be trusted: an integer overflowed, or NaN has no place in an order.
    """
    folds = [each for each in folds if each[0].count]
    magnitudes = [folded.magnitude for folded, _, _ in folds]
    magnitude = math.prod(max(each, 1.0) for each in magnitudes) if fold.operator == "multiply" else sum(magnitudes)
    if magnitude >= _SAFE or not all(folded.ordered for folded, _, _ in folds):
        return otherwise()
    content = folds[0][2]
    shape = _record_shape(content)
    with np.errstate(all="ignore"):
        value = functools.reduce(_ON_HOST[fold.operator], [
            payload.field(Field("", content.layout.parts[0].dtype.str, shape), folded.offset)
            for folded, payload, _ in folds])
    part = content.layout.parts[0]
    if part.form == "array":
        return np.array(value)
    return value.item() if part.types[0] in _PYTHON else value[()]


def _record_shape(content: Content) -> tuple[int, ...]:
    """The shape of a record's only array."""
    if not content.signatures or not content.signatures[0].fields:
        return ()
    shape = content.signatures[0].fields[0].shape
    return shape[1:] if content.layout.kind == "elements" else shape


def _of_numbers(function: Callable, named: str, layout: Layout, content: Content) -> Fold | str:
    part = layout.parts[0]
    dtype = part.dtype
    python = part.form == "number" and part.types[0] in _PYTHON
    if dtype.kind == "b":
        if python and (named not in _BITWISE or isinstance(function, np.ufunc)):
            return "Python's bools become ints in arithmetic"
        named = {"add": "or", "multiply": "and", "minimum": "and", "maximum": "or"}.get(named, named)
    if named in _BITWISE and dtype.kind not in "iub":
        return f"there is no {named} of {dtype}"
    if dtype.kind not in "iubfc" or (dtype.kind == "f" and dtype.itemsize not in (4, 8)) \
            or (dtype.kind == "c" and (named != "add" or dtype.itemsize not in (8, 16))):
        return f"{dtype} has no {named} on the device"
    if dtype != dtype.newbyteorder("=") or np.dtype(part.types[0] if not python else dtype).byteorder not in "=|<":
        return "numbers of foreign byte order are not folded on the device"
    if function in (min, max) and part.form != "number":
        return f"{function.__name__} of two arrays has no truth value"
    if isinstance(function, np.ufunc) and python:
        return "a NumPy function makes NumPy numbers of Python's"
    if len(set(content.signatures)) > 1:
        return "blocks of different shapes are not folded on the device"
    return Fold(named, "rows" if layout.kind == "elements" else "blocks", _guard(function, named, dtype, python))


def _guard(function: Callable, named: str, dtype: np.dtype, python: bool) -> str:
    if python and dtype.kind == "i" and named in ("add", "multiply"):
        return "overflow"
    return "nan" if function in (min, max) and dtype.kind == "f" else ""
