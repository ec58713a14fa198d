"""Costs of a plan in a worker alone, without sockets or Spark: ``python -m benchmarks.worker [DEVICE]``."""

from __future__ import annotations

import cProfile
import itertools
import pstats
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import click
import numpy as np

from gpu_worker.protocol.codec import decode, encode
from gpu_worker.protocol.grids import ExchangeStep, GridShape, Halo, Side, StencilStep
from gpu_worker.protocol.messages import (
    Accumulators,
    ArgumentValue,
    ArrayArgument,
    ExecStep,
    Field,
    FieldFold,
    In,
    Input,
    KeepStep,
    Launch,
    LoadStep,
    MapFoldStep,
    Module,
    Out,
    Plan,
    PutStep,
    Release,
    Reply,
    Request,
    Run,
    SessionOptions,
    Signature,
    StencilLaunch,
    Step,
    ToDeviceStep,
    ValueArgument,
    Variant,
)
from gpu_worker.protocol.payload import Payload
from gpu_worker.protocol.plans import sealed
from gpu_worker.server.handlers import SessionWorker
from gpu_worker.system.crash_record import CrashRecorder

ROWS, COLUMNS, PARTITIONS = 64, 8, 16
SIGNATURE = Signature((Field("", "<f4", (ROWS, COLUMNS)),))
SOURCE = """
#include "vispark/fold.h"
extern "C" __global__ void sums(const long long* works, void* const* ports, double* sum, const float* w)
{
    const long long entry = works[3 * blockIdx.x], first = works[3 * blockIdx.x + 1], rows = works[3 * blockIdx.x + 2];
    const float* in = (const float*)ports[entry] + first * 8;
    double added = Add::identity<double>();
    for (long long row = 0; row < rows; row++)
        added = Add::of(added, (double)(in[row * 8 + threadIdx.x] * w[threadIdx.x]));
    sum[blockIdx.x * 8 + threadIdx.x] = added;
}
extern "C" __global__ void scaled(const long long* works, void* const* ports, const float* w)
{
    const long long entry = works[3 * blockIdx.x], first = works[3 * blockIdx.x + 1], rows = works[3 * blockIdx.x + 2];
    const float* in = (const float*)ports[2 * entry] + first * 8;
    float* out = (float*)ports[2 * entry + 1] + first * 8;
    for (long long row = 0; row < rows; row++)
        out[row * 8 + threadIdx.x] = in[row * 8 + threadIdx.x] * w[threadIdx.x];
}
"""
FOLD = Launch((), (COLUMNS,), 0, (In(""), ArrayArgument(0)), (Field("", "<f4", (COLUMNS,)),), kernel="sums", tile=16,
              waves=2.0, partials=(Accumulators("", "add", "double", COLUMNS),))
MAP = Launch((), (COLUMNS,), 0, (In(""), Out(""), ArrayArgument(0)), SIGNATURE.fields, kernel="scaled", tile=16,
             waves=2.0)


GRID = GridShape((64, 64, 64), (4, 4, 4), (1, 1, 1))
HALO = Halo("", (1, 1, 1), (1, 1, 1), (Side("given", bytes(4), -1),) * 6)
HEAT = StencilLaunch(0, "heat", ("",), (Field("", "<f4", ()),), (ValueArgument(0),), (1, 1, 1), (1, 1, 1), (32, 1, 1),
                     (32, 1, 1), 0, True)

STENCIL = r"""
struct vp_region { long long pitch, plane; int low[3], high[3]; long long origin[3], shape[3]; };
extern "C" __global__ void heat(const float* u, float* out, const vp_region region, const float share)
{
    const int x = region.low[2] + blockIdx.x * 32 + threadIdx.x;
    const int y = region.low[1] + blockIdx.y, z = region.low[0] + blockIdx.z;
    if (x >= region.high[2] || y >= region.high[1] || z >= region.high[0]) return;
    const float* at = u + z * region.plane + y * region.pitch + x;
    const float around = at[1] + at[-1] + at[region.pitch] + at[-region.pitch] + at[region.plane] + at[-region.plane];
    out[at - u] = at[0] + share * (around - 6 * at[0]);
}
"""


def plan_of(*steps: Step, launches: tuple[Launch, ...] = (), keeps: int = 0) -> Plan:
    """Return a plan on the partitions of VRDD slot 0."""
    variant = Variant(SIGNATURE, launches, (b"",) * keeps, (-1,) * keeps)
    inputs = tuple(Input(index, ROWS, 0, 0, b"", (0,)) for index in range(PARTITIONS))
    return Plan((LoadStep(0), *steps), (Module(SOURCE, "bench.cu", (), (), ()),), (variant,), inputs, ())


def grid_plan(*steps: Step, source: Step, inputs: tuple[Input, ...]) -> Plan:
    """Return a plan on a grid of 64 blocks."""
    keeps = sum(isinstance(step, KeepStep) for step in steps)
    variant = Variant(Signature((Field("", "<f4", (16, 16, 16)),)), (), (b"",) * keeps, (-1,) * keeps)
    return Plan((source, *steps), (Module(STENCIL, "heat.cu", (), (), ()),), (variant,), inputs, (), GRID, (HEAT,))


def fill_grid(worker: SessionWorker, vrdd: int) -> Plan:
    """Hold the blocks as a VRDD; a step of heat from slot 0 to slot 1."""
    inputs = tuple(Input(index, 4, 0, 0, b"", (0,) * 4, tuple(range(4 * index, 4 * index + 4)))
                   for index in range(PARTITIONS))
    for part in inputs:
        plan = grid_plan(ToDeviceStep(), KeepStep(0, "u", "device"), source=PutStep(), inputs=(part,))
        with Payload.create(4 * 16**3 * 4) as payload:
            worker.handle(Run(1, 1, 60.0, *sealed(plan), (vrdd,), ()), [payload.release()])
    return grid_plan(ToDeviceStep(), ExchangeStep("halo", (HALO,)), StencilStep("heat", 0), KeepStep(1, "u", "device"),
                     source=LoadStep(0),
                     inputs=inputs)


def fill(worker: SessionWorker) -> None:
    """Hold the partitions as VRDD 1."""
    for index in range(PARTITIONS):
        steps = PutStep(), ToDeviceStep(), KeepStep(0, "points", "device")
        plan = Plan(steps, (), (Variant(SIGNATURE, (), (b"",), (-1,)),), (Input(index, ROWS, 0, 0, b"", (0,)),), ())
        with Payload.create(ROWS * COLUMNS * 4) as payload:
            worker.handle(Run(1, 1, 60.0, *sealed(plan), (1,), ()), [payload.release()])


class Passes:
    """Passes of one plan, each with the request decoded and the reply encoded as a connection would."""

    def __init__(self, worker: SessionWorker, plan: Plan, keeps: bool = False, loop: int = 0):
        self.worker = worker
        self.key, self.encoded = sealed(plan)
        self.keeps = keeps or loop > 0
        self.loop = loop
        self.number = max(1, loop)

    def __call__(self) -> None:
        self.number += 1
        shape = () if self.loop else (COLUMNS,)
        w = ArgumentValue("<f4", shape, np.full(shape, self.number % 2, np.float32).tobytes(), 0)
        vrdds = (self.number - 1 if self.loop else 1, self.number) if self.keeps else (1,)
        request = Run(self.number, 1, 60.0, self.key, self.encoded, vrdds, (w,))
        self.encoded = b""
        decoded = decode(encode(request, Request), Request)
        started = time.perf_counter()
        reply, _ = self.worker.handle(decoded, [])
        self.seconds = time.perf_counter() - started
        encode(reply, Reply)
        if self.keeps and self.number > self.loop + 3:
            self.worker.handle(Release(1, (self.number - 1,)), [])


def measure(name: str, once: Passes, times: int = 2000) -> None:
    """Print the quantiles of a pass, and of the part of it that is in the worker."""
    samples, inside = [], []
    for _ in range(times):
        started = time.perf_counter()
        once()
        samples.append(time.perf_counter() - started)
        inside.append(once.seconds)
    quantiles = [f"{1e6 * float(value):7.1f}" for value in np.quantile(inside[20:], (0.05, 0.5, 0.95))]
    print(f"{name:38} {' '.join(quantiles)}   with the codecs, both sides: "
          f"{1e6 * float(np.median(samples[20:])):.1f} us")


def looped(worker: SessionWorker, numbers: Iterator[int]) -> Passes:
    """Return a loop on the grid."""
    first = next(numbers)
    return Passes(worker, fill_grid(worker, first), loop=first)


@click.command(help=__doc__)
@click.argument("device", default="null")
@click.option("--profile", "is_profiled", is_flag=True, help="Say which functions take the time.")
def main(device: str, is_profiled: bool) -> None:
    with tempfile.TemporaryDirectory() as directory:
        box = CrashRecorder(Path(directory, "box"), epoch=1)
        worker = SessionWorker(SessionOptions(device, 0, 30.0, "", "info"), epoch=1, recorder=box)
        fill(worker)
        print(f"{worker.devices[0]}, {PARTITIONS} partitions: 5 %, median and 95 % in the worker, us")
        fold = plan_of(ToDeviceStep(), MapFoldStep("sums", (FieldFold("", "add"),), "all"), launches=(FOLD,))
        kept = plan_of(ToDeviceStep(), ExecStep("scaled"), KeepStep(1, "", "device"), launches=(MAP,), keeps=1)
        loops = itertools.count(100_000, 100_000)
        cases: list[tuple[str, Callable[[], Passes]]] = [
            ("an empty plan", lambda: Passes(worker, plan_of())),
            ("a fused fold of all records", lambda: Passes(worker, fold)),
            ("a map that is kept, released next", lambda: Passes(worker, kept, keeps=True)),
            ("a step of heat on 64 blocks, kept", partial(looped, worker, loops)),
        ]
        for name, make in cases:
            measure(name, make())
            if is_profiled:
                profile, once = cProfile.Profile(), make()
                for _ in range(5):
                    once()
                profile.runcall(lambda once=once: [once() for _ in range(1000)])
                pstats.Stats(profile).sort_stats("tottime").print_stats(22)
        worker.close()


if __name__ == "__main__":
    main()
