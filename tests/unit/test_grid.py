"""Grids as values: what they accept, how they are cut, what lies outside of them, and which cells an index means."""

from __future__ import annotations

import pickle
import re
from types import EllipsisType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark import cloudpickle

from gpu_worker.protocol.errors import PlanError, RecordError
from tests.grid_reference import padded
from vispark import BlockKey, Grid
from vispark.api.grids.gather import CellSelection
from vispark.api.grids.scatter import boxes
from vispark.data.grid import npy
from vispark.data.grid.boundary import boundary_values, number_for
from vispark.data.grid.spec import Edge
from vispark.data.records import RecordLayout, pack


@st.composite
def grids(draw: st.DrawFn, boundary=0.0) -> Grid:
    """Draw a grid of 1 to 3 axes whose splits need not divide them."""
    splits = draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    halo = [draw(st.integers(0, 3)) for _ in splits]
    shape = [draw(st.integers(parts * max(1, width), parts * max(1, width) + 9))
             for parts, width in zip(splits, halo, strict=True)]
    return Grid(tuple(shape), tuple(splits), tuple(halo), boundary)


@given(grids())
def test_blocks_are_cut_as_numpy_cuts(grid):
    cells = np.arange(np.prod(grid.shape)).reshape(grid.shape)
    for axis in range(grid.ndim):
        cuts = grid.description.cuts(axis)
        parts = np.array_split(np.arange(grid.shape[axis]), grid.splits[axis])
        assert [len(part) for part in parts] == list(np.diff(cuts))
    numbers = np.concatenate([cells[key.slices].ravel() for key in grid.blocks()])
    assert sorted(numbers) == list(range(cells.size))
    assert [key.number for key in grid.blocks()] == list(range(len(list(grid.blocks()))))
    assert all(cells[key.slices].shape == key.shape for key in grid.blocks())


@pytest.mark.parametrize(("arguments", "message"), [
    ({"shape": (4, 4), "splits": (5, 1)}, "5 blocks along axis 0, which has 4 cells"),
    ({"shape": (4, 4), "splits": (2, 1), "halo": 3}, "smallest block has 2 cells"),
    ({"shape": (7,), "splits": (2,), "halo": 4}, "smallest block has 3 cells"),
    ({"shape": 400, "splits": 2, "halo": 33}, "halo= is 33 wide along axis 0; 32 at most"),
    ({"shape": (2, 2**31)}, "shape= has 2,147,483,648 cells along axis 1"),
    ({"shape": (4, 4), "splits": (2,)}, "splits=(2,) has 1 items for a grid of 2 axes; give one for each, or one"),
    ({"shape": (4, 4), "halo": (1, 1, 1)}, "halo=(1, 1, 1) has 3 items"),
    ({"shape": (4, 4, 4, 4)}, "a grid has 1 to 3"),
    ({"shape": ()}, "a grid has 1 to 3"),
    ({"shape": (4, 0)}, "the least is 1"),
    ({"shape": (4, 2.0)}, "no whole number"),
    ({"shape": 4, "halo": -1}, "the least is 0"),
    ({"shape": 4, "boundary": "reflecting"}, "unknown boundary 'reflecting'"),
    ({"shape": 4, "boundary": None}, "unknown boundary None"),
    ({"shape": (4, 4), "boundary": ("periodic",)}, "has 1 items for a grid of 2 axes"),
    ({"shape": (4, 4), "boundary": (("periodic", 0.0), 0.0)}, "periodic on one side alone"),
    ({"shape": (4, 4), "boundary": ((0.0, 0.0, 0.0), 0.0)}, "the sides of an axis are two"),
    ({"shape": 4, "boundary": {1: 0.0}}, "keys are names of fields"),
    ({"shape": 4, "boundary": {"w": 0.0}, "fields": {"u": "f4"}}, "given for w; the grid's fields are u"),
    ({"shape": 4, "fields": {}}, "it is a dict of names to dtypes"),
    ({"shape": 4, "fields": {"u": "f5"}}, "which NumPy does not know"),
    ({"shape": 4, "fields": {"u": "datetime64[s]"}}, "cells hold bool, integers of at most 64 bits"),
    ({"shape": 4, "fields": {"": "f4"}}, "a name is a string"),
])
def test_what_no_grid_can_be_is_said(arguments, message):
    with pytest.raises(PlanError) as error:
        Grid(**arguments)
    assert message in str(error.value)


def test_a_grid_is_hashable_equal_by_content_and_pickles_with_its_functions():
    wall = 3.0
    grid = Grid((6, 4), (2, 2), 1, {"u": ((lambda y, x: wall * x, "mirrored"), "periodic")},
                {"u": "f4", "solid": bool})
    wall = 5.0
    again = pickle.loads(cloudpickle.dumps(grid))
    assert again == grid and hash(again) == hash(grid) and again.fields == grid.fields
    assert grid != Grid((6, 4), (2, 2), 1)
    assert len({grid.block(0, 1), again.block(0, 1), grid.block(1, 0)}) == 2
    assert sorted([grid.block(1, 0), grid.block(0, 1)]) == [grid.block(0, 1), grid.block(1, 0)]
    with pytest.raises(AttributeError):
        grid.description = None
    with pytest.raises(PlanError, match="no block"):
        grid.block(2, 0)
    values = boundary_values(grid.description, "u", 0, "<f4")
    assert values.shape == (1, 6) and values.dtype == np.float32
    # The function has the wall of when the grid was made; across the periodic axis it is asked for the cell there.
    np.testing.assert_array_equal(values[0], np.float32([9, 0, 3, 6, 9, 0]))


@given(st.data())
def test_what_a_function_gives_outside_is_what_padding_one_axis_after_the_other_gives(data):
    grid = data.draw(grids())
    sides = st.sampled_from([("periodic",) * 2, ("mirrored",) * 2, ("mirrored", position), (position, -1.5),
                             (position, position), (-1.5, position)])
    rules = [data.draw(sides) for _ in grid.shape]
    grid = Grid(grid.shape, grid.splits, grid.halo, tuple(rules))
    whole = padded(np.zeros(grid.shape), grid.halo, rules)
    for axis, both in enumerate(rules):
        for above in (0, 1):
            if both[above] is not position:
                continue
            values = boundary_values(grid.description, "", 2 * axis + above, "<f8")
            width, extent = grid.halo[axis], grid.shape[axis]
            # What a later axis gives comes after it.
            there = [slice(None) if not any(callable(rule) or rule == -1.5 for rule in rules[other]) or other < axis
                     else slice(grid.halo[other], grid.halo[other] + grid.shape[other]) for other in range(grid.ndim)]
            there[axis] = slice(None)
            beyond = values[tuple(there)]
            there[axis] = slice(extent + width, None) if above else slice(0, width)
            np.testing.assert_array_equal(beyond, whole[tuple(there)])


def position(*at):
    return sum((each + 1) * 100**place for place, each in enumerate(at))


NAN = float("nan")


def unknown_name():
    raise NameError("name 'height' is not defined")


def at_ten(y, x):
    """NaN at the cell (-1, 10), and in none of the grid's."""
    return np.where((y == -1) & (x == 10), NAN, 0.5 * x)


@pytest.mark.parametrize(("arguments", "message"), [
    ({"boundary": NAN}, "the boundary below axis 0 is NaN"),
    ({"boundary": ("periodic", (0, complex(0, NAN)))}, "the boundary above axis 1 is NaN"),
    ({"boundary": {"u": 0, "v": ("mirrored", np.float32(NAN))}}, "the boundary below axis 1 of field 'v' is NaN"),
    ({"boundary": at_ten}, "the boundary below axis 0 is NaN at cell (-1, 10), beside block (0, 1)"),
    ({"boundary": at_ten, "fields": {"u": "f4"}}, "axis 0 of field 'u' is NaN at cell (-1, 10), beside block (0, 1)"),
    ({"boundary": 300, "fields": {"u": "i1"}}, "the boundary of field 'u' is 300, which its int8 cannot hold"),
    ({"boundary": 0.5, "fields": {"u": "f4", "n": "i4"}}, "the boundary of field 'n' is 0.5, which its int32 cannot"),
    ({"boundary": lambda y, x: 20 * x, "fields": {"u": "i1"}}, "is 140 at cell (-1, 7), which the field's int8 cannot"),
    ({"boundary": lambda y, x: 1e300 * y, "fields": {"u": "f4"}}, "-1e+300 at cell (-1, -1), which the field's float"),
    ({"boundary": lambda y, x: x.nothing}, "below axis 0 failed: AttributeError"),
    ({"boundary": lambda y, x: unknown_name()}, "failed: NameError"),
    ({"boundary": lambda y, x: np.load("no-such-table.npy")}, "failed: FileNotFoundError"),
    ({"boundary": lambda x: x}, "failed"),
    ({"boundary": lambda y, x: "wall"}, "cells hold numbers"),
    ({"boundary": lambda y, x: 1j * x, "fields": {"u": "f4"}}, "does not hold"),
    ({"boundary": lambda y, x: np.zeros(7)}, "has shape (7,)"),
])
def test_a_value_outside_that_fields_cannot_have_is_an_error_where_the_grid_is_made(arguments, message):
    with pytest.raises(PlanError) as error:
        Grid((6, 12), (2, 2), **arguments)
    assert message in str(error.value)


@pytest.mark.parametrize("arguments", [
    {"boundary": NAN, "nan_outside": True}, {"boundary": at_ten, "nan_outside": True, "fields": {"u": "f4"}},
    {"boundary": at_ten, "halo": 0}, {"boundary": {"u": float("inf"), "n": -1}, "fields": {"u": "f4", "n": "i1"}},
    {"boundary": {"u": 0.5}, "fields": {"u": "f4", "n": "i4"}}, {"boundary": 300},
])
def test_values_outside_that_are_meant_or_never_read_are_taken(arguments):
    grid = Grid((6, 12), (2, 2), **arguments)
    assert pickle.loads(cloudpickle.dumps(grid)) == grid


@pytest.mark.parametrize(("number", "dtype", "holds"), [
    (0.0, "<i4", True), (0.5, "<i4", False), (300, "|u1", False), (-1, "|u1", False), (1.0, "|b1", True),
    (2, "|b1", False), (0.1, "<f4", True), (1j, "<f8", False), (1j, "<c8", True), (float("nan"), "<f2", True),
    (2**63 - 1, "<i8", True), (float("nan"), "<i8", False), (float("inf"), "<i8", False),
    (float("inf"), "<f4", True), (1e300, "<f4", False), (-1e300, "<c8", False),
])
def test_a_fixed_value_outside_is_one_of_the_fields_dtype(number, dtype, holds):
    if holds:
        np.testing.assert_equal(np.frombuffer(number_for(Edge.of_number(number), dtype, "u"), dtype)[0],
                                np.array(number, dtype))
    else:
        with pytest.raises(PlanError, match="cannot hold"):
            number_for(Edge.of_number(number), dtype, "u")


@given(grids(), st.integers(1, 9), st.booleans())
def test_partitions_are_boxes_of_neighbours_of_similar_size(grid, parts, joins_rows):
    parts = min(parts, grid.description.blocks)
    partitions = boxes(grid.shape, grid.splits, parts, joins_rows)
    if joins_rows and parts == 1:
        assert len({position[:-1] for position in partitions[0]}) * grid.splits[-1] == len(partitions[0])
    assert len(partitions) == parts and all(partitions)
    assert sorted(position for box in partitions for position in box) == list(grid.description.positions())
    for box in partitions:
        low, high = np.min(box, axis=0), np.max(box, axis=0) + 1
        assert len(box) == np.prod(high - low)


def indices(extent: int) -> st.SearchStrategy[slice | int]:
    bounds = st.none() | st.integers(-extent - 2, extent + 2)
    return st.builds(slice, bounds, bounds, st.none() | st.integers(1, 5)) | st.integers(-extent, extent - 1)


@given(st.data())
def test_an_index_means_the_cells_that_it_means_for_the_whole_array(data):
    grid = data.draw(grids())
    items: list[slice | int | EllipsisType] = [data.draw(indices(extent)) for extent in grid.shape]
    if data.draw(st.booleans()):
        low = data.draw(st.integers(0, len(items)))
        items[low:data.draw(st.integers(low, len(items)))] = [...]
    array = np.arange(np.prod(grid.shape)).reshape(grid.shape)
    cells = CellSelection.of(tuple(items), grid.shape)
    selected = np.full(cells.shape, -1)
    for key in grid.blocks():
        inside, target = cells.within(key)
        selected[target] = array[key.slices][inside]
    expected = array[tuple(items)]
    kept = tuple(0 if axis in cells.dropped else slice(None) for axis in range(grid.ndim))
    np.testing.assert_array_equal(selected[kept], expected)


def test_an_index_that_means_no_cells_of_the_grid_is_refused():
    for index in (4, -5, True, (0, 0), slice(None, None, -1), [0, 1], "x", None, (..., ...), 1.0, np.ones(4, bool)):
        with pytest.raises(PlanError, match="cells="):
            CellSelection.of(index, (4,))


def test_records_under_keys_of_blocks_are_a_grid():
    grid = Grid((5, 4), (2, 2))
    blocks = [(key, {"u": np.zeros(key.shape), "n": np.ones(key.shape, "i4")}) for key in grid.blocks()]
    packed = pack(blocks, seal=bytes)
    assert packed.layout.kind == "grid" and packed.layout.grid == grid.description
    assert packed.positions == (0, 1, 2, 3) and packed.count == 4
    assert RecordLayout.decode(packed.layout.encode()) == packed.layout
    line = Grid(6, 3)
    assert pack([(key, np.zeros(2)) for key in line.blocks()], seal=bytes).layout.kind == "grid"


def test_other_values_under_keys_of_blocks_are_ordinary_records():
    grid = Grid((5, 4), (2, 2))
    assert pack([(key, float(key.number)) for key in grid.blocks()], seal=bytes).layout.kind == "elements"
    assert pack([(key, np.zeros(3)) for key in grid.blocks()], seal=bytes).layout.kind == "elements"
    assert pack([(7, np.zeros((3, 2))), (grid.block(0, 0), np.zeros((3, 2)))], seal=bytes).layout.kind == "blocks"


def test_blocks_that_are_not_as_their_grid_says_are_named():
    grid = Grid((5, 4), (2, 2))
    with pytest.raises(RecordError, match=r"record 1 has shape \(9, 9\), and block \(1, 0\) has \(2, 2\) cells"):
        pack([(grid.block(0, 0), np.zeros((3, 2))), (grid.block(1, 0), np.zeros((9, 9)))], seal=bytes)
    with pytest.raises(RecordError, match="one Grid"):
        pack([(grid.block(0, 0), np.zeros((3, 2))), (Grid((6, 4), (2, 2)).block(0, 0), np.zeros((3, 2)))], seal=bytes)


def test_a_key_shows_its_place():
    assert repr(Grid((5, 4), (2, 2)).block(1, 0)) == "BlockKey(1, 0)"
    assert isinstance(Grid(4).block(0), BlockKey)


def test_a_directory_of_blocks_is_that_of_a_grid_with_its_splits(tmp_path):
    for position in Grid((4, 6), (2, 3)).description.positions():
        npy.write_block(npy.block_path(tmp_path, position), np.zeros((2, 2)))
    npy.check_blocks(str(tmp_path), (2, 3), np.ndindex(2, 3))
    for splits in [(3, 2), (2, 2), (2,)]:
        with pytest.raises(PlanError, match=re.escape(f"splits=(2, 3), and this grid has splits={splits}")):
            npy.check_blocks(str(tmp_path), splits, np.ndindex(*splits))
    (tmp_path / "block-1-1.npy").unlink()
    npy.check_blocks(str(tmp_path), (1, 1), np.ndindex(1, 1))     # of which nothing is known: a block is missing
    with pytest.raises(PlanError, match=r"there is no file .*block-1-1\.npy"):
        npy.check_blocks(str(tmp_path), (2, 3), np.ndindex(2, 3))


@pytest.mark.parametrize("splits", range(1, 8))
def test_blocks_of_a_grid_of_another_length_are_known_by_two(splits: int, tmp_path):
    for saved in range(splits, 4 * splits):
        for key in Grid(saved, splits).blocks():
            npy.write_block(npy.block_path(tmp_path, key.position), np.zeros(key.shape))
        for extent in range(splits, 4 * splits):
            if extent == saved:
                npy.check_block_shapes(str(tmp_path), (extent,), (splits,))
                continue
            with pytest.raises(PlanError, match="It was saved from a grid of another shape"):
                npy.check_block_shapes(str(tmp_path), (extent,), (splits,))


def test_splits_and_halo_may_be_one_number_for_all_axes():
    assert Grid((6, 8), splits=2, halo=2) == Grid((6, 8), splits=(2, 2), halo=(2, 2))
