"""The null device remembers what it was asked and does nothing."""

from __future__ import annotations

import numpy as np

from gpu_worker.device import open_devices
from gpu_worker.device.base import Source
from gpu_worker.device.null import CALLS_KEPT, NullDevice


def test_calls_are_remembered_in_order():
    device = NullDevice()
    stream = device.stream()
    buffer = device.allocate(100, stream=stream)
    device.copy_in(buffer, np.zeros(100, "u1"), stream=stream)
    kernel = device.compile(Source("not even C++"), "anything")
    device.launch(kernel, (2,), (32,), [buffer, np.int32(1)], shared=16, stream=stream)
    device.copy_out(np.ones(100, "u1"), buffer, stream=stream)
    device.synchronize(stream=stream)
    buffer.close()
    assert list(device.calls) == [
        ("stream",), ("allocate", 100), ("copy_in", buffer.address, 100), ("compile", "anything"),
        ("launch", "anything", (2,), (32,), (buffer, np.int32(1)), 16), ("copy_out", buffer.address, 100),
        ("synchronize",), ("free", buffer.address)]


def test_memory_of_calls_is_bounded():
    device = NullDevice()
    for _ in range(CALLS_KEPT + 10):
        device.stream()
    assert len(device.calls) == CALLS_KEPT


def test_one_device_per_address():
    assert [device.name for device in open_devices("null", addresses=["3", "5"])] == ["null:3", "null:5"]
