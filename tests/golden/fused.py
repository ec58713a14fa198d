"""Chains, folds and long rows whose kernels are kept as golden files."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy import dot, exp

from gpu_worker.protocol.messages import FieldFold
from tests.golden.case import CaseData, rows
from tests.golden.harness import record_of
from vispark.translate import Folding, TableKernel, TracedCall, fuse, trace


@dataclass(frozen=True, eq=False)
class FoldCase:
    """A chain of calls on data, and the fold behind it; ``wanted`` are the outputs asked for."""

    shows: str
    calls: tuple[TracedCall, ...]
    data: CaseData
    folding: Folding | None = None
    wanted: frozenset[str] | None = None

    def kernel(self) -> TableKernel:
        """Return the kernel."""
        return fuse(self.calls, record_of(self.data), wanted=self.wanted, folding=self.folding)


def gradient(p, w):
    y, x = p[0], p[1:]
    return (1 / (1 + exp(-y * dot(w, x))) - 1) * y * x


def softmax(p):
    e = np.exp(p - np.max(p))
    return e / np.sum(e)


def pushed(x, v, dt):
    return {"x": x + v * dt, "speed": np.sum(v * v)}


def mistakes(p, m):
    """Return the shares of logistic regression with several classes, of rows of one more number than the matrix has:
    the class.
    """
    scores = p[1:] @ m
    shares = np.exp(scores - np.max(scores))
    return shares / np.sum(shares), np.argmax(scores) == p[0]


def energy(x, m):
    return {"e": m * np.sum(x * x)}


def sums(p, z):
    return np.sum(p), np.dot(p, p), np.sum(z)


def _calls(*pairs) -> tuple[TracedCall, ...]:
    return tuple(TracedCall(trace(function, args), args) for function, *args in pairs for args in [tuple(args)])


W = rows(1, 40, seed=7)[0]
STARS = {"x": rows(6, 3), "v": rows(6, 3, seed=2), "m": rows(6, 1, seed=3)[:, 0]}
COUNTED = {"k": np.arange(6, dtype="i4") % 3, "v": rows(6, 1, seed=4)[:, 0]}
ADD = (FieldFold("", "add"),)

FUSED = {
    "matrix_fold": FoldCase("a row times a matrix whose parts come one after the other, and sums of what follows",
                            _calls((mistakes, rows(480, 17, seed=6))), rows(9, 481),
                            Folding((FieldFold("0", "add"), FieldFold("1", "add", "", "i8")))),
    "chain": FoldCase("two functions one after the other; the first one's speed is not wanted",
                      _calls((pushed, 0.5), (energy,)), STARS, wanted=frozenset({"x", "e"})),
    "fold_rows": FoldCase("logistic regression: map and fold in one pass", _calls((gradient, W)), rows(6, 41),
                          Folding(ADD)),
    "fold_numbers": FoldCase("a sum of squares", _calls((lambda x: x * x,)), rows(6, 1)[:, 0], Folding(ADD)),
    "fold_long_rows": FoldCase("a sum of rows that several threads share", _calls((gradient, rows(1, 99)[0])),
                               rows(6, 100), Folding(ADD)),
    "fold_guards": FoldCase("a sum of Python ints and a minimum, with what tells whether they can be trusted",
                            _calls((lambda x, n: (np.sum(x), n),)), {"x": rows(6, 5, "float64"), "n": np.arange(6)},
                            Folding((FieldFold("0", "minimum", "nan"), FieldFold("1", "add", "overflow")))),
    "key_numbers": FoldCase("numbers by key", _calls((lambda k, v: (k, v),)), COUNTED,
                            Folding((FieldFold("1", "add"),), "0", 3)),
    "key_rows": FoldCase("rows by key", _calls((lambda p: (int(p[0]), (p[1:], 1)),)), rows(6, 65),
                         Folding((FieldFold("1.0", "add"), FieldFold("1.1", "add")), "0", 10)),
    "key_many": FoldCase("rows by so many keys that their sums lie in memory", _calls((lambda p: (int(p[0]), p[1:]),)),
                         rows(6, 65), Folding((FieldFold("1", "add"),), "0", 1000)),
    "key_block": FoldCase("numbers by keys whose exact sums a block has together", _calls((lambda k, v: (k, v),)),
                          COUNTED, Folding((FieldFold("1", "add"),), "0", 1000)),
    "key_digits": FoldCase("numbers by so many keys that a block has some digits of the sums of some of them",
                           _calls((lambda k, v: (k, v),)), COUNTED, Folding((FieldFold("1", "add"),), "0", 20_000)),
    "key_device": FoldCase("numbers and counts by keys whose exact sums all blocks have together",
                           _calls((lambda k, v: (k, (v, 1)),)), COUNTED,
                           Folding((FieldFold("1.0", "add"), FieldFold("1.1", "add", "overflow")), "0", 100_000)),
    "long_rows": FoldCase("a softmax by the lanes of a warp", _calls((softmax,)), rows(3, 784)),
    "long_sums": FoldCase("sums of more numbers than a lane adds one after the other", _calls((sums,)),
                          {"p": rows(2, 5000), "z": rows(2, 5200, "complex64").reshape(2, 130, 40)}),
}
