"""Text files of numbers as an RDD."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
from pyspark import RDD, SparkContext

from gpu_worker.protocol.errors import PlanError, RecordError
from vispark._utils.boundary import brief
from vispark._utils.contexts import check_running
from vispark.data.records.rows import Rows
from vispark.data.records.text.parsing import DTYPES, Format, require
from vispark.data.records.text.splits import NO_ANSWER, TextSplit, opened, splits
from vispark.data.storage.locality import near_blocks

#: Bytes that are parsed at once: they and what comes of them stay in a core's cache.
_PIECE = 1 << 20

#: Bytes that are read at once to find a line's end.
_FEW = 1 << 14

_DECOMPRESSED: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}

_LF, _CR = b"\n\r"

ColumnNumbers = int | Sequence[int] | Mapping[str, int | Sequence[int]]


@brief
def read_text(sc: SparkContext, path: str | os.PathLike[str], dtype: str = "float32", *,
              columns: ColumnNumbers | None = None, delimiter: str | None = None, skip: int = 0,
              minPartitions: int | None = None, blocks: bool = False) -> RDD[Any]:
    """Read text files whose lines hold numbers, one record a line.

    It stands for ``sc.textFile(path).map(parse)``: a line ends at LF, CR or CRLF. The Python workers parse whole pieces
    of a file at once. The records are an ordinary RDD's; ``cache("GPU")`` takes the arrays without making single
    records of them.

    Parameters
    ----------
    sc : SparkContext
        Where the RDD belongs.
    path : str or path
        A file, a directory, a pattern, or several with commas between. Without a scheme, of each node's own file
        system; with one, what fsspec knows. Files that end in ``.gz``, ``.bz2`` or ``.xz`` are decompressed, and are a
        partition each.
    dtype : str or dtype
        Of all columns that are wanted: float32, float64, or an integer type.
    columns : int, sequence of int, or dict of str to these, optional
        Which columns, from 0, and in which order: several give 1-D arrays, one gives NumPy scalars, a dict gives dicts
        with these fields. Left out, all of them.
    delimiter : str, optional
        The character between numbers; with one, fields may be quoted. Left out, any spaces and tabs.
    skip : int
        Lines at the begin of each file that are no data.
    minPartitions : int, optional
        At least so many partitions where that is possible, as ``textFile`` has it.
    blocks : bool
        Whether a partition is a single record: an array with a row for each line, or a dict of them.

    Returns
    -------
    RDD
        Of a record for each line: a 1-D array of shape (columns,) and of ``dtype``, a NumPy scalar of it, or a dict of
        these. With ``blocks`` of one for each partition that has lines, of shape (lines, columns) or (lines,).

    Raises
    ------
    PlanError
        If there is no such file where the driver is, or an argument does not fit it.
    RecordError
        At an action, if a line has another number of columns or something that is no number; it names file, line (from
        1) and column (from 0).

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp(), "points.txt")
    >>> _ = path.write_text("1 0.5 0.25\\n-1 2.5 2e0\\n")
    >>> read_text(sc, path).collect()
    [array([1.  , 0.5 , 0.25], dtype=float32), array([-1. ,  2.5,  2. ], dtype=float32)]
    >>> points = read_text(sc, path, columns={"y": 0, "x": [1, 2]}).cache("GPU")
    >>> points.vmap(lambda y, x: y * x.sum()).collect()
    [np.float32(0.75), np.float32(-4.5)]
    """
    check_running(sc)
    require()
    kind = _kind(dtype)
    name, parts = os.fspath(path), sc.defaultMinPartitions if minPartitions is None else minPartitions
    if not isinstance(skip, int | np.integer) or skip < 0:
        raise PlanError(f"skip={skip!r}; it is how many lines at the begin of each file are no data, 0 or more")
    if not isinstance(parts, int | np.integer):
        raise PlanError(f"minPartitions={parts!r}; it is a whole number")
    if delimiter is not None and (len(delimiter) != 1 or delimiter in "\r\n\""):
        raise PlanError(f"delimiter= is one character, and not {delimiter!r}; leave it out for spaces and tabs")
    chosen = splits(name, parts)
    if not chosen:
        return sc.emptyRDD()
    detected = Format("" if delimiter in (None, " ") else delimiter or "", kind, 1, ())
    width = _width(dict.fromkeys(split.path for split in chosen), detected, skip)
    format = Format(detected.delimiter, detected.dtype, width, _fields(columns, width))
    return near_blocks(sc, chosen, [[split.range] for split in chosen]).mapPartitions(Reader(format, skip, blocks))


def _kind(dtype: Any) -> str:
    """Return the name of a dtype that text can be read as."""
    if isinstance(dtype, Mapping):
        raise PlanError(f"dtype={dtype!r}; it is one dtype, of all columns: one that holds them all, such as float64; "
                        "vmap can convert a field then")
    try:
        parsed = np.dtype(dtype)
    except (TypeError, ValueError) as error:
        raise PlanError(f"dtype={dtype!r} is no dtype; there are {', '.join(DTYPES)}") from error
    if parsed.name not in DTYPES:
        raise PlanError(f"text cannot be read as {parsed}; there are {', '.join(DTYPES)}")
    return str(parsed.name)


def _width(paths: Iterable[str], format: Format, skip: int) -> int:
    """Return the columns of the first line that has any."""
    for path in paths:
        with opened_text(path) as file:
            for _, data in lines(file, TextSplit(path, 0, sys.maxsize), skip):
                for line in data.split(b"\n"):
                    if line.strip():
                        return len(format.split(line.decode(errors="replace").strip("\r")))
    return 1


def _fields(columns: ColumnNumbers | None, width: int) -> tuple[tuple[str, tuple[int, ...] | int], ...]:
    if columns is None:
        columns = range(width)
    if isinstance(columns, Mapping):
        if not columns or not all(name and isinstance(name, str) for name in columns):
            raise PlanError("columns= as a dict has names of type str, and at least one")
        return tuple((name, _numbers(each, width)) for name, each in columns.items())
    return (("", _numbers(columns, width)),)


def _numbers(columns: int | Sequence[int], width: int) -> tuple[int, ...] | int:
    several = isinstance(columns, Iterable)
    listed: list[Any] = list(columns) if several else [columns]      # type: ignore[arg-type]
    if not all(isinstance(each, int | np.integer) for each in listed):
        instead = f"a slice is written as {range(width)[columns]}" \
            if isinstance(columns, slice) else "names are only for the fields of a dict, as in {\"x\": [0, 1]}"
        raise PlanError(f"columns= takes the number of a column, or several in a list, and not {columns!r}; {instead}")
    numbers = tuple(map(int, listed))
    if not numbers or not all(0 <= number < width for number in numbers):
        raise PlanError(f"columns= names columns from 0 to {width - 1}, which the first line has, and not {columns}")
    return numbers if several else numbers[0]


@dataclass(frozen=True)
class Reader:
    """The task that reads splits."""

    format: Format
    skip: int
    blocks: bool

    def __call__(self, splits: Iterable[TextSplit]) -> Iterable[Any]:
        pieces = (piece for split in splits for piece in self.pieces(split))
        if not self.blocks:
            return Rows(self._unnamed(piece) for piece in pieces)
        return self._concatenated(list(pieces))

    def _concatenated(self, pieces: list[dict[str, np.ndarray]]) -> Iterator[Any]:
        if pieces:
            yield self._unnamed({name: np.concatenate([piece[name] for piece in pieces]) for name in pieces[0]})

    def _unnamed(self, arrays: dict[str, np.ndarray]) -> Any:
        return arrays.get("", arrays)

    def pieces(self, split: TextSplit) -> Iterator[dict[str, np.ndarray]]:
        """Yield the arrays of a split, a piece of the file after the other.

        Raises
        ------
        RecordError
            If a line is bad.
        """
        with opened_text(split.path) as file:
            for start, data in lines(file, split, self.skip):
                try:
                    yield self.format.parsed(data)
                except ValueError as error:
                    number, fault = self.format.fault(data)
                    with opened_text(split.path) as again:
                        line = 1 + line_ends(again, start) + number
                    raise RecordError(f"{split.path}, line {line}: {fault}") from error


class TextFile:
    """File of text in which a CR that no LF follows, which ends a line too, reads as LF.

    Parameters
    ----------
    file : file
        Its bytes.
    path : str, optional
        What an error names it, where reading it fails.
    """

    def __init__(self, file: BinaryIO, path: str = ""):
        self._file, self._path = file, path

    def seek(self, position: int) -> None:
        self._file.seek(position)

    def read(self, count: int) -> bytes:
        """Read about ``count`` bytes, never ending between CR and LF; empty at the end of the file."""
        data = self._bytes(count)
        while data.endswith(b"\r") and (more := self._bytes(_FEW)):
            data += more
        if b"\r" not in data:
            return data
        text = np.frombuffer(data, np.uint8)
        lone = text == _CR
        lone[:-1] &= text[1:] != _LF
        return np.where(lone, np.uint8(_LF), text).tobytes() if lone.any() else data

    def _bytes(self, count: int) -> bytes:
        try:
            return self._file.read(count)
        except NO_ANSWER as error:
            if not self._path:
                raise
            raise PlanError(f"{self._path} cannot be read: {str(error).partition(chr(10))[0]}") from error


def lines(file: TextFile, split: TextSplit, skip: int = 0) -> Iterator[tuple[int, bytes]]:
    """Yield pieces of whole lines of a split, each with where it starts; ``skip`` lines of the file's begin are left
    out.
    """
    start, end = split.start, sys.maxsize if split.compressed else split.end
    if skip:
        start = max(start, _skip_lines(file, 0, skip)[0])
    # From the byte before: if that is a line end, the line behind it is the split's own.
    position, unfinished = _skip_lines(file, start - 1, 1) if start else (0, b"")
    while position < end:
        data = file.read(_PIECE)
        text = unfinished + data
        if position + len(text) >= end and (last := text.find(b"\n", end - 1 - position)) >= 0:
            yield position, text[:last + 1]
            return
        stop = text.rfind(b"\n") + 1 if data else len(text)
        if stop:
            yield position, text[:stop]
        if not data:
            return
        position, unfinished = position + stop, text[stop:]


def _skip_lines(file: TextFile, position: int, count: int) -> tuple[int, bytes]:
    """Return the start of the line that follows ``count`` line ends from a position on, and the bytes read from there
    on.
    """
    file.seek(position)
    text = b""
    while count:
        if b"\n" in text:
            behind = text.index(b"\n") + 1
            position, text, count = position + behind, text[behind:], count - 1
        else:
            position += len(text)
            text = file.read(_FEW)
            if not text:
                break
    return position, text


@contextmanager
def opened_text(path: str) -> Iterator[TextFile]:
    """Yield a file's bytes, decompressed."""
    with opened(path) as file:
        decompress = _DECOMPRESSED.get(os.path.splitext(path)[1])
        if decompress is None:
            yield TextFile(file, path)
            return
        try:
            with decompress(file, "rb") as text:
                yield TextFile(text)
        except (OSError, EOFError, lzma.LZMAError) as error:
            raise PlanError(f"{path} cannot be decompressed: {error}") from error


def line_ends(file: TextFile, end: int) -> int:
    """Return the line ends before a place in a file."""
    ends, position = 0, 0
    while position < end and (data := file.read(min(_PIECE, end - position))):
        ends, position = ends + data.count(b"\n"), position + len(data)
    return ends
