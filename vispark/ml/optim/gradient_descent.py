"""Gradient descent with the step lengths and the stopping rule of MLlib's: plain, with an L2 term, or AdamW.

References
----------
Loshchilov and Hutter, Decoupled weight decay regularization, ICLR 2019.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

#: The mean loss and its gradient at a point for the number of an iteration, or None where no row was chosen.
MeanLoss = Callable[[np.ndarray, int], "tuple[float, np.ndarray] | None"]
#: The point after a step, for the point, the gradient there, and the number of the iteration.
Updater = Callable[[np.ndarray, np.ndarray, int], np.ndarray]


@dataclass(frozen=True)
class Descent:
    """Settings of a descent: ``stepSize``, ``regParam``, ``maxIter`` and ``tol``."""

    step: float
    strength: float
    iterations: int
    tolerance: float


def plain(descent: Descent) -> Updater:
    """Return the updater of steps that shrink with the root of the iteration's number."""
    def update(x: np.ndarray, gradient: np.ndarray, iteration: int) -> np.ndarray:
        length = descent.step / iteration ** 0.5
        return x * (1 - length * descent.strength) - length * gradient
    return update


def adam_w(descent: Descent, size: int) -> Updater:
    """Return the updater of AdamW, for points of some number of coordinates."""
    mean, square = np.zeros(size), np.zeros(size)
    done = 0

    def update(x: np.ndarray, gradient: np.ndarray, iteration: int) -> np.ndarray:
        nonlocal mean, square, done
        done += 1
        mean = 0.9 * mean + 0.1 * gradient
        square = 0.999 * square + 0.001 * gradient * gradient
        direction = mean / (1 - 0.9 ** done) / (np.sqrt(square / (1 - 0.999 ** done)) + 1e-8)
        return x - (descent.step * direction + descent.strength * x)
    return update


def descend(loss: MeanLoss, start: np.ndarray, descent: Descent, update: Updater) -> tuple[np.ndarray, np.ndarray]:
    """Return the last point, and the objective before each iteration and after the last one that is allowed.

    It ends when a step is shorter than the tolerance, relative to the point's length where that is above 1.

    Examples
    --------
    >>> descent = Descent(0.5, 0.0, 50, 1e-9)
    >>> descend(lambda x, iteration: (float(x @ x), 2 * x), np.ones(2), descent, plain(descent))[0].round(6)
    array([0., 0.])
    """
    x, history = start, []
    is_first = True
    for iteration in range(1, descent.iterations + 2):
        loss_here = loss(x, iteration)
        if loss_here is None:
            continue
        value, gradient = loss_here
        history.append(value + 0.5 * descent.strength * float(x @ x))
        if iteration > descent.iterations:
            break
        before, x = x, update(x, gradient, iteration)
        if not is_first and np.linalg.norm(before - x) < descent.tolerance * max(float(np.linalg.norm(x)), 1.0):
            break
        is_first = False
    return x, np.array(history)
