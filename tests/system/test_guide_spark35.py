"""The programs of guide pages on Spark itself run with PySpark 3.5, too; with others ``test_doctests.py`` has them."""

from __future__ import annotations

import doctest

import pyspark
import pytest

from tests import doctests
from tests.system.topology import Topology
from tests.system.vrdd_tools import host_context

PAGES = ("dataframes", "parquet", "udfs", "larger_than_gpu", "keys", "shared_datasets")


@pytest.mark.timeout(300)
@pytest.mark.skipif(not pyspark.__version__.startswith("3."), reason="test_doctests.py runs them")
def test_guide_pages(local: Topology, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(doctests.ROOT)
    pages: dict[str, doctest.DocTest] = {test.name: test for test in doctests.of_pages()}
    with host_context(local) as sc:
        for name in PAGES:
            doctests.run(pages[f"docs/guide/{name}.md"], sc=sc)
