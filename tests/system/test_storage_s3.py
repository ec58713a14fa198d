"""Grids in S3, against moto's server, which counts what is read of it."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from pyspark import SparkContext

import vispark
from tests.optional import needed
from tests.system.object_store import ObjectStore, serving
from tests.system.topology import Topology
from tests.system.vrdd_tools import warm_up
from vispark import Grid
from vispark.data.grid import files, npy
from vispark.data.storage import systems
from vispark.data.storage.opening import located
from vispark.errors import PlanError
from vispark.migrate.capture.event_log import read_log
from vispark.migrate.errors import EventLogError

obstore = pytest.importorskip("obstore")
stores = pytest.importorskip("obstore.store")
asyn = pytest.importorskip("fsspec.asyn")
needed("moto")

EVENT_LOGS = Path(__file__).parents[1] / "unit/event_logs"
ARRAY = np.random.default_rng(1).random((24, 20, 600)).astype("f4")


@pytest.fixture(scope="module")
def s3() -> Iterator[ObjectStore]:
    """Serve S3, which this process finds."""
    # From its first use on, obstore keeps an event queue of its own.
    obstore.put(stores.MemoryStore(), "first", b"use")
    # fsspec keeps a thread.
    asyn.get_loop()
    with serving() as server, pytest.MonkeyPatch.context() as patch:
        for name, value in server.environment.items():
            patch.setenv(name, value)
        yield server


@pytest.fixture(scope="module")
def sc(s3: ObjectStore, local: Topology) -> Iterator[SparkContext]:
    """Start a context whose tasks find S3 too."""
    with local.context({f"spark.executorEnv.{name}": value for name, value in s3.environment.items()} | {
            "spark.vispark.device": "host"}) as context:
        warm_up(context)
        yield context


@pytest.mark.parametrize("scheme", ["s3", "s3a"])
def test_an_event_log_in_s3(s3: ObjectStore, scheme: str):
    log = (EVENT_LOGS / "kmeans-4.jsonl").read_bytes()
    store = stores.S3Store("bucket", endpoint=s3.endpoint, client_options={"allow_http": True})
    folder = f"logs-{scheme}/eventlog_v2_a"
    half = log.index(b"\n", len(log) // 2) + 1
    for name, data in (("appstatus_a", b""), ("events_1_a", log[:half]), ("events_2_a.gz", gzip.compress(log[half:]))):
        obstore.put(store, f"{folder}/{name}", data)
    assert read_log(f"{scheme}://bucket/{folder}") == read_log(str(EVENT_LOGS / "kmeans-4.jsonl"))
    assert read_log(f"{scheme}://bucket/{folder}/events_1_a").is_complete is False
    for missing in ("bucket/nothing", "no-such-bucket/a"):
        with pytest.raises(EventLogError, match=f"{scheme}://{missing} cannot be read"):
            read_log(f"{scheme}://{missing}")


@pytest.mark.parametrize("splits", [(5, 1, 1), (2, 1, 2), (1, 1, 2)], ids=str)
def test_no_more_is_read_of_a_file_than_the_grid(s3: ObjectStore, sc: SparkContext, splits: tuple[int, ...]):
    if splits[-1] == 1:
        Grid.save(Grid(ARRAY.shape, splits).scatter(sc, ARRAY), "s3://bucket/whole/u.npy")
    before = len(s3.requests())
    np.testing.assert_array_equal(Grid.gather(Grid(ARRAY.shape, splits).scatter(sc, "s3://bucket/whole/u.npy")), ARRAY)
    assert s3.read_since(before) <= 1.1 * ARRAY.nbytes


def test_tasks_read_whole_rows_of_their_blocks(s3: ObjectStore, sc: SparkContext, monkeypatch: pytest.MonkeyPatch):
    npy.write_block("s3://bucket/rows.npy", ARRAY)
    before = len(s3.requests())
    fields = {"u": "s3://bucket/rows.npy", "v": 1.0, "w": lambda z, y, x: x}
    gathered = Grid.gather(Grid(ARRAY.shape, (4, 1, 5)).scatter(sc, fields, partitions=4))
    np.testing.assert_array_equal(gathered["u"], ARRAY)
    assert (gathered["v"] == 1).all() and (gathered["w"] == np.arange(600)).all()
    assert sum(each.method == "GET" and each.nbytes > 1000 for each in s3.requests()[before:]) == 4
    monkeypatch.setattr(files, "_MOST_REQUESTS", 400)
    with pytest.raises(PlanError, match=r"rows\.npy would be read by 480 requests of 480 bytes"):
        Grid(ARRAY.shape, (1, 1, 5)).scatter(sc, "s3://bucket/rows.npy", partitions=5)
    Grid(ARRAY.shape, (1, 1, 5)).scatter(sc, "s3://bucket/rows.npy", partitions=1)


def test_blocks_and_fields_in_directories(s3: ObjectStore, sc: SparkContext):
    grid = Grid((9, 7), (4, 2), fields={"u": "f4", "n": "i8"})
    n = np.arange(63).reshape(9, 7)
    blocks = grid.scatter(sc, {"u": lambda y, x: y - x, "n": n})
    Grid.save(blocks, "s3://bucket/fields")
    Grid.save(blocks, "s3://bucket/parts", per_block=True)
    for where in ("fields", "parts"):
        for reader in (grid, Grid((9, 7), (4, 2))):
            again = Grid.gather(reader.scatter(sc, f"s3://bucket/{where}"))
            np.testing.assert_array_equal(again["n"], n)
            assert again["u"].dtype == np.float32
    with pytest.raises(PlanError, match=r"saved with splits=\(4, 2\), and this grid has splits=\(2, 2\)"):
        Grid((9, 7), (2, 2)).scatter(sc, {"n": "s3://bucket/parts/n"})


def test_what_cannot_be_read_is_said_before_tasks_run(s3: ObjectStore, sc: SparkContext):
    grid, array = Grid((8, 6), (2, 2)), np.arange(48.0).reshape(8, 6)
    with pytest.raises(PlanError, match=r"there is no file s3://bucket/none\.npy"):
        grid.scatter(sc, "s3://bucket/none.npy")
    with pytest.raises(PlanError, match="there is no directory s3://bucket/none, or it is empty"):
        grid.scatter(sc, "s3://bucket/none")
    npy.write_block("s3://bucket/u.npy", array)
    with pytest.raises(PlanError, match=r"u\.npy has shape \(8, 6\), and the grid \(6, 8\)"):
        Grid((6, 8), (2, 2)).scatter(sc, "s3://bucket/u.npy")
    with s3.refusing(), pytest.raises(PlanError, match=r"u\.npy cannot be read: there is no permission"):
        grid.scatter(sc, "s3://bucket/u.npy")
    with s3.refusing(), pytest.raises(PlanError, match=r"s3://bucket/t\.parquet cannot be looked up: "):
        vispark.read_parquet(sc, "s3://bucket/t.parquet")
    place = located("s3://bucket/short.npy")
    content = located("s3://bucket/u.npy").content()
    place.write([content[:-100]], len(content) - 100)
    with pytest.raises(PlanError, match=r"short\.npy ends early: it has 412 bytes"):
        grid.scatter(sc, "s3://bucket/short.npy")


def test_a_file_that_changes_meanwhile_is_said(s3: ObjectStore, sc: SparkContext):
    grid, array = Grid((8, 6), (2, 2)), np.arange(48.0).reshape(8, 6)
    npy.write_block("s3://bucket/u.npy", array)
    blocks = grid.scatter(sc, "s3://bucket/u.npy")
    npy.write_block("s3://bucket/u.npy", array + 1)
    with pytest.raises(PlanError, match=r"u\.npy has changed since it was first looked at"):
        blocks.collect()


def test_rows_are_read_from_s3(s3: ObjectStore, sc: SparkContext):
    rows = np.arange(3000.0, dtype="f4").reshape(1000, 3)
    text = "".join(" ".join(map(str, row)) + "\n" for row in rows.tolist()).encode()
    located("s3://bucket/rows/points.txt").write([text], len(text))
    for path in ("s3://bucket/rows/points.txt", "s3://bucket/rows"):
        points = np.array(vispark.read_text(sc, path, dtype="float32").collect())
        np.testing.assert_array_equal(np.sort(points, 0), rows)
    _disconnect()


def _disconnect() -> None:
    """Let go of fsspec's store, of which each process has one, with the connections that it keeps."""
    system = systems.opened("s3://bucket/rows")[0]
    system._construct_store.cache_clear()
    type(system).clear_instance_cache()


def test_tables_are_written_to_s3(s3: ObjectStore, sc: SparkContext):
    table, there = sc.parallelize([1.0, 2.0, 3.0], 2).cache("GPU"), "s3://bucket/tables/t"
    table.write_parquet(there)
    whole = {"_SUCCESS": True, "part-00000.parquet": True, "part-00001.parquet": True}
    assert located(there).names() == whole
    assert sorted(vispark.read_parquet(sc, there).collect()) == [1.0, 2.0, 3.0]
    with pytest.raises(PlanError, match=f"{there} is there already"):
        table.write_parquet(there)
    table.vmap(lambda x: 2 * x).write_parquet(there, overwrite=True)
    assert located(there).names() == whole
    assert sorted(vispark.read_parquet(sc, there).collect()) == [2.0, 4.0, 6.0]
    with s3.refusing():
        for overwrite in (False, True):
            with pytest.raises(PlanError, match=rf"^{there}\S* cannot be \w+( \w+)?: .*privileges[^\n]*$"):
                table.write_parquet(there, overwrite=overwrite)
    assert located(there).names() == whole
    table.unpersist()
    _disconnect()


@pytest.mark.parametrize("nbytes", [1 << 10, 80 << 20], ids=["one put", "parts"])
def test_a_fault_leaves_nothing(s3: ObjectStore, nbytes: int):
    def broken() -> Iterator[np.ndarray]:
        yield np.zeros(nbytes // 2, "u1")
        raise KeyError("the task was lost")

    with pytest.raises(KeyError):
        npy.write_slabs("s3://bucket/half/u.npy", (nbytes,), np.dtype("u1"), broken())
    assert located("s3://bucket/half").names() == {}
    assert not any("half" in each.path and each.method == "POST" and "uploadId" in each.path for each in s3.requests())
