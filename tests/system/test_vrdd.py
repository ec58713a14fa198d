"""Costs of a VRDD, and what it keeps and lets go of: jobs, requests, bytes, memory, names and threads."""

from __future__ import annotations

import functools
import gc
import operator
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from pyspark import RDD, SparkContext, StorageLevel

from tests.system.topology import DEVICE_NAME, Topology
from tests.system.vrdd_tools import Cost, cost, exact, host_context, in_partitions, report, used
from tests.system.worker_tools import eventually
from vispark import IN, OUT, VRDD, Kernels
from vispark.runtime.driver.session import Session

K = Kernels("""
extern "C" __global__ void scale(const float* x, float* y, float by, int n)
{ int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = by * x[i]; }

extern "C" __global__ void add_row(const float* x, float* y, const double* row, int n, int m)
{ int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n * m) y[i] = x[i] + (float)row[i % m]; }
""")


@pytest.fixture(scope="module")
def sc(local: Topology) -> Iterator[SparkContext]:
    with host_context(local) as context:
        yield context


def floats(sc: SparkContext, count: int = 8, partitions: int = 2) -> RDD:
    return sc.parallelize(range(count), partitions).map(np.float32)


def scaled(vrdd: VRDD, by: float) -> VRDD:
    return vrdd.exec(K.scale, IN, OUT, np.float32(by), IN.shape[0], grid=lambda b: -(-b.shape[0] // 64), block=64)


def freed(sc: SparkContext) -> bool:
    gc.collect()
    return eventually(lambda: used(sc) == 0 and not report(sc).vrdds)


# -- lazy -------------------------------------------------------------------------------------------------------------

def test_nothing_reaches_a_worker_before_an_action(sc: SparkContext):
    recorded = []       # what is dropped is released, by a message

    def record() -> None:
        recorded.append(scaled(floats(sc).send().htod().cache(), 2).dtoh().recv().map(float))
        recorded.append(scaled(floats(sc).cache("GPU"), 3).cache().keys().values())
        assert recorded[0].getNumPartitions() == 2
    assert cost(sc, record) == cost(sc, lambda: None)


def test_an_uncached_pipeline_is_one_request_for_each_partition(sc: SparkContext):
    idle = cost(sc, lambda: None).requests
    for partitions in (1, 3):
        vrdd = scaled(scaled(floats(sc, 8, partitions).send().htod(), 2), 2).dtoh()
        taken = cost(sc, lambda vrdd=vrdd: vrdd.recv().collect())
        assert (taken.jobs, taken.requests - idle) == (1, partitions)


def test_the_parent_of_a_shuffle_is_one_request_for_each_partition(sc: SparkContext):
    idle = cost(sc, lambda: None).requests
    cached = floats(sc, 8, 2).cache("GPU")
    assert cached.count() == 8
    taken = cost(sc, lambda: cached.recv().keyBy(lambda x: x > 3).reduceByKey(operator.add).collect())
    assert taken.requests - idle == 2


def test_a_plan_on_cached_data_is_one_request_for_the_worker(sc: SparkContext):
    idle = cost(sc, lambda: None)
    assert idle == Cost(0, 0, 0, 1), "a status asks each process once"
    cached = floats(sc, 8, 4).cache("GPU")
    loading = cost(sc, cached.count)
    assert (loading.jobs, loading.fetched_bytes) == (1, 0)
    pairs = sc.parallelize([(1, 1.5), (2, 2.5)], 2).cache("GPU")
    assert pairs.count() == 2
    assert cached.first() == 0      # a relayed worker is told of the loads with the first plan after them
    actions = {
        "collect": lambda: scaled(cached, 2).collect(),
        "collect after dtoh": lambda: scaled(cached, 2).dtoh().collect(),
        "reduce": lambda: scaled(cached, 2).reduce(operator.add),
        "first": lambda: scaled(cached, 2).first(),
        "take": lambda: scaled(cached, 2).take(1),
        "isEmpty": lambda: scaled(cached, 2).isEmpty(),
        "keys": lambda: pairs.keys().collect(),
        "values": lambda: pairs.values().reduce(operator.add),
        "a chain": lambda: scaled(scaled(scaled(cached, 2), 3), 4).collect(),
    }
    for name, action in actions.items():
        taken = cost(sc, action)
        assert (taken.jobs, taken.plans, taken.requests - idle.requests) == (0, 1, 1), name
    counted = cost(sc, cached.count)
    assert (counted.jobs, counted.plans, counted.requests - idle.requests) == (0, 0, 0)


def test_a_loop_takes_no_jobs(sc: SparkContext):
    state = floats(sc).cache("GPU")
    state.count()

    def loop() -> None:
        nonlocal state
        for _ in range(20):
            state = scaled(state, 1.5).cache()
            state.reduce(operator.add)
    taken = cost(sc, loop)
    assert (taken.jobs, taken.plans) == (0, 40)
    assert np.allclose(state.collect(), np.arange(8) * 1.5 ** 20, rtol=1e-5)
    gc.collect()
    assert eventually(lambda: len(report(sc).vrdds) == 1), "the states before are forgotten"


def test_a_fold_brings_one_record_to_the_driver(sc: SparkContext):
    rows = sc.range(0, 4000, 1, 4).map(lambda i: np.full(64, i, np.float32)).cache("GPU")
    rows.count()
    taken = cost(sc, lambda: rows.reduce(operator.add))
    assert taken.jobs == 0
    assert 0 < taken.fetched_bytes <= 4096
    whole = cost(sc, rows.collect)
    assert whole.fetched_bytes >= 4000 * 64 * 4


def test_take_brings_no_more_than_is_asked(sc: SparkContext):
    rows = sc.range(0, 4000, 1, 4).map(lambda i: np.full(64, i, np.float32)).cache("GPU")
    rows.count()
    blocks = sc.range(0, 40, 1, 4).map(lambda i: np.full((64, 64), i, np.float32)).cache("GPU")
    blocks.count()
    one = cost(sc, rows.first)
    assert (one.jobs, one.plans) == (0, 1)
    assert 64 * 4 <= one.fetched_bytes <= 4096
    assert cost(sc, lambda: blocks.take(2)).fetched_bytes <= 2 * 64 * 64 * 4 + 4096
    assert exact(rows.take(1500)[-1]) == exact(np.full(64, 1499, np.float32))


# -- computed once ----------------------------------------------------------------------------------------------------

def test_two_actions_compute_it_once(sc: SparkContext):
    calls = sc.accumulator(0)

    def load(value: int) -> np.float32:
        calls.add(1)
        return np.float32(value)
    cached = sc.parallelize(range(8), 2).map(load).cache("GPU")
    assert len(cached.collect()) == 8 == cached.count()
    assert cached.map(float).sum() == cached.reduce(operator.add) == 28
    assert scaled(cached, 2).cache().collect()[-1] == 14
    assert calls.value == 8


def test_what_is_kept_of_an_rdd_of_it_is_used(sc: SparkContext):
    calls = sc.accumulator(0)

    def mapped(value: np.float32) -> float:
        calls.add(1)
        return float(value)
    kept = floats(sc).cache("GPU").map(mapped).cache()
    assert kept.sum() == 28 and kept.map(abs).collect() == kept.collect()
    assert calls.value == 8


def test_an_rdd_made_of_one_can_be_sent_again(sc: SparkContext):
    first = scaled(floats(sc).cache("GPU"), 2)
    again = scaled(first.map(lambda x: x + np.float32(1)).cache("GPU"), 10)
    assert exact(again.collect()) == exact([np.float32((2 * i + 1) * 10) for i in range(8)])
    assert exact(again.map(float).collect()) == exact([(2 * i + 1) * 10.0 for i in range(8)])


# -- letting go -------------------------------------------------------------------------------------------------------

def test_uncache_frees_and_the_result_stays_right(sc: SparkContext):
    for let_go in (VRDD.uncache, VRDD.unpersist):
        cached = floats(sc).cache("GPU")
        received = cached.map(float)
        assert cached.count() == 8 and used(sc) >= 32
        assert let_go(cached) is cached and not cached.is_cached
        assert freed(sc)
        assert received.collect() == [float(i) for i in range(8)]
        assert len(cached.collect()) == 8 and freed(sc)


def test_dropping_the_last_reference_frees(sc: SparkContext):
    cached = floats(sc).cache("GPU")
    twice = scaled(cached, 2).cache()
    assert twice.count() == 8 and len(report(sc).vrdds) == 2
    del cached
    gc.collect()
    assert eventually(lambda: len(report(sc).vrdds) == 1), "all of the result is held, its input is named by nobody"
    assert twice.collect()[-1] == 14
    del twice
    assert freed(sc)


def test_an_rdd_made_of_it_can_run_after_it_is_gone(sc: SparkContext):
    cached = floats(sc).cache("GPU")
    cached.count()
    received, mapped = cached.recv(), cached.map(lambda x: x + 1)
    joined = cached.map(lambda x: (float(x), 1)).reduceByKey(operator.add)
    del cached
    gc.collect()
    assert exact(received.collect()) == exact([np.float32(i) for i in range(8)])
    assert exact(mapped.collect()) == exact([np.float32(i + 1) for i in range(8)])
    assert sorted(joined.collect()) == [(float(i), 1) for i in range(8)]
    del received, mapped, joined
    assert freed(sc)


def test_caching_again_after_uncache(sc: SparkContext):
    cached = floats(sc).cache("GPU")
    cached.count()
    cached.uncache().cache()
    assert cached.collect() == [np.float32(i) for i in range(8)] and cost(sc, cached.collect).jobs == 0
    assert len(report(sc).vrdds) == 1


def test_host_memory_and_device_memory(sc: SparkContext):
    sent = floats(sc).send().cache()
    sent.count()
    assert [(line.device, line.nbytes) for line in report(sc).vrdds] == [("host", 32)]
    there = sent.htod().cache()
    there.count()
    assert [line.device for line in report(sc).vrdds] == ["host", DEVICE_NAME]
    assert report(sc).memory[0].used == 32 == report(sc).host_bytes
    sent.uncache()
    assert eventually(lambda: [line.device for line in report(sc).vrdds] == [DEVICE_NAME])
    back = there.dtoh().cache()
    assert back.collect() == there.collect()
    there.uncache()
    assert eventually(lambda: [line.device for line in report(sc).vrdds] == ["host"])
    assert exact(scaled(back, 2).first()) == exact(np.float32(0)) and scaled(back, 2).reduce(operator.add) == 56


# -- values -----------------------------------------------------------------------------------------------------------

def test_arguments_are_those_of_the_call(sc: SparkContext):
    rows = sc.parallelize([np.float32([1, 2]), np.float32([3, 4]), np.float32([5, 6])], 2).cache("GPU")
    w = np.array([10.0, 20.0])
    shape = [32]
    moved = rows.exec(K.add_row, IN, OUT, w, IN.shape[0], IN.shape[1], grid=1, block=shape[0])
    w -= 100
    shape[0] = 0
    expected = exact([np.float32([11, 22]), np.float32([13, 24]), np.float32([15, 26])])
    assert exact(moved.collect()) == expected
    w[:] = 0
    assert exact(moved.collect()) == expected == exact(moved.map(lambda row: row).collect())


def test_results_are_the_callers_own(sc: SparkContext):
    rows = sc.parallelize([np.float32([1, 2])], 1).cache("GPU")
    for first in (rows.first(), rows.collect()[0], rows.reduce(operator.add)):
        first += 5
    assert exact(rows.collect()) == exact([np.float32([1, 2])])


def test_an_rdd_without_partitions_is_ordinary(sc: SparkContext):
    plain = sc.emptyRDD()
    numbers = plain.cache("GPU")
    looped = numbers
    for _ in range(3):
        looped = looped.vmap(lambda x: 2 * x).cache()
    for empty in (numbers, numbers.vmap(lambda x: 2 * x), looped):
        assert empty.getNumPartitions() == 0
        assert empty.collect() == empty.take(2) == empty.recv().collect() == []
        assert empty.count() == empty.sum() == plain.sum() == 0
        with pytest.raises(ValueError, match="empty"):
            empty.reduce(operator.add)
    assert numbers.vmap(lambda x: (0, x)).reduceByKey(operator.add, numKeys=2).collect() == []


def test_partitions_with_signatures_of_their_own(sc: SparkContext):
    data = [[np.float32([[1, 2]]), np.float32([[3], [4]])], [], [np.ones((3, 2), np.float32)]]
    blocks = in_partitions(sc, data).cache("GPU")
    assert exact(blocks.glom().collect()) == exact(data)
    twice = blocks.exec(K.scale, IN, OUT, np.float32(2), IN.size, grid=1, block=lambda b: b.size)
    assert exact(twice.collect()) == exact([block * np.float32(2) for part in data for block in part])
    rows = in_partitions(sc, [[np.float32([1, 2])], [np.float32([1, 2, 3])], [np.float32([7])]]).cache("GPU")
    twice = rows.exec(K.scale, IN, OUT, np.float32(2), IN.size, grid=1, block=lambda b: b.size)
    assert exact(twice.collect()) == exact([np.float32([2, 4]), np.float32([2, 4, 6]), np.float32([14])])
    assert exact(twice.take(2)) == exact(twice.collect()[:2])
    mixed = in_partitions(sc, [[1, 2], [np.float32(3)], [1.5 + 2j]]).cache("GPU")
    assert exact(mixed.collect()) == exact([1, 2, np.float32(3), 1.5 + 2j])


def test_a_long_chain(sc: SparkContext):
    state = floats(sc).cache("GPU")
    for _ in range(1500):
        state = state.htod()
    state = scaled(state, 2).cache()
    assert state.count() == 8 and state.reduce(operator.add) == 56
    state.unpersist()
    assert state.map(float).sum() == 56


@pytest.mark.parametrize("data", [[(1, 2.5), (2, 3.5)], [np.array([1.0, 2.0]), np.array([3.0, 4.0])]],
                         ids=["pairs", "rows"])
def test_keys_that_are_kept(sc: SparkContext, data: list):
    keys, plain = sc.parallelize(data, 2).cache("GPU").keys().cache(), sc.parallelize(data, 2).keys()
    assert exact(keys.collect()) == exact(plain.collect())
    assert exact(keys.map(str).collect()) == exact(plain.map(str).collect())


def test_values_that_are_kept(sc: SparkContext):
    values = sc.parallelize([(1, 2.5), (2, 3.5)], 2).send().values().cache()
    assert values.count() == 2 and values.collect() == [2.5, 3.5] and values.reduce(operator.add) == 6.0
    assert values.map(str).collect() == ["2.5", "3.5"]


# -- folds ------------------------------------------------------------------------------------------------------------

OPERATORS = [operator.add, operator.mul, min, max, np.add, np.multiply, np.minimum, np.maximum, operator.and_,
             operator.or_, operator.xor, np.bitwise_or]


def folded(fold: Callable, partitions: list[list]) -> object:
    """Fold partitions as Spark does; return None where Python refuses."""
    try:
        return exact(functools.reduce(fold, [functools.reduce(fold, part) for part in partitions if part]))
    except (TypeError, ValueError):
        return None


@pytest.mark.parametrize(("kind", "shape", "folds"), [
    *[(kind, (), OPERATORS) for kind in (int, bool, float, complex, "f")],
    # A compiler makes each fold's kernel once: these share the operators out.
    *[(kind, ((3,), (2, 2), ())[index % 3], OPERATORS[index % 4::4]) for index, kind in enumerate("?bhilBHILefdFD")],
])
@pytest.mark.filterwarnings("ignore:overflow encountered")
def test_folds(sc: SparkContext, kind: str | type, shape: tuple[int, ...], folds: list[Callable]):
    """Fold numbers whose folds are exact in whatever order."""
    numbers = np.random.default_rng(5).integers(0, 2 if kind in ("?", bool) else 5, (7, *shape))
    records = [kind(each) if callable(kind) else np.array(each).astype(kind)[()] for each in numbers]
    partitions = [records[:4], [], records[4:]]
    cached = in_partitions(sc, partitions).cache("GPU")
    for fold in folds:
        expected = folded(fold, partitions)
        if expected is not None:
            assert exact(cached.reduce(fold)) == expected, fold.__name__



def test_a_sum_of_ints_beyond_64_bits_is_pythons(sc: SparkContext):
    big = sc.parallelize([2**62, 2**62, 2**62, 5], 2).cache("GPU")
    assert big.reduce(operator.add) == 3 * 2**62 + 5
    assert sc.parallelize([2**40, 2**40, 3], 2).cache("GPU").reduce(operator.mul) == 3 * 2**80
    numpys = sc.parallelize([np.int64(2**62)] * 4, 2)
    with np.errstate(all="ignore"):
        assert exact(numpys.cache("GPU").reduce(np.add)) == exact(numpys.collect()[0] * np.int64(0))


@pytest.mark.parametrize("fold", [min, max, np.minimum, np.maximum], ids=lambda fold: fold.__name__)
@pytest.mark.parametrize("where", range(4))
def test_nan_has_the_place_that_python_gives_it(sc: SparkContext, fold, where: int):
    values = [2.0, 1.0, 3.0, 4.0]
    values[where] = float("nan")
    plain = sc.parallelize(list(map(np.float64, values)), 2)
    assert exact(plain.cache("GPU").reduce(fold)) == exact(plain.reduce(fold))


def test_a_fold_without_a_kernel_has_the_same_answer_without_a_job(sc: SparkContext):
    cached = floats(sc).cache("GPU")
    cached.count()
    for fold in (lambda a, b: a * 2 + b, lambda a, b: a - b, unlike_any):
        taken = cost(sc, lambda fold=fold: cached.reduce(fold))
        assert taken.fetched_bytes > 0 and (taken.jobs == 0 or Session.of(sc).relays)
        assert exact(cached.reduce(fold)) == exact(floats(sc).reduce(fold))
    words = sc.parallelize([(1, 2, 3), (4, 5, 6)], 2)
    assert words.cache("GPU").reduce(operator.add) == words.reduce(operator.add) == (1, 2, 3, 4, 5, 6)


def unlike_any(a, b):
    return a - b / 3


def test_folds_of_nothing_and_of_one(sc: SparkContext):
    with pytest.raises(ValueError, match="empty RDD"):
        in_partitions(sc, [[], []]).cache("GPU").reduce(operator.add)
    assert exact(in_partitions(sc, [[], [np.int8(100)], []]).cache("GPU").reduce(operator.add)) == exact(np.int8(100))


# -- saying what there is ---------------------------------------------------------------------------------------------

def test_explain_and_names(sc: SparkContext, capsys: pytest.CaptureFixture):
    cached = floats(sc).send().htod().setName("points").cache()
    twice = scaled(cached, 2).setName("twice as much").cache()
    twice.explain()
    text = twice.explanation()
    assert capsys.readouterr().out == text + "\n"
    assert "scale" in text and text.count(": 0 partitions held, 0 bytes") == 2
    twice.count()
    assert {line.name for line in report(sc).vrdds} == {"points", "twice as much"}
    text = twice.explanation()
    assert "(twice as much): 2 partitions held, 32 bytes on device" in text
    way = ("relayed", "a Spark task for each worker") if Session.of(sc).relays else ("direct", "no Spark job")
    assert "\n{}: one request and one reply for each worker, {}".format(*way) in text
    assert "a Spark job" in floats(sc).send().explanation()
    lines = twice.toDebugString().decode()
    assert "scale" in lines and "PythonRDD" in lines
    assert cached.name() == "points" and repr(cached).startswith("VRDD[points]: 8 records of float32; 2 partitions; ")


def test_a_name_given_after_cache_shows_too(sc: SparkContext):
    cached = floats(sc).cache("GPU").setName("late")
    cached.count()
    assert [line.name for line in report(sc).vrdds] == ["late"]


def test_nothing_that_an_rdd_did_has_changed(sc: SparkContext):
    plain = floats(sc)
    assert plain.cache() is plain and type(plain) is not VRDD and plain.getStorageLevel().useMemory
    assert plain.unpersist() is plain
    assert plain.persist(StorageLevel.DISK_ONLY) is plain and plain.getStorageLevel() == StorageLevel.DISK_ONLY
    assert plain.uncache() is plain and not plain.is_cached
    cached = plain.cache("GPU")
    assert isinstance(cached, VRDD) and isinstance(cached, RDD) and cached is not plain
    assert cached.getStorageLevel() == StorageLevel.MEMORY_ONLY and cached.cache() is cached is cached.persist("GPU")


def test_spark_holds_tokens_only(sc: SparkContext):
    rows = sc.range(0, 2000, 1, 2).map(lambda i: np.full(256, i, np.float32)).cache("GPU")
    rows.count()
    stored = sc._jsc.sc().getRDDStorageInfo()
    assert sum(each.memSize() + each.diskSize() for each in stored) < 20_000


# -- checkpoints ------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("method", ["checkpoint", "localCheckpoint"])
@pytest.mark.parametrize("cached", [True, False])
def test_a_checkpoint_cuts_the_lineage(sc: SparkContext, tmp_path, method: str, cached: bool):
    sc.setCheckpointDir(str(tmp_path))
    calls = sc.accumulator(0)

    def load(value: int) -> np.float32:
        calls.add(1)
        return np.float32(value)
    source = sc.parallelize(range(8), 2).map(load).send().htod()
    state = scaled(source, 2)
    after = scaled(state, 10)
    if cached:
        state.cache()
    getattr(state, method)()
    assert state.is_checkpointed and not state.isCheckpointed()
    assert state.collect() == [np.float32(2 * i) for i in range(8)]
    assert state.isCheckpointed() and (method == "localCheckpoint" or state.getCheckpointFile())
    seen = calls.value
    assert state.unpersist().collect() == [np.float32(2 * i) for i in range(8)]
    assert after.collect() == [np.float32(20 * i) for i in range(8)] == scaled(state, 10).collect()
    assert after.map(float).sum() == 560
    assert calls.value == seen, "the records are those that were saved"


# -- threads, contexts ------------------------------------------------------------------------------------------------

def test_several_threads_at_once(sc: SparkContext):
    cached = floats(sc).cache("GPU")
    start = threading.Barrier(4)

    def work(number: int) -> list:
        start.wait()
        results = [scaled(cached, number + step).reduce(operator.add) for step in range(5)]
        own = floats(sc, 4 + number).cache("GPU")
        return [*results, own.count(), scaled(own, 2).map(float).sum(), own.unpersist().count()]

    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(work, range(4)))
    assert answers == [[28.0 * (number + step) for step in range(5)]
                       + [4 + number, 2.0 * sum(range(4 + number)), 4 + number] for number in range(4)]


def test_threads_that_need_the_same_load_it_once(sc: SparkContext):
    calls = sc.accumulator(0)

    def load(value: int) -> np.float32:
        calls.add(1)
        return np.float32(value)
    cached = sc.parallelize(range(8), 2).map(load).cache("GPU")
    with ThreadPoolExecutor(4) as pool:
        assert [len(each) for each in pool.map(lambda _: cached.collect(), range(4))] == [8] * 4
    assert calls.value == 8
