"""Files of columns as RDDs: which parts of which files a task reads, and how it reads them.

A format (:class:`FileFormat`) knows the parts of its files that can be read alone, such as row groups; everything else
is here: which parts become which partition, checks of schemas, and the task.
"""

from __future__ import annotations

import functools
import operator
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
from pyspark import RDD, SparkContext

from gpu_worker.protocol.errors import PlanError, RecordError
from vispark._utils.contexts import check_running, is_case_sensitive
from vispark.data.records.rows import Rows
from vispark.data.records.streamed_rows import RowSource, SharedSource, StreamedRows
from vispark.data.records.text.splits import fsspec_of
from vispark.data.storage.locality import FileRange, near_blocks
from vispark.data.tables.arrow import pa
from vispark.data.tables.batches import BatchReader
from vispark.data.tables.columns_read import with_columns
from vispark.data.tables.directories import table_files, values_of
from vispark.data.tables.selection import Columns, Selection, check_ragged, select
from vispark.data.tables.types import ColumnType, of_arrow

#: Files whose parts the driver looks up by itself; of more, a Spark job does.
FEW = 64

#: Bytes below which a partition is not made smaller, unless more partitions are asked for; as Spark's cost of a file.
SMALL = 4 << 20

#: How often a partition is read at most, a share of its fields at a time while these are sent; of remote files, which
#: take long to be opened.
READINGS, REMOTE_READINGS = 16, 4


@dataclass(frozen=True)
class FilePart:
    """Part of a file that can be read alone: its number, its rows (-1 if unknown), their bytes, and the bytes of the
    file that they are about in.
    """

    number: int
    rows: int
    nbytes: int
    start: int = 0
    stop: int = 0


@dataclass(frozen=True)
class FileFooter:
    """Footer of a file: the columns, and the parts that may have rows which are wanted."""

    path: str
    schema: tuple[tuple[str, ColumnType], ...]
    parts: tuple[FilePart, ...]


@dataclass(frozen=True)
class FileSlice:
    """Slice of a part of a file: the ``index``-th of ``count`` slices of nearly as many rows."""

    path: str
    part: FilePart
    index: int = 0
    count: int = 1

    def rows(self, total: int) -> tuple[int, int]:
        """Return the first row, and the one behind the last, of a part that has ``total`` rows."""
        return total * self.index // self.count, total * (self.index + 1) // self.count

    def count_rows(self) -> int:
        """Return the number of rows, of a part whose rows are known."""
        start, stop = self.rows(self.part.rows)
        return stop - start

    @property
    def range(self) -> FileRange:
        """The bytes about that are read of the file."""
        start, stop = self.rows(self.part.stop - self.part.start)
        return FileRange(self.path, self.part.start + start, self.part.start + stop)


@dataclass(frozen=True)
class FileFormat(ABC):
    """Format of files of columns.

    Attributes
    ----------
    columns : tuple of (str, ColumnType)
        The columns of the first file, as which those of others are called that differ in case alone, and so are the
        fields of structs; none where case counts.
    """

    #: What errors call the files, and a part of them.
    name: ClassVar[str]
    part: ClassVar[str]

    columns: tuple[tuple[str, ColumnType], ...] = ()

    def spelled(self, schema: Any) -> Any:
        """Return the Arrow schema of a file with its columns, and the fields of structs, called as in the first one."""
        return pa.schema(_spelled_fields(list(schema), self.columns)) if self.columns else schema

    @abstractmethod
    def footer(self, path: str, selection: Selection | None, filter: Any) -> FileFooter:
        """Return a file's footer, without parts of which statistics say that the filter keeps nothing; what Arrow
        raises, this raises.
        """

    @abstractmethod
    def batches(self, slices: Sequence[FileSlice], selection: Selection,
                filter: Any) -> Iterator[tuple[FileSlice, Any]]:
        """Yield batches of the selected columns from slices of one file, in order."""

    @abstractmethod
    def masks(self, slices: Sequence[FileSlice], filter: Any) -> Iterator[tuple[FileSlice, Any]]:
        """Yield masks of the rows of one file's slices that a filter keeps, in order; nulls may be among them."""


@dataclass(frozen=True)
class ReadTask:
    """Task that reads a partition's slices of files."""

    format: FileFormat
    selection: Selection
    filter: Any
    blocks: bool
    is_ragged: bool = False

    def __call__(self, groups: Iterable[tuple[FileSlice, ...]]) -> Iterable[Any]:
        slices = [each for share in groups for each in share]
        arrays = self._arrays(slices)
        if self.blocks:
            return one_record(list(arrays))
        if not self._is_streamed(slices):
            return Rows(arrays)
        is_counted = self.filter is None and all(each.part.rows >= 0 for each in slices)
        chosen = None if is_counted else _KeptRows(self, slices)

        def read(selection: Selection, *, reuses: bool) -> Iterator[Any]:
            return replace(self, selection=selection)._arrays(slices, chosen, reuses=reuses)

        is_remote = any("://" in each.path for each in slices)
        sources = streamed(self.selection, REMOTE_READINGS if is_remote else READINGS, read)
        return StreamedRows(arrays, chosen.count if chosen else sum(each.count_rows() for each in slices), sources)

    def _is_streamed(self, slices: Sequence[FileSlice]) -> bool:
        """Return whether fields are read while they are sent: not of little of what is read more often for that, as
        remote files and rows of several lengths.
        """
        is_read_once = not self.is_ragged and all("://" not in each.path for each in slices)
        return is_read_once or sum(each.part.nbytes for each in slices) > SMALL

    def _arrays(self, slices: Sequence[FileSlice], kept: _KeptRows | None = None, *,
                reuses: bool = False) -> Iterator[Any]:
        reader = BatchReader(self.selection, is_ragged=self.is_ragged, reuses=reuses)
        before = None
        for piece, batch in self.batches(slices) if kept is None else kept.batches(self):
            if piece is not before:
                reader.place = f"{self.format.part} {piece.part.number} of {piece.path}"
                reader.rows = piece.rows(piece.part.rows)[0] if self.filter is None and piece.part.rows >= 0 else 0
                if self.filter is not None:
                    reader.place = f"those that the filter keeps of {reader.place}"
                before = piece
            yield from reader.arrays(batch)

    def batches(self, slices: Sequence[FileSlice]) -> Iterator[tuple[FileSlice, Any]]:
        """Yield batches of the selected columns of the rows that are wanted.

        Raises
        ------
        PlanError
            If a file cannot be read.
        """
        for path, own in _by_file(slices):
            with _readable(self.format, path):
                yield from self.format.batches(own, self.selection, self.filter)


def streamed(selection: Selection, readings: int, read: Callable[..., Iterator[Any]]) -> dict[str, RowSource]:
    """Return the sources of a selection's fields, of which shares are read together.

    Parameters
    ----------
    selection : Selection
        The fields.
    readings : int
        How many shares there are at most.
    read : callable
        Given a selection, and whether an array may lie where the one before did, makes its arrays.
    """
    fields, sources = selection.fields, dict[str, RowSource]()
    count = min(readings, len(fields))
    for number in range(count):
        share = fields[len(fields) * number // count:len(fields) * (number + 1) // count]
        if len(share) == 1:
            sources[share[0].name] = partial(read, selection.alone(share[0]), reuses=True)
        else:
            names = [field.name for field in share]
            shared = SharedSource(partial(read, selection.of(share), reuses=False), names)
            sources |= {name: partial(shared.arrays, name) for name in names}
    return sources


class _KeptRows:
    """Rows of slices that a filter keeps: bits that are read once, of which each field takes its rows. Without a filter
    all are kept, of parts whose rows nothing else counts.
    """

    def __init__(self, task: ReadTask, slices: Sequence[FileSlice]):
        self._format, self._slices = task.format, slices
        self._filter = pa.compute.scalar(True) if task.filter is None else task.filter

    def count(self) -> int:
        """Return the number of these rows."""
        return sum(mask.true_count for mask in self._masks.values())

    @functools.cached_property
    def _masks(self) -> dict[FileSlice, Any]:
        chunks: dict[FileSlice, list[Any]] = {each: [] for each in self._slices}
        for path, own in _by_file(self._slices):
            with _readable(self._format, path):
                for piece, mask in self._format.masks(own, self._filter):
                    chunks[piece].append(mask)
        return {each: pa.concat_arrays(masks) if masks else pa.array([], pa.bool_()) for each, masks in chunks.items()}

    def batches(self, task: ReadTask) -> Iterator[tuple[FileSlice, Any]]:
        """Yield batches of a task's columns of these rows."""
        before, start = None, 0
        for piece, batch in replace(task, filter=None).batches(self._slices):
            if piece is not before:
                before, start = piece, 0
            mask = self._masks[piece].slice(start, batch.num_rows)
            start += batch.num_rows
            if len(mask) < batch.num_rows:
                raise unreadable(task.format, piece.path, pa.ArrowInvalid("it has more rows than before"))
            if mask.true_count:
                yield piece, batch.filter(mask)


def _by_file(slices: Sequence[FileSlice]) -> Iterator[tuple[str, list[FileSlice]]]:
    for path in dict.fromkeys(each.path for each in slices):
        yield path, [each for each in slices if each.path == path]


@contextmanager
def _readable(format: FileFormat, path: str) -> Iterator[None]:
    """Raise what Arrow raises as the error for a file that cannot be read."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        raise unreadable(format, path, error) from error


def unreadable(format: FileFormat, path: str, error: Exception) -> PlanError:
    """Return the error for a file that cannot be read."""
    text = str(error).partition("\n")[0]
    if isinstance(error, FileNotFoundError):
        return PlanError(f"{path} is not there, or not any more; files must be within reach of every node, and stay as "
                         "they were when they were looked up")
    return PlanError(f"{path} cannot be read as {format.name}: {text.rstrip('.')}; it may be cut, or have changed "
                     "since it was looked up")


def read(sc: SparkContext, path: str | os.PathLike[str], format: FileFormat, *, columns: Columns | None, dtype: Any,
         nulls: Any, filter: Any, minPartitions: int | None, blocks: bool, ragged: bool) -> RDD[Any]:
    """Return the RDD of the files that a path means; see :func:`vispark.read_parquet`."""
    check_running(sc)
    if minPartitions is not None and (not isinstance(minPartitions, int | np.integer) or minPartitions < 1):
        raise PlanError(f"minPartitions={minPartitions!r}; it is a whole number, 1 or more")
    if ragged and blocks:
        raise PlanError("ragged=True and blocks=True: rows of several lengths are records of their own, and no block")
    condition = expression(filter)
    paths = table_files(os.fspath(path), format.name)
    first = _footers(format, paths[:1], None, None)[0]
    has_case = is_case_sensitive(sc)
    selection = select(first.schema, columns, dtype, nulls, paths[0], is_case_sensitive=has_case)
    unsigned = [name for name, kind in first.schema if kind.dtype == "uint64"]
    format = replace(format, columns=() if has_case else first.schema)
    condition = expression(filter, [name for name, _ in format.columns], unsigned)
    check_filter(first.schema, condition, paths[0])
    if ragged:
        check_ragged(selection)
    files_read = footers(sc, format, paths, selection, condition)
    for footer in files_read:
        check_schema(selection, footer, paths[0])
    shares = partitions([FileSlice(each.path, part) for each in files_read for part in each.parts],
                        _most_bytes(sc), sc.defaultParallelism, minPartitions)
    if not shares:
        return with_columns(sc.emptyRDD(), selection, is_ragged=ragged)
    ranges = [[each.range for each in share] for share in shares]
    rdd = near_blocks(sc, shares, ranges).mapPartitions(ReadTask(format, selection, condition, blocks, ragged))
    return rdd if blocks else with_columns(rdd, selection, is_ragged=ragged)


def expression(filter: Any, names: Sequence[str] = (), unsigned: Sequence[str] = ()) -> Any:
    """Return the Arrow expression of a filter.

    Parameters
    ----------
    filter : Expression, list of tuples, or None
        As of :func:`vispark.read_parquet`.
    names : sequence of str
        Columns that conditions may name in another case.
    unsigned : sequence of str
        Columns of uint64, which Arrow would compare with whole numbers as int64.

    Raises
    ------
    PlanError
        If it is none.
    """
    if filter is None or isinstance(filter, pa.dataset.Expression):
        return filter
    try:
        ways = [filter] if isinstance(filter[0][0], str) else filter
        return functools.reduce(operator.or_, [
            functools.reduce(operator.and_, [_condition(each, names, unsigned) for each in way]) for way in ways])
    except (AttributeError, TypeError, ValueError, IndexError, KeyError, OverflowError) as error:
        raise PlanError(f'filter={filter!r}; it is an expression such as pyarrow.compute.field("x") > 0, or a list of '
                        'conditions that all hold, such as [("x", ">", 0), ("k", "in", [1, 2])]') from error


def _spelled(name: str, names: Sequence[str]) -> str:
    """Return a name as the only column that differs from it in case alone is written, if there is one."""
    alike = {each for each in names if each.lower() == name.lower()}
    return name if name in alike or len(alike) != 1 else alike.pop()


def _spelled_fields(fields: Sequence[Any], first: Sequence[tuple[str, ColumnType]]) -> list[Any]:
    """Return Arrow fields, called as those of the first file that differ from them in case alone, and what is in them
    as well.
    """
    own, kinds, spelled = [field.name for field in fields], dict(first), []
    for field in fields:
        name = _spelled(field.name, list(kinds))
        name = field.name if name in own else name
        below = kinds[name].children if name in kinds else ()
        kind = pa.struct(_spelled_fields(list(field.type), below)) if below and pa.types.is_struct(field.type) \
            else field.type
        spelled.append(field.with_name(name).with_type(kind))
    return spelled


def respelled(batch: Any, fields: Sequence[Any]) -> Any:
    """Return a batch whose columns, and the fields of its structs, are called as other fields of the same types are."""
    return pa.RecordBatch.from_arrays([_respelled(column, field.type) for column, field in
                                       zip(batch.columns, fields, strict=True)], schema=pa.schema(fields))


def _respelled(array: Any, kind: Any) -> Any:
    if array.type == kind:
        return array
    inside = [_respelled(below, field.type) for below, field in zip(array.flatten(), kind, strict=True)]
    return pa.StructArray.from_arrays(inside, fields=list(kind), mask=array.is_null())


def _literal(value: Any, is_unsigned: bool) -> Any:
    """Return the value that a column is compared with: as uint64 a whole number, of such a column or beyond int64."""
    if isinstance(value, int | np.integer) and value >= (0 if is_unsigned else 1 << 63):
        return pa.scalar(int(value), pa.uint64())
    return value


def _condition(filter: Any, names: Sequence[str], unsigned: Sequence[str]) -> Any:
    """Return the Arrow expression of a condition, which keeps no row for which SQL's is null: Arrow's ``isin`` is false
    of a null, and true of it where a null is among the values.
    """
    name, how, values = filter
    name = _spelled(name, names)
    if how not in ("in", "not in"):
        return pa.parquet.filters_to_expression([(name, how, _literal(values, name in unsigned))])
    known = [_literal(value, name in unsigned) for value in values if value is not None]
    if how == "in":
        return pa.parquet.filters_to_expression([(name, how, known)])
    is_kept = pa.compute.field(name).is_valid() if len(known) == len(values) else pa.compute.scalar(False)
    return pa.parquet.filters_to_expression([(name, how, known)]) & is_kept


def check_filter_types(schema: Any, filter: Any, path: str) -> None:
    """Check that a filter names columns of a file, of an Arrow schema, and compares them with what they can be.

    Raises
    ------
    PlanError
        If it does not; it names the file and its columns.
    """
    if filter is None:
        return
    text = str(filter)
    named = [field for field in schema if field.name in text or "FieldPath" in text]
    row = pa.RecordBatch.from_arrays([pa.nulls(1, field.type) for field in named], [field.name for field in named])
    try:
        list(_scanned(row, {}, filter))
    except pa.ArrowException as error:
        shown = ", ".join(f"{field.name} {field.type}" for field in list(schema)[:16])
        raise PlanError(f"filter={filter} does not fit {path}: {str(error).partition(chr(10))[0].rstrip('.')}; the "
                        f"columns are {shown}") from error


def check_filter(schema: Sequence[tuple[str, ColumnType]], filter: Any, table: str) -> None:
    """Check that a filter names columns of a table, and, where these hold numbers, does with them what can be done.

    Raises
    ------
    PlanError
        If it does not; it names the columns.
    """
    if filter is None:
        return
    # Of other columns the type in Arrow is not known here, and what is said of nulls may not be true of them.
    is_of_numbers = all(kind.kind == "number" for name, kind in schema if name in str(filter))
    arrays = [pa.array([], pa.from_numpy_dtype(np.dtype(kind.dtype)) if kind.kind == "number" else pa.null())
              for _, kind in schema]
    names = [name for name, _ in schema]
    try:
        list(_scanned(pa.RecordBatch.from_arrays(arrays, names), {}, filter))
    except pa.ArrowException as error:
        if not is_of_numbers and not str(error).startswith("No match for FieldRef.Name("):
            return
        columns = ", ".join(f"{name} {kind.text}" for name, kind in schema[:16])
        raise PlanError(f"filter={filter} does not fit {table}: {str(error).partition(chr(10))[0].rstrip('.')}; the "
                        f"columns are {columns}") from error


# -- what is in which file --------------------------------------------------------------------------------------------

def footers(sc: SparkContext, format: FileFormat, paths: Sequence[str], selection: Selection,
            filter: Any) -> list[FileFooter]:
    """Return the footers of files, looked up by the driver or, of many files, by a Spark job."""
    if len(paths) <= FEW:
        return _footers(format, paths, selection, filter)
    job = sc.parallelize(paths, min(sc.defaultParallelism, len(paths)))
    results: list[FileFooter | PlanError] = job.mapPartitions(_FooterTask(format, selection, filter)).collect()
    for footer in results:
        if isinstance(footer, PlanError):
            raise footer
    return results        # type: ignore[return-value]


@dataclass(frozen=True)
class _FooterTask:
    """Task that looks up files; it hands an error back as a result."""

    format: FileFormat
    selection: Selection
    filter: Any

    def __call__(self, paths: Iterable[str]) -> Iterator[FileFooter | PlanError]:
        try:
            yield from _footers(self.format, list(paths), self.selection, self.filter)
        except PlanError as error:
            yield error


def _footers(format: FileFormat, paths: Sequence[str], selection: Selection | None, filter: Any) -> list[FileFooter]:
    results = []
    for path in paths:
        with _readable(format, path):
            results.append(format.footer(path, selection, filter))
    return results


def check_schema(selection: Selection, footer: FileFooter, first: str) -> None:
    """Check that a file has the selected columns as the first file has them.

    Raises
    ------
    RecordError
        If it has not; it names file and column.
    """
    leaves = {path: kind for top, found in footer.schema for _, path, kind in found.leaves(top)}
    for spec in selection.columns:
        kind = leaves.get(spec.path)
        if kind is None:
            raise RecordError(f"{footer.path} has no column {spec.name!r}, which {first} has as {spec.type.text}; "
                              "read files of one schema at a time")
        if (kind.kind, kind.dtype) != (spec.type.kind, spec.type.dtype):
            raise RecordError(f"column {spec.name!r} is {kind.text} in {footer.path}, and {spec.type.text} in {first}; "
                              "read files of one schema at a time")


# -- which parts go together ------------------------------------------------------------------------------------------

def _most_bytes(sc: SparkContext) -> int:
    text = sc.getConf().get("spark.sql.files.maxPartitionBytes", "128m")
    assert sc._jvm is not None
    return int(sc._jvm.org.apache.spark.network.util.JavaUtils.byteStringAsBytes(text))


def partitions(parts: Sequence[FileSlice], most: int, cores: int, least: int | None) -> list[tuple[FileSlice, ...]]:
    """Return the slices of each partition, in the order of the files.

    Parameters
    ----------
    parts : sequence of FileSlice
        Whole parts.
    most : int
        Bytes of a partition at most; a part of more is cut by rows.
    cores : int
        The number of partitions that is aimed at.
    least : int or None
        The number of partitions at least, where there are rows enough.

    Examples
    --------
    >>> whole = FileSlice("f", FilePart(0, 1000, 300))
    >>> [(each.index, each.count) for each, in partitions([whole], most=100, cores=1, least=None)]
    [(0, 3), (1, 3), (2, 3)]
    """
    total = sum(each.part.nbytes for each in parts)
    size = min(most, max(SMALL, -(-total // cores))) if least is None else min(most, max(1, -(-total // least)))
    goal = total / max(1, -(-total // size))
    is_few = least is not None and len(parts) < least
    shares: list[tuple[FileSlice, ...]] = []
    share: list[FileSlice] = []
    held = before = 0
    for number, piece in enumerate(parts):
        nbytes = piece.part.nbytes
        # A part goes to where most of it would be if all partitions were of one size: so the last is no small rest.
        is_behind = before + nbytes / 2 > goal * (len(shares) + 1) or len(parts) - number < (least or 0) - len(shares)
        before += nbytes
        if share and (is_behind or held + nbytes > most):
            shares.append(tuple(share))
            share, held = [], 0
        count = -(-nbytes // size) if nbytes > most or (is_few and nbytes > size) else 1
        if count > 1:
            shares += [(FileSlice(piece.path, piece.part, index, count),) for index in range(count)]
            continue
        share.append(piece)
        held += nbytes
    return [*shares, tuple(share)] if share else shares


# -- for formats ------------------------------------------------------------------------------------------------------

def arrow_file(path: str) -> tuple[Any, str]:
    """Return Arrow's file system for a path, and the path in it."""
    if "://" not in path:
        return pa.fs.LocalFileSystem(), path
    system = fsspec_of(path)
    return pa.fs.PyFileSystem(pa.fs.FSSpecHandler(system)), system._strip_protocol(path)


def columns_of(path: str, schema: Any) -> tuple[tuple[str, ColumnType], ...]:
    """Return the columns of a file of an Arrow schema: its own, and behind them those that its directories give."""
    own = {field.name for field in schema}
    values = [(name, of_arrow(pa.scalar(value).type)) for name, value in values_of(path).items() if name not in own]
    return (*((field.name, of_arrow(field.type)) for field in schema), *values)


def with_directories(path: str, schema: Any) -> Any:
    """Return the Arrow schema of a file, with the columns that its directories give."""
    for name, value in values_of(path).items():
        if name not in schema.names:
            schema = schema.append(pa.field(name, pa.scalar(value).type))
    return schema


def possible(schema: Any, statements: Sequence[Any], filter: Any) -> list[int]:
    """Return the numbers of the statements with which it agrees that a filter keeps a row.

    Parameters
    ----------
    schema : pyarrow.Schema
        The columns.
    statements : sequence of Expression
        What is true of all rows of some part.
    filter : Expression
        The filter.
    """
    # Files of these names are neither there nor looked for: Arrow says which it would open.
    dataset = pa.dataset.FileSystemDataset.from_paths(
        [str(number) for number in range(len(statements))], schema=schema, format=pa.dataset.ParquetFileFormat(),
        filesystem=pa.fs.LocalFileSystem(), partitions=list(statements))
    return [int(fragment.path) for fragment in dataset.get_fragments(filter)]


def names_to_read(names: Sequence[str], selection: Selection | None, filter: Any) -> list[str]:
    """Return the columns of a file that a selection needs, if one is given, and those that a filter may name."""
    # An expression does not say what it names, but its text has that, and perhaps others by chance.
    text = "" if filter is None else str(filter)
    columns = selection.columns if selection is not None else ()
    needed = {spec.path[0] for spec in columns} | {name for name in names if name in text}
    return [name for name in names if name in needed]


def chosen(path: str, batch: Any, selection: Selection, filter: Any) -> Iterator[Any]:
    """Yield batches of the selected columns of the rows that a filter keeps, of a file's batch."""
    batch = _with_directories(path, batch)
    names = [spec.path[0] for spec in selection.columns if len(spec.path) == 1]
    if filter is None and len(names) == len(selection.columns):
        yield batch.select(names)
        return
    columns = {f"v{number}": pa.compute.field(*spec.path) for number, spec in enumerate(selection.columns)}
    yield from _scanned(batch, columns, filter)


def mask_of(path: str, batch: Any, filter: Any) -> Iterator[Any]:
    """Yield masks of the rows of a file's batch that a filter keeps."""
    for scanned in _scanned(_with_directories(path, batch), {"kept": filter}, None):
        yield scanned.column(0)


def _with_directories(path: str, batch: Any) -> Any:
    """Return a batch with the columns that a file's directories give, too."""
    for name, value in values_of(path).items():
        if name not in batch.schema.names:
            batch = batch.append_column(name, pa.repeat(value, batch.num_rows))
    return batch


def _scanned(batch: Any, columns: dict[str, Any], filter: Any) -> Iterator[Any]:
    yield from pa.dataset.Scanner.from_batches([batch], schema=batch.schema, columns=columns, filter=filter,
                                               use_threads=False).to_batches()


def one_record(arrays: list[Any]) -> Iterator[Any]:
    """Yield one record of all arrays; none where there are none."""
    if not arrays:
        return
    if not isinstance(arrays[0], dict):
        yield np.concatenate(arrays)
        return
    yield {name: np.concatenate([each[name] for each in arrays]) for name in arrays[0]}
