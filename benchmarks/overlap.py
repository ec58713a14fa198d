"""Costs of exchanges on several devices of one node, and the share of them that is hidden behind the computation.

The loop that a worker gets for a solver runs here in one process on 1, 2, 4... devices: as it is, without its exchanges
(so that its stencils read ghost cells that nobody brings up to date), and with its exchanges alone. What the loop takes
longer than without exchanges, as a share of what the exchanges alone take, is not hidden. A bare loop enqueues the
launches and waits that the loop itself once noted, one by one, with nothing around them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from benchmarks.measure import Case, Series, interleave
from benchmarks.results import Group
from benchmarks.solvers import a_step
from gpu_worker.device import open_devices
from gpu_worker.device.base import Buffer, Device, RecordedWork, Source, TapeEntry
from gpu_worker.device.cache import KernelCache
from gpu_worker.device.host.device import HostDevice
from gpu_worker.device.memory.grid.boxes import device_of_blocks
from gpu_worker.device.memory.grid.patches import Cells, Domain, lattice_of, number_of
from gpu_worker.exchange.base import JoinedWorld
from gpu_worker.execution.grid.context import GridContext, Operation
from gpu_worker.execution.grid.iterate import Loop, StencilSource, Stepper
from gpu_worker.execution.memory.scratch import Arguments, Scratch
from gpu_worker.execution.scheduling.streams import StreamPool, Streams
from gpu_worker.protocol.codec import decode
from gpu_worker.protocol.grids import IterateStep, Phase
from gpu_worker.protocol.messages import ArgumentValue, Plan
from vispark import Grid
from vispark.data.records import pack
from vispark.data.records.partition_schema import PartitionSchema
from vispark.plan import ops
from vispark.plan.loop_call import record_loop
from vispark.plan.lower.grid import GridLowering
from vispark.plan.lower.stages import KEEP
from vispark.plan.ops import DatasetId, PlanNode

LOOP, WITHOUT, ALONE = "the loop", "without exchanges", "exchanges alone"
BARE = "bare loop of its kernels"

#: Of this many bytes of noise, repeated, the fields are made.
_NOISE = 64 << 20


@dataclass(frozen=True)
class Solver:
    """A loop to run.

    Attributes
    ----------
    name : str
    grid : Grid
        With a boundary that is given, not a function.
    phases : list
        As ``iterate`` takes them.
    nbytes : int
        What a step must move.
    steps : int
        In each sample.
    """

    name: str
    grid: Grid
    phases: list
    nbytes: int
    steps: int


def run(solver: Solver, kind: str, samples: int, done: Callable[[str], None]) -> Group:
    """Measure a loop on ever more devices: on 1, 2, 4... as far as there are; on a host on 1 and 2 that share it."""
    group = Group(f"exchanges of {solver.name}, " + " x ".join(map(str, solver.grid.shape)), {
        "shape": list(solver.grid.shape), "splits": list(solver.grid.splits), "steps": solver.steps,
        "bytes": solver.nbytes, "samples": samples, "device": kind})
    devices = open_devices(kind) if kind == "cuda" else [HostDevice(f"host:{number}", cache=KernelCache())
                                                         for number in range(2)]
    count = 1
    while count <= len(devices):
        with loops(solver, devices[:count]) as cases:
            steps = {name: a_step(series, solver.steps) for name, series in zip(
                cases, interleave(_cases(cases, solver, count), samples, warm_up=1, done=done),
                strict=True)}
        group.series += steps.values()
        _note(group, steps, count)
        count *= 2
    for device in devices:
        device.close()
    return group


def _cases(cases: dict[str, Callable[[], None]], solver: Solver, count: int) -> list[Case]:
    against = {LOOP: (_named(BARE, count), *([_named(LOOP, 1)] if count > 1 else []))}
    return [Case(_named(name, count), run, 0 if name == ALONE else solver.nbytes * solver.steps,
                 against.get(name, ()), repeat=False) for name, run in cases.items()]


def _named(name: str, count: int) -> str:
    return f"{name}, {count} device{'s' if count > 1 else ''}"


def _note(group: Group, steps: dict[str, Series], count: int) -> None:
    loop, without, alone = (steps[name].median for name in (LOOP, WITHOUT, ALONE))
    first = next(series for series in group.series if series.name == _named(LOOP, 1))
    notes = steps[LOOP].notes
    notes["speedup"] = first.median / loop
    if count > 1:
        notes["share_of_exchange_not_hidden"] = max(0.0, (loop - without) / alone)


# -- a loop as a worker gets it ---------------------------------------------------------------------------------------

@dataclass(frozen=True)
class LoopRequest:
    """The loop of a plan with its kernels, and the values that the request brings."""

    step: IterateStep
    kernels: dict[int, StencilSource]
    values: tuple[ArgumentValue, ...]


def lowered(solver: Solver) -> LoopRequest:
    """Return the loop, as it is sent for a grid of the same fields, boundary and ghosts; all else of its size is the
    same.
    """
    dims = solver.grid.ndim
    shape = tuple(max(1, width) for width in solver.grid.description.ghosts)
    grid = Grid(shape, (1,) * dims, solver.grid.halo, fields=dict(solver.grid.fields) or None)
    fields = {name: np.zeros(shape, dtype) for name, dtype in solver.grid.fields}
    packed = pack([(grid.block(*(0,) * dims), fields or np.zeros(shape, "f4"))], seal=bytes)
    start, end = DatasetId(1, "before"), DatasetId(2, "after")
    spec = record_loop(solver.phases, (), solver.steps, None, 1, 0)
    chain = PlanNode(ops.Send()), PlanNode(ops.ToDevice(), start), PlanNode(ops.Iterate(spec), end)
    work = GridLowering(chain, start, KEEP, grid.description)
    work.add(0, PartitionSchema(packed.count, len(packed.keys), packed.layout, tuple(packed.signatures),
                                packed.positions))
    work.finish()
    prepared = work.prepare()
    plan: Plan = decode(prepared.encoded, Plan)
    step, = [step for step in plan.steps if isinstance(step, IterateStep)]
    kernels = {index: StencilSource(launch, Source(plan.modules[launch.module].source, plan.modules[launch.module].file,
                                                   plan.modules[launch.module].options))
               for index, launch in enumerate(plan.stencils)}
    return LoopRequest(step, kernels, prepared.values(work.nodes).constants(0)[0])


@contextmanager
def loops(solver: Solver, devices: Sequence[Device],
          world: JoinedWorld | None = None) -> Iterator[dict[str, Callable[[], None]]]:
    """Yield the fields on some devices, dealt as a worker deals them, and what is measured of them.

    In a ``world`` it is this node's part, which all must ask for at once, and there is no bare loop.
    """
    lowering = lowered(solver)
    streams = Streams(StreamPool(devices), 1)
    scratch, arguments = Scratch(streams), Arguments(lowering.values, None)
    context = GridContext(streams, scratch, arguments)
    grid = solver.grid.description.grid_shape
    nodes, rank = (1, 0) if world is None else (world.size, world.rank)
    first, lattice = rank * len(devices), lattice_of(grid)
    domain = Domain.of(grid, {number_of(lattice, at): devices[owner - first]
                              for at, owner in device_of_blocks(lattice, nodes * len(devices)).items()
                              if first <= owner < first + len(devices)})
    if world is not None:
        domain = domain.with_ranks(world.gather(domain.described()))
    content = {name: _noise(domain, dtype, context) for name, dtype in solver.grid.fields or (("", "<f4"),)}

    def wait() -> None:
        for device in devices:
            device.synchronize(stream=context.stream(device))

    stepper = Stepper(domain, content, context, world)
    silent = replace(lowering.step, phases=_silent(lowering.step.phases), together=_silent(lowering.step.together))
    loop, without = (Loop(step, lowering.kernels, stepper, wait) for step in (lowering.step, silent))

    def looped(which: Loop) -> Callable[[], None]:
        def run() -> None:
            which.run()
            wait()
        return run

    noted: list[TapeEntry] = []

    def bare() -> None:
        """Run the entries that were noted; the first time the loop itself, which is noted."""
        if noted:
            RecordedWork(noted).start()
            wait()
            return
        with context.noting() as entries:
            looped(loop)()
        noted.extend(entries)

    exchanges: list[Operation] = []

    def alone() -> None:
        if not exchanges:
            for phase in lowering.step.together or lowering.step.phases:
                exchanges.extend(stepper.exchange(phase.halos))
        for _ in range(solver.steps // lowering.step.stride):
            for operation in exchanges:
                operation()
        wait()

    try:
        noted_again = {} if world else {BARE: bare}
        yield {LOOP: looped(loop), **noted_again, WITHOUT: looped(without), ALONE: alone}
    finally:
        wait()
        for cells in (*content.values(), *stepper.finish().values()):
            cells.close()
        context.close()
        arguments.close()
        scratch.close()
        streams.close()


def _silent(phases: tuple[Phase, ...]) -> tuple[Phase, ...]:
    """Return phases without their exchanges."""
    return tuple(replace(phase, halos=()) for phase in phases)


def _noise(domain: Domain, dtype: Any, context: GridContext) -> Cells:
    """Return a field of small numbers on all patches."""
    dtype = np.dtype(dtype)
    noise = np.random.default_rng(0).random(_NOISE // dtype.itemsize, dtype).view(np.uint8)
    buffers = []
    for patch in domain.patches:
        device, stream = patch.device, context.stream(patch.device)
        buffer = context.allocate(patch.layout.elements * dtype.itemsize, device)
        for first in range(0, buffer.nbytes, noise.nbytes):
            part = noise[:min(noise.nbytes, buffer.nbytes - first)]
            device.copy_in(Buffer(device, buffer.address + first, part.nbytes), part, stream=stream)
        device.synchronize(stream=stream)
        buffer.ghosts = None
        buffers.append(buffer)
    return Cells(dtype, tuple(buffers))
