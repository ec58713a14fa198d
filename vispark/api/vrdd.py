"""Virtual RDD: an RDD whose records live in GPU workers, and the table of what users call on it.

Each operation is a function of the :class:`~vispark.api.rdds.recorded_rdd.RecordedRDD` that it is called on, in the
module of its group; here it gets its name. What Spark is asked of a VRDD (a shuffle, a save) it is given by
:meth:`VRDD.recv`; what can be answered from cached data is answered by the workers, without a Spark job.
"""

from __future__ import annotations

from typing import Any

from pyspark import RDD

from vispark._utils.boundary import brief_errors
from vispark.api.actions import fetches, folds, publishing, sampling, statistics
from vispark.api.keys import keyed_operations, keyed_tables
from vispark.api.operations import device_ops, grid_ops, table_ops
from vispark.api.rdds import appearance, eager, plan_texts
from vispark.api.rdds.derived_rdd import derives
from vispark.api.rdds.recorded_rdd import RecordedRDD
from vispark.api.transformations import tells_of_transformations
from vispark.plan import ops


@tells_of_transformations
@derives
@brief_errors
class VRDD(RecordedRDD):
    """RDD whose records live in GPU workers; made by :func:`send` or ``cache("GPU")`` on an RDD.

    Every RDD method gives what it gives on the RDD that was sent. Nothing is sent or computed before an action.
    """

    # Copies, kernels and translated functions.
    send = device_ops.send
    htod = device_ops.htod
    dtoh = device_ops.dtoh
    exec = device_ops.exec_
    vmap = device_ops.vmap
    vreduce = device_ops.vreduce
    check_finite = device_ops.check_finite
    keys = device_ops.keys
    values = device_ops.values

    # Blocks of a grid.
    halo_extract = grid_ops.halo_extract
    halo_append = grid_ops.halo_append
    shuffle_halos = grid_ops.shuffle_halos
    iterate = grid_ops.iterate

    # Actions that workers answer.
    collect = fetches.collect
    take = fetches.take
    first = fetches.first
    isEmpty = fetches.isEmpty
    count = fetches.count
    toNumpy = fetches.toNumpy

    # Actions that Spark answers.
    collectAsMap = fetches.by_spark("collectAsMap")
    countApproxDistinct = fetches.by_spark("countApproxDistinct")
    foreach = fetches.by_spark("foreach")
    foreachPartition = fetches.by_spark("foreachPartition")
    lookup = fetches.by_spark("lookup")
    meanApprox = fetches.by_spark("meanApprox")
    reduceByKeyLocally = fetches.by_spark("reduceByKeyLocally")
    sumApprox = fetches.by_spark("sumApprox")

    # Folds.
    reduce = folds.reduce
    treeReduce = folds.treeReduce
    fold = folds.fold
    aggregate = folds.aggregate
    treeAggregate = folds.treeAggregate
    sum = folds.sum_
    min = folds.min_
    max = folds.max_
    mean = folds.mean
    reduceByKey = folds.reduceByKey
    reduced = keyed_operations.reduced

    # Operations by key and by order.
    partitionBy = keyed_operations.partitionBy
    sortByKey = keyed_operations.sortByKey
    sortBy = keyed_operations.sortBy
    groupByKey = keyed_operations.groupByKey
    rowsByKey = keyed_operations.rowsByKey
    join = keyed_operations.join
    cogroup = keyed_operations.cogroup
    filter = keyed_operations.filter_
    takeOrdered = keyed_operations.takeOrdered
    top = keyed_operations.top
    distinct = keyed_operations.distinct
    countByKey = keyed_operations.countByKey

    # Samples and statistics.
    sample = sampling.sample
    randomSplit = sampling.randomSplit
    takeSample = sampling.takeSample
    zipWithIndex = sampling.zipWithIndex
    zipWithUniqueId = sampling.zipWithUniqueId
    histogram = statistics.histogram
    quantile = statistics.quantile
    stats = statistics.stats
    countByValue = statistics.countByValue

    # Tables, and records for other applications.
    toDF = table_ops.toDF
    write_parquet = table_ops.write_parquet
    publish = publishing.publish

    # Texts.
    explain = plan_texts.explain
    explanation = plan_texts.explanation
    toDebugString = plan_texts.toDebugString
    __repr__ = appearance.text
    _repr_html_ = appearance.html
    _repr_mimebundle_ = appearance.mimebundle

    # What a recorded RDD leaves to modules above it.
    _begin = eager.begin
    _run_loop = grid_ops.run_loop
    _table = keyed_tables.table_of


def send(rdd: RDD[Any]) -> VRDD:
    """Return the VRDD of ``rdd.send()``; see :func:`vispark.api.patch_pyspark.install`."""
    return VRDD(rdd, ops.Send(), None)
