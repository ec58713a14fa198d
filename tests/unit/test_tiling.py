"""Dealing of rows to the thread blocks of a table launch."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_worker.execution.launches.tiling import starts, tile_rows

ROWS = st.lists(st.integers(0, 500), min_size=1, max_size=12)


@given(ROWS, st.integers(1, 70), st.integers(0, 40))
def test_every_row_is_dealt_once_in_whole_tiles(rows: list[int], tile: int, most: int):
    works = tile_rows(rows, tile, most)
    assert works.dtype == np.int64 and works.flags.c_contiguous
    seen = [np.zeros(extent, int) for extent in rows]
    for entry, first, count in works.tolist():
        assert count > 0 and first % tile == 0 and (count % tile == 0 or first + count == rows[entry])
        seen[entry][first:first + count] += 1
    assert all((each == 1).all() for each in seen)
    assert works.tolist() == sorted(works.tolist())


@given(ROWS, st.integers(1, 70), st.integers(1, 40))
def test_no_more_works_than_asked_for_and_even_ones(rows: list[int], tile: int, most: int):
    works = tile_rows(rows, tile, most)
    assert len(works) <= max(most, sum(extent > 0 for extent in rows))
    tiles = -(-works[:, 2] // tile)
    for entry in set(works[:, 0].tolist()):
        own = tiles[works[:, 0] == entry]
        assert own.max() - own.min() <= 1


def test_a_tile_each_where_nothing_else_is_asked():
    assert len(tile_rows([1000, 0, 1], 10)) == 101
    assert tile_rows([], 4).shape == (0, 3) and tile_rows([0, 0], 4, 8).shape == (0, 3)


@pytest.mark.parametrize(("blocks", "most", "expected"),
                         [(16, 264, 256), (1, 264, 264), (300, 264, 300), (5, 132, 130)])
def test_equal_blocks_get_equal_works(blocks: int, most: int, expected: int):
    works = tile_rows([1_000_000] * blocks, 4, most)
    assert len(works) == expected
    assert len(set(np.bincount(works[:, 0]).tolist())) == 1


@given(ROWS, st.integers(1, 70))
def test_where_each_blocks_works_begin(rows: list[int], tile: int):
    works = tile_rows(rows, tile)
    bounds = starts(works, len(rows))
    assert len(bounds) == len(rows) + 1 and bounds[-1] == len(works)
    for entry in range(len(rows)):
        assert (works[bounds[entry]:bounds[entry + 1], 0] == entry).all()
