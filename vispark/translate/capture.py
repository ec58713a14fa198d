"""What a function takes from around it, by value: the variables of closures and modules, and arguments."""

from __future__ import annotations

import builtins
import functools
import struct
import types
from typing import Any

import numpy as np

from vispark.translate.errors import Refusal
from vispark.translate.form import Constant, Definition
from vispark.translate.text import at_definition
from vispark.translate.types import scalar_of

_INT64 = np.iinfo(np.int64)

#: Python's types to the dtype that holds them, and how they are packed.
_WEAK = {bool: ("|b1", struct.Struct("<?")), int: ("<i8", struct.Struct("<q")), float: ("<f8", struct.Struct("<d")),
         complex: ("<c16", struct.Struct("<dd"))}


class Unbound(Exception):
    """A name that nothing is bound to."""


def constant(value: Any, what: str) -> Constant:
    """A number or an array by value.

    Raises
    ------
    Refusal
        If it is neither, or of a dtype that kernels do not have; ``what`` is what the message calls it.
    """
    if isinstance(value, bool | int | float | complex) and not isinstance(value, np.generic):
        if isinstance(value, int) and not _INT64.min <= value <= _INT64.max:
            raise Refusal(f"{what} is {value}, which does not fit 64 bits")
        dtype, packed = _WEAK[bool if isinstance(value, bool) else int if isinstance(value, int) else
                              float if isinstance(value, float) else complex]
        parts = (value.real, value.imag) if isinstance(value, complex) else (value,)
        return Constant(dtype, (), packed.pack(*parts), True)
    if isinstance(value, np.ndarray | np.generic) and not isinstance(value, np.ma.MaskedArray):
        held = _held(value.dtype, what)
        data = value.tobytes() if value.dtype is held else np.asarray(value, dtype=held).tobytes()
        return Constant(held.str, value.shape, data)
    instead = "; make it one: np.array([...])" if isinstance(value, list | tuple) else ""
    raise Refusal(f"{what} is {_article(type(value).__name__)}, which a kernel cannot take; it takes numbers and NumPy"
                  f" arrays{instead}")


def argument(definition: Definition, value: Any, number: int) -> Constant:
    """A function's argument by value; ``number`` counts from 0.

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


def lookup(function: types.FunctionType, name: str) -> Any:
    """The value that a free name has in a function now.

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
    if hasattr(builtins, name):
        return getattr(builtins, name)
    raise Unbound(name)


def _article(word: str) -> str:
    return f"{'an' if word[:1].lower() in 'aeiou' else 'a'} {word}"
