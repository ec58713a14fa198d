"""Plans that come again are done again from what was noted, and only while that holds."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gpu_worker.execution.plans import plan_cache
from gpu_worker.protocol.errors import OutOfMemory, PartitionMissing
from gpu_worker.protocol.messages import (
    Accumulators,
    ArrayArgument,
    ExecStep,
    FetchStep,
    Field,
    FieldFold,
    FoldStep,
    In,
    Launch,
    LoadStep,
    MapFoldStep,
    Module,
    Out,
    Plan,
    Release,
    Retain,
    ValueArgument,
)
from gpu_worker.protocol.payload import INLINE_BYTES, Payload, aligned, results
from gpu_worker.protocol.plans import sealed
from gpu_worker.protocol.wire import close_all
from tests.unit.plans import Bench, bench

SOURCE = """
#include "vispark/fold.h"
__constant__ float offset;
extern "C" __global__ void sum(const long long* works, void* const* ports, double* sums, float scale, const float* w)
{
    const long long first = works[3 * blockIdx.x + 1], rows = works[3 * blockIdx.x + 2];
    const float* in = (const float*)ports[works[3 * blockIdx.x]];
    double added = 0;
    for (long long row = first; row < first + rows; row++)
        added += in[row] * scale * w[row % 4] + offset;
    sums[blockIdx.x] = added;
}
extern "C" __global__ void raw(const float* in, float* out, float scale) { out[threadIdx.x] = in[threadIdx.x] * scale; }
"""
ROWS = np.arange(24, dtype="f4")


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Bench]:
    with bench(tmp_path, "host") as host:
        host.put(1, [[{"": ROWS}], [{"": ROWS[:9]}]])
        yield host


@pytest.fixture
def null(tmp_path: Path) -> Iterator[Bench]:
    with bench(tmp_path, "null") as device:
        device.put(1, [[{"": ROWS}], [{"": ROWS[:9]}]])
        yield device


def summing(bench: Bench) -> Plan:
    """Return a plan that sums all rows; slot 0 scales, slot 1 is an array, slot 2 a constant of the module."""
    launch = Launch((), (1,), 0, (In(""), ValueArgument(0), ArrayArgument(1)), (Field("", "<f4", ()),), kernel="sum",
                    tile=4, partials=(Accumulators("", "add", "double", 1),))
    plan = bench.plan(1, (MapFoldStep("vmap sum", (FieldFold("", "add"),), "all"),), [launch], SOURCE)
    return replace(plan, modules=(Module(SOURCE, "test.cu", (), (2,), ("offset",)),))


def expected(rows: np.ndarray, scale: float, w: np.ndarray, offset: float) -> float:
    return float(np.float32(sum(rows[i] * scale * w[i % 4] + offset for i in range(len(rows)))))


def recorded(bench: Bench) -> int:
    """Return the number of recordings."""
    return sum(len(plan.recordings._known) for plan in bench.process._plans._known.values())


def test_what_changes_from_pass_to_pass_is_taken_anew(worker: Bench):
    plan, w = summing(worker), np.float32([1, 2, 3, 4])
    passes = [(1.0, w, 0.0), (1.0, w, 0.0), (2.0, w, 0.0), (2.0, w + 1, 0.0), (1.0, w, 5.0), (1.0, w, 5.0),
              (3.0, w, 5.0)]
    for number, (scale, array, offset) in enumerate(passes):
        total, = worker.folded(plan, (1,), [np.float32(scale), array, np.float32(offset)], known=number > 0)
        assert total == expected(ROWS, scale, array, offset) + expected(ROWS[:9], scale, array, offset)
        assert recorded(worker) == (number > 0)


def test_a_further_pass_uploads_no_tables_and_allocates_nothing(null: Bench):
    plan, values = summing(null), [np.float32(1), np.ones(4, "f4"), np.float32(0)]
    calls = null.process._pool.devices[0].calls
    for _ in range(3):
        calls.clear()
        null.run(plan, (1,), values)
    assert [call[0] for call in calls] == ["copy_in", "launch", "launch", "copy_out", "synchronize"]


def test_what_is_too_large_for_a_reply_goes_beside_it_in_each_pass(null: Bench):
    wide = INLINE_BYTES
    launch = Launch((), (1,), 0, (In(""),), (Field("", "<f4", (wide,)),), kernel="sum",
                    tile=4, partials=(Accumulators("", "add", "double", wide),))
    plan = null.plan(1, (MapFoldStep("vmap sum", (FieldFold("", "add"),), "all"),), [launch], SOURCE)
    for _ in range(4):
        reply, data = null.run(plan, (1,))
        assert isinstance(data, Payload) and data.size >= 4 * wide and not reply.data
    assert recorded(null) == 1


def test_small_values_in_a_payload_are_those_of_each_pass(worker: Bench):
    plan, payloads = summing(worker), worker.process.payloads()
    with Payload.create(4096) as payload:
        for number in range(1, 5):
            w = np.full(4, number, "f4")
            payload.put(256, w)
            request = worker.request(plan, (1,), [np.float32(1), w, np.float32(0)])
            values = (request.values[0], replace(request.values[1], data=b"", offset=256), request.values[2])
            reply, _ = worker.process.handle(replace(request, values=values), [os.dup(payload.descriptor)], payloads)
            field = reply.folded.fields[0]
            total = results(reply.data, []).field(field, field.offset)
            assert total == expected(ROWS, 1.0, w, 0.0) + expected(ROWS[:9], 1.0, w, 0.0)
            assert recorded(worker) == (number > 1)
    payloads.close()


def test_a_large_fold_is_joined_on_the_device_and_put_where_the_request_says(null: Bench):
    width = 30_000
    launch = Launch((), (1,), 0, (In(""), ArrayArgument(0)), (Field("", "<f4", (width,)),), kernel="sum",
                    tile=4, partials=(Accumulators("", "add", "double", width),))
    plan = null.plan(1, (MapFoldStep("vmap sum", (FieldFold("", "add"),), "all"),), [launch], SOURCE)
    device, w = null.process._pool.devices[0], np.ones(width, "f4")
    payloads = null.process.payloads()
    with Payload.create(2 * aligned(4 * width)) as payload:
        payload.put(0, w)
        for number in range(4):
            request = replace(null.request(plan, (1,), [w]), results=aligned(4 * width) if number else -1)
            request = replace(request, values=(replace(request.values[0], data=b""),))
            device.calls.clear()
            reply, beside = null.process.handle(request, [os.dup(payload.descriptor)], payloads)
            assert (reply.placed, len(beside), reply.data) == ((aligned(4 * width), 0, b"") if number else (0, 1, b""))
            close_all(beside)
    payloads.close()
    # Elements of the result's type come to the host, once, and no accumulators.
    assert [call[0] for call in device.calls] == ["copy_in", "launch", "launch", "copy_out", "synchronize"]
    assert [call[2] for call in device.calls if call[0] == "copy_out"] == [aligned(4 * width)]


def test_large_values_and_results_go_straight_between_device_and_payload(worker: Bench):
    width = 20_000
    source = """#include "vispark/fold.h"
    extern "C" __global__ void wide(const long long* works, void* const* ports, double* sums, double* sizes,
                                    const float* w)
    {
        const long long first = works[3 * blockIdx.x + 1], rows = works[3 * blockIdx.x + 2];
        const float* in = (const float*)ports[works[3 * blockIdx.x]];
        for (int c = threadIdx.x; c < 20000; c += blockDim.x) {
            double added = 0;
            for (long long row = first; row < first + rows; row++) added += in[row] * w[c];
            sums[20000ll * blockIdx.x + c] = sizes[20000ll * blockIdx.x + c] = added;
        }
    }"""
    launch = Launch((), (1,), 0, (In(""), ArrayArgument(0)), (Field("", "<f4", (width,)),), kernel="wide", tile=64,
                    partials=(Accumulators("", "add", "double", width),
                              Accumulators("", "add", "double", width, "overflow")))
    plan = worker.plan(1, (MapFoldStep("vmap wide", (FieldFold("", "add", "overflow"),), "all"),), [launch], source)
    at, payloads, before = aligned(4 * width), worker.process.payloads(), None
    with Payload.create(4 * at) as one, Payload.create(4 * at + 512) as other:
        for number, payload in enumerate((one, one, other, one, other, other), 1):
            w = np.arange(width, dtype="f4") % (number + 2)
            payload.array[:4 * width] = w.view(np.uint8)
            request = replace(worker.request(plan, (1,), [w]), results=at)
            request = replace(request, values=(replace(request.values[0], data=b""),))
            reply, beside = worker.process.handle(request, [os.dup(payload.descriptor)], payloads)
            assert not beside and reply.placed == at + aligned(8 * width)
            result = payload.field(reply.folded.fields[0], at + reply.folded.fields[0].offset)
            assert np.array_equal(result, (w * np.float64(ROWS.sum() + ROWS[:9].sum())).astype("f4"))
            assert reply.folded.fields[0].magnitude == w.max() * np.float64(ROWS.sum() + ROWS[:9].sum())
            if before is not None and before[0] is not result:
                memory, content = before
                assert np.shares_memory(memory, result) or np.array_equal(memory, content)
            before = result, result.copy()
        del result, memory, before
    payloads.close()
    assert recorded(worker) == 1


def test_other_content_under_a_name_is_seen(worker: Bench):
    plan, values = summing(worker), [np.float32(1), np.ones(4, "f4"), np.float32(0)]
    for _ in range(3):
        worker.run(plan, (1,), values)
    used = worker.process.report().memory[0].used
    worker.put(2, [[{"": ROWS + 1}], [{"": ROWS[:9] + 1}]])
    for _ in range(3):
        assert worker.folded(plan, (2,), values)[0] == (ROWS + 1).sum() + (ROWS[:9] + 1).sum()
    worker.process.handle(Release(1, (2,)), [])
    assert worker.process.report().memory[0].used == used and recorded(worker) == 1
    worker.process.handle(Retain(1, 1, (0,)), [])
    with pytest.raises(PartitionMissing):
        worker.run(plan, (1,), values)
    worker.process.handle(Release(1, (1,)), [])
    assert worker.process.report().memory[0].used == 0


def test_values_of_other_types_are_not_taken_for_the_same(worker: Bench):
    plan = summing(worker)
    for _ in range(2):
        for length in (4, 5):
            w = np.ones(length, "f4")
            assert worker.folded(plan, (1,), [np.float32(1), w, np.float32(0)])[0] == ROWS.sum() + ROWS[:9].sum()


def test_raw_kernels_and_folds_of_their_own_are_recorded(worker: Bench):
    launch = Launch((1,), (9,), 0, (In(""), Out(""), ValueArgument(0)), (Field("", "<f4", (9,)),), kernel="raw")
    plan = worker.plan(1, (ExecStep("exec raw"), FoldStep((FieldFold("", "add"),), "rows")), [launch], SOURCE)
    for scale in (1, 1, 2, 3):
        assert worker.folded(plan, (1,), [np.float32(scale)])[0] == 2 * scale * ROWS[:9].sum()
    assert recorded(worker) == 1


def test_fetched_records_are_those_of_each_pass(worker: Bench):
    launch = Launch((1,), (9,), 0, (In(""), Out(""), ValueArgument(0)), (Field("", "<f4", (9,)),), kernel="raw")
    plan = worker.plan(1, (ExecStep("exec raw"), FetchStep(-1, "")), [launch], SOURCE)
    kept = []
    for scale in (1, 2, 3, 4):
        reply, data = worker.run(plan, (1,), [np.float32(scale)])
        assert [output.partition for output in reply.outputs] == [0, 1]
        kept.append([data.field(Field("", "<f4", (9,)), output.offset) for output in reply.outputs])
    for scale, arrays in zip((1, 2, 3, 4), kept, strict=True):
        assert all((array == ROWS[:9] * scale).all() for array in arrays)
    assert recorded(worker) == 1


def test_large_results_are_not_recorded(worker: Bench):
    worker.put(3, [[{"": np.zeros(20_000)}]])
    plan = worker.plan(3, (FetchStep(-1, ""),), [], "")
    for _ in range(4):
        reply, data = worker.run(plan, (3,))
        assert not reply.data and data.size == 160_000
    assert recorded(worker) == 0


def test_passes_beside_each_other(worker: Bench):
    plan, w = summing(worker), np.float32([1, 2, 3, 4])
    totals: dict[float, set[float]] = {}

    def passes(scale: float) -> None:
        for _ in range(50):
            total, = worker.folded(plan, (1,), [np.float32(scale), w, np.float32(0)])
            totals.setdefault(scale, set()).add(float(total))

    threads = [threading.Thread(target=passes, args=(float(scale),)) for scale in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert totals == {scale: {expected(ROWS, scale, w, 0) + expected(ROWS[:9], scale, w, 0)} for scale in totals}


def test_memory_that_recordings_hold_is_given_for_new_data(tmp_path: Path):
    with bench(tmp_path, "null") as null:
        device = null.process._pool.devices[0]
        null.put(1, [[{"": ROWS}], [{"": ROWS[:9]}]])
        plan, values = summing(null), [np.float32(1), np.ones(4, "f4"), np.float32(0)]
        for _ in range(3):
            null.run(plan, (1,), values)
        held = device.memory().used
        device._total = held + 100
        null.put(2, [[{"": np.zeros(102, "u1")}]])
        assert recorded(null) == 0 and device.memory().used < held + 102
        with pytest.raises(OutOfMemory):
            null.put(3, [[{"": np.zeros(1 << 20, "u1")}]])


def test_an_empty_plan(null: Bench):
    plan = null.plan(1, (), [], "")
    for _ in range(4):
        reply, data = null.run(plan, (1,))
        assert (reply.outputs, reply.folded, data.size) == ((), None, 0)
    assert plan.steps == (LoadStep(0),) and recorded(null) == 1


def of_lengths(bench: Bench, *lengths: int) -> list[tuple[Plan, list[np.ndarray]]]:
    """Return a plan for arrays of each length, and values for it."""
    plan = summing(bench)
    return [(replace(plan, steps=(plan.steps[0], replace(plan.steps[1], label=f"sum {length}"))),
             [np.float32(1), np.ones(length, "f4"), np.float32(0)]) for length in lengths]


def runs(bench: Bench, *passes: tuple[Plan, list[np.ndarray]]) -> int:
    """Do the passes; how much memory is used then."""
    for plan, values in passes:
        bench.run(plan, (1,), values)
    return bench.process.report().memory[0].used


def at_rest(bench: Bench, plan: Plan) -> None:
    """Make a plan one that came last a minute ago, and at which nobody has looked since."""
    known = bench.process._plans
    known._counted -= 60.0
    for recording in known._known[sealed(plan)[0]].recordings.of_actions:
        recording.used -= 60.0


def test_actions_that_rest_give_their_memory_back_and_others_keep_it(null: Bench, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(plan_cache, "RESTING_BYTES", 1000)
    process = null.process
    short, long, longer = of_lengths(null, 4, 400, 800)
    little = runs(null, short, short)
    assert recorded(null) == 1 and not process.may_rest
    held = runs(null, long, long, longer, longer)
    assert recorded(null) == 3 and process.may_rest
    assert runs(null, short, long, longer) == held and recorded(null) == 3
    process.rest(60.0)
    assert recorded(null) == 3 and process.may_rest
    at_rest(null, longer[0])
    device = process._pool.devices[0]
    device.calls.clear()
    assert runs(null, long) <= held - longer[1][1].nbytes and recorded(null) == 2      # while another comes
    assert [call[0] for call in device.calls if call[0] != "free"] == [
        "copy_in", "launch", "launch", "copy_out", "synchronize"]
    assert runs(null, longer, short) == held and recorded(null) == 3
    process.rest(-1.0)
    assert runs(null) == little and recorded(null) == 1 and not process.may_rest


def test_what_little_actions_hold_they_keep(null: Bench):
    plan, = of_lengths(null, 400)
    used = runs(null, plan, plan)
    null.process.rest(-1.0)
    assert runs(null) == used and recorded(null) == 1 and not null.process.may_rest


def test_no_further_actions_are_noted_while_those_that_are_hold_enough(null: Bench, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(plan_cache, "RESTING_BYTES", 0)
    monkeypatch.setattr(plan_cache, "ENOUGH_BYTES", 1000)
    one, other = of_lengths(null, 400, 500)
    used = runs(null, one, one, other, other, other)
    assert recorded(null) == 1
    at_rest(null, one[0])
    assert runs(null, other) > used and recorded(null) == 1
    runs(null, one)
    assert recorded(null) == 1


def test_a_recording_that_is_closed_meanwhile_is_not_done_again(worker: Bench):
    """Whoever looked for one may have seen it before it was closed, and locks it behind that."""
    plan, values = summing(worker), [np.float32(1), np.ones(4, "f4"), np.float32(0)]
    for _ in range(2):
        worker.run(plan, (1,), values)
    recordings = worker.process._plans._known[sealed(plan)[0]].recordings
    recording, = recordings.of_actions
    worker.process._runs._close_recording(recording)
    assert recordings.of_actions == [recording]
    assert worker.folded(plan, (1,), values)[0] == ROWS.sum() + ROWS[:9].sum()
    assert recordings.of_actions != [recording]
