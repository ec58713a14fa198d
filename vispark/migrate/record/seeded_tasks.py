"""Random numbers of tasks, seeded by partition and function: two runs of a program then draw the same in its tasks.

Python workers import this module; a function that draws is wrapped where its RDD is made.
"""

from __future__ import annotations

import contextlib
import functools
import random
import types
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from pyspark import RDD

#: The generators that modules keep, whose methods draw without a seed.
_GENERATORS = random.Random, np.random.RandomState
_DEPTH = 6

Partitioned = Callable[[int, Iterator[Any]], Iterator[Any]]


class SeededFunction:
    """Function of a partition that seeds the generators of ``random`` and ``numpy.random`` before it begins."""

    def __init__(self, function: Partitioned, seed: int):
        self.function, self.seed = function, seed

    def __call__(self, index: int, records: Iterator[Any]) -> Iterator[Any]:
        random.seed(self.seed + index)
        np.random.seed((self.seed + index) % 2**32)
        return self.function(index, records)


def drawing(function: Any, depth: int = _DEPTH) -> types.CodeType | None:
    """Return the code that draws random numbers, of a function or of one that it calls; None if none of them does.

    Examples
    --------
    >>> drawing(lambda r: np.random.ranf(size=3)) is not None, drawing(lambda r: r + 1) is None
    (True, True)
    """
    function = getattr(function, "__func__", function)
    if not depth or not isinstance(function, types.FunctionType):
        return None
    for code in _codes(function.__code__):
        if "random" in code.co_names or any(_draws(function.__globals__.get(name)) for name in code.co_names):
            return code
    called = [function.__globals__.get(name) for name in function.__code__.co_names]
    inside = (drawing(each, depth - 1) for each in (*_captured(function), *called))
    return next((code for code in inside if code is not None), None)


def seed_tasks(noted: Callable[[], None]) -> None:
    """Have RDDs seed functions that draw, from now on.

    Parameters
    ----------
    noted : callable
        Called when there is such a function.
    """
    original = RDD.mapPartitionsWithIndex

    def seeded(self: RDD[Any], f: Any, preservesPartitioning: bool = False) -> RDD[Any]:
        code = drawing(f)
        if code is not None:
            noted()
            f = SeededFunction(f, zlib.crc32(code.co_code))
        return original(self, f, preservesPartitioning)

    setattr(RDD, "mapPartitionsWithIndex", functools.wraps(original)(seeded))      # noqa: B010 - as for takeSample


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


def _draws(value: Any) -> bool:
    """Return whether an object is a function of a module's own generator, such as ``from random import random``."""
    return value is random or isinstance(getattr(value, "__self__", None), _GENERATORS)


def _captured(function: types.FunctionType) -> Iterator[Any]:
    """Yield the values that a function captured, as far as something is bound to their names."""
    for cell in function.__closure__ or ():
        with contextlib.suppress(ValueError):
            yield cell.cell_contents
