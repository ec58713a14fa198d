"""Consensus among the minima of parts of the data, by the alternating direction method of multipliers over L-BFGS.

References
----------
Boyd, Parikh, Chu, Peleato and Eckstein, Distributed optimization and statistical learning via the alternating direction
method of multipliers, 2011: sections 3.3, 3.4.1 and 7.1.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from vispark.api.vrdd import VRDD

#: The losses of all parts, shape (p,), and their gradients, shape (p, n), each at a point of its own, shape (p, n).
Losses = Callable[[np.ndarray], "tuple[np.ndarray, np.ndarray]"]

_MEMORY, _DECREASE = 10, 1e-4
#: By how much one residual may exceed the other, and by which factor the penalty is changed then.
_IMBALANCE, _FACTOR = 10.0, 2.0


@dataclass(frozen=True)
class Consensus:
    """Point that the parts agree on, how far each of them is from it, and the number of passes over the data."""

    x: np.ndarray
    residuals: np.ndarray
    passes: int


@dataclass
class _Part:
    """Part of the data on its way to the minimum of its loss and the distance to the others."""

    x: np.ndarray
    loss: float
    gradient: np.ndarray
    pairs: deque[tuple[np.ndarray, np.ndarray]] = field(default_factory=lambda: deque(maxlen=_MEMORY))
    direction: np.ndarray = field(default_factory=lambda: np.zeros(0))
    length: float = 1.0
    has_moved: bool = False

    def aim(self, target: np.ndarray, rho: float) -> None:
        """Choose a direction of descent; the curvature of the distance to the target is known.

        How far to go along it stays what it was: a step that was too long for one target is so for the next.
        """
        gradient = self.gradient + rho * (self.x - target)
        q, shares = -gradient, []
        pairs = [(step, change + rho * step) for step, change in self.pairs]
        for step, change in pairs:
            shares.append((step @ q) / (step @ change))
            q = q - shares[-1] * change
        q = q * ((pairs[0][0] @ pairs[0][1]) / (pairs[0][1] @ pairs[0][1]) if pairs else 1 / (rho + np.abs(q).max()))
        for (step, change), share in zip(reversed(pairs), reversed(shares), strict=True):
            q = q + (share - (change @ q) / (step @ change)) * step
        self.direction = q

    def take(self, loss: float, gradient: np.ndarray, target: np.ndarray, rho: float) -> None:
        """Take the step that was tried, if it lowers the objective enough, or try a shorter one."""
        step = self.length * self.direction
        after = self.x + step
        before = self.loss + 0.5 * rho * ((self.x - target) ** 2).sum()
        slope = float((self.gradient + rho * (self.x - target)) @ step)
        objective = loss + 0.5 * rho * ((after - target) ** 2).sum()
        # A loss that is no number is too large.
        if not objective <= before + _DECREASE * slope and self.length > 1e-10:
            self.length /= 2
            return
        change = gradient - self.gradient
        if step @ change > 0:
            self.pairs.appendleft((step, change))
        self.x, self.loss, self.gradient = after, float(loss), gradient
        self.length, self.has_moved = 1.0, True
        self.aim(target, rho)


def consensus(losses: Losses, parts: int, size: int, *, l1: float = 0.0, l2: float = 0.0, rho: float = 1.0,
              iterations: int = 100, inner: int = 5, tolerance: float = 1e-6) -> Consensus:
    """Return the minimum of a sum of convex losses and ``l1 * |x| + l2 / 2 * x @ x``, on which all parts agree.

    Each pass evaluates the losses of all parts at once, each at its own point, so that their L-BFGS steps go together;
    after some passes the parts' points are averaged.

    Parameters
    ----------
    losses : callable
        Gives the losses of the parts and their gradients, as :func:`losses_by_part` makes it.
    parts, size : int
        Number of parts p, and of coordinates n.
    l1, l2 : float
        Factors of the regularisation.
    rho : float
        Penalty of disagreement, to begin with; it is doubled or halved as residuals need it.
    iterations, inner : int
        The most averages, and the passes before each of them.
    tolerance : float
        It ends when the parts differ by less than this share of the point, and the point changes as little.

    Raises
    ------
    ValueError
        If a number is out of its range, or the losses are not finite at 0, or of another shape.

    Examples
    --------
    >>> centers = np.array([[1.0, 2.0], [3.0, 6.0]])
    >>> found = consensus(lambda x: (((x - centers) ** 2).sum(axis=1), 2 * (x - centers)), 2, 2, tolerance=1e-9)
    >>> found.x.round(6)
    array([2., 4.])
    """
    if min(parts, size, inner) < 1 or min(iterations, l1, l2) < 0 or not rho > 0:
        raise ValueError("parts, size and inner are to be at least 1, iterations, l1 and l2 at least 0, rho above 0: "
                         f"they are {parts}, {size}, {inner}, {iterations}, {l1}, {l2} and {rho}")
    mean, duals = np.zeros(size), np.zeros((parts, size))
    values, gradients = losses(np.zeros((parts, size)))
    if np.shape(values) != (parts,) or np.shape(gradients) != (parts, size):
        raise ValueError(f"losses and gradients are to have the shapes {(parts,)} and {(parts, size)}, and have "
                         f"{np.shape(values)} and {np.shape(gradients)}")
    if not (np.isfinite(values).all() and np.isfinite(gradients).all()):
        raise ValueError("losses or gradients are not finite at 0, where the parts begin")
    states = [_Part(np.zeros(size), float(value), gradient) for value, gradient in zip(values, gradients, strict=True)]
    passes, distances = 1, np.zeros(parts)
    for _ in range(iterations):
        targets = mean - duals
        for state, target in zip(states, targets, strict=True):
            state.aim(target, rho)
            state.has_moved = False
        for _ in range(inner):
            values, gradients = losses(np.array([state.x + state.length * state.direction for state in states]))
            passes += 1
            for state, value, gradient, target in zip(states, values, gradients, targets, strict=True):
                state.take(value, gradient, target, rho)
        points = np.array([state.x for state in states])
        before, total = mean, rho * (points + duals).sum(axis=0)
        mean = np.sign(total) * np.maximum(np.abs(total) - l1, 0) / (l2 + parts * rho)
        duals = duals + points - mean
        distances = np.linalg.norm(points - mean, axis=1)
        primal, dual = float(np.linalg.norm(distances)), rho * parts ** 0.5 * float(np.linalg.norm(mean - before))
        # Parts that are still looking for a step agree on where they began.
        if all(state.has_moved for state in states) and primal <= tolerance * max(float(np.linalg.norm(points)), 1e-8) \
                and dual <= tolerance * max(rho * float(np.linalg.norm(duals)), 1e-8):
            break
        factor = _FACTOR if primal > _IMBALANCE * dual else 1 / _FACTOR if dual > _IMBALANCE * primal else 1.0
        rho, duals = rho * factor, duals / factor
    return Consensus(mean, distances, passes)


def losses_by_part(points: VRDD, function: Any, parts: int) -> Losses:
    """Return the losses of parts of records on the devices, each evaluation in one pass.

    Parameters
    ----------
    points : VRDD
        Records that are dicts; their field ``part`` is a whole number from 0 to ``parts - 1``.
    function : callable
        Gives the number of a record's part, and a tuple of its loss and of the gradient, of the record's fields and a
        table with the point of each part, shape (p, n).
    parts : int
        Number of parts.

    Examples
    --------
    >>> rows = sc.parallelize([{"x": np.array([1.0, i]), "y": 2.0 * i, "part": i % 2} for i in range(8)], 2)
    >>> def squares(x, y, part, w):
    ...     rest = np.dot(w[part], x) - y
    ...     return part, (0.5 * rest * rest, rest * x)
    >>> consensus(losses_by_part(rows.cache("GPU"), squares, 2), 2, 2, tolerance=1e-7).x.round(4) + 0.0
    array([0., 2.])
    """
    def losses(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        values, gradients = np.zeros(parts), np.zeros(x.shape)
        for part, (value, gradient) in points.vmap(function, x).reduceByKey(_add, numKeys=parts).collect():
            values[part], gradients[part] = value, gradient
        return values, gradients
    return losses


def _add(a: Any, b: Any) -> Any:
    return a[0] + b[0], a[1] + b[1]
