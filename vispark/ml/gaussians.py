"""Expectation and maximization of Gaussian mixtures: the pass over the rows, and the densities it is given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from vispark.api.vrdd import VRDD
from vispark.ml.moments import totals

_EPSILON = 2.0 ** -52


@dataclass(frozen=True)
class Mixture:
    """Gaussian densities with their shares.

    Parameters
    ----------
    shares : array of float64, shape (k,)
        The shares, which sum to 1.
    means : array of float64, shape (k, d)
        The means.
    covariances : array of float64, shape (k, d, d)
        The covariances.
    """

    shares: np.ndarray
    means: np.ndarray
    covariances: np.ndarray

    def after(self, points: VRDD, center: np.ndarray) -> tuple[Mixture, float]:
        """Return the mixture after one pass, and the logarithm of the likelihood before it.

        Parameters
        ----------
        points : VRDD
            Records of fields x and w.
        center : array of float64, shape (d,)
            What is taken off the rows and the means, so that products of large numbers are not subtracted.
        """
        k, d = self.means.shape
        roots, offsets = zip(*[_density(covariance) for covariance in self.covariances], strict=True)
        likelihood, sums = totals(points, _expectation, center, self.shares, self.means - center, np.asarray(roots),
                                  np.asarray(offsets))
        sums = np.asarray(sums).reshape(k, d + 1, d + 1)
        weights = sums[:, 0, 0]
        means = sums[:, 0, 1:] / weights[:, None]
        covariances = sums[:, 1:, 1:] / weights[:, None, None] - means[:, :, None] * means[:, None, :]
        return Mixture(weights / weights.sum(), means + center, covariances), float(likelihood)


def first_mixture(rows: np.ndarray, weights: np.ndarray, k: int) -> Mixture:
    """Return the mixture that MLlib begins with: means and variances of some rows for each density.

    Parameters
    ----------
    rows, weights : array of float64, shapes (k * s, d) and (k * s,)
        The rows that were drawn, s for each density, and their weights.
    k : int
        Number of densities.
    """
    groups, w = rows.reshape(k, -1, rows.shape[1]), weights.reshape(k, -1)
    totals_ = w.sum(axis=1)
    means = (w[:, :, None] * groups).sum(axis=1) / totals_[:, None]
    variances = (w[:, :, None] * (groups - means[:, None]) ** 2).sum(axis=1) / totals_[:, None]
    return Mixture(totals_ / w.sum(), means, variances[:, :, None] * np.eye(rows.shape[1]))


def _density(covariance: np.ndarray) -> tuple[np.ndarray, float]:
    """Return the root of the pseudo-inverse, and the logarithm of the density at the mean."""
    values, vectors = np.linalg.eigh(covariance)
    tolerance = _EPSILON * values.max() * len(values)
    is_kept = values > tolerance
    if not is_kept.any():
        raise np.linalg.LinAlgError("a covariance has no numbers but 0")
    inverse = np.where(is_kept, 1 / np.sqrt(np.where(is_kept, values, 1)), 0)
    logarithm = np.log(values[is_kept]).sum()
    return inverse[:, None] * vectors.T, -0.5 * (len(values) * np.log(2 * np.pi) + logarithm)


def _expectation(x: Any, w: Any, center: Any, shares: Any, means: Any, roots: Any, offsets: Any) -> Any:
    """Return the logarithm of a row's likelihood, and for each density the products of (1, row) by its share."""
    c = x - center
    q = np.zeros(len(shares))
    for i in range(len(shares)):
        z = roots[i] @ (c - means[i])
        q[i] = 2.220446049250313e-16 + shares[i] * np.exp(offsets[i] - 0.5 * np.dot(z, z))
    total = q.sum()
    z = np.append(1.0, c)
    return w * np.log(total), np.outer(np.outer(w * q / total, z).ravel(), z)
