"""Numbers of a whole grid, and grids of larger or smaller cells, against NumPy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from pyspark import SparkContext

from vispark import VRDD, FallbackWarning, Grid, PlanError
from vispark.runtime.driver.session import Session

RNG = np.random.default_rng(5)


def held(sc: SparkContext, cells: np.ndarray, splits: tuple[int, ...], halo: int = 1) -> VRDD:
    return Grid(cells.shape, splits, halo).scatter(sc, cells, 2).cache("GPU")


@pytest.fixture(scope="module", autouse=True)
def started(sc: SparkContext) -> None:
    """Open a session with its threads and connections, which live as long as the context."""
    blocks = held(sc, np.ones((4, 4)), (2, 2))
    assert Grid.gather(blocks).sum() == Grid.sum(blocks) == 16


def test_two_grids_on_the_device_come_to_the_driver_for_their_product_and_that_is_told(sc, monkeypatch):
    session = Session.of(sc)
    options = replace(session.options, fallback="warn")
    monkeypatch.setattr(session, "credentials", replace(session.credentials, options=options))
    blocks = held(sc, np.ones((4, 4)), (2, 2))
    with pytest.warns(FallbackWarning, match=r'two grids gathers the cells of both in the driver: .*"p", "q"'):
        assert Grid.dot(blocks, blocks) == 16


@pytest.mark.parametrize(("dtype", "shape", "splits"), [
    ("f4", (7, 10), (2, 3)), ("f8", (9,), (2,)), ("f8", (4, 5, 6), (2, 1, 2)), ("i4", (7, 10), (2, 3)),
    ("u1", (9,), (2,)), ("?", (7, 10), (2, 3)), ("c8", (7, 10), (2, 3))])
def test_totals(sc: SparkContext, dtype: str, shape: tuple[int, ...], splits: tuple[int, ...]):
    cells = (RNG.normal(size=shape) * 100).astype(dtype)
    if dtype == "c8":
        cells = cells + (1j * RNG.normal(size=shape)).astype("c8")
    blocks = held(sc, cells, splits)
    wide = cells.astype({"b": "i8", "i": "i8", "u": "u8", "f": "f8", "c": "c16"}[cells.dtype.kind])
    assert Grid.sum(blocks) == pytest.approx(wide.sum().item(), rel=1e-9)
    assert Grid.norm(blocks) == pytest.approx(np.linalg.norm(wide.ravel()), rel=1e-6)
    assert Grid.dot(blocks, blocks) == pytest.approx(np.vdot(wide, wide).item(), rel=1e-9)
    if dtype != "c8":
        assert Grid.min(blocks) == cells.min() and Grid.max(blocks) == cells.max()
        assert Grid.norm(blocks, ord=1) == pytest.approx(np.abs(wide).sum(), rel=1e-6)
        assert Grid.norm(blocks, ord=np.inf) == pytest.approx(np.abs(wide).max())


def test_fields(sc: SparkContext):
    u, v = RNG.normal(size=(2, 6, 8))
    v = v.astype("f4")
    blocks = Grid((6, 8), (2, 2), fields={"u": "f8", "v": "f4"}).scatter(sc, {"u": u, "v": v}, 2).cache("GPU")
    assert Grid.sum(blocks, "v") == pytest.approx(v.astype("f8").sum(), abs=1e-12)
    assert Grid.sum(blocks) == {"u": pytest.approx(u.sum()), "v": pytest.approx(v.astype("f8").sum(), abs=1e-12)}
    assert Grid.dot(blocks, "u", "v") == pytest.approx((u * v).sum())
    assert Grid.norm(blocks, "u") == pytest.approx(np.linalg.norm(u))
    assert Grid.max(blocks, "v") == v.max()
    with pytest.raises(PlanError, match="the grid has u, v"):
        Grid.sum(blocks, "w")


def test_calls_that_do_not_say_what_is_added_are_refused(sc: SparkContext):
    blocks = held(sc, np.ones((7, 4)), (2, 1))
    for refused in (blocks.sum, blocks.mean, blocks.values().sum, blocks.values().mean):
        with pytest.raises(PlanError, match=r"Grid\.sum\(blocks\)"):
            refused()
    assert blocks.count() == 2 and held(sc, np.ones((8, 4)), (2, 1)).values().sum().shape == (4, 4)
    with pytest.raises(PlanError, match="blocks of a Grid"):
        Grid.sum(sc.parallelize([1.0, 2.0]))


def test_coarse_and_fine(sc: SparkContext):
    cells = RNG.normal(size=(8, 12))
    blocks = Grid((8, 12), (2, 2), 1, ("periodic", (1.5, "mirrored"))).scatter(sc, cells).cache("GPU")
    coarse = Grid.coarsen(blocks, (2, 3))
    np.testing.assert_allclose(Grid.gather(coarse), cells.reshape(4, 2, 4, 3).mean((1, 3)))
    grid = coarse.keys().first().grid
    assert repr(grid) == "Grid((4, 4), splits=(2, 2), halo=(1, 1), boundary=('periodic', (1.5, 'mirrored')))"
    np.testing.assert_array_equal(Grid.gather(Grid.refine(coarse.cache("GPU"), (2, 3))),
                                  np.repeat(np.repeat(Grid.gather(coarse), 2, 0), 3, 1))
    with pytest.raises(PlanError, match="does not divide"):
        Grid.coarsen(blocks, 5)
    with pytest.raises(PlanError, match=r"coarsen by \(2, 2\) gives \(4, 6\)"):
        Grid.coarsen(blocks, 2, Grid((3, 6)))
    around = Grid((4, 4), boundary=lambda y, x: y + x).scatter(sc, np.ones((4, 4)))
    with pytest.raises(PlanError, match="function of the position"):
        Grid.refine(around)
    assert Grid.gather(Grid.coarsen(around, 2, Grid((2, 2)))).tolist() == [[1, 1], [1, 1]]
