"""Recordings, which are CUDA graphs here, on a real GPU."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from gpu_worker.device.base import Act, BufferCopy
from gpu_worker.device.cuda.device import CudaDevice
from gpu_worker.device.cuda.graph import Graph
from gpu_worker.protocol.messages import Release
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
from tests.unit.test_recordings_kept import (
    kept,
    put,
    test_a_fold_of_each_state,
    test_a_loop_with_two_states,
    test_plans_that_take_turns,
    test_what_another_plan_took_of_a_state_stays_as_it_is,
    test_whatever_is_held_released_and_asked_for,
)

__all__ = [
    "test_a_fold_of_each_state",
    "test_a_loop_with_two_states",
    "test_an_empty_plan",
    "test_fetched_records_are_those_of_each_pass",
    "test_other_content_under_a_name_is_seen",
    "test_passes_beside_each_other",
    "test_plans_that_take_turns",
    "test_raw_kernels_and_folds_of_their_own_are_recorded",
    "test_values_of_other_types_are_not_taken_for_the_same",
    "test_what_another_plan_took_of_a_state_stays_as_it_is",
    "test_what_changes_from_pass_to_pass_is_taken_anew",
    "test_whatever_is_held_released_and_asked_for",
]


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Bench]:
    with bench(tmp_path, "cuda") as running:
        running.put(1, [[{"": ROWS}], [{"": ROWS[:9]}]])
        yield running


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Bench]:
    with bench(tmp_path, "cuda") as running:
        yield running


@pytest.fixture
def null(worker: Bench) -> Bench:
    return worker


def test_a_further_pass_is_one_launch_of_a_graph(worker: Bench):
    plan, w = summing(worker), np.float32([1, 2, 3, 4])
    for scale in (1, 1, 1, 2, 1):
        total, = worker.folded(plan, (1,), [np.float32(scale), w, np.float32(0)])
        assert total == expected(ROWS, scale, w, 0) + expected(ROWS[:9], scale, w, 0)
    recordings, = (prepared.recordings for prepared in worker.process._plans._known.values()
                   if prepared.recordings._known)
    recording, = recordings._known.values()
    work, = recording.work.works
    assert isinstance(work, Graph) and work._handle is not None and len(work.entries) == 4


def test_a_pass_of_a_loop_is_one_launch_of_a_graph(host: Bench):
    plan = (put(host, 1), kept(host, "moved", "u"))[1]
    for vrdd in range(1, 8):
        host.run(plan, (vrdd, vrdd + 1), [np.float32(1)])
        host.process.handle(Release(1, (vrdd,)), [])
    recordings = next(known.recordings for known in host.process._plans._known.values() if known.keeps
                      and known.recordings._known)
    assert all(isinstance(work, Graph) and work._handle is not None
               for recording in recordings._known.values() for work in recording.work.works)


def test_what_another_thread_frees_during_a_capture_is_free_after_it(device: CudaDevice):
    """Give a buffer back on the stream that it was allocated on, which may be one that a recording is made on now."""
    stream, rows = device.stream(), np.arange(512, dtype=np.int64)
    dropped, source, target = (device.allocate(rows.nbytes, stream=stream) for _ in range(3))
    device.copy_in(source, rows, stream=stream)
    device.synchronize(stream=stream)

    def drop() -> None:
        with ThreadPoolExecutor(1) as other:
            other.submit(dropped.close).result()

    work = Graph(device, stream, [(stream, Act(drop)), (stream, BufferCopy(device.copy_across, target, source))])
    assert work._handle is not None and device.memory().used == 2 * rows.nbytes
    work.start()
    copied = np.zeros_like(rows)
    device.copy_out(copied, target, stream=stream)
    device.synchronize(stream=stream)
    np.testing.assert_array_equal(copied, rows)
    work.close()
    source.close()
    target.close()
