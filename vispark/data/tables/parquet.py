"""Parquet files as RDDs, by row groups."""

from __future__ import annotations

import functools
import itertools
import math
import operator
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark import RDD, SparkContext

from vispark._utils.boundary import brief
from vispark.data.tables import files
from vispark.data.tables.arrow import pa, require
from vispark.data.tables.directories import values_of
from vispark.data.tables.files import FileFooter, FileFormat, FilePart, FileSlice
from vispark.data.tables.selection import Columns, Selection
from vispark.data.tables.types import of_arrow

#: How Arrow scans a row group: so many rows at once, in this thread alone.
_SCAN = {"batch_size": 1 << 16, "use_threads": False, "batch_readahead": 0, "fragment_readahead": 0}

_KEPT = "kept"

#: Columns of floats in a filter up to which statistics are asked, twice as often for each of them.
_FLOATS = 4


@brief
def read_parquet(sc: SparkContext, path: str | os.PathLike[str], columns: Columns | None = None, *,
                 filter: Any = None, dtype: Any = None, nulls: Any = "error", minPartitions: int | None = None,
                 blocks: bool = False, ragged: bool = False) -> RDD[Any]:
    """Read Parquet files, one record a row.

    The Python workers read whole row groups of the columns that are wanted; ``cache("GPU")`` takes the arrays without
    making single records of them. Row groups are packed into partitions of at most
    ``spark.sql.files.maxPartitionBytes`` bytes; one of more is cut by rows, for which each of its tasks decodes what
    comes before its own rows, too.

    Parameters
    ----------
    sc : SparkContext
        Where the RDD belongs.
    path : str or path
        A file, a directory, a pattern, or several with commas between. Without a scheme, of each node's own file
        system; with one, what fsspec knows. Directories called ``name=value``, as ``partitionBy`` of a DataFrame's
        writer makes them, are columns, which ``filter`` may name too.
    columns, dtype, nulls
        As of :func:`from_dataframe`. No other column is read.
    filter : pyarrow.compute.Expression or list of tuples, optional
        Which rows are wanted, such as ``pyarrow.compute.field("x") > 0`` or ``[("x", ">", 0), ("k", "in", [1, 2])]``,
        whose conditions all hold. Row groups of which statistics say that there are none are not read.
    minPartitions : int, optional
        At least so many partitions, for which row groups are cut where they are fewer.
    blocks : bool
        Whether a partition is a single record: an array with a row for each row, or a dict of them.
    ragged : bool
        As of :func:`from_dataframe`: whether columns of lists give 1-D arrays of several lengths. Not with ``blocks``.

    Returns
    -------
    RDD
        What :func:`from_dataframe` gives for the same columns.

    Raises
    ------
    PlanError
        If pyarrow is missing, there is no such file, one cannot be read, or an argument does not fit; at an action, if
        a file vanished or changed since. It names the file.
    RecordError
        If a column holds no numbers, or has another type in another file; it names file and column. At an action,
        if there is a null or arrays differ in length; it names file, row group and row.

    Examples
    --------
    >>> import pathlib, tempfile, pyarrow, pyarrow.parquet
    >>> path = pathlib.Path(tempfile.mkdtemp(), "points.parquet")
    >>> pyarrow.parquet.write_table(pyarrow.table({"x": [1.0, 2.0, 3.0], "k": [1, 2, 3]}), path)
    >>> read_parquet(sc, path, filter=[("k", ">", 1)]).cache("GPU").vmap(lambda x, k: x * k).collect()
    [np.float64(4.0), np.float64(9.0)]
    """
    require("read_parquet")
    return files.read(sc, path, ParquetFormat(), columns=columns, dtype=dtype, nulls=nulls, filter=filter,
                      minPartitions=minPartitions, blocks=blocks, ragged=ragged)


@dataclass(frozen=True)
class ParquetFormat(FileFormat):
    """Parquet, whose parts are row groups."""

    name = "Parquet"
    part = "row group"

    def footer(self, path: str, selection: Selection | None, filter: Any) -> FileFooter:
        fragment = _fragment(path)
        spelled = self.spelled(fragment.physical_schema)
        files.check_filter_types(files.with_directories(path, spelled), filter, path)
        # Statistics are of columns as the file calls them.
        chosen = range(fragment.num_row_groups) if filter is None or spelled != fragment.physical_schema else \
            _possible(path, fragment, filter)
        metadata = fragment.metadata
        numbers = [] if selection is None else _column_numbers(metadata, selection, has_case=not self.columns)
        parts = []
        for number in sorted(chosen) if selection is not None else ():
            group = metadata.row_group(number)
            columns = [group.column(column) for column in numbers]
            nbytes = sum(column.total_uncompressed_size for column in columns)
            if group.num_rows:
                starts = [column.dictionary_page_offset or column.data_page_offset for column in columns]
                stops = [start + column.total_compressed_size for start, column in zip(starts, columns, strict=True)]
                parts.append(FilePart(number, group.num_rows, nbytes or group.total_byte_size, min(starts, default=0),
                                      max(stops, default=0)))
        return FileFooter(path, files.columns_of(path, spelled), tuple(parts))

    def batches(self, slices: Sequence[FileSlice], selection: Selection,
                filter: Any) -> Iterator[tuple[FileSlice, Any]]:
        path = slices[0].path
        fragment = _fragment(path)
        schema = self.spelled(fragment.physical_schema)
        files.check_schema(selection, FileFooter(path, files.columns_of(path, schema), ()), "the first file")
        is_spelled = schema == fragment.physical_schema
        names = _plain_names(fragment, path, selection) if filter is None and is_spelled else None
        file = None if names is None else pa.parquet.ParquetFile(path, metadata=fragment.metadata)
        for piece in slices:
            group = fragment.subset(row_group_ids=[piece.part.number])
            if group.metadata.row_group(piece.part.number).num_rows != piece.part.rows:
                raise pa.ArrowInvalid(f"row group {piece.part.number} has not {piece.part.rows} rows any more")
            group_batches: Iterator[Any]
            if not is_spelled:
                group_batches = (chosen for batch in _respelled(group, piece, schema, selection, filter)
                                 for chosen in files.chosen(path, batch, selection, filter))
            elif file is None or piece.count > 1:
                group_batches = _sliced(group, piece, selection, filter)
            else:
                group_batches = _group_batches(file, piece.part.number, names)
            for batch in group_batches:
                yield piece, batch

    def masks(self, slices: Sequence[FileSlice], filter: Any) -> Iterator[tuple[FileSlice, Any]]:
        path = slices[0].path
        fragment = _fragment(path)
        spelled = self.spelled(fragment.physical_schema)
        schema = files.with_directories(path, fragment.physical_schema)
        for piece in slices:
            group = fragment.subset(row_group_ids=[piece.part.number])
            if spelled != fragment.physical_schema:
                for batch in _respelled(group, piece, spelled, None, filter):
                    for mask in files.mask_of(path, batch, filter):
                        yield piece, mask
                continue
            for batch in _rows_of_slice(piece, group.scanner(schema, columns={_KEPT: filter}, **_SCAN).to_batches()):
                yield piece, batch.column(0)


def _fragment(path: str, conditions: Sequence[Any] = ()) -> Any:
    """Return a file as Arrow's fragment, with what its directories say of its rows, and what is given."""
    system, inside = files.arrow_file(path)
    conditions = [*conditions, *(pa.compute.field(name) == value for name, value in values_of(path).items())]
    format = pa.dataset.ParquetFileFormat()
    if not conditions:
        return format.make_fragment(inside, system)
    return format.make_fragment(inside, system, functools.reduce(operator.and_, conditions))


def _possible(path: str, fragment: Any, filter: Any) -> set[int]:
    """Return the row groups of which statistics do not say that the filter keeps none of their rows.

    Statistics leave NaN out, which is neither equal to a number nor less or more: ``~(x > 2)`` keeps such rows. So a
    row group is left out where the filter keeps none of its rows either if columns of floats have NaN in them.
    """
    schema = files.with_directories(path, fragment.physical_schema)
    groups = {group.id for group in fragment.subset(filter, schema=schema).row_groups}
    floats = [pa.compute.field(*place) for top in schema if top.name in str(filter)
              for _, place, kind in of_arrow(top.type).leaves(top.name)
              if kind.kind == "number" and kind.dtype.startswith("float")]
    if len(floats) > _FLOATS:
        return set(range(fragment.num_row_groups))
    for count in range(1, len(floats) + 1):
        for chosen in itertools.combinations(floats, count):
            are_nan = [column == math.nan for column in chosen]
            if files.possible(schema, [functools.reduce(operator.and_, are_nan)], filter):
                groups |= {group.id for group in _fragment(path, are_nan).subset(filter, schema=schema).row_groups}
    return groups


def _plain_names(fragment: Any, path: str, selection: Selection) -> list[str] | None:
    """Return the names of the selected columns where each is a whole column of a local file; else None."""
    names, own = [spec.path[0] for spec in selection.columns], fragment.physical_schema.names
    is_plain = "://" not in path and all(len(spec.path) == 1 and "." not in spec.path[0] and spec.type.kind != "vector"
                                         and own.count(spec.path[0]) == 1 for spec in selection.columns)
    return names if is_plain else None


def _group_batches(file: Any, number: int, names: Any) -> Iterator[Any]:
    """Yield the batches of a row group's columns, which together take less time than by a scanner."""
    for batch in file.read_row_group(number, columns=names, use_threads=False).to_batches():
        yield batch.select(names)


def _column_numbers(metadata: Any, selection: Selection, *, has_case: bool) -> list[int]:
    """Return the numbers of a file's columns that hold the selected ones; without case perhaps of others, too."""
    def spelled(path: Iterable[str]) -> list[str]:
        return [name if has_case else name.lower() for name in path]

    paths = [spelled(spec.path) for spec in selection.columns]
    names = [spelled(metadata.schema.column(number).path.split(".")) for number in range(metadata.num_columns)]
    return [number for number, name in enumerate(names) if any(name[:len(path)] == path for path in paths)]


def _respelled(group: Any, piece: FileSlice, spelled: Any, selection: Selection | None, filter: Any) -> Iterator[Any]:
    """Yield batches of a slice's rows, of columns that a schema calls otherwise than the file does."""
    names = files.names_to_read(spelled.names, selection, filter)
    own = dict(zip(spelled.names, group.physical_schema.names, strict=True))
    columns = {name: pa.compute.field(own[name]) for name in names}
    for batch in _rows_of_slice(piece, group.scanner(group.physical_schema, columns=columns, **_SCAN).to_batches()):
        yield files.respelled(batch, [spelled.field(name) for name in names])


def _sliced(group: Any, piece: FileSlice, selection: Selection, filter: Any) -> Iterator[Any]:
    """Yield the batches of a slice's rows that a filter keeps."""
    columns = {f"v{number}": pa.compute.field(*spec.path) for number, spec in enumerate(selection.columns)}
    schema = files.with_directories(piece.path, group.physical_schema)
    # The filter as a column: a filtered batch does not say which rows it has, and Arrow would ask statistics again.
    if filter is not None:
        columns[_KEPT] = filter
    for part in _rows_of_slice(piece, group.scanner(schema, columns=columns, **_SCAN).to_batches()):
        yield part if filter is None else part.filter(part.column(_KEPT)).select(range(len(selection.columns)))


def _rows_of_slice(piece: FileSlice, batches: Iterator[Any]) -> Iterator[Any]:
    """Yield the rows of a slice out of the batches of its row group."""
    start, stop = piece.rows(piece.part.rows)
    position = 0
    for batch in batches:
        low, high = max(start - position, 0), min(stop - position, batch.num_rows)
        position += batch.num_rows
        if low < high:
            yield batch.slice(low, high - low)
        if position >= stop:
            return
