"""The intermediate form and kernels as values: equal by content, hashable, picklable, fixed at the call."""

from __future__ import annotations

import dataclasses
import pickle
import runpy
from pathlib import Path

import numpy as np
import pytest

from gpu_worker.device.base import Source
from gpu_worker.device.cuda.nvrtc import compile_cubin
from tests.golden.case import F32, rows
from tests.golden.harness import difference, launch, plain, translated
from vispark.translate import (
    ElementField,
    ElementSpec,
    Function,
    TracedCall,
    fuse,
    specialise,
    stencil,
    trace,
    translate,
)
from vispark.translate.ir.errors import TranslationError

FLOAT = ElementSpec((ElementField("", "float32"),))


def closure(step, table):
    return lambda x: x * step + table[0]


def other_closure(step, table):
    # The same code at another place.
    return lambda x: x * step + table[0]


def shaped(n):
    return lambda x: x * len(np.zeros(n))


def test_equal_code_and_values_make_equal_functions():
    table = np.float32([1, 2])
    one, same = trace(closure(0.5, table)), trace(closure(0.5, table.copy()))
    assert one == same and hash(one) == hash(same)
    assert one == trace(other_closure(0.5, table))
    assert one != trace(closure(0.25, table))
    assert one.definition == trace(closure(0.25, table)).definition
    assert one != trace(closure(0.5, table.astype("f8")))


@pytest.mark.parametrize(("one", "other"), [
    (lambda x: x + 1, lambda x: x + 1.0), (lambda x: x + 1, lambda x: x + True),
    (lambda x: x * 0.0, lambda x: x * -0.0), (lambda x: x + 1, lambda x: x - 1)])
def test_other_code_makes_other_functions(one, other):
    assert trace(one) != trace(other)


def test_functions_and_kernels_pickle():
    function = trace(closure(0.5, np.float32([1, 2])))
    again = pickle.loads(pickle.dumps(function))
    assert isinstance(again, Function) and again == function and hash(again) == hash(function)
    kernel = specialise(again, FLOAT)
    assert pickle.loads(pickle.dumps(kernel)) == kernel == specialise(function, FLOAT)


def test_parts_are_frozen():
    function = trace(closure(0.5, np.float32([1, 2])))
    with pytest.raises(dataclasses.FrozenInstanceError):
        function.captures = ()


def test_captures_are_copied_when_the_function_is_traced():
    table = np.float32([1, 2])
    function = trace(closure(2.0, table))
    table[0] = 100
    calls = (TracedCall(function),)
    outputs, = launch(fuse(calls, FLOAT), calls, (F32[:3],))
    assert outputs[""].tolist() == [1, 1, 3]


def test_other_values_of_arguments_and_captures_give_the_same_kernel():
    kernels = {specialise(trace(closure(step, np.float32([step, 2]))), FLOAT) for step in (0.5, 0.25, 3.0)}
    assert len(kernels) == 1
    assert len({specialise(trace(lambda x, k, w: x * k + w[1], args), FLOAT, args)
                for args in ((1.5, np.zeros(3)), (2.5, np.ones(3)))}) == 1


def test_ints_that_shape_the_code_are_compiled_in():
    assert len({specialise(trace(shaped(n)), FLOAT) for n in (2, 3)}) == 2
    assert all(parameter.kind != "capture" for parameter in specialise(trace(shaped(2)), FLOAT).parameters)


WINDOW = 3


def test_an_int_that_an_expression_makes_a_length_of_is_compiled_in_and_no_other():
    def shortened(p, w, k):
        n = len(p) - w // 2
        return np.zeros(n) + p[0] * k + WINDOW

    def moved(p, w):
        return p[w + 1] * (w if w > 1 else w - 1)

    row = ElementSpec((ElementField("", "f4", (8,)),))
    kernels = {args: specialise(trace(shortened, args), row, args) for args in ((4, 7), (4, 9), (6, 7))}
    assert kernels[4, 7] == kernels[4, 9] != kernels[6, 7]
    assert [(each.kind, each.number) for each in kernels[4, 7].parameters[2:]] == [("capture", 0), ("argument", 1)]
    assert len({specialise(trace(moved, (w,)), row, (w,)) for w in (1, 2, 3)}) == 1


@pytest.mark.parametrize("changed", ["if p[0] > 0: n = n + 1", "for i in range(2): n = n + 1", "n = int(p[0])",
                                     "n = n + int(p[0])"])
def test_a_length_that_data_changed_is_an_error_at_its_place(changed: str, tmp_path: Path):
    source = f"import numpy as np\n\n\ndef f(p, w):\n    n = len(p) - w\n    {changed}\n    return np.zeros(n)\n"
    path = tmp_path / "changed.py"
    path.write_text(source)
    function = runpy.run_path(str(path))["f"]
    with pytest.raises(TranslationError, match="the shape of an array must be known") as caught:
        specialise(trace(function, (2,)), ElementSpec((ElementField("", "f4", (8,)),)), (2,))
    assert (caught.value.line, caught.value.column) == (7, 12) and "NumPy integer" not in str(caught.value)


def test_the_parameters_order_and_the_values_for_them():
    record = ElementSpec((ElementField("x", "f8", (3,)), ElementField("y", "i4"), ElementField("unused", "f4")))
    step = np.float32(4)
    args = (2.5, np.arange(3), 7)
    function = trace(lambda y, k, x, w, dead: {"x": x * k + w * step, "z": y}, args)
    kernel = specialise(function, record, args)
    assert [(p.kind, p.name, p.number, p.dtype, p.shape, p.pointer) for p in kernel.parameters] == [
        ("input", "x", 0, "float64", (3,), True), ("input", "y", 0, "int32", (), True),
        ("output", "x", 0, "float64", (3,), True), ("output", "z", 0, "int32", (), True),
        ("capture", "", 0, "float32", (), False), ("argument", "", 0, "float64", (), False),
        ("argument", "", 1, "int64", (3,), True)]
    capture, scalar, array = kernel.values((TracedCall(function, args),))
    assert (capture, scalar, array.tolist()) == (step, 2.5, [0, 1, 2])
    assert capture.dtype == np.float32 and scalar.dtype == np.float64
    assert [(output.name, output.dtype, output.shape) for output in kernel.outputs] == [
        ("x", "float64", (3,)), ("z", "int32", ())]
    assert kernel.structure.kind == "dict" and kernel.structure.names == ("x", "z")


def test_outputs_say_which_python_numbers_they_are():
    kernel = specialise(trace(lambda x: (1, 2.5, x > 0, True, x, (x, 1j))), FLOAT)
    assert [output.number for output in kernel.outputs] == ["int", "float", "", "bool", "", "", "complex"]
    assert [output.name for output in kernel.outputs] == ["0", "1", "2", "3", "4", "5.0", "5.1"]


def test_blocks_are_seen_without_their_leading_axis():
    record = ElementSpec((ElementField("", "float64", (4,)),), kind="blocks")
    assert specialise(trace(lambda p: p[1:]), record).outputs[0].shape == (3,)


@pytest.mark.parametrize("count", [0, 1, 2, 127, 128, 129, 1000])
@pytest.mark.parametrize("staged", [False, True])
def test_any_number_of_elements(count: int, staged: bool):
    data = rows(count, 6)
    expected = plain(lambda p: (p[1:] * p[0], p[2] > 0), data)
    results = translated(lambda p: (p[1:] * p[0], p[2] > 0), data, staged=staged)
    assert len(results) == count
    assert not "".join(difference(one, other) for one, other in zip(expected, results, strict=True))


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "float16", "float64", "complex128"])
@pytest.mark.parametrize("length", [1, 2, 7, 64])
def test_rows_of_all_sizes_through_shared_memory(dtype: str, length: int):
    data = rows(130, length, "int8").astype(dtype)
    results = translated(lambda p: p[::-1], data, staged=True)
    assert np.array_equal(np.array(results), data[:, ::-1])


def test_an_index_outside_ends_the_kernel():
    source = translate(lambda p, i: p[i], 3, record=ElementSpec((ElementField("", "f4", (4,)),)))
    assert "checked_index<4>(i_1, 0x" in source and "__trap()" in source
    # What a worker fills in, so that the kernel says which subscript it was.
    for arch in ("sm_80", "sm_90a"):
        assert b"\0vispark_report\0" in compile_cubin(Source(source, "p.cu"), "lambda_kernel", arch).code


def test_a_stencil_is_the_plain_function_when_called():
    @stencil
    def shift(u):
        return u[0] + u[1]

    assert shift(np.arange(3)) == 1 and repr(shift).startswith("stencil ")
    function = trace(shift)
    assert function.definition.halo == ((0, 1),) and pickle.loads(pickle.dumps(function)) == function


def test_lambdas_that_only_return_a_constant_are_told_apart():
    """Python 3.12 does not say where in a line their code stands."""
    one, row, product, other = (lambda p: 1), (lambda p: (3, 1)), (lambda p: 2 * 3), (lambda q: 4 * 5)
    results = [translated(each, np.float32([1, 2])) for each in (one, row, product, other)]
    assert results == [[1, 1], [(3, 1), (3, 1)], [6, 6], [20, 20]]
