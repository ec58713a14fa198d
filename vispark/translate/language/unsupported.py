"""Error messages for what the language lacks, and the names of Python's operators in the intermediate form."""

from __future__ import annotations

import ast
import types
from typing import Any

import numpy as np

from vispark.translate.language import library, registry

BINARY = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%", ast.Pow: "**",
           ast.LShift: "<<", ast.RShift: ">>", ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^", ast.MatMult: "@"}
UNARY = {ast.USub: "-", ast.UAdd: "+", ast.Invert: "~", ast.Not: "not"}
COMPARE = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=", ast.Is: "is",
            ast.IsNot: "is not", ast.In: "in", ast.NotIn: "not in"}

LACKING = {
    ast.Try: "try is not supported: a kernel cannot raise; test for the case with if",
    ast.Raise: "raise is not supported: a kernel cannot raise; return a value that marks the case",
    ast.Assert: "assert is not supported: a kernel cannot raise; return a value that marks the case",
    ast.With: "with is not supported: a kernel holds no resources",
    ast.Import: "import is not supported inside a translated function; import at the top of the module",
    ast.ImportFrom: "import is not supported inside a translated function; import at the top of the module",
    ast.Global: "global is not supported: a kernel cannot change what is outside it; return the value",
    ast.Nonlocal: "nonlocal is not supported: a kernel cannot change what is outside it; return the value",
    ast.Delete: "del is not supported; a local ends with the function",
    ast.ClassDef: "a class is not supported inside a translated function; use tuples",
    ast.AsyncFunctionDef: "async is not supported; write a plain function",
    ast.AsyncFor: "async is not supported; write a plain loop",
    ast.AsyncWith: "async is not supported; a kernel holds no resources",
    ast.Match: "match is not supported; use if, elif and else",
    ast.Yield: "yield is not supported: a kernel gives one result per element; return a tuple or an array",
    ast.YieldFrom: "yield is not supported: a kernel gives one result per element; return a tuple or an array",
    ast.Await: "await is not supported; write a plain function",
    ast.SetComp: "a set is not supported; use an array of fixed length",
    ast.Set: "a set is not supported; use an array of fixed length",
    ast.DictComp: "a dict comprehension is not supported; write the dict with its names",
    ast.JoinedStr: "a string is not supported: kernels work on numbers",
    ast.NamedExpr: "the := operator is not supported here; assign on a line of its own",
    ast.Starred: "* stands before an argument, or before one of several names, only",
}
METHODS_WITH_EFFECT = ("append", "extend", "insert", "pop", "remove", "sort", "fill", "update", "add", "write",
                        "resize", "put", "itemset", "clear", "setdefault", "reverse")


#: Types of Python whose methods and attributes users may ask numbers for.
PYTHON_NUMBERS = {kind.__name__: kind for kind in (bool, int, float, complex)}

_NO_TEXT = "a kernel makes no text or bytes: make them of what collect() gives"
_INSTEAD_OF = {
    "hex": _NO_TEXT, "to_bytes": _NO_TEXT, "tobytes": _NO_TEXT, "tostring": _NO_TEXT,
    "as_integer_ratio": "math.frexp(x) takes a float apart",
    "numerator": "an int is its own numerator", "denominator": "that of an int is 1",
    "view": "exec with a kernel reads the bits of a number as another type",
    "byteswap": "numbers are in the machine's order here, and come back in that of the records",
    "index": "np.argmax(np.array(values) == x) is the first place",
    "count": "np.count_nonzero(p == x) counts",
    "tolist": "a row is gone over as it is",
}


def attribute_lacks(name: str, of: str = "") -> str:
    """Return the error's text for an attribute that the language lacks, with the attributes that it has; ``of`` is the
    name that the attribute is taken of, if it is a name.
    """
    there = ", .".join(library.PROPERTIES) + " and the methods ." + "(), .".join(sorted(registry.methods())) + "()"
    instead = f"{_INSTEAD_OF[name]}; " if name in _INSTEAD_OF else ""
    if of and not instead and not _is_of_numbers(name):
        field = "x" if name == "get" else name
        instead = f'where {of} is a record with a field {field}, write {of}["{field}"]; '
    return f"values have no .{name} here; {instead}there are .{there}"


def _is_of_numbers(name: str) -> bool:
    return name.startswith("__") or any(hasattr(kind, name) for kind in (*PYTHON_NUMBERS.values(), np.ndarray))


def unbound(kind: str, name: str) -> str:
    """Return the end of an error's text for a method of a type of Python's that is asked of the type itself.

    Examples
    --------
    >>> unbound("int", "bit_count")
    '; write x.bit_count()'
    """
    if name in registry.methods():
        return f"; write x.{name}()"
    return f"; {_INSTEAD_OF[name]}" if name in _INSTEAD_OF else ": kernels work on numbers"


_INSTEAD_OF_NUMPY = {
    "unique": "has as many items as there are distinct values, which is not known before the kernel runs; their number "
              "is 1 + np.count_nonzero(np.diff(np.sort(p)))",
    "nonzero": "has as many items as are not zero, which is not known before the kernel runs; np.where(p != 0, a, b), "
               "and np.argmax(p != 0) for the first",
    "histogram": "is not supported; np.array([((p >= a) & (p < b)).sum() for a, b in zip(edges[:-1], edges[1:])])",
    "solve": "is not supported; write the elimination as loops over an array of np.zeros, or use exec with a kernel",
    "correlate": "is not supported; np.convolve(a, v[::-1], mode) is that of real numbers",
    "bincount": "has as many items as its largest number says, which is not known before the kernel runs; of numbers "
                "below n it is np.array([np.count_nonzero(p == k) for k in range(n)])",
    "piecewise": "is not supported; write np.where(test, a, b), or np.select of several tests",
    "vectorize": "is not supported; write np.array([f(v) for v in p])",
    "apply_along_axis": "is not supported; write np.array([f(row) for row in m])",
    "finfo": "is not supported; make its number a variable outside the function: eps = np.finfo(np.float32).eps",
    "cov": "is not supported; of two rows it is ((a - a.mean()) * (b - b.mean())).sum() / (len(a) - 1)",
    "delete": "is not supported; write np.concatenate((p[:k], p[k + 1:]))",
    "insert": "is not supported; write np.concatenate((p[:k], np.array([x]), p[k:]))",
    "array_equal": "is not supported; write np.all(a == b)",
    "indices": "is not supported; write np.arange(n)[:, None] and np.arange(m)",
    "meshgrid": "is not supported; write x[None, :] and y[:, None]",
    "broadcast_to": "is not supported; arithmetic broadcasts by itself",
}
for _same, _as in (("flatnonzero", "nonzero"), ("argwhere", "nonzero"), ("compress", "nonzero"), ("extract", "nonzero"),
                   ("inv", "solve"), ("det", "solve"), ("lstsq", "solve"), ("cholesky", "solve"),
                   ("iinfo", "finfo"), ("corrcoef", "cov")):
    _INSTEAD_OF_NUMPY[_same] = _INSTEAD_OF_NUMPY[_as]


def did_you_mean(value: Any, short: str = "") -> str:
    """Return the end of an error's text for a function that the language lacks, or a name that a module lacks."""
    module = getattr(value, "__name__", "") if short else _module_of(value)
    nearest = registry.nearest(f"{module}.{short or getattr(value, '__name__', '')}") if module else None
    return f"; the nearest is {nearest.replace('numpy', 'np', 1)}" if nearest else ""


def _module_of(value: Any) -> str:
    """Return the module that users take a function from; a ufunc does not say its own."""
    return "numpy" if isinstance(value, np.ufunc) else getattr(value, "__module__", None) or ""


def why_not(value: Any, name: str) -> str:
    """Return the reason why an object from a function's surroundings is no value of the language, with an alternative.
    """
    if value is print:
        return ("print is not supported: a kernel has no output; return the value, and print what collect() or "
                "take() gives")
    if isinstance(value, types.ModuleType):
        return f"the module {name} is no value; use one of its functions"
    if isinstance(value, dict):
        return (f"{name} is a dict, which a kernel cannot take as a whole; write the key of the item that is wanted, "
                f'{name}["key"], or its own variable')
    if isinstance(value, set | frozenset | str | bytes):
        return (f"{name} is a {type(value).__name__}, which a kernel cannot take; it takes numbers, arrays and "
                "tuples")
    if value is map or value is filter:
        return f"{name} is not supported; write a generator, as in sum(f(v) for v in p if v > 0)"
    if value is next:
        return f"{name} is not supported; write a loop with break, or np.argmax(p > x) for the first place"
    if getattr(value, "__module__", "") == "itertools":
        return f"{name} is not supported; write loops over range(), or np.cumsum(p) for sums so far"
    if library.is_random(value):
        return (f"{name} is not supported: a kernel draws no random numbers; draw them before, and make them a field "
                "or an argument")
    instead = _INSTEAD_OF_NUMPY.get(getattr(value, "__name__", ""), "") if library.is_library(value) else ""
    if instead:
        return f"{name} {instead}"
    if library.is_library(value):
        return (f"{name} is not among the functions that can be translated; python -m vispark.translate lists them"
                f"{did_you_mean(value)}")
    if isinstance(value, types.MethodType):
        return f"{name} is a method; call a plain function with the numbers it needs"
    return (f"{name} is a {type(value).__name__}, which a kernel cannot take; it takes numbers, arrays, tuples and "
            "plain functions")
