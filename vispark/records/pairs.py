"""Pairs and numbers whose keys workers have in arrays, as exchanges by key need them."""

from __future__ import annotations

from dataclasses import replace

from vispark.records.layout import RecordLayout, RecordPart

#: Kinds and sizes of keys that devices order and hash as Python does.
KEY_DTYPES = frozenset(["b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8"])

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
    parts = [replace(part, name=f"1.{part.name}" if part.name else "1") for part in layout.parts]
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
    key = layout.parts[0]
    if key.name != "0" or layout.kind != "elements":
        return "the key of a pair is not one number"
    return not_key(key)


def not_key(part: RecordPart) -> str:
    """Return the reason why an array of a layout is not of keys; "" if it is."""
    code = f"{part.dtype.kind}{part.dtype.itemsize}"
    if part.form != "number" or code not in KEY_DTYPES:
        return (f"keys on the device are integers of 8 to 64 bits, float32 or float64, and not {part.dtype} "
                f"({part.form})")
    return ""


def not_numbers(layout: RecordLayout) -> str:
    """Return the reason why records are not numbers that are their own keys; "" if they are."""
    if layout.keyed or layout.only or layout.kind != "elements" or len(layout.parts) != 1 or layout.parts[0].name:
        return "the records are not single numbers"
    return not_key(layout.parts[0])


def with_counts(layout: RecordLayout) -> RecordLayout:
    """Return the layout of pairs of the keys and how many records have them."""
    return replace(layout, parts=(layout.parts[0], RecordPart("1", "number", ("int",))))
