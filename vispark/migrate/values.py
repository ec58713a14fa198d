"""Values as msgpack has them, with their types: numbers, strings, arrays, and lists, tuples and dicts of these.

No pickles: a file of results says nothing that a reader would run.
"""

from __future__ import annotations

from typing import Any

import msgpack
import numpy as np

_KINDS = "biufcmMSU"


def encoded(value: Any) -> bytes:
    """Return the bytes of a value; of objects of other types only the name of their type is kept.

    Examples
    --------
    >>> decoded(encoded({1: (np.float32(0.5), [None, 2 ** 70])}))
    {1: (np.float32(0.5), [None, 1180591620717411303424])}
    >>> decoded(encoded(object))
    '<type>'
    """
    return bytes(msgpack.packb(_form(value), use_bin_type=True))


def decoded(data: bytes) -> Any:
    """Return the value of :func:`encoded` bytes."""
    return _value(msgpack.unpackb(data, raw=False, strict_map_key=False))


def _form(value: Any) -> Any:
    if value is None or isinstance(value, bool | str | bytes):
        return str(value) if isinstance(value, str) else value
    if isinstance(value, np.generic | np.ndarray) and value.dtype.kind in _KINDS:
        array = np.ascontiguousarray(value)
        return ["n" if isinstance(value, np.generic) else "a", array.dtype.str, list(np.shape(value)), array.tobytes()]
    if isinstance(value, int):
        return int(value) if -2 ** 63 <= value < 2 ** 64 else ["i", str(int(value))]
    if isinstance(value, float):
        return float(value)
    if isinstance(value, complex):
        return ["c", value.real, value.imag]
    if isinstance(value, list | tuple):
        return ["l" if isinstance(value, list) else "t", [_form(each) for each in value]]
    if isinstance(value, dict):
        return ["d", [[_form(key), _form(each)] for key, each in value.items()]]
    if isinstance(value, set | frozenset):
        return ["l", sorted((_form(each) for each in value), key=repr)]
    if isinstance(value, np.ndarray):
        return ["l", [_form(each) for each in value.tolist()]]
    return f"<{type(value).__name__}>"


def _value(form: Any) -> Any:
    if not isinstance(form, list):
        return form
    tag, *parts = form
    if tag in ("a", "n"):
        array = np.frombuffer(parts[2], dtype=parts[0]).reshape(parts[1])
        return array if tag == "a" else array[()]
    if tag == "i":
        return int(parts[0])
    if tag == "c":
        return complex(parts[0], parts[1])
    if tag == "d":
        return {_hashable(_value(key)): _value(each) for key, each in parts[0]}
    return (list if tag == "l" else tuple)(_value(each) for each in parts[0])


def _hashable(key: Any) -> Any:
    return tuple(key) if isinstance(key, list) else key
