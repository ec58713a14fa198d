"""The time of kernels is what the GPU took, whatever the worker does between."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gpu_worker.execution.launches import kernel_launches
from gpu_worker.protocol.messages import ExecStep, Field, In, Launch, Out, Times, ValueArgument
from tests.unit.plans import Bench, bench

SOURCE = """
extern "C" __global__ void spin(const float* in, float* out, long long nanoseconds)
{
    unsigned long long began, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(began));
    do
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    while (now - began < nanoseconds);
    out[0] = in[0];
}
"""

#: How long a kernel spins, and how far the clocks of the spinning and the measuring may be off, in seconds.
SPINS, OFF = 0.02, 0.002


def spun(worker: Bench, partitions: int, launches: int, seconds: float) -> Times:
    """Return the times that it takes to launch a kernel so many times, one after the other, for each partition."""
    worker.put(1, [[{"": np.ones(1, "f4")}]] * partitions)
    launch = Launch((1,), (1,), 0, (In(""), Out(""), ValueArgument(0)), (Field("", "<f4", (1,)),), kernel="spin")
    plan = worker.plan(1, [ExecStep(f"spin {number}") for number in range(launches)], [launch] * launches, SOURCE)
    request = worker.request(plan, (1,), [np.int64(1e9 * seconds)])
    for _ in range(2):          # the first one compiles
        times = worker.process.handle(replace(request, profile=True), [])[0].times
    return times


def test_kernels_take_as_long_as_they_spin(tmp_path: Path):
    with bench(tmp_path, "cuda") as worker:
        times = spun(worker, 1, 3, SPINS)
    print(times)
    assert 3 * SPINS - OFF < times.kernels < 3 * SPINS + OFF
    assert times.total - times.kernels < SPINS
    assert abs(times.kernels + times.copy_out + times.compile + times.scheduling - times.total) < 1e-6


def test_what_several_devices_do_at_once_counts_once(tmp_path: Path):
    with bench(tmp_path, "cuda", devices=()) as worker:
        devices = len(worker.process._pool.devices)
        times = spun(worker, devices, 1, SPINS)
    print(devices, times)
    assert SPINS - OFF < times.kernels < SPINS + OFF


def test_the_python_between_launches_is_not_in_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Nor is what a busy machine makes of it: each launch comes late."""
    monkeypatch.setattr(kernel_launches, "failpoint", lambda name: time.sleep(SPINS))
    with bench(tmp_path, "cuda") as worker:
        times = spun(worker, 1, 20, 0.0)
    print(times)
    assert 0 < times.kernels < 10 * SPINS < 20 * SPINS <= times.scheduling
