"""The devices that the contract suite runs on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.device.bench import Bench, opened


@pytest.fixture(scope="session")
def cache_dir() -> str:
    """The user's kernel cache, as of all tests that say nothing of it."""
    return ""


@pytest.fixture(params=["host", "cuda"])
def bench(request: pytest.FixtureRequest, cache_dir: str) -> Iterator[Bench]:
    """A device that really computes; whatever a test allocates it must be able to give back."""
    device = opened(request.param, cache_dir)
    yield Bench(device, device.stream())
    device.close()


@pytest.fixture(params=["host", "cuda", "null"])
def any_bench(request: pytest.FixtureRequest, cache_dir: str) -> Iterator[Bench]:
    """A device of any kind."""
    device = opened(request.param, cache_dir)
    yield Bench(device, device.stream())
    device.close()
