"""Caches with a bound on their entries and on the bytes that these refer to."""

from __future__ import annotations

import dataclasses
import functools
import threading
import types
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from collections.abc import Set as AbstractSet
from typing import Any, Generic, TypeVar

import numpy as np

#: What one cache refers to at most, in bytes.
MOST_BYTES = 64 << 20

_Value = TypeVar("_Value")
_Function = TypeVar("_Function", bound=Callable[..., Any])


class BoundedCache(Generic[_Value]):
    """Cache bounded by bytes: the least recently used values are dropped first, and a value that is too large alone is
    not kept.

    Parameters
    ----------
    entries : int
        How many there are at most.
    nbytes : int
        How many bytes of arrays, bytes and text keys and values refer to at most, all together.

    Examples
    --------
    >>> cache = BoundedCache(entries=2)
    >>> for name in "abc":
    ...     cache.put(name, name.upper())
    >>> cache.get("a"), cache.get("c")
    (None, 'C')
    """

    def __init__(self, entries: int, nbytes: int = MOST_BYTES):
        self._most, self._most_bytes = entries, nbytes
        self._held: OrderedDict[Hashable, tuple[_Value, int]] = OrderedDict()
        self._lock = threading.Lock()
        #: What the entries refer to, in bytes.
        self.nbytes = 0

    def __len__(self) -> int:
        return len(self._held)

    def get(self, key: Hashable) -> _Value | None:
        """Return the value of a key, which becomes the most recently used; None if there is none."""
        with self._lock:
            entry = self._held.get(key)
            if entry is None:
                return None
            self._held.move_to_end(key)
            return entry[0]

    def put(self, key: Hashable, value: _Value) -> None:
        """Keep a value, in the place of the one that the key has, if any."""
        nbytes = nbytes_of(key) + nbytes_of(value)
        with self._lock:
            before = self._held.pop(key, None)
            self.nbytes -= before[1] if before else 0
            if nbytes > self._most_bytes:
                return
            self._held[key] = value, nbytes
            self.nbytes += nbytes
            while len(self._held) > self._most or self.nbytes > self._most_bytes:
                _, (_, gone) = self._held.popitem(last=False)
                self.nbytes -= gone


def cached(entries: int, nbytes: int = MOST_BYTES) -> Callable[[_Function], _Function]:
    """Return a decorator like :func:`functools.lru_cache`, whose cache is a :class:`BoundedCache`.

    The function takes hashable arguments by position, and does not return None.
    """
    def decorate(function: _Function) -> _Function:
        held: BoundedCache[Any] = BoundedCache(entries, nbytes)

        @functools.wraps(function)
        def called(*arguments: Any) -> Any:
            result = held.get(arguments)
            if result is None:
                result = function(*arguments)
                held.put(arguments, result)
            return result

        called.cache = held  # type: ignore[attr-defined]
        return called  # type: ignore[return-value]
    return decorate


def nbytes_of(value: object) -> int:
    """Return the bytes of arrays, bytes and text that an object refers to, in containers, dataclasses and functions.

    Examples
    --------
    >>> nbytes_of((np.zeros(4), b"12345", {"k": [b"123"]}))
    41
    """
    total, seen, todo = 0, set(), [value]
    while todo:
        item = todo.pop()
        if isinstance(item, int | float | complex | type | types.ModuleType | None) or id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, bytes | bytearray | str):
            total += len(item)
        elif isinstance(item, np.ndarray | np.generic):
            total += item.nbytes
        else:
            todo += _parts(item)
    return total


def _parts(value: object) -> list[object]:
    if isinstance(value, tuple | list | AbstractSet):
        return list(value)
    if isinstance(value, Mapping):
        return [*value, *value.values()]
    if isinstance(value, types.FunctionType):
        cells = [cell.cell_contents for cell in value.__closure__ or () if not _is_empty(cell)]
        named = [value.__globals__.get(name) for name in value.__code__.co_names]
        return [*cells, *(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values(),
                *(each for each in named if isinstance(each, np.ndarray | list | tuple | dict))]
    if dataclasses.is_dataclass(value):
        return [getattr(value, field.name, None) for field in dataclasses.fields(value)]
    return []


def _is_empty(cell: types.CellType) -> bool:
    try:
        return cell.cell_contents is cell
    except ValueError:
        return True
