"""Table launches and fused folds on a real GPU."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.plans import Bench, bench
from tests.unit.test_table_launches import (
    test_a_key_out_of_range,
    test_a_map_runs_over_all_blocks,
    test_all_rows_are_folded_to_one_record,
    test_each_block_is_folded_to_a_record,
    test_rows_are_folded_by_key,
    test_sums_of_doubles_lose_nothing_and_are_the_same_each_time,
    test_what_a_plan_lacks_is_an_error_and_changes_nothing,
)

__all__ = [
    "test_a_key_out_of_range",
    "test_a_map_runs_over_all_blocks",
    "test_all_rows_are_folded_to_one_record",
    "test_each_block_is_folded_to_a_record",
    "test_rows_are_folded_by_key",
    "test_sums_of_doubles_lose_nothing_and_are_the_same_each_time",
    "test_what_a_plan_lacks_is_an_error_and_changes_nothing",
]


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Bench]:
    with bench(tmp_path, "cuda") as running:
        yield running
