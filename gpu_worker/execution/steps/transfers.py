"""Steps that copy partitions between the worker's host memory and devices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from gpu_worker.device.memory.partition import HeldArray, Partition
from gpu_worker.execution.passes.run_context import BlockForm, RunContext
from gpu_worker.execution.passes.step_handlers import ByPlanes, Cuts, StepHandler, every_row, handles
from gpu_worker.protocol.messages import Field, Launch, ToDeviceStep, ToHostStep
from gpu_worker.protocol.payload import Payload, aligned


@handles(ToDeviceStep)
class ToDeviceHandler(StepHandler[ToDeviceStep]):
    """Handler of copies to the device."""

    only_moves = True
    on_device = True
    by_blocks = True
    timed_as = "copy_in"

    @property
    def blocks(self) -> BlockForm:
        return BlockForm.ANY

    def cuts(self, fields: Sequence[Field], launch: Launch | None, works: Callable[[], np.ndarray]) -> Cuts:
        return every_row(fields)

    @property
    def by_planes(self) -> ByPlanes | None:
        return lambda context, planes, values: values

    def run(self, context: RunContext, values: list[Partition]) -> list[Partition]:
        return context.each(self, values, context.to_device)


@handles(ToHostStep)
class ToHostHandler(StepHandler[ToHostStep]):
    """Handler of copies to host memory."""

    by_blocks = True
    timed_as = "copy_out"

    @property
    def leaves_host_memory(self) -> bool:
        return True

    def cuts(self, fields: Sequence[Field], launch: Launch | None, works: Callable[[], np.ndarray]) -> Cuts:
        return every_row(fields)

    @property
    def by_planes(self) -> ByPlanes | None:
        return lambda context, planes, values: values

    def run(self, context: RunContext, values: list[Partition]) -> list[Partition]:
        return context.run_together(self, values, partial(copied_out, context))


def copied_out(context: RunContext, values: Sequence[Partition]) -> list[Partition]:
    """Return the partitions with their arrays in host memory, too."""
    copied, devices = [], {value.device for value in values}
    for value in values:
        arrays = [array for array in value.arrays if array.host is None]
        stream, offset, copies = context.streams.main(value.device), 0, {}
        memory = Payload.create(sum(aligned(array.nbytes) for array in arrays))
        for array in arrays:
            assert array.buffer is not None
            target = memory.view(offset, array.nbytes)
            value.device.copy_out(target, array.buffer, stream=stream)
            copies[id(array)] = HeldArray(array.field, host=target, buffer=array.buffer.share())
            offset += aligned(array.nbytes)
        memory.close()
        copied.append(context.after(value, value.replacing(copies), own=False))
    for device in devices:
        device.synchronize(stream=context.streams.main(device))
    return copied
