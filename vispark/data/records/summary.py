"""Summaries of partitions' records, for people: ``1,000 records of float32[3]``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from vispark.data.records.layout import BY_NAME, RAGGED, RecordPart
from vispark.data.records.partition_schema import PartitionSchema


def summary(contents: Iterable[PartitionSchema]) -> str:
    """Return a text with the number of records in partitions, and the dtype and shape of each.

    Examples
    --------
    >>> from gpu_worker.protocol.messages import Field, Signature
    >>> from vispark.data.records.layout import RecordLayout, RecordPart
    >>> rows = RecordLayout("elements", False, (RecordPart("", "array", ("<f4",)),))
    >>> summary([PartitionSchema(5, 0, rows, (Signature((Field("", "<f4", (5, 3)),)),))] * 2)
    '10 records of float32[3]'
    """
    contents = list(contents)
    count = sum(content.count for content in contents)
    kinds = list(dict.fromkeys(kind for content in contents if content.count for kind in _kinds(content)))
    noun = "record" if count == 1 else "records"
    return f"{count:,} {noun}" + (f" of {_merged(kinds)}" if kinds else "")


def size(nbytes: int) -> str:
    """Return a number of bytes as people write it.

    Examples
    --------
    >>> size(8000), size(3 * 2**30)
    ('7.81 KiB', '3 GiB')
    """
    number, unit = float(nbytes), "bytes"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if number < 1024:
            break
        number, unit = number / 1024, larger
    return f"{number:.3g} {unit}" if number < 1000 else f"{number:.0f} {unit}"


def _kinds(content: PartitionSchema) -> list[str]:
    """Return the kinds of the records of a partition, each as its key and its parts' dtypes and shapes."""
    layout = content.layout
    if layout.only == "keys":
        return ["keys"]
    first = int(layout.kind == "elements")
    texts = []
    for signature in content.signatures:
        shapes = {field.name: field.shape[first:] for field in signature.fields}
        parts = [(part.name, _part(part, shapes.get(part.name, ()))) for part in layout.parts]
        text = ", ".join(f"{name}: {kind}" if layout.named else kind for name, kind in parts)
        if layout.named:
            text = f"{{{text}}}"
        elif layout.tupled:
            text = f"({text})"
        texts.append(f"(key, {text})" if layout.keyed else text)
    return texts


def _part(part: RecordPart, shape: Sequence[int]) -> str:
    """Return a part's dtype and shape; Python's numbers by their type."""
    kind = part.types[0] if len(part.types) == 1 and part.types[0] in BY_NAME else part.dtype.name
    if part.form == "tuple" and shape:
        return f"({', '.join(part.types if len(part.types) > 1 else [kind] * shape[-1])})" if shape[-1] <= 8 else \
            f"tuples of {shape[-1]} {kind}"
    if part.form in RAGGED:
        return f"{kind}[...]" if part.form == "ragged" else f"sparse {kind}"
    return kind + (f"[{', '.join(map(str, shape))}]" if shape else "")


def _merged(kinds: Sequence[str]) -> str:
    """Return a text for kinds of records: the kinds if there are few, else the first one and the number of others."""
    return " or ".join(kinds) if len(kinds) <= 2 else f"{kinds[0]} and {len(kinds) - 1} other kinds"
