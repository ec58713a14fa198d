"""Arrays and the library's functions of them: elementwise expressions, products, reductions, new arrays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from vispark.translate.codegen.numpy.reductions import Reductions
from vispark.translate.codegen.scalar import numbers, scalars
from vispark.translate.codegen.scalar.casts import cast, literal, text_of
from vispark.translate.ir.errors import Refusal
from vispark.translate.ir.types import BOOL, FLOAT, Scalar
from vispark.translate.ir.values import (
    Array,
    List,
    Named,
    Nothing,
    Number,
    Selected,
    Tuple,
    Value,
    derived,
    describe,
    reindexed,
)
from vispark.translate.language import signatures
from vispark.translate.language.library import FUNCTIONS, TYPES, UFUNC_C, UFUNC_OTHER

_TYPE_NAMES = {f"numpy.{np.dtype(getattr(np, name)).name}" for name in TYPES}
_PYTHON_TYPES = {"int": "int64", "float": "float64", "bool": "bool", "complex": "complex128"}
_UFUNCS = {*UFUNC_C, *UFUNC_OTHER}
REDUCTIONS = {"sum", "prod", "min", "max", "argmin", "argmax", "any", "all", "mean", "var", "std", "median"}


def broadcast(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape that shapes have together.

    Raises
    ------
    Refusal
        If they do not fit.
    """
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError as error:
        raise Refusal(f"arrays of shapes {' and '.join(map(str, shapes))} do not fit each other") from error


class Arrays(Reductions):
    """Functions of arrays and numbers, as Python, ``math`` and NumPy have them."""

    # -- elementwise --------------------------------------------------------------------------------------------------

    def elementwise(self, operation: Callable[..., Number], *operands: Value) -> Any:
        """Apply an operation on numbers to numbers, arrays, or both in one broadcast shape."""
        parts = [self.plain(operand) for operand in operands]
        if all(isinstance(part, Number) for part in parts):
            return operation(*parts)
        shape = broadcast(*(part.shape for part in parts if isinstance(part, Array)))
        settled = [self.fixed(part) if isinstance(part, Number) else part for part in parts]
        # Asked once without an index for its type; what is wrong is wrong here.
        kind = operation(*(part if isinstance(part, Number) else Number(part.type, "x") for part in settled)).type

        def element(*indices: str) -> str:
            found = operation(*(part if isinstance(part, Number) else part.at(*stretched(part.shape, indices))
                                for part in settled))
            return cast(found, kind.strong).closed

        arrays = [part for part in settled if isinstance(part, Array)]
        sample = element(*("0",) * len(shape))
        cheap = all(array.cheap for array in arrays) and "(" not in sample.replace("(float)", "").strip("()")
        return Array(kind.strong, shape, element, cheap=cheap, fresh=True,
                     volatile=any(array.volatile for array in arrays))

    def plain(self, value: Value) -> Any:
        """Return a value that must be a number or an array; an array without axes is a number."""
        if isinstance(value, Array) and value.shape == ():
            return value.at()
        if isinstance(value, Selected):
            raise value.refusal()
        if isinstance(value, List) or (isinstance(value, Tuple) and value.items):
            raise Refusal(f"{describe(value)} is no array; make one: np.array([...])")
        if not isinstance(value, Number | Array):
            raise Refusal(f"numbers and arrays are needed here, and this is {describe(value)}")
        return value

    # -- the library --------------------------------------------------------------------------------------------------

    def library(self, name: str, arguments: tuple[Value, ...], keywords: dict[str, Value]) -> Value:
        """Return a call of one of the library's functions."""
        module, _, short = name.rpartition(".")
        if name in _TYPE_NAMES or name in _PYTHON_TYPES:
            return self._convert(name, *signatures.bind(name, arguments, keywords))
        arguments, keywords = signatures.bind(name, arguments, keywords)
        if keywords.get("keepdims") is not None:
            return self._kept_axes(name, arguments, dict(keywords))
        keywords.pop("keepdims", None)
        if module == "numpy" and short in _UFUNCS:
            return self._ufunc(short, arguments)
        if module == "numpy" and short in REDUCTIONS:
            return self._reduce(short, *arguments, **keywords)
        if module == "grid":
            raise Refusal(f"{short} is known only on a Grid, whose cells have places")
        if module == "math" and hasattr(self, f"_math_{short}"):
            return getattr(self, f"_math_{short}")(*arguments, **keywords)
        if module == "math":
            given = tuple(self._float_argument(name, argument) for argument in arguments)
            return numbers.math(short, given)
        if module == "numpy.lib.stride_tricks":
            return getattr(self, f"_{short}")(*arguments, **keywords)
        method = getattr(self, f"_{short}" if module in ("numpy", "numpy.linalg") else f"_python_{short}", None)
        if method is None or (module == "numpy" and short not in FUNCTIONS):
            raise Refusal(f"{name} is not supported here")
        return method(*arguments, **keywords)

    def _kept_axes(self, name: str, arguments: tuple[Value, ...], keywords: dict[str, Value]) -> Value:
        """Return a reduction's result with an axis of one item in place of each reduced axis."""
        kept = keywords.pop("keepdims")
        axis = keywords.get("axis", arguments[1] if len(arguments) > 1 and name != "numpy.linalg.norm" else Nothing())
        found: Any = self.library(name, arguments, keywords)
        reason = f"keepdims of {signatures.shown(name)} must be known before the kernel runs"
        if not self.static(self.truth(kept), reason):
            return found
        given: Any = self.library("numpy.asarray", (arguments[0] if arguments else next(iter(keywords.values())),), {})
        axes = len(given.shape) if isinstance(given, Array) else 0
        along = range(axes) if isinstance(axis, Nothing) else \
            [self.static(self.plain(axis), "the axis must be known before the kernel runs") % max(axes, 1)]
        rest = [one for one in range(axes) if one not in along]
        if isinstance(found, Number):
            settled = self.fixed(cast(found, found.type.strong))
            return Array(settled.type, (1,) * axes, lambda *indices: settled.closed, fresh=True) if axes else found
        shape = tuple(1 if one in along else given.shape[one] for one in range(axes))
        return replace(reindexed(found, shape, lambda *indices: tuple(indices[one] for one in rest)), fresh=True)

    def _float_argument(self, name: str, value: Value) -> Number:
        if not isinstance(self.plain(value), Number):
            raise Refusal(f"{name} takes a number, and this is {describe(value)}; for arrays use numpy's")
        return self.plain(value)

    def _ufunc(self, name: str, operands: tuple[Value, ...]) -> Value:
        return self.elementwise(lambda *given: scalars.ufunc(name, *given), *operands)

    def _convert(self, name: str, arguments: tuple[Value, ...], keywords: dict[str, Value]) -> Value:
        """Return ``float(x)``, ``np.float32(x)`` and their like."""
        kind = self.dtype(Named(name))
        kind = Scalar(kind.dtype, weak=name in _PYTHON_TYPES)
        given = (*arguments, *keywords.values())
        if len(given) == 2:
            re, im = (cast(self._float_argument(name, value), FLOAT) for value in given)
            return Number(kind, f"{kind.c}({re.text}, {im.text})")
        value = self.plain(given[0])
        if isinstance(value, Array):
            if kind.weak:
                raise Refusal(f"{name}() takes a number, and this is {describe(value)}; use .astype({name})")
            return self.astype(value, kind)
        return numbers.convert(value, kind)

    def astype(self, value: Array, kind: Scalar) -> Array:
        """Return the array with its elements converted."""
        return replace(value, type=kind, fresh=True, storage="",
                       element=lambda *indices: numbers.convert(value.at(*indices), kind).closed)

    def dtype(self, value: Value | None, default: str = "float64") -> Scalar:
        """Return a dtype given as an argument."""
        if value is None or isinstance(value, Nothing):
            return Scalar(default)
        if not isinstance(value, Named) or (value.name not in _TYPE_NAMES and value.name not in _PYTHON_TYPES):
            raise Refusal("a dtype is written as np.float32 and its like, or as int, float, bool")
        return Scalar(_PYTHON_TYPES.get(value.name, value.name.removeprefix("numpy.")))

    def _python_astype(self, value: Any, dtype: Value) -> Value:
        found = self.dtype(dtype)
        value = self.plain(value)
        return self.astype(value, found) if isinstance(value, Array) else numbers.convert(value, found)

    def _python_item(self, value: Value) -> Value:
        number = self.plain(value)
        if not isinstance(number, Number):
            raise Refusal(".item() is of an array of one element; index it")
        return Number(Scalar(_python_type(number.type), weak=True),
                      cast(number, Scalar(_python_type(number.type))).text, atom=False)

    # -- Python's functions -------------------------------------------------------------------------------------------

    def _python_abs(self, x: Value) -> Value:
        return self.elementwise(numbers.absolute, x)

    def _python_pow(self, base: Value, exp: Value) -> Value:
        return self.elementwise(lambda a, b: scalars.binary("**", a, b), base, exp)

    def _python_divmod(self, x: Value, y: Value) -> Value:
        return Tuple(tuple(self.elementwise(lambda a, b, symbol=symbol: scalars.binary(symbol, a, b), x, y)
                           for symbol in ("//", "%")))

    def _python_len(self, obj: Value) -> Value:
        if isinstance(obj, Tuple | List):
            return literal(len(obj.items))
        if not isinstance(obj, Array) or not obj.shape:
            raise Refusal(f"{describe(obj)} has no length")
        return literal(obj.shape[0])

    def _python_min(self, *values: Value, key: Value | None = None, default: Value | None = None) -> Value:
        return self._extreme("min", values, key, default)

    def _python_max(self, *values: Value, key: Value | None = None, default: Value | None = None) -> Value:
        return self._extreme("max", values, key, default)

    def _extreme(self, name: str, values: tuple[Value, ...], key: Value | None, default: Value | None) -> Value:
        """Return ``min`` and ``max`` of several numbers, of a tuple, or of a row."""
        if key is not None and not isinstance(key, Nothing):
            raise Refusal(f"key of {name}() is not supported behind *; give {name}() the row itself")
        if default is not None and len(values) != 1:
            raise Refusal(f"default of {name}() is for one row or tuple that may be empty")
        if default is not None and isinstance(values[0], Array | Tuple | List) and self._is_empty(values[0]):
            return default
        if len(values) == 1 and isinstance(values[0], Array):
            return self.python_fold(name, self._row(values[0], name))
        if len(values) == 1 and isinstance(values[0], Tuple | List):
            values = values[0].items
        elif len(values) == 1:
            raise Refusal(f"{name}() takes several numbers, a tuple or a row, and this is {describe(values[0])}")
        if not values:
            raise Refusal(f"{name}() of nothing has no value")
        found = self._float_argument(name, values[0])
        for value in values[1:]:
            found = numbers.extreme(name, found, self._float_argument(name, value))
        return found

    def _is_empty(self, value: Array | Tuple | List) -> bool:
        return value.shape[:1] == (0,) if isinstance(value, Array) else not value.items

    def _python_sum(self, iterable: Value, start: Value | None = None) -> Value:
        first = literal(0) if start is None else self.plain(start)
        if isinstance(iterable, Tuple | List):
            for value in iterable.items:
                first = self.elementwise(lambda a, b: scalars.binary("+", a, b), first, value)
            return first
        if not isinstance(first, Number):
            raise Refusal("sum() of a row begins with a number here, and this start is "
                          f"{describe(first)}; write start + sum(p)")
        return self.python_fold("sum", self._row(iterable, "sum"), first)

    def _python_any(self, iterable: Value) -> Value:
        return self._python_truth("any", iterable)

    def _python_all(self, iterable: Value) -> Value:
        return self._python_truth("all", iterable)

    def _python_truth(self, name: str, iterable: Value) -> Value:
        if not isinstance(iterable, Tuple | List):
            return self.python_fold(name, self._row(iterable, name))
        unknown: list[Number] = []
        for test in map(self.truth, iterable.items):
            if test.known and bool(test.value) == (name == "any"):
                return literal(name == "any")
            unknown += [] if test.known else [test]
        if not unknown:
            return literal(name == "all")
        text = (" || " if name == "any" else " && ").join(test.closed for test in unknown)
        return derived(Number(BOOL, text, atom=len(unknown) == 1 and unknown[0].atom), *unknown)

    def truth(self, value: Value) -> Number:
        """Return ``bool(value)``."""
        raise NotImplementedError

    def _row(self, value: Value, name: str) -> Array:
        if not isinstance(value, Array) or len(value.shape) != 1:
            raise Refusal(f"{name}() takes a row, and this is {describe(value)}"
                          + (f"; use np.{name}()" if isinstance(value, Array) else ""))
        return value

    # -- numpy's functions of arrays ----------------------------------------------------------------------------------

    def _where(self, condition: Value, x: Value, y: Value) -> Value:
        return self.elementwise(numbers.where, condition, x, y)

    def _clip(self, a: Value, a_min: Value | None = None, a_max: Value | None = None, *,
              min: Value | None = None, max: Value | None = None) -> Value:
        for name, bounds in (("maximum", (a_min, min)), ("minimum", (a_max, max))):
            given = [bound for bound in bounds if bound is not None]
            if len(given) > 1:
                raise Refusal("np.clip takes a_min and a_max, or min and max, and not both")
            if given and not isinstance(given[0], Nothing):
                a = self._ufunc(name, (a, given[0]))
        return a

    def _python_clip(self, value: Value, min: Value | None = None, max: Value | None = None) -> Value:
        return self._clip(value, min=min, max=max)

    def _real(self, val: Value) -> Value:
        return self.elementwise(lambda z: numbers.part(z, "re"), val)

    def _imag(self, val: Value) -> Value:
        return self.elementwise(lambda z: numbers.part(z, "im"), val)

    def _transpose(self, a: Value) -> Value:
        array = self.plain(a)
        if isinstance(array, Number):
            return array
        return reindexed(array, array.shape[::-1], lambda *indices: indices[::-1])

    def _copy(self, a: Value) -> Value:
        array = self.plain(a)
        if isinstance(array, Number):
            return array
        return self.materialised(array, "copy") if array.volatile else replace(array, fresh=True, storage="")

    def _zeros(self, shape: Value, dtype: Value | None = None) -> Value:
        return self._filled(self._shape(shape), literal(0), self.dtype(dtype))

    def _empty(self, shape: Value, dtype: Value | None = None) -> Value:
        return self._zeros(shape, dtype)

    def _ones(self, shape: Value, dtype: Value | None = None) -> Value:
        return self._filled(self._shape(shape), literal(1), self.dtype(dtype))

    def _full(self, shape: Value, fill_value: Value, dtype: Value | None = None) -> Value:
        number = self.plain(fill_value)
        if not isinstance(number, Number):
            raise Refusal("np.full fills with a number here")
        return self._filled(self._shape(shape), number, self.dtype(dtype, number.type.dtype))

    def _zeros_like(self, a: Value, dtype: Value | None = None) -> Value:
        return self._like(a, dtype, 0)

    def _ones_like(self, a: Value, dtype: Value | None = None) -> Value:
        return self._like(a, dtype, 1)

    def _like(self, value: Value, dtype: Value | None, fill: int) -> Value:
        model = self.plain(value)
        shape = model.shape if isinstance(model, Array) else ()
        return self._filled(shape, literal(fill), self.dtype(dtype, model.type.dtype))

    def _filled(self, shape: tuple[int, ...], fill: Number, kind: Scalar) -> Value:
        number = self.fixed(cast(fill, kind))
        return Array(kind, shape, lambda *indices: number.closed, fresh=True) if shape else number

    def _shape(self, value: Value) -> tuple[int, ...]:
        reason = "the shape of an array must be known before the kernel runs, as lengths are compiled in"
        items = value.items if isinstance(value, Tuple | List) else (value,)
        found = tuple(self.static(self.plain(item), reason) for item in items)
        if any(extent < 0 for extent in found):
            raise Refusal(f"an array cannot have the shape {found}")
        return found

    def _arange(self, start_or_stop: Value, stop: Value | None = None, step: Value | None = None, *,
                dtype: Value | None = None) -> Value:
        reason = "the range of np.arange must be whole numbers known before the kernel runs"
        first = literal(0) if stop is None or isinstance(stop, Nothing) else start_or_stop
        last = start_or_stop if stop is None or isinstance(stop, Nothing) else stop
        by = literal(1) if step is None else step
        ends = [self.static(self.plain(value), reason) for value in (first, last, by)]
        if ends[2] == 0:
            raise Refusal("np.arange's step is 0")
        found = range(*ends)
        kind = self.dtype(dtype, "int64")
        if kind.kind == "b" and len(found) > 2:
            raise Refusal("np.arange of bools has at most two, as in NumPy")

        def element(index: str) -> str:
            text = f"{found.start} + {found.step} * {index}" if (found.start, found.step) != (0, 1) else index
            return f"({kind.c})({text})" if not text.isdigit() else text_of(int(text), kind)

        return Array(kind, (len(found),), element, fresh=True)

    def _array(self, object: Value, dtype: Value | None = None) -> Value:
        dtype = None if isinstance(dtype, Nothing) else dtype
        if isinstance(object, Number | Array):
            found = self._copy(object)
            return found if dtype is None else self._python_astype(found, dtype)
        rows, shape = _leaves(object)
        parts = [self.plain(row) for row in rows]
        kind = self.dtype(dtype, np.result_type(*(part.type.numpy for part in parts)).name if parts else "float64")
        inner = parts[0].shape if parts and isinstance(parts[0], Array) else ()
        if any((part.shape if isinstance(part, Array) else ()) != inner for part in parts):
            raise Refusal("the items of an array have one shape; these differ")
        return self._assembled(parts, shape, inner, kind)

    def _asarray(self, a: Value, dtype: Value | None = None) -> Value:
        if isinstance(a, Number | Array) and (dtype is None or isinstance(dtype, Nothing)):
            return a
        return self._array(a, dtype)

    def _assembled(self, parts: list[Any], shape: tuple[int, ...], inner: tuple[int, ...], kind: Scalar) -> Array:
        array = self.storage(kind, (*shape, *inner), "array")
        for place, part in zip(np.ndindex(*shape), parts, strict=True):
            where = tuple(map(str, place))
            if isinstance(part, Number):
                self.line(f"{array.element(*where)} = {numbers.convert(part, kind).text};")
                continue
            with self.over(inner) as indices:
                found = numbers.convert(part.at(*indices), kind)
                self.line(f"{array.element(*where, *indices)} = {found.text};")
        self.settle(array)
        return array

    def static(self, number: Number, reason: str) -> int:
        """Return a whole number that is known before the kernel runs."""
        raise NotImplementedError


def stretched(shape: tuple[int, ...], indices: tuple[str, ...]) -> tuple[str, ...]:
    """Return the indices of an operand that is stretched to a larger shape."""
    last = indices[len(indices) - len(shape):]
    return tuple("0" if extent == 1 else index for extent, index in zip(shape, last, strict=True))


def _leaves(value: Value) -> tuple[list[Value], tuple[int, ...]]:
    """Return the items of nested lists, and the lists' shape."""
    if not isinstance(value, List | Tuple):
        return [value], ()
    found = [_leaves(item) for item in value.items]
    shapes = {shape for _, shape in found}
    if len(shapes) > 1:
        raise Refusal("the rows of an array have one length; these differ")
    return [leaf for leaves, _ in found for leaf in leaves], (len(found), *(shapes.pop() if shapes else ()))


def _python_type(kind: Scalar) -> str:
    return {"b": "bool", "i": "int64", "u": "int64", "f": "float64", "c": "complex128"}[kind.kind]


