"""Placement of the partitions that a plan brings on devices."""

from __future__ import annotations

from gpu_worker.device.base import Device
from gpu_worker.device.memory.grid.patches import device_for
from gpu_worker.execution.scheduling.streams import Streams
from gpu_worker.protocol.messages import Input, Plan


def device_of(plan: Plan, part: Input, streams: Streams, vrdd: int) -> Device:
    """Return the device of a partition that a plan brings; ``vrdd`` is the first that the plan keeps, or 0."""
    if plan.grid is None:
        return streams.place(vrdd, part.partition, plan.devices)
    return device_for(plan.grid, part.positions, streams.devices_at(plan.devices))
