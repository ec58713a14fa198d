"""Quasi-Newton methods: L-BFGS, and OWL-QN for objectives with an L1 term, with the rules of MLlib's optimiser.

Step lengths, stopping rules and restarts are those of Breeze, which MLlib runs, so that a fit that stops before its
optimum stops where MLlib's does.

References
----------
Nocedal and Wright, Numerical Optimization, 2006: algorithms 7.5, 3.5 and 3.6.
Andrew and Gao, Scalable training of L1-regularized log-linear models, ICML 2007.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from vispark.ml.optim.line_search import LineSearchFailed, backtracking, strong_wolfe

#: The value of an objective at a point, and its gradient there.
Objective = Callable[[np.ndarray], "tuple[float, np.ndarray]"]

#: Over how many iterations an objective must have stood still.
_MEMORY = 20


@dataclass(frozen=True)
class Minimum:
    """Result of a minimisation: the point, and the objective at the start and after each iteration or restart."""

    x: np.ndarray
    history: np.ndarray
    is_failed: bool


@dataclass(frozen=True)
class _Point:
    """Point with the objective there, both without and with the L1 term, whose gradient is the pseudo-gradient."""

    x: np.ndarray
    gradient: np.ndarray
    smooth: float
    value: float
    slope: np.ndarray


class _Curvature:
    """Approximate inverse Hessian of the last steps."""

    def __init__(self, memory: int):
        self._steps: deque[tuple[np.ndarray, np.ndarray]] = deque(maxlen=memory)

    def add(self, step: np.ndarray, change: np.ndarray) -> None:
        """Take in a step, and by how much the gradient changed over it."""
        self._steps.appendleft((step, change))

    def direction(self, gradient: np.ndarray) -> np.ndarray:
        """Return the direction of descent: algorithm 7.4."""
        q = -gradient
        if not self._steps:
            return q
        step, change = self._steps[0]
        if not change.any():
            raise LineSearchFailed("the gradient did not change over the last step")
        scale = (step @ change) / (change @ change)
        if not scale >= 0:
            raise LineSearchFailed("the curvature is negative")
        shares = []
        for step, change in self._steps:
            if step @ change == 0:
                raise LineSearchFailed("a step had no curvature")
            share = (step @ q) / (step @ change)
            shares.append(share)
            q = q - share * change
        q = q * scale
        for (step, change), share in zip(reversed(self._steps), reversed(shares), strict=True):
            q = q + (share - (change @ q) / (step @ change)) * step
        return q


def minimize(objective: Objective, start: np.ndarray, *, l1: np.ndarray | None = None, iterations: int = 100,
             tolerance: float = 1e-6, memory: int = 10) -> Minimum:
    """Return the minimum of a smooth function, or of one plus an L1 term.

    Parameters
    ----------
    objective : callable
        Gives value and gradient of the smooth part, for a float64 array.
    start : array of float64, shape (n,)
        Where to begin.
    l1 : array of float64, shape (n,), optional
        Factor of each coordinate's absolute value; with it the method is OWL-QN.
    iterations : int
        The most steps; 0 gives the start.
    tolerance : float
        It ends when the gradient's norm is below ``tolerance`` times the objective, or 1e-8, or when the objective
        changed by less than ``tolerance`` times its first value over 20 iterations.
    memory : int
        Number of steps that the Hessian is made of.

    Examples
    --------
    >>> minimize(lambda x: (((x - 3) ** 2).sum(), 2 * (x - 3)), np.zeros(2), tolerance=1e-9).x.round(6)
    array([3., 3.])
    """
    problem = _Problem(objective, l1)
    point = problem.at(np.asarray(start, float))
    history = [point.value]
    plain: deque[float] = deque([np.inf], maxlen=_MEMORY)
    curvature, has_failed, is_failed = _Curvature(memory), False, False
    steps = 0
    while steps < iterations and not _is_flat(point, tolerance) \
            and not _stands_still(point, plain, tolerance * history[0]):
        try:
            after = problem.step(point, curvature, is_first=not steps)
        except LineSearchFailed:
            if has_failed:
                is_failed = True
                break
            has_failed, curvature = True, _Curvature(memory)
            history.append(point.value)
            continue
        has_failed = False
        steps += 1
        curvature.add(after.x - point.x, after.gradient - point.gradient)
        point = after
        history.append(point.value)
        plain.append(point.value)
    return Minimum(point.x, np.array(history), is_failed)


def _is_flat(point: _Point, tolerance: float) -> bool:
    return bool(np.linalg.norm(point.slope) <= max(tolerance * point.value, 1e-8))


def _stands_still(point: _Point, before: deque[float], limit: float) -> bool:
    return len(before) >= 2 and abs(point.value - max(before)) <= limit


class _Problem:
    """Objective with its L1 term, if it has one, and the steps that suit it."""

    def __init__(self, objective: Objective, l1: np.ndarray | None):
        self._objective = objective
        self._l1 = l1

    def at(self, x: np.ndarray) -> _Point:
        """Return a point with what the objective is there."""
        value, gradient = self._objective(x)
        if self._l1 is None:
            return _Point(x, gradient, float(value), float(value), gradient)
        above, below = gradient + self._l1, gradient - self._l1
        at_zero = np.where(below > 0, below, np.where(above < 0, above, 0.0))
        slope = np.where(x == 0, at_zero, gradient + np.sign(x) * self._l1)
        return _Point(x, gradient, float(value), float(value + self._l1 @ np.abs(x)),
                      np.where(self._l1 == 0, gradient, slope))

    def step(self, point: _Point, curvature: _Curvature, *, is_first: bool) -> _Point:
        """Return the point after a step, or raise :class:`LineSearchFailed`."""
        direction = curvature.direction(point.slope)
        if self._l1 is not None:
            direction = np.where(direction * point.slope < 0, direction, 0.0)
        tried: dict[float, _Point] = {0.0: point}

        def along(length: float) -> tuple[float, float]:
            if length not in tried:
                tried[length] = self.at(self._moved(point, direction, length))
            reached = tried[length]
            return reached.value, float(reached.slope @ direction)

        if self._l1 is None:
            length = strong_wolfe(along, 1 / float(np.linalg.norm(direction)) if is_first else 1.0)
            if length * np.linalg.norm(point.gradient) < 1e-10:
                raise LineSearchFailed("the step is too small")
        else:
            length = backtracking(along, 0.5 / float(np.linalg.norm(point.gradient)) if is_first else 1.0,
                                  shrink=0.1 if is_first else 0.5, claimed=point.smooth)
        along(length)
        return tried[length]

    def _moved(self, point: _Point, direction: np.ndarray, length: float) -> np.ndarray:
        moved: np.ndarray = point.x + length * direction
        if self._l1 is None:
            return moved
        orthant = np.where(point.x != 0, np.sign(point.x), np.sign(-point.slope))
        return np.where(np.sign(moved) == orthant, moved, 0.0)
