"""Lowerings of the checks of types that functions written in the language make."""

from __future__ import annotations

import functools

from vispark.translate.codegen.emitter import Emitter
from vispark.translate.ir.errors import Refusal
from vispark.translate.ir.values import Array, Number, Value, describe
from vispark.translate.language import argument_checks
from vispark.translate.language.registry import register


def _checked(emit: Emitter, a: Value, *, refused: str, words: str) -> Value:
    """Return an array whose dtype is none of those that are refused."""
    if isinstance(a, Array | Number) and a.type.dtype in refused.split():
        raise Refusal(words.format(a.type))
    return a


def _checked_square(emit: Emitter, a: Value, *, refused: str, words: str) -> Value:
    """Return a square matrix whose dtype is none of those that are refused."""
    if not isinstance(a, Array) or len(a.shape) != 2 or a.shape[0] != a.shape[1]:
        raise Refusal(f"np.linalg is of square matrices here, and this is {describe(a)}")
    return _checked(emit, a, refused=refused, words=words)


_OF_FLOAT16 = "np.linalg takes no {}, in NumPy neither; write .astype(np.float32)"
for _name, _check, _refused, _words in (
        ("checked_for_linalg", _checked, "float16", _OF_FLOAT16),
        ("checked_for_square", _checked_square, "float16", _OF_FLOAT16),
        ("checked_for_reals", _checked, "complex64 complex128",
         "scipy.special.logsumexp of {} is not supported; take .real, .imag or abs()")):
    register(f"check.{_name}", "a", functools.partial(_check, refused=_refused, words=_words),
             value=getattr(argument_checks, _name), family="check")
