"""Checks of types in functions that are written in the language: the translator has lowerings in their place."""

from __future__ import annotations

from typing import Any


def checked_for_linalg(a: Any) -> Any:
    """Return an array; a translated function refuses one of float16, as NumPy's linear algebra does."""
    return a


def checked_for_square(a: Any) -> Any:
    """Return a matrix; a translated function refuses what is none, or is not square, or of float16."""
    return a


def checked_for_reals(a: Any) -> Any:
    """Return an array; a translated function refuses one of complex numbers."""
    return a
