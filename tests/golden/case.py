"""A case of the language: a function, data for it, and the construct that it stands for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

CaseData = np.ndarray | Mapping[str, np.ndarray]

_NAN, _INF = float("nan"), float("inf")


@dataclass(frozen=True, eq=False)
class GoldenCase:
    """``tolerance`` is in units of the result's rounding; ``promoted`` compares values in the result's type, for
    functions whose result's type depends on the way taken."""

    construct: str
    fn: Callable[..., Any]
    data: CaseData
    args: tuple[Any, ...]
    tolerance: float
    promoted: bool
    golden: str


CASES: list[GoldenCase] = []


def case(construct: str, data: CaseData, *args: Any, tolerance: float = 0, promoted: bool = False,
         golden: str = "") -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add the decorated function to the cases; ``golden`` names the golden file that its source is kept in."""
    def add(fn: Callable[..., Any]) -> Callable[..., Any]:
        CASES.append(GoldenCase(construct, fn, data, args, tolerance, promoted, golden))
        return fn
    return add


def floats(dtype: str) -> np.ndarray:
    """Return numbers of all kinds: zeros, NaN, infinities, tiny, huge, negative."""
    top = np.finfo(dtype).max
    with np.errstate(over="ignore"):
        return np.array([0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.0, 7.25, -7.25, 1e-3, -13.0, 100.0, _NAN, _INF, -_INF, top,
                         -top, np.finfo(dtype).tiny, np.finfo(dtype).smallest_subnormal], dtype)


def integers(dtype: str) -> np.ndarray:
    """Small, negative and extreme integers."""
    limits = np.iinfo(dtype)
    wanted = [0, 1, 2, 3, 5, 7, 10, 63, 100, -1, -2, -3, -7, -10, -100, limits.min, limits.min + 1, limits.max,
              limits.max - 1, limits.max // 2]
    return np.array([value for value in wanted if limits.min <= value <= limits.max], dtype)


def pairs(values: np.ndarray, others: np.ndarray | None = None) -> dict[str, np.ndarray]:
    """Return all pairs as the fields a and b."""
    others = values if others is None else others
    return {"a": np.repeat(values, len(others)), "b": np.tile(others, len(values))}


def rows(count: int, length: int, dtype: str = "float32", seed: int = 1) -> np.ndarray:
    """Random rows of moderate numbers."""
    random = np.random.default_rng(seed)
    if np.dtype(dtype).kind in "iu":
        return random.integers(0 if dtype.startswith("u") else -9, 10, (count, length)).astype(dtype)
    if np.dtype(dtype).kind == "c":
        return (random.normal(size=(count, length)) + 1j * random.normal(size=(count, length))).astype(dtype)
    return random.normal(size=(count, length)).astype(dtype)


F16, F32, F64 = map(floats, ("float16", "float32", "float64"))
I8, I16, I32, I64 = map(integers, ("int8", "int16", "int32", "int64"))
U8, U16, U32, U64 = map(integers, ("uint8", "uint16", "uint32", "uint64"))
BOOLS = np.array([False, True])
C64 = np.array([0, 1, -1, 1j, -1j, 1 + 2j, -3 + 0.5j, 2.5 - 4j], "complex64")
C128 = C64.astype("complex128")
UNIT = np.array([0.0, 0.1, -0.1, 0.5, -0.5, 0.99, -0.99, 1.0, -1.0], "float32")
POSITIVE = np.array([1e-3, 0.1, 0.5, 1.0, 1.5, 2.0, 3.0, 10.0, 100.0], "float32")
