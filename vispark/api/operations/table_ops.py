"""Operations of a VRDD that make tables of its records: DataFrames and files."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from vispark._utils.lazy import LazyModule
from vispark.api.rdds.recorded_rdd import RecordedRDD

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, types

    from vispark.api.rdds import table_output
else:
    table_output = LazyModule("vispark.api.rdds.table_output")     # it imports Arrow and Spark SQL


def toDF(vrdd: RecordedRDD, schema: Any = None, sampleRatio: float | None = None) -> DataFrame:
    """Return a DataFrame of the records, by Arrow batches and without pandas.

    Its lineage is this VRDD's: Spark takes what workers hold, and computes from the RDD that was sent what they do
    not. Without types in the schema, the first partition that has records is computed at once; where none has, columns
    are those that :func:`from_dataframe` or a reader of files gave, as long as no operation changed the records.

    Parameters
    ----------
    schema : str, StructType, DataType, list of str, or None
        DDL text such as ``"x array<float>, y double"`` or a StructType: numbers are cast to its types. Names of
        columns alone, or nothing: each column has the type of its dtype, unsigned integers the next wider one.
        Records with fields take columns by name, some or all, others by place; 1-D arrays may be spread over as
        many columns.
    sampleRatio : float, optional
        Of no effect, as no record is looked at.

    Returns
    -------
    pyspark.sql.DataFrame
        Of dicts a column for each field; of tuples and pairs ``_1``, ``_2`` and so on; of numbers and arrays the
        column ``value``.

    Raises
    ------
    PlanError
        If pyarrow is missing, the schema does not fit the records, or these are no rows: of two dimensions or more,
        complex, with keys that are no column. At the action where it is found there.

    See Also
    --------
    from_dataframe, VRDD.write_parquet

    Examples
    --------
    >>> from pyspark.sql import SparkSession
    >>> spark = SparkSession(sc)
    >>> numbers = sc.parallelize([1.0, 2.0, 3.0]).cache("GPU")
    >>> numbers.vmap(lambda x: {"x": x, "y": x * x}).toDF().filter("y > 1").collect()
    [Row(x=2.0, y=4.0), Row(x=3.0, y=9.0)]
    """
    vrdd._keep_attached()
    return table_output.to_dataframe(vrdd, schema)


def write_parquet(vrdd: RecordedRDD, path: str | os.PathLike[str], compression: str = "snappy", *,
                  overwrite: bool = False, schema: str | types.StructType | None = None) -> None:
    """Write the records to Parquet files, one for each partition that has any, and ``_SUCCESS`` beside them.

    Tasks take the arrays from the workers. The directory comes to be as a whole when all files are written; of a
    URL, whose file system may not rename directories, ``_SUCCESS`` comes last. :func:`read_parquet` gives the same
    records: numbers and arrays are the column ``value``, fields of dicts are columns, places of tuples ``_1``, ...

    Parameters
    ----------
    path : str or path
        A directory that all nodes share, with nothing in it; or what fsspec knows.
    compression : str
        ``snappy``, ``zstd``, ``gzip``, ``lz4``, ``brotli`` or ``none``.
    overwrite : bool
        Whether to replace what is there, once the new files are written.
    schema : str or StructType, optional
        Names and types of the columns, as of :meth:`toDF`: with them a table without rows is written, too.

    Raises
    ------
    PlanError
        If pyarrow is missing, something is there, or the records are no rows of a table: of two dimensions or more,
        complex, or not alike in all partitions; if there are none, and no ``schema``.
    RecordError
        At the action, if a number does not fit the type that ``schema`` has for it.

    See Also
    --------
    read_parquet, VRDD.toDF

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp(), "squares")
    >>> sc.parallelize([1.0, 2.0, 3.0], 2).cache("GPU").vmap(lambda x: x * x).write_parquet(path)
    >>> sorted(file.name for file in path.iterdir())
    ['_SUCCESS', 'part-00000.parquet', 'part-00001.parquet']
    >>> read_parquet(sc, path).collect()
    [np.float64(1.0), np.float64(4.0), np.float64(9.0)]
    """
    table_output.write_parquet(vrdd, path, compression, overwrite=overwrite, schema=schema)
