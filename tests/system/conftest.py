"""Fixtures for tests on real Spark; see :mod:`tests.system.fixtures`."""

from tests.system.figures import fonts
from tests.system.fixtures import (
    cluster,
    failpoints,
    gpu_cluster,
    local,
    no_leaks,
    one_core,
    pytest_collection_finish,
    pytest_runtest_makereport,
    pytest_sessionfinish,
    sc,
    spark,
    standalone,
)

__all__ = ["cluster", "failpoints", "fonts", "gpu_cluster", "local", "no_leaks", "one_core",
           "pytest_collection_finish", "pytest_runtest_makereport", "pytest_sessionfinish", "sc", "spark", "standalone"]
