"""Rows of several lengths and sparse vectors in the workers, against plain Spark and NumPy."""

from __future__ import annotations

import operator
from collections.abc import Iterator

import numpy as np
import pytest
from pyspark import SparkContext
from pyspark.ml.linalg import SparseVector

from tests.system.topology import Topology
from tests.system.vrdd_tools import exact, host_context, in_partitions
from vispark import IN, OUT, VRDD, KernelFault, Kernels, LaunchError, PlanError, TranslationError


@pytest.fixture(scope="module")
def sc(local: Topology) -> Iterator[SparkContext]:
    with host_context(local) as context:
        yield context


RANDOM = np.random.default_rng(4)
LENGTHS = [3, 0, 5, 1, 1, 12, 0, 2]
WEIGHTS = RANDOM.random(20).astype("f4")


def csr(length: int) -> dict:
    return {"indices": np.sort(RANDOM.choice(20, length, replace=False)).astype("i4"),
            "values": RANDOM.random(length).astype("f4"), "y": float(length)}


RECORDS = [csr(length) for length in LENGTHS]
#: With an empty partition, one of one record, one of equal lengths.
PARTS = [RECORDS[:3], [], RECORDS[3:4], RECORDS[3:5], RECORDS[5:]]
ALL = [record for part in PARTS for record in part]


def product(indices, values, w):
    return np.dot(w[indices], values)


def looped(indices, values, w):
    total = 0.0
    for j, x in zip(indices, values, strict=False):
        total += w[j] * x
    return total + len(indices)


def by_generator(p, w):
    return sum(w[j] * x for j, x in zip(p["indices"], p["values"], strict=False)) + p["y"]


def longest(values):
    best = 0
    for i in range(len(values)):
        if values[i] > 0.5:
            best = i + 1
    return best


def test_csr_records(sc: SparkContext):
    plain = in_partitions(sc, PARTS)
    held = plain.cache("GPU")
    assert exact(held.collect()) == exact(plain.collect()) and held.count() == len(ALL)
    assert exact(held.take(2)) == exact(ALL[:2]) and exact(held.first()) == exact(ALL[0])
    assert exact(held.map(lambda r: r["values"]).collect()) == exact([r["values"] for r in ALL])
    for function in (product, looped, by_generator):
        expected = [function(r, WEIGHTS) if function is by_generator else
                    function(r["indices"], r["values"], WEIGHTS) for r in ALL]
        assert np.allclose(held.vmap(function, WEIGHTS).collect(), expected, rtol=1e-5)
    assert exact(held.vmap(longest).collect()) == exact([longest(r["values"]) for r in ALL])
    assert np.isclose(held.vmap(product, WEIGHTS).reduce(operator.add),
                      sum(product(r["indices"], r["values"], WEIGHTS) for r in ALL))
    # Fields beside stay, and functions follow each other.
    scored = held.vmap(lambda indices, values, w: {"score": np.dot(w[indices], values)}, WEIGHTS)
    assert np.allclose(scored.vmap(lambda score, y, values: score - y + values.sum()).collect(),
                       [product(r["indices"], r["values"], WEIGHTS) - r["y"] + r["values"].sum() for r in ALL],
                       rtol=1e-5)
    assert [sorted(each) for each in scored.collect()] == [["indices", "score", "values", "y"]] * len(ALL)


def test_folds_by_key_of_ragged_rows(sc: SparkContext):
    held = in_partitions(sc, PARTS).cache("GPU")
    sums = held.vmap(lambda indices, values: (len(indices) % 3, values.sum())).reduceByKey(operator.add, numKeys=3)
    expected = np.zeros(3)
    for record in ALL:
        expected[len(record["indices"]) % 3] += record["values"].sum()
    assert np.allclose(sums.toNumpy(), expected, rtol=1e-5)

    def gram(indices, values, table):
        total = np.zeros((2, 2))
        for j, x in zip(indices, values, strict=False):
            y = table[j]
            total += x * np.outer(y, y)
        return total
    table = RANDOM.random((20, 2))
    grams = held.vmap(gram, table).collect()
    assert np.allclose(grams, [gram(r["indices"], r["values"], table) for r in ALL])


def test_rows_of_several_lengths(sc: SparkContext):
    rows = [RANDOM.integers(0, 9, length) for length in (2, 0, 7)]
    held = sc.parallelize(rows, 1).cache("GPU")
    assert exact(held.collect()) == exact(rows)
    assert exact(held.vmap(lambda p: p.sum()).collect()) == exact([row.sum() for row in rows])
    assert held.vmap(lambda p: (2 * p + 1).sum() if len(p) > 1 else -1).collect() == [
        (2 * row + 1).sum() if len(row) > 1 else -1 for row in rows]
    assert held.vmap(lambda p: np.any(p > 5)).collect() == [bool(np.any(row > 5)) for row in rows]
    assert held.vmap(lambda p: sum(p)).collect() == [sum(row) for row in rows]
    floats = [rows[0] * 0.1, np.array([2.0, np.nan, 9.0])]
    for fn in (np.argmin, lambda p: p.argmax(), np.linalg.norm, np.std, lambda p: np.var(p, ddof=1)):
        computed = sc.parallelize(floats, 1).cache("GPU").vmap(fn).collect()
        np.testing.assert_allclose(computed, [fn(row) for row in floats])
    keyed = sc.parallelize([("a", rows[0]), ("b", rows[2])], 1).cache("GPU")
    assert exact(keyed.collect()) == exact([("a", rows[0]), ("b", rows[2])])
    assert keyed.vmap(lambda p: p.max()).collect() == [("a", rows[0].max()), ("b", rows[2].max())]


@pytest.mark.parametrize("lengths", [(1, 3), (3, 1)])
def test_arrays_that_numpy_broadcasts_are_added_as_in_spark(sc: SparkContext, lengths: tuple[int, int]):
    plain = sc.parallelize([np.ones(length) for length in lengths], 2)
    held = plain.cache("GPU")
    assert held.count() == 2
    assert held.sum().tolist() == plain.sum().tolist() == [2.0, 2.0, 2.0]


def test_sparse_vectors(sc: SparkContext):
    vectors = [SparseVector(20, record["indices"], record["values"]) for record in ALL]
    held = in_partitions(sc, [vectors[:4], [], vectors[4:]]).cache("GPU")
    assert held.collect() == vectors and held.first() == vectors[0] and type(held.first()) is SparseVector
    weights = WEIGHTS.astype("f8")
    for function in (lambda p, w: p.dot(w), lambda p, w: np.dot(p, w), lambda p, w: p @ w,
                     lambda p, w: np.dot(w[p.indices], p.values)):
        assert np.allclose(held.vmap(function, weights).collect(), [v.dot(weights) for v in vectors])
    assert held.vmap(lambda p: len(p) + p.size + len(p.values)).collect() == [40 + len(v.values) for v in vectors]
    with pytest.raises(KernelFault, match="rows of 20 and of 19 items do not go together"):
        held.vmap(lambda p, w: p.dot(w), weights[:-1]).collect()
    named = sc.parallelize([{"x": v, "y": 1.0} for v in vectors], 2).cache("GPU")
    assert named.collect() == [{"x": v, "y": 1.0} for v in vectors]
    assert np.allclose(named.vmap(lambda x, y, w: x.dot(w) - y, weights).collect(),
                       [v.dot(weights) - 1 for v in vectors])


def test_errors(sc: SparkContext):
    held = in_partitions(sc, PARTS).cache("GPU")
    with pytest.raises(TranslationError, match="cannot be chosen while the kernel runs, or returned"):
        held.vmap(lambda values: values * 2).collect()
    with pytest.raises(TranslationError, match="index that by the row, as in w"):
        held.vmap(lambda values, w: (w * values).sum(), WEIGHTS).collect()
    with pytest.raises(PlanError, match="no result replaces"):
        held.vmap(lambda values: {"values": values.sum()}).collect()
    with pytest.raises(KernelFault, match="index 99"):
        held.vmap(lambda values: values[99] if len(values) > 4 else values.sum()).collect()
    with pytest.raises(PlanError, match="are reduced by a function"):
        held.check_finite().vreduce(operator.add).collect()
    with pytest.raises(LaunchError, match=r"needs? the same leading extent"):
        held.exec(CSR.scale, IN["values"], OUT["values2"], IN["values"].size, np.float32(1), grid=1, block=32,
                  out={"values2": (IN["values"].size + 1, "f4")}).collect()
    with pytest.raises(LaunchError, match="rows of several lengths, which stay: give the result another name"):
        held.exec(CSR.product, IN["indices"].rows, IN["indices"], IN["values"], WEIGHTS, OUT["values"],
                  IN["values"].rows.shape[0], grid=1, block=32, out={"values": (IN["values"].rows.shape[0], "f4")}
                  ).collect()
    rows = sc.parallelize([np.ones(2), np.ones(1)], 1).cache("GPU")
    assert rows.filter(lambda p: len(p) > 1).count() == 1 and rows.map(len).collect() == [2, 1]
    assert sorted(map(len, rows.union(rows).collect())) == [1, 1, 2, 2]
    with pytest.raises(TranslationError, match="has no slices"):
        held.vmap(lambda values: values[1:].sum()).collect()
    with pytest.raises(KernelFault, match="a row without items has no extreme"):
        held.vmap(lambda values: values.min()).collect()


CSR = Kernels("""
extern "C" __global__ void product(const long long* rows, const int* columns, const float* values, const float* w,
                                   float* out, int n)
{
    for (int row = threadIdx.x; row < n; row += blockDim.x) {
        float total = 0;
        const long long first = rows[2 * row], last = first + rows[2 * row + 1];
        for (long long i = first; i < last; ++i) total += w[columns[i]] * values[i];
        out[row] = total;
    }
}
extern "C" __global__ void scale(const float* x, float* y, int n, float by)
{ for (int i = threadIdx.x; i < n; i += blockDim.x) y[i] = by * x[i]; }
extern "C" __global__ void halve(float* x, int n) { for (int i = threadIdx.x; i < n; i += blockDim.x) x[i] /= 2; }
extern "C" __global__ void sizes(const long long* rows, const int* places, const double* x, double* out, int n)
{ if (threadIdx.x < n) out[threadIdx.x] = rows[3 * threadIdx.x + 2] + (rows[3 * threadIdx.x + 1] ? places[rows[3 *
  threadIdx.x]] + x[rows[3 * threadIdx.x]] : 0); }
""")


def test_a_kernel_of_ones_own(sc: SparkContext):
    """Also of a partition without records, and of one whose rows are of one length and lie as a table."""
    held = in_partitions(sc, PARTS).cache("GPU")
    n = IN["values"].rows.shape[0]
    arguments = IN["indices"].rows, IN["indices"], IN["values"], WEIGHTS, OUT["s"], n
    products = held.exec(CSR.product, *arguments, grid=1, block=32, out={"s": (n, "f4")})
    records = products.collect()
    assert np.allclose([each.pop("s") for each in records],
                       [np.dot(WEIGHTS[each["indices"]], each["values"]) for each in ALL])
    assert exact(records) == exact(ALL)
    assert np.allclose(products.vmap(lambda values, s: values.sum() + s).collect(),
                       [each["values"].sum() + np.dot(WEIGHTS[each["indices"]], each["values"]) for each in ALL])
    halved = held.exec(CSR.halve, IN["values"], IN["values"].size, grid=1, block=32)
    assert exact(halved.collect()) == exact([each | {"values": each["values"] / 2} for each in ALL])
    rows = in_partitions(sc, [[each["values"] for each in part] for part in PARTS]).cache("GPU")
    doubled = rows.exec(CSR.scale, IN, OUT, IN.size, 2.0, grid=1, block=32)
    assert exact(doubled.collect()) == exact([each["values"] * 2 for each in ALL])
    vectors = sc.parallelize([SparseVector(9, [2, 5], [0.5, 1.0]), SparseVector(4, [], []),
                              SparseVector(3, [1], [0.25])], 1).cache("GPU")
    assert vectors.exec(CSR.sizes, IN.rows, IN.places, IN, OUT, IN.rows.shape[0], grid=1, block=32,
                        out=(IN.rows.shape[0], "f8")).collect() == [11.5, 4.0, 4.25]


def test_what_a_vreduce_leaves_is_mapped_as_a_row(sc: SparkContext):
    blocks = [RANDOM.random((length, 3)) for length in (4, 1, 9)]
    held = sc.parallelize(blocks, 2).cache("GPU")
    sums = held.vmap(lambda p: p * 2).vreduce(operator.add)
    assert np.allclose(sums.vmap(lambda s: s / s[0]).collect(),
                       [(2 * block.sum(axis=0)) / (2 * block.sum(axis=0)[0]) for block in blocks])
    assert np.allclose(sums.vmap(lambda s: s.sum()).collect(), [2 * block.sum() for block in blocks])
    assert np.allclose(sums.vmap(lambda x: x + 1, of="row").collect(), [2 * block.sum(axis=0) + 1 for block in blocks])


def test_matrices_in_a_dict_are_matrices(sc: SparkContext):
    records = [{"A": RANDOM.random((3, 3)) + np.eye(3), "b": RANDOM.random(3)} for _ in range(5)]
    held = sc.parallelize(records, 2).cache("GPU")
    assert np.allclose(held.vmap(lambda A, b: A @ b).collect(), [r["A"] @ r["b"] for r in records])
    assert np.allclose(held.vmap(lambda A, b: np.linalg.solve(A, b)).collect(),
                       [np.linalg.solve(r["A"], r["b"]) for r in records])
    # A row would do for its formula, but is no matrix.
    assert np.allclose(held.vmap(lambda A, b: np.linalg.eigvalsh(A)).collect(),
                       [np.linalg.eigvalsh(r["A"]) for r in records])
    wide = sc.parallelize([{"A": r["A"][:2], "b": r["b"], "c": 2.0} for r in records], 2).cache("GPU")
    assert np.allclose(wide.vmap(lambda A, b, c: c * A.sum() + b[0]).collect(),
                       [2 * r["A"][:2].sum() + r["b"][0] for r in records])
    rows = sc.parallelize(records, 2).cache("GPU").vmap(lambda A, b: A.sum() + b, of="row")
    assert np.allclose(rows.collect(), [r["A"].sum(axis=1) + r["b"] for r in records])


@pytest.mark.parametrize("parts", [1, 3])
def test_rows_of_the_values_of_a_key(sc: SparkContext, parts: int):
    ratings = np.column_stack([RANDOM.integers(0, 12, 200), RANDOM.integers(0, 20, 200), RANDOM.random(200)])
    held = sc.parallelize(list(ratings), 4).cache("GPU")
    users = held.vmap(lambda r: (int(r[0]), (int(r[1]), r[2]))).rowsByKey(parts)
    expected = {int(key): (ratings[ratings[:, 0] == key, 1].astype(int), ratings[ratings[:, 0] == key, 2])
                for key in np.unique(ratings[:, 0])}
    assert isinstance(users, VRDD) and users.getNumPartitions() == parts
    assert exact(dict(users.collect())) == exact(expected)
    assert [key for key, _ in users.glom().collect()[0]] == sorted(key for key in expected if key % parts == 0)
    assert exact(dict(users.recv().collect())) == exact(expected)
    sums = users.vmap(lambda u, w: (u[0], np.dot(w[u[1][0]], u[1][1])), WEIGHTS.astype("f8"))
    assert np.allclose([value for _, value in sorted(sums.collect())],
                       [WEIGHTS[places] @ values for places, values in expected.values()])
    numbers = held.vmap(lambda r: (int(r[0]), r[2])).rowsByKey(parts)
    assert exact(dict(numbers.collect())) == exact({key: values for key, (_, values) in expected.items()})
    plain = sc.parallelize([("a", 1.0), ("b", 2.0), ("a", 3.0)], 2).cache("GPU").rowsByKey(1)
    assert [(key, row.tolist()) for key, row in plain.collect()] == [("a", [1.0, 3.0]), ("b", [2.0])]
