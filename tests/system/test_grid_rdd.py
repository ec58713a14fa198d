"""Grids as ordinary RDDs: scattered from all that they can be made of, put together again, and in files."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from pyspark import SparkContext

from tests.system.topology import Topology
from vispark import BlockKey, Grid, NotFinite, PlanError, TaskError


@pytest.fixture(scope="module")
def sc(local: Topology):
    with local.context() as context:
        yield context


SHAPES = [((17,), (4,)), ((9, 10), (3, 4)), ((5, 7, 6), (2, 3, 1))]


@pytest.mark.parametrize(("shape", "splits"), SHAPES)
def test_what_was_scattered_is_gathered(sc: SparkContext, shape, splits):
    array = np.arange(np.prod(shape), dtype="f4").reshape(shape)
    blocks = Grid(shape, splits).scatter(sc, array)
    records = blocks.collect()
    assert len(records) == np.prod(splits) and all(isinstance(key, BlockKey) for key, _ in records)
    for key, block in records:
        np.testing.assert_array_equal(block, array[key.slices])
    again = Grid.gather(blocks)
    assert again.dtype == array.dtype
    np.testing.assert_array_equal(again, array)
    np.testing.assert_array_equal(Grid.gather(blocks, np.s_[..., 1::3]), array[..., 1::3])
    assert Grid.gather(blocks, (1,) * len(shape)) == array[(1,) * len(shape)]


def test_fields_are_scattered_from_arrays_functions_and_numbers(sc: SparkContext):
    grid = Grid((9, 10), (3, 2), fields={"u": "f4", "n": "i2", "solid": bool})
    n = np.arange(90, dtype="i2").reshape(9, 10)
    blocks = grid.scatter(sc, {"n": n, "solid": False, "u": lambda y, x: y + x / 2}, partitions=4)
    assert blocks.getNumPartitions() == 4
    fields = Grid.gather(blocks)
    assert {name: array.dtype.str for name, array in fields.items()} == {"u": "<f4", "n": "<i2", "solid": "|b1"}
    np.testing.assert_array_equal(fields["n"], n)
    np.testing.assert_array_equal(fields["u"], np.add.outer(np.arange(9.0), np.arange(10) / 2))
    part = Grid.gather(blocks, np.s_[::4, 3])
    np.testing.assert_array_equal(part["n"], n[::4, 3])


def test_the_description_travels_with_the_keys(sc: SparkContext):
    grid = Grid((9, 10), (3, 2), boundary=lambda y, x: y)
    blocks = grid.scatter(sc, lambda y, x: y * 10 + x).mapValues(lambda block: 2 * block).filter(lambda pair: True)
    assert {key.grid for key in blocks.keys().collect()} == {grid}
    np.testing.assert_array_equal(Grid.gather(blocks), 2 * np.arange(90).reshape(9, 10))
    assert blocks.repartition(2).mapValues(np.shape).lookup(grid.block(2, 1)) == [(3, 5)]


def test_what_is_no_whole_grid_cannot_be_gathered(sc: SparkContext):
    grid = Grid((4, 6), (2, 2))
    blocks = grid.scatter(sc, 0.0)
    most = blocks.filter(lambda pair: pair[0].position != (1, 0))
    for odd, message in [(most, r"block \(1, 0\) of the grid is missing"),
                         (blocks.union(blocks), r"block \(0, 0\) is there more than once"),
                         (blocks.values(), "pairs of a block's key"),
                         (sc.parallelize([(1, np.zeros(2))]), "no key of a Grid"),
                         (blocks.union(Grid((4, 6), (2, 1)).scatter(sc, 0.0)), "blocks of two grids"),
                         (blocks.mapValues(lambda block: block[1:]), r"have shape \(1, 3\), and its cells \(2, 3\)"),
                         (sc.emptyRDD(), "no blocks to gather")]:
        with pytest.raises(PlanError, match=message):
            Grid.gather(odd)


def test_what_cannot_be_scattered_is_said(sc: SparkContext):
    grid, fields = Grid((4, 6), (2, 2)), Grid((4, 6), (2, 2), fields={"u": "f4", "v": "f4"})
    array = np.zeros((4, 6), "f4")
    for one, what, message in [(grid, np.zeros((4, 5)), r"has shape \(4, 5\), the grid \(4, 6\)"),
                               (grid, {"u": np.zeros((6, 4))}, "field 'u' has shape"),
                               (grid, np.zeros((4, 6), "M8[s]"), "cells hold numbers"),
                               (grid, [1, 2], "scatter takes arrays"), (grid, {}, "without fields"),
                               (grid, {1: array}, "must have names"),
                               (fields, array, "the grid has the fields u, v"),
                               (fields, {"u": array}, "what is scattered has u"),
                               (fields, {"u": array, "v": array.astype("f8")}, "is of dtype float64, and fields= says"),
                               (Grid((4, 6), fields={"n": "i1"}), {"n": 300},
                                "field 'n' is 300, which its int8 cannot"),
                               (fields, {"u": array, "v": -1e300}, "'v' is -1e[+]300, which its float32 cannot")]:
        with pytest.raises(PlanError, match=message):
            one.scatter(sc, what)
    with pytest.raises(PlanError, match="partitions=5"):
        grid.scatter(sc, array, partitions=5)
    with pytest.raises(Exception, match=r"has shape \(3,\), and its cells \(2, 3\)|has shape"):
        grid.scatter(sc, lambda y, x: np.zeros((5, 5))).collect()
    with pytest.raises(PlanError, match=r"each field takes a function of its own, as in \{'u': f_u, 'v'"):
        grid.scatter(sc, lambda y, x: {"u": y, "v": x}).collect()
    with pytest.raises(PlanError, match=r"in block \(0, 1\) is 130 at cell \(3, 4\), which the field's int8"):
        Grid((4, 6), (1, 2), fields={"n": "i1"}).scatter(sc, {"n": lambda y, x: 10 * x + 30 * y}).collect()


def test_scattered_cells_that_are_not_finite_are_found_on_request(sc: SparkContext, tmp_path: Path):
    grid, array = Grid((4, 6), (2, 2)), np.zeros((4, 6), "f4")
    array[1, 3], array[3, 5] = np.nan, np.inf
    np.save(tmp_path / "u.npy", array)
    np.testing.assert_array_equal(Grid.gather(grid.scatter(sc, array)), array)
    message = r"cell \(1, 3\) of {}, in block \(0, 1\), is NaN or infinite where it is scattered"
    for what, name in ((array, "the grid"), ({"n": 1, "v": array}, "v")):
        with pytest.raises(NotFinite, match=message.format(name)):
            grid.scatter(sc, what, check=True)
    with pytest.raises(NotFinite, match=r"cell \(0, 0\) of the grid, in block \(0, 0\)"):
        grid.scatter(sc, float("nan"), check=True)
    for what in (lambda y, x: np.where((y == 1) & (x == 3), np.nan, x), tmp_path / "u.npy"):
        # Of two tasks that fail Spark tells of either.
        with pytest.raises(NotFinite, match=r"cell \((1, 3|3, 5)\) of the grid.* is NaN or infinite where"):
            grid.scatter(sc, what, partitions=4, check=True).collect()
    assert Grid.gather(grid.scatter(sc, {"n": 1, "u": lambda y, x: x}, check=True))["u"][2, 5] == 5


def test_files_of_a_grid_and_of_its_blocks(sc: SparkContext, tmp_path: Path):
    grid = Grid((5, 7, 6), (2, 3, 2))
    array = np.random.default_rng(1).random((5, 7, 6))
    blocks = grid.scatter(sc, array)
    Grid.save(blocks, tmp_path / "whole" / "u.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "whole" / "u.npy", mmap_mode="r"), array)
    with pytest.raises(PlanError, match=r"does not end in \.npy"):
        Grid.save(blocks, tmp_path / "whole" / "v")
    Grid.save(blocks, tmp_path / "parts", per_block=True)
    assert _last_job(sc).startswith("save at ") and "test_grid_rdd.py:" in _last_job(sc)
    assert len(list((tmp_path / "parts").iterdir())) == 12
    np.testing.assert_array_equal(np.load(tmp_path / "parts" / "block-1-2-0.npy"), array[grid.block(1, 2, 0).slices])
    for path in (tmp_path / "parts", tmp_path / "whole" / "u.npy"):
        np.testing.assert_array_equal(Grid.gather(grid.scatter(sc, path)), array)
    for nowhere in (tmp_path / "nowhere", tmp_path / "nowhere.npy"):
        with pytest.raises(PlanError, match=r"there is no (file|directory) .*nowhere"):
            grid.scatter(sc, nowhere)
    (tmp_path / "text.npy").write_text("text")
    with pytest.raises(PlanError, match=r"text\.npy cannot be read as \.npy"):
        grid.scatter(sc, tmp_path / "text.npy")
    with pytest.raises(PlanError, match=r"has shape \(5, 7, 6\), and the grid \(5, 7, 5\)"):
        Grid((5, 7, 5), (1, 1, 1)).scatter(sc, tmp_path / "whole" / "u.npy")
    (tmp_path / "u.dat").write_text("text")
    with pytest.raises(PlanError, match=r"u\.dat is a file, and does not end in \.npy or \.zarr, \.h5,"):
        grid.scatter(sc, tmp_path / "u.dat")
    for other in ((6, 7, 6), (5, 8, 6), (5, 7, 7)):
        with pytest.raises(PlanError, match=r"/block-\d-\d-\d\.npy has shape .* from a grid of another shape"):
            Grid(other, (2, 3, 2)).scatter(sc, tmp_path / "parts")
    np.save(tmp_path / "parts" / "block-1-2-0.npy", np.zeros((3, 3, 4)))
    with pytest.raises(PlanError, match=r"block-1-2-0\.npy has shape \(3, 3, 4\)"):
        grid.scatter(sc, tmp_path / "parts").collect()
    (tmp_path / "parts" / "block-0-0-0.npy").unlink()
    for reader in (grid, Grid((5, 7, 6), (2, 3, 2), fields={"u": "f8"})):
        with pytest.raises(PlanError, match=r"there is no file .*block-0-0-0\.npy|there is no directory .*/u, or"):
            reader.scatter(sc, tmp_path / "parts")


def test_a_directory_of_blocks_is_replaced_as_a_whole_or_stays(sc: SparkContext, tmp_path: Path):
    grid, folder = Grid((4, 6), (2, 3)), tmp_path / "parts"
    Grid.save(grid.scatter(sc, 1.0), folder, per_block=True)
    with pytest.raises(TaskError, match="ZeroDivisionError"):
        Grid.save(grid.scatter(sc, 2.0).map(lambda each: (each[0], each[1] + 1 // each[0].number)), folder,
                  per_block=True)
    assert np.sum(Grid.gather(grid.scatter(sc, folder))) == 24 and list(tmp_path.iterdir()) == [folder]
    with pytest.raises(PlanError, match=r"block \(0, 1\) of the grid is missing"):
        Grid.save(grid.scatter(sc, 2.0).filter(lambda each: each[0].position != (0, 1)), folder, per_block=True)
    coarse = Grid((4, 6), (2, 1))
    Grid.save(coarse.scatter(sc, 3.0), folder, per_block=True)
    assert np.sum(Grid.gather(coarse.scatter(sc, folder))) == 72 and len(list(folder.iterdir())) == 2
    (folder / "notes.txt").touch()
    with pytest.raises(PlanError, match=r"has more than the blocks of a grid, such as notes\.txt, which would be lost"):
        Grid.save(grid.scatter(sc, 1.0), folder, per_block=True)
    for name, per_block in (("u", True), ("u.zarr", False)):
        (tmp_path / name).touch()
        with pytest.raises(PlanError, match=f"/{name} is there, and is a file"):
            Grid.save(grid.scatter(sc, 1.0), tmp_path / name, per_block=per_block)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["parts", "u", "u.zarr"]


def test_a_file_that_is_cut_after_it_was_scattered_is_said(sc: SparkContext, tmp_path: Path):
    np.save(tmp_path / "u.npy", np.zeros((40, 60)))
    blocks = Grid((40, 60), (2, 3)).scatter(sc, tmp_path / "u.npy")
    os.truncate(tmp_path / "u.npy", 1000)
    with pytest.raises(PlanError, match=r"u\.npy has changed since it was .* 19328 bytes .* 1000"):
        blocks.collect()


def _last_job(sc: SparkContext) -> str:
    """Return the name that Spark's pages have for its last job."""
    sc._jsc.sc().listenerBus().waitUntilEmpty()
    return sc._jsc.sc().statusStore().jobsList(None).apply(0).name()


def test_files_of_fields(sc: SparkContext, tmp_path: Path):
    grid = Grid((5, 7), (2, 3), fields={"u": "f4", "n": "i8"})
    n = np.arange(35).reshape(5, 7)
    blocks = grid.scatter(sc, {"u": lambda y, x: y - x, "n": n})
    Grid.save(blocks, tmp_path / "whole")
    np.testing.assert_array_equal(np.load(tmp_path / "whole" / "n.npy"), n)
    Grid.save(blocks, str(tmp_path / "parts"), per_block=True)
    for what in (tmp_path / "whole", tmp_path / "parts", f"file://{tmp_path}/whole",
                 {"u": tmp_path / "whole" / "u.npy", "n": tmp_path / "parts" / "n"}):
        again = Grid.gather(grid.scatter(sc, what))
        np.testing.assert_array_equal(again["n"], n)
        assert again["u"].dtype == np.float32
    for what in ("whole", "parts"):
        again = Grid.gather(Grid((5, 7), (2, 3)).scatter(sc, tmp_path / what))
        assert again["u"].dtype == np.float32 and again["n"].dtype == np.int64
    Grid.save(blocks, tmp_path / "parts")
    with pytest.raises(PlanError, match="field 'u' is there twice"):
        grid.scatter(sc, tmp_path / "parts")
    for per_block in (False, True):
        with pytest.raises(PlanError, match=r"d\.npy would be a directory, .* save the grid as .*/d$"):
            Grid.save(blocks, tmp_path / "d.npy", per_block=per_block)
    assert not (tmp_path / "d.npy").exists()


def test_urls_go_through_fsspec(sc: SparkContext, tmp_path: Path):
    grid = Grid((5, 7), (2, 3))
    blocks = grid.scatter(sc, np.arange(35.0).reshape(5, 7))
    Grid.save(blocks, f"file://{tmp_path}/u.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "u.npy"), np.arange(35.0).reshape(5, 7))
    np.testing.assert_array_equal(Grid.gather(grid.scatter(sc, f"file://{tmp_path}/u.npy")),
                                  np.arange(35.0).reshape(5, 7))
