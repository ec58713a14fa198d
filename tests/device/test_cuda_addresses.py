"""Addresses of GPUs and MIG instances on the cuda device, against a stand-in that records the driver's calls.

CUDA itself is asked by ``tests/gpu/test_assigned.py``.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpu_worker.device import open_devices
from gpu_worker.device.cuda import clock, device, driver, graph, layer, native_driver, pool, shared_memory
from gpu_worker.execution.scheduling.streams import StreamPool
from gpu_worker.protocol.errors import DeviceUnavailable
from tests.device.recording_driver import RecordingDriver

real = pytest.importorskip("cuda.bindings.driver")

GPUS = ["GPU-11111111-2222-3333-4444-555555555555", "GPU-22222222-2222-3333-4444-555555555555",
        "GPU-33333333-2222-3333-4444-555555555555"]
INSTANCES = ["MIG-aaaaaaaa-2222-3333-4444-555555555555", "MIG-bbbbbbbb-2222-3333-4444-555555555555"]


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> RecordingDriver:
    """Three GPUs, the first in MIG mode with two instances, in a process that has not called CUDA."""
    stand_in = RecordingDriver(real, [])
    stand_in.gpus, stand_in.instances = GPUS, INSTANCES
    for module in (clock, device, driver, graph, layer, native_driver, pool, shared_memory):
        if hasattr(module, "bindings"):
            monkeypatch.setattr(module, "bindings", stand_in)
    monkeypatch.setattr(device, "cuda_driver", native_driver)
    monkeypatch.setattr(device, "nvrtc_version", lambda: (13, 0))
    monkeypatch.setattr(device, "_INITIALIZED", threading.Event())
    # So that what the device sets is undone.
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    return stand_in


@pytest.fixture
def opened(cuda: RecordingDriver, tmp_path: Path) -> Iterator[StreamPool]:
    pool = StreamPool([], lambda addresses: open_devices("cuda", addresses=addresses, cache_dir=str(tmp_path)))
    yield pool
    for gpu in pool.devices:
        gpu.close()
    assert "cuDevicePrimaryCtxRetain" not in cuda.unpaired()


def _names(pool: StreamPool) -> list[str]:
    return [each.name for each in pool.devices]


def test_a_gpu_is_opened_once_by_all_of_its_names(opened: StreamPool):
    opened.open(["1", GPUS[1], "gpu-2222", "2"])
    opened.open([GPUS[2]])
    assert _names(opened) == ["cuda:1", "cuda:2"]
    assert opened.devices_at([GPUS[1]]) == opened.devices_at(["1"])


def test_unknown_addresses_are_all_named_and_nothing_is_opened(opened: StreamPool, cuda: RecordingDriver):
    with pytest.raises(DeviceUnavailable, match=f"the GPUs '7', 'GPU-9', but this process sees 3 GPUs: {GPUS[0]}"):
        opened.open(["0", "7", "GPU-9"])
    assert opened.devices == () and cuda.count()["cuDevicePrimaryCtxRetain"] == 0


def test_a_mig_instance_is_shown_and_opened(opened: StreamPool):
    opened.open([INSTANCES[1]])
    opened.open(["MIG-bbbb"])
    assert _names(opened) == ["cuda:0"]


@pytest.mark.parametrize("others", [["0"], [INSTANCES[1]], ["2", GPUS[1]]])
def test_an_instance_is_the_only_device_of_a_process(opened: StreamPool, others: list[str]):
    opened.open([INSTANCES[0]])
    names = ", ".join(map(repr, others))
    with pytest.raises(DeviceUnavailable, match=f"{names}, but .* one at most: give an application one instance"):
        opened.open(others)
    assert _names(opened) == ["cuda:0"]


def test_two_instances_at_once_open_neither(opened: StreamPool):
    with pytest.raises(DeviceUnavailable, match=f"the GPU '{INSTANCES[1]}', but .* one at most"):
        opened.open(INSTANCES)
    assert opened.devices == ()


def test_an_instance_behind_a_gpu_is_no_other_gpu(opened: StreamPool):
    opened.open(["2"])
    with pytest.raises(DeviceUnavailable, match=f"'{INSTANCES[0]}', but this process sees 3 GPUs.* one at most"):
        opened.open([INSTANCES[0]])
    assert _names(opened) == ["cuda:2"]


def test_an_instance_that_is_not_there_is_named(opened: StreamPool):
    with pytest.raises(DeviceUnavailable, match="'MIG-cccc', and CUDA shows no MIG instance here"):
        opened.open(["MIG-cccc"])
