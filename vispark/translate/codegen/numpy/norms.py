"""Norms of rows and matrices, as ``np.linalg.norm`` gives them."""

from __future__ import annotations

import math
from typing import Any

from vispark.translate.codegen.arguments import array_argument, number_argument
from vispark.translate.codegen.elementwise import astype, elementwise
from vispark.translate.codegen.emitter import Emitter
from vispark.translate.codegen.lowering import call_library
from vispark.translate.codegen.numpy.reductions import squared
from vispark.translate.codegen.operands import static
from vispark.translate.codegen.scalar import numbers, scalars
from vispark.translate.codegen.scalar.casts import literal
from vispark.translate.ir.errors import Refusal
from vispark.translate.ir.types import Scalar
from vispark.translate.ir.values import Array, Nothing, Number, Value
from vispark.translate.language.registry import lowers

_KNOWN = "the order of np.linalg.norm must be known before the kernel runs; write it out"
_EUCLIDEAN = (None, 2, "fro")


@lowers("numpy.linalg.norm", "x ord= axis= keepdims=")
def norm(emit: Emitter, x: Value, ord: Value | None = None, axis: Value | None = None) -> Value:
    """Compute ``np.linalg.norm``: the Euclidean norm if ``ord`` is missing, of all elements or along an axis."""
    if isinstance(x, Number):
        raise Refusal("np.linalg.norm is of an array; of a number use abs()")
    array = array_argument(emit, x, "np.linalg.norm")
    wide = array if array.type.kind in "fc" else astype(array, Scalar("float64"))
    order, along = _order(ord), not (axis is None or isinstance(axis, Nothing))
    if len(array.shape) > 2:
        raise Refusal("np.linalg.norm of more than two axes is not supported")
    if order == "fro" and (along or len(array.shape) != 2):
        raise Refusal("the norm 'fro' is of a matrix; of a row it is the one without an order")
    if along or len(array.shape) == 1:
        return _of_rows(emit, wide, order, axis if along and axis is not None else Nothing())
    return _of_matrix(emit, wide, order)


def _order(order: Value | None) -> Any:
    """Return the order as it is written: None, a number, or a string."""
    if order is None or isinstance(order, Nothing):
        return None if order is None or order.what == "None" else order.what
    number = number_argument(order, "np.linalg.norm's ord")
    if number.known:
        return number.value
    if number.type.kind in "iu":
        return static(number, _KNOWN)
    raise Refusal(_KNOWN)


def _of_rows(emit: Emitter, array: Array, order: Any, axis: Value) -> Value:
    def reduced(name: str, terms: Value) -> Value:
        return call_library(emit, f"numpy.{name}", (terms, axis), {})

    if order in _EUCLIDEAN:
        total = reduced("sum", elementwise(emit, squared, array))
        return elementwise(emit, lambda a: scalars.ufunc("sqrt", a), total)
    if not isinstance(order, int | float) or math.isnan(order):
        raise Refusal(f"np.linalg.norm of order {order!r} is not supported here; there are numbers, np.inf, and "
                      "'fro' of a matrix")
    sizes = elementwise(emit, numbers.absolute, array)
    if math.isinf(order):
        return reduced("max" if order > 0 else "min", sizes)
    if order == 0:
        apart = elementwise(emit, lambda a: scalars.ufunc("not_equal", a, literal(0)), array)
        return reduced("sum", astype(apart, sizes.type))
    if order == 1:
        return reduced("sum", sizes)
    total = reduced("sum", elementwise(emit, lambda a: scalars.ufunc("power", a, literal(float(order))), sizes))
    return elementwise(emit, lambda a: scalars.ufunc("power", a, literal(1 / order)), total)


def _of_matrix(emit: Emitter, array: Array, order: Any) -> Value:
    if order in (None, "fro"):
        return _of_rows(emit, array, None, Nothing())
    if order not in (1, -1, math.inf, -math.inf):
        raise Refusal(f"np.linalg.norm of order {order!r} of a matrix is not supported; there are None, 'fro', 1, "
                      "-1, np.inf and -np.inf; of its rows write axis=1")
    sizes = elementwise(emit, numbers.absolute, array)
    sums = call_library(emit, "numpy.sum", (sizes, literal(0 if abs(order) == 1 else 1)), {})
    return call_library(emit, "numpy.max" if order > 0 else "numpy.min", (sums,), {})
