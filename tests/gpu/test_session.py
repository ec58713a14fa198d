"""Whole sessions on real GPUs: where partitions go, and what a user sees when a kernel fails, hangs or is too large."""

from __future__ import annotations

import operator
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from pyspark import SparkContext

from gpu_worker.client.connection import administer
from gpu_worker.device.cuda import device as cuda
from gpu_worker.protocol.messages import (
    Field,
    Input,
    KeepStep,
    Plan,
    PutStep,
    Run,
    SessionOptions,
    Signature,
    Status,
    ToDeviceStep,
    Variant,
)
from gpu_worker.protocol.payload import Payload
from gpu_worker.protocol.plans import sealed
from gpu_worker.server.handlers import SessionWorker
from gpu_worker.system.crash_record import CrashRecorder
from tests.system.fixtures import local, no_leaks, one_core, pytest_runtest_makereport
from tests.system.topology import Topology
from tests.system.vrdd_tools import host_context
from vispark import IN, OUT, DeadlineExceeded, KernelFault, Kernels, OutOfMemory

__all__ = ["local", "no_leaks", "one_core", "pytest_runtest_makereport"]

SOURCE = """
extern "C" __global__ void twice(const double* x, double* y, int n)
{ int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = 2 * x[i]; }
extern "C" __global__ void stray(const double* x, double* y, int n)
{ if (x[0] == 2) y[1ll << 40] = 1; }
extern "C" __global__ void endless(const double* x, double* y, int n)
{ volatile double* spin = y; while (x[0] == 2) spin[0] = 1; }
"""
K = Kernels(SOURCE)
LAUNCH = {"grid": lambda b: -(-b.shape[0] // 256), "block": 256}


@pytest.fixture(scope="module")
def short(local: Topology) -> Iterator[SparkContext]:
    """Yield a context whose plans may take two seconds."""
    with host_context(local, device="cuda", deadline=2) as context:
        yield context


def test_partitions_are_spread_over_all_gpus(one_core: Topology):
    # A mask ends before the first number that is no GPU.
    mask = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(64)))
    conf = {"spark.vispark.device": "cuda", "spark.executorEnv.CUDA_VISIBLE_DEVICES": mask}
    with one_core.context(conf) as sc:
        numbers = sc.parallelize(np.arange(8000.0).tolist(), 8).cache("GPU")
        assert numbers.reduce(operator.add) == 7999 * 4000
        report = administer(Status(), runtime_dir=str(one_core.nodes[0].runtime_dir)).sessions[0].report
    names = [device.device for device in report.memory]
    assert report.vrdds[0].device == ", ".join(sorted(names))
    assert all(device.used for device in report.memory)


@pytest.mark.parametrize("address", ["0", "1"])
def test_only_the_assigned_gpus_are_used(devices: list[cuda.CudaDevice], address: str, tmp_path: Path):
    if int(address) >= len(devices):
        pytest.skip("too few GPUs here")
    # A number that is an entry of the mask of whoever runs the tests names that entry.
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    name = visible.split(",")[int(address)] if visible else address
    options = SessionOptions("cuda", 0, 10.0, str(tmp_path), "info")
    worker = SessionWorker(options, epoch=1, recorder=CrashRecorder(tmp_path / "box", epoch=1))
    steps = PutStep(), ToDeviceStep(), KeepStep(0, "x", "device")
    inputs = tuple(Input(index, 8, 0, 0, b"", (0,)) for index in range(8))
    variant = Variant(Signature((Field("", "<f8", (8,)),)), (), (b"",), (-1,))
    with Payload.create(64) as payload:
        plan = sealed(Plan(steps, (), (variant,), inputs, (name,)))
        worker.handle(Run(1, 1, 10.0, *plan, (1,), ()), [payload.release()])
    assert [line.device for line in worker.report().vrdds] == [f"cuda:{address}"]
    worker.close()


def test_an_illegal_address_names_kernel_and_partition(short: SparkContext):
    other = short.parallelize([5.0], 1).cache("GPU")
    assert other.collect() == [5.0]
    numbers = short.parallelize([1.0, 2.0, 3.0], 3).cache("GPU")
    bad = numbers.exec(K.twice, IN, OUT, IN.shape[0], **LAUNCH)
    with pytest.raises(KernelFault, match="ILLEGAL_ADDRESS") as caught:
        numbers.exec(K.stray, IN, OUT, IN.shape[0], **LAUNCH).collect()
    assert "exec stray" in caught.value.place.operation
    assert caught.value.place.device.startswith("cuda:")
    assert bad.collect() == [2.0, 4.0, 6.0]
    assert other.collect() == [5.0]


def test_an_index_that_is_out_of_range_names_its_subscript(short: SparkContext):
    rows = short.parallelize([np.arange(4.0)] * 100_000, 2).cache("GPU")
    for index, function in ((9, lambda p, k: p[int(p[0]) + k]), (-7, lambda p, k: p[1] + p[int(p[2]) + k])):
        with pytest.raises(KernelFault, match=rf"index {index + (index < 0) * 2} is out of range for an axis of length "
                           r"4 .*\n.*\n.*test_session.py\", line \d+, column \d+, in lambda"):
            rows.vmap(function, index).collect()
    assert rows.vmap(lambda p, k: p[int(p[0]) + k], 3).take(2) == [3.0, 3.0]


def test_an_endless_kernel_meets_its_deadline(short: SparkContext):
    numbers = short.parallelize([1.0, 2.0, 3.0], 3).cache("GPU")
    assert numbers.count() == 3
    chain = numbers.exec(K.twice, IN, OUT, IN.shape[0], **LAUNCH).exec(K.endless, IN, OUT, IN.shape[0], **LAUNCH)
    with pytest.raises(DeadlineExceeded) as caught:
        chain.collect()
    assert caught.value.place.operation == "exec endless"
    assert caught.value.place.partition == 0
    assert numbers.collect() == [1.0, 2.0, 3.0]


def test_more_than_the_memory_is_an_error_that_leaves_the_rest(short: SparkContext):
    numbers = short.parallelize([1.0], 1).cache("GPU")
    assert numbers.count() == 1
    with pytest.raises(OutOfMemory, match="cuda:0"):
        numbers.exec(K.twice, IN, OUT, IN.shape[0], out=((1 << 40,), "f8"), grid=1, block=1).collect()
    assert numbers.collect() == [1.0]
