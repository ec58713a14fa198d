"""Arguments of drawn functions: a block of elements of one dtype."""

from __future__ import annotations

from random import Random

import numpy as np

DTYPES = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32",
          "float64", "complex64", "complex128")
#: Elements in a block.
COUNT = 24

_NAN, _INF = float("nan"), float("inf")
#: Multiples of a quarter whose sums and products are exact in every order, also in half precision.
_MODERATE = (0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.5, 3.0, 0.25, -0.75, 1.5, 4.0, -3.25)


def _special(dtype: str) -> tuple[float, ...]:
    limits = np.finfo(dtype)
    return (0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.0, _NAN, _INF, -_INF, float(limits.max), float(-limits.max),
            float(limits.tiny), float(-limits.tiny), float(limits.smallest_subnormal), float(limits.eps),
            1.0 + float(limits.eps), 1e-3, 100.0, -13.0)


def _float(random: Random, dtype: str) -> float:
    way = random.random()
    if way < 0.5:
        return random.choice(_special(dtype))
    if way < 0.8:
        return random.gauss(0, 3)
    top = {"float16": 4, "float32": 37, "float64": 300}[dtype]
    return random.gauss(0, 1) * 10.0 ** random.randint(-top, top)


def _integer(random: Random, dtype: str) -> int:
    limits = np.iinfo(dtype)
    low, high, way = int(limits.min), int(limits.max), random.random()
    if way < 0.35:
        return random.choice([value for value in (0, 1, 2, 3, -1, -2, low, low + 1, high, high - 1, high // 2)
                              if low <= value <= high])
    if way < 0.75:
        return random.randint(max(low, -20), min(high, 20))
    return random.randint(low, high)


def _sized(value: complex, part: str) -> complex:
    """Return the number, or its real part where its size rounds to infinity or not: NumPy's arrays and scalars differ.
    """
    limits = np.finfo(part)
    size = np.hypot(np.longdouble(value.real), np.longdouble(value.imag)) / limits.max
    return complex(value.real, 0) if limits.eps / 8 < size - 1 < 4 * limits.eps else value


def wild(random: Random, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    """Return numbers of all kinds, the special ones often."""
    size = int(np.prod(shape, dtype=int))
    kind = np.dtype(dtype).kind
    with np.errstate(all="ignore"):
        if kind == "b":
            values = [random.random() < 0.5 for _ in range(size)]
        elif kind in "iu":
            values = [_integer(random, dtype) for _ in range(size)]
        elif kind == "f":
            values = [_float(random, dtype) for _ in range(size)]
        else:
            part = "float32" if dtype == "complex64" else "float64"
            values = [_sized(complex(_float(random, part), _float(random, part)), part) if random.random() < 0.3 else
                      complex(random.choice(_MODERATE), random.choice(_MODERATE)) for _ in range(size)]
        return np.array(values, dtype).reshape(shape)


def moderate(random: Random, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    """Finite numbers near zero that every order of adding them gives one sum of."""
    size = int(np.prod(shape, dtype=int))
    kind = np.dtype(dtype).kind
    if kind == "b":
        values = [random.random() < 0.5 for _ in range(size)]
    elif kind in "iu":
        values = [random.randint(0 if kind == "u" else -5, 6) for _ in range(size)]
    elif kind == "f":
        values = [random.choice(_MODERATE) for _ in range(size)]
    else:
        values = [complex(random.choice(_MODERATE), random.choice(_MODERATE)) for _ in range(size)]
    return np.array(values, dtype).reshape(shape)


def edges(random: Random, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    """Return rows at the ends of a type whose sums have one value in every order of adding them, or none that is
    finite.

    A row of floats has infinities beside small numbers, or NaN, or nothing but the greatest number, or zeros of both
    signs; of integers the least and the greatest numbers and what lies beside them. Complex rows are moderate.
    """
    kind = np.dtype(dtype).kind
    if kind in "bc":
        return moderate(random, dtype, shape)
    *outer, length = shape
    count = int(np.prod(outer, dtype=int))
    rows = [[value for _ in range(length) for value in [random.choice(some)]]
            for some in (random.choice(_ends(dtype)) for _ in range(count))]
    with np.errstate(all="ignore"):
        return np.array(rows, dtype).reshape(shape)


def _ends(dtype: str) -> tuple[tuple[float, ...], ...]:
    """Return the sets of numbers, of one of which a row is drawn."""
    if np.dtype(dtype).kind in "iu":
        low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
        return ((low, low + 1), (high, high - 1), (low, high), (high // 2 + 1,), (low, high, high - 1), (0, 1, 7))
    most = float(np.finfo(dtype).max)
    return ((_INF, 1.0, 2.0, 0.5), (-_INF, 1.0, -2.0), (_INF, -_INF, 1.0), (_NAN, 1.0, 2.0, 3.0), (_NAN, _INF, 1.0),
            (most,), (-most,), (0.0, -0.0), (1.0, 2.0, -0.5))
