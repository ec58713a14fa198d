"""Functions of ``scipy.special`` that go number by number.

SciPy is asked for the types of a result, so it must be there; a function that names it has imported it.
"""

from __future__ import annotations

import functools
import importlib

import numpy as np

from vispark.translate.codegen.elementwise import elementwise
from vispark.translate.codegen.emitter import Emitter
from vispark.translate.codegen.scalar.casts import cast
from vispark.translate.ir.errors import Refusal
from vispark.translate.ir.types import Scalar, resolve
from vispark.translate.ir.values import Number, Value
from vispark.translate.language.registry import register

#: Functions of C, to their names in double precision; an f behind them is for single precision.
_C = {"erf": "erf", "erfc": "erfc", "gamma": "tgamma", "log1p": "log1p", "expm1": "expm1", "cbrt": "cbrt",
      "exp2": "exp2"}
#: Functions of the prelude, with their parameters.
_PRELUDE = {"gammaln": "x /", "expit": "x /", "logit": "x /", "log_expit": "x /", "ndtr": "x /", "entr": "x /",
            "rel_entr": "x1 x2 /", "kl_div": "x1 x2 /", "xlogy": "x1 x2 /", "xlog1py": "x1 x2 /", "huber": "x1 x2 /",
            "pseudo_huber": "x1 x2 /", "psi": "x /", "digamma": "x /", "erfinv": "x /", "erfcinv": "x /",
            "erfcx": "x /", "ndtri": "x /", "log_ndtr": "x /", "exprel": "x /"}
#: SciPy's other names of them.
_SAME = {"digamma": "psi"}


def _call(emit: Emitter, *operands: Value, name: str) -> Value:
    """Return a function of numbers and arrays, computed in the precision that SciPy's result has."""
    ufunc = _ufunc(name)

    def one(*numbers: Number) -> Number:
        if any(number.type.kind == "c" for number in numbers):
            raise Refusal(f"scipy.special.{name} of complex numbers is not supported")
        casts, type_ = resolve(ufunc, *(number.type for number in numbers))
        texts = ", ".join(cast(number, kind).text for number, kind in zip(numbers, casts, strict=True))
        return Number(type_, f"{_function(name, type_)}({texts})")

    return elementwise(emit, one, *operands)


@functools.cache
def _ufunc(name: str) -> np.ufunc:
    ufunc: np.ufunc = getattr(importlib.import_module("scipy.special"), name)
    return ufunc


def _function(name: str, kind: Scalar) -> str:
    if name in _PRELUDE:
        return f"special_{_SAME.get(name, name)}<{kind.c}>"
    return _C[name] + ("f" if kind.dtype == "float32" else "")


for _name in (*_C, *_PRELUDE):
    register(f"scipy.special.{_name}", f"{_PRELUDE.get(_name, 'x /')} out! * where! casting! order! dtype! subok!",
             functools.partial(_call, name=_name), family="ufunc")
