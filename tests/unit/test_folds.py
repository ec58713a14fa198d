"""Functions that are folds, and folds of arrays by the worker's kernels, on the host device."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from gpu_worker.device.base import Device, Source
from gpu_worker.device.cache import KernelCache
from gpu_worker.device.host.device import HostDevice
from gpu_worker.device.memory.partition import HeldArray, Partition
from gpu_worker.execution.folds import key_totals, partial_folds, record_folds
from gpu_worker.execution.folds.folder import Folder
from gpu_worker.execution.memory.scratch import Scratch
from gpu_worker.execution.scheduling.streams import StreamPool, Streams
from gpu_worker.protocol.errors import PlanError
from gpu_worker.protocol.messages import Field, FieldFold, FoldByKeyStep, FoldInsideStep, FoldStep, Signature
from vispark.data.records import RecordLayout
from vispark.data.records.layout import RecordPart
from vispark.data.records.partition_schema import PartitionSchema
from vispark.plan.fold import FoldSpec, Leaf, fold_for_kernel, fold_of
from vispark.plan.fold.lowering import ByKey

pytestmark = pytest.mark.slow

# -- which functions --------------------------------------------------------------------------------------------------


def documented(a, b):
    """Add."""
    return a + b


def unpacked(p, q):
    """Join each part with its own operator, by way of locals."""
    (total, low), count = p
    (other, lower), more = q
    both = total + other
    return (both, lower if lower < low else low), count * more


def branched(a, b):
    if a >= b:
        return a
    return b


def augmented(a, b):
    a += b
    return a


def calling(a, b):
    return branched(a, b)


WHOLE: dict[str, tuple[Callable, str, str]] = {
    "operator": (operator.add, "add", "operator"), "in place": (operator.iadd, "add", "operator"),
    "ufunc": (np.minimum, "minimum", "ufunc"), "max": (max, "maximum", "choice"),
    "lambda": (lambda a, b: a + b, "add", "operator"), "turned": (lambda a, b: b * a, "multiply", "operator"),
    "docstring": (documented, "add", "operator"), "min": (lambda a, b: min(a, b), "minimum", "choice"),
    "of a tuple": (lambda a, b: max((a, b)), "maximum", "choice"),
    "a if a < b": (lambda a, b: a if a < b else b, "minimum", "choice"),
    "b if a < b": (lambda a, b: b if a < b else a, "maximum", "choice"),
    "a if b < a": (lambda a, b: a if b < a else b, "maximum", "choice"),
    "a if a >= b": (branched, "maximum", "choice"), "called": (calling, "maximum", "choice"),
    "np.add": (lambda a, b: np.add(a, b), "add", "ufunc"), "+=": (augmented, "add", "operator"),
    "operator.xor": (lambda a, b: operator.xor(a, b), "xor", "operator"),
    "partial": (functools.partial(lambda a, b: a | b), "or", "operator"),
}


@pytest.mark.parametrize(("function", "by", "kind"), WHOLE.values(), ids=WHOLE)
def test_whole_records(function: Callable, by: str, kind: str):
    assert fold_of(function) == FoldSpec((Leaf("", by, kind),), by)
    assert hash(fold_of(function)) == hash(fold_of(function))


def test_tuples_part_by_part():
    fold = fold_of(lambda p, q: (p[0] + q[0], p[1] + q[1]))
    assert fold == FoldSpec((Leaf("0", "add"), Leaf("1", "add")), "(add, add)")
    assert fold_of(unpacked) == FoldSpec((Leaf("0.0", "add"), Leaf("0.1", "minimum", "choice"), Leaf("1", "multiply")),
                                         "(add, minimum, multiply)")


SCALE = 2.0
NO_FOLD: dict[str, tuple[Callable, str]] = {
    "minus": (lambda a, b: a - b, "joins its values by -, which is not one of"),
    "first": (lambda a, b: a, "one associative operator"), "itself": (lambda a, b: a + a, "one associative operator"),
    "three": (lambda a, b: a + b + 1, "one associative operator"),
    "captured": (lambda a, b: a + b * SCALE, "one associative operator"),
    "mixed": (lambda p, q: (p[0] + q[1], p[1] + q[0]), "one associative operator"),
    "moved": (lambda p, q: (p[1] + q[1], p[0] + q[0]), "one associative operator"),
    "argmin": (lambda p, q: p if p[0] < q[0] else q, "one associative operator"),
    "two branches": (lambda a, b: a if a < b else a + b, "one associative operator"),
    "one value": (lambda a: a, "takes 1 parameters, not 2 values"), "empty": (lambda a, b: (), "gives an empty tuple"),
    "print": (print, "print is not one of the operators"), "fsum": (math.fsum, "fsum is not one of the operators"),
    "effect": (lambda a, b: print(a), "print is not supported"),
}


@pytest.mark.parametrize(("function", "why"), NO_FOLD.values(), ids=NO_FOLD)
def test_what_is_no_fold_says_why(function: Callable, why: str):
    answer = fold_of(function)
    assert isinstance(answer, str) and why in answer
    with pytest.raises(PlanError, match=r"vreduce\(\) cannot run on the device: "):
        fold_for_kernel(function, "vreduce()")


@pytest.mark.parametrize(("keys", "records", "why"), [
    (1 << 15, 1, ""), (10**6, 10**6, ""), (10**9, 10**9, ""),
    (3 * 10**9, 500, "a table of 3,000,000,000 numbers, and 2,147,483,647 is the most"),
    (10**6, 500, "many more than the 500 records")])
def test_tables_for_more_keys_than_fit_or_pay_are_a_spark_job(keys: int, records: int, why: str):
    layout = RecordLayout("elements", False,
                          (RecordPart("0", "number", ("int",)), RecordPart("1", "number", ("float",))), tupled=True)
    fields = tuple(Field(name, dtype, (records,)) for name, dtype in (("0", "<i8"), ("1", "<f8")))
    step = ByKey(fold_of(operator.add), keys).lower([PartitionSchema(records, 0, layout, (Signature(fields),))])
    assert (why and why in step) or step == FoldByKeyStep("0", keys, (FieldFold("1", "add"),))


def test_a_name_that_changes_is_read_again(monkeypatch: pytest.MonkeyPatch):
    def function(a, b):
        return SCALE(a, b)

    for value, by in ((min, "minimum"), (max, "maximum")):
        monkeypatch.setitem(globals(), "SCALE", value)
        assert fold_of(function).label == by

    def joins(a, b):
        return tuple(x + y for x, y in zip(a, b, strict=True))

    for builtin, is_fold in ((zip, True), (map, False), (zip, True)):
        monkeypatch.setitem(globals(), "zip", builtin)
        assert [isinstance(fold_of(joins), FoldSpec) for _ in range(2)] == [is_fold] * 2


# -- the kernels ------------------------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def device() -> Iterator[HostDevice]:
    device = HostDevice(cache=KernelCache())
    yield device
    assert device.memory().used == 0
    device.close()


def resident(device: Device, arrays: dict[str, np.ndarray], kind: str = "elements") -> Partition:
    """Return a partition of one block, on the device."""
    block = []
    for name, array in arrays.items():
        buffer = device.allocate(array.nbytes, stream=device.stream())
        device.copy_in(buffer, np.ascontiguousarray(array).reshape(-1).view("u1"), stream=device.stream())
        block.append(HeldArray(Field(name, array.dtype.str, array.shape), buffer=buffer))
    count = len(next(iter(arrays.values()))) if kind == "elements" else 1
    return Partition(3, count, None, b"", [tuple(block)], device)


def folded(device: Device, step: FoldStep | FoldByKeyStep, *parts: dict[str, np.ndarray], together: bool = True,
           alone: bool = True) -> partial_folds.FoldResult:
    streams = Streams(StreamPool([device]))
    scratch, stream = Scratch(streams), streams.main(device)
    partitions = [resident(device, arrays) for arrays in parts]
    try:
        if isinstance(step, FoldByKeyStep):
            partials = [key_totals.enqueue(step, partitions, stream, scratch, alone=alone)] if together else \
                [key_totals.enqueue(step, [partition], stream, scratch, alone=False) for partition in partitions]
        else:
            partials = [record_folds.enqueue(functools.partial(record_folds.all_records, step), partition,
                                      Folder(partition.device, stream, scratch)) for partition in partitions]
        for partial in partials:
            partial.copy_out()
        device.synchronize(stream=stream)
        return partial_folds.join(partials)
    finally:
        scratch.discard()
        for partition in partitions:
            partition.close()


@pytest.mark.parametrize(("rows", "columns", "groups"), [(1, 1, 1), (20_001, 1, 3), (5000, 33, 40), (700, 3, 4000),
                                                        (3000, 2, 9000)])
def test_sums_by_key_of_any_extent(device: HostDevice, rows: int, columns: int, groups: int):
    rng = np.random.default_rng(rows)
    parts = [{"0": rng.integers(0, groups, rows, dtype="i4"), "1": rng.normal(size=(rows, columns)),
              "2": rng.integers(-9, 9, rows)} for _ in range(2)]
    step = FoldByKeyStep("0", groups, (FieldFold("1", "add"), FieldFold("2", "maximum")))
    result = folded(device, step, *parts)
    keys = np.concatenate([part["0"] for part in parts])
    values, numbers = (np.concatenate([part[name] for part in parts]) for name in ("1", "2"))
    assert result.count == 2 * rows and result.counts.tolist() == np.bincount(keys, minlength=groups).tolist()
    sums, greatest = (each.values for each in result.fields)
    assert sums.shape == (groups, columns) and greatest.shape == (groups,)
    for key in set(keys[:100].tolist()):
        assert sums[key].tolist() == [math.fsum(column) for column in values[keys == key].T]
        assert greatest[key] == numbers[keys == key].max()
    for together, alone in ((True, True), (True, False), (False, False)):
        again = folded(device, step, *parts, together=together, alone=alone)
        assert again.fields[0].values.tobytes() == sums.tobytes()
        assert again.counts.tolist() == result.counts.tolist() and again.count == result.count


def test_tables_of_many_devices_are_joined_with_room_for_two(device: HostDevice):
    # They are joined as the host joins them, to the bit.
    rng, groups = np.random.default_rng(7), 5000
    step = FoldByKeyStep("0", groups, (FieldFold("1", "add"), FieldFold("2", "maximum")))
    streams = Streams(StreamPool([device]))
    stream, scratch, joining = streams.main(device), Scratch(streams), Scratch(streams)
    partitions = [resident(device, {"0": rng.integers(0, groups, 300, dtype="i4"), "1": rng.normal(size=300),
                                    "2": rng.integers(-9, 9, 300)}) for _ in range(6)]
    partials = [key_totals.enqueue(step, [each], stream, scratch, alone=False) for each in partitions]
    for partial in partials:
        partial.copy_out()
    device.synchronize(stream=stream)
    joined = key_totals.joined_devices(partials, device, stream, joining)
    joined.copy_out()
    device.synchronize(stream=stream)
    expected = partial_folds.join(partials)
    assert [part.values.tobytes() for part in joined.parts] == [each.values.tobytes() for each in expected.fields]
    tables, result = 2 * (16 + 8) * groups, 2 * 8 * groups
    assert sum(buffer.nbytes for buffer in joining.allocated) <= tables + result + 1024
    for memory in (scratch, joining):
        memory.discard()
    for value in partitions:
        value.close()


@pytest.mark.parametrize("key", [-1, 7, 2**40])
def test_a_key_out_of_range(device: HostDevice, key: int):
    arrays = {"0": np.int64([0, key, 6]), "1": np.zeros(3)}
    with pytest.raises(PlanError, match=f"a record of partition 3 has the key {key}, and numKeys=7"):
        folded(device, FoldByKeyStep("0", 7, (FieldFold("1", "add"),)), arrays)


ELEMENTS = {"?": "unsigned char", "i1": "signed char", "i2": "short", "i4": "int", "i8": "long long",
            "u1": "unsigned char", "u2": "unsigned short", "u4": "unsigned int", "u8": "unsigned long long",
            "f4": "float", "f8": "double"}


def extremes_of(dtype: str) -> np.ndarray:
    if dtype == "?":
        return np.array([False, True])
    info = (np.finfo if dtype.startswith("f") else np.iinfo)(dtype)
    return np.array([info.min, info.max], dtype)


@pytest.mark.parametrize(("by", "dtype"), [("multiply", "i2"), ("minimum", "f4"), ("maximum", "u8"), ("maximum", "?")])
def test_keys_that_do_not_occur_hold_the_identity(device: HostDevice, by: str, dtype: str):
    # So extreme values survive a fold that starts from it.
    extremes = extremes_of(dtype)
    step = FoldByKeyStep("0", 2, (FieldFold("1", by),))
    totals, = folded(device, step, {"0": np.int32([0, 1]), "1": extremes}).fields
    assert totals.values.dtype == extremes.dtype and totals.values.tolist() == extremes.tolist()


def test_extreme_values_survive_each_identity_in_each_type(device: HostDevice):
    joined = [(by, dtype) for dtype in ELEMENTS for by in ("Multiply", "Minimum", "Maximum")]
    lines = ['#include "vispark/fold.h"', "template <class Op, class T> __device__ void join(T* x)",
             "{ for (int i = 0; i < 2; i++) x[i] = Op::of(Op::template identity<T>(), x[i]); }",
             'extern "C" __global__ void all(void* const* ports)', "{",
             *(f"    join<{by}>(({ELEMENTS[dtype]}*)ports[{place}]);" for place, (by, dtype) in enumerate(joined)), "}"]
    arrays = [extremes_of(dtype) for _, dtype in joined]
    ports = np.array([array.ctypes.data for array in arrays], np.uint64)
    kernel = device.compile(Source("\n".join(lines)), "all")
    device.launch(kernel, (1,), (1,), [np.uint64(ports.ctypes.data)], stream=device.stream())
    for (by, dtype), array in zip(joined, arrays, strict=True):
        assert array.tolist() == extremes_of(dtype).tolist(), f"{by} of {dtype}"


def test_guards(device: HostDevice):
    by_key = FoldByKeyStep("0", 2, (FieldFold("1", "add", "overflow"), FieldFold("2", "minimum", "nan")))
    sums, least = folded(device, by_key, {"0": np.int32([0, 1, 1]), "1": np.int64([2**62, -2**62, 3]),
                                          "2": np.array([1.0, np.nan, 2.0])}).fields
    assert sums.magnitude == 2.0**62 and sums.ordered and not least.ordered
    product, = folded(device, FoldStep((FieldFold("", "multiply", "overflow"),), "rows"),
                      {"": np.int64([7, 0, -3])}).fields
    assert product.values == 0 and product.magnitude == 21


@pytest.mark.parametrize("shape", [(9000, 3), (5000,), (1, 4), (0, 4), (300, 2, 2)])
@pytest.mark.parametrize(("dtype", "ufunc", "by"), [("f4", np.add, "add"), ("f8", np.add, "add"),
                                                   ("c16", np.add, "add"), ("i2", np.bitwise_xor, "xor")])
def test_folds_inside_blocks_and_rows(device: HostDevice, shape: tuple[int, ...], dtype: str, ufunc: np.ufunc, by: str):
    array = np.random.default_rng(1).integers(-50, 50, shape).astype(dtype)
    rows = np.stack([array, array[::-1]])
    for over, values, expected in (("blocks", array, ufunc.reduce(array)), ("rows", rows, ufunc.reduce(rows, axis=1))):
        result = inside(device, FoldInsideStep("vreduce", (FieldFold("", by),), over), values)
        assert result.dtype == values.dtype and result.shape == expected.shape
        np.testing.assert_array_equal(result, expected)


def inside(device: Device, step: FoldInsideStep, array: np.ndarray) -> np.ndarray:
    streams, partition = Streams(StreamPool([device])), resident(device, {"": array}, "blocks")
    stream = streams.main(device)
    folder = Folder(device, stream, Scratch(streams))
    (result,) = record_folds.fold_inside(step, partition.blocks[0], folder)
    values = np.empty(result.field.shape, result.field.dtype)
    if values.nbytes:
        device.copy_out(values.reshape(-1).view("u1"), result.buffer, stream=stream)
    partition.close()
    for buffer in (*folder.buffers, result.buffer):
        buffer.close()
    return values


def test_what_has_no_kernel(device: HostDevice):
    for array, by in ((np.zeros((2, 2), "f2"), "add"), (np.zeros((2, 2), "c8"), "multiply"), (np.zeros((2, 2)), "or")):
        with pytest.raises(PlanError, match=f"no fold {by} for {array.dtype}"):
            folded(device, FoldStep((FieldFold("", by),), "rows"), {"": array})
    with pytest.raises(PlanError, match="no fold 'sub'; there are add, "):
        folded(device, FoldStep((FieldFold("", "sub"),), "rows"), {"": np.zeros(2)})
    with pytest.raises(PlanError, match="does not say how to fold field 'y'"):
        folded(device, FoldStep((FieldFold("x", "add"),), "rows"), {"y": np.zeros(2)})
    with pytest.raises(PlanError, match="keys to fold by are integers in a field 'k'"):
        folded(device, FoldByKeyStep("k", 2, (FieldFold("", "add"),)), {"k": np.zeros(2), "v": np.zeros(2)})
