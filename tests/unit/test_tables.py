"""The tables of a plan: each source and each value once; and where values travel."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_worker.protocol.payload import ALIGNMENT, Payload
from vispark.plan.cuda_source import ArrayValue, Kernels
from vispark.plan.slots import ArgumentRef, BoundArguments, ModuleTable, SlotTable

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



def values_of(*sizes):
    return [ArrayValue.of(np.full(size, number, np.uint8), "x") for number, size in enumerate(sizes)]


def test_equal_origins_have_one_slot():
    table = SlotTable()
    first, second = values_of(3, 4)
    assert [table.slot(origin) for origin in (first, second, ArgumentRef(0, "argument", 1), first)] == [0, 1, 2, 0]
    assert table.slot(ArgumentRef(0, "capture", 1)) == 3
    assert table.origins() == (first, second, ArgumentRef(0, "argument", 1), ArgumentRef(0, "capture", 1))


def test_small_values_are_in_the_message():
    constants, nbytes = BoundArguments(tuple(values_of(3, 0, 4))).constants(100)
    assert nbytes == 0
    assert [(constant.dtype, constant.shape, constant.data) for constant in constants] == [
        ("|u1", (3,), bytes(3)), ("|u1", (0,), b""), ("|u1", (4,), bytes([2] * 4))]


@pytest.mark.parametrize("offset", [0, 1, 512, 1000])
def test_large_values_go_into_the_payload(offset):
    given_values = values_of(70_000, 60_000, 0, 5_000, 500, 300)
    values = BoundArguments(tuple(given_values))
    constants, nbytes = values.constants(offset)
    inline = [bool(constant.data) or not value.data for constant, value in zip(constants, given_values, strict=True)]
    assert inline == [False, False, True, True, True, True]
    with Payload.create(offset + nbytes) as payload:
        values.write(payload, offset)
        assert not payload.view(0, offset).any()
        for constant, value, here in zip(constants, given_values, inline, strict=True):
            assert (constant.dtype, constant.shape) == (value.dtype, value.shape)
            assert here or (constant.offset % ALIGNMENT == 0 and constant.offset >= offset)
            data = constant.data if here else payload.view(constant.offset, len(value.data)).tobytes()
            assert data == value.data
    assert nbytes <= 130_000 + 3 * ALIGNMENT


@given(st.lists(st.integers(0, 30_000), max_size=8))
def test_what_is_inline_stays_small(sizes):
    constants, nbytes = BoundArguments(tuple(values_of(*sizes))).constants(0)
    assert sum(len(constant.data) for constant in constants) <= 64 * 1024
    assert bool(nbytes) == (sum(sizes) > 64 * 1024)


def test_modules():
    source = "__constant__ float table[3];\n__global__ void k(float* x) {}"
    slots = SlotTable()
    slots.slot(values_of(3)[0])
    modules = ModuleTable(slots)
    one = Kernels(source, ["-DD=1"], constants={"table": np.ones(3, "f4")}, file="own.cu")
    same = Kernels(source, ["-DD=1"], constants={"table": np.ones(3, "f4")}, file="own.cu")
    assert [modules.add(one), modules.add(K), modules.add(same)] == [0, 1, 0]
    first, second = modules.modules()
    assert (first.source, first.file, first.options, first.constants, first.constant_names) == (
        source, "own.cu", ("-DD=1",), (1,), ("table",))
    assert second.constants == second.constant_names == ()
    assert slots.origins()[1].data == np.ones(3, "f4").tobytes()
