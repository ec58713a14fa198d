"""Parsing of lines of numbers to arrays, column by column."""

from __future__ import annotations

import csv
from bisect import bisect_left
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from gpu_worker.protocol.errors import PlanError
from gpu_worker.protocol.extras import install

try:
    import pyarrow
    from pyarrow import csv as arrow
except ImportError:
    pyarrow = arrow = None

_SPACE = ord(" ")

#: The dtypes that text can be read as.
DTYPES = ("float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")


@dataclass(frozen=True)
class Format:
    """Format of a text file's lines.

    Attributes
    ----------
    delimiter : str
        What stands between numbers; empty for any blanks.
    dtype : str
        One of :data:`DTYPES`.
    width : int
        The columns of every line.
    fields : tuple of (str, tuple of int or int)
        Name, empty for the whole record, and the columns of each array that is wanted: several for an array of two
        dimensions, a number for one of one.
    """

    delimiter: str
    dtype: str
    width: int
    fields: tuple[tuple[str, tuple[int, ...] | int], ...]

    @cached_property
    def wanted(self) -> list[int]:
        """The columns that any field takes."""
        return sorted({column for _, columns in self.fields
                       for column in (columns if isinstance(columns, tuple) else (columns,))})

    def parsed(self, data: bytes) -> dict[str, np.ndarray]:
        """Return the arrays of whole lines, by field; lines without anything in them are left out.

        Raises
        ------
        ValueError
            If a line has another number of columns, or something in it is no number of the dtype.
        """
        names = [str(column) for column in range(self.width)]
        chosen = [names[column] for column in self.wanted]
        if not self.delimiter:
            data = single_spaces(data) or b"\n"       # no bytes at all would be an error
        table = arrow.read_csv(
            pyarrow.BufferReader(data),
            # One piece and one thread: a task is one core's work.
            arrow.ReadOptions(use_threads=False, block_size=len(data) + 1, column_names=names),
            arrow.ParseOptions(delimiter=self.delimiter or " ", quote_char='"' if self.delimiter else False),
            arrow.ConvertOptions(null_values=[], include_columns=chosen,
                               column_types=dict.fromkeys(chosen, pyarrow.from_numpy_dtype(np.dtype(self.dtype)))))
        return {name: self._array(table, columns) for name, columns in self.fields}

    def _array(self, table: Any, columns: tuple[int, ...] | int) -> np.ndarray:
        if not isinstance(columns, tuple):
            return table.column(str(columns)).to_numpy().astype(self.dtype)     # a copy: Arrow's own is read-only
        array = np.empty((table.num_rows, len(columns)), self.dtype)
        for place, column in enumerate(columns):
            array[:, place] = table.column(str(column)).to_numpy()
        return array

    def split(self, line: str) -> list[str]:
        """Return the columns of a line, as :meth:`parsed` sees them."""
        return next(csv.reader([line], delimiter=self.delimiter), []) if self.delimiter else line.split()

    def fault(self, data: bytes) -> tuple[int, str]:
        """Return the number of the first bad line, from 0, and the fault."""
        lines = data.split(b"\n")
        # Up to a line, all is good or not.
        number = bisect_left(range(len(lines) - 1), True, key=lambda last: not self._good(lines[:last + 1]))
        return number, self._wrong(lines[number].decode(errors="replace").rstrip("\r"))

    def _good(self, lines: list[bytes]) -> bool:
        try:
            self.parsed(b"\n".join(lines) + b"\n")
        except ValueError:
            return False
        return True

    def _wrong(self, line: str) -> str:
        columns = self.split(line)
        if len(columns) != self.width:
            return f"has {len(columns)} columns, where the first line has {self.width}: {_shortened(line)}"
        single = Format("", self.dtype, 1, (("", 0),))
        for column in self.wanted:
            if not columns[column].strip() or not single._good([columns[column].encode()]):
                return f"column {column}: {_shortened(columns[column])} is no {self.dtype}"
        return f"is not read as {self.dtype}: {_shortened(line)}"


def require() -> None:
    """Raise PlanError where the library that parses is not installed."""
    if pyarrow is None:
        raise PlanError(f"reading text needs pyarrow: {install('text')}")


def single_spaces(data: bytes) -> bytes:
    """Return lines whose numbers have one space between them, and none around."""
    if b"\t" in data or b"\r" in data:
        data = data.translate(bytes.maketrans(b"\t\r", b"  "))
    text = np.frombuffer(data, np.uint8)
    between = text <= _SPACE
    # One look for two neighbours takes a seventh of what three searches for pairs of bytes do.
    if (between[1:] & between[:-1]).any() or data[:1] == b" ":
        surplus = text == _SPACE
        surplus[1:] &= between[:-1]
        data = text[~surplus].tobytes().replace(b" \n", b"\n")
    return data.removesuffix(b" ")


def _shortened(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")
