"""Rule for quotients that are computed by their divisor's reciprocal: those of many cells by a common number."""

from __future__ import annotations

import math
import re

from vispark.translate.ir.values import Number

#: The prelude's function for them, as a cell's function calls it.
COMMON_QUOTIENT = "common_quotient<exact>"

#: What frexp() makes of powers of two, and a number as it is written in C++.
_HALF, _LITERAL = 0.5, re.compile(r"-?\d[\d.]*(e[-+]?\d+)?f?")


def by_reciprocal(a: Number, b: Number) -> bool:
    """Return whether ``a / b`` is one of many quotients by the same float, whose reciprocal is taken once.

    By a power of two compilers multiply of themselves, and what all cells have in common they compute once.
    """
    if b.type.dtype not in ("float32", "float64") or not b.common or a.common:
        return False
    return not _LITERAL.fullmatch(b.text) or abs(math.frexp(float(b.text.removesuffix("f")))[0]) != _HALF
