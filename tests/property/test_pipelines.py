"""Any pipeline gives the same with and without ``cache("GPU")``, and wherever transfers stand in it.

``VISPARK_EXAMPLES`` sets how many pipelines are tried.
"""

from __future__ import annotations

import functools
import operator
import os
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, note, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from pyspark import RDD, SparkContext

from tests.system.topology import Topology
from tests.system.vrdd_tools import exact, host_context, in_partitions, multiset
from vispark import IN, OUT, VRDD, Kernels, attach

EXAMPLES = int(os.environ.get("VISPARK_EXAMPLES", "20"))

COPY = Kernels("""
extern "C" __global__ void copy(const void* x, void* y, int n)
{ for (int i = threadIdx.x; i < n; i += blockDim.x) ((char*)y)[i] = ((const char*)x)[i]; }
""").copy


@pytest.fixture(scope="module")
def sc(local: Topology) -> Iterator[SparkContext]:
    with host_context(local) as context:
        yield context


# -- records ----------------------------------------------------------------------------------------------------------

DTYPES = [np.dtype(order + char) for char in "?bhilBHILefdFD" for order in "<>"]
NATIVE = [dtype for dtype in DTYPES if dtype.isnative]


def leaf(dtype: np.dtype) -> st.SearchStrategy:
    """Small numbers, so that nothing overflows where it is doubled a few times; NaN and infinities among floats."""
    small = st.integers(0, 3) if dtype.kind in "ub" else st.integers(-3, 3)
    if dtype.kind in "fc":
        small |= st.sampled_from([0.5, -0.0, float("nan"), float("inf")])
    return small.map(lambda number: np.array(number).astype(dtype)[()])


def arrays(dtype: np.dtype, shape: tuple[int, ...]) -> st.SearchStrategy:
    return hnp.arrays(dtype, shape, elements=leaf(dtype.newbyteorder("=")), fill=st.nothing())


PYTHON = st.sampled_from([st.integers(-3, 3), st.booleans(), st.sampled_from([0.5, -1.5, float("nan"), float("-inf")]),
                          st.sampled_from([1j, 0.5 - 2j])])


@st.composite
def values(draw, form: str) -> st.SearchStrategy:
    """Return a strategy for the values of a partition: alike, as they must be."""
    if form == "number":
        return draw(PYTHON)
    if form == "scalar":
        return leaf(draw(st.sampled_from(NATIVE)))
    if form == "row":
        return arrays(draw(st.sampled_from(DTYPES)), (draw(st.integers(0, 4)),))
    if form == "block":
        dtype = draw(st.sampled_from(DTYPES))
        return st.tuples(st.integers(0, 3), st.integers(1, 3)).flatmap(lambda shape: arrays(dtype, shape))
    if form == "tuple":
        return st.tuples(*draw(st.lists(PYTHON, min_size=3, max_size=4)))
    fields = {name: draw(values(draw(st.sampled_from(["number", "scalar", "row", "block"]))))
              for name in draw(st.sampled_from([["x"], ["x", "y"]]))}
    return st.fixed_dictionaries(fields)


@dataclass(frozen=True)
class Records:
    """Records by partition, and what form their values have."""

    form: str
    keyed: bool
    partitions: list[list]


@st.composite
def datasets(draw) -> Records:
    form = draw(st.sampled_from(["number", "scalar", "row", "block", "tuple", "dict"]))
    keyed = draw(st.booleans())
    partitions = []
    for _ in range(draw(st.integers(1, 3))):
        value = draw(values(form))
        record = st.tuples(st.integers(0, 3) | st.sampled_from(["a", (1, "b")]), value) if keyed else value
        partitions.append(draw(st.lists(record, max_size=4)))
    return Records(form, keyed, partitions)


# -- operations of an RDD ---------------------------------------------------------------------------------------------

def digest(record: object) -> int:
    """Return a number that equal records share."""
    return zlib.crc32(repr(exact(record)).encode())


def doubled(value: object) -> object:
    if isinstance(value, dict):
        return {name: doubled(each) for name, each in value.items()}
    if isinstance(value, tuple):
        return tuple(map(doubled, value))
    with np.errstate(all="ignore"):
        return value + value


def double(record: object, keyed: bool) -> object:
    return (record[0], doubled(record[1])) if keyed else doubled(record)


@dataclass(frozen=True)
class PipelineStep:
    """One operation: of Spark, or (marked by ``gpu``) one that changes nothing but where the data is."""

    name: str
    apply: Callable[[RDD, bool], RDD]
    gpu: bool = False

    def __repr__(self) -> str:
        return self.name


STEPS = [
    PipelineStep("map", lambda rdd, keyed: rdd.map(lambda record: double(record, keyed))),
    PipelineStep("filter", lambda rdd, _: rdd.filter(lambda record: digest(record) % 3)),
    PipelineStep("flatMap", lambda rdd, _: rdd.flatMap(lambda record: [record] * (digest(record) % 3))),
    PipelineStep("mapPartitions", lambda rdd, _: rdd.mapPartitions(lambda records: list(records)[::-1])),
    PipelineStep("sample", lambda rdd, _: rdd.sample(True, 0.8, seed=11)),
    PipelineStep("drawn", lambda rdd, _: rdd.sample(False, 0.6, seed=5)),
    PipelineStep("split", lambda rdd, _: rdd.randomSplit([3, 1, 2], seed=7)[0]),
    PipelineStep("union", lambda rdd, _: rdd.union(rdd)),
    PipelineStep("coalesce", lambda rdd, _: rdd.coalesce(2)),
    PipelineStep("cache", lambda rdd, _: rdd if isinstance(rdd, VRDD) else rdd.cache()),
]
TRANSFERS = [
    PipelineStep("send", lambda rdd, _: rdd if isinstance(rdd, VRDD) else rdd.send(), True),
    PipelineStep('cache("GPU")', lambda rdd, _: rdd.cache("GPU"), True),
    PipelineStep("htod", lambda rdd, _: rdd.htod() if isinstance(rdd, VRDD) else rdd.send().htod(), True),
    PipelineStep("dtoh", lambda rdd, _: rdd.dtoh() if isinstance(rdd, VRDD) else rdd, True),
    PipelineStep("recv", lambda rdd, _: rdd.recv() if isinstance(rdd, VRDD) else rdd, True),
    PipelineStep("uncache", lambda rdd, _: rdd.uncache() if isinstance(rdd, VRDD) else rdd, True),
    PipelineStep("count", lambda rdd, _: counted(rdd), True),
    PipelineStep("exec", lambda rdd, _: copied(rdd) if isinstance(rdd, VRDD) else rdd, True),
]


def counted(rdd: RDD) -> RDD:
    """Run an action on an RDD, and return it."""
    rdd.count()
    return rdd


def copied(vrdd: VRDD) -> VRDD:
    """Copy an RDD by a kernel, which single arrays can be given."""
    return vrdd.exec(COPY, IN, OUT, lambda block: block.size * block.dtype.itemsize, grid=1, block=8)


def legal(step: PipelineStep, data: Records) -> bool:
    """Return whether a step may follow: a tuple's numbers become one type in a kernel, and of fields it is given one;
    coalesced partitions may differ.
    """
    if step.name == "exec":
        return data.form not in ("tuple", "dict")
    return step.name != "coalesce" or len({exact(kind_of(record)) for part in data.partitions for record in part}) < 2


def kind_of(record: object) -> object:
    """Return the kind that all records of a partition share."""
    if isinstance(record, dict):
        return {name: kind_of(each) for name, each in record.items()}
    if isinstance(record, tuple):
        return "pair or row", len(record), [kind_of(each) for each in record[1:]], type(record[0]).__name__
    if isinstance(record, np.ndarray):
        return record.dtype.str, record.shape if record.ndim < 2 else record.ndim
    return record.dtype.str if isinstance(record, np.generic) else type(record).__name__


# -- actions ----------------------------------------------------------------------------------------------------------

def folded(rdd: RDD, data: Records) -> object:
    """Return the sum of integers of one shape, which is exact; else the larger by an order that knows NaN."""
    values_ = rdd.values() if data.keyed else rdd
    arrays_ = [np.asarray(record[1] if data.keyed else record) for part in data.partitions for record in part]
    add = (data.form in ("number", "scalar", "row") and all(array.dtype.kind in "iu" for array in arrays_)
           and len({array.shape for array in arrays_}) == 1)
    return exact(values_.reduce(operator.add if add else lambda a, b: max(a, b, key=digest)))


ACTIONS: dict[str, Callable[[RDD, Records], object]] = {
    "collect": lambda rdd, _: exact(rdd.collect()),
    "glom": lambda rdd, _: exact(rdd.glom().collect()),
    "count": lambda rdd, _: rdd.count(),
    "take": lambda rdd, _: exact([rdd.take(number) for number in (1, 3)]),
    "first": lambda rdd, _: exact(rdd.first()),
    "isEmpty": lambda rdd, _: rdd.isEmpty(),
    "reduce": folded,
    "keys and values": lambda rdd, data: exact([rdd.keys().collect(), rdd.values().collect(), rdd.values().take(2)]
                                               if data.keyed else rdd.collect()),
    "countByValue": lambda rdd, _: sorted(rdd.map(digest).countByValue().items()),
    "groupByKey": lambda rdd, _: multiset(rdd.keyBy(lambda record: digest(record) % 2).groupByKey(2).collect()),
    "sortBy": lambda rdd, _: exact(rdd.sortBy(digest, numPartitions=2).collect()),
    "zipWithIndex": lambda rdd, _: exact(rdd.zipWithIndex().collect()),
    "zipWithUniqueId": lambda rdd, _: exact(rdd.zipWithUniqueId().collect()),
    "takeSample": lambda rdd, _: exact([rdd.takeSample(False, 2, seed=3), rdd.takeSample(True, 5, seed=3)]),
    "toLocalIterator": lambda rdd, _: exact(list(rdd.toLocalIterator())),
}


def outcome(action: Callable[[], object]) -> object:
    try:
        return action()
    except ValueError as error:
        if "empty" not in str(error):
            raise
        return str(error)


PIPELINES = st.lists(st.sampled_from(STEPS) | st.sampled_from(TRANSFERS), min_size=1, max_size=6)


@pytest.mark.slow
@pytest.mark.timeout(120 + 10 * EXAMPLES)
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(datasets(), PIPELINES, st.lists(st.sampled_from(sorted(ACTIONS)), min_size=1, max_size=2, unique=True))
@example(Records("scalar", True, [[(1, np.float32(1))], [], [(1, np.int8(2))]]), TRANSFERS,
         ["collect", "keys and values"])
@example(Records("row", False, [[np.array([], np.bool_)]]), TRANSFERS[:3], ["collect", "first"])
@example(Records("dict", False, [[{"x": 1, "y": np.ones((0, 3))}], []]), TRANSFERS[:4], ["glom", "take"])
def test_equal_results(sc: SparkContext, data: Records, steps: list[PipelineStep], actions: list[str]):
    steps = [step for step in steps if legal(step, data)]
    plain = in_partitions(sc, data.partitions)
    moved = plain if any(step.gpu for step in steps) else plain.cache("GPU")
    for step in steps:
        moved = step.apply(moved, data.keyed)
        if not step.gpu:
            plain = step.apply(plain, data.keyed)
    for name in actions:
        note(name)
        expected = outcome(lambda name=name: ACTIONS[name](plain, data))
        assert outcome(lambda name=name: ACTIONS[name](moved, data)) == expected


@pytest.mark.slow
@pytest.mark.timeout(120 + 10 * EXAMPLES)
@settings(max_examples=max(1, EXAMPLES // 4), deadline=None, suppress_health_check=list(HealthCheck))
@given(datasets().filter(lambda data: any(data.partitions)))
def test_what_is_published_is_read_as_spark_has_it(sc: SparkContext, data: Records):
    plain = in_partitions(sc, data.partitions)
    plain.cache("GPU").publish("drawn", replace=True)
    attached = attach(sc, "drawn")
    for name in ("glom", "count", "keys and values"):
        assert outcome(lambda name=name: ACTIONS[name](attached, data)) == ACTIONS[name](plain, data)


def test_every_operation_alone(sc: SparkContext):
    """Apply each step after each transfer, so that chance leaves none out."""
    data = Records("row", True, [[(1, np.float32([1, 2])), (2, np.float32([3, 4]))], [], [(1, np.float32([5, 6]))]])
    plain = functools.reduce(lambda rdd, step: step.apply(rdd, True), STEPS, in_partitions(sc, data.partitions))
    expected = exact(plain.collect())
    for transfer in TRANSFERS:
        moved = in_partitions(sc, data.partitions).send()
        for step in STEPS:
            moved = step.apply(transfer.apply(moved, True), True)
        assert exact(moved.collect()) == expected, transfer
