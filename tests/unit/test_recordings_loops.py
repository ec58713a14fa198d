"""Loops that come again are done again from what was noted, in two rooms and one place to work in."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gpu_worker.device.base import Buffer, Stream
from gpu_worker.device.memory.registry import Registry
from gpu_worker.device.null import TOTAL, NullDevice
from gpu_worker.execution.replay.loop_replay import LoopReplay
from gpu_worker.execution.replay.recordings import Recordings
from gpu_worker.protocol.errors import NotFinite
from gpu_worker.protocol.grids import ExchangeStep, IterateStep, Phase, StencilStep, WindowStep
from gpu_worker.protocol.messages import FetchStep, KeepStep, Plan, Release, ToDeviceStep, ValueArgument
from tests.unit.late import late_bench
from tests.unit.plans import bench
from tests.unit.test_patches_worker import HALO, SPREAD, GridBench

pytestmark = pytest.mark.slow

PHASE = Phase("spread", (HALO,), 0)
FULL = np.random.default_rng(3).random((7, 10), "f4")


@pytest.fixture(params=["host", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def real(device: str, tmp_path: Path) -> Iterator[GridBench]:
    with bench(tmp_path, device) as worker:
        yield GridBench(worker)


@pytest.fixture
def null(tmp_path: Path) -> Iterator[GridBench]:
    with bench(tmp_path, "null") as worker:
        yield GridBench(worker)


@pytest.fixture
def late(device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[GridBench]:
    """Start a worker that works as late as it may."""
    with bench(tmp_path, device) if device == "cuda" else late_bench(tmp_path, monkeypatch) as worker:
        yield GridBench(worker)


@pytest.fixture
def plain(device: str, tmp_path: Path) -> Iterator[GridBench]:
    """Start a worker that records nothing."""
    (tmp_path / "plain").mkdir()
    with bench(tmp_path / "plain", device) as worker:
        worker.process._runs._may_record = lambda request, plan: False
        yield GridBench(worker)


def loop(grid: GridBench, steps: int = 3, until: float = -1.0, every: int = 1000, check: int = 0) -> Plan:
    """Return a plan that does so many steps and keeps what they give."""
    step = IterateStep("iterate spread", (PHASE,), steps, 0, until, every, check, counted=1 if check else -1)
    return replace(grid.plan(ToDeviceStep(), step, KeepStep(1, "u", "device")),
                   stencils=(replace(SPREAD, arguments=(ValueArgument(0),)),))


def test_a_call_that_comes_again_is_the_launches_of_its_steps(null: GridBench):
    null.put(1, FULL)
    plan, device, used = loop(null, steps=5), null.worker.process._pool.devices[0], set()
    runs, one = [], 0
    for vrdd in range(1, 12):
        device.calls.clear()
        reply, _ = null.worker.run(plan, (vrdd, vrdd + 1), [np.float32(0.1)])
        assert [each.steps for each in reply.iterated] == [5]
        null.worker.process.handle(Release(1, (vrdd,)), [])
        one = device.memory().used if vrdd == 1 else one
        used.add(device.memory().used if vrdd > 4 else -1)
        runs.append([call[:2] for call in device.calls])
    # The first call makes patches of the blocks, and three are noted: into a room, from that into another, and back.
    # From then on nothing is allocated, copied, compiled or waited for.
    assert all(call[0] == "launch" for calls in runs[4:] for call in calls) and len(used) == 2
    assert runs[-2] == [("launch", "copy_boxes"), ("launch", "spread")] * 5
    # The other way back fills once more what sides give, as it did in the room that was new.
    assert runs[-1].count(("launch", "spread")) == 5
    # From the start, and from either of two buffers, a step is worked out once; the other ones are done again.
    assert [calls.count(("compile", "spread")) for calls in runs[:5]] == [3, 3, 3, 3, 0]
    null.worker.process.rest(-1.0)
    assert device.memory().used == one
    null.worker.process.handle(Release(1, (12,)), [])
    assert device.memory().used == 0


def test_calls_from_the_same_start_are_the_launches_of_their_steps(null: GridBench):
    """Run calls as in a sweep over a parameter, each result of which is looked at and let go of."""
    null.put(1, FULL)
    plan, device, runs, used = loop(null, steps=5), null.worker.process._pool.devices[0], [], set()
    for vrdd in range(2, 10):
        device.calls.clear()
        null.worker.run(plan, (1, vrdd), [np.float32(0.1 * vrdd)])
        null.worker.process.handle(Release(1, (vrdd,)), [])
        runs.append([call[0] for call in device.calls])
        used.add(device.memory().used if vrdd > 4 else -1)
    # The second call leaves the patches that it makes in place of the blocks, and the third one is noted.
    assert all(set(calls) == {"launch"} for calls in runs[3:]) and len(used) == 2
    assert [calls.count("synchronize") for calls in runs[:3]] == [1, 1, 1]
    null.worker.process.handle(Release(1, (1,)), [])
    assert device.memory().used == 0


def test_a_start_that_lies_in_patches_is_what_it_was(late: GridBench, plain: GridBench):
    for grid in (late, plain):
        grid.put(1, FULL)
    for vrdd in range(2, 9):
        for grid in (late, plain):
            grid.worker.run(loop(grid), (1, vrdd), [np.float32(0.05 * vrdd)])
        assert np.array_equal(late.fetch(vrdd), plain.fetch(vrdd)) and np.array_equal(late.fetch(1), FULL)
        late.worker.process.handle(Release(1, (vrdd,)), [])


def test_where_there_is_no_room_a_start_stays_as_it_came(null: GridBench, monkeypatch: pytest.MonkeyPatch):
    null.put(1, FULL)
    calls, allocate = null.worker.process._pool.devices[0].calls, NullDevice.allocate

    def allocations(vrdd: int) -> int:
        calls.clear()
        null.worker.run(loop(null), (1, vrdd), [np.float32(0.1)])
        null.worker.process.handle(Release(1, (vrdd,)), [])
        return [name for name, *_ in calls].count("allocate")

    needed = allocations(2)

    def scarce(device: NullDevice, nbytes: int, *, stream: Stream) -> Buffer:
        is_last = [name for name, *_ in calls].count("allocate") == needed - 1
        monkeypatch.setattr(device, "_total", device._used if is_last else TOTAL)
        return allocate(device, nbytes, stream=stream)

    with monkeypatch.context() as context:
        context.setattr(NullDevice, "allocate", scarce)
        assert allocations(3) == 2 * needed         # begun anew
    assert [allocations(vrdd) for vrdd in (4, 5)] == [needed, needed]


def test_steps_one_by_one_fill_what_sides_give_once(null: GridBench):
    null.put(1, FULL)
    plan = null.plan(ToDeviceStep(), ExchangeStep("halo_append", (HALO,)), StencilStep("spread", 0),
                     KeepStep(1, "u", "device"))
    device, runs = null.worker.process._pool.devices[0], []
    for vrdd in range(1, 16):
        device.calls.clear()
        null.worker.run(plan, (vrdd, vrdd + 1))
        null.worker.process.handle(Release(1, (vrdd,)), [])
        runs.append([call[:2] for call in device.calls])
    assert runs[-2:] == [[("launch", "copy_boxes"), ("launch", "spread")]] * 2


def test_what_is_kept_where_others_would_work_stays_as_it_is(real: GridBench, plain: GridBench,
                                                             monkeypatch: pytest.MonkeyPatch):
    """Copy blocks that are no patches yet first, so that what is allocated third is the result, or not."""
    monkeypatch.setattr(Registry, "is_in_patches", lambda names, vrdd: True)
    plan = loop(real)
    for first in (100, 200):
        for grid in (real, plain):
            grid.put(first, FULL)
        for vrdd in range(first, first + 5):
            for grid in (real, plain):
                grid.worker.run(plan, (vrdd, vrdd + 1), [np.float32(0.1)])
            for held in range(first, vrdd + 2):
                assert np.array_equal(real.fetch(held), plain.fetch(held)), (held, vrdd)


def test_a_look_at_each_result_is_noted_for_each_room(null: GridBench):
    null.put(1, FULL)
    window = null.plan(ToDeviceStep(), WindowStep((0, 0), (1, 1), (1, 1)), FetchStep(-1, "blocks"))
    device = null.worker.process._pool.devices[0]
    for vrdd in range(1, 12):
        null.worker.run(loop(null), (vrdd, vrdd + 1), [np.float32(0.1)])
        null.worker.process.handle(Release(1, (vrdd,)), [])
        device.calls.clear()
        null.worker.run(window, (vrdd + 1,))
    assert [call[0] for call in device.calls] == ["launch", *["copy_out"] * 6, "synchronize"]
    null.worker.process.handle(Release(1, (12,)), [])
    assert not null.worker.process.may_rest and device.memory().used == 0


class FixedReading:
    """Values that are read of the null device: the change, and that no cell is NaN or infinite."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.change = 0.0
        copy_out = NullDevice.copy_out

        def reading(device: NullDevice, target: np.ndarray, source: Buffer, *, stream: Stream) -> None:
            copy_out(device, target, source, stream=stream)
            target[:] = 0xFF
            target[:8].view(np.float64)[:] = self.change

        monkeypatch.setattr(NullDevice, "copy_out", reading)


STEPS = [("launch", "copy_boxes"), ("launch", "spread")] * 2
COMPARED = [("copy_across",), ("launch", "largest_change<float>"), ("copy_out",), ("synchronize",)]
CHECKED = [*COMPARED[:2], ("launch", "first_not_finite<float>"), *COMPARED[2:]]


def calls_of(null: GridBench, plan: Plan, vrdd: int) -> tuple[int, list[tuple]]:
    """Return the steps that a call does, and what it asks of the device."""
    device = null.worker.process._pool.devices[0]
    device.calls.clear()
    reply, _ = null.worker.run(plan, (vrdd, vrdd + 1), [np.float32(0.1), np.int64(0)])
    null.worker.process.handle(Release(1, (vrdd,)), [])
    return reply.iterated[0].steps, [call[:2] if call[0] == "launch" else call[:1] for call in device.calls]


def test_a_loop_that_may_end_where_its_values_say_is_its_launches_and_tests(null: GridBench,
                                                                           monkeypatch: pytest.MonkeyPatch):
    reading, plan = FixedReading(monkeypatch), loop(null, 4, until=0.0, every=2, check=4)
    reading.change = 1.0
    null.put(1, FULL)
    for vrdd in range(1, 12):
        outcome = calls_of(null, plan, vrdd)
    # The last wait is for what there is behind the last test: nothing.
    assert outcome == (4, [*STEPS, *COMPARED, *STEPS, *CHECKED, COMPARED[-1]])
    reading.change = 0.0
    assert calls_of(null, plan, 12) == (2, [*STEPS, *COMPARED, COMPARED[-1]])
    null.worker.process.handle(Release(1, (13,)), [])
    assert not null.worker.process.may_rest and null.worker.process.report().memory[0].used == 0


def test_a_loop_that_goes_on_beyond_what_is_known_of_it_is_done_anew(null: GridBench, monkeypatch: pytest.MonkeyPatch):
    reading, plan, spreads = FixedReading(monkeypatch), loop(null, 6, until=0.0, every=2), []
    null.put(1, FULL)
    for vrdd in range(1, 9):
        steps, _ = calls_of(null, plan, vrdd)
        assert steps == 2
    reading.change = 1.0
    for vrdd in range(9, 20):
        steps, calls = calls_of(null, plan, vrdd)
        assert steps == 6
        spreads.append(calls.count(("launch", "spread")))
    # Two steps as they were known, and all six anew; then all six are known.
    assert spreads[0] == 8 and calls == [*(STEPS + COMPARED) * 3, COMPARED[-1]]


@pytest.mark.parametrize("seed", range(1))
def test_loops_that_end_where_their_values_say_end_as_if_they_came_once(
        plain: GridBench, late: GridBench, seed: int, monkeypatch: pytest.MonkeyPatch):
    """End them after one test or many, in any of the buffers, or not at all; or a cell is not finite."""
    monkeypatch.setattr(Recordings, "PATIENCE", 1000)
    chance, again, pursue = random.Random(seed), [], LoopReplay.begin

    def noted(*arguments):
        again.append(pursue(*arguments))
        return again[-1]

    monkeypatch.setattr(LoopReplay, "begin", noted)
    for grid in (late, plain):
        grid.put(1, FULL)
    held, newest, failed, ends = [1], 1, 0, set()
    for number in range(50):
        limits = {"until": 0.05, "every": 1} if number < 20 else {"until": 0.05, "every": 2, "check": 3}
        plan = loop(late, 5, **limits)
        # What evens out ends sooner or later, what does the opposite does not.
        k = np.float32(1e30 if chance.random() < 0.1 and "check" in limits else chance.choice((0.1, 0.2, -0.05)))
        source = held[-1] if chance.random() < 0.9 else chance.choice(held)
        newest += 1
        outcomes = []
        for grid in (late, plain):
            try:
                outcomes.append(grid.worker.run(plan, (source, newest), [k, np.int64(1000)])[0].iterated[0])
            except NotFinite as error:
                outcomes.append(str(error))
        assert repr(outcomes[0]) == repr(outcomes[1])         # a change may be NaN
        if isinstance(outcomes[0], str):
            failed += "after step 1003" in outcomes[0]
            newest -= 1
            continue
        ends.add(outcomes[0].steps)
        held.append(newest)
        if chance.random() < 0.3:
            assert np.array_equal(late.fetch(newest), plain.fetch(newest), equal_nan=True)
        while len(held) > 1 and chance.random() < 0.9:
            gone = held.pop(0)
            for grid in (late, plain):
                grid.worker.process.handle(Release(1, (gone,)), [])
    assert sum(each is not None for each in again) > 12 and failed and len(ends) > 1
    for vrdd in held:
        assert np.array_equal(late.fetch(vrdd), plain.fetch(vrdd), equal_nan=True)
    late.worker.process.handle(Release(1, tuple(held)), [])
    assert late.worker.process.report().memory[0].used == 0


@pytest.mark.parametrize("seed", range(1))
def test_calls_in_any_order_give_what_steps_one_by_one_give(real: GridBench, plain: GridBench, seed: int,
                                                            monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Recordings, "PATIENCE", 1000)
    chance, held, newest = random.Random(seed), [1], 1
    for grid in (real, plain):
        grid.put(1, FULL)
    for _ in range(40):
        steps, k = chance.choice((3, 3, 3, 4)), [np.float32(chance.choice((0.1, 0.1, 0.2)))]
        source = held[-1] if chance.random() < 0.9 else chance.choice(held)
        newest += 1
        for grid in (real, plain):
            grid.worker.run(loop(grid, steps), (source, newest), k)
        held.append(newest)
        while len(held) > 1 and chance.random() < 0.7:
            gone = held.pop(chance.randrange(len(held) - 1))
            for grid in (real, plain):
                grid.worker.process.handle(Release(1, (gone,)), [])
        if chance.random() < 0.5:
            dataset = chance.choice(held)
            assert np.array_equal(real.fetch(dataset), plain.fetch(dataset))
    for vrdd in held:
        assert np.array_equal(real.fetch(vrdd), plain.fetch(vrdd))
    assert real.worker.process.may_rest
    real.worker.process.handle(Release(1, tuple(held)), [])
    assert real.worker.process.report().memory[0].used == 0
