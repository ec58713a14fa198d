"""Functions of the user's own, fixed at the moment of the call they are given to.

A plan is run later than it is recorded. A function in it keeps the values that its variables had when it was recorded,
so ``lambda b: np.float32(step)`` in a loop means the step of its turn. Two functions of equal code and equal captured
values are equal, so what was found out for one serves the other.
"""

from __future__ import annotations

import builtins
import dis
import functools
import types
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, eq=False, repr=False)
class UserFunction:
    """User's function with its captured values; equal by code and captured values."""

    function: Callable[..., Any]
    key: Hashable

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UserFunction) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __reduce__(self) -> tuple[Any, ...]:
        return capture, (self.function,)

    def __repr__(self) -> str:
        return getattr(self.function, "__qualname__", repr(self.function))


def capture(function: Callable[..., Any]) -> UserFunction:
    """Fix what a function captured: numbers, arrays, containers and functions of its own module are copied.

    Captured objects of other kinds are shared with the caller; such a function is equal to itself only.
    """
    snapshot = _Snapshot(getattr(function, "__globals__", None))
    fixed = snapshot.copy(function)
    try:
        key = snapshot.key(fixed)
    except _Incomparable:
        key = object()
    return UserFunction(fixed, key)


class _Incomparable(Exception):
    """A captured object that may change, or whose equality says nothing."""


class _Snapshot:
    """Copies of what one function refers to, directly or through functions of the same module."""

    def __init__(self, namespace: dict[str, Any] | None):
        self.namespace = namespace
        self.copies: dict[types.FunctionType, types.FunctionType] = {}
        self.keyed: list[types.FunctionType] = []

    def copy(self, value: Any) -> Any:
        if type(value) is np.ndarray:
            return value.copy()
        if type(value) in (list, tuple, set, frozenset):
            return type(value)(map(self.copy, value))
        if type(value) is dict:
            return {key: self.copy(item) for key, item in value.items()}
        if type(value) is functools.partial:
            return functools.partial(self.copy(value.func), *map(self.copy, value.args), **self.copy(value.keywords))
        if type(value) is types.FunctionType and value.__globals__ is self.namespace:
            return self._function(value)
        return value

    def _function(self, function: types.FunctionType) -> types.FunctionType:
        if function in self.copies:
            return self.copies[function]
        cells = tuple(types.CellType() for _ in function.__closure__ or ())
        namespace = {"__builtins__": builtins, "__name__": function.__globals__.get("__name__", "")}
        copied = types.FunctionType(function.__code__, namespace, function.__name__, None, cells or None)
        # Before what it refers to, which may be itself.
        self.copies[function] = copied
        copied.__qualname__, copied.__module__ = function.__qualname__, function.__module__
        copied.__defaults__ = self.copy(function.__defaults__)
        copied.__kwdefaults__ = self.copy(function.__kwdefaults__)
        for cell, original in zip(cells, function.__closure__ or (), strict=True):
            if _filled(original):
                cell.cell_contents = self.copy(original.cell_contents)
        for name in _global_names(function.__code__) & function.__globals__.keys():
            namespace[name] = self.copy(function.__globals__[name])
        return copied

    def key(self, value: Any) -> Hashable:
        kind = type(value)
        if value is None or kind in (bool, int, str, bytes, types.EllipsisType):
            return kind, value
        if kind in (float, complex, range):
            return kind, repr(value)
        if isinstance(value, np.generic | np.ndarray) and kind.__module__ == "numpy" and not value.dtype.hasobject:
            return kind, value.dtype.str, value.shape, value.tobytes()
        if isinstance(value, np.dtype):
            return "dtype", value.str
        if kind in (list, tuple):
            return kind, tuple(map(self.key, value))
        if kind in (set, frozenset):
            return kind, frozenset(map(self.key, value))
        if kind is dict:
            return kind, tuple((self.key(name), self.key(item)) for name, item in value.items())
        if kind is functools.partial:
            return kind, self.key(value.func), self.key(value.args), self.key(value.keywords)
        if kind is types.FunctionType:
            return self._function_key(value)
        if isinstance(value, type | types.ModuleType | types.BuiltinFunctionType):
            return "is", value
        raise _Incomparable

    def _function_key(self, function: types.FunctionType) -> Hashable:
        if function in self.keyed:
            return "recursive", self.keyed.index(function)
        if function not in self.copies.values():
            return "is", function
        self.keyed.append(function)
        referred = {name: item for name, item in sorted(function.__globals__.items()) if not name.startswith("__")}
        return (function.__code__, self.key(function.__defaults__), self.key(function.__kwdefaults__),
                tuple(self.key(cell.cell_contents) if _filled(cell) else () for cell in function.__closure__ or ()),
                self.key(referred))


def _filled(cell: types.CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - asking is the only way to know
    except ValueError:
        return False
    return True


@functools.lru_cache(maxsize=1024)
def _global_names(code: types.CodeType) -> frozenset[str]:
    """Return the global names that a function's code, or code inside it, reads."""
    return frozenset(instruction.argval for part in _codes(code) for instruction in dis.get_instructions(part)
                     if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"))


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)
