"""Registry of the functions of Python, ``math``, ``operator`` and NumPy that a translated function may call.

Each is registered once, where it is written: its name, its parameters, and either its lowering to C++
(:func:`lowers`, in ``vispark/translate/codegen``) or a function in the language itself that stands in its place
(:func:`written_as`, in ``composed.py``). The reader looks functions up here, a call is bound to the parameters that are
written here, and the tables of the documentation are made from it.
"""

from __future__ import annotations

import builtins
import difflib
import functools
import importlib
import math
import operator
import sys
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

#: The modules that register functions as they are imported; the first look-up imports them.
PROVIDERS = ("vispark.translate.language.composed", "vispark.translate.language.linear_algebra",
             "vispark.translate.language.special",
             "vispark.translate.codegen.library")

_MODULES = {"": builtins, "math": math, "operator": operator, "functools": functools, "numpy": np,
            "numpy.linalg": np.linalg, "numpy.lib.stride_tricks": np.lib.stride_tricks}

#: Modules whose functions are looked up only where the program has imported them.
OPTIONAL = ("scipy.special",)

_Decorated = TypeVar("_Decorated", bound=Callable[..., Any])


@dataclass
class LibraryFunction:
    """A function that a translated function may call.

    Attributes
    ----------
    name : str
        Its module and name, as ``numpy.append``; Python's own, and what only methods of arrays are, without a module.
    parameters : str
        Its parameters in their order: ``=`` has a default, ``!`` is refused, ``/`` and ``*`` are as in Python.
    lowering : callable or None
        Writes a call, from an emitter and the arguments' values; None for what is written in the language itself, and
        for what is more than a function of values, as ``range``.
    written : function or None
        Read by the translator in its place.
    instead : mapping
        By refused parameters, what to write in their place.
    family : str
        "ufunc", "operator" or "type" for those that are registered by the dozen; "check" for what only functions that
        are written in the language call.
    """

    name: str
    parameters: str
    lowering: Callable[..., Any] | None = None
    written: Callable[..., Any] | None = None
    instead: Mapping[str, str] = field(default_factory=dict)
    family: str = ""


_functions: dict[str, LibraryFunction] = {}
_names: dict[Hashable, str] = {}
_methods: dict[str, str] = {}
_variants: dict[tuple[str, type], Callable[..., Any]] = {}


# -- registration -----------------------------------------------------------------------------------------------------

def register(name: str, parameters: str, lowering: Callable[..., Any] | None = None, *,
             written: Callable[..., Any] | None = None, method: str = "", alias: str = "", value: Any = None,
             instead: Mapping[str, str] | None = None, family: str = "") -> None:
    """Register a function; :func:`lowers` and :func:`written_as` are the decorators for it.

    Parameters
    ----------
    name, parameters, lowering, written, instead, family
        As :class:`LibraryFunction` has them.
    method : str
        The method of numbers and arrays that it is; several names have a space between them.
    alias : str
        A second name that NumPy has an object of its own under.
    value : object, optional
        What users write; left out, what the module has under the name, if it has it.

    Raises
    ------
    ValueError
        If the name, the object or the method is registered already.
    """
    if name in _functions:
        raise ValueError(f"{name} is registered twice, by {_place(_functions[name])} and by "
                         f"{_place(LibraryFunction(name, parameters, lowering, written))}")
    _functions[name] = LibraryFunction(name, parameters, lowering, written, instead or {}, family)
    for one in (value if value is not None else _object(name), _object(alias) if alias else None):
        if one is None:
            continue
        if one in _names:
            raise ValueError(f"{name} is the same object as {_names[one]}, which is registered already")
        _names[one] = name
    for one in method.split():
        if one in _methods:
            raise ValueError(f"the method {one} is registered twice, as {_methods[one]} and as {name}")
        _methods[one] = name


def lowers(name: str, parameters: str, *, method: str = "", alias: str = "", value: Any = None,
           instead: Mapping[str, str] | None = None) -> Callable[[_Decorated], _Decorated]:
    """Register the decorated function as the lowering of a library function, as :func:`register` says.

    It takes the emitter, then what the parameters that are not refused are given, as values; it returns a value.

    Examples
    --------
    ::

        @lowers("numpy.append", "arr values axis!", instead={"axis": "use np.concatenate"})
        def append(emit, arr, values):
            ...

    >>> function("numpy.append").parameters
    'arr values axis!'
    """
    def add(lowering: _Decorated) -> _Decorated:
        register(name, parameters, lowering, method=method, alias=alias, value=value, instead=instead)
        return lowering
    return add


def lowers_for(kind: type, *names: str) -> Callable[[_Decorated], _Decorated]:
    """Register the decorated function as the lowering of library functions whose first argument is of a type.

    It takes the emitter, the function's name and a call's arguments; NotImplemented leaves the call to the function's
    own lowering.

    Raises
    ------
    ValueError
        If there is one already.
    """
    def add(lowering: _Decorated) -> _Decorated:
        for name in names:
            if (name, kind) in _variants:
                raise ValueError(f"{name} of {kind.__name__} is registered twice")
            _variants[name, kind] = functools.partial(lowering, name=name)
        return lowering
    return add


def written_as(name: str, parameters: str, *,
               instead: Mapping[str, str] | None = None) -> Callable[[_Decorated], _Decorated]:
    """Register the decorated function, which the translator reads in place of a library function."""
    def add(written: _Decorated) -> _Decorated:
        register(name, parameters, written=written, instead=instead)
        return written
    return add


def _object(name: str) -> Any:
    """Return the object of a name, or None: an older NumPy lacks some, and methods are no functions."""
    module, _, short = name.rpartition(".")
    return getattr(_MODULES.get(module), short, None)


def _place(entry: LibraryFunction) -> str:
    """Return the name of what registers a function, for an error."""
    one: Any = entry.lowering or entry.written
    one = getattr(one, "func", one)
    return f"{one.__module__}.{one.__qualname__}" if one is not None else "a table"


# -- look-up ----------------------------------------------------------------------------------------------------------

@functools.cache
def _load() -> None:
    for module in PROVIDERS:
        importlib.import_module(module)


def function(name: str) -> LibraryFunction | None:
    """Return the function of a name, or None."""
    _load()
    return _functions.get(name)


def variant(name: str, kind: type) -> Callable[..., Any] | None:
    """Return the lowering of calls of a function whose first argument is of a type, or None."""
    return _variants.get((name, kind))


def functions() -> Mapping[str, LibraryFunction]:
    """Return all functions by their names."""
    _load()
    return _functions


def names() -> list[str]:
    """Return the names of the functions and types that this Python and this NumPy have, and those of modules that need
    not be installed, with their modules.
    """
    _load()
    library = {name for name in _names.values() if _functions[name].family != "check"}
    return sorted({*library, *(name for name in _functions if name.rpartition(".")[0] in OPTIONAL)})


def methods() -> Mapping[str, str]:
    """Return the methods of numbers and arrays, with the names of the functions that they are."""
    _load()
    return _methods


def _name_of(value: object) -> str | None:
    _load()
    try:
        return _names.get(value) or _optional_name(value)
    except TypeError:
        return None


def _optional_name(value: object) -> str | None:
    """Return the name of a registered function of a module that need not be installed, or None."""
    short = getattr(value, "__name__", None)
    for module in OPTIONAL if short is not None else ():
        if f"{module}.{short}" in _functions and getattr(sys.modules.get(module), str(short), None) is value:
            return f"{module}.{short}"
    return None


def name_of(value: object) -> str | None:
    """Return the name of the library function or type that an object is; None for other objects, and for functions in
    whose place one of the language is read.
    """
    if isinstance(value, np.dtype):
        return f"numpy.{value.name}" if value.names is None and value.shape == () else None
    name = _name_of(value)
    return None if name is None or _functions[name].written else name


def is_of_library(value: object) -> bool:
    """Return whether an object is a function or type of the libraries that the language knows."""
    return _name_of(value) is not None or (isinstance(value, np.dtype) and name_of(value) is not None)


def written(value: object, _: object = None) -> Callable[..., Any] | None:
    """Return the function of the language that is read in place of a function of NumPy or Python, or None."""
    name = _name_of(value)
    return None if name is None else _functions[name].written


def nearest(name: str) -> str | None:
    """Return the function of the same module whose name is nearest to one that is not known, or None.

    Examples
    --------
    >>> nearest("numpy.cumsums")
    'numpy.cumsum'
    """
    module, _, short = name.rpartition(".")
    candidates = [one.rpartition(".")[2] for one in names() if one.rpartition(".")[0] == module]
    matches = difflib.get_close_matches(short, candidates, 1, 0.8)
    return f"{module}.{matches[0]}" if matches else None
