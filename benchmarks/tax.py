"""The framework's tax: a loop as its user sees it, over a bare loop that launches the same kernels.

The bare loop enqueues what a worker notes of a pass, the generated kernels' launches and the copies of arguments and
results, one by one on a stream, and waits. There is no driver, no message, no plan and no graph around it. It runs in
this process, on data of its own.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from pyspark import SparkContext

import vispark.runtime.driver.worker
from benchmarks import flow, heat, kmeans, overlap, regression
from benchmarks.bare import bytes_of
from benchmarks.cloud import Cloud
from benchmarks.kmeans import Iteration
from benchmarks.measure import Case, interleave
from benchmarks.overlap import Solver
from benchmarks.points import Points
from benchmarks.regression import Descending, Settings
from benchmarks.results import Group
from benchmarks.solvers import OURS, Way, a_step
from gpu_worker.device import open_devices
from gpu_worker.device.base import RecordedWork
from gpu_worker.protocol.codec import decode
from gpu_worker.protocol.messages import Input, KeepStep, Plan, PutStep, Run, SessionOptions, ToDeviceStep, Variant
from gpu_worker.protocol.payload import Payload, aligned, block_bytes
from gpu_worker.protocol.plans import sealed
from gpu_worker.server.handlers import SessionWorker
from gpu_worker.system.crash_record import CrashRecorder
from vispark.plan.lower.executable import Invocation

BARE = "bare CUDA loop of the same kernels"

ReportDone = Callable[[str], None]


def of_regression(sc: SparkContext, points: Points, settings: Settings, done: ReportDone) -> Group:
    """Measure the tax of an iteration of logistic regression."""
    held = points.rdd(sc).send().htod().cache()
    held.count()
    run = Descending(regression.translated(held), points).run
    with BareWorker(settings.kind) as alone:
        alone.hold(invocation := sent_by(run), points.block)
        group = _group("regression", f"{points.rows:,} rows", points.nbytes, settings)
        group.series = _measured(group, regression.OURS, run, alone.passes(invocation), settings, done)
    held.unpersist()
    return group


def of_kmeans(sc: SparkContext, cloud: Cloud, centers: Sequence[int], settings: Settings, done: ReportDone
              ) -> Iterator[Group]:
    """Measure the tax of an iteration of K-means, for so many centres after the other."""
    with kmeans.ours(sc, cloud) as ways, BareWorker(settings.kind) as alone:
        for number in centers:
            first = cloud.first_centers(number)

            def run(first: np.ndarray = first) -> None:
                # The same centres each time, as in the bare loop: how many rows are in doubt depends on them.
                Iteration(ways[kmeans.OURS], first).run()

            invocation = sent_by(run)
            if number == centers[0]:
                alone.hold(invocation, cloud.block)
            group = _group("K-means", f"{cloud.rows:,} x {cloud.features}, K = {number}", cloud.nbytes, settings)
            group.series = _measured(group, kmeans.OURS, run, alone.passes(invocation), settings, done)
            yield group


def of_heat(sc: SparkContext, cube: heat.Cube, settings: Settings, done: ReportDone) -> Group:
    """Measure the tax of a step of heat."""
    return _of_grid(heat.ours(sc, cube)[OURS], heat.solver(cube), settings, done)


def of_flow(sc: SparkContext, plane: flow.Plane, settings: Settings, done: ReportDone) -> Group:
    """Measure the tax of an iteration of Navier-Stokes."""
    return _of_grid(flow.ours(sc, plane), flow.solver(plane), settings, done)


def _of_grid(way: Way, solver: Solver, settings: Settings, done: ReportDone) -> Group:
    group = _group(solver.name, " x ".join(map(str, solver.grid.shape)), solver.nbytes, settings)
    with ExitStack() as stack:
        devices = open_devices(settings.kind)
        for device in devices:
            stack.callback(device.close)
        loops = stack.enter_context(overlap.loops(solver, devices))
        measured = _measured(group, OURS, lambda: way.advance(solver.steps), loops[overlap.BARE], settings, done)
    group.series = [a_step(series, solver.steps) for series in measured]
    return group


def _group(program: str, size: str, nbytes: int, settings: Settings) -> Group:
    return Group(f"framework tax, {program}, {size}", {
        "tax_of": program, "bytes": nbytes, "samples": settings.samples, "device": settings.kind})


def _measured(group: Group, name: str, ours: Callable[[], object], bare: Callable[[], object], settings: Settings,
              done: ReportDone) -> list:
    return interleave([Case(name, ours, against=(BARE,)), Case(BARE, bare)], settings.samples, done=done)


# -- a plan on rows, without its worker -------------------------------------------------------------------------------

def sent_by(run: Callable[[], object]) -> Invocation:
    """Return the last plan that the driver sends when this runs."""
    sent: list[Invocation] = []
    with _overheard(sent):
        run()
    return sent[-1]


@contextmanager
def _overheard(sent: list[Invocation]) -> Iterator[None]:
    send = vispark.runtime.driver.worker.Worker.send

    def noted(worker: vispark.runtime.driver.worker.Worker, invocation: Invocation, *others):
        sent.append(invocation)
        return send(worker, invocation, *others)

    vispark.runtime.driver.worker.Worker.send = noted
    try:
        yield
    finally:
        vispark.runtime.driver.worker.Worker.send = send


class BareWorker:
    """Worker in this process that holds what a plan reads, and the plan's passes."""

    def __init__(self, kind: str):
        self._directory = tempfile.TemporaryDirectory()
        self._worker = SessionWorker(SessionOptions(kind, 0, 60.0, "", "info"), epoch=1,
                                     recorder=CrashRecorder(Path(self._directory.name, "box"), epoch=1))
        self._numbers = iter(range(1, 1 << 30))

    def __enter__(self) -> BareWorker:
        return self

    def __exit__(self, *_: object) -> None:
        self._worker.close()
        self._directory.cleanup()

    def hold(self, invocation: Invocation, block: Callable[[int], np.ndarray]) -> None:
        """Hold what a plan loads, of which a partition's bytes are given by its number."""
        plan = decode(invocation.prepared.encoded, Plan)

        def put(part: Input) -> None:
            sizes = [block_bytes(plan.variants[variant].signature) for variant in part.blocks]
            variants = tuple(Variant(each.signature, (), (b"",), (-1,)) for each in plan.variants)
            steps = PutStep(), ToDeviceStep(), KeepStep(0, "records", "device")
            one = Plan(steps, (), variants, (replace(part, offset=0),), ())
            with Payload.create(aligned(part.keys) + sum(sizes)) as payload:
                cells = bytes_of(block(part.partition))
                payload.array[aligned(part.keys):][:len(cells)] = cells
                self._handle(sealed(one), (invocation.vrdds[0],), (), [payload.release()])

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(put, plan.inputs))

    def passes(self, invocation: Invocation) -> Callable[[], None]:
        """Return a function that does a pass again, as the worker noted it."""
        key = invocation.prepared.key, invocation.prepared.encoded
        for _ in range(3):      # one that comes again is noted
            values, size = invocation.values.constants(0)
            descriptors = []
            if size:
                with Payload.create(size) as payload:
                    invocation.values.write(payload, 0)
                    descriptors.append(payload.release())
            self._handle(key, invocation.vrdds, values, descriptors)
        recording, = self._worker._plans.get(*key).recordings._known.values()
        work, streams = [RecordedWork(each.entries) for each in recording.work.works], recording.work.streams
        copies, memory = recording.copies, {}
        for slot, buffer, _ in copies.values:
            memory[slot] = recording.host(buffer.nbytes, buffer.device)
            memory[slot][:] = np.frombuffer(bytes(invocation.values.values[slot].data), np.uint8)
        values = SimpleNamespace(data=memory.__getitem__)

        def run() -> None:
            copies.begin(values)
            for entry in work:
                entry.start()
            copies.end(None, -1)
            for device, stream in streams:
                device.synchronize(stream=stream)
        return run

    def _handle(self, key: tuple[bytes, bytes], vrdds: tuple[int, ...], values: tuple, descriptors: list[int]) -> None:
        run = Run(next(self._numbers), 1, 60.0, *key, vrdds, values)
        self._worker.handle(run, descriptors)
