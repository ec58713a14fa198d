"""Steps that a plan starts with: from the records in a request's payload, or from what the worker holds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from gpu_worker.device.memory.partition import Block, HeldArray, Partition
from gpu_worker.device.memory.registry import Registry
from gpu_worker.execution.passes.run_context import RunContext
from gpu_worker.execution.passes.step_handlers import StepHandler, handles
from gpu_worker.execution.scheduling.placement import device_of
from gpu_worker.protocol.errors import ProtocolError
from gpu_worker.protocol.messages import Input, LoadStep, PutStep, Signature
from gpu_worker.protocol.payload import aligned, block_bytes, field_bytes, field_offsets


@handles(PutStep)
class PutHandler(StepHandler[PutStep]):
    """Handler of a start from records that the request brings."""

    brings_records = True

    def start(self, context: RunContext, part: Input) -> Partition:
        keys = _given(context, part.offset, part.keys) if part.keys else None
        signatures = [context.plan.variants[variant].signature for variant in part.blocks]
        if context.chunked is None:
            blocks = list(_in_payload(context, signatures, part.offset + aligned(part.keys)))
        else:
            buffers = iter([context.scratch.adopt(buffer) for buffer in context.chunked.release()])
            blocks = [tuple([HeldArray(described, buffer=next(buffers)) for described in signature.fields])
                      for signature in signatures]
        device = device_of(context.plan, part, context.streams, next(iter(context.request.vrdds), 0))
        return context.use(Partition(part.partition, part.count, keys, part.layout, blocks, device, part.blocks,
                                     part.positions))


def _in_payload(context: RunContext, signatures: Sequence[Signature], start: int) -> Iterator[Block]:
    """Yield the blocks in the payload, from ``start`` on."""
    for signature in signatures:
        yield tuple([HeldArray(described, host=_given(context, offset, field_bytes(described)))
                     for described, offset in field_offsets(signature, start)])
        start += block_bytes(signature)


def _given(context: RunContext, offset: int, nbytes: int) -> np.ndarray:
    """Return bytes of the payload; records without a byte come without one."""
    if not nbytes:
        return np.empty(0, np.uint8)
    if context.payload is None:
        raise ProtocolError("a plan that starts with Put came without a payload")
    return context.payload.view(offset, nbytes)


@handles(LoadStep)
class LoadHandler(StepHandler[LoadStep]):
    """Handler of a start from what the worker holds."""

    @property
    def source(self) -> int:
        return self.step.slot

    @property
    def vrdds(self) -> tuple[int, ...]:
        return (self.step.slot,)

    def dataset(self, names: Registry, vrdds: Sequence[int]) -> str:
        return names.called(vrdds[self.step.slot])

    def start(self, context: RunContext, part: Input) -> Partition:
        partition = context.use(context.names.lookup(context.vrdd(self.step.slot), part.partition))
        partition.variants, partition.positions = part.blocks, part.positions
        if context.recording is not None and context.grid is not None:
            context.recording.reads(partition)
        context.values.loaded.append(partition)
        return partition
