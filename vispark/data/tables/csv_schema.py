"""Columns of CSV files: their names, and their types as the first lines tell them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpu_worker.protocol.errors import PlanError, RecordError
from vispark.data.records.text.reader import line_ends, lines, opened_text
from vispark.data.records.text.splits import TextSplit
from vispark.data.tables import files
from vispark.data.tables.arrow import pa
from vispark.data.tables.selection import Selection
from vispark.data.tables.types import ColumnType, of_arrow

#: Files whose first lines the driver reads; of more, tasks do alone.
FEW = files.FEW

#: Dtype, which no field can be, of a column of integers beyond int64: the one that is asked for takes its place.
BEYOND = "object"

#: Whole numbers from which on float64 rounds.
_EXACT = 1 << 53

_INTEGER = re.compile(rb"\s*[+-]?[0-9]+\s*")

#: The texts of booleans: digits are numbers.
_TRUE, _FALSE = ["true", "True", "TRUE"], ["false", "False", "FALSE"]


@dataclass(frozen=True)
class LargeIntegers(ColumnType):
    """Type of a column of integers some of which int64 does not hold.

    Attributes
    ----------
    advised : str
        The dtype to ask for: uint64 where it holds all, else float64, which rounds them.
    """

    advised: str = "float64"


@dataclass(frozen=True)
class FileLines:
    """Whole lines of a file, and where they start in it."""

    path: str
    start: int
    data: bytes

    def count_rows(self) -> int:
        """Return the number of lines that are not empty, which are the rows."""
        if not self.data.strip():
            return 0
        if self.data.startswith((b"\n", b"\r\n")) or b"\n\n" in self.data or b"\n\r\n" in self.data:
            return sum(1 for line in self.data.split(b"\n") if line.rstrip(b"\r"))
        return self.data.count(b"\n") + (not self.data.endswith(b"\n"))

    def number(self, index: int) -> int:
        """Return the number in the file, from 1, of one of these lines."""
        with opened_text(self.path) as file:
            return 1 + line_ends(file, self.start) + index

    def number_of_row(self, row: int) -> int:
        """Return the number of the line that a row is from; empty lines are no rows."""
        return self.number([index for index, line in enumerate(self.data.split(b"\n")) if line.rstrip(b"\r")][row])


def parsed(data: bytes, names: Sequence[str], delimiter: str, kinds: Mapping[str, str]) -> Any:
    """Return the table of whole lines; of the columns of ``kinds``, unless there are none."""
    return pa.csv.read_csv(
        pa.BufferReader(data),
        pa.csv.ReadOptions(use_threads=False, block_size=len(data) + 1, column_names=list(names)),
        pa.csv.ParseOptions(delimiter=delimiter),
        pa.csv.ConvertOptions(null_values=[""], true_values=_TRUE, false_values=_FALSE, include_columns=list(kinds),
                              column_types={name: pa.from_numpy_dtype(np.dtype(kind))
                                            for name, kind in kinds.items() if kind}))


def header_names(path: str, delimiter: str) -> list[str]:
    """Return the fields of a file's first line.

    Raises
    ------
    PlanError
        If it is empty.
    """
    with opened_text(path) as file:
        data = next((data for _, data in lines(file, TextSplit(path, 0, 1 << 62))), b"")
    head = data.partition(b"\n")[0].rstrip(b"\r").removeprefix(b"\xef\xbb\xbf")
    if not head.strip():
        raise PlanError(f"{path} begins with an empty line; there should be the names of columns, or numbers")
    table = pa.csv.read_csv(pa.BufferReader(head + b"\n"), pa.csv.ReadOptions(use_threads=False),
                            pa.csv.ParseOptions(delimiter=delimiter))
    return list(table.schema.names)


def schema_of(paths: Sequence[str], header: bool,
              delimiter: str) -> tuple[list[str], list[tuple[str, ColumnType]], list[str]]:
    """Return the names of the columns, their types as far as the first lines tell, and those that are empty there.

    Raises
    ------
    PlanError
        If the first file begins with an empty line, or lines cannot be read.
    """
    names = header_names(paths[0], delimiter)
    if not header:
        names = [f"c{number}" for number in range(len(names))]
    first = next(filter(None, (_first_lines(path, int(header)) for path in paths[:FEW])), None)
    # Two columns may be called alike.
    unique = [f"{number}" for number in range(len(names))]
    kinds = [(pa.null(), None)] * len(names) if first is None else _inferred(first, unique, delimiter)
    schema = [(name, beyond or of_arrow(pa.float64() if pa.types.is_null(kind) else kind))
              for name, (kind, beyond) in zip(names, kinds, strict=True)]
    empty = [name for name, (kind, _) in zip(names, kinds, strict=True) if pa.types.is_null(kind)]
    return names if len(set(names)) == len(names) else unique, schema, empty


def _first_lines(path: str, skip: int) -> FileLines | None:
    """Return the first lines of a file that are not all empty, behind those that are left out."""
    with opened_text(path) as file:
        for start, data in lines(file, TextSplit(path, 0, 1 << 62), skip):
            if data.strip():
                return FileLines(path, start, data)
    return None


def _inferred(first: FileLines, names: Sequence[str], delimiter: str) -> list[tuple[Any, ColumnType | None]]:
    """Return the Arrow type of each column; of integers beyond int64, which Arrow takes for floats, their own, too."""
    try:
        table = parsed(first.data, names, delimiter, {})
    except pa.ArrowException as error:
        raise PlanError(f"{first.path} cannot be read as CSV: {error}") from error
    kinds: list[tuple[Any, ColumnType | None]] = []
    for name, column in zip(names, table.columns, strict=True):
        texts = _texts_if_large(first, column, names, name, delimiter, 1 << 63)
        are_integers = texts and all(_INTEGER.fullmatch(text) for text in texts if text)
        kinds.append((column.type, _beyond_int64(texts, first) if are_integers else None))
    return kinds


def _texts_if_large(lines: FileLines, column: Any, names: Sequence[str], name: str, delimiter: str,
                    least: int) -> list[bytes]:
    """Return the texts of a column of floats one of which is at least so large; none where there is no such."""
    if not pa.types.is_float64(column.type) or (pa.compute.max(pa.compute.abs(column)).as_py() or 0) < least:
        return []
    return [text or b"" for text in parsed(lines.data, names, delimiter, {name: "S"}).column(0).to_pylist()]


def _beyond_int64(texts: Sequence[bytes], lines: FileLines) -> LargeIntegers:
    """Return the type of a column of integers some of which int64 does not hold; its text has the first of them."""
    numbers = [int(text or b"0") for text in texts]
    row = next(row for row, number in enumerate(numbers) if not -1 << 63 <= number < 1 << 63)
    is_unsigned = min(numbers) >= 0 and max(numbers) < 1 << 64
    fit = '"uint64" holds them, and "float64" rounds them' if is_unsigned else '"float64" rounds them'
    return LargeIntegers("number", BEYOND, f"integers beyond int64: {numbers[row]} in line "
                         f"{lines.number_of_row(row)} of {lines.path}; {fit}",
                         advised="uint64" if is_unsigned else "float64")


def check_integers(selection: Selection, path: str) -> None:
    """Check that a dtype was asked for where integers are beyond int64.

    Raises
    ------
    RecordError
        If none was; it names file, column, line and number.
    """
    for field in selection.fields:
        if field.dtype == BEYOND:
            kinds = [selection.columns[number].type for number in field.columns]
            spec = next(spec for spec in map(selection.columns.__getitem__, field.columns) if spec.type.dtype == BEYOND)
            # Others beside it may have numbers that uint64 does not hold.
            advised = "uint64" if all(isinstance(kind, LargeIntegers) and kind.advised == "uint64" for kind in kinds) \
                else "float64"
            dtype = f'{{{field.name!r}: "{advised}"}}' if field.name else f'"{advised}"'
            raise RecordError(f"column {spec.name!r} of {path} has {spec.type.text}: say so by dtype={dtype}, or "
                              "leave it out of columns=")


def check_rounded(name: str, column: Any, lines: FileLines, names: Sequence[str], delimiter: str, first: str) -> None:
    """Check that a column that nobody asked to be of floats has no integer that float64 rounds.

    Raises
    ------
    RecordError
        If it has; it names file, column, line and number.
    """
    for row, text in enumerate(_texts_if_large(lines, column, names, name, delimiter, _EXACT)):
        if _INTEGER.fullmatch(text) and int(float(text)) != int(text):
            raise RecordError(f"column {name!r} has {int(text)} in line {lines.number_of_row(row)} of {lines.path}, "
                              f"which float64 rounds; it is empty in the first lines of {first}, which tell the types: "
                              "give its dtype=")
