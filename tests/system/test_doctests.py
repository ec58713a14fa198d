"""The examples that need a SparkContext run: those in docstrings and those in README.md and docs/."""

from __future__ import annotations

import doctest
import os
from collections.abc import Iterator

import pytest
from pyspark import SparkContext

from tests import doctests
from tests.optional import needed
from tests.system import zarr_tools
from tests.system.topology import TRANSPORT, Topology
from tests.system.vrdd_tools import host_context

pyplot = needed("matplotlib.pyplot")
pytestmark = pytest.mark.usefixtures("fonts")


@pytest.fixture(scope="module", autouse=True)
def zarr_threads(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Start the threads that zarr-python keeps."""
    zarr_tools.start_threads(tmp_path_factory.mktemp("zarr"))


@pytest.fixture(scope="module")
def sc(zarr_threads: None, local: Topology) -> Iterator[SparkContext]:
    with host_context(local) as context:
        yield context


@pytest.mark.parametrize("test", [*doctests.of_docstrings(spark=True), *doctests.of_pages()],
                         ids=lambda test: test.name)
def test_example(test: doctest.DocTest, sc: SparkContext, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(doctests.ROOT)    # where pages say that a user is
    if os.environ.get(TRANSPORT) == "relay":
        for example in test.examples:
            example.want = example.want.replace("direct:", "relayed:").replace("no Spark job;",
                                                                               "a Spark task for each worker;")
    try:
        doctests.run(test, sc=sc)
    finally:
        pyplot.close("all")
