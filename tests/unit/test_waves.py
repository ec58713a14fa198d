"""Choice of the partitions of a wave, of those that lie on a device and those that do not."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from gpu_worker.execution.plans.waves import Waves, WaveSize


def _step(**known: bool) -> SimpleNamespace:
    return SimpleNamespace(**{"folds_all": False, "in_any_order": False, "only_moves": False, "fetches": False} | known)


EXCHANGE, MOVE, FOLD = _step(), _step(only_moves=True), _step(folds_all=True, in_any_order=True)


def _waves(steps: list[SimpleNamespace], size: WaveSize, there: str) -> list[list[int]]:
    """Return the numbers of the partitions of each wave, of a plan with an exchange; 1 for those on the device, of 8
    bytes.
    """
    plan: Any = SimpleNamespace(steps=[_step(), EXCHANGE, MOVE, FOLD], folds_all=True)
    context: Any = SimpleNamespace(streams=None, results=SimpleNamespace(fetched=[]))
    values: list[Any] = [
        SimpleNamespace(number=number, piece=None, variants=(), blocks=(), arrays=[SimpleNamespace(
            nbytes=8, buffer=object() if is_there == "1" else None)]) for number, is_there in enumerate(there)]
    planned: Any = steps
    return [[value.number for value in wave] for wave in Waves(plan, planned, context, size)._divided(values)]


@pytest.mark.parametrize(("steps", "size", "expected"), [
    ([MOVE, FOLD], WaveSize(16, 16), [[0, 2, 3, 5], [1, 4]]),
    ([MOVE, FOLD], WaveSize(0, 4, ahead=False), [[0], [2, 3], [5], [1], [4]]),
    ([EXCHANGE], WaveSize(16, 16), [[0, 1, 2, 3, 4, 5]]),
    ([MOVE], WaveSize(16, 16), [[0, 1, 2, 3, 4, 5]])], ids=["fold", "smallest", "exchange", "move"])
def test_what_is_resident_is_a_wave_ahead_of_the_others(steps, size, expected):
    """Take its neighbours alone in the smallest size, as what the works of several runs leave takes memory twice."""
    assert _waves(steps, size, "101101") == expected
