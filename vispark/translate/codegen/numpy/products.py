"""Products of arrays, as NumPy has them: ``@``, dot, inner and outer ones."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from vispark.translate.codegen.arguments import array_argument, row_argument
from vispark.translate.codegen.elementwise import astype, elementwise
from vispark.translate.codegen.emitter import Emitter
from vispark.translate.codegen.lowering import call_library
from vispark.translate.codegen.numpy.ragged import product_of_rows
from vispark.translate.codegen.numpy.reductions import fold, truths
from vispark.translate.codegen.operands import plain
from vispark.translate.codegen.scalar import numbers, scalars
from vispark.translate.codegen.scalar.casts import cast, literal
from vispark.translate.ir.errors import Refusal
from vispark.translate.ir.types import NUMPY_BOOL, Scalar
from vispark.translate.ir.values import Array, List, Number, RaggedRow, SparseRow, Value, describe, reindexed
from vispark.translate.language.registry import lowers


def product(emit: Emitter, left: Value, right: Value) -> Value:
    """Return ``left @ right``."""
    if isinstance(left, RaggedRow | SparseRow) or isinstance(right, RaggedRow | SparseRow):
        return product_of_rows(emit, left, right)
    if not (isinstance(left, Array) and isinstance(right, Array)):
        raise Refusal(f"@ is of arrays, and this is {describe(left)} @ {describe(right)}; for numbers write *. Of "
                      "records, and of dicts, with an array of two axes the elements lie along the first one; "
                      'vmap(f, of="record") takes the whole of a record that is an array')
    return dot(emit, left, right)


@lowers("numpy.matmul", "x1 x2 / out!")
def matmul(emit: Emitter, x1: Value, x2: Value) -> Value:
    """Return ``np.matmul(x1, x2)``."""
    return product(emit, x1, x2)


@lowers("numpy.dot", "a b out!", method="dot")
def dot(emit: Emitter, a: Any, b: Any) -> Value:
    """Return ``np.dot(a, b)``."""
    a, b = plain(a), plain(b)
    if isinstance(a, Number) or isinstance(b, Number):
        # NumPy makes arrays of Python's numbers here, which are not weak.
        a, b = (cast(part, part.type.strong) if isinstance(part, Number) else part for part in (a, b))
        return elementwise(emit, lambda x, y: scalars.ufunc("multiply", x, y), a, b)
    if len(a.shape) > 2 or len(b.shape) > 2:
        raise Refusal("dot of arrays of more than two axes is not supported")
    inner = b.shape[0]
    if a.shape[-1] != inner:
        raise Refusal(f"shapes {a.shape} and {b.shape} do not fit in a product: {a.shape[-1]} is not {inner}")
    shape = (*a.shape[:-1], *b.shape[1:])
    if not shape:
        return _inner_product(emit, a, b)
    if inner == 1 and len(shape) == 2 and a.type.kind != "b":
        return _outer(emit, reindexed(a, a.shape[:1], lambda i: (i, "0")),
                      reindexed(b, b.shape[1:], lambda j: ("0", j)))
    return _products(emit, a, b, shape)


def _products(emit: Emitter, a: Array, b: Array, rest: tuple[int, ...]) -> Array:
    kind = scalars.ufunc("multiply", a.at(*("0",) * len(a.shape)), b.at(*("0",) * len(b.shape))).type
    split = len(a.shape) - 1

    def factors(indices: tuple[str, ...]) -> tuple[Array, Array]:
        return (reindexed(a, a.shape[-1:], lambda i: (*indices[:split], i)),
                reindexed(b, b.shape[:1], lambda i: (i, *indices[split:])))

    if len(rest) == 1:
        product = emit.products.product_of(lambda j, k: elementwise(emit,
            lambda x, y: scalars.ufunc("multiply", x, y), *factors((str(j),))).element(str(k)), rest[0],
            b.shape[0], kind)
        if product is not None:
            return product
    result = emit.storage(kind, rest, "product")
    with emit.over(rest, "row") as indices:
        emit.line(f"{result.element(*indices)} = {_inner_product(emit, *factors(indices)).text};")
    emit.barrier(result)
    return result


def _inner_product(emit: Emitter, a: Array, b: Array) -> Number:
    terms = elementwise(emit, lambda x, y: scalars.ufunc("multiply", x, y), a, b)
    kind = terms.type
    if kind.kind == "b":
        return replace(truths(emit, "any", terms), type=NUMPY_BOOL)
    wide = Scalar("float32") if kind.dtype == "float16" else kind
    total = fold(emit, astype(terms, wide) if wide != kind else terms,
                 lambda x, y: scalars.binary("+", x, y), "dot", wide, numbers.convert(literal(0), wide))
    return cast(total, kind)


@lowers("numpy.inner", "a b /")
def inner(emit: Emitter, a: Any, b: Any) -> Value:
    """Return ``np.inner(a, b)``."""
    a, b = plain(a), plain(b)
    if isinstance(a, Array) and isinstance(b, Array) and len(b.shape) == 2:
        b = reindexed(b, b.shape[::-1], lambda i, j: (j, i))
    return dot(emit, a, b)


@lowers("numpy.vdot", "a b /")
def vdot(emit: Emitter, a: Any, b: Any) -> Value:
    """Return ``np.vdot(a, b)``."""
    a, b = plain(a), plain(b)
    if not all(isinstance(part, Array) and len(part.shape) == 1 for part in (a, b)):
        raise Refusal("np.vdot is of two rows here")
    return dot(emit, elementwise(emit, lambda x: scalars.ufunc("conjugate", x), a) if a.type.kind == "c" else a, b)


@lowers("numpy.outer", "a b out!")
def outer(emit: Emitter, a: Any, b: Any) -> Value:
    """Return ``np.outer(a, b)``."""
    a, b = plain(a), plain(b)
    if not all(isinstance(part, Array) and len(part.shape) == 1 for part in (a, b)):
        raise Refusal("np.outer is of two rows here")
    return _outer(emit, a, b)


def _outer(emit: Emitter, a: Array, b: Array) -> Array:
    """Return the products of all pairs; each item of a row is computed once."""
    a, b = (part if part.cheap else emit.materialised(part, "factor") for part in (a, b))
    column = reindexed(a, (*a.shape, 1), lambda i, j: (i,))
    return elementwise(emit, lambda x, y: scalars.ufunc("multiply", x, y), column, b)


@lowers("numpy.cross", "a b axisa! axisb! axisc! axis!")
def cross(emit: Emitter, a: Any, b: Any) -> Value:
    """Return ``np.cross(a, b)``."""
    a, b = (row_argument(emit, value, "np.cross") for value in (a, b))
    if a.shape != (3,) or b.shape != (3,):
        raise Refusal("np.cross is of two rows of three here")

    def minus(i: int, j: int) -> Number:
        products = [scalars.binary("*", a.at(str(one)), b.at(str(other))) for one, other in ((i, j), (j, i))]
        return scalars.binary("-", *products)

    return call_library(emit, "numpy.array", (List((minus(1, 2), minus(2, 0), minus(0, 1))),), {})


@lowers("numpy.trace", "a offset! axis1! axis2! dtype! out!", method="trace")
def trace(emit: Emitter, a: Value) -> Value:
    """Return ``np.trace(a)``."""
    array = array_argument(emit, a, "np.trace")
    if len(array.shape) != 2:
        raise Refusal("np.trace is of an array of two axes")
    return call_library(emit, "numpy.sum", (reindexed(array, (min(array.shape),), lambda index: (index, index)),), {})
