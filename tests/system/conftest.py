"""Fixtures for tests on real Spark; see :mod:`tests.system.fixtures`."""

from tests.system.fixtures import (
    local,
    local_cluster,
    no_leaks,
    pytest_runtest_makereport,
    pytest_sessionfinish,
    sc,
    standalone,
)

__all__ = ["local", "local_cluster", "no_leaks", "pytest_runtest_makereport", "pytest_sessionfinish", "sc",
           "standalone"]
