"""VRDD.check_finite: what is no number ends an action, and says where it is."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from pyspark import SparkContext

from tests.system.topology import Topology
from tests.system.vrdd_tools import host_context
from vispark import Grid, NotFinite, stencil


@pytest.fixture(scope="module")
def sc(local: Topology) -> Iterator[SparkContext]:
    with host_context(local) as context:
        yield context


@stencil
def left_of(u):
    return u[0, -1]


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "c8", "c16"])
def test_the_first_one_is_named(sc: SparkContext, dtype: str):
    rows = [np.arange(3).astype(dtype) + number for number in range(5)]
    assert np.array_equal(sc.parallelize(rows, 2).cache("GPU").check_finite().collect(), rows)
    rows[3][1], rows[4][2] = np.inf, np.nan
    with pytest.raises(NotFinite, match=r"element \(1, 1\) of its records, in block 0 of the partition, is") as caught:
        sc.parallelize(rows, 2).cache("GPU").check_finite().collect()
    assert caught.value.place.partition == 1 and caught.value.place.operation == "check_finite"


def test_in_the_middle_of_a_chain(sc: SparkContext):
    held = sc.parallelize([1.0, 2.0, 3.0, 4.0], 2).cache("GPU")
    good = held.vmap(lambda x: 1 / x).check_finite().vmap(lambda x: 2 * x).cache()
    assert good.collect() == [2.0, 1.0, 2 / 3, 0.5] and good.sum() == pytest.approx(sum(good.collect()))
    for _ in range(3):          # a plan that comes again looks again
        shifted = held.vmap(lambda x, k: 1 / (x - k), 0.5).check_finite()
        assert shifted.sum() == pytest.approx(2 + 2 / 3 + 2 / 5 + 2 / 7)
        with pytest.raises(NotFinite):
            held.vmap(lambda x, k: 1 / (x - k), 3.0).check_finite().sum()


def test_other_kinds_of_records(sc: SparkContext):
    assert sc.parallelize([(1, 1.0), (2, 4.0)], 1).cache("GPU").check_finite().collect() == [(1, 1.0), (2, 4.0)]
    assert sc.parallelize([], 2).cache("GPU").check_finite().collect() == []
    assert sc.parallelize([1, 2]).cache("GPU").check_finite().sum() == 3
    fields = [{"u": np.ones((2, 2)), "n": np.arange(3)}, {"u": np.array([[1, 2], [np.nan, 4]]), "n": np.arange(3)}]
    with pytest.raises(NotFinite, match=r"element \(1, 0\) of field 'u', in block 1 of the partition"):
        sc.parallelize(fields, 1).cache("GPU").check_finite().collect()
    assert sc.parallelize([1.0, 2.0]).send().check_finite().dtoh().collect() == [1.0, 2.0]
    assert sc.parallelize([1.0, 2.0]).send().check_finite().cache().collect() == [1.0, 2.0]


def test_blocks_of_a_grid_keep_their_halos(sc: SparkContext):
    cells = np.arange(96.0).reshape(8, 12)
    grid = Grid((8, 12), (2, 3), 1, "mirrored")
    start = grid.scatter(sc, cells).cache("GPU").vmap(lambda u: u + 1).cache()
    start.halo_extract().halo_shuffle()
    appended = start.halo_append()
    assert np.array_equal(Grid.gather(appended.check_finite().vmap(left_of))[:, 1:], (cells + 1)[:, :-1])
    with pytest.raises(NotFinite):
        Grid.gather(start.vmap(lambda u: 1 / (u - 9)).check_finite())


def test_a_singular_matrix_is_told_of_by_its_record(sc: SparkContext):
    matrices = [np.eye(3), np.diag([1.0, 2.0, 0.0]), np.ones((3, 3))]
    inverses = sc.parallelize(matrices, 1).cache("GPU").vmap(lambda A: np.linalg.inv(A), of="record")
    assert np.isnan(inverses.collect()[1]).all()
    with pytest.raises(NotFinite, match=r"(record|block) 1"):
        inverses.check_finite().collect()
