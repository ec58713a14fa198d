"""Minimisation within bounds, by projected steps of a quasi-Newton method.

References
----------
Bertsekas, Projected Newton methods for optimization problems with simple constraints, SIAM J. Control Optim. 20 (1982).
Schmidt, Kim and Sra, Projected Newton-type methods in machine learning, in: Optimization for Machine Learning, 2011.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from vispark.ml.optim.quasi_newton import Minimum, Objective

_MEMORY = 10
#: How much of the slope's promise must be kept, and the most halvings of a step.
_DECREASE, _HALVINGS = 1e-4, 40
_SMALLEST = 1e-8

Pairs = deque[tuple[np.ndarray, np.ndarray]]


def minimize_within(objective: Objective, start: np.ndarray, lower: np.ndarray, upper: np.ndarray, *,
                    curvature: np.ndarray | float = 1.0, iterations: int = 100, tolerance: float = 1e-6) -> Minimum:
    """Return the minimum of a smooth convex function within bounds.

    Parameters
    ----------
    objective : callable
        Gives value and gradient, for a float64 array.
    start, lower, upper : array of float64, shape (n,)
        Where to begin, and the bounds, which may be infinite.
    curvature : array of float64, shape (n,)
        About how much the second derivatives are, as far as that is known: with coordinates of very different ones, an
        optimum would take very many steps.
    iterations : int
        The most steps.
    tolerance : float
        It ends when the gradient, less what points out of the bounds, is shorter than ``tolerance`` times the
        objective, or 1e-8; or when a step fails.

    Examples
    --------
    >>> low, high = np.zeros(2), np.array([1.0, 9.0])
    >>> minimize_within(lambda x: (((x - 3) ** 2).sum(), 2 * (x - 3)), low, low, high).x.round(6)
    array([1., 3.])
    """
    scale = 1 / np.sqrt(curvature)
    minimum = _minimum(lambda x: _scaled(objective, x, scale), start / scale, lower / scale, upper / scale, iterations,
                       tolerance)
    # Rounding must not leave the bounds.
    return Minimum(np.clip(minimum.x * scale, lower, upper), minimum.history, minimum.is_failed)


def _scaled(objective: Objective, x: np.ndarray, scale: np.ndarray) -> tuple[float, np.ndarray]:
    value, gradient = objective(x * scale)
    return value, gradient * scale


def _minimum(objective: Objective, start: np.ndarray, lower: np.ndarray, upper: np.ndarray, iterations: int,
             tolerance: float) -> Minimum:
    x = np.clip(np.asarray(start, float), lower, upper)
    value, gradient = objective(x)
    history, pairs, is_failed = [value], Pairs(maxlen=_MEMORY), False
    for _ in range(iterations):
        is_free = ((x > lower) | (gradient < 0)) & ((x < upper) | (gradient > 0))
        slope = np.where(is_free, gradient, 0.0)
        if np.linalg.norm(slope) <= max(tolerance * abs(value), _SMALLEST):
            break
        stepped = _step(objective, x, value, gradient, _direction(slope, is_free, pairs), (lower, upper))
        if stepped is None and pairs:
            pairs.clear()
            stepped = _step(objective, x, value, gradient, _direction(slope, is_free, pairs), (lower, upper))
        if stepped is None:
            is_failed = True
            break
        after, value, changed = stepped
        pairs.appendleft((after - x, changed - gradient))
        x, gradient = after, changed
        history.append(value)
    return Minimum(x, np.array(history), is_failed)


def _direction(slope: np.ndarray, is_free: np.ndarray, pairs: Pairs) -> np.ndarray:
    """Return the direction of descent of the free coordinates: algorithm 7.4 of Nocedal and Wright."""
    kept = [(step * is_free, change * is_free) for step, change in pairs]
    kept = [(step, change) for step, change in kept if step @ change > 1e-12 * (change @ change)]
    q = -slope
    if not kept:
        return q / max(float(np.linalg.norm(q)), 1.0)
    shares = []
    for step, change in kept:
        shares.append((step @ q) / (step @ change))
        q = q - shares[-1] * change
    step, change = kept[0]
    q = q * (step @ change) / (change @ change)
    for (step, change), share in zip(reversed(kept), reversed(shares), strict=True):
        q = q + (share - (change @ q) / (step @ change)) * step
    return q * is_free


def _step(objective: Objective, x: np.ndarray, value: float, gradient: np.ndarray, direction: np.ndarray,
          bounds: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, float, np.ndarray] | None:
    """Return the point after a step that lowers the objective enough, with value and gradient there, or None."""
    length = 1.0
    for _ in range(_HALVINGS):
        after = np.clip(x + length * direction, *bounds)
        promised = float(gradient @ (after - x))
        if promised >= 0:
            return None
        reached, changed = objective(after)
        if reached <= value + _DECREASE * promised:
            return after, reached, changed
        length /= 2
    return None
