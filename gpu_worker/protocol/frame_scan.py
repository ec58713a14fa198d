"""Check of a long frame's size before it is decoded: Python's objects take up to 75 times the bytes of a frame.

Whoever sends arrays in arrays where a number belongs is refused at the first of them, and what fits its annotation at
the first object above :data:`MAX_OBJECTS`. Short frames are not looked at: what they can cost is little.
"""

from __future__ import annotations

import dataclasses
import functools
import types
import typing

from gpu_worker.protocol.errors import ProtocolError

#: From how many bytes on a frame is looked at first.
LONG_BYTES = 32 << 10
#: The most objects in a frame; a plan over 100,000 partitions has about a million.
MAX_OBJECTS = 1 << 21

#: Bytes of an object's head and body by its first byte; 0 for arrays, strings and bytes, which say it themselves.
_FIXED = {0xc0: 1, 0xc2: 1, 0xc3: 1, 0xca: 5, 0xcb: 9, 0xcc: 2, 0xcd: 3, 0xce: 5, 0xcf: 9, 0xd0: 2, 0xd1: 3, 0xd2: 5,
          0xd3: 9}
#: Bytes of the length behind the first byte, of strings and bytes, and of arrays.
_LENGTHS = {0xd9: 1, 0xda: 2, 0xdb: 4, 0xc4: 1, 0xc5: 2, 0xc6: 4}
_ARRAYS = {0xdc: 2, 0xdd: 4}

_PLAIN, _RECORD, _SEQUENCE, _UNION, _OPTIONAL = range(5)


class FrameScan:
    """A frame that is looked at, from its start.

    Parameters
    ----------
    data : bytes-like
        The frame.

    Attributes
    ----------
    looked : int
        How many objects were looked at so far.
    """

    def __init__(self, data: bytes | bytearray | memoryview):
        self._data = data
        self._at = 0
        self.looked = 0

    def check(self, of: object) -> None:
        """Look at a frame of a message of the type or union ``of``.

        Raises
        ------
        ProtocolError
            If it is built in another way, or has too many objects.
        """
        try:
            self._object(_shape(of))
        except IndexError:
            raise ProtocolError("a frame is not a message of this protocol: it ends too soon") from None

    def _object(self, shape: tuple[int, typing.Any]) -> None:
        kind, inner = shape
        if kind == _PLAIN:
            self._plain()
        elif kind == _OPTIONAL:
            if self._data[self._at] == 0xc0:
                self._plain()
            else:
                self._object(inner)
        elif kind == _RECORD:
            self._array(len(inner))
            for item in inner:
                self._object(item)
        elif kind == _UNION:
            self._array(2)
            member = self._data[self._at]
            if member >= len(inner):
                raise ProtocolError(f"message is none of the {len(inner)} that may come here")
            self._plain()
            self._object(inner[member])
        else:
            self._sequence(self._array(), inner)

    def _sequence(self, count: int, item: tuple[int, typing.Any]) -> None:
        if item[0] == _PLAIN and bytes(self._data[self._at:self._at + count]).isascii():
            # Numbers below 128, one byte each.
            self._count(count)
            self._at += count
            return
        for _ in range(count):
            self._object(item)

    def _count(self, objects: int = 1) -> None:
        self.looked += objects
        if self.looked > MAX_OBJECTS:
            raise ProtocolError(f"a frame has more than {MAX_OBJECTS:,} objects; use fewer partitions per worker")

    def _array(self, wanted: int = -1) -> int:
        """Take an array's head; its items."""
        self._count()
        first = self._data[self._at]
        if 0x90 <= first <= 0x9f:
            count = first & 15
            self._at += 1
        elif first in _ARRAYS:
            size = _ARRAYS[first]
            count = int.from_bytes(self._data[self._at + 1:self._at + 1 + size], "big")
            self._at += 1 + size
        else:
            raise ProtocolError("message has something else where an array belongs")
        if wanted not in (-1, count) or count > len(self._data) - self._at:
            raise ProtocolError(f"message has an array of {count} where {'fewer' if wanted < 0 else wanted} belong")
        return count

    def _plain(self) -> None:
        """Take a number, text or bytes; anything else is refused."""
        self._count()
        first = self._data[self._at]
        if first < 0x80 or first >= 0xe0:
            self._at += 1
        elif first in _FIXED:
            self._at += _FIXED[first]
        elif 0xa0 <= first <= 0xbf:
            self._at += 1 + (first & 31)
        elif first in _LENGTHS:
            size = _LENGTHS[first]
            self._at += 1 + size + int.from_bytes(self._data[self._at + 1:self._at + 1 + size], "big")
        else:
            raise ProtocolError("message has an array where a number, text or bytes belong")


@functools.cache
def _shape(of: typing.Any) -> tuple[int, typing.Any]:
    """Return the structure of a message of an annotated type, for skimming; leaves without arrays are left plain."""
    if dataclasses.is_dataclass(of):
        hints = typing.get_type_hints(of)
        return _RECORD, tuple(_shape(hints[field.name]) for field in dataclasses.fields(of))
    origin, inner = typing.get_origin(of), typing.get_args(of)
    if origin is tuple:
        return _SEQUENCE, _shape(inner[0])
    if origin in (typing.Union, types.UnionType):
        members = [member for member in inner if member is not type(None)]
        return (_OPTIONAL, _shape(members[0])) if len(members) == 1 else (_UNION, tuple(map(_shape, members)))
    return _PLAIN, None
