"""Recordings, which are CUDA graphs here, on a real GPU."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from gpu_worker.device.cuda_graph import Graph
from tests.unit.plans import Bench, bench
from tests.unit.test_recordings import (
    ROWS,
    expected,
    summing,
    test_an_empty_plan,
    test_fetched_records_are_those_of_each_pass,
    test_other_content_under_a_name_is_seen,
    test_passes_beside_each_other,
    test_raw_kernels_and_folds_of_their_own_are_recorded,
    test_values_of_other_types_are_not_taken_for_the_same,
    test_what_changes_from_pass_to_pass_is_taken_anew,
)

__all__ = [
    "test_an_empty_plan",
    "test_fetched_records_are_those_of_each_pass",
    "test_other_content_under_a_name_is_seen",
    "test_passes_beside_each_other",
    "test_raw_kernels_and_folds_of_their_own_are_recorded",
    "test_values_of_other_types_are_not_taken_for_the_same",
    "test_what_changes_from_pass_to_pass_is_taken_anew",
]


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Bench]:
    with bench(tmp_path, "cuda") as found:
        found.put(1, [[{"": ROWS}], [{"": ROWS[:9]}]])
        yield found


@pytest.fixture
def null(worker: Bench) -> Bench:
    return worker


def test_a_further_pass_is_one_launch_of_a_graph(worker: Bench):
    plan, w = summing(worker), np.float32([1, 2, 3, 4])
    for scale in (1, 1, 1, 2, 1):
        found, = worker.folded(plan, (1,), [np.float32(scale), w, np.float32(0)])
        assert found == expected(ROWS, scale, w, 0) + expected(ROWS[:9], scale, w, 0)
    recordings, = (prepared.recordings for prepared in worker.process._plans._known.values()
                   if prepared.recordings._known)
    recording, = recordings._known.values()
    work, = recording._work
    assert isinstance(work, Graph) and work._handle is not None and len(work.entries) == 4
