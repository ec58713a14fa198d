"""Linear algebra of matrices that a thread does not hold in its own memory, against NumPy."""

from __future__ import annotations

import operator
from collections.abc import Iterator

import numpy as np
import pytest
from pyspark import SparkContext

from tests.system.topology import Topology
from tests.system.vrdd_tools import host_context
from vispark import NotFinite, TranslationError

RANDOM = np.random.default_rng(8)


@pytest.fixture(scope="module")
def sc(local: Topology) -> Iterator[SparkContext]:
    with host_context(local) as context:
        yield context


def positive(n: int, dtype: str = "f8") -> np.ndarray:
    root = RANDOM.random((n, n)) - 0.5
    return (root @ root.T + n * np.eye(n)).astype(dtype)


def systems(n: int, count: int, dtype: str = "f8") -> list[dict]:
    return [{"A": positive(n, dtype), "b": RANDOM.random(n).astype(dtype)} for _ in range(count)]


@pytest.mark.parametrize(("n", "dtype"), [(48, "f8"), (100, "f8"), (256, "f8"), (100, "f4")])
def test_solutions(sc: SparkContext, n: int, dtype: str):
    records = systems(n, 5, dtype)
    held = sc.parallelize(records, 2).cache("GPU")
    expected = [np.linalg.solve(each["A"], each["b"]) for each in records]
    near = 1e-10 if dtype == "f8" else 1e-4
    solutions = held.vmap(lambda A, b: np.linalg.solve(A, b))
    assert solutions.first().dtype == dtype and np.allclose(solutions.collect(), expected, atol=near)
    assert np.allclose(solutions.reduce(operator.add), np.sum(expected, axis=0), atol=near)


def test_factors_and_the_rest(sc: SparkContext):
    records = systems(64, 4)
    held = sc.parallelize(records, 2).cache("GPU")
    matrices = [each["A"] for each in records]
    assert np.allclose(held.vmap(lambda A: np.linalg.cholesky(A), of="record").collect(),
                       [np.linalg.cholesky(each) for each in matrices])
    assert np.allclose(held.vmap(lambda A: np.linalg.inv(A), of="record").collect(),
                       [np.linalg.inv(each) for each in matrices])
    assert np.allclose(held.vmap(lambda A: np.linalg.det(A / 64), of="record").collect(),
                       [np.linalg.det(each / 64) for each in matrices])
    values, vectors = zip(*held.vmap(lambda A: np.linalg.eigh(A), of="record").collect(), strict=True)
    for matrix, eigenvalues, turned in zip(matrices, values, vectors, strict=True):
        assert np.allclose(eigenvalues, np.linalg.eigvalsh(matrix))
        assert np.allclose(turned @ np.diag(eigenvalues) @ turned.T, matrix)


def test_rows_of_a_table_of_normal_equations(sc: SparkContext):
    rows = RANDOM.random((400, 60))
    keys = np.arange(400) % 3
    held = sc.parallelize([np.append(key, row) for key, row in zip(keys, rows, strict=True)], 2).cache("GPU")
    grams = held.vmap(lambda p: (int(p[0]), np.outer(p[1:], p[1:]))).reduceByKey(operator.add, numKeys=3)
    solved = grams.vmap(lambda m: np.linalg.solve(m + np.eye(60), np.ones(60)))
    for key, solution in solved.collect():
        one = rows[keys == key]
        assert np.allclose(solution, np.linalg.solve(one.T @ one + np.eye(60), np.ones(60)))


def test_a_singular_matrix_is_found_by_its_row(sc: SparkContext):
    records = [*systems(60, 2), {"A": np.zeros((60, 60)), "b": np.ones(60)}]
    held = sc.parallelize(records, 1).cache("GPU")
    solved = held.vmap(lambda A, b: np.linalg.solve(A, b))
    assert np.isnan(solved.collect()[2]).all() and np.isfinite(solved.collect()[:2]).all()
    with pytest.raises(NotFinite, match="block 2 of the partition, is NaN"):
        solved.check_finite().collect()


def test_what_has_no_room_is_told(sc: SparkContext):
    held = sc.parallelize([np.eye(400)], 1).cache("GPU")
    with pytest.raises(TranslationError, match="at most 1,048,576 can be"):
        held.vmap(lambda m: np.linalg.inv(m), of="record").collect()
