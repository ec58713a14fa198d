"""Table launches and fused folds on the host device, with kernels that follow the interface for generated ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gpu_worker.execution.launches import fold_launches
from gpu_worker.protocol.errors import LaunchError, PlanError, PlanUnknown, ProtocolError
from gpu_worker.protocol.messages import (
    Accumulators,
    ArrayArgument,
    ExecStep,
    Field,
    FieldFold,
    In,
    KeepStep,
    Launch,
    MapFoldStep,
    Out,
    Plan,
    Signature,
    ValueArgument,
)
from tests.unit.plans import Bench, bench

pytestmark = pytest.mark.slow

SOURCE = """
#include "vispark/fold.h"

#define WORK const long long entry = works[3 * blockIdx.x], first = works[3 * blockIdx.x + 1], \\
    rows = works[3 * blockIdx.x + 2], last = first + rows

// out = in * scale + w, element by element.
extern "C" __global__ void scaled(const long long* works, void* const* ports, float scale, const double* w, int columns)
{
    WORK;
    const float* in = (const float*)ports[2 * entry];
    double* out = (double*)ports[2 * entry + 1];
    for (long long i = first * columns + threadIdx.x; i < last * columns; i += blockDim.x)
        out[i] = in[i] * scale + w[i % columns];
}

// The sum and the greatest of each column; and, where that is asked for, how many NaNs there were.
__device__ void fold_columns(const long long* works, void* const* ports, double* sum, double* most, double* nans,
                             int columns)
{
    WORK;
    const float* in = (const float*)ports[entry];
    for (int column = threadIdx.x; column < columns; column += blockDim.x) {
        double added = Add::identity<double>(), missing = Add::identity<double>();
        double greatest = Maximum::identity<double>();
        for (long long row = first; row < last; row++) {
            const float value = in[row * columns + column];
            added = Add::of(added, (double)value);
            greatest = Maximum::of(greatest, (double)value);
            missing = Add::of(missing, IsNan::of<double>(value));
        }
        sum[blockIdx.x * columns + column] = added;
        most[blockIdx.x * columns + column] = greatest;
        if (nans)
            nans[blockIdx.x * columns + column] = missing;
    }
}
extern "C" __global__ void guarded(const long long* works, void* const* ports, double* sum, double* most, double* nans,
                                   int columns) { fold_columns(works, ports, sum, most, nans, columns); }
extern "C" __global__ void plain(const long long* works, void* const* ports, double* sum, double* most, int columns)
{ fold_columns(works, ports, sum, most, 0, columns); }

// Sums of doubles, exactly.
extern "C" __global__ void exact(const long long* works, void* const* ports, Twofold* sum)
{
    WORK;
    const double* in = (const double*)ports[entry];
    if (threadIdx.x == 0) {
        Twofold added = Add::identity<Twofold>();
        for (long long row = first; row < last; row++)
            added = Add::of(added, Twofold(in[row]));
        sum[blockIdx.x] = added;
    }
}

// Sums by key, their counts, and the range of the keys.
extern "C" __global__ void by_key(const long long* works, void* const* ports, long long* sums, double* sizes,
                                  long long* counts, int* least, int* greatest, int groups)
{
    WORK;
    const int* keys = (const int*)ports[2 * entry];
    const long long* values = (const long long*)ports[2 * entry + 1];
    if (threadIdx.x)
        return;
    for (int group = 0; group < groups; group++) {
        sums[blockIdx.x * groups + group] = counts[blockIdx.x * groups + group] = 0;
        sizes[blockIdx.x * groups + group] = 0.0;
    }
    int low = Minimum::identity<int>(), high = Maximum::identity<int>();
    for (long long row = first; row < last; row++) {
        const int key = keys[row];
        low = Minimum::of(low, key), high = Maximum::of(high, key);
        if (key < 0 || key >= groups)
            continue;
        sums[blockIdx.x * groups + key] += values[row];
        sizes[blockIdx.x * groups + key] += Size::of<double>(values[row]);
        counts[blockIdx.x * groups + key] += 1;
    }
    least[blockIdx.x] = low, greatest[blockIdx.x] = high;
}
"""


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Bench]:
    with bench(tmp_path, "host") as host:
        yield host


def rows(seed: int, *shape: int, dtype: str = "f4") -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


PARTS = [[{"": rows(1, 1000, 5)}], [{"": rows(2, 0, 5)}], [{"": rows(3, 37, 5)}], [{"": rows(4, 1, 5)}]]


def planned(bench: Bench, step: ExecStep | MapFoldStep, make: Callable[[Signature], Launch], *keeps: KeepStep) -> Plan:
    """Return a plan of one step on what is held as VRDD 1."""
    signatures, _ = bench.process._names.describe(1, ())
    return bench.plan(1, (step, *keeps), {each: (make(each),) for each in signatures}, SOURCE, outputs=len(keeps))


def scaled(tile: int, waves: float) -> Callable[[Signature], Launch]:
    arguments = In(""), ValueArgument(0), Out(""), ArrayArgument(1), ValueArgument(2)
    return lambda each: Launch((), (32,), 0, arguments, (Field("", "<f8", each.fields[0].shape),), kernel="scaled",
                               tile=tile, waves=waves)


@pytest.mark.parametrize(("tile", "waves"), [(1, 0.0), (64, 0.0), (7, 1.5), (4096, 2.0)])
def test_a_map_runs_over_all_blocks(worker: Bench, tile: int, waves: float):
    worker.put(1, PARTS)
    w = rows(5, 5, dtype="f8")
    plan = planned(worker, ExecStep("vmap scaled"), scaled(tile, waves), KeepStep(1, "y", "device"))
    for number, scale in ((2, 2.0), (3, -1.5)):
        worker.run(plan, (1, number), [np.float32(scale), w, np.int32(5)], known=number == 3)
        for blocks, (block,) in zip(worker.fetched(number), PARTS, strict=True):
            np.testing.assert_allclose(blocks[0][""], block[""] * np.float32(scale) + w)
            assert blocks[0][""].dtype == np.float64


def test_blocks_that_differ_in_their_leading_extent_share_a_launch(tmp_path: Path):
    with bench(tmp_path, "null") as null:
        null.put(1, [*PARTS, [{"": rows(1, 8, 5)}, {"": rows(1, 9, 5)}]])
        calls = null.process._pool.devices[0].calls
        calls.clear()
        null.run(planned(null, ExecStep("vmap scaled"), scaled(4, 0.0)), (1,), [np.float32(1), rows(1, 5), np.int32(5)])
        launches = [call for call in calls if call[0] == "launch"]
        assert [call[1:4] for call in launches] == [("scaled", (250 + 10 + 1 + 2 + 3,), (32,))]
        assert sum(call[0] == "synchronize" for call in calls) == 1


def columns(how: str, tile: int, shape: Callable[[Signature], tuple[int, ...]]) -> Callable[[Signature], Launch]:
    partials = (Accumulators("sum", "add", "double", 5), Accumulators("most", "maximum", "double", 5),
                Accumulators("most", "add", "double", 5, "nan"))
    guarded = how == "all"
    return lambda each: Launch((), (8,), 0, (In(""), ValueArgument(0)), (
        Field("sum", "<f4", shape(each)), Field("most", "<f4", shape(each))), tile=tile, waves=2.0,
        kernel="guarded" if guarded else "plain", partials=partials if guarded else partials[:2])


FOLDS = FieldFold("sum", "add"), FieldFold("most", "maximum", "nan")


def test_all_rows_are_folded_to_one_record(worker: Bench):
    worker.put(1, PARTS)
    plan = planned(worker, MapFoldStep("vmap columns", FOLDS, "all"), columns("all", 8, lambda _: (5,)))
    every = np.concatenate([block[""] for block, in PARTS])
    for known in (False, True, True):
        reply, data = worker.run(plan, (1,), [np.int32(5)], known=known)
        sums, most = reply.folded.fields
        assert reply.folded.count == len(every) and reply.folded.counts == -1 and not data.array.flags.owndata
        assert data.field(Field("", sums.dtype, sums.shape), sums.offset).tolist() == every.sum(
            0, dtype="f8").astype("f4").tolist()
        assert data.field(Field("", most.dtype, most.shape), most.offset).tolist() == every.max(0).tolist()
        assert sums.ordered and most.ordered and sums.magnitude == 0.0


def test_nan_makes_an_order_of_no_use(worker: Bench):
    worker.put(1, [[{"": np.full((3, 5), np.nan, "f4")}], *PARTS])
    plan = planned(worker, MapFoldStep("vmap columns", FOLDS, "all"), columns("all", 8, lambda _: (5,)))
    reply, _ = worker.run(plan, (1,), [np.int32(5)])
    assert [each.ordered for each in reply.folded.fields] == [True, False]


def test_nothing_is_folded_to_nothing(worker: Bench):
    worker.put(1, [[{"": rows(1, 0, 5)}], [{"": rows(1, 0, 5)}]])
    plan = planned(worker, MapFoldStep("vmap columns", FOLDS, "all"), columns("all", 8, lambda _: (5,)))
    reply, _ = worker.run(plan, (1,), [np.int32(5)])
    assert reply.folded.count == 0 and not reply.folded.fields


EXACT = (Accumulators("", "add", "Twofold", 1),)


def test_sums_of_doubles_lose_nothing_and_are_the_same_each_time(worker: Bench):
    numbers = np.random.default_rng(0).normal(size=20_000) * 10.0 ** np.arange(20_000).__mod__(30)
    worker.put(1, [[{"": each.reshape(-1, 1)}] for each in np.split(numbers, [7, 1000, 15_000])])
    plan = planned(worker, MapFoldStep("vmap exact", (FieldFold("", "add"),), "all"), lambda _: Launch(
        (), (1,), 0, (In(""),), (Field("", "<f8", (1,)),), kernel="exact", tile=16, partials=EXACT))
    sums, again = (worker.folded(plan, (1,)) for _ in range(2))
    assert sums[0].tolist() == [math.fsum(numbers)]
    assert sums[0].tobytes() == again[0].tobytes()


def test_each_block_is_folded_to_a_record(worker: Bench):
    blocks = [[{"": rows(1, 300, 5)}, {"": rows(2, 1, 5)}, {"": rows(3, 0, 5)}], [{"": rows(4, 77, 5)}]]
    worker.put(1, blocks)
    step = MapFoldStep("vreduce", (FieldFold("sum", "add"), FieldFold("most", "maximum")), "inside")
    plan = planned(worker, step, columns("inside", 8, lambda _: (5,)), KeepStep(1, "y", "device"))
    worker.run(plan, (1, 2), [np.int32(5)])
    for records, partition in zip(worker.fetched(2), blocks, strict=True):
        for record, block in zip(records, partition, strict=True):
            assert record["sum"].tolist() == block[""].sum(0, dtype="f8").astype("f4").tolist()
            assert record["most"].tolist() == block[""].max(0, initial=-np.inf).tolist()


BY_KEY = (Accumulators("1", "add", "long long", 4), Accumulators("1", "add", "double", 4, "overflow"),
          Accumulators("0", "add", "long long", 4), Accumulators("0", "minimum", "int", 1, "least"),
          Accumulators("0", "maximum", "int", 1, "greatest"))


def by_key(bench: Bench) -> Plan:
    step = MapFoldStep("vmap by_key", (FieldFold("1", "add", "overflow"),), "key", "0", 4)
    return planned(bench, step, lambda _: Launch((), (32,), 0, (In("0"), In("1"), ValueArgument(0)), (
        Field("1", "<i8", (4,)),), kernel="by_key", tile=5, waves=3.0, partials=BY_KEY))


@pytest.mark.parametrize("most_bytes", [2 << 30, 3 * 84, 1])
def test_rows_are_folded_by_key(worker: Bench, most_bytes: int, monkeypatch: pytest.MonkeyPatch):
    """Also where what works leave is large, so that some works are folded after others."""
    monkeypatch.setattr(fold_launches, "_ROUND_BYTES", most_bytes)
    keys = [np.int32([0, 3, 3, 1] * 9), np.int32([1] * 7)]
    values = [np.arange(36) - 10, np.arange(7) * 2**40]
    worker.put(1, [[{"0": key, "1": value}] for key, value in zip(keys, values, strict=True)])
    reply, data = worker.run(by_key(worker), (1,), [np.int32(4)])
    sums, = reply.folded.fields
    key, value = np.concatenate(keys), np.concatenate(values)
    assert reply.folded.count == 43
    assert data.field(Field("", "<i8", (4,)), reply.folded.counts).tolist() == np.bincount(key, minlength=4).tolist()
    expected = [int(value[key == each].sum()) for each in range(4)]
    assert data.field(Field("", sums.dtype, sums.shape), sums.offset).tolist() == expected
    assert sums.magnitude == max(int(abs(value[key == each]).sum()) for each in range(4))


@pytest.mark.parametrize(("partitions", "message"), [(1, "a record of partition 0 has the key -2, and numKeys=4"),
                                                     (2, "a record has the key -2, and numKeys=4")])
def test_a_key_out_of_range(worker: Bench, partitions: int, message: str):
    worker.put(1, [[{"0": np.int32([0, -2, 1]), "1": np.arange(3)}]] * partitions)
    with pytest.raises(PlanError, match=message):
        worker.run(by_key(worker), (1,), [np.int32(4)])


def test_what_a_plan_lacks_is_an_error_and_changes_nothing(worker: Bench):
    worker.put(1, PARTS)
    used = worker.process.report().memory[0].used
    good = scaled(8, 0.0)
    for make, values, error, message in [
            (good, [np.float32(1)], PlanError, "the plan names value 1, and the request brings 1"),
            (good, [rows(1, 3)] * 3, ProtocolError, r"slot 0 has shape \(3,\), and a number is passed by value"),
            (lambda each: replace(good(each), arguments=(In("x"),)), [], LaunchError, "the block has no field 'x'"),
            (lambda each: replace(good(each), arguments=(In(""),)), [], LaunchError, "scaled takes 5 arguments"),
            (lambda each: replace(good(each), tile=8 * (each.fields[0].shape[0] > 1), grid=(1,)),
             [np.float32(1), rows(1, 5), np.int32(5)], PlanError, "by themselves and on others together")]:
        with pytest.raises(error, match=message) as caught:
            worker.run(planned(worker, ExecStep("vmap scaled"), make, KeepStep(1, "y", "device")), (1, 2), values)
        assert caught.value.place.operation == "vmap scaled" and caught.value.place.vrdd.startswith("1")
        assert worker.process.report().memory[0].used == used


def test_plans_are_sent_once(worker: Bench):
    worker.put(1, PARTS)
    plan = planned(worker, ExecStep("vmap scaled"), scaled(8, 0.0), KeepStep(1, "y", "device"))
    values = np.float32(1), rows(1, 5, dtype="f8"), np.int32(5)
    with pytest.raises(PlanUnknown):
        worker.run(plan, (1, 2), values, known=True)
    worker.run(plan, (1, 2), values)
    worker.run(plan, (1, 3), values, known=True)
    assert worker.fetched(2)[2][0][""].tobytes() == worker.fetched(3)[2][0][""].tobytes()
    request = worker.request(plan, (1, 4), values)
    with pytest.raises(ProtocolError, match="not its own"):
        worker.process.handle(replace(request, key=bytes(16)), [])
