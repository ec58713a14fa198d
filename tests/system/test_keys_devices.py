"""Exchanges by key among several devices of one worker, and tables of what each of them folded."""

from __future__ import annotations

import operator
from collections.abc import Iterator

import numpy as np
import pytest
from pyspark import SparkContext

from tests.system.test_keys import float_pairs, numbers
from tests.system.topology import Topology
from tests.system.vrdd_tools import cost, host_context
from vispark import PlanError

KEYS = 5


@pytest.fixture(scope="module")
def sc(local: Topology) -> Iterator[SparkContext]:
    with host_context(local, device="host:3") as context:
        yield context


def test_rows_go_from_device_to_device(sc: SparkContext):
    plain = numbers(sc, 300, 5)
    held = plain.cache("GPU").vmap(float_pairs)
    partitioned = held.partitionBy(7)
    expected = plain.map(float_pairs).partitionBy(7, hash)
    assert [sorted(part) for part in partitioned.glom().collect()] \
        == [sorted(part) for part in expected.glom().collect()]
    assert held.sortByKey(False, 4).collect() == sorted(
        plain.map(float_pairs).collect(), key=operator.itemgetter(0), reverse=True)
    assert sorted(held.join(partitioned, 4).collect()) == sorted(
        plain.map(float_pairs).join(expected, 4).collect())


def sizes(p):
    return int(p[0] * 4), (p, np.float32(p[1]), int(p[2] * 99), p[2])


def merged(a, b):
    return a[0] + b[0], a[1] + b[1], a[2] + b[2], max(a[3], b[3])


@pytest.mark.parametrize("is_kept", [False, True], ids=["fused", "kept"])
def test_tables_of_several_devices_are_joined_on_one(sc: SparkContext, is_kept: bool):
    rows = np.random.default_rng(4).random((70, 3))
    held = sc.parallelize(list(rows), 5).cache("GPU").vmap(sizes)
    if is_kept:
        held = held.cache("GPU")
    held.count()
    table = held.reduceByKey(merged, numKeys=KEYS)
    spent = cost(sc, table.vmap(lambda s: s[0].sum() + s[2]).count)
    assert spent.jobs == 0
    folds = dict(table.collect())
    assert sorted(folds) == [0, 1, 2, 3]
    for key, (total, single, whole, most) in folds.items():
        those = rows[(rows[:, 0] * 4).astype(int) == key]
        np.testing.assert_allclose(total, those.sum(axis=0), rtol=1e-12)
        np.testing.assert_allclose(single, those[:, 1].sum(), rtol=1e-5)
        assert whole == (those[:, 2] * 99).astype(int).sum() and most == those[:, 2].max()
    with pytest.raises(PlanError, match="has the key 3, and numKeys=3"):
        held.reduceByKey(merged, numKeys=3).count()
