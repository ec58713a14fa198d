"""Modules that are imported when something of them is first used."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def names_of(package: str,
             places: Mapping[str, tuple[str, ...]]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the ``__getattr__`` and ``__dir__`` of a package whose names are imported when they are first used.

    Parameters
    ----------
    package : str
        The package's ``__name__``.
    places : Mapping
        Modules, and the names in each; a module that has the name itself is what the name stands for.
    """
    place = {name: module for module, names in places.items() for name in names}

    def getattribute(name: str) -> Any:
        if name not in place:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = import_module(place[name])
        value = module if place[name] == f"{package}.{name}" else getattr(module, name)
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        known = vars(sys.modules[package])
        return sorted({*known, *known.get("__all__", ()), *place})

    return getattribute, names


class LazyModule:
    """Stand-in for a module, which is imported with the first attribute that is asked for.

    Examples
    --------
    >>> LazyModule("operator").add(1, 2)
    3
    """

    def __init__(self, name: str):
        self.__name__ = name
        self._module: Any = None

    def __getattr__(self, name: str) -> Any:
        if self._module is None:
            self._module = import_module(self.__name__)
        return getattr(self._module, name)

    def __repr__(self) -> str:
        return f"LazyModule({self.__name__!r})"
