"""Sums, products, extremes and places of extremes of arrays: loops that read each element once."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from vispark.translate.codegen.numpy.sums import Sums
from vispark.translate.codegen.scalar import numbers, scalars
from vispark.translate.codegen.scalar.casts import cast, literal, text_of, truth
from vispark.translate.codegen.scalar.writer import Serial
from vispark.translate.ir.errors import Refusal
from vispark.translate.ir.types import BOOL, NUMPY_BOOL, Scalar
from vispark.translate.ir.values import Array, List, Nothing, Number, Tuple, Value, describe, reindexed

#: What sums begin with.
_NOTHING = ("0", "0.0", "0.0f")


class Reductions(Sums):
    """Reductions of arrays, whole or along an axis."""

    # -- NumPy's ------------------------------------------------------------------------------------------------------

    def _reduce(self, name: str, a: Value, axis: Value | None = None, dtype: Value | None = None,
                ddof: Value | None = None) -> Value:
        """Return ``np.sum`` and its like."""
        value = self.plain(self.library("numpy.array", (a,), {}) if isinstance(a, Tuple | List) else a)
        array = value if isinstance(value, Array) else Array(value.type.strong, (1,), lambda index: value.closed)
        if not array.size and name not in ("sum", "prod", "any", "all"):
            raise Refusal(f"np.{name} of an empty array has no value")
        if dtype is not None and not isinstance(dtype, Nothing):
            kind = self.dtype(dtype)
            array = self.astype(array, kind)
            if kind.kind in "biu" and name in ("sum", "prod"):
                # Sums that wrap at the end are those that wrap at each step.
                return self.elementwise(lambda one: numbers.convert(one, kind), self._reduce(name, array, axis))
            if kind.kind in "biu":
                raise Refusal(f"np.{name} in {kind.dtype} is not supported; take that of its result")
            if kind.kind == "c" and name in ("var", "std"):
                # NumPy's has the type asked for, though it is a real number.
                found = self._reduce(name, array, axis, None, ddof)
                return self.elementwise(lambda one: numbers.convert(one, kind), found)
        less = 0 if ddof is None else self.static(self.plain(ddof), "ddof must be known before the kernel runs")
        if axis is None or isinstance(axis, Nothing):
            return self._whole(name, array, less)
        if not isinstance(value, Array):
            raise Refusal(f"np.{name} along an axis takes an array")
        return self._along(name, array, axis, less)

    def _whole(self, name: str, array: Array, less: int = 0) -> Number:
        """Reduce all elements of an array to one number; a variance is divided by their count minus ``less``."""
        if name in ("argmin", "argmax"):
            return self._place_of_extreme(name[3:], array)
        if name == "mean":
            return self._mean(array)
        if name in ("var", "std"):
            return self._spread(name, array, less)
        if name == "median":
            return self._median(array)
        if name in ("any", "all"):
            return replace(self._truths(name, array), type=NUMPY_BOOL)
        if name in ("min", "max"):
            ufunc = "minimum" if name == "min" else "maximum"
            return self._fold(array, lambda a, b: scalars.ufunc(ufunc, a, b), name, array.type)
        kind = _sum_type(array.type)
        wide = Scalar("float32") if kind.dtype == "float16" else kind
        symbol, start = ("+", 0) if name == "sum" else ("*", 1)
        total = self._fold(self.astype(array, wide), lambda a, b: scalars.binary(symbol, a, b), name, wide,
                           numbers.convert(literal(start), wide))
        return cast(total, kind)

    def _along(self, name: str, array: Array, axis: Value, less: int = 0) -> Value:
        """Along one axis: an array of the others, kept, as each element is a loop."""
        if isinstance(axis, Tuple | List):
            raise Refusal(f"axis of np.{name} is one whole number; leave it out for all, or reshape several to one")
        number = self.static(self.plain(axis), "the axis must be known before the kernel runs")
        if not -len(array.shape) <= number < len(array.shape):
            raise Refusal(f"{describe(array)} has no axis {number}")
        number %= len(array.shape)
        rest = array.shape[:number] + array.shape[number + 1:]

        def line(indices: tuple[str, ...]) -> Array:
            return reindexed(array, (array.shape[number],), lambda i: (*indices[:number], i, *indices[number:]))

        if not rest:
            return self._whole(name, array, less)
        if name == "sum" and len(rest) == 1:
            product = self.product_of(lambda j, k: line((str(j),)).element(str(k)), rest[0], array.shape[number],
                                      array.type)
            if product is not None:
                return product
        with self.apart():
            kind = self._whole(name, line(("0",) * len(rest))).type
        result = self.storage(kind, rest, name)
        with self.over(rest, "row") as indices:
            self.line(f"{result.element(*indices)} = {self._whole(name, line(indices), less).text};")
        self.settle(result)
        return result

    def _mean(self, array: Array, less: int = 0) -> Number:
        kind = array.type if array.type.kind in "fc" else Scalar("float64")
        wide = Scalar("float32") if kind.dtype == "float16" else kind
        total = self._whole("sum", self.astype(array, wide))
        count = Number(wide, text_of(max(0, array.size - less), wide))
        return cast(scalars.ufunc("divide", total, count), kind)

    def _spread(self, name: str, array: Array, less: int) -> Number:
        kind = array.type if array.type.kind in "fc" else Scalar("float64")
        if kind.dtype == "float16":
            return self._half_spread(name, array, less)
        middle = self.keep(self._mean(self.astype(array, kind)), "mean")
        apart = self.elementwise(lambda a: squared(scalars.binary("-", a, middle)), self.astype(array, kind))
        kind = apart.type if kind.kind == "c" else kind
        found = self._mean(apart, less)
        return cast(found if name == "var" else scalars.ufunc("sqrt", found), kind)

    def _half_spread(self, name: str, array: Array, less: int) -> Number:
        """Compute a variance or deviation of half precision, rounding each part to half as NumPy does: squares beyond
        65504 are infinite.
        """
        def mean(row: Array, count: int) -> Number:
            return scalars.ufunc("divide", self._whole("sum", row), Number(array.type, text_of(count, array.type)))

        middle = self.keep(mean(array, array.size), "mean")
        apart = self.elementwise(lambda a: squared(scalars.binary("-", a, middle)), array)
        found = mean(apart, max(0, array.size - less))
        return found if name == "var" else scalars.ufunc("sqrt", found)

    # -- loops --------------------------------------------------------------------------------------------------------

    def _fold(self, array: Array, step: Callable[[Number, Number], Number], name: str, kind: Scalar,
              start: Number | None = None) -> Number:
        """Fold all elements into one variable of a type; without a start, from the first element on."""
        if name in ("sum", "dot") and len(array.shape) == 1 and start is not None and start.text in _NOTHING:
            noted = self.noted(lambda k: array.element(str(k)), array.size, kind)
            if noted is not None:
                return noted
        if self.dealt(array.size):
            return self._fold_along(array, step, name, kind, start)
        if self.drifts(array, name, kind):
            return replace(self.in_blocks(array, step, name, kind, start), variable=False)
        skip = start is None
        first = array.at(*("0",) * len(array.shape)) if start is None else start
        total = self.variable(kind, name, cast(first, kind))
        if skip and array.size == 1:
            return replace(total, variable=False)
        loops = reindexed(array, (array.shape[0] - 1,), lambda i: (f"{i} + 1",)) if skip and len(array.shape) == 1 \
            else array
        self.hint(total, name, loops.size)
        with self.over(loops.shape) as indices:
            self.step(total, step(total, loops.at(*indices)))
        return replace(total, variable=False)

    def _fold_along(self, array: Array, step: Callable[[Number, Number], Number], name: str, kind: Scalar,
                    start: Number | None) -> Number:
        """Fold all elements by the lanes of a row: each lane its own elements, and then the lanes' results."""
        if self.drifts(array, name, kind):
            total = self.in_blocks(array, step, name, kind, None)
        else:
            total = self.variable(kind, name, cast(array.at(*self.unflattened("lane", array.shape)), kind))
            with self.along(array.shape, 1) as indices:
                self.step(total, step(total, array.at(*indices)))
        with self._joining() as apart:
            self.step(total, step(total, self._other(total, apart)))
        if start is not None:
            self.step(total, step(total, cast(start, kind)))
        return replace(total, variable=False)

    @contextlib.contextmanager
    def _joining(self) -> Iterator[str]:
        """Yield the lane distance of each step of a butterfly reduction, after which all lanes have the joined value.
        """
        apart = self.name("apart")
        self.line("VISPARK_UNROLL")
        with self.block(f"for (int {apart} = {self.lanes // 2}; {apart} > 0; {apart} /= 2)"):
            yield apart
        self.taken.discard(apart)

    def _other(self, number: Number, apart: str) -> Number:
        """Return the value that another lane has of a variable."""
        text = f"rows::exchange(rows::row_mask<{self.lanes}>(), {number.text}, {apart})"
        return self.keep(replace(number, text=text), "other")

    def _truths(self, name: str, array: Array) -> Number:
        total, sign = self.variable(BOOL, f"{name}_true", literal(name == "all")), "&&" if name == "all" else "||"
        with self.along(array.shape) as indices:
            self.line(f"{total.text} = {total.text} {sign} {truth(array.at(*indices)).closed};")
        if self.dealt(array.size):
            with self._joining() as apart:
                self.line(f"{total.text} = {total.text} {'&' if name == 'all' else '|'} "
                          f"{self._other(total, apart).text};")
        return replace(total, variable=False)

    def _place_of_extreme(self, name: str, array: Array) -> Number:
        """Return the first place of the extreme, or of a NaN."""
        dealt = self.dealt(array.size)
        start = self.unflattened("lane", array.shape) if dealt else ("0",) * len(array.shape)
        best = self.variable(array.type, name, scalars.unseen(array.at(*start)))
        found = self.name(f"arg{name}")
        self.line(f"int {found} = {'lane' if dealt else '0'};")
        with self.along(array.shape, int(dealt)) as indices:
            one = self.keep(array.at(*indices), "value")
            with self.block(f"if ({_beyond(name, one, best)})"):
                self.line(f"{best.text} = {one.text};")
                self.line(f"{found} = {_flat_place(indices, array.shape)};")
        if dealt:
            self._join_places(name, best, found)
        return Number(Scalar("int64"), f"(long long){found}", atom=False)

    def _join_places(self, name: str, best: Number, found: str) -> None:
        """Write the reduction of the lanes' extremes and their places; of equal extremes the first place wins."""
        with self._joining() as apart:
            other = self._other(best, apart)
            place = self._other(Number(Scalar("int32"), found), apart)
            with self.block(f"if ({_beyond(name, other, best)} || (!({_beyond(name, best, other)}) && "
                            f"{place.text} < {found}))"):
                self.line(f"{best.text} = {other.text};")
                self.line(f"{found} = {place.text};")

    # -- Python's -----------------------------------------------------------------------------------------------------

    def python_fold(self, name: str, array: Array, start: Number | None = None) -> Number:
        """Return ``sum``, ``min``, ``max``, ``any`` and ``all`` of a row, one after the other."""
        if name in ("any", "all"):
            return self._truths(name, array)
        if name in ("min", "max"):
            if not array.size:
                raise Refusal(f"{name}() of nothing has no value")
            if self.dealt(array.size) and array.type.kind == "f":
                raise Serial    # where a NaN stands decides what Python finds
            return self._fold(array, lambda a, b: numbers.extreme(name, a, b), name, array.type)
        if not array.size:
            return start
        kind = scalars.binary("+", start, array.at("0")).type
        if kind.dtype == "float16" and self.drifts(array, name, kind):
            wide = Scalar("float32")
            return cast(self.python_fold(name, self.astype(array, wide), cast(start, wide)), kind)
        return self._fold(array, lambda a, b: scalars.binary("+", a, b), name, kind, start)

    # -- products -----------------------------------------------------------------------------------------------------

    def product(self, left: Value, right: Value) -> Value:
        """Return ``left @ right``."""
        if not (isinstance(left, Array) and isinstance(right, Array)):
            raise Refusal(f"@ is of arrays, and this is {describe(left)} @ {describe(right)}; for numbers write *. Of "
                          "records, and of dicts, with an array of two axes the elements lie along the first one; "
                          'vmap(f, of="record") takes the whole of a record that is an array')
        return self._dot(left, right)

    def _matmul(self, x1: Value, x2: Value) -> Value:
        return self.product(x1, x2)

    def _dot(self, a: Any, b: Any) -> Value:
        a, b = self.plain(a), self.plain(b)
        if isinstance(a, Number) or isinstance(b, Number):
            # NumPy makes arrays of Python's numbers here, which are not weak.
            a, b = (cast(part, part.type.strong) if isinstance(part, Number) else part for part in (a, b))
            return self.elementwise(lambda x, y: scalars.ufunc("multiply", x, y), a, b)
        if len(a.shape) > 2 or len(b.shape) > 2:
            raise Refusal("dot of arrays of more than two axes is not supported")
        inner = b.shape[0]
        if a.shape[-1] != inner:
            raise Refusal(f"shapes {a.shape} and {b.shape} do not fit in a product: {a.shape[-1]} is not {inner}")
        rest = (*a.shape[:-1], *b.shape[1:])
        if not rest:
            return self._inner_product(a, b)
        return self._products(a, b, rest)

    def _products(self, a: Array, b: Array, rest: tuple[int, ...]) -> Array:
        kind = scalars.ufunc("multiply", a.at(*("0",) * len(a.shape)), b.at(*("0",) * len(b.shape))).type
        split = len(a.shape) - 1

        def factors(indices: tuple[str, ...]) -> tuple[Array, Array]:
            return (reindexed(a, a.shape[-1:], lambda i: (*indices[:split], i)),
                    reindexed(b, b.shape[:1], lambda i: (i, *indices[split:])))

        if len(rest) == 1:
            product = self.product_of(lambda j, k: self.elementwise(
                lambda x, y: scalars.ufunc("multiply", x, y), *factors((str(j),))).element(str(k)), rest[0],
                b.shape[0], kind)
            if product is not None:
                return product
        result = self.storage(kind, rest, "product")
        with self.over(rest, "row") as indices:
            self.line(f"{result.element(*indices)} = {self._inner_product(*factors(indices)).text};")
        self.settle(result)
        return result

    def _inner_product(self, a: Array, b: Array) -> Number:
        terms = self.elementwise(lambda x, y: scalars.ufunc("multiply", x, y), a, b)
        kind = terms.type
        if kind.kind == "b":
            return replace(self._truths("any", terms), type=NUMPY_BOOL)
        wide = Scalar("float32") if kind.dtype == "float16" else kind
        total = self._fold(self.astype(terms, wide) if wide != kind else terms,
                           lambda x, y: scalars.binary("+", x, y), "dot", wide, numbers.convert(literal(0), wide))
        return cast(total, kind)

    def _inner(self, a: Any, b: Any) -> Value:
        a, b = self.plain(a), self.plain(b)
        if isinstance(a, Array) and isinstance(b, Array) and len(b.shape) == 2:
            b = reindexed(b, b.shape[::-1], lambda i, j: (j, i))
        return self._dot(a, b)

    def _vdot(self, a: Any, b: Any) -> Value:
        a, b = self.plain(a), self.plain(b)
        if not all(isinstance(part, Array) and len(part.shape) == 1 for part in (a, b)):
            raise Refusal("np.vdot is of two rows here")
        return self._dot(self.elementwise(lambda x: scalars.ufunc("conjugate", x), a) if a.type.kind == "c" else a, b)

    def _outer(self, a: Any, b: Any) -> Value:
        a, b = self.plain(a), self.plain(b)
        if not all(isinstance(part, Array) and len(part.shape) == 1 for part in (a, b)):
            raise Refusal("np.outer is of two rows here")
        column = reindexed(a, (*a.shape, 1), lambda i, j: (i,))
        return self.elementwise(lambda x, y: scalars.ufunc("multiply", x, y), column, b)

    # -- what the rest of the writer provides -------------------------------------------------------------------------

    def noted(self, text: Callable[[int | str], str], terms: int, kind: Scalar) -> Number | None:
        """Return the placeholder of a sum of terms while an expression is only probed; None while it is written."""
        return None

    def product_of(self, text: Callable[[int, int | str], str], width: int, terms: int, kind: Scalar) -> Array | None:
        """Return the sums of terms as a product of the element's row with a matrix; None where they are none."""
        return None

    def _median(self, array: Array) -> Number:
        """Return the middle of all elements."""
        raise NotImplementedError

    def library(self, name: str, arguments: tuple[Value, ...], keywords: dict[str, Value]) -> Value:
        """Return a call of one of the library's functions."""
        raise NotImplementedError

    def elementwise(self, operation: Callable[..., Number], *operands: Value) -> Any:
        """Return an operation on numbers, for numbers and arrays."""
        raise NotImplementedError

    def plain(self, value: Value) -> Any:
        """Return a value that must be a number or an array."""
        raise NotImplementedError

    def astype(self, value: Array, kind: Scalar) -> Array:
        """Return the array with its elements converted."""
        raise NotImplementedError

    def dtype(self, value: Value | None, default: str = "float64") -> Scalar:
        """Return a dtype given as an argument."""
        raise NotImplementedError

    def static(self, number: Number, reason: str) -> int:
        """Return a whole number that is known before the kernel runs."""
        raise NotImplementedError


def _beyond(name: str, one: Number, best: Number) -> str:
    """Return whether a number is less, or greater, than the best so far, or a NaN."""
    test = scalars.ufunc("less" if name == "min" else "greater", one, best).text
    if one.type.kind not in "fc":
        return test
    return f"{test} || ({scalars.ufunc('isnan', one).closed} && !{scalars.ufunc('isnan', best).closed})"


def squared(number: Number) -> Number:
    """Return the square of a number's size."""
    if number.type.kind != "c":
        return scalars.ufunc("square", number)
    return scalars.binary("+", *(scalars.ufunc("square", numbers.part(number, name)) for name in ("re", "im")))


def _sum_type(kind: Scalar) -> Scalar:
    """Return the type of ``np.sum`` and ``np.prod``: at least 64 bits for integers."""
    if kind.kind in "bi":
        return Scalar("int64")
    return Scalar("uint64") if kind.kind == "u" else kind


def _flat_place(indices: tuple[str, ...], shape: tuple[int, ...]) -> str:
    terms = []
    for axis, index in enumerate(indices):
        stride = int(np.prod(shape[axis + 1:], dtype=np.int64))
        if index != "0":
            terms.append(index if stride == 1 else f"{index} * {stride}")
    return " + ".join(terms) or "0"


