"""Arguments of ``exec`` as the kernel's parameters take them."""

from __future__ import annotations

import numpy as np
import pytest

from gpu_worker.protocol.errors import LaunchError
from gpu_worker.protocol.messages import ArrayArgument, ScalarArgument, ValueArgument
from tests.unit.test_launch import K, block, f4, i4, launch_of, record
from vispark.plan.cuda_source import Kernels
from vispark.plan.symbols import IN, OUT

GOOD = (IN, True, np.int8(-1), np.int16(2), 3, np.uint32(4), np.int64(5), np.uint64(6), 7.0, np.float64(8))


def test_scalars_keep_their_values():
    spec = record(K.scalars, *GOOD)
    assert launch_of(spec).arguments[1:] == tuple(map(ValueArgument, range(9)))
    arguments = spec.arguments
    assert [np.frombuffer(one.value, one.dtype)[0] for one in arguments[1:]] == list(GOOD[1:])
    assert [one.dtype for one in arguments[1:]] == ["|b1", "|i1", "<i2", "<i4", "<u4", "<i8", "<u8", "<f4", "<f8"]


@pytest.mark.parametrize("position, value, words", [
    (1, 1, r"`bool b` is given the Python int 1: write bool\(x\)"),
    (2, 128, r"argument 3 of scalars is 128, which `char c` does not hold \(-128 to 127\)"),
    (2, 5.0, r"`char c` is given the Python float 5.0: write np.int8\(x\)"),
    (3, np.int8(1), r"`short s` is given the int8 1: write np.int16\(x\)"),
    (4, 1.0, r"`int i` is given the Python float 1.0: write np.int32\(x\)"),
    (4, True, r"`int i` is given the Python bool True"),
    (4, 2**31, r"argument 5 of scalars is 2147483648, which `int i` does not hold \(-2147483648 to 2147483647\)"),
    (5, -1, r"argument 6 of scalars is -1, which `unsigned u` does not hold \(0 to 4294967295\)"),
    (6, 2**63, r"is 9223372036854775808, which `long long l` does not hold"),
    (7, -1, r"is -1, which `size_t z` does not hold"),
    (8, np.float64(1), r"`float f` is given the float64 1.0: write np.float32\(x\)"),
    (8, 1e300, r"argument 9 of scalars is 1e\+300, more than `float f` holds"),
    (8, 2**24 + 1, r"is 16777217, which `float f` does not hold exactly: write np.float32\(x\)"),
    (8, IN.shape, r"argument 9 of scalars is IN.shape: an argument is one extent"),
    (1, IN.size, r"`bool b` is given IN.size: write bool\(x\)"),
    (9, 10**400, r"more than `double d` holds"),
    (9, np.float32(8), r"write np.float64\(x\)"),
    (4, np.arange(3), r"`int i` is no pointer, but is given int64 array \(3,\)"),
    (4, IN, "`int i` is no pointer, but is given IN"),
    (0, 3, r"`float\* x` is a pointer, but is given the Python int 3: pass IN, OUT or"),
    (0, IN.size, r"`float\* x` is a pointer, but is given IN.size"),
    (0, np.ones(3), r"`float\* x` takes float32, but float64 array \(3,\) is float64"),
    (4, IN.shape, r"argument 5 of scalars is IN.shape: an argument is one extent, as in IN.shape\[0\]"),
    (4, None, "argument 5 of scalars is of type NoneType"),
    (4, [1, 2], "of type list, which no kernel takes: write np.array"),
    (4, 1j, "write np.complex64"),
    (4, "3", "of type str"),
    (0, np.array(["a"]), "has dtype <U1"),
    (0, np.array([None]), "has dtype object"),
    (0, np.zeros(2, "M8[s]"), "has dtype datetime64"),
    (0, np.zeros(2, "i4,f4"), "`float[*] x` takes float32, but argument 1 of scalars is an array of structures"),
    (0, np.zeros(2, np.longdouble), "dtype"),
    (0, np.ma.zeros(2), "masked"),
])
def test_arguments_that_do_not_fit(position, value, words):
    arguments = list(GOOD)
    arguments[position] = value
    with pytest.raises(LaunchError, match=words) as caught:
        record(K.scalars, *arguments)
    assert caught.value.place.operation == "exec scalars"


def test_python_numbers_are_of_the_parameters_types():
    numbers = (True, -128, -2, 3, 2**32 - 1, -2**63, 2**64 - 1, 2**24, 1e300)
    spec = record(K.scalars, IN, *numbers)
    assert [one.dtype for one in spec.arguments[1:]] == [
        "|b1", "|i1", "<i2", "<i4", "<u4", "<i8", "<u8", "<f4", "<f8"]
    assert [np.frombuffer(one.value, one.dtype)[0] for one in spec.arguments[1:]] == list(numbers)
    for value in (3, 0.5, float("inf"), float("-inf")):
        argument = record(K.scalars, *GOOD[:9], value).arguments[9]
        assert argument == ScalarArgument("<f8", np.float64(value).tobytes())
    assert record(K.open, IN, 1, 2.0, True).arguments[1:] == (i4(1), f4(2), ScalarArgument("|b1", b"\1"))


def test_extents_are_of_the_parameters_types():
    for position, dtype in ((2, "i1"), (3, "<i2"), (4, "<i4"), (5, "<u4"), (6, "<i8"), (7, "<u8"), (8, "<f4"),
                            (9, "<f8")):
        arguments = (*GOOD[:position], IN.shape[0], *GOOD[position + 1:])
        extent = launch_of(record(K.scalars, *arguments)).arguments[position]
        assert extent == ScalarArgument(np.dtype(dtype).str, np.dtype(dtype).type(100).tobytes())
        arguments = (*GOOD[:position], lambda b: b.shape[0], *GOOD[position + 1:])
        assert launch_of(record(K.scalars, *arguments)).arguments[position] == extent


S = Kernels("""
typedef struct { int n; double scale; } Par;
struct Opaque { Opaque() {} int n; };
__global__ void par(const float* x, float* y, Par par) {}
__global__ void opaque(const float* x, float* y, Opaque par) {}
__global__ void vector(const float* x, float* y, float2 v) {}
""")
PAR = np.dtype([("n", "i4"), ("scale", "f8")], align=True)


def test_structures_by_value():
    value = np.array([(3, 0.5)], PAR)[0]
    expected = ScalarArgument("|V16", value.tobytes())
    for structure in (value, value.tobytes(), np.void(value.tobytes())):
        spec = record(S.par, IN, OUT, structure)
        assert spec.arguments[2] == expected and launch_of(spec).arguments[2] == ValueArgument(0)
    assert launch_of(record(S.par, IN, OUT, lambda b: value)).arguments[2] == expected
    assert record(S.opaque, IN, OUT, np.void(b"1234")).arguments[2] == ScalarArgument("|V4", b"1234")
    assert record(S.vector, IN, OUT, np.complex64(1j)).arguments[2].dtype == "<c8"


@pytest.mark.parametrize("value, words", [
    (np.array([(3, 0.5)], "i4,f8")[0], r"`Par par` is 16 bytes: int32 at 0, float64 at 8; it is given 12 bytes: int32"
                                       r" at 0, float64 at 4 \(np.dtype\(..., align=True\)"),
    (np.array([(3, 5, 0.5)], "i4,i4,f8")[0], "it is given 16 bytes: int32 at 0, int32 at 4, float64 at 8"),
    (np.array([(3, 0, 5)], "i4,i4,i8")[0], "it is given 16 bytes"),
    (b"123", "it is given 3 bytes"),
    (b"", "a structure of 0 bytes"),
    (3, "is a structure .16 bytes: int32 at 0, float64 at 8., but is given the Python int 3: pass a structured scalar"),
    (IN.size, "but is given IN.size: pass a structured scalar"),
    (np.float64(3), "but is given the float64 3.0: pass a structured scalar"),
    (np.array([(3, None)], "i4,O")[0], "with Python objects"),
])
def test_structures_that_do_not_fit(value, words):
    with pytest.raises(LaunchError, match=words):
        record(S.par, IN, OUT, value)


P = Kernels("""
typedef struct { int n; double scale; } Par;
struct Box { long offset; Par near[3]; };
struct Opaque { Opaque() {} int n; };
__global__ void boxes(const Box* boxes, float* y) {}
__global__ void vectors(const float4* x, float* y) {}
__global__ void opaque(Opaque* x, void* y, int n) {}
template <class T> __global__ void any(const T* x, float* y) {}
""")
BOX = np.dtype([("offset", "i8"), ("near", PAR, (3,))], align=True)


def test_arrays_of_structures():
    boxes = np.zeros((2, 5), BOX)
    boxes["near"]["scale"] = 0.5
    for array in (boxes, boxes.view(f"V{BOX.itemsize}"), boxes.astype(BOX.newbyteorder(">"))):
        argument = record(P.boxes, array, OUT).arguments[0]
        assert (argument.dtype, argument.shape) == ("|V56", (2, 5))
        np.testing.assert_array_equal(np.frombuffer(bytes(argument.data), BOX).reshape(2, 5), boxes)
    changed = record(P.boxes, boxes, OUT)
    boxes["offset"] = 7
    assert not np.frombuffer(bytes(changed.arguments[0].data), BOX)["offset"].any(), "a copy is made at the call"
    assert repr(argument) == "structure of 56 bytes, array (2, 5)"
    assert isinstance(launch_of(changed).arguments[0], ArrayArgument)
    points = np.zeros(3, np.dtype("f4,f4,f4,f4"))
    assert record(P.vectors, points, OUT).arguments[0].dtype == "|V16"
    for array in (points, boxes):
        record(P.opaque, array, OUT, 3)
        record(P["any<Opaque>"], array, OUT)


@pytest.mark.parametrize("kernel, value, words", [
    (P.boxes, np.zeros(2, np.dtype([("offset", "i8"), ("near", "i4,f8", (3,))])),
     r"`const Box\* boxes` points to structures of 56 bytes: int64 at 0, int32 at 8, float64 at 16.* given an array of"
     r" 44 bytes.*align=True"),
    (P.boxes, np.zeros(2, "V55"), "given an array of 55 bytes"),
    (P.vectors, np.zeros(2, PAR), "points to structures of 16 bytes"),
    (K.map, np.zeros(2, PAR), r"`const float\* x` takes float32, but argument 1 of map is an array of structures"),
    (P.opaque, np.zeros(2, "i4,O"), "with Python objects, which no kernel reads"),
    (P.opaque, np.zeros(2, "V0"), "structures of 0 bytes"),
])
def test_arrays_of_structures_that_do_not_fit(kernel, value, words):
    with pytest.raises(LaunchError, match=words):
        record(kernel, value, *((OUT,) if len(kernel.parameters) == 2 else (OUT, 3)))


def test_a_structure_is_no_number_and_no_address():
    with pytest.raises(LaunchError, match="`int n` is a number, but is given a structure of 4 bytes"):
        record(K.inplace, IN, b"1234")
    with pytest.raises(LaunchError, match=r"`float\* y` is a pointer, but is given a structure of 4 bytes"):
        record(K.map, IN, b"1234")


def test_other_names_for_types_are_known_for_what_they_are():
    kernels = Kernels("typedef float real; __global__ void f(real a, real* x) {}")
    with pytest.raises(LaunchError, match=r"`real a` is given the int32 3: write np\.float32"):
        record(kernels.f, np.int32(3), IN)
    assert record(kernels.f, 3, IN).arguments[0] == f4(3)
    with pytest.raises(LaunchError, match=r"`real\* x` takes float32, but IN .* is float64"):
        launch_of(record(kernels.f, 3, IN), block(((3,), "<f8")))
