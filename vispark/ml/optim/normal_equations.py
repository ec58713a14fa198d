"""Solutions of many small systems of normal equations at once."""

from __future__ import annotations

import numpy as np


def solve(matrices: np.ndarray, sides: np.ndarray) -> np.ndarray:
    """Return the solutions of positive definite systems.

    Parameters
    ----------
    matrices : array of float64, shape (n, k, k)
        The systems.
    sides : array of float64, shape (n, k)
        The right sides.

    Raises
    ------
    numpy.linalg.LinAlgError
        If one of them is singular.

    Examples
    --------
    >>> solve(2 * np.eye(2)[None], np.ones((1, 2)))
    array([[0.5, 0.5]])
    """
    solutions: np.ndarray = np.linalg.solve(matrices, sides[:, :, np.newaxis])
    return solutions.reshape(sides.shape)


def solve_nonnegative(matrices: np.ndarray, sides: np.ndarray, sweeps: int = 400) -> np.ndarray:
    """Return the minima of ``x @ A @ x / 2 - b @ x`` over x without negative numbers, by coordinates in turn.

    Parameters
    ----------
    matrices, sides
        As for :func:`solve`.
    sweeps : int
        The most rounds over all coordinates.

    Examples
    --------
    >>> solve_nonnegative(np.eye(2)[None], np.array([[1.0, -1.0]]))
    array([[1., 0.]])
    """
    x = np.zeros(sides.shape)
    diagonal = np.einsum("nkk->nk", matrices)
    safe = np.where(diagonal > 0, diagonal, 1.0)
    for _ in range(sweeps):
        before = x.copy()
        for k in range(sides.shape[-1]):
            slope = np.einsum("nj,nj->n", matrices[:, k], x) - sides[:, k]
            x[:, k] = np.where(diagonal[:, k] > 0, np.maximum(x[:, k] - slope / safe[:, k], 0), 0)
        if np.abs(x - before).max(initial=0) <= 1e-9 * np.abs(x).max(initial=0):
            break
    return x
