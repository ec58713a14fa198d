"""Translation of plain Python functions to CUDA C++.

In the order in which a function passes: ``ir`` is its form without dtypes, ``language`` the functions that it may call,
``frontend`` reads it when ``vmap`` is called, ``codegen`` writes it once dtypes and lengths are known; ``kernels``,
``stencils`` and ``nearest`` are what is written around it. ``fusion`` makes one function of several. Nothing here knows
Spark.

>>> kernel = specialise(trace(lambda x, k: k * x, (2.0,)), ElementSpec((ElementField("", "float32"),)), (2.0,))
>>> kernel.outputs
(KernelOutput(name='', dtype='float32', shape=(), number=''),)

Place 3 of 8 in the order of the data; run by: driver, task.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vispark._utils.lazy import names_of

if TYPE_CHECKING:
    from vispark.translate.codegen.scalar.interface import (
        ElementField,
        ElementSpec,
        KernelOutput,
        KernelParameter,
        ResultStructure,
        TableKernel,
        TracedCall,
    )
    from vispark.translate.frontend.reader import trace
    from vispark.translate.fusion import fuse
    from vispark.translate.ir.errors import TranslationError
    from vispark.translate.ir.folding import Accumulated, Folding
    from vispark.translate.ir.nodes import Function
    from vispark.translate.kernel import specialise, translate
    from vispark.translate.language.stencil import Stencil, coordinate, extent, stencil
    from vispark.translate.stencils.chaining import (
        ChainPart,
        ChainSurroundings,
        passes_of,
        specialise_chain,
        why_not_chained,
    )
    from vispark.translate.stencils.kernel import StencilKernel, specialise_stencil
    from vispark.translate.stencils.time_tiling import Surroundings, specialise_steps, stepped, why_not_stepped

__all__ = [
    "Accumulated",
    "ChainPart",
    "ChainSurroundings",
    "ElementField",
    "ElementSpec",
    "Folding",
    "Function",
    "KernelOutput",
    "KernelParameter",
    "ResultStructure",
    "Stencil",
    "StencilKernel",
    "Surroundings",
    "TableKernel",
    "TracedCall",
    "TranslationError",
    "coordinate",
    "extent",
    "fuse",
    "passes_of",
    "specialise",
    "specialise_chain",
    "specialise_stencil",
    "specialise_steps",
    "stencil",
    "stepped",
    "trace",
    "translate",
    "why_not_chained",
    "why_not_stepped",
]

# A task that translates nothing imports next to nothing of this package.
__getattr__, __dir__ = names_of(__name__, {
    "vispark.translate.codegen.scalar.interface": (
        "TracedCall", "ElementField", "KernelOutput", "KernelParameter", "ElementSpec", "ResultStructure",
                                                   "TableKernel"),
    "vispark.translate.frontend.reader": ("trace",),
    "vispark.translate.fusion": ("fuse",),
    "vispark.translate.ir.errors": ("TranslationError",),
    "vispark.translate.ir.folding": ("Accumulated", "Folding"),
    "vispark.translate.ir.nodes": ("Function",),
    "vispark.translate.kernel": ("specialise", "translate"),
    "vispark.translate.language.stencil": ("Stencil", "coordinate", "extent", "stencil"),
    "vispark.translate.stencils.chaining": ("ChainPart", "ChainSurroundings", "passes_of", "specialise_chain",
                                            "why_not_chained"),
    "vispark.translate.stencils.kernel": ("StencilKernel", "specialise_stencil"),
    "vispark.translate.stencils.time_tiling": ("Surroundings", "specialise_steps", "stepped", "why_not_stepped"),
})
