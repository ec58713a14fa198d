"""Data larger than the device's memory: plans run in waves, and give the bits of a device that has room for all."""

from __future__ import annotations

import gc
import operator
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from pyspark import RDD, SparkContext
from pyspark.sql import SparkSession

from tests.system.topology import Topology
from tests.system.vrdd_tools import exact, host_context, report
from vispark import IN, OUT, Grid, Kernels, NotFinite, OutOfMemory, PlanError, stencil
from vispark.api.vrdd import VRDD
from vispark.ml import loads
from vispark.ml.clustering import KMeans
from vispark.ml.regression import LinearRegression
from vispark.ml.vectors import vectors_of

#: 8 partitions of 16 MB.
PARTITIONS, ROWS, COLUMNS = 8, 4096, 512
MEMORY = 64 << 20

KERNELS = Kernels('extern "C" __global__ void halved(const double* x, double* y, int n)'
                  '{ for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)'
                  ' y[i] = x[i] / 2; }')


def rows(sc: SparkContext) -> RDD:
    return sc.parallelize(range(PARTITIONS), PARTITIONS).mapPartitionsWithIndex(
        lambda index, _: np.random.default_rng(index).normal(size=(ROWS, COLUMNS)))


def answers(host: VRDD) -> dict[str, object]:
    """Compute answers of plans on the rows: folds, reductions by key, loops and records."""
    weights = np.zeros(COLUMNS)
    for _ in range(3):
        weights = weights + host.vmap(lambda x, w: x / (1 + abs((x * w).sum())), weights).sum() / 1000
    keyed = host.vmap(lambda x: (int(abs(x[0]) * 10) % 7, x.sum()))
    return {
        "sum": exact(host.vmap(lambda x: (x * x).sum()).sum()),
        "vector": exact(host.sum()),
        "max": exact(host.vmap(lambda x: x[1]).max()),
        "inside": exact(host.vreduce(operator.add).sum()),
        "keys": exact(sorted(keyed.reduceByKey(operator.add, numKeys=7).collect())),
        "loop": exact(weights),
        "take": exact(host.vmap(lambda x: x * 3).take(3)),
        "count": host.count(),
        "collect": exact(host.vmap(lambda x: x[:4]).collect()[::1000]),
    }


@pytest.fixture(scope="module")
def in_memory(local: Topology) -> dict[str, object]:
    """Return the answers where all fits."""
    with host_context(local) as sc:
        return answers(rows(sc).send().cache()) | raw(rows(sc).send().cache())


def raw(host: VRDD) -> dict[str, object]:
    """Compute the answer of a kernel that takes each partition as a whole."""
    halved = host.exec(KERNELS.halved, IN, OUT, IN.shape[0] * IN.shape[1], grid=16, block=64)
    return {"raw": exact(halved.vmap(lambda x: x[3]).sum())}


@pytest.fixture
def small(local: Topology) -> Iterator[SparkContext]:
    with host_context(local, memory="64m") as sc:
        yield sc


def test_what_is_sent_is_streamed(small: SparkContext, in_memory: dict[str, object]):
    host = rows(small).send().cache()
    actual = answers(host) | raw(host)
    assert [name for name in in_memory if actual[name] != in_memory[name]] == []
    assert report(small).memory[0].used < MEMORY


def test_what_is_persisted_on_both_is_partly_resident(small: SparkContext, in_memory: dict[str, object]):
    both = rows(small).persist("GPU_AND_HOST")
    actual = answers(both) | raw(both)
    assert [name for name in in_memory if actual[name] != in_memory[name]] == []
    held = report(small)
    assert 16 << 20 <= held.memory[0].used < MEMORY and held.host_bytes >= 64 << 20
    doubled = both.vmap(lambda x: x * 2).persist("GPU_AND_HOST")
    assert exact(doubled.sum()) == exact(both.sum() * 2)
    assert "else on host" in doubled.explanation()


def test_what_is_resident_between_others_is_folded_in_its_place(small: SparkContext):
    """Small partitions find room on the device, and large ones between them are streamed."""
    uneven = small.parallelize(range(8), 8).mapPartitionsWithIndex(lambda index, _: np.random.default_rng(index).normal(
        size=(2 if index % 2 else ROWS, COLUMNS)))
    both, sent = uneven.persist("GPU_AND_HOST"), uneven.send().cache()
    folds = []
    for vrdd in (both, sent):
        keyed = vrdd.vmap(lambda x: (int(abs(x[0]) * 10) % 7, x))
        folds.append([exact(vrdd.vmap(lambda x: x / (1 + abs(x.sum()))).sum()),
                      exact(vrdd.vmap(lambda x: x * 3).vmap(lambda x: (x, x.sum())).reduce(
                          lambda a, b: (a[0] + b[0], max(a[1], b[1])))),
                      exact(sorted(keyed.reduceByKey(operator.add, numKeys=7).collect(), key=lambda pair: pair[0]))])
    assert folds[0] == folds[1]
    assert re.search(r"[45] of 8 partitions on \w+:0, [34] on host", both.explanation())


def test_what_finds_no_room_in_host_memory_lies_in_files(local: Topology, in_memory: dict[str, object], tmp_path: Path):
    options = {"memory": "64m", "hostMemory": "48m", "spillDir": str(tmp_path)}
    with host_context(local, **options) as sc:
        spilled = rows(sc).persist("GPU_HOST_AND_DISK")
        actual = answers(spilled) | raw(spilled)
        assert [name for name in in_memory if actual[name] != in_memory[name]] == []
        held = report(sc)
        assert spilled.getStorageLevel().useDisk
        assert held.host_bytes <= 48 << 20 and "disk" in held.vrdds[0].device
        text = spilled.explanation()
        assert re.search(r"\d of 8 partitions on \w+:0, \d on host, \d on disk: streamed, \d+ MiB a pass", text), text
        assert not list(tmp_path.iterdir())
        with pytest.raises(OutOfMemory, match=r"spark\.vispark\.hostMemory"):
            spilled.vmap(lambda x: x * 2).persist("GPU_AND_HOST").count()
        assert exact(spilled.sum()) == in_memory["vector"]


def test_tasks_that_load_into_room_for_two_all_succeed(local: Topology):
    """Load 8 partitions of 16 MB by 8 tasks at once, on a device with room for two beside what is streamed."""
    settings = {"master": "local[8]", "vispark.device": "host", "vispark.memory": "64m"}
    with local.context({f"spark.{name}": value for name, value in settings.items()}) as sc:
        both = rows(sc).persist("GPU_AND_HOST")
        assert both.count() == PARTITIONS * ROWS
        assert sorted(both._residency.places) == list(range(PARTITIONS))
        both.uncache()
        sums = rows(sc).vmap(lambda x: x * 2).vmap(lambda x: x.sum())
        assert np.isfinite(sums.sum())


def of_one(sc: SparkContext) -> dict[str, object]:
    """Compute answers of plans on one partition of 8 MB: sent, loaded into a plan, computed and held."""
    rdd = sc.parallelize([0], 1).mapPartitions(lambda _: np.random.default_rng(9).normal(size=(8 * ROWS, 32)))
    host = rdd.send().cache()
    doubled = rdd.vmap(lambda x: x * 2 + 1).persist("GPU_AND_HOST")
    keyed = host.vmap(lambda x: (int(abs(x[0]) * 10) % 7, x.sum()))
    return {
        "sum": exact(host.vmap(lambda x: (x * x).sum()).sum()),
        "vector": exact(host.sum()),
        "inside": exact(host.vreduce(operator.add).sum()),
        "keys": exact(sorted(keyed.reduceByKey(operator.add, numKeys=7).collect())),
        "take": exact(doubled.take(3)),
        "collect": exact(host.vmap(lambda x: x[:4]).collect()[::100]),
        "load": exact(rdd.vmap(lambda x: x[:4]).sum()),
        "held": exact(doubled.sum()),
    }


def by_keys(sc: SparkContext) -> dict[str, object]:
    """Filter, sample and exchange the rows of one partition of 8 MB."""
    host = sc.parallelize([0], 1).mapPartitions(lambda _: np.random.default_rng(9).normal(size=(8 * ROWS, 32))).send()
    host = host.cache()
    pairs = host.vmap(lambda x: (int(abs(x[0]) * 10) % 37, x[1]))
    sent = sc.parallelize([0], 1).mapPartitions(
        lambda _: [(k, float(k)) for k in np.random.default_rng(8).integers(0, 99, 50_000).tolist()]).send().cache()
    names = host.vmap(lambda x: (int(x[3] * 1e4), x[4]))
    ordered = host.vmap(lambda x: (x[0], x[1:5]))
    kept = host.vmap(lambda x: (int(x[0] * 100), x)).partitionBy(2)
    return {
        "filter": exact(host.filter(lambda x: x[0] > 0).collect()),
        "none": host.filter(lambda x: x[0] > 1e9).collect(),
        "sample": exact(host.sample(False, 0.1, 3).collect()),
        "repeated": exact(host.sample(True, 0.3, 3).collect()),
        "sent": exact(sent.sample(False, 0.1, 3).collect()),
        "numbered": exact(host.vmap(lambda x: x[2]).zipWithIndex().collect()[::1000]),
        "partitioned": exact([exact(part) for part in pairs.partitionBy(5).glom().collect()]),
        "sent keys": exact(sent.partitionBy(3).collect()),
        "reduced": exact(pairs.reduceByKey(operator.add).collect()),
        "sorted": exact([exact(part) for part in ordered.sortByKey(False, 6).glom().collect()]),
        "distinct": exact(host.vmap(lambda x: int(x[0] * 100)).distinct(4).collect()),
        "counted": exact(sorted(pairs.countByKey().items())),
        "kept keys": exact(kept.keys().vmap(lambda k: k + 1).sum()),
        "all sorted": exact(ordered.sortByKey(False, 1).collect()),
        "all reduced": exact(pairs.reduceByKey(operator.add, 1).collect()),
        "all rows": exact(pairs.rowsByKey(1).collect()),
        "all joined": exact(names.join(names.vmap(lambda kv: (kv[0] + 1, kv[1])), 1).collect()),
        "joined": exact(sorted(names.join(names.vmap(lambda kv: (kv[0] + 1, kv[1])), 8).collect())),
    }


def test_a_partition_of_four_times_the_device_is_streamed_by_rows(local: Topology):
    with host_context(local) as sc:
        expected = of_one(sc)
    with host_context(local, memory="2m") as sc:
        actual = of_one(sc)
        assert [name for name in actual if actual[name] != expected[name]] == []
        assert report(sc).memory[0].used < 2 << 20
        host = rows(sc).send().cache()
        with pytest.raises(OutOfMemory, match="streams a partition by rows, or whole where a raw kernel"):
            raw(host)


@stencil
def spread(u):
    return (u[-1, 0, 0] + u[2, 0, 0] + u[0, -1, 1] + u[0, 1, 0] + u[0, 0, -1]) / 5


@stencil
def larger(u):
    return 1e100 * u[0, 0, 0]


@stencil
def faster(u, v):
    return {"v": v[0, 0, 0] + (u[1, 0, 0] - u[-1, 0, 0]) / 4}


@stencil
def moved(u, v):
    return {"u": u[0, 0, 0] + (v[0, 1, 0] - v[-1, 0, 0]) / 8}


def of_grids(sc: SparkContext, level: str) -> dict[str, object]:
    """Compute steps on a grid of 3 MB, in one block and in several, by all kinds of boundaries."""
    cells = np.random.default_rng(4).normal(size=(160, 48, 48))
    results: dict[str, object] = {}
    for name, boundary, splits in (("periodic", "periodic", (1, 1, 1)), ("mirrored", "mirrored", (3, 2, 1)),
                                   ("number", (0.5, "periodic", 0.0), (2, 1, 1)),
                                   ("function", lambda z, y, x: z + 2.0 * y - x, (1, 2, 1))):
        grid = Grid(cells.shape, splits=splits, halo=2, boundary=boundary)
        blocks = grid.scatter(sc, cells)
        blocks = blocks.send().cache() if level == "host" else blocks.persist(level)
        later = blocks.iterate(spread, steps=7)
        results[name] = exact(grid.gather(later))
        results[f"{name} one more"] = exact(grid.gather(later.iterate(spread, steps=1)))
        results[f"{name} mapped"] = exact(grid.gather(later.halo_extract().halo_shuffle().vmap(spread)))
        ended = blocks.iterate(spread, steps=40, until=15.0 if name == "function" else 0.8, every=3, check=4)
        results[f"{name} ended"] = exact(grid.gather(ended)), ended.iterated
        assert 3 <= ended.iterated.steps < 40
        results[f"{name} folded"] = [fold(each) for each in (blocks, later)
                                     for fold in (Grid.sum, Grid.min, Grid.max, Grid.norm)]
        with pytest.raises(NotFinite, match=r"of the grid, in block .* infinite after step 4") as error:
            grid.gather(blocks.iterate(larger, steps=7, check=2))
        results[f"{name} too large"] = str(error.value).partition(" [VRDD")[0]
    grid = Grid(cells.shape, splits=(2, 1, 1), halo=1, boundary="mirrored")
    both = grid.scatter(sc, {"u": cells, "v": cells[::-1].copy()})
    both = both.send().cache() if level == "host" else both.persist(level)
    leap = both.iterate([faster, moved], steps=3)
    return results | {name: exact(array) for name, array in grid.gather(leap).items()}


def test_a_grid_that_does_not_fit_goes_by_planes(local: Topology):
    with host_context(local) as sc:
        expected = of_grids(sc, "GPU")
    with host_context(local, memory="4m") as sc:
        for level in ("host", "GPU_AND_HOST"):
            actual = of_grids(sc, level)
            assert [name for name in actual if actual[name] != expected[name]] == [], level
        assert report(sc).memory[0].used < 4 << 20


def test_planes_are_computed_by_two_devices_in_turn(local: Topology):
    with host_context(local) as sc:
        expected = of_grids(sc, "GPU")
    with host_context(local, device="host:2", memory="4m") as sc:
        actual = of_grids(sc, "GPU_AND_HOST")
        assert [name for name in actual if actual[name] != expected[name]] == []
        assert [each.used < 4 << 20 for each in report(sc).memory] == [True, True]


def of_blocks(sc: SparkContext, level: str) -> dict[str, object]:
    """Fold inside blocks of 3 MB: of grids, and of records of two dimensions."""
    results: dict[str, object] = {}
    cells = np.random.default_rng(4).normal(size=(160, 48, 48))
    for name, array in (("f8", cells), ("f4", cells.astype("f4")), ("i4", (cells * 1e6).astype("i4")),
                        ("long", cells.reshape(-1, 12)), ("row", cells.reshape(-1))):
        blocks = Grid(array.shape).scatter(sc, array).persist(level)
        totals = {fold.__name__: fold(blocks) for fold in (Grid.sum, Grid.min, Grid.max, Grid.norm)}
        results[f"{name} totals"] = exact(list(totals.values()))
        doubled = blocks.vreduce(operator.add).mapValues(lambda row: row * 2)
        results[f"{name} folded"] = exact(doubled.values().collect())
    both = Grid(cells.shape).scatter(sc, {"u": cells, "v": cells[::-1] + 1}).persist(level)
    results["dot"] = Grid.dot(both, "u", "v")
    results["stepped"] = Grid.sum(Grid(cells.shape, halo=2, boundary="periodic").scatter(sc, cells).persist(
        level).iterate(spread, steps=3))
    record = sc.parallelize([0], 1).map(lambda _: np.random.default_rng(9).normal(size=(9000, 48))).persist(level)
    kept = record.vmap(lambda x: x * x, of="row").vreduce(operator.add).persist(level)
    return results | {
        "record": exact(kept.collect()),
        "taken": exact(record.vmap(lambda x: x.sum(), of="row").vreduce(max).take(1)),
        "plain": exact(record.vreduce(operator.add).collect()),
        "again": exact(kept.vmap(lambda x: x + 1).collect()),
    }


def test_a_block_larger_than_the_device_is_folded_by_pieces(local: Topology):
    with host_context(local, fallback="error") as sc:
        expected = of_blocks(sc, "GPU")
    with host_context(local, memory="2m", fallback="error") as sc:
        actual = of_blocks(sc, "GPU_AND_HOST")
        assert [name for name in actual if actual[name] != expected[name]] == []
        gc.collect()
        assert sc.parallelize([1.0]).cache("GPU").sum() == 1        # what is let go of goes with a request
        assert report(sc).memory[0].used < 1 << 10


def test_blocks_that_no_fold_has_room_for(local: Topology):
    with host_context(local, memory="1m") as sc:
        cells = np.random.default_rng(4).normal(size=(160, 48, 48))
        blocks = Grid(cells.shape, splits=(2, 1, 1)).scatter(sc, cells, partitions=1).persist("GPU_AND_HOST")
        with pytest.raises(OutOfMemory, match=r"takes a block that is alone in its partition by some.*splits="):
            Grid.sum(blocks)


def test_cache_says_what_would_fit(small: SparkContext):
    with pytest.raises(OutOfMemory, match=r'do not fit.*persist\("GPU_AND_HOST"\) keeps in host memory'):
        rows(small).cache("GPU").count()


def test_tasks_that_load_at_once_take_turns(small: SparkContext):
    # Each needs 32 MB while it runs, of 64 MB, and keeps 4 kB.
    rdd = rows(small)
    with ThreadPoolExecutor(4) as pool:
        sums = list(pool.map(lambda k: rdd.vmap(lambda x: x * k).vmap(lambda x: x.sum()).sum(), range(1, 5)))
    assert np.allclose(sums, sums[0] * np.arange(1, 5))


def fitted(sc: SparkContext) -> list[bytes]:
    """Return the numbers of fits to a DataFrame of 12 MB."""
    df = SparkSession(sc).range(0, 150_000, 1, 8).selectExpr(
        "double(id % 7) label", "transform(sequence(1, 9), i -> cos(id * i)) features")
    df = df.withColumn("features", vectors_of(df, "features"))
    numbers = [LinearRegression(regParam=.1).fit(df).coefficients.toArray().tobytes(),
               *(center.tobytes() for center in KMeans(k=2, seed=1, maxIter=2).fit(df).clusterCenters())]
    loads.unload()
    return numbers


def test_fits_of_what_is_larger_than_the_device(local: Topology):
    # Models have the same bits; a fit that host memory has no room for either is left to MLlib, by name.
    pytest.importorskip("pyarrow")
    with host_context(local) as sc:
        expected = fitted(sc)
    with host_context(local, memory="10m", fallback="error") as sc:
        assert fitted(sc) == expected
    with host_context(local, memory="10m", hostMemory="2m", fallback="error") as sc, \
            pytest.raises(PlanError, match=r"LinearRegression is done by MLlib.*do not fit"):
        fitted(sc)


def test_one_key_of_all_records_needs_room_for_them(local: Topology):
    # The bytes of all rows are counted before a row is moved, to the device or below it, and what is held stays.
    with host_context(local, memory="64m", hostMemory="20m") as sc:
        # In one partition, as each of several GPUs has the memory.
        held = sc.parallelize([0], 1).mapPartitions(
            lambda _: np.random.default_rng(0).normal(size=(6144, COLUMNS))).cache("GPU")
        assert held.count() == 6144
        pairs = held.vmap(lambda x: (0, x))
        with pytest.raises(OutOfMemory, match=r"largest is partition 0 with 6,144 of 6,144 .*vispark\.hostMemory"):
            pairs.partitionBy(4).count()
        few = held.vmap(lambda x: (0, x[0]))
        assert [len(part) for part in few.partitionBy(4).glom().collect()] == [6144, 0, 0, 0]


def of_one_key(sc: SparkContext) -> dict[str, object]:
    """Compute answers on 8 MB of rows, of which most have one key, and all have another one."""
    host = sc.parallelize([0], 1).mapPartitions(lambda _: np.random.default_rng(9).normal(size=(8 * ROWS, 32)))
    host = host.send().cache()
    most = host.vmap(lambda x: (int(abs(x[0]) > 2) * (int(x[1] * 9) + 5) - 7, x))
    pairs = host.vmap(lambda x: ((0.0 if x[0] < 2 else x[0], int(x[1] > 3)), x[2]))
    alone = host.vmap(lambda x: (3, int(x[2] * 1e6)))
    some = host.filter(lambda x: x[3] > 3.5).vmap(lambda x: (3, x[4]))
    return {
        "sorted": exact(most.sortByKey(numPartitions=1).collect()),
        "first": exact(most.sortByKey(False, 1).first()),
        "falling": exact(pairs.sortByKey(False, 1).collect()),
        "reduced": exact(host.vmap(lambda x: (int(x[0] > 3) + 1, x)).reduceByKey(operator.add, 1).collect()),
        "least": exact(most.vmap(lambda kv: (kv[0], kv[1][3])).reduceByKey(min, 1).collect()),
        "tuples": exact(pairs.reduceByKey(operator.add, 1).collect()),
        "whole": exact(alone.reduceByKey(operator.add, 2).collect()),
        "counted": exact(sorted(most.countByKey().items())),
        "distinct": exact(host.vmap(lambda x: int(x[0] > 3)).distinct(1).collect()),
        "grouped": [(key, exact(list(values))) for key, values in most.groupByKey(1).collect()],
        "rows": exact(alone.rowsByKey(1).collect()),
        "joined": exact(some.join(alone, 2).vmap(lambda kv: kv[1][0] * kv[1][1]).sum()),
        "joined with all": exact(alone.join(some, 2).vmap(lambda kv: kv[1][0] * kv[1][1]).sum()),
        "cogrouped": [(key, *map(exact, map(list, values))) for key, values in some.cogroup(alone, 2).collect()],
    }


@pytest.mark.parametrize(("results", "megabytes"), [(by_keys, 2), (of_one_key, 1)],
                         ids=["keys of a partition of four times the device", "records of one key"])
def test_what_no_device_has_room_for_is_exchanged_sorted_and_folded(local: Topology, results, megabytes: int):
    with host_context(local, fallback="error") as sc:
        expected = results(sc)
    with host_context(local, memory=f"{megabytes}m", fallback="error") as sc:
        actual = results(sc)
        assert [name for name in actual if actual[name] != expected[name]] == []
        assert report(sc).memory[0].used < megabytes << 20


def test_a_load_that_finds_no_room_leaves_nothing_behind(local: Topology):
    # Results on what was held below the device are as before, also while the error and its VRDD are there.
    with host_context(local, memory="8m") as sc:
        rdd = sc.parallelize(range(6), 6).mapPartitionsWithIndex(
            lambda index, _: np.random.default_rng(index).normal(size=(4096, 64)))
        held = rdd.persist("GPU_AND_HOST")
        expected = exact(held.vmap(lambda x: x.sum()).sum())
        more = rdd.map(lambda x: x + 2).cache("GPU")
        for _ in range(2):
            with pytest.raises(OutOfMemory, match="do not fit"):
                more.count()
            assert exact(held.vmap(lambda x: x.sum()).sum()) == expected
        few = sc.parallelize(range(8), 1).mapPartitions(lambda _: np.ones((4096, 240))).cache("GPU")
        assert few.count() == 4096
        with pytest.raises(OutOfMemory, match=r"held there: VRDD \d+ htod \(7,864,320 bytes\), until uncache\(\)"):
            raw(held)


def test_a_budget_of_a_byte_is_said(local: Topology):
    with local.context({f"spark.vispark.{name}": value for name, value in
                        {"device": "host", "memory": "1", "hostMemory": "1"}.items()}) as sc:
        numbers = sc.parallelize([1.0], 1)
        with pytest.raises(OutOfMemory, match=r'8 bytes do not fit, 0 of 1 are in use; persist\("GPU_AND_HOST"\)'):
            numbers.cache("GPU").count()
        with pytest.raises(OutOfMemory, match=r"spark\.vispark\.hostMemory"):
            numbers.persist("GPU_AND_HOST").count()
        assert numbers.persist("GPU_HOST_AND_DISK").collect() == [1.0]
