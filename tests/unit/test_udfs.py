"""Tasks of functions over columns, without Spark: joined batches, nulls, types of results."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from pyspark.sql import types as spark

import vispark
from vispark.api.udfs.returns import ReturnType, check_type, ddl
from vispark.api.udfs.task import UdfParameters, UdfTask
from vispark.data.tables.output import OutputColumn
from vispark.errors import PlanError, RecordError
from vispark.translate.frontend.reader import trace

pa = pytest.importorskip("pyarrow")

PARAMETERS = UdfParameters("added", ("x", "y"), ("price", "rate"))
RETURNS = ReturnType("added", spark.DoubleType())


@dataclass
class Adding:
    """Computation that notes how many batches and rows it is given at a time."""

    sizes: list[tuple[int, int]] = field(default_factory=list)

    def __call__(self, batches: list[Any]) -> Any:
        self.sizes.append((len(batches), sum(batch.num_rows for batch in batches)))
        return pa.chunked_array([pa.compute.add(*batch.columns) for batch in batches]).combine_chunks()


def task(nbytes: int) -> tuple[UdfTask, Adding]:
    computation = Adding()
    return UdfTask(computation, PARAMETERS, RETURNS, nbytes), computation


def test_batches_are_joined_up_to_the_bytes_and_nulls_are_left_out():
    udf, computation = task(160)
    batches = [(pa.array([1.0, 2.0, 3.0, 4.0]), pa.array([10.0, 20.0, 30.0, 40.0]))] * 5
    batches[1] = pa.array([None, 2.0, 3.0, 4.0]), pa.array([10.0, 20.0, None, 40.0])
    results = list(udf(batches))
    assert [len(each) for each in results] == [12, 8]
    assert results[0].to_pylist() == [11, 22, 33, 44, None, 22, None, 44, 11, 22, 33, 44]
    assert computation.sizes == [(3, 10), (2, 8)]


def test_the_next_batches_are_read_while_one_is_computed():
    is_read = threading.Event()

    def waiting(batches: list[Any]) -> Any:
        assert is_read.wait(10)
        return batches[0].column(0)

    def given() -> Iterator[Any]:
        for number in (1.0, 2.0, 3.0):
            if number == 2:
                is_read.set()
            yield pa.array([number]), pa.array([0.0])

    udf = replace(task(1)[0], compute=waiting)
    assert [each.to_pylist() for each in udf(given())] == [[1], [2], [3]]
    is_read.clear()
    few = udf((pa.array([number]), pa.array([0.0])) for number in (1.0, 2.0))
    is_read.set()
    assert next(few).to_pylist() == [1]
    few.close()


def test_the_first_batches_are_of_fewer_bytes():
    udf, computation = task(64 << 20)
    list(udf([(pa.array(np.zeros(1 << 17)), pa.array(np.zeros(1 << 17)))] * 20))
    assert [batches for batches, _ in computation.sizes] == [2, 4, 8, 6]


def test_rows_of_nulls_alone_are_not_computed():
    udf, computation = task(1)
    results = list(udf([(pa.nulls(3, pa.float64()), pa.array([1.0, 2.0, 3.0]))]))
    assert [each.to_pylist() for each in results] == [[None] * 3]
    assert results[0].type == pa.float64()
    assert computation.sizes == []


@pytest.mark.parametrize(("kind", "message"), [
    (pa.string(), "'price', its parameter x, is string: leave it out; where it holds numbers, col(\"price\")"),
    (pa.date32(), 'unix_date("price")'),
    (pa.decimal128(10, 2), 'col("price").cast("double")'),
    (pa.timestamp("us"), 'col("price").cast("double")'),
    (pa.struct([("a", pa.float64())]), "give its fields as columns of their own"),
])
def test_columns_without_numbers_are_named_with_what_to_cast(kind, message):
    with pytest.raises(RecordError) as error:
        PARAMETERS.selection([kind, pa.float64()])
    assert message in str(error.value)


def test_a_decimal_of_sql_is_told_by_its_parameter():
    with pytest.raises(RecordError, match=r"what SQL gives for its parameter y is decimal128\(2, 1\): .* as 3.9D"):
        UdfParameters("added", ("x", "y")).selection([pa.float64(), pa.decimal128(2, 1)])


def test_a_result_that_does_not_fit_names_the_function():
    returns = ReturnType("added", spark.ByteType())
    with pytest.raises(RecordError, match=r"added is declared to return tinyint, and gives .*300 not in range"):
        returns._batch(spark.StructType([spark.StructField("value", spark.ByteType())]),
                       [OutputColumn("value", np.array([300]))])


def test_a_function_over_columns_is_translated_inside_others():
    @vispark.udf("double")
    def doubled(x):
        return 2 * x

    assert trace(doubled).definition.parameters == trace(lambda x: doubled(x) + 1).definition.parameters


@pytest.mark.parametrize("kind", [
    spark.StringType(), spark.DateType(), spark.DecimalType(10, 2), spark.ArrayType(spark.StringType()),
    spark.StructType([]), spark.StructType([spark.StructField("a", spark.StringType())]),
    spark.MapType(spark.LongType(), spark.LongType()), spark.ArrayType(spark.ArrayType(spark.LongType()))])
def test_return_types_that_no_kernel_gives(kind):
    with pytest.raises(PlanError, match="a translated function returns numbers"):
        check_type(kind, "f")


def test_results_are_told_as_spark_writes_types():
    numbers = OutputColumn("value", np.zeros(2))
    assert ddl([numbers]) == "double"
    assert ddl([OutputColumn("k", np.zeros((2, 3), "f4")), OutputColumn("s", (OutputColumn("a", np.zeros(2, "?")),))]) \
        == "struct<k:array<float>,s:struct<a:boolean>>"
