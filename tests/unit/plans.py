"""A worker in this process, and plans for it as a driver sends them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from gpu_worker.protocol.messages import (
    ArgumentValue,
    FetchStep,
    Field,
    Input,
    KeepStep,
    Launch,
    LoadStep,
    Module,
    Plan,
    PutStep,
    Ran,
    Run,
    SessionOptions,
    Signature,
    Step,
    ToDeviceStep,
    Variant,
)
from gpu_worker.protocol.payload import Data, Payload, aligned, block_bytes, field_offsets, results
from gpu_worker.protocol.plans import sealed
from gpu_worker.server.handlers import SessionWorker
from gpu_worker.system.crash_record import CrashRecorder

BlockArrays = Sequence[dict[str, np.ndarray]]


class Bench:
    """A worker, and the partitions that it was given.

    Parameters
    ----------
    worker : SessionWorker
        The worker.
    devices : sequence of str
        The addresses of the devices that plans use; none for all.
    """

    def __init__(self, worker: SessionWorker, devices: Sequence[str] = ()):
        self.process = worker
        self._devices = tuple(devices)
        self._numbers = itertools.count(1)
        self._contents: dict[int, list[BlockArrays]] = {}
        #: The number of the first partition that is here.
        self.first = 0

    def number(self) -> int:
        """Return the number of the next request."""
        return next(self._numbers)

    def put(self, vrdd: int, partitions: Sequence[BlockArrays], place: str = "device") -> None:
        """Hold some partitions' blocks, each a dict of fields, on the device or where a plan may keep it."""
        moves = (ToDeviceStep(),) if place == "device" else ()
        for index, blocks in enumerate(partitions):
            variants = tuple(Variant(_signature(block), (), (b"",), (-1,)) for block in blocks)
            item = Input(self.first + index, _count(blocks), 0, 0, b"", tuple(range(len(blocks))))
            plan = Plan((PutStep(), *moves, KeepStep(0, "x", place)), (), variants, (item,), ())
            arrays = [array for block in blocks for array in block.values()]
            with Payload.create(sum(aligned(array.nbytes) for array in arrays)) as payload:
                offset = 0
                for array in arrays:
                    payload.put(offset, array)
                    offset += aligned(array.nbytes)
                self.run(plan, (vrdd,), descriptors=[payload.release()])
        self.describe(vrdd, partitions)

    def describe(self, vrdd: int, partitions: Sequence[BlockArrays]) -> None:
        """Say what is held under a number, for plans on it."""
        self._contents[vrdd] = list(partitions)

    def plan(self, vrdd: int, steps: Sequence[Step], launches: dict[Signature, Sequence[Launch]] | Sequence[Launch],
             source: str, *, outputs: int = 0) -> Plan:
        """Return a plan on what is held under a number: from Load to the given steps. ``outputs`` is the number of
        Keeps.
        """
        signatures = list(dict.fromkeys(_signature(block) for blocks in self._contents[vrdd] for block in blocks))
        variants = tuple(Variant(each, tuple(launches[each] if isinstance(launches, dict) else launches),
                                 (b"",) * outputs, (-1,) * outputs) for each in signatures)
        inputs = tuple(Input(self.first + index, _count(blocks), 0, 0, b"",
                             tuple(signatures.index(_signature(b)) for b in blocks))
                       for index, blocks in enumerate(self._contents[vrdd]))
        return Plan((LoadStep(0), *steps), (Module(source, "test.cu", (), (), ()),), variants, inputs, self._devices)

    def request(self, plan: Plan, vrdds: Sequence[int], values: Sequence[np.ndarray] = (), *,
                known: bool = False) -> Run:
        """Return the request for a plan, which uses the bench's devices where it says none."""
        key, encoded = sealed(plan if plan.devices else replace(plan, devices=self._devices))
        arrays = [np.asarray(value) for value in values]
        constants = tuple(ArgumentValue(array.dtype.str, array.shape, array.tobytes(), 0) for array in arrays)
        return Run(self.number(), 1, 30.0, key, b"" if known else encoded, tuple(vrdds), constants)

    def run(self, plan: Plan, vrdds: Sequence[int], values: Sequence[np.ndarray] = (), *, known: bool = False,
            descriptors: Sequence[int] = ()) -> tuple[Ran, Data]:
        """Run a plan, and return the answer and its data."""
        reply, sent = self.process.handle(self.request(plan, vrdds, values, known=known), list(descriptors))
        return reply, results(reply.data, sent)

    def folded(self, plan: Plan, vrdds: Sequence[int], values: Sequence[np.ndarray] = (), **how) -> list[np.ndarray]:
        """Return the fields that a plan folds."""
        reply, data = self.run(plan, vrdds, values, **how)
        return [data.field(Field("", each.dtype, each.shape), each.offset) for each in reply.folded.fields]

    def fetched(self, vrdd: int) -> list[list[dict[str, np.ndarray]]]:
        """Return the blocks of each partition held under a number."""
        signatures, held = self.process._names.describe(vrdd, ())
        inputs = tuple(Input(each.partition, each.count, 0, 0, b"", ()) for each in held)
        reply, data = self.run(Plan((LoadStep(0), FetchStep(-1, "")), (), (), inputs, ()), (vrdd,))
        partitions = []
        for output, partition in zip(reply.outputs, held, strict=True):
            offset, blocks = output.offset, []
            for block in partition.blocks:
                blocks.append({})
                for described, start in field_offsets(signatures[block], offset):
                    blocks[-1][described.name] = data.field(described, start)
                offset += block_bytes(signatures[block])
            partitions.append(blocks)
        return partitions


def _signature(block: dict[str, np.ndarray]) -> Signature:
    return Signature(tuple(Field(name, array.dtype.str, array.shape) for name, array in block.items()))


def _count(blocks: BlockArrays) -> int:
    return len(next(iter(blocks[0].values()))) if len(blocks) == 1 else len(blocks)


@contextmanager
def bench(path: Path, device: str, *, devices: Sequence[str] | None = None, **options: Any) -> Iterator[Bench]:
    """Start a worker with a device of some kind, by options of its session; all that it held is given back at the end.

    Of several GPUs plans use the first, unless ``devices`` says which, or none for all.
    """
    box = CrashRecorder(path / "box", epoch=1)
    worker = SessionWorker(replace(SessionOptions(device, 0, 30.0, "", "info"), **options), epoch=1, recorder=box)
    yield Bench(worker, ("0",) if devices is None and device == "cuda" else devices or ())
    worker._names.close()
    worker._plans.forget()
    assert not worker.report().memory[0].used
    worker.close()
    box.close()
