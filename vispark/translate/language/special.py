"""Functions of ``scipy.special`` along rows, written in the language: the translator reads these in their place."""

from __future__ import annotations

import numpy as np

from vispark.translate.language.argument_checks import checked_for_reals
from vispark.translate.language.registry import written_as


@written_as("scipy.special.logsumexp", "a axis= b! keepdims= return_sign!",
            instead={"b": "write np.log(np.sum(b * np.exp(a - a.max()))) + a.max()"})
def logsumexp(a, axis=None, keepdims=False):
    a = checked_for_reals(np.asarray(a) * 1.0)
    most = np.max(a, axis, keepdims=True)
    most = np.where(np.isfinite(most), most, 0)
    total = np.log(np.sum(np.exp(a - most), axis, keepdims=True)) + most
    return total if keepdims else np.sum(total, axis)


@written_as("scipy.special.softmax", "x axis=")
def softmax(x, axis=None):
    x = np.asarray(x)
    parts = np.exp(x - np.max(x, axis, keepdims=True))
    return parts / np.sum(parts, axis, keepdims=True)


@written_as("scipy.special.log_softmax", "x axis=")
def log_softmax(x, axis=None):
    x = np.asarray(x)
    most = np.max(x, axis, keepdims=True)
    apart = x - np.where(np.isfinite(most), most, np.zeros_like(most))
    return apart - np.log(np.sum(np.exp(apart), axis, keepdims=True))
