"""Elimination of dead C++ code: lines that compute unread values are left out, and so are the loads that only these
lines use.
"""

from __future__ import annotations

import re

_WORD = re.compile(r"\b[A-Za-z_]\w*\b")
_DECLARED = re.compile(r"^\s*(?:const )?[A-Za-z_][\w:<> ]*?[ *]+(?:const )?(?P<name>[A-Za-z_]\w*)(?: = .*|\[\d+\])?;$")
_STORED = re.compile(r"^\s*(?:if \(lane == 0\) )?(?P<name>[A-Za-z_]\w*)(?:\[[^=]*\])? [-+*/|&^]?= .*;$")
_LOOP = re.compile(r"^\s*(?:for \(.*\)|if \(\w+ < \d+\)) \{$")
_PLACE = re.compile(r"^\s*const int \w+ = [\w *+]+;$")
_SETTLE = re.compile(r"^\s*rows::settle<\d+>\(\);$")
_HINT = ("VISPARK_UNROLL", "VISPARK_SUM")


def without(lines: list[str]) -> list[str]:
    """Return the lines without variables that are not read, stores into them, and loops that are left empty.

    >>> without(["const float a = x[0];", "const float b = x[1];", "out = a;"])
    ['const float a = x[0];', 'out = a;']
    >>> without(["float a = x[0];", "const float b = a;", "a += b;"])    # read by each other alone
    []
    """
    while True:
        remaining = _without_empty_loops(_once(lines))
        if remaining == lines:
            return lines
        lines = remaining


def _once(lines: list[str]) -> list[str]:
    declared = {match["name"] for line in lines if (match := _DECLARED.match(line))}
    # What is read by lines that are not of a variable, and by those of variables that are read.
    read, by = set[str](), dict[str, set[str]]()
    for line in lines:
        if not line.strip().startswith(_HINT):
            own = _DECLARED.match(line) or _STORED.match(line)
            into = by.setdefault(own["name"], set()) if own and own["name"] in declared else read
            into.update(_WORD.findall(line))
    waiting = list(read)
    while waiting:
        further = by.get(waiting.pop(), set()) - read
        read |= further
        waiting += further
    return [line for line in lines if not _is_of(line, declared - read)]


def _is_of(line: str, names: set[str]) -> bool:
    match = _DECLARED.match(line) or _STORED.match(line)
    return match is not None and match["name"] in names


def _without_empty_loops(lines: list[str]) -> list[str]:
    remaining: list[str] = []
    for line in lines:
        # A place that ends with its block is read by nothing.
        while line.strip() == "}" and remaining and _PLACE.match(remaining[-1]):
            remaining.pop()
        if line.strip() == "}" and remaining and _LOOP.match(remaining[-1]):
            remaining.pop()
            while remaining and remaining[-1].strip().startswith(_HINT):
                remaining.pop()
        elif not (remaining and line == remaining[-1] and _SETTLE.match(line)):
            remaining.append(line)
    return remaining
