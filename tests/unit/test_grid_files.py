"""Descriptions of grids in files, and which splits fit chunks; without a library for files."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

from vispark import Grid
from vispark.data.grid import attributes
from vispark.data.grid.chunks import block_chunks, check_readable, fits, most_splits
from vispark.data.grid.files import facts
from vispark.errors import PlanError

BOUNDARIES = ["periodic", ("mirrored", (1, np.float32(0.1))), (float("inf"), -0.5), np.nan, 1 + 2j,
              {"u": "mirrored", "v": (0, "periodic")}, complex(0, np.inf), True, 2**63]


@pytest.mark.parametrize("boundary", BOUNDARIES, ids=str)
def test_a_grid_is_described_as_json_and_made_again(boundary: object):
    grid = Grid((9, 10), (3, 2), halo=(2, 1), boundary=boundary, nan_outside=True)
    written = attributes.attributes_of(grid.description, {"": np.dtype("f8")})
    read = json.loads(json.dumps(written, allow_nan=False))
    again = Grid(**attributes.arguments_of(read, "u.zarr"), nan_outside=True)
    assert again.description == grid.description and again.fields == ()


def test_fields_are_described():
    grid = Grid((9, 10), fields={"u": "f4", "solid": bool})
    written = attributes.attributes_of(grid.description, {name: np.dtype(dtype) for name, dtype in grid.fields})
    assert Grid(**attributes.arguments_of(json.loads(json.dumps(written)), "u.zarr")) == grid


@pytest.mark.parametrize("damage", [{"shape": None}, {"fields": []}, {"boundary": {"": [{}]}},
                                    {"boundary": {"": [{"number": "x", "dtype": "f4"}]}}], ids=str)
def test_attributes_that_describe_no_grid_are_said(damage: dict):
    written = attributes.attributes_of(Grid((9, 10)).description, {"": np.dtype("f8")})
    with pytest.raises(PlanError, match=r"the attribute 'vispark' of u\.zarr does not describe a grid"):
        attributes.arguments_of(written | damage, "u.zarr")


def test_chunks_and_splits_that_fit():
    assert block_chunks(Grid((7, 12), (2, 3)).description) == (4, 4)
    for splits in range(1, 30):
        chunk = -(-29 // splits)
        if fits(29, splits, chunk):
            assert most_splits(29, [chunk]) == splits
            check_readable((29,), (splits,), (chunk,), "u.zarr")
    with pytest.raises(PlanError, match=r"1\.2 times its bytes would be read. Splits that fit are, along axis 0: 1"):
        check_readable((10,), (2,), (2,), "u.zarr")
    # What little more is read is no reason to refuse.
    check_readable((1000,), (3,), (1,), "u.zarr")
    check_readable((1000,), (3,), (4,), "u.zarr")


def test_files_that_do_not_say_their_shape_are_said(tmp_path):
    with pytest.raises(PlanError, match=r"does not end in \.npy, \.zarr, .* give Grid the shape"):
        facts(tmp_path / "u.txt")


@pytest.mark.parametrize(("ending", "library", "extra"), [("zarr", "zarr", "zarr"), ("h5", "h5py", "hdf5")])
def test_a_library_that_is_not_installed_is_said(ending: str, library: str, extra: str):
    program = (f"import sys\nsys.modules[{library!r}] = None\nfrom vispark.errors import PlanError\n"
               f"from vispark.data.grid.files import facts\n"
               f"try:\n    facts('u.{ending}')\nexcept PlanError as error:\n    print(error)")
    ended = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=60)
    assert f"pip install '.[{extra}]'" in ended.stdout
