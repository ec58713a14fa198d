"""Values as msgpack has them, with their types: numbers, strings, arrays, and lists, tuples and dicts of these.

No pickles: a file of results says nothing that a reader would run. Large arrays may lie in a file of their own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgpack
import numpy as np

_KINDS = "biufcmMSU"
#: Bytes from which on an array is kept beside the value that has it, and numbers of a list from which on it is one.
LARGE, LONG = 1 << 18, 1 << 14
#: Elements of an array that are read at once.
BLOCK = 1 << 16

#: Takes an array that is too large for the value that has it, and returns where its bytes begin.
ArrayStore = Callable[[np.ndarray], int]


#: Values of attributes by which objects are compared.
_PLAIN = (bool, int, float, complex, str, bytes, np.generic, np.ndarray, list, tuple, type(None))


@dataclass(frozen=True)
class UnreadObject:
    """Object of which only the name of its type is known."""

    name: str


@dataclass(frozen=True)
class StoredArray:
    """Array that lies in a file, of which a block at a time is read.

    Parameters
    ----------
    path : Path
        The file.
    offset : int
        Of its first byte there.
    dtype : numpy.dtype
    shape : tuple of int
    """

    path: Path
    offset: int
    dtype: np.dtype
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Number of its elements."""
        return math.prod(self.shape)

    @property
    def ndim(self) -> int:
        """Number of its axes."""
        return len(self.shape)

    def blocks(self) -> Iterator[np.ndarray]:
        """Yield its elements in the order of C, :data:`BLOCK` at a time."""
        with self.path.open("rb") as file:
            file.seek(self.offset)
            for first in range(0, self.size, BLOCK):
                count = min(BLOCK, self.size - first)
                yield np.frombuffer(file.read(count * self.dtype.itemsize), self.dtype)


def whole(value: Any) -> Any:
    """Return a value with the arrays that lie in files read, as a program can have it."""
    if isinstance(value, StoredArray):
        return np.concatenate([*value.blocks(), np.empty(0, value.dtype)]).reshape(value.shape)
    if isinstance(value, list | tuple):
        return type(value)(whole(each) for each in value)
    return {key: whole(each) for key, each in value.items()} if isinstance(value, dict) else value


def array_blocks(array: np.ndarray | StoredArray) -> Iterator[np.ndarray]:
    """Yield the elements of an array in the order of C, :data:`BLOCK` at a time, without a copy of all of them.

    Examples
    --------
    >>> [block.tolist() for block in array_blocks(np.arange(4).reshape(2, 2).T)]
    [[0, 2, 1, 3]]
    """
    if isinstance(array, StoredArray):
        yield from array.blocks()
    elif array.size <= BLOCK or array.flags.c_contiguous:
        flat = array.reshape(-1)
        for first in range(0, flat.size, BLOCK):
            yield flat[first:first + BLOCK]
    else:
        for first in range(0, array.size, BLOCK):
            yield array.flat[first:first + BLOCK]


def encoded(value: Any, store: ArrayStore | None = None) -> bytes:
    """Return the bytes of a value; objects of other types are dicts of their attributes, where these are such values.

    Of all else only the name of the type is kept.

    Parameters
    ----------
    value : object
    store : callable, optional
        Takes arrays of :data:`LARGE` bytes and more, and lists of :data:`LONG` floats and more. [default: none does]

    Examples
    --------
    >>> decoded(encoded({1: (np.float32(0.5), [None, 2 ** 70])}))
    {1: (np.float32(0.5), [None, 1180591620717411303424])}
    >>> decoded(encoded(object))
    UnreadObject(name='type')
    """
    return bytes(msgpack.packb(_form(value, store), use_bin_type=True))


def decoded(data: bytes, path: Path | None = None) -> Any:
    """Return the value of :func:`encoded` bytes; ``path`` is the file that has its large arrays."""
    return value_of(msgpack.unpackb(data, raw=False, strict_map_key=False), path)


def _form(value: Any, store: ArrayStore | None) -> Any:
    if value is None or isinstance(value, bool | str | bytes):
        return str(value) if isinstance(value, str) else value
    if isinstance(value, np.generic | np.ndarray) and value.dtype.kind in _KINDS:
        return _array_form(value, store)
    if isinstance(value, StoredArray):
        return ["A", value.dtype.str, list(value.shape), value.offset]
    if isinstance(value, int):
        return int(value) if -2 ** 63 <= value < 2 ** 64 else ["i", str(int(value))]
    if isinstance(value, float):
        return float(value)
    if isinstance(value, complex):
        return ["c", value.real, value.imag]
    if isinstance(value, list | tuple):
        if store is not None and len(value) >= LONG and all(isinstance(each, float) for each in value):
            return _array_form(np.array(value, np.float64), store)
        return ["l" if isinstance(value, list) else "t", [_form(each, store) for each in value]]
    if isinstance(value, dict):
        return ["d", [[_form(key, None), _form(each, store)] for key, each in value.items()]]
    if isinstance(value, set | frozenset):
        return ["l", sorted((_form(each, None) for each in value), key=repr)]
    if isinstance(value, np.ndarray):
        return ["l", [_form(each, store) for each in value.tolist()]]
    if not isinstance(value, type):
        attributes = {name: each for name, each in getattr(value, "__dict__", {}).items() if not callable(each)}
        if attributes and all(isinstance(each, _PLAIN) for each in attributes.values()):
            return _form(attributes, store)
    return ["?", type(value).__name__]


def _array_form(value: np.generic | np.ndarray, store: ArrayStore | None) -> list[Any]:
    if store is not None and isinstance(value, np.ndarray) and value.nbytes >= LARGE:
        return ["A", value.dtype.str, list(value.shape), store(value)]
    array = np.ascontiguousarray(value)
    return ["n" if isinstance(value, np.generic) else "a", array.dtype.str, list(np.shape(value)), array.tobytes()]


def value_of(form: Any, path: Path | None = None) -> Any:
    """Return the value of what msgpack gives of :func:`encoded` bytes."""
    if not isinstance(form, list):
        return form
    tag, *parts = form
    if tag in ("a", "n"):
        array = np.frombuffer(parts[2], dtype=parts[0]).reshape(parts[1])
        return array if tag == "a" else array[()]
    if tag == "A":
        assert path is not None, "arrays beside a value lie in a file"
        return StoredArray(path, parts[2], np.dtype(parts[0]), tuple(parts[1]))
    if tag == "?":
        return UnreadObject(parts[0])
    if tag == "i":
        return int(parts[0])
    if tag == "c":
        return complex(parts[0], parts[1])
    if tag == "d":
        return {_hashable(value_of(key, path)): value_of(each, path) for key, each in parts[0]}
    return (list if tag == "l" else tuple)(value_of(each, path) for each in parts[0])


def _hashable(key: Any) -> Any:
    return tuple(key) if isinstance(key, list) else key
