"""Fixtures for properties that hold on real Spark."""

from tests.system.fixtures import local, pytest_runtest_makereport, pytest_sessionfinish, quick_jvms

__all__ = ["local", "pytest_runtest_makereport", "pytest_sessionfinish", "quick_jvms"]
