"""Guards of a definition: the lookups by which a function was read, so that a loop does not read it again.

A definition depends on the function's code and on what each name around it stands for: a number, whose value does not
count, a certain function of the library, another function with its own code. A :class:`Recipe` lists these lookups.
Following it for a function of the same code either gives the numbers as they are now, or finds that something else
stands there, and the function is read anew.
"""

from __future__ import annotations

import functools
import threading
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from vispark.translate.frontend.capture import Referable, Unbound, constant, lookup
from vispark.translate.ir.errors import Refusal
from vispark.translate.ir.nodes import Capture, Definition
from vispark.translate.language.library import is_library
from vispark.translate.language.stencil import Stencil

#: The most definitions that are kept of one code, and the most codes.
_RECIPES = 4
_CODES = 512

Check = Callable[[Any, "Following"], bool]


@dataclass
class Following:
    """Result of one walk along a recipe: the objects by step, and the numbers."""

    found: list[Any]
    captures: list[Capture] = field(default_factory=list)


#: An object that is looked up in an earlier one: the number of that, how it is looked up there and by which key, and
#: what it must be.
_Step = tuple[int, Callable[[Any, Any], Any], Any, Check]


class Recipe:
    """The lookups by which one function was read, in order; the function itself is number 0."""

    def __init__(self) -> None:
        self._steps: list[tuple[int, Callable[[Any, Any], Any], Any]] = [(0, lambda value, _: value, None)]
        self._checks: dict[int, Check] = {}
        self._fixed: dict[int, Any] = {}
        self._known: dict[tuple[int, Callable[[Any, Any], Any], Any], int] = {}
        self._spaces: list[tuple[dict[str, Any], int]] = []

    def follow(self, parent: int, get: Callable[[Any, Any], Any], key: Any) -> int:
        """Note a lookup; its number, which is that of an equal one before it."""
        step = parent, get, key
        if step not in self._known:
            self._known[step] = len(self._steps)
            self._steps.append(step)
        return self._known[step]

    def name(self, function: types.FunctionType, parent: int, name: str) -> int:
        """Note that a function reads a name; functions of one module share its variables."""
        if name not in function.__code__.co_freevars:
            parent = next(number for space, number in self._spaces if space is function.__globals__)
        return self.follow(parent, lookup, name)

    def expect(self, number: int, value: Any) -> None:
        """Require that a lookup gives the same object."""
        self._checks[number] = lambda found, _: found is value

    def expect_kind(self, number: int, value: Any) -> None:
        """Require that a lookup gives an object of the same type; of modules, the same module."""
        if isinstance(value, types.ModuleType):
            self.expect(number, value)
        else:
            kind = type(value)
            self._checks[number] = lambda found, _: type(found) is kind

    def expect_items(self, number: int, value: Sequence[Any]) -> None:
        """Require that a lookup gives a tuple or a list of the same type and length."""
        kind, length = type(value), len(value)
        self._checks[number] = lambda found, _: type(found) is kind and len(found) == length

    def expect_function(self, number: int, function: types.FunctionType) -> None:
        """Require that a lookup gives a function of the same code and the same module."""
        code = function.__code__
        first = next((known for space, known in self._spaces if space is function.__globals__), number)
        if first == number:
            self._spaces.append((function.__globals__, number))
        self._checks[number] = lambda found, walk: (
            type(found) is types.FunctionType and found.__code__ is code
            and (first == number or found.__globals__ is walk.found[first].__globals__))

    def expect_same(self, number: int, other: int) -> None:
        """Require that a lookup gives the same object as an earlier lookup."""
        if number != other:
            self._checks[number] = lambda found, walk: found is walk.found[other]

    def expect_partial(self, number: int, value: functools.partial[Any]) -> None:
        """Require that a lookup gives a partial with as many arguments and the same keywords."""
        shape = len(value.args), tuple(value.keywords)
        self._checks[number] = lambda found, _: (type(found) is functools.partial
                                                 and (len(found.args), tuple(found.keywords)) == shape)

    def expect_number(self, number: int, name: str) -> None:
        """Require that a lookup gives a number or an array, or a list of them, which is captured."""
        self._checks[number] = functools.partial(_take_number, name)

    def fix(self, number: int, value: Any) -> None:
        """Require that a lookup gives an equal number or tuple, beside what else is required of it."""
        self._fixed[number] = value

    def finished(self) -> tuple[_Step, ...]:
        """Return the lookups with their checks."""
        return tuple((*step, self._check(number)) for number, step in enumerate(self._steps))

    def _check(self, number: int) -> Check:
        check = self._checks.get(number, _anything)
        if number not in self._fixed:
            return check
        value = self._fixed[number]
        return lambda found, walk: type(found) is type(value) and found == value and check(found, walk)


#: What is captured by value.
_TAKEN = int, float, complex, np.generic, np.ndarray, list, Referable


def _anything(_: Any, __: Following) -> bool:
    return True


def _take_number(name: str, number: Any, walk: Following) -> bool:
    if not isinstance(number, _TAKEN) or isinstance(number, bool):
        return False
    walk.captures.append(Capture(name, constant(number, name)))
    return True


def bound_argument(partial: functools.partial[Any], key: int | str) -> Any:
    """Return the value that a partial binds to a parameter, by position or by name."""
    return partial.args[key] if isinstance(key, int) else partial.keywords[key]


def item(value: Any, number: int | str) -> Any:
    """Return an item of a tuple, a list or a mapping."""
    return value[number]


def default(function: types.FunctionType, name: str) -> Any:
    """Return the default value of a parameter."""
    keywords = function.__kwdefaults__ or {}
    if name in keywords:
        return keywords[name]
    code, values = function.__code__, function.__defaults__ or ()
    return values[code.co_varnames.index(name) - code.co_argcount + len(values)]


def wrapped_attribute(value: Any) -> str:
    """Return the attribute that contains the function of a callable object, such as a function compiled by Numba; empty
    for others.
    """
    if isinstance(getattr(value, "py_func", None), types.FunctionType):
        return "py_func"
    written = any(isinstance(vars(kind).get("__call__"), types.FunctionType) for kind in type(value).__mro__)
    return "__call__" if written and not is_library(type(value)) else ""


def code_of(function: Any) -> types.CodeType | None:
    """Return the code object that is the key of a callable's recipes; None for other than Python functions."""
    while not isinstance(function, types.FunctionType):
        if isinstance(function, Stencil):
            function = function.function
        elif isinstance(function, functools.partial):
            function = function.func
        elif isinstance(function, functools._lru_cache_wrapper):
            function = function.__wrapped__
        elif isinstance(function, types.MethodType):
            function = function.__func__
        elif wrapped_attribute(function):
            function = getattr(function, wrapped_attribute(function))
        else:
            return None
    return function.__code__


@dataclass(frozen=True)
class _Kept:
    definition: Definition
    steps: tuple[_Step, ...]

    def captures_of(self, function: Any) -> tuple[Capture, ...] | None:
        """Return the captures of another function by the same definition; None if the definition is not that
        function's.
        """
        walk = Following(objects := [function])
        first, *steps = self.steps
        if not first[3](function, walk):
            return None
        try:
            for parent, get, key, check in steps:
                value = get(objects[parent], key)
                if not check(value, walk):
                    return None
                objects.append(value)
        except (Unbound, Refusal, AttributeError, LookupError):
            return None
        return tuple(walk.captures)


class Recipes:
    """The definitions that were read, by code."""

    def __init__(self) -> None:
        self._kept: dict[types.CodeType, tuple[_Kept, ...]] = {}
        self._lock = threading.Lock()

    def known(self, function: Any) -> tuple[Definition, tuple[Capture, ...]] | None:
        """Return the known definition of a function and its present captures, if a recipe's checks hold; else None."""
        for recipe in self._kept.get(code, ()) if (code := code_of(function)) is not None else ():
            captures = recipe.captures_of(function)
            if captures is not None:
                return recipe.definition, captures
        return None

    def keep(self, function: Any, definition: Definition, recipe: Recipe) -> None:
        """Keep how a function was read."""
        code = code_of(function)
        assert code is not None
        with self._lock:
            recipes = self._kept.pop(code, ())
            self._kept[code] = (_Kept(definition, recipe.finished()), *recipes)[:_RECIPES]
            while len(self._kept) > _CODES:
                del self._kept[next(iter(self._kept))]
