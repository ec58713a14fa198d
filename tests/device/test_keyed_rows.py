"""The kernels of keys.cu, against NumPy and Python."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from pyspark.rdd import portable_hash

from gpu_worker.device.memory.partition import HeldArray, Partition, PieceOfPartition
from gpu_worker.execution.keys import keyed_folds, radix_sort
from gpu_worker.execution.keys.keyed_folds import folded_runs
from gpu_worker.execution.keys.keyed_rows import RowOrder, ordered
from gpu_worker.execution.keys.radix_sort import KEYS, TILE, RadixSort
from gpu_worker.execution.keys.row_keys import table_of
from gpu_worker.protocol.messages import Field, FieldFold
from gpu_worker.protocol.plans import FoldRunsStep
from tests.device.bench import DeviceBench


class Plain:
    """Memory without recycling, as a plan's scratch gives it."""

    def __init__(self, bench: DeviceBench):
        self.bench = bench
        self.allocated = []

    def allocate(self, nbytes, device, stream):
        self.allocated.append(device.allocate(nbytes, stream=stream))
        return self.allocated[-1]

    def write(self, buffer, array, device, stream):
        device.copy_in(buffer, np.frombuffer(array.tobytes(), "u1"), stream=stream)
        device.synchronize(stream=stream)

    def recycle(self, buffer, stream):
        pass


@pytest.fixture(params=["", "-DVISPARK_ALONE=0"])
def order(request: pytest.FixtureRequest, bench: DeviceBench, monkeypatch: pytest.MonkeyPatch) -> Iterator:
    """Yield the maker of the order of keys; on a CPU also as a GPU does it."""
    if request.param:
        if bench.device.kind != "host":
            pytest.skip("a GPU has one way")
        monkeypatch.setattr(radix_sort, "SOURCE", radix_sort.Source(radix_sort.SOURCE.text, "keys.cu",
                                                                    (request.param,)))
    scratch = Plain(bench)

    def made(keys: np.ndarray) -> RowOrder:
        held = HeldArray(Field("0", keys.dtype.str, keys.shape), buffer=bench.put(keys))
        scratch.allocated.append(held.buffer)
        return RowOrder(held, bench.device, bench.stream, scratch)

    yield made
    for buffer in scratch.allocated:
        buffer.close()


def keys_of(dtype: str, count: int, random: np.random.Generator) -> np.ndarray:
    scalar = np.dtype(dtype)
    keys = np.frombuffer(random.bytes(count * scalar.itemsize), scalar).copy()
    if scalar.kind == "b":
        return random.integers(0, 2, count).astype("b1")
    keys[:count // 2] = random.integers(0, 100, count // 2).astype(scalar)
    if scalar.kind == "f":
        keys[np.isnan(keys)] = 0.5
        keys[:6] = np.array([0.0, -0.0, np.inf, -np.inf, -1, 2.0**61])[:count]
    elif count > 3:
        info = np.iinfo(scalar)
        keys[:3] = [info.min, info.max, scalar.type(-1) if info.min else 1]
    return keys


@pytest.mark.parametrize("rows", [1, 31, 64, 1000])
def test_rows_of_one_key_that_come_in_parts_are_folded_as_all_at_once(order, bench: DeviceBench, rows: int,
                                                                      monkeypatch: pytest.MonkeyPatch):
    """Fold by parts of 32 rows from host memory, and on the device: the same bits, of sums, products and what guards
    them.
    """
    columns = {"0": np.full(rows, 7), "f": np.random.default_rng(rows).normal(size=rows).astype("f4"),
               "d": np.random.default_rng(rows).normal(size=(rows, 3)) * 1e9, "i": np.arange(rows),
               "c": np.random.default_rng(rows).normal(size=(rows, 2)).view("c16")[:, 0]}
    step = FoldRunsStep("fold", ("0",), (FieldFold("f", "multiply"), FieldFold("d", "add", guard="nan"),
                                         FieldFold("i", "add", guard="overflow"), FieldFold("c", "add")), "n", b"")
    if "-DVISPARK_ALONE=0" in radix_sort.SOURCE.options:
        monkeypatch.setattr(keyed_folds, "lanes_of", lambda device: 32)
    monkeypatch.setattr(keyed_folds, "_PART_BYTES", 1)
    scratch, results = order(columns["0"]).scratch, []
    for of_one_key in (False, True):
        block = tuple([HeldArray(Field(name, each.dtype.str, each.shape),
                                 host=np.frombuffer(each.tobytes(), "u1") if of_one_key else None,
                                 buffer=None if of_one_key else bench.put(each)) for name, each in columns.items()])
        scratch.allocated += [each.buffer for each in block if each.buffer is not None]
        piece = PieceOfPartition(0, rows, True, rows, is_counted=True, of_one_key=of_one_key)
        folds, runs = folded_runs(step, Partition(0, rows, None, b"", [block], bench.device, piece=piece), bench.stream,
                                  scratch)
        assert runs == 1
        results.append([(each.field.name, each.field.shape, (each.host if each.buffer is None else bench.get(
            each.buffer, each.nbytes, "u1")).tobytes()) for each in folds])
    assert results[0] == results[1]


@pytest.mark.parametrize("dtype", sorted(KEYS))
@pytest.mark.parametrize("parts", [64, 1000])
def test_partitions_are_those_of_pythons_hash(order, bench: DeviceBench, dtype: str, parts: int):
    keys = keys_of(dtype, TILE + 77, np.random.default_rng(0))
    rows = order(keys)
    rows.by_hash(parts)
    rows.sort(parts)
    starts = rows.starts(parts)
    bench.device.synchronize(stream=bench.stream)
    expected = np.array([hash(key) % parts for key in keys.tolist()])
    taken = bench.get(rows.order, len(keys), "u4")
    np.testing.assert_array_equal(taken, np.argsort(expected, kind="stable"))
    np.testing.assert_array_equal(starts, np.searchsorted(np.sort(expected), np.arange(parts + 1)))
    assert rows.wrong[0] == 0


@pytest.mark.parametrize("dtype", sorted(KEYS))
@pytest.mark.parametrize("descending", [False, True])
def test_rows_in_the_order_of_keys(order, bench: DeviceBench, dtype: str, descending: bool):
    keys = keys_of(dtype, 3 * TILE - 5, np.random.default_rng(1))
    rows = order(keys)
    rows.by_key(descending=descending)
    rows.sort()
    taken = bench.get(rows.order, len(keys), "u4") if rows.order else np.arange(len(keys))
    expected = sorted(range(len(keys)), key=keys.tolist().__getitem__, reverse=descending)
    np.testing.assert_array_equal(taken, expected)


@pytest.mark.parametrize("dtype", ["i8", "i2", "u4", "f4", "f8"])
@pytest.mark.parametrize("descending", [False, True])
def test_ranges_are_those_of_bisection(order, bench: DeviceBench, dtype: str, descending: bool):
    keys = keys_of(dtype, 5000, np.random.default_rng(2))
    bounds = np.sort(keys[10:5000:501])
    rows = order(keys)
    rows.by_range(np.sort(ordered(bounds)), descending=descending)
    words = bench.get(rows.words, len(keys), "u1")
    below = np.searchsorted(bounds, keys, side="left")
    np.testing.assert_array_equal(words, len(bounds) - below if descending else below)


@pytest.mark.parametrize("shape", [(), (3,), (2, 4), (1,), (0,)])
@pytest.mark.parametrize("dtype", ["f8", "f4", "u1"])
def test_rows_are_taken_and_dealt(order, bench: DeviceBench, shape: tuple[int, ...], dtype: str):
    random = np.random.default_rng(3)
    keys, values = random.integers(0, 50, 5000), random.integers(0, 99, (5000, *shape)).astype(dtype)
    rows = order(keys)
    held = HeldArray(Field("1", values.dtype.str, values.shape), buffer=bench.put(values))
    rows.by_hash(7)
    rows.sort(7)
    target = bench.put(np.zeros_like(values))
    rows.take_rows(held, target)
    expected = values[np.argsort(keys % 7, kind="stable")]
    np.testing.assert_array_equal(bench.get(target, values.shape, dtype), expected)
    starts = rows.starts(7)
    bench.device.synchronize(stream=bench.stream)
    row = values[0].nbytes
    targets = [bench.put(np.zeros((starts[d + 1] - starts[d], *shape), dtype)) for d in range(7)]
    bases = bench.put(np.array([target.address - int(start) * row
                                for target, start in zip(targets, starts, strict=False)], np.int64))
    rows.deal_rows(held, bases)
    for d, buffer in enumerate(targets):
        part = expected[starts[d]:starts[d + 1]]
        np.testing.assert_array_equal(bench.get(buffer, part.shape, dtype), part)
    for buffer in (held.buffer, target, bases, *targets):
        buffer.close()


def test_keys_that_are_no_numbers_are_counted(order, bench: DeviceBench):
    keys = np.array([1.0, np.nan, 2.0, np.nan, -np.nan], "f4")
    for how in ("by_key", "by_hash"):
        rows = order(keys)
        rows.by_hash(4) if how == "by_hash" else rows.by_key(descending=False)
        bench.device.synchronize(stream=bench.stream)
        assert rows.wrong[0] == 3


RUNS = [3 * TILE - 5, 0, 1, TILE, 77]


@pytest.mark.parametrize("descending", [False, True])
def test_runs_are_sorted_each_by_itself_in_one_sort(order, bench: DeviceBench, descending: bool):
    random = np.random.default_rng(4)
    items = [[keys_of("i8", rows, random) % 5, keys_of("f4", rows, random)] for rows in RUNS]
    held = [[order(each).keys for each in of_run] for of_run in items]
    sort = RadixSort(RUNS, bench.device, bench.stream, order(np.zeros(1)).scratch)
    for at in (1, 0):
        sort.by_order([of_run[at] for of_run in held], descending=descending)
        sort.sort()
    counts = [min(rows, 5000) for rows in RUNS]
    targets = [bench.put(np.zeros(max(count, 1), "f4")) for count in counts]
    sort.take_sorted([of_run[1] for of_run in held], targets, counts)
    for target, count, of_run in zip(targets, counts, items, strict=True):
        rows = sorted(zip(*map(np.ndarray.tolist, of_run), strict=True), reverse=descending)
        np.testing.assert_array_equal(bench.get(target, count, "f4"), np.array([row[1] for row in rows[:count]], "f4"))
        target.close()
    assert sort.wrong[0] == 0


def test_tuples_go_to_the_partitions_of_their_hash_and_of_bounds(order, bench: DeviceBench,
                                                                 monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PYTHONHASHSEED", "0")
    items = [keys_of(dtype, 3000, np.random.default_rng(5)) for dtype in KEYS if dtype != "f4"][:8]
    held = [order(each) for each in items]
    work, keys = held[0], list(zip(*[each.tolist() for each in items], strict=True))
    table, wrong, numbers = work.written(table_of([each.keys for each in held])), work.zeroed(8), work.take(4 * 3000)
    work.launch("tuple_parts", 3000, [table, np.int32(8), np.int64(3000), np.int64(61), np.uint64(0), np.int64(0),
                                      np.int32(0), numbers, wrong])
    np.testing.assert_array_equal(bench.get(numbers, 3000, "u4"), [portable_hash(key) % 61 for key in keys])
    words = np.stack([ordered(each) for each in items], axis=1)
    chosen = sorted(range(3000), key=keys.__getitem__)[100::300]
    work.launch("tuple_parts", 3000, [table, np.int32(8), np.int64(3000), np.int64(11), work.written(words[chosen]),
                                      np.int64(len(chosen)), np.int32(1), numbers, wrong])
    below = [sum(keys[each] < key for each in chosen) for key in keys]
    np.testing.assert_array_equal(bench.get(numbers, 3000, "u4"), below)
