"""Fixtures that the tests of rules share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.policy import rules


@pytest.fixture(scope="package", autouse=True)
def parsed() -> Iterator[None]:
    """Parse files once for all rules; what they became is many objects, and not kept longer."""
    yield
    rules.nodes.cache_clear()
