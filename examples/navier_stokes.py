"""Incompressible flow in 2 dimensions: Taylor and Green's vortices, and the cavity whose lid moves.

    python examples/navier_stokes.py                                  # Reynolds number 100, 64 x 64 cells
    python examples/navier_stokes.py --reynolds 1000 --cells 128      # beside all of the table; a minute on one core

The fractional step of A. J. Chorin (Math. Comp. 22 (1968) 745) on the staggered cells of F. H. Harlow and J. E. Welch
(Phys. Fluids 8 (1965) 2182): a step without pressure, a pressure that makes its result free of divergence, and a
correction. u is on the left face of a cell, v on the lower one, p in the middle; axis 0 goes up, axis 1 to the right.
The pressure takes 21 sweeps of Jacobi's method, whose weights are Chebyshev's (D. M. Young, J. Math. Phys. 32 (1953)
243), from where the step before left it. So a step is 24 maps and 24 exchanges.
"""

import math
import time
from pathlib import Path

import click
import matplotlib
import numpy as np
from pyspark import SparkContext

from vispark import Grid, coordinate, extent, stencil

matplotlib.use("Agg")
from matplotlib import pyplot as plt

FIELDS = dict.fromkeys(("u", "v", "p", "u_star", "v_star", "source"), "f8")
SWEEPS, LEAST = 21, 0.02
TABLE = Path(__file__).with_name("ghia_1982.csv")


@stencil
def predict(u, v, dt, h, nu, lid, walls):
    """Advection and diffusion. Beyond a wall the velocity along it is such that it is the wall's between the two."""
    low, left = walls and coordinate(0) == 0, walls and coordinate(1) == 0
    high, right = walls and coordinate(0) == extent(0) - 1, walls and coordinate(1) == extent(1) - 1
    u_below, u_above = -u[0, 0] if low else u[-1, 0], 2 * lid - u[0, 0] if high else u[1, 0]
    v_left, v_right = -v[0, 0] if left else v[0, -1], -v[0, 0] if right else v[0, 1]
    uu = ((u[0, 0] + u[0, 1]) ** 2 - (u[0, -1] + u[0, 0]) ** 2) / 4
    vv = ((v[0, 0] + v[1, 0]) ** 2 - (v[-1, 0] + v[0, 0]) ** 2) / 4
    uv_up = ((v[1, 0] + v[1, -1]) * (u[0, 0] + u_above) - (v[0, 0] + v[0, -1]) * (u[0, 0] + u_below)) / 4
    uv_right = ((u[0, 1] + u[-1, 1]) * (v[0, 0] + v_right) - (u[0, 0] + u[-1, 0]) * (v[0, 0] + v_left)) / 4
    u_spread = u[0, 1] + u[0, -1] + u_above + u_below - 4 * u[0, 0]
    v_spread = v_right + v_left + v[1, 0] + v[-1, 0] - 4 * v[0, 0]
    return {"u_star": 0.0 if left else u[0, 0] + dt * (nu * u_spread / h - uu - uv_up) / h,
            "v_star": 0.0 if low else v[0, 0] + dt * (nu * v_spread / h - vv - uv_right) / h}


@stencil
def divergence(u_star, v_star, dt, h):
    return {"source": (u_star[0, 1] - u_star[0, 0] + v_star[1, 0] - v_star[0, 0]) * h / dt}


@stencil
def sweep(p, source, weight):
    return {"p": p[0, 0] + weight * ((p[0, 1] + p[0, -1] + p[1, 0] + p[-1, 0] - source[0, 0]) / 4 - p[0, 0])}


@stencil
def correct(u_star, v_star, p, dt, h, walls):
    return {"u": 0.0 if walls and coordinate(1) == 0 else u_star[0, 0] - dt / h * (p[0, 0] - p[0, -1]),
            "v": 0.0 if walls and coordinate(0) == 0 else v_star[0, 0] - dt / h * (p[0, 0] - p[-1, 0])}


def phases(dt, h, nu, lid, walls):
    """Return the maps of a step, each with its arguments."""
    turns = np.pi * (2 * (np.arange(SWEEPS) * 8 % SWEEPS) + 1) / (2 * SWEEPS)       # in an order that rounds little
    weights = 2 / (2 + LEAST - (2 - LEAST) * np.cos(turns))
    return [(predict, (dt, h, nu, lid, walls)), (divergence, (dt, h)), *((sweep, (float(each),)) for each in weights),
            (correct, (dt, h, walls))]


def vortices(sc, cells, splits, duration=1.0, nu=0.1):
    """Return the largest error of Taylor and Green's decaying vortices after a time."""
    h = 2 * np.pi / cells
    steps = math.ceil(duration * nu / (0.15 * h**2))
    start = {"u": lambda j, i: np.sin(i * h) * np.cos((j + 0.5) * h),
             "v": lambda j, i: -np.cos((i + 0.5) * h) * np.sin(j * h),
             "p": lambda j, i: (np.cos((2 * i + 1) * h) + np.cos((2 * j + 1) * h)) / 4}
    grid = Grid((cells, cells), splits=splits, halo=1, boundary="periodic", fields=FIELDS)
    blocks = grid.scatter(sc, dict.fromkeys(FIELDS, 0.0) | start).cache("GPU")
    computed = Grid.gather(blocks.iterate(phases(duration / steps, h, nu, 0.0, False), steps=steps))
    exact = start["u"](*np.ogrid[:cells, :cells]) * math.exp(-2 * nu * duration)
    return abs(computed["u"] - exact).max()


def cavity(sc, cells, splits, reynolds):
    """Return the steady flow in a cavity whose lid moves to the right, and its stable step in time."""
    h, nu = 1 / cells, 1 / reynolds
    dt = min(1.6 * nu, 0.2 * h**2 / nu, 0.5 * h)
    grid = Grid((cells, cells), splits=splits, halo=1, boundary={"p": "mirrored"}, fields=FIELDS)
    blocks = grid.scatter(sc, dict.fromkeys(FIELDS, 0.0)).cache("GPU")
    start = time.perf_counter()
    flow = blocks.iterate(phases(dt, h, nu, 1.0, True), steps=round(100 / dt), until=1e-5 * dt, every=100, check=1000)
    velocity, steps = Grid.gather(flow), flow.iterated.steps
    seconds = time.perf_counter() - start
    print(f"cavity: {steps} steps to time {steps * dt:.1f}, each {seconds / steps * 1e3:.2f} ms")
    return velocity["u"], velocity["v"]


def compare(u, v, reynolds, picture):
    """Draw streamlines and the velocities along the centre lines; return their largest difference from the table's."""
    cells, table = len(u), np.genfromtxt(TABLE, delimiter=",", names=True, skip_header=3)
    middles = np.concatenate([[0], (np.arange(cells) + 0.5) / cells, [1]])
    along_y, along_x = np.concatenate([[0], u[:, cells // 2], [1]]), np.concatenate([[0], v[cells // 2], [0]])
    figure, (flow, lines) = plt.subplots(1, 2, figsize=(10, 4.5))
    flow.streamplot(middles[1:-1], middles[1:-1], (u + np.roll(u, -1, 1)) / 2, (v + np.roll(v, -1, 0)) / 2, density=1.5)
    flow.set(title=f"Re = {reynolds}, {cells} x {cells} cells", xlabel="x", ylabel="y", aspect="equal")
    lines.plot(middles, along_y, label="u along y, x = 1/2"), lines.plot(middles, along_x, label="v along x, y = 1/2")
    lines.plot(table["y"], table[f"u{reynolds}"], "k.", label="Ghia et al. (1982)")
    lines.plot(table["x"], table[f"v{reynolds}"], "k.")
    lines.set(xlabel="place along the line", ylabel="velocity, in the lid's"), lines.legend()
    figure.savefig(picture, dpi=120)
    largest = 0.0
    for name, axis, along in (("u", "y", along_y), ("v", "x", along_x)):
        print(f"{axis:>7} {name:>8} {'Ghia':>8} {'apart':>8}")
        for place, known in sorted(zip(table[axis], table[f"{name}{reynolds}"], strict=True)):
            ours = np.interp(place, middles, along)
            print(f"{place:7.4f} {ours:8.5f} {known:8.5f} {ours - known:8.5f}")
            largest = max(largest, abs(ours - known))
    return largest


@click.command(help=__doc__)
@click.option("--reynolds", type=click.Choice(["100", "1000"]), default="100")
@click.option("--cells", default=64)
@click.option("--splits", default=2, help="along each axis")
@click.option("--picture", default="navier_stokes.png")
def main(reynolds: str, cells: int, splits: int, picture: str) -> None:
    sc = SparkContext.getOrCreate()
    errors = [vortices(sc, each, (splits, splits)) for each in (32, 64)]
    print(f"vortices: errors {errors[0]:.2e} and {errors[1]:.2e}, of order {math.log2(errors[0] / errors[1]):.2f}")
    assert 1.7 < math.log2(errors[0] / errors[1]) < 2.3
    difference = compare(*cavity(sc, cells, (splits, splits), int(reynolds)), int(reynolds), picture)
    assert difference < 0.02, difference
    print(f"within {difference:.4f} of Ghia, Ghia and Shin at Re = {reynolds}; drawn in {picture}")


if __name__ == "__main__":
    main()
