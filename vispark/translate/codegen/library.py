"""All lowerings of library functions: importing this module registers them."""

from vispark.translate.codegen import elementwise, positions
from vispark.translate.codegen.numpy import (
    along_rows,
    creation,
    einsum,
    norms,
    products,
    rearranging,
    reductions,
    selected,
    sorting,
)
from vispark.translate.codegen.python import functions, math_functions
from vispark.translate.codegen.syntax import calls

__all__ = [
    "along_rows",
    "calls",
    "creation",
    "einsum",
    "elementwise",
    "functions",
    "math_functions",
    "norms",
    "positions",
    "products",
    "rearranging",
    "reductions",
    "selected",
    "sorting",
]
