"""Zarr groups of grids: what is written is read, by this and other libraries, and described by its attributes."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from pyspark import SparkContext

from tests.optional import needed
from tests.system import zarr_tools
from tests.system.object_store import ObjectStore, serving
from tests.system.topology import Topology
from tests.system.vrdd_tools import warm_up
from vispark import Grid
from vispark.data.grid import chunk_pieces, zarr_files
from vispark.data.storage.opening import located
from vispark.errors import PlanError, TaskError

zarr = needed("zarr")
xarray = needed("xarray")
obstore = pytest.importorskip("obstore")
stores = pytest.importorskip("obstore.store")
needed("moto")

ARRAY = np.random.default_rng(1).random((24, 40, 60)).astype("f4")


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    """Serve S3, which this process finds."""
    zarr_tools.start_threads(tmp_path_factory.mktemp("zarr"))
    # From its first use on, obstore keeps an event queue of its own.
    obstore.put(stores.MemoryStore(), "first", b"use")
    with serving() as server, pytest.MonkeyPatch.context() as patch:
        for name, value in server.environment.items():
            patch.setenv(name, value)
        yield server


@pytest.fixture(scope="module")
def sc(s3: ObjectStore, local: Topology) -> Iterator[SparkContext]:
    """Start a context whose tasks find S3 too."""
    # A task that fails runs once more.
    settings = {f"spark.executorEnv.{name}": value for name, value in s3.environment.items()}
    with replace(local, master="local[2,2]").context(settings) as context:
        warm_up(context)
        yield context


@pytest.fixture(params=["local", "s3"])
def directory(request: pytest.FixtureRequest, tmp_path: Path, s3: ObjectStore) -> str:
    """Return a directory of this machine, and one of S3."""
    return str(tmp_path) if request.param == "local" else f"s3://bucket/{tmp_path.name}"


def test_a_grid_is_saved_and_opened(sc: SparkContext, directory: str, s3: ObjectStore):
    grid = Grid(ARRAY.shape, (2, 2, 3), halo=(1, 2, 1), boundary=("periodic", (0.5, "mirrored"), float("inf")))
    Grid.save(grid.scatter(sc, ARRAY), f"{directory}/u.zarr")
    opened = Grid.open(f"{directory}/u.zarr")
    assert opened == grid and opened.fields == ()
    before = len(s3.requests())
    np.testing.assert_array_equal(Grid.gather(opened.scatter(sc, f"{directory}/u.zarr")), ARRAY)
    assert s3.read_since(before) <= 1.1 * ARRAY.nbytes
    assert Grid.open(f"{directory}/u.zarr", splits=1, halo=2).splits == (1, 1, 1)
    assert set(located(f"{directory}/u.zarr").names()) == {"zarr.json", "cells"}
    assert set(located(directory).names()) == {"u.zarr"}


def test_blocks_of_several_lengths_lie_across_chunks(sc: SparkContext, directory: str, s3: ObjectStore):
    """And of a store each reads its own cells alone, where these lie together."""
    grid = Grid(ARRAY.shape, (5, 1, 1) if "://" in directory else (5, 1, 7), fields={"u": "f4", "v": "i8"})
    blocks = grid.scatter(sc, {"u": ARRAY, "v": lambda z, y, x: (z * 40 + y) * 60 + x}, partitions=2)
    Grid.save(blocks, f"{directory}/u.zarr")
    assert Grid.open(f"{directory}/u.zarr") == grid
    assert not [name for name in located(directory).names() if name.endswith(".pieces")]
    before = len(s3.requests())
    fields = Grid.gather(grid.scatter(sc, f"{directory}/u.zarr", partitions=2))
    assert s3.read_since(before) <= 1.1 * 3 * ARRAY.nbytes
    np.testing.assert_array_equal(fields["u"], ARRAY)
    np.testing.assert_array_equal(fields["v"], np.arange(ARRAY.size).reshape(ARRAY.shape))
    if "://" in directory:
        return
    other = Grid(ARRAY.shape, (1, 7, 2), fields={"u": "f4"})
    np.testing.assert_array_equal(Grid.gather(other.scatter(sc, f"{directory}/u.zarr"))["u"], ARRAY)
    assert np.array_equal(zarr.open_group(f"{directory}/u.zarr", mode="r")["u"][:], ARRAY)
    with pytest.raises(PlanError, match=r"block \(4, 0, 6\) of the grid is missing"):
        Grid.save(blocks.filter(lambda record: record[0].position != (4, 0, 6)), f"{directory}/lost.zarr")
    assert not located(f"{directory}/lost.zarr").names()


def test_fields_are_arrays_that_xarray_opens(sc: SparkContext, tmp_path: Path):
    grid = Grid((8, 7), (4, 2), boundary={"u": 1.5, "z": 1 + 2j}, fields={"u": "f4", "z": "c8", "solid": bool})
    values = {"u": lambda y, x: y - x, "z": 1j, "solid": lambda y, x: x > y}
    blocks = grid.scatter(sc, values).cache("GPU")
    Grid.save(blocks, tmp_path / "fields.zarr", compress=True)
    assert Grid.open(tmp_path / "fields.zarr") == grid
    fields = Grid.gather(grid.scatter(sc, tmp_path / "fields.zarr"))
    with xarray.open_zarr(tmp_path / "fields.zarr", consolidated=False) as data:
        assert data["u"].dims == ("y", "x") and data.attrs["vispark"]["splits"] == [4, 2]
        for name in values:
            np.testing.assert_array_equal(data[name].values, fields[name])
    np.testing.assert_array_equal(fields["u"], np.subtract.outer(np.arange(8), np.arange(7)).astype("f4"))
    one = Grid.gather(Grid((8, 7), (4, 2)).scatter(sc, {"a": tmp_path / "fields.zarr" / "u", "b": 1}))
    np.testing.assert_array_equal(one["a"], fields["u"])


def test_a_group_is_replaced_as_a_whole(sc: SparkContext, directory: str):
    grid, path = Grid((6, 8), (2, 2)), f"{directory}/u.zarr"
    Grid.save(grid.scatter(sc, 1.0), path)
    blocks = grid.scatter(sc, path)
    lost = blocks.filter(lambda record: record[0].position != (1, 1))
    with pytest.raises(PlanError, match=r"block \(1, 1\) of the grid is missing|cannot replace a group"):
        Grid.save(lost, path)
    assert set(located(directory).names()) == {"u.zarr"}
    np.testing.assert_array_equal(Grid.gather(blocks), np.ones((6, 8)))
    other = f"{directory}/v.zarr"
    with pytest.raises(PlanError, match=r"block \(1, 1\) of the grid is missing"):
        Grid.save(lost, other)
    assert located(other).names() == {}
    if "://" not in directory:
        Grid.save(blocks.mapValues(lambda block: block + 1), path)
        assert Grid.gather(grid.scatter(sc, path)).max() == 2
        with pytest.raises(PlanError, match=r"u\.zarr has been replaced since it was first looked at"):
            blocks.collect()


@pytest.mark.parametrize("dies", ["write_blocks", "write_pieces", "join_pieces"])
def test_a_task_that_dies_is_done_again_or_leaves_nothing(sc: SparkContext, directory: str, dies: str, tmp_path: Path,
                                                          monkeypatch: pytest.MonkeyPatch):
    """Kill a process when it has written a part: once, and as often as a task is tried."""
    grid = Grid(ARRAY.shape, (5, 1, 7) if "pieces" in dies else (2, 2, 3))
    blocks = grid.scatter(sc, ARRAY, partitions=1)
    for times in (1, 2):
        (marks := tmp_path / f"deaths{times}").mkdir()
        module = zarr_files if dies == "write_blocks" else chunk_pieces
        monkeypatch.setattr(module, dies, partial(zarr_tools.dying, str(marks), times, getattr(module, dies)))
        if times == 1:
            Grid.save(blocks, f"{directory}/u.zarr")
            np.testing.assert_array_equal(Grid.gather(grid.scatter(sc, f"{directory}/u.zarr")), ARRAY)
        else:
            with pytest.raises(Exception, match="Python worker exited unexpectedly"):
                Grid.save(blocks, f"{directory}/v.zarr")
            assert located(f"{directory}/v.zarr").names() == {}
        assert len(list(marks.iterdir())) == times
        assert {each for each in located(directory).names() if "deaths" not in each} == {"u.zarr"}
        monkeypatch.undo()


def test_what_others_saved(sc: SparkContext, tmp_path: Path):
    array = ARRAY[0]
    for version in (2, 3):
        path = tmp_path / f"others{version}.zarr"
        group = zarr.create_group(path, zarr_format=version)
        group.create_array("u", shape=(40, 60), chunks=(10, 30), dtype=">f4")[:] = array
        group.create_array("x", shape=(60,), chunks=(60,), dtype="f8")[:] = np.arange(60)
        grid = Grid.open(path)
        assert grid == Grid((40, 60), (4, 2), fields={"u": "f4"})
        np.testing.assert_array_equal(Grid.gather(grid.scatter(sc, path))["u"], array)
        np.testing.assert_array_equal(Grid.gather(Grid((40, 60), (2, 1)).scatter(sc, path))["u"], array)
    sharded = zarr.create_array(tmp_path / "one.zarr", shape=(40, 60), chunks=(10, 10), shards=(20, 30), dtype="f4")
    sharded[:] = array
    assert Grid.open(tmp_path / "one.zarr").splits == (4, 6)
    np.testing.assert_array_equal(Grid.gather(Grid((40, 60), (2, 2)).scatter(sc, tmp_path / "one.zarr")), array)


def test_what_does_not_fit_is_said(sc: SparkContext, tmp_path: Path):
    group = zarr.create_group(tmp_path / "u.zarr")
    group.create_array("u", shape=(40, 60), chunks=(10, 30), dtype="f4")
    packed = group.create_array("packed", shape=(40, 60), chunks=(40, 60), dtype="i2")
    packed.attrs["scale_factor"] = 0.1
    message = (r"chunks of \(10, 30\), which splits=\(3, 2\) cut through, so that 1\.\d times its bytes would be read. "
               r"Splits that fit are, along axis 0: 1, 2, 4; axis 1: 1, 2;")
    with pytest.raises(PlanError, match=message):
        Grid((40, 60), (3, 2), fields={"u": "f4"}).scatter(sc, tmp_path / "u.zarr")
    for fields, message in (({"v": "f4"}, "has no array 'v': it has "), ({"packed": "f4"}, "numbers that are packed")):
        with pytest.raises(PlanError, match=message):
            Grid((40, 60), fields=fields).scatter(sc, tmp_path / "u.zarr")
    with pytest.raises(PlanError, match=r"has no array of the grid's shape \(60, 40\): it has .*'u' of \(40, 60\)"):
        Grid((60, 40)).scatter(sc, tmp_path / "u.zarr")
    with pytest.raises(PlanError, match=r"there is no file .*none\.zarr"):
        Grid((60, 40)).scatter(sc, tmp_path / "none.zarr")
    with pytest.raises(PlanError, match=re.escape("Splits of that axis that fit are 1, 2, 5, 10")):
        Grid.save(Grid((10, 8), (4, 2)).scatter(sc, 1), tmp_path / "v.zarr", compress=True)
    (tmp_path / "other.zarr").mkdir()
    (tmp_path / "other.zarr" / "thesis.tex").touch()
    with pytest.raises(PlanError, match=r"other\.zarr is there, and is no Zarr file"):
        Grid.save(Grid((10, 8)).scatter(sc, 1), tmp_path / "other.zarr")


def test_a_chunk_that_ends_early_is_said(sc: SparkContext, tmp_path: Path):
    grid = Grid((6, 8), (2, 2))
    Grid.save(grid.scatter(sc, 1.0), tmp_path / "u.zarr")
    chunk = tmp_path / "u.zarr" / "cells" / "c" / "1" / "0"
    chunk.write_bytes(chunk.read_bytes()[:-8])
    with pytest.raises(PlanError, match=r"a chunk of .*u\.zarr in block \(1, 0\) cannot be read"):
        grid.scatter(sc, tmp_path / "u.zarr").collect()


def test_a_boundary_that_is_a_function_is_given_again(sc: SparkContext, tmp_path: Path):
    def around(y: np.ndarray, x: np.ndarray) -> np.ndarray:
        return y + x

    grid = Grid((6, 8), (2, 2), boundary=around)
    Grid.save(grid.scatter(sc, 1.0), tmp_path / "u.zarr")
    with pytest.raises(PlanError, match="saved with a function as its boundary, and files have no code"):
        Grid.open(tmp_path / "u.zarr")
    assert Grid.open(tmp_path / "u.zarr", boundary=around) == grid
    document = json.loads((tmp_path / "u.zarr" / "zarr.json").read_text())
    assert document["attributes"]["vispark"]["boundary"][""][0] == {"function": "around"}
    document["attributes"]["vispark"]["shape"] = [8, 6]
    (tmp_path / "u.zarr" / "zarr.json").write_text(json.dumps(document))
    with pytest.raises(PlanError, match=r"saved from a grid of shape \(8, 6\), and its array 'cells' has shape"):
        Grid.open(tmp_path / "u.zarr", boundary=around)


def test_zarr_keeps_one_thread_here():
    assert sum(thread.name == "zarr_io" for thread in threading.enumerate()) == 1


def test_what_cannot_be_saved_is_said_in_a_line(sc: SparkContext, tmp_path: Path):
    unread = sc.parallelize([0]).map(lambda _: pytest.fail("a Spark job"))
    with pytest.raises(PlanError, match="has the scheme 'foo', which is not known"):
        Grid.save(unread, "foo://bucket/u.npy")
    with pytest.raises(PlanError, match=r"files that end in \.h5 are read, and not written; save a grid as \.zarr"):
        Grid.save(unread, tmp_path / "u.h5")
    blocks = Grid((4, 6), (2, 1)).scatter(sc, 0.0)
    (tmp_path / "file").write_text("text")
    (tmp_path / "folder.npy").mkdir()
    for name, per_block in (("u.zarr", False), ("u.npy", False), ("u", True)):
        with pytest.raises(PlanError, match=rf"/file/{name} cannot be written: there is a file where a dir"):
            Grid.save(unread, tmp_path / "file" / name, per_block=per_block)
        with pytest.raises(PlanError, match=rf"/proc/{name} cannot be written: there can be no such file there"):
            Grid.save(unread, f"/proc/{name}", per_block=per_block)
    with pytest.raises(PlanError, match=r"folder\.npy is there, and is a directory"):
        Grid.save(unread, tmp_path / "folder.npy")
    lambdas = blocks.mapValues(lambda block: block / unknown)  # noqa: F821 - what is not there
    for ask in (Grid.gather, partial(Grid.gather, cells=np.s_[0]), partial(Grid.save, path=tmp_path / "v.npy")):
        with pytest.raises(TaskError, match="a function that Spark ran raised NameError: name 'unknown'"):
            ask(lambdas)
