"""A grid over two nodes of a Spark cluster, of which neither holds its blocks on its device: steps go by planes."""

from __future__ import annotations

import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from pyspark import SparkContext

from tests.system.test_grid_nodes import sessions
from tests.system.topology import Topology
from tests.system.vrdd_tools import exact
from vispark import VRDD, Grid, NotFinite, stencil

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(300)]

#: Of 3 MB.
SHAPE = (160, 48, 48)
MEMORY = 2 << 20


@stencil
def spread(u):
    return (u[-1, 0, 0] + u[2, 0, 0] + u[0, -1, 1] + u[0, 1, 0] + u[0, 0, -1]) / 5


@stencil
def larger(u):
    return 1e100 * u[0, 0, 0]


def scattered(sc: SparkContext, boundary: object) -> VRDD:
    """Scatter blocks in two by two columns, half of them on either node."""
    grid = Grid(SHAPE, splits=(2, 2, 1), halo=2, boundary=boundary)
    blocks = grid.scatter(sc, np.random.default_rng(4).normal(size=SHAPE), partitions=4).persist("GPU_AND_HOST")
    blocks.count()
    return blocks


def answers(sc: SparkContext) -> dict[str, object]:
    """Compute cells and totals by steps: loops that end, are checked, and go on."""
    results: dict[str, object] = {}
    for name, boundary in (("periodic", "periodic"), ("mirrored", "mirrored"), ("mixed", (0.5, "periodic", 0.0))):
        blocks = scattered(sc, boundary)
        later = blocks.iterate(spread, steps=7)
        results[name] = exact(Grid.gather(later))
        results[f"{name} mapped"] = exact(Grid.gather(later.halo_extract().halo_shuffle().vmap(spread)))
        ended = blocks.iterate(spread, steps=40, until=0.8, every=3, check=4)
        results[f"{name} ended"] = exact(Grid.gather(ended)), ended.iterated
        assert 3 <= ended.iterated.steps < 40
        results[f"{name} totals"] = [fold(later) for fold in (Grid.sum, Grid.min, Grid.max, Grid.norm)]
        with pytest.raises(NotFinite, match=r"of the grid, in block .* infinite after step 4") as error:
            Grid.gather(blocks.iterate(larger, steps=7, check=2))
        results[f"{name} too large"] = str(error.value).partition(" [VRDD")[0]
    return results


@pytest.fixture(scope="module")
def expected(cluster: Topology) -> dict[str, object]:
    """Return the answers of nodes that hold all on their devices."""
    with cluster.context({"spark.vispark.device": "host", "spark.vispark.transport": "unix"}) as sc:
        return answers(sc)


@pytest.mark.parametrize("exchange", ["mpi", pytest.param("ucx", marks=pytest.mark.skipif(
    find_spec("libucx") is None, reason="needs the extra ucx"))])
def test_a_grid_that_fits_neither_node_goes_by_planes(cluster: Topology, failpoints: Path, expected: dict[str, object],
                                                      exchange: str):
    options = {"device": "host", "transport": "unix", "memory": MEMORY, "exchange": exchange}
    with cluster.context({f"spark.vispark.{name}": value for name, value in options.items()}) as sc:
        results = answers(sc)
        assert [name for name in results if results[name] != expected[name]] == []
        held = sessions(cluster)
        assert len(held) == 2 and all(each.report.sent for each in held), "both nodes have blocks, and exchange cells"
        assert all(each.report.memory[0].used < MEMORY for each in held)
        # A node's process is killed between two ranges of planes: the other one learns it, and the loop begins anew.
        blocks = scattered(sc, "periodic")
        later = blocks.iterate(spread, steps=7)
        (failpoints / "wave-done").write_text("kill")
        started = time.monotonic()
        assert exact(Grid.gather(later)) == expected["periodic"]
        print(f"{exchange}: {time.monotonic() - started:.1f} s with a kill")
        assert not (failpoints / "wave-done").exists()
