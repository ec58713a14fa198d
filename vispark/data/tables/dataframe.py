"""DataFrames as RDDs: Arrow batches from the JVM to the task, without an object for each row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from pyspark import RDD
from pyspark.serializers import NoOpSerializer
from pyspark.sql import DataFrame
from pyspark.sql import functions as sql

from gpu_worker.protocol.errors import PlanError, SparkConnectError
from vispark._utils.boundary import brief
from vispark.data.records.rows import Rows
from vispark.data.tables.arrow import pa, require
from vispark.data.tables.batches import BatchReader
from vispark.data.tables.columns_read import with_columns
from vispark.data.tables.selection import THE_DATAFRAME, Columns, Selection, check_ragged, select
from vispark.data.tables.types import of_spark


@brief
def from_dataframe(df: DataFrame, columns: Columns | None = None, dtype: Any = None,
                   nulls: Any = "error", *, ragged: bool = False) -> RDD[Any]:
    """Return the rows of a DataFrame as an RDD of numbers, arrays, or dicts of them.

    Spark ships the rows as Arrow batches, which become arrays in the Python workers; ``cache("GPU")`` takes these as
    they are. Spark's own plan is the lineage: what is lost is computed from the DataFrame again. A plan with a shuffle
    may run jobs here already, as adaptive execution does.

    Parameters
    ----------
    df : pyspark.sql.DataFrame
        Of a classic session. Its columns may be booleans, integers, floats, arrays of these, vectors of ``pyspark.ml``
        (sparse ones are made dense, unless ``ragged``), or structs of these, whose fields are called
        ``"struct.field"``.
    columns : str, sequence of str, or dict of str to these, optional
        Which columns, in which order. One gives NumPy scalars, or 1-D arrays where it is an array or a vector; several
        give dicts with a field for each. A dict names the fields; a list in it puts its columns side by side in 1-D
        arrays. Left out, all columns. Case counts as ``spark.sql.caseSensitive`` says, by default not, and a field is
        called as it was asked for.
    dtype : dtype, or dict of field to dtype, optional
        One dtype puts several columns side by side: records are 1-D arrays of it. With a dict of ``columns`` it is that
        of all fields, and as a dict itself that of the fields it names. Left out, each column keeps its own, and
        columns side by side take the one that NumPy promotes them to.
    nulls : "error", number, or dict of column to these
        What stands for a null, in an array and in place of a whole array too. As a dict, of the columns that it names;
        nulls of others are errors.
    ragged : bool
        Whether columns of arrays give 1-D arrays of several lengths, and those of vectors ``SparseVector``, without
        zeros or padding. Such a column is a record or a field of its own, and a null in place of a whole array is an
        error.

    Returns
    -------
    RDD
        A record for each row, in the DataFrame's partitions: a scalar of NumPy's, a 1-D array of shape (columns,) or a
        dict of these by field, of ``dtype`` or that of the columns, as ``columns`` says.

    Raises
    ------
    PlanError
        If pyarrow is missing, or an argument does not fit the DataFrame: a column that is not there or there twice.
    RecordError
        If a column holds no numbers; the message says what to select instead. At an action, if there is a null or
        arrays differ in length; it names column, partition and row. An action of a DataFrame that is made of the RDD
        raises Spark's own error, with this one in its text.
    SparkConnectError
        If the DataFrame is one of Spark Connect.

    See Also
    --------
    VRDD.toDF, read_parquet, read_text

    Examples
    --------
    >>> from pyspark.sql import SparkSession
    >>> df = SparkSession(sc).createDataFrame([(1.0, 2.0, 3), (4.0, 5.0, 6)], "x double, y double, k long")
    >>> from_dataframe(df, columns=["x", "y"], dtype="float32").cache("GPU").vmap(lambda p: p.sum()).collect()
    [np.float32(3.0), np.float32(9.0)]
    >>> from_dataframe(df).cache("GPU").vmap(lambda x, k: x * k).sum()
    np.float64(27.0)
    """
    require("from_dataframe")
    _check(df)
    selection = select([(field.name, of_spark(field.dataType)) for field in df.schema.fields], columns, dtype, nulls,
                       THE_DATAFRAME, is_case_sensitive=df.sparkSession.conf.get("spark.sql.caseSensitive") == "true")
    if ragged:
        check_ragged(selection)
    chosen = _chosen(df, selection)
    return with_columns(arrow_batches(chosen).mapPartitions(BatchTask(selection, ragged)), selection, is_ragged=ragged)


def arrow_batches(df: DataFrame) -> RDD[bytes]:
    """Return the rows of a DataFrame of a classic session as messages, each a record batch of Arrow."""
    return RDD(df._jdf.toArrowBatchRdd().toJavaRDD(), df.sparkSession.sparkContext, NoOpSerializer())


def _check(df: Any) -> None:
    if not isinstance(df, DataFrame):
        if type(df).__module__.startswith("pyspark.sql.connect"):
            raise SparkConnectError("from_dataframe needs a DataFrame of a classic session; one of Spark Connect has "
                                    "no RDDs")
        raise PlanError(f"from_dataframe takes a pyspark.sql.DataFrame, and not a {type(df).__name__}")
    if not hasattr(df, "_jdf"):
        raise SparkConnectError("from_dataframe needs a DataFrame of a classic session; one of Spark Connect has no "
                                "RDDs")
    if df.isStreaming:
        raise PlanError("from_dataframe takes no streaming DataFrame; use foreachBatch, and the DataFrame it gives")


def _chosen(df: DataFrame, selection: Selection) -> DataFrame:
    """Return the DataFrame of the selected columns alone; names do not matter, as two columns may differ in case."""
    names = [field.name for field in df.schema.fields]
    plain = df.toDF(*[f"c{number}" for number in range(len(names))])
    chosen = []
    for number, spec in enumerate(selection.columns):
        column = plain[f"c{names.index(spec.path[0])}"]
        for inner in spec.path[1:]:
            column = column.getField(inner)
        chosen.append(column.alias(f"v{number}"))
    return plain.select(*chosen or [sql.lit(0)])


@dataclass(frozen=True)
class BatchTask:
    """Task that reads the Arrow batches of a partition."""

    selection: Selection
    is_ragged: bool = False

    def __call__(self, messages: Iterable[bytes]) -> Rows:
        return Rows(self._arrays(messages))

    def _arrays(self, messages: Iterable[bytes]) -> Iterator[Any]:
        schema = pa.schema([(f"v{number}", spec.type.arrow()) for number, spec in enumerate(self.selection.columns)])
        reader = BatchReader(self.selection, is_ragged=self.is_ragged)
        for message in messages:
            yield from reader.arrays(pa.ipc.read_record_batch(pa.py_buffer(message), schema))
