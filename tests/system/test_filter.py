"""``filter`` in the workers, against Spark's own result."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from pyspark import SparkContext

from tests.system.test_fallback import with_fallback
from tests.system.test_folds import spark_jobs
from tests.system.topology import Topology
from tests.system.vrdd_tools import connect_threads, exact, host_context
from vispark import VRDD, FallbackWarning, random
from vispark.api.rdds import local_rdd
from vispark.runtime.driver.session import Session

NUMBERS = [float(x * 7 % 31) for x in range(60)]
RECORDS: dict[str, list] = {
    "floats": NUMBERS,
    "ints": [int(x) - 9 for x in NUMBERS],
    "NumPy": [np.float32(x) for x in NUMBERS],
    "rows": [np.array([x, -x, x * x]) for x in NUMBERS],
}
CHOOSE: dict[str, Callable] = {
    "some": lambda r: np.sum(r) > 12, "none": lambda r: np.sum(r) > 1e9, "all": lambda r: np.sum(r) < 1e9,
    "number": lambda r: np.sum(r) % 2,
}


@pytest.fixture(scope="module")
def sc(local: Topology) -> Iterator[SparkContext]:
    with host_context(local) as context:
        yield context


@pytest.mark.parametrize("choose", CHOOSE)
@pytest.mark.parametrize("records", RECORDS)
def test_the_records_are_those_of_spark(sc: SparkContext, records: str, choose: str):
    plain = sc.parallelize(RECORDS[records], 4)
    filtered, expected = plain.cache("GPU").filter(CHOOSE[choose]), plain.filter(CHOOSE[choose])
    assert isinstance(filtered, VRDD) and filtered.getNumPartitions() == 4
    assert exact(filtered.glom().collect()) == exact(expected.glom().collect())
    assert filtered.count() == expected.count()
    if expected.count():
        # What is kept are the marked records, of which later operations take the second item.
        assert {len(each.layout.parts[0].types) for each in filtered._before._results() if each.count} == {1}
        assert all(each.layout.tupled for each in filtered._before._results() if each.count)


def test_what_follows_stays_in_the_workers_and_comes_back_after_a_loss(sc: SparkContext):
    chosen = sc.parallelize(NUMBERS, 3).cache("GPU").filter(lambda x: x > 12)
    expected = sum(x * x for x in NUMBERS if x > 12)
    squares = chosen.vmap(lambda x: x * x)
    assert squares.sum() == expected
    worker, = Session.of(sc).workers.known()
    with worker.connections._borrowed() as lane:
        os.kill(lane.client.pid, signal.SIGKILL)
    assert squares.sum() == expected and chosen.filter(lambda x: x < 20).count() == len(
        [x for x in NUMBERS if 12 < x < 20])
    connect_threads(worker)


@pytest.mark.parametrize("records", ["floats", "ints", "NumPy", "rows"])
def test_many_records_are_put_in_order_in_the_workers(sc: SparkContext, monkeypatch: pytest.MonkeyPatch, records: str):
    monkeypatch.setattr(local_rdd, "MOST_RECORDS", 10)
    plain, key = sc.parallelize(RECORDS[records], 4), lambda r: np.sum(r) % 5       # of which many are equal
    held = plain.cache("GPU")
    for find in (lambda rdd: rdd.takeOrdered(9, key), lambda rdd: rdd.top(9, key=key),
                 lambda rdd: rdd.min(key), lambda rdd: rdd.max(key=key)):
        answers: list = []
        assert spark_jobs(sc, lambda find=find, answers=answers: answers.append(find(held))) == 0
        assert exact(answers[0]) == exact(find(plain))
    assert "top: in the workers, which put each partition in order" in held.explanation()
    same = held.vmap(lambda r: (1, r))        # keys that need no sorting
    assert repr(same.takeOrdered(7, lambda r: r[0])) == repr(same.take(7))
    if records != "rows":
        assert exact((held.top(3), held.takeOrdered(70))) == exact((plain.top(3), plain.takeOrdered(70)))


def test_keys_that_are_nan_are_put_in_order_by_spark(sc: SparkContext, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(local_rdd, "MOST_RECORDS", 1)
    with_fallback(monkeypatch, sc, "silent")
    held = sc.parallelize([2.0, float("nan"), 1.0], 2).cache("GPU")
    assert len(held.takeOrdered(2)) == 2


def test_records_are_drawn_by_their_number(sc: SparkContext):
    held = sc.parallelize(range(1000), 3).cache("GPU").vmap(lambda i: (i, 2.0 * i))
    batch = held.filter(lambda r: random.uniform(5, r[0], 1) < 0.1)
    assert isinstance(batch, VRDD)
    assert batch.collect() == [(i, 2.0 * i) for i in range(1000) if random.uniform(5, i, 1) < 0.1]


def test_what_is_not_translated_and_pairs_that_were_sent_are_sparks(sc: SparkContext,
                                                                    monkeypatch: pytest.MonkeyPatch):
    numbers, pairs = sc.parallelize(NUMBERS, 2), sc.parallelize([(int(x), x) for x in NUMBERS], 2)
    with_fallback(monkeypatch, sc, "warn")
    with pytest.warns(FallbackWarning, match=r"filter\(\) of VRDD"):
        filtered = numbers.cache("GPU").filter(lambda x: str(x) > "2")
        assert not isinstance(filtered, VRDD) and filtered.collect() == [x for x in NUMBERS if str(x) > "2"]
    with_fallback(monkeypatch, sc, "silent")
    assert pairs.cache("GPU").filter(lambda kv: kv[0] > 3).collect() == pairs.filter(lambda kv: kv[0] > 3).collect()
    for records in ([(x, int(x), 2.0) for x in NUMBERS], [{"x": x, "n": int(x)} for x in NUMBERS]):
        others = sc.parallelize(records, 2)
        assert others.cache("GPU").filter(lambda r: len(r) < 4).collect() == records
