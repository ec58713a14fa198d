"""Which device and stream a partition's work goes to."""

from __future__ import annotations

import os
import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from gpu_worker.device.base import Device, Stream
from gpu_worker.device.cuda_launch import ordinals
from gpu_worker.protocol.errors import VisparkError
from gpu_worker.protocol.payload import Payload

#: Streams of one device that a single plan works on at once.
LANES = 8

#: Smaller payloads are copied faster than they are pinned.
PIN_FROM = 4 << 20


class StreamPool:
    """The devices of a worker and their idle streams."""

    def __init__(self, devices: Sequence[Device]):
        self.devices = tuple(devices)
        self._idle: dict[Device, list[Stream]] = defaultdict(list)
        self._lock = threading.Lock()

    def take(self, device: Device) -> Stream:
        with self._lock:
            if self._idle[device]:
                return self._idle[device].pop()
        return device.stream()

    def give(self, device: Device, stream: Stream) -> None:
        with self._lock:
            self._idle[device].append(stream)

    def among(self, addresses: Sequence[str]) -> Sequence[Device]:
        """The devices at the GPU addresses that Spark assigned; all, where it assigned none.

        Raises
        ------
        DeviceUnavailable
            If this worker has none of them.
        """
        if not addresses or self.devices[0].kind != "cuda":
            return self.devices
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        return [self.devices[number] for number in ordinals(addresses, visible, len(self.devices))]


class Streams:
    """The streams of one plan: a lane per partition, up to :data:`LANES` on each device."""

    def __init__(self, pool: StreamPool):
        self._pool = pool
        self._lanes: dict[tuple[Device, int], Stream] = {}

    def place(self, partition: int, addresses: Sequence[str]) -> Device:
        """The device for a new partition; the same for equal arguments."""
        devices = self._pool.among(addresses)
        return devices[partition % len(devices)]

    def of(self, device: Device, partition: int) -> Stream:
        """The stream for a partition's work on its device."""
        lane = device, partition // len(self._pool.devices) % LANES
        if lane not in self._lanes:
            self._lanes[lane] = self._pool.take(device)
        return self._lanes[lane]

    def synchronize(self) -> None:
        """Wait for all of the plan's work."""
        for (device, _), stream in self._lanes.items():
            device.synchronize(stream=stream)

    def settle(self) -> None:
        """Wait for all work of a plan that has failed; what fails now is not news."""
        for (device, _), stream in self._lanes.items():
            try:
                device.synchronize(stream=stream)
            except VisparkError:
                continue

    def close(self) -> None:
        """Give the streams back."""
        for (device, _), stream in self._lanes.items():
            self._pool.give(device, stream)
        self._lanes.clear()

    @contextmanager
    def pinned(self, payload: Payload | None) -> Iterator[None]:
        """Pin a payload, where there is one that is worth it, for as long as its copies run."""
        first = self._pool.devices[0]
        if payload is None or payload.size < PIN_FROM:
            yield
            return
        first.pin(payload.array)
        try:
            yield
        finally:
            first.unpin(payload.array)
