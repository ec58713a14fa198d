"""CSV files of numbers as RDDs, by bytes: a line belongs to the split that its first byte is in."""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from pyspark import RDD, SparkContext

from gpu_worker.protocol.errors import PlanError, RecordError
from vispark._utils.boundary import brief
from vispark._utils.contexts import check_running, is_case_sensitive
from vispark.data.records.rows import Rows
from vispark.data.records.streamed_rows import StreamedRows
from vispark.data.records.text.reader import lines, opened_text
from vispark.data.records.text.splits import TextSplit, splits
from vispark.data.storage.locality import near_blocks
from vispark.data.tables import files
from vispark.data.tables.arrow import pa, require
from vispark.data.tables.batches import BatchReader
from vispark.data.tables.columns_read import with_columns
from vispark.data.tables.csv_schema import (
    BEYOND,
    FEW,
    FileLines,
    check_integers,
    check_rounded,
    header_names,
    parsed,
    schema_of,
)
from vispark.data.tables.selection import Columns, Selection, select
from vispark.data.tables.types import ColumnType, of_arrow

#: Bytes of text up to which a partition is read once, and held; of more, at most so often as it has such.
READ_ONCE = 8 << 20


@brief
def read_csv(sc: SparkContext, path: str | os.PathLike[str], columns: Columns | None = None, *, header: bool = True,
             delimiter: str = ",", filter: Any = None, dtype: Any = None, nulls: Any = "error",
             minPartitions: int | None = None, blocks: bool = False) -> RDD[Any]:
    """Read CSV files, one record a line, with names from their first lines.

    A column's type is what the first megabyte of lines says, of the first file that has any: integers, floats or
    booleans; with ``dtype`` it is that. A column that is empty there is of floats. An empty field is a null. Fields may
    be quoted, but no line ends in one.

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
        If a column holds no numbers, or integers beyond int64 and no dtype was asked for, or a file has other names.
        At an action, if there is a null or something that is not of the column's type; it names file and line.

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
    names, schema, empty = schema_of(paths, header, delimiter)
    as_numbers = schema if dtype is None or isinstance(dtype, Mapping) else \
        [(name, kind if kind.kind == "number" else of_arrow(pa.float64())) for name, kind in schema]
    has_case = is_case_sensitive(sc)
    selection = _parsed_as(select(as_numbers, columns, dtype, nulls, paths[0], is_case_sensitive=has_case),
                           dtype is not None)
    check_integers(selection, paths[0])
    chosen = {spec.path[0]: spec.type for spec in selection.columns}
    read_as = [(name, chosen.get(name, kind)) for name, kind in schema]
    condition = files.expression(filter, () if has_case else names,
                                 [name for name, kind in read_as if kind.dtype == "uint64"])
    needed = files.names_to_read(names, selection, condition)
    for name, kind in read_as:
        if name in needed and kind.dtype == BEYOND:
            raise RecordError(f"column {name!r} of {paths[0]}, which filter= names, has {kind.text}; take it as one of "
                              "columns=, with a dtype that holds it")
    files.check_filter([(name, kind) for name, kind in read_as if kind.dtype != BEYOND], condition, paths[0])
    kinds = tuple((name, dict(read_as)[name].dtype) for name in needed)
    guessed = tuple(selection.columns[number].path[0] for field in selection.fields for number in field.columns
                    if dtype is None or (isinstance(dtype, Mapping) and field.name not in dtype))
    task = CsvTask(tuple(names), kinds, header, delimiter, selection, condition, blocks, paths[0],
                   tuple(name for name in guessed if name in empty), has_case)
    if as_numbers != schema:
        task.check_lines()
    if header and len(paths) <= FEW:
        for other in paths[1:]:
            task.check_header(other)
    rdd = near_blocks(sc, text_splits, [[split.range] for split in text_splits]).mapPartitions(task)
    return rdd if blocks else with_columns(rdd, selection)


def _parsed_as(selection: Selection, inferred: bool) -> Selection:
    """Return a selection whose columns are parsed as the dtype of their field, if one was given."""
    if not inferred:
        return selection
    dtypes = {number: field.dtype for field in selection.fields for number in field.columns}
    return replace(selection, columns=tuple(
        replace(spec, type=ColumnType("number", dtypes[number], dtypes[number]))
        for number, spec in enumerate(selection.columns)))


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
    guessed : tuple of str
        Columns that nobody asked to be floats, and that were empty where types were looked for.
    has_case : bool
        Whether names of columns that differ in case alone are others.
    """

    names: tuple[str, ...]
    kinds: tuple[tuple[str, str], ...]
    header: bool
    delimiter: str
    selection: Selection
    filter: Any
    blocks: bool
    first: str
    guessed: tuple[str, ...] = ()
    has_case: bool = True

    def __call__(self, splits: Iterable[TextSplit]) -> Iterable[Any]:
        held = list(splits)
        arrays = self._arrays(held)
        if self.blocks:
            return files.one_record(list(arrays))
        is_compressed = any(split.compressed for split in held)
        nbytes = sum(split.end - split.start for split in held)
        if not is_compressed and (nbytes <= READ_ONCE or any("://" in split.path for split in held)):
            return Rows(arrays)
        # Nothing says how much a compressed file holds.
        readings = files.READINGS if is_compressed else -(-nbytes // READ_ONCE)

        def read(selection: Selection, *, reuses: bool) -> Iterator[Any]:
            return self._reading(selection)._arrays(held, reuses=reuses)

        return StreamedRows(arrays, partial(self._count, held), files.streamed(self.selection, readings, read))

    def _reading(self, selection: Selection) -> CsvTask:
        """Return the task that reads some of the fields."""
        needed = files.names_to_read(self.names, selection, self.filter)
        return replace(self, selection=selection, kinds=tuple([each for each in self.kinds if each[0] in needed]))

    def _count(self, splits: Sequence[TextSplit]) -> int:
        """Return the number of lines that the filter keeps, without making numbers of others than it asks."""
        if self.filter is None:
            return sum(piece.count_rows() for split in splits for piece in self._lines(split))
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
        names = header_names(path, self.delimiter)
        for number, (name, expected) in enumerate(zip(names, self.names, strict=False)):
            if name != expected and (self.has_case or name.lower() != expected.lower()):
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
        for piece in self._lines(split):
            if not piece.data.strip():
                continue
            try:
                table = parsed(piece.data, self.names, self.delimiter, dict(self.kinds))
            except pa.ArrowException as error:
                raise self._fault(piece, error) from error
            for name in self.guessed:
                if name in table.column_names:
                    check_rounded(name, table.column(name), piece, self.names, self.delimiter, self.first)
            yield table

    def _lines(self, split: TextSplit) -> Iterator[FileLines]:
        with opened_text(split.path) as file:
            for start, data in lines(file, split, int(self.header)):
                yield FileLines(split.path, start, data)

    def _fault(self, piece: FileLines, error: Exception) -> RecordError:
        """Return the error for the first line that cannot be parsed."""
        lines = piece.data.split(b"\n")
        # Up to a line, all is good or not.
        number = bisect_left(range(len(lines) - 1), True, key=lambda last: not self._is_good(lines[:last + 1]))
        line_text = lines[number].decode(errors="replace").rstrip("\r")
        return RecordError(f"{piece.path}, line {piece.number(number)}: {line_text[:80]!r} is not read as "
                           f"{', '.join(f'{name} {kind}' for name, kind in self.kinds)}; types are those of dtype=, "
                           "or else of the first lines: \"float64\" holds all numbers, and rounds integers beyond "
                           f"2**53 ({error})")

    def _is_good(self, lines: list[bytes]) -> bool:
        try:
            parsed(b"\n".join(lines) + b"\n", self.names, self.delimiter, dict(self.kinds))
        except pa.ArrowException as error:
            return "Empty CSV" in str(error)
        return True
