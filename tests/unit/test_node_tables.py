"""Joining of what the nodes of a world folded, by all of them."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gpu_worker.execution.folds import node_tables
from gpu_worker.execution.folds.partial_folds import FoldedArray, FoldResult
from gpu_worker.protocol.errors import KeysRefused, VisparkError, WorldLost
from gpu_worker.protocol.messages import Field


def joined(results: Sequence[FoldResult | None], operators: Sequence[str], refused: Sequence[str] = (),
           first: bytes | None = None) -> list[Any]:
    """Return the table that each of some nodes gets of what all of them folded, or its error."""
    words, barrier = [b""] * len(results), threading.Barrier(len(results), timeout=10)

    def gather(rank: int, data: bytes) -> tuple[bytes, ...]:
        words[rank] = data if first is None or rank else first
        barrier.wait()
        gathered = tuple(words)
        barrier.wait()
        return gathered

    def node(rank: int) -> Any:
        world: Any = SimpleNamespace(rank=rank, size=len(results), gather=lambda data: gather(rank, data))
        try:
            return node_tables.joined_by_all(world, results[rank], operators if results[rank] else (),
                                             refused[rank] if refused else "")
        except VisparkError as error:
            return error

    with ThreadPoolExecutor(len(results)) as pool:
        return list(pool.map(node, range(len(results))))


def folded(values: Sequence[np.ndarray], counts: np.ndarray | None = None, magnitude: float = 0.0,
           ordered: bool = True) -> FoldResult:
    fields = [FoldedArray(Field(str(place), each.dtype.str, each.shape), each, magnitude, ordered)
              for place, each in enumerate(values)]
    return FoldResult(3, tuple(fields), counts)


@pytest.mark.parametrize("piece", [16, 1 << 20])
def test_all_nodes_get_the_same_sums_and_extremes(monkeypatch: pytest.MonkeyPatch, piece: int):
    monkeypatch.setattr(node_tables, "_PIECE_BYTES", piece)
    rng = np.random.default_rng(1)
    values = [[rng.random((5, 3)).astype("f4"), rng.integers(0, 9, 5)] for _ in range(3)]
    counts = rng.integers(0, 4, (3, 5))
    results = joined([folded(one, number) for one, number in zip(values, counts, strict=True)], ("add", "maximum"))
    for result in results:
        assert result.count == 9 and (result.counts == counts.sum(axis=0)).all()
        assert (result.fields[0].values == (values[0][0] + values[1][0]) + values[2][0]).all()
        assert (result.fields[1].values == np.max([one[1] for one in values], axis=0)).all()


def test_nodes_without_records_and_none_with_some():
    alone = folded([np.arange(3.0)])
    for result in joined([None, alone, None], ("add",)):
        assert (result.fields[0].values == np.arange(3.0)).all() and result.counts is None
    assert joined([None, None], ()) == [None, None]
    empty, = {each.fields[0].values.shape for each in joined([folded([np.zeros((0, 2))])] * 2, ("add",))}
    assert empty == (0, 2)


def test_guards_are_of_all_nodes():
    results = joined([folded([np.arange(2)], magnitude=2.0**61), folded([np.arange(2)], magnitude=2.0**61)], ("add",))
    assert [each.fields[0].magnitude for each in results] == [2.0**62] * 2
    results = joined([folded([np.ones(2)], magnitude=3.0), folded([np.ones(2)], ordered=False)], ("multiply",))
    assert all(each.fields[0].magnitude == 3.0 and not each.fields[0].ordered for each in results)


def test_what_one_node_cannot_do_is_refused_by_all():
    results = [folded([np.zeros(2)]), folded([np.zeros(2)])]
    for error in joined(results, ("add",), ("", "keys are out of range")):
        assert type(error) is KeysRefused and "out of range" in error.message
    for error in joined([folded([np.zeros(2)]), folded([np.zeros(3)])], ("add",)):
        assert type(error) is KeysRefused and "differ in shape" in error.message
    assert {type(each) for each in joined(results, ("add",), first=b"?")} == {WorldLost}
