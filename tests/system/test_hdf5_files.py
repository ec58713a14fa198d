"""Grids out of HDF5 and NetCDF4 files, local ones and by ranges of a URL."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from pyspark import SparkContext

from vispark import Grid
from vispark.data.grid import hdf5_files
from vispark.data.grid.files import facts
from vispark.data.storage.opening import Locations, located
from vispark.errors import PlanError

h5py = pytest.importorskip("h5py")
fsspec = pytest.importorskip("fsspec")

ARRAY = np.random.default_rng(1).random((40, 60)).astype("f4")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Write a file with two fields, their axes, and one that is packed."""
    with h5py.File(tmp_path / "u.nc", "w") as file:
        file.create_dataset("u", data=ARRAY, chunks=(10, 30))
        file.create_dataset("v", data=ARRAY.astype(">f8"))
        file.create_dataset("x", data=np.arange(60.0))
        file.create_dataset("packed", data=np.zeros((40, 61), "i2")).attrs["scale_factor"] = 0.1
    return tmp_path / "u.nc"


def test_fields_are_the_datasets_of_the_grids_shape(sc: SparkContext, path: Path):
    fields = Grid.gather(Grid((40, 60), (4, 2)).scatter(sc, path))
    assert list(fields) == ["u", "v"] and fields["v"].dtype == np.dtype("f8")
    for name in fields:
        np.testing.assert_array_equal(fields[name], ARRAY)
    one = Grid.gather(Grid((40, 60), (2, 1), fields={"a": "f4"}).scatter(sc, {"a": path / "u"}))
    np.testing.assert_array_equal(one["a"], ARRAY)


def test_what_does_not_fit_is_said(sc: SparkContext, path: Path, tmp_path: Path):
    for grid, what, message in (
            (Grid((40, 60), (3, 2)), path / "u", r"chunks of \(10, 30\), which splits=\(3, 2\) cut through"),
            (Grid((60, 40)), path, r"has no array of the grid's shape \(60, 40\)"),
            (Grid((40, 61)), path / "packed", "numbers that are packed, as its attribute scale_factor says"),
            (Grid((40, 60)), path / "w", "has no array 'w': it has 'packed'"),
            (Grid((40, 60)), tmp_path / "none.h5", r"there is no file .*none\.h5")):
        with pytest.raises(PlanError, match=message):
            grid.scatter(sc, what)
    (tmp_path / "text.h5").write_text("text")
    with pytest.raises(PlanError, match=r"text\.h5 cannot be read"):
        Grid((40, 60)).scatter(sc, tmp_path / "text.h5")
    blocks = Grid((40, 60), (2, 1)).scatter(sc, path / "u")
    with h5py.File(path, "a") as file:
        file["more"] = np.zeros(1000)
    with pytest.raises(PlanError, match=r"u\.nc has changed since it was first looked at"):
        blocks.collect()


def test_a_url_is_read_by_ranges(path: Path):
    grid, place = Grid((40, 60), (2, 2)), located("memory://hdf5/u.nc")
    place.write([path.read_bytes()], path.stat().st_size)
    assert Grid.open(path, splits=(2, 2)).shape == grid.shape
    field = facts("memory://hdf5/u.nc").arrays["u"].field
    np.testing.assert_array_equal(field.block(grid.block(1, 0), Locations()), ARRAY[20:, :30])
    with hdf5_files.RangeFile(place, place.state()) as file:
        file.seek(-4, 2)
        assert file.read() == path.read_bytes()[-4:] and file.read(1) == b""
    place.store.remove("/hdf5")
