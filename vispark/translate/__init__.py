"""Translates plain Python functions to CUDA C++.

``reader`` turns a function into the intermediate form (``form``) when ``vmap`` is called; ``fuse`` makes one kernel of
several of them, and of a fold behind them, once dtypes and lengths are known. Nothing here knows Spark.

>>> kernel = specialise(trace(lambda x, k: k * x, (2.0,)), Record((Field("", "float32"),)), (2.0,))
>>> kernel.outputs
(Output(name='', dtype='float32', shape=(), number=''),)
"""

from vispark.translate.codegen.scalar.interface import Call, Field, Output, Parameter, Record, Structure, TableKernel
from vispark.translate.frontend.reader import trace
from vispark.translate.fusion import fuse
from vispark.translate.ir.errors import TranslationError
from vispark.translate.ir.folding import Accumulated, Folding
from vispark.translate.ir.nodes import Function
from vispark.translate.kernel import specialise, translate
from vispark.translate.language.stencil import Stencil, coordinate, extent, stencil
from vispark.translate.stencils.chaining import Beyond, Part, parted, specialise_chain, why_not_chained
from vispark.translate.stencils.kernel import StencilKernel, specialise_stencil
from vispark.translate.stencils.time_tiling import Around, specialise_steps, stepped, why_not_stepped

__all__ = [
    "Accumulated",
    "Around",
    "Beyond",
    "Call",
    "Field",
    "Folding",
    "Function",
    "Output",
    "Parameter",
    "Part",
    "Record",
    "Stencil",
    "StencilKernel",
    "Structure",
    "TableKernel",
    "TranslationError",
    "coordinate",
    "extent",
    "fuse",
    "parted",
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
