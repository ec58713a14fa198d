"""All lowerings: importing this module registers those of library functions and of the form's nodes."""

from __future__ import annotations

from vispark.translate.codegen import argument_checks, elementwise, positions, special_functions
from vispark.translate.codegen.emitter import Emitter
from vispark.translate.codegen.numpy import (
    along_rows,
    creation,
    einsum,
    norms,
    products,
    ragged,
    ragged_statistics,
    rearranging,
    reductions,
    selected,
    sorting,
)
from vispark.translate.codegen.python import functions, math_functions
from vispark.translate.codegen.syntax import (
    assignments,
    calls,
    comprehensions,
    control_flow,
    expressions,
    operators,
    sorted_items,
    subscripts,
)
from vispark.translate.ir import nodes

#: The modules with lowerings, in the order in which they build on each other.
MODULES = (argument_checks, elementwise, positions, reductions, products, creation, rearranging, along_rows, sorting,
           norms, einsum, selected, ragged, ragged_statistics, functions, math_functions, special_functions, operators,
           subscripts, expressions, assignments, control_flow, comprehensions, sorted_items,
           calls)


def emitter(definition: nodes.Definition, lanes: int = 1) -> Emitter:
    """Return an emitter of a function's C++, for which all lowerings are registered."""
    return Emitter(definition, lanes)
