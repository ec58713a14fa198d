"""An inner iteration of ``flow.py`` in NumPy, CuPy, JAX and Numba, and a sweep as a Spark task does it.

CuPy and NumPy work on slices of padded arrays, CuPy with each map as fused kernels; JAX compiles a loop of iterations
as a whole. There is 0 outside.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from benchmarks.halos import Given, edge
from benchmarks.peers import cupy, jax, jnp, numba

#: The steps in time and space, and the viscosity: a diffusion number of 0.125, velocities of at most 0.5 cells a step.
DT, H, NU = 0.25, 0.5, 0.125
SWEEPS, _LEAST = 21, 0.02

#: Of u and v: how far the cells that a velocity's prediction takes are from it, in the order of its parameters.
_AROUND = (((0, 0), (0, 1), (0, -1), (1, 0), (-1, 0), (-1, 1)), ((0, 0), (0, 1), (0, -1), (1, 0), (-1, 0), (1, -1)))


@cache
def weights() -> tuple[float, ...]:
    """Return Chebyshev's weights, in an order that rounds little."""
    turns = np.pi * (2 * (np.arange(SWEEPS) * 8 % SWEEPS) + 1) / (2 * SWEEPS)
    return tuple(2 / (2 + _LEAST - (2 - _LEAST) * np.cos(turns)))


def initial(name: str) -> Callable[[Any, Any], Any]:
    """Return the start of a velocity, "u" or "v": waves in [-1, 1] that fit no boundary."""
    up, right = {"u": (0.21, 0.13), "v": (0.11, 0.17)}[name]
    return lambda y, x: np.sin(np.float32(up) * y + np.float32(right) * x, dtype=np.float32)


# -- the maps, on arrays of one cell each -----------------------------------------------------------------------------

def _u_star(u, ur, ul, ua, ub, ubr, v, vr, vl, va, vb, val, dt, h, nu):
    uu = ((u + ur) ** 2 - (ul + u) ** 2) / 4
    uv = ((va + val) * (u + ua) - (v + vl) * (u + ub)) / 4
    return u + dt * (nu * (ur + ul + ua + ub - 4 * u) / h - uu - uv) / h


def _v_star(u, ur, ul, ua, ub, ubr, v, vr, vl, va, vb, val, dt, h, nu):
    vv = ((v + va) ** 2 - (vb + v) ** 2) / 4
    uv = ((ur + ubr) * (v + vr) - (u + ub) * (v + vl)) / 4
    return v + dt * (nu * (vr + vl + va + vb - 4 * v) / h - vv - uv) / h


def _source(u, ur, v, va, dt, h):
    return (ur - u + va - v) * h / dt


def _sweep(p, right, left, above, below, source, weight):
    return p + weight * ((right + left + above + below - source) / 4 - p)


def _correct(star, p, before, dt, h):
    return star - dt / h * (p - before)


def _iteration(cells: dict[str, Any], near: Callable[[Any, int, int], Any], maps: dict[str, Callable],
               write: Callable[[dict[str, Any], str, Any], None], number: Callable[[float], Any]) -> None:
    """Do one iteration: ``near`` shifts a field, ``write`` takes a map's result."""
    dt, h, nu = number(DT), number(H), number(NU)
    around = [near(cells[name], *by) for name, places in zip("uv", _AROUND, strict=True) for by in places]
    u_star, v_star = maps["u_star"](*around, dt, h, nu), maps["v_star"](*around, dt, h, nu)
    write(cells, "u_star", u_star), write(cells, "v_star", v_star)
    star, other = cells["u_star"], cells["v_star"]
    write(cells, "source", maps["source"](near(star, 0, 0), near(star, 0, 1), near(other, 0, 0), near(other, 1, 0), dt,
                                          h))
    for weight in weights():
        p = cells["p"]
        write(cells, "p", maps["sweep"](*(near(p, *by) for by in ((0, 0), (0, 1), (0, -1), (1, 0), (-1, 0))),
                                        near(cells["source"], 0, 0), number(weight)))
    for name, by in (("u", (0, -1)), ("v", (-1, 0))):
        write(cells, name, maps["correct"](near(cells[f"{name}_star"], 0, 0), near(cells["p"], 0, 0),
                                           near(cells["p"], *by), dt, h))


_MAPS = {"u_star": _u_star, "v_star": _v_star, "source": _source, "sweep": _sweep, "correct": _correct}

#: Rows that NumPy works on at once, so that what it computes on the way stays in a core's cache.
_BAND = 32


def _by_bands(function: Callable[..., Any]) -> Callable[..., np.ndarray]:
    def banded(first: np.ndarray, *others: Any) -> np.ndarray:
        result = np.empty(first.shape, first.dtype)
        for start in range(0, len(first), _BAND):
            band = slice(start, start + _BAND)
            result[band] = function(first[band], *(other[band] if np.ndim(other) else other for other in others))
        return result
    return banded


_MAPS_BY_BANDS = {name: _by_bands(each) for name, each in _MAPS.items()}


@cache
def _fused() -> dict[str, Callable[..., Any]]:
    return {name: cupy.fuse()(each) for name, each in _MAPS.items()}


class SlicedFlow:
    """Slices of NumPy's or CuPy's arrays, which have a rim of zeros."""

    def __init__(self, library: Any, fields: dict[str, np.ndarray]):
        shape = tuple(extent + 2 for extent in fields["u"].shape)
        self._cells = {name: library.zeros(shape, fields["u"].dtype) for name in ("u", "v", "p", "u_star", "v_star",
                                                                                  "source")}
        for name, cells in fields.items():
            self._cells[name][1:-1, 1:-1] = library.asarray(cells)
        self._maps = _MAPS_BY_BANDS if library is np else _fused()
        self._number = fields["u"].dtype.type

    def advance(self, steps: int) -> None:
        for _ in range(steps):
            _iteration(self._cells, _slice, self._maps, _into, self._number)
        if self._maps is not _MAPS_BY_BANDS:
            cupy.cuda.Stream.null.synchronize()

    def inner(self, name: str) -> Any:
        """Return a field without its rim."""
        return self._cells[name][1:-1, 1:-1]

    def corner(self, where: tuple[slice, ...]) -> np.ndarray:
        cells = self.inner("u")[where]
        return cells if isinstance(cells, np.ndarray) else cupy.asnumpy(cells)


def _slice(cells: Any, dy: int, dx: int) -> Any:
    return cells[1 + dy:cells.shape[0] - 1 + dy, 1 + dx:cells.shape[1] - 1 + dx]


def _into(cells: dict[str, Any], name: str, values: Any) -> None:
    cells[name][1:-1, 1:-1] = values


@cache
def _jax_loop() -> Callable[..., Any]:
    def near(cells, dy, dx):
        ny, nx = cells.shape
        return jax.lax.dynamic_slice(jnp.pad(cells, 1), (1 + dy, 1 + dx), (ny, nx))

    def step(_, start):
        cells = dict(zip(("u", "v", "p"), start, strict=True))
        _iteration(cells, near, _MAPS, dict.__setitem__, np.float32)
        return tuple(cells[name] for name in ("u", "v", "p"))

    return jax.jit(lambda cells, steps: jax.lax.fori_loop(0, steps, step, cells), donate_argnums=0)


class JaxFlow:
    """A loop that XLA compiles as a whole, its arrays given back to it."""

    def __init__(self, fields: dict[str, np.ndarray]):
        empty = np.zeros_like(fields["u"])
        self._cells = jax.block_until_ready(tuple(jnp.asarray(fields.get(name, empty)) for name in ("u", "v", "p")))
        self._loop = _jax_loop()

    def advance(self, steps: int) -> None:
        self._cells = jax.block_until_ready(self._loop(self._cells, steps))

    def corner(self, where: tuple[slice, ...]) -> np.ndarray:
        return np.asarray(self._cells[0][where])


@cache
def _numba_maps() -> tuple[Callable[..., Any], ...]:
    scalar = {name: numba.njit(fastmath=True)(each) for name, each in _MAPS.items()}
    u_of, v_of, source_of, sweep_of, correct_of = (scalar[name] for name in _MAPS)

    @numba.njit(parallel=True, fastmath=True)
    def predict(u, v, u_star, v_star, dt, h, nu):
        for y in numba.prange(1, u.shape[0] - 1):
            for x in range(1, u.shape[1] - 1):
                around = (u[y, x], u[y, x + 1], u[y, x - 1], u[y + 1, x], u[y - 1, x], u[y - 1, x + 1],
                          v[y, x], v[y, x + 1], v[y, x - 1], v[y + 1, x], v[y - 1, x], v[y + 1, x - 1])
                u_star[y, x], v_star[y, x] = u_of(*around, dt, h, nu), v_of(*around, dt, h, nu)

    @numba.njit(parallel=True, fastmath=True)
    def divergence(u, v, source, dt, h):
        for y in numba.prange(1, u.shape[0] - 1):
            for x in range(1, u.shape[1] - 1):
                source[y, x] = source_of(u[y, x], u[y, x + 1], v[y, x], v[y + 1, x], dt, h)

    @numba.njit(parallel=True, fastmath=True)
    def sweep(p, source, after, weight):
        for y in numba.prange(1, p.shape[0] - 1):
            for x in range(1, p.shape[1] - 1):
                after[y, x] = sweep_of(p[y, x], p[y, x + 1], p[y, x - 1], p[y + 1, x], p[y - 1, x], source[y, x],
                                       weight)

    @numba.njit(parallel=True, fastmath=True)
    def correct(u_star, v_star, p, u, v, dt, h):
        for y in numba.prange(1, p.shape[0] - 1):
            for x in range(1, p.shape[1] - 1):
                u[y, x] = correct_of(u_star[y, x], p[y, x], p[y, x - 1], dt, h)
                v[y, x] = correct_of(v_star[y, x], p[y, x], p[y - 1, x], dt, h)

    return predict, divergence, sweep, correct


class NumbaFlow:
    """Loops over all cells on all cores, one for each map."""

    def __init__(self, fields: dict[str, np.ndarray]):
        shape = tuple(extent + 2 for extent in fields["u"].shape)
        self._cells = {name: np.zeros(shape, np.float32) for name in ("u", "v", "p", "next", "u_star", "v_star",
                                                                      "source")}
        for name, cells in fields.items():
            self._cells[name][1:-1, 1:-1] = cells
        self._maps = _numba_maps()

    def advance(self, steps: int) -> None:
        cells, (predict, divergence, sweep, correct) = self._cells, self._maps
        dt, h, nu = np.float32(DT), np.float32(H), np.float32(NU)
        for _ in range(steps):
            predict(cells["u"], cells["v"], cells["u_star"], cells["v_star"], dt, h, nu)
            divergence(cells["u_star"], cells["v_star"], cells["source"], dt, h)
            for weight in weights():
                sweep(cells["p"], cells["source"], cells["next"], np.float32(weight))
                cells["p"], cells["next"] = cells["next"], cells["p"]
            correct(cells["u_star"], cells["v_star"], cells["p"], cells["u"], cells["v"], dt, h)

    def corner(self, where: tuple[slice, ...]) -> np.ndarray:
        return self._cells["u"][1:-1, 1:-1][where]


# -- a Spark task -----------------------------------------------------------------------------------------------------

def iterated(library: Any, block: Any, strips: Given, width: int) -> Any:
    """Return a block's u, v and p after an iteration, by NumPy or CuPy, with strips as wide as the maps reach.

    What is not within the grid is not computed; at a strip's outer side a map more is wrong with each, a cell further.
    """
    cells = {(0, 0): block} | {offset: library.asarray(strip) for offset, strip in strips.items()}
    rows = [[cells[dy, dx] for dx in (-1, 0, 1) if (dy, dx) in cells] for dy in (-1, 0, 1) if (dy, 0) in cells]
    whole = library.concatenate([library.concatenate(row, axis=-1) for row in rows], axis=-2)
    flow = SlicedFlow(library, dict(zip(("u", "v", "p"), whole, strict=True)))
    flow.advance(1)
    ny, nx = block.shape[1:]
    top, left = (width if offset in cells else 0 for offset in ((-1, 0), (0, -1)))
    return library.stack([flow.inner(name)[top:top + ny, left:left + nx] for name in ("u", "v", "p")])


def swept(block: np.ndarray, strips: Given, weight: float) -> np.ndarray:
    """Return a block's p and source after a sweep; where p is given nothing there is 0."""
    p, source = block
    padded = np.pad(p, 1)
    for offset, strip in strips.items():
        padded[tuple(edge(side) if side else slice(1, -1) for side in offset)] = strip[0]
    shifted = [_slice(padded, *by) for by in ((0, 0), (0, 1), (0, -1), (1, 0), (-1, 0))]
    return np.stack([_MAPS_BY_BANDS["sweep"](*shifted, source, p.dtype.type(weight)), source])
