"""ORC files as RDDs, by stripes."""

from __future__ import annotations

import functools
import operator
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark import RDD, SparkContext

from vispark._utils.boundary import brief
from vispark.data.tables import files
from vispark.data.tables.arrow import pa, require
from vispark.data.tables.directories import values_of
from vispark.data.tables.files import FileFooter, FileFormat, FilePart, FileSlice
from vispark.data.tables.orc_stripes import Stripe, stripes
from vispark.data.tables.selection import Columns, Selection


@brief
def read_orc(sc: SparkContext, path: str | os.PathLike[str], columns: Columns | None = None, *, filter: Any = None,
             dtype: Any = None, nulls: Any = "error", minPartitions: int | None = None,
             blocks: bool = False, ragged: bool = False) -> RDD[Any]:
    """Read ORC files, one record a row, by stripes.

    Everything is as in :func:`read_parquet`, but that stripes are left out by statistics of columns of numbers alone,
    that each is decoded as a whole, and that the size of a partition is that of the files' bytes.

    Parameters
    ----------
    sc, path, columns, filter, dtype, nulls, minPartitions, blocks, ragged
        As of :func:`read_parquet`.

    Returns
    -------
    RDD
        What :func:`from_dataframe` gives for the same columns.

    Raises
    ------
    PlanError, RecordError
        As :func:`read_parquet` does.

    Examples
    --------
    >>> import pathlib, tempfile, pyarrow, pyarrow.orc
    >>> path = pathlib.Path(tempfile.mkdtemp(), "points.orc")
    >>> pyarrow.orc.write_table(pyarrow.table({"x": [1.0, 2.0, 3.0], "k": [1, 2, 3]}), path)
    >>> read_orc(sc, path, "x", filter=[("k", ">", 1)]).cache("GPU").vmap(lambda x: 2 * x).collect()
    [np.float64(4.0), np.float64(6.0)]
    """
    require("read_orc")
    return files.read(sc, path, OrcFormat(), columns=columns, dtype=dtype, nulls=nulls, filter=filter,
                      minPartitions=minPartitions, blocks=blocks, ragged=ragged)


@dataclass(frozen=True)
class OrcFormat(FileFormat):
    """ORC, whose parts are stripes."""

    name = "ORC"
    part = "stripe"

    def footer(self, path: str, selection: Selection | None, filter: Any) -> FileFooter:
        with _opened(path) as source:
            file = pa.orc.ORCFile(source)
            spelled = self.spelled(file.schema)
            schema = files.columns_of(path, spelled)
            if selection is None or not file.nrows:
                return FileFooter(path, schema, ())
            files.check_filter_types(files.with_directories(path, spelled), filter, path)
            share = len(selection.columns) / max(1, sum(len(list(kind.leaves(name))) for name, kind in schema))
            listed = stripes(source, file) or _equal_stripes(file)
            chosen = range(len(listed)) if filter is None else _possible(path, spelled, listed, filter)
            return FileFooter(path, schema, tuple(
                FilePart(number, listed[number].rows, int(share * (listed[number].stop - listed[number].start)),
                         listed[number].start, listed[number].stop) for number in chosen))

    def batches(self, slices: Sequence[FileSlice], selection: Selection,
                filter: Any) -> Iterator[tuple[FileSlice, Any]]:
        path = slices[0].path
        with _opened(path) as source:
            file = pa.orc.ORCFile(source)
            schema = self.spelled(file.schema)
            files.check_schema(selection, FileFooter(path, files.columns_of(path, schema), ()), "the first file")
            names = files.names_to_read(schema.names, selection, filter)
            for piece in slices:
                for batch in files.chosen(path, _stripe(file, piece, names, schema), selection, filter):
                    yield piece, batch

    def masks(self, slices: Sequence[FileSlice], filter: Any) -> Iterator[tuple[FileSlice, Any]]:
        path = slices[0].path
        with _opened(path) as source:
            file = pa.orc.ORCFile(source)
            schema = self.spelled(file.schema)
            names = files.names_to_read(schema.names, None, filter)
            for piece in slices:
                for mask in files.mask_of(path, _stripe(file, piece, names, schema), filter):
                    yield piece, mask


def _possible(path: str, schema: Any, stripes: Sequence[Stripe], filter: Any) -> list[int]:
    """Return the stripes of which statistics do not say that the filter keeps none of their rows."""
    values = {name: pa.scalar(value) for name, value in values_of(path).items() if name not in schema.names}
    whole = files.with_directories(path, schema)
    if len(set(whole.names)) < len(whole.names):
        return list(range(len(stripes)))
    equalities = [pa.compute.field(name) == value for name, value in values.items()]
    return files.possible(whole, [
        functools.reduce(operator.and_, [*equalities, *_statements(schema, each)], pa.compute.scalar(True))
        for each in stripes], filter)


def _statements(schema: Any, stripe: Stripe) -> Iterator[Any]:
    """Yield expressions that are true of all rows of a stripe."""
    for field, bounds in zip(schema, stripe.ranges, strict=False):
        if bounds is not None and (pa.types.is_integer(field.type) or pa.types.is_floating(field.type)):
            column, least, greatest = pa.compute.field(field.name), *(
                pa.scalar(value, field.type) for value in (bounds.least, bounds.greatest))
            for side in (column == least,) if least == greatest else (column >= least, column <= greatest):
                yield side | column.is_null() if bounds.has_nulls else side


def _stripe(file: Any, piece: FileSlice, names: list[str], schema: Any) -> Any:
    """Return columns of a slice's rows of a stripe; ``schema`` is what all are called here. Without any, where
    directories give what is wanted, it would have no rows.
    """
    if piece.part.number >= file.nstripes:
        raise pa.ArrowInvalid(f"there is no stripe {piece.part.number} any more")
    own = file.schema
    names = [name for name, called in zip(own.names, schema.names, strict=True) if called in names] or own.names[:1]
    stripe = file.read_stripe(piece.part.number, columns=names)
    if own != schema:
        fields = dict(zip(own.names, schema, strict=True))
        stripe = files.respelled(stripe, [fields[name] for name in stripe.schema.names])
    if piece.part.rows >= 0 and stripe.num_rows != piece.part.rows:
        raise pa.ArrowInvalid(f"stripe {piece.part.number} has not {piece.part.rows} rows any more")
    start, stop = piece.rows(stripe.num_rows)
    return stripe.slice(start, stop - start)


def _equal_stripes(file: Any) -> list[Stripe]:
    """Return stripes of unknown rows, as long as each other."""
    length = file.content_length // max(1, file.nstripes)
    return [Stripe(-1, number * length, (number + 1) * length) for number in range(file.nstripes)]


def _opened(path: str) -> Any:
    system, inside = files.arrow_file(path)
    return system.open_input_file(inside)
