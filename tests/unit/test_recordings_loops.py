"""Loops that come again are done again from what was noted, in two rooms and one place to work in."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gpu_worker.names import Names
from gpu_worker.protocol.grids import Iterate, Phase, Window
from gpu_worker.protocol.messages import Fetch, Keep, Plan, Release, ToDevice, Value
from gpu_worker.recordings import Recordings
from tests.unit.plans import bench
from tests.unit.test_patches_worker import HALO, SPREAD, GridBench

PHASE = Phase("spread", (HALO,), 0)
FULL = np.random.default_rng(3).random((7, 10), "f4")


@pytest.fixture(params=["host", pytest.param("cuda", marks=pytest.mark.gpu)])
def real(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[GridBench]:
    with bench(tmp_path, request.param) as worker:
        yield GridBench(worker)


@pytest.fixture
def null(tmp_path: Path) -> Iterator[GridBench]:
    with bench(tmp_path, "null") as worker:
        yield GridBench(worker)


def loop(grid: GridBench, steps: int = 3, until: float = -1.0) -> Plan:
    """A plan that does so many steps and keeps what they give."""
    step = Iterate("iterate spread", (PHASE,), steps, 0, until, 1000, 0)
    return replace(grid.plan(ToDevice(), step, Keep(1, "u", "device")),
                   stencils=(replace(SPREAD, arguments=(Value(0),)),))


def test_a_call_that_comes_again_is_the_launches_of_its_steps(null: GridBench):
    null.put(1, FULL)
    plan, device, used = loop(null, steps=5), null.worker.process._pool.devices[0], set()
    one = 0
    for vrdd in range(1, 12):
        device.calls.clear()
        reply, _ = null.worker.run(plan, (vrdd, vrdd + 1), [np.float32(0.1)])
        assert [each.steps for each in reply.iterated] == [5]
        null.worker.process.handle(Release(1, (vrdd,)), [])
        # Noted from the third call on: the first makes patches of the blocks.
        one = device.memory().used if vrdd == 1 else one
        used.add(device.memory().used if vrdd > 5 else -1)
    # Nothing is allocated, copied, compiled or waited for.
    assert [call[:2] for call in device.calls] == [("launch", "copy_boxes"), ("launch", "spread")] * 5
    assert len(used) == 2
    null.worker.process.rest(-1.0)
    assert device.memory().used == one
    null.worker.process.handle(Release(1, (12,)), [])
    assert device.memory().used == 0


def test_what_is_kept_where_others_would_work_stays_as_it_is(real: GridBench, monkeypatch: pytest.MonkeyPatch):
    """Blocks that are no patches yet are copied first, so that what is allocated third is the result, or not."""
    monkeypatch.setattr(Names, "lies_in_patches", lambda names, vrdd: True)
    plan = loop(real)
    for first in (100, 200):
        real.put(first, FULL)
        real.put(1000 + first, FULL)
        for vrdd in range(first, first + 5):
            real.worker.run(plan, (vrdd, vrdd + 1), [np.float32(0.1)])
            real.worker.run(loop(real, until=0.0), (1000 + vrdd, 1001 + vrdd), [np.float32(0.1)])
            for each in range(first, vrdd + 2):
                assert np.array_equal(real.fetch(each), real.fetch(1000 + each)), (each, vrdd)


def test_a_look_at_each_result_is_noted_for_each_room(null: GridBench):
    null.put(1, FULL)
    window = null.plan(ToDevice(), Window((0, 0), (1, 1), (1, 1)), Fetch(-1, "blocks"))
    device = null.worker.process._pool.devices[0]
    for vrdd in range(1, 12):
        null.worker.run(loop(null), (vrdd, vrdd + 1), [np.float32(0.1)])
        null.worker.process.handle(Release(1, (vrdd,)), [])
        device.calls.clear()
        null.worker.run(window, (vrdd + 1,))
    assert [call[0] for call in device.calls] == ["launch", *["copy_out"] * 6, "synchronize"]
    null.worker.process.handle(Release(1, (12,)), [])
    assert not null.worker.process.may_rest and device.memory().used == 0


def test_a_loop_that_ends_where_its_values_say_is_not_noted(null: GridBench):
    null.put(1, FULL)
    for vrdd in range(1, 6):
        null.worker.run(loop(null, until=0.0), (vrdd, vrdd + 1), [np.float32(0.1)])
    assert not null.worker.process.may_rest


@pytest.mark.parametrize("seed", range(1))
def test_calls_in_any_order_give_what_steps_one_by_one_give(real: GridBench, seed: int,
                                                            monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Recordings, "PATIENCE", 1000)
    chance, worker = random.Random(seed), real.worker
    real.put(1, FULL)
    real.put(1001, FULL)
    held = {1: 1001}            # what is held, and the same as it is computed without recordings
    last, newest = 1, 1
    for _ in range(40):
        steps, k = chance.choice((3, 3, 3, 4)), [np.float32(chance.choice((0.1, 0.1, 0.2)))]
        source = last if chance.random() < 0.9 else chance.choice(list(held))
        newest += 1
        worker.run(loop(real, steps), (source, newest), k)
        worker.run(loop(real, steps, until=0.0), (held[source], 1000 + newest), k)
        held[newest], last = 1000 + newest, newest
        while len(held) > 1 and chance.random() < 0.7:
            gone = chance.choice([vrdd for vrdd in held if vrdd != last])
            worker.process.handle(Release(1, (gone, held.pop(gone))), [])
        if chance.random() < 0.5:
            asked = chance.choice(list(held))
            assert np.array_equal(real.fetch(asked), real.fetch(held[asked]))
    for vrdd, other in held.items():
        assert np.array_equal(real.fetch(vrdd), real.fetch(other))
    assert worker.process.may_rest
    worker.process.handle(Release(1, (*held, *held.values())), [])
    assert worker.process.report().memory[0].used == 0
