"""Chains and folds as one kernel: what separate kernels, and NumPy, give."""

from __future__ import annotations

import functools
import operator

import numpy as np
import pytest
from numpy import dot, exp

from gpu_worker.protocol.messages import Field, FieldFold
from tests.golden.case import rows
from tests.golden.harness import AS_ON_GPU, difference, launch, parted, record_of, translated
from vispark.plan.fold import fold_for_kernel
from vispark.plan.fold.row_folds import along
from vispark.translate import TranslationError, trace
from vispark.translate.codegen.scalar.interface import TracedCall
from vispark.translate.fusion import fuse
from vispark.translate.ir.folding import Folding

pytestmark = pytest.mark.slow

WAYS = [pytest.param((), id="host"), pytest.param(AS_ON_GPU, id="gpu")]
UFUNCS = {"add": np.add, "multiply": np.multiply, "minimum": np.minimum, "maximum": np.maximum, "and": np.bitwise_and,
          "or": np.bitwise_or, "xor": np.bitwise_xor}


def calls_of(*functions) -> tuple[TracedCall, ...]:
    """Return a chain of functions, each with its arguments behind it in a tuple where it has some."""
    pairs = [function if isinstance(function, tuple) else (function,) for function in functions]
    return tuple(TracedCall(trace(function, args), args) for function, *args in pairs for args in [tuple(args)])


def chained(*functions, data, options=(), wanted=None) -> dict[str, np.ndarray]:
    """Return the outputs of a chain's kernel."""
    calls = calls_of(*functions)
    kernel = fuse(calls, record_of(data), wanted=wanted)
    works = launch(kernel, calls, parted(data), options=options, tiles=2)
    return {output.name: np.concatenate([each[output.name] for each in works]) for output in kernel.outputs}


def folded(*functions, data, folds, options=(), key="", groups=0) -> dict[str, np.ndarray]:
    """Return the fold of a chain's results, joined over all works."""
    calls = calls_of(*functions)
    kernel = fuse(calls, record_of(data), folding=Folding(tuple(folds), key, groups))
    works = launch(kernel, calls, parted(data), options=options, tiles=2)
    joined = {}
    for one in kernel.accumulated:
        name = f"{one.field} {one.guard}".strip()
        parts = [each[name]["sum"] + each[name]["lost"] if one.accumulator == "Twofold" else each[name]
                 for each in works]
        joined[name] = functools.reduce(UFUNCS[one.operator], parts)
    return joined


def gradient(p, w):
    y, x = p[0], p[1:]
    return (1 / (1 + exp(-y * dot(w, x))) - 1) * y * x


# -- chains -----------------------------------------------------------------------------------------------------------

def third(x):
    return x / 3


def doubled(x):
    return x * 2.0


def pair(p):
    return p[0] > 0, (p * 0.1, 1)


@pytest.mark.parametrize("options", WAYS)
def test_a_chain_rounds_where_an_array_would_be_between(options: tuple[str, ...]):
    data = rows(37, 5, "float16")
    result = chained(lambda p: p * 1.1, third, doubled, data=data, options=options)[""]
    between = np.array(translated(lambda p: p * 1.1, data))
    expected = np.array(translated(doubled, np.array(translated(third, between))))
    assert result.dtype == np.float16
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("options", WAYS)
def test_a_number_of_pythons_is_numpys_behind_the_boundary(options: tuple[str, ...]):
    data = rows(20, 1, "float32")[:, 0]
    result = chained(lambda x: 7 if x > 0 else -7, lambda n: n // 2 * np.float32(0.5), data=data, options=options)[""]
    np.testing.assert_array_equal(result, np.where(data > 0, 7, -7).astype(np.int64) // 2 * np.float32(0.5))
    assert result.dtype == np.float64


@pytest.mark.parametrize("options", WAYS)
def test_fields_pass_through_a_chain(options: tuple[str, ...]):
    data = {"x": rows(30, 4), "v": rows(30, 4, seed=2), "m": rows(30, 1, seed=3)[:, 0]}
    fields = chained((lambda x, v, dt: {"x": x + v * dt}, 0.5), lambda x, m: {"e": m * np.sum(x * x)},
                     data=data, options=options)
    x = data["x"] + data["v"] * np.float32(0.5)
    assert set(fields) == {"x", "e"}
    np.testing.assert_allclose(fields["x"], x, rtol=1e-6)
    np.testing.assert_allclose(fields["e"], data["m"] * np.sum(x * x, axis=1), rtol=1e-5)


def test_what_is_not_wanted_is_neither_computed_nor_read():
    data = {"x": rows(30, 4), "v": rows(30, 4, seed=2), "m": rows(30, 1, seed=3)[:, 0]}
    calls = calls_of(lambda x, v: {"x": x * 2, "k": np.sum(v * v)}, lambda x, m: {"e": m * x[0]})
    kernel = fuse(calls, record_of(data), wanted=frozenset({"e"}))
    assert [output.name for output in kernel.outputs] == ["e"]
    assert [one.name for one in kernel.parameters] == ["x", "m", "e"]
    result = launch(kernel, calls, (data,))[0]["e"]
    np.testing.assert_array_equal(result, data["m"] * (data["x"][:, 0] * 2))


def test_a_dict_after_a_tuple_keeps_nothing_of_the_input():
    calls = calls_of(lambda p: p[0], lambda x: {"y": x + 1})
    kernel = fuse(calls, record_of(rows(3, 2)))
    assert (kernel.merge, [output.name for output in kernel.outputs]) == (False, ["", "y"])


def test_a_chain_tells_which_function_has_no_such_field():
    with pytest.raises(TranslationError, match="no parameter of doubled is named after a field"):
        fuse(calls_of(lambda p: {"a": p[0]}, doubled), record_of({"p": rows(3, 2)}))


def test_a_function_gets_the_tuple_that_the_one_before_it_gives():
    data = rows(30, 4)
    fields = chained(pair, lambda t: (t[0] + t[1][1], t[1][0][1:]), data=data)
    np.testing.assert_array_equal(fields["0"], (data[:, 0] > 0) + 1)
    np.testing.assert_array_equal(fields["1"], data[:, 1:] * np.float32(0.1))
    # What a worker holds of such records has their items as fields.
    fields = chained(lambda t: {"s": t[0] * np.sum(t[1][0])}, data={"0": data[:, 0], "1.0": data})
    assert list(fields) == ["s"]
    np.testing.assert_allclose(fields["s"], data[:, 0] * data.sum(axis=1), rtol=1e-5)
    with pytest.raises(TranslationError, match="a tuple"):
        fuse(calls_of(pair, doubled), record_of(data))


@pytest.mark.parametrize("options", WAYS)
def test_functions_with_several_ways_in_a_chain(options: tuple[str, ...]):
    def stepped(x):
        if x > 0:
            return x * 2
        for i in range(5):
            if x * i < -1:
                return x - i
        return x

    def after(x):
        return x + 1 if x < 3 else x

    data = rows(50, 1, "float64")[:, 0]
    result = chained(stepped, after, data=data, options=options)[""]
    np.testing.assert_array_equal(result, [after(stepped(x)) for x in data])


# -- rows by several lanes --------------------------------------------------------------------------------------------

def softmax(p):
    e = np.exp(p - np.max(p))
    return e / np.sum(e)


@pytest.mark.parametrize("options", WAYS)
@pytest.mark.parametrize("length", [65, 100, 784])
def test_long_rows(length: int, options: tuple[str, ...]):
    data = rows(23, length)
    data[3, 7], data[4, length - 1], data[5] = np.nan, np.inf, 2
    with np.errstate(all="ignore"):
        e = np.exp(data - data.max(axis=1, keepdims=True))
        expected = {"0": data.argmax(axis=1), "1": data.argmin(axis=1), "2": np.linalg.norm(data, axis=1),
                    "3": e / e.sum(axis=1, keepdims=True), "4": data.min(axis=1), "5": data.mean(axis=1),
                    "6": data.std(axis=1), "7": (data > 2).any(axis=1), "8": data[:, 1:] - data[:, :-1],
                    "9": data[:, ::-1] * data[:, :1]}
        fields = chained(lambda p: (np.argmax(p), np.argmin(p), np.linalg.norm(p), softmax(p), np.min(p), np.mean(p),
                                    np.std(p), np.any(p > 2), p[1:] - p[:-1], p[::-1] * p[0]), data=data,
                         options=options)
    for name, values in expected.items():
        assert fields[name].dtype == values.dtype
        np.testing.assert_allclose(fields[name], values, rtol=2e-5, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("options", WAYS)
def test_matrices_along_long_rows(options: tuple[str, ...]):
    m, data = rows(3, 100, seed=5), rows(11, 100)
    fields = chained((lambda p, m: (m @ p, np.argmin(np.sum((m - p) ** 2, axis=1)), np.outer(p, m[0][:2])), m),
                     data=data, options=options)
    np.testing.assert_allclose(fields["0"], data @ m.T, rtol=2e-5, atol=1e-5)
    np.testing.assert_array_equal(fields["1"], ((data[:, None] - m) ** 2).sum(axis=2).argmin(axis=1))
    np.testing.assert_array_equal(fields["2"], data[:, :, None] * m[0][:2])


def of_tables(b, m):
    return (b.T, np.sum(b, axis=0), np.argmax(b, axis=1), b[1:] - b[:-1], np.max(b), np.argmin(b), b[:, 3:4] * b[0, 0],
            b @ m, np.dot(m.T, b[2]), np.where(b > 0, b, 0), b.astype(np.float64) / 3, np.any(b > 2, axis=1))


def of_branches_and_loops(p, w):
    best, where = np.inf, 0
    for k in range(5):
        d = np.sum((p - w[k]) ** 2)
        if d < best:
            best, where = d, k
    e = p * where
    if best > 380:
        e = e + np.sum(p)
    acc = np.zeros(200, np.float32)
    for k in range(3):
        acc += w[k] * p[k]
    s = np.zeros(3, np.float32)
    s[1] = np.max(e)
    s[2] = np.mean(acc)
    return e, acc, s, where


@pytest.mark.parametrize("options", WAYS)
@pytest.mark.parametrize(("function", "shape", "arg"), [
    pytest.param(of_tables, (12, 15), (15, 7), id="tables"),
    pytest.param(of_branches_and_loops, (200,), (5, 200), id="branches")])
def test_what_lanes_do_together(function, shape: tuple[int, ...], arg: tuple[int, int], options: tuple[str, ...]):
    data, matrix = rows(20, int(np.prod(shape))).reshape(20, *shape), rows(*arg, seed=3)
    fields = chained((function, matrix), data=data, options=options)
    for number, element in enumerate(data):
        for part, expected in enumerate(function(element, matrix)):
            np.testing.assert_allclose(fields[str(part)][number], expected, rtol=3e-5, atol=1e-4, err_msg=str(part))


@pytest.mark.parametrize("options", WAYS)
def test_long_rows_that_are_gone_along_step_by_step(options: tuple[str, ...]):
    def running(p):
        out, total = np.zeros(len(p), np.float32), np.float32(0)
        for i in range(len(p)):
            total = total + p[i]
            out[i] = total
        return out

    data = rows(40, 100, "int16").astype("float32")
    np.testing.assert_array_equal(chained(running, data=data, options=options)[""], np.cumsum(data, axis=1))


@pytest.mark.parametrize("options", WAYS)
def test_rows_too_long_for_shared_memory(options: tuple[str, ...]):
    data = rows(3, 60_000)
    fields = chained(lambda p: (np.sum(p), p * 2), data=data, options=options)
    np.testing.assert_allclose(fields["0"], data.sum(axis=1, dtype="f8"), rtol=1e-3, atol=1e-2)
    np.testing.assert_array_equal(fields["1"], data * 2)


# -- folds ------------------------------------------------------------------------------------------------------------

def test_how_a_sum_of_floats_is_taken():
    kernel = fuse(calls_of((gradient, np.zeros(40, "f4"))), record_of(rows(2, 41)),
                  folding=Folding((FieldFold("", "add"),)))
    one, = kernel.accumulated
    assert (one.operator, one.accumulator, one.width, one.guard) == ("add", "double", 40, "")


@pytest.mark.parametrize("options", WAYS)
@pytest.mark.parametrize("length", [9, 41, 100])
def test_the_gradient_of_logistic_regression(length: int, options: tuple[str, ...]):
    w = rows(1, length - 1, seed=7)[0]
    for count in (1, 31, 700):
        data = rows(count, length)
        data[:, 0] = np.sign(data[:, 0])
        sums = folded((gradient, w), data=data, folds=[FieldFold("", "add")], options=options)[""]
        y, x = data[:, :1].astype("f8"), data[:, 1:].astype("f8")
        expected = ((1 / (1 + np.exp(-y * (x @ w)[:, None])) - 1) * y * x).sum(axis=0)
        np.testing.assert_allclose(sums, expected, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("options", WAYS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "int32", "int64", "uint16", "uint64", "bool"])
def test_operators(dtype: str, options: tuple[str, ...]):
    kind = np.dtype(dtype).kind
    operators = [by for by in UFUNCS if kind != "f" or by not in ("and", "or", "xor")]
    data = rows(300, 3, "float64") > 0 if dtype == "bool" else rows(300, 3, dtype)
    if kind == "f":
        data = 1 + data / 300
    fields = {f"{by}_{shape}": data if shape == "rows" else data[:, 0].copy() for by in operators
              for shape in ("rows", "numbers")}
    folds = folded(lambda add_rows: {"add_rows": add_rows}, data=fields, options=options,
                   folds=[FieldFold(name, name.partition("_")[0]) for name in fields])
    for name, values in fields.items():
        with np.errstate(all="ignore"):
            expected = UFUNCS[name.partition("_")[0]].reduce(values, axis=0, dtype="f8" if kind == "f" else dtype)
        np.testing.assert_allclose(folds[name].astype("f8" if kind == "f" else dtype), np.atleast_1d(expected),
                                   rtol=1e-6 if dtype == "float32" else 1e-13 if kind == "f" else 0, err_msg=name)


@pytest.mark.parametrize("options", WAYS)
def test_a_sum_of_doubles_keeps_what_rounding_takes(options: tuple[str, ...]):
    data = np.array([1e17, 1.0, -1e17, 1.0] * 64)
    assert folded(lambda x: x, data=data, folds=[FieldFold("", "add")], options=options)[""] == 128


@pytest.mark.parametrize("options", WAYS)
def test_sums_of_floats_are_at_least_as_good_as_pairwise_ones(options: tuple[str, ...]):
    data = np.random.default_rng(5).random(100_000).astype("f4")
    exact = data.sum(dtype="f8")
    total = folded(lambda x: x, data=data, folds=[FieldFold("", "add")], options=options)[""]
    assert abs(total - exact) <= abs(float(data.sum()) - exact) + 1e-8 * exact


@pytest.mark.parametrize("options", WAYS)
def test_guards(options: tuple[str, ...]):
    data = {"n": np.array([5, -7, 3, 2] * 20), "x": np.array([1.0, np.nan, 3.0, 0.5] * 20)}
    folds = folded(lambda n, x: {"n": n, "x": x}, data=data, options=options,
                   folds=[FieldFold("n", "add", "overflow"), FieldFold("x", "minimum", "nan")])
    assert (folds["n"], folds["n overflow"], folds["x nan"]) == (60, 340, 20)
    folds = folded(lambda n: {"n": n}, data={"n": np.array([5, -7, 0, 2])}, options=options,
                   folds=[FieldFold("n", "multiply", "overflow")])
    assert (folds["n"], folds["n overflow"]) == (0, 70)


@pytest.mark.parametrize("options", WAYS)
def test_fields_that_no_function_touches_are_folded_too(options: tuple[str, ...]):
    data = {"x": rows(30, 4), "k": rows(30, 2, "int32", seed=2)}
    folds = folded(lambda x: {"x": x * 2}, data=data, folds=[FieldFold("", "maximum")], options=options)
    np.testing.assert_array_equal(folds["k"], data["k"].max(axis=0))
    np.testing.assert_array_equal(folds["x"], (data["x"] * 2).max(axis=0))


@pytest.mark.parametrize("options", WAYS)
def test_several_parts_of_different_widths(options: tuple[str, ...]):
    data = rows(500, 70)
    folds = folded(lambda p: (p, (np.sum(p), 1), p[:3] > 0), data=data, options=options,
                   folds=[FieldFold("0", "add"), FieldFold("1.0", "maximum"), FieldFold("1.1", "add"),
                          FieldFold("2", "or")])
    np.testing.assert_allclose(folds["0"], data.sum(axis=0, dtype="f8"), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(folds["1.0"], data.sum(axis=1).max(), rtol=1e-5)
    assert folds["1.1"] == 500
    np.testing.assert_array_equal(folds["2"], [1, 1, 1])


def test_what_has_no_fold_in_a_kernel():
    for data, by in ((rows(3, 2, "float16"), "add"), (rows(3, 2, "complex64"), "add"), (rows(3, 2), "xor")):
        with pytest.raises(TranslationError, match=f"there is no fold {by} of {data.dtype}"):
            fuse(calls_of(lambda p: p), record_of(data), folding=Folding((FieldFold("", by),)))
    with pytest.raises(TranslationError, match="does not say how to fold the field '1'"):
        fuse(calls_of(lambda p: (p, 1)), record_of(rows(3, 2)), folding=Folding((FieldFold("0", "add"),)))


# -- folds by key -----------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("options", WAYS)
@pytest.mark.parametrize(("length", "groups"), [(2, 3), (5, 10), (65, 10), (2, 1000), (65, 1500)])
def test_by_key(length: int, groups: int, options: tuple[str, ...]):
    data = rows(800, length)
    data[:, 0] = np.random.default_rng(4).integers(0, groups, 800)
    folds = folded(lambda p: (int(p[0]), (p[1:], 1)), data=data, options=options, key="0", groups=groups,
                   folds=[FieldFold("1.0", "add"), FieldFold("1.1", "add", "overflow")])
    keys = data[:, 0].astype(int)
    expected = np.zeros((groups, length - 1))
    np.add.at(expected, keys, data[:, 1:].astype("f8"))
    counts = np.bincount(keys, minlength=groups)
    np.testing.assert_allclose(folds["1.0"].reshape(groups, -1), expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(folds["0"], counts)
    np.testing.assert_array_equal(folds["1.1"], counts)
    np.testing.assert_array_equal(folds["1.1 overflow"], counts)
    assert (folds["0 least"], folds["0 greatest"]) == (keys.min(), keys.max())


@pytest.mark.parametrize("options", WAYS)
@pytest.mark.parametrize("dtype", ["int8", "uint64", "bool"])
def test_keys_of_any_integer_type(dtype: str, options: tuple[str, ...]):
    data = {"k": np.array([0, 1, 1, 0, 1] * 30, dtype), "x": np.arange(150.0)}
    folds = folded(lambda k, x: (k, x), data=data, options=options, key="0", groups=2,
                   folds=[FieldFold("1", "minimum")])
    np.testing.assert_array_equal(folds["1"], [0, 1])
    np.testing.assert_array_equal(folds["0"], [60, 90])


@pytest.mark.parametrize("options", WAYS)
def test_keys_out_of_range_are_told_and_left_out(options: tuple[str, ...]):
    data = {"k": np.array([0, -3, 2, 7, 2**40, 1]), "x": np.ones(6)}
    folds = folded(lambda k, x: (k, x), data=data, options=options, key="0", groups=3, folds=[FieldFold("1", "add")])
    np.testing.assert_array_equal(folds["1"], [1, 1, 1])
    assert (folds["0 least"], folds["0 greatest"]) == (-3, 2**40)


def test_too_many_groups_are_refused():
    with pytest.raises(TranslationError, match=r"100000000 groups take 1,600,000,016 bytes for each thread block"):
        fuse(calls_of(lambda k, x: (k, x)), record_of({"k": np.zeros(2, "i4"), "x": np.zeros(2, "f4")}),
             folding=Folding((FieldFold("1", "add"),), "0", 10**8))


def test_folds_are_the_same_bits_each_time():
    data = rows(3000, 5)
    results = [folded(lambda p: p * np.float32(0.1), data=data, folds=[FieldFold("", "add")], options=AS_ON_GPU)[""]
               for _ in range(3)]
    assert functools.reduce(operator.and_, [np.array_equal(results[0], each) for each in results])


def test_results_of_a_chain_do_not_depend_on_how_works_are_dealt():
    data = rows(700, 41)
    calls = calls_of(lambda p: p * 2 + p[0])
    kernel = fuse(calls, record_of(data))
    for tiles in (1, 3, 100):
        result = np.concatenate([each[""] for each in launch(kernel, calls, parted(data), options=AS_ON_GPU,
                                                             tiles=tiles)])
        assert not difference(data * 2 + data[:, :1], result, 2)


@pytest.mark.parametrize(("dtype", "ufunc"), [("<f4", np.add), ("<f8", np.add), ("<i2", np.multiply),
                                              ("<f4", np.minimum)])
def test_rows_that_are_folded_inside_behind_a_map(dtype: str, ufunc: np.ufunc):
    data = np.random.default_rng(3).normal(size=(40, 20), scale=1e4).astype(dtype)
    if dtype[1] == "f":
        data[0], data[1, 0], data[2, 3] = 1, np.inf, np.nan
        data[0, 0], data[0, -1] = (1e8, -1e8) if dtype == "<f4" else (1e17, -1e17)
    calls = calls_of(lambda p: p + p, along(fold_for_kernel(ufunc, ""), Field("", dtype, data.shape)))
    kernel = fuse(calls, record_of(data))
    outputs, = launch(kernel, calls, [data])
    wide = np.longdouble if dtype[1] == "f" else np.int64
    with np.errstate(all="ignore"):
        expected = ufunc.reduce(data + data, axis=1, dtype=wide).astype(dtype)
    np.testing.assert_allclose(outputs[""], expected, rtol=1e-15 if dtype == "<f8" else 1e-7, strict=True)
