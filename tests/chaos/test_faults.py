"""Kernels that fault, trap, never end or ask for too much: one error that says where, and all else stays right."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from tests.chaos.arena import Arena, Loader, opened, records
from tests.system import topology
from tests.system.vrdd_tools import exact
from vispark import IN, OUT, VRDD, DeadlineExceeded, KernelFault, Kernels, OutOfMemory, VisparkError
from vispark.runtime.executor.chunked_upload import PIECES_FROM

pytestmark = pytest.mark.chaos

EXPECTED = exact([record for partition in range(4) for record in records(partition)])

SOURCE = r"""
extern "C" __global__ void fault(const double* x, double* y) { y[0] = *(const volatile double*)8; }
extern "C" __global__ void trap(const double* x, double* y) { __trap(); }
extern "C" __global__ void forever(const double* x, double* y)
{
    while (*(const volatile double*)x == x[0]) { }
    y[0] = x[0];
}
"""


@pytest.fixture(scope="module")
def arena(local: topology.Topology) -> Iterator[Arena]:
    """Yield a context whose plans have two seconds and little memory."""
    with opened(local, {"spark.vispark.deadline": "2", "spark.vispark.memory": "1m"}) as arena:
        yield arena


@pytest.fixture(autouse=True)
def nothing_is_left(no_leaks: None, arena: Arena) -> Iterator[None]:
    """After each test the workers hold nothing, before this process is looked at."""
    yield
    arena.check_empty()


def held(arena: Arena) -> tuple[VRDD, VRDD, Loader]:
    """Return VRDDs that are there meanwhile, one on the device and one in host memory, and the loader of the first."""
    loader = arena.loader()
    device, host = arena.points(loader).cache(), arena.points(arena.loader()).dtoh().cache()
    assert (device.count(), host.count()) == (len(EXPECTED[1]), len(EXPECTED[1]))
    return device, host, loader


def failing(arena: Arena, name: str, *arguments) -> VRDD:
    named = arena.points(arena.loader()).setName("victim").cache()
    assert exact(named.collect()) == EXPECTED
    return named.exec(getattr(Kernels(SOURCE), name), IN, OUT, *arguments, grid=1, block=1)


def check(arena: Arena, error: VisparkError, operation: str, others: tuple[VRDD, VRDD, Loader], loads: int) -> None:
    place = error.place
    where = f"partition {place.partition}" if place.partition is not None else "in one of the partitions"
    assert "victim" in place.vrdd and place.partition in (None, *range(4))
    assert operation in place.operation and place.device == topology.DEVICE_NAME
    assert all(part in str(error) for part in ("victim", where, operation, topology.DEVICE_NAME))
    device, host, loader = others
    assert exact(device.collect()) == EXPECTED and exact(host.collect()) == EXPECTED
    assert loader.counts() == dict.fromkeys(range(4), loads)


@pytest.mark.parametrize("kernel", ["fault", "trap"])
def test_a_kernel_that_faults(arena: Arena, kernel: str):
    others = held(arena)
    with pytest.raises(KernelFault) as caught:
        failing(arena, kernel).collect()
    check(arena, caught.value, kernel, others, loads=2)


def test_a_kernel_that_never_ends(arena: Arena):
    others = held(arena)
    with pytest.raises(DeadlineExceeded) as caught:
        failing(arena, "forever").collect()
    check(arena, caught.value, "forever", others, loads=2)


def test_a_kernel_whose_result_has_no_room(arena: Arena):
    others = held(arena)
    points = arena.points(arena.loader()).setName("victim").cache()
    assert exact(points.collect()) == EXPECTED
    much = points.values().exec(arena.kernels.scale, IN, OUT, np.float64(1.0), 1, out=((1 << 20,), "f8"), grid=1,
                                block=1)
    with pytest.raises(OutOfMemory) as caught:
        much.collect()
    check(arena, caught.value, "scale", others, loads=1)
    with pytest.raises(OutOfMemory):
        arena.sc.parallelize(range(1 << 18), 2).cache("GPU").count()
    large = arena.sc.parallelize([PIECES_FROM // 8], 1).map(np.zeros).send().htod().setName("large").cache()
    with pytest.raises(OutOfMemory, match=f"large, partition 0, operation todevice, device {topology.DEVICE_NAME}"):
        large.count()
    assert exact(others[0].collect()) == EXPECTED
