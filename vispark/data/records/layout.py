"""Layouts of records: how they are rebuilt from a block's arrays."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from gpu_worker.protocol import codec
from gpu_worker.protocol.errors import PlanError, ProtocolError
from gpu_worker.protocol.messages import Field
from vispark.data.grid.spec import GridSpec

KINDS = ("elements", "blocks", "grid")
FORMS = ("number", "array", "tuple", "ragged", "sparse")
#: Forms of rows whose lengths differ, whose items lie one behind the other.
RAGGED = ("ragged", "sparse")
#: What the names of the arrays end with that say where the items of such a row lie, and what a sparse vector's places
#: are.
STARTS, PLACES = "#", "@"

#: Python's numbers, and what holds them.
PYTHON = {bool: np.dtype(np.bool_), int: np.dtype(np.int64), float: np.dtype(np.float64),
          complex: np.dtype(np.complex128)}
#: The same by name, as a :class:`Part` has them.
BY_NAME = {number.__name__: number for number in PYTHON}
_BY_DTYPE = {dtype: number.__name__ for number, dtype in PYTHON.items()}

#: NumPy's built-in numeric types, by ``dtype.char``.
NUMERIC = frozenset("?bhilqBHILQefdgFDG")


@functools.lru_cache(maxsize=256)
def held_as(name: str) -> np.dtype:
    """Return the dtype, in native byte order, of values that come back as the type called ``name`` in a
    :class:`RecordPart`.
    """
    return PYTHON[BY_NAME[name]] if name in BY_NAME else np.dtype(name).newbyteorder("=")


@dataclass(frozen=True, slots=True)
class RecordPart:
    """Layout of a record, or of one of its fields, in one array.

    Parameters
    ----------
    name : str
        The field's name in a dict; empty where the array is the whole record.
    form : str
        ``"number"``, ``"array"``, or ``"tuple"``, whose numbers lie along the array's second axis; ``"ragged"``, rows
        of several lengths, or ``"sparse"``, sparse vectors, as :mod:`vispark.data.records.ragged` has them.
    types : tuple of str
        What comes back: ``"int"``, ``"float"``, ``"bool"`` or ``"complex"`` for Python's numbers, else a NumPy dtype
        with its byte order. One for all positions of a tuple, or one for each.
    """

    name: str
    form: str
    types: tuple[str, ...]

    @property
    def dtype(self) -> np.dtype:
        """What the array's elements are, in native byte order."""
        return np.result_type(*map(held_as, self.types)) if len(self.types) > 1 else held_as(self.types[0])

    def computed(self) -> RecordPart:
        """Return the part once a kernel has written its values: they need not fit the single types of a tuple any more.
        """
        if len(self.types) == 1:
            return self
        dtype = self.dtype
        return replace(self, types=(_BY_DTYPE[dtype] if all(name in BY_NAME for name in self.types) else dtype.str,))


@dataclass(frozen=True, slots=True)
class RecordLayout:
    """Layout of a partition's records in arrays; equal for all partitions of similar records, whatever their number.

    Parameters
    ----------
    kind : str
        ``"elements"``: one block, whose arrays have the records along their first axis. ``"blocks"``: a block for each
        record. ``"grid"``: the same, and they are a grid's blocks.
    keyed : bool
        Whether records are (key, value) pairs, of which the blocks hold the values.
    parts : tuple of RecordPart
        One without a name, or a dict's fields in their order. None for an empty partition.
    tupled : bool
        Whether the values are tuples that ``vmap`` made, or that hold rows: parts are named after their places, such
        as ``"1.0"``.
    only : str
        ``"keys"``: of pairs only the keys are left, and no blocks. ``"0"`` or ``"1"``: of records that are no pairs,
        only this item is wanted. Else empty.
    grid : GridSpec or None
        The grid that the blocks are of.
    key : str
        Of pairs that were sent the type of their keys, as a :class:`RecordPart` has it, where these are numbers of one
        type; else empty.
    folded : bool
        Whether the blocks are what a fold inside of each left: then a function is of the whole of them.
    sent : bool
        Whether the values are tuples that were sent as they are, with rows in them.
    """

    kind: str
    keyed: bool
    parts: tuple[RecordPart, ...]
    tupled: bool = False
    only: str = ""
    grid: GridSpec | None = None
    key: str = ""
    folded: bool = False
    sent: bool = False

    @property
    def ragged(self) -> bool:
        """Whether there are rows of several lengths among the parts."""
        return any(part.form in RAGGED for part in self.parts)

    @property
    def named(self) -> bool:
        """Whether the values are dicts."""
        return bool(self.parts) and bool(self.parts[0].name) and not self.tupled

    def encode(self) -> bytes:
        """Return the layout as msgpack."""
        return codec.encode(self, RecordLayout)

    @classmethod
    def decode(cls, data: bytes) -> RecordLayout:
        """Return the layout that :meth:`encode` wrote.

        Raises
        ------
        ProtocolError
            If ``data`` is no layout.
        """
        layout: RecordLayout = codec.decode(data, RecordLayout)
        names = [part.name for part in layout.parts]
        is_valid = layout.kind in KINDS and layout.only in ("", "keys", "0", "1")
        is_valid = is_valid and (layout.grid is None) == (layout.kind != "grid")
        if not is_valid or len(set(names)) != len(names) or ("" in names and len(names) > 1):
            raise ProtocolError(f"a layout is not of this version: kind {layout.kind!r}, fields {names}")
        for part in layout.parts:
            if part.form not in FORMS or not part.types or not all(map(_is_type, part.types)):
                raise ProtocolError(f"a layout is not of this version: {part}")
        return layout

    def after(self, outputs: tuple[Field, ...], *, merge: bool, as_input: bool) -> RecordLayout:
        """Return the layout of what an ``exec`` makes of records of this layout. The kind stays.

        Parameters
        ----------
        outputs : tuple of Field
            What the kernel writes for one block; for elements with the number of records as first extent.
        merge : bool
            Whether the other fields of a dict are kept.
        as_input : bool
            Whether the outputs were left to be as the input: then records keep their form. The types of a tuple of
            several become the one that holds them all. Otherwise NumPy scalars and arrays come back.

        Raises
        ------
        PlanError
            If an output without a name stands beside others.
        """
        if as_input:
            return replace(self, parts=tuple(part.computed() for part in self.parts))
        written = {field.name: self._output(field) for field in outputs}
        if "" in written and len(outputs) > 1:
            raise PlanError("an output without a name must be the only one; name each of the fields "
                            + ", ".join(sorted(filter(None, written))))
        if merge and self.named and "" not in written:
            written = {part.name: part for part in self.parts} | written
        return replace(self, parts=tuple(written.values()))

    def mapped(self, outputs: tuple[tuple[str, str, bool, str], ...], *, tupled: bool, merge: bool,
               pair: bool, whole: bool = False) -> RecordLayout:
        """Return the layout of what a ``vmap`` makes of records of this layout. The kind stays.

        Parameters
        ----------
        outputs : tuple of (name, dtype, whether it is an array, Python's type)
            What the function gives for one element; the type is empty where it is NumPy's.
        tupled : bool
            Whether it gives a tuple; ``pair``: of two, which is a pair with a key of its own.
        merge : bool
            Whether it gives a dict, beside which the other fields are kept.
        whole : bool
            Whether it is of each block as a whole.
        """
        python = bool(self.parts) and all(name in BY_NAME for part in self.parts for name in part.types)
        stacked = self.kind != "elements" and not whole
        written = {name: self._mapped(name, np.dtype(dtype), is_array or stacked, number, python)
                   for name, dtype, is_array, number in outputs}
        if merge and self.named:
            written = {part.name: part for part in self.parts} | written
        return replace(self, keyed=self.keyed and not pair, parts=tuple(written.values()), tupled=tupled, only="",
                       key=self.key if self.keyed and not pair else "", sent=False)

    def _mapped(self, name: str, dtype: np.dtype, is_array: bool, number: str, python: bool) -> RecordPart:
        if is_array:
            return RecordPart(name, "array", (dtype.str,))
        return RecordPart(name, "number", (number or (_BY_DTYPE.get(dtype, dtype.str) if python else dtype.str),))

    def _output(self, field: Field) -> RecordPart:
        ndim = len(field.shape) - (self.kind == "elements")
        return RecordPart(field.name, "array" if ndim > 0 else "number", (np.dtype(field.dtype).str,))

    def values(self) -> RecordLayout:
        """Return the layout of the pairs' values alone; a grid's blocks are plain ones without their keys."""
        return replace(self.as_blocks(), keyed=False, key="")

    def as_blocks(self) -> RecordLayout:
        """Return the layout with a grid's blocks as plain blocks; other layouts as they are."""
        return replace(self, kind="blocks", grid=None) if self.kind == "grid" else self

    def has_item(self, item: str) -> bool:
        """Return whether the values are tuples with an item of this number."""
        return self.tupled and any(item_of(part.name) == item for part in self.parts)

    @property
    def wanted(self) -> str:
        """The item of kept tuples, ``"0"`` or ``"1"``, that alone is wanted; empty where there is none."""
        return self.only if self.has_item(self.only) else ""

    def item(self, item: str) -> RecordLayout:
        """Return the layout of one item of the tuples alone."""
        parts = tuple([replace(part, name=name_in(item, part.name)) for part in self.parts
                       if item_of(part.name) == item])
        tupled = bool(parts[0].name)
        return replace(self, parts=parts, tupled=tupled, sent=self.sent and tupled)


def item_of(name: str) -> str:
    """Return the number of the item of a tuple that an array is of: ``"1"`` of ``"1.0"``, and of ``"1#"``."""
    return name.split(".")[0].rstrip(STARTS + PLACES)


def name_in(item: str, name: str) -> str:
    """Return the name of a place of nested tuples relative to one item: ``"1.0"`` is ``"0"`` in the item ``"1"``."""
    return name.removeprefix(item).removeprefix(".")


def fields_in(item: str, fields: Iterable[Field]) -> tuple[Field, ...]:
    """Return the fields of one item of tuples, named as if the item were alone."""
    return tuple([replace(each, name=name_in(item, each.name)) for each in fields if item_of(each.name) == item])


def full_name(item: str, name: str) -> str:
    """Return the name of an array of one item among those of the tuples, which :func:`name_in` makes relative; with no
    item it stays.
    """
    return f"{item}.{name}" if item and name and not name.startswith((STARTS, PLACES)) else item + name


def _is_type(name: str) -> bool:
    if name in BY_NAME:
        return True
    try:
        return np.dtype(name).char in NUMERIC
    except (TypeError, ValueError, SyntaxError):
        return False
