"""NumPy's functions along rows: running sums, differences, polynomials, convolutions, and reductions without NaN."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from vispark.translate.codegen.arguments import array_argument, dtype_argument, row_argument
from vispark.translate.codegen.elementwise import astype, elementwise
from vispark.translate.codegen.emitter import Emitter, Serial
from vispark.translate.codegen.lowering import call_library
from vispark.translate.codegen.numpy.rearranging import concatenate
from vispark.translate.codegen.operands import plain, static
from vispark.translate.codegen.scalar import numbers, scalars
from vispark.translate.codegen.scalar.casts import cast, literal
from vispark.translate.ir.errors import Refusal
from vispark.translate.ir.types import INT, Scalar
from vispark.translate.ir.values import Array, List, Nothing, Number, Tuple, Value, describe, reindexed
from vispark.translate.language.registry import lowers


@lowers("numpy.cumsum", "a axis= dtype= out!", method="cumsum")
def cumsum(emit: Emitter, a: Value, axis: Value | None = None, dtype: Value | None = None) -> Value:
    """Return ``np.cumsum(a, axis, dtype)``."""
    return _running(emit, "+", a, axis, dtype)


@lowers("numpy.cumprod", "a axis= dtype= out!", method="cumprod")
def cumprod(emit: Emitter, a: Value, axis: Value | None = None, dtype: Value | None = None) -> Value:
    """Return ``np.cumprod(a, axis, dtype)``."""
    return _running(emit, "*", a, axis, dtype)


def _running(emit: Emitter, symbol: str, value: Value, axis: Value | None, dtype: Value | None) -> Value:
    """Return sums or products of the first one, two and so on."""
    array = row_argument(emit, value, "a running sum or product")
    if axis is not None and not isinstance(axis, Nothing) and static(
            plain(axis), "the axis must be known before the kernel runs") not in (0, -1):
        raise Refusal(f"{describe(array)} has no such axis; a running sum or product is along axis 0 of a row")
    kind = Scalar({"b": "int64", "i": "int64", "u": "uint64"}.get(array.type.kind, array.type.dtype))
    kind = dtype_argument(dtype, kind.dtype)
    if emit.is_dealt(array.size):
        raise Serial
    result = emit.storage(kind, array.shape, "running")
    if not array.size:
        return result
    wide = astype(array, kind)
    total = emit.variable(kind, "total", wide.at("0"))
    emit.line(f"{result.element('0')} = {total.text};")
    with emit.over((array.size - 1,)) as (index,):
        one = wide.at(f"{index} + 1")
        emit.line(f"{total.text} = {cast(scalars.binary(symbol, total, one), kind).text};")
        emit.line(f"{result.element(f'{index} + 1')} = {total.text};")
    return result


@lowers("numpy.diff", "a n! axis! prepend! append!", instead={
    "n": "write np.diff(np.diff(p))",
    "axis": "along the first one write m[1:] - m[:-1], along the last one leave it out"})
def diff(emit: Emitter, a: Value) -> Value:
    """Return ``np.diff(a)``."""
    array = array_argument(emit, a, "np.diff")
    *before, last = array.shape
    shape = (*before, max(0, last - 1))
    ahead = reindexed(array, shape, lambda *indices: (*indices[:-1], f"{indices[-1]} + 1"))
    symbol = "!=" if array.type.kind == "b" else "-"
    return elementwise(emit, lambda a, b: scalars.binary(symbol, a, b), ahead, reindexed(array, shape, _same_place))


@lowers("numpy.gradient", "f varargs! axis! edge_order!")
def gradient(emit: Emitter, f: Value) -> Value:
    """Return half the differences of the numbers on either side, the whole ones at the ends; of integers in float64."""
    row = row_argument(emit, f, "np.gradient")
    if row.size < 2:
        raise Refusal(f"np.gradient is of two numbers or more, and this is {describe(row)}")
    if row.type.kind == "b":
        raise Refusal("np.gradient of bools is not supported, as NumPy does not subtract them; write .astype(int)")
    wide = astype(row, Scalar("float64")) if row.type.kind in "iu" else row

    def apart(first: int, last: int, count: int) -> Array:
        ahead, behind = (reindexed(wide, (count,), lambda index, by=by: (f"{index} + {by}" if by else index,))
                         for by in (last, first))
        return elementwise(emit, lambda a, b: scalars.binary("/", scalars.binary("-", a, b),
                                                             literal(float(last - first))), ahead, behind)

    middle = (apart(0, 2, row.size - 2),) if row.size > 2 else ()
    return concatenate(emit, Tuple((apart(0, 1, 1), *middle, apart(row.size - 2, row.size - 1, 1))))


@lowers("numpy.ptp", "a axis= out! keepdims=")
def ptp(emit: Emitter, a: Value, axis: Value | None = None) -> Value:
    """Return ``np.ptp(a, axis, keepdims)``."""
    operands = (a,) if axis is None else (a, axis)
    return elementwise(emit, lambda high, low: scalars.binary("-", high, low),
                       call_library(emit, "numpy.max", operands, {}), call_library(emit, "numpy.min", operands, {}))


@lowers("numpy.count_nonzero", "a axis= * keepdims=")
def count_nonzero(emit: Emitter, a: Value, axis: Value | None = None) -> Value:
    """Return ``np.count_nonzero(a, axis, keepdims)``."""
    there = call_library(emit, "numpy.not_equal", (a, literal(0)), {})
    return call_library(emit, "numpy.sum", (there,) if axis is None else (there, axis), {})


@lowers("numpy.polyval", "p x")
def polyval(emit: Emitter, p: Value, x: Value) -> Value:
    """Evaluate a polynomial by Horner's rule, as NumPy does."""
    items: Sequence[Value]
    if isinstance(p, Tuple | List):
        p = call_library(emit, "numpy.array", (p,), {})
    row = row_argument(emit, p, "np.polyval's polynomial")
    items = [row.at(str(number)) for number in range(row.size)]
    total: Any = call_library(emit, "numpy.zeros_like", (x,), {})
    for item in items:
        total = elementwise(emit, lambda a, b, c: scalars.binary("+", scalars.binary("*", a, b), c), total, x,
                            item)
        total = emit.snapshot(total) if isinstance(total, Number) else emit.materialised(total, "polynomial")
    return total


@lowers("numpy.convolve", "a v mode=")
def convolve(emit: Emitter, a: Value, v: Value, mode: Value | None = None) -> Value:
    """Return ``np.convolve(a, v, mode)``."""
    longer, shorter = (row_argument(emit, one, "np.convolve") for one in (a, v))
    if longer.size < shorter.size:
        longer, shorter = shorter, longer
    if not shorter.size:
        raise Refusal("np.convolve of an empty row has no value")
    how = "full" if mode is None else mode.what if isinstance(mode, Nothing) else ""
    ends = {"full": (0, longer.size + shorter.size - 1), "same": ((shorter.size - 1) // 2, longer.size),
            "valid": (shorter.size - 1, longer.size - shorter.size + 1)}
    if how not in ends:
        raise Refusal("np.convolve's mode is 'full', 'same' or 'valid'")
    first, count = ends[how]
    kind = scalars.ufunc("multiply", longer.at("0"), shorter.at("0")).type
    if emit.lanes > 1:
        raise Serial
    shorter = shorter if shorter.cheap else emit.materialised(shorter, "filter")
    result = emit.storage(kind, (count,), "convolved")
    with emit.over((count,)) as (place,):
        wide = Scalar("float32") if kind.dtype == "float16" else kind
        total = emit.variable(wide, "sum", cast(literal(False if kind.kind == "b" else 0), wide))
        with emit.over((shorter.size,), "k") as (turn,):
            at = emit.keep(Number(INT, f"{place} + {first} - {turn}", bounds=(-2**20, 2**20), atom=False), "at")
            term = scalars.ufunc("multiply", longer.at(at.text), shorter.at(turn))
            added = cast(scalars.ufunc("add", total, cast(term, wide)), wide)
            inside = "" if how == "valid" else f"if ({at.text} >= 0 && {at.text} < {longer.size}) "
            emit.line(f"{inside}{total.text} = {added.text};")
        emit.line(f"{result.element(place)} = {cast(replaced(total), kind).text};")
    return result


@lowers("numpy.nansum", "a axis= dtype! out! keepdims= initial! where!", instead={"dtype": "write .astype() before it"})
def nansum(emit: Emitter, a: Value, axis: Value | None = None) -> Value:
    """Return ``np.nansum(a, axis, keepdims)``."""
    return _without_nan(emit, "sum", 0, a, axis)


@lowers("numpy.nanmin", "a axis= out! keepdims= initial! where!")
def nanmin(emit: Emitter, a: Value, axis: Value | None = None) -> Value:
    """Return ``np.nanmin(a, axis, keepdims)``."""
    return _without_nan(emit, "min", math.inf, a, axis)


@lowers("numpy.nanmax", "a axis= out! keepdims= initial! where!")
def nanmax(emit: Emitter, a: Value, axis: Value | None = None) -> Value:
    """Return ``np.nanmax(a, axis, keepdims)``."""
    return _without_nan(emit, "max", -math.inf, a, axis)


@lowers("numpy.nanmean", "a axis= dtype! out! keepdims= * where!", instead={"dtype": "write .astype() before it"})
def nanmean(emit: Emitter, a: Value, axis: Value | None = None) -> Value:
    """Return ``np.nanmean(a, axis, keepdims)``."""
    if array_argument(emit, a, "np.nanmean").type.kind in "biu":
        return call_library(emit, "numpy.mean", (a,) if axis is None else (a, axis), {})
    total = nansum(emit, a, axis)
    here = call_library(emit, "numpy.logical_not", (call_library(emit, "numpy.isnan", (a,), {}),), {})
    count = call_library(emit, "numpy.sum", (here,), {} if axis is None else {"axis": axis})
    return elementwise(emit, lambda a, b: scalars.ufunc("divide", a, cast(b, scalars.ufunc(
        "divide", a, literal(1)).type)), total, count)


def _without_nan(emit: Emitter, name: str, instead: float, value: Value, axis: Value | None) -> Value:
    array = array_argument(emit, value, f"np.nan{name}")
    along = {} if axis is None else {"axis": axis}
    if array.type.kind not in "fc":
        return call_library(emit, f"numpy.{name}", (array,), along)
    if array.type.kind == "c" and name != "sum":
        raise Refusal(f"np.nan{name} of complex numbers is not supported; use .real, .imag or abs()")
    fill = literal(instead)
    filled = elementwise(emit, lambda a: numbers.where(scalars.ufunc("isnan", a), cast(fill, a.type), a),
                         array)
    if name == "sum":
        return call_library(emit, "numpy.sum", (filled,), along)
    # Of nothing but NaN it is NaN.
    none = call_library(emit, "numpy.all", (call_library(emit, "numpy.isnan", (array,), {}),), along)
    return elementwise(emit, lambda test, found: numbers.where(test, cast(literal(math.nan), found.type),
                                                               found), none,
                       call_library(emit, f"numpy.{name}", (filled,), along))


def _same_place(*indices: str) -> tuple[str, ...]:
    return indices


def replaced(number: Number) -> Number:
    """Return the number that a variable holds now."""
    return Number(number.type, number.text)
