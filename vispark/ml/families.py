"""Families and links of generalized linear models, as row functions for iteratively reweighted least squares.

A family is the power of its variance function (Tweedie's: 0 gaussian, 1 poisson, 2 gamma), or ``BINOMIAL``; a link is a
power of the mean (1 identity, 0 log, -1 inverse, 0.5 square root), or ``LOGIT`` or ``CLOGLOG``.

References
----------
McCullagh and Nelder, Generalized Linear Models, 1989: chapter 2.5.
"""

from __future__ import annotations

from typing import Any

import numpy as np

#: Codes beside powers, which are far from any that a model has.
BINOMIAL = LOGIT = 1e6
CLOGLOG = 2e6

#: The link powers by name.
LINKS = {"identity": 1.0, "log": 0.0, "inverse": -1.0, "sqrt": 0.5, "logit": LOGIT, "cloglog": CLOGLOG}
#: The variance powers and the usual links by family.
FAMILIES = {"gaussian": (0.0, 1.0), "binomial": (BINOMIAL, LOGIT), "poisson": (1.0, 0.0), "gamma": (2.0, -1.0)}


def is_outside(x: Any, y: Any, w: Any, o: Any, family: Any) -> Any:
    """Return 1 if the family cannot have the label, else 0, and the counts and numbers of a row, to be summed."""
    if family == 1e6:
        outside = not 0 < (w * y + 0.5) / (w + 1) < 1
    else:
        outside = (1 <= family < 2 and y < 0) or (family >= 2 and y <= 0)
    return 1 if outside else 0, 1, len(x), 1 if w < 0 else 0, w, w * y, o, w * x


def started(x: Any, y: Any, w: Any, o: Any, family: Any, link: Any) -> Any:
    """Return a row with the working label that the first least squares are of."""
    mean = y
    if family == 1e6:
        mean = (w * y + 0.5) / (w + 1)
    elif family == 1:
        mean = max(y, 0.1)
    elif family != 0 and y == 0:
        mean = 0.1
    return {"x": x, "y": _link(_inside(mean, family), link) - o, "w": w}


def reweighted(x: Any, y: Any, w: Any, o: Any, coefficients: Any, intercept: Any, family: Any, link: Any) -> Any:
    """Return a row with the working label and weight that the next least squares are of."""
    eta = np.dot(coefficients, x) + intercept + o
    mean = _inside(_unlink(eta, link), family)
    slope = _slope(mean, link)
    return {"x": x, "y": eta - o + (y - mean) * slope, "w": w / (slope * slope * _variance(mean, family))}


def shifted(x: Any, y: Any, w: Any, o: Any) -> Any:
    """Return a row with its label less its offset."""
    return {"x": x, "y": y - o, "w": w}


def mean_of(eta: Any, family: Any, link: Any) -> Any:
    """Return the mean of a linear predictor."""
    return _inside(_unlink(eta, link), family)


def _variance(mean: Any, family: Any) -> Any:
    if family == 1e6:
        return mean * (1 - mean)
    if family == 0:
        return 1.0
    return mean ** family


def _inside(mean: Any, family: Any) -> Any:
    """Return the nearest number that the mean of a family may be."""
    if family == 1e6:
        return min(max(mean, 1e-16), 1 - 1e-16)
    largest = 1.7976931348623157e308
    if family == 0:
        return min(max(mean, -largest), largest)
    return min(max(mean, 1e-16), largest)


def _link(mean: Any, link: Any) -> Any:
    if link == 1e6:
        return np.log(mean / (1 - mean))
    if link == 2e6:
        return np.log(-np.log(1 - mean))
    if link == 0:
        return np.log(mean)
    if link == 1:
        return mean
    return mean ** link


def _unlink(eta: Any, link: Any) -> Any:
    if link == 1e6:
        return 1 / (1 + np.exp(-eta))
    if link == 2e6:
        return 1 - np.exp(-np.exp(eta))
    if link == 0:
        return np.exp(eta)
    if link == 1:
        return eta
    return eta ** (1 / link)


def _slope(mean: Any, link: Any) -> Any:
    if link == 1e6:
        return 1 / (mean * (1 - mean))
    if link == 2e6:
        return 1 / ((mean - 1) * np.log(1 - mean))
    if link == 0:
        return 1 / mean
    if link == 1:
        return 1.0
    return link * mean ** (link - 1)
