"""The same iterations in the libraries that one would use without Spark: CuPy, JAX, Numba, NumPy.

Data is shared with the bare loop where it lies, without a copy. Each way is what the library's users write, and with
float32's accuracy; where a library has a faster and coarser way, that is a way of its own.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

# Before JAX is imported: it would take most of the GPU's memory for itself.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

try:
    import cupy
except ImportError:
    cupy = None
try:
    import jax
    import jax.numpy as jnp
except ImportError:
    jax = jnp = None
try:
    import numba
except ImportError:
    numba = None

#: Rows that CuPy's K-means works on at once, so that its distances stay small beside the points.
_CHUNK = 1 << 18

PeerStep = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]


def give_back() -> None:
    """Give what CuPy's pool keeps of arrays that are gone back to the GPU, where Python workers want it next."""
    if cupy is not None:
        cupy.get_default_memory_pool().free_all_blocks()


def on_device(address: int, shape: tuple[int, ...], dtype: str = "float32") -> Any:
    """Return CuPy's array over memory that somebody else owns."""
    nbytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
    memory = cupy.cuda.UnownedMemory(address, nbytes, None)
    return cupy.ndarray(shape, dtype, cupy.cuda.MemoryPointer(memory, 0))


# -- logistic regression ----------------------------------------------------------------------------------------------

@cache
def _cupy_scale() -> Callable[..., Any]:
    @cupy.fuse()
    def scale(margin, label):
        return (1 / (1 + cupy.exp(-label * margin)) - 1) * label
    return scale


def cupy_gradient(points: Any) -> Callable[[np.ndarray], np.ndarray]:
    """Return the gradient over rows of (label, features) as CuPy's users write it: two products and a fused scale
    between.
    """
    y, x = points[:, 0], points[:, 1:]
    return lambda w: cupy.asnumpy(_cupy_scale()(x @ cupy.asarray(w), y) @ x)


def jax_gradient(points: Any) -> Callable[[np.ndarray], np.ndarray]:
    """Return the gradient compiled by XLA as a whole."""
    data = jax.dlpack.from_dlpack(points)
    return lambda w: np.asarray(_jax_gradient()(data, w))


@cache
def _jax_gradient() -> Callable[..., Any]:
    @jax.jit
    def gradient(data, w):
        y, x = data[:, 0], data[:, 1:]
        scale = (1 / (1 + jnp.exp(-y * jnp.dot(x, w, precision="highest"))) - 1) * y
        return jnp.dot(scale, x, precision="highest")
    return gradient


def numba_gradient(points: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Return the gradient on all cores of the CPU, a loop over rows that LLVM vectorises along the row."""
    return lambda w: _numba_gradient()(points, w)


@cache
def _numba_gradient() -> Callable[..., Any]:
    threads = numba.get_num_threads()

    @numba.njit(parallel=True, fastmath=True)
    def gradient(data, w):
        partials = np.zeros((threads, w.size), np.float32)
        for thread in numba.prange(threads):
            own = np.zeros(w.size, np.float32)
            for row in range(thread * len(data) // threads, (thread + 1) * len(data) // threads):
                margin = np.float32(0)
                for j in range(w.size):
                    margin += w[j] * data[row, 1 + j]
                scale = (1 / (1 + np.exp(-data[row, 0] * margin)) - 1) * data[row, 0]
                for j in range(w.size):
                    own[j] += scale * data[row, 1 + j]
            partials[thread] = own
        return partials.sum(axis=0)
    return gradient


# -- K-means ----------------------------------------------------------------------------------------------------------

def cupy_kmeans(points: Any) -> PeerStep:
    """Return a step that gives the sums and counts of the points of each centre: products a chunk of rows at a time, in
    float32.
    """
    def step(centers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        c = cupy.asarray(centers)
        squares, numbers = (c * c).sum(axis=1), cupy.arange(len(c))
        sums, counts = cupy.zeros_like(c), cupy.zeros(len(c), cupy.int64)
        for first in range(0, len(points), _CHUNK):
            part = points[first:first + _CHUNK]
            labels = (squares - 2 * (part @ c.T)).argmin(axis=1)
            chosen = labels[:, None] == numbers
            sums += chosen.astype(cupy.float32).T @ part
            counts += chosen.sum(axis=0)
        return cupy.asnumpy(sums), cupy.asnumpy(counts)
    return step


def jax_kmeans(points: Any, precision: str) -> PeerStep:
    """Return a step of K-means compiled by XLA; ``precision`` "highest" is float32, "default" TF32."""
    data = jax.dlpack.from_dlpack(points)

    def run(centers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        sums, counts = _jax_kmeans(precision)(data, centers)
        return np.asarray(sums), np.asarray(counts)
    return run


@cache
def _jax_kmeans(precision: str) -> Callable[..., Any]:
    @jax.jit
    def step(data, c):
        products = jnp.dot(data, c.T, precision=precision)
        labels = ((c * c).sum(axis=1) - 2 * products).argmin(axis=1)
        chosen = jax.nn.one_hot(labels, len(c), dtype=jnp.float32)
        return jnp.dot(chosen.T, data, precision=precision), chosen.sum(axis=0)
    return step


def numpy_kmeans(points: np.ndarray, chunk: int = 4096) -> PeerStep:
    """Return a step of K-means by BLAS, a chunk of rows at a time."""
    def step(centers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        squares = (centers * centers).sum(axis=1)
        sums, counts = np.zeros_like(centers), np.zeros(len(centers), np.int64)
        for first in range(0, len(points), chunk):
            part = points[first:first + chunk]
            labels = (squares - 2 * (part @ centers.T)).argmin(axis=1)
            chosen = (labels[:, None] == np.arange(len(centers))).astype(np.float32)
            sums += chosen.T @ part
            counts += np.bincount(labels, minlength=len(centers))
        return sums, counts
    return step


def numba_kmeans(points: np.ndarray) -> PeerStep:
    """Return a step of K-means on all cores of the CPU, distances as they are defined."""
    return lambda centers: _numba_kmeans()(points, centers)


@cache
def _numba_kmeans() -> Callable[..., Any]:
    threads = numba.get_num_threads()

    @numba.njit(parallel=True, fastmath=True)
    def step(data, centers):
        sums = np.zeros((threads, centers.shape[0], centers.shape[1]), np.float32)
        counts = np.zeros((threads, len(centers)), np.int64)
        for thread in numba.prange(threads):
            for row in range(thread * len(data) // threads, (thread + 1) * len(data) // threads):
                best, least = 0, np.float32(np.inf)
                for k in range(len(centers)):
                    distance = np.float32(0)
                    for j in range(data.shape[1]):
                        distance += (data[row, j] - centers[k, j]) ** 2
                    if distance < least:
                        best, least = k, distance
                counts[thread, best] += 1
                for j in range(data.shape[1]):
                    sums[thread, best, j] += data[row, j]
        return sums.sum(axis=0), counts.sum(axis=0)
    return step


# -- the heat equation ------------------------------------------------------------------------------------------------

def around(padded: Any) -> tuple[Any, ...]:
    """Return the inner cells of an array with a rim, and their six neighbours."""
    within = slice(1, -1)
    return (padded[1:-1, 1:-1, 1:-1], padded[2:, within, within], padded[:-2, within, within],
            padded[within, 2:, within], padded[within, :-2, within], padded[within, within, 2:],
            padded[within, within, :-2])


class _Padded:
    """Two arrays with a rim of zeros, and a step from one into the other."""

    def __init__(self, cells: Any, library: Any):
        padded = library.zeros(tuple(extent + 2 for extent in cells.shape), cells.dtype)
        padded[1:-1, 1:-1, 1:-1] = cells
        self._arrays = [padded, library.zeros_like(padded)]

    def corner(self, where: tuple[slice, ...]) -> np.ndarray:
        cells = self._arrays[0][1:-1, 1:-1, 1:-1][where]
        return cells if isinstance(cells, np.ndarray) else cupy.asnumpy(cells)


@cache
def cupy_heat_step() -> Callable[..., Any]:
    """Return one fused kernel over cells and their neighbours."""
    @cupy.fuse()
    def step(here, above, below, north, south, east, west, k):
        return here + k * (above + below + north + south + east + west - 6 * here)
    return step


class CupyHeat(_Padded):
    """Slices of CuPy's arrays, joined by one fused kernel."""

    def __init__(self, cells: Any, k: float):
        super().__init__(cells, cupy)
        self._k = np.float32(k)

    def advance(self, steps: int) -> None:
        for _ in range(steps):
            u, out = self._arrays
            out[1:-1, 1:-1, 1:-1] = cupy_heat_step()(*around(u), self._k)
            self._arrays.reverse()
        cupy.cuda.Stream.null.synchronize()


@cache
def _jax_heat(k: float) -> Callable[..., Any]:
    number = np.float32(k)

    def step(_, u):
        p = jnp.pad(u, 1)
        here, above, below, north, south, east, west = around(p)
        return here + number * (above + below + north + south + east + west - 6 * here)

    return jax.jit(lambda u, steps: jax.lax.fori_loop(0, steps, step, u), donate_argnums=0)


class JaxHeat:
    """A loop that XLA compiles as a whole, its arrays given back to it."""

    def __init__(self, cells: Any, k: float):
        self._cells = jnp.array(jax.dlpack.from_dlpack(cells)).block_until_ready()
        self._loop = _jax_heat(k)

    def advance(self, steps: int) -> None:
        self._cells = self._loop(self._cells, steps).block_until_ready()

    def corner(self, where: tuple[slice, ...]) -> np.ndarray:
        return np.asarray(self._cells[where])


class NumpyHeat(_Padded):
    """Slices of NumPy's arrays."""

    def __init__(self, cells: np.ndarray, k: float):
        super().__init__(cells, np)
        self._k = np.float32(k)

    def advance(self, steps: int) -> None:
        for _ in range(steps):
            u, out = self._arrays
            here, above, below, *others = around(u)
            total = above + below
            for part in others:
                total += part
            out[1:-1, 1:-1, 1:-1] = here + self._k * (total - 6 * here)
            self._arrays.reverse()


@cache
def _numba_heat(k: float) -> Callable[..., Any]:
    number = np.float32(k)

    @numba.njit(parallel=True, fastmath=True)
    def step(u, out):
        for z in numba.prange(1, u.shape[0] - 1):
            for y in range(1, u.shape[1] - 1):
                for x in range(1, u.shape[2] - 1):
                    total = (u[z + 1, y, x] + u[z - 1, y, x] + u[z, y + 1, x] + u[z, y - 1, x]
                             + u[z, y, x + 1] + u[z, y, x - 1])
                    out[z, y, x] = u[z, y, x] + number * (total - 6 * u[z, y, x])
    return step


class NumbaHeat(_Padded):
    """A loop over all cells on all cores."""

    def __init__(self, cells: np.ndarray, k: float):
        super().__init__(cells, np)
        self._step = _numba_heat(k)

    def advance(self, steps: int) -> None:
        for _ in range(steps):
            self._step(*self._arrays)
            self._arrays.reverse()
