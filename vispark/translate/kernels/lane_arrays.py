"""Rewriting of a row function of four lanes with arrays in shared memory as one with arrays in registers.

A lane's own numbers of an array, ``j = slot * 4 + lane``, are in registers. A number at another place, of which all
lanes of the row know which it is, comes from the lane that has it. A function that reads numbers of other lanes
otherwise, as a sort does, stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

#: Lanes of a row.
LANES = 4
_SCRATCH = re.compile(r"\s*(\w+(?: \w+)?)\* const (\w+) = \(\1\*\)\(scratch \+ (\d+)\);")
_PLACE = re.compile(rf"\s*const int (\w+) = \w+ \* {LANES} \+ lane;")
_LOOP = re.compile(r"\s*for \(int \w+ = \d+; \w+ < \d+; \+\+\w+\) \{")
_ONE_LANE = re.compile(r"    if \(lane == 0\) (\w+)\[(\w+)\] = (\w+);")
_SETTLED = f"    rows::settle<{LANES}>();"
_ITEMSIZES = {"float": 4, "int": 4, "double": 8, "long long": 8}


class _Elsewhere(Exception):
    """Signal that a line reads numbers of other lanes in a way that registers do not have."""


def in_registers(lines: Sequence[str], rows: frozenset[str], scratch: int) -> list[str] | None:
    """Return the lines of a row function with its arrays, and those named ``rows``, in registers; None if they have to
    lie in shared memory, of which there are ``scratch`` bytes.

    Examples
    --------
    >>> in_registers(["    if (lane == 0) q[i] = value;"], frozenset("q"), 0)
    ['    rows::put_at(q, i, value);']
    >>> in_registers(["    const float last = q[i] - 1.0f;"], frozenset("q"), 0)
    ['    const float last = rows::number_at(q, i) - 1.0f;']
    """
    arrays = _arrays(lines, scratch)
    if arrays is None:
        return None
    try:
        return list(_turned(lines, rows | arrays.keys(), arrays))
    except _Elsewhere:
        return None


def _arrays(lines: Sequence[str], scratch: int) -> dict[str, str] | None:
    """Return the declarations of a function's own arrays by their names; None if it has others than such."""
    matches = [match for line in lines if (match := _SCRATCH.fullmatch(line))]
    if sum("scratch" in line for line in lines) != len(matches) or len({one[2] for one in matches}) != len(matches):
        return None
    ends = sorted({int(one[3]) for one in matches} | {scratch})
    declared: dict[str, str] = {}
    for c, name, first in (one.groups() for one in matches):
        end = next((end for end in ends if end > int(first)), None)
        if c not in _ITEMSIZES or end is None:
            return None
        declared[name] = f"rows::LanesArray<{c}, {-(-(end - int(first)) // _ITEMSIZES[c])}> {name};"
    return declared


def _turned(lines: Sequence[str], names: frozenset[str], arrays: Mapping[str, str]) -> Iterator[str]:
    places, before = set[str](), ""
    for line in lines:
        declared, place, one = _SCRATCH.fullmatch(line), _PLACE.fullmatch(line), _ONE_LANE.fullmatch(line)
        if place is not None:
            places.add(place[1])
        if _LOOP.fullmatch(line) and "VISPARK_UNROLL" not in before:
            # Registers have no places that a loop finds out as it goes.
            raise _Elsewhere
        before = line
        if line.strip() == _SETTLED.strip():
            continue
        if declared is not None:
            yield line[:len(line) - len(line.lstrip())] + arrays[declared[2]]
        elif one is not None and one[1] in names and one[2] not in places:
            yield f"    rows::put_at({one[1]}, {one[2]}, {one[3]});"
        else:
            yield _read(line, names, places)


def _read(line: str, names: frozenset[str], places: set[str]) -> str:
    """Return a line whose numbers at other places than the lane's own come from the lanes that have them."""
    def number(match: re.Match[str]) -> str:
        name, place = match.groups()
        if name not in names:
            return match[0]
        if place == "lane" or place in places:
            return match[0]
        written = line[match.end():].startswith(" = ") or re.match(r" [-+*/]= ", line[match.end():])
        if written or not line.startswith("    ") or line.startswith("     ") or not re.fullmatch(r"\w+", place):
            raise _Elsewhere
        return f"rows::number_at({name}, {place})"

    for word in re.finditer(r"\w+", line):
        if word[0] in names and not re.match(r"\[[^][]*\]", line[word.end():]):
            raise _Elsewhere
    return re.sub(r"\b(\w+)\[([^][]*)\]", number, line)
