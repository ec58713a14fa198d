"""Rows and grids in a real HDFS of two DataNodes, read by executors of the same hosts: equal to what was written, read
where it is, and not for long where nobody answers.
"""

from __future__ import annotations

import gzip
import io
import operator
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from pyspark import RDD, SparkContext

from tests.system import hdfs as servers
from tests.system import zarr_tools
from tests.system.gpu_tools import warm_up
from tests.system.hdfs import Hdfs
from tests.system.topology import Topology
from tests.system.worker_tools import eventually
from vispark import Grid, read_csv, read_orc, read_parquet, read_text
from vispark.data.grid.files import opened
from vispark.data.grid.stored import FilesOf
from vispark.data.storage import systems
from vispark.data.storage.locality import FileRange, blocks_of, is_placed
from vispark.data.storage.opening import located
from vispark.errors import PlanError
from vispark.migrate.capture.event_log import read_log
from vispark.migrate.errors import EventLogError

pytest.importorskip("hdfs_native")
pa = pytest.importorskip("pyarrow")
csv, orc, parquet = (pytest.importorskip(f"pyarrow.{name}") for name in ("csv", "orc", "parquet"))

EVENT_LOGS = Path(__file__).parents[1] / "unit/event_logs"
READERS = {"parquet": read_parquet, "orc": read_orc, "csv": read_csv}
WRITERS = {"parquet": parquet.write_table, "orc": orc.write_table, "csv": csv.write_csv}

pytestmark = [pytest.mark.timeout(300),
              pytest.mark.skipif(not servers.JARS.is_dir(), reason=f"no Hadoop in {servers.JARS}: run .ci/hadoop")]


@pytest.fixture(scope="module")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hdfs]:
    """Run a DataNode for each node of the topology, and this process's client, which has threads and descriptors."""
    zarr_tools.start_threads(tmp_path_factory.mktemp("zarr"))
    with servers.running("127.0.0.2", "127.0.0.3") as running:
        systems.opened(f"{running.url}/")[0].ls("/")
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("HADOOP_USER_NAME", "alice")
            systems.opened(f"{_of_alice(running.url)}/")[0].ls("/")
        yield running


def _of_alice(url: str) -> str:
    """Return a URL by another name of the NameNode, for which there is another client: alice's."""
    return url.replace("127.0.0.1", "localhost")


@pytest.fixture(scope="module")
def sc(hdfs: Hdfs, standalone: Topology) -> Iterator[SparkContext]:
    """Start a context with an executor on each node."""
    with standalone.context({"spark.vispark.device": "host"}) as context:
        warm_up(context)
        yield context


def test_an_event_log_in_hdfs(hdfs: Hdfs):
    log, folder = EVENT_LOGS / "kmeans-4.jsonl", f"{hdfs.url}/logs/eventlog_v2_a"
    system, inside = systems.opened(folder)
    system.makedirs(inside, exist_ok=True)
    for name, data in {"appstatus_a": b"", "events_1_a.gz": gzip.compress(log.read_bytes())}.items():
        with system.open(f"{inside}/{name}", "wb") as file:
            file.write(data)
    assert read_log(folder) == read_log(f"{folder}/events_1_a.gz") == read_log(str(log))
    with pytest.raises(EventLogError, match="cannot be read"):
        read_log(f"{hdfs.url}/logs/nothing")


@pytest.fixture(scope="module")
def tasks() -> Counter[bool]:
    """Count the tasks that ran where the most bytes of theirs are, and those that ran elsewhere."""
    return Counter()


def _ran(rdd: RDD) -> list[str]:
    """Return the node that each partition's task runs on."""
    return rdd.mapPartitions(lambda records: [(len(list(records)), os.environ["SPARK_LOCAL_IP"])[1]]).collect()


def _nodes(blocks: list[tuple[int, tuple[str, ...]]], parts: int, size: int) -> list[set[str]]:
    """Return the nodes that have the most bytes of each of as many equal parts of a file of ``size`` bytes."""
    nodes = []
    for start, stop in pairwise(size * number // parts for number in range(parts + 1)):
        held: Counter[str] = Counter()
        for first, hosts in blocks:
            held.update(dict.fromkeys(hosts, max(0, min(stop, first + servers.BLOCK) - max(start, first))))
        nodes.append({host for host in held if held[host] == max(held.values())})
    return nodes


ARRAY = np.random.default_rng(1).random((96, 4096))     # 3 MiB


def _npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


@pytest.fixture(scope="module")
def whole(sc: SparkContext, hdfs: Hdfs) -> str:
    """Put ARRAY into one file of four blocks."""
    hdfs.put(sc, "/whole/u.npy", _npy(ARRAY))
    return f"{hdfs.url}/whole/u.npy"


@pytest.fixture(scope="module")
def parts(sc: SparkContext, hdfs: Hdfs) -> str:
    """Put ARRAY into 24 files of a block of the grid."""
    grid = Grid(ARRAY.shape, splits=(24, 1))
    for key in grid.blocks():
        hdfs.put(sc, f"/parts/block-{key.position[0]}-0.npy", _npy(ARRAY[key.slices]))
    return f"{hdfs.url}/parts"


def test_text_is_read_where_it_is(sc: SparkContext, hdfs: Hdfs, tasks: Counter[bool]):
    numbers = np.random.default_rng(1).integers(0, 100_000, (60_000, 5))
    text = "\n".join(" ".join(map(str, row)) for row in numbers).encode()
    hdfs.put(sc, "/text/points.txt", text)
    rows = read_text(sc, f"{hdfs.url}/text", "int64", minPartitions=8)
    np.testing.assert_array_equal(np.array(rows.collect()), numbers)
    ran = _ran(rows)
    assert len(ran) == 8
    tasks.update(map(operator.contains, _nodes(hdfs.blocks(sc, "/text/points.txt"), 8, len(text)), ran))


@pytest.mark.parametrize("format", ["parquet", "orc", "csv"])
def test_tables_are_read_where_they_are(sc: SparkContext, hdfs: Hdfs, tasks: Counter[bool], format: str):
    table = pa.table({"x": np.random.default_rng(2).random(50_000), "k": np.arange(50_000)})
    for number in range(6):
        file = io.BytesIO()
        WRITERS[format](table.slice(number * 5000, 5000), file)
        hdfs.put(sc, f"/tables/{format}/{number}", file.getvalue())
    rows = READERS[format](sc, f"{hdfs.url}/tables/{format}", minPartitions=6)
    records = rows.collect()
    assert [row["k"] for row in records] == list(range(30_000))
    np.testing.assert_array_equal([row["x"] for row in records], table["x"].to_numpy()[:30_000])
    ran = _ran(rows)
    assert len(ran) == 6
    nodes = [set(hdfs.blocks(sc, f"/tables/{format}/{number}")[0][1]) for number in range(6)]
    tasks.update(map(operator.contains, nodes, ran))


def test_grids_are_read_where_they_are(sc: SparkContext, hdfs: Hdfs, tasks: Counter[bool], whole: str, parts: str):
    grid = Grid(ARRAY.shape, splits=(24, 1))
    read = hdfs.bytes_read()
    np.testing.assert_array_equal(Grid.gather(grid.scatter(sc, parts, partitions=24)), ARRAY)
    assert hdfs.bytes_read() - read <= 1.1 * ARRAY.nbytes
    tasks.update(map(operator.contains, [set(hdfs.blocks(sc, f"/parts/block-{number}-0.npy")[0][1])
                                         for number in range(24)], _ran(grid.scatter(sc, parts, partitions=24))))
    read = hdfs.bytes_read()
    np.testing.assert_array_equal(Grid.gather(grid.scatter(sc, whole, partitions=24)), ARRAY)
    assert hdfs.bytes_read() - read <= 1.1 * ARRAY.nbytes
    tasks.update(map(operator.contains, _nodes(hdfs.blocks(sc, "/whole/u.npy"), 24, ARRAY.nbytes),
                     _ran(grid.scatter(sc, whole, partitions=24))))


def test_at_least_95_of_100_tasks_were_local(tasks: Counter[bool]):
    assert tasks.total() >= 74 and tasks[True] >= 0.95 * tasks.total(), tasks


@pytest.mark.parametrize("splits", [(2, 2), (5, 3)])
def test_grids_come_back_as_they_were_saved(sc: SparkContext, hdfs: Hdfs, whole: str, splits: tuple[int, int]):
    grid = Grid(ARRAY.shape, splits=splits)
    blocks = grid.scatter(sc, whole).cache("GPU")
    np.testing.assert_array_equal(Grid.gather(blocks), ARRAY)
    there = f"{hdfs.url}/saved-{splits[0]}"
    Grid.save(blocks, f"{there}/u.npy")
    Grid.save(blocks, f"{there}/parts", per_block=True)
    blocks.unpersist()
    assert len(hdfs.blocks(sc, f"/saved-{splits[0]}/u.npy")) == 1      # of 3 MiB, where blocks have 1 MiB
    for path in (f"{there}/u.npy", f"{there}/parts"):
        np.testing.assert_array_equal(Grid.gather(grid.scatter(sc, path)), ARRAY)


def test_tables_come_back_as_they_were_written(sc: SparkContext, hdfs: Hdfs):
    rows = sc.parallelize([np.random.default_rng(seed).random((100_000, 4)) for seed in range(2)], 2).cache("GPU")
    there = f"{hdfs.url}/scores"
    table = rows.flatMap(list).cache("GPU")
    for overwrite in (False, True):
        table.write_parquet(there, "none", overwrite=overwrite)
        # A part has 3.2 MB, where blocks have 1 MiB.
        assert [len(hdfs.blocks(sc, f"/scores/part-0000{part}.parquet")) for part in range(2)] == [1, 1]
    again = read_parquet(sc, there, blocks=True).collect()
    np.testing.assert_array_equal(np.concatenate(again), np.concatenate(rows.collect()))
    for vrdd in (rows, table):
        vrdd.unpersist()


def test_what_hadoop_does_not_know_is_at_no_place(sc: SparkContext, hdfs: Hdfs, tmp_path: Path, caplog):
    assert not is_placed("/data/u.npy") and not is_placed(f"file://{tmp_path}") and not is_placed("s3://bucket/u.npy")
    with caplog.at_level("INFO", "vispark.data.storage.locality"):
        assert blocks_of(sc, [f"{hdfs.url}/nowhere", "webhdfs://127.0.0.1:9/u.npy"]) == {}
    assert "tasks that read webhdfs://127.0.0.1:9/ run anywhere" in caplog.text


# -- servers that end; the tests from here on have fewer ------------------------------------------------------------

def test_a_grid_in_zarr_is_replaced_and_its_chunks_are_known_by_their_files(hdfs: Hdfs, sc: SparkContext):
    grid, path = Grid((40, 60), (2, 2)), f"{hdfs.url}/zarr/u.zarr"
    array = np.random.default_rng(1).random((40, 60)).astype("f4")
    for factor in (1, 2):
        Grid.save(grid.scatter(sc, factor * array), path)
        again = Grid.open(path)
        assert again == grid
        np.testing.assert_array_equal(Grid.gather(again.scatter(sc, path)), factor * array)
    assert located(f"{hdfs.url}/zarr").names() == {"u.zarr": False}
    field = opened(path, FilesOf(grid.shape, grid.splits))
    assert field.ranges(grid.block(1, 0)) == [FileRange(f"{path}/cells/c/1/0")]


def test_a_namenode_that_is_down_has_another_in_its_place(hdfs: Hdfs, whole: str, tmp_path: Path):
    """Read by one name for two, of which one is down."""
    addresses = {"dead": "127.0.0.1:9", "alive": hdfs.url.partition("://")[2]}
    names = {"dfs.nameservices": "pair", "dfs.ha.namenodes.pair": ",".join(addresses),
             **{f"dfs.namenode.rpc-address.pair.{name}": address for name, address in addresses.items()}}
    properties = "".join(f"<property><name>{name}</name><value>{value}</value></property>"
                         for name, value in names.items())
    (tmp_path / "hdfs-site.xml").write_text(f"<configuration>{properties}</configuration>")
    (tmp_path / "core-site.xml").write_text("<configuration/>")
    # In a process of its own, as a client keeps its connections.
    program = ("from vispark.data.grid.npy import NpyFile; from vispark.data.storage.opening import located; "
               "place = located('hdfs://pair/whole/u.npy'); "
               "print(NpyFile.at(place).part(place, (slice(7, 9), slice(0, 5))).tolist() == {!r})")
    ran = subprocess.run([sys.executable, "-c", program.format(ARRAY[7:9, :5].tolist())], text=True,
                         capture_output=True, env=os.environ | {"HADOOP_CONF_DIR": str(tmp_path)}, timeout=60)
    assert (ran.stdout, ran.returncode) == ("True\n", 0), ran.stderr


def test_what_one_may_not_is_said_in_a_line(sc: SparkContext, hdfs: Hdfs):
    located(f"{hdfs.url}/secret/u.npy").write([b"1"], 1)
    systems.opened(f"{hdfs.url}/")[0].client.set_permission("/secret", 0o700)
    secret, blocks = f"{_of_alice(hdfs.url)}/secret", Grid(4, 2).scatter(sc, 1.0)
    message = r"Permission denied: user=alice, access=\w+, inode=[^\n\\]*$"
    for read in (lambda: Grid(4).scatter(sc, f"{secret}/u.npy"), lambda: Grid(4).scatter(sc, secret),
                 lambda: Grid.open(f"{secret}/u.zarr"), *(lambda name=name, kind=kind: Grid.save(
                     blocks, f"{secret}/{name}", per_block=kind) for name, kind in (
                         ("v.npy", False), ("v.zarr", False), ("v", True)))):
        with pytest.raises(PlanError, match=rf"^{secret}\S* cannot be \w+( \w+)?: there is no permission: {message}"):
            read()
    for table in (read_text, read_parquet, read_csv):
        with pytest.raises(PlanError, match=rf"^{secret}/rows cannot be looked up: {message}"):
            table(sc, f"{secret}/rows")
    for overwrite in (False, True):
        with pytest.raises(PlanError, match=message):
            sc.parallelize([1.0]).cache("GPU").write_parquet(f"{secret}/table", overwrite=overwrite)
    with pytest.raises(EventLogError, match=message):
        read_log(f"{secret}/log")


def test_a_datanode_that_is_killed_costs_no_error(sc: SparkContext, hdfs: Hdfs, tmp_path: Path):
    grid = Grid(ARRAY.shape, splits=(8, 1))
    hdfs.put(sc, "/twice/u.npy", _npy(ARRAY), replication=2)
    hdfs.put(sc, "/twice/rows.txt", (b"0.123456789 " * 7 + b"1\n") * 30_000, replication=2)
    begun, killed = tmp_path / "begun", tmp_path / "killed"

    def slowly(records):
        for record in records:
            yield record
            begun.touch()
            while not killed.exists():
                time.sleep(0.01)

    blocks = grid.scatter(sc, f"{hdfs.url}/twice/u.npy", partitions=1).mapPartitions(slowly)
    rows = read_text(sc, f"{hdfs.url}/twice/rows.txt", minPartitions=1).mapPartitions(slowly)
    with ThreadPoolExecutor(2) as threads:
        gathered, counted = threads.submit(Grid.gather, blocks), threads.submit(rows.count)
        assert eventually(begun.exists, 60.0)
        hdfs.kill("127.0.0.3")
        killed.touch()
        np.testing.assert_array_equal(gathered.result(), ARRAY)
        assert counted.result() == 30_000


def test_blocks_that_no_datanode_has_are_an_error_that_names_the_file(sc: SparkContext, hdfs: Hdfs):
    # The other DataNode is dead: what was put before may have been there alone.
    hdfs.put(sc, "/lost.txt", b"1 2\n" * 30)
    hdfs.put(sc, "/lost.npy", _npy(ARRAY))
    whole = f"{hdfs.url}/lost.npy"
    blocks, text = Grid(ARRAY.shape, (2, 1)).scatter(sc, whole), read_text(sc, f"{hdfs.url}/lost.txt")
    hdfs.kill("127.0.0.2")
    for lost, path in ((lambda: Grid.gather(blocks), whole), (text.count, f"{hdfs.url}/lost.txt")):
        with pytest.raises(PlanError, match=f"{path} cannot be read: no DataNode that has its bytes answers$"):
            lost()


def test_a_namenode_that_is_down_is_an_error_that_names_it(sc: SparkContext, hdfs: Hdfs, whole: str):
    hdfs.kill("namenode")
    with pytest.raises(PlanError, match=rf"{whole} cannot be read: Connection refused"):
        Grid(ARRAY.shape).scatter(sc, whole)
    with pytest.raises(PlanError, match=rf"{hdfs.url}/text cannot be looked up: Connection refused"):
        read_text(sc, f"{hdfs.url}/text")
