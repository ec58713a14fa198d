"""Capture of values from a function's surroundings: variables of closures and modules, and arguments."""

from __future__ import annotations

import builtins
import functools
import struct
import types
from abc import abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np

from gpu_worker.protocol.shared import captured
from vispark.translate.ir.errors import Refusal
from vispark.translate.ir.nodes import Constant, Definition
from vispark.translate.ir.references import Described
from vispark.translate.ir.source_text import at_definition
from vispark.translate.ir.types import scalar_of

_INT64 = np.iinfo(np.int64)

#: Python's types to the dtype that holds them, and how they are packed.
_WEAK = {bool: ("|b1", struct.Struct("<?")), int: ("<i8", struct.Struct("<q")), float: ("<f8", struct.Struct("<d")),
         complex: ("<c16", struct.Struct("<dd"))}


#: The most numbers and arrays of a list that is taken item by item: each is a parameter of the kernel.
MOST_ITEMS = 256

#: As tuples: a union of types is made anew each time that it is written.
_NUMBERS, _ARRAYS = (bool, int, float, complex), (np.ndarray, np.generic)


class Referable:
    """Interface of an object that functions can take as an array by reference."""

    @abstractmethod
    def constant(self, what: str) -> Constant:
        """Return the array by reference, or by value where no worker can hold it; ``what`` names it in errors.

        Raises
        ------
        Refusal
            If it is no array of one shape.
        """


class Unbound(Exception):
    """A name that nothing is bound to."""


def constant(value: Any, what: str) -> Constant:
    """Return a number or an array by value; lists and tuples of numbers or arrays are converted as NumPy does.

    Raises
    ------
    Refusal
        If it is neither, its items differ in shape or type, or it is of a dtype that kernels do not have; ``what`` is
        what the message calls it.
    """
    if isinstance(value, _NUMBERS) and not isinstance(value, np.generic):
        if isinstance(value, int) and not _INT64.min <= value <= _INT64.max:
            raise Refusal(f"{what} is {value}, which does not fit 64 bits")
        dtype, packed = _WEAK[bool if isinstance(value, bool) else int if isinstance(value, int) else
                              float if isinstance(value, float) else complex]
        parts = (value.real, value.imag) if isinstance(value, complex) else (value,)
        return Constant(dtype, (), packed.pack(*parts), True)
    if isinstance(value, Described):
        return Constant(_held(value.dtype, what).str, value.shape, b"")
    if isinstance(value, Referable):
        return value.constant(what)
    if isinstance(value, _ARRAYS) and not isinstance(value, np.ma.MaskedArray):
        held = _held(value.dtype, what)
        return Constant(held.str, value.shape, captured(value if value.dtype is held else np.asarray(value, held)))
    if is_named_tuple(type(value)):
        raise Refusal(f"{what} is a named tuple, whose fields an array has not; read it as a variable from around the "
                      "function, or make it an array")
    if isinstance(value, list | tuple):
        return _stacked(value, what)
    if value is None:
        raise Refusal(f"{what} is None, which a kernel cannot take; leave it out where None is the parameter's default,"
                      " or bind it: functools.partial(f, name=None)")
    raise Refusal(f"{what} is {_article(type(value).__name__)}, which a kernel cannot take; it takes numbers, NumPy"
                  " arrays and lists of these")


def _stacked(value: list[Any] | tuple[Any, ...], what: str) -> Constant:
    """Return items of one shape and type as an array, as ``np.asarray`` makes it."""
    kind = type(value).__name__
    items = [constant(item, f"{what}[{number}]") for number, item in enumerate(value)]
    if not items:
        raise Refusal(f"{what} is an empty {kind}, whose items' type is not known; make it an array: np.zeros(0)")
    first = items[0]
    for number, item in enumerate(items):
        if (item.dtype, item.shape, item.weak) != (first.dtype, first.shape, first.weak):
            raise Refusal(f"{what} is a {kind} whose items differ, and a kernel takes it as one array: {what}[0] is "
                          f"{_described(first)}, and {what}[{number}] {_described(item)}")
    return Constant(first.dtype, (len(items), *first.shape), b"".join([bytes(item.data) for item in items]))


def _described(item: Constant) -> str:
    dtype = np.dtype(item.dtype).name
    return f"of the shape {item.shape} of {dtype}" if item.shape else f"a Python {type(item.number).__name__}" \
        if item.weak else f"a {dtype}"


def argument(definition: Definition, value: Any, number: int) -> Constant:
    """Return a function's argument by value; ``number`` counts from 0.

    Raises
    ------
    TranslationError
        As :func:`constant`, at the function's definition.
    """
    try:
        return constant(value, f"argument {number + 1}")
    except Refusal as error:
        raise at_definition(definition, str(error)) from error


@functools.lru_cache(maxsize=256)
def _held(dtype: np.dtype, what: str) -> np.dtype:
    return scalar_of(dtype, what).numpy


def is_taken_apart(value: list[Any]) -> bool:
    """Return whether a list can be read item by item: a nesting of tuples and lists with few enough numbers and arrays.

    Examples
    --------
    >>> is_taken_apart([(0, 0.5), (1, 2.5)]), is_taken_apart([]), is_taken_apart(["a"])
    (True, True, False)
    """
    parts = list(_parts(value))
    return len(parts) <= MOST_ITEMS and all(isinstance(each, (*_NUMBERS, *_ARRAYS)) for each in parts)


def _parts(value: Any) -> Iterator[Any]:
    """Yield the parts of lists and tuples, down to those that are neither."""
    if type(value) in (list, tuple) or is_named_tuple(type(value)):
        for item in value:
            yield from _parts(item)
    else:
        yield value


def is_named_tuple(kind: Any) -> bool:
    """Return whether a class is one that ``namedtuple`` or ``NamedTuple`` made.

    Examples
    --------
    >>> from collections import namedtuple
    >>> is_named_tuple(namedtuple("Point", "x y")), is_named_tuple(tuple)
    (True, False)
    """
    return isinstance(kind, type) and tuple in kind.__bases__ \
        and hasattr(kind, "_field_defaults") and hasattr(kind, "_fields")


def lookup(function: types.FunctionType, name: str) -> Any:
    """Return the value that a free name has in a function now.

    Raises
    ------
    Unbound
        If it has none.
    """
    names = function.__code__.co_freevars
    if name in names:
        try:
            return (function.__closure__ or ())[names.index(name)].cell_contents
        except ValueError as error:
            raise Unbound(name) from error
    if name in function.__globals__:
        return function.__globals__[name]
    try:
        return getattr(builtins, name)
    except AttributeError as error:
        raise Unbound(name) from error


def _article(word: str) -> str:
    return f"{'an' if word[:1].lower() in 'aeiou' else 'a'} {word}"
