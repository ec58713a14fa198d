"""Pictures of grids: the cells that are asked for, few bytes of them, and errors that name what would be right."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from pyspark import SparkContext

from tests.optional import needed
from tests.system.vrdd_tools import warm_up
from vispark import Grid, PlanError, stencil
from vispark.api.grids.plotting import MOST_BYTES
from vispark.runtime.driver.session import Session

pyplot = needed("matplotlib.pyplot")
pytestmark = pytest.mark.usefixtures("fonts")


@pytest.fixture(scope="module", autouse=True)
def settled(sc: SparkContext) -> None:
    """Open what a session keeps open, before the first test."""
    warm_up(sc)


@pytest.fixture(autouse=True)
def closed_figures():
    yield
    pyplot.close("all")


@stencil
def mean(u):
    return (u[0, -1] + u[0, 1]) / 2


def fetched(sc: SparkContext) -> int:
    return sum(worker.fetched_bytes for worker in Session.of(sc).workers.known())


def test_a_large_grid_is_drawn_of_few_cells(sc: SparkContext):
    grid = Grid((2400, 1501), splits=(2, 1))
    blocks = grid.scatter(sc, lambda y, x: 10_000.0 * y + x).cache("GPU")
    blocks.count()
    before = fetched(sc)
    image = Grid.plot(blocks, cmap="gray").images[0]
    assert 0 < fetched(sc) - before <= MOST_BYTES
    assert image.get_array().shape == (800, 751) and image.get_cmap().name == "gray"
    assert np.array_equal(image.get_array(), Grid.gather(blocks, np.s_[::3, ::2]))
    # The picture's cells lie where they are in the grid.
    assert image.get_extent() == [-1.0, 1501.0, -1.5, 2398.5]
    before = fetched(sc)
    line = Grid.plot(blocks, np.s_[100:2400, 500]).lines[0]
    assert fetched(sc) - before < 30_000
    assert np.array_equal(line.get_xdata(), np.arange(100, 2400))
    assert np.array_equal(line.get_ydata(), Grid.gather(blocks, np.s_[100:2400, 500]))


def test_one_of_several_fields_and_a_slice_of_three_axes(sc: SparkContext):
    grid = Grid((4, 6, 8), splits=(2, 1, 1), fields={"u": "f4", "n": "i4"})
    blocks = grid.scatter(sc, {"u": lambda z, y, x: np.float32(z + y + x), "n": 7})
    own = pyplot.subplots()[1]
    axes = Grid.plot(blocks, np.s_[2], field="u", axes=own)
    assert axes is own and (axes.get_xlabel(), axes.get_ylabel()) == ("axis 2", "axis 1")
    assert np.array_equal(axes.images[0].get_array(), np.add.outer(np.arange(6), np.arange(8)) + np.float32(2))
    for arguments, words in ((({}), "field=None; the grid's fields are u, n, and one is drawn"),
                             ({"field": "v"}, "field='v'; the grid's fields are u, n")):
        with pytest.raises(PlanError, match=words):
            Grid.plot(blocks, np.s_[2], **arguments)
    with pytest.raises(PlanError, match=r"leaves \(4, 6, 8\) of \(4, 6, 8\) cells; np.s_\[0, :, :\] leaves two axes"):
        Grid.plot(blocks, field="u")


def test_what_cannot_be_drawn(sc: SparkContext):
    blocks = Grid((4, 6)).scatter(sc, np.zeros((4, 6), complex))
    with pytest.raises(PlanError, match="the cells are complex128: map np"):
        Grid.plot(blocks)
    with pytest.raises(PlanError, match=r"leaves no cell of \(4, 6\)"):
        Grid.plot(blocks, np.s_[4:])
    with pytest.raises(PlanError, match="a line or a picture"):
        Grid.plot(blocks, np.s_[1, 2])
    with pytest.raises(PlanError, match="have no fields"):
        Grid.plot(blocks, field="u")
    with pytest.raises(PlanError, match="frames=0"):
        Grid.animate(blocks, lambda u: u, frames=0)


def test_an_animation_begins_anew_each_time_it_is_shown(sc: SparkContext):
    values = np.random.default_rng(1).random((6, 900))
    blocks = Grid((6, 900), splits=(1, 2), boundary="periodic").scatter(sc, values).cache("GPU")
    seen = []

    def advance(u):
        seen.append(u)
        return u.iterate(mean, steps=2)

    animation = Grid.animate(blocks, advance, frames=3, cells=np.s_[:, :600])
    for _ in range(2):
        frames = [np.array(each) for each in animation.new_frame_seq()]
        assert [each.shape for each in frames] == [(6, 300)] * 3
    assert len(seen) == 4
    wanted = values
    for frame in frames:
        assert np.allclose(frame, wanted[:, :600:2])
        for _ in range(2):
            wanted = (np.roll(wanted, 1, 1) + np.roll(wanted, -1, 1)) / 2
    assert animation.to_jshtml(fps=5).count("data:image/png") == 3


def test_without_matplotlib_the_error_names_the_extra():
    code = ("import sys; sys.modules['matplotlib'] = None\n"
            "import vispark\n"
            "try: vispark.Grid.plot(None)\nexcept vispark.PlanError as error: print(error)")
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert "Grid.plot needs matplotlib: pip install '.[plot]'" in ended.stdout
