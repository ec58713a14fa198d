"""Samples, splits and numbers of cached records, against plain PySpark's."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import numpy as np
import pytest
from pyspark import SparkContext

from tests.system.test_fallback import with_fallback
from tests.system.test_folds import spark_jobs
from tests.system.topology import Topology
from tests.system.vrdd_tools import connect_threads, exact, host_context
from vispark import VRDD, FallbackWarning, random
from vispark.runtime.driver.session import Session

NUMBERS = [float(x * 7 % 31) for x in range(60)]
RECORDS: dict[str, list] = {
    "floats": NUMBERS,
    "ints": [int(x) - 9 for x in NUMBERS],
    "NumPy": [np.float32(x) for x in NUMBERS],
    "rows": [np.array([x, -x, x * x]) for x in NUMBERS],
    "tuples": [(x, int(x), 2.0) for x in NUMBERS],
    "dicts": [{"x": x, "row": np.array([x, 1.0])} for x in NUMBERS],
    "pairs": [(int(x), x) for x in NUMBERS],
}


@pytest.fixture(scope="module")
def sc(local: Topology) -> Iterator[SparkContext]:
    with host_context(local) as context:
        yield context


@pytest.mark.parametrize("records", RECORDS)
def test_samples_are_those_of_spark(sc: SparkContext, records: str):
    plain = sc.parallelize(RECORDS[records], 4)
    held = plain.cache("GPU")
    for replaces, fraction, seed in ((False, 0.3, 7), (True, 1.5, -3), (True, 21.0, 2**40 + 1), (False, 0.0, 0)):
        sampled, expected = held.sample(replaces, fraction, seed), plain.sample(replaces, fraction, seed)
        assert isinstance(sampled, VRDD) and sampled.getNumPartitions() == 4
        assert exact(sampled.glom().collect()) == exact(expected.glom().collect())


@pytest.mark.parametrize("records", RECORDS)
def test_splits_are_those_of_spark(sc: SparkContext, records: str):
    plain = sc.parallelize(RECORDS[records], 4)
    parts, expected = plain.cache("GPU").randomSplit([2, 0, 1.5], 5), plain.randomSplit([2, 0, 1.5], 5)
    assert all(isinstance(part, VRDD) for part in parts)
    assert exact([part.collect() for part in parts]) == exact([part.collect() for part in expected])
    assert sum(part.count() for part in parts) == len(NUMBERS)


@pytest.mark.parametrize("records", ["floats", "rows", "pairs"])
def test_a_few_are_taken_without_a_job(sc: SparkContext, records: str):
    plain = sc.parallelize(RECORDS[records], 4)
    held = plain.cache("GPU")
    assert held.count() == 60
    for arguments in ((False, 5, 3), (True, 20, 3), (False, 60, 3), (False, 0, 3), (True, 200, 9)):
        answers: list = []
        assert spark_jobs(sc, lambda arguments=arguments, answers=answers: answers.append(
            held.takeSample(*arguments))) == 0
        assert exact(answers[0]) == exact(plain.takeSample(*arguments))
    assert "takeSample: in the workers, which draw" in held.explanation()


def test_mini_batches_of_a_loop_take_no_job(sc: SparkContext):
    plain = sc.parallelize(NUMBERS, 3)
    held = plain.cache("GPU")
    assert held.count() == len(NUMBERS)
    expected = [plain.sample(False, 0.4, seed).map(lambda x: x * x).sum() for seed in range(5)]
    sums: list = []

    def loop() -> None:
        sums[:] = (held.sample(False, 0.4, seed).vmap(lambda x: x * x).sum() for seed in range(5))

    assert spark_jobs(sc, loop) == 0
    assert sums == expected


def test_numbers_are_those_of_spark(sc: SparkContext):
    for records in ("floats", "ints", "NumPy", "rows"):
        plain = sc.parallelize(RECORDS[records], 4)
        held = plain.cache("GPU")
        assert held.count() == 60
        answers: list = []
        assert spark_jobs(sc, lambda held=held, answers=answers: answers.extend(
            [held.zipWithIndex().collect(), held.zipWithUniqueId().collect()])) == 0
        assert exact(answers[:2]) == exact([plain.zipWithIndex().collect(), plain.zipWithUniqueId().collect()])
    numbered = held.vmap(lambda r: (r[0], r)).zipWithIndex()
    assert exact(numbered.collect()) == exact([((row[0], row), i) for i, row in enumerate(RECORDS["rows"])])
    drawn = held.zipWithIndex().vmap(lambda r: random.uniform(7, r[1]))
    assert drawn.collect() == [random.uniform(7, i) for i in range(60)]


def test_a_sample_of_a_sample_comes_back_after_a_loss(sc: SparkContext):
    plain = sc.parallelize(NUMBERS, 3)
    chosen = plain.cache("GPU").filter(lambda x: x > 3).sample(False, 0.7, 1).sample(True, 0.9, 2)
    expected = plain.filter(lambda x: x > 3).sample(False, 0.7, 1).sample(True, 0.9, 2).collect()
    numbered = chosen.zipWithIndex()
    assert chosen.collect() == expected and numbered.count() == len(expected)
    worker, = Session.of(sc).workers.known()
    with worker.connections._borrowed() as lane:
        os.kill(lane.client.pid, signal.SIGKILL)
    assert numbered.collect() == [(x, i) for i, x in enumerate(expected)] and chosen.collect() == expected
    connect_threads(worker)


def test_random_seeds_and_what_is_refused(sc: SparkContext):
    held = sc.parallelize(NUMBERS, 2).cache("GPU")
    batch = held.sample(False, 0.5)
    assert batch.collect() == batch.collect() and len(held.takeSample(False, 4)) == 4
    assert sum(part.count() for part in held.randomSplit([1, 1])) == 60
    with pytest.raises(ValueError, match="nonnegative"):
        held.sample(False, -0.1)
    with pytest.raises(ValueError, match="nonnegative"):
        held.randomSplit([-1, 2])
    with pytest.raises(ValueError, match="negative"):
        held.takeSample(False, -1)


def test_blocks_and_large_seeds_are_sparks(sc: SparkContext, monkeypatch: pytest.MonkeyPatch):
    plain = sc.parallelize([np.full((2, 2), x) for x in NUMBERS], 3)
    with_fallback(monkeypatch, sc, "warn")
    with pytest.warns(FallbackWarning, match=r"sample\(\) of VRDD .*: the records are blocks"):
        sampled = plain.cache("GPU").sample(False, 0.5, 3)
    assert exact(sampled.collect()) == exact(plain.sample(False, 0.5, 3).collect())
    with_fallback(monkeypatch, sc, "silent")
    assert exact(plain.cache("GPU").takeSample(False, 4, 3)) == exact(plain.takeSample(False, 4, 3))
    assert exact(plain.cache("GPU").zipWithIndex().collect()) == exact(plain.zipWithIndex().collect())
    numbers = sc.parallelize(NUMBERS, 3)
    assert numbers.cache("GPU").sample(False, 0.5, 2**70).collect() == numbers.sample(False, 0.5, 2**70).collect()
