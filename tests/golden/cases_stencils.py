"""Functions of a grid's cells, each with fields for it and, where its source is kept, the golden file's name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from vispark.translate import coordinate, extent, stencil

COEFFICIENTS = np.array([0.5, 0.04, 0.013, 0.007], "float32")


@dataclass(frozen=True, eq=False)
class GridCase:
    """A function, its fields with ghosts around them, and the ghosts' width on either side of each axis.

    ``places`` marks functions of coordinates, which have no value outside a kernel.
    """

    name: str
    fn: Callable[..., Any]
    fields: Mapping[str, np.ndarray]
    ghost: tuple[int, ...]
    args: tuple[Any, ...]
    golden: bool
    places: bool


CASES: list[GridCase] = []


def values(shape: tuple[int, ...], dtype: str = "float32", seed: int = 1) -> np.ndarray:
    """Random numbers of moderate size."""
    random = np.random.default_rng(seed)
    kind = np.dtype(dtype).kind
    if kind == "b":
        return random.integers(0, 2, shape).astype(bool)
    if kind in "iu":
        return random.integers(0 if kind == "u" else -9, 10, shape).astype(dtype)
    if kind == "c":
        return (random.normal(size=shape) + 1j * random.normal(size=shape)).astype(dtype)
    return random.normal(size=shape).astype(dtype)


def awkward(shape: tuple[int, ...], dtype: str, seed: int = 1) -> np.ndarray:
    """Random numbers of all sizes among moderate ones, small ones and zeros, and what is at the ends of a type."""
    random, about = np.random.default_rng(seed), np.finfo(dtype)
    ends = np.array([0, about.smallest_subnormal, about.smallest_normal, about.max, np.inf, np.nan, 1, 3], dtype)
    ends = np.concatenate([ends, np.nextafter(ends, ends.dtype.type(0)), np.nextafter(ends, ends.dtype.type(2))])
    any_bits = random.integers(0, 256, (*shape, about.dtype.itemsize), np.uint8).view(dtype)[..., 0]
    cells = np.where(random.random(shape) < 0.5, any_bits, random.choice(ends, shape))
    # Down to the least, and up to where the last bits of what a division leaves are lost.
    low, high = about.minexp - about.nmant, about.minexp + 2 * about.nmant
    small = np.ldexp(random.uniform(1, 2, shape).astype(dtype), random.integers(low, high, shape))
    # Divided by 3 * 2 ** (maxexp - 4) these are halfway between two of the least numbers.
    halfway = np.ldexp((6 * random.integers(0, 9, shape) + 3).astype(dtype), about.maxexp + low - 5)
    # Whole threads of a GPU have numbers of one kind.
    kinds = np.repeat(random.integers(0, 5, (*shape[:-1], -(-shape[-1] // 8))), 8, -1)[..., :shape[-1]]
    cells = np.choose(kinds, [cells, small, halfway, np.zeros(shape, dtype), random.normal(size=shape).astype(dtype)])
    return np.copysign(cells, random.choice(np.array([-1, 1], dtype), shape))


def case(fields: np.ndarray | Mapping[str, np.ndarray], ghost: tuple[int, ...], *args: Any, golden: bool = False,
         places: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add the decorated function to the cases."""
    def add(fn: Callable[..., Any]) -> Callable[..., Any]:
        named = fields if isinstance(fields, Mapping) else {"": fields}
        CASES.append(GridCase(fn.__name__, fn, named, ghost, args, golden, places))
        return fn
    return add


@case(values((6, 9, 45)), (1, 1, 1), 0.1, golden=True)
@stencil
def heat(u, k):
    return u[0, 0, 0] + k * (u[1, 0, 0] + u[-1, 0, 0] + u[0, 1, 0] + u[0, -1, 0] + u[0, 0, 1] + u[0, 0, -1]
                             - 6 * u[0, 0, 0])


def _ring(u):
    return u[0, 1, 1] + u[0, 1, -1] + u[0, -1, 1] + u[0, -1, -1]


def _faces(u):
    return u[1, 0, 0] + u[-1, 0, 0] + u[0, 1, 0] + u[0, -1, 0] + u[0, 0, 1] + u[0, 0, -1]


@case(values((5, 8, 39)), (1, 1, 1))
@stencil
def box(u):
    edges = (u[1, 1, 0] + u[1, -1, 0] + u[1, 0, 1] + u[1, 0, -1] + u[-1, 1, 0] + u[-1, -1, 0] + u[-1, 0, 1]
             + u[-1, 0, -1] + _ring(u))
    corners = (u[1, 1, 1] + u[1, 1, -1] + u[1, -1, 1] + u[1, -1, -1] + u[-1, 1, 1] + u[-1, 1, -1] + u[-1, -1, 1]
               + u[-1, -1, -1])
    return (COEFFICIENTS[0] * u[0, 0, 0] + COEFFICIENTS[1] * _faces(u) + COEFFICIENTS[2] * edges
            + COEFFICIENTS[3] * corners)


@case(values((8, 11, 43), "float64"), (2, 2, 2), 0.1)
@stencil
def wide(u, k):
    near = _faces(u)
    far = u[2, 0, 0] + u[-2, 0, 0] + u[0, 2, 0] + u[0, -2, 0] + u[0, 0, 2] + u[0, 0, -2]
    return u[0, 0, 0] + k * (4 / 3 * near - far / 12 - 7.5 * u[0, 0, 0])


@case({"u": values((5, 7, 40)), "c": values((5, 7, 40), seed=2)}, (1, 1, 1), 0.1)
@stencil
def variable(u, c, k):
    return {"u": u[0, 0, 0] + k * c[0, 0, 0] * (_faces(u) - 6 * u[0, 0, 0])}


@case(values((5, 7, 40)), (1, 1, 1))
@stencil
def two_outputs(u):
    return u[0, 0, 1] - u[0, 0, -1], _faces(u) / 6


@case({"u": values((13, 50)), "v": values((13, 50), seed=2), "p": values((13, 50), "float64", seed=3)}, (1, 1), 0.1)
@stencil
def convection(u, v, p, k):
    along = u[0, 0] * (u[0, 1] - u[0, -1]) + v[0, 0] * (u[1, 0] - u[-1, 0])
    across = u[0, 0] * (v[0, 1] - v[0, -1]) + v[0, 0] * (v[1, 0] - v[-1, 0])
    return {"u": u[0, 0] - k * (along + (p[0, 1] - p[0, -1])), "v": v[0, 0] - k * (across + (p[1, 0] - p[-1, 0]))}


@case(values((300,)), (3,))
@stencil
def smooth(u):
    return (u[-3] + 2 * u[-1] + 3 * u[0] + 2 * u[1] + u[3]) / 9


@case({"a": values((4, 5, 21)), "b": values((4, 5, 21), "int16")}, (0, 0, 0), 2)
def plain_cells(a, b, k):
    return {"a": a * k if b > 0 else -a, "c": b // 2}


@case(values((6, 40)), (1, 1), golden=True, places=True)
@stencil
def walls(u):
    if coordinate(0) == 0 or coordinate(0) == extent(0) - 1:
        return 0 * u[0, 0]
    return u[0, 0] + coordinate(-1) * (u[0, 1] - u[0, -1])


@case(values((9, 37), "int32"), (1, 1))
@stencil
def life(u):
    count = (u[-1, -1] + u[-1, 0] + u[-1, 1] + u[0, -1] + u[0, 1] + u[1, -1] + u[1, 0] + u[1, 1])
    if u[0, 0] > 0:
        return 1 if count == 2 or count == 3 else 0
    return 1 if count == 3 else 0


@case(values((9, 37)), (1, 1))
@stencil
def median(u):
    low, high = min(u[0, -1], u[0, 1]), max(u[0, -1], u[0, 1])
    return max(low, min(high, u[0, 0]))


@case(values((5, 6, 33)), (1, 1, 1))
@stencil
def skewed(u):
    return u[-1, 1, 0] * u[1, -1, 1] - u[0, 1, -1]


@case(values((64,)), (1,))
@stencil
def newton(u):
    x = abs(u[0]) + 1
    n = 0
    while abs(x * x - abs(u[1])) > 1e-3 and n < 50:
        x = (x + abs(u[1]) / x) / 2
        n += 1
    return x


@case({"f": values((5, 41), "float16"), "flag": values((5, 41), "bool", seed=3)}, (1, 1))
@stencil
def half_precision(f, flag):
    return {"f": f[0, 1] + f[1, 0] if flag[0, 0] else f[0, 0], "flag": flag[0, -1]}


@case(values((5, 20), "complex64"), (1, 1))
@stencil
def turned(z):
    return z[0, 1] * z[-1, 0]


@case({"b": values((4, 70), "uint8"), "d": values((4, 70), "float64", seed=4)}, (0, 2))
@stencil
def bytes_and_doubles(b, d):
    return b[0, -2] + b[0, 2], d[0, 1] * b[0, 0]


@case(values((3, 5, 41)), (0, 0, 6))
@stencil
def farther_than_a_threads_cells(u):
    return u[0, 0, -6] - u[0, 0, 5] + u[0, 0, -3] * u[0, 0, 0]


@case({"a": values((6, 5, 37), "int16"), "b": values((6, 5, 37), "float64", seed=2)}, (3, 0, 3), 7.0)
@stencil
def to_one_side(a, b, k):
    return {"b": (a[0, 0, -3] + b[0, 0, 3] - b[-3, 0, 1] + b[1, 0, 0] * b[2, 0, 0]) / k}


@case(values((4, 19), "complex128"), (1, 0))
@stencil
def wide_numbers(z):
    return z[-1, 0] - z[1, 0]


AROUND = ((-1, 0), (1, 0), (0, -1), (0, 1))
SHARES = (0.1, 0.2, 0.3, 0.4)
REACH = 2


@case(values((9, 37)), (1, 1))
@stencil
def offsets_of_a_loop(u):
    total = 0.0
    for d in (-1, 1):
        total += u[d, 0] + u[0, d]
    return total


@case(values((9, 37)), (2, 2), np.arange(25.0, dtype="float32").reshape(5, 5))
@stencil
def offsets_of_ranges(u, weights):
    return sum(weights[i + REACH, j + REACH] * u[i, j] for i in range(-REACH, REACH + 1)
               for j in range(-REACH, REACH + 1) if i != j)


@case(values((9, 37)), (1, 1))
@stencil
def offsets_from_around(u):
    total = u[0, 0]
    for (y, x), share in zip(AROUND, SHARES, strict=True):
        if u[y, x] > 0:
            total += share * u[y, x]
    return total


@case(values((9, 37)), (2, 2))
@stencil
def offsets_times_numbers(u):
    total = u[0, 0]
    for k, d in enumerate(AROUND):
        for n in range(1, 3):
            total = total + (k + 1) * u[d[0] * n, d[1] * n]
    return total + k


@case(values((9, 37)), (1, 1))
@stencil
def offsets_of_lists(u):
    return max(u[d] for d in AROUND) - min([u[d] for d in AROUND]), sorted([u[i, 0] for i in range(-1, 2)])[1]
