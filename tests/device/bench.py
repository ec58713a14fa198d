"""Shorthands for what the device tests do with a device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from gpu_worker.device import open_devices
from gpu_worker.device.base import Buffer, Device, Source, Stream
from gpu_worker.protocol.errors import DeviceUnavailable

KERNELS = Path(__file__).parent / "kernels"


def opened(kind: str, cache_dir: str, **options: int) -> Device:
    """Return the first device of a kind; the test is skipped where a GPU is missing."""
    try:
        return open_devices(kind, addresses=["0"], cache_dir=cache_dir, **options)[0]
    except DeviceUnavailable as error:
        if kind != "cuda":
            raise
        pytest.skip(str(error))


@dataclass
class DeviceBench:
    """A device, a stream on it, and copies of arrays to and fro."""

    device: Device
    stream: Stream

    def put(self, array: np.ndarray) -> Buffer:
        """Return a buffer with an array's bytes."""
        buffer = self.device.allocate(array.nbytes, stream=self.stream)
        self.device.copy_in(buffer, np.frombuffer(array.tobytes(), "u1"), stream=self.stream)
        self.device.synchronize(stream=self.stream)
        return buffer

    def get(self, buffer: Buffer, shape: Sequence[int] | int, dtype: str) -> np.ndarray:
        """Return the bytes that a buffer holds, as an array."""
        array = np.empty(shape, dtype)
        self.device.copy_out(array.reshape(-1).view("u1"), buffer, stream=self.stream)
        self.device.synchronize(stream=self.stream)
        return array

    def run(self, file: str, kernel: str, grid: Sequence[int], block: Sequence[int], *arguments: Buffer | np.generic,
            shared: int = 0, options: Sequence[str] = (), constants: Sequence[tuple[str, bytes]] = ()) -> None:
        """Launch a kernel of a file under ``kernels/`` and wait for it."""
        source = Source((KERNELS / file).read_text(), file, tuple(options), tuple(constants))
        compiled = self.device.compile(source, kernel)
        self.device.launch(compiled, grid, block, arguments, shared=shared, stream=self.stream)
        self.device.synchronize(stream=self.stream)
