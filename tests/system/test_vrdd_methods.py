"""Every public method of an RDD gives the same on a VRDD, or is excused here by name and reason."""

from __future__ import annotations

import inspect
import operator
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from py4j.protocol import Py4JJavaError
from pyspark import RDD, SparkContext, StorageLevel
from pyspark.resource import ResourceProfileBuilder, TaskResourceRequests
from pyspark.sql import SparkSession

from tests.system.topology import Topology
from tests.system.vrdd_tools import exact, host_context, in_partitions, multiset
from vispark import VRDD, TaskError

NUMBERS = [[3.0, 1.0, 2.5], [], [1.0, -4.0, 0.5]]
PAIRS = [[(1, 1.5), (2, 2.5)], [], [(1, -3.5), (3, 0.5), (2, 2.5)]]
OTHERS = [(1, 10), (4, 40), (2, 20)]
ROWS = [[np.float32([1, 2, 3]), np.float32([4, 5, 6])], [], [np.float32([7, 8, 9])]]

#: Methods whose whole meaning is another one on a VRDD.
EXCUSED = {
    "cache": 'without an argument it is about the GPU on a VRDD, as DESIGN.md has it; its records are tested here',
    "persist": "as cache",
    "unpersist": "as cache; see test_vrdd.py for what it frees",
    "getStorageLevel": 'cache("GPU") is the change itself; MEMORY_ONLY is what it says then',
    "id": "numbers of two RDDs differ",
    "toDebugString": "shows the plan too; see test_vrdd.py",
}


@pytest.fixture(scope="module")
def sc(local: Topology) -> Iterator[SparkContext]:
    with host_context(local) as context:
        session = SparkSession(context)     # adds RDD.toDF, and starts what Spark SQL keeps
        session.createDataFrame([(1, 2)], ["a", "b"]).collect()
        yield context


def ordered(action: Callable[[RDD], object]) -> Callable[[RDD, Path], object]:
    """Return a case of an action, whose result is in order."""
    return lambda rdd, _: exact(action(rdd))


def collected(transformation: Callable[[RDD], RDD]) -> Callable[[RDD, Path], object]:
    """Return a case of a transformation, whose records are in their partitions and their order."""
    return lambda rdd, _: exact(transformation(rdd).glom().collect())


def shuffled(transformation: Callable[[RDD], RDD]) -> Callable[[RDD, Path], object]:
    """Return a case of a transformation, whose records are a multiset."""
    return lambda rdd, _: multiset(transformation(rdd).collect())


def saved(save: Callable[[RDD, str], None], read: Callable[[SparkContext, str], RDD]) -> Callable[[RDD, Path], object]:
    """Return a case of a method that saves, whose records are read again as a multiset: files come in any order."""
    def case(rdd: RDD, directory: Path) -> object:
        path = str(directory / ("vrdd" if isinstance(rdd, VRDD) else "rdd"))
        save(rdd, path)
        return multiset(read(rdd.ctx, path).collect())
    return case


def other(rdd: RDD) -> RDD:
    return rdd.ctx.parallelize(OTHERS, 2)


def count_in(accumulate: Callable[[RDD, Callable], None]) -> Callable[[RDD, Path], object]:
    """Return a case of a method without a result, seen by an accumulator."""
    def case(rdd: RDD, _: Path) -> object:
        total = rdd.ctx.accumulator(0.0)
        accumulate(rdd, total.add)
        return total.value
    return case


def stay(records: Iterator) -> Iterator:
    return iter(list(records))


def deprecated(method: Callable[[RDD], object]) -> Callable[[RDD], object]:
    def quietly(rdd: RDD) -> object:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return method(rdd)
    return quietly


def barrier(rdd: RDD, _: Path) -> object:
    """Run a barrier stage on as many partitions as there are slots, which it needs."""
    two = rdd.ctx.parallelize([3.0, 1.0, 2.5, -1.0], 2)
    return exact((two.cache("GPU") if isinstance(rdd, VRDD) else two).barrier().mapPartitions(stay).collect())


def checkpointed(method: str) -> Callable[[RDD, Path], object]:
    def case(rdd: RDD, directory: Path) -> object:
        rdd.ctx.setCheckpointDir(str(directory))
        derived = rdd.map(lambda x: x + 1)
        derived.checkpoint() if method == "checkpoint" else derived.localCheckpoint()
        getattr(rdd, method)()
        before = rdd.isCheckpointed(), rdd.isLocallyCheckpointed()
        values = derived.collect(), rdd.collect(), rdd.collect()
        path = rdd.getCheckpointFile() if method == "checkpoint" else None
        return exact([before, values, rdd.isCheckpointed(), rdd.isLocallyCheckpointed(), path and Path(path).exists()])
    return case


def with_resources(rdd: RDD, _: Path) -> object:
    """Local mode takes no profile; on a VRDD that is so as soon as its tasks are asked for."""
    profile = ResourceProfileBuilder().require(TaskResourceRequests().cpus(1)).build
    with pytest.raises(Py4JJavaError, match="TaskResourceProfiles are only supported") as raised:
        rdd.map(abs).withResources(profile).collect()
    return raised.value.java_exception.getClass().getName()


def lookup(rdd: RDD, _: Path) -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONHASHSEED", "0")     # PySpark wants it where a partitioner is asked for a key's partition
        return exact((rdd.lookup(1), rdd.lookup(9), rdd.partitionBy(2).lookup(2)))


OLD = "org.apache.hadoop.mapred.SequenceFileOutputFormat"
NEW = "org.apache.hadoop.mapreduce.lib.output.SequenceFileOutputFormat"
KEY, VALUE = "org.apache.hadoop.io.IntWritable", "org.apache.hadoop.io.DoubleWritable"


def read_sequence(sc: SparkContext, path: str) -> RDD:
    return sc.sequenceFile(path)


def save_old(rdd: RDD, path: str) -> None:
    rdd.saveAsHadoopDataset({"mapred.output.format.class": OLD, "mapred.output.key.class": KEY,
                             "mapred.output.value.class": VALUE, "mapred.output.dir": path})


def save_new(rdd: RDD, path: str) -> None:
    rdd.saveAsNewAPIHadoopDataset({"mapreduce.job.outputformat.class": NEW, "mapreduce.job.output.key.class": KEY,
                                   "mapreduce.job.output.value.class": VALUE,
                                   "mapreduce.output.fileoutputformat.outputdir": path})


ON_NUMBERS = {
    "aggregate": ordered(lambda r: r.aggregate((0.0, 0), lambda a, x: (a[0] + x, a[1] + 1),
                                               lambda a, b: (a[0] + b[0], a[1] + b[1]))),
    "barrier": barrier,
    "cartesian": shuffled(lambda r: r.cartesian(r.ctx.parallelize([1, 2], 1))),
    "checkpoint": checkpointed("checkpoint"),
    "cleanShuffleDependencies": lambda r, _: r.cleanShuffleDependencies(blocking=True),
    "coalesce": collected(lambda r: r.coalesce(2)),
    "collect": ordered(lambda r: r.collect()),
    "collectWithJobGroup": ordered(deprecated(lambda r: r.collectWithJobGroup("a group", "a description"))),
    "context": lambda r, _: r.context is r.ctx,
    "count": ordered(lambda r: r.count()),
    "countApprox": ordered(lambda r: r.countApprox(60_000)),
    "countApproxDistinct": ordered(lambda r: r.countApproxDistinct(0.01)),
    "countByValue": ordered(lambda r: sorted(r.countByValue().items())),
    "distinct": shuffled(lambda r: r.distinct()),
    "filter": collected(lambda r: r.filter(lambda x: x > 0)),
    "first": ordered(lambda r: r.first()),
    "flatMap": collected(lambda r: r.flatMap(lambda x: [x, int(x)])),
    "fold": ordered(lambda r: r.fold(0.0, operator.add)),
    "foreach": count_in(lambda r, add: r.foreach(add)),
    "foreachPartition": count_in(lambda r, add: r.foreachPartition(lambda records: add(sum(records)))),
    "getCheckpointFile": lambda r, _: r.getCheckpointFile(),
    "getNumPartitions": ordered(lambda r: r.getNumPartitions()),
    "getResourceProfile": lambda r, _: r.getResourceProfile(),
    "glom": ordered(lambda r: r.glom().collect()),
    "groupBy": shuffled(lambda r: r.groupBy(lambda x: x > 1, 2)),
    "histogram": ordered(lambda r: r.histogram(3)),
    "intersection": shuffled(lambda r: r.intersection(r.ctx.parallelize([1.0, 2.5, 9.0], 2))),
    "isCheckpointed": lambda r, _: r.isCheckpointed(),
    "isEmpty": ordered(lambda r: (r.isEmpty(), r.filter(lambda x: x > 99).isEmpty())),
    "isLocallyCheckpointed": lambda r, _: r.isLocallyCheckpointed(),
    "keyBy": collected(lambda r: r.keyBy(int)),
    "localCheckpoint": checkpointed("localCheckpoint"),
    "map": collected(lambda r: r.map(lambda x: x * 2)),
    "mapPartitions": collected(lambda r: r.mapPartitions(lambda records: [sum(records)])),
    "mapPartitionsWithIndex": collected(lambda r: r.mapPartitionsWithIndex(lambda i, records: [(i, sum(records))])),
    "mapPartitionsWithSplit": collected(deprecated(
        lambda r: r.mapPartitionsWithSplit(lambda index, records: [(index, sum(records))]))),
    "max": ordered(lambda r: (r.max(), r.max(key=lambda x: -x))),
    "mean": ordered(lambda r: r.mean()),
    "meanApprox": ordered(lambda r: r.meanApprox(60_000)),
    "min": ordered(lambda r: (r.min(), r.min(key=abs))),
    "name": ordered(lambda r: (r.name(), r.setName("numbers").name())),
    "pipe": collected(lambda r: r.pipe("cat")),
    "randomSplit": ordered(lambda r: [part.collect() for part in r.randomSplit([1, 2], seed=3)]),
    "reduce": ordered(lambda r: (r.reduce(operator.add), r.reduce(max), r.reduce(lambda a, b: a - b))),
    "repartition": shuffled(lambda r: r.repartition(3)),
    "sample": collected(lambda r: r.sample(False, 0.5, seed=3)),
    "sampleStdev": ordered(lambda r: r.sampleStdev()),
    "sampleVariance": ordered(lambda r: r.sampleVariance()),
    "saveAsPickleFile": saved(lambda r, path: r.saveAsPickleFile(path), lambda sc, path: sc.pickleFile(path)),
    "saveAsTextFile": saved(lambda r, path: r.saveAsTextFile(path), lambda sc, path: sc.textFile(path)),
    "setName": lambda r, _: r.setName("numbers") is r,
    "sortBy": collected(lambda r: r.sortBy(lambda x: x, numPartitions=2)),
    "stats": ordered(lambda r: r.stats().asDict()),
    "stdev": ordered(lambda r: r.stdev()),
    "subtract": shuffled(lambda r: r.subtract(r.ctx.parallelize([1.0], 1))),
    "sum": ordered(lambda r: r.sum()),
    "sumApprox": ordered(lambda r: r.sumApprox(60_000)),
    "take": ordered(lambda r: [r.take(number) for number in (0, 1, 3, 100)]),
    "takeOrdered": ordered(lambda r: r.takeOrdered(3, key=lambda x: -x)),
    "takeSample": ordered(lambda r: r.takeSample(False, 3, seed=5)),
    "toLocalIterator": ordered(lambda r: list(r.toLocalIterator(prefetchPartitions=True))),
    "top": ordered(lambda r: r.top(2)),
    "treeAggregate": ordered(lambda r: r.treeAggregate(0.0, operator.add, operator.add)),
    "treeReduce": ordered(lambda r: r.treeReduce(operator.add)),
    "union": collected(lambda r: r.union(r.ctx.parallelize([7.0], 1))),
    "variance": ordered(lambda r: r.variance()),
    "withResources": with_resources,
    "zip": collected(lambda r: r.zip(r.map(str))),
    "zipWithIndex": collected(lambda r: r.zipWithIndex()),
    "zipWithUniqueId": collected(lambda r: r.zipWithUniqueId()),
}

ON_PAIRS = {
    "aggregateByKey": shuffled(lambda r: r.aggregateByKey(0.0, operator.add, operator.add, 2)),
    "cogroup": shuffled(lambda r: r.cogroup(other(r), 2)),
    "collectAsMap": ordered(lambda r: sorted(r.filter(lambda pair: pair[1] > 0).collectAsMap().items())),
    "combineByKey": shuffled(lambda r: r.combineByKey(str, lambda a, x: a + str(x), operator.add, 2)
                             .mapValues(lambda text: sorted(text))),
    "countByKey": ordered(lambda r: sorted(r.countByKey().items())),
    "flatMapValues": collected(lambda r: r.flatMapValues(lambda x: [x, -x])),
    "foldByKey": shuffled(lambda r: r.foldByKey(0.0, operator.add, 2)),
    "fullOuterJoin": shuffled(lambda r: r.fullOuterJoin(other(r), 2)),
    "groupByKey": shuffled(lambda r: r.groupByKey(2)),
    "groupWith": shuffled(lambda r: r.groupWith(other(r), r)),
    "join": shuffled(lambda r: r.join(other(r), 2)),
    "keys": collected(lambda r: r.keys()),
    "leftOuterJoin": shuffled(lambda r: r.leftOuterJoin(other(r), 2)),
    "lookup": lookup,
    "mapValues": collected(lambda r: r.mapValues(lambda x: x * 2)),
    "partitionBy": lambda r, _: [multiset(part) for part in r.partitionBy(2).glom().collect()],
    "reduceByKey": shuffled(lambda r: r.reduceByKey(operator.add, 2)),
    "reduceByKeyLocally": ordered(lambda r: sorted(r.reduceByKeyLocally(operator.add).items())),
    "repartitionAndSortWithinPartitions": collected(
        lambda r: r.repartitionAndSortWithinPartitions(2).map(operator.itemgetter(0))),
    "rightOuterJoin": shuffled(lambda r: r.rightOuterJoin(other(r), 2)),
    "sampleByKey": collected(lambda r: r.sampleByKey(False, {1: 0.5, 2: 0.5, 3: 1.0}, seed=3)),
    "saveAsHadoopDataset": saved(save_old, read_sequence),
    "saveAsHadoopFile": saved(lambda r, path: r.saveAsHadoopFile(path, OLD), read_sequence),
    "saveAsNewAPIHadoopDataset": saved(save_new, read_sequence),
    "saveAsNewAPIHadoopFile": saved(lambda r, path: r.saveAsNewAPIHadoopFile(path, NEW, KEY, VALUE), read_sequence),
    "saveAsSequenceFile": saved(lambda r, path: r.saveAsSequenceFile(path), read_sequence),
    "sortByKey": collected(lambda r: r.sortByKey(False, 2).map(operator.itemgetter(0))),
    "subtractByKey": shuffled(lambda r: r.subtractByKey(r.ctx.parallelize([(1, 0)], 1), 2)),
    "toDF": ordered(lambda r: [tuple(row) for row in r.toDF(["key", "value"]).collect()]),
    "values": collected(lambda r: r.values()),
}

#: Those that have a way of their own through the workers, on arrays.
ON_ROWS = {
    "collect": ordered(lambda r: r.collect()),
    "first": ordered(lambda r: r.first()),
    "glom": ordered(lambda r: r.glom().collect()),
    "isEmpty": ordered(lambda r: r.isEmpty()),
    "keys": collected(lambda r: r.keys()),
    "map": collected(lambda r: r.map(lambda row: row * 2)),
    "max": ordered(lambda r: r.max(key=lambda row: row[0])),
    "reduce": ordered(lambda r: (r.reduce(operator.add), r.reduce(np.maximum), r.reduce(lambda a, b: a - b))),
    "sum": ordered(lambda r: r.sum()),
    "take": ordered(lambda r: [r.take(number) for number in (0, 1, 3, 100)]),
    "toLocalIterator": ordered(lambda r: list(r.toLocalIterator())),
    "values": collected(lambda r: r.values()),
}

# Of tuples of several types, and of tuples with rows in them.
ON_TUPLES = {
    "filter": collected(lambda r: r.filter(lambda t: t[0] > 1)),
    "map": collected(lambda r: r.map(lambda t: (t[0], t[-1] * 2, t[0] % 2))),
    "sample": collected(lambda r: r.sample(False, 0.5, 3)),
    "sortBy": collected(lambda r: r.sortBy(lambda t: -t[0], numPartitions=2)),
    "take": ordered(lambda r: [r.take(number) for number in (0, 1, 3, 100)]),
    "takeOrdered": ordered(lambda r: r.takeOrdered(2, key=lambda t: -t[0])),
}
TUPLES = [[(1, 0.5, True), (3, 1.5, False)], [], [(2, 2.5, True)]]
TUPLES_WITH_ROWS = [[(1, np.float32([1, 2]), 0.5), (3, np.float32([3, 4]), 1.5)], [], [(2, np.float32([5, 6]), 2.5)]]

CASES = [(name, data, case) for data, cases in ((NUMBERS, ON_NUMBERS), (PAIRS, ON_PAIRS), (ROWS, ON_ROWS),
                                                (TUPLES, ON_TUPLES), (TUPLES_WITH_ROWS, ON_TUPLES))
         for name, case in cases.items()]
KIND = {id(NUMBERS): "numbers", id(PAIRS): "pairs", id(ROWS): "rows", id(TUPLES): "tuples",
        id(TUPLES_WITH_ROWS): "tuples with rows"}


def of_pyspark(name: str) -> bool:
    """Return whether PySpark has this method of RDD, not vispark alone."""
    method = inspect.unwrap(getattr(RDD, name))
    return not getattr(method, "__module__", "").startswith("vispark")


def test_every_public_method_is_in_the_table(sc: SparkContext):
    public = {name for name in dir(RDD) if not name.startswith("_") and of_pyspark(name)}
    assert public - {"toDF"} == (ON_NUMBERS.keys() | ON_PAIRS.keys() | EXCUSED.keys()) - {"toDF"}
    assert not EXCUSED.keys() & (ON_NUMBERS.keys() | ON_PAIRS.keys())
    assert all(callable(getattr(VRDD, name)) or name == "context" for name in public)


@pytest.mark.parametrize(("data", "case"), [pytest.param(data, case, id=f"{name}-{KIND[id(data)]}")
                                            for name, data, case in CASES])
def test_the_same_with_and_without_the_gpu(sc: SparkContext, tmp_path: Path, data: list[list], case: Callable):
    expected = case(in_partitions(sc, data), tmp_path)
    vrdd = in_partitions(sc, data).cache("GPU")
    assert case(vrdd, tmp_path) == expected
    vrdd.unpersist()


def kept(mark: Callable[[RDD], object]) -> Callable[[RDD, Path], object]:
    """Return a case of an RDD's own state before and after its records were collected, twice."""
    def case(rdd: RDD, directory: Path) -> object:
        rdd.ctx.setCheckpointDir(str(directory))
        mark(rdd)
        states = []
        for _ in range(3):
            states.append((rdd.isCheckpointed(), rdd.isLocallyCheckpointed(), str(rdd.getStorageLevel()), rdd.is_cached,
                           rdd.id() in rdd.ctx._jsc.getPersistentRDDs(), rdd.getCheckpointFile() is None, rdd.name()))
            states.append(exact((rdd.collect(), rdd.map(lambda x: x * 3).collect())))
        return states
    return case


ON_MAPPED = {
    "checkpoint": kept(lambda r: r.checkpoint()),
    "localCheckpoint": kept(lambda r: r.localCheckpoint()),
    "persist": kept(lambda r: r.persist(StorageLevel.MEMORY_AND_DISK)),
    "persist behind collect": kept(lambda r: (r.collect(), r.persist())),
    "setName": kept(lambda r: r.setName("numbers")),
    "unpersist": kept(lambda r: r.persist().unpersist(blocking=True)),
}


@pytest.mark.parametrize("name", ON_MAPPED)
def test_what_was_mapped_from_the_gpu_is_marked_itself(sc: SparkContext, tmp_path: Path, name: str):
    plain = in_partitions(sc, NUMBERS)
    held = in_partitions(sc, NUMBERS).cache("GPU")
    assert ON_MAPPED[name](held.map(lambda x: x + 1), tmp_path) == ON_MAPPED[name](plain.map(lambda x: x + 1), tmp_path)
    held.unpersist()


def test_what_take_meets_is_short_too(sc):
    failing = sc.parallelize([1.0, 2.0], 2).cache("GPU").map(lambda x: x / 0)
    with pytest.raises(TaskError, match="ZeroDivisionError: float division by zero") as caught:
        failing.take(1)
    assert isinstance(caught.value, Py4JJavaError) and len(str(caught.value).splitlines()) < 5
    assert "invoke_udf" in caught.value.full_trace or "pyspark/worker.py" in caught.value.full_trace
    assert "x / 0" in caught.value.detail
