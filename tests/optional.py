"""Libraries that some tests need, imported when a test uses them: each process that collects tests would import them
all otherwise, and four to five do.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

import pytest


def needed(name: str) -> Any:
    """Return a stand-in for a module until it is used; a file's tests are skipped where it is not installed."""
    if find_spec(name.partition(".")[0]) is None:
        pytest.skip(f"there is no {name}", allow_module_level=True)
    return _Later(name)


class _Later:
    """Stand-in for a module, which is imported for the first name that is asked of it."""

    def __init__(self, name: str):
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):        # pytest asks each name of a file whether it is a fixture
            raise AttributeError(name)
        return getattr(import_module(self._name), name)
