"""A drawn function as Python runs it, and what differs from what its kernel gave."""

from __future__ import annotations

import linecache
import math
import operator
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import special

from tests.property.differential.functions import Drawn
from tests.property.differential.probe import Equal
from tests.property.differential.probes import AROUND, captured
from vispark import random
from vispark.translate.codegen.scalar.interface import ResultStructure, TableKernel

#: What Python raises where a kernel goes on with NumPy's value, or some value.
RAISED = (ArithmeticError, ValueError, IndexError)
_INT64 = np.iinfo(np.int64)
_PYTHON = {"bool": bool, "int": int, "float": float, "complex": complex}


class Missing:
    """Stands for a value that Python raised for."""

    def __init__(self, words: str):
        self.words = words


def _got(value: Callable[[], Any]) -> Any:
    try:
        return value()
    except RAISED as error:
        return Missing(f"{type(error).__name__}: {error}")


def imported(drawn: Drawn, tried: bool = False) -> Callable[..., Any]:
    """Return the function of a text, whose lines are found as a notebook's are.

    ``tried``: each of its values is computed by itself, so that one that raises does not hide the others.
    """
    file = f"<drawn {drawn.seed} {drawn.dtype}>"
    text = AROUND + drawn.source("got(lambda: {})" if tried else "{}")
    if not tried:
        linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file
    around: dict[str, Any] = {"np": np, "math": math, "operator": operator, "special": special,
                              "random": random, "got": _got, **captured(drawn.dtype)}
    exec(compile(text, file, "exec"), around)
    return around["f"]


@dataclass(frozen=True, eq=False)
class Expected:
    """Result of Python: for each element the values, or None where it raised; ``refused`` where it always did, with
    what the last said.
    """

    results: list[Any]
    refused: str = ""
    mistyped: bool = False


def expected(drawn: Drawn) -> Expected:
    """Call the function on each element, with NumPy scalars and rows."""
    results, words, mistyped = [], "", False
    fn = imported(drawn, tried=True)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for number in range(len(next(iter(drawn.fields.values())))):
            try:
                one = drawn.called(fn, number)
            except RAISED as error:
                one, words = None, f"{type(error).__name__}: {error}"
            except TypeError as error:
                one, words, mistyped = None, f"TypeError: {error}", True
            if one is not None:
                values = tuple(one.values()) if drawn.named else one
                missing = [value.words for value in values if isinstance(value, Missing)]
                one, words = (one, words) if len(missing) < len(values) else (None, missing[0])
            results.append(one)
    return Expected(results, words if all(one is None for one in results) else "", mistyped)


@dataclass(frozen=True)
class Difference:
    """Place where a kernel and Python differ."""

    element: int
    path: str
    words: str


def _flat(structure: ResultStructure, value: Any, path: str, parts: list[tuple[int, str, Any]]) -> None:
    """Collect a result's numbers and arrays, with the outputs that hold them."""
    if isinstance(value, Missing):
        return
    if structure.kind == "value":
        parts.append((structure.output, path, value))
        return
    if structure.kind == "dict":
        items = [value[name] for name in structure.names]
    else:
        if not isinstance(value, tuple) or len(value) != len(structure.items):
            raise TypeError(f"result{path} is {value!r}, and no tuple of {len(structure.items)}")
        items = list(value)
    for number, (item, part) in enumerate(zip(structure.items, items, strict=True)):
        _flat(item, part, f"{path}[{number}]", parts)


def compared(kernel: TableKernel, results: Sequence[Any], outputs: Sequence[np.ndarray],
             equals: Sequence[Equal], of_complex: bool) -> tuple[Difference | None, int]:
    """Return the first difference, and the number of elements that were compared."""
    if of_complex:
        equals = [replace(equal, units=max(equal.units, equal.parts)) for equal in equals]
    columns: dict[int, list[tuple[int, Any]]] = {}
    paths: dict[int, str] = {}
    count = 0
    for element, result in enumerate(results):
        if result is None:
            continue
        count += 1
        parts: list[tuple[int, str, Any]] = []
        try:
            _flat(kernel.structure, result, "", parts)
        except TypeError as error:
            return Difference(element, "", str(error)), count
        for output, path, value in parts:
            columns.setdefault(output, []).append((element, value))
            paths[output] = path
    for output, pairs in columns.items():
        equal = equals[int(paths[output].split("]")[0].removeprefix("["))] if paths[output] else equals[0]
        different = _column(kernel.outputs[output], pairs, outputs[output], equal)
        if different is not None:
            return Difference(different[0], paths[output], different[1]), count
    return None, count


def _column(output: Any, pairs: list[tuple[int, Any]], array: np.ndarray, equal: Equal) -> tuple[int, str] | None:
    wanted, places = [], []
    for element, value in pairs:
        if type(value) is int and not _INT64.min <= value <= _INT64.max:
            # A Python int has 64 bits here.
            continue
        lack = _mistyped(output, value, equal)
        if lack:
            return element, lack
        wanted.append(value)
        places.append(element)
    if not wanted:
        return None
    with np.errstate(all="ignore"):
        one = np.array([np.asarray(value).astype(array.dtype) for value in wanted] if equal.promoted else wanted,
                       array.dtype)
        other = array[places]
        same = _same(one, other, equal)
    if same.all():
        return None
    place = int(np.argmin(same.reshape(len(places), -1).all(axis=1)))
    return places[place], f"Python gave {wanted[place]!r}, the kernel {other[place]!r}"


def _mistyped(output: Any, value: Any, equal: Equal) -> str:
    """Return in which way a value is of another type than the kernel's output; empty if it is not."""
    if np.shape(value) != output.shape:
        return f"Python gave the shape {np.shape(value)}, the kernel {output.shape}"
    if equal.promoted:
        return ""
    if isinstance(value, np.generic | np.ndarray):
        alike = not output.number and value.dtype.name == output.dtype
        return "" if alike else f"Python gave {value.dtype}, the kernel {output.number or output.dtype}"
    if output.number and type(value) is _PYTHON[output.number]:
        return ""
    return f"Python gave {type(value).__name__}, the kernel {output.number or output.dtype}"


def _same(one: np.ndarray, other: np.ndarray, equal: Equal) -> np.ndarray:
    kind = one.dtype.kind
    if kind not in "fc":
        return one == other
    if kind == "c":
        if not equal.units:
            return _same_floats(one.real, other.real, equal) & _same_floats(one.imag, other.imag, equal)
        limits = np.finfo(one.dtype)
        tolerance = limits.eps * (equal.units * np.abs(one) + equal.absolute) + limits.tiny
        return (np.abs(one - other) <= tolerance) | (one == other) | (~np.isfinite(one) & ~np.isfinite(other))
    return _same_floats(one, other, equal)


def _same_floats(one: np.ndarray, other: np.ndarray, equal: Equal) -> np.ndarray:
    both = np.isnan(one) & np.isnan(other)
    if not (equal.units or equal.absolute):
        signs = equal.zero | (np.signbit(one) == np.signbit(other))
        return both | ((one == other) & signs)
    limits = np.finfo(one.dtype)
    wide, narrow = one.astype(np.longdouble), other.astype(np.longdouble)
    tolerance = limits.eps * (equal.units * np.abs(wide) + equal.absolute) + equal.units * limits.smallest_subnormal
    # What rounds to the last number before infinity may as well round to infinity, in Python or in the kernel.
    near = limits.max * (1 - equal.units * limits.eps)
    last = (np.abs(wide) >= near) & (np.abs(narrow) >= near) & (np.sign(wide) == np.sign(narrow))
    return both | (one == other) | last | (np.isfinite(one) & np.isfinite(other) & (np.abs(wide - narrow) <= tolerance))
