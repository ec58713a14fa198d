"""Kernels that read or write out of their arrays, where that is checked."""

from __future__ import annotations

import pytest

from gpu_worker.protocol.errors import KernelFault
from tests.system.topology import DEVICE_NAME, Topology
from tests.system.vrdd_tools import host_context
from vispark import IN, OUT, Kernels

SHIFT = Kernels("""
__global__ void shift(const double* x, double* y, int n, int by)
{ if (threadIdx.x < n) y[threadIdx.x] = x[threadIdx.x + by]; }
""")


@pytest.mark.skipif(DEVICE_NAME != "host:0", reason="bounds are checked on the host device")
def test_an_access_out_of_bounds_is_named(local: Topology):
    with host_context(local, check="bounds") as sc:
        numbers = sc.parallelize([1.0, 2.0, 3.0], 1).cache("GPU")
        assert numbers.vmap(lambda x: x + 1).reduce(lambda a, b: a + b) == 9
        assert numbers.exec(SHIFT.shift, IN, OUT, IN.size, 0, grid=1, block=32).collect() == [1, 2, 3]
        words = "it reads 8 bytes out of the bounds of argument 1, which has 24 bytes: 24 bytes behind its start"
        with pytest.raises(KernelFault, match=words) as caught:
            numbers.exec(SHIFT.shift, IN, OUT, IN.size, 1, grid=1, block=32).collect()
        assert (caught.value.place.partition, caught.value.place.operation) == (0, "exec shift")
        assert numbers.exec(SHIFT.shift, IN, OUT, IN.size, 0, grid=1, block=32).collect() == [1, 2, 3]
