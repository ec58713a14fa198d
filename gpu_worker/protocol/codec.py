"""Frozen dataclasses to msgpack and back, checked against their annotations.

A record is an array of its fields in the order of declaration; a member of a union is led by its class's position in
the union. What arrives is checked field by field, so that a handler never sees a value of another type than its
annotation says; an error names the path to the field. Sizes are capped by msgpack itself before anything is built.
"""

from __future__ import annotations

import dataclasses
import functools
import threading
import types
import typing
from collections.abc import Callable
from typing import Any

import msgpack

from gpu_worker.protocol.errors import ProtocolError
from gpu_worker.protocol.frame_scan import LONG_BYTES, FrameScan

#: Most items in one array; a plan over 100,000 partitions still fits.
MAX_ITEMS = 1 << 17

Pack = Callable[[typing.Any], typing.Any]
Unpack = Callable[[typing.Any], typing.Any]

_NUMBERS = {int: (int,), float: (float, int), str: (str,), bytes: (bytes,), bool: (bool,)}


#: Is no value of any field.
_NOTHING = object()


class _Packer(threading.local):
    """A thread's own, as making one takes as long as packing a message."""

    def __init__(self) -> None:
        self.pack = msgpack.Packer(use_bin_type=True).pack


_packer = _Packer()


class _Mismatch(Exception):
    """Error of a decoded value that does not have its annotated type; the path to the value is built while the error
    propagates.
    """

    def __init__(self, message: str):
        self.path = ""
        self.message = message

    def within(self, step: str) -> _Mismatch:
        """Prepend a step to the path of the error's value, and return the error."""
        self.path = step + self.path
        return self


def encode(value: object, of: object) -> bytes:
    """Encode ``value``, a record or a member of the union ``of``."""
    return _packer.pack(_codec(of)[0](value))


def decode(data: bytes | bytearray | memoryview, of: object) -> typing.Any:
    """Decode a record or a member of the union ``of``.

    Raises
    ------
    ProtocolError
        If ``data`` is not msgpack, is deeper or longer than the caps, or does not match the annotations.
    """
    if len(data) > LONG_BYTES:
        FrameScan(data).check(of)
    raw = _raw(data)
    try:
        return _codec(of)[1](raw)
    except _Mismatch as error:
        raise ProtocolError(f"message{error.path} is {error.message}") from error


def leading(data: bytes | bytearray | memoryview, *types: type) -> tuple[typing.Any, ...]:
    """Return the first fields of a record, whatever follows them, where they are of these types; else nothing.

    Raises
    ------
    ProtocolError
        If ``data`` is not msgpack, or is deeper or longer than the caps.
    """
    raw = _raw(data)
    values = raw[:len(types)] if type(raw) is tuple else ()
    return values if tuple(map(type, values)) == types else ()


def _raw(data: bytes | bytearray | memoryview) -> typing.Any:
    try:
        return msgpack.unpackb(data, raw=False, use_list=False, strict_map_key=True, max_array_len=MAX_ITEMS,
                               max_map_len=0, max_ext_len=0)
    except (ValueError, msgpack.UnpackException, RecursionError) as error:
        raise ProtocolError(f"a frame is not a message of this protocol: {error or type(error).__name__}") from error


@functools.cache
def _codec(of: object) -> tuple[Pack, Unpack]:
    """Return the packing and the unpacking function of an annotation."""
    if of in _NUMBERS:
        return _plain(of)
    if dataclasses.is_dataclass(of):
        return _record(of)
    origin, inner = typing.get_origin(of), typing.get_args(of)
    if origin is tuple and len(inner) == 2 and inner[1] is Ellipsis:
        return _sequence(inner[0])
    if origin in (typing.Union, types.UnionType):
        members = [member for member in inner if member is not type(None)]
        if len(members) == 1:
            return _optional(members[0])
        if type(None) not in inner and all(dataclasses.is_dataclass(member) for member in members):
            return _union(members)
    raise TypeError(f"no message may have a field of type {of}")


def _plain(of: typing.Any) -> tuple[Pack, Unpack]:
    accepted = _NUMBERS[of]

    def unpack(raw: typing.Any) -> typing.Any:
        if type(raw) not in accepted:
            raise _Mismatch(f"{_describe(raw)}, not {of.__name__}")
        return of(raw)

    return (lambda value: value), unpack


def _record(of: typing.Any) -> tuple[Pack, Unpack]:
    hints = typing.get_type_hints(of)
    names = [field.name for field in dataclasses.fields(of)]
    codecs = [_codec(hints[name]) for name in names]
    plain = [place for place, name in enumerate(names) if hints[name] in _NUMBERS]
    #: The rest, each with what is the same packed, if something is.
    checked = [(place, codec, _unchanged(hints[names[place]])) for place, codec in enumerate(codecs)
               if place not in plain]
    count = len(names)

    def unpack(raw: typing.Any) -> typing.Any:
        if type(raw) is not tuple or len(raw) != count:
            raise _Mismatch(f"{_describe(raw)}, not the {count} fields of {of.__name__}")
        values, place = list(raw), 0
        try:
            for place in plain:
                values[place] = codecs[place][1](raw[place])
            for place, (_, unpacker), nothing in checked:
                if raw[place] is not nothing:
                    values[place] = unpacker(raw[place])
        except _Mismatch as error:
            raise error.within("." + names[place]) from error
        return of(*values)

    return _written(of, names, plain, checked, unpack)


def _written(of: type, names: list[str], plain: list[int], rest: list[Any], careful: Unpack) -> tuple[Pack, Unpack]:
    """Return a packer and an unpacker with code generated for the fields of one class, as :mod:`dataclasses` does for
    methods.

    They take two thirds of what loops over the fields do, and a plan that comes again is four messages' work. What is
    not right is left to the ``careful`` one, which says where.
    """
    names_in_code: dict[str, typing.Any] = {"of": of, "careful": careful, "Mismatch": _Mismatch}
    fields = [f"v{place}" for place in range(len(names))]
    packed, read = [f"value.{name}" for name in names], []
    for place, (packer, unpacker), nothing in rest:
        names_in_code |= {f"pack{place}": packer, f"unpack{place}": unpacker, f"nothing{place}": nothing}
        packed[place] = f"{packed[place]} if {packed[place]} is nothing{place} else pack{place}({packed[place]})"
        read.append(f"        if v{place} is not nothing{place}: v{place} = unpack{place}(v{place})")
    hints = typing.get_type_hints(of)
    wrong = [f"type(raw) is not tuple or len(raw) != {len(names)}"]
    wrong += [f"type(raw[{place}]) is not {hints[names[place]].__name__}" for place in plain]
    exec("\n".join([
        "def pack(value: typing.Any) -> typing.Any:", f"    return [{', '.join(packed)}]",
        "def unpack(raw: typing.Any) -> typing.Any:", f"    if {' or '.join(wrong)}: return careful(raw)",
        *([f"    {', '.join(fields)}, = raw"] if names else []),
        *(["    try:", *read, "    except Mismatch: return careful(raw)"] if read else []),
        f"    return of({', '.join(fields)})"]), names_in_code)
    return names_in_code["pack"], names_in_code["unpack"]


def _unchanged(of: typing.Any) -> object:
    if typing.get_origin(of) is tuple:
        return ()
    return None if type(None) in typing.get_args(of) else _NOTHING


def _sequence(item: typing.Any) -> tuple[Pack, Unpack]:
    pack_item, unpack_item = _codec(item)

    def pack(value: typing.Any) -> typing.Any:
        return value if item in _NUMBERS else [pack_item(part) for part in value]

    def unpack(raw: typing.Any) -> typing.Any:
        if type(raw) is not tuple:
            raise _Mismatch(f"{_describe(raw)}, not an array")
        if item in _NUMBERS and set(map(type, raw)) <= {item}:
            return raw
        try:
            return tuple([unpack_item(part) for part in raw])
        except _Mismatch as error:
            raise error.within("[]") from error

    return pack, unpack


def _optional(inner: typing.Any) -> tuple[Pack, Unpack]:
    pack_inner, unpack_inner = _codec(inner)
    return ((lambda value: None if value is None else pack_inner(value)),
            (lambda raw: None if raw is None else unpack_inner(raw)))


def _union(members: typing.Any) -> tuple[Pack, Unpack]:
    positions = {member: position for position, member in enumerate(members)}
    codecs = [_codec(member) for member in members]

    def pack(value: typing.Any) -> typing.Any:
        position = positions[type(value)]
        return [position, codecs[position][0](value)]

    def unpack(raw: typing.Any) -> typing.Any:
        if type(raw) is not tuple or len(raw) != 2 or type(raw[0]) is not int or not 0 <= raw[0] < len(members):
            raise _Mismatch(f"{_describe(raw)}, not one of " + ", ".join(member.__name__ for member in members))
        try:
            return codecs[raw[0]][1](raw[1])
        except _Mismatch as error:
            raise error.within(f"<{members[raw[0]].__name__}>") from error

    return pack, unpack


def _describe(raw: typing.Any) -> str:
    return f"an array of {len(raw)}" if type(raw) is tuple else f"of type {type(raw).__name__}"
