"""Pairs and numbers whose keys workers have in arrays, as exchanges by key need them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gpu_worker.protocol.errors import PlanError
from gpu_worker.protocol.keys import of_value
from gpu_worker.protocol.messages import Field, Signature
from vispark.data.records.layout import RecordLayout, RecordPart, held_as

#: Kinds and sizes of keys that devices order and hash as Python does.
KEY_DTYPES = frozenset(["b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8"])

#: The most items of a key that is a tuple, as workers have them.
MOST_ITEMS = 8

#: Why no function gets these keys.
NO_NUMBERS = ('of="record" gives the function the key of each (key, value) pair, and keys in a kernel are numbers of '
              "one type (int, float, or one of NumPy's of up to 64 bits): these keys are others, and stay in Spark. "
              'of="value" gives the function the value, as mapValues does. For both, send a number for each key: '
              'rdd.map(lambda kv: (number_of[kv[0]], kv[1])).cache("GPU")')

#: Of a partition without records.
EMPTY = RecordLayout("elements", False, ())


def opened(layout: RecordLayout) -> RecordLayout:
    """Return the layout of pairs that were sent once a worker has their keys as an array; others as they are.

    Examples
    --------
    >>> opened(RecordLayout("elements", True, (RecordPart("", "number", ("float",)),), key="int")).parts[0]
    RecordPart(name='0', form='number', types=('int',))
    """
    if not layout.keyed or not layout.key or layout.named or layout.kind != "elements" or layout.only \
            or any(part.form == "tuple" for part in layout.parts) or layout.ragged:
        return layout
    return _with_key(layout)


def whole(layout: RecordLayout, signature: Signature) -> tuple[RecordLayout, Signature]:
    """Return layout and signature of pairs that were sent once their keys are a field ``0`` beside the values'.

    The layout still says what the keys are, by which it differs from that of pairs that a function made.

    Raises
    ------
    PlanError
        If the keys are no numbers.

    Examples
    --------
    >>> numbers = RecordLayout("elements", True, (RecordPart("", "number", ("float",)),), key="int")
    >>> whole(numbers, Signature((Field("", "<f8", (3,)),)))[1].fields
    (Field(name='0', dtype='<i8', shape=(3,)), Field(name='1', dtype='<f8', shape=(3,)))
    """
    if not layout.key:
        raise PlanError(NO_NUMBERS)
    # The first field of rows of several lengths says where each row lies.
    shape = signature.fields[0].shape[:1] if layout.kind == "elements" else ()
    fields = [replace(each, name=of_value(each.name)) for each in signature.fields]
    return replace(_with_key(layout), key=layout.key), Signature((Field("0", held_as(layout.key).str, shape), *fields))


def _with_key(layout: RecordLayout) -> RecordLayout:
    parts = [replace(part, name=of_value(part.name)) for part in layout.parts]
    return replace(layout, keyed=False, key="", tupled=True,
                   parts=(RecordPart("0", "number", (layout.key,)), *parts))


def not_pairs(layout: RecordLayout) -> str:
    """Return the reason why records are no pairs with numbers as keys on the device; "" if they are.

    Examples
    --------
    >>> not_pairs(RecordLayout("elements", True, (RecordPart("", "number", ("float",)),)))
    'the keys are objects, which stay on the host'
    """
    if layout.keyed:
        return "the keys are objects, which stay on the host"
    if not layout.tupled or layout.only or {part.name.split(".")[0] for part in layout.parts} != {"0", "1"}:
        return "the records are not pairs that a vmap made"
    keys = key_parts(layout)
    if layout.kind != "elements" or any(part.name.count(".") > 1 for part in keys):
        return "the key of a pair is not a number, nor a tuple of numbers"
    return not_items(keys)


def not_items(parts: Sequence[RecordPart]) -> str:
    """Return the reason why arrays of a layout are not of keys' items; "" if they are."""
    if len(parts) > MOST_ITEMS:
        return f"the keys are tuples of {len(parts)} items, and {MOST_ITEMS} are the most on the device"
    return next(filter(None, map(not_key, parts)), "")


def key_parts(layout: RecordLayout) -> tuple[RecordPart, ...]:
    """Return the parts of the keys of pairs that are no objects: one, or those of a tuple's items.

    Examples
    --------
    >>> numbers = [RecordPart(name, "number", ("int",)) for name in ("0.0", "0.1", "1")]
    >>> [part.name for part in key_parts(RecordLayout("elements", False, tuple(numbers), tupled=True))]
    ['0.0', '0.1']
    """
    return tuple([part for part in layout.parts if part.name.split(".")[0] == "0"])


def value_parts(layout: RecordLayout) -> tuple[RecordPart, ...]:
    """Return the parts of the values of pairs that are no objects."""
    return layout.parts[len(key_parts(layout)):]


def not_key(part: RecordPart) -> str:
    """Return the reason why an array of a layout is not of keys; "" if it is."""
    code = f"{part.dtype.kind}{part.dtype.itemsize}"
    if part.form != "number" or code not in KEY_DTYPES:
        return (f"keys on the device are integers of 8 to 64 bits, float32 or float64, and not {part.dtype} "
                f"({part.form})")
    return ""


def not_numbers(layout: RecordLayout) -> str:
    """Return the reason why records are not numbers, or tuples of them, that are their own keys; "" if they are."""
    tuples = layout.tupled and all(part.name.isdigit() for part in layout.parts)
    if layout.keyed or layout.only or layout.kind != "elements" or not layout.parts or not (
            tuples or (len(layout.parts) == 1 and not layout.parts[0].name)):
        return "the records are not numbers, nor tuples of numbers"
    return not_items(layout.parts)


def with_counts(layout: RecordLayout) -> RecordLayout:
    """Return the layout of pairs of the keys and how many records have them."""
    return replace(layout, parts=(*key_parts(layout), RecordPart("1", "number", ("int",))))
