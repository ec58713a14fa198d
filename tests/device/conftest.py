"""The devices that the contract suite runs on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gpu_worker.protocol import device_kinds
from tests.device.bench import DeviceBench, opened
from tests.device.toy import TOY


@pytest.fixture(scope="session")
def cache_dir() -> str:
    """Return the user's kernel cache, as of all tests that say nothing of it."""
    return ""


@pytest.fixture(params=["host", "cuda"])
def bench(request: pytest.FixtureRequest, cache_dir: str) -> Iterator[DeviceBench]:
    """Yield a device that really computes; whatever a test allocates it must be able to give back."""
    device = opened(request.param, cache_dir)
    yield DeviceBench(device, device.stream())
    device.close()


@pytest.fixture(params=["host", "cuda", "null", "toy"])
def any_bench(request: pytest.FixtureRequest, cache_dir: str) -> Iterator[DeviceBench]:
    """Yield a device of any kind, the one of docs/development/add_a_device.md among them."""
    device_kinds.register(TOY)
    device = opened(request.param, cache_dir)
    yield DeviceBench(device, device.stream())
    device.close()
    device_kinds.unregister(TOY.name)
