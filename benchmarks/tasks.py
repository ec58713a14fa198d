"""A kernel per Spark task, as one does without a worker: with the block sent each time, or kept by the Python worker.

This runs in Spark's Python workers. What they keep, they keep in this module's globals, which live as long as they do.
"""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from benchmarks import peers
from benchmarks.bare import bytes_of
from benchmarks.cloud import Cloud
from benchmarks.halos import Given, edge
from benchmarks.points import FEATURES, KERNELS, SUM_BLOCK, Fused, Points, gradient
from benchmarks.recorder import Lap
from gpu_worker.device import open_devices
from gpu_worker.device.base import Buffer, Source

try:
    import cupy
except ImportError:
    cupy = None


class CupyGpu:
    """The fused kernel through CuPy."""

    def __init__(self, fused: Fused):
        module = cupy.RawModule(code=KERNELS.read_text(), options=fused.options, backend="nvrtc")
        self._fused = fused
        self._gradient, self._sum = (module.get_function(name) for name in ("gradient_partials", "sum_partials"))

    def put(self, block: np.ndarray) -> Any:
        return cupy.asarray(block)

    def drop(self, data: Any) -> None:
        """Do nothing: CuPy's pool takes it back when the last reference goes."""

    def gradient(self, data: Any, w: np.ndarray) -> np.ndarray:
        rows = len(data)
        grid = self._fused.grid(rows)
        partials, total = cupy.empty((grid, FEATURES), np.float32), cupy.empty(FEATURES, np.float32)
        self._gradient((grid,), (self._fused.threads,), (data, partials, cupy.asarray(w), np.int32(rows)),
                       shared_mem=self._fused.shared)
        self._sum((1,), SUM_BLOCK, (partials, total, np.int32(grid)))
        return total.get()


class DeviceGpu:
    """The fused kernel through a device of gpu_worker's."""

    def __init__(self, kind: str, fused: Fused):
        self._device = open_devices(kind)[0]
        self._stream = self._device.stream()
        self._fused = fused
        source = Source(KERNELS.read_text(), KERNELS.name, fused.options)
        self._gradient, self._sum = (self._device.compile(source, name)
                                     for name in ("gradient_partials", "sum_partials"))

    def put(self, block: np.ndarray) -> Buffer:
        buffer = self._device.allocate(block.nbytes, stream=self._stream)
        self._device.copy_in(buffer, bytes_of(block), stream=self._stream)
        self._device.synchronize(stream=self._stream)
        return buffer

    def drop(self, data: Buffer) -> None:
        data.close()

    def gradient(self, data: Buffer, w: np.ndarray) -> np.ndarray:
        rows = data.nbytes // (FEATURES + 1) // 4
        grid = self._fused.grid(rows)
        weights, sums = self.put(w), np.empty(FEATURES, np.float32)
        partials, total = (self._device.allocate(count * FEATURES * 4, stream=self._stream) for count in (grid, 1))
        self._device.launch(self._gradient, (grid,), (self._fused.threads,),
                            [data, partials, weights, np.int32(rows)], shared=self._fused.shared, stream=self._stream)
        self._device.launch(self._sum, (1,), SUM_BLOCK, [partials, total, np.int32(grid)], stream=self._stream)
        self._device.copy_out(sums.view(np.uint8), total, stream=self._stream)
        self._device.synchronize(stream=self._stream)
        for buffer in (weights, partials, total):
            buffer.close()
        return sums


def gpu_library(kind: str) -> str:
    """Return the name of the library by which tasks reach a device of this kind."""
    return "CuPy" if kind == "cuda" and cupy is not None else "gpu_worker.device"


@cache
def _gpu(kind: str, fused: Fused) -> CupyGpu | DeviceGpu:
    """Return this process's device, opened once."""
    return CupyGpu(fused) if gpu_library(kind) == "CuPy" else DeviceGpu(kind, fused)


_kept: dict[tuple, Any] = {}


def gradient_by_kernel(block: np.ndarray, w: np.ndarray, kind: str, fused: Fused) -> np.ndarray:
    """Return the gradient by Spark-G: the block goes to the device, and only the gradient stays."""
    gpu = _gpu(kind, fused)
    data = gpu.put(block)
    try:
        return gpu.gradient(data, w)
    finally:
        gpu.drop(data)


def timed_gradient(block: np.ndarray, w: np.ndarray, lap: Lap, *, kind: str, fused: Fused) -> np.ndarray:
    """Return the gradient by Spark-G, a lap for the copy and one for the kernel."""
    gpu = _gpu(kind, fused)
    data = gpu.put(block)
    lap("host-to-device")
    try:
        return gpu.gradient(data, w)
    finally:
        lap("kernel")
        gpu.drop(data)


def put_points(block: np.ndarray, kind: str, fused: Fused) -> Any:
    """Put a block on the device, to be kept there."""
    return _gpu(kind, fused).put(block)


def gradient_of_put(data: Any, w: np.ndarray, kind: str, fused: Fused) -> np.ndarray:
    """Return the gradient of a block that is on the device."""
    return _gpu(kind, fused).gradient(data, w)


def timed_kmeans(block: np.ndarray, centers: np.ndarray, lap: Lap) -> np.ndarray:
    """Return the sums of K-means by CuPy, as Spark-G does, with counts in the last column; laps as above."""
    data = to_gpu(block)
    cupy.cuda.Stream.null.synchronize()
    lap("host-to-device")
    totals = flat(peers.cupy_kmeans(data)(centers))
    lap("kernel")
    return totals


def flat(totals: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """Return sums and counts in one array, so that they add as one."""
    return np.column_stack([totals[0], totals[1].astype(np.float32)])


def gradient_by_kept_kernel(points: Points, partition: int, w: np.ndarray, kind: str,
                            fused: Fused) -> tuple[np.ndarray, int]:
    """Return the gradient by Spark-G+, and 1 if this process did not have the block yet, which is then made and sent.
    """
    gpu, key = _gpu(kind, fused), ("device", points, partition)
    missed = key not in _kept
    if missed:
        _kept[key] = gpu.put(points.block(partition))
    return gpu.gradient(_kept[key], w), int(missed)


def gradient_of_kept(points: Points, partition: int, w: np.ndarray) -> tuple[np.ndarray, int]:
    """Return the gradient by Spark-C+: NumPy on a block that this process keeps, made where it has it not yet."""
    key = "host", points, partition
    missed = key not in _kept
    if missed:
        _kept[key] = points.block(partition)
    return gradient(_kept[key], w), int(missed)


def kmeans_of_kept(cloud: Cloud, partition: int, centers: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
    """Return the sums and counts of K-means by Spark-C+, BLAS on a block that this process keeps, and 1 if it had to be
    made.
    """
    key = "host", cloud, partition
    missed = key not in _kept
    if missed:
        _kept[key] = cloud.block(partition)
    return *peers.numpy_kmeans(_kept[key])(centers), int(missed)


def kmeans_by_kept(cloud: Cloud, partition: int, centers: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
    """Return sums, counts and 1 or 0, as above, by Spark-G+: CuPy on a block that this process keeps on the GPU."""
    key = "device", cloud, partition
    missed = key not in _kept
    if missed:
        _kept[key] = cupy.asarray(cloud.block(partition))
    return *peers.cupy_kmeans(_kept[key])(centers), int(missed)


def kmeans_by_cupy(block: np.ndarray, centers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return sums and counts of K-means by Spark-G: the block goes to the GPU, and only sums and counts stay."""
    return peers.cupy_kmeans(cupy.asarray(block))(centers)


def to_gpu(block: np.ndarray) -> Any:
    return cupy.asarray(block)


def on_host(cells: Any) -> np.ndarray:
    """Return an array of the host's from one that may be on the GPU."""
    return np.ascontiguousarray(cells) if isinstance(cells, np.ndarray) else cupy.asnumpy(cells)


def by_numpy(step: Callable[[Any, Given], Any], block: np.ndarray, strips: Given, lap: Lap) -> np.ndarray:
    """Do a step of Spark-C on a grid."""
    result = step(block, strips)
    lap("kernel")
    return result


def by_cupy(step: Callable[[Any, Given], Any], block: np.ndarray, strips: Given, lap: Lap) -> np.ndarray:
    """Do a step of Spark-G on a grid: block and strips go to the GPU, and the block after the step comes back."""
    data, copies = to_gpu(block), {offset: to_gpu(strip) for offset, strip in strips.items()}
    cupy.cuda.Stream.null.synchronize()
    lap("host-to-device")
    return cupy.asnumpy(by_kept_cupy(step, data, copies, lap))


def by_kept_cupy(step: Callable[[Any, Given], Any], block: Any, strips: Given, lap: Lap) -> Any:
    """Do a step of Spark-G+ on a grid: the block is on the GPU and stays there."""
    result = step(block, strips)
    cupy.cuda.Stream.null.synchronize()
    lap("kernel")
    return result


def heated(block: Any, strips: Given, k: float) -> Any:
    """Do a step of the heat equation of a block on the GPU, by CuPy."""
    padded = cupy.zeros(tuple(extent + 2 for extent in block.shape), cupy.float32)
    padded[1:-1, 1:-1, 1:-1] = block
    for offset, strip in strips.items():
        padded[tuple(edge(side) if side else slice(1, -1) for side in offset)] = cupy.asarray(strip)
    result = peers.cupy_heat_step()(*peers.around(padded), np.float32(k))
    cupy.cuda.Stream.null.synchronize()
    return result


def has_mpi() -> bool:
    """Return whether MPI programs can be started here."""
    return shutil.which("mpirun") is not None and importlib.util.find_spec("mpi4py") is not None
