"""Sums of matrix products over cached rows, seen from the driver: Gram matrices, gradients, sums by key.

``python -m benchmarks.products --device cuda`` prints a line for each: milliseconds of vispark and of jitted JAX on the
same GPU, and the floor, which is the larger of the bytes at the rate of a copy and of the products at the rate of
float32 in three TF32 products.
"""

from __future__ import annotations

import operator
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import click
import numpy as np
from pyspark import SparkContext

import vispark  # noqa: F401  (RDD.cache("GPU"))
from benchmarks import peers
from benchmarks.measure import in_kernels
from benchmarks.session import context, environment
from vispark import Rows

#: Products of float32 a second, as three of TF32 each, on an H200; and additions and multiplications of float32.
SPLIT, FLOATS = 495e12 / 3, 67e12
CLASSES, KEYS = 20, 1000


@dataclass(frozen=True)
class RowSum:
    """A sum over rows: vispark's way, JAX's, NumPy's for the check, and what it takes at least."""

    name: str
    rows: int
    width: int
    ours: Callable[[Any], Callable[[], Any]]
    jax: Callable[[Any], Any]
    exact: Callable[[np.ndarray], Any]
    #: Multiplications with an addition, for each row.
    products: int


def added(a, b):
    return tuple(x + y for x, y in zip(a, b, strict=True))


def softmax(p, w):
    scores = p[1:] @ w
    e = np.exp(scores - scores.max())
    q = e / e.sum()
    q[int(p[0])] -= 1
    return np.outer(p[1:], q)


def network(p, w1, w2):
    x = p[1:]
    h = np.tanh(x @ w1)
    scores = h @ w2
    e = np.exp(scores - scores.max())
    q = e / e.sum()
    q[int(p[0])] -= 1
    back = (w2 @ q) * (1 - h * h)
    return np.outer(x, back), np.outer(h, q)


def keyed(p):
    return int(p[0]), np.outer(p[1:], p[1:])


def exact_by_key(rows: np.ndarray) -> np.ndarray:
    """Return the sums by key of float64."""
    keys, points = rows[:, 0].astype(int), rows[:, 1:]
    return np.stack([np.bincount(keys, points[:, i] * points[:, j], KEYS) for i in range(points.shape[1])
                     for j in range(points.shape[1])], axis=1).reshape(KEYS, points.shape[1], -1)


def table_of(pairs: list[tuple[int, np.ndarray]]) -> np.ndarray:
    """Return the matrices of keys as one array."""
    return np.stack([matrix for _, matrix in sorted(pairs, key=lambda pair: pair[0])])


def _weights(*shape: int) -> np.ndarray:
    return (np.random.default_rng(shape[0]).normal(size=shape) / np.sqrt(shape[0])).astype(np.float32)


def _softmax_of(xp: Any, dot: Callable[..., Any]) -> Callable[..., Any]:
    def gradient(points, w):
        y, x = points[:, 0].astype(int), points[:, 1:]
        scores = dot(x, w)
        e = xp.exp(scores - scores.max(axis=1, keepdims=True))
        return dot(x.T, e / e.sum(axis=1, keepdims=True) - (y[:, None] == xp.arange(CLASSES)))
    return gradient


def _network_of(xp: Any, dot: Callable[..., Any]) -> Callable[..., Any]:
    def gradient(points, w1, w2):
        y, x = points[:, 0].astype(int), points[:, 1:]
        h = xp.tanh(dot(x, w1))
        scores = dot(h, w2)
        e = xp.exp(scores - scores.max(axis=1, keepdims=True))
        q = e / e.sum(axis=1, keepdims=True) - (y[:, None] == xp.arange(CLASSES))
        return dot(x.T, dot(q, w2.T) * (1 - h * h)), dot(h.T, q)
    return gradient


def sums(scale: float) -> Iterator[RowSum]:
    """Yield the sums, of a share of the rows."""
    def rows(count: int) -> int:
        return max(1024, int(count * scale))

    jax, jnp = peers.jax, peers.jnp
    dot = (lambda a, b: jnp.matmul(a, b, precision="highest")) if jax else None
    for count, width in ((8 << 20, 64), (1 << 20, 128), (1 << 20, 512)):
        yield RowSum(f"Gram {width}", rows(count), width,
                     lambda v: lambda: v.vmap(lambda p: np.outer(p, p)).reduce(operator.add),
                     jax and jax.jit(lambda x: dot(x.T, x)), lambda x: x.T @ x, width * (width + 1) // 2)
    w, w1, w2 = _weights(128, CLASSES), _weights(128, 64), _weights(64, CLASSES)
    yield RowSum("softmax 128 x 20", rows(2 << 20), 129, lambda v: lambda: v.vmap(softmax, w).reduce(operator.add),
                 jax and _given(jax.jit(_softmax_of(jnp, dot)), w), _given(_softmax_of(np, np.matmul), w),
                 2 * 128 * CLASSES)
    yield RowSum("network 128-64-20", rows(2 << 20), 129, lambda v: lambda: v.vmap(network, w1, w2).reduce(added),
                 jax and _given(jax.jit(_network_of(jnp, dot)), w1, w2), _given(_network_of(np, np.matmul), w1, w2),
                 2 * 128 * 64 + 3 * 64 * CLASSES)
    yield RowSum("by 1,000 keys, 11", rows(4 << 20), 11,
                 lambda v: lambda: v.vmap(keyed).reduceByKey(operator.add, numKeys=KEYS).collect(),
                 jax and jax.jit(lambda x: jax.ops.segment_sum(x[:, 1:, None] * x[:, None, 1:], x[:, 0].astype(int),
                                                               KEYS)), exact_by_key, 55)


def _given(function: Callable[..., Any], *arguments: np.ndarray) -> Callable[[Any], Any]:
    return lambda x: function(x, *(argument.astype(x.dtype) for argument in arguments))


def rows_of(count: int, width: int, seed: int) -> np.ndarray:
    """Return rows whose first number is a class and a key; of many rows some come again."""
    drawn = np.random.default_rng(seed).standard_normal((min(count, 1 << 16), width), np.float32)
    rows = np.resize(drawn, (count, width))
    rows[:, 0] = np.arange(count) % CLASSES if width == 129 else np.arange(count) * 7 % KEYS
    if width not in (129, 11):
        rows[:, 0] /= KEYS
    return rows


def least(run: Callable[[], Any], samples: int) -> float:
    """Return the milliseconds of the fastest run, after two others."""
    seconds = []
    for _ in range(samples + 2):
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    return 1e3 * min(seconds[2:])


def measure(sc: SparkContext, one: RowSum, samples: int, partitions: int, rate: float) -> str:
    """Return one line: what was measured of a sum."""
    count = -(-one.rows // partitions)
    points = sc.parallelize(range(partitions), partitions).mapPartitions(
        lambda numbers: Rows(rows_of(count, one.width, number) for number in numbers)).cache("GPU")
    points.count()
    run = one.ours(points)
    result = run()
    off = _off(one, table_of(result) if isinstance(result, list) else result, count, partitions)
    ours, kernels = least(run, samples), least_in_kernels(run, samples)
    nbytes = 4 * count * partitions * one.width
    floor = 1e3 * max(nbytes / rate, 2 * one.products * count * partitions / SPLIT)
    other = float("nan")
    if one.jax:
        data = peers.jnp.concatenate([peers.jnp.asarray(rows_of(count, one.width, i)) for i in range(partitions)])
        other = least(lambda: peers.jax.tree.map(np.asarray, one.jax(data)), samples)
        del data
    points.unpersist()
    return (f"{one.name:20} {count * partitions:>10,} rows  ours {ours:8.3f} ms (kernels {kernels:8.3f})"
            f"  JAX {other:8.3f} ms  floor {floor:7.3f} ms"
            f"  x floor {ours / floor:6.2f}  JAX / ours {other / ours:6.2f}  off {off:.1e}")


def least_in_kernels(run: Callable[[], Any], samples: int) -> float:
    """Return the milliseconds of the fastest run's kernels."""
    timed = in_kernels(run)
    return 1e3 * min(timed() for _ in range(samples))


def _off(one: RowSum, result: Any, count: int, partitions: int) -> float:
    """Return the difference of a sum from that of float64, as a share of its largest number."""
    step = 1 << 16
    wanted: list[Any] = []
    for number in range(partitions):
        rows = rows_of(count, one.width, number)
        for first in range(0, count, step):
            some = one.exact(rows[first:first + step].astype(np.float64))
            parts = some if isinstance(some, tuple) else (some,)
            wanted = [a + b for a, b in zip(wanted, parts, strict=True)] if wanted else list(parts)
    parts = result if isinstance(result, tuple) else (result,)
    return max(float(np.abs(a - b).max() / np.abs(b).max()) for a, b in zip(parts, wanted, strict=True))


def copy_rate() -> float:
    """Return the bytes a second that a device reads as it copies, as JAX measures it; an H200's without JAX."""
    if not peers.jax or peers.jax.default_backend() != "gpu":
        return 4.27e12
    data = peers.jnp.zeros(1 << 28, "float32")
    run = peers.jax.jit(lambda x: x + 1)
    return 2 * data.nbytes / (1e-3 * least(lambda: run(data).block_until_ready(), 5))


@click.command(help=__doc__)
@click.option("--device", default="host", show_default=True)
@click.option("--scale", default=1.0, show_default=True, help="Share of the rows.")
@click.option("--samples", default=7, show_default=True)
@click.option("--only", default="", help="Part of a sum's name.")
def main(device: str, scale: float, samples: int, only: str) -> None:
    cores = min(8, os.cpu_count() or 1)
    with environment(), context(device, cores) as sc:
        rate = copy_rate() if device == "cuda" else 1e10
        print(f"copy {rate / 1e12:.2f} TB/s", flush=True)
        for one in sums(scale):
            if only in one.name:
                print(measure(sc, one, samples, cores, rate), flush=True)


if __name__ == "__main__":
    main()
