"""Passes of estimators in JAX on a GPU, beside fits of vispark.ml: what a program of JAX would do for the same model.

They do the arithmetic of as many iterations as the fits, in float64 as these, over rows that are on the GPU already;
what a fit does beside its passes (line searches, stopping, checks of the data) they leave out.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from benchmarks.peers import jax, jnp


def found() -> bool:
    """Return whether JAX is installed, and finds a GPU."""
    return jax is not None and jax.default_backend() == "gpu"


def logistic(x: Any, y: Any) -> Any:
    """Return coefficients after ten steps down the gradient of the logistic loss."""
    def loss(w: Any) -> Any:
        return jnp.mean(jnp.logaddexp(0, x @ w) - y * (x @ w))

    def step(w: Any, _: Any) -> Any:
        value, slope = jax.value_and_grad(loss)(w)
        return w - slope, value
    return jax.lax.scan(step, jnp.zeros(x.shape[1]), None, length=10)


def hinge(x: Any, y: Any) -> Any:
    """Return coefficients after ten steps down the gradient of the hinge loss."""
    def step(w: Any, _: Any) -> Any:
        value, slope = jax.value_and_grad(lambda w: jnp.mean(jnp.maximum(0, 1 - (2 * y - 1) * (x @ w))))(w)
        return w - slope, value
    return jax.lax.scan(step, jnp.zeros(x.shape[1]), None, length=10)


def products(x: Any, y: Any) -> Any:
    """Return the mean of rows, and the mean of the products of their centred numbers."""
    mean = x.mean(axis=0)
    return mean, (x - mean).T @ (x - mean)


def components(x: Any, y: Any) -> Any:
    """Return the eigenvectors of the covariance."""
    return jnp.linalg.eigh(products(x, y)[1])


def centers(x: Any, y: Any) -> Any:
    """Return ten centres after ten of Lloyd's steps."""
    def step(c: Any, _: Any) -> Any:
        near = jnp.argmin((c * c).sum(axis=1) - 2 * x @ c.T, axis=1)
        sums = jax.ops.segment_sum(x, near, 10)
        counts = jax.ops.segment_sum(jnp.ones(len(x)), near, 10)
        return sums / jnp.maximum(counts, 1)[:, None], None
    return jax.lax.scan(step, x[:10], None, length=10)[0]


def densities(x: Any, y: Any) -> Any:
    """Return weights, means and covariances of three densities after five steps of expectation and maximisation."""
    def step(state: Any, _: Any) -> Any:
        weights, means, covariances = state
        roots = jnp.linalg.inv(jnp.linalg.cholesky(covariances))
        logs = jnp.stack([jnp.log(weights[i]) + jnp.log(jnp.diag(roots[i])).sum()
                          - 0.5 * (((x - means[i]) @ roots[i].T) ** 2).sum(axis=1) for i in range(3)])
        shares = jax.nn.softmax(logs, axis=0)
        counts = shares.sum(axis=1)
        means = shares @ x / counts[:, None]
        spread = jnp.stack([((x - means[i]).T * shares[i]) @ (x - means[i]) / counts[i] for i in range(3)])
        return (counts / len(x), means, spread), None
    size = x.shape[1]
    start = jnp.full(3, 1 / 3), x[:3], jnp.broadcast_to(jnp.eye(size), (3, size, size))
    return jax.lax.scan(step, start, None, length=5)[0]


#: By estimator.
PASSES: dict[str, Callable[[Any, Any], Any]] = {
    "LogisticRegression": logistic, "LinearSVC": hinge, "LinearRegression": products, "PCA": components,
    "KMeans": centers, "GaussianMixture": densities,
    "StandardScaler": lambda x, y: (x.mean(axis=0), x.std(axis=0)),
    "MinMaxScaler": lambda x, y: (x.min(axis=0), x.max(axis=0)),
    "MaxAbsScaler": lambda x, y: abs(x).max(axis=0)}


@cache
def _compiled(name: str) -> Any:
    return jax.jit(PASSES[name])


def on_gpu(name: str, rows: np.ndarray, labels: np.ndarray) -> Callable[[], object]:
    """Return the passes of an estimator over rows, which are brought to the GPU here."""
    with jax.enable_x64(True):
        x, y = jax.device_put(rows), jax.device_put(labels)

    def passes() -> object:
        with jax.enable_x64(True):
            return jax.block_until_ready(_compiled(name)(x, y))
    return passes
