"""Records of calls of ``exec``, and their launches for a block."""

from __future__ import annotations

import functools
import pickle
import re
from pathlib import Path

import cloudpickle
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_worker.protocol import codec
from gpu_worker.protocol.errors import LaunchError, PlanError
from gpu_worker.protocol.messages import ArrayArgument, Field, In, Launch, Out, ScalarArgument, Signature, ValueArgument
from vispark._utils.closures import capture
from vispark.plan.cuda_source import ArrayValue, Kernels
from vispark.plan.exec_call import record_exec
from vispark.plan.exec_launch import resolve
from vispark.plan.slots import ArgumentRef, SlotTable
from vispark.plan.symbols import IN, OUT, BlockView

K = Kernels("""
__global__ void gradient(const float* points, float* out, const double* w, int n) {}
__global__ void map(const float* x, float* y) {}
__global__ void inplace(float* x, int n) {}
__global__ void two(const float* x, double* y, float* z) {}
__global__ void nothing() {}
__global__ void scalars(float* x, bool b, char c, short s, int i, unsigned u, long long l, size_t z, float f, double d)
{}
template <typename T> __global__ void any(T a, T b) {}
#define BODY(x) x
__global__ void open(BODY(float* x)) {}
""")


def block(*fields, **named) -> Signature:
    return Signature(tuple(Field("", dtype, shape) for shape, dtype in fields)
                     + tuple(Field(name, dtype, shape) for name, (shape, dtype) in named.items()))


POINTS = block(((100, 41), "<f4"))
FIELDS = block(x=((5, 3), "<f4"), y=((5,), "<f8"), z=((7,), "<f4"))


def record(kernel, *args, grid=1, block=32, **rest):
    return record_exec(kernel, args, grid=grid, block=block, **rest)


def launch_of(spec, signature=POINTS) -> Launch:
    return resolve(spec, signature, SlotTable())[0]


def f4(value):
    return ScalarArgument("<f4", np.float32(value).tobytes())


def i4(value):
    return ScalarArgument("<i4", np.int32(value).tobytes())


# -- symbols ----------------------------------------------------------------------------------------------------------

def test_symbols_show_themselves_and_are_equal_by_content():
    shown = [IN, OUT, IN["x"], OUT["x"], IN.shape, IN["x"].shape[1], IN.size, -(-IN.shape[0] // 128),
             3 * (IN.shape[0] + 1) % 7 - IN.size]
    assert [str(symbol) for symbol in shown] == [
        "IN", "OUT", 'IN["x"]', 'OUT["x"]', "IN.shape", 'IN["x"].shape[1]', "IN.size", "-((-IN.shape[0]) // 128)",
        "((3 * (IN.shape[0] + 1)) % 7) - IN.size"]
    assert IN["x"] == IN["x"] != IN["y"] != IN
    assert IN != OUT and IN["x"] != OUT["x"]
    assert len({IN.shape[0], IN.shape[np.int64(0)], IN.shape[1], IN["x"].shape[0]}) == 3
    for symbol in shown:
        assert pickle.loads(pickle.dumps(symbol)) == symbol
        assert hash(pickle.loads(pickle.dumps(symbol))) == hash(symbol)


@pytest.mark.parametrize("wrong", [lambda: IN["x"]["y"], lambda: IN[0], lambda: OUT[""], lambda: IN.shape["x"],
                                   lambda: IN.shape[0:2], lambda: bool(IN.shape[0]), lambda: IN.shape[True]])
def test_symbols_used_wrongly(wrong):
    with pytest.raises(PlanError):
        wrong()


@pytest.mark.parametrize("wrong", [lambda: tuple(IN.shape), lambda: list(IN), lambda: IN.shape[0] + 0.5,
                                   lambda: "x" * IN.size, lambda: IN.size + True, lambda: list(BlockView(FIELDS))])
def test_symbols_that_are_no_sequences_and_no_floats(wrong):
    with pytest.raises(TypeError):
        wrong()


@given(st.integers(1, 50), st.integers(-50, 50).filter(bool))
def test_extents_calculate_as_integers_do(extent, number):
    view = BlockView(block(((extent, 2), "<f4")))
    symbol = IN.shape[0]
    for function in (lambda a, b: a + b, lambda a, b: a - b, lambda a, b: a * b, lambda a, b: a // b,
                     lambda a, b: a % b, lambda a, b: -(-a // b)):
        assert function(symbol, number).evaluate(view) == function(extent, number)
        assert function(np.int64(number), symbol).evaluate(view) == function(number, extent)
        assert function(symbol, IN.size).evaluate(view) == function(extent, 2 * extent)


def test_extents_that_a_block_does_not_have():
    view = BlockView(POINTS)
    assert IN.shape[-1].evaluate(view) == 41
    for symbol, words in [(IN.shape[2], "axis"), (IN.size // (IN.shape[0] - 100), "divides by zero"),
                          (IN["x"].size, "is one array")]:
        with pytest.raises(LaunchError, match=words):
            symbol.evaluate(view)


def test_block_views():
    view = BlockView(POINTS)
    assert (view.shape, view.dtype, view.ndim, view.size, view.nbytes, view.fields) == (
        (100, 41), np.float32, 2, 4100, 16400, ())
    named = BlockView(FIELDS)
    assert named.fields == ("x", "y", "z")
    assert (named["y"].shape, named["y"].dtype, named["y"].fields) == ((5,), np.float64, ())
    assert str(named) == "x: float32 (5, 3), y: float64 (5,), z: float32 (7,)"
    for wrong, words in [(lambda: named.shape, r"has the fields 'x', 'y', 'z': ask for one, as in b\['x'\]"),
                         (lambda: named["w"], "no field 'w'; it has 'x', 'y', 'z'"), (lambda: named.nbytes, "fields"),
                         (lambda: view["x"], "one array without a name"), (lambda: view[""], "no field ''")]:
        with pytest.raises(PlanError, match=words):
            wrong()


# -- recording: arguments ---------------------------------------------------------------------------------------------

def test_the_listing_of_the_design():
    lr = Kernels("""
        __global__ void gradient(const float* points, float* out, const float* w, int n) {}
        __global__ void local_reduce(const float* m, float* out, int n) {}""", options=["-DD=40"])
    w = np.ones(40, "f4")
    first = record(lr.gradient, IN, OUT, w, IN.shape[0], out=lambda b: ((b.shape[0], 40), "f4"),
                   grid=lambda b: -(-b.shape[0] // 128), block=128)
    second = record(lr.local_reduce, IN, OUT, IN.shape[0], out=lambda b: ((40,), "f4"), grid=40, block=256)
    table = SlotTable()
    launch, middle, merge = resolve(first, POINTS, table)
    assert launch == Launch((1,), (128,), 0, (In(""), Out(""), ArrayArgument(0), i4(100)),
                            (Field("", "<f4", (100, 40)),))
    assert (middle, merge) == (block(((100, 40), "<f4")), False)
    launch, after, _ = resolve(second, middle, table)
    assert launch == Launch((40,), (256,), 0, (In(""), Out(""), i4(100)), (Field("", "<f4", (40,)),))
    assert after == block(((40,), "<f4"))
    assert table.origins() == (ArgumentRef(0, "argument", 2),) and first.value(2).data == w.tobytes()
    assert (first.label, second.label) == ("exec gradient", "exec local_reduce")
    assert codec.decode(codec.encode(launch, Launch), Launch) == launch


def test_where_is_the_users_line():
    spec = record(K.map, IN, OUT)
    name, _, line = spec.where.rpartition(":")
    assert name == __file__
    assert "record_exec(kernel, args" in Path(__file__).read_text(encoding="utf-8").splitlines()[int(line) - 1]


def test_arrays_are_copied_at_the_call():
    w = np.arange(40.0)
    spec = record(K.gradient, IN, OUT, w, 5)
    w -= 1
    assert spec.arguments[2] == ArrayValue.of(np.arange(40.0), "w")


def test_big_endian_and_strided_arrays_are_made_native():
    w = np.arange(80, dtype=">f8")[::2]
    value = record(K.gradient, IN, OUT, w, 5).arguments[2]
    assert (value.dtype, value.data) == ("<f8", np.arange(0, 80, 2, dtype="<f8").tobytes())


def test_the_number_of_arguments():
    with pytest.raises(LaunchError) as caught:
        record(K.gradient, IN, OUT, np.ones(2), grid=1, block=1)
    assert str(caught.value) == (
        "gradient takes 4 arguments and is given 3 [operation exec gradient]\n"
        "  declared: __global__ void gradient(const float* points, float* out, const double* w, int n)\n"
        "  given:    (IN, OUT, float64 array (2,))")


def test_what_the_source_does_not_settle_is_not_checked():
    assert len(record(K.open, IN, 1, 2.0, np.float64(3)).arguments) == 4
    assert launch_of(record(K["any<float*>"], IN, OUT)).arguments == (In(""), Out(""))


@pytest.mark.parametrize("kernel, words", [(K, "name it, as in kernels.gradient"), (len, "for a Python function"),
                                           ("gradient", "takes a kernel of Kernels")])
def test_what_is_no_kernel(kernel, words):
    with pytest.raises(LaunchError, match=words):
        record(kernel, IN, OUT)


# -- recording: out=, grid=, block=, shared= --------------------------------------------------------------------------

@pytest.mark.parametrize("grid", [0, -1, (), (1, 1, 1, 1), 1.5, "1", None, (1, 0), True, (1, 65536), 2**31, ((1,), 1)])
def test_grids_that_are_none(grid):
    with pytest.raises(LaunchError, match="grid="):
        record(K.map, IN, OUT, grid=grid)
    with pytest.raises(LaunchError, match=r"grid=.*\(returned by the function given as grid=, for the block float32"):
        launch_of(record(K.map, IN, OUT, grid=lambda b: grid))


@pytest.mark.parametrize("threads", [0, 1025, (32, 33), (1, 1, 65), 2.0, (2, 2, 2, 2)])
def test_blocks_that_are_none(threads):
    with pytest.raises(LaunchError, match="block="):
        record(K.map, IN, OUT, block=threads)
    with pytest.raises(LaunchError, match="block="):
        launch_of(record(K.map, IN, OUT, block=lambda b: threads))


@pytest.mark.parametrize("shared", [-1, 1.5, None, 2**31])
def test_shared_memory_that_is_none(shared):
    with pytest.raises(LaunchError, match="shared="):
        record(K.map, IN, OUT, shared=shared)
    with pytest.raises(LaunchError, match="shared="):
        launch_of(record(K.map, IN, OUT, shared=lambda b: shared))


def test_geometry_from_values_extents_and_functions():
    for grid, block_, shared in [((1, 25), (32, 2), 1024), ([np.int64(1), 25], [32, 2], np.int32(1024)),
                                 ((-(-IN.shape[0] // 128), IN.shape[0] // 4), (IN.shape[0] - 68, 2), IN.shape[0] + 924),
                                 (lambda b: (1, b.shape[0] // 4), lambda b: [32, b.ndim], lambda b: b.shape[0] + 924)]:
        launch = launch_of(record(K.map, IN, OUT, grid=grid, block=block_, shared=shared))
        assert (launch.grid, launch.block, launch.shared) == ((1, 25), (32, 2), 1024)
    with pytest.raises(LaunchError, match="grid= has 0"):
        launch_of(record(K.map, IN, OUT, grid=IN.shape[0] // 128))


@pytest.mark.parametrize("out", [(3,), "f4", ((3,), "f4", 1), [(3,), "f4"], ((3,), "wrong"), ((3,), "O"), ((-1,), "f4"),
                                 ((1.5,), "f4"), ("3", "f4"), {}, {"": ((3,), "f4")}, {1: ((3,), "f4")}, {"a": 3},
                                 ((True,), "f4"), 7])
def test_out_that_is_malformed(out):
    with pytest.raises(LaunchError, match="out="):
        record(K.map, IN, OUT, out=out)
    with pytest.raises(LaunchError, match="returned by the function given as out="):
        launch_of(record(K.map, IN, OUT, out=lambda b: out))


@pytest.mark.parametrize("out, shape", [(None, (100, 41)), ((7, "f4"), (7,)), (((), np.float32), ()),
                                        (([2, np.int64(3)], ">f4"), (2, 3)), (((IN.shape[0], 40), "f4"), (100, 40))])
def test_forms_of_out(out, shape):
    for given_out in (out, lambda b: out):
        assert launch_of(record(K.map, IN, OUT, out=given_out)).outputs == (Field("", "<f4", shape),)


def test_dtype_of_out_is_checked_against_the_kernel():
    with pytest.raises(LaunchError, match=r"`float\* y` takes float32, but OUT is float64"):
        launch_of(record(K.map, IN, OUT, out=(3, float)))


@pytest.mark.parametrize("args, out, words", [
    ((IN, OUT["a"]), (3, "f4"), r'is given OUT\["a"\], so out= is a dict'),
    ((IN, OUT), {"a": (3, "f4")}, r'is given OUT alone: write OUT\["a"\]'),
    ((IN, OUT["a"]), {"b": (3, "f4")}, r'is given OUT\["a"\], but out= has no \'a\''),
    ((IN, OUT["a"]), {"a": (3, "f4"), "b": (3, "f4")}, r"nothing would write it"),
])
def test_out_that_does_not_match_the_arguments(args, out, words):
    with pytest.raises(LaunchError, match=words.replace('"', "[\"']")):
        record(K.map, *args, out=out)
    with pytest.raises(LaunchError, match=words.replace('"', "[\"']")):
        launch_of(record(K.map, *args, out=lambda b: out))


def test_what_a_kernel_writes():
    with pytest.raises(LaunchError, match="OUT and OUT"):
        record(K["any<float*>"], OUT, OUT["a"])
    with pytest.raises(LaunchError, match="works in place on a copy of its input, and out= has nothing to say"):
        record(K.inplace, IN, 3, out=(3, "f4"))
    with pytest.raises(LaunchError, match="neither IN nor OUT"):
        record(K.nothing)
    with pytest.raises(LaunchError, match="would write nothing"):
        record(K.gradient, IN, np.ones(3, "f4"), np.ones(2), 3)
    with pytest.raises(LaunchError, match=r"`const float\* x` is const, but is given OUT"):
        record(K.map, OUT, IN)


# -- resolving --------------------------------------------------------------------------------------------------------

def test_in_place():
    launch, result, merge = resolve(record(K.inplace, IN, IN.size), POINTS, SlotTable())
    assert (launch.outputs, launch.arguments) == (POINTS.fields, (In(""), i4(4100)))
    assert (result, merge) == (POINTS, False)
    launch, result, merge = resolve(record(K.inplace, IN["z"], 7), FIELDS, SlotTable())
    assert launch.outputs == (FIELDS.fields[2],)
    assert (result, merge) == (FIELDS, True)


def test_fields_replace_and_add():
    spec = record(K.two, IN["x"], OUT["y"], OUT["v"], out={"v": (2, "f4"), "y": (IN["x"].shape[0], "f8")})
    launch, result, merge = resolve(spec, FIELDS, SlotTable())
    assert launch.outputs == (Field("v", "<f4", (2,)), Field("y", "<f8", (5,)))
    assert launch.arguments == (In("x"), Out("y"), Out("v"))
    assert merge
    assert result == Signature((FIELDS.fields[0], Field("y", "<f8", (5,)), FIELDS.fields[2], Field("v", "<f4", (2,))))


def test_fields_left_out_are_as_in_the_input():
    launch, result, merge = resolve(record(K.map, IN["x"], OUT["z"]), FIELDS, SlotTable())
    assert (launch.outputs, result, merge) == ((FIELDS.fields[2],), FIELDS, True)


def test_one_array_of_a_record_with_fields_and_fields_of_one_array():
    _, result, merge = resolve(record(K.map, IN["x"], OUT, out=(3, "f4")), FIELDS, SlotTable())
    assert (result, merge) == (block(((3,), "<f4")), False)
    _, result, merge = resolve(record(K.map, IN, OUT["a"], out={"a": (3, "f4")}), POINTS, SlotTable())
    assert (result, merge) == (block(a=((3,), "<f4")), False)


@pytest.mark.parametrize("spec, signature, words", [
    (record(K.map, IN, OUT), FIELDS, r"has the fields 'x', 'y', 'z'"),
    (record(K.map, IN, OUT, out=(3, "f4")), FIELDS, r"IN stands for a block that is one array; .* write IN\['x'\]"),
    (record(K.map, IN["w"], OUT, out=(3, "f4")), FIELDS, r'no IN\["w"\] in the block, which has the fields'),
    (record(K.map, IN["w"], OUT), POINTS, r'no IN\["w"\] in the block, which is one array: write IN'),
    (record(K.map, IN["x"], OUT["w"]), FIELDS, r'no counterpart of OUT\["w"\], it has the fields'),
    (record(K.map, IN, OUT["w"]), POINTS, r"it has no named fields: say with out="),
    (record(K.inplace, IN["w"], 3), FIELDS, r'no IN\["w"\]'),
    (record(K.map, IN["y"], OUT["x"]), FIELDS, r"`const float\* x` takes float32, but IN\[\"y\"\] .* is float64"),
    (record(K.map, IN, OUT), block(((3,), "<f8")), r"takes float32, but IN \(the block is float64 \(3,\)\) is float64"),
    (record(K.inplace, IN, IN.size), block(((3, 10**9), "<f4")),
     r"IN.size, is 3000000000, which `int n` does not hold"),
    (record(K.inplace, IN, IN.shape[1]), block(((3,), "<f4")), r"IN.shape\[1\] asks for an axis"),
    (record(K.inplace, IN, lambda b: b.shape[1]), block(((3,), "<f4")),
     r"argument 2 of inplace raised IndexError: tuple index out of range, for the block float32 \(3,\)"),
    (record(K.inplace, IN, lambda b: 1.5), POINTS, r"`int n` is given the Python float 1.5.*returned by the function"),
    (record(K.inplace, IN, lambda b: IN), POINTS, r"of type InSymbol"),
    (record(K.inplace, IN["x"], lambda b: b.shape[0]), FIELDS, r"raised PlanError: the block has the fields 'x'"),
    (record(K.map, IN, OUT, out=lambda b: (b["q"].shape, "f4")), POINTS, "given as out= raised PlanError: .* no field"),
    (record(K.map, IN, OUT, grid=lambda b: 1 // 0), POINTS, "grid= raised ZeroDivisionError"),
    (record(K.map, IN, OUT, grid=lambda b: lambda c: 1), POINTS, "returned another function"),
])
def test_blocks_that_do_not_fit(spec, signature, words):
    with pytest.raises(LaunchError, match=words) as caught:
        resolve(spec, signature, SlotTable())
    assert caught.value.place.operation == spec.label
    assert re.search(r"called at \S*test_launch.py:\d+", caught.value.detail)


def test_the_users_error_is_the_cause():
    def grid(b):
        raise KeyError("mine")

    with pytest.raises(LaunchError) as caught:
        launch_of(record(K.map, IN, OUT, grid=grid))
    assert isinstance(caught.value.__cause__, KeyError)


def test_functions_among_the_arguments():
    table = SlotTable()
    spec = record(K.gradient, IN, OUT, lambda b: np.full(3, b.shape[1], ">f8"), lambda b: b.size)
    launch, _, _ = resolve(spec, POINTS, table)
    assert launch.arguments[2:] == (ArrayArgument(0), i4(4100))
    assert table.origins() == (ArrayValue.of(np.full(3, 41.0), "w"),)
    big = launch_of(record(K["any<float*>"], IN, lambda b: np.int64(b.size)), block(((3, 10**9), "<f4")))
    assert big.arguments[1] == ScalarArgument("<i8", np.int64(3 * 10**9).tobytes())


@pytest.mark.parametrize("shape, grid", [((0, 41), ()), ((0,), ())])
def test_an_empty_result_needs_no_launch(shape, grid):
    empty = block((shape, "<f4"))
    spec = record(K.map, IN, OUT, grid=lambda b: -(-b.shape[0] // 128))
    assert launch_of(spec, empty).grid == grid
    assert launch_of(record(K.map, IN, OUT, grid=-(-IN.shape[0] // 128)), empty).grid == grid
    with pytest.raises(LaunchError, match="grid= has 0"):
        launch_of(record(K.map, IN, OUT, out=(3, "f4"), grid=lambda b: -(-b.shape[0] // 128)), empty)


class Counting:
    calls = 0

    def __call__(self, b):
        self.calls += 1
        return b.shape, "f4"


def test_functions_run_once_for_a_kind_of_block():
    out = Counting()
    spec = record(K.map, IN, OUT, out=out)
    for signature, calls in [(POINTS, 1), (POINTS, 1), (block(((3,), "<f4")), 2), (POINTS, 2)]:
        resolve(spec, signature, SlotTable())
        assert out.calls == calls


# -- identity ---------------------------------------------------------------------------------------------------------

def gradient_call(w, n=5, grid=None):
    return record(K.gradient, IN, OUT, w, n, grid=grid or (lambda b: b.shape[0]))


def test_a_shape_key_excludes_the_arguments_values():
    one, other = gradient_call(np.zeros(3)), gradient_call(np.ones(3), 6)
    assert one != other
    assert one == gradient_call(np.zeros(3))
    assert one.shape_key() == other.shape_key()
    assert hash(one.shape_key()) == hash(other.shape_key())
    for different in (gradient_call(np.zeros(4)), gradient_call(np.zeros(3), IN.shape[0]),
                      gradient_call(np.zeros(3), grid=2), gradient_call(np.zeros(3), grid=lambda b: b.shape[0] + 1),
                      record(K.map, IN, OUT)):
        assert one.shape_key() != different.shape_key()


def test_values_belong_to_the_call_and_not_to_the_launch():
    table = SlotTable()
    launches = set()
    for value in (1.0, 2.0):
        spec = gradient_call(np.full(3, value), int(value))
        launch, _, _ = resolve(spec, POINTS, table, 4)
        launches.add(launch)
        assert launch.arguments[2:] == (ArrayArgument(0), ValueArgument(1))
        assert table.origins() == (ArgumentRef(4, "argument", 2), ArgumentRef(4, "argument", 3))
        assert spec.value(2).data == np.full(3, value).tobytes()
        assert (spec.value(3).dtype, spec.value(3).data) == ("<i4", np.int32(value).tobytes())
    assert len(launches) == 1


def test_calls_travel():
    factor = 2
    spec = record(K.gradient, IN, OUT, np.zeros(3), lambda b: factor * b.shape[0], out=lambda b: (b.shape, "f4"))
    arrived = cloudpickle.loads(cloudpickle.dumps(spec))
    assert arrived == spec
    assert arrived.where == spec.where
    assert launch_of(arrived) == launch_of(spec)
    assert launch_of(arrived).arguments[3] == i4(200)


GLOBAL = 1
HELPER_ARRAY = np.zeros(2)


def helper(b):
    return GLOBAL + b.shape[0] + int(HELPER_ARRAY.sum())


def calls_helper(b):
    return helper(b)


def recursive(n):
    return 1 if n < 2 else n * recursive(n - 1)


def test_functions_keep_what_their_variables_were(monkeypatch):
    specs = []
    for step in range(3):
        specs.append(record(K.inplace, IN, lambda b: step + b.ndim))  # noqa: B023 - that it is bound late is the point
    assert [launch_of(spec).arguments[1] for spec in specs] == [i4(2), i4(3), i4(4)]
    values = {"n": [1]}
    changed = record(K.inplace, IN, lambda b: values["n"][0])
    values["n"][0] = 9
    assert launch_of(changed).arguments[1] == i4(1)
    through = record(K.inplace, IN, calls_helper)
    monkeypatch.setitem(globals(), "GLOBAL", 50)
    HELPER_ARRAY[:] = 1
    assert launch_of(through).arguments[1] == i4(101)
    assert launch_of(record(K.inplace, IN, calls_helper)).arguments[1] == i4(152)
    HELPER_ARRAY[:] = 0


def make(n):
    return lambda b, k=2, *, j=3: n


def test_functions_are_equal_by_code_and_captured_values():
    assert capture(make(1)) == capture(make(1))
    assert hash(capture(make(1))) == hash(capture(make(1)))
    values = [1, 2, 1.0, True, "1", (1,), [1], {"a": 1}, {1}, np.float32(1), np.ones(1), np.dtype("f4"), None, 0.0,
              -0.0, len, np, int, functools.partial(int, "1"), range(3), recursive, float("nan")]
    captured = [capture(make(value)) for value in values]
    assert len(set(captured)) == len(values)
    assert captured == [capture(make(value)) for value in values]
    assert capture(calls_helper) == capture(calls_helper)
    assert capture(recursive).function(5) == 120


class Holder:
    n = 1

    def grid(self, b):
        return self.n


def test_functions_of_objects_that_may_change_are_equal_to_themselves_only():
    holder = Holder()
    captured = capture(make(holder))
    assert captured == captured
    assert captured != capture(make(holder))
    assert capture(holder.grid) != capture(holder.grid)
    first = record(K.map, IN, OUT, grid=holder.grid)
    assert launch_of(first).grid == (1,)
    holder.n = 2
    assert launch_of(record(K.map, IN, OUT, grid=holder.grid)).grid == (2,)


def test_a_cell_that_is_still_empty():
    def before(b):
        return later

    captured = capture(before)
    assert captured == capture(before)
    later = 3
    with pytest.raises(LaunchError, match="raised NameError"):
        launch_of(record(K.map, IN, OUT, grid=captured.function))
    assert before(None) == later


# -- init= ------------------------------------------------------------------------------------------------------------

OUTS = {"y": (3, "f8"), "z": (2, "f4")}


@pytest.mark.parametrize("init, out, initial", [
    (None, None, ()),
    (0, None, (bytes(4),)),
    (-0.0, None, (np.float32(-0.0).tobytes(),)),
    (float("nan"), (3, "f4"), (np.float32("nan").tobytes(),)),
    (True, (3, "u1"), (b"\1",)),
    (np.int64(-1), (3, "i2"), (b"\xff\xff",)),
    (1j, (3, "c8"), (np.complex64(1j).tobytes(),)),
])
def test_forms_of_init(init, out, initial):
    kernel = K["any<void*>"]
    assert launch_of(record(kernel, IN, OUT, out=out, init=init)).initial == initial


def test_init_by_field():
    for init, initial in [({"y": 1.5}, (np.float64(1.5).tobytes(), b"")), ({"z": -1}, (b"", np.float32(-1).tobytes())),
                          (2, (np.float64(2).tobytes(), np.float32(2).tobytes())), ({}, ())]:
        spec = record(K.two, IN["x"], OUT["y"], OUT["z"], out=OUTS, init=init)
        assert launch_of(spec, FIELDS).initial == initial


@pytest.mark.parametrize("init, words", [("0", "init= is '0'"), ([0], "init= is"), ({"y": None}, "for 'y' is None"),
                                         (np.str_("a"), "is to be a number"), ({"x": 0}, r"init= has 'x'; .* OUT..y")])
def test_init_that_is_none(init, words):
    with pytest.raises(LaunchError, match=words):
        record(K.two, IN["x"], OUT["y"], OUT["z"], out=OUTS, init=init)


@pytest.mark.parametrize("init, dtype", [(256, "u1"), (-1, "u4"), (0.5, "i4"), (float("nan"), "i8"), (2, "?"),
                                         (1j, "f4"), (1e300, "f4"), (10**30, "i8")])
def test_init_that_the_output_does_not_hold(init, dtype):
    spec = record(K["any<void*>"], IN, OUT, out=(3, dtype), init=init)
    with pytest.raises(LaunchError, match=f"init= is .*, which OUT of {np.dtype(dtype).name} does not hold"):
        launch_of(spec)


def test_init_without_an_output():
    with pytest.raises(LaunchError, match="init= has nothing to fill"):
        record(K.inplace, IN, 3, init=0)
