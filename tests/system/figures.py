"""Figures of matplotlib in tests."""

from __future__ import annotations

import pytest

from tests.optional import needed


@pytest.fixture(scope="session")
def fonts() -> None:
    """Have matplotlib read its fonts, whose files stay open, before a file's tests are watched for what they leave."""
    pyplot = needed("matplotlib.pyplot")
    needed("matplotlib").use("Agg")
    figure, axes = pyplot.subplots()
    axes.set(xlabel="x", ylabel="y", xscale="log")
    figure.canvas.draw()
    pyplot.close(figure)
