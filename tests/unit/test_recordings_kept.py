"""Loops that keep their state are done again from what was noted, and nobody's values change for it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from gpu_worker.execution.replay.recordings import Recordings
from gpu_worker.protocol.errors import PartitionMissing
from gpu_worker.protocol.messages import (
    ExecStep,
    Field,
    FieldFold,
    FoldStep,
    In,
    KeepStep,
    Launch,
    Out,
    Plan,
    Release,
    Retain,
    ValueArgument,
    ValuesStep,
)
from tests.unit.plans import Bench, bench

SOURCE = """
extern "C" __global__ void moved(const float* u, const float* v, float* out, float k)
{ out[threadIdx.x] = u[threadIdx.x] + k * v[threadIdx.x]; }
extern "C" __global__ void turned(const float* u, const float* v, float* out, float k)
{ out[threadIdx.x] = v[threadIdx.x] - k * u[threadIdx.x]; }
"""
PARTS, CELLS = 3, 5
#: u, v by partition.
State = list[tuple[np.ndarray, np.ndarray]]


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Bench]:
    with bench(tmp_path, "host") as worker:
        yield worker


@pytest.fixture
def null(tmp_path: Path) -> Iterator[Bench]:
    with bench(tmp_path, "null") as worker:
        yield worker


def put(worker: Bench, vrdd: int) -> State:
    numbers = np.random.default_rng(vrdd).random((PARTS, 2, CELLS), "f4")
    worker.put(vrdd, [[{"u": u, "v": v}] for u, v in numbers])
    return [(u, v) for u, v in numbers]


def kept(worker: Bench, kernel: str, written: str, *, twice: bool = False, base: int = 1) -> Plan:
    """Return a plan that computes one field anew, and keeps both: once, and with ``twice`` after a second launch too.
    """
    launch = Launch((1,), (CELLS,), 0, (In("u"), In("v"), Out(written), ValueArgument(0)),
                    (Field(written, "<f4", (CELLS,)),), kernel=kernel, merge=True)
    more = (ExecStep(kernel), KeepStep(2, "again", "device")) if twice else ()
    return worker.plan(base, (ExecStep(kernel), KeepStep(1, kernel, "device"), *more), [launch] * (1 + twice), SOURCE,
                       outputs=1 + twice)


def moved(state: State, k: np.float32) -> State:
    return [(u + k * v, v) for u, v in state]


def turned(state: State, k: np.float32) -> State:
    return [(u, v - k * u) for u, v in state]


def held(worker: Bench, vrdd: int) -> State:
    return [(block["u"], block["v"]) for block, in worker.fetched(vrdd)]


def equal(state: State, expected: State) -> bool:
    return all(np.allclose(mine, theirs, rtol=1e-5) for one, other in zip(state, expected, strict=True)
               for mine, theirs in zip(one, other, strict=True))


def test_a_pass_of_a_loop_is_launches_and_nothing_else(null: Bench):
    put(null, 1)
    device, plan, used = null.process._pool.devices[0], kept(null, "moved", "u"), set()
    for vrdd in range(1, 12):
        device.calls.clear()
        null.run(plan, (vrdd, vrdd + 1), [np.float32(1)])
        null.process.handle(Release(1, (vrdd,)), [])
        used.add(device.memory().used if vrdd > 4 else -1)
    assert [call[0] for call in device.calls] == ["launch"] * PARTS and len(used) == 2
    null.process.rest(60.0)
    assert null.process.may_rest and device.memory().used in used
    null.process.rest(-1.0)
    one = PARTS * CELLS * 4 * 2
    assert not null.process.may_rest and device.memory().used == one and len(null.fetched(12)) == PARTS
    null.process.handle(Release(1, (12,)), [])
    assert device.memory().used == 0


def test_plans_that_take_turns(host: Bench):
    state, plans = put(host, 1), (kept(host, "moved", "u"), kept(host, "turned", "v"))
    for vrdd in range(1, 30):
        k = np.float32(vrdd % 3 / 8)
        host.run(plans[vrdd % 2], (vrdd, vrdd + 1), [k])
        state = (turned if vrdd % 2 else moved)(state, k)
        host.process.handle(Release(1, (vrdd,)), [])
        assert equal(held(host, vrdd + 1), state)
    done = [len(plan.recordings._known) for plan in host.process._plans._known.values() if plan.recordings.buffer_sets]
    assert len(done) == 2 and max(done) <= 4


def test_a_loop_with_two_states(host: Bench):
    state, plan = put(host, 1), kept(host, "moved", "u", twice=True)
    for vrdd in range(1, 30, 2):
        host.run(plan, (vrdd, vrdd + 1, vrdd + 2), [np.float32(0.5)])
        between, state = moved(state, np.float32(0.5)), moved(moved(state, np.float32(0.5)), np.float32(0.5))
        assert equal(held(host, vrdd + 1), between) and equal(held(host, vrdd + 2), state)
        host.process.handle(Release(1, (vrdd, vrdd + 1)), [])


def test_a_fold_of_each_state(host: Bench):
    state, plan = put(host, 1), kept(host, "moved", "u")
    fold = host.plan(1, (ValuesStep(), FoldStep((FieldFold("u", "add"), FieldFold("v", "maximum")), "rows")), [],
                     SOURCE)
    for vrdd in range(1, 16):
        host.run(plan, (vrdd, vrdd + 1), [np.float32(0.25)])
        host.process.handle(Release(1, (vrdd,)), [])
        state = moved(state, np.float32(0.25))
        added, largest = host.folded(fold, (vrdd + 1,))
        assert np.isclose(added, sum(u.sum() for u, _ in state)) and largest == max(v.max() for _, v in state)
    host.process.handle(Release(1, (16,)), [])
    assert host.process.report().memory[0].used == 0


@pytest.mark.parametrize("seed", range(4))
def test_whatever_is_held_released_and_asked_for(host: Bench, seed: int, monkeypatch: pytest.MonkeyPatch):
    """Compare any order of plans, releases, repeated requests and looks at what is held with NumPy's results."""
    monkeypatch.setattr(Recordings, "PATIENCE", 1000)
    chance, model = random.Random(seed), {1: put(host, 1)}
    plans = [(kept(host, "moved", "u"), moved), (kept(host, "turned", "v"), turned)]
    last = newest = 1
    for _ in range(150):
        k = np.float32(chance.randrange(3) / 8)
        source = last if chance.random() < 0.9 else chance.choice(list(model))
        plan, function = plans[chance.random() < 0.3]
        newest += 1
        host.run(plan, (source, newest), [k])
        model[newest] = function(model[source], k)
        if chance.random() < 0.1:       # a twin, which comes late and with another value
            host.run(plan, (source, newest), [k + 1])
        last = newest
        while len(model) > 1 and chance.random() < 0.7:
            gone = chance.choice([vrdd for vrdd in model if vrdd != last])
            host.process.handle(Release(1, (gone,)), [])
            del model[gone]
        if chance.random() < 0.3:
            dataset = chance.choice(list(model))
            assert equal(held(host, dataset), model[dataset])
    for vrdd, state in model.items():
        assert equal(held(host, vrdd), state)
    host.process.handle(Release(1, tuple(model)), [])
    assert host.process.report().memory[0].used == 0


def test_what_another_plan_took_of_a_state_stays_as_it_is(host: Bench):
    state, plan = put(host, 1), kept(host, "moved", "u")
    for vrdd in range(1, 16):
        host.run(plan, (vrdd, vrdd + 1), [np.float32(1)])
        host.process.handle(Release(1, (vrdd,)), [])
        state = moved(state, np.float32(1))
        if vrdd == 8:       # its first time, so that it is not recorded; u lies where the loop works
            host.run(kept(host, "turned", "v"), (9, 100), [np.float32(2)])
            taken = turned(state, np.float32(2))
    assert equal(held(host, 100), taken) and equal(held(host, 16), state)


def test_partitions_that_are_let_go_of_one_by_one(host: Bench):
    state, plan = put(host, 1), kept(host, "moved", "u")
    for vrdd in range(1, 10):
        host.run(plan, (vrdd, vrdd + 1), [np.float32(1)])
        host.process.handle(Release(1, (vrdd,)), [])
        state = moved(state, np.float32(1))
    host.process.handle(Retain(1, 10, (0, 2)), [])
    with pytest.raises(PartitionMissing):
        host.run(plan, (10, 11), [np.float32(1)])
    assert equal(held(host, 10), [state[0], state[2]])
    host.process.handle(Retain(1, 12, (1,)), [])
    put(host, 11)
    for vrdd in (12, 13, 14, 15):
        host.run(plan, (11, vrdd), [np.float32(1)])
    assert [len(held(host, vrdd)) for vrdd in (12, 13)] == [1, PARTS]
    host.process._names._state.validate()
