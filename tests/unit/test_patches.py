"""Boxes, patches and exchanges as pure geometry: fields of coordinates, whose ghosts must come back."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_worker.device.memory.grid.boxes import Box, Lattice, bisected, covered, cuts, device_of_blocks, shells, whole
from gpu_worker.device.memory.grid.ghosts import GIVEN, MIRRORED, PERIODIC, Copied, ghosts
from gpu_worker.device.memory.grid.layout import Copy, PatchLayout, packed, tables
from tests.unit.grids import AXES, CutGrid, cases, coordinates, padded, run_tables, triples

pytestmark = pytest.mark.slow

#: On a machine that is busy with other things an example may take its time.
_SETTINGS = settings(deadline=None)


@_SETTINGS
@given(st.integers(1, 200), st.data())
def test_cuts_are_those_of_numpy(extent: int, data: st.DataObject):
    splits = data.draw(st.integers(1, extent))
    sizes = [len(part) for part in np.array_split(np.arange(extent), splits)]
    assert np.diff(cuts(extent, splits)).tolist() == sizes


@_SETTINGS
@given(triples(1, 6), st.integers(1, 9))
def test_bisection_deals_every_block_once(splits, parts: int):
    lattice = Lattice(tuple(3 * n + 1 for n in splits), splits)
    boxes = bisected(lattice, parts)
    assert len(boxes) == parts
    assert sorted(position for box in boxes for position in box) == list(whole(splits))
    assert sum(box.size > 0 for box in boxes) == min(parts, prod(splits))


@pytest.mark.parametrize("parts", [1, 2, 4, 8])
def test_bisection_into_equal_parts(parts: int):
    boxes = bisected(Lattice((2000, 1000, 1000), (4, 4, 4)), parts)
    assert {box.size for box in boxes} == {64 // parts}
    if parts == 2:
        assert [box.shape for box in boxes] == [(2, 4, 4), (2, 4, 4)]


@_SETTINGS
@given(st.sets(triples(0, 3), max_size=40))
def test_boxes_cover_any_set_exactly(positions):
    boxes = covered(positions)
    assert sorted(position for box in boxes for position in box) == sorted(positions)


@_SETTINGS
@given(triples(0, 3), triples(1, 5))
def test_one_box_covers_a_box(low, shape):
    box = Box(low, tuple(at + extent for at, extent in zip(low, shape, strict=True)))
    assert covered(set(box)) == [box]


@_SETTINGS
@given(triples(1, 6), triples(0, 4), triples(0, 4))
def test_shells_are_what_the_interior_is_not(shape, below, above):
    box = Box((1, 2, 3), tuple(at + extent for at, extent in zip((1, 2, 3), shape, strict=True)))
    inner, outer = shells(box, below, above)
    assert sorted(cell for part in (inner, *outer) for cell in part) == list(box)
    for cell in inner:
        assert all(box.low[axis] + below[axis] <= cell[axis] < box.high[axis] - above[axis] for axis in AXES)


@_SETTINGS
@given(triples(1, 70), triples(0, 3))
def test_rows_of_a_patch_start_on_lines(shape, widths):
    layout = PatchLayout(Box((5, 6, 7), tuple(at + extent for at, extent in zip((5, 6, 7), shape, strict=True))),
                         widths)
    assert layout.pitch % 32 == layout.plane % 32 == layout.origin % 32 == 0
    memory = np.zeros(layout.elements, "i4")
    layout.view(memory, ghosts=True)[...] += 1
    assert memory.max() == 1                                            # no two cells share an element
    cells = np.flatnonzero(memory)
    assert cells.size == prod(extent + 2 * width for extent, width in zip(shape, widths, strict=True))
    assert cells[0] >= 32 - widths[2] and cells[-1] < layout.elements - 32


@_SETTINGS
@given(cases())
def test_exchange_restores_coordinates(case: CutGrid):
    full = coordinates(case.lattice.shape)
    expected = padded(full, case)
    memories = [np.full(layout.elements, -7, full.dtype) for layout in case.layouts]
    for layout, memory in zip(case.layouts, memories, strict=True):
        layout.view(memory)[...] = full[tuple(map(slice, layout.box.low, layout.box.high))]
    case.fill(memories)
    for layout, memory in zip(case.layouts, memories, strict=True):
        box = tuple(slice(low, high + 2 * width)
                    for low, high, width in zip(layout.box.low, layout.box.high, case.widths, strict=True))
        np.testing.assert_array_equal(layout.view(memory, ghosts=True), expected[box])


@_SETTINGS
@given(cases())
def test_what_one_side_sends_is_what_the_other_expects(case: CutGrid):
    """Compare the pieces of one target and one source: they are the same, in order, whoever else takes part."""
    boxes = [layout.box for layout in case.layouts]
    arguments = case.lattice.shape, case.widths, case.widths, case.rules
    everything = [piece for piece in ghosts(boxes, boxes, *arguments) if isinstance(piece, Copied)]
    for target, source in np.ndindex(len(boxes), len(boxes)):
        alone = [piece for piece in ghosts([boxes[target]], [boxes[source]], *arguments) if isinstance(piece, Copied)]
        among = [piece for piece in everything if (piece.target, piece.source) == (target, source)]
        assert [(piece.to, piece.start) for piece in alone] == [(piece.to, piece.start) for piece in among]


def test_a_single_patch_without_a_periodic_axis_copies_nothing():
    box = whole((4, 5, 6))
    rules = ((GIVEN, GIVEN),) * 3
    assert not [piece for piece in ghosts([box], [box], (4, 5, 6), (1, 1, 1), (1, 1, 1), rules)
                if isinstance(piece, Copied)]
    rules = ((GIVEN, GIVEN), (PERIODIC, PERIODIC), (MIRRORED, GIVEN))
    assert [piece for piece in ghosts([box], [box], (4, 5, 6), (1, 1, 1), (1, 1, 1), rules)
            if isinstance(piece, Copied)]


@_SETTINGS
@given(st.sampled_from([1, 2, 4, 8, 16]), triples(1, 9), st.integers(0, 3), st.integers(0, 3), st.integers(1, 3))
def test_tables_copy_boxes(itemsize: int, shape: Sequence[int], lead: int, trail: int, step: int):
    """Try any alignment of both sides, with steps and in reverse."""
    random = np.random.default_rng(1)
    memory = random.integers(0, 256, (64 + prod(shape) * step * 4) * itemsize * 2, "u1")
    target = np.zeros_like(memory)
    nz, ny, nx = shape
    rows = nx * step + 1
    for backwards in (False, True):
        strides = (rows * ny + 2, rows, -step if backwards else step)
        start = (lead + (nx - 1) * step if backwards else lead) * itemsize
        copy = Copy(start, trail * itemsize, strides, packed((nz, ny, nx)), (nz, ny, nx), itemsize)
        run_tables(*tables([copy]), memory, target)
        view = np.lib.stride_tricks.as_strided(memory[start:], (nz, ny, nx, itemsize),
                                               [stride * itemsize for stride in strides] + [1])
        copied = target[trail * itemsize:(trail + prod(shape)) * itemsize].reshape(nz, ny, nx, itemsize)
        np.testing.assert_array_equal(copied, view)


def test_aligned_rows_are_copied_in_wide_accesses():
    entries, _ = tables([Copy(256, 512, (4096, 64, 1), (8192, 96, 1), (3, 5, 64), 4)])
    assert entries["unit"].tolist() == [16] and entries["nx"].tolist() == [16]
    entries, _ = tables([Copy(256, 512, (4096, 64, 1), (8192, 96, 1), (3, 5, 3), 4)])
    assert entries["unit"].tolist() == [4]


def test_contiguous_boxes_become_long_rows():
    entries, works = tables([Copy(0, 1 << 20, packed((30, 40, 64)), packed((30, 40, 64)), (30, 40, 64), 4)])
    assert entries["ny"].tolist() == [1] * len(entries)
    assert (entries["nx"] * entries["unit"]).sum() == 30 * 40 * 64 * 4
    assert works["rows"].sum() == len(entries)


@_SETTINGS
@given(st.integers(1, 4), st.data())
def test_blocks_are_dealt_as_boxes(parts: int, data: st.DataObject):
    splits = data.draw(triples(1, 4))
    devices = device_of_blocks(Lattice(splits, splits), parts)
    for part in range(parts):
        assert len(covered({position for position, device in devices.items() if device == part})) <= 1
