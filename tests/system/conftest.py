"""Fixtures for tests on real Spark; see :mod:`tests.system.fixtures`."""

from tests.system.fixtures import local, no_leaks, pytest_runtest_makereport, pytest_sessionfinish, sc, standalone

__all__ = ["local", "no_leaks", "pytest_runtest_makereport", "pytest_sessionfinish", "sc", "standalone"]
