"""Count of the arithmetic of a function of a record, by arrays that note what is done with them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from vispark.migrate.predict.physics import EXP, PRODUCT
from vispark.migrate.rules.functions import OF_THE_USER

#: Functions that are counted by their calls: a device's rate of them is one of its own.
TRANSCENDENTAL = frozenset([
    "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "logaddexp", "power", "float_power", "sin", "cos", "tan",
    "arcsin", "arccos", "arctan", "arctan2", "sinh", "cosh", "tanh"])
#: Operations that one result of a function takes, in those of an addition; 1 of all others.
COSTS = dict.fromkeys(("divide", "floor_divide", "remainder", "sqrt", "reciprocal"), 4)
#: Functions of NumPy's that are no ufuncs, and how many operations each number of the result takes for an inner axis.
_PRODUCTS = frozenset(["dot", "inner", "vdot", "matmul"])


class CountingArray(np.ndarray):
    """Array that notes the operations of which it is an operand."""

    counts: Counter[str]

    def __array_finalize__(self, made_of: Any) -> None:
        self.counts = made_of.counts if isinstance(made_of, CountingArray) else Counter()

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        plain = [np.asarray(each) if isinstance(each, CountingArray) else each for each in inputs]
        if options.get("out"):
            options["out"] = tuple(np.asarray(each) if isinstance(each, CountingArray) else each
                                   for each in options["out"])
        result = getattr(ufunc, method)(*plain, **options)
        first = result[0] if isinstance(result, tuple) else result
        numbers = np.size(plain[0]) if method in ("reduce", "accumulate") else np.size(first)
        if ufunc is np.matmul:
            self._note(numbers * 2 * np.shape(plain[0])[-1], *plain, first, kind=_kind_of_product(plain))
        else:
            kind = EXP if ufunc.__name__ in TRANSCENDENTAL else ""
            self._note(numbers * COSTS.get(ufunc.__name__, 1), *plain, first, kind=kind)
        return tuple(map(self._counting, result)) if isinstance(result, tuple) else self._counting(result)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if func.__name__ not in _PRODUCTS or len(args) < 2:
            return super().__array_function__(func, types, args, kwargs)
        plain = [np.asarray(each) for each in args]
        result = func(*plain, **kwargs)
        self._note(2 * np.size(result) * np.shape(plain[0])[-1] if plain[0].ndim else np.size(result), *plain,
                   kind=_kind_of_product(plain))
        return self._counting(result)

    def dot(self, other: Any, out: Any = None) -> Any:
        """Return the product, as NumPy's method does."""
        return np.dot(self, other)

    def _note(self, operations: float, *operands: Any, kind: str = "") -> None:
        dtype = np.result_type(*[each for each in operands if isinstance(each, np.ndarray | np.generic)], np.bool_)
        self.counts[("float64" if dtype in (np.float64, np.complex128) else "float32") + kind] += int(operations)

    def _counting(self, value: Any) -> Any:
        return _counted(value, self.counts)


def _kind_of_product(operands: Sequence[Any]) -> str:
    """Return the kind of a product: one with a matrix has a rate of its own, that of two rows is arithmetic."""
    return PRODUCT if max(each.ndim for each in operands) > 1 else ""


def _counted(value: Any, counts: Counter[str]) -> Any:
    """Return a value whose numbers and arrays note what is done with them."""
    if isinstance(value, tuple):
        return tuple([_counted(each, counts) for each in value])
    if isinstance(value, np.ndarray | np.generic | float) or type(value) is int:
        counted = np.asarray(value).view(CountingArray)
        counted.counts = counts
        return counted
    return value


def operations_of(functions: Sequence[tuple[Callable[..., Any], str]], records: Iterable[Any]) -> dict[str, float]:
    """Return the operations by dtype and kind that a chain takes for one record; empty where that is not known.

    Parameters
    ----------
    functions : sequence of (function, of)
        Of the chain, from the first on; ``of`` is "value" where a function is of pairs' values.
    records : iterable
        Records that the first one is of. The functions are called with them.

    Examples
    --------
    >>> w = np.ones(3)
    >>> operations_of([(lambda p: np.exp(p @ w), "")], [np.zeros(3)])
    {'float64': 6.0, 'float64 exp': 1.0}
    """
    counts: Counter[str] = Counter()
    number = 0
    try:
        for record in records:
            value = _counted(record, counts)
            for function, of in functions:
                value = (value[0], function(value[1])) if of == "value" else function(value)
            number += 1
    except OF_THE_USER:
        return {}
    return {dtype: count / number for dtype, count in counts.items()} if number else {}
