"""Tests of what only a real GPU shows; one check of what is here decides whether they run."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpu_worker.device.cuda import device as cuda
from gpu_worker.protocol.errors import DeviceUnavailable

HERE = Path(__file__).parent


def _missing() -> str:
    """Return the reason why there is no GPU to test, or nothing."""
    with tempfile.TemporaryDirectory() as cache:
        try:
            device, = cuda.open_cuda(memory=0, addresses=("0",), cache_dir=cache)
        except DeviceUnavailable as error:
            return error.message
        device.close()
    return ""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    local = [item for item in items if HERE in item.path.parents]
    reason = _missing() if local else ""
    if reason:
        for item in local:
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture
def devices(tmp_path: Path) -> Iterator[list[cuda.CudaDevice]]:
    """Yield all GPUs, with nothing allocated on them, before and after."""
    gpus = cuda.open_cuda(memory=0, addresses=(), cache_dir=str(tmp_path))
    assert [device.memory().used for device in gpus] == [0] * len(gpus)
    yield gpus
    assert [device.memory().used for device in gpus] == [0] * len(gpus)
    for device in gpus:
        device.close()


@pytest.fixture
def device(tmp_path: Path) -> Iterator[cuda.CudaDevice]:
    """Yield the first GPU, with nothing allocated on it, before and after; others are not opened."""
    gpu, = cuda.open_cuda(memory=0, addresses=("0",), cache_dir=str(tmp_path))
    assert not gpu.memory().used
    yield gpu
    assert not gpu.memory().used
    gpu.close()
