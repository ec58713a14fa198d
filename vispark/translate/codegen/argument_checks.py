"""Lowerings of the checks of types that functions written in the language make."""

from __future__ import annotations

import functools

from vispark.translate.codegen.emitter import Emitter
from vispark.translate.ir.errors import Refusal
from vispark.translate.ir.values import Array, Number, Value
from vispark.translate.language import argument_checks
from vispark.translate.language.registry import register


def _checked(emit: Emitter, a: Value, *, refused: str, words: str) -> Value:
    """Return an array whose dtype is none of those that are refused."""
    if isinstance(a, Array | Number) and a.type.dtype in refused.split():
        raise Refusal(words.format(a.type))
    return a


for _name, _refused, _words in (
        ("checked_for_linalg", "float16", "np.linalg takes no {}, in NumPy neither; write .astype(np.float32)"),
        ("checked_for_reals", "complex64 complex128", "scipy.special.logsumexp of {} is not supported; take .real, "
                                                      ".imag or abs()")):
    register(f"check.{_name}", "a", functools.partial(_checked, refused=_refused, words=_words),
             value=getattr(argument_checks, _name), family="check")
