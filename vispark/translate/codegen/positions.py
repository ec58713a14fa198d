"""``coordinate`` and ``extent``, which only kernels of a grid's cells have values for."""

from __future__ import annotations

from vispark.translate.codegen.emitter import Emitter
from vispark.translate.ir.errors import Refusal
from vispark.translate.ir.values import Value
from vispark.translate.language import stencil
from vispark.translate.language.registry import lowers


@lowers("grid.coordinate", "axis", value=stencil.coordinate)
def coordinate(emit: Emitter, axis: Value) -> Value:
    """Refuse the place of a cell."""
    raise Refusal("coordinate is known only on a Grid, whose cells have places")


@lowers("grid.extent", "axis", value=stencil.extent)
def extent(emit: Emitter, axis: Value) -> Value:
    """Refuse the cells along an axis."""
    raise Refusal("extent is known only on a Grid, whose cells have places")
