"""Ranges of keys for rows that no device can sort at once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gpu_worker.device.memory.partition import HeldArray, Partition
from gpu_worker.execution.steps.key_ranges import RangesOfKeys
from gpu_worker.protocol.errors import OutOfMemory
from gpu_worker.protocol.messages import Field
from gpu_worker.protocol.plans import SortByKeyStep
from tests.unit.plans import bench


def ranges_of(words: list[tuple[int, ...]], parts: int, *, descending: bool = False) -> tuple[list, set[int], list]:
    """Return the bounds of a sample of keys, the ranges that have one key, and the keys of each range."""
    ranges = RangesOfKeys("sort", SortByKeyStep("sort", "0", descending), Partition(0, 0, None, b"", [], None),
                          parts)
    bounds = ranges.edges(np.array(words, np.uint64).reshape(len(words), -1))
    keys: list[set] = [set() for _ in range(parts)]
    for word in words:
        place = sum(tuple(bound) < word for bound in bounds.tolist())
        keys[parts - 1 - place if descending else place].add(word)
    return bounds.tolist(), ranges.of_one_key(bounds), keys


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("words", [
    sorted([(5,)] * 40 + [(n,) for n in range(20)]),
    sorted([(0,)] * 40 + [(n,) for n in range(3, 20)]),
    sorted([(2, 0)] * 40 + [(n % 5, n) for n in range(30)]),
    [(3,)] * 50,
    [(n,) for n in range(1, 200, 3)],
])
def test_a_key_of_several_ranges_has_one_of_its_own(words: list[tuple[int, ...]], descending: bool):
    bounds, of_one_key, ranges = ranges_of(words, 8, descending=descending)
    assert bounds == sorted(bounds)
    assert all(len(ranges[place]) <= 1 for place in of_one_key)
    often = max(set(words), key=words.count)
    if words.count(often) > 2 * len(words) // 8:
        assert {often} in [ranges[place] for place in of_one_key]
    ends = [max(keys) for keys in (ranges[::-1] if descending else ranges) if keys]
    assert ends == sorted(ends)


def test_a_range_that_no_device_can_sort_is_said(tmp_path: Path):
    with bench(tmp_path, "host", memory=1 << 20) as worker:
        device = worker.process._pool.devices[0]
        rows = HeldArray(Field("0", "<f8", (1 << 17,)), host=np.zeros(1 << 20, np.uint8))
        whole = Partition(0, 1 << 17, None, b"", [(rows,)], device)
        ranges = RangesOfKeys("sortByKey", SortByKeyStep("sortByKey", "0", False), whole, 2)
        ranges.check_sizes(np.array([1 << 17, 9]), {0})
        with pytest.raises(OutOfMemory, match=r"131,072 records of a range of keys take .* spark\.vispark\.memory"):
            ranges.check_sizes(np.array([1 << 17, 9]), {1})
