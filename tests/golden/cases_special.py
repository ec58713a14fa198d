"""Functions of ``scipy.special``, in the precision of their operands, and partitions of rows."""

from __future__ import annotations

import numpy as np
from scipy import special

from tests.golden.case import BOOLS, F16, I8, I32, case, pairs, rows

_VALUES = np.array([0.0, -0.0, 1e-3, -1e-3, 0.25, 0.3, 0.5, 0.6, 0.7, 1.0, 1.7, 2.0, -0.5, -1.3, -3.7, 5.0, -5.0, 9.5,
                    20.0, np.nan, np.inf, -np.inf])
_F32, _F64 = _VALUES.astype("float32"), _VALUES


def _near(x):
    return special.erf(x), special.expit(x), special.log_expit(x), special.entr(x), special.log1p(x), \
        special.expm1(x), special.cbrt(x), special.exp2(x), special.logit(x)


def _wider(x):
    return special.erfc(x), special.gamma(x), special.gammaln(x), special.ndtr(x)


def _inverses(x):
    return special.erfinv(x), special.erfcinv(x), special.ndtri(x)


def _of_gamma(x):
    return special.psi(x), special.digamma(x)


def _scaled(x):
    return special.erfcx(x), special.log_ndtr(x), special.exprel(x)


def _of_two(a, b):
    return special.rel_entr(a, b), special.kl_div(a, b), special.xlogy(a, b), special.xlog1py(a, b), \
        special.huber(a, b), special.pseudo_huber(a, b)


case("special: near functions of float32", _F32, tolerance=8, golden="special")(_near)
case("special: near functions of float64", _F64, tolerance=8)(_near)
case("special: wider functions of float32", _F32, tolerance=64)(_wider)
case("special: wider functions of float64", _F64, tolerance=64)(_wider)
case("special: inverses of float32", _F32, tolerance=8)(_inverses)
case("special: inverses of float64", np.append(_F64, [1e-310, 1e-300, 1e-9, 0.999999, 1.999999]),
     tolerance=64)(_inverses)
case("special: digamma of float32", _F32, tolerance=8)(_of_gamma)
case("special: digamma of float64", np.append(_F64, [1.4616321449683622, 1.2, 1.8, -0.0001, -7.0, 1e300, -1e300]),
     tolerance=64)(_of_gamma)
case("special: scaled functions of float32", _F32, tolerance=8)(_scaled)
case("special: scaled functions of float64", np.append(_F64, [-1.0001, -26.0, -40.0, 1e-17, 30.0, 800.0]),
     tolerance=256)(_scaled)
case("special: of two float32", pairs(_F32), tolerance=64)(_of_two)
case("special: of two float64", pairs(_F64), tolerance=64)(_of_two)
case("special: of two float32, subnormal ones too", pairs(np.array([1e-45, 1.2e-38, 3, 350], "float32")),
     tolerance=64)(_of_two)
case("special: of two float64, whose quotients are no normal numbers",
     pairs(np.array([5e-324, 1.1e-308, 2.3e-308, 1e-300, 1.5, 1.6, 2.0, 1e300, 1.7e308])), tolerance=64)(_of_two)


for _values in (F16, I8, I32, BOOLS):
    @case(f"special: types of {_values.dtype}", _values, tolerance=64)
    def _types(x):
        return special.erf(x), special.expit(x), special.xlogy(x, 2.0), special.xlogy(x, np.float64(2))


@case("special: of a row and a number", rows(5, 7), 3.0, tolerance=8)
def _of_row(p, c):
    return special.expit(p * c), special.xlogy(p * p, c), special.erf(p).sum()


@case("special: logsumexp", rows(9, 7), tolerance=8)
def _logsumexp(p):
    return special.logsumexp(p), special.logsumexp(p[None, :], 0), special.logsumexp(p[None, :], axis=1), \
        special.logsumexp(p - np.inf), special.log_softmax(p - np.inf), special.log_softmax(p / 0.0)


@case("special: softmax", rows(9, 7), tolerance=16)
def _softmax(p):
    return special.softmax(p), special.log_softmax(p), special.softmax(p[None, :], axis=1), \
        special.log_softmax(np.array([p[0], np.inf, 1.0]))


@case("np.argpartition", rows(9, 7))
def _argpartition(p):
    return np.sort(p[np.argpartition(p, 3)[:3]]), np.argpartition(p, 6)[-1], p[p.argpartition(0)[0]]


@case("np.partition", rows(9, 7))
def _partition(p):
    return np.partition(p, 3)[3], np.sort(np.partition(p, -2)[-2:])


case("special: softmax of whole numbers", rows(9, 7, "int16"), tolerance=16)(
    lambda p: (special.softmax(p % 5), special.log_softmax(p % 5)))
