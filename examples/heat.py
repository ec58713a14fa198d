"""The heat equation in a cube whose sides are kept at 0, against its analytic solution.

    python examples/heat.py                    # two spacings: the error falls with the square of the spacing
    python examples/heat.py --cells 127 --picture heat.png --animation heat.gif
"""

import math
import time

import click
import matplotlib
import numpy as np
from pyspark import SparkContext

from vispark import Grid, stencil

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.animation import FuncAnimation, PillowWriter

SPLITS = (2, 2, 2)
#: Of the diffusivity times the time step over the square of the spacing; up to 1/6 is stable.
NUMBER = 0.1


@stencil
def heat(u, k):
    return u[0, 0, 0] + k * (u[1, 0, 0] + u[-1, 0, 0] + u[0, 1, 0] + u[0, -1, 0]
                             + u[0, 0, 1] + u[0, 0, -1] - 6 * u[0, 0, 0])


def mode(cells):
    """Return the slowest mode at the inner points of a cube of side 1: it decays as exp(-3 pi^2 t)."""
    return lambda z, y, x: np.float32(math.prod(np.sin(np.pi * (axis + 1) / (cells + 1)) for axis in (z, y, x)))


def error(sc, cells, duration):
    """Return the largest deviation from the analytic solution after a time."""
    steps = round(duration * (cells + 1) ** 2 / NUMBER)
    blocks = Grid((cells,) * 3, splits=SPLITS, halo=1, boundary=0.0).scatter(sc, mode(cells)).cache("GPU")
    blocks.count()
    start = time.perf_counter()
    computed = Grid.gather(blocks.iterate(heat, NUMBER, steps=steps))
    seconds = time.perf_counter() - start
    exact = mode(cells)(*np.ogrid[:cells, :cells, :cells]) * math.exp(-3 * np.pi**2 * steps * NUMBER / (cells + 1) ** 2)
    print(f"{cells}^3 cells, {steps} steps of {seconds / steps * 1e3:.2f} ms: error {abs(computed - exact).max():.2e}")
    return abs(computed - exact).max()


def draw(sc, cells, picture, animation):
    """Half of the cube is hot at first; the slice through its middle."""
    grid = Grid((cells,) * 3, splits=SPLITS, halo=1, boundary=("mirrored", "periodic", 0.0))
    blocks = grid.scatter(sc, lambda z, y, x: np.float32(y + x / 2 < cells * 0.75)).cache("GPU")
    figure, axes = plt.subplots(figsize=(5, 4))
    image = axes.imshow(Grid.gather(blocks, np.s_[cells // 2]), cmap="inferno", vmin=0, vmax=1, origin="lower")
    figure.colorbar(image, label="temperature")
    axes.set(xlabel="x", ylabel="y")

    def later(frame):
        nonlocal blocks
        blocks = blocks.iterate(heat, NUMBER, steps=cells)
        image.set_data(Grid.gather(blocks, np.s_[cells // 2]))
        axes.set_title(f"z = {cells // 2}, step {(frame + 1) * cells}")

    later(0)
    figure.savefig(picture, dpi=120)
    if animation:
        frames = FuncAnimation(figure, later, frames=range(1, 25), init_func=lambda: None, repeat=False)
        frames.save(animation, PillowWriter(fps=10))
    print(f"the slice through the middle is drawn in {picture}")


@click.command(help=__doc__)
@click.option("--cells", default=63, help="along each axis, of the finest grid")
@click.option("--picture", default="heat.png")
@click.option("--animation", help="a .gif to write")
def main(cells: int, picture: str, animation: str | None) -> None:
    sc = SparkContext.getOrCreate()
    coarse, fine = (error(sc, each, duration=0.02) for each in (cells // 2, cells))
    order = math.log2(coarse / fine)
    assert abs(order - 2) < 0.1, order
    print(f"the error falls with the spacing to the power of {order:.2f}")
    draw(sc, cells, picture, animation)


if __name__ == "__main__":
    main()
