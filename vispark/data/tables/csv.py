"""CSV files of numbers as RDDs, by bytes: a line belongs to the split that its first byte is in."""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from pyspark import RDD, SparkContext

from gpu_worker.protocol.errors import PlanError, RecordError
from vispark._utils.boundary import brief
from vispark._utils.contexts import check_running, is_case_sensitive
from vispark.data.records.rows import Rows
from vispark.data.records.streamed_rows import StreamedRows
from vispark.data.records.text.reader import line_ends, lines, opened_text
from vispark.data.records.text.splits import TextSplit, splits
from vispark.data.storage.locality import near_blocks
from vispark.data.tables import files
from vispark.data.tables.arrow import pa, require
from vispark.data.tables.batches import BatchReader
from vispark.data.tables.selection import Columns, Selection, select
from vispark.data.tables.types import ColumnType, of_arrow

#: Files whose headers the driver compares; of more, tasks do alone.
FEW = files.FEW


@brief
def read_csv(sc: SparkContext, path: str | os.PathLike[str], columns: Columns | None = None, *, header: bool = True,
             delimiter: str = ",", filter: Any = None, dtype: Any = None, nulls: Any = "error",
             minPartitions: int | None = None, blocks: bool = False) -> RDD[Any]:
    """Read CSV files, one record a line, with names from their first lines.

    A column's type is what the numbers in the first megabyte of the first file say: integers, floats or booleans; with
    ``dtype`` it is that. An empty field is a null. Fields may be quoted, but no line ends in one.

    Parameters
    ----------
    sc, columns, filter, nulls, blocks
        As of :func:`read_parquet`.
    path : str or path
        As of :func:`read_text`, compressed files too.
    header : bool
        Whether the first line of each file has the names; else they are ``c0``, ``c1`` and so on.
    delimiter : str
        The character between fields.
    dtype
        As of :func:`from_dataframe`; fields are parsed as it.
    minPartitions : int, optional
        At least so many partitions, as of :func:`read_text`.

    Returns
    -------
    RDD
        As :func:`read_parquet`.

    Raises
    ------
    PlanError
        If pyarrow is missing, there is no such file, or an argument does not fit it.
    RecordError
        If a column holds no numbers, or a file has other names. At an action, if there is a
        null or something that is no number; it names file and line.

    See Also
    --------
    read_text

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp(), "points.csv")
    >>> _ = path.write_text("label,x,y\\n1,0.5,0.25\\n-1,2.5,2\\n")
    >>> read_csv(sc, path, {"y": "label", "x": ["x", "y"]}).cache("GPU").vmap(lambda y, x: y * x.sum()).collect()
    [np.float64(0.75), np.float64(-4.5)]
    """
    require("read_csv")
    if not isinstance(delimiter, str) or len(delimiter) != 1 or delimiter in "\r\n\"":
        raise PlanError(f"delimiter={delimiter!r}; it is one character, such as \",\" or a tab")
    check_running(sc)
    files.expression(filter)
    text_splits = splits(os.fspath(path), sc.defaultMinPartitions if minPartitions is None else minPartitions)
    if not text_splits:
        return sc.emptyRDD()
    paths = list(dict.fromkeys(split.path for split in text_splits))
    names, schema = _first(paths[0], header, delimiter)
    as_numbers = schema if dtype is None or isinstance(dtype, Mapping) else \
        [(name, kind if kind.kind == "number" else of_arrow(pa.float64())) for name, kind in schema]
    has_case = is_case_sensitive(sc)
    condition = files.expression(filter, () if has_case else names)
    selection = _parsed_as(select(as_numbers, columns, dtype, nulls, paths[0], is_case_sensitive=has_case),
                           dtype is not None)
    files.check_filter(schema, condition, paths[0])
    kinds = tuple((name, _kind(name, schema, selection)) for name in files.names_to_read(names, selection, condition))
    task = CsvTask(tuple(names), kinds, header, delimiter, selection, condition, blocks, paths[0])
    if as_numbers != schema:
        task.check_lines()
    if header and len(paths) <= FEW:
        for other in paths[1:]:
            task.check_header(other)
    return near_blocks(sc, text_splits, [[split.range] for split in text_splits]).mapPartitions(task)


def _first(path: str, header: bool, delimiter: str) -> tuple[list[str], list[tuple[str, ColumnType]]]:
    """Return the names of a file's columns, and their types as far as its first lines say."""
    names = _names(path, delimiter)
    if not header:
        names = [f"c{number}" for number in range(len(names))]
    with opened_text(path) as file:
        data = next((data for _, data in lines(file, TextSplit(path, 0, 1 << 62), int(header))), b"")
    twice = len(set(names)) < len(names)
    unique = [f"{number}" for number in range(len(names))]
    try:
        table = _table(data or b"\n", unique, delimiter, {}) if data.strip() else None
    except pa.ArrowException as error:
        raise PlanError(f"{path} cannot be read as CSV: {error}") from error
    kinds = [pa.null()] * len(names) if table is None else [field.type for field in table.schema]
    schema = [(name, of_arrow(pa.float64() if pa.types.is_null(kind) else kind))
              for name, kind in zip(names, kinds, strict=True)]
    return names if not twice else unique, schema


def _names(path: str, delimiter: str) -> list[str]:
    """Return the fields of a file's first line."""
    with opened_text(path) as file:
        data = next((data for _, data in lines(file, TextSplit(path, 0, 1 << 62))), b"")
    head = data.partition(b"\n")[0].rstrip(b"\r").removeprefix(b"\xef\xbb\xbf")
    if not head.strip():
        raise PlanError(f"{path} begins with an empty line; there should be the names of columns, or numbers")
    table = pa.csv.read_csv(pa.BufferReader(head + b"\n"), pa.csv.ReadOptions(use_threads=False),
                            pa.csv.ParseOptions(delimiter=delimiter))
    return list(table.schema.names)


def _parsed_as(selection: Selection, inferred: bool) -> Selection:
    """Return a selection whose columns are parsed as the dtype of their field, if one was given."""
    if not inferred:
        return selection
    dtypes = {number: field.dtype for field in selection.fields for number in field.columns}
    return replace(selection, columns=tuple(
        replace(spec, type=ColumnType("number", dtypes[number], dtypes[number]))
        for number, spec in enumerate(selection.columns)))


def _kind(name: str, schema: Sequence[tuple[str, ColumnType]], selection: Selection) -> str:
    """Return the dtype that a column is parsed as; empty where Arrow is to find out."""
    chosen = next((spec.type for spec in selection.columns if spec.path[0] == name), None)
    return (chosen or dict(schema)[name]).dtype


def _table(data: bytes, names: Sequence[str], delimiter: str, kinds: dict[str, str]) -> Any:
    """Return the table of whole lines; of the columns of ``kinds``, unless there are none."""
    return pa.csv.read_csv(
        pa.BufferReader(data),
        pa.csv.ReadOptions(use_threads=False, block_size=len(data) + 1, column_names=list(names)),
        pa.csv.ParseOptions(delimiter=delimiter),
        pa.csv.ConvertOptions(null_values=[""], include_columns=list(kinds),
                              column_types={name: pa.from_numpy_dtype(np.dtype(kind))
                                            for name, kind in kinds.items() if kind}))


@dataclass(frozen=True)
class CsvTask:
    """Task that reads splits of CSV files.

    Attributes
    ----------
    names : tuple of str
        Of all columns.
    kinds : tuple of (str, str)
        The columns that are parsed, each with its dtype.
    first : str
        The file that the names are from.
    """

    names: tuple[str, ...]
    kinds: tuple[tuple[str, str], ...]
    header: bool
    delimiter: str
    selection: Selection
    filter: Any
    blocks: bool
    first: str

    def __call__(self, splits: Iterable[TextSplit]) -> Iterable[Any]:
        held = list(splits)
        arrays = self._arrays(held)
        if self.blocks:
            return files.one_record(list(arrays))
        # Nothing says how much a compressed file holds: it is read anew for fields, while these are sent.
        if not any(split.compressed for split in held):
            return Rows(arrays)

        def read(selection: Selection, *, reuses: bool) -> Iterator[Any]:
            return self._reading(selection)._arrays(held, reuses=reuses)

        return StreamedRows(arrays, partial(self._count, held), files.streamed(self.selection, files.READINGS, read))

    def _reading(self, selection: Selection) -> CsvTask:
        """Return the task that reads some of the fields."""
        needed = files.names_to_read(self.names, selection, self.filter)
        return replace(self, selection=selection, kinds=tuple([each for each in self.kinds if each[0] in needed]))

    def _count(self, splits: Sequence[TextSplit]) -> int:
        """Return the number of lines that the filter keeps, without making numbers of others than it asks."""
        if self.filter is None:
            counting = replace(self, kinds=((self.names[0], "S"),))
            try:
                return sum(table.num_rows for split in splits for table in counting._tables(split))
            except RecordError:     # which is about all columns
                return sum(table.num_rows for split in splits for table in self._tables(split))
        counting = self._reading(self.selection.alone(self.selection.fields[0]))
        return sum(kept.num_rows for split in splits for table in counting._tables(split)
                   for batch in table.to_batches()
                   for kept in files.chosen("", batch, counting.selection, self.filter))

    def check_lines(self) -> None:
        """Check that the first lines of the first file are of the dtypes that are wanted.

        Raises
        ------
        RecordError
            If one is not; it names file and line.
        """
        next(self._tables(TextSplit(self.first, 0, 1 << 62)), None)

    def check_header(self, path: str) -> None:
        """Check that a file's first line has the names of the first file.

        Raises
        ------
        RecordError
            If it has others; it names file and column.
        """
        names = _names(path, self.delimiter)
        for number, (name, expected) in enumerate(zip(names, self.names, strict=False)):
            if name != expected:
                raise RecordError(f"column {number} of {path} is {name!r}, and {expected!r} in {self.first}; read "
                                  "files of one schema at a time")
        if len(names) != len(self.names):
            raise RecordError(f"{path} has {len(names)} columns, and {self.first} has {len(self.names)}; read files of "
                              "one schema at a time")

    def _arrays(self, splits: Sequence[TextSplit], *, reuses: bool = False) -> Iterator[Any]:
        for split in splits:
            reader = BatchReader(self.selection, f"the lines from byte {split.start} on of {split.path}", reuses=reuses)
            for table in self._tables(split):
                for batch in table.combine_chunks().to_batches():
                    for kept in files.chosen("", batch, self.selection, self.filter):
                        yield from reader.arrays(kept)

    def _tables(self, split: TextSplit) -> Iterator[Any]:
        """Yield the tables of a split's lines, some of them at a time."""
        if self.header and split.start == 0 and split.path != self.first:
            self.check_header(split.path)
        with opened_text(split.path) as file:
            for start, data in lines(file, split, int(self.header)):
                if not data.strip():
                    continue
                try:
                    yield _table(data, self.names, self.delimiter, dict(self.kinds))
                except pa.ArrowException as error:
                    raise self._fault(split.path, start, data, error) from error

    def _fault(self, path: str, start: int, data: bytes, error: Exception) -> RecordError:
        """Return the error for the first line that cannot be parsed."""
        lines = data.split(b"\n")
        # Up to a line, all is good or not.
        number = bisect_left(range(len(lines) - 1), True, key=lambda last: not self._is_good(lines[:last + 1]))
        with opened_text(path) as again:
            line = 1 + line_ends(again, start) + number
        line_text = lines[number].decode(errors="replace").rstrip("\r")
        return RecordError(f"{path}, line {line}: {line_text[:80]!r} is not read as "
                           f"{', '.join(f'{name} {kind}' for name, kind in self.kinds)}; types are those of dtype=, "
                           f"or else of the first lines: \"float64\" holds all numbers ({error})")

    def _is_good(self, lines: list[bytes]) -> bool:
        try:
            _table(b"\n".join(lines) + b"\n", self.names, self.delimiter, dict(self.kinds))
        except pa.ArrowException as error:
            return "Empty CSV" in str(error)
        return True
