"""Reader of the undefined symbols of ELF object files."""

from __future__ import annotations

import struct

_HEADER = struct.Struct("<16xHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")

_SYMBOL_TABLE = 2
_THREAD_LOCAL = 6


def undefined_symbols(data: bytes) -> dict[str, bool]:
    """Return the undefined symbols of a 64-bit little-endian object file, and for each whether it is thread-local."""
    header = _HEADER.unpack_from(data)
    sections = [_SECTION.unpack_from(data, header[5] + i * header[10]) for i in range(header[11])]
    symbols = {}
    for _, kind, _, _, offset, size, link, *_ in sections:
        if kind != _SYMBOL_TABLE:
            continue
        strings = sections[link][4]
        for place in range(offset, offset + size, _SYMBOL.size):
            name, info, _, section, _, _ = _SYMBOL.unpack_from(data, place)
            if name and section == 0:
                start = strings + name
                symbols[data[start:data.index(b"\0", start)].decode()] = info & 15 == _THREAD_LOCAL
    return symbols
