"""Figures of matplotlib in tests: fonts that it reads stay open, and are read when this module is imported."""

from __future__ import annotations

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot

_figure, _axes = pyplot.subplots()
_axes.set(xlabel="x", ylabel="y", xscale="log")
_figure.canvas.draw()
pyplot.close(_figure)
