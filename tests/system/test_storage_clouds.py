"""Grids in ``gs://`` and ``az://``: Google's against moto, by the requests that it has in common with S3, and Azure's
against Azurite.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator

import numpy as np
import pytest
from pyspark import SparkContext

from tests.optional import needed
from tests.system import azurite
from tests.system.object_store import serving
from tests.system.topology import Topology
from vispark import Grid
from vispark.data.grid import npy
from vispark.data.storage.opening import located
from vispark.errors import PlanError

obstore = pytest.importorskip("obstore")
stores = pytest.importorskip("obstore.store")
needed("moto")

ARRAY = np.random.default_rng(1).random((24, 20, 600)).astype("f4")
AZURE = pytest.mark.skipif(not azurite.PROGRAM.exists(), reason=f"no Azurite in {azurite.PROGRAM}: run .ci/azurite")


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Run the stores; yield the variables by which this process and tasks find them."""
    # From its first use on, obstore keeps an event queue of its own.
    obstore.put(stores.MemoryStore(), "first", b"use")
    with contextlib.ExitStack() as stack:
        google = stack.enter_context(serving())
        account = tmp_path_factory.mktemp("google") / "account.json"
        account.write_text(json.dumps({"gcs_base_url": google.endpoint, "disable_oauth": True, "client_email": "",
                                       "private_key": "", "private_key_id": ""}))
        variables = {"GOOGLE_SERVICE_ACCOUNT": str(account)}
        if azurite.PROGRAM.exists():
            variables |= stack.enter_context(azurite.serving())
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        for name, value in variables.items():
            patch.setenv(name, value)
        yield variables


@pytest.fixture(scope="module")
def sc(settings: dict[str, str], local: Topology) -> Iterator[SparkContext]:
    """Start a context whose tasks find the stores too."""
    with local.context({f"spark.executorEnv.{name}": value for name, value in settings.items()}) as context:
        yield context


@pytest.fixture(params=["gs", pytest.param("az", marks=AZURE)])
def bucket(request: pytest.FixtureRequest, settings: dict[str, str]) -> str:
    """Return the URL of an empty place in each store."""
    return f"{request.param}://bucket"


def test_grids_come_back_as_they_were_saved(sc: SparkContext, bucket: str):
    blocks = Grid(ARRAY.shape, (5, 1, 1)).scatter(sc, ARRAY)
    Grid.save(blocks, f"{bucket}/u.npy")
    Grid.save(blocks, f"{bucket}/parts", per_block=True)
    for splits, path in (((2, 1, 2), "u.npy"), ((5, 1, 1), "parts")):
        again = Grid(ARRAY.shape, splits).scatter(sc, f"{bucket}/{path}")
        np.testing.assert_array_equal(Grid.gather(again), ARRAY)
    assert located(f"{bucket}/parts").names() == dict.fromkeys((f"block-{row}-0-0.npy" for row in range(5)), True)


def test_what_is_missing_or_changes_is_said(sc: SparkContext, bucket: str):
    grid, array = Grid((8, 6), (2, 2)), np.arange(48.0).reshape(8, 6)
    with pytest.raises(PlanError, match=rf"there is no file {bucket}/none\.npy"):
        grid.scatter(sc, f"{bucket}/none.npy")
    npy.write_block(f"{bucket}/v.npy", array)
    blocks = grid.scatter(sc, f"{bucket}/v.npy")
    npy.write_block(f"{bucket}/v.npy", array + 1)
    with pytest.raises(PlanError, match=r"v\.npy has changed since it was first looked at"):
        blocks.collect()


def test_long_objects_are_put_in_parts_and_go(settings: dict[str, str], bucket: str):
    nbytes = 80 << 20
    slabs = (np.full(nbytes // 4, number, "u1") for number in range(4))
    npy.write_slabs(f"{bucket}/long/u.npy", (nbytes,), np.dtype("u1"), slabs)
    place = located(f"{bucket}/long/u.npy")
    file = npy.NpyFile.at(place)
    np.testing.assert_array_equal(file.part(place, (slice(nbytes // 4 - 1, nbytes // 4 + 1),)), [0, 1])
    located(f"{bucket}/long").remove()
    assert located(f"{bucket}/long").names() == {}
