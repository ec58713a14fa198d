"""Translates plain Python functions to CUDA C++.

``reader`` turns a function into the intermediate form (``form``) when ``vmap`` is called; ``kernel`` specialises it on
dtypes and lengths. Nothing here knows Spark.

>>> kernel = specialise(trace(lambda x, k: k * x, (2.0,)), Record((Field("", "float32"),)), (2.0,))
>>> kernel.outputs
(Output(name='', dtype='float32', shape=(), number=''),)
"""

from vispark.translate.errors import TranslationError
from vispark.translate.form import Function
from vispark.translate.kernel import Field, Kernel, Output, Parameter, Record, Structure, specialise, translate
from vispark.translate.reader import trace
from vispark.translate.stencil import Stencil, stencil

__all__ = [
    "Field",
    "Function",
    "Kernel",
    "Output",
    "Parameter",
    "Record",
    "Stencil",
    "Structure",
    "TranslationError",
    "specialise",
    "stencil",
    "trace",
    "translate",
]
