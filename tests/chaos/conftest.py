"""Fixtures for tests that kill; see :mod:`tests.system.fixtures` and :mod:`tests.chaos.arena`."""

from tests.chaos.arena import arena
from tests.system.fixtures import (
    local,
    no_leaks,
    pytest_collection_finish,
    pytest_runtest_makereport,
    pytest_sessionfinish,
    standalone,
)

__all__ = ["arena", "local", "no_leaks", "pytest_collection_finish", "pytest_runtest_makereport",
           "pytest_sessionfinish", "standalone"]
