"""Fixtures for properties that hold on real Spark."""

from tests.system.fixtures import local, pytest_collection_finish, pytest_runtest_makereport, pytest_sessionfinish

__all__ = ["local", "pytest_collection_finish", "pytest_runtest_makereport", "pytest_sessionfinish"]
